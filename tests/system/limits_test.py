#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Limits as docs/limits.md has them, of a server and of a node: at each the request is answered, one over it is
refused, with the status and the words of that page."""
import json
import re
import socket
import sys
import unittest

import _frames as frames
import _nodes as nodes
from _nodes import KEY
from peers_test import raw, statuses
from serve_test import CHAT, COMPLETIONS, Server, greedy, user

MODEL = nodes.Model("smollm2-135m")
MIB = 1 << 20
FREE = {"temperature": 0, "max_tokens": 1}


def tools(count, **more):
    return [{"type": "function", "function": {"name": f"f{i}", "parameters": {"type": "object"}, **more}}
            for i in range(count)]


def deep(levels):
    return json.loads('{"a":' * levels + "1" + "}" * levels)


def schema(value):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}}


def nested(levels):
    value = {"type": "null"}
    for _ in range(levels):
        value = {"type": "array", "items": value}
    return value


def chat(**more):
    return CHAT, {"messages": user("Hi"), **FREE, **more}


def completion(**more):
    return COMPLETIONS, {"prompt": "Hi", **FREE, **more}


# name: (what asks for that much, the most, status of one more, a word of its message)
API = {
    "stop strings": (lambda n: chat(stop=[f"<{i}>" for i in range(n)]), 16, 400, "16"),
    "bytes of a stop string": (lambda n: chat(stop="x" * n), 1024, 400, "1024"),
    "biases": (lambda n: chat(logit_bias={str(i + 100): -1 for i in range(n)}), 1024, 400, "1024"),
    "a bias": (lambda n: chat(logit_bias={"100": n}), 100, 400, "100"),
    "n": (lambda n: completion(n=n), 8, 400, "8"),
    "prompts": (lambda n: completion(prompt=["Hi"] * n), 8, 400, "8"),
    "n times prompts": (lambda n: completion(prompt=["Hi", "Ho"], n=n // 2 if n == 8 else 5), 8, 400, "8"),
    "alternatives": (lambda n: chat(logprobs=True, top_logprobs=n), 20, 400, "20"),
    "inputs": (lambda n: ("/v1/embeddings", {"input": ["x"] * n}), 64, 400, "64"),
    "tools": (lambda n: chat(tools=tools(n), tool_choice="none"), 128, 400, "128"),
    "bytes of a tool's name": (lambda n: chat(tools=[{"type": "function", "function": {"name": "f" * n}}],
                                              tool_choice="none"), 64, 400, "64"),
    "count of tokens": (lambda n: chat(max_tokens=n, stop=["\n", " ", "e", "a", "."]), (1 << 31) - 1, 400, ""),
    "temperature": (lambda n: chat(temperature=n), 2, 400, "2"),
    "JSON levels": (lambda n: chat(user=deep(n - 1)), 64, 400, "64"),
}


class Api(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--context", "1024", "--slots", "2", "--journal", "none", "--memory", "1G")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def tearDown(self):
        self.assertEqual(self.server.json(CHAT, greedy("Hi", 1))["usage"]["completion_tokens"], 1)

    def refused(self, path, body, status, word, headers=None):
        got, _, text = self.server.call("POST", path, body, headers)
        self.assertEqual(got, status, text[:300])
        error = json.loads(text)["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code", "retryable"} | (
            {"n_prompt_tokens", "n_ctx"} & set(error)))
        self.assertIn(word, error["message"])

    def test_fields(self):
        for name, (ask, most, status, word) in API.items():
            with self.subTest(name):
                path, body = ask(most)
                got, _, text = self.server.call("POST", path, body)
                if name == "JSON levels":  # a `user` that is an object is wrong, but was read
                    self.assertNotIn(b"levels", text)
                else:
                    self.assertEqual(got, 200, (name, text[:300]))
                self.refused(*ask(most + 1), status, word)

    def test_body(self):
        frame = b'{"content":"hi","x":"%s"}'
        for size, status in ((8 * MIB, 400), (8 * MIB + 1, 413)):  # 400: `x` is no field, so it was read
            body = frame % (b"y" * (size - len(frame) + 2))
            self.assertEqual(len(body), size)
            self.assertEqual(self.server.call("POST", "/tokenize", body)[0], status)
            for chunks in ([body[:MIB]] + [body[MIB:]],):
                c = self.server.connect()
                c.request("POST", "/tokenize", iter(chunks), {"Content-Type": "application/json"}, encode_chunked=True)
                self.assertEqual(c.getresponse().status, status)
                c.close()

    def test_bodies_together(self):
        """64 MiB of what has come. Who announces eight and sends a byte holds nearly nothing."""
        head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (8 * MIB)
        small = ("POST", "/tokenize", {"content": "hi"})
        for come, most in ((1, 40), (8 * MIB - 1, 24)):
            lines, status = [], 200
            while status == 200 and len(lines) < most:  # eight suffice, when nobody else has any of it just then
                lines.append(socket.create_connection(("127.0.0.1", self.server.port)))
                lines[-1].sendall(head + b"{" * come)
                status = self.server.call(*small)[0]
            self.assertEqual(status, 200 if come == 1 else 503)
            if come > 1:
                self.assertGreaterEqual(len(lines), 8)
                self.refused(*small[1:], 503, "too many large requests")
            for s in lines:
                s.close()
            self.assertTrue(nodes.wait_for(lambda: self.server.call(*small)[0] == 200))

    def test_chunks_without_end(self):
        """64 MiB of what nobody wants are read, then the connection ends."""
        head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        piece = b"100000\r\n" + b"y" * MIB + b"\r\n"
        answer, closed = raw(self.server.port, head + piece * 80, 60)
        self.assertTrue(closed)
        self.assertFalse(200 in statuses(answer), answer[:200])

    def test_values_of_a_body(self):
        for count, word in ((262144 - 5, None), (262144 - 4, "values")):  # five of them are around these
            text = json.dumps({"content": "x", "z": [1] * count})
            got, _, answer = self.server.call("POST", "/tokenize", text)
            self.assertEqual(got, 400)
            (self.assertIn if word else self.assertNotIn)(word or "values", json.loads(answer)["error"]["message"])

    def test_head(self):
        def ask(bytes_):
            return raw(self.server.port, b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: " +
                       b"y" * bytes_ + b"\r\n\r\n")[0]
        self.assertEqual(statuses(ask(30 << 10)), [200])
        self.assertIn(statuses(ask(64 << 10))[0], (431, 413))
        target = raw(self.server.port, b"GET /" + b"a" * (64 << 10) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")[0]
        self.assertEqual(statuses(target), [414])

    def test_path(self):
        """One that is too long is no model's any more."""
        for size, code in ((255, "model_not_found"), (256, "not_found"), (5000, "not_found")):
            status, _, text = self.server.call("GET", "/v1/models/" + "a" * (size - 11))
            self.assertEqual((status, json.loads(text)["error"]["code"]), (404, code), size)

    def test_prompt(self):
        """The context: a prompt may fill it; then there is one token."""
        def ids(count):
            return COMPLETIONS, {"prompt": [504] * count, **FREE}
        self.assertEqual(self.server.call("POST", *ids(1024))[0], 200)
        self.refused(*ids(1025), 400, "1024")

    def test_schema(self):
        def properties(count):
            return {"type": "object", "properties": {f"p{i}": {"type": "null"} for i in range(count)}}
        for value, status in ((properties(512), 200), (properties(513), 400), (nested(20), 200), (nested(200), 400)):
            got, _, text = self.server.call("POST", *chat(**schema(value)))
            self.assertEqual(got, status, text[:300])

    def test_grammar(self):
        def rules(count):
            return "root ::= " + '"a"' + "".join(f'\nr{i} ::= "a"' for i in range(count - 1))
        for count, status in ((4096, 200), (4097, 400)):
            got, _, text = self.server.call("POST", *chat(grammar=rules(count)))
            self.assertEqual(got, status, text[:300])


