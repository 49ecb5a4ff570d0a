#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The official clients against a server and a cluster: OpenAI's for Python and JavaScript, Ollama's for Python. What is
asked of them is in tests/clients."""

import asyncio
import os
import shutil
import subprocess
import sys
import unittest

from _packages import need, need_javascript
from serve_test import LONG, MODEL, Server
from up_test import Up

need("openai", "3.57.0")
need("ollama", "0.6.3")
CLIENTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "clients")
sys.path.insert(0, CLIENTS)
import ollama  # noqa: E402
import openai  # noqa: E402
from ollama_suite import OllamaChecks  # noqa: E402
from openai_suite import Checks  # noqa: E402


class Clients(Checks, OllamaChecks):
    """Against cls.server."""

    def test_javascript(self):
        node = shutil.which("node")
        self.assertTrue(node, "node is not installed: scripts/prepare")
        done = subprocess.run([node, os.path.join(CLIENTS, "openai_suite.mjs"), self.base, MODEL],
                              capture_output=True, text=True, timeout=300,
                              env={**os.environ, "OPENAI_PACKAGE": need_javascript("openai")})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("all passed", done.stdout)

    @classmethod
    def connect(cls):
        cls.base = f"http://127.0.0.1:{cls.server.port}/v1"
        cls.client = openai.OpenAI(base_url=cls.base, api_key="none", max_retries=0)
        cls.ollama = ollama.Client(host=cls.base.removesuffix("/v1"))

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        assert cls.server.stop() == 0


class ServerTest(Clients, unittest.TestCase):
    nodes = {"self"}

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--context", "1024", "--slots", "4")
        cls.connect()

    def test_full_queue(self):
        narrow = Server("--context", "1024", "--slots", "1", "--queue", "1")

        async def ask():
            url = f"http://127.0.0.1:{narrow.port}/v1"
            async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as many:
                return await asyncio.gather(*(many.chat.completions.create(
                    model=MODEL, **dict(LONG, max_tokens=60)) for _ in range(6)), return_exceptions=True)

        results = asyncio.run(ask())
        errors = [r for r in results if isinstance(r, Exception)]
        self.assertTrue(errors and all(isinstance(e, openai.RateLimitError) for e in errors), results)
        self.assertTrue(all("retry-after" in e.response.headers for e in errors))
        self.assertGreaterEqual(len(results) - len(errors), 2)
        narrow.stop()


class UpTest(Clients, unittest.TestCase):
    nodes = {"station-0", "station-1", "shard-0"}

    @classmethod
    def setUpClass(cls):
        cls.server = Up("--stations", "2", "--shards", "2", "--context", "1024", "--listen", "127.0.0.1:0")
        cls.connect()


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
