#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bad bytes on Workers: in the key-value store, in the bucket, from a warden that lies. They are found, counted,
replaced and never used: the text is that of one process."""
import json
import struct
import time
import unittest

import _frames as frames
import _nodes as nodes
import _wardens as wardens
import _workers as workers
from _wardens import KNOT, MIB, MODEL, Tensors, stats, wait_for

ROWS = [504, 3575, 282]
EMBEDDING = "token_embd_weight"


def cluster_of(**members):
    """Two stations and two shards, each with a warden, in one file."""
    cluster = workers.WorkerCluster(MODEL, ["0-15", "15-end"], 2, chunk=64, sessions=4, memory=96 * MIB,
                                    warden_memory=64 * MIB, **members)
    ports = iter(nodes.free_ports(4))
    place = lambda: f"127.0.0.1:{next(ports)}"  # noqa: E731
    cluster.file["layer_wardens"] = [{"id": f"layer-warden-{i}", "address": place(), "range": s["range"]}
                                     for i, s in enumerate(cluster.file["stations"])]
    cluster.file["shard_wardens"] = [{"id": f"shard-warden-{i}", "address": place(), "ids": s["ids"]}
                                     for i, s in enumerate(cluster.file["shards"])]
    for i in range(2):
        cluster.file["stations"][i]["warden"] = f"layer-warden-{i}"
        cluster.file["shards"][i]["warden"] = f"shard-warden-{i}"
    return cluster


def values(row):
    """Q8_0: blocks of an f16 scale and 32 integers."""
    data = KNOT.row(row)
    out = []
    for at in range(0, len(data), 34):
        scale, = struct.unpack_from("<e", data, at)
        out += [scale * q for q in struct.unpack_from("<32b", data, at + 2)]
    return struct.pack(f"<{len(out)}f", *out)


class Base(unittest.TestCase):
    def start(self, ids=None, **more):
        cluster = cluster_of()
        self.addCleanup(cluster.stop)
        return cluster, cluster.start_workers(ids, **more)

    def rows(self, warden, *rows):
        body = KNOT.request([(EMBEDDING, r, 1, len(KNOT.row(0))) for r in rows])
        status, answer = warden.call("POST", "/tensors", body)
        self.assertEqual(status, 200, answer[:300])
        return Tensors(answer).pieces

    def text_is_right(self, some, session=1):
        stations, shards = ([some[f"{kind}-{i}"] for i in range(2)] for kind in ("station", "shard"))
        self.assertEqual(wardens.greedy(stations, shards, session=session), wardens.expected())


class Values(Base):
    """Embedding rows in the key-value store: float32 and an 8-byte hash, a day long."""

    def written(self, runtime):
        keys = runtime.kv_list()
        return {int(k.rpartition(":")[2]): k for k in keys if MODEL.knot_id in k}

    def test_rows(self):
        cluster, some = self.start(["shard-warden-0"])
        warden, runtime = some["shard-warden-0"], cluster.runtime
        first = self.rows(warden, *ROWS)
        self.assertEqual([p[5] for p in first], [KNOT.row(r) for r in ROWS])
        wait_for("rows to be written", lambda: set(self.written(runtime)) == set(ROWS))
        keys = self.written(runtime)
        good = {r: runtime.kv_get(keys[r]) for r in ROWS}
        for row in ROWS:
            self.assertEqual(good[row], values(row) + struct.pack("<Q", frames.xxh64(values(row))))
        runtime.restart()
        second = self.rows(warden, *ROWS)
        self.assertEqual([(p[1], p[3], p[5]) for p in second], [(0, 3, values(r)) for r in ROWS])  # as float32
        self.assertEqual(stats(warden)["rows_l2"]["hits"], 3)
        self.poisoned(warden, runtime, keys, good)

    def poisoned(self, warden, runtime, keys, good):
        """A flipped bit, a short value, a long one, another row's: a miss, counted, and right again afterwards."""
        bad = [lambda v: v[:9] + bytes([v[9] ^ 1]) + v[10:], lambda v: v[:-4], lambda v: v + b"\0" * 4, lambda v: b"",
               lambda v: good[282], lambda v: bytes(len(v)), lambda v: v[:-1] + bytes([v[-1] ^ 128])]
        for i, change in enumerate(bad):
            if change(good[504]) == good[504]:
                continue
            with self.subTest(change=i):
                runtime.kv_put(keys[504], change(good[504]))
                runtime.restart()
                got = self.rows(warden, *ROWS)
                if i != 4:  # the hash of another row's values is right: only the key tells them apart
                    self.assertEqual([p[5] for p in got], [KNOT.row(504), values(3575), values(282)])
                    wait_for("the bad one to be replaced", lambda: runtime.kv_get(keys[504]) == good[504])
                    self.assertEqual(stats(warden)["rows_l2"]["bad"], 1)

    def test_invalidated(self):
        """POST /invalidate/{row}: not served again from any cache, and read from the bucket."""
        cluster, some = self.start(["shard-warden-0"])
        warden, runtime = some["shard-warden-0"], cluster.runtime
        self.rows(warden, 504)
        wait_for("the row to be written", lambda: 504 in self.written(runtime))
        key = self.written(runtime)[504]
        runtime.kv_put(key, bytes(4 * MODEL.hidden) + struct.pack("<Q", frames.xxh64(bytes(4 * MODEL.hidden))))
        self.assertEqual(warden.call("POST", "/invalidate/504")[0], 200)
        self.assertEqual(self.rows(warden, 504)[0][5], KNOT.row(504))
        runtime.restart()
        wait_for("the row to be right", lambda: self.rows(warden, 504)[0][5] in (KNOT.row(504), values(504)))


