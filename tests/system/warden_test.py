#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wardens as processes: identities, what each level keeps, what a bad entry in it comes to, and their limits."""
import contextlib
import json
import os
import pathlib
import random
import re
import sqlite3
import struct
import subprocess
import tempfile
import unittest

import _frames as frames
import _servers as servers
from _late import TooLate, in_time
from _nodes import KEY
from _wardens import ATTN, KNOT, MIB, MODEL, OTHER, SLAB, Base, FileServer, Knot, descriptors, stats, wait_for

LATE = re.compile(r"cache of rows: .*redis .*(in time|timed out|unavailable)")


class Identity(Base):
    memory_max = 64 * MIB

    def test_who_it_is_for(self):
        cluster = self.cluster()
        warden, shard = cluster.start("layer-warden-0"), cluster.start("shard-warden-1")
        first, last = cluster.entry("shard-warden-1")["ids"]
        mine = {"knot_id": MODEL.knot_id, "knot_key": MODEL.path.name}
        layers = {**mine, "layer_start": 0, "layer_end": 15}
        ids = {**mine, "vocab_start": first, "vocab_end": last}

        def configure(node, value):
            return node.call("POST", "/configure", json.dumps(value).encode())

        for node, right in ((warden, layers), (shard, ids), (warden, {**layers, "layer_end": "15"})):
            status, body = configure(node, right)
            self.assertEqual(status, 200, body)
            self.assertIn(MODEL.knot_id, json.loads(body)["identity"])
        wrong = [(warden, {**layers, "layer_end": 14}), (warden, {**layers, "knot_id": OTHER.knot_id}),
                 (warden, {**layers, "knot_key": "tiny.knot"}), (warden, {**layers, "layer_start": "1.ffn_up"}),
                 (warden, ids), (shard, layers), (shard, {**ids, "vocab_start": first + 1})]
        for node, value in wrong:
            status, body = configure(node, value)
            self.assertEqual(status, 409, (value, body))
        status, body = configure(warden, {**layers, "knot_id": OTHER.knot_id})
        for text in (MODEL.knot_id + "|0-15", OTHER.knot_id + "|0-15"):
            self.assertIn(text, json.loads(body)["error"]["message"])
        for broken in ({**mine}, {"layer_start": 0, "layer_end": 15}, {**layers, "knot_id": "1234"},
                       {**layers, "layer_end": 99}, [], {"knot_id": MODEL.knot_id, "layer_start": 0, "layer_end": 15}):
            self.assertEqual(configure(warden, broken)[0], 400, broken)

        def head(**h):
            return warden.call("GET", "/tensor/" + ATTN, headers={k.replace("_", "-"): v for k, v in h.items()})[0]
        right = {"X_Knot_Id": MODEL.knot_id, "X_Knot_Key": MODEL.path.name, "X_Layer_Start": "0", "X_Layer_End": "15"}
        self.assertEqual(head(**right), 200)
        self.assertEqual(head(X_Knot_Id=OTHER.knot_id), 409)
        self.assertEqual(head(X_Layer_Start="0", X_Layer_End="end"), 409)
        self.assertEqual(head(X_Knot_Key="other.knot"), 409)
        self.assertEqual(head(X_Vocab_Start="0", X_Vocab_End="15"), 409)
        self.assertEqual(head(X_Layer_Start="x"), 400)
        self.assertEqual(warden.call("POST", "/tensors", KNOT.request([(ATTN, 0, 16, 5760)], OTHER.id))[0], 409)

    def test_answers(self):
        cluster = self.cluster()
        warden, shard = cluster.start("layer-warden-0"), cluster.start("shard-warden-0")
        name, _, first, kind, value, data = self.tensor(warden, ATTN)
        self.assertEqual((name, first, kind), (ATTN, 0, 1))
        self.assertEqual(data, KNOT.bytes(ATTN))
        part = self.tensor(warden, ATTN, "?rows=32-64")
        self.assertEqual((part[2], part[3], part[5]), (32, 3, KNOT.bytes(ATTN)[len(data) // 18:len(data) // 9]))
        pieces = self.row(shard, 504, 5, 504)
        self.assertEqual([p[5] for p in pieces], [KNOT.row(r) for r in (504, 5, 504)])
        self.assertEqual([p[3] for p in pieces], [2, 2, 2])
        for node, path, status in (
                (warden, "/tensor/blk_20_attn_q_weight", 400), (warden, "/tensor/nothing", 404),
                (warden, f"/tensor/{ATTN}?rows=0-15", 400), (warden, f"/tensor/{ATTN}?rows=16-0", 400),
                (warden, f"/tensor/{ATTN}?rows=0-16&x", 400), (warden, f"/tensor/{ATTN}?rows=560-592", 400),
                (warden, "/tensor/output_weight", 413), (shard, f"/tensor/{ATTN}", 400),
                (shard, "/tensor/token_embd_weight?rows=40000-40001", 400), (warden, "/knot?bytes=5-4", 400),
                (warden, "/knot?bytes=0-99999999999", 400), (warden, "/knot?bytes=0-4194304", 413),
                (warden, "/knot", 400), (warden, "/knot?bytes=0-9x", 400), (warden, "/knot?bytes=-9", 400)):
            self.assertEqual(node.error("GET", path)[0], status, path)
        self.assertEqual(warden.call("POST", "/tensors", b"AWFR")[0], 400)
        self.assertEqual(warden.call("GET", "/stats", key="another-key")[0], 401)
        size = json.loads(warden.call("GET", "/knot?size")[1])["bytes"]
        whole = MODEL.path.read_bytes()
        self.assertEqual(size, len(whole))
        for a, b in ((0, 99), (31000, 40000), (KNOT.payload + 4 * MIB - 5, KNOT.payload + 4 * MIB + 5),
                     (size - 70000, size - 1), (size - 1, size - 1)):
            status, body = warden.call("GET", f"/knot?bytes={a}-{b}")
            self.assertEqual((status, body), (200, whole[a:b + 1]), (a, b))
        self.assertEqual(warden.call("POST", "/invalidate/" + ATTN)[0], 200)
        self.assertEqual(warden.call("POST", "/invalidate/nothing")[0], 404)
        self.assertEqual(warden.call("POST", "/invalidate/5")[0], 400)
        self.assertEqual(shard.call("POST", "/invalidate/504")[0], 200)
        self.assertEqual(shard.call("POST", "/invalidate/48000")[0], 400)
        metrics = warden.metrics()
        self.assertGreater(metrics["cobord_warden_l1_hits_total"], 0)
        self.assertTrue(warden.ready()["ready"])

    def test_strangers(self):
        """Any bytes at every door: an error in the one shape, and the warden goes on."""
        cluster = self.cluster()
        dice = random.Random(3)
        for node in (cluster.start("layer-warden-0"), cluster.start("shard-warden-0")):
            right = KNOT.request([(ATTN, 0, 16, 5760), ("output_norm_weight", 0, 1, 2304)])
            paths = [("POST", "/tensors"), ("POST", "/configure"), ("POST", "/invalidate/%41"),
                     ("POST", "/invalidate/-1"), ("POST", "/invalidate/99999999999999999999"),
                     ("DELETE", "/tensors"), ("GET", "/tensor/a%00b"), ("GET", "/tensor/" + "x" * 900),
                     ("GET", "/knot?bytes=%31-2"), ("GET", "/tensor/../etc")]
            for i in range(300):
                method, path = dice.choice(paths)
                body = bytearray(dice.choice([right, dice.randbytes(dice.randrange(400)), b"", b"{" * 4000]))
                for _ in range(dice.randrange(4)):
                    if body:
                        body[dice.randrange(len(body))] = dice.randrange(256)
                if i % 5 == 0 and len(body) >= 128:
                    body = frames.seal(bytes(body))
                status, answer = node.call(method, path, bytes(body))
                self.assertIn(status, (200, 400, 404, 405, 409, 413), answer)
                if status != 200:
                    self.assertIn("message", json.loads(answer)["error"])
            self.assertTrue(node.alive())
            self.assertEqual(node.call("POST", "/tensors", bytes(300 << 10))[0], 413)
            self.assertLess(node.memory("VmHWM"), self.memory_max)

    def test_warden_of_another_model(self):
        """The address in the file has a warden of another knot: its bytes are never used."""
        cluster, stranger = self.cluster(node_store=str(MODEL.path.parent)), self.cluster(OTHER)
        cluster.file["model"]["knot_key"] = MODEL.path.name
        address = cluster.entry("layer-warden-0")["address"]
        stranger.entry("layer-warden-0")["address"] = address
        stranger.write()
        (stranger.path.parent / "key").write_text(KEY + "\n")
        warden = stranger.start("layer-warden-0")
        # The nodes' own store is a server that gives the file by ranges.
        with FileServer(MODEL.path.parent) as store:
            cluster.node_store = store.url
            cluster.write()
            stations, shards = cluster.all_without_file()
            self.text_is_right(stations, shards)
        self.assertIn("layer-warden-0 is passed over", stations[0].errors())
        self.assertIn(OTHER.knot_id, stations[0].errors())
        self.assertEqual(stats(warden)["l1"]["misses"], 0)


class Poison(Base):
    """A bad entry is found, counted, deleted and read again from below; nobody gets it twice."""

    def test_memory_of_slabs(self):
        warden = self.cluster().start("layer-warden-0")
        self.assertEqual(self.tensor(warden, ATTN)[5], KNOT.bytes(ATTN))
        at = KNOT.payload + KNOT.tensors[ATTN]["offset"] + 1000
        memory = os.open(descriptors(warden, "cobord-warden")[0], os.O_RDWR)
        os.pwrite(memory, bytes([os.pread(memory, 1, at)[0] ^ 1]), at)
        self.assertEqual(self.tensor(warden, ATTN)[5], KNOT.bytes(ATTN))
        self.assertEqual(stats(warden)["l1"]["bad"], 1)
        before = stats(warden)["l1"]["hits"]
        self.assertEqual(self.tensor(warden, ATTN)[5], KNOT.bytes(ATTN))
        now = stats(warden)["l1"]
        self.assertEqual((now["bad"], now["hits"]), (1, before + 1))
        os.close(memory)

    def test_slab_files(self):
        cluster = self.cluster(layer={"cache": "dir:l2"})
        files = cluster.folder_path / "l2" / f"{MODEL.knot_id}-0-15"
        warden = cluster.start("layer-warden-0")
        self.tensor(warden, ATTN)
        wait_for("a slab file", lambda: stats(warden)["l2"]["writes"] == 1)
        slab = files / "00000000.slab"
        good = slab.read_bytes()
        self.assertEqual(good, KNOT.read(0, SLAB))
        later = files / "00000000.slab2"  # of a version that is still to come
        later.write_bytes(b"not ours")
        for bad in (good[:70000] + bytes([good[70000] ^ 8]) + good[70001:], good[:-1], b"", good + b"\0"):
            warden.kill()  # so that memory is empty
            (files / ".7.part").write_bytes(b"left by a writer that was killed")
            slab.write_bytes(bad)
            warden = cluster.start("layer-warden-0")
            self.assertFalse((files / ".7.part").exists())
            self.assertEqual(self.tensor(warden, ATTN)[5], KNOT.bytes(ATTN))
            wait_for("the file to be right again", lambda: slab.exists() and slab.read_bytes() == good)
            now = stats(warden)["l2"]
            self.assertEqual(now["bad"], 1 if len(bad) == SLAB else 0, now)  # another length is no slab at all
        warden.kill()
        warden = cluster.start("layer-warden-0")
        self.assertEqual(self.tensor(warden, ATTN)[5], KNOT.bytes(ATTN))
        now = stats(warden)
        self.assertEqual((now["l2"]["hits"], now["l2"]["bad"]), (1, 0))
        self.assertEqual(later.read_bytes(), b"not ours")
        self.assertEqual(warden.errors().count("1 files that are no slabs"), 1, warden.errors())

    def test_file_turns_bad_while_open(self):
        """L1 of one slab: the second comes from its file each time; the file is damaged in between."""
        cluster = self.cluster(layer={"cache": "dir:l2"}, warden_memory=42 * MIB)
        try:
            warden = cluster.start("layer-warden-0")
        except SystemExit as error:
            self.skipTest(f"the process is larger here: {error}")
        files = cluster.folder_path / "l2" / f"{MODEL.knot_id}-0-15"
        names = [n for n in KNOT.tensors if n.startswith("blk_") and int(n.split("_")[1]) < 15 and "ffn_down" in n]
        for _ in range(2):
            for name in names:
                self.assertEqual(self.tensor(warden, name)[5], KNOT.bytes(name))
        wait_for("files", lambda: len(list(files.glob("*.slab"))) >= 8)
        for path in sorted(files.glob("*.slab"))[3:]:
            data = bytearray(path.read_bytes())
            for at in range(1000, len(data), 256 << 10):
                data[at] ^= 0x10
            path.write_bytes(data)
        for name in names:
            self.assertEqual(self.tensor(warden, name)[5], KNOT.bytes(name))
        self.assertGreaterEqual(stats(warden)["l2"]["bad"], 1)

    @staticmethod
    def was_late(cluster):
        return any(LATE.search(node.errors()) for node in cluster.nodes)

    def kept_rows(self, cluster, rows, spoiled=0):
        """Rows of the last warden, of whose cache they come but for the first `spoiled`; it may have been late."""
        got = self.row(cluster.nodes[-1], *rows)
        missed = [(row, piece[5]) for row, piece in list(zip(rows, got))[spoiled:] if piece[1] != 0]
        self.assertEqual([data for _, data in missed], [KNOT.row(row) for row, _ in missed])
        if missed and self.was_late(cluster):
            cluster.stop()
            raise TooLate("the cache of rows was late, and a row of it a miss")
        return got

    def poison_rows(self, cluster, spoil):
        """Rows of a key-value store: spoiled, they are a miss, counted, and right again afterwards."""
        warden = cluster.start("shard-warden-0")
        rows = [504, 3575, 282]

        def are_written(count):
            return stats(warden)["rows_l2"]["writes"] == count or self.was_late(cluster)
        self.row(warden, *rows)
        wait_for("rows to be written", lambda: are_written(3))
        warden.kill()
        warden = cluster.start("shard-warden-0")
        good = self.kept_rows(cluster, rows)
        self.assertEqual([p[1] for p in good], [0, 0, 0])  # F32
        self.assertEqual([p[3] for p in good], [3, 3, 3])
        self.assertEqual([len(p[5]) for p in good], [4 * MODEL.hidden] * 3)
        wait_for("rows to be warm", lambda: stats(warden)["rows_l1"]["bytes"] == len(rows) * len(KNOT.row(0)))
        self.assertEqual([p[5] for p in self.row(warden, *rows)], [KNOT.row(r) for r in rows])
        warden.kill()
        spoil(504, lambda v: v[:9] + bytes([v[9] ^ 1]) + v[10:])
        spoil(3575, lambda v: v[:-4])
        warden = cluster.start("shard-warden-0")
        now = self.kept_rows(cluster, rows, spoiled=2)
        self.assertEqual([p[1] for p in now], [8, 8, 0])
        self.assertEqual([p[5] for p in now[:2]], [KNOT.row(504), KNOT.row(3575)])
        self.assertEqual(now[2][5], good[2][5])
        wait_for("the bad ones to be replaced", lambda: are_written(2))
        self.assertEqual(stats(warden)["rows_l2"]["bad"], 2)
        warden.kill()
        warden = cluster.start("shard-warden-0")
        self.assertEqual([p[5] for p in self.kept_rows(cluster, rows)], [p[5] for p in good])
        self.assertEqual(stats(warden)["rows_l2"]["bad"], 0)

    def test_rows_in_sqlite(self):
        cluster = self.cluster(shard={"cache": "sqlite:rows.db"})

        def spoil(row, change):
            with contextlib.closing(sqlite3.connect(cluster.folder_path / "rows.db")) as base:
                table, = base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchone()
                columns = [c[1] for c in base.execute(f"PRAGMA table_info({table})")]
                kinds = {c: base.execute(f"SELECT {c} FROM {table}").fetchone()[0] for c in columns}
                value = next(c for c, v in kinds.items() if isinstance(v, bytes) and len(v) == 4 * MODEL.hidden + 8)
                wanted = frames.struct.pack(f"<{MODEL.hidden}f", *self.values(row))
                for rowid, old in base.execute(f"SELECT rowid, {value} FROM {table}").fetchall():
                    if old[:-8] == wanted:
                        base.execute(f"UPDATE {table} SET {value} = ? WHERE rowid = ?", (change(old), rowid))
                        base.commit()
                        return
            self.fail(f"row {row} is not in the file")
        self.poison_rows(cluster, spoil)

    def test_rows_in_redis(self):
        """Redis has 0.7 s for an answer. On a machine that rests for longer a row is a miss, which is said: again."""
        in_time(lambda: self.rows_in_redis(self.cluster()))

    def rows_in_redis(self, cluster):
        with servers.start_redis() as redis:
            cluster.file["shard_wardens"][0]["cache"] = redis.url
            cluster.write()

            def spoil(row, change):
                key = f"cobord:row:{MODEL.knot_id}:{row}"
                value = redis.command("GET", key)
                self.assertEqual(len(value), 4 * MODEL.hidden + 8)
                self.assertLessEqual(redis.command("TTL", key), 24 * 3600)
                self.assertGreater(redis.command("TTL", key), 23 * 3600)
                redis.command("SET", key, change(value), "KEEPTTL")
            self.poison_rows(cluster, spoil)
            warden = cluster.nodes[-1]
            redis.kill()  # what cannot be reached is a miss
            self.assertEqual(self.row(warden, 77)[0][5], KNOT.row(77))
            self.assertTrue(warden.alive())
            self.assertIn("redis", warden.errors())


def size_of(path):
    """0 of a file that was removed since it was listed."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


class Limits(Base):
    def test_cap_of_the_disk(self):
        cluster = self.cluster(layer={"cache": "dir:l2", "cache_bytes": 10 * MIB})
        folder = cluster.folder_path / "l2"
        stale = folder / "00000000000000aa-0-15"  # of a warden that is gone
        stale.mkdir(parents=True)
        (stale / "00000000.slab").write_bytes(b"x" * (6 * MIB))
        (folder / "not ours").write_text("stays")
        warden = cluster.start("layer-warden-0")
        names = [n for n in KNOT.tensors if n.startswith("blk_") and int(n.split("_")[1]) < 15 and "ffn_up" in n]
        for name in names:
            self.assertEqual(self.tensor(warden, name)[5], KNOT.bytes(name))
            self.assertLessEqual(sum(map(size_of, folder.rglob("*.slab"))), 10 * MIB)
        wait_for("two slabs", lambda: stats(warden)["l2"]["writes"] == 2)
        self.assertFalse(stale.exists())
        self.assertTrue((folder / "not ours").exists())
        self.assertEqual(warden.errors(), "")
        second = cluster.run("layer-warden-0")  # the address is taken
        self.assertNotEqual(second.returncode, 0)
        warden.kill()
        cluster.entry("layer-warden-0")["cache_bytes"] = 5 * MIB
        cluster.write()
        warden = cluster.start("layer-warden-0")
        self.assertEqual(stats(warden)["l2"]["bytes"], SLAB)

    def test_full_disk(self):
        with tempfile.TemporaryDirectory() as folder:
            mount = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", folder]
            if subprocess.run(mount, capture_output=True).returncode:
                self.skipTest("no right to mount a small disk")
            try:
                cluster = self.cluster(layer={"cache": f"dir:{folder}/l2"})
                warden = cluster.start("layer-warden-0")
                names = [n for n in KNOT.tensors if n.startswith("blk_") and int(n.split("_")[1]) < 15 and "ffn" in n]
                for name in names:
                    self.assertEqual(self.tensor(warden, name)[5], KNOT.bytes(name))
                wait_for("a failed write", lambda: stats(warden)["l2"]["failures"] >= 1)
                wait_for("word of it", lambda: "keeps nothing new" in warden.errors())
                self.assertEqual(warden.errors().count("keeps nothing new"), 1, warden.errors())
                wait_for("the rest of it to go", lambda: not list(pathlib.Path(folder).rglob("*.part")))
                whole = list(pathlib.Path(folder).rglob("*.slab"))
                self.assertTrue(whole)
                for path in whole:
                    number = int(path.name[:8])
                    self.assertEqual(path.read_bytes(), KNOT.read(number * SLAB, SLAB))
                station = cluster.without_file("station-0")
                self.assertTrue(station.alive())
                # A node's slice does not fit there either: said at once.
                cluster.file["memory"] = 56 * MIB
                cluster.write()
                station.kill()
                cluster.cache = pathlib.Path(folder) / "cache"
                done = cluster.run_without_file("station-0")
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(b"the disk has", done.stderr)
            finally:
                cluster.stop()
                subprocess.run(["umount", "-l", folder], check=False)

    def test_memory_budget_and_cyclic_scan(self):
        """A scan that is larger than memory, three times over: the share that fits is hit, the budget is kept."""
        budget = 96 * MIB
        cluster = self.cluster(OTHER, warden_memory=budget)
        knot = Knot(OTHER)
        warden = cluster.start("layer-warden-0")
        names = [t for t in sorted(knot.tensors.values(), key=lambda t: t["offset"]) if t["name"].startswith("blk_")
                 and int(t["name"].split("_")[1]) < 12 and t["length"] > MIB // 8]
        slabs = len({c for t in names
                      for c in range(t["offset"] // SLAB, (t["offset"] + t["length"] - 1) // SLAB + 1)})
        passes, evictions = [], set()
        for _ in range(3):
            before = stats(warden)["l1"]
            connection = warden.connection()
            for t in names:
                status, _ = warden.call("GET", "/tensor/" + t["name"], connection=connection)
                self.assertIn(status, (200, 413))
            connection.close()
            after = stats(warden)["l1"]
            passes.append((after["hits"] - before["hits"], after["misses"] - before["misses"]))
            self.assertLessEqual(warden.memory("VmHWM") + after["bytes"], budget)
            evictions.add(after["evictions"])  # for residents, in the first pass
        held = after["bytes"] // SLAB
        self.assertGreater(slabs, held)
        self.assertEqual(passes[1], passes[2])
        self.assertGreater(passes[2][0], 0)
        self.assertEqual(len(evictions), 1)

    def test_budget_that_is_too_small(self):
        cluster = self.cluster(warden_memory=16 * MIB)
        done = cluster.run("layer-warden-0")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"warden_memory is 16 MiB", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
