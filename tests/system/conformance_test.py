#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One suite of requests against every host of nodes. Answers are held against the pages, and those of two hosts against
each other,
byte for byte: processes of this machine's best instruction set, of none, and Workers on the real runtime."""
import copy
import http.client
import importlib.util
import json
import os
import socket
import sys
import time
import unittest

import _conform_api as api
import _conform_nodes as conform
import _conform_wardens as wardens
import _conformance as suite
import _frames as frames
import _nodes as nodes
import _wardens
from _nodes import KEY

SHOWN = 12
MIB = 1 << 20
NODES = ["station-0", "station-1", "shard-0", "shard-1"]
WARDENS = ["layer-warden-0", "layer-warden-1", "shard-warden-0", "shard-warden-1"]
QUEUE = 64
TERMS = {"context": conform.CONTEXT, "chunk": conform.CHUNK, "sessions": conform.SESSIONS, "memory": 112 * MIB,
         "warden_memory": 112 * MIB}


class Native(_wardens.Cluster):
    """Processes of this machine; nodes read the knot themselves."""

    def __init__(self, roles, *arguments, name="native"):
        store = str(conform.MODEL.path.parent)
        super().__init__(conform.MODEL, shard={"cache": "sqlite:rows.db"}, node_store=store, **TERMS)
        self.name = name
        for entry in [*self.file["stations"], *self.file["shards"]]:
            del entry["warden"]
        self.write()
        for node in roles:
            self.start(node, *(() if "warden" in node else arguments))

    def address(self, node):
        host, _, port = self.entry(node)["address"].rpartition(":")
        return host, int(port)

    def faults(self):
        """Whoever is not alive any more."""
        return [f"{n.id} ended: {n.errors()[-300:]}" for n in self.nodes if not n.alive()]


class NativeCut(nodes.Cluster):
    """Two stations, cut inside an FFN, that keep embedding and head; the attention cache is q8_0; there is no key."""

    name = "native"
    address, faults = Native.address, Native.faults

    def __init__(self, roles, *arguments, name="native"):
        super().__init__(conform.MODEL, conform.CUT, 0, key=False, cache_type="q8_0", **TERMS)
        self.name = name
        self.file["stations"][0]["embed"] = self.file["stations"][1]["head"] = True
        self.write()
        for node in roles:
            self.start(node, *arguments)


class Workers:
    """The same cluster in the real runtime."""

    name = "workers"

    def __init__(self, roles, native):
        import _workers  # here, since it builds the module

        key = KEY if native.file.get("key_file") else ""
        self.file = copy.deepcopy(native.file)
        lists = [self.file.get(kind, []) for kind in ("stations", "shards", "layer_wardens", "shard_wardens")]
        for entry in [self.file["coordinator"], *sum(lists, [])]:
            entry["address"] = f"127.0.0.1:{nodes.free_ports(1)[0]}"
        more = {"VERSION": ready(native, roles[0])["version"]}
        for node in roles:
            rows = ready(native, node).get("logit_rows", conform.SESSIONS)
            more["LOGIT_ROWS"] = str(rows)
        self.runtime = _workers.Workers(self.file, roles, key, more={node: more for node in roles})
        self.address, self.stop = self.runtime.address, self.runtime.stop

    def faults(self):
        """What scripts and runtime complained of, for whoever reads a failure."""
        if self.runtime.harness.process.poll() is not None:
            return ["the runtime ended"]
        fell = [line for line in self.runtime.errors().splitlines() if "fell:" in line or "not opened:" in line]
        return [f"an object fell: {fell[:5]}"] if fell else []


def hosts(roles, native, cleanup):
    """Running hosts, the one that is compared with first. CONFORMANCE_HOSTS names others than the usual."""
    named = os.environ.get("CONFORMANCE_HOSTS", "workers").split(",")
    makers = [lambda: native(roles)]
    if "scalar" in named:
        makers.append(lambda: native(roles, "--threads", 1, "--isa", "scalar", name="scalar"))
    if "workers" in named and importlib.util.find_spec("_workers"):
        makers.append(lambda: Workers(roles, out[0]))
    out = []
    for make in makers:
        out.append(make())
        cleanup(out[-1].stop)
    return out


def ready(host, node):
    """What a node says of itself."""
    line = http.client.HTTPConnection(*host.address(node), timeout=60)
    line.request("GET", "/ready", headers={} if node == api.NODE else {"Authorization": "Bearer " + KEY})
    value = json.loads(line.getresponse().read())
    line.close()
    return value


