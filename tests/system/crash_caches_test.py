#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers and nodes that are killed at any change that they make to their caches and journals: rows in SQLite, slabs of
a warden's directory, the journal. Afterwards each entry is right or missing, never wrong; the next start works, cleans
up, and a stream goes on with the same text.

    crash_caches_test.py [--all]     --all: every change; else some of each"""
import http.client
import json
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
from support import Checks, must  # noqa: E402
from _crashes import COBORD, Case, Trial, digest, environment  # noqa: E402
from _ports import free_ports  # noqa: E402

PROBE = os.path.abspath(os.environ.get("STORE_PROBE", "build/tests/store_probe"))
SOME = 4
SQLITE = [r"\.db(-wal|-shm|-journal)?$"]  # its own protocol; what it loses in a power cut are the last entries


class Rows(Case):
    """The values are the probe's own; it says 2 when one that it finds is wrong."""
    name, unsynced = "rows", SQLITE

    def probe(self, commands, env):
        return subprocess.run([PROBE, "rows", f"sqlite:{self.root}/rows.db", "64"], input=commands, text=True,
                              capture_output=True, env=env, timeout=60)

    def run(self, env):
        done = self.probe("put 3\nput 5\nsettle\nput 7\ndelete 5\nsettle\nput 5\nput 9\nsettle\n", env)
        self.said = done.stderr + done.stdout
        return done.returncode if done.returncode or "error" not in done.stdout else 1

    def look(self):
        words = self.probe("get 3 5 7 9\n", environment(self.root)).stdout.split()
        return dict(zip(("rows", "3", "5", "7", "9"), words))


class Server(Case):
    """A process that is asked things, then ended by SIGTERM, if it lives as long."""

    def begin(self, env):
        self.log = open(self.root.parent / f"{self.name}.log", "w+")
        self.child = subprocess.Popen([COBORD, *map(str, self.words())], stdout=subprocess.PIPE, stderr=self.log,
                                      text=True, env=env)
        return self.child.stdout.readline()

    def end(self):
        if self.child.poll() is None:
            self.child.terminate()
        code = self.child.wait(30)
        self.child.stdout.close()
        self.log.seek(0)
        self.said = self.log.read()
        self.log.close()
        return code

    def run(self, env):
        line = self.begin(env)
        try:
            if line:
                self.ask(line)
        except (OSError, http.client.HTTPException):
            pass
        return self.end()


class Slabs(Server):
    name = "slabs"

    def prepare(self):
        port = free_ports(4)
        place = lambda i: f"127.0.0.1:{port[i]}"  # noqa: E731
        info = json.loads(must("info", self.knot, "--json"))
        self.port, self.layers = port[3], info["model"]["layers"]
        (self.root / "cluster.json").write_text(json.dumps({
            "cobord_cluster": 1, "context": 64, "coordinator": {"id": "coordinator-0", "address": place(0)},
            "model": {"name": "m", "knot_id": info["id"], "knot_key": self.knot.name, "store": str(self.knot.parent),
                      "layers": self.layers, "vocabulary": info["model"]["vocabulary"]},
            "stations": [{"id": "station-0", "address": place(1), "range": "0-end", "warden": "layer-warden-0"}],
            "shards": [{"id": "shard-0", "address": place(2), "ids": [0, info["model"]["vocabulary"]]}],
            "layer_wardens": [{"id": "layer-warden-0", "address": place(3), "range": "0-end",
                               "cache": f"dir:{self.root}/disk"}]}))
        self.payload = self.knot.read_bytes()[info["payload_offset"]:]

    def words(self):
        return ["node", "--cluster", self.root / "cluster.json", "--id", "layer-warden-0"]

    def ask(self, line):
        for layer in range(self.layers):
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
            c.request("GET", f"/tensor/blk_{layer}_attn_q_weight")
            answer = c.getresponse()
            body = answer.read()
            assert answer.status == 200, (answer.status, body[:200])
            c.close()
        end = time.monotonic() + 5  # kept after the answer
        while not list((self.root / "disk").glob("*/*.slab")) and time.monotonic() < end and self.child.poll() is None:
            time.sleep(0.01)

    def look(self):
        kept = {p.name: p.read_bytes() for p in (self.root / "disk").glob("*/*.slab")}
        return {name: data == self.payload[int(name[:8]) << 22:][:len(data)] and len(data)  # a cut one has too few
                for name, data in kept.items()}

    def files(self):
        return [f for f in super().files() if not f.endswith(".checked")]


