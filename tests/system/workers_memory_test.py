#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an isolate takes and what it reads: a model that is larger than all of them, by phases, and one that fits. It is
what `cobord deploy` said before, and what the page says (docs/format/workers.md, section 5)."""
import json
import pathlib
import shutil
import tempfile
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


def plan_of(model, stations, shards, memory, context):
    """What a deployment would be: its answer, and the variables of each script."""
    with tempfile.TemporaryDirectory() as folder:
        modules, out = pathlib.Path(folder, "modules"), pathlib.Path(folder, "out")
        modules.mkdir()
        for file in [workers.module(), *(workers.ROOT / "workers").glob("*.mjs")]:
            shutil.copy(file, modules)
        answer = nodes.support.must("deploy", "cloudflare", model.name, "--stations", stations, "--shards", shards,
                                    "--memory", f"{memory}M", "--context", context, "--dry-run", "--json",
                                    "--wrangler", "true", "--modules", modules, "-o", out)
        plan = json.loads(answer)
        found = {s["id"]: next((out / s["id"]).glob("wrangler.json*")) for s in plan["scripts"]}
        return plan, {i: json.loads(path.read_text())["vars"] for i, path in found.items()}


class Base(unittest.TestCase):
    name, stations, shards, terms, variables = "", [], 0, {}, {}

    @classmethod
    def setUpClass(cls):
        cls.model = Model(cls.name)
        cls.knot = wardens.Knot(cls.model)
        cls.cluster = workers.WorkerCluster(cls.model, cls.stations, cls.shards, **cls.terms)
        cls.nodes = cls.cluster.start_workers(more=cls.variables, stays=True)
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
            self.assertLessEqual(self.nodes[node].metrics()["cobord_node_memory_bytes"], self.terms["memory"], node)
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
    """1.5B on 2 stations and 8 shards, as it would be deployed: most of a station's weights pass through it."""

    name, stations, shards = "qwen2.5-coder-1.5b", ["0-14", "14-end"], 8

    @classmethod
    def setUpClass(cls):
        cls.plan, variables = plan_of(Model(cls.name), 2, 8, 96, 512)
        cls.terms = {"memory": 96 * MIB, "context": 512, "chunk": cls.plan["chunk"], "sessions": cls.plan["slots"]}
        names = ("PINNED_BYTES", "LOGIT_ROWS")
        cls.variables = {i: {n: v[n] for n in names if n in v} for i, v in variables.items() if i != "coordinator-0"}
        super().setUpClass()

    def test_text_memory_and_bytes(self):
        driver = self.driver()
        got = driver.greedy(IDS, 1, 1)
        driver.embed([got[0]])  # its row is there from now on
        self.within()
        before = self.read()
        x = driver.forward(driver.embed([got[0]]), 1, len(IDS), 2)
        got.append(driver.best(x, 1)[0][0][0])
        after = self.read()
        self.within()
        self.assertEqual(got, solo(self.model, IDS, 2))
        said = {s["id"]: s for s in self.plan["scripts"]}
        for node, some in self.nodes.items():
            with self.subTest(node):
                pinned = some.ready()["weights"]["pinned_bytes"]
                self.assertEqual(after[node] - before[node], said[node]["streamed_bytes"])
                self.assertEqual(pinned, said[node]["pinned_bytes"])
                self.assertEqual(stretch(self.knot, self.weights(node)) - pinned, said[node]["streamed_bytes"])
        self.assertEqual(sum(after.values()) - sum(before.values()), self.plan["r2_bytes_per_token"])
        self.assertGreater(after["station-0"] - before["station-0"], 200 * MIB)


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
