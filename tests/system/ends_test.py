#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small models without shards: the embedding at the first station, the head at the last. The text is that of one
process whoever dies, the numbers are its bits, the budgets hold; also with shards for one of the two."""
import json
import os
import signal
import struct
import subprocess
import tempfile
import time
import unittest

import _frames as frames
import _nodes as nodes
import _wardens as wardens
import up_test
from up_test import MIB, MODEL, alone, environment, status, wait_until

IDS = [504, 3575, 282, 4649, 314]


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


class Numbers(unittest.TestCase):
    """Nodes alone, driven by hand."""

    @classmethod
    def setUpClass(cls):
        cls.model = nodes.Model(MODEL)
        cls.cluster = nodes.Cluster(cls.model, ["0-15", "15-end"], 0, sessions=2)
        cls.cluster.file["stations"][0]["embed"] = True
        cls.cluster.file["stations"][1]["head"] = True
        for station in cls.cluster.file["stations"]:
            station["ids"] = [0, cls.model.vocabulary]  # for the driver
        cls.cluster.path.write_text(json.dumps({**cls.cluster.file, "stations": [
            {k: v for k, v in s.items() if k != "ids"} for s in cls.cluster.file["stations"]]}))
        cls.first, cls.last = cls.cluster.start("station-0"), cls.cluster.start("station-1")
        cls.driver = nodes.Driver([cls.first, cls.last], [])

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def use(self, station):
        self.driver.shards = [station]

    def embed(self, ids):
        self.use(self.first)
        return self.driver.embed(ids)

    def best(self, x, k):
        self.use(self.last)
        return self.driver.best(x, k)

    def test_every_position_has_the_bits_of_one_process(self):
        x = self.driver.forward(self.embed(IDS), 7, 0)
        want = nodes.support.logits(MODEL, IDS, "--top", "5")["positions"]
        row = 4 * self.model.hidden
        for i, position in enumerate(want):
            got = self.best(x[i * row:(i + 1) * row], 5)[0]
            self.assertEqual([list(c) for c in got], [[t, f32(v)] for t, v in position["top"]])

    def test_each_keeps_its_own(self):
        everything = [0, self.model.vocabulary]
        embed = frames.embed(self.model.id, everything, self.model.hidden, [1])
        logits = frames.logits(self.model.id, everything, self.model.hidden, 1, bytes(4 * self.model.hidden), 3)
        self.assertEqual(self.first.call("POST", "/embed", embed)[0], 200)
        self.assertEqual(self.last.call("POST", "/logits", logits)[0], 200)
        self.assertEqual(self.last.error("POST", "/embed", embed), (404, "not_found"))
        self.assertEqual(self.first.error("POST", "/logits", logits), (404, "not_found"))
        part = frames.embed(self.model.id, [0, 100], self.model.hidden, [1])
        self.assertEqual(self.first.call("POST", "/embed", part)[0], 409)
        for noise in (b"", b"x", os.urandom(500), embed[:-1], logits[:100]):
            for node, path in ((self.first, "/embed"), (self.last, "/logits")):
                self.assertIn(node.call("POST", path, noise)[0], (400, 409, 413), noise)
        self.assertTrue(self.first.alive() and self.last.alive())

    def test_what_they_say_of_themselves(self):
        first, last = self.first.ready(), self.last.ready()
        self.assertEqual((first["range"], first["embed"], first.get("head")), ("0-15", True, None))
        self.assertEqual((last["range"], last.get("embed"), last["head"]), ("15-end", None, True))
        self.assertIn("and head", self.last.line)
        self.assertGreater(last["weights"]["bytes"], first["weights"]["bytes"] + 25 * MIB)
        self.assertLessEqual(last["memory"]["need_bytes"], last["memory"]["budget_bytes"])
        self.assertGreaterEqual(self.first.metrics()["cobord_shard_embeds_total"], 0)

    def test_frames_between(self):
        """An embed or logits between two frames of a session takes nothing from it."""
        text = nodes.support.logits(MODEL, IDS + [253], "--top", "1")["positions"][-1]["top"][0][0]
        self.driver.forward(self.embed(IDS), 40, 0)
        self.best(self.embed([5]), 2)
        x = self.driver.forward(self.embed([253]), 40, len(IDS), frames.DECODE)
        self.embed(list(range(100)))
        self.assertEqual(self.best(x, 1)[0][0][0], text)


class Without(unittest.TestCase):
    """`up --shards 0`."""

    @classmethod
    def setUpClass(cls):
        cls.greedy = alone("--temperature", "0")
        cls.drawn = alone("--temperature", "0.9", "--seed", "11")

    def up(self, *arguments, **more):
        cluster = up_test.Up("--listen", "127.0.0.1:0", *arguments, **more)
        self.addCleanup(cluster.close)
        return cluster

    def check(self, cluster):
        self.assertEqual(cluster.ask(), self.greedy)
        self.assertEqual(cluster.ask(temperature=0.9, seed=11), self.drawn)

    def test_stations_and_memory(self):
        for stations, memory in (("1", "128M"), ("1", "56M"), ("2", "96M"), ("5", "80M")):
            cluster = self.up("--stations", stations, "--shards", "0", "--memory", memory, "--context", "1024")
            pids = cluster.nodes()
            self.assertEqual(len(pids), 1 + int(stations))
            self.check(cluster)
            for node, pid in pids.items():
                self.assertLessEqual(status(pid, "VmHWM") * 1024, int(memory[:-1]) * MIB, node)
            self.assertEqual(cluster.stop(), 0)

    def test_killed_and_frozen(self):
        cluster = self.up("--stations", "2", "--shards", "0", "--context", "1024")
        for node in ("station-0", "station-1"):
            for number in (signal.SIGKILL, signal.SIGSTOP):
                old = cluster.nodes()[node]
                text = cluster.stream(12, lambda: cluster.kill(node, number))
                self.assertEqual(text, self.greedy)
                cluster.wait_for_new(node, old)
        self.check(cluster)
        code, answer = cluster.json("/cluster")
        self.assertEqual((code, answer["degraded"]), (200, 0))
        self.assertEqual([n.get("embed", n.get("head")) for n in answer["nodes"]], [True, True])
        self.assertEqual(cluster.stop(), 0)

    def test_replicas(self):
        cluster = self.up("--stations", "2", "--shards", "0", "--replicas", "1", "--context", "1024")
        for node in ("station-0", "station-1"):
            begun = time.time()
            self.assertEqual(cluster.stream(12, lambda: cluster.kill(node)), self.greedy)
            self.assertLess(time.time() - begun, 30)
            wait_until(lambda: cluster.json("/ready")[0] == 200)
        self.check(cluster)
        self.assertEqual(cluster.stop(), 0)


class WithoutTheFile(unittest.TestCase):
    """Stations on machines that do not have the knot: layers come from wardens or the store, embedding and head from
    the store."""

    def check(self, with_wardens):
        with wardens.FileServer(wardens.MODEL.path.parent) as store:
            cluster = wardens.Cluster(node_store=store.url)
            self.addCleanup(cluster.stop)
            stations = cluster.file["stations"]
            cluster.file.update(shards=[], shard_wardens=[])
            stations[0]["embed"] = stations[1]["head"] = True
            if not with_wardens:
                cluster.file["layer_wardens"] = []
                for station in stations:
                    del station["warden"]
            cluster.write()
            if with_wardens:
                cluster.start("layer-warden-0"), cluster.start("layer-warden-1")
            first, last = cluster.without_file("station-0"), cluster.without_file("station-1")
            for station in stations:
                station["ids"] = [0, wardens.MODEL.vocabulary]  # for the driver
            driver = nodes.Driver([first, last], [])
            ids, said = list(wardens.IDS), []
            for step in range(4):
                driver.shards = [first]
                x = driver.forward(driver.embed(ids), 9, 0 if step == 0 else len(wardens.IDS) + step - 1)
                driver.shards = [last]
                said.append(driver.best(x[-4 * wardens.MODEL.hidden:], 1)[0][0][0])
                ids = [said[-1]]
            self.assertEqual(said, wardens.solo(wardens.IDS, 4))
            for node in (first, last):
                self.assertLessEqual(node.memory("VmHWM"), 128 * MIB)
                self.assertFalse(wardens.descriptors(node, "smollm2-135m.knot"))

    def test_from_the_store(self):
        self.check(False)

    def test_layers_from_wardens(self):
        self.check(True)


class Beside(unittest.TestCase):
    """Shards for one of the two, by a cluster file."""

    def cluster(self, directory, change):
        path = os.path.join(directory, "cluster.json")
        subprocess.run(
            [COBORD, "plan", MODEL, "-o", path, "--listen", "127.0.0.1:0", "--shards", "2", "--context", "1024"],
            check=True, capture_output=True, env=environment(directory),
        )
        with open(path) as f:
            cluster = json.load(f)
        change(cluster)
        with open(path, "w") as f:
            json.dump(cluster, f)
        return path

    def run_with(self, change):
        with tempfile.TemporaryDirectory() as d:
            up = up_test.Up("--cluster", self.cluster(d, change), model=None)
            self.addCleanup(up.close)
            self.assertEqual(up.ask(), alone("--temperature", "0"))
            calls = self.calls_at_rest(up)
            self.assertGreater(calls["station-0"], up_test.TOKENS - 2)
            self.assertEqual(up.stop(), 0)
            return calls

    @staticmethod
    def calls_at_rest(up):
        """What is told is a second old at most, when the machine is not too busy: until it stays."""
        calls, since, end = {}, time.monotonic(), time.monotonic() + 60
        while time.monotonic() - since < 2.5 and time.monotonic() < end:
            before, calls = calls, {n["id"]: n["calls"] for n in up.json("/cluster")[1]["nodes"]}
            since = since if calls == before and all(calls.values()) else time.monotonic()
            time.sleep(0.1)
        return calls

    def test_embedding_at_the_first_station(self):
        calls = self.run_with(lambda c: c["stations"][0].update(embed=True))
        self.assertEqual(calls["station-0"], 2 * calls["station-1"])
        self.assertEqual(calls["shard-0"], calls["shard-1"])

    def test_head_at_the_last_station(self):
        calls = self.run_with(lambda c: c["stations"][1].update(head=True))
        self.assertGreater(calls["station-1"], calls["station-0"])
        self.assertLessEqual(calls["shard-0"] + calls["shard-1"], 2 * calls["station-0"])

    def test_nobody_to_ask(self):
        def both(c):
            c["stations"][0]["embed"] = c["stations"][1]["head"] = True

        def none(c):
            c["shards"] = []

        for change, word in ((both, "nobody asks"), (none, "embedding")):
            with tempfile.TemporaryDirectory() as d:
                p = subprocess.run([COBORD, "up", "--cluster", self.cluster(d, change)], capture_output=True, text=True,
                                   env=environment(d), timeout=60)
                self.assertEqual((p.returncode, p.stderr.count("\n")), (1, 1), p.stderr)
                self.assertIn(word, p.stderr)


class Plans(unittest.TestCase):
    def plan(self, *arguments):
        return subprocess.run([COBORD, "plan", MODEL, *arguments], capture_output=True, text=True,
                              env=environment("/nonexistent"), timeout=60)

    def test_sum_and_price(self):
        p = json.loads(self.plan("--stations", "3", "--shards", "0", "--context", "1024", "--json").stdout)
        first, middle, last = [r for r in p["roles"] if r["id"].startswith("station-")]
        self.assertEqual((first["embed"], middle.get("embed"), last["head"]), (True, None, True))
        self.assertEqual([r["id"] for r in p["roles"] if r["id"].startswith("shard")], [])
        self.assertGreater(last["weight_bytes"], middle["weight_bytes"] + 25 * MIB)
        self.assertEqual((p["cost"]["calls"], p["cost"]["hops"]), (5, 5))
        with_shards = json.loads(self.plan("--stations", "3", "--shards", "2", "--context", "1024", "--json").stdout)
        self.assertAlmostEqual(p["cost"]["weight_bytes"], with_shards["cost"]["weight_bytes"], delta=MIB // 10)

    def test_too_little_memory(self):
        p = self.plan("--stations", "2", "--shards", "0", "--memory", "24M", "--context", "1024")
        self.assertEqual(p.returncode, 1)
        self.assertIn("more than the 24.0 MiB allowed", p.stderr)

    def test_over_machines(self):
        p = json.loads(self.plan("--hosts", "10.0.0.1,10.0.0.2", "--shards", "0", "--context", "1024", "--json").stdout)
        self.assertEqual([r["id"] for r in p["roles"] if r["id"][:2] == "st"], ["station-0", "station-1"])

    def test_not_in_one_process(self):
        p = subprocess.run([COBORD, "run", MODEL, "Hi", "--shards", "0"], capture_output=True, text=True,
                           env=environment("/nonexistent"))
        self.assertEqual((p.returncode, p.stderr.count("\n")), (2, 1))


COBORD = up_test.COBORD

if __name__ == "__main__":
    unittest.main(verbosity=2)
