#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stations and shards of the module, alone under Node: the same tokens as natively, resident or fluid; what they
read; sessions that outlive the instance; wardens that lie; stores that fail. Files and maps stand for R2, SQLite and
the warden (tests/wasm/node_host.mjs). tests/system/conformance_test.py has them on the real runtime.

COBORD_WASM is the folder of the built modules, COBORD_SEVEN a knot of the shape of 7B; `--long` makes one."""
import base64
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

import _frames as frames
import _nodes as nodes
import _workers as workers
from wasm_test import relaxed_options

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = 256 << 10
MIB = 1 << 20
KINDS = {"station": 1, "shard": 2}
IDS = [1, 2, 3, 4, 5, 6, 7, 8, 100, 200, 300]
LONG = "--long" in sys.argv


class Host:
    """The process with the instances."""

    def __init__(self, options=()):
        self.process = subprocess.Popen(["node", *options, ROOT / "tests/wasm/node_host.mjs"], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def do(self, what, **members):
        self.process.stdin.write(json.dumps({"do": what, **members}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the host ended in {what}")
        return json.loads(line)

    def stop(self):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


class Instance:
    """A node as nodes.Driver knows them."""

    def __init__(self, cluster, node_id):
        self.cluster, self.id = cluster, node_id

    def open(self, warden="right", **settings):
        variables = {**workers.variables(self.cluster.file, self.id), "KNOT_BUCKET": "[binding]", **settings}
        self.facts = self.cluster.host.do("open", id=self.id, kind=KINDS[self.id.split("-")[0]],
                                          module=str(self.cluster.module), knot=str(self.cluster.model.path),
                                          settings=variables, warden=warden)
        return self

    def connection(self):
        return None

    def ask(self, method, target, body=b"", **more):
        """Everything of an answer."""
        answer = self.cluster.host.do("call", id=self.id, method=method, target=target,
                                      body=base64.b64encode(body).decode(), **more)
        self.facts = answer
        answer["body"] = base64.b64decode(answer["body"])
        return answer

    def call(self, method, path, body=None, **_):
        answer = self.ask(method, path, body or b"")
        return answer["status"], answer["body"]

    def code(self, method, target, body=b"", **more):
        answer = self.ask(method, target, body, **more)
        return answer["status"], json.loads(answer["body"])["error"]["code"]

    def ready(self):
        return json.loads(self.ask("GET", "/ready")["body"])

    def metrics(self):
        text = self.ask("GET", "/metrics")["body"].decode()
        return {line.split()[0]: float(line.split()[1]) for line in text.splitlines() if line[0] != "#"}

    def store(self):
        """(reads, bytes) so far."""
        m = self.metrics()
        return m["cobord_node_store_reads_total"], m["cobord_node_store_bytes_total"]

    def rows(self):
        """(key, number, bytes) of its sessions."""
        return [(key, int(number), base64.b64decode(data))
                for key, number, data in self.cluster.host.do("rows", id=self.id) if key.startswith("session/")]


class Fleet(nodes.Cluster):
    def __init__(self, model, ranges, shards, module="cobord", **members):
        super().__init__(model, ranges, shards, key=False, **{"chunk": 64, "context": 512, **members})
        self.module = workers.module(module)
        self.host = Host(relaxed_options() if "relaxed" in module else [])
        self.instances = [Instance(self, n["id"]) for n in (*self.file["stations"], *self.file["shards"])]

    def open(self, **settings):
        for instance in self.instances:
            instance.open(**settings)
            assert not instance.facts["failed"], instance.facts
        return self.driver()

    def driver(self, first_request=1):
        stations = [i for i in self.instances if i.id.startswith("station")]
        return nodes.Driver(stations, [i for i in self.instances if i.id.startswith("shard")], first_request)

    def stop(self):
        super().stop()
        self.host.stop()


def best_natively(model, ids):
    out = nodes.support.must("logits", model.path, "--tokens", ",".join(map(str, ids)), "--top", 1, "--json")
    return [p["top"][0][0] for p in json.loads(out)["positions"]]


def stretch(model, names):
    """The bytes of the whole blocks around these tensors."""
    tensors = [t for t in json.loads(nodes.support.must("info", model.path, "--json"))["tensors"] if names(t["name"])]
    first = min(t["offset"] for t in tensors) // BLOCK * BLOCK
    return -(-max(t["offset"] + t["length"] for t in tensors) // BLOCK) * BLOCK - first


def is_matrix(layers):
    words = [f"{part}_weight" for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up",
                                           "ffn_down")]
    return lambda name: any(name == f"blk_{layer}_{word}" for layer in layers for word in words)


class Small(unittest.TestCase):
    """SmolLM2, two stations and two shards unless a test has its own."""

    @classmethod
    def setUpClass(cls):
        cls.model = nodes.Model("smollm2-135m")

    def fleet(self, ranges=("0-15", "15-end"), shards=2, **members):
        fleet = Fleet(self.model, list(ranges), shards, **members)
        self.addCleanup(fleet.stop)
        return fleet


class Tokens(Small):
    def test_resident_and_fluid_have_the_native_tokens(self):
        fleet = self.fleet(("0-11", "11-end"), 3)
        out = fleet.open().greedy(IDS, 6, 7)
        self.assertEqual(best_natively(self.model, [*IDS, *out])[len(IDS) - 1:-1], out)
        self.assertTrue(all(i.ready()["weights"]["resident"] for i in fleet.instances))
        fluid = fleet.open(MEMORY_BUDGET_BYTES=str(16 * MIB))
        self.assertFalse(any(i.ready()["weights"]["resident"] for i in fluid.stations))
        self.assertEqual(fluid.greedy(IDS, 6, 8), out)
        for instance in fleet.instances:
            self.assertLessEqual(instance.facts["memory"], 16 * MIB)
            self.assertLessEqual(instance.facts["start"], MIB)  # what plans count on: ISOLATE_FIXED_BYTES

    def test_the_relaxed_module_has_them_too(self):
        fleet = self.fleet(module="cobord-relaxed")
        out = fleet.open().greedy(IDS, 3, 7)
        self.assertEqual({i.ready()["isa"] for i in fleet.instances}, {"relaxed"})
        self.assertEqual(best_natively(self.model, [*IDS, *out])[len(IDS) - 1:-1], out)


class Reads(Small):
    def test_nothing_is_read_once_resident(self):
        fleet = self.fleet()
        driver = fleet.open()
        before = [i.store() for i in fleet.instances]
        driver.greedy(IDS, 3, 7)
        self.assertEqual([i.store() for i in fleet.instances], before)

    def test_a_pass_reads_what_is_not_pinned_once(self):
        fleet = self.fleet(("0-15", "15-end"), 1)
        layers = [stretch(self.model, is_matrix(range(15))), stretch(self.model, is_matrix(range(15, 30)))]
        for pinned in (0, 5 * BLOCK + 1, 20 * MIB):
            driver = fleet.open(PINNED_BYTES=str(pinned))
            x = driver.embed(IDS)
            for station, whole in zip(driver.stations, layers):
                self.assertEqual(station.ready()["weights"]["pinned_bytes"], pinned // BLOCK * BLOCK)
                for session in (5, 6):
                    reads, before = station.store()
                    driver.post(station, "/forward", driver.frame(station, x, session, 0))
                    self.assertEqual(station.store()[1] - before, whole - pinned // BLOCK * BLOCK)
                    self.assertLessEqual(station.store()[0] - reads, 15 * 4 * 2)

    def test_embedding_rows_are_read_alone_when_they_do_not_fit(self):
        fleet = self.fleet(("0-end",), 1)
        resident = fleet.open()
        rows = resident.embed(IDS)
        shard = fleet.instances[-1]
        shard.open(MEMORY_BUDGET_BYTES=str(40 * MIB))
        before = shard.store()
        ids = [*IDS, *IDS, *range(1000, 1030)]
        self.assertEqual(resident.embed(IDS), rows)
        self.assertEqual(shard.store()[0] - before[0], len(IDS))
        before = shard.store()
        resident.embed(ids)
        self.assertEqual(shard.store()[0] - before[0], len(set(ids)))


class Sessions(Small):
    def setUp(self):
        self.fleet_ = self.fleet(("0-15",), 1, sessions=3)
        self.fleet_.file["stations"].append({"id": "station-1", "address": "127.0.0.1:1", "range": "15-end"})
        self.driver = self.fleet_.open()
        self.station = self.driver.stations[0]
        self.x = self.driver.embed(IDS)

    def forward(self, session, position, rows, expect=200):
        body = self.driver.frame(self.station, self.x[:4 * self.model.hidden * rows], session, position)
        answer = self.station.ask("POST", "/forward", body)
        self.assertEqual(answer["status"], expect, answer["body"])
        return answer["body"]

    def known(self):
        return self.station.ready()["sessions"]["known"]

    def spans(self):
        """{session: [(first, count), ..]}"""
        out = {}
        for _, number, data in self.station.rows():
            name, _, first, count = struct.unpack_from("<QQII", data, 32)
            self.assertEqual((data[:4], first, len(data) <= MIB), (b"CSES", number, True))
            out.setdefault(name, []).append((first, count))
        return out

    def test_appended_and_restored_with_the_same_bits(self):
        self.forward(7, 0, 5)
        self.forward(8, 0, 2)
        self.forward(7, 5, 1)
        self.forward(7, 6, 1)
        self.assertEqual(self.spans(), {7: [(0, 5), (5, 1), (6, 1)], 8: [(0, 2)]})
        kept = frames.payload(self.forward(7, 7, 3), frames.FORWARD_ANSWER)
        self.forward(9, 0, 7)
        fresh = frames.payload(self.forward(9, 7, 3), frames.FORWARD_ANSWER)
        self.station.open()
        self.assertEqual(self.known(), 3)
        self.assertEqual(frames.payload(self.forward(7, 7, 3), frames.FORWARD_ANSWER), kept)
        self.assertEqual(frames.payload(self.forward(9, 7, 3), frames.FORWARD_ANSWER), fresh)
        self.forward(8, 3, 1, 409)
        self.forward(8, 2, 1)

    def test_q8_0_and_a_cut_in_the_ffn(self):
        """The same of a quantized cache, and of a station whose answers have g."""
        self.fleet_.file["stations"][0]["range"] = "0-3.ffn_up"
        self.station.open(CACHE_TYPE="q8_0")

        def forward(session, position, rows):
            body = frames.forward(self.model.id, (0, 14), self.model.hidden, [frames.Sequence(session, position, rows)],
                                  self.x[:4 * self.model.hidden * rows], self.driver.next_request(), cache=2)
            answer = self.station.ask("POST", "/forward", body)
            self.assertEqual(answer["status"], 200, answer["body"])
            return frames.payload(answer["body"], frames.FORWARD_ANSWER)
        forward(7, 0, 6)
        kept = forward(7, 6, 4)
        forward(8, 0, 6)
        self.station.open(CACHE_TYPE="q8_0")
        self.assertEqual(forward(8, 6, 4), kept)

    def test_late_frames_stay_superseded(self):
        late = self.driver.frame(self.station, self.x, 7, 0)
        self.forward(7, 0, 4)
        self.station.open()
        self.assertEqual(self.station.code("POST", "/forward", late), (409, "superseded"))

    def test_cuts_are_deleted_before_the_answer(self):
        self.forward(7, 0, 5)
        self.forward(7, 5, 4)
        self.forward(7, 9, 1)
        self.forward(7, 7, 1)  # inside the second row: its beginning is appended again
        self.assertEqual(self.spans(), {7: [(0, 5), (5, 3)]})
        self.forward(7, 0, 2)
        self.assertEqual(self.spans(), {7: [(0, 2)]})
        self.assertEqual(self.station.ask("DELETE", "/sessions/7")["status"], 200)
        self.assertEqual(self.spans(), {})

    def test_sessions_that_make_room_lose_their_rows(self):
        for session in (1, 2, 3, 4):
            self.forward(session, 0, 1)
        self.assertEqual(set(self.spans()), {2, 3, 4})

    def test_copies_are_kept_whole(self):
        self.forward(7, 0, 6)
        sequence = [frames.Sequence(8, 4, 1, 7, 4)]
        body = frames.forward(self.model.id, (0, 60), self.model.hidden, sequence, self.x[:4 * self.model.hidden],
                              self.driver.next_request())
        self.assertEqual(self.station.ask("POST", "/forward", body)["status"], 200)
        self.assertEqual(self.spans(), {7: [(0, 6)], 8: [(0, 5)]})

    def spoil(self, change):
        key, number, data = self.station.rows()[1]
        data = change(bytearray(data))
        self.fleet_.host.do("row", id=self.station.id, key=key, number=number,
                            bytes=None if data is None else base64.b64encode(bytes(data)).decode())

    def test_what_cannot_be_restored_is_410(self):
        def flip(at):
            def change(data):
                data[at] ^= 1
                return data
            return change
        for change in (flip(-1), flip(17), flip(24), flip(40), flip(52), lambda data: data[:-1], lambda data: None):
            self.forward(7, 0, 3)
            self.forward(7, 3, 2)
            self.forward(7, 5, 1)
            self.spoil(change)
            self.station.open()
            self.assertEqual((self.known(), self.spans()), (0, {}))
            self.forward(7, 6, 1, 410)
            self.driver.request += 10

    def test_another_range_or_cache_type_has_no_sessions(self):
        self.forward(7, 0, 3)
        self.station.open(CACHE_TYPE="q8_0")
        self.assertEqual((self.known(), self.spans()), (0, {}))

    def test_configure_lasts(self):
        self.forward(7, 0, 3)
        answer = self.station.ask("POST", "/configure", b'{"range":"2-15"}')
        self.assertEqual((answer["status"], answer["body"]), (200, b'{"configured":true}'))
        self.assertEqual(self.spans(), {})
        self.assertEqual(self.station.ready()["range"], "2-15")
        self.assertEqual(self.station.code("POST", "/configure", b'{"range":"3-2"}'), (400, "range"))
        self.station.open()
        self.assertEqual(self.station.ready()["range"], "2-15")
        self.assertEqual(self.station.code("POST", "/forward", self.driver.frame(self.station, self.x, 7, 0)),
                         (409, "unsupported"))

    def test_configure_that_finds_no_store(self):
        self.station.open(PINNED_BYTES="0")
        self.fleet_.host.do("fail", id=self.station.id, reads=1000)
        for _ in range(2):  # the second finds a node without weights
            status, code = self.station.code("POST", "/configure", b'{"range":"2-15"}')
            self.assertEqual((status, code, self.station.facts["failed"]), (503, "unreachable", 1))
        self.station.open()
        self.assertEqual(self.station.ready()["range"], "0-15")

    def test_a_client_that_left_costs_nothing(self):
        self.forward(7, 0, 3)
        body = self.driver.frame(self.station, self.x, 7, 3)
        self.assertEqual(self.station.code("POST", "/forward", body, gone=True), (503, "cancelled"))
        self.forward(7, 3, 1)

    def test_a_body_that_does_not_come(self):
        answer = self.station.ask("POST", "/forward", b"COBF", broken=True)
        self.assertEqual((answer["status"], answer["seconds"]), (503, 1))
        self.assertEqual(json.loads(answer["body"])["error"]["code"], "again")
        self.assertEqual(self.station.ask("GET", "/health", broken=True)["status"], 200)
        self.assertEqual(self.station.code("POST", "/nothing", broken=True), (404, "not_found"))
        self.forward(7, 0, 3)


class Phases(Small):
    def test_phases_are_not_for_the_taking(self):
        fleet = self.fleet(("0-end",), 1)
        fleet.open()
        for name in ("attn", "ffn_gate", "ffn_up", "ffn_gate_up", "ffn_down"):
            for layers in ((0, 1), (1, 2), (4000000000, 4000000001)):
                answer = fleet.host.do("export", id="station-0", name=f"forward_range_{name}_chunk", arguments=layers)
                self.assertEqual(answer["result"], 100)  # ERR_USAGE


class Sources(Small):
    def test_everything_comes_from_the_warden(self):
        fleet = self.fleet(("0-end",), 1)
        out = fleet.open().greedy(IDS, 2, 7)
        fleet.open(LAYER_WARDEN="[binding]", PINNED_BYTES="0")
        station = fleet.instances[0]
        self.assertEqual(station.store(), (0, 0))
        self.assertEqual(fleet.driver(100).greedy(IDS, 2, 8), out)
        self.assertEqual((station.store(), station.facts["told"]), ((0, 0), []))
        self.assertGreater(station.facts["calls"], 30 * 4)

    def test_a_warden_that_lies_is_told_and_passed_over(self):
        fleet = self.fleet(("0-end",), 1)
        out = fleet.open().greedy(IDS, 2, 7)
        station = fleet.instances[0].open("wrong", LAYER_WARDEN="[binding]", PINNED_BYTES="0")
        self.assertFalse(station.facts["failed"])
        self.assertEqual(fleet.driver(100).greedy(IDS, 2, 8), out)
        for line in station.facts["told"]:
            self.assertRegex(line, r"^POST /invalidate/[a-z0-9_]+$")
        self.assertGreater(station.store()[1], 0)

    def test_a_warden_that_is_gone_is_not_missed(self):
        fleet = self.fleet(("0-end",), 1)
        out = fleet.open().greedy(IDS, 2, 7)
        station = fleet.instances[0].open("gone", LAYER_WARDEN="[binding]", PINNED_BYTES="0")
        self.assertEqual(fleet.driver(100).greedy(IDS, 2, 8), out)
        self.assertEqual(station.facts["calls"], 1)  # it rests for five seconds

    def test_a_store_that_fails(self):
        fleet = self.fleet(("0-end",), 1)
        driver = fleet.open(PINNED_BYTES="0")
        station, x = fleet.instances[0], driver.embed(IDS)
        for fails, status in ((2, 200), (3, 503), (0, 200)):
            fleet.host.do("fail", id="station-0", reads=fails)
            answer = station.ask("POST", "/forward", driver.frame(station, x, 7, 0))
            self.assertEqual(answer["status"], status)
        fleet.host.do("fail", id="station-0", reads=1000)
        answer = station.ask("POST", "/forward", driver.frame(station, x, 7, 0))
        self.assertEqual((answer["status"], answer["seconds"]), (503, 1))
        self.assertIn(b"told to fail", answer["body"])


class Openings(Small):
    def check(self, status, code, text, node="station-0", **settings):
        fleet = self.fleet_
        instance = next(i for i in fleet.instances if i.id == node).open(**settings)
        self.assertEqual(instance.facts["failed"], 1)
        for method, target in (("GET", "/ready"), ("POST", "/forward"), ("GET", "/metrics")):
            answer = instance.ask(method, target)
            error = json.loads(answer["body"])["error"]
            self.assertEqual((answer["status"], error["code"]), (status, code))
            self.assertIn(text, error["message"])
        self.assertEqual(instance.ask("GET", "/health")["status"], 200)

    def test_what_keeps_a_node_from_opening(self):
        self.fleet_ = self.fleet(("0-15", "15-end"), 1)
        self.check(409, "unsupported", "wanted is 123456789abcdef", KNOT_ID="0123456789abcdef")
        self.check(400, "usage", "KNOT_ID", KNOT_ID="0123456789ABCDEF")
        self.check(500, "plan", "attention cache", MEMORY_BUDGET_BYTES=str(4 * MIB))
        self.check(400, "usage", "SPECIALIZATION_ROLE", SPECIALIZATION_ROLE="exit")
        self.check(400, "range", "SPECIALIZATION_START", SPECIALIZATION_END="0")
        self.check(400, "usage", "CHUNK", CHUNK="5000")
        self.check(400, "usage", "CACHE_TYPE", CACHE_TYPE="f32")
        self.check(400, "usage", "VOCAB_END", "shard-0", VOCAB_END="49153")

    def test_the_size_is_asked_for_when_it_is_not_given(self):
        fleet = self.fleet(("0-end",), 1)
        station = fleet.instances[0].open()
        reads = station.store()
        station.open(KNOT_BYTES=str(self.model.path.stat().st_size))
        self.assertEqual(station.store(), reads)


class SevenBillion(unittest.TestCase):
    """A layer and a shard of the shape of 7B within 96 MiB of WebAssembly, at 2,048 positions."""

    @classmethod
    def setUpClass(cls):
        path = os.environ.get("COBORD_SEVEN")
        if not path and not LONG:
            raise unittest.SkipTest("--long makes a knot of 4.8 GB, COBORD_SEVEN names one")
        if not path:
            cls.space = tempfile.TemporaryDirectory(dir=os.environ.get("COBORD_TEST_SPACE"))
            cls.addClassCleanup(cls.space.cleanup)
            path = os.path.join(cls.space.name, "seven.knot")
            nodes.support.must("synth", "--shape", "qwen2.5-coder-7b", "-o", path, timeout=1500)
        info = json.loads(nodes.support.must("info", path, "--json"))
        cls.model = type("Model", (), {"name": "seven", "path": pathlib.Path(path), "knot_id": info["id"],
                                       "id": int(info["id"], 16), **info["model"]})

    def test_a_layer_and_a_shard(self):
        fleet = Fleet(self.model, ["0-5", "5-6", "6-end"], 8, context=2048, chunk=32)
        self.addCleanup(fleet.stop)
        station = next(i for i in fleet.instances if i.id == "station-1").open()
        shard = next(i for i in fleet.instances if i.id == "shard-3").open()
        driver = nodes.Driver([station], [shard])
        x = struct.pack("<7168f", *((i * 37 % 101 - 50) / 50 for i in range(7168)))
        whole = stretch(self.model, is_matrix([5]))
        for instance in (station, shard):
            self.assertEqual(instance.facts["failed"], 0, instance.facts)
        before, pinned = station.store()[1], station.ready()["weights"]["pinned_bytes"]
        answer = frames.payload(driver.post(station, "/forward", driver.frame(station, x, 7, 0)), frames.FORWARD_ANSWER)
        self.assertEqual((len(answer), station.store()[1] - before), (len(x), whole - pinned))
        self.assertEqual(len(driver.best(answer, 5)[1]), 5)
        self.assertEqual(len(driver.embed([3 * 18992 + 5])), 4 * 3584)
        for instance in (station, shard):
            print(f"7B, {instance.id}: {instance.facts['memory'] / MIB:.1f} MiB,",
                  json.dumps(instance.ready()["weights"]))
            self.assertLessEqual(instance.facts["memory"], 96 * MIB)


if __name__ == "__main__":
    sys.argv = [a for a in sys.argv if a != "--long"]
    unittest.main(verbosity=2)
