# SPDX-License-Identifier: Apache-2.0
"""Servers that are measured from outside: a process that answers OpenAI's API, what a streamed answer says of its
speed, and what GET /cluster says of its nodes.

    with Server([cobord, "up", model, ...]) as server:
        sample = server.stream(prompt_tokens, tokens)     # a Sample: prefill and decode in tokens/s
"""
import http.client
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from statistics import median

import options
import page
import programs
from programs import BenchError, Sample, busy_seconds, own_seconds

START_SECONDS_MAX = 300
ANSWER_SECONDS_MAX = 900
LARGE = "64G"  # a budget that bounds nothing
HOP_GOAL_US = 150
STOP_SECONDS_MAX = 20
FIRST_PRIORITY = 10
TICKS = os.sysconf("SC_CLK_TCK")


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def environment():
    """Settings of the person who runs this are not what is measured."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("COBORD_") or k == "COBORD_CACHE"}
    return kept | {"XDG_CONFIG_HOME": "/nonexistent"}


def wait_port(process, port):
    end = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < end and process.alive():
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise process.failed("does not listen")


def add_model(add):
    add("--model", default="qwen2.5-coder-1.5b", help="a model of the zoo, or a .knot file (default: %(default)s)")


def add_first(add):
    add("--first", action="store_true",
        help="run all that is compared before everything else on this machine (needs the right to)")


def go_first(args):
    """Real-time priority, inherited by all that is started from here on."""
    if not args.first:
        return
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(FIRST_PRIORITY))
    except (OSError, AttributeError) as error:
        raise BenchError(f"--first: {error}. Run as root, or without it.") from error


def first_lines(args):
    return ["all that is compared ran with real-time priority"] if args.first else []


class Process:
    """A program and all that it starts, counted together and ended together. No session of its own: where the kernel
    shares processors out by session, all that take turns here have to be in one."""

    def __init__(self, command, pass_fds=()):
        self.command = command
        self.log = tempfile.TemporaryFile("a+")
        try:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                            process_group=0, env=environment(), pass_fds=pass_fds)
        except OSError as error:
            raise BenchError(f"{command[0]}: {error.strerror}") from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def failed(self, what):
        self.log.seek(0)
        tail = "".join(self.log.readlines()[-12:]).rstrip()
        return BenchError(f"{' '.join(self.command)}: {what}" + (f"\n{tail}" if tail else ""))

    def alive(self):
        return self.process.poll() is None

    def members(self):
        """(process id, seconds of processor time) of everything in the process group."""
        found = []
        for name in filter(str.isdecimal, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/stat") as f:
                    fields = f.read().rpartition(")")[2].split()
            except OSError:
                continue
            if self.process.pid in (int(name), int(fields[1]), int(fields[2])):
                found.append((int(name), (int(fields[11]) + int(fields[12])) / TICKS))
        return found

    def seconds(self):
        return sum(seconds for _, seconds in self.members())

    def stop(self):
        if self.alive():
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                pass
        for pid, _ in self.members():
            os.kill(pid, signal.SIGKILL)
        self.process.wait()


class Server(Process):
    """`name` as tables call it. The command gets --listen."""

    def __init__(self, name, command, port=None):
        self.name, self.port = name, port or free_ports(1)[0]
        self.samples = []
        super().__init__(command if port else [*command, "--listen", f"127.0.0.1:{self.port}"])

    def get(self, path):
        """(status, value)"""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            c.request("GET", path)
            answer = c.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            c.close()

    def wait_ready(self):
        end = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < end:
            if not self.alive():
                raise self.failed("has ended")
            try:
                if self.get("/ready")[0] == 200:
                    return self
            except (OSError, ValueError, http.client.HTTPException):
                pass
            time.sleep(0.1)
        raise self.failed(f"not ready within {START_SECONDS_MAX} s")

    def cluster(self):
        """GET /cluster, of a moment after the call: it is made anew once a second."""
        time.sleep(2.2)
        return self.get("/cluster")[1]

    def nodes(self, role):
        return [n for n in self.cluster()["nodes"] if n["role"] == role]

    def count_tokens(self, text):
        return len(self.post("/tokenize", {"text": text})["ids"])

    def post(self, path, body):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS_MAX)
        try:
            c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = c.getresponse()
            value = json.loads(answer.read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise self.failed(f"POST {path}: {error}") from error
        finally:
            c.close()
        if answer.status != 200:
            raise self.failed(f"POST {path}: {value['error']['message']}")
        return value

    def run(self, prompt, tokens):
        """One streamed answer, kept as a sample."""
        others = Others([self])
        sample = self.stream(prompt, tokens)
        sample.others = others.share()
        self.samples.append(sample)
        return sample

    def stream(self, prompt, tokens):
        """A greedy answer of `tokens` tokens. prefill: tokens of the prompt in the time to the first token; decode:
        the tokens after the first in the time from it to the last."""
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True,
                "stream_options": {"include_usage": True}}
        begun = time.monotonic()
        times, text, usage = [], "", None
        for event in self.events("/v1/completions", body):
            if event.get("usage"):
                usage = event["usage"]
            elif event.get("error"):
                raise self.failed(event["error"]["message"])
            elif event["choices"][0].get("text"):
                times.append(time.monotonic())
                text += event["choices"][0]["text"]
        if not usage or usage["completion_tokens"] != tokens or len(times) < 2:
            raise self.failed(f"the answer to {prompt[:40]!r} has not {tokens} tokens: {usage}")
        sample = Sample(facts={"text": text, "prefill_seconds": times[0] - begun})
        fresh = usage["prompt_tokens"] - usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
        sample.tps = {"prefill": fresh / (times[0] - begun), "decode": (tokens - 1) / (times[-1] - times[0])}
        return sample

    def events(self, path, body):
        """Values of a stream's events. Read plainly: a client that works takes time from who is measured."""
        data = json.dumps(body).encode()
        head = (f"POST {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
                "Connection: close\r\n\r\n").encode()
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_SECONDS_MAX) as s:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                s.sendall(head + data)
                for line in s.makefile("rb"):
                    if line.startswith(b"{"):
                        raise self.failed(f"POST {path}: {line.decode()}")
                    if line.startswith(b"data: {"):
                        yield json.loads(line[6:])
        except OSError as error:
            raise self.failed(f"POST {path}: {error}") from error

    def values(self, measure):
        return [s.tps[measure] for s in self.samples]


