#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mixed traffic at a cluster and at a server, for as long as one likes, while nodes are killed, frozen and drained.

    tests/soak/soak.py --minutes 60 [--seed N] [--clients 8]

A cluster of 2 stations x 4 shards, each with a replica, and wardens (`cobord up`), and `cobord serve` as it comes, are
asked the same kinds of things. What each must say is asked of a third, with one slot and no guesses, which is alone
with each request. Checked all the time: every text, log-probability and embedding is the one that is said alone; no
answer has the marker of another conversation; each request ends with its whole answer or a clear refusal, and after
refusals with the answer; memory, descriptors and threads do not grow.

SIGTERM ends it early, with the summary of what has been.

Exit 0: nothing of that was broken; 1: something was; the seed is printed, and every violation.
"""
import argparse
import concurrent.futures
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "system"))

import _said as said  # noqa: E402  (the lines above must come first)
from _asked import Asking, Connection, Wrong  # noqa: E402
from _hits import Hits  # noqa: E402
from _memory import Memory  # noqa: E402
from _tally import Tally  # noqa: E402
from serve_test import COBORD, MODEL, Server  # noqa: E402
from up_test import Up  # noqa: E402

CONTEXT, VOCABULARY = 1024, 49152
WARM_SHARE, WARM_SECONDS_MAX = 0.2, 480   # of the time, before memory is compared
FIRST_STREAMS = 1500, 100                 # at most, and a minute: until a journal's caches are full
ROWS_SPREAD = 1000
HOWS = ["whole"] * 3 + ["stream"] * 3 + ["breaks"] * 2 + ["slow", "leave", "leave"]
RUN_EVERY = 40                            # conversations; of one the first answer is also asked of `cobord run`
IDLE_SECONDS = 60


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="(default: a new one)")
    parser.add_argument("--clients", type=int, default=8)
    return parser.parse_args()


class Named(Server):
    def __init__(self, name, *more):
        super().__init__("--context", str(CONTEXT), *more)
        self.name = name


class Cluster(Up):
    name = "cluster"

    def __init__(self):
        super().__init__("--listen", "127.0.0.1:0", "--stations", "2", "--shards", "4", "--replicas", "1", "--wardens",
                         "--context", str(CONTEXT))


class Client(threading.Thread):
    """Asks one thing after the other until it is over."""

    def __init__(self, soak, number):
        super().__init__(daemon=True)
        self.soak, self.tally = soak, soak.tally
        self.dice = random.Random(f"{soak.seed} client {number}")

    def run(self):
        while not self.soak.over.is_set():
            try:
                self.one_thing()
            except Wrong as wrong:
                self.tally.violation(wrong.kind, str(wrong))
            except Exception as error:  # noqa: BLE001  (whatever it is, it is not as it should be)
                self.tally.violation("unexpected", repr(error))

    def one_thing(self):
        server = self.dice.choice(self.soak.servers)
        kind = self.dice.randrange(12)
        if kind == 0:
            return self.bad_request(server)
        if kind == 1:
            return self.look_around(server)
        marker = self.soak.new_marker(self.dice)
        if kind < 8:
            return self.converse(server, marker)
        path, make = [(said.COMPLETIONS, said.completion), (said.EMBEDDINGS, said.embeddings),
                      (said.RESPONSES, said.response), (said.OLLAMA, said.ollama)][kind - 8]
        how = self.dice.choice(HOWS) if path == said.COMPLETIONS else "whole"
        return self.ask(server, path, make(self.dice, marker), marker, how)

    def converse(self, server, marker):
        conversation = said.Conversation(self.dice, marker)
        self.tally.add("conversations")
        first = True
        while conversation.turns_left and not self.soak.over.is_set():
            body = conversation.next_body()
            if first and self.tally.counts["conversations"] % RUN_EVERY == 0:
                self.run_alone(body)
            first = False
            texts = self.ask(server, said.CHAT, body, marker, self.dice.choice(HOWS))
            if texts is None:
                return
            conversation.heard(texts[0][0])

    def ask(self, server, path, body, marker, how):
        asking = Asking(server, path, body, self.dice, self.tally)
        begun = time.monotonic()
        self.tally.add(f"{server.name}: {path} {how}")
        if how == "leave":
            asking.leave()
            self.check_part(asking, marker)
            return None
        texts = asking.answer(how)
        self.tally.took(f"{server.name} {'slow' if how == 'slow' else 'answers'}", time.monotonic() - begun)
        self.check(asking, texts, marker, how)
        return texts

    # Checks.

    def alone(self, asking):
        """(texts, details) of the one that is alone with it."""
        other = Asking(self.soak.solo, asking.path, asking.body, self.dice, self.tally)
        return other.answer("whole"), other.details

    def check(self, asking, texts, marker, how):
        if asking.degraded:
            self.tally.add("answers marked degraded")
            return
        expected, details = self.alone(asking)
        if texts != expected:
            self.tally.violation("wrong answer", f"{asking.server.name}, {how}: {texts!r} instead of {expected!r} to "
                                                 f"{asking.path} {json.dumps(asking.body)}")
        elif asking.details is not None and asking.details != details:
            self.tally.violation("wrong log-probabilities", f"{asking.server.name} {json.dumps(asking.body)}")
        self.tally.add("answers equal to those given alone", texts == expected)
        self.check_markers([t for t, _ in texts], marker, asking)

    def check_part(self, asking, marker):
        got = asking.text_so_far()
        self.check_markers(got, marker, asking)
        if got and not asking.degraded and self.dice.random() < 0.3:
            expected, _ = self.alone(asking)
            if not all(whole.startswith(part) for part, (whole, _) in zip(got, expected)):
                self.tally.violation("wrong beginning", f"{json.dumps(asking.body)}: {got!r}, not {expected!r}")
            self.tally.add("left answers whose beginning was compared")

    def check_markers(self, texts, marker, asking):
        found = {m for text in texts for m in said.MARKER.findall(text.lower())}
        self.tally.add("answers with their own marker", marker in found)
        crossed = {m for m in found if m != marker and m in self.soak.markers}
        if crossed:
            self.tally.violation("crossed answer", f"{crossed} in {texts!r} to {json.dumps(asking.body)}")

    def run_alone(self, body):
        """The one that is alone says what `cobord run` says."""
        if set(body) != {"messages", "max_tokens", "temperature"} or len(body["messages"]) != 1:
            return
        done = subprocess.run([COBORD, "run", MODEL, body["messages"][0]["content"], "--temperature", "0",
                               "--max-tokens", str(body["max_tokens"]), "--context", str(CONTEXT)],
                              capture_output=True, text=True)
        text = self.alone(Asking(self.soak.solo, said.CHAT, body, self.dice, self.tally))[0][0][0]
        if done.returncode or done.stdout.rstrip("\n") != text.rstrip("\n"):
            self.tally.violation("wrong answer alone", f"{body}: {text!r}, cobord run {done.stdout!r} {done.stderr!r}")
        self.tally.add("answers compared with cobord run")

    # What is no question.

    def bad_request(self, server):
        path, data, headers, status = self.dice.choice(said.BAD)
        connection = Connection(server.port)
        try:
            connection.request("POST", path, data, {"Content-Type": "application/json", **headers})
        except OSError:  # refused before it was sent
            if status != 413:
                raise
        try:
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            if status == 413:
                return self.tally.add("bad requests: connection closed under a body that was too large")
            raise Wrong("broken connection", f"{server.name} {path} {data[:100]!r}: {error!r}") from error
        finally:
            connection.close()
        if answer.status in (429, 503):
            return self.tally.add("bad requests: refused before they were read")
        if answer.status != status or "message" not in json.loads(text)["error"]:
            raise Wrong("bad request", f"{server.name} {path} {data[:100]!r}: {answer.status} {text[:300]!r}")
        return self.tally.add(f"bad requests: {status}")

    def look_around(self, server):
        connection = Connection(server.port)
        try:
            for path in self.dice.sample(["/health", "/ready", "/metrics", "/v1/models", "/cluster", "/"], 3):
                connection.request("GET", path)
                answer = connection.getresponse()
                text = answer.read()
                if answer.status != 200 and not (path == "/ready" and answer.status == 503) and path != "/cluster":
                    raise Wrong("look", f"{server.name} {path}: {answer.status} {text[:300]!r}")
        except (OSError, http.client.HTTPException) as error:
            raise Wrong("broken connection", f"{server.name} GET: {error!r}") from error
        finally:
            connection.close()
        self.tally.add("looks at pages, metrics and health")


class Soak:
    def __init__(self, args):
        self.args = args
        self.seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 31)
        self.tally, self.over, self.enough = Tally(), threading.Event(), threading.Event()
        self.markers, self.lock = set(), threading.Lock()
        self.cluster, self.server = Cluster(), Named("server")
        self.solo = Named("alone", "--slots", "1", "--drafts", "0")
        self.servers = [self.cluster] * 3 + [self.server]
        self.hits = Hits(self.cluster, self.seed, self.tally, self.over)
        self.memory = Memory(self.pids, self.tally, self.over)
        self.coordinator = self.cluster.nodes()["coordinator-0"]

    def new_marker(self, dice):
        while True:
            marker = said.make_marker(dice)
            with self.lock:
                if marker not in self.markers:
                    self.markers.add(marker)
                    return marker

    def pids(self):
        return {**self.cluster.nodes(), "up": self.cluster.process.pid, "server": self.server.process.pid,
                "alone": self.solo.process.pid}

    def fill(self):
        """What was planned is taken when it is first used, and files are read where they are first used: every slot
        with a whole context, ids all over the vocabulary, as many streams as a journal keeps in memory."""
        ids = [i * VOCABULARY // ROWS_SPREAD for i in range(ROWS_SPREAD)]
        count = min(FIRST_STREAMS[0], int(FIRST_STREAMS[1] * self.args.minutes))
        for server in (self.cluster, self.server, self.solo):
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                done = [pool.submit(self.fill_one, server, [*ids[i:], *ids[:i]], "whole") for i in range(4)]
                done += [pool.submit(self.fill_one, server, f"Number {i}", "stream") for i in range(count)]
            for one in done:
                one.result()

    def fill_one(self, server, prompt, how):
        body = {"prompt": prompt, "max_tokens": 1, "temperature": 0}
        Asking(server, said.COMPLETIONS, body, random.Random(1), self.tally).answer(how)

    def run(self):
        self.fill()
        clients = [Client(self, i) for i in range(self.args.clients)]
        begun = time.monotonic()
        for thread in (*clients, self.hits, self.memory):
            thread.start()
        end = begun + 60 * self.args.minutes
        while time.monotonic() < end and not self.enough.wait(min(30, max(0.1, end - time.monotonic()))):
            self.progress(begun)
        ended = time.monotonic()
        self.minutes = (ended - begun) / 60
        self.over.set()
        for thread in clients:
            thread.join(600)
            if thread.is_alive():
                self.tally.violation("hang", "a client still waits ten minutes after the end")
        warm = min(WARM_SHARE * (ended - begun), WARM_SECONDS_MAX)
        self.rows = list(self.memory.judge(begun + warm, ended, self.survivors()))
        self.last_looks()

    def survivors(self):
        return ["up", "server", "alone", "coordinator-0", *self.hits.spared]

    def progress(self, begun):
        equal = self.tally.counts["answers equal to those given alone"]
        print(f"soak: {(time.monotonic() - begun) / 60:.1f} min, {equal} answers, "
              f"{len(self.hits.log)} hits, {len(self.tally.violations)} violations", flush=True)
        if self.cluster.nodes().get("coordinator-0") != self.coordinator:
            self.tally.violation("coordinator", "it has another process: " + self.cluster.errors()[-2000:])
            self.coordinator = self.cluster.nodes().get("coordinator-0")

    # When all is quiet again.

    def last_looks(self):
        self.hits.join()
        for server in (self.cluster, self.server, self.solo):
            try:
                self.wait_idle(server)
            except Wrong as wrong:
                self.tally.violation(wrong.kind, str(wrong))

    def wait_idle(self, server):
        end = time.monotonic() + IDLE_SECONDS
        while True:
            connection = Connection(server.port)
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
            connection.close()
            figures = {w[0]: float(w[1]) for w in (x.split() for x in text.splitlines() if x[:1] != "#")}
            busy = {n: figures[n] for n in ("cobord_slots_active", "cobord_queue_length") if figures[n]}
            if figures["cobord_connections"] > 2:  # this one; and `up` has one, by which it sees that all is well
                busy["cobord_connections"] = figures["cobord_connections"]
            if not busy:
                return
            if time.monotonic() > end:
                raise Wrong("not idle", f"{server.name}, {IDLE_SECONDS} s after the last request: {busy}")
            time.sleep(0.2)

    def stop(self):
        self.over.set()
        self.hits.join(30)
        for what, stop in (("cluster", self.cluster.stop), ("server", self.server.stop), ("alone", self.solo.stop)):
            try:
                code = stop()
                if code != 0:
                    self.tally.violation("end", f"{what} ended with {code}")
            except (AssertionError, subprocess.TimeoutExpired) as error:
                self.tally.violation("end", f"{what}: {error!r}")

    def close(self):
        self.cluster.close()
        for server in (self.server, self.solo):
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait()

    def summary(self):
        print(f"\nsoak: seed {self.seed}, {self.minutes:.1f} minutes, {self.args.clients} clients, "
              f"spared: {', '.join(self.hits.spared)}")
        for line in self.tally.lines():
            print(f"  {line}")
        for row in self.rows:
            print("  | " + " | ".join(row) + " |")
        broken = len(self.tally.violations)
        if not self.memory.judged:
            print("  too short for a judgement on memory")
        print(f"soak: {'nothing was broken' if not broken else f'{broken} VIOLATIONS'}")
        return 1 if broken else 0


def main():
    args = arguments()
    soak = Soak(args)
    signal.signal(signal.SIGTERM, lambda *_: soak.enough.set())
    print(f"soak: seed {soak.seed}", flush=True)
    try:
        soak.run()
        soak.stop()
        return soak.summary()
    finally:
        soak.close()


if __name__ == "__main__":
    sys.exit(main())
