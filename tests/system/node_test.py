#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stations and shards as processes, driven with frames that are built here: numbers, refusals, strangers, hang-ups,
kills, memory. One small cluster for most of it."""
import http.client
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest

import _frames as frames
import _nodes as nodes
from _nodes import KEY
from _ports import free_port
from _signals import deliver

MODEL = nodes.Model("smollm2-135m")
IDS = [504, 3575, 282, 4649, 314]
MIB = 1 << 20


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def rows_of(count, seed=1):
    """Plausible activations."""
    dice = random.Random(seed)
    return struct.pack(f"<{count * MODEL.hidden}f", *(dice.uniform(-1, 1) for _ in range(count * MODEL.hidden)))


def solo_greedy(ids, count):
    out = list(ids)
    for _ in range(count):
        at = nodes.support.logits(MODEL.name, out, "--top", "1")["positions"][-1]
        out.append(at["top"][0][0])
    return out[len(ids):]


class Shared(unittest.TestCase):
    """Two stations and two shards."""

    session = 100

    @classmethod
    def setUpClass(cls):
        cls.cluster = nodes.Cluster(MODEL, ["0-15", "15-end"], 2, sessions=4)
        start = cls.cluster.start
        # A proxy that is not there must not be asked: nodes do without.
        proxy = {"http_proxy": "http://127.0.0.1:9", "all_proxy": "http://127.0.0.1:9"}
        cls.stations = [start("station-0", env=proxy), start("station-1")]
        cls.shards = [start("shard-0", env=proxy), start("shard-1")]
        cls.station, cls.shard = cls.stations[0], cls.shards[0]

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def setUp(self):
        Shared.session += 1

    def tearDown(self):
        for node in self.cluster.nodes:
            self.assertTrue(node.alive(), node.errors()[-500:])

    def driver(self):
        return nodes.Driver(self.stations, self.shards)

    def body(self, rows=2, position=0, request=1, session=None, **more):
        return frames.forward(MODEL.id, (0, 60), MODEL.hidden,
                              [frames.Sequence(session or self.session, position, rows)], rows_of(rows), request,
                              **more)


class Numbers(Shared):
    def test_every_position_has_the_bits_of_one_process(self):
        driver = self.driver()
        x = driver.forward(driver.embed(IDS), self.session, 0)
        want = nodes.support.logits(MODEL.name, IDS, "--top", "5")["positions"]
        for got, position in zip(driver.best(x[:8 * MODEL.hidden], 5) + driver.best(x[8 * MODEL.hidden:], 5), want):
            self.assertEqual([list(c) for c in got], [[i, f32(v)] for i, v in position["top"]])

    def test_prompt_in_pieces_then_decode(self):
        driver = self.driver()
        text = driver.greedy(IDS, 6, self.session)
        self.assertEqual(text, solo_greedy(IDS, 6))
        x = driver.forward(driver.embed(IDS[:2]), self.session + 50, 0)
        x = driver.forward(driver.embed(IDS[2:]), self.session + 50, 2)
        self.assertEqual(driver.best(x[-4 * MODEL.hidden:], 1)[0][0][0], text[0])

    def test_what_a_node_says_of_itself(self):
        ready = self.station.ready()
        self.assertEqual((ready["ready"], ready["state"], ready["id"], ready["role"]),
                         (True, "ready", "station-0", "station"))
        self.assertEqual((ready["knot_id"], ready["range"], ready["context"], ready["cache_type"]),
                         (MODEL.knot_id, "0-15", 1024, "f16"))
        self.assertLessEqual(ready["memory"]["need_bytes"], ready["memory"]["budget_bytes"])
        self.assertEqual(self.shard.ready()["ids"], [0, MODEL.vocabulary // 2])
        self.assertEqual(self.station.line,
                         f"station-0: layers 0-15 on http://127.0.0.1:{self.station.port}")
        before = self.station.metrics()
        self.driver().greedy(IDS, 2, self.session)
        after = self.station.metrics()
        self.assertEqual(after["cobord_node_calls_total"] - before["cobord_node_calls_total"], 2)
        self.assertEqual(after["cobord_station_rows_total"] - before["cobord_station_rows_total"], 6)
        self.assertGreater(after["cobord_node_weight_bytes_total"], before["cobord_node_weight_bytes_total"])
        self.assertGreaterEqual(after["cobord_station_sessions"], 1)


class Sessions(Shared):
    def test_positions(self):
        post = self.station.error
        self.assertEqual(post("POST", "/forward", self.body(position=3)), (410, "session"))
        self.assertEqual(self.station.call("POST", "/forward", self.body(rows=4, request=1))[0], 200)
        self.assertEqual(post("POST", "/forward", self.body(position=5, request=2)), (409, "position"))
        self.assertEqual(post("POST", "/forward", self.body(rows=4, request=1)), (409, "superseded"))
        self.assertEqual(self.station.call("POST", "/forward", self.body(position=2, request=3))[0], 200)
        self.assertEqual(post("POST", "/forward", self.body(position=5, request=4)), (409, "position"))

    def test_drop(self):
        self.assertEqual(self.station.call("POST", "/forward", self.body())[0], 200)
        path = f"/sessions/{self.session}"
        self.assertEqual(self.station.call("DELETE", path)[0], 200)
        self.assertEqual(self.station.error("DELETE", path), (404, "not_found"))
        self.assertEqual(self.station.error("POST", "/forward", self.body(position=2, request=9)), (410, "session"))
        for bad in ("x", "", "0", "-1", "1x", "18446744073709551616", "1/2", "%00", "9" * 90):
            self.assertIn(self.station.error("DELETE", "/sessions/" + bad)[0], (400, 404), bad)

    def test_many_cycles_leave_no_memory(self):
        def cycles(count, first):
            for i in range(count):
                session = (1 << 33) + first + i
                c = self.station.connection()
                self.assertEqual(self.station.call("POST", "/forward", self.body(1, session=session), connection=c)[0],
                                 200)
                if i % 2:
                    self.assertEqual(self.station.call("DELETE", f"/sessions/{session}", connection=c)[0], 200)
                c.close()
        cycles(100, 0)
        before = self.station.memory()
        cycles(1000, 100)
        self.assertLess(self.station.memory() - before, MIB // 2)
        self.assertLessEqual(self.station.metrics()["cobord_station_sessions"], 4)


class Strangers(Shared):
    def test_keys(self):
        for node in (self.station, self.shard):
            for method, path in (("POST", "/forward"), ("POST", "/embed"), ("POST", "/logits"), ("GET", "/ready"),
                                 ("GET", "/metrics"), ("DELETE", "/sessions/1"), ("POST", "/configure"),
                                 ("POST", "/drain"), ("GET", "/nothing")):
                for key in (None, "", KEY[:-1], KEY + "x", KEY.swapcase(), "x" * len(KEY)):
                    self.assertEqual(node.error(method, path, b"{}", key=key), (401, "key"), (path, key))
            self.assertEqual(node.call("GET", "/health", key=None)[0], 200)
            self.assertEqual(node.error("GET", "/ready", key=None, headers={"Authorization": KEY}), (401, "key"))
        self.assertNotIn(KEY, self.station.errors())

    def test_paths_and_methods(self):
        error = self.station.error
        for path in ("/", "/forward/", "/Forward", "/embed", "/logits", "/sessions", "/../etc/passwd", "/%2e%2e/x",
                     "/" + "a" * 1000, "/%c3%bf%00x"):
            self.assertEqual(error("POST", path, b"x"), (404, "not_found"), path)
        for method, path in (("GET", "/forward"), ("PUT", "/forward"), ("POST", "/ready"), ("POST", "/health"),
                             ("GET", "/sessions/1"), ("GET", "/drain"), ("BREW", "/forward")):
            self.assertEqual(error(method, path)[0], 405, (method, path))
        self.assertEqual(self.shard.error("POST", "/forward", b"x"), (404, "not_found"))
        c = self.station.connection()
        c.request("GET", "/forward", headers={"Authorization": "Bearer " + KEY})
        answer = c.getresponse()
        self.assertEqual((answer.status, answer.getheader("Allow")), (405, "POST"))
        c.close()

    def test_every_field_out_of_range(self):
        good = self.body(rows=2, request=5)
        size = struct.unpack_from("<I", good, 8)[0]
        extremes = {1: (0, 1, 2, 3, 4, 255), 2: (0, 1, 2, 8, 0x7fff, 0xffff),
                    4: (0, 1, 3, 0x7fffffff, 0x80000000, 0xffffffff, 0x3f800000),
                    8: (0, 1, 1 << 31, 1 << 32, 1 << 63, (1 << 64) - 1, (1 << 40) - 3)}
        fields = [(4, 2), (6, 2), (8, 4), (16, 8), (24, 2), (26, 2), (28, 4), (40, 8), (48, 8), (56, 4), (60, 4),
                  (64, 1), (65, 1), (66, 2), (68, 4), (72, 4), (76, 4), (80, 4), (84, 4), (88, 8), (96, 8), (104, 8),
                  (112, 4), (116, 4), (120, 4), (124, 4)]
        line = self.station.connection()
        seen = set()
        for at, width in fields:
            for value in extremes[width]:
                frame = bytearray(good)
                frame[at:at + width] = value.to_bytes(width, "little")
                frame = frames.seal(frame[:size]) + bytes(frame[size:])
                if frame == good:
                    continue
                status, data = self.station.call("POST", "/forward", frame, connection=line)
                seen.add(status)
                # Some values are as good as the right ones: another session, a wanted set that is empty.
                self.assertIn(status, (200, 400, 409, 410, 413), (at, value, data[:200]))
                if status == 200:
                    self.assertIn(at, (64, 66, 96, 116), (at, value))
        self.assertTrue({400, 409, 413} & seen)
        self.assertEqual(self.station.call("POST", "/forward", self.body(rows=2, request=1 << 50))[0], 200)

    def test_flipped_and_cut(self):
        good = self.body(rows=2, request=6)
        line = self.station.connection()
        for at in [*range(0, 128, 3), *range(128, len(good), 401)]:
            frame = bytearray(good)
            frame[at] ^= 1 << at % 8
            status, _ = self.station.call("POST", "/forward", bytes(frame), connection=line)
            self.assertIn(status, (400, 409), at)
        for cut in (0, 1, 15, 16, 17, 127, 128, 129, len(good) - 1, len(good) + 1):
            frame = (good + b"\0")[:cut]
            self.assertEqual(self.station.call("POST", "/forward", frame, connection=line)[0], 400, cut)
        for body in (b"GET / HTTP/1.1\r\n\r\n", b"{}", bytes(4096), b"\xff" * 4096, os.urandom(4096)):
            self.assertEqual(self.station.call("POST", "/forward", body, connection=line)[0], 400)
        for value in (float("nan"), float("inf"), -float("inf")):
            x = struct.pack("<f", value) + rows_of(1)[4:]
            bad = frames.forward(MODEL.id, (0, 60), MODEL.hidden, [frames.Sequence(self.session, 0, 1)], x, 7)
            self.assertNotEqual(self.station.call("POST", "/forward", bad, connection=line)[0], 200)

    def test_zero_rows_are_legal_and_cheap(self):
        empty = frames.forward(MODEL.id, (0, 60), MODEL.hidden, [], b"", 8)
        self.assertEqual(self.station.call("POST", "/forward", empty)[0], 200)
        ids = self.cluster.entry("shard-0")["ids"]
        self.assertEqual(self.shard.call("POST", "/embed", frames.embed(MODEL.id, ids, MODEL.hidden, []))[0], 200)
        self.assertEqual(self.shard.call("POST", "/logits", frames.logits(MODEL.id, ids, MODEL.hidden, 0, b"", 1))[0],
                         200)

    def test_handshake_names_both_values(self):
        frame = frames.forward(MODEL.id ^ 1, (0, 60), MODEL.hidden, [frames.Sequence(9, 0, 1)], rows_of(1), 9)
        status, data = self.station.call("POST", "/forward", frame)
        message = json.loads(data)["error"]["message"]
        self.assertEqual(status, 409)
        self.assertIn(MODEL.knot_id, message)
        self.assertIn(f"{MODEL.id ^ 1:016x}", message)
        frame = frames.forward(MODEL.id, (0, 56), MODEL.hidden, [frames.Sequence(9, 0, 1)], rows_of(1), 9)
        self.assertEqual(self.station.error("POST", "/forward", frame), (409, "unsupported"))

    def test_shards_check_ids_and_ranges(self):
        ids = self.cluster.entry("shard-0")["ids"]
        for bad in (MODEL.vocabulary, 1 << 31, (1 << 32) - 1):
            frame = frames.embed(MODEL.id, ids, MODEL.hidden, [1, bad])
            self.assertEqual(self.shard.error("POST", "/embed", frame), (400, "range"))
        frame = frames.embed(MODEL.id, [ids[0], ids[1] - 1], MODEL.hidden, [1])
        self.assertEqual(self.shard.error("POST", "/embed", frame), (409, "unsupported"))
        frame = frames.logits(MODEL.id, ids, MODEL.hidden, 64, rows_of(64), 1)
        self.assertIn(self.shard.error("POST", "/logits", frame)[0], (400, 413))
        good = frames.logits(MODEL.id, ids, MODEL.hidden, 1, rows_of(1), 3)
        for at in range(0, len(good), 37):
            frame = bytearray(good)
            frame[at] ^= 0x41
            self.assertIn(self.shard.call("POST", "/logits", bytes(frame))[0], (400, 409))
        self.assertEqual(self.shard.call("POST", "/logits", good)[0], 200)

    def test_bodies_over_the_limit(self):
        for node in (self.station, self.shard):
            path = "/forward" if node is self.station else "/embed"
            self.assertEqual(node.error("POST", path, bytes(12 * MIB)), (413, "too_large"))
            c = node.connection()
            c.request("POST", path, iter([bytes(MIB)] * 12), {"Authorization": "Bearer " + KEY}, encode_chunked=True)
            answer = c.getresponse()
            self.assertEqual(answer.status, 413)
            self.assertEqual(json.loads(answer.read())["error"]["code"], "too_large")
            c.close()
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
            for length in ("18446744073709551615", "99999999999999999999999"):
                answer = self.raw(node, f"{head}Content-Length: {length}\r\n\r\n".encode())
                self.assertTrue(answer == b"" or answer.split()[1] in (b"400", b"413"), answer)

    def raw(self, node, data, seconds=3):
        """What a node says to these bytes."""
        with socket.create_connection((node.host, node.port), timeout=seconds) as s:
            s.sendall(data)
            out = b""
            try:
                while part := s.recv(4096):
                    out += part
            except OSError:
                pass
            return out

    def test_other_protocols(self):
        for data in (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + bytes(160),
                     b"*1\r\n$4\r\nPING\r\n", b"SSH-2.0-x\r\n", bytes(1000), os.urandom(3000), b"\r\n" * 500,
                     b"GET /health HTTP/9.9\r\n\r\n", b"GET  HTTP/1.1\r\n\r\n", b"POST /forward HTTP/1.1\r\n" +
                     b"X: " + b"y" * 100000 + b"\r\n\r\n"):
            answer = self.raw(self.station, data, 0.3)
            self.assertTrue(not answer or answer.startswith(b"HTTP/1."), answer[:80])
            self.assertNotIn(b" 200 ", answer[:40])
        self.assertEqual(self.station.call("GET", "/health")[0], 200)

    def test_a_busy_line_is_never_cut(self):
        # The watcher looks at all lines once a second, whatever they are doing just then.
        def call(seconds, failures):
            line = self.station.connection()
            end = time.monotonic() + seconds
            try:
                while time.monotonic() < end:
                    if self.station.call("GET", "/health", connection=line)[0] != 200:
                        failures.append("status")
            except (OSError, http.client.HTTPException) as error:
                failures.append(error)
            line.close()
        failures = []
        threads = [threading.Thread(target=call, args=(4, failures)) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failures, [])

    def test_two_hundred_connections(self):
        before = self.station.memory()
        lines = [socket.create_connection((self.station.host, self.station.port)) for _ in range(200)]
        for i, s in enumerate(lines):  # some say nothing, some half a request, some a whole one
            if i % 3 == 1:
                s.sendall(b"POST /forward HTTP/1.1\r\nHost: x\r\nContent-Le")
            if i % 3 == 2:
                s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        begun = time.monotonic()
        self.assertEqual(self.station.call("GET", "/health", key=None)[0], 200)
        self.assertLess(time.monotonic() - begun, 0.1)
        self.assertEqual(self.station.call("POST", "/forward", self.body())[0], 200)
        self.assertGreaterEqual(self.station.metrics()["cobord_node_connections"], 200)
        self.assertLess(self.station.memory() - before, 4.5 * MIB)
        for s in lines:
            s.close()
        self.assertTrue(nodes.wait_for(lambda: self.station.metrics()["cobord_node_connections"] < 10))


class Slow(unittest.TestCase):
    """A station that takes a while: all layers, one thread, no instruction set."""

    ROWS = 256

    def setUp(self):
        self.cluster = nodes.Cluster(MODEL, ["0-end"], 1, sessions=2)
        self.station = self.cluster.start("station-0", "--threads", 1, "--isa", "scalar")
        self.answers = []
        self.request = 0

    def tearDown(self):
        self.cluster.stop()

    def body(self, session, rows=ROWS):
        self.request += 1
        return frames.forward(MODEL.id, (0, MODEL.layers * 4), MODEL.hidden, [frames.Sequence(session, 0, rows)],
                              rows_of(rows), self.request)

    def begin(self, body):
        """Sends a frame and does not wait."""
        s = socket.create_connection((self.station.host, self.station.port))
        s.sendall(f"POST /forward HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
                  f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return s

    def running(self, count=1):
        return nodes.wait_for(lambda: self.station.metrics()["cobord_node_running"] == count)

    def test_health_while_computing(self):
        s = self.begin(self.body(1))
        self.assertTrue(self.running())
        times = []
        for _ in range(10):
            begun = time.monotonic()
            self.assertEqual(self.station.call("GET", "/health", key=None)[0], 200)
            times.append(time.monotonic() - begun)
            time.sleep(0.02)
        self.assertLess(max(times), 0.1, times)
        self.assertEqual(self.station.metrics()["cobord_node_running"], 1, "the frame was too short for this test")
        self.assertIn(b" 200 ", s.recv(64))
        s.close()

    def test_client_leaves(self):
        computing = self.begin(self.body(1))
        self.assertTrue(self.running())
        waiting = self.begin(self.body(2, 1))
        self.assertTrue(nodes.wait_for(lambda: self.station.metrics()["cobord_node_queue"] == 1))
        waiting.close()
        self.assertTrue(nodes.wait_for(lambda: self.station.metrics()["cobord_node_abandoned_total"] == 1, 2))
        self.assertEqual(self.station.metrics()["cobord_node_queue"], 0)
        begun = time.monotonic()
        computing.close()
        self.assertTrue(self.running(0))
        self.assertLess(time.monotonic() - begun, 1.0)
        self.assertEqual(self.station.metrics()["cobord_node_call_failures_total"], 1)
        self.assertEqual(self.station.call("POST", "/forward", self.body(1, 1))[0], 200)

    def test_full_queue(self):
        first = self.begin(self.body(1))
        self.assertTrue(self.running())
        lines = [self.begin(self.body(2, 1)) for _ in range(64)]
        self.assertTrue(nodes.wait_for(lambda: self.station.metrics()["cobord_node_queue"] == 64, 3))
        c = self.station.connection()
        c.request("POST", "/forward", self.body(2, 1), {"Authorization": "Bearer " + KEY})
        answer = c.getresponse()
        value = json.loads(answer.read())["error"]
        self.assertEqual((answer.status, value["code"], value["retryable"]), (503, "again", True))
        self.assertGreaterEqual(int(answer.getheader("Retry-After")), 1)
        c.close()
        for s in [first, *lines]:
            s.close()
        self.assertTrue(nodes.wait_for(lambda: self.station.metrics()["cobord_node_queue"] == 0, 5))

    def test_sigterm_finishes_what_was_begun(self):
        s = self.begin(self.body(1))
        self.assertTrue(self.running())
        deliver(self.station.process.pid, signal.SIGTERM)
        self.assertTrue(nodes.wait_for(lambda: self.station.call("GET", "/ready")[0] == 503))
        self.assertEqual(self.station.error("POST", "/forward", self.body(2, 1)), (503, "again"))
        self.assertEqual(self.station.call("GET", "/ready")[0], 503)
        self.assertEqual(self.station.call("GET", "/health")[0], 200)
        data = b""
        while part := s.recv(65536):
            data += part
        frames.payload(data[data.index(b"\r\n\r\n") + 4:], frames.FORWARD_ANSWER)
        self.assertEqual(self.station.process.wait(10), 0)

    def test_second_signal_ends_at_once(self):
        s = self.begin(self.body(1))
        self.assertTrue(self.running())
        for _ in range(2):
            deliver(self.station.process.pid, signal.SIGTERM)
        self.assertEqual(self.station.process.wait(2), 128 + signal.SIGTERM)
        s.close()

    def test_drain(self):
        s = self.begin(self.body(1))
        self.assertTrue(self.running())
        result = []
        drain = threading.Thread(target=lambda: result.append(self.station.call("POST", "/drain")))
        drain.start()
        self.assertIn(b" 200 ", s.recv(64))
        drain.join()
        self.assertEqual(result[0][0], 200)
        self.assertEqual(self.station.error("POST", "/forward", self.body(2, 1)), (503, "again"))
        status, data = self.station.call("GET", "/ready")
        self.assertEqual((status, json.loads(data)["state"]), (503, "draining"))
        self.assertEqual(self.station.call("DELETE", "/sessions/1")[0], 200)
        self.assertEqual(self.station.kill(signal.SIGTERM), 0)
        s.close()


class Lives(unittest.TestCase):
    """Deaths, other ranges, memory: a cluster for each."""

    def setUp(self):
        self.clusters = []

    def tearDown(self):
        for cluster in self.clusters:
            cluster.stop()

    def make(self, stations=("0-15", "15-end"), shards=2, **more):
        self.clusters.append(nodes.Cluster(MODEL, list(stations), shards, **more))
        return self.clusters[-1]

    def start_all(self, cluster, *arguments):
        """(stations, shards), started together."""
        file = cluster.file
        started = [cluster.start(n["id"], *arguments) for n in [*file["stations"], *file["shards"]]]
        return started[:len(file["stations"])], started[len(file["stations"]):]

    def test_kill_and_restart(self):
        cluster = self.make()
        stations, shards = self.start_all(cluster)
        driver = nodes.Driver(stations, shards)
        want = driver.greedy(IDS, 4, 1)
        stations[1].kill(signal.SIGKILL)
        stations[1] = cluster.start("station-1")
        driver = nodes.Driver(stations, shards, 1 << 20)
        x = driver.embed([want[-1]])
        x = frames.payload(driver.post(stations[0], "/forward", driver.frame(stations[0], x, 1, len(IDS) + 3)),
                           frames.FORWARD_ANSWER)
        status, code = stations[1].error("POST", "/forward", driver.frame(stations[1], x, 1, len(IDS) + 3))
        self.assertEqual((status, code), (410, "session"))
        self.assertEqual(driver.greedy(IDS, 4, 1), want)

    def test_streaming_within_the_budget(self):
        # As much as is needed to start: nothing is resident then, and the same bits come out.
        probe = self.make(memory=20 * MIB, chunk=64, context=512)
        done = probe.run("station-0")
        self.assertEqual(done.returncode, 1)
        needs = float(done.stderr.decode().split("needs ")[1].split(" MiB")[0])
        budget = int((needs + 1) * MIB)
        cluster = self.make(memory=budget, chunk=64, context=512)
        stations, shards = self.start_all(cluster)
        self.assertFalse(stations[0].ready()["weights"]["resident"])
        driver = nodes.Driver(stations, shards)
        ids = [random.Random(5).randrange(2000, 9000) for _ in range(64)]
        for part in range(0, 6):
            driver.forward(driver.embed(ids), 1, 64 * part)
        self.assertEqual(driver.greedy(IDS, 4, 2), solo_greedy(IDS, 4))
        for node in [*stations, *shards]:
            self.assertLessEqual(node.memory("VmHWM"), budget, node.id)
        self.assertGreater(stations[0].metrics()["cobord_node_dropped_bytes_total"], 0)

    def test_resident_within_the_budget(self):
        cluster = self.make(memory=128 * MIB)
        stations, shards = self.start_all(cluster)
        self.assertTrue(stations[0].ready()["weights"]["resident"])
        driver = nodes.Driver(stations, shards)
        ids = [random.Random(6).randrange(2000, 9000) for _ in range(512)]
        for position in (0, 512):
            driver.forward(driver.embed(ids), 1, position)
        for node in [*stations, *shards]:
            self.assertLessEqual(node.memory("VmHWM"), node.ready()["memory"]["need_bytes"], node.id)

    def test_refuses_what_does_not_fit(self):
        done = self.make(memory=16 * MIB, chunk=64).run("station-1")
        error = done.stderr.decode()
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertRegex(error, r"station-1 needs \d+\.\d MiB \(process .*\), may take 16\.0 MiB")
        done = self.make(chunk=64).run("shard-0", preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_AS, (150 * MIB, 150 * MIB)))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertTrue(done.stderr.startswith(b"cobord: "), done.stderr)

    def test_configure(self):
        cluster = self.make()
        station, shard = cluster.start("station-0"), cluster.start("shard-0")
        driver = nodes.Driver([station], [shard])
        x = rows_of(3)
        want = driver.forward(x, 1, 0)
        for bad in (b"", b"{}", b"[]", b'{"range":7}', b'{"range":"7"}', b'{"range":"7-7"}', b'{"range":"9-7"}',
                    b'{"range":"0-31"}', b'{"range":"0-7","x":1}', b'{"ids":[0,7]}', b'{"range":"0.attn-\xff"}',
                    b'{"range":"0-7"' * 400):
            self.assertEqual(station.error("POST", "/configure", bad)[0], 400, bad)
        for bad in (b'{"ids":[7,7]}', b'{"ids":[0,49153]}', b'{"ids":[-1,5]}', b'{"ids":[0]}', b'{"range":"0-7"}'):
            self.assertEqual(shard.error("POST", "/configure", bad)[0], 400, bad)
        self.assertEqual(driver.forward(x, 2, 0), want)
        for text in ("0-7", "7-15", "0-15"):
            self.assertEqual(station.call("POST", "/configure", json.dumps({"range": text}))[0], 200)
            self.assertEqual(station.ready()["range"], text)
            cluster.entry("station-0")["range"] = text
            x = want = driver.forward(rows_of(3) if text != "7-15" else x, 3, 0)
            if text == "7-15":
                halves = want
        self.assertEqual(halves, want)
        status, code = station.error("POST", "/forward", driver.frame(station, rows_of(1), 2, 3))
        self.assertEqual((status, code), (410, "session"))
        self.assertEqual(shard.call("POST", "/configure", b'{"ids":[100,49152]}')[0], 200)
        self.assertEqual(shard.ready()["ids"], [100, 49152])

    def test_cuts_inside_a_layer(self):
        whole = self.make()
        stations, shards = self.start_all(whole)
        want = nodes.Driver(stations, shards).greedy(IDS, 3, 1)
        cut = self.make(["0-3.ffn_down", "3.ffn_down-end"])
        first, second = cut.start("station-0"), cut.start("station-1")
        driver = nodes.Driver(stations, shards)
        x = driver.embed(IDS)
        bounds, n = cut.bounds("station-0"), len(IDS)
        frame = frames.forward(MODEL.id, bounds, MODEL.hidden, [frames.Sequence(1, 0, n)], x, 1)
        both = frames.payload(first.call("POST", "/forward", frame)[1], frames.FORWARD_ANSWER)
        middle = 4 * n * MODEL.hidden
        frame = frames.forward(MODEL.id, cut.bounds("station-1"), MODEL.hidden, [frames.Sequence(1, 0, n)],
                               both[:middle], 1, ffn=MODEL.ffn, g=both[middle:])
        x = frames.payload(second.call("POST", "/forward", frame)[1], frames.FORWARD_ANSWER)
        self.assertEqual(driver.best(x[-4 * MODEL.hidden:], 1)[0][0][0], want[0])

    def test_wrong_starts(self):
        cluster = self.make()

        def refused(code, *words, node="station-0", arguments=()):
            done = cluster.run(node, *arguments)
            line = done.stderr.decode()
            self.assertEqual(done.returncode, code, line)
            self.assertEqual(line.count("\n"), 1, line)
            for word in words:
                self.assertIn(word, line)

        refused(1, "station-7", "station-0", node="station-7")
        (cluster.path.parent / "key").write_text("\n")
        refused(1, "key", "empty")
        (cluster.path.parent / "key").unlink()
        refused(1, "key", "No such file")
        (cluster.path.parent / "key").write_text(KEY)
        (cluster.path.parent / "key").chmod(0o644)
        node = cluster.start("station-0")
        self.assertIn("chmod 600", node.errors())
        refused(1, "in use")
        node.kill()
        (cluster.path.parent / "key").chmod(0o600)
        cluster.file["model"]["knot_id"] = "0123456789abcdef"
        cluster.write()
        refused(1, "0123456789abcdef", MODEL.knot_id)
        cluster.file["model"].update(knot_id=MODEL.knot_id, layers=31)
        cluster.file["stations"][1]["range"] = "15-31"
        cluster.write()
        refused(1, "31", "30")
        cluster.file["model"].update(layers=30, knot_key="nothing-here.knot")
        cluster.file["stations"][1]["range"] = "15-end"
        cluster.write()
        refused(1, "nothing-here.knot")
        cluster.path.write_text("{")
        refused(1, "cluster.json")
        cluster.path.unlink()
        refused(1, "cluster.json")
        done = subprocess.run([nodes.COBORD, "node", "--id", "station-0"], capture_output=True, timeout=20)
        self.assertEqual(done.returncode, 2)

    def test_without_key(self):
        cluster = self.make(key=False)
        node = cluster.start("station-0")
        self.assertEqual(node.call("GET", "/ready", key=None)[0], 200)
        self.assertEqual(node.errors(), "")
        cluster.entry("station-1")["address"] = f"0.0.0.0:{free_port()}"
        cluster.write()
        node = cluster.start("station-1")
        self.assertIn("anyone who reaches", node.errors())

    @unittest.skipUnless(shutil.which("openssl"), "no openssl program to make a certificate with")
    def test_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / "key.pem",
                            "-out", folder / "certificate.pem", "-days", "2", "-subj", "/CN=localhost", "-addext",
                            "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
            cluster = self.make(tls=folder)
            stations, shards = self.start_all(cluster)
            self.assertIn("https://", stations[0].line)
            self.assertEqual(nodes.Driver(stations, shards).greedy(IDS, 3, 1), solo_greedy(IDS, 3))
            plain = http.client.HTTPConnection(stations[0].host, stations[0].port, timeout=5)
            with self.assertRaises((OSError, http.client.HTTPException)):
                plain.request("GET", "/health")
                plain.getresponse()
            stations[0].kill()
            (folder / "key.pem").write_text("nothing")
            done = cluster.run("station-0")
            self.assertEqual(done.returncode, 2)
            self.assertIn(b"key.pem", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
