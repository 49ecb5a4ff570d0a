#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page's view of the cluster in real Chromium: 2 stations and 4 shards are drawn, figures move while an answer is
made, a node that was killed is shown as gone and comes back, keys alone suffice, axe-core finds nothing
(tests/page/cluster.mjs). What is drawn of an answer, without a browser: tests/page/cluster_model_test.mjs."""
import os
import shutil
import subprocess
import sys
import threading
import unittest

from _packages import need_locked
from _page import SCRIPTS, find_chromium
from coordinator_test import Cluster
from serve_test import CHAT, greedy


class PageClusterTest(unittest.TestCase):
    def test_model(self):
        done = subprocess.run(["node", "--test", SCRIPTS / "cluster_model_test.mjs"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def act(self, word):
        verb, _, node = word.partition(" ")
        if verb == "ask":
            # Sampled at a high temperature: no draft guesses it, so it lasts for several looks of the page.
            body = dict(greedy("Tell me about the sea.", 900, logit_bias={"2": -100, "0": -100}), stream=True,
                        temperature=1.5, seed=1)
            threading.Thread(target=lambda: self.cluster.call("POST", CHAT, body), daemon=True).start()
        elif verb == "kill":
            self.cluster.kill(node)
        else:
            self.cluster.start(node, (), self.cluster.own_path if node == "coordinator-0" else None)

    def drive(self, environment):
        """Its output; does what it asks for meanwhile."""
        said = []
        with subprocess.Popen([shutil.which("node"), SCRIPTS / "cluster.mjs", f"http://127.0.0.1:{self.cluster.port}"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env=environment) as page:
            try:
                for line in page.stdout:
                    said.append(line)
                    if line.startswith("! "):
                        self.act(line[2:].strip())
                        page.stdin.write("done\n")
                        page.stdin.flush()
            finally:
                page.kill()
        return "".join(said)

    def test_view(self):
        environment = {**os.environ, "CHROMIUM": find_chromium(), "PAGE_PACKAGES": need_locked(SCRIPTS)}
        self.cluster = Cluster(stations=2, shards=4)
        try:
            said = self.drive(environment)
        finally:
            self.cluster.stop()
        self.assertIn("all passed", said)
        if os.environ.get("PAGE_SHOTS"):
            print(said)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
