#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""API keys and pages of other origins where the coordinator is a Worker, and nodes that have another cluster key than
it, on the real runtime."""
import http.client
import json
import socket
import struct
import time
import unittest

import _nodes as nodes
from _late import TooLate, in_time
from _workers import WorkerCluster, members

MODEL = nodes.Model("smollm2-135m")
CHAT = "/v1/chat/completions"
COORDINATOR = "coordinator-0"
APP = "https://app.example"
KEYS = """{"keys": [
  {"name": "alice", "key": "sk-alice-0123456789"},
  {"name": "ops", "key": "sk-ops-0123456789", "admin": true},
  {"name": "slow", "key": "sk-slow-0123456789", "requests_per_minute": 2, "tokens_per_minute": 40}
]}
"""
HI = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "temperature": 0}


def ask(cluster, method, path, body=None, headers=None):
    """(status, headers, text)"""
    connection = http.client.HTTPConnection(*cluster.runtime.address(COORDINATOR), timeout=60)
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None,
                           {"Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


def bearer(name):
    return {"Authorization": f"Bearer sk-{name}-0123456789"}


def code_of(text):
    return json.loads(text)["error"]["code"]


class KeysTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = WorkerCluster(MODEL, ["0-end"], 1)
        for node_id in members(cls.cluster.file):
            if node_id != COORDINATOR:
                cls.cluster.start(node_id)
        cls.cluster.start_workers([COORDINATOR], more={COORDINATOR: {"API_KEYS": KEYS, "CORS_ORIGINS": APP}})

    @classmethod
    def tearDownClass(cls):
        errors = cls.cluster.runtime.errors()
        cls.cluster.stop()
        assert "sk-" not in errors, errors

    def ask(self, *arguments):
        return ask(self.cluster, *arguments)

    def test_who(self):
        for headers in ({}, bearer("nobody")):
            for method, path, body in (("POST", CHAT, HI), ("GET", "/v1/models", None), ("GET", "/cluster", None)):
                status, got, text = self.ask(method, path, body, headers)
                self.assertEqual((status, code_of(text), got["WWW-Authenticate"]), (401, "invalid_api_key", "Bearer"))
        self.assertEqual(self.ask("GET", "/health")[0], 200)
        self.assertEqual(self.ask("GET", "/ready")[0], 200)
        status, _, text = self.ask("POST", CHAT, HI, bearer("alice"))
        self.assertEqual(status, 200, text)
        self.assertEqual(self.ask("GET", "/cluster", None, bearer("ops"))[0], 200)
        status, _, text = self.ask("GET", "/cluster", None, bearer("alice"))
        self.assertEqual((status, code_of(text)), (403, "insufficient_permissions"))

    def test_how_much(self):
        status, got, text = self.ask("POST", "/tokenize", {"content": "Hello world"}, bearer("slow"))
        self.assertEqual((status, got["x-ratelimit-remaining-requests"]), (200, "1"), text)
        self.assertEqual((got["x-ratelimit-limit-tokens"], got["x-ratelimit-remaining-tokens"]), ("40", "38"))
        status, got, text = self.ask("POST", "/tokenize", {"content": "word " * 39}, bearer("slow"))
        self.assertEqual((status, code_of(text)), (429, "rate_limit_exceeded"), text)
        self.assertEqual(json.loads(text)["error"]["type"], "tokens")
        status, got, text = self.ask("POST", "/tokenize", {"content": "x"}, bearer("slow"))
        self.assertEqual((status, json.loads(text)["error"]["type"]), (429, "requests"))
        self.assertGreater(int(got["Retry-After"]), 10)

    def test_pages(self):
        question = {"Origin": APP, "Access-Control-Request-Method": "POST",
                    "Access-Control-Request-Headers": "authorization,content-type"}
        status, got, text = self.ask("OPTIONS", CHAT, None, question)
        self.assertEqual((status, text, got["Access-Control-Allow-Origin"]), (204, "", APP))
        self.assertEqual(got["Access-Control-Allow-Headers"], "authorization,content-type")
        for origin in ("https://evil.example", "null"):
            status, got, text = self.ask("OPTIONS", CHAT, None, {**question, "Origin": origin})
            self.assertEqual((status, code_of(text)), (403, "origin_not_allowed"))
            self.assertIsNone(got["Access-Control-Allow-Origin"])
        page = {"Origin": APP}
        for expected, request in ((401, ("POST", CHAT, HI, page)),
                                  (404, ("GET", "/nothing", None, {**page, **bearer("alice")})),
                                  (400, ("POST", CHAT, {"nonsense": 1}, {**page, **bearer("alice")})),
                                  (200, ("POST", CHAT, HI, {**page, **bearer("alice")})),
                                  (200, ("POST", CHAT, {**HI, "stream": True}, {**page, **bearer("alice")})),
                                  (200, ("GET", "/health", None, page))):
            status, got, text = self.ask(*request)
            self.assertEqual((status, got["Access-Control-Allow-Origin"]), (expected, APP), text)
            self.assertEqual(got["Vary"], "Origin")
        self.assertIsNone(self.ask("GET", "/health", None, {"Origin": "null"})[1]["Access-Control-Allow-Origin"])


class MalformedTest(unittest.TestCase):
    """Nobody is let in, and the reason has no key in it."""

    def test_malformed(self):
        for name, value, said in (("API_KEYS", KEYS.replace("admin", "adnin"), "line 3, key 2 (ops): adnin is none"),
                                  ("API_KEYS", "", "API_KEYS: it is empty"),
                                  ("CORS_ORIGINS", "app.example", "is no origin")):
            cluster = WorkerCluster(MODEL, ["0-end"], 1)
            try:
                cluster.start_workers([COORDINATOR], more={COORDINATOR: {name: value}})
                for headers in ({}, bearer("alice")):
                    status, _, text = ask(cluster, "GET", "/v1/models", None, headers)
                    self.assertEqual(status, 503, text)
                    self.assertIn(said, text)
                    self.assertNotIn("sk-", text)
            finally:
                cluster.stop()


class OtherClusterKeyTest(unittest.TestCase):
    """A node is healthy, and refuses the coordinator's key: clients are told so, whoever else waits."""

    def test_one_node(self):
        for node_id in ("station-1", "shard-0"):
            cluster = WorkerCluster(MODEL, ["0-15", "15-end"], 1)
            try:
                for other in members(cluster.file):
                    if other not in (COORDINATOR, node_id):
                        cluster.start(other)
                cluster.start_workers([COORDINATOR, node_id], more={node_id: {"CLUSTER_KEY": "nobody-else-has-it"}})
                began = time.time()
                for stream in (False, True):
                    status, got, text = ask(cluster, "POST", CHAT, {**HI, "stream": stream})
                    # A stream has begun before its first frame goes out.
                    self.assertEqual(status, 200 if stream else 503, text)
                    for word in ("unreachable", node_id, "has another key"):
                        self.assertIn(word, text)
                status, _, text = ask(cluster, "GET", "/ready")
                self.assertEqual(status, 503, text)
                self.assertIn("another key", json.loads(text)["missing"])
                self.assertLess(time.time() - began, 15)
                self.assertNotIn("nobody-else", cluster.runtime.errors())
            finally:
                cluster.stop()


