#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/troubleshooting.md quotes what the program really says: each message with a `shown by` command is provoked by
running it, and each of the others is found in a string of the sources, printf's conversions standing for `…`."""
import http.server
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

from _ports import free_port

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COBORD = os.environ["COBORD"]
PAGE = os.path.join(ROOT, "docs", "troubleshooting.md")
CONVERSION = re.compile(r"%(?:[-+ 0#]*[0-9]*(?:\.(?:\*|[0-9]+))?(?:ll|l|z)?[sdiuxXcfg]|\" PRI[a-z0-9]+ \"|%)")
ENTRIES_LEAST = 40


def entries():
    """(message, command or "", first line of the text)."""
    with open(PAGE, encoding="utf-8") as file:
        text = file.read()
    found = []
    for line in re.finditer(r"^### (.*)\n(?:<!-- shown by: (.*?) -->\n)?(.*)", text, re.M):
        message = re.sub(r" \(\d{3}\)$", "", line.group(1))
        found.append((message[1:-1], line.group(2) or "", line.group(3)))
    return found


def strings():
    """All string literals of the sources, neighbours joined, conversions as `…`."""
    for folder, _, names in os.walk(os.path.join(ROOT, "src")):
        for name in names:
            if not name.endswith((".c", ".h")):
                continue
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                code = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
            code = re.sub(r'" PRI[a-zA-Z0-9]+ "', "u", code)
            for run in re.finditer(r'"(?:\\.|[^"\\\n])*"(?:\s*"(?:\\.|[^"\\\n])*")*', code):
                parts = re.findall(r'"((?:\\.|[^"\\\n])*)"', run.group(0))
                text = "".join(parts).replace('\\"', '"').replace("\\n", "\n")
                yield CONVERSION.sub("…", text)


def fixed_parts(message):
    return [part.strip() for part in message.split("…") if part.strip()]


def has_in_order(text, parts):
    at = 0
    for part in parts:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


class Other(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(404)
        self.end_headers()

    def log_message(self, *_):
        pass


class Troubleshooting(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.port = free_port()
        subprocess.run([COBORD, "synth", "--shape", "test", "-o", "model.knot"], cwd=cls.folder, check=True,
                       capture_output=True)
        cls.other = http.server.HTTPServer(("127.0.0.1", free_port()), Other)
        threading.Thread(target=cls.other.serve_forever, daemon=True).start()
        cls.server = subprocess.Popen([COBORD, "serve", "./model.knot", "--listen", f"127.0.0.1:{cls.port}"],
                                      cwd=cls.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(1200):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{cls.port}/ready", timeout=1):
                    return
            except OSError:
                time.sleep(0.05)
        raise AssertionError("the server is not ready")

    @classmethod
    def tearDownClass(cls):
        cls.server.terminate()
        cls.server.wait()
        cls.other.shutdown()
        cls.other.server_close()
        shutil.rmtree(cls.folder)

    def provoke(self, command):
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("COBORD_", "AWS_", "XDG_"))}
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, capture_output=True, text=True, check=False, timeout=60,
            stdin=subprocess.DEVNULL,
            env={**keep, "PATH": os.path.dirname(COBORD) + ":" + os.environ["PATH"], "COBORD": COBORD,
                 "PORT": str(self.port), "OTHER": str(self.other.server_port),
                 "DATA": os.path.join(ROOT, "tests", "data", "knot")})
        if "curl" not in command:
            self.assertNotEqual(done.returncode, 0, command)
        return done.stdout + done.stderr

    def test_provoked(self):
        for message, command, _ in entries():
            if not command:
                continue
            with self.subTest(message):
                said = self.provoke(command).replace('\\"', '"')
                self.assertTrue(has_in_order(said, fixed_parts(message)), f"{command}\nsaid: {said}")

    def test_in_the_sources(self):
        there = list(strings())
        for message, command, _ in entries():
            if command:
                continue
            with self.subTest(message):
                parts = fixed_parts(message.removeprefix("cobord: "))  # which the log puts in front
                self.assertGreaterEqual(len("".join(parts)), 12)
                self.assertTrue(any(has_in_order(text, parts) for text in there))

    def test_what_is_not_said_is_not_found(self):
        there = list(strings())
        for message in ("the cluster is complete but sad: …", "nobody … says … this"):
            self.assertFalse(any(has_in_order(text, fixed_parts(message)) for text in there))

    def test_each_has_a_remedy(self):
        found = entries()
        self.assertGreaterEqual(len(found), ENTRIES_LEAST)
        self.assertEqual(len({message for message, _, _ in found}), len(found))
        for message, _, text in found:
            self.assertGreater(len(text), 30, message)


if __name__ == "__main__":
    unittest.main()
