# SPDX-License-Identifier: Apache-2.0
"""The programs that are compared: how each is called and what its output says.

Every run ends as a Sample: tokens/s of prefill, of decode and of each batch, and the share of the processors that
everybody else used meanwhile.
"""
import json
import os
import re
import resource
import shlex
import subprocess
import tempfile
import time
from dataclasses import dataclass, field

RUN_SECONDS_MAX = 3600


class BenchError(Exception):
    """What went wrong, to which thing, and what to do."""


@dataclass(frozen=True)
class Work:
    threads: int
    prompt: int
    gen: int
    batch: list


@dataclass
class Sample:
    prefill_tps: float = 0.0
    decode_tps: float = 0.0
    batch_tps: dict = field(default_factory=dict)
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


class Program:
    def __init__(self, name):
        self.name = name
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


class LlamaBench(Program):
    """llama-bench, or a program that takes its options; batches by the llama-batched-bench beside it."""

    def __init__(self, name, command, gguf, work):
        super().__init__(name)
        self.command, self.gguf, self.work = command, gguf, work
        self.batched = os.path.join(os.path.dirname(command[0]), "llama-batched-bench")
        if not os.access(self.batched, os.X_OK):
            self.batched = None

    def bench(self, prompt, gen):
        command = [*self.command, "-m", self.gguf, "-t", str(self.work.threads), "-p", str(prompt), "-n", str(gen),
                   "-r", "1", "-o", "json"]
        return parsed(call(command), command)

    def warm_up(self):
        self.bench(16, 4)

    def measure(self, sample):
        for test in self.bench(self.work.prompt, self.work.gen):
            if test["n_prompt"] and not test["n_gen"]:
                sample.prefill_tps = test["avg_ts"]
            elif test["n_gen"] and not test["n_prompt"]:
                sample.decode_tps = test["avg_ts"]
        if self.work.batch and self.batched:
            self.measure_batches(sample)

    def measure_batches(self, sample):
        """From (almost) empty contexts, as Cobord's: one token of prompt, since none is refused."""
        context = max(self.work.batch) * (self.work.gen + 1)
        command = [self.batched, "-m", self.gguf, "-t", str(self.work.threads), "-c", str(max(context, 256)),
                   "-npp", "1", "-ntg", str(self.work.gen), "-npl", ",".join(map(str, self.work.batch)),
                   "--output-format", "jsonl"]
        for line in call(command).splitlines():
            if line.startswith("{"):
                test = parsed(line, command)
                sample.batch_tps[test["pl"]] = test["speed_tg"]


class Cobord(Program):
    def __init__(self, program, model, work, isa, memory=None):
        self.variant = ([] if isa == "auto" else [isa]) + ([memory] if memory else [])
        super().__init__(" ".join(["cobord", *self.variant]))
        self.program, self.model, self.work, self.isa, self.memory = program, model, work, isa, memory

    def bench(self, prompt, gen, batch):
        command = [self.program, "bench", self.model, "--threads", str(self.work.threads), "--prompt", str(prompt),
                   "--gen", str(gen), "--isa", self.isa, "--json"]
        command += ["--batch", ",".join(map(str, batch))] if batch else []
        command += ["--memory", self.memory] if self.memory else []
        return parsed(call(command), command)

    def warm_up(self):
        """Also encodes a GGUF into the cache, the first time, and asks how many bytes one token reads."""
        self.bench(16, 4, [])
        command = [self.program, "logits", self.model, "--tokens", "1", "--top", "1", "--json"]
        counters = parsed(call(command), command).get("counters", {})
        self.step_bytes = counters.get("weight_bytes_read", 0)

    def measure(self, sample):
        batch = [] if self.memory else self.work.batch  # a budget is a promise for one sequence
        sample.facts = self.bench(self.work.prompt, self.work.gen, batch)
        sample.prefill_tps, sample.decode_tps = sample.facts["prefill_tps"], sample.facts["decode_tps"]
        sample.batch_tps = {entry["n"]: entry["decode_tps"] for entry in sample.facts.get("batch", [])}
