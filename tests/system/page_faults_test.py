#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The chat when something is wrong: refusals, broken lines, a server that is killed (tests/page/faults.mjs)."""
import os
import sys
import tempfile
import unittest

from _page import ROOT, run_script
from _ports import free_port
from serve_test import Server


class FaultsTest(unittest.TestCase):
    def test_faults(self):
        server = Server("--context", "2048")
        try:
            with tempfile.TemporaryDirectory() as folder:
                run_script("faults.mjs", f"http://127.0.0.1:{server.port}", free_port(), folder)
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    os.chdir(ROOT)
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[1:]])
