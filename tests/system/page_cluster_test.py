#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page's view of the cluster in real Chromium: 2 stations and 4 shards are drawn, figures move while an answer is
made, a node that was killed is shown as gone and comes back, keys alone suffice, axe-core finds nothing
(tests/page/cluster.mjs). What is drawn of an answer, without a browser: tests/page/cluster_model_test.mjs."""
import itertools
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
    enough = threading.Event()

    def test_model(self):
        done = subprocess.run(["node", "--test", SCRIPTS / "cluster_model_test.mjs"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def act(self, word):
        verb, _, node = word.partition(" ")
        if verb == "ask":
            self.asking = threading.Thread(target=self.ask, daemon=True)
            self.enough.clear()
            self.asking.start()
        elif verb == "rest":
            self.enough.set()
            self.asking.join(60)
        elif verb == "kill":
            self.cluster.kill(node)
        else:
            self.cluster.start(node, (), self.cluster.own_path if node == "coordinator-0" else None)

    def ask(self):
        """One answer after the other: the page sees one, however fast they are made. No draft guesses what is drawn at
        a high temperature."""
        body = greedy("Tell me about the sea.", 300, logit_bias={"2": -100, "0": -100}, stream=True)
        for seed in itertools.count(1):
            self.cluster.call("POST", CHAT, dict(body, temperature=1.5, seed=seed))
            if self.enough.is_set():
                return

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
