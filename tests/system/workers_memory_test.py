#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an isolate takes and what it reads: a model that is larger than all of them, by phases, and one that fits."""
import time
import unittest

import _nodes as nodes
import _wardens as wardens
import _workers as workers
from _nodes import Model

IDS = [785, 9625, 315, 9822, 374]
MIB = 1 << 20
BLOCK = 256 << 10


def solo(model, ids, count):
    out = list(ids)
    for _ in range(count):
        out.append(nodes.support.logits(model.name, out, "--top", "1")["positions"][-1]["top"][0][0])
    return out[len(ids):]


def stretch(knot, tensors):
    """Bytes of whole hash blocks around these tensors, which lie together."""
    first = min(t["offset"] for t in tensors) // BLOCK * BLOCK
    last = max(t["offset"] + t["length"] for t in tensors)
    return min((last + BLOCK - 1) // BLOCK * BLOCK, knot.header["payload_bytes"]) - first


class Driver(nodes.Driver):
    """A line for each call: the runtime closes those that are idle for a few seconds."""

    def post(self, node, path, body):
        status, data = node.call("POST", path, body)
        assert status == 200, (node.id, path, status, data)
        return data


class Base(unittest.TestCase):
    name, stations, shards, tokens, terms = "", [], 0, 3, {}

    @classmethod
    def setUpClass(cls):
        cls.model = Model(cls.name)
        cls.knot = wardens.Knot(cls.model)
        cls.cluster = workers.WorkerCluster(cls.model, cls.stations, cls.shards, **cls.terms)
        cls.nodes = cls.cluster.start_workers(more={f"shard-{i}": {"LOGIT_ROWS": "4"} for i in range(cls.shards)})
        cls.places = [cls.nodes[f"station-{i}"] for i in range(len(cls.stations))]
        cls.parts = [cls.nodes[f"shard-{i}"] for i in range(cls.shards)]

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def driver(self):
        return Driver(self.places, self.parts, int(time.time() * 1000))

    def read(self):
        """Bytes that each has read of the bucket so far."""
        return {i: n.metrics()["cobord_node_store_bytes_total"] for i, n in self.nodes.items()}

    def isolates(self):
        """Bytes of each isolate: JavaScript, its buffers, and the module's memory."""
        heaps = self.cluster.runtime.heaps()
        return {i: heaps[i] + n.metrics()["cobord_node_memory_bytes"] for i, n in self.nodes.items()}

    def within(self):
        for node, count in self.isolates().items():
            self.assertLess(count, workers.ISOLATE_BYTES_MAX, f"{node} takes {count / 1e6:.1f} MB")

    def weights(self, node):
        """Of the node's range: a station's matrices, a shard's rows of the head in whole panels."""
        entry = self.cluster.entry(node)
        if "range" in entry:
            first, last = (b // 4 for b in self.cluster.bounds(node))
            layers = {f"blk_{i}_" for i in range(first, last)}
            return [t for t in self.knot.tensors.values() if t["length"] >= MIB // 8 and "norm" not in t["name"]
                    and t["name"][:t["name"].index("_", 4) + 1] in layers]
        head = self.knot.tensors.get("output_weight") or self.knot.tensors["token_embd_weight"]
        row = head["length"] // head["shape"][0]
        first, last = entry["ids"][0] // 16 * 16, (entry["ids"][1] + 15) // 16 * 16
        return [{"offset": head["offset"] + first * row, "length": (min(last, head["shape"][0]) - first) * row}]


class Fluid(Base):
    """1.5B on 2 stations and 8 shards: most of a station's weights pass through it, for each token."""

    name, stations, shards = "qwen2.5-coder-1.5b", ["0-14", "14-end"], 8
    terms = {"memory": 96 * MIB, "context": 512, "chunk": 16, "sessions": 1}

    def test_text_memory_and_bytes(self):
        driver = self.driver()
        got = driver.greedy(IDS, 1, 1)
        self.within()
        before = self.read()
        x = driver.forward(driver.embed([got[0]]), 1, len(IDS), 2)
        got.append(driver.best(x, 1)[0][0][0])
        after = self.read()
        self.within()
        self.assertEqual(got, solo(self.model, IDS, 2))
        for node, some in self.nodes.items():
            ready = some.ready()["weights"]
            want = stretch(self.knot, self.weights(node)) - ready["pinned_bytes"]
            with self.subTest(node):
                self.assertEqual(after[node] - before[node] - self.row_bytes(node, got[0]), max(want, 0))
        self.assertGreater(after["station-0"] - before["station-0"], 200 * MIB)

    def row_bytes(self, node, token):
        """The embedding row of the token, from the shard that owns it, unless that has kept it."""
        return 0 if node.startswith("station") else self.embedding.get(node, 0)

    @property
    def embedding(self):
        return {}


class Resident(Base):
    """A model that fits: nothing is read for a warm request."""

    name, stations, shards = "smollm2-135m", ["0-10", "10-20", "20-end"], 2
    terms = {"memory": 96 * MIB, "context": 512, "chunk": 64, "sessions": 2}

    def test_warm(self):
        driver = self.driver()
        want = driver.greedy(IDS, 4, 1)
        for node in self.nodes.values():
            self.assertTrue(node.ready()["weights"]["resident"], node.id)
        before = self.read()
        self.assertEqual(driver.greedy(IDS, 4, 2), want)
        self.assertEqual(self.read(), before)
        self.assertEqual(want, solo(self.model, IDS, 4))
        self.within()


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
