#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Readers that are slow, and clients that leave, at a server and at a cluster: 200 streams at once while /health
answers within 100 ms, then all is as it was; who leaves stops the work on every station within a step, also in a
prompt."""

import http.client
import itertools
import json
import multiprocessing
import re
import selectors
import signal
import socket
import sys
import time
import unittest

from _cluster import Cluster
from _late import TooLate, in_time
from serve_test import CHAT, COMPLETIONS, LONG, Server, content, events_in, greedy, send, user
from up_test import status, wait_until

READERS = 200
TOKENS = 24
HEALTH_MS_MAX = 100
SIP_BYTES = 256         # that a reader takes at a time,
SIP_SECONDS = 0.05      # and not more often
GROWTH_KIB_MAX = 8 << 10
CHUNK = 32
PROMPT = 7800


class Readers:
    """Streams that are read a sip at a time, all by one thread."""

    def __init__(self, port, bodies):
        self.texts = [b""] * len(bodies)
        self.open = selectors.DefaultSelector()
        for number, body in enumerate(bodies):
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            s.connect(("127.0.0.1", port))
            send(s, CHAT, dict(body, stream=True))
            self.open.register(s, selectors.EVENT_READ, number)

    def read(self, seconds):
        """Until every stream has ended."""
        end = time.time() + seconds
        while self.open.get_map():
            assert time.time() < end, f"{len(self.open.get_map())} streams have not ended"
            for key, _ in self.open.select(1):
                got = key.fileobj.recv(SIP_BYTES)
                self.texts[key.data] += got
                if not got or self.texts[key.data].endswith(b"\r\n0\r\n\r\n"):
                    self.open.unregister(key.fileobj)
                    key.fileobj.close()
            time.sleep(SIP_SECONDS)

    def answers(self):
        """The text of each."""
        for text in self.texts:
            head, _, body = text.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), head
            events = [value for _, value in events_in(unchunked(body))]
            assert events.pop() == "[DONE]", events[-1:]
            yield "".join(e["choices"][0]["delta"].get("content", "") for e in events)


def unchunked(body):
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        whole, body = whole + body[:int(size, 16)], body[int(size, 16) + 2:]
    return whole


def ask_health(port, pipe):
    """Until a word comes: (the worst time in ms, how many)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    worst, count = 0, 0
    while not pipe.poll(0.02):
        begun = time.monotonic()
        connection.request("GET", "/health")
        assert connection.getresponse().read() == b'{"status":"ok"}'
        worst = max(worst, 1000 * (time.monotonic() - begun))
        count += 1
    pipe.send((worst, count))


class Watch:
    """Asks /health all the time, in a process of its own, since the readers keep this one busy; afterwards `worst` in
    ms, `count` of answers."""

    def __init__(self, port):
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=ask_health, args=(port, other), daemon=True)

    def __enter__(self):
        self.process.start()
        return self

    def __exit__(self, *_):
        self.pipe.send("enough")
        assert self.pipe.poll(60), "/health was not answered"
        self.worst, self.count = self.pipe.recv()
        self.process.join()