class QueueTest(unittest.TestCase):
    """The queue of a station's object is for those who have the key, and are still there."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = WorkerCluster(MODEL, ["0-15", "15-end"], 1, sessions=4)
        workers = cls.cluster.start_workers(["station-0", "shard-0"])
        cls.station = workers["station-0"]
        cls.driver = nodes.Driver([cls.station], [workers["shard-0"]])

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def send(self, body, key, length=None):
        """A connection on which a frame was sent, or the beginning of one."""
        s = socket.create_connection((self.station.host, self.station.port), timeout=30)
        s.sendall(f"POST /forward HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: "
                  f"{length or len(body)}\r\n\r\n".encode() + body)
        return s

    def test_half_bodies_without_the_key(self):
        halves = [self.send(b"COBF", "another-key", 1000) for _ in range(100)]
        try:
            began = time.time()
            self.assertEqual(self.station.call("GET", "/ready")[0], 200)
            self.assertLess(time.time() - began, 5)  # a body is waited for for ten seconds
        finally:
            for s in halves:
                s.close()
        status, answer = self.station.call("POST", "/forward", bytes(1000), key="another-key")
        self.assertEqual((status, code_of(answer)), (401, "key"))
        self.assertEqual(self.station.call("GET", "/metrics", key=None)[0], 401)

    def test_clients_that_left(self):
        x = self.driver.embed(list(range(1000, 1032)))

        def attempt():
            frames = [self.driver.frame(self.station, x, session, 0) for session in range(1, 13)]
            before = self.station.metrics()["cobord_station_rows_total"]
            began = time.monotonic()
            connections = [self.send(frame, nodes.KEY) for frame in frames]
            time.sleep(0.3)
            for connection in connections[1:]:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
                connection.close()
            took = time.monotonic() - began
            self.assertTrue(connections[0].recv(64).startswith(b"HTTP/1.1 200 "))
            connections[0].close()
            rows = self.station.metrics()["cobord_station_rows_total"] - before  # answered behind all of them
            most = 32 * len(frames) * 3 / 4
            if rows >= most and took >= 0.5:
                raise TooLate("this test had no turn while they were served")
            self.assertLess(rows, most)
        in_time(attempt)


class MissingKnotTest(unittest.TestCase):
    def test_another_name(self):
        """Whether the size is given or not, the name that is not there is said."""
        cluster = WorkerCluster(MODEL, ["0-end"], 1)
        try:
            cluster.start_workers([COORDINATOR], more={COORDINATOR: {"KNOT_KEY": "nothing.knot"}})
            status, _, text = ask(cluster, "POST", CHAT, HI)
            self.assertEqual(status, 503, text)
            self.assertIn("KNOT_KEY is nothing.knot, which is not in the bucket", text)
        finally:
            cluster.stop()


if __name__ == "__main__":
    unittest.main(verbosity=2)