class Slice(Server):
    """What a station without the file keeps of it on disk, fetched over HTTP. With --all only: it has the zoo's model,
    since a small one stays in memory; and at some of its changes, nearly all of which are writes of the same kind."""
    name, unsynced, most = "slice", [r"\.checked$"], 40

    def __init__(self):
        from _wardens import MODEL, FileServer
        self.model, self.store = MODEL, FileServer(MODEL.path.parent)
        self.store.__enter__()

    def prepare(self):
        port = free_ports(4)
        place = lambda i: f"127.0.0.1:{port[i]}"  # noqa: E731
        m = self.model
        (self.root / "cluster.json").write_text(json.dumps({
            "cobord_cluster": 1, "context": 1024, "memory": 56 << 20,
            "coordinator": {"id": "coordinator-0", "address": place(0)},
            "model": {"name": "m", "knot_id": m.knot_id, "knot_key": m.path.name, "store": self.store.url,
                      "layers": m.layers, "vocabulary": m.vocabulary},
            "stations": [{"id": "station-0", "address": place(1), "range": "0-15"},
                         {"id": "station-1", "address": place(2), "range": "15-end"}],
            "shards": [{"id": "shard-0", "address": place(3), "ids": [0, m.vocabulary]}]}))

    def words(self):
        return ["node", "--cluster", self.root / "cluster.json", "--id", "station-0"]

    def ask(self, line):
        """It is ready when it says its line."""

    def look(self):
        return {"slice": digest(self.root / "cache" / "slices" / self.model.knot_id / "station-0.knot")}


class Journal(Server):
    """A stream with a seed: what was journaled of it is its beginning, and it goes on."""
    name, unsynced = "journal", [*SQLITE, r"\.checked$"]
    BODY = {"prompt": "The sea is", "max_tokens": 24, "temperature": 0.8, "seed": 11, "stream": True}

    def words(self):
        return ["serve", self.knot, "--listen", "127.0.0.1:0", "--context", "128", "--journal",
                self.root / "journal.db", "--drafts", "0"]

    def post(self, port, body, place, out):
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        c.request("POST", "/v1/completions", body, {"Last-Event-ID": place} if place else {})
        answer = c.getresponse()
        assert answer.status == 200, answer.read()
        event = None
        for line in answer:
            line = line.decode().rstrip("\n")
            if line.startswith("id: "):
                event = line[4:]
            elif line.startswith("data: {"):
                choices = json.loads(line[6:])["choices"]
                out.append((event, choices[0]["text"] if choices else ""))
        c.close()

    def ask(self, line):
        self.got = []
        port = int(re.search(r"127\.0\.0\.1:(\d+)", line).group(1))
        self.post(port, json.dumps(self.BODY), None, self.got)

    def look(self):
        path = self.root / "journal.db"
        if not path.exists():
            return {"journal": None}
        with tempfile.TemporaryDirectory() as folder:  # as it stands, with its log
            for part in self.root.glob("journal.db*"):
                (pathlib.Path(folder) / part.name).write_bytes(part.read_bytes())
            db = sqlite3.connect(pathlib.Path(folder) / "journal.db")
            try:
                whole = db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            finally:
                db.close()
        return {"journal": "whole" if whole else "damaged"}

    def crashed(self):
        events = [e for e in getattr(self, "got", []) if e[0]]
        if not events:
            return []
        before, after = "".join(t for _, t in self.got), []
        port = int(re.search(r"127\.0\.0\.1:(\d+)", self.begin(environment(self.root))).group(1))
        try:
            self.post(port, None, events[-1][0], after)
        except AssertionError as refused:
            return [f"the stream cannot go on: {refused}"]
        finally:
            self.end()
        text = before + "".join(t for _, t in after)
        return [] if text == self.text else [f"goes on with another text: {text!r}"]

    def run(self, env):
        self.got = []
        code = super().run(env)
        if code == 0 and not hasattr(self, "text"):
            self.text = "".join(t for _, t in self.got)
        return code

    def files(self):
        return [f for f in super().files() if not f.endswith(".checked")]


def main():
    checks, everything, only = Checks(), "--all" in sys.argv[1:], [a for a in sys.argv[1:] if a[0] != "-"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        (folder / "models").mkdir()
        Slabs.knot = Journal.knot = folder / "models" / "model.knot"
        must("synth", "--shape", "test", "-o", Slabs.knot)
        must("logits", Slabs.knot, "--tokens", "1", "--context", "64")  # so that it is known to be whole
        runs = points = 0
        for case in [Rows(), Slabs(), Journal(), *([Slice()] if everything else [])]:
            if only and case.name not in only:
                continue
            begun = time.monotonic()
            trial = Trial(checks, case, folder).all(case.most if everything else SOME)
            runs, points = runs + trial.runs, points + len(trial.points())
            print(f"{case.name}: killed at {trial.runs} of {len(trial.points())} places, {len(trial.lines)} changes, "
                  f"{time.monotonic() - begun:.1f} s", flush=True)
        print(f"{runs} of {points} places to die")
    return checks.end()


if __name__ == "__main__":
    sys.exit(main())
