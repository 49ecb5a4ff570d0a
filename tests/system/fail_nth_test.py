#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each call of the program that can fail does, once or from then on: memory, reading, writing, syncing, opening,
threads; and calls that move half of their bytes or are interrupted, which nobody may notice.

    fail_nth_test.py [--all]     --all: every n; else some of each kind

What must hold each time: no signal, no hang, one line on standard error when it failed, the right output when it did
not, and files either as they were or whole. fail_nth.c, loaded before the C library, does the failing.
"""
import collections
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
from support import COBORD, Checks, must  # noqa: E402

LIBRARY = os.path.abspath(os.environ.get("FAIL_NTH", "build/tests/libfail_nth.so"))
DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "knot"
KINDS = ["memory", "read", "write", "sync", "open", "net", "wait", "thread"]
UNSEEN = ["short", "again"]
BYTE_BY_BYTE = "one"
SOME = 5

# Arguments; `out` names a file that is made, `text` goes to standard input; what it prints is measured: not compared.
Case = collections.namedtuple("Case", "name arguments out text measures", defaults=(None, None, False))


def cases(folder):
    knot = folder / "good.knot"
    must("synth", "--shape", "test", "-o", knot)
    prompt = ["--temperature", "0", "--max-tokens", "3", "--context", "64", "--threads", "2"]
    return [
        Case("encode", ["encode", DATA / "tiny.gguf", "-o", "{out}"], "encoded.knot"),
        Case("repair", ["repair", DATA / "error-stale.knot", "-o", "{out}"], "repaired.knot"),
        Case("synth", ["synth", "--shape", "test", "-o", "{out}"], "made.knot"),
        Case("verify", ["verify", knot]),
        Case("info", ["info", knot, "--json"]),
        Case("run", ["run", knot, "hello", *prompt]),
        Case("logits", ["logits", knot, "--tokens", "1,2,3", "--hash", "--threads", "2"]),
        Case("tokenize", ["tokenize", knot, "--json-lines"], text='{"text":"a b"}\n{"text":"c"}\n'),
        Case("plan", ["plan", knot, "--memory", "64M", "--stations", "2", "--shards", "2"], measures=True),
    ]


class Trial:
    """One case in a folder of its own."""

    def __init__(self, checks, case, folder):
        self.checks, self.case, self.folder = checks, case, folder
        self.count = folder / "count"
        self.out = folder / case.out if case.out else None
        code, self.stdout, self.stderr = self.run({})
        assert code == 0, (case.name, self.stderr)
        self.whole = self.out.read_bytes() if self.out else None

    def run(self, settings):
        for path in self.folder.iterdir():
            path.unlink()
        arguments = [str(a).replace("{out}", str(self.out)) for a in self.case.arguments]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("COBORD_", "FAIL_"))}
        environment.update(XDG_CONFIG_HOME="/nonexistent", COBORD_CACHE=str(self.folder.parent / "cache"), **settings)
        done = subprocess.run([COBORD, *arguments], input=self.case.text, capture_output=True, text=True,
                              env=environment, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def calls(self, kind):
        self.fail(kind, 0)
        return int(self.count.read_text())

    def fail(self, kind, at, lasts=False):
        settings = {"LD_PRELOAD": LIBRARY, "FAIL_KIND": kind, "FAIL_AT": str(at), "FAIL_COUNT": str(self.count)}
        if lasts:
            settings["FAIL_LASTS"] = "1"
        return self.run(settings)

    def judge(self, kind, at, lasts):
        where = f"{self.case.name}, {kind} {at}{' and on' if lasts else ''}"
        try:
            code, stdout, stderr = self.fail(kind, at, lasts)
        except subprocess.TimeoutExpired:
            self.checks.that(False, f"{where}: hangs")
            return
        files = sorted(p.name for p in self.folder.iterdir() if p != self.count)
        if code == 0:
            self.checks.that(self.case.measures or stdout == self.stdout, f"{where}: prints {stdout[:200]!r}")
            self.checks.that(not self.out or self.out.read_bytes() == self.whole, f"{where}: another file")
        else:
            self.checks.that(code in (1, 2), f"{where}: code {code}, {stderr[-300:]!r}")
            said = stderr.strip()
            self.checks.that(said.startswith("cobord") and "\n" not in said, f"{where}: says {stderr[-300:]!r}")
            self.checks.that(not files, f"{where}: leaves {files}")
        if kind in [*UNSEEN, BYTE_BY_BYTE]:
            self.checks.that(code == 0, f"{where}: is noticed, {stderr[-300:]!r}")


def chosen(calls, everything):
    """Every number, or the first, the last and some between."""
    if everything or calls <= SOME:
        return range(1, calls + 1)
    return sorted({1 + i * (calls - 1) // (SOME - 1) for i in range(SOME)})


def main():
    checks, everything, runs = Checks(), "--all" in sys.argv[1:], 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for case in cases(folder):
            place = folder / case.name
            place.mkdir()
            trial = Trial(checks, case, place)
            for kind in KINDS + UNSEEN:
                for at in chosen(trial.calls(kind), everything):
                    for lasts in (False, True) if kind in KINDS else (False,):
                        trial.judge(kind, at, lasts)
                        runs += 1
            trial.judge(BYTE_BY_BYTE, 1, True)
            runs += 1
            shutil.rmtree(place)
    print(f"{runs} runs")
    return checks.end()


if __name__ == "__main__":
    sys.exit(main())
