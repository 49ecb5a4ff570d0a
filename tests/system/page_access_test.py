#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who cannot see the page, or has no mouse: axe-core over every state of the chat (tests/page/access.mjs)."""
import os
import sys
import unittest

from _page import ROOT, run_script
from serve_test import Server


class AccessTest(unittest.TestCase):
    def test_access(self):
        server = Server("--context", "2048")
        try:
            run_script("access.mjs", f"http://127.0.0.1:{server.port}")
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    os.chdir(ROOT)
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[1:]])
