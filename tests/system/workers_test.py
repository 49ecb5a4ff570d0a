#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clusters of Workers on the real runtime, and mixed with native nodes: the texts and logits of one process, also after
a deployment in the middle of a stream, and what an isolate takes. What an eviction leaves: workers_evict_test."""
import json
import time
import unittest

import _frames as frames
import _nodes as nodes
from _packages import need
from _workers import ISOLATE_BYTES_MAX, WorkerCluster

need("xxhash", "4.1.0")
import xxhash  # noqa: E402

MODEL = nodes.Model("smollm2-135m")
IDS = [504, 3575, 282, 4649, 314]
COUNT = 6
CHAT = "/v1/chat/completions"
QUESTION = {"messages": [{"role": "user", "content": "Tell me about the sea."}], "temperature": 0, "max_tokens": 24}


def solo_ids(ids, count):
    out = list(ids)
    for _ in range(count):
        at = nodes.support.logits(MODEL.name, out, "--top", "1")["positions"][-1]
        out.append(at["top"][0][0])
    return out[len(ids):]


def solo_text():
    """What one native process answers."""
    return nodes.support.must("run", MODEL.name, QUESTION["messages"][0]["content"], "--temperature", "0",
                              "--max-tokens", str(QUESTION["max_tokens"])).decode().rstrip("\n")


class Shared(unittest.TestCase):
    """Two stations and two shards."""

    session = int(time.time()) << 16
    module = "cobord"
    ids = None

    @classmethod
    def setUpClass(cls):
        cls.cluster = WorkerCluster(MODEL, ["0-15", "15-end"], 2, sessions=4)
        cls.edit(cls.cluster.file)
        nodes_of = cls.cluster.start_workers(cls.ids, name=cls.module)
        for node in ("station-0", "station-1", "shard-0", "shard-1"):
            if node not in nodes_of:
                nodes_of[node] = cls.cluster.start(node)
        cls.workers = nodes_of
        cls.stations = [nodes_of["station-0"], nodes_of["station-1"]]
        cls.shards = [nodes_of["shard-0"], nodes_of["shard-1"]]

    @classmethod
    def edit(cls, file):
        pass

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def setUp(self):
        Shared.session += 1

    def driver(self):
        return nodes.Driver(self.stations, self.shards, first_request=time.time_ns())


    def coordinator(self):
        node = self.cluster.start("coordinator-0")
        self.addCleanup(node.kill)
        self.assertTrue(nodes.wait_for(lambda: node.call("GET", "/ready")[0] == 200, 60), node.errors())
        return node

    def ask(self, node):
        status, answer = node.call("POST", CHAT, json.dumps(QUESTION))
        self.assertEqual(status, 200, answer)
        return json.loads(answer)["choices"][0]["message"]["content"]


class WorkersTest(Shared):
    def test_hash_of_all_logits(self):
        driver, hashed = self.driver(), xxhash.xxh3_64()
        x = driver.forward(driver.embed(IDS), self.session, 0)
        size = 4 * MODEL.hidden
        for row in (x[at:at + size] for at in range(0, len(x), size)):
            for shard in self.shards:
                body = frames.logits_of(MODEL.id, self.cluster.entry(shard.id)["ids"], MODEL.hidden,
                                        [frames.Row(sliced=True)], row)
                hashed.update(frames.payload(driver.post(shard, "/logits", body), frames.LOGITS_ANSWER))
        want = json.loads(nodes.support.must("logits", MODEL.name, "--tokens", ",".join(map(str, IDS)), "--json",
                                             "--hash"))
        self.assertEqual(hashed.hexdigest(), want["xxh3"])

    def test_driven_by_hand(self):
        self.assertEqual(self.driver().greedy(IDS, COUNT, self.session), solo_ids(IDS, COUNT))

    def test_health_needs_neither_key_nor_object(self):
        for node in self.stations + self.shards:
            self.assertEqual(node.call("GET", "/health", key=None), (200, b'{"status":"ok"}'))

    def test_native_coordinator(self):
        self.assertEqual(self.ask(self.coordinator()), solo_text())

    def test_memory_of_isolates(self):
        self.driver().greedy(IDS, COUNT, self.session)
        for node in self.stations + self.shards:
            self.assertLess(node.memory(), ISOLATE_BYTES_MAX, node.id)

    def test_deployed_anew_in_the_middle_of_a_stream(self):
        """Every object loses its memory and no connection lasts; the coordinator asks again."""
        coordinator = self.coordinator()
        line = coordinator.connection()
        self.addCleanup(line.close)
        line.request("POST", CHAT, json.dumps({**QUESTION, "stream": True}), {"Authorization": "Bearer " + nodes.KEY})
        pieces = []
        for event in line.getresponse():
            if not event.startswith(b"data: {"):
                continue
            value = json.loads(event[6:])
            self.assertNotIn("error", value)
            pieces += [choice["delta"].get("content") or "" for choice in value["choices"]]
            if len(pieces) == 6:
                self.cluster.runtime.restart()
        self.assertEqual("".join(pieces), solo_text())


class MixedTest(Shared):
    """Native processes for one station and one shard."""

    ids = ["station-1", "shard-0"]

    def test_text(self):
        self.assertEqual(self.ask(self.coordinator()), solo_text())


class CoordinatorTest(Shared):
    """Nothing but Workers."""

    ids = ["coordinator-0", "station-0", "station-1", "shard-0", "shard-1"]

    def test_text(self):
        self.assertTrue(nodes.wait_for(lambda: self.workers["coordinator-0"].call("GET", "/ready")[0] == 200, 60))
        self.assertEqual(self.ask(self.workers["coordinator-0"]), solo_text())


class MixedCoordinatorTest(CoordinatorTest):
    """A Worker coordinates native processes."""

    ids = ["coordinator-0"]


class RelaxedTest(Shared):
    module = "cobord-relaxed"

    def test_same_ids(self):
        self.assertEqual(self.driver().greedy(IDS, COUNT, self.session), solo_ids(IDS, COUNT))


class WardensTest(Shared):
    """A warden in front of each node; the bucket is theirs alone once they are warm."""

    @classmethod
    def edit(cls, file):
        ports = iter(nodes.free_ports(4))
        for kind, field in (("layer", "range"), ("shard", "ids")):
            members = file["stations" if kind == "layer" else "shards"]
            file[f"{kind}_wardens"] = [{"id": f"{kind}-warden-{i}", "address": f"127.0.0.1:{next(ports)}",
                                        field: node[field]} for i, node in enumerate(members)]
            for i, node in enumerate(members):
                node["warden"] = f"{kind}-warden-{i}"

    def test_text(self):
        self.assertEqual(self.ask(self.coordinator()), solo_text())
        for node in self.stations + self.shards:
            self.assertEqual(node.metrics()["cobord_node_store_bytes_total"], 0, node.id)

    def test_memory_of_isolates(self):
        self.driver().greedy(IDS, COUNT, self.session)
        for node in self.workers.values():
            self.assertLess(node.memory(), ISOLATE_BYTES_MAX, node.id)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
