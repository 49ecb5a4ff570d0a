#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Objects that lose their memory in the midst of a conversation: for real, after ten idle seconds, and by a deployment.
What they had saved is there again, to the bit; what they had not is asked for again, and never made up."""
import json
import time
import unittest

import _frames as frames
import _nodes as nodes
import _workers as workers
from _nodes import Model
from serve_test import CHAT, Server

MODEL = Model("smollm2-135m")
IDS = [504, 3575, 282, 4649, 314]
MIB = 1 << 20


def solo(ids, count):
    out = list(ids)
    for _ in range(count):
        out.append(nodes.support.logits(MODEL.name, out, "--top", "1")["positions"][-1]["top"][0][0])
    return out[len(ids):]


class Base(unittest.TestCase):
    """Two stations and two shards."""

    cache_type = "f16"

    @classmethod
    def setUpClass(cls):
        cls.cluster = workers.WorkerCluster(MODEL, ["0-15", "15-end"], 2, chunk=64, sessions=4, memory=96 * MIB,
                                            cache_type=cls.cache_type)
        cls.nodes = cls.cluster.start_workers()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def setUp(self):
        self.stations = [self.nodes[f"station-{i}"] for i in range(2)]
        self.driver = nodes.Driver(self.stations, [self.nodes[f"shard-{i}"] for i in range(2)], int(time.time() * 1000))

    def step(self, ids, session, position, mode=frames.DECODE):
        """The likeliest token after some more."""
        x = self.driver.forward(self.driver.embed(ids), session, position, mode)
        return self.driver.best(x[-4 * MODEL.hidden:], 1)[0][0][0]

    def grow(self, ids, session, count, rest=()):
        """Appends `count` tokens to `ids`, of which the station has all but the last; `rest` is what it has before."""
        for _ in range(count):
            ids.append(self.step([ids[-1]], session, len(rest) + len(ids) - 1))

    def lost(self, node):
        """Whether the object has begun anew: its counters have."""
        return node.metrics()["cobord_node_calls_total"] == 0

    def lose(self, how):
        """Everybody's memory is lost, by waiting or by a deployment; both are seen to have happened."""
        if how == "idle":
            workers.wait_evicted(lambda: all([self.lost(node) for node in self.nodes.values()]))
        else:
            self.cluster.runtime.restart()
        for node in self.nodes.values():
            self.assertTrue(self.lost(node), f"{node.id} still has its memory")
        self.driver = nodes.Driver(self.stations, self.driver.shards, self.driver.request)

    def error(self, station, session, position):
        """What the station says to a row at this position."""
        body = self.driver.frame(station, bytes(4 * MODEL.hidden), session, position)
        status, data = station.call("POST", "/forward", body)
        return status, None if status == 200 else json.loads(data)["error"]["code"]


class Goes(Base):
    def test_on(self):
        """A conversation: three tokens, a loss, three more."""
        got = [self.step(IDS, 1, 0, frames.PREFILL)]
        self.grow(got, 1, 2, IDS)
        self.lose("idle")
        self.grow(got, 1, 3, IDS)
        self.assertEqual(got, solo(IDS, 6))


class Kept(Base):
    """After a deployment, which is quicker than waiting."""

    def test_cut_is_kept(self):
        """A session that was cut and grew again has the later rows only."""
        first = self.step(IDS, 11, 0, frames.PREFILL)
        self.step([first, 7, 8, 9], 11, len(IDS), frames.VERIFY)
        second = self.step([first], 11, len(IDS))
        self.lose("deployment")
        third = self.step([second], 11, len(IDS) + 1)
        self.assertEqual([first, second, third], solo(IDS, 3))

    def test_beyond_what_was_kept(self):
        """Positions are checked after a loss as before."""
        self.step(IDS, 12, 0, frames.PREFILL)
        self.lose("deployment")
        for station in self.stations:
            self.assertEqual(self.error(station, 12, 9), (409, "position"))
            self.assertEqual(self.error(station, 77, 3), (410, "session"))
            self.assertEqual(self.error(station, 12, 5), (200, None))

    def test_dropped_is_gone(self):
        self.step(IDS, 13, 0, frames.PREFILL)
        for station in self.stations:
            self.assertEqual(station.call("DELETE", "/sessions/13")[0], 200)
        self.lose("deployment")
        for station in self.stations:
            self.assertEqual(self.error(station, 13, 5), (410, "session"))

    def test_late_frames_are_refused_still(self):
        """A request id that was accepted before the loss is not accepted after it."""
        x = self.driver.embed(IDS)
        body = self.driver.frame(self.stations[0], x, 14, 0)
        self.assertEqual(self.stations[0].call("POST", "/forward", body)[0], 200)
        self.lose("deployment")
        self.assertEqual(self.stations[0].error("POST", "/forward", body), (409, "superseded"))

    def test_forks_and_long_prompts(self):
        """A copy of a beginning, several blocks of rows, two sessions: each as if nothing had been."""
        ids = [(7 * i * i + 11) % 20000 + 500 for i in range(150)]
        for at in range(0, 150, 50):
            x = self.driver.forward(self.driver.embed(ids[at:at + 50]), 15, at)
        best = self.driver.best(x[-4 * MODEL.hidden:], 1)[0][0][0]
        x = self.driver.embed([42])
        for station in self.stations:
            body = frames.forward(MODEL.id, self.cluster.bounds(station.id), MODEL.hidden,
                                  [frames.Sequence(16, 70, 1, 15, 70)], x, self.driver.next_request())
            x = frames.payload(self.driver.post(station, "/forward", body), frames.FORWARD_ANSWER)
        fork = self.driver.best(x, 1)[0][0][0]
        self.lose("deployment")
        self.assertEqual([self.step([fork], 16, 71)], solo(ids[:70] + [42, fork], 1))
        self.assertEqual([best, self.step([best], 15, 150)], solo(ids, 2))


