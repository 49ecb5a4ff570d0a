# SPDX-License-Identifier: Apache-2.0
"""Programs that are killed at each of their changes of files, and what must be there afterwards.

    class Encode(Case):
        name = "encode"
        results = ["x.knot"]                        # what the call makes, below the folder
        def words(self): return ["encode", GGUF, "-o", self.root / "x.knot"]

    trial = Trial(checks, Encode(), folder)     # once whole: what comes out, which changes there were, their order
    trial.all()                                 # killed before each change and in the middle of each write

Each time: every result is what was there before or what is there after a whole run; the next run succeeds, leaves what
a whole run leaves, and nothing else. tools/crash_nth.c does the killing and writes down the changes."""
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess

COBORD = os.path.abspath(os.environ.get("COBORD", "build/cobord"))
LIBRARY = os.path.abspath(os.environ.get("CRASH_NTH", "build/tests/libcrash_nth.so"))
ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
PART = re.compile(r"\.(\d+)\.part$")


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else None


def environment(root, **more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("COBORD_", "CRASH_", "AWS_"))}
    return {**kept, "COBORD_CACHE": str(root / "cache"), "XDG_STATE_HOME": str(root / "state"),
            "XDG_CONFIG_HOME": str(root / "config"), "COBORD_HUB": "none", **more}


class Case:
    name = "?"
    results = []
    again = (0,)          # exit codes of the run after a crash
    unsynced = ()         # patterns of files that may be lost in a power cut, with a reason beside each
    most = None           # at how many places it dies when all are wanted; None: at all
    root = None

    def prepare(self):
        """What is there before."""

    def words(self):
        raise NotImplementedError

    def run(self, env):
        """The exit code; negative: by which signal it ended."""
        done = subprocess.run([COBORD, *map(str, self.words())], capture_output=True, env=env, timeout=60)
        self.said = done.stderr.decode(errors="replace")
        return done.returncode

    def look(self):
        """{what: value} of all that must be old or new."""
        return {name: self.value(name, self.root / name) for name in self.results}

    def value(self, name, path):
        return digest(path)

    def crashed(self):
        """Looks at what a crash left, before the next run. Result: faults."""
        return []

    def ran_again(self):
        return []

    def files(self):
        """All that is there; names without the numbers of processes."""
        return sorted(str(p.relative_to(self.root)) for p in self.root.rglob("*"))


def order_faults(lines, root, unsynced=()):
    """What of a trace a power cut could leave half done. A file must be synced between its last write and the rename or
    link that gives it its name, and the directory after that; nothing may be written under a name that shows, but by
    those named in `unsynced`."""
    dirty, named, faults = set(), {}, []
    free = [re.compile(p) for p in unsynced]
    allowed = lambda path: any(p.search(path) for p in free)  # noqa: E731
    for line in lines:
        what, _, rest = line.partition(" ")
        path, _, more = rest.partition(" ")
        short = path.replace(str(root), "")
        if what in ("open", "write", "cut"):
            dirty.add(path)
        elif what == "sync":
            dirty.discard(path)
            for target in [t for t, folder in named.items() if folder == path]:
                del named[target]
        elif what in ("rename", "link"):
            if path in dirty and not allowed(path) and not allowed(more):
                faults.append(f"{short} gets its name {more.replace(str(root), '')} before it is synced")
            dirty.discard(path)
            named.pop(path, None)
            named[more] = os.path.dirname(more)
        elif what == "remove":
            dirty.discard(path)
            named.pop(path, None)
    for path in sorted(named):
        if not allowed(path):
            faults.append(f"the directory of {path.replace(str(root), '')} is not synced after the rename")
    for path in sorted(dirty):
        if not allowed(path) and os.path.exists(path):
            faults.append(f"{path.replace(str(root), '')} is written where it is read, without a sync")
    return faults


class Trial:
    def __init__(self, checks, case, folder):
        self.checks, self.case, self.runs = checks, case, 0
        self.folder = folder
        case.root = folder / case.name
        self.trace = folder / f"{case.name}.trace"
        self.begin()
        self.old = case.look()
        code = case.run(self.env(CRASH_TRACE=str(self.trace)))
        assert code == 0, (case.name, code, case.said)
        self.lines = self.trace.read_text().splitlines() if self.trace.exists() else []
        self.new, self.files = case.look(), case.files()
        assert self.lines and self.old != self.new, (case.name, self.lines, self.new)
        faults = order_faults(self.lines, case.root, case.unsynced)
        checks.that(not faults, f"{case.name}: {'; '.join(faults)}")

    def begin(self):
        shutil.rmtree(self.case.root, ignore_errors=True)
        self.case.root.mkdir()
        self.case.prepare()

    def env(self, **crash):
        if not crash:
            return environment(self.case.root)
        return environment(self.case.root, LD_PRELOAD=LIBRARY, CRASH_UNDER=str(self.case.root), **crash)

    def crash(self, at, half):
        case = self.case
        where = f"{case.name}, {'in the middle of' if half else 'before'} change {at} ({self.line(at)})"
        self.begin()
        code = case.run(self.env(CRASH_AT=str(at), **({"CRASH_HALF": "1"} if half else {})))
        self.runs += 1
        if not self.checks.that(code == -signal.SIGKILL, f"{where}: is not killed, exit {code}: {case.said[-200:]}"):
            return
        for what, value in case.look().items():
            known = value in (self.old.get(what), self.new.get(what))
            self.checks.that(known, f"{where}: {what} is neither old nor new")
        for fault in case.crashed():
            self.checks.that(False, f"{where}: {fault}")
        code = case.run(self.env())
        self.checks.that(code in case.again, f"{where}: the next run exits with {code}: {case.said[-300:]}")
        self.checks.that(case.look() == self.new, f"{where}: after the next run {case.look()}, not {self.new}")
        files = case.files()
        self.checks.that(files == self.files, f"{where}: the next run leaves {sorted(set(files) ^ set(self.files))}")
        for fault in case.ran_again():
            self.checks.that(False, f"{where}: {fault}")

    def line(self, at):
        line = self.lines[at - 1] if at <= len(self.lines) else "?"
        return PART.sub(".PID.part", line.replace(str(self.case.root), ""))

    def points(self):
        """All places to die: before each change, and in each write."""
        out = [(at, False) for at in range(1, len(self.lines) + 1)]
        return out + [(at, True) for at, line in enumerate(self.lines, 1)
                      if line.startswith("write ") and not line.endswith(" 1")]

    def some(self, count):
        points = self.points()
        if count is None or len(points) <= count:
            return points
        return sorted({points[i * (len(points) - 1) // max(count - 1, 1)] for i in range(count)})

    def all(self, count=None):
        for at, half in self.some(count):
            self.crash(at, half)
        return self
