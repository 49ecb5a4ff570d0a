# SPDX-License-Identifier: Apache-2.0
"""The programs that are compared: how each is called and what its output says.

Every run ends as a Sample: tokens/s of prefill, decode, each batch, each depth and beside spinning processes, and the
share of the processors that everybody else used meanwhile.
"""
import json
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

RUN_SECONDS_MAX = 3600
LOAD_TOKENS_MAX = 16  # beside spinning processes; threads that wait for each other spinning get through few


class BenchError(Exception):
    """What went wrong, to which thing, and what to do."""


def sequences(n):
    return f"{n} sequence{'s' * (n > 1)}"


def at_depth(n):
    return f"decode at {n}" if n else "decode"


def spinning(n):
    return f"decode beside {n} spinning"


@dataclass(frozen=True)
class Work:
    """What one run measures. A prompt of 0: no prefill."""
    threads: int
    prompt: int
    gen: int
    batch: list = field(default_factory=list)
    depths: list = field(default_factory=list)
    load: int = 0

    def measures(self):
        return (["prefill"] * bool(self.prompt) + ["decode"] + [sequences(n) for n in self.batch]
                + [at_depth(n) for n in self.depths if n] + [spinning(self.load)] * bool(self.load))


@dataclass
class Sample:
    tps: dict = field(default_factory=dict)  # measure -> tokens/s
    others: float = 0.0  # 0..1, of all processors
    facts: dict = field(default_factory=dict)


