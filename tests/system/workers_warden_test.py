#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wardens as Workers: what is asked of native ones in warden_test.py, then what is theirs: values of rows in KV, the
bucket below, memory that is lost, native nodes that have their bytes from them."""
import json
import pathlib
import unittest

import _wardens as wardens
import _workers as workers
import warden_test
from _wardens import ATTN, KNOT, MIB, MODEL, stats, wait_for

ROWS = [504, 3575, 282]


class Cluster(workers.WorkerCluster, wardens.Cluster):
    """Wardens are Workers, in one runtime; everything else is native."""

    def start(self, node_id, *arguments, **more):
        if "warden" not in node_id:
            return super().start(node_id, *arguments, **more)
        if not self.runtime:
            ids = [f"{kind}-warden-{i}" for kind in ("layer", "shard") for i in range(2)]
            self.workers = self.start_workers(ids, stays=True, **getattr(self, "options", {}))
        return self.workers[node_id]

    def entry(self, node_id):
        return wardens.Cluster.entry(self, node_id)

    def key(self, row):
        return f"cobord:row:{MODEL.knot_id}:{row}"


class Base(wardens.Base):
    def cluster(self, *arguments, **more):
        more.setdefault("warden_memory", 64 * MIB)
        cluster = Cluster(*arguments, **more)
        self.addCleanup(cluster.stop)
        return cluster


class Identity(Base):
    """The native tests, on Workers."""
    memory_max = workers.ISOLATE_BYTES_MAX
    test_who_it_is_for = warden_test.Identity.test_who_it_is_for
    test_answers = warden_test.Identity.test_answers
    test_strangers = warden_test.Identity.test_strangers


class Same(Base):
    def test_answers_are_those_of_native_wardens(self):
        """Byte for byte: status, type, body; the refusals too."""
        cluster, native = self.cluster(), wardens.Cluster()
        self.addCleanup(native.stop)
        size = len(KNOT.row(0))
        frame = KNOT.request([(ATTN, 0, 16, 5760), ("output_norm_weight", 0, 1, 2304)])
        rows = KNOT.request([("token_embd_weight", r, 1, size) for r in ROWS])
        both = KNOT.request([("token_embd_weight", r, 1, size) for r in ROWS]
                            + [("token_embd_weight", 0, 16, 16 * size)])
        asked = [("GET", f"/tensor/{ATTN}", None), ("GET", f"/tensor/{ATTN}?rows=32-64", None),
                 ("GET", "/tensor/blk_0_ffn_up_weight", None), ("GET", "/tensor/token_embd_weight?rows=5-6", None),
                 ("GET", "/tensor/token_embd_weight?rows=0-999", None), ("GET", "/tensor/output_weight", None),
                 ("GET", "/tensor/nothing", None), ("GET", f"/tensor/{ATTN}?rows=1-2", None),
                 ("GET", f"/tensor/{ATTN}?rows=9-2", None), ("GET", "/tensor/blk_20_attn_q_weight", None),
                 ("POST", "/tensors", frame), ("POST", "/tensors", rows), ("POST", "/tensors", both),
                 ("POST", "/tensors", frame[:-1]), ("POST", "/tensors", b""),
                 ("GET", "/knot?size", None), ("GET", "/knot?bytes=0-99999", None), ("GET", "/knot?bytes=5-4", None),
                 ("GET", "/knot", None), ("GET", "/knot?bytes=0-4194304", None),
                 ("POST", "/invalidate/" + ATTN, None), ("POST", "/invalidate/504", None),
                 ("POST", "/invalidate/48000", None), ("POST", "/configure", b"{}"),
                 ("POST", "/configure", b"{" * 5000),
                 ("DELETE", "/stats", None), ("GET", "/nowhere", None)]
        for node_id in ("layer-warden-0", "shard-warden-0"):
            one, other = native.start(node_id), cluster.start(node_id)
            for method, path, body in asked:
                self.assertEqual(one.call(method, path, body), other.call(method, path, body), (node_id, method, path))

    def test_stats_have_the_same_members(self):
        cluster, native = self.cluster(), wardens.Cluster(shard={"cache": "sqlite:rows.db"})
        self.addCleanup(native.stop)

        def shape(value):
            return {k: shape(v) for k, v in value.items()} if isinstance(value, dict) else type(value).__name__
        for node_id in ("layer-warden-0", "shard-warden-0"):
            one, other = stats(native.start(node_id)), stats(cluster.start(node_id))
            self.assertEqual(json.dumps(shape(one)), json.dumps(shape(other)))
            for name in ("id", "role", "version", "frame_version", "knot_id", "identity", "knot_key"):
                self.assertEqual(one[name], other[name])


class Levels(Base):
    def test_warm_requests_hit_memory(self):
        warden = self.cluster().start("layer-warden-0")
        start = stats(warden)["l3"]
        for _ in range(3):
            self.assertEqual(self.tensor(warden, ATTN)[5], KNOT.bytes(ATTN))
        now = stats(warden)
        read = [now["l3"][x] - start[x] for x in ("reads", "bytes")]
        self.assertEqual((now["l1"]["misses"], read), (1, [1, wardens.SLAB]))
        self.assertGreaterEqual(now["l1"]["hits"], 2)
        warden.call("POST", "/invalidate/" + ATTN)
        self.assertEqual(self.tensor(warden, ATTN)[5], KNOT.bytes(ATTN))
        now = stats(warden)
        self.assertEqual((now["l1"]["invalidations"], now["l3"]["reads"] - start["reads"]), (1, 2))

    def test_memory_is_bounded(self):
        """A scan that is larger than the budget: the share that fits is hit each time, nothing is evicted."""
        cluster = self.cluster(warden_memory=32 * MIB)
        warden = cluster.start("layer-warden-0")
        names = [n for n in KNOT.tensors if n.startswith("blk_") and int(n.split("_")[1]) < 15]
        seen = []
        for _ in range(3):
            before = stats(warden)
            for name in names:
                self.assertEqual(self.tensor(warden, name)[5], KNOT.bytes(name))
            now = stats(warden)
            self.assertLessEqual(now["memory"]["need_bytes"], 32 * MIB)
            seen.append((now["l1"]["hits"] - before["l1"]["hits"], now["l3"]["reads"] - before["l3"]["reads"]))
        self.assertEqual(seen[1], seen[2])
        self.assertGreater(seen[1][0], 0)
        self.assertGreater(seen[1][1], 0)
        self.assertLess(warden.memory(), workers.ISOLATE_BYTES_MAX)

    def test_rows(self):
        """Bucket, then memory; in KV for the next object, which answers in float32 once and is warm then."""
        cluster = self.cluster()
        warden = cluster.start("shard-warden-0")
        for _ in range(2):
            self.assertEqual([p[5] for p in self.row(warden, *ROWS)], [KNOT.row(r) for r in ROWS])
        wait_for("rows to be written", lambda: stats(warden)["rows_l2"]["writes"] == 3)
        now = stats(warden)
        self.assertEqual((now["rows_l1"]["hits"], now["rows_l3"]["rows"]), (3, 3))
        self.assertEqual(sorted(cluster.runtime.kv_list()), sorted(map(cluster.key, ROWS)))
        cluster.runtime.restart()
        good = self.row(warden, *ROWS)
        self.assertEqual([(p[1], p[3], len(p[5])) for p in good], [(0, 3, 4 * MODEL.hidden)] * 3)
        for row, piece in zip(ROWS, good):
            self.assertEqual(piece[5], cluster.runtime.kv_get(cluster.key(row))[:-8])
        wait_for("rows to be warm", lambda: stats(warden)["rows_l1"]["bytes"] == 3 * len(KNOT.row(0)))
        self.assertEqual([p[5] for p in self.row(warden, *ROWS)], [KNOT.row(r) for r in ROWS])

    def test_many_rows(self):
        """Hundreds in one call, in batches."""
        warden = self.cluster().start("shard-warden-1")
        rows = list(range(30000, 30300))
        for _ in range(2):
            self.assertEqual([p[5] for p in self.row(warden, *rows)], [KNOT.row(r) for r in rows])
        wait_for("256 rows to be written", lambda: stats(warden)["rows_l2"]["writes"] == 256)
        self.assertEqual(stats(warden)["rows_l3"]["rows"], 300)


class Poison(Base):
    def test_values_of_rows(self):
        cluster = self.cluster()
        warden = cluster.start("shard-warden-0")
        rows = ROWS + [77]
        self.row(warden, *rows)
        wait_for("rows to be written", lambda: stats(warden)["rows_l2"]["writes"] == 4)
        right = {r: cluster.runtime.kv_get(cluster.key(r)) for r in rows}
        spoiled = {504: lambda v: v[:9] + bytes([v[9] ^ 1]) + v[10:], 3575: lambda v: v[:-4], 77: lambda v: v + b"x"}
        for row, change in spoiled.items():
            cluster.runtime.kv_put(cluster.key(row), change(right[row]))
        cluster.runtime.restart()
        now = self.row(warden, *rows)
        self.assertEqual([p[1] for p in now], [8, 8, 0, 8])  # 282 came from KV
        self.assertEqual([now[i][5] for i in (0, 1, 3)], [KNOT.row(504), KNOT.row(3575), KNOT.row(77)])
        self.assertEqual(now[2][5], right[282][:-8])
        wait_for("the bad ones to be replaced", lambda: stats(warden)["rows_l2"]["writes"] == 3)
        self.assertEqual(stats(warden)["rows_l2"]["bad"], 3)
        for row in rows:
            self.assertEqual(cluster.runtime.kv_get(cluster.key(row)), right[row])

    def test_invalidated_row_leaves_kv(self):
        cluster = self.cluster()
        warden = cluster.start("shard-warden-0")
        self.row(warden, 504)
        wait_for("the value", lambda: cluster.runtime.kv_list() == [cluster.key(504)])
        self.assertEqual(warden.call("POST", "/invalidate/504")[0], 200)
        wait_for("it to go", lambda: not cluster.runtime.kv_list())
        self.assertEqual(self.row(warden, 504)[0][5], KNOT.row(504))
        self.assertEqual(stats(warden)["rows_l3"]["rows"], 2)

    def test_bucket(self):
        """Another object under the knot's key: an error that names it, no wrong byte; right again, right again."""
        cluster = self.cluster()
        layer, shard = cluster.start("layer-warden-0"), cluster.start("shard-warden-0")
        self.assertTrue(layer.ready()["ready"] and shard.ready()["ready"])
        spoiled = bytearray(MODEL.path.read_bytes())
        for at in range(KNOT.payload, len(spoiled) - 1, 100000):
            spoiled[at] ^= 1
        name = str(cluster.folder_path / "spoiled.knot")
        pathlib.Path(name).write_bytes(spoiled)
        cluster.runtime.r2_delete(MODEL.path.name)
        self.assertEqual(layer.error("GET", f"/tensor/{ATTN}"), (503, "unreachable"))
        self.assertEqual(self.row_status(shard, 504), 503)
        cluster.runtime.r2_seed(MODEL.path.name, name)
        self.assertEqual(layer.error("GET", f"/tensor/{ATTN}"), (400, "checksum"))
        self.assertEqual(stats(layer)["l3"]["bad"], 3)
        cluster.runtime.r2_delete(MODEL.path.name)
        cluster.runtime.r2_seed(MODEL.path.name, str(MODEL.path))
        self.assertEqual(self.tensor(layer, ATTN)[5], KNOT.bytes(ATTN))
        self.assertEqual(self.row(shard, 504)[0][5], KNOT.row(504))

    def row_status(self, warden, row):
        return warden.call("POST", "/tensors", KNOT.request([("token_embd_weight", row, 1, len(KNOT.row(0)))]))[0]


