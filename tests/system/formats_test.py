#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What earlier programs wrote (tests/data/formats) is read as they meant it; what a newer one wrote is refused with
both versions and what to do, and left as it is; caches of another version are made anew beside it."""
import http.client
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

import _servers as servers
from _crashes import COBORD, DATA, digest, environment
from crash_test import Chat
from serve_test import events_in

FORMATS, KNOTS = DATA / "formats", DATA / "knot"
PROBE = os.path.abspath(os.environ.get("STORE_PROBE", "build/tests/store_probe"))
SYNTH = ["synth", "--shape", "test", "--seed", "7", "-o"]
# Of all programs since the first.
SYNTH_HASH, LOGITS_HASH = "92700401735cc5c9", "134589c3a5d2f5e8"


def with_version(path, version):
    """A file that says it is of this version of the container."""
    data = bytearray(path.read_bytes())
    data[4:6] = version.to_bytes(2, "little")
    path.write_bytes(data)


def set_version(path, version):
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {version}")
    db.close()


class Formats(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.base = tempfile.TemporaryDirectory()
        cls.synth = pathlib.Path(cls.base.name) / "synth.knot"
        subprocess.run([COBORD, *SYNTH, cls.synth], check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.base.cleanup()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()

    def run_it(self, *words, text=None, **env):
        return subprocess.run([COBORD, *map(str, words)], input=text, capture_output=True, text=True, timeout=60,
                              env=environment(self.root, **env))

    def must(self, *words, **more):
        done = self.run_it(*words, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refused(self, done, *words):
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    # --- knots ---

    def test_knots(self):
        self.assertEqual(digest(self.synth), SYNTH_HASH)
        self.assertIn(LOGITS_HASH, self.must("logits", self.synth, "--tokens", "1,2,3", "--hash"))
        for name in ("tiny", "tied"):
            for version in (1, 2):
                out, kept = self.root / "out.knot", KNOTS / f"{name}-v{version}.knot"
                self.must("encode", KNOTS / f"{name}.gguf", "-o", out, "--knot-version", version)
                self.assertEqual(digest(out), digest(kept), (name, version))
                self.must("verify", kept)
        self.must("repair", KNOTS / "error-stale.knot", "-o", self.root / "repaired.knot")
        self.assertEqual(digest(self.root / "repaired.knot"), digest(KNOTS / "tiny-v1.knot"))

    def test_a_newer_knot(self):
        newer = self.root / "newer.knot"
        shutil.copy(self.synth, newer)
        with_version(newer, 3)
        before = digest(newer)
        for words in (["verify", newer], ["info", newer], ["run", newer, "x"], ["plan", newer], ["logits", newer,
                      "--tokens", "1"], ["serve", newer, "--listen", "127.0.0.1:0"]):
            self.refused(self.run_it(*words), "knot version 3", "reads 1 and 2", "Use the cobord that wrote it")
        self.assertEqual(digest(newer), before)
        self.assertFalse(pathlib.Path(f"{newer}.checked").exists())

    def test_a_newer_knot_in_the_cache(self):
        def tokenize():
            done = self.run_it("tokenize", KNOTS / "tiny.gguf", text="a\n")
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stderr
        tokenize()
        cached = next((self.root / "cache" / "models").glob("*.knot"))
        whole = digest(cached)
        self.assertEqual(tokenize(), "")
        with_version(cached, 3)
        said = tokenize()
        self.assertIn("knot version 3", said)
        self.assertIn("making it again", said)
        self.assertEqual(digest(cached), whole)
        self.assertEqual(tokenize(), "")

    def test_notes_of_checks(self):
        """The text of version 1 is believed; any other is not, and is replaced."""
        knot, note = self.root / "x.knot", self.root / "x.knot.checked"
        shutil.copy(self.synth, knot)
        about, words = knot.stat(), ["logits", knot, "--tokens", "1", "--hash"]
        knot_id = json.loads(self.must("info", knot, "--json"))["id"]
        old = f"cobord checked 1 {about.st_dev} {about.st_ino} {about.st_size} {about.st_mtime_ns} {knot_id}\n"
        for text, kept in ((old, True), (old.replace("checked 1", "checked 2"), False), (old[:20], False)):
            note.write_text(text)
            os.utime(note, (1, 1))
            self.must(*words)
            self.assertEqual(note.read_text(), old)
            self.assertEqual(note.stat().st_mtime == 1, kept, text)

    # --- clusters ---

    def test_cluster_file(self):
        file = self.root / "cluster.json"
        shutil.copy(FORMATS / "cluster-e0d2b23.json", file)
        value = json.loads(file.read_text())
        self.refused(self.run_it("node", "--cluster", file, "--id", "station-9"), "station-9")  # it was read
        file.write_text(json.dumps({**value, "cobord_cluster": 2, "quorum": 3}))
        for words in (["node", "--cluster", file, "--id", "station-0"], ["up", "--cluster", file]):
            self.refused(self.run_it(*words), "version 2", "this program 1", "cobord plan")
        file.write_text(json.dumps({**value, "quorum": 3}))
        self.refused(self.run_it("node", "--cluster", file, "--id", "station-0"), "quorum")

    # --- the journal ---

    def serve(self, journal):
        """(port, what it says)"""
        log = open(self.root / "log", "a+")
        self.addCleanup(log.close)
        child = subprocess.Popen([COBORD, "serve", str(self.synth), "--listen", "127.0.0.1:0", "--context", "256",
                                  "--journal", str(journal)], stdout=subprocess.PIPE, stderr=log, text=True,
                                 env=environment(self.root))

        def stop():
            child.kill()
            child.wait()
            child.stdout.close()
        self.addCleanup(stop)
        line = child.stdout.readline()
        self.assertIn("127.0.0.1:", line, (self.root / "log").read_text())
        return int(line.partition("127.0.0.1:")[2].split()[0].strip("/.,;"))

    def post(self, port, path, body=None, place=None):
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        c.request("POST", path, json.dumps(body) if body else None, {"Last-Event-ID": place} if place else {})
        answer = c.getresponse()
        data = answer.read()
        c.close()
        return answer.status, data

    def test_journals(self):
        for kept in sorted(FORMATS.glob("journal-*.json")):
            with self.subTest(kept.stem):
                wanted = json.loads(kept.read_text())
                journal = self.root / kept.with_suffix(".db").name
                shutil.copy(kept.with_suffix(".db"), journal)
                with sqlite3.connect(journal) as db:  # else it would be swept as an hour old
                    db.execute("UPDATE streams SET created = ?", (int(time.time()),))
                db.close()
                status, data = self.post(self.serve(journal), wanted["path"], place=wanted["place"])
                self.assertEqual(status, 200, data)
                events = [e for _, e in events_in(data) if e != "[DONE]"]
                self.assertEqual("".join(e["choices"][0]["text"] for e in events if e["choices"]), wanted["after"])

    def test_a_newer_journal(self):
        journal = self.root / "journal.db"
        shutil.copy(FORMATS / "journal-263802c.db", journal)
        set_version(journal, 2)
        before = digest(journal)
        status, data = self.post(self.serve(journal), "/v1/completions", {"prompt": "x", "max_tokens": 2})
        self.assertEqual(status, 200, data)
        said = (self.root / "log").read_text()
        for word in ("version 2", "version 1", "--journal", "cannot be resumed"):
            self.assertIn(word, said)
        self.assertEqual(digest(journal), before)

    # --- caches of rows ---

    def rows(self, where, commands):
        done = subprocess.run([PROBE, "rows", where, "8"], input=commands, capture_output=True, text=True, timeout=30)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split("\n"), done.stderr

    def old_rows(self):
        path = self.root / "rows.db"
        shutil.copy(FORMATS / "rows-e0d2b23.db", path)
        with sqlite3.connect(path) as db:
            db.execute("UPDATE entries SET expires = ?", (int(time.time()) + 1000,))
        db.close()
        return path

    def test_rows(self):
        path = self.old_rows()
        self.assertEqual(self.rows(f"sqlite:{path}", "get 3 5 9\n")[0][0], "rows 1 1 0")
        with sqlite3.connect(path) as db:
            self.assertEqual(db.execute("PRAGMA user_version").fetchone(), (1,))
            self.assertEqual(db.execute("SELECT count(*) FROM entries").fetchone(), (2,))
        db.close()

    def test_newer_rows(self):
        path = self.old_rows()
        set_version(path, 7)
        before = digest(path)
        for round_ in range(2):
            out, said = self.rows(f"sqlite:{path}", "get 3 5\nput 3\nput 5\nsettle\nget 3 5\n")
            self.assertEqual((out[0], out[-2]), (f"rows {round_} {round_}", "rows 1 1"))  # nothing of it is believed
            self.assertEqual(said.count("version 7"), 1, said)
            self.assertIn("version 1", said)
            self.assertEqual(digest(path), before)
        self.assertTrue((self.root / "rows.db.v1").exists())

    def test_rows_in_redis(self):
        path = self.old_rows()
        with sqlite3.connect(path) as db:
            entries = db.execute("SELECT key, value FROM entries").fetchall()
        db.close()
        redis = servers.start_redis()
        self.addCleanup(redis.stop)
        for key, value in entries:
            redis.command("SET", key, value)
        self.assertEqual(self.rows(redis.url, "get 3 5 9\n")[0][0], "rows 1 1 0")

    # --- people's files ---

    def test_keys(self):
        file = self.root / "keys.json"
        shutil.copy(FORMATS / "keys-263802c.json", file)
        file.chmod(0o600)
        listed = json.loads(self.must("keys", "list", "--file", file, "--json"))
        text = json.dumps(listed)
        for word in ("alice", "ops", "60"):
            self.assertIn(word, text)
        old = json.loads(file.read_text())["keys"]
        self.must("keys", "new", "carol", "--file", file)
        self.assertEqual(json.loads(file.read_text())["keys"][:2], old)

    def test_chat_and_history(self):
        case = Chat()
        Chat.knot = self.synth
        case.root, old = self.root, json.loads((FORMATS / "chat-263802c.json").read_text())
        shutil.copy(FORMATS / "chat-263802c.json", self.root / "old.json")
        (self.root / "state" / "cobord").mkdir(parents=True)
        history = self.root / "state" / "cobord" / "history"
        shutil.copy(FORMATS / "history-263802c", history)
        case.lines = [f"/load {self.root}/old.json\n", f"/save {self.root}/new.json\n", "\x04"]
        self.assertEqual(case.run(environment(self.root)), 0, case.said)
        self.assertEqual(json.loads((self.root / "new.json").read_text())["messages"], old["messages"])
        kept = (FORMATS / "history-263802c").read_text()
        self.assertTrue(history.read_text().startswith(kept + "/load"), history.read_text())


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