def call(command, output=True, log=None):
    """Runs to the end and returns standard output. Without `output` it goes to the terminal; with `log` all is kept
    there. The end of what a failing program said becomes the error."""
    with open(log, "a+") if log else tempfile.TemporaryFile("a+") as errors:
        out = subprocess.PIPE if output and not log else errors if log else None
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors if output else None,
                                  text=True, timeout=RUN_SECONDS_MAX)
        except OSError as error:
            raise BenchError(f"{command[0]}: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"{shlex.join(command)} did not end within {RUN_SECONDS_MAX} s") from error
        if done.returncode == 0:
            return done.stdout
        errors.seek(0)
        tail = "".join(errors.readlines()[-12:]).rstrip()
        how = f"exit code {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
        raise BenchError(f"{shlex.join(command)}: {how}" + (f"\n{tail}" if tail else ""))


def parsed(text, command):
    try:
        return json.loads(text)
    except ValueError as error:
        raise BenchError(f"{command[0]} printed no JSON: {error}. It must take llama-bench's options.") from error


def further(text):
    """[(name, command)] of "name=/path -option,name=/path"; a comma inside an option starts no new program."""
    found = []
    for entry in re.split(r",(?=[\w.-]+=[./~])", text):
        if not entry.strip():
            continue
        name, equals, rest = entry.strip().partition("=")
        command = shlex.split(rest)
        if not equals or not command:
            raise BenchError(f"COBORD_BENCH_PROGRAMS: {entry!r} is not name=/path")
        command[0] = os.path.expanduser(command[0])
        if not os.access(command[0], os.X_OK):
            raise BenchError(f"COBORD_BENCH_PROGRAMS: {command[0]} of {name} is not a program")
        found.append((name, command))
    return found


class Stopwatch:
    """How much of the processors others used while our own children ran. 0 where /proc does not tell."""

    def __enter__(self):
        self.wall, self.busy, self.own = time.monotonic(), busy_seconds(), own_seconds()
        return self

    def __exit__(self, *_):
        capacity = (time.monotonic() - self.wall) * (os.cpu_count() or 1)
        foreign = busy_seconds() - self.busy - (own_seconds() - self.own)
        self.others = max(0.0, foreign / capacity)


def busy_seconds():
    try:
        with open("/proc/stat") as f:
            user, nice, system, _idle, _wait, irq, softirq, steal = map(int, f.readline().split()[1:9])
    except (OSError, ValueError):
        return 0.0
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
    return sum(u.ru_utime + u.ru_stime for u in usages)


class Spinning:
    """`count` processes that do nothing but count. They end with us, however we end."""
    LOOP = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(1000000): pass"

    def __init__(self, count):
        self.count, self.children = count, []

    def __enter__(self):
        self.children = [subprocess.Popen([sys.executable, "-c", self.LOOP]) for _ in range(self.count)]
        time.sleep(0.3)  # interpreters start

    def __exit__(self, *_):
        for child in self.children:
            child.kill()
            child.wait()  # so that their time counts as ours


class Program:
    def __init__(self, name, work):
        self.name, self.work = name, work
        self.samples = []

    def run(self):
        sample = Sample()
        with Stopwatch() as watch:
            try:
                self.measure(sample)
            except (KeyError, TypeError) as error:
                raise BenchError(f"{self.name}: its JSON has no usable {error}") from error
        sample.others = watch.others
        self.samples.append(sample)

    def values(self, measure):
        return [s.tps[measure] for s in self.samples if measure in s.tps]


class LlamaBench(Program):
    """llama-bench, or a program that takes its options; batches by the llama-batched-bench beside it."""

    def __init__(self, name, command, gguf, work):
        super().__init__(name, work)
        self.command, self.gguf = command, gguf
        self.batched = os.path.join(os.path.dirname(command[0]), "llama-batched-bench")
        if not os.access(self.batched, os.X_OK):
            self.batched = None

    def bench(self, prompt, gen, depths=()):
        """measure -> tokens/s"""
        command = [*self.command, "-m", self.gguf, "-t", str(self.work.threads), "-p", str(prompt), "-n", str(gen),
                   "-r", "1", "-o", "json"]
        command += ["-d", ",".join(map(str, depths))] if depths else []
        found = {}
        for test in parsed(call(command), command):
            if test["n_prompt"] and not test["n_gen"]:
                found["prefill"] = test["avg_ts"]
            elif test["n_gen"] and not test["n_prompt"]:
                found[at_depth(test.get("n_depth", 0))] = test["avg_ts"]
        return found

    def warm_up(self):
        self.bench(16, 4)

    def measure(self, sample):
        work = self.work
        sample.tps = self.bench(work.prompt, work.gen)
        if work.batch and self.batched:
            self.measure_batches(sample)
        depths = [n for n in work.depths if n]
        if depths:
            sample.tps |= self.bench(0, work.gen, depths)
        if work.load:
            with Spinning(work.load):
                sample.tps[spinning(work.load)] = self.bench(0, min(work.gen, LOAD_TOKENS_MAX))["decode"]

    def measure_batches(self, sample):
        """From (almost) empty contexts, as Cobord's: one token of prompt, since none is refused."""
        context = max(self.work.batch) * (self.work.gen + 1)
        command = [self.batched, "-m", self.gguf, "-t", str(self.work.threads), "-c", str(max(context, 256)),
                   "-npp", "1", "-ntg", str(self.work.gen), "-npl", ",".join(map(str, self.work.batch)),
                   "--output-format", "jsonl"]
        for line in call(command).splitlines():
            if line.startswith("{"):
                test = parsed(line, command)
                sample.tps[sequences(test["pl"])] = test["speed_tg"]


class Cobord(Program):
    def __init__(self, program, model, work, isa="auto", memory=None, further_options=()):
        self.variant = ([] if isa == "auto" else [isa]) + ([memory] if memory else [])
        super().__init__(" ".join(["cobord", *self.variant]), work)
        self.program, self.model, self.isa, self.memory = program, model, isa, memory
        self.engine = ["--threads", str(work.threads), "--isa", isa, *further_options]
        self.engine += ["--memory", memory] if memory else []
        self.step_bytes = 0

    def bench(self, prompt, gen, batch=(), depth=0):
        command = [self.program, "bench", self.model, "--prompt", str(prompt), "--gen", str(gen), "--json",
                   *self.engine]
        command += ["--batch", ",".join(map(str, batch))] if batch else []
        command += ["--depth", str(depth)] if depth else []
        return parsed(call(command), command)

    def warm_up(self):
        """Also encodes a GGUF into the cache, the first time, and asks how many bytes one token reads."""
        self.bench(16, 4)
        command = [self.program, "logits", self.model, "--tokens", "1", "--top", "1", "--json", *self.engine]
        self.step_bytes = parsed(call(command), command).get("counters", {}).get("weight_bytes_read", 0)

    def measure(self, sample):
        work = self.work
        sample.facts = self.bench(work.prompt, work.gen, work.batch)
        if work.prompt:
            sample.tps["prefill"] = sample.facts["prefill_tps"]
        sample.tps["decode"] = sample.facts["decode_tps"]
        if work.batch:
            sample.tps |= {sequences(entry["n"]): entry["decode_tps"] for entry in sample.facts["batch"]}
        for depth in work.depths:
            if depth:
                sample.tps[at_depth(depth)] = self.bench(0, work.gen, depth=depth)["decode_tps"]
        if work.load:
            with Spinning(work.load):
                sample.tps[spinning(work.load)] = self.bench(0, min(work.gen, LOAD_TOKENS_MAX))["decode_tps"]