class Hosts(unittest.TestCase):
    roles, native = (), Native

    @classmethod
    def setUpClass(cls):
        cls.hosts = hosts(cls.roles, cls.native, cls.addClassCleanup)

    def conform(self, cases):
        """Every host is asked the same; what it answers is right, and the same everywhere."""
        first = None
        for host in self.hosts:
            begun = time.monotonic()
            answers = suite.play(host.address, cases)
            print(f"{host.name}: {len(cases)} requests in {time.monotonic() - begun:.1f} s", file=sys.stderr)
            found = suite.all_faults(cases, answers) + host.faults()
            with self.subTest(host=host.name):
                self.none(found, f"of {len(cases)} answers of {host.name} are wrong")
            if first is None:
                first = answers
                continue
            with self.subTest(host=host.name, against=self.hosts[0].name):
                self.none(suite.differences(cases, first, answers),
                          f"of {len(cases)} answers of {self.hosts[0].name} and {host.name} are not the same")

    def none(self, found, what):
        if found:
            self.fail(f"{len(found)} {what}\n" + "\n".join(found[:SHOWN]))


class Suite(unittest.TestCase):
    """The suite itself: it sees what is wrong, and what is not the same."""

    def test_faults(self):
        case = suite.Case("x", "POST /forward", 400, "range", b"", says="beyond")
        good = {"error": {"message": "beyond", "type": "node_error", "param": None, "code": "range",
                          "retryable": False}}
        head = {"content-type": "application/json"}

        def found(status=400, head=head, **more):
            return suite.faults(case, suite.Answer(status, head, json.dumps({"error": {**good["error"],
                                                                                       **more}}).encode()))
        self.assertEqual(found(), [])
        for wrong in ({"status": 409}, {"code": "type"}, {"code": "position"}, {"retryable": True}, {"message": "x"},
                      {"param": "x"}, {"type": "x"}, {"more": 1}, {"head": {}}, {"head": {**head, "retry-after": "1"}}):
            self.assertEqual(len(found(**wrong)) > 0, True, wrong)
        empty = suite.Case("x", "HEAD /ready", 200)
        self.assertTrue(suite.faults(empty, suite.Answer(200, {}, b"x")))
        self.assertTrue(suite.faults(suite.Case("x", "GET /", 200, gives=b"a"), suite.Answer(200, {}, b"b")))

    def test_differences(self):
        frame = bytes(frames.forward(1, (0, 4), 8, [frames.Sequence(1, 0, 1)], bytes(32), 1))

        def differs(kind, a, b, status=200, head=None):
            return suite.difference(suite.Case("x", "GET /", 200, kind=kind), suite.Answer(200, {}, a),
                                    suite.Answer(status, head or {}, b)) is not None
        self.assertFalse(differs("bytes", b"a", b"a"))
        self.assertFalse(differs("forward", b"COBF" + frame[4:], b"COBF" + frame[4:84] + b"abcd" + frame[88:]))
        self.assertFalse(differs("json", b'{"isa":"a","b":{"c":1}}', b'{"isa":"z","b":{"c":1}}'))
        self.assertFalse(differs("metrics", b"cobord_node_queue 1\nx 2", b"cobord_node_queue 9\nx 2"))
        self.assertFalse(differs("text", b'"created":1,"x"', b'"created":2,"x"'))
        for more in ({"b": b"b"}, {"status": 400}, {"head": {"content-type": "x"}}, {"head": {"allow": "x"}}):
            self.assertTrue(differs("bytes", b"a", **{"b": b"a", **more}), more)
        self.assertTrue(differs("forward", frame, frame[:90] + b"x" + frame[91:]))
        self.assertTrue(differs("json", b'{"b":{"c":1}}', b'{"b":{"c":2}}'))
        self.assertTrue(differs("json", b'{"b":1,"c":1}', b'{"c":1,"b":1}'))
        self.assertTrue(differs("metrics", b"x 2", b"x 3"))
        self.assertTrue(differs("metrics", b"# HELP x a\nx 2", b"# HELP x b\nx 2"))
        self.assertTrue(differs("text", b'"created":1,"x"', b'"created":2,"y"'))


class Nodes(Hosts):
    roles = NODES

    def test_stations(self):
        self.conform(conform.station("station-0") + conform.station("station-1"))

    def test_shards(self):
        rows_max = ready(self.hosts[0], "shard-0")["logit_rows"]
        self.conform(conform.shard("shard-0", rows_max) + conform.shard("shard-1", rows_max))


class Cut(Hosts):
    roles, native = NODES[:2], NativeCut

    def test_stations(self):
        rows_max = 64  # more than any plan gives
        self.conform(conform.cut_station(0, rows_max) + conform.cut_station(1, rows_max))


class Wardens(Hosts):
    roles = WARDENS

    def test_layer_wardens(self):
        self.conform(wardens.layer_warden("layer-warden-0"))

    def test_shard_wardens(self):
        self.conform(wardens.shard_warden("shard-warden-0"))


class Coordinator(Hosts):
    roles = [*NODES, api.NODE]

    def setUp(self):
        end = time.monotonic() + 60
        for host in self.hosts:
            while ready(host, api.NODE)["status"] != "ready" and time.monotonic() < end:
                time.sleep(0.05)

    def test_api(self):
        cases = api.coordinator()
        self.conform(cases)


