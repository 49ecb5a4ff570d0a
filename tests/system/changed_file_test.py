#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The model's file is cut short or written to while it is served: an error of the request, never a wrong text and never
a dead process; put back and started again, all is as before."""
import json
import os
import pathlib
import shutil
import sys
import tempfile
import threading
import unittest

import up_test
from serve_test import CHAT, LONG, Server

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
from support import models_folder  # noqa: E402



class ChangedFileTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.good = pathlib.Path(models_folder()) / "smollm2-135m.knot"
        self.path = pathlib.Path(self.folder.name) / "small.knot"
        shutil.copyfile(self.good, self.path)

    def begun(self, server):
        """A stream that has said something."""
        connection = server.connect()
        connection.request("POST", CHAT, json.dumps({**LONG, "stream": True}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        self.addCleanup(connection.close)
        return answer, answer.read1()

    def check(self, change, words):
        server = Server("--context", "1024", model=str(self.path))
        try:
            answer, text = self.begun(server)
            change()
            text += answer.read()
            last = [line for line in text.decode().split("\n\n") if line.startswith("data: ")][-1]
            self.assertIn(words, json.loads(last[6:])["error"]["message"])
            for _ in range(2):  # and not once only
                status, _, value = server.call("POST", CHAT, LONG)
                self.assertGreaterEqual(status, 500)
                self.assertIn(words, json.loads(value)["error"]["message"])
            self.assertEqual(server.call("GET", "/health")[0], 200)
            self.assertEqual(server.call("GET", "/ready")[0], 503)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_cut_short(self):
        self.check(lambda: os.truncate(self.path, 20 << 20), "cut short")

    def test_written_to(self):
        def write():
            with open(self.path, "r+b") as file:
                file.seek(60 << 20)
                file.write(b"\x5a" * 4096)
        self.check(write, "written to")

    def test_processes(self):
        """Nodes end by themselves, not by a signal, and those that take their places read what was put back."""
        up = up_test.Up("--listen", "127.0.0.1:0", "--stations", "2", "--shards", "2", model=str(self.path))
        self.addCleanup(up.close)
        try:
            text, old = up.ask(), up.nodes()
            os.truncate(self.path, 20 << 20)
            result = []
            asking = threading.Thread(target=lambda: result.append(up.ask()))
            asking.start()
            up_test.wait_until(lambda: "cut short" in up.errors())
            whole = self.path.with_suffix(".new")
            shutil.copyfile(self.good, whole)
            os.replace(whole, self.path)
            asking.join(timeout=120)
            self.assertEqual(result, [text], up.errors())
            self.assertNotEqual(up.nodes(), old)
            self.assertNotIn("signal 7", up.errors())
        finally:
            self.assertEqual(up.stop(), 0)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
