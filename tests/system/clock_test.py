#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clocks that jump while a cluster answers: the time of day by a day and back, the steady clock by minutes or not at
all. The text stays that of one process; nothing that was begun is lost, nobody is taken for dead, nothing expires that
should not. shift_clock.c, loaded before the C library, gives all processes other clocks."""
import datetime
import json
import mmap
import os
import pathlib
import signal
import struct
import sys
import tempfile
import time
import unittest

import _wardens
from _cluster import GO_ON, Cluster, Solo
from _late import in_time
from serve_test import CHAT, Server, greedy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
from support import must  # noqa: E402

SHIFT_CLOCK = os.path.abspath(os.environ.get("SHIFT_CLOCK", "build/tests/libshift_clock.so"))
assert os.path.exists(SHIFT_CLOCK), SHIFT_CLOCK  # it would be left out without a word
DAY = 86400
SECOND_NS = 10 ** 9
MOUNTAIN = greedy("Tell me of a mountain.", 40, **GO_ON)


class Clocks:
    """The clocks of all processes that are started with the environment."""

    def __init__(self):
        self.file = tempfile.NamedTemporaryFile()
        self.file.truncate(24)
        self.map = mmap.mmap(self.file.fileno(), 24)
        self.environment = {"LD_PRELOAD": SHIFT_CLOCK, "CLOCK_CONTROL": self.file.name}

    def __enter__(self):
        os.environ.update(self.environment)
        return self

    def __exit__(self, *_):
        for name in self.environment:
            os.environ.pop(name)

    def wall(self, seconds):
        struct.pack_into("<q", self.map, 0, seconds * SECOND_NS)

    def steady_ahead(self, seconds):
        """It never goes back."""
        struct.pack_into("<q", self.map, 8, struct.unpack_from("<q", self.map, 8)[0] + seconds * SECOND_NS)

    def freeze(self):
        struct.pack_into("<q", self.map, 16, time.clock_gettime_ns(time.CLOCK_MONOTONIC))

    def thaw(self):
        """On from where it stood."""
        frozen, = struct.unpack_from("<q", self.map, 16)
        ahead, = struct.unpack_from("<q", self.map, 8)
        struct.pack_into("<q", self.map, 8, ahead - (time.clock_gettime_ns(time.CLOCK_MONOTONIC) - frozen))
        struct.pack_into("<q", self.map, 16, 0)


class ClusterTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.solo = Solo()
        cls.text = cls.solo.text(MOUNTAIN)
        cls.clocks = Clocks()
        with cls.clocks:
            cls.c = Cluster("--log-format", "json", stations=2, shards=2)

    @classmethod
    def tearDownClass(cls):
        cls.c.end_beside(cls.solo)

    def calm(self, jump):
        """jump(stream) in its midst: the whole text, in one go, from the nodes that were there; and the next one is
        right as well."""
        nodes = self.c.nodes()

        def attempt():
            stream = self.c.begin(MOUNTAIN)
            try:
                with self.c.striking([stream], [self.text]):
                    stream.wait_pieces(3)
                    jump(stream)
            finally:
                self.assertEqual(stream.breaks, 0)
                self.assertEqual(self.c.nodes(), nodes, self.c.errors()[-2000:])
        in_time(attempt)
        self.next_is_right()

    def next_is_right(self):
        self.assertEqual(self.c.begin(MOUNTAIN).text(), self.text)

    def test_time_of_day(self):
        for days in (1, -1):
            with self.subTest(days):
                def there_and_back(stream):
                    self.clocks.wall(days * DAY)
                    try:
                        stream.wait_pieces(10)
                    finally:
                        self.clocks.wall(0)
                self.calm(there_and_back)
                self.clocks.wall(days * DAY)
                self.next_is_right()
                self.clocks.wall(0)
        lines = [json.loads(line) for line in self.c.errors().splitlines() if line.startswith("{")]
        self.assertTrue(lines)  # lines stay lines, whatever time they say

    def test_steady_clock_ahead(self):
        """As after the machine slept: more than any deadline has gone by."""
        for seconds in (45, 600):
            with self.subTest(seconds):
                self.calm(lambda _: self.clocks.steady_ahead(seconds))

    def test_steady_clock_stands_still(self):
        def stand_still(stream):
            self.clocks.freeze()
            try:
                stream.wait_pieces(10)
                time.sleep(2)
            finally:
                self.clocks.thaw()
        self.calm(stand_still)

    def test_resumed_after_the_jump(self):
        """What the journal has is not old because somebody set the clock ahead."""
        body = dict(MOUNTAIN, max_tokens=150)
        expected = self.solo.text(body)

        def attempt():
            stream = self.c.begin(body)
            try:
                with self.c.striking([stream], [expected]) as hits:
                    stream.wait_pieces(3)
                    self.clocks.wall(DAY)
                    self.clocks.steady_ahead(61)  # the journal looks for what is old once a minute
                    self.c.begin(greedy("Hi", 1)).text()
                    stream.still_on()
                    hits.append(self.c.hit("coordinator-0", signal.SIGKILL))
            finally:
                self.clocks.wall(0)
            return stream
        self.assertGreaterEqual(in_time(attempt).breaks, 1)


class ServeTest(unittest.TestCase):
    def test_key_limits(self):
        """A limit of a minute is one of a minute that went by."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        keys = pathlib.Path(folder.name) / "keys.json"
        made = must("keys", "new", "one", "--file", keys, "--requests-per-minute", "2")
        key = made.decode().split()[-1]
        clocks = Clocks()
        with clocks:
            server = Server("--context", "256", "--api-keys", str(keys))
        try:
            def ask():
                return server.call("POST", CHAT, greedy("Hi", 1), {"Authorization": "Bearer " + key})[0]
            self.assertEqual([ask(), ask(), ask()], [200, 200, 429])
            for days in (1, -1, 0):
                clocks.wall(days * DAY)
                self.assertEqual(ask(), 429)
            clocks.steady_ahead(60)
            self.assertEqual([ask(), ask(), ask()], [200, 200, 429])
        finally:
            self.assertEqual(server.stop(), 0)


