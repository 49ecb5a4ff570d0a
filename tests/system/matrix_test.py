#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each role is killed and frozen at each moment: idle, prefill, decode, while its warden fills. The client of a
running stream, or the next one, gets the text of one process. No node has the file: it comes from wardens, and to them
from a store that is slow when it has to be."""
import signal
import sys
import time
import unittest

from _cluster import Cluster, FileServer, Solo, wait_until, words
from _late import TooLate, in_time
from serve_test import greedy
from _wardens import MODEL as KNOT_MODEL

STOPS = (signal.SIGKILL, signal.SIGSTOP)
STATIONS = SHARDS = 3
LONG_DELAY = 0.7  # then it takes some ten
FILL_DELAY = 0.35  # of a request to the store: a slice takes two seconds
PROMPT_ROWS = 250


class Matrix(unittest.TestCase):
    turn = 0

    @classmethod
    def setUpClass(cls):
        cls.solo = Solo()
        cls.store = FileServer(KNOT_MODEL.path.parent)
        cls.store.__enter__()
        cls.c = Cluster("--chunk", "16", store=cls.store, stations=STATIONS, shards=SHARDS)

    @classmethod
    def tearDownClass(cls):
        try:
            cls.c.end_beside(cls.solo)
        finally:
            cls.store.__exit__()

    def next(self):
        Matrix.turn += 1
        return Matrix.turn

    def node(self, role):
        """The nodes of a role take turns: who dies often waits longer each time before it is started again."""
        return role + "-0" if role == "coordinator" else f"{role}-{self.next() % 3}"

    def question(self, rows=0, tokens=10):
        return greedy(words(rows, self.next()), tokens) if rows else greedy(f"What is {self.next()} and one?", tokens)

    def each(self, role, act):
        for number in STOPS:
            node = self.node(role)
            with self.subTest(node=node, signal=signal.Signals(number).name):
                in_time(lambda: act(node, number))

    def idle(self, node, number):
        wait_until(lambda: self.c.gauge("cobord_slots_active") == 0)
        hit = self.c.hit(node, number)
        body = self.question()
        self.assertEqual(self.c.begin(body).text(), self.solo.text(body))
        self.c.whole_again(hit)

    def prefill(self, node, number):
        """Some of the prompt's rows have been through the last station, and some have not."""
        last = f"station-{STATIONS - 1}"
        name = "cobord_station_rows_total"
        body = self.question(PROMPT_ROWS, 6)
        expected = self.solo.text(body)
        before = self.c.figures(last)[name]
        s = self.c.begin(body)
        with self.c.striking([s], [expected]) as hits:
            wait_until(lambda: self.c.figures(last)[name] > before)
            hits.append(self.c.hit(node, number))
            if s.pieces:
                raise TooLate("the prompt was too short for this test")

    def decode(self, node, number):
        body = {**self.question(tokens=40), "logit_bias": {"2": -100, "0": -100}}  # it goes on
        expected = self.solo.text(body)
        s = self.c.begin(body)
        with self.c.striking([s], [expected]) as hits:
            s.wait_pieces(3)
            hits.append(self.c.hit(node, number))
            s.still_on()
        if node == "coordinator-0" and not s.breaks:  # else it breaks, and the rest comes by Last-Event-ID
            raise TooLate("the whole answer had left already")

    def fill(self, node, number):
        """A station, a shard and their wardens have just begun again; the slice is not there yet."""
        i = self.next() % 3 if node == "coordinator-0" else int(node[-1])
        body = self.question()
        expected = self.solo.text(body)
        pair = [f"layer-warden-{i}", f"station-{i}"]
        if node.startswith("shard"):
            pair = [f"shard-warden-{i}", f"shard-{i}"]
        self.store.delay, hits = FILL_DELAY, []
        try:
            asked = self.store.requests
            hits += [self.c.hit(n, signal.SIGKILL) for n in pair]
            for n, old in hits:
                self.c.wait_for_new(n, old)
            wait_until(lambda: self.store.requests >= asked + 2)
            if self.c.is_ready(pair[1]):
                raise TooLate("the fill was too quick for this test")
            hits.append(self.c.hit(node, number))
            self.assertEqual(self.c.begin(body).text(), expected)
        finally:
            self.store.delay = 0.0
            self.c.whole_again(*hits)

    def test_a_long_load(self):
        """A station that loads for much longer than a frozen one is suffered: it is alive, says that it is loading,
        and the request that waits for it is answered."""
        in_time(self.long_load)

    def long_load(self):
        body = self.question()
        expected = self.solo.text(body)
        self.store.delay = LONG_DELAY
        try:
            hits = [self.c.hit(node, signal.SIGKILL) for node in ("layer-warden-1", "station-1")]
            for node, old in hits:
                self.c.wait_for_new(node, old)
            began, processes = time.monotonic(), self.c.nodes()
            s = self.c.begin(body)
            wait_until(lambda: b"loading" in self.c.call_node("station-1", "GET", "/ready")[1])
            while not self.c.is_ready("station-1"):
                status, _ = self.c.call_node("station-1", "GET", "/health", 3)  # what `up` waits
                self.assertEqual(status, 200, self.c.errors()[-1500:])
                self.assertLess(time.monotonic() - began, 60)
            took = time.monotonic() - began
            self.assertEqual(s.text(), expected)
            self.assertEqual(self.c.nodes(), processes, self.c.errors()[-1500:])
            if took < 5:
                raise TooLate(f"a load of {took} s was too quick for this test")
        finally:
            self.store.delay = 0.0

    def test_coordinator_idle(self):
        self.each("coordinator", self.idle)

    def test_coordinator_prefill(self):
        self.each("coordinator", self.prefill)

    def test_coordinator_decode(self):
        self.each("coordinator", self.decode)

    def test_coordinator_fill(self):
        self.each("coordinator", self.fill)

    def test_station_idle(self):
        self.each("station", self.idle)

    def test_station_prefill(self):
        self.each("station", self.prefill)

    def test_station_decode(self):
        self.each("station", self.decode)

    def test_station_fill(self):
        self.each("station", self.fill)

    def test_shard_idle(self):
        self.each("shard", self.idle)

    def test_shard_prefill(self):
        self.each("shard", self.prefill)

    def test_shard_decode(self):
        self.each("shard", self.decode)

    def test_shard_fill(self):
        self.each("shard", self.fill)

    def test_layer_warden_idle(self):
        self.each("layer-warden", self.idle)

    def test_layer_warden_prefill(self):
        self.each("layer-warden", self.prefill)

    def test_layer_warden_decode(self):
        self.each("layer-warden", self.decode)

    def test_layer_warden_fill(self):
        self.each("layer-warden", self.fill)

    def test_shard_warden_idle(self):
        self.each("shard-warden", self.idle)

    def test_shard_warden_prefill(self):
        self.each("shard-warden", self.prefill)

    def test_shard_warden_decode(self):
        self.each("shard-warden", self.decode)

    def test_shard_warden_fill(self):
        self.each("shard-warden", self.fill)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2, warnings="ignore"))