class Nodes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = nodes.Cluster(MODEL, ["0-15", "15-end"], 2, chunk=64, sessions=4)
        cls.station, cls.shard = cls.cluster.start("station-0"), cls.cluster.start("shard-0")

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def forward(self, rows, sequences, position=0, first=100):
        each = rows // sequences
        x = bytes(4 * MODEL.hidden * each * sequences)
        Nodes.request = getattr(Nodes, "request", 0) + 1
        return self.station.call("POST", "/forward", frames.forward(
            MODEL.id, self.cluster.bounds("station-0"), MODEL.hidden,
            [frames.Sequence(first + i, position, each) for i in range(sequences)], x, Nodes.request))

    def test_rows(self):
        self.assertEqual(self.forward(64, 1)[0], 200)
        status, answer = self.forward(65, 1)
        self.assertEqual((status, json.loads(answer)["error"]["code"]), (413, "too_large"))

    def test_sequences(self):
        self.assertEqual(self.forward(4, 4)[0], 200)
        status, answer = self.forward(5, 5)
        self.assertEqual((status, json.loads(answer)["error"]["code"]), (413, "too_large"))
        self.assertEqual(self.forward(4, 4, first=200)[0], 200)  # the older ones make room

    def test_positions(self):
        """The cluster's context is 1,024."""
        for at in range(0, 1024, 64):
            self.assertEqual(self.forward(64, 1, at, 300)[0], 200)
        self.assertEqual(self.forward(1, 1, 1024, 300)[0], 400)
        self.assertEqual(self.forward(1, 1, 1023, 300)[0], 200)

    def test_body(self):
        """The largest frame: 64 rows of 4 sequences. The refusal says how much that is."""
        status, answer = self.station.call("POST", "/forward", bytes(4 << 20))
        self.assertEqual((status, json.loads(answer)["error"]["code"]), (413, "too_large"))
        most = int(re.search(r"more than (\d+) bytes", json.loads(answer)["error"]["message"])[1])
        self.assertTrue(0 < most - 64 * MODEL.hidden * 4 < 4096, most)
        self.assertEqual(self.station.error("POST", "/forward", bytes(most))[0], 400)  # no frame, but it was read
        self.assertEqual(self.station.error("POST", "/forward", bytes(most + 1)), (413, "too_large"))

    def test_head(self):
        def ask(bytes_):
            return statuses(raw(self.station.port, b"GET /ready HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " +
                                KEY.encode() + b"\r\nConnection: close\r\nX: " + b"y" * bytes_ + b"\r\n\r\n")[0])
        self.assertEqual(ask(7 << 10), [200])
        self.assertIn(ask(16 << 10)[0], (413, 431))

    def test_target(self):
        """A path that is too long is none: the message names it no more."""
        for size, is_read in ((255, True), (256, False), (4000, False)):
            path = "/" + "a" * (size - 1)
            status, answer = self.station.call("POST", path, b"")
            self.assertEqual(status, 404)
            self.assertEqual(path[:100] in json.loads(answer)["error"]["message"], is_read, size)

    def test_candidates(self):
        ids = self.cluster.entry("shard-0")["ids"]
        x = bytes(4 * MODEL.hidden)
        for k, status in ((MODEL.vocabulary, 200), (MODEL.vocabulary + 1, 400)):
            self.assertEqual(self.shard.call("POST", "/logits", frames.logits(MODEL.id, ids, MODEL.hidden, 1, x, k))[0],
                             status)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
