#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bits that flip where bytes rest: in a warden's memory, in its files, in the row store's file, in a node's slice, in
the object, and on the way from there. They are found by their hashes, counted, and read again from below; the text is
the text of one process. What cannot be healed is an error that names it."""
import os
import pathlib
import random
import re
import shutil
import sys
import tempfile
import unittest

import _wardens
from _wardens import ATTN, KNOT, MIB, MODEL, FileServer, descriptors, stats, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
from support import run  # noqa: E402

CHOICE = random.Random(9)


def flip_in_file(path, count, first=0, last=None):
    """Bits all over a file or a part of it, whose times stay as they were."""
    times = os.stat(path)
    with open(path, "r+b") as f:
        for _ in range(count):
            at = CHOICE.randrange(first, last or times.st_size)
            f.seek(at)
            byte = f.read(1)[0]
            f.seek(at)
            f.write(bytes([byte ^ 1 << CHOICE.randrange(8)]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def flip_in_memory(node, needle, at):
    """The bit in every copy of these bytes in the process's own memory. Result: how many."""
    found = 0
    with open(f"/proc/{node.process.pid}/maps") as maps:
        ranges = [line.split() for line in maps if line.split()[1].startswith("rw-p")]
    with open(f"/proc/{node.process.pid}/mem", "r+b", buffering=0) as memory:
        for words in ranges:
            first, last = (int(x, 16) for x in words[0].split("-"))
            try:
                memory.seek(first)
                data = memory.read(last - first)
            except OSError:
                continue
            for match in re.finditer(re.escape(needle), data):
                memory.seek(first + match.start() + at)
                memory.write(bytes([needle[at] ^ 4]))
                found += 1
    return found


class BitFlipTest(_wardens.Base):
    def test_rows_in_memory(self):
        warden = self.cluster().start("shard-warden-0")
        self.row(warden, 7, 8)
        for _ in range(3):
            self.assertGreaterEqual(flip_in_memory(warden, KNOT.row(7), 77), 1)
            self.assertEqual([p[5] for p in self.row(warden, 7, 8)], [KNOT.row(7), KNOT.row(8)])
        self.assertGreaterEqual(stats(warden)["rows_l1"]["bad"], 3)
        self.assertGreaterEqual(warden.metrics()["cobord_warden_rows_bad_total"], 3)

    def test_file_of_the_row_store(self):
        """Pages of SQLite, not values only: a base that is none any more costs the cache."""
        cluster = self.cluster(shard={"cache": "sqlite:rows.db"})
        path = cluster.folder_path / "rows.db"
        rows = list(range(0, 600, 5))
        for flips in (20, 200, 2000):
            warden = cluster.start("shard-warden-0")
            self.row(warden, *rows)
            wait_for("rows to be written", lambda: stats(warden)["rows_l2"]["writes"] > 0)
            self.assertEqual(warden.kill(15), 0)
            flip_in_file(path, flips)
            warden = cluster.start("shard-warden-0")
            self.whole_rows(warden, rows)
            self.assertGreater(sum(stats(warden)["rows_l2"][x] for x in ("bad", "failures")), 0, flips)
            flip_in_file(path, flips)  # under the process that has it open
            self.whole_rows(warden, rows)
            self.assertEqual(warden.kill(15), 0)
            for name in (path, f"{path}-wal", f"{path}-shm"):
                pathlib.Path(name).unlink(missing_ok=True)

    def whole_rows(self, warden, rows):
        """Twice: the second time from memory, as they are in the knot."""
        self.row(warden, *rows)
        wait_for("rows to be warm", lambda: stats(warden)["rows_l1"]["bytes"] > 0)
        for row, piece in zip(rows, self.row(warden, *rows)):
            if piece[1] != 0:  # F32, whose hash was checked, else
                self.assertEqual(piece[5], KNOT.row(row))

    def test_everywhere(self):
        """All caches of all wardens, full, and then flipped: nodes that are filled from them have the right text."""
        cluster = self.cluster(layer={"cache": "dir:l2"}, shard={"cache": "sqlite:rows.db"})
        wardens = cluster.wardens()
        stations, shards = cluster.all_without_file()
        self.text_is_right(stations, shards)
        wait_for("files", lambda: len(list((cluster.folder_path / "l2").rglob("*.slab"))) >= 15)
        for node in stations + shards:
            self.assertEqual(node.kill(15), 0)
        shutil.rmtree(cluster.cache)
        for warden in wardens:
            for file in descriptors(warden, "cobord-warden"):
                memory = os.open(file, os.O_RDWR)
                for _ in range(40):
                    at = CHOICE.randrange(KNOT.payload, KNOT.path.stat().st_size)
                    byte = os.pread(memory, 1, at)
                    if byte != b"\0":  # nothing of it is held there, else
                        os.pwrite(memory, bytes([byte[0] ^ 2]), at)
                os.close(memory)
        for path in (cluster.folder_path / "l2").rglob("*.slab"):
            flip_in_file(path, 3)
        stations, shards = cluster.all_without_file()
        self.text_is_right(stations, shards)
        bad = sum(w.metrics()["cobord_warden_bad_total"] for w in wardens)
        self.assertGreater(bad, 0)

    def test_slice(self):
        """What a node keeps for its next start: with another time on it, as after a crash, it is looked at again."""
        cluster = self.cluster(memory=56 * MIB)
        cluster.start("layer-warden-0")
        cluster.without_file("station-0").kill()
        slice_ = cluster.cache / "slices" / MODEL.knot_id / "station-0.knot"
        good = slice_.read_bytes()
        first = KNOT.payload + KNOT.tensors[ATTN]["offset"]
        for _ in range(2):
            flip_in_file(slice_, 3, first, first + KNOT.tensors[ATTN]["length"])
            os.utime(slice_)
            cluster.without_file("station-0").kill()
            self.assertEqual(slice_.read_bytes(), good)

    def test_store(self):
        """Whatever is asked for comes with a bit flipped, the first time; then one is in the object, for good."""
        class Flipping(FileServer):
            asked = set()

            def change(self, first, data):
                if first in self.asked or len(data) < 4096:
                    return data
                self.asked.add(first)
                at = CHOICE.randrange(len(data))
                return data[:at] + bytes([data[at] ^ 8]) + data[at + 1:]
        with Flipping(MODEL.path.parent) as store:
            cluster = self.cluster(store=store.url, node_store=store.url)
            wardens = cluster.wardens()
            stations, shards = cluster.all_without_file()
            self.text_is_right(stations, shards)
            self.assertGreater(sum(w.metrics()["cobord_warden_bad_total"] for w in wardens), 0)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / MODEL.path.name
            shutil.copyfile(MODEL.path, path)
            with open(path, "r+b") as f:
                f.seek(KNOT.payload + KNOT.tensors[ATTN]["offset"] + 1000)
                byte = f.read(1)[0]
                f.seek(-1, 1)
                f.write(bytes([byte ^ 1]))
            warden = self.cluster(store=folder).start("layer-warden-0")
            status, code = warden.error("GET", f"/tensor/{ATTN}")
            self.assertEqual(code, "checksum", status)
            other = "blk_9_ffn_up_weight"
            self.assertEqual(self.tensor(warden, other)[5], KNOT.bytes(other))

    def test_knot_that_was_checked(self):
        """The mark of a check does not hide it from `verify`."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.knot"
            self.assertEqual(run("synth", "--shape", "test", "-o", path).returncode, 0)
            self.assertEqual(run("run", path, "hi", "--max-tokens", "1").returncode, 0)
            flip_in_file(path, 1, first=path.stat().st_size // 2)
            done = run("verify", path)
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"checksum", done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
