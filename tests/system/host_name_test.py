#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DNS rebinding: a loopback server without keys is asked by the name of somebody's page. And what such a server must
still take: addresses, localhost, names that its operator gave it."""

import json
import os
import sys
import tempfile
import unittest

from serve_test import CHAT, Server, greedy

OURS = ("127.0.0.1", "localhost", "LOCALHOST", "a.localhost", "[::1]", "192.168.7.7", "localhost.")
STRANGE = ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "x", "evil.example.")
GUARDED = (("POST", CHAT), ("POST", "/v1/completions"), ("POST", "/api/generate"), ("POST", "/tokenize"),
           ("GET", "/v1/models"), ("GET", "/metrics"), ("GET", "/cluster"), ("GET", "/api/tags"), ("GET", "/nothing"))
OPEN = ("/health", "/ready", "/")


def ask(server, host, method="GET", path="/v1/models", body=None, **more):
    status, _, text = server.call(method, path, body, {"Host": host, **more})
    return status, (json.loads(text)["error"]["code"] if status >= 400 and text[:1] == b"{" else None)


class Loopback(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--context", "256", "--journal", "none")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def test_names_of_its_own(self):
        for host in OURS:
            for port in ("", f":{self.server.port}", ":80"):
                with self.subTest(host + port):
                    self.assertEqual(ask(self.server, host + port)[0], 200)
        self.assertEqual(ask(self.server, "localhost", "POST", CHAT, greedy("Hi", 1))[0], 200)

    def test_names_of_strangers(self):
        for host in STRANGE:
            for method, path in GUARDED:
                with self.subTest(host=host, path=path):
                    body = greedy("Hi", 1) if method == "POST" else None
                    for port in ("", f":{self.server.port}"):
                        self.assertEqual(ask(self.server, host + port, method, path, body), (403, "host_not_allowed"))
            for path in OPEN:
                self.assertNotEqual(ask(self.server, host, path=path)[0], 403)
        # a page of another origin, before and after it has rebound its name
        origin = {"Origin": "http://evil.example"}
        self.assertEqual(ask(self.server, "evil.example", "POST", CHAT, greedy("Hi", 1), **origin)[0], 403)
        for form in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            self.assertEqual(ask(self.server, "localhost", "POST", CHAT, greedy("Hi", 1),
                                 **{**origin, "Content-Type": form})[0], 415)
        self.assertEqual(ask(self.server, "localhost", "POST", CHAT, greedy("Hi", 1))[0], 200)


class GivenNames(unittest.TestCase):
    """Each server with one name more; it stays what it was to others."""

    def served(self, *arguments, yes=(), no=("evil.example",), key=None):
        server = Server("--context", "256", "--journal", "none", *arguments)
        more = {"Authorization": "Bearer " + key} if key else {}
        try:
            for host in yes:
                self.assertEqual(ask(server, host, **more)[0], 200, host)
            for host in no:
                self.assertEqual(ask(server, host, **more), (403, "host_not_allowed"), host)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_cors(self):
        self.served("--cors", "https://chat.example,http://desk.home:3000", yes=("chat.example", "desk.home:8080"),
                    no=("evil.example", "chat.example.org"))
        self.served("--cors", "http://cobord", yes=("cobord",), no=("cobord.example", "evil.example"))
        self.served("--cors", "*", yes=("evil.example",), no=())

    def test_keys(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = os.path.join(folder, "keys")
            with open(os.open(keys, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
                json.dump({"keys": [{"name": "me", "key": "sk-me-0123456789"}]}, f)
            self.served("--api-keys", keys, yes=("chat.example",), no=(), key="sk-me-0123456789")

    def test_beyond_loopback(self):
        server = Server("--context", "256", "--journal", "none", listen="0.0.0.0:0")
        self.assertEqual(ask(server, "cobord.default.svc.cluster.local:8080")[0], 200)
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
