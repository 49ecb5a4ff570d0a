#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""API keys and pages of other origins where the coordinator is a Worker, and nodes that have another cluster key than
it, on the real runtime."""
import http.client
import json
import time
import unittest

import _nodes as nodes
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


if __name__ == "__main__":
    unittest.main(verbosity=2)
