#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cobord serve while its calls fail, one after the other: when it starts, and while it answers.

    fail_serving_test.py [--all]     --all: every n; else some of each kind

At its start it says in one line what is wrong and ends, or it serves. While it answers, the one request ends with a
clear error, a connection that breaks, or the right text; the next has the right text; and at the end there are as
many descriptors as before, no slot is taken, and little more memory.
"""
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

from _faults import UNSEEN, Faults, chosen, descriptors
from _nodes import first_line
from serve_test import environment, events_in

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
from support import COBORD, Checks, must  # noqa: E402

PROMPT = {"prompt": "river stone bread", "temperature": 0, "max_tokens": 5, "logit_bias": {"0": -100, "1": -100}}
KINDS = ["memory", "read", "write", "sync", "open", "net", "wait", "thread"]
START_SECONDS = 30
SOME = 4


class Server:
    """cobord serve with the library in it. Its address, or None when it ended by itself."""

    def __init__(self, faults, model, folder):
        self.log = tempfile.TemporaryFile("a+")
        more = ["--journal", folder / "journal.db", "--context", "128", "--slots", "2", "--threads", "2"]
        self.process = subprocess.Popen(
            [COBORD, "serve", model, "--listen", "127.0.0.1:0", *map(str, more)], text=True,
            stdout=subprocess.PIPE, stderr=self.log,
            env={**environment(), "XDG_STATE_HOME": str(folder), "COBORD_CACHE": str(folder / "cache"),
                 **faults.environment})
        self.port = self.wait_for_port()

    def wait_for_port(self):
        match = re.search(r":(\d+)$", first_line(self.process, START_SECONDS) or "")
        return int(match.group(1)) if match else None

    def errors(self):
        self.log.seek(0)
        return self.log.read()

    def call(self, path, body=None, timeout=20):
        """(status, text); 0: the connection broke."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            c.request("POST" if body else "GET", path, json.dumps(body) if body else None,
                      {"Content-Type": "application/json"} if body else {})
            answer = c.getresponse()
            return answer.status, answer.read().decode()
        except TimeoutError:
            return -1, "no answer in time"
        except (OSError, http.client.HTTPException) as error:
            return 0, repr(error)
        finally:
            c.close()

    def figure(self, name):
        match = re.search(rf"^{name} (\S+)$", self.call("/metrics")[1], re.M)
        return float(match.group(1)) if match else None

    def memory(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) << 10

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = None
        self.process.stdout.close()
        return code


def streamed(text):
    """What a stream's events say: (text, None), or (text, what broke it off)."""
    out, why = "", "no end"
    for block in text.split("\n\n"):
        if not block.strip() or block.startswith(":"):
            continue
        try:
            _, event = events_in(block.encode() + b"\n\n")[0]
        except (AssertionError, ValueError):
            return out, "cut off"
        if event == "[DONE]":
            why = None
        elif "error" in event:
            return out, "an error" if event["error"]["message"] else "an error without words"
        elif event.get("choices"):
            out += event["choices"][0]["text"]
    return out, why