class Settings(Base):
    def test_another_knot_is_refused(self):
        """The object is there under its key, but it is not the knot of KNOT_ID: nothing of it is served."""
        cluster = self.cluster()
        cluster.options = {"more": {"layer-warden-0": {"KNOT_ID": "0123456789abcdef"}}}
        warden = cluster.start("layer-warden-0")
        status, body = warden.call("GET", f"/tensor/{ATTN}")
        self.assertEqual(status, 409, body)
        self.assertIn(MODEL.knot_id, json.loads(body)["error"]["message"])

    def test_settings_are_checked(self):
        cluster = self.cluster()
        cluster.options = {"more": {"layer-warden-0": {"SPECIALIZATION_END": "99"},
                                    "layer-warden-1": {"MEMORY_BUDGET_BYTES": str(8 * MIB)},
                                    "shard-warden-0": {"VOCAB_END": "0"}, "shard-warden-1": {"VOCAB_END": "99999999"}}}
        cluster.start("layer-warden-0")
        for node_id, word in (("layer-warden-0", "99"), ("layer-warden-1", "8 MiB"), ("shard-warden-0", "VOCAB_END"),
                              ("shard-warden-1", "VOCAB_END")):
            status, body = cluster.workers[node_id].call("GET", "/stats")
            self.assertGreaterEqual(status, 400)
            self.assertIn(word, json.loads(body)["error"]["message"], node_id)