class WardenTest(_wardens.Base):
    def test_store_of_another_time(self):
        """S3 refuses what was signed a quarter of an hour ago; the warden signs by the store's clock then."""
        def refuse(headers):
            signed = datetime.datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
            off = abs((signed - datetime.datetime.utcnow()).total_seconds())
            return b"<Error><Code>RequestTimeTooSkewed</Code></Error>" if off > 900 else None
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "models").symlink_to(_wardens.MODEL.path.parent)
            with _wardens.FileServer(folder, refuse=refuse) as store:
                clocks = Clocks()
                cluster = self.cluster(store="s3://models")
                env = {"COBORD_S3_ENDPOINT": store.url, "AWS_REGION": "x", "AWS_ACCESS_KEY_ID": "x",
                       "AWS_SECRET_ACCESS_KEY": "x"}
                warden = cluster.start("layer-warden-0", env={**env, **clocks.environment})
                for i, days in enumerate((0, 1, 0, -1)):
                    clocks.wall(days * DAY)
                    name = f"blk_{3 * i}_ffn_down_weight"
                    self.assertEqual(self.tensor(warden, name)[5], _wardens.KNOT.bytes(name), days)
                self.assertEqual(store.refused, 3)

    def test_rows_that_expire(self):
        """A row is good for a day by the clock, and only the clock ends it. Each warden is a new one, with nothing in
        its memory: what it finds in the file it answers as numbers, what it has from the store as it is there."""
        clocks = Clocks()
        cluster = self.cluster(shard={"cache": "sqlite:rows.db"})
        numbers = struct.pack(f"<{_wardens.MODEL.hidden}f", *self.values(7))
        for step in ((0, False), (0, True), (2, False), (2, True), (0, True), (-2, True)):
            days, found = step
            clocks.wall(days * DAY)
            warden = cluster.start("shard-warden-0", env=clocks.environment)
            self.assertEqual(self.row(warden, 7)[0][5], numbers if found else _wardens.KNOT.row(7), step)
            if not found:
                _wardens.wait_for("the row to be written", lambda: _wardens.stats(warden)["rows_l2"]["writes"] == 1)
            rows = _wardens.stats(warden)["rows_l2"]
            self.assertEqual((rows["hits"], rows["misses"], rows["bad"]), (found, not found, 0), step)
            warden.kill()


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
