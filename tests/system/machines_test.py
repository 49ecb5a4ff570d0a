#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two machines, each with its own address, answer as one cluster: over IPv4, over IPv6 alone, when packets vanish, when
the cable is pulled, and when an address is wrong. Machines are network namespaces."""
import contextlib
import http.client
import json
import sys
import threading
import time
import unittest

import _nodes as nodes
from _cluster import GO_ON, Solo
from _late import TooLate, in_time
from _machines import Wire
from serve_test import CHAT, content, greedy

MODEL = nodes.Model("smollm2-135m")
SEA = greedy("Tell me about the sea.", 30)
LONG = greedy("Tell me about the wind.", 300, **GO_ON)
LONGER = dict(LONG, max_tokens=900)  # than it takes to pull a cable, however fast it is made
NOTICED_SECONDS = 4  # three of the design, and one for what a busy machine adds
PATIENCE_SECONDS = 30


class Machines(nodes.Cluster):
    """Coordinator, station 0 and shard 0 on the first machine; station 1 and shard 1 on the second."""

    def __init__(self, wire, host="10.77.0.{}", without=(), change=None, **more):
        super().__init__(MODEL, ["0-15", "15-end"], 2, chunk=16, sessions=4, **more)
        self.wire, self.host = wire, host
        self.place = {}
        for node in [self.file["coordinator"], *self.file["stations"], *self.file["shards"]]:
            self.place[node["id"]] = int(node["id"] in ("station-1", "shard-1"))
            port = node["address"].rpartition(":")[2]
            node["address"] = f"{host.format(self.place[node['id']] + 1)}:{port}"
        if change:
            change(self.file)
        self.write()
        self.by_id = {}
        for name in ("station-0", "station-1", "shard-0", "shard-1", "coordinator-0"):
            if name not in without:
                self.start_there(name)

    def start_there(self, name):
        with self.wire.inside(self.place[name]):
            self.by_id[name] = self.start(name)
        self.by_id[name].host = self.by_id[name].host.strip("[]")
        return self.by_id[name]

    def ask(self, method, path, body=None, machine=0, timeout=90):
        """(status, headers, value) of a call to the coordinator from one of the machines."""
        with self.wire.inside(machine):
            node = self.by_id["coordinator-0"]
            connection = http.client.HTTPConnection(node.host, node.port, timeout=timeout)
            connection.request(method, path, json.dumps(body) if body else None)
            answer = connection.getresponse()
            value = json.loads(answer.read())
            connection.close()
            return answer.status, dict(answer.getheaders()), value

    def ready(self):
        return self.ask("GET", "/ready")[0] == 200

    def about(self, name):
        return next(n for n in self.ask("GET", "/cluster")[2]["nodes"] if n["id"] == name)


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.wire = Wire(2)
        cls.solo = Solo()

    @classmethod
    def tearDownClass(cls):
        cls.solo.stop()
        cls.wire.close()

    def machines(self, *arguments, **more):
        c = Machines(self.wire, *arguments, **more)
        self.addCleanup(c.stop)
        return c

    def until(self, truth, what, seconds=20):
        begun = time.monotonic()
        self.assertTrue(nodes.wait_for(truth, seconds), what)
        return time.monotonic() - begun

    def whole(self, c):
        self.until(c.ready, "the cluster is complete")

    def answers(self, c, body=SEA, machine=0):
        status, _, value = c.ask("POST", CHAT, body, machine)
        self.assertEqual(status, 200, value)
        self.assertNotIn("degraded", value)
        self.assertEqual(content(value), self.solo.text(body))


class Addresses(Case):
    def test_as_one(self):
        c = self.machines()
        self.whole(c)
        self.answers(c)
        self.answers(c, machine=1)
        self.until(lambda: c.about("station-1")["calls"] > 0, "calls are counted")
        self.assertEqual(c.about("station-1")["address"].rpartition(":")[0], "10.77.0.2")
        # The clients' side is open to the wire, and says so; nodes with a key do not.
        self.assertIn("anyone who reaches 10.77.0.1", c.by_id["coordinator-0"].errors())
        self.assertEqual(c.by_id["station-1"].errors(), "")
        # Another machine cannot talk to a node without the key.
        with self.wire.inside(0):
            for path in ("/ready", "/metrics"):
                self.assertEqual(c.by_id["station-1"].error("GET", path, key=None), (401, "key"))

    def test_without_a_key(self):
        c = self.machines(key=False)
        self.whole(c)
        self.answers(c)
        for name in ("station-0", "station-1", "shard-0", "shard-1"):
            self.assertIn("anyone who reaches 10.77.0.", c.by_id[name].errors(), name)

    def test_ipv6_alone(self):
        c = self.machines("[fd77::{}]")
        self.assertIn("http://[fd77::2]:", c.by_id["station-1"].line)
        self.whole(c)
        self.answers(c, machine=1)

    def test_loopback_is_not_the_wire(self):
        """A node that listens on loopback is not there for another machine."""
        def change(file):
            file["stations"][1]["address"] = "127.0.0.1:" + file["stations"][1]["address"].rpartition(":")[2]
        c = self.machines(change=change)
        self.assertEqual(c.by_id["station-1"].errors(), "")
        self.until(lambda: "station-1" in c.ask("GET", "/ready")[2].get("missing", ""), "station-1 is missed")
        self.refused(c, "station-1")

    def refused(self, c, *words):
        status, headers, value = c.ask("POST", CHAT, SEA)
        self.assertEqual((status, value["error"]["retryable"]), (503, True), value)
        self.assertIn("Retry-After", headers)
        for word in words:
            self.assertIn(word, value["error"]["message"])

    def test_another_subnet_and_another_port(self):
        for address in ("10.99.0.2:{}", "10.77.0.77:{}", "10.77.0.2:1"):
            with self.subTest(address):
                def change(file):
                    port = file["stations"][1]["address"].rpartition(":")[2]
                    file["stations"][1]["address"] = address.format(port)
                c = self.machines(without=("station-1",), change=change)

                def names_it():
                    ready = c.ask("GET", "/ready")[2]
                    return "station-1" in ready["missing"] and "no connection" in ready["missing"]
                self.until(names_it, "the missing station and why")
                self.refused(c, "station-1 (layers 15-end)")
                place = address.partition(":")[0]
                self.until(lambda: place in c.by_id["coordinator-0"].errors(), "the table of nodes")


class Silence(Case):
    """Packets vanish: no connection is closed, nobody is refused."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.c = Machines(cls.wire)
        if not nodes.wait_for(cls.c.ready, 20):
            raise AssertionError(cls.c.by_id["coordinator-0"].errors())

    @classmethod
    def tearDownClass(cls):
        cls.c.stop()
        super().tearDownClass()

    @contextlib.contextmanager
    def quiet(self, cable=False):
        (self.wire.unplug if cable else self.wire.silence)(1)
        try:
            yield
        finally:
            (self.wire.plug if cable else self.wire.hear)(1)

    def begin(self, body):
        got = []
        thread = threading.Thread(target=lambda: got.append(self.c.ask("POST", CHAT, body)))
        thread.start()
        return thread, got

    def test_noticed_in_time(self):
        for cable in (False, True):
            with self.subTest(cable=cable):
                with self.quiet(cable):
                    took = self.until(lambda: not self.c.ready(), "the loss of machine 1")
                    self.assertLess(took, NOTICED_SECONDS)
                    missing = self.c.ask("GET", "/ready")[2]["missing"]
                    self.assertIn("station-1 (layers 15-end)", missing)
                    self.assertEqual(self.c.ask("GET", "/health")[0], 200)
                self.whole(self.c)
                self.answers(self.c)

    def test_an_answer_goes_on(self):
        for cable in (False, True):
            with self.subTest(cable=cable):
                expected = self.solo.text(LONG)
                in_time(lambda: self.goes_on(cable, expected))

    def goes_on(self, cable, expected):
        before = self.c.ask("GET", "/cluster")[2]["queue"]["generated_tokens"]
        thread, got = self.begin(LONG)
        try:
            self.until(lambda: got or self.c.ask("GET", "/cluster")[2]["queue"]["active"] == 1, "it has begun")
            with self.quiet(cable):
                self.until(lambda: not self.c.ready(), "the loss of machine 1")
                if got:
                    raise TooLate("it was answered before the loss")
        finally:
            thread.join(120)
            self.assertEqual((got[0][0], content(got[0][2])), (200, expected))
            self.assertGreater(self.c.ask("GET", "/cluster")[2]["queue"]["generated_tokens"], before)
            self.whole(self.c)

    def test_patience_ends(self):
        """Whole answers end with 503, streams with an event that says the same; the cluster is none the worse."""
        first, got = self.begin(LONGER)
        second, streamed = self.begin_stream(dict(LONGER, stream=True))
        self.until(lambda: self.c.ask("GET", "/cluster")[2]["queue"]["active"] == 2, "they have begun")
        begun = time.monotonic()
        with self.quiet():
            first.join(PATIENCE_SECONDS + 20)
            second.join(5)
            took = time.monotonic() - begun
        self.assertEqual(got[0][0], 503, got)
        error = got[0][2]["error"]
        self.assertTrue(error["retryable"], error)
        self.assertIn("station-1", error["message"])
        self.assertIn("Retry-After", got[0][1])
        self.assertTrue(streamed[0]["error"]["retryable"], streamed)
        self.assertGreater(took, PATIENCE_SECONDS)
        self.assertLess(took, PATIENCE_SECONDS + NOTICED_SECONDS)
        self.whole(self.c)
        self.answers(self.c)

    def begin_stream(self, body):
        """The last event that is no [DONE]."""
        out = []

        def read():
            with self.wire.inside(0):
                node = self.c.by_id["coordinator-0"]
                connection = http.client.HTTPConnection(node.host, node.port, timeout=90)
                connection.request("POST", CHAT, json.dumps(body))
                lines = connection.getresponse().read().decode().split("\n")
                connection.close()
            events = [line[6:] for line in lines if line.startswith("data: {")]
            out.append(json.loads(events[-1]))
        thread = threading.Thread(target=read)
        thread.start()
        return thread, out


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2, warnings="ignore"))