class Turn:
    """A server in options.take_turns: each run has a text of its own, the same for all."""

    def __init__(self, server, args):
        self.server, self.args, self.number = server, args, 0

    name = property(lambda self: self.server.name)

    def warm_up(self):
        self.server.wait_ready()
        self.server.stream(counting_prompt(0, 32), 8)

    def run(self):
        self.number += 1
        self.server.run(counting_prompt(self.number, self.args.prompt), self.args.gen)


def same_texts(one, other):
    return all(a.facts["text"] == b.facts["text"] for a, b in zip(one.samples, other.samples, strict=True))


def ratio(one, other, measure):
    return median(one.values(measure)) / median(other.values(measure))


def hop_lines(up):
    """What a call costs beyond computing, and what all that waits on one token is."""
    nodes = up.cluster()["nodes"]
    stations = [n for n in nodes if n["role"] == "station"]
    beyond = [n["p50_us"] - n["compute_p50_us"] for n in stations]
    yield (f"a call of a station: p50 {median(beyond):.0f} µs beyond computing ({min(beyond)} to {max(beyond)} over "
           f"{len(stations)}), goal {HOP_GOAL_US} µs {page.verdict(max(beyond) <= HOP_GOAL_US)}; computing "
           + ", ".join(f"{n['compute_p50_us'] / 1000:.1f}" for n in stations) + " ms")
    shards = [n["p50_us"] for n in nodes if n["role"] == "shard"]
    if shards:
        yield f"calls of shards, all at once: p50 {min(shards) / 1000:.1f} to {max(shards) / 1000:.1f} ms"


def knot_of(args):
    """(name, path) of a model: a knot file, or one of the zoo, which is pulled when it is not here."""
    if args.model.endswith(".knot"):
        return os.path.basename(args.model)[:-5], args.model
    path = os.path.join(options.cache_folder(), "models", args.model + ".knot")
    if not os.path.isfile(path):
        programs.call([args.cobord, "pull", args.model], output=False)
    if not os.path.isfile(path):
        raise BenchError(f"cobord pull {args.model} left no {path}. Give a .knot with --model.")
    return args.model, path


class Others:
    """How much of the processors everybody else used, from here to share(). `ours` are Process."""

    def __init__(self, ours):
        self.ours, self.wall = ours, time.monotonic()
        self.busy, self.own = busy_seconds(), self.own_now()

    def own_now(self):
        return own_seconds() + sum(p.seconds() for p in self.ours)

    def share(self):
        capacity = (time.monotonic() - self.wall) * (os.cpu_count() or 1)
        return max(0.0, (busy_seconds() - self.busy - (self.own_now() - self.own)) / capacity)


def counting_prompt(number, tokens):
    """A text of about so many tokens that goes on by itself, and begins differently for each number: nothing of it is
    known from an earlier answer."""
    words, at = [], 1000 * (number + 1)
    while sum(len(w) + 1 for w in words) < tokens:
        words.append(str(at))
        at += 1
    return " ".join(words) + " "