class Checks:
    """Against cls.server; cls.workers() gives {name: metrics} of who computes, cls.pids() all processes."""

    def figure(self, name):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        return float(re.search(rf"^{name} (\S+)$", text, re.M).group(1))

    def ask(self, body, path=CHAT):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=300)
        try:
            connection.request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            value = json.loads(answer.read())
            self.assertEqual(answer.status, 200, value)
            return value
        finally:
            connection.close()

    def wait_idle(self, seconds=30):
        for name in ("cobord_slots_active", "cobord_queue_length"):
            wait_until(lambda: self.figure(name) == 0, seconds)

    def wave(self, number):
        """All readers at once, with other questions for each `number`. Result: what /health took at worst."""
        questions = [f"Tell me about the number {number + i % 10}." for i in range(READERS)]
        wanted = {q: content(self.ask(greedy(q, TOKENS))) for q in set(questions)}
        with Watch(self.server.port) as watch:
            readers = Readers(self.server.port, [greedy(q, TOKENS) for q in questions])
            self.assertGreater(self.figure("cobord_connections"), READERS)
            wait_until(lambda: self.figure("cobord_queue_length") > READERS / 2, 5)  # their texts become ids first
            readers.read(400)
        self.assertEqual(list(readers.answers()), [wanted[q] for q in questions])
        self.assertGreater(watch.count, 50)
        self.wait_idle()
        return watch.worst

    def test_slow_readers(self):
        self.wave(0)  # what grows once: threads, buffers, slots
        before = self.state()
        worst = self.wave(100)
        self.assertLess(worst, HEALTH_MS_MAX)
        wait_until(lambda: self.figure("cobord_connections") <= before["connections"])
        after = self.state()
        self.assertEqual(after["sessions"], before["sessions"])
        for name, kib in after["memory"].items():
            self.assertLess(kib - before["memory"][name], GROWTH_KIB_MAX, name)

    def state(self):
        return {"connections": self.figure("cobord_connections"),
                "memory": {name: status(pid, "RssAnon") for name, pid in self.pids().items()},
                "sessions": {name: m.get("cobord_station_sessions") for name, m in self.workers().items()}}

    def counts(self):
        """Passes of each who computes."""
        return {name: m[self.passes] for name, m in self.workers().items()}

    def is_at_rest(self):
        before = self.counts()
        time.sleep(0.2)
        return self.counts() == before

    def after_leaving(self, s):
        """Hangs up. Result: how many passes each has done since just before."""
        before, begun = self.counts(), time.monotonic()
        s.close()
        took = time.monotonic() - begun
        wait_until(lambda: self.figure("cobord_slots_active") == 0, 5)
        wait_until(self.is_at_rest, 1)  # what was under way is over
        after = self.counts()
        time.sleep(0.5)
        self.assertEqual(self.counts(), after, "somebody goes on")
        if took > 0.02:
            raise TooLate(f"{took} s lie between the count and the hang-up")
        return {name: after[name] - before[name] for name in after}

    def test_leaving_an_answer(self):
        def leave():
            s = socket.create_connection(("127.0.0.1", self.server.port), timeout=60)
            send(s, CHAT, dict(LONG, temperature=1.5, stream=True))
            while s.recv(4096).count(b"data: ") < 1:
                pass
            return self.after_leaving(s)
        for _ in range(3):
            for name, passes in in_time(leave).items():
                self.assertLessEqual(passes, self.passes_max, name)

    def test_leaving_a_prompt(self):
        """Thousands of tokens, of which only the chunks that were under way are still computed."""
        words = "every word of this is new ".split()
        text = " ".join(f"{words[i % 6]} {i * 7919 % 9973}" for i in range(PROMPT // 3))
        ids = self.ask({"text": text}, "/tokenize")["ids"][:PROMPT]
        self.assertEqual(len(ids), PROMPT)
        numbers = itertools.count()  # no prompt begins like another

        def leave():
            number, start = next(numbers), self.counts()
            s = socket.create_connection(("127.0.0.1", self.server.port), timeout=60)
            send(s, COMPLETIONS, {"prompt": ids[number + 1:] + ids[:number], "max_tokens": 4})
            wait_until(lambda: all(now > start[name] + 2 for name, now in self.counts().items()))
            return start, self.after_leaving(s)
        for _ in range(2):
            start, all_passes = in_time(leave)
            for name, passes in all_passes.items():
                self.assertLessEqual(passes, self.passes_max, name)
                self.assertLess(self.counts()[name] - start[name], PROMPT / CHUNK / 2, name)
        self.assertTrue(content(self.ask({"messages": user("Hi"), "max_tokens": 4})))


class ServeTest(Checks, unittest.TestCase):
    passes, passes_max = "cobord_steps_total", 3

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--context", "8192", "--chunk", str(CHUNK))

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def workers(self):
        return {"self": {self.passes: self.figure(self.passes)}}

    def pids(self):
        return {"self": self.server.process.pid}


class UpTest(Checks, unittest.TestCase):
    # One pass that is counted and one that is under way, for each station that a frame may be at.
    passes, passes_max = "cobord_node_calls_total", 5

    @classmethod
    def setUpClass(cls):
        cls.server = Cluster("--chunk", str(CHUNK), "--context", "8192", "--memory", "1G", stations=2, shards=2)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop(signal.SIGTERM) == 0
        cls.server.close()

    def workers(self):
        return {name: self.server.figures(name) for name in ("station-0", "station-1")}

    def pids(self):
        return self.server.nodes()


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
