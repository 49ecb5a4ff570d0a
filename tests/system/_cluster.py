# SPDX-License-Identifier: Apache-2.0
"""Clusters under `cobord up`, with or without the file; streams that are watched and go on; the texts of one process.

    with FileServer(folder) as store:                   a store that can be slow (store.delay)
        c = Cluster(store, stations=3, shards=3)        up --cluster FILE, a warden for each station and each shard
        s = c.begin(greedy("Hi", 12))                   a stream that is read in the background
        c.hit("station-1", signal.SIGKILL)
        s.text()                                        the whole text, whoever had to be asked for the rest
"""
import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time

from _late import TooLate
from _nodes import give_ports, members
from serve_test import CHAT, Server, content, events_in
from up_test import COBORD, MODEL, Up, environment, is_gone, wait_until
from _wardens import FileServer  # noqa: F401

SPREAD = 1024
# One token a step, so that there is time to hit a node; draft_test has guesses and failures together.
STEADY = "--drafts", "0"
# Part of a request: there are as many tokens as were asked for.
GO_ON = {"logit_bias": {"2": -100, "0": -100}}


def words(count, seed=0):
    """A text of about `count` tokens that begins like no other."""
    some = "river stone bread window music winter garden letter copper bridge".split()
    return f"Story number {seed} begins: " + " ".join(some[(i * 7 + seed * 3 + i // 10) % 10] for i in range(count))


class Solo:
    """One process with everything: what the others have to say."""

    def __init__(self, model=MODEL):
        self.server = None
        self.known = {}
        self.model = model

    def text(self, body):
        if self.model != MODEL:
            return self.run(body)
        key = json.dumps(body, sort_keys=True)
        if key not in self.known:
            if not self.server:
                self.server = Server("--context", str(SPREAD))
            self.known[key] = content(self.server.json(CHAT, body))
        return self.known[key]

    def run(self, body):
        """By `cobord run`, of a greedy body with one question."""
        done = subprocess.run([COBORD, "run", self.model, body["messages"][0]["content"], "--temperature", "0",
                               "--max-tokens", str(body["max_tokens"]), "--context", str(SPREAD)], check=True,
                              capture_output=True, text=True, env=environment("/nonexistent"))
        return done.stdout.rstrip("\n")

    def stop(self):
        if self.server:
            self.server.stop()
            self.server = None


def plan(folder, *arguments, model=MODEL):
    """A cluster file of `cobord plan`, as a value."""
    path = os.path.join(folder, "plan.json")
    subprocess.run([COBORD, "plan", model, "-o", path, "--listen", "127.0.0.1:0", *map(str, arguments)], check=True,
                   capture_output=True, env=environment(folder))
    with open(path) as f:
        return json.load(f)


class Cluster(Up):
    """A cluster under `up`; of a file when there is a store, else of a plan of its own."""

    def __init__(self, *arguments, store=None, stations=2, shards=2, model=MODEL, edit=None,
                 steady=True):
        self.own = tempfile.TemporaryDirectory()
        self.key = ""
        if store or edit:
            path = self.write_file(store, stations, shards, model, arguments, edit)
            super().__init__("--cluster", path, *(STEADY if steady else ()), model=None)
        else:
            self.directory = os.path.join(self.own.name, "up")
            super().__init__("--listen", "127.0.0.1:0", "--dir", self.directory, "--stations", str(stations),
                             "--shards", str(shards), "--context", str(SPREAD), *(STEADY if steady else ()), *arguments,
                             model=model)
            with open(os.path.join(self.directory, "cluster.json")) as f:
                self.file = json.load(f)
        with open(self.file["key_file"]) as f:
            self.key = f.read().strip()

    def write_file(self, store, stations, shards, model, arguments, edit):
        key = os.path.join(self.own.name, "key")
        with open(key, "w", opener=lambda p, f: os.open(p, f, 0o600)) as f:
            f.write("the-key-of-this-test-and-no-other")
        self.file = plan(self.own.name, "--stations", stations, "--shards", shards, "--context", SPREAD,
                         "--key-file", key, *arguments, model=model)
        if store:
            self.file["model"]["store"] = store.url
            for kind, warden, field in (("stations", "layer_wardens", "range"), ("shards", "shard_wardens", "ids")):
                self.file[warden] = []
                for i, node in enumerate(self.file[kind]):
                    node["warden"] = f"{warden.split('_')[0]}-warden-{i}"
                    self.file[warden].append({"id": node["warden"], field: node[field]})
        give_ports(self.file)
        if edit:
            edit(self.file)
        path = os.path.join(self.own.name, "cluster.json")
        with open(path, "w") as f:
            json.dump(self.file, f)
        return path

    def close(self):
        super().close()
        self.own.cleanup()

    # Nodes.

    def address(self, node):
        return next(n["address"] for n in members(self.file) if n["id"] == node)

    def call_node(self, node, method, path, timeout=5):
        """(status, bytes); the bytes are the reason when there was no answer."""
        connection = http.client.HTTPConnection(self.address(node), timeout=timeout)
        try:
            connection.request(method, path, headers={"Authorization": "Bearer " + self.key})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            return 0, repr(error).encode()
        finally:
            connection.close()

    def figures(self, node):
        """Metrics of a node; {} when it does not answer."""
        status, text = self.call_node(node, "GET", "/metrics")
        if status != 200:
            return {}
        return {w[0]: float(w[1]) for w in (line.split() for line in text.decode().splitlines() if line[:1] != "#")}

    def is_ready(self, node):
        return self.call_node(node, "GET", "/ready", 2)[0] == 200

    def hit(self, node, number):
        """Kills or freezes a process. Result: its pid, for whole_again."""
        return node, self.kill(node, number)

    def whole_again(self, *hits, seconds=90):
        """Each of these has a new process, and everybody is ready."""
        for node, old in hits:
            wait_until(lambda: self.nodes().get(node, old) != old, seconds)
            assert is_gone(old), (node, old)
        for node in [n["id"] for n in members(self.file)][1:]:
            wait_until(lambda: self.is_ready(node), seconds)
        self.wait_ready(seconds)

    def wait_ready(self, seconds=90):
        def is_ready():
            try:
                return self.json("/ready", timeout=5)[0] == 200
            except (OSError, http.client.HTTPException):
                return False
        wait_until(is_ready, seconds)

    def gauge(self, name):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        return float(re.search(rf"^{name} (\S+)$", text, re.M).group(1))

    def begin(self, body):
        return Stream(self, body)

    @contextlib.contextmanager
    def striking(self, streams, expected):
        """Something is done in the midst of streams. Their texts are whole, whatever that is and whether or not it came
        too late; then those that were hit, which belong into the list that this gives, are there again."""
        hits = []
        try:
            yield hits
        finally:
            texts = [s.text() for s in streams]
            assert texts == expected[:len(texts)], (texts, expected)
            self.whole_again(*hits)

    def end_beside(self, solo):
        """The last of its tests: both end, every process of the cluster with 0."""
        try:
            solo.stop()
            code = self.stop()
            assert code == 0, (code, self.errors()[-3000:])
        finally:
            self.close()


class Stream:
    """A stream that is read in a thread. When its connection breaks, as it does when a coordinator goes, the rest is
    asked for by Last-Event-ID as soon as there is one again; before the first event the request is made again."""

    def __init__(self, cluster, body, path=CHAT):
        self.cluster, self.path = cluster, path
        self.body = dict(body, stream=True)
        self.pieces, self.place = [], None
        self.error, self.ended, self.breaks, self.degraded = None, False, 0, False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        end = time.time() + 120
        while not self.ended and not self.error and time.time() < end:
            try:
                self.read()
            except (OSError, http.client.HTTPException):
                pass
            if not self.ended and not self.error:
                self.breaks += 1
                time.sleep(0.05)
        if not self.ended and not self.error:
            self.error = "no end within two minutes"

    def read(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.cluster.port, timeout=60)
        try:
            if self.place:
                connection.request("POST", self.path, headers={"Last-Event-ID": self.place})
            else:
                connection.request("POST", self.path, json.dumps(self.body).encode())
            answer = connection.getresponse()
            if answer.status == 503:  # retryable
                return
            if answer.status != 200:
                self.error = (answer.status, answer.read())
                return
            block = b""
            for line in answer:
                block += line
                if line == b"\n":
                    for event in events_in(block):  # a comment is none
                        self.take(*event)
                    block = b""
        finally:
            connection.close()

    def take(self, place, event):
        if event == "[DONE]":
            self.ended = True
        elif "error" in event:
            self.error = event
        else:
            self.place = place or self.place
            self.degraded = self.degraded or bool(event.get("degraded"))
            piece = event["choices"][0]["delta"].get("content") if event["choices"] else None
            if piece:
                self.pieces.append(piece)

    def wait_pieces(self, count, seconds=60):
        """So many have come, and it goes on."""
        wait_until(lambda: len(self.pieces) >= count or self.error or self.ended, seconds)
        assert not self.error, (self.pieces, self.error)
        self.still_on()

    def still_on(self):
        if self.ended:
            raise TooLate(f"it has ended: {self.pieces}")

    def text(self, seconds=150):
        self.thread.join(seconds)
        assert self.ended and not self.error, (self.error, "".join(self.pieces), self.cluster.errors()[-3000:])
        assert not self.degraded
        return "".join(self.pieces)