class Eight(Base):
    """The cache in q8_0."""

    cache_type = "q8_0"

    def test_goes_on(self):
        """Against the same cluster that never lost anything: q8_0 has a text of its own."""
        want = [self.step(IDS, 21, 0, frames.PREFILL)]
        self.grow(want, 21, 4, IDS)
        got = [self.step(IDS, 22, 0, frames.PREFILL)]
        self.grow(got, 22, 2, IDS)
        self.lose("deployment")
        self.grow(got, 22, 2, IDS)
        self.assertEqual(got, want)


class Whole(unittest.TestCase):
    """Everything is a Worker, the coordinator too: a conversation over its API that loses every memory."""

    ids = ["station-0", "station-1", "shard-0", "shard-1", "coordinator-0"]
    turns = [{"role": "user", "content": "Tell me about the sea."}]

    @classmethod
    def setUpClass(cls):
        cls.cluster = workers.WorkerCluster(MODEL, ["0-15", "15-end"], 2, chunk=64, sessions=2, memory=96 * MIB)
        cls.nodes = cls.cluster.start_workers(cls.ids)
        cls.coordinator = cls.nodes["coordinator-0"]
        cls.native = Server("--context", "1024")

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()
        cls.native.stop()

    def say(self, turns, **more):
        body = json.dumps({"messages": turns, "temperature": 0, "max_tokens": 12, **more}).encode()
        status, answer = self.coordinator.call("POST", CHAT, body, key=None, timeout=120)
        self.assertEqual(status, 200, answer)
        return answer

    def text(self, turns, **more):
        return json.loads(self.say(turns, **more))["choices"][0]["message"]["content"]

    def expected(self, turns, **more):
        body = {"messages": turns, "temperature": 0, "max_tokens": 12, **more}
        return self.native.json(CHAT, body)["choices"][0]["message"]["content"]

    def went(self, node, name):
        """Whether an object's counter has begun anew; the coordinator has none of frames."""
        return node.metrics()[name] < 2

    def lose(self, how):
        def went(node):
            return self.went(self.nodes[node], "cobord_node_calls_total")
        if how == "idle":
            workers.wait_evicted(lambda: all([went(node) for node in self.ids[:4]]))
        else:
            self.cluster.runtime.restart()
        for node in self.ids[:4]:
            self.assertTrue(went(node), f"{node} still has its memory")

    def test_conversation(self):
        """Three turns; before each but the first everything is lost."""
        turns = list(self.turns)
        for how, question in (("idle", "And the sky?"), ("deployment", "Say it shorter."), (None, None)):
            said = self.text(turns)
            self.assertEqual(said, self.expected(turns))
            if not how:
                break
            turns += [{"role": "assistant", "content": said}, {"role": "user", "content": question}]
            self.lose(how)

    def test_stream_goes_on(self):
        """A client that lost its connection, and a fleet that lost its memory: the rest of the text, by the last id."""
        more = {"temperature": 0.8, "seed": 11, "max_tokens": 16, "stream": True}
        whole = self.say(self.turns, **more).decode()
        events = [e for e in whole.split("\n\n") if e.startswith("id: ")]
        place = events[5].splitlines()[0][4:]
        self.lose("deployment")
        status, rest = self.coordinator.call("POST", CHAT, b"", key=None, headers={"Last-Event-ID": place}, timeout=120)
        self.assertEqual(status, 200, rest)
        self.assertEqual([e for e in rest.decode().split("\n\n") if e.startswith("id: ")], events[6:])


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
