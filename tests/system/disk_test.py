#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Disks that are full, become full, or cannot be written: what writes files says which one and what to do, and leaves
the old one or the new one; what serves goes on without its journal, its cache or its log, says so once and counts it.

On small disks in memory, which are mounted where only this process and its children see them."""
import ctypes
import errno
import http.client
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

import _terminal
import _wardens
import up_test
from _nodes import wait_for
from serve_test import CHAT, Server, content, events_in, greedy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
from support import COBORD, run  # noqa: E402

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "knot"
LIBC = ctypes.CDLL(None, use_errno=True)
NEW_NAMESPACE, PRIVATE, REMOUNT, READ_ONLY, DETACH = 0x20000, 1 << 18 | 1 << 14, 32, 1, 2


def own_mounts():
    """From here on nobody else sees what this process mounts. Result: what is in the way, or None."""
    if os.geteuid() != 0:
        return "mounts are made by root only"
    if LIBC.unshare(NEW_NAMESPACE) or LIBC.mount(b"none", b"/", None, PRIVATE, None):
        return f"no mount namespaces here: {os.strerror(ctypes.get_errno())}"
    return None


class Disk:
    """A small one, until close()."""

    def __init__(self, kib):
        self.own = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.own.name)
        self.kib = kib
        self.mount(0)
        self.filler = self.path / "filler"

    def mount(self, flags):
        if LIBC.mount(b"tmpfs", str(self.path).encode(), b"tmpfs", flags, f"size={self.kib}k".encode()):
            raise unittest.SkipTest(f"no small disk: {os.strerror(ctypes.get_errno())}")

    def read_only(self, yes=True):
        self.mount(REMOUNT | (READ_ONLY if yes else 0))

    def fill(self, left_kib=0):
        """Until so much is left."""
        self.filler.unlink(missing_ok=True)
        state = os.statvfs(self.path)
        free = state.f_bavail * state.f_frsize - (left_kib << 10)
        with open(self.filler, "wb", buffering=0) as f:
            try:
                written = f.write(bytes(max(free, 0)))
                assert not left_kib or written == free, (written, free)
            except OSError as error:  # somebody took of it meanwhile
                if left_kib or error.errno != errno.ENOSPC:
                    raise

    def free(self):
        self.filler.unlink()

    def close(self):
        LIBC.umount2(str(self.path).encode(), DETACH)
        self.own.cleanup()


class Base(unittest.TestCase):
    def disk(self, kib):
        disk = Disk(kib)
        self.addCleanup(disk.close)
        return disk


class Files(Base):
    def refused(self, done, *words):
        said = done.stderr.decode()
        self.assertEqual(done.returncode, 1, said)
        self.assertEqual(said.count("\n"), 1, said)
        for word in words:
            self.assertIn(word, said)

    def test_old_or_new(self):
        """encode, repair, synth: at several amounts of room, over nothing and over an older file."""
        disk = self.disk(2048)
        verbs = {"encode": ["encode", DATA / "tiny.gguf", "-o"], "repair": ["repair", DATA / "error-stale.knot", "-o"],
                 "synth": ["synth", "--shape", "test", "-o"]}
        for verb, words in verbs.items():
            out = disk.path / f"{verb}.knot"
            done = run(*words, out)
            self.assertEqual(done.returncode, 0, done.stderr)
            new = out.read_bytes()
            for left in (0, 8, len(new) // 2048, len(new) // 1024 - 4):
                for old in (None, b"an older file"):
                    with self.subTest(verb=verb, left=left, old=old):
                        out.unlink(missing_ok=True)
                        if old:
                            out.write_bytes(old)
                        disk.fill(left)
                        self.refused(run(*words, out), "no space left", str(out), "Free some space")
                        self.assertEqual(out.read_bytes() if out.exists() else None, old)
                        self.assertEqual({p.name for p in disk.path.iterdir()} - {out.name}, {"filler"})
                        disk.free()
            self.assertEqual(run(*words, out).returncode, 0)
            self.assertEqual(out.read_bytes(), new)
            disk.read_only()
            self.refused(run(*words, out), "Read-only file system", str(out))
            disk.read_only(False)
            out.unlink()

    def test_pull(self):
        disk = self.disk(1024)
        with _wardens.FileServer(DATA) as store:
            def pull():
                return run("pull", store.url + "/tiny.gguf", env={"COBORD_CACHE": str(disk.path / "cache")})
            for left in (0, 8, 40):
                disk.fill(left)
                self.refused(pull(), "no space left", str(disk.path), "Free some space")
                self.assertEqual(list(disk.path.rglob("*.knot")), [])
                disk.free()
            done = pull()
            self.assertEqual(done.returncode, 0, done.stderr)
            knot, = disk.path.rglob("*.knot")
            self.assertEqual(run("verify", knot).returncode, 0)
            knot.unlink()
            disk.read_only()
            self.refused(pull(), "Read-only file system", str(disk.path))


class Chats(Base):
    def test_saves_and_history(self):
        disk = self.disk(64)
        out, history = disk.path / "chat.json", disk.path / "cobord" / "history"
        env = _terminal.environment(XDG_STATE_HOME=str(disk.path))
        command = [COBORD, "run", up_test.MODEL, "--max-tokens", "2", "--temperature", "0", "--context", "2048"]
        with _terminal.Terminal(command, env=env) as t:
            t.wait(r"/help")
            t.type("Say one.\n")
            up_test.wait_until(lambda: history.exists() and history.read_text() == "Say one.\n")
            t.wait(r"Say one\.\n[\s\S]*\n> *\n")
            t.type(f"/save {out}\n")
            up_test.wait_until(out.exists)
            old = out.read_bytes()
            disk.fill()
            long = "Say " + "more " * 900
            t.type(long + "\n")
            t.wait(r"more \n*[\s\S]*\n> *\n")
            t.type(f"/save {out}\n")
            t.wait(r"no space left")
            self.assertEqual(out.read_bytes(), old)
            self.assertTrue(history.read_text().endswith("\n"))
            disk.free()
            t.type(f"/save {out}\n")
            up_test.wait_until(lambda: out.read_bytes() != old)
            self.assertEqual(json.loads(out.read_bytes())["messages"][0]["content"], "Say one.")
            self.assertEqual({p.name for p in disk.path.iterdir()}, {"chat.json", "cobord"})


class Journals(Base):
    def stream(self, server, place=None):
        """(text, [ids of events])"""
        c = server.connect()
        self.addCleanup(c.close)
        if place:
            c.request("POST", CHAT, headers={"Last-Event-ID": place})
        else:
            c.request("POST", CHAT, json.dumps({**greedy("Hi", 12), "stream": True}))
        answer = c.getresponse()
        if answer.status != 200:
            return answer.status, []
        events = events_in(answer.read())
        text = "".join(e["choices"][0]["delta"].get("content", "") for _, e in events
                       if e != "[DONE]" and e["choices"])
        return text, [i for i, _ in events if i]

    def test_full_while_it_serves(self):
        disk = self.disk(256)
        server = Server("--context", "256", "--journal", str(disk.path / "journal.db"))
        try:
            text, _ = self.stream(server)
            disk.fill()
            for _ in range(40):
                self.assertEqual(self.stream(server)[0], text)
            self.assertEqual(server.errors().count("the journal cannot be written"), 1, server.errors()[-2000:])
            self.assertIn(str(disk.path), server.errors())
            self.assertGreater(server.figure("cobord_journal_failures_total"), 0)
            disk.free()
            self.assertEqual(self.stream(server)[0], text)
            _, places = self.stream(server)
            rest, _ = self.stream(server, places[2])
            self.assertTrue(text.endswith(rest) and rest, (text, rest))
        finally:
            self.assertEqual(server.stop(), 0)

    def test_when_it_starts(self):
        disk = self.disk(64)
        (disk.path / "there").mkdir()
        for change in (disk.fill, disk.read_only):
            change()
            server = Server("--context", "256", "--journal", str(disk.path / "there" / "journal.db"))
            try:
                self.assertEqual(len(content(server.json(CHAT, greedy("Hi", 3)))) > 0, True)
                self.assertEqual(server.errors().count("journal"), 1, server.errors())
                self.assertIn(str(disk.path), server.errors())
            finally:
                self.assertEqual(server.stop(), 0)


class Caches(_wardens.Base):
    def disk(self, kib):
        return Base.disk(self, kib)

    def test_rows(self):
        for change in ("while", "full", "read_only"):
            with self.subTest(change):
                disk = self.disk(256)
                if change != "while":
                    getattr(disk, {"full": "fill"}.get(change, change))()
                cluster = self.cluster(shard={"cache": f"sqlite:{disk.path}/rows.db"})
                warden = cluster.start("shard-warden-0")
                self.assertEqual(self.row(warden, 7)[0][5], _wardens.KNOT.row(7))
                if change == "while":
                    disk.fill()
                for row in range(0, 3000, 50):
                    self.assertEqual(self.row(warden, row)[0][5], _wardens.KNOT.row(row))
                _wardens.wait_for("a failure is counted", lambda: _wardens.stats(warden)["rows_l2"]["failures"] > 0)
                said = warden.errors()
                self.assertEqual(said.count("cache of rows"), 1, said)
                self.assertIn(str(disk.path), said)
                self.assertGreater(sum(v for k, v in warden.metrics().items() if "rows_l2_failures" in k), 0)
                self.assertEqual(warden.kill(15), 0)

    def test_slabs(self):
        disk = self.disk(256)
        disk.read_only()
        cluster = self.cluster(layer={"cache": f"dir:{disk.path}/l2"})
        warden = cluster.start("layer-warden-0")
        for i in range(3):
            name = f"blk_{i}_ffn_up_weight"
            self.assertEqual(self.tensor(warden, name)[5], _wardens.KNOT.bytes(name))
        self.assertEqual(warden.errors().count(str(disk.path)), 1, warden.errors())


class Logs(Base):
    def test_of_serve(self):
        disk = self.disk(64)
        server = Server("--context", "256", "--journal", "none")
        text = server.json(CHAT, greedy("Hi", 3))
        server.stop()
        disk.fill()
        with open(disk.path / "log", "a") as log:
            process = subprocess.Popen([COBORD, "serve", up_test.MODEL, "--listen", "127.0.0.1:0", "--context", "256",
                                        "--journal", "none"], stdout=subprocess.PIPE, stderr=log, text=True,
                                       env=up_test.environment("/nonexistent"))
        port = int(process.stdout.readline().rsplit(":", 1)[1])
        try:
            for _ in range(5):
                c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                c.request("POST", CHAT, json.dumps(greedy("Hi", 3)))
                self.assertEqual(content(json.loads(c.getresponse().read())), content(text))
                c.request("GET", "/metrics")
                figures = c.getresponse().read().decode()
                c.close()
            self.assertGreater(figure(figures, "cobord_log_dropped_total"), 0)
            disk.free()
            c.request("GET", "/v1/models")
            self.assertEqual(c.getresponse().status, 200)
            self.assertTrue(wait_for(lambda: "were dropped" in (disk.path / "log").read_text()))  # after the answer
        finally:
            process.terminate()
            self.assertEqual(process.wait(60), 0)
            process.stdout.close()
            c.close()

    def test_of_a_cluster(self):
        disk = self.disk(512)
        up = up_test.Up("--listen", "127.0.0.1:0", "--dir", str(disk.path / "up"), "--stations", "2", "--shards", "2",
                        "--context", "256")
        try:
            text = up.ask(max_tokens=8)
            disk.fill()
            for _ in range(3):
                self.assertEqual(up.ask(max_tokens=8), text)
            pid = up.kill("station-1")
            up.wait_for_new("station-1", pid)
            self.assertEqual(up.ask(max_tokens=8), text)
        finally:
            self.assertEqual(up.stop(), 0)


def figure(text, name):
    return sum(float(line.split()[1]) for line in text.splitlines() if line.startswith(name + " "))


def setUpModule():
    reason = own_mounts()
    if reason:
        raise unittest.SkipTest(reason)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
