#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Strangers at every door: keys that are wrong, at every endpoint of every role as the sources list them; frames that
were recorded and come again, late, elsewhere, out of order or in part; requests whose end can be read in two ways.
After each, the next honest request is answered."""
import json
import os
import pathlib
import re
import socket
import struct
import sys
import tempfile
import unittest

import _frames as frames
import _nodes as nodes
import _wardens as wardens
from _nodes import KEY
from serve_test import CHAT, Server, greedy

MODEL = wardens.MODEL
SOURCES = pathlib.Path(__file__).resolve().parent.parent.parent / "src"
WRONG = (None, "", KEY[:-1], KEY + "x", KEY.swapcase(), "x" * len(KEY), "Bearer " + KEY)
IDS = [504, 3575, 282, 4649, 314]


def routes(*files):
    """[(method, path)] of the tables in these sources."""
    found = []
    for file in files:
        found += re.findall(r'\{"(GET|POST|DELETE)", "(/[a-z/]*)"', (SOURCES / file).read_text())
    assert len(found) > 3
    return found


def of_the_api():
    text = (SOURCES / "serve/serve_routes.c").read_text()
    found = re.findall(r'\{"(/[a-z0-9/-]*)", (true|false), ([A-Z]+)', text)
    assert len(found) > 15
    return [("POST" if post == "true" else "GET", path) for path, post, route in found
            if route not in ("HEALTH", "READY", "ROOT")]


def raw(port, data, seconds=20.0, host="127.0.0.1"):
    """(what a server says to these bytes, whether it closed the connection)."""
    with socket.create_connection((host, port), timeout=seconds) as s:
        out = b""
        try:
            s.sendall(data)
            while part := s.recv(1 << 16):
                out += part
        except TimeoutError:
            return out, False
        except OSError:
            pass
        return out, True


def statuses(answer):
    return [int(number) for number in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


class Keys(wardens.Base):
    """A node answers 401 to everything but /health, before it looks at anything else."""

    def node(self, node, listed):
        log = node.errors
        for method, path in [*listed, ("GET", "/ready"), ("GET", "/metrics"), ("GET", "/"), ("PUT", "/nothing")]:
            for key in WRONG:
                with self.subTest(node=node.id, path=path, key=key):
                    self.assertEqual(node.error(method, path + ("1" if path.endswith("/") else ""), b"{}", key=key),
                                     (401, "key"))
        self.assertEqual(node.call("GET", "/health", key=None)[0], 200)
        for header in (KEY, "Basic " + KEY, "bearer", "Bearer", "Bearer  " + KEY + " x"):
            self.assertEqual(node.error("GET", "/ready", key=None, headers={"Authorization": header}), (401, "key"))
        self.assertEqual(node.call("GET", "/ready")[0], 200)
        for wrong in (KEY, KEY[:-1], KEY.swapcase()):
            self.assertNotIn(wrong, log())
        self.assertGreater(node.metrics()["cobord_node_unauthorized_total"], 8 * len(listed))

    def test_every_endpoint_of_every_node(self):
        cluster = self.cluster()
        layer, shard_warden = cluster.start("layer-warden-0"), cluster.start("shard-warden-0")
        station, shard = cluster.without_file("station-0"), cluster.without_file("shard-0")
        self.node(station, routes("host/node_station.c"))
        self.node(shard, routes("host/node_shard.c"))
        for warden in (layer, shard_warden):
            self.node(warden, routes("host/warden_routes.c"))

    def test_every_endpoint_of_the_api(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "keys")
            with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
                json.dump({"keys": [{"name": "me", "key": "sk-me-0123456789"}]}, f)
            server = Server("--context", "256", "--api-keys", path)
            for method, path in of_the_api():
                for key in (None, "", "sk-me-012345678", "sk-me-0123456789x", "SK-ME-0123456789"):
                    headers = {} if key is None else {"Authorization": "Bearer " + key}
                    status, _, text = server.call(method, path, {} if method == "POST" else None, headers)
                    self.assertEqual((status, json.loads(text)["error"]["code"]), (401, "invalid_api_key"), path)
            right = {"Authorization": "Bearer sk-me-0123456789"}
            self.assertEqual(server.call("GET", "/v1/models", None, right)[0], 200)
            self.assertNotIn("sk-me", server.errors())
            self.assertEqual(server.stop(), 0)


class Replay(unittest.TestCase):
    """Frames that somebody has recorded: the key in them is right."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = nodes.Cluster(MODEL, ["0-15", "15-end"], 2, sessions=4)
        start = cls.cluster.start
        cls.stations = [start("station-0"), start("station-1")]
        cls.shards = [start("shard-0"), start("shard-1")]
        cls.station = cls.stations[0]
        cls.right = nodes.Driver(cls.stations, cls.shards, 1).greedy(IDS, 6, 1)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def recording(self, session, first, tokens=3):
        """A conversation of `tokens` so far, and the bodies that station-0 got."""
        driver, bodies, post = nodes.Driver(self.stations, self.shards, first), [], nodes.Driver.post

        def record(node, path, body):
            if node is self.station:
                bodies.append(body)
            return post(driver, node, path, body)
        driver.post = record
        out, position, ids, mode = [], 0, IDS, frames.PREFILL
        for _ in range(tokens):
            x = driver.forward(driver.embed(ids), session, position, mode)
            out.append(driver.best(x[-4 * MODEL.hidden:], 1)[0][0][0])
            position, ids, mode = position + len(ids), [out[-1]], frames.DECODE
        return driver, bodies, out, position

    def goes_on(self, driver, out, position, session):
        """The honest conversation does not notice."""
        while len(out) < len(self.right):
            x = driver.forward(driver.embed(out[-1:]), session, position, frames.DECODE)
            out.append(driver.best(x[-4 * MODEL.hidden:], 1)[0][0][0])
            position += 1
        self.assertEqual(out, self.right)

    def test_again_and_out_of_order(self):
        driver, bodies, out, position = self.recording(11, 1000)
        for body in [*bodies, *reversed(bodies), *bodies[:1] * 5]:
            self.assertEqual(self.station.error("POST", "/forward", body), (409, "superseded"))
        self.goes_on(driver, out, position, 11)

    def test_to_another_session(self):
        driver, bodies, out, position = self.recording(12, 2000)
        for body in bodies:
            size = struct.unpack_from("<I", body, 8)[0]
            moved = bytearray(body[:size])
            struct.pack_into("<Q", moved, 96, 13)  # session 13 has nothing yet: only what begins at 0 fits
            status, answer = self.station.call("POST", "/forward", frames.seal(bytes(moved)) + body[size:])
            code = None if status == 200 else json.loads(answer)["error"]["code"]
            self.assertIn((status, code), ((200, None), (409, "position"), (410, "session")))
        self.goes_on(driver, out, position, 12)

    def test_after_a_take_over(self):
        """Another coordinator, whose ids are higher, has the session: nothing older is taken."""
        old, bodies, _, _ = self.recording(14, 3000)
        new, later, out, position = self.recording(14, 1 << 40)
        for body in bodies + later:
            self.assertEqual(self.station.error("POST", "/forward", body), (409, "superseded"))
        self.goes_on(new, out, position, 14)

    def test_after_the_session_is_gone(self):
        driver, bodies, _, _ = self.recording(15, 5000)
        self.assertIn(self.station.call("DELETE", "/sessions/15")[0], (200, 204))
        self.assertEqual(self.station.error("POST", "/forward", bodies[-1]), (410, "session"))

    def test_half_and_twice_in_one(self):
        driver, bodies, out, position = self.recording(16, 7000)
        body = bodies[-1]
        for part in (body[:len(body) // 2], body + body, body[1:], body[:128], body[128:], bodies[0] + body):
            self.assertEqual(self.station.call("POST", "/forward", part)[0], 400)
        self.goes_on(driver, out, position, 16)

    def test_shards_keep_nothing(self):
        shard, ids = self.shards[0], self.cluster.entry("shard-0")["ids"]
        for body, path in ((frames.embed(MODEL.id, ids, MODEL.hidden, [1, 2]), "/embed"),
                           (frames.logits(MODEL.id, ids, MODEL.hidden, 1, bytes(4 * MODEL.hidden), 3), "/logits")):
            answers = [shard.call("POST", path, body) for _ in range(3)]
            self.assertEqual(answers[0], answers[2])  # said again, it is the same question
            self.assertEqual(answers[0][0], 200)

    def test_to_the_wrong_door(self):
        _, bodies, _, _ = self.recording(17, 9000)
        self.assertEqual(self.stations[1].error("POST", "/forward", bodies[0]), (409, "unsupported"))
        embed = frames.embed(MODEL.id, self.cluster.entry("shard-0")["ids"], MODEL.hidden, [1])
        self.assertEqual(self.station.call("POST", "/forward", embed)[0], 400)
        self.assertEqual(self.shards[1].error("POST", "/embed", embed), (409, "unsupported"))


# How a request's end is said, in two ways or none: name, lines of the head.
BODY = b'{"content":"hi"}'
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
TWO_ENDS = {
    "length and chunks": LENGTH + CHUNKED, "chunks and length": CHUNKED + b"Content-Length: 3\r\n",
    "two lengths": LENGTH + LENGTH, "two other lengths": LENGTH + b"Content-Length: 3\r\n",
    "a list of lengths": b"Content-Length: 16, 16\r\n", "a sign": b"Content-Length: +16\r\n",
    "below nothing": b"Content-Length: -1\r\n", "hexadecimal": b"Content-Length: 0x10\r\n",
    "beyond 64 bits": b"Content-Length: 18446744073709551632\r\n", "words": b"Content-Length: 16 x\r\n",
    "no number": b"Content-Length:\r\n", "another encoding": b"Transfer-Encoding: gzip\r\n",
    "a list of encodings": b"Transfer-Encoding: gzip, chunked\r\n",
    "two encodings": CHUNKED + b"Transfer-Encoding: identity\r\n",
    "nearly chunked": b"Transfer-Encoding: xchunked\r\n" + LENGTH,
    "a space before the colon": b"Transfer-Encoding : chunked\r\n" + LENGTH,
    "a tab in the name": b"Transfer-\tEncoding: chunked\r\n" + LENGTH,
    "two hosts": b"Host: localhost\r\n" + LENGTH,
}
BAD_CHUNKS = (b"ffffffffffffffffff\r\n", b"-10\r\n", b"\r\n", b"zz\r\n", b"10\r\n" + BODY + b"XX0\r\n\r\n")


class Framing(unittest.TestCase):
    """What a proxy in front may read otherwise than the server: never a second request in the body of the first."""

    def is_refused(self, answer, closed):
        self.assertTrue(closed, answer)
        self.assertIn(set(statuses(answer)), ({400}, {413}), answer[:300])
        self.assertNotIn(b'"status":"ok"', answer)

    def says(self, port, head, kind, code):
        """Who asks reads the refusal as any other that it gets there; what the HTTP library refuses has no JSON."""
        for name in ("length and chunks", "two lengths", "another encoding", "two hosts"):
            with self.subTest(name):
                answer, _ = raw(port, head + TWO_ENDS[name] + b"\r\n" + CHUNKS)
                error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
                self.assertEqual((error["type"], error["code"], error["retryable"]), (kind, code, False))

    def one_answer(self, port, head):
        hidden = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for name, lines in TWO_ENDS.items():
            with self.subTest(name):
                answer, closed = raw(port, head + lines + b"\r\n" + CHUNKS + hidden)
                self.is_refused(answer, closed)
        for chunks in BAD_CHUNKS:
            with self.subTest(chunks):
                self.is_refused(*raw(port, head + CHUNKED + b"\r\n" + chunks + hidden))
        answer, closed = raw(port, head.replace(b"1.1", b"1.0", 1) + CHUNKED + b"\r\n" + CHUNKS)
        self.assertTrue(closed and statuses(answer) == [400], answer)

    def test_serve(self):
        server = Server("--context", "256", "--journal", "none")
        head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self.one_answer(server.port, head)
        self.says(server.port, head, "invalid_request_error", "invalid_http")
        # what is fine goes on being fine: pipelined, chunked, in any case
        answer, _ = raw(server.port, (head + LENGTH + b"\r\n" + BODY) * 20 + head +
                        b"transfer-encoding: CHUNKED\r\nConnection: close\r\n\r\n" + CHUNKS, 10)
        self.assertEqual(statuses(answer), [200] * 21)
        self.assertEqual(server.json(CHAT, greedy("Hi", 2))["usage"]["completion_tokens"], 2)
        self.assertEqual(server.stop(), 0)

    def test_nodes(self):
        cluster = nodes.Cluster(MODEL, ["0-15", "15-end"], 2)
        self.addCleanup(cluster.stop)
        station = cluster.start("station-0")
        head = b"POST /forward HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n" % KEY.encode()
        self.one_answer(station.port, head)
        self.says(station.port, head, "node_error", "format")
        self.assertEqual(station.call("GET", "/ready")[0], 200)

    def test_wardens(self):
        cluster = wardens.Cluster()
        self.addCleanup(cluster.stop)
        warden = cluster.start("layer-warden-0")
        head = b"POST /tensors HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n" % KEY.encode()
        self.one_answer(warden.port, head)
        self.says(warden.port, head, "node_error", "format")
        self.assertEqual(warden.call("GET", "/stats")[0], 200)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