class Crowd(Hosts):
    """What needs several at once: no order is promised, so answers are held against the pages only."""

    roles = NODES[:1]

    def frame(self, host, session, request):
        rows = 64 if host.name == "native" else 12
        return frames.forward(conform.MODEL.id, (0, 60), conform.MODEL.hidden, [frames.Sequence(session, 0, rows)],
                              conform.rows_of(rows), request)

    def begin(self, host, session, request):
        """Sends a frame and does not wait."""
        return self.send(host, self.frame(host, session, request))

    def send(self, host, body):
        s = socket.create_connection(host.address("station-0"), timeout=60)
        s.sendall(f"POST /forward HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {len(body)}\r\n"
                  "\r\n".encode() + body)
        return s

    @staticmethod
    def answer(s):
        got = http.client.HTTPResponse(s)
        got.begin()
        out = suite.Answer(got.status, {k.lower(): v for k, v in got.getheaders()}, got.read())
        s.close()
        return out

    def test_more_than_wait(self):
        """A bounded queue, and bounded bodies: some wait, the others are told to come again, nobody is forgotten."""
        for host in self.hosts:
            with self.subTest(host=host.name):
                # Before they are sent: making one takes longer than its answer.
                bodies = [self.frame(host, 1, 1000 + i) for i in range(2 * QUEUE + 16)]
                lines = [self.send(host, body) for body in bodies]
                answers = [self.answer(s) for s in lines]
                statuses = [a.status for a in answers]
                case = suite.Case("station-0", "POST /forward", (200, 409, 503), kind="forward")
                self.none([f for a in answers for f in suite.faults(case, a)], "answers are wrong")
                self.assertGreaterEqual(statuses.count(200), 1)
                self.assertGreaterEqual(statuses.count(503), 1)
                self.assertEqual({a.error()["code"] for a in answers if a.status == 503}, {"again"})

    def test_health_meanwhile(self):
        """A Worker computes in one thread: /health may wait for the call under way, and not for those behind it."""
        for host in self.hosts:
            with self.subTest(host=host.name):
                body = self.frame(host, 77, 4999)
                begun = time.monotonic()
                self.assertEqual(self.answer(self.send(host, body)).status, 200)
                call_seconds = time.monotonic() - begun if host.name == "workers" else 0
                lines, times = [self.begin(host, 2, 5000 + i) for i in range(24)], []
                for _ in range(10):
                    begun = time.monotonic()
                    line = http.client.HTTPConnection(*host.address("station-0"), timeout=10)
                    line.request("GET", "/health")
                    self.assertEqual(line.getresponse().read(), conform.HEALTHY)
                    line.close()
                    times.append(time.monotonic() - begun)
                for s in lines:
                    self.assertIn(self.answer(s).status, (200, 409, 503))
                self.assertLess(sorted(times)[len(times) // 2], call_seconds + 0.1, times)

    def test_who_leaves_is_forgotten(self):
        for host in self.hosts:
            with self.subTest(host=host.name):
                for s in [self.begin(host, 3, 9000 + i) for i in range(8)]:
                    s.close()
                end, status = time.monotonic() + 5, 503
                for request in range(9100, 9400):
                    s = self.begin(host, 4, request)
                    s.settimeout(30)
                    status = self.answer(s).status
                    if status != 503 or time.monotonic() > end:
                        break
                    time.sleep(0.1)  # it may not have seen yet that they left
                self.assertEqual(status, 200)

    def test_half_a_body(self):
        """A peer that freezes in the midst of its body is its own matter; one that leaves there, too."""
        for host in self.hosts:
            with self.subTest(host=host.name):
                head = (f"POST /forward HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
                        "Content-Length: 5000\r\n\r\n")
                stalled = [socket.create_connection(host.address("station-0"), timeout=60) for _ in range(3)]
                for s in stalled:
                    s.sendall(head.encode() + b"COBF" + bytes(1000))
                stalled.pop().close()
                begun = time.monotonic()
                self.assertEqual(self.answer(self.begin(host, 5, 9500)).status, 200)
                self.assertLess(time.monotonic() - begun, 15)
                for s in stalled:
                    s.close()
                self.assertEqual(self.answer(self.begin(host, 5, 9600)).status, 200)

    def test_half_a_body_of_a_stranger(self):
        """Bodies that are refused keep nobody waiting, however large they would become."""
        for host in self.hosts:
            with self.subTest(host=host.name):
                lines = []
                for length in ("Content-Length: 20000000", "Transfer-Encoding: chunked"):
                    s = socket.create_connection(host.address("station-0"), timeout=60)
                    s.sendall(f"POST /forward HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n3e8\r\n".encode() + bytes(1000))
                    lines.append(s)
                time.sleep(0.2)
                begun = time.monotonic()
                self.assertEqual(self.answer(self.begin(host, 6, 9700)).status, 200)
                self.assertLess(time.monotonic() - begun, 5)
                for s in lines:
                    s.close()


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