class Fleet(Base):
    def test_native_nodes_without_the_file(self):
        cluster = self.cluster()
        cluster.start("layer-warden-0")
        stations, shards = cluster.all_without_file()
        self.text_is_right(stations, shards)
        self.assertGreater(stats(cluster.workers["layer-warden-0"])["l1"]["misses"], 0)
        self.assertGreater(stats(cluster.workers["shard-warden-0"])["rows_l1"]["misses"], 0)
        said = "".join(n.errors() for n in stations + shards)
        self.assertRegex(said, r"\A(slice +[\d.]+ (%|[kM]B) .*\n)*\Z")  # of a slice that takes more than a second

    def all_workers(self, **members):
        """Every byte of every node comes from its warden; the bucket has the wardens' reads only."""
        cluster = self.cluster(**members)
        nodes = cluster.start_workers(stays=True)
        stations, shards = [[nodes[f"{kind}-{i}"] for i in range(2)] for kind in ("station", "shard")]
        self.text_is_right(stations, shards)
        for node in stations + shards:
            self.assertEqual(node.metrics()["cobord_node_store_reads_total"], 0, node.id)
        for node_id, node in nodes.items():
            self.assertLess(node.memory(), workers.ISOLATE_BYTES_MAX, node_id)
        return [stats(nodes[f"{kind}-warden-{i}"]) for kind in ("layer", "shard") for i in range(2)]

    def test_resident_workers(self):
        for warden in self.all_workers():
            self.assertGreater(warden["l1"]["misses"], 0)

    def test_fluid_workers(self):
        """Stations read their phases again and again, shards their rows: memory of the wardens is hit."""
        *layers, shard, _ = self.all_workers(memory=20 * MIB)
        for warden in (*layers, shard):
            self.assertGreater(warden["l1"]["hits"], warden["l1"]["misses"])
        self.assertGreater(shard["rows_l1"]["misses"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
