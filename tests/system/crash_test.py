#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program is killed at any change that it makes to files, before the change or in the middle of a write: encode,
repair, synth, verify, plan, deploy, keys, pull, the cache of encoded models, what a chat saves and its history. What
was there before is there still, or what is there after a whole run; the next run cleans up and succeeds, a download
goes on. And by the order of the calls a power cut leaves no more: a file is synced before it gets its name, the
directory after.

    crash_test.py [--all]     --all: every change; else some of each"""
import json
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
from support import Checks, must  # noqa: E402
from _crashes import COBORD, DATA, PART, ROOT, Case, Trial, digest  # noqa: E402
from pull_test import Hub  # noqa: E402

KNOTS = DATA / "knot"
SOME = 5


class Encode(Case):
    name, results = "encode", ["x.knot"]

    def words(self):
        return ["encode", KNOTS / "tiny.gguf", "-o", self.root / "x.knot"]


class EncodeOver(Encode):
    """Over one that is there, version 1."""
    name = "encode-over"

    def prepare(self):
        shutil.copy(KNOTS / "tied-v2.knot", self.root / "x.knot")

    def words(self):
        return [*super().words(), "--knot-version", "1"]


class Repair(Case):
    name, results = "repair", ["x.knot"]

    def words(self):
        return ["repair", KNOTS / "error-stale.knot", "-o", self.root / "x.knot"]


class Synth(Case):
    name, results = "synth", ["x.knot"]

    def words(self):
        return ["synth", "--shape", "test", "--seed", "7", "-o", self.root / "x.knot"]


class Verify(Case):
    name, results = "checked", ["x.knot"]
    # The note that a file was checked: one that is lost or cut is not the text that is looked for: checked again.
    unsynced = [r"\.checked$"]

    def prepare(self):
        shutil.copy(self.knot, self.root / "x.knot")

    def words(self):
        return ["logits", self.root / "x.knot", "--tokens", "1,2", "--hash", "--context", "64"]

    def look(self):
        note = self.root / "x.knot.checked"
        whole = note.is_file() and re.fullmatch(rb"cobord checked 1( \d+){4} [0-9a-f]{16}\n", note.read_bytes())
        return {**super().look(), "note": bool(whole)}


class Plan(Case):
    name, results = "plan", ["cluster.json", "key"]
    unsynced = Verify.unsynced

    def words(self):
        return ["plan", self.knot, "--stations", "1", "--shards", "1", "-o", self.root / "cluster.json", "--key-file",
                self.root / "key", "--listen", "127.0.0.1:9000"]

    def value(self, name, path):
        return key_of(path) if name == "key" else digest(path)


def key_of(path):
    """Keys differ from run to run: whether it is a whole one."""
    if not path.is_file():
        return None
    assert path.stat().st_mode & 0o077 == 0, f"others may read {path}"
    return "whole" if re.fullmatch(rb"[0-9a-f]{64}\n", path.read_bytes()) else path.read_bytes()


class KeysNew(Case):
    name, again = "keys-new", (0, 1)  # 1: it is there already

    def prepare(self):
        assert self.keys("new", "alice").returncode == 0

    def keys(self, *words):
        return subprocess.run([COBORD, "keys", *words, "--file", str(self.root / "keys.json")], capture_output=True)

    def words(self):
        return ["keys", "new", "bob", "--file", self.root / "keys.json"]

    def look(self):
        path = self.root / "keys.json"
        assert path.stat().st_mode & 0o077 == 0, "others may read the keys"
        return {"keys": tuple(k["name"] for k in json.loads(path.read_text())["keys"])}


class KeysFirst(KeysNew):
    name = "keys-first"

    def prepare(self):
        pass

    def look(self):
        return super().look() if (self.root / "keys.json").exists() else {"keys": None}


class KeysRevoke(KeysNew):
    name = "keys-revoke"

    def prepare(self):
        super().prepare()
        assert self.keys("new", "bob").returncode == 0

    def words(self):
        return ["keys", "revoke", "bob", "--file", self.root / "keys.json"]


class Cached(Case):
    """A GGUF file by its path: encoded into the cache."""
    name = "cached"
    unsynced = Verify.unsynced

    def words(self):
        return ["tokenize", KNOTS / "tiny.gguf"]

    def run(self, env):
        done = subprocess.run([COBORD, *map(str, self.words())], input=b"a\n", capture_output=True, env=env, timeout=60)
        self.said = done.stderr.decode(errors="replace")
        return done.returncode

    def look(self):
        models = self.root / "cache" / "models"
        return {"knot": sorted(digest(p) for p in models.glob("*.knot")) or None}


class Pull(Cached):
    """From a hub on this machine, in pieces as they come."""
    name, again = "pull", (0,)

    def __init__(self, hub, file):
        self.hub, self.file = hub, file
        self.name = "pull-" + file.replace(".", "-")

    def words(self):
        return ["pull", f"{self.hub.address}/{self.file}"]

    def run(self, env):
        self.hub.requests.clear()
        return Case.run(self, env)

    def crashed(self):
        parts = list((self.root / "cache" / "models").glob(".*.pull/model.gguf"))
        tags = list((self.root / "cache" / "models").glob(".*.pull/model.gguf.tag"))
        self.had = parts[0].stat().st_size if parts and tags else 0
        self.done = self.look()["knot"] is not None
        return []

    def ran_again(self):
        """It goes on where it was."""
        asked = [r["range"] for r in self.hub.requests]
        if self.done:
            return [f"fetches again: {asked}"] if asked else []
        wanted = f"bytes={self.had}-" if self.had else None
        return [] if asked and asked[0] == wanted else [f"asks for {asked} after {self.had} bytes"]


class Deploy(Case):
    name = "deploy"
    unsynced = Verify.unsynced
    results = ["out/cluster.json", "out/key", "out/module/cobord.wasm", "out/module/station.mjs",
               "out/coordinator-0/wrangler.json", "out/station-0/wrangler.json", "out/shard-0/wrangler.json"]

    def prepare(self):
        modules = self.root / "modules"
        modules.mkdir()
        for script in ("coordinator", "station", "shard"):
            shutil.copy(ROOT / "workers" / f"{script}.mjs", modules)
        (modules / "cobord.wasm").write_bytes(bytes(range(256)) * 100)
        wrangler = self.root / "wrangler"
        wrangler.write_text("#!/bin/sh\necho 4.86.0\n")
        wrangler.chmod(0o755)

    def words(self):
        return ["deploy", "cloudflare", self.knot, "--dry-run", "--stations", "1", "--shards", "1", "-o",
                self.root / "out", "--modules", self.root / "modules", "--wrangler", self.root / "wrangler"]

    def value(self, name, path):
        return key_of(path) if name == "out/key" else digest(path)


class Chat(Case):
    """At a terminal: a message, and the conversation saved over an older one."""
    name = "chat"
    unsynced = [*Verify.unsynced, r"/history$"]  # a convenience: the last lines may go with the power
    lines = None

    def prepare(self):
        (self.root / "chat.json").write_text('{"messages": []}\n')

    def words(self):
        return ["run", self.knot, "--temperature", "0", "--max-tokens", "2", "--context", "128"]

    def run(self, env):
        ours, theirs = pty.openpty()
        child = subprocess.Popen([COBORD, *map(str, self.words())], stdin=theirs, stdout=theirs, stderr=theirs,
                                 env={**env, "TERM": "dumb"}, start_new_session=True)
        os.close(theirs)
        self.said, self.child = "", child
        try:
            for text in self.lines or ("hi\n", f"/save {self.root}/chat.json\n", "\x04"):
                self.listen(ours, lambda: re.search(r"> \Z", self.said[-200:].replace("\x1b[K", "").rstrip("\r")))
                self.said += "\n"
                os.write(ours, text.encode())
            self.listen(ours, lambda: False)
        except OSError:
            pass
        finally:
            code = child.wait(20)
            os.close(ours)
        return code

    def listen(self, terminal, truth, seconds=20):
        end = time.monotonic() + seconds
        while not truth() and time.monotonic() < end:
            if select.select([terminal], [], [], 0.02)[0]:
                self.said += os.read(terminal, 4096).decode(errors="replace")
            elif self.child.poll() is not None:
                return

    def history(self):
        path = self.root / "state" / "cobord" / "history"
        return path.read_text().splitlines(keepends=True) if path.exists() else []

    def look(self):
        whole = {line for line in self.history() if line.endswith("\n")}
        return {"chat": digest(self.root / "chat.json"), **{line: True for line in sorted(whole)}}

    def ran_again(self):
        torn = [line for line in self.history() if line not in ("hi\n", f"/save {self.root}/chat.json\n")]
        return [f"history has {torn}"] if torn else []


def cases(knot, hub):
    Verify.knot = Plan.knot = Deploy.knot = Chat.knot = knot
    return [Encode(), EncodeOver(), Repair(), Synth(), Verify(), Plan(), KeysNew(), KeysFirst(), KeysRevoke(), Cached(),
            Pull(hub, "tiny.gguf"), Pull(hub, "tiny.knot"), Deploy(), Chat()]


def main():
    checks, everything, only = Checks(), "--all" in sys.argv[1:], [a for a in sys.argv[1:] if a[0] != "-"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        knot = folder / "model.knot"
        must("synth", "--shape", "test", "-o", knot)
        hub = Hub((KNOTS / "tiny.gguf").read_bytes())
        hub.bodies["/tiny.knot"] = (KNOTS / "tiny-v2.knot").read_bytes()
        runs = points = 0
        for case in cases(knot, hub):
            if only and case.name not in only:
                continue
            begun = time.monotonic()
            trial = Trial(checks, case, folder).all(None if everything else SOME)
            runs, points = runs + trial.runs, points + len(trial.points())
            print(f"{case.name}: killed at {trial.runs} of {len(trial.points())} places, {len(trial.lines)} changes, "
                  f"{time.monotonic() - begun:.1f} s", flush=True)
        hub.shutdown()
        print(f"{runs} of {points} places to die")
    return checks.end()


if __name__ == "__main__":
    sys.exit(main())