class Serving:
    """One server that is asked again and again."""

    def __init__(self, checks, faults, model, folder):
        self.checks, self.faults = checks, faults
        self.server = Server(faults, model, folder)
        assert self.server.port, self.server.errors()
        self.runs = 0
        self.ask()
        self.right = self.ask()
        assert self.right[0] == 200 and self.stream() == (200, self.right[1]), (self.right, self.stream())

    def ask(self, seconds=20):
        status, text = self.server.call("/v1/completions", PROMPT, seconds)
        return status, json.loads(text)["choices"][0]["text"] if status == 200 and text else text

    def stream(self, seconds=20):
        status, text = self.server.call("/v1/completions", {**PROMPT, "stream": True}, seconds)
        if status != 200:
            return status, text
        said, why = streamed(text)
        return (200, said) if why is None else (0 if self.right[1].startswith(said) else -2, f"{said}: {why}")

    def fair(self, answer, where):
        """A clear error, a broken connection, or the right text."""
        status, text = answer
        if status == 200:
            self.checks.that(text == self.right[1], f"{where}: says {text!r}, not {self.right[1]!r}")
        elif status >= 400:
            try:
                message = json.loads(text)["error"]["message"]
            except (ValueError, KeyError, TypeError):
                message = ""
            self.checks.that(bool(message), f"{where}: {status} without words: {text[:200]!r}")
        else:
            self.checks.that(status == 0, f"{where}: {text}")

    def one(self, ask, kind, at, lasts, libraries, where):
        self.faults.arm("self", kind, at, lasts, libraries)
        unheard = kind == "net" and lasts and libraries  # who accepts nobody hears nobody, until it does again
        answer = ask(1 if unheard else 20)
        self.faults.disarm("self")
        self.runs += 1
        if unheard and answer[0] == -1:
            answer = (0, "")
        self.fair(answer, where)
        if kind in UNSEEN:
            self.checks.that(answer == self.right, f"{where}: is noticed: {answer}")
        end, after = time.monotonic() + 3, self.ask()
        while after[0] == 503 and time.monotonic() < end:  # what was cut off is cleared away meanwhile
            time.sleep(0.02)
            after = self.ask()
        self.checks.that(after == self.right, f"{where}: the next one: {after}")
        alive = self.server.process.poll() is None
        self.checks.that(alive, f"{where}: ended with {self.server.process.poll()}: {self.server.errors()[-600:]}")
        return alive

    def every(self, kind, libraries, everything):
        for name, ask in (("answer", self.ask), ("stream", self.stream)):
            self.faults.arm("self", kind, 0, False, libraries)
            ask()
            calls = self.faults.count("self")
            self.faults.disarm("self")
            for at in chosen(calls, everything, SOME):
                for lasts in (False,) if kind in ("short", "again") else (True,) if kind == "one" else (False, True):
                    where = f"{name}, {kind} {at}{' and on' if lasts else ''}{' everywhere' if libraries else ''}"
                    if not self.one(ask, kind, at, lasts, libraries, where):
                        return False
        return True

    def settled(self, before, where):
        """Descriptors and slots are back where they were."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            now = descriptors(self.server.process.pid)
            slots = self.server.figure("cobord_slots_active")
            if now <= before and slots == 0:
                break
            time.sleep(0.05)
        self.checks.that(now <= before, f"{where}: {before} descriptors before, {now} after")
        self.checks.that(slots == 0, f"{where}: {slots} slots are taken")


def while_it_answers(checks, model, folder, everything):
    with Faults() as faults:
        serving = Serving(checks, faults, model, folder)
        server = serving.server
        server.figure("cobord_slots_active")
        before, memory = descriptors(server.process.pid), server.memory()
        for kind in KINDS + UNSEEN:
            for libraries in (False, True):
                if kind == "memory" and libraries:
                    continue  # what a library does without memory is its own affair
                if not serving.every(kind, libraries, everything):
                    return serving.runs
                serving.settled(before, kind)
        grown = server.memory() - memory
        checks.that(grown < 8 << 20, f"{grown >> 10} KiB more memory after {serving.runs} requests")
        code = server.end()
        checks.that(code == 0, f"ends with {code}: {server.errors()[-600:]}")
        return serving.runs


def at_start(checks, model, folder, everything):
    """The n-th call of the whole start fails; it does not serve, or serves rightly."""
    runs = 0
    with Faults() as faults:
        server = Server(faults, model, folder)
        right = server.call("/v1/completions", PROMPT)
        text = json.loads(right[1])["choices"][0]["text"]
        server.end()
        for kind in KINDS + UNSEEN:
            faults.arm("self", kind, 0)
            server = Server(faults, model, folder)
            calls = faults.count("self")
            server.end()
            for at in chosen(calls, everything, SOME - 1):
                runs += 1
                where = f"start, {kind} {at}"
                faults.arm("self", kind, at, kind == "one")
                server = Server(faults, model, folder)
                faults.disarm("self")
                if server.port:
                    status, body = server.call("/v1/completions", PROMPT)
                    said = json.loads(body)["choices"][0]["text"] if status == 200 else body
                    checks.that((status, said) == (200, text), f"{where}: {status} {said[:300]!r}")
                    code = server.end()
                    checks.that(code == 0, f"{where}: ends with {code}: {server.errors()[-500:]}")
                    continue
                code = server.end()
                said = server.errors().strip()
                checks.that(code in (1, 2), f"{where}: code {code}: {said[-500:]}")
                checks.that(said.startswith("cobord") and len(said.split("\n")) <= 2, f"{where}: says {said[-500:]!r}")
                checks.that(kind not in UNSEEN, f"{where}: is noticed: {said}")
    return runs


def main():
    checks, everything = Checks(), "--all" in sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = folder / "small.knot"
        must("synth", "--shape", "test", "-o", model)
        must("verify", model)
        runs = at_start(checks, model, folder, everything)
        runs += while_it_answers(checks, model, folder, everything)
    print(f"{runs} runs")
    return checks.end()


if __name__ == "__main__":
    sys.exit(main())
