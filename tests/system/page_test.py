#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page: how it is served, and what the chat does in a real browser: tests/page/chat.mjs."""
import json
import os
import re
import sys
import unittest

from _page import ROOT, run_script
from serve_test import Server

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
TYPES = {".html": "text/html", ".css": "text/css", ".mjs": "text/javascript", ".js": "text/javascript",
         ".svg": "image/svg+xml"}
ABSENT = ("/web", "/web/", "/web/nothing", "/web/index.html", "/web/../web/base.css", "/web/%2e%2e/web/base.css",
          "/web//base.css", "/web/base.css/", "/web/./base.css", "/web/BASE.CSS", "//web/base.css",
          "/web/..%2fREADME.md")


def setUpModule():
    PageTest.server = Server("--context", "2048", "--drafts", "0")  # no answer is over before its test has looked at it


def tearDownModule():
    assert PageTest.server.stop() == 0


class PageTest(unittest.TestCase):
    server = None

    def test_units(self):
        run_script("units.mjs", browser=False)

    def test_chat(self):
        run_script("chat.mjs", f"http://127.0.0.1:{self.server.port}")

    def test_every_file_is_there_as_it_is(self):
        for file in sorted((ROOT / "web").iterdir()):
            path = "/" if file.name == "index.html" else f"/web/{file.name}"
            status, headers, body = self.server.call("GET", path, headers=HTML)
            self.assertEqual((status, body), (200, file.read_bytes()), path)
            self.assertEqual(headers["Content-Type"].split(";")[0], TYPES[file.suffix], path)
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
            for word in ("unsafe-inline", "unsafe-eval", "http:", "https:", "data:", "*"):
                self.assertNotIn(word, headers["Content-Security-Policy"])

    def test_etags(self):
        for path in ("/", "/web/base.css"):
            _, headers, body = self.server.call("GET", path, headers=HTML)
            tag = headers["ETag"]
            self.assertRegex(tag, r'^"[0-9a-f]{20}"$')
            self.assertEqual(headers["Cache-Control"], "no-cache")
            for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
                status, again, rest = self.server.call("GET", path, headers={**HTML, "If-None-Match": known})
                self.assertEqual((status, rest, again["ETag"]), (304, b"", tag), known)
            for other in ('"x"', tag.strip('"'), ""):
                status, _, whole = self.server.call("GET", path, headers={**HTML, "If-None-Match": other})
                self.assertEqual((status, whole), (200, body), other)

    def test_head(self):
        for path in ("/", "/web/shell.mjs"):
            _, got, body = self.server.call("GET", path, headers=HTML)
            status, headers, nothing = self.server.call("HEAD", path, headers=HTML)
            self.assertEqual((status, nothing, headers["Content-Length"]), (200, b"", str(len(body))))
            self.assertEqual(headers["ETag"], got["ETag"])

    def test_who_does_not_ask_for_html(self):
        for accept in ({}, {"Accept": "*/*"}, {"Accept": "application/json"}):
            status, headers, body = self.server.call("GET", "/", headers=accept)
            self.assertEqual((status, body, headers["Content-Type"]), (200, b"Cobord is running", "text/plain"))
            self.assertEqual(headers["Vary"], "Accept")

    def test_what_is_not_there(self):
        for path in ABSENT:
            status, headers, body = self.server.call("GET", path, headers=HTML)
            self.assertEqual((status, headers["Content-Type"]), (404, "application/json"), path)
            self.assertEqual(json.loads(body)["error"]["code"], "not_found")
        self.assertEqual(self.server.call("GET", "/web/base.css?v=1")[0], 200)
        self.assertEqual(self.server.call("GET", "/web/base%2ecss")[0], 200)

    def test_other_methods(self):
        for path in ("/", "/web/base.css"):
            status, headers, body = self.server.call("POST", path, {})
            self.assertEqual((status, headers["Allow"]), (405, "GET, HEAD"))
            self.assertEqual(json.loads(body)["error"]["code"], "method_not_allowed")

    def test_files_ask_nobody_else(self):
        for file in (ROOT / "web").iterdir():
            text = file.read_text().replace("http://www.w3.org/2000/svg", "")
            self.assertEqual(re.findall(r"""(?:src|href|from|import\()\s*=?\s*["'(](?:https?:)?//""", text), [], file.name)
            for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
                self.assertNotIn(word, text, file.name)


if __name__ == "__main__":
    os.chdir(ROOT)
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[1:]])
