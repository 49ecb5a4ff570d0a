#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/guides, as they stand there: every ```sh block of a page, in order, in one bash, in an empty
home.

A comment in front of a block says what is different here: <!-- test: skip: WHY -->; `second terminal` runs it beside
what follows; `elsewhere` with a cache of its own, as on another machine; `in-tree` in the source tree; `wait for URL`
until that answers 200. Port 8080 becomes a free one, the three machines three addresses of this one, and /tmp a folder.
"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from _ports import free_ports, take
from _servers import start_s3

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COBORD = os.environ["COBORD"]
BUILD = os.path.dirname(COBORD)
GUIDES = os.path.join(ROOT, "docs", "guides")
CACHE = os.environ.get("COBORD_CACHE", os.path.expanduser("~/.cache/cobord"))
BLOCK = re.compile(r"(?:<!-- test: (.*?) -->\n)?```sh\n(.*?)```\n", re.S)
MARK = "=== block "
WAIT = """for i in $(seq 300); do curl -sf -o /dev/null URL && break; sleep 0.1; done; curl -sf URL >/dev/null
"""


def is_free_everywhere(port):
    """On each of the three addresses: others may listen on one of them alone."""
    for host in ("127.0.0.1", "127.0.0.2", "127.0.0.3"):
        with socket.socket() as s:
            try:
                s.bind((host, port))
            except OSError:
                return False
    return True


def free_base():
    """A port with the two after it free."""
    for port in free_ports(50):
        if all(is_free_everywhere(port + i) for i in range(3)) and all(take(port + i) for i in (1, 2)):
            return port
    raise AssertionError("no three free ports in a row")


def bash_of(page):
    """The page's blocks as one program, and how many there are."""
    with open(os.path.join(GUIDES, page), encoding="utf-8") as file:
        blocks = BLOCK.findall(file.read())
    program = "set -e\n"
    for number, (how, text) in enumerate(blocks):
        if how.startswith("skip"):
            continue
        program += f"echo '{MARK}{number}'\n"
        before = "export COBORD_CACHE=$HOME/elsewhere; " if "elsewhere" in how else ""
        before += f"cd {ROOT}; " if "in-tree" in how else ""
        if "second terminal" in how or before:
            text = f"({before}{text.strip()}\n)" + (" &\n" if "second terminal" in how else "\n")
        program += text
        url = re.search(r"wait for (\S+)", how)
        program += WAIT.replace("URL", url.group(1)) if url else ""
    return program


class Guides(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.mkdtemp()
        os.makedirs(os.path.join(self.home, ".cache", "cobord"))
        os.symlink(os.path.join(CACHE, "models"), os.path.join(self.home, ".cache", "cobord", "models"))
        self.port = free_base()

    def tearDown(self):
        shutil.rmtree(self.home)

    def follow(self, page, **environment):
        """Runs a page. Result  what its blocks printed, those of one block together."""
        program = bash_of(page).replace("8080", str(self.port))
        program = program.replace("/tmp/", self.home + "/")
        program = re.sub(r"\b10\.0\.0\.([123])\b", r"127.0.0.\1", program)
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("COBORD_", "AWS_", "XDG_"))}
        with tempfile.TemporaryFile("a+") as said:
            shell = subprocess.Popen(
                ["bash", "-c", program], cwd=self.home, stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
                env={**keep, "HOME": self.home, "PATH": BUILD + ":" + os.environ["PATH"],
                     "COBORD_LISTEN": f"127.0.0.1:{self.port}", **environment})
            try:
                shell.wait(120)
            finally:
                self.end(shell.pid)
                shell.wait()
            said.seek(0)
            text = said.read()
        self.assertEqual(shell.returncode, 0, text)
        return {int(part.split("\n", 1)[0]): part.split("\n", 1)[1] for part in text.split(MARK)[1:]}

    @staticmethod
    def end(group):
        """What the page left running: Ctrl-C in every terminal, and its end is waited for."""
        for number in (signal.SIGTERM, 0):
            for _ in range(100):
                try:
                    os.killpg(group, number)
                except ProcessLookupError:
                    return
                if number:
                    break
                time.sleep(0.1)
        os.killpg(group, signal.SIGKILL)

    def answer_in(self, said):
        found = re.search(r'\{"id".*\}', said)
        self.assertTrue(found, said)
        return json.loads(found.group(0))["choices"][0]["message"]["content"]

    def test_first_answer(self):
        said = self.follow("first-answer.md")
        self.assertIn("tokens/s", said[2])
        self.assertTrue(self.answer_in(said[4]))

    def test_three_machines(self):
        said = self.follow("three-machines.md")
        self.assertIn("Wrote cluster.json", said[1])
        self.assertIn("station-2", said[6])
        self.assertIn(self.answer_in(said[6]), said[7])

    def test_object_store(self):
        bucket = os.path.join(self.home, "store", "models")
        os.makedirs(bucket)
        with start_s3(os.path.dirname(bucket)) as s3:
            said = self.follow("object-store.md", **{"AWS_REGION": "us-east-1", **s3.environment})
        self.assertTrue(os.path.exists(os.path.join(bucket, "smollm2-135m.knot")))
        self.assertIn("station-1", said[5])
        self.assertIn(self.answer_in(said[5]), said[2])

    def test_library(self):
        if not os.path.exists(os.path.join(BUILD, "libcobord.a")):
            self.skipTest("a build with sanitizers has no library")
        if os.path.realpath(BUILD) != os.path.realpath(os.path.join(ROOT, "build")):
            self.skipTest("the guide names build/, and this build is elsewhere")
        self.assertIn("tokens in", self.follow("library.md")[1])

    def test_tuning(self):
        said = self.follow("tuning.md")
        self.assertIn("tokens/s", said[0])
        self.assertIn("station-1", said[1])

    def test_every_page_is_here(self):
        """Each page has a test here, and the table of contents has each page."""
        tested = {name[5:].replace("_", "-") + ".md" for name in dir(self) if name.startswith("test_")}
        with open(os.path.join(GUIDES, "README.md"), encoding="utf-8") as file:
            contents = file.read()
        for page in os.listdir(GUIDES):
            if page == "README.md":
                continue
            self.assertIn(f"({page})", contents)
            with open(os.path.join(GUIDES, page), encoding="utf-8") as file:
                if BLOCK.search(file.read()):
                    self.assertIn(page, tested)


if __name__ == "__main__":
    unittest.main()
