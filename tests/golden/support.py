# SPDX-License-Identifier: Apache-2.0
"""What golden and system tests share: calling the program, and saying what failed."""
import json
import os
import pathlib
import subprocess
import sys

COBORD = os.environ.get("COBORD", "build/cobord")
DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
MODELS = ["qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", "smollm2-135m", "gemma3-270m"]


def run(*args, stdin=None, timeout=900, env=None):
    """The finished process: returncode, stdout and stderr as bytes."""
    return subprocess.run([COBORD, *map(str, args)], input=stdin, capture_output=True, timeout=timeout,
                          env={**os.environ, **(env or {})})


def must(*args, **kw):
    """Standard output of a call that has to succeed."""
    done = run(*args, **kw)
    if done.returncode:
        raise SystemExit(f"cobord {' '.join(map(str, args))[:150]}: exit {done.returncode}: "
                         f"{done.stderr.decode(errors='replace')[-400:]}")
    return done.stdout


def models_folder():
    """Where `cobord pull` keeps its files."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(os.environ.get("COBORD_CACHE") or pathlib.Path(cache) / "cobord") / "models"


def logits(model, tokens, *options):
    return json.loads(must("logits", model, "--tokens", ",".join(map(str, tokens)), "--json", *options))


class Checks:
    """Collects failures; `end` prints them and gives the exit code."""

    def __init__(self):
        self.count = 0
        self.failures = []

    def that(self, truth, text):
        self.count += 1
        if not truth:
            self.failures.append(text)
            print("FAILED:", text, file=sys.stderr)
        return truth

    def refused(self, done, code, *words):
        """A clear refusal: this exit code, one line on standard error with all the words, nothing like a crash."""
        line = done.stderr.decode(errors="replace")
        self.that(done.returncode == code, f"exit {done.returncode} instead of {code}: {line[-300:]}")
        self.that(line.startswith("cobord: ") and line.count("\n") == 1, f"not one clear line: {line[-300:]!r}")
        for word in words:
            self.that(word in line, f"no {word!r} in {line[-300:]!r}")

    def end(self):
        print(f"{self.count - len(self.failures)} of {self.count} checks hold")
        return 1 if self.failures or not self.count else 0