class Liars(Base):
    """A warden whose bytes are not the knot's."""

    def test_text_is_right(self):
        """Each piece is found out, told of, and read from the bucket."""
        cluster = wardens.Cluster()
        self.addCleanup(cluster.stop)
        native = {f"{kind}-warden-{i}": cluster.start(f"{kind}-warden-{i}") for kind in ("layer", "shard")
                  for i in range(2)}
        with wardens.Liar(native["layer-warden-0"]) as liar, wardens.Liar(native["shard-warden-0"]) as other:
            mine = cluster_of()
            self.addCleanup(mine.stop)
            names = ["station-0", "station-1", "shard-0", "shard-1"]
            services = {"station-0": {"LAYER_WARDEN": liar.address}, "shard-0": {"VOCAB_WARDEN": other.address}}
            for i in range(2):
                del mine.file["stations"][i]["warden"], mine.file["shards"][i]["warden"]
            some = mine.start_workers(names, services=services)
            self.text_is_right(some)
            wait_for("invalidations", lambda: liar.posts)
            before = len(liar.posts)
            self.text_is_right(some, 2)
            self.assertLessEqual(before, 200, "told again and again")

    def test_warden_is_gone(self):
        """Nobody at its address: the bucket is read, the text is right."""
        cluster = cluster_of()
        self.addCleanup(cluster.stop)
        for i in range(2):
            del cluster.file["stations"][i]["warden"], cluster.file["shards"][i]["warden"]
        nobody = f"127.0.0.1:{nodes.free_ports(1)[0]}"
        services = {n: {w: nobody} for n, w in (("station-0", "LAYER_WARDEN"), ("shard-1", "VOCAB_WARDEN"))}
        self.text_is_right(cluster.start_workers(["station-0", "station-1", "shard-0", "shard-1"], services=services))


class Bucket(Base):
    """The knot in the bucket is damaged, or missing: said, not used; and mended without a new deployment."""

    def test_damaged(self):
        cluster, some = self.start(["shard-0"], services={"shard-0": {}})
        shard, runtime, key = some["shard-0"], cluster.runtime, MODEL.path.name
        whole = MODEL.path.read_bytes()
        at = KNOT.payload + KNOT.tensors["output_weight"]["offset"] + 100
        body = frames.logits(MODEL.id, cluster.entry("shard-0")["ids"], MODEL.hidden, 1, bytes(4 * MODEL.hidden), 1)

        def refused(statuses):
            runtime.restart()
            for _ in range(2):  # also when it is asked again
                status, data = shard.call("POST", "/logits", body)
                self.assertIn(status, statuses, data)
                self.assertIn("message", json.loads(data)["error"])
            self.assertEqual(shard.call("GET", "/health", key=None)[0], 200)

        runtime.r2_delete(key)
        refused((503, 404, 500))
        runtime.r2_put(key, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
        refused((503, 500, 400))
        runtime.r2_put(key, whole)
        end = time.monotonic() + 20
        while shard.call("POST", "/logits", body)[0] != 200:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.2)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
