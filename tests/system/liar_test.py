#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stations and shards that lie, with the cluster's key in hand: whatever they say, it is refused and they are named in
the log, with what was wrong; the text is that of one process, and requests after it are answered. PEERS=whole
(`make peers`): every lie at every node, else some of them."""
import json
import os
import random
import sys
import time
import unittest

import _liar as lies
import _nodes as nodes
from _liar import Liar, field
from serve_test import CHAT, greedy
from _cluster import Solo
from _ports import free_port

MODEL = nodes.Model("smollm2-135m")
WHOLE = os.environ.get("PEERS") == "whole"
HIDDEN = MODEL.hidden
FORGIVEN_S = 5.5  # after which a range's other node is not held to what it said before
NAN, INF = float("nan"), float("inf")

# name: (lie, a word of what is said about it)
ANY = {
    "hash": (lies.without_hash, "hash"),
    "seal": (lies.without_seal, ""),
    "older frame": (lies.older, "request id"),
    "another request": (field(32, "<Q", lies.add(1)), "request id"),
    "another knot": (field(16, "<Q", lies.flip(1)), "knot"),
    "another numerics": (field(24, "<H", lies.add(1)), "numerics"),
    "another version": (field(4, "<H", lies.add(1)), "version"),
    "another kind": (field(6, "<H", lies.flip(1)), ""),
    "another range": (field(56, "<I", lies.add(4)), ""),
    "header of no size": (field(8, "<I", lambda v: 0), ""),
    "header of any size": (field(8, "<I", lambda v: 0xFFFFFFC0), ""),
    "payload of any size": (field(40, "<Q", lambda v: (1 << 64) - 1), ""),
    "reserved field": (field(28, "<I", lambda v: 1), ""),
    "nothing": (lies.cut(0), ""),
    "a prefix": (lies.cut(15), ""),
    "a header": (lies.cut(128), ""),
    "a byte less": (lies.cut(-1), ""),
    "a byte more": (lies.longer(1), ""),
    "megabytes more": (lies.longer(8 << 20), "room for"),
    "noise": (lies.noise, ""),
    "a page": (lambda a, b: b"<html>hello</html>", ""),
    "endless": (lies.endless, "larger"),
    "endless head": (lies.endless_head, ""),
    "hangs up": (lies.hang_up, ""),
    "chunked": (lies.chunked, ""),
    "no content": (lies.status(204), ""),
    "elsewhere": (lies.status(302, Location="http://127.0.0.1:9/"), ""),
    "teapot": (lies.status(418, b"short and stout"), "418"),
    "error of no shape": (lies.status(500, b'{"error":'), "500"),
    "deep error": (lies.status(500, b"[" * 100000), ""),
    "error that never was": (lies.error(400, "no_such_code"), ""),
    "too busy": (lies.error(503, "again"), "so it says"),
}
FORWARD = {
    "not a number": (lies.number(NAN), "not finite"),
    "not a number at first": (lies.number(NAN, 0), "not finite"),
    "infinity": (lies.number(-INF), "not finite"),
    "another mode": (field(64, "<B", lies.add(1)), "mode"),
    "another element": (field(65, "<B", lies.add(1)), "element"),
    "flags": (field(66, "<H", lambda v: 2), "flags"),
    "more rows": (field(68, "<I", lies.add(1)), "rows"),
    "no rows": (field(68, "<I", lambda v: 0), "rows"),
    "wider rows": (field(72, "<I", lies.add(1)), "elements"),
    "more sequences": (field(80, "<I", lies.add(1)), "sequences"),
    "another session": (field(96, "<Q", lies.flip(1)), "session"),
    "another position": (field(104, "<I", lies.add(1)), "length"),
    "position before": (field(104, "<I", lies.add(-1)), "length"),
    "a number less": (lies.payload(lies.shorter_row), ""),
    "lost sessions": (lies.error(410, "session"), None),
    "wrong positions": (lies.error(409, "position"), None),
}
EMBED = {
    "not a number": (lies.number(NAN), "not finite"),
    "infinity": (lies.number(INF, 0), "not finite"),
    "more ids": (field(64, "<I", lies.add(1)), ""),
    "another element": (field(68, "<B", lies.add(1)), "element"),
    "another form": (field(69, "<B", lies.flip(3)), "form"),
    "a number less": (lies.payload(lies.shorter_row), ""),
}
LOGITS = {
    "not a number": (lies.candidates(lies.nan_first), "not finite"),
    "infinity": (lies.candidates(lies.infinite_first), "not finite"),
    "ids of another shard": (lies.candidates(lies.of_another_shard), "candidate"),
    "ids of nobody": (lies.candidates(lies.of_nobody), "candidate"),
    "backwards": (lies.candidates(lies.backwards), ""),
    "the same twice": (lies.candidates(lies.the_same_twice), ""),
    "more rows": (field(64, "<I", lies.add(1)), "rows"),
    "too few": (field(96, "<I", lies.add(-1)), "candidates"),
    "too many": (field(96, "<I", lies.add(1)), "candidates"),
    "other flags": (field(100, "<I", lies.flip(2)), "flags"),
    "a number less": (lies.payload(lies.shorter_row), ""),
}


def some(table, count, seed):
    names = list(table)
    return names if WHOLE else random.Random(seed).sample(names, min(count, len(names)))


class Cluster(nodes.Cluster):
    """Two stations and two shards, and a coordinator that knows some of them under a liar's address."""

    def __init__(self, replicas=()):
        super().__init__(MODEL, ["0-15", "15-end"], 2, chunk=16)
        for node, replica in replicas:
            port = free_port()
            self.entry(node)["replicas"] = [{"id": replica, "address": f"127.0.0.1:{port}"}]
        self.write()
        self.liars, self.by_id = {}, {}

    def entry(self, node_id):
        for n in (*self.file["stations"], *self.file["shards"]):
            for replica in n.get("replicas", ()):
                if replica["id"] == node_id:
                    return {**n, **replica}
        return super().entry(node_id)

    def place(self, name):
        """Where the file has its address."""
        return next(n for s in (*self.file["stations"], *self.file["shards"]) for n in (s, *s.get("replicas", ()))
                    if n["id"] == name)

    def begin(self, liars):
        for n in (*self.file["stations"], *self.file["shards"]):
            for name in (n["id"], *(r["id"] for r in n.get("replicas", ()))):
                self.by_id[name] = self.start(name)
        for name in liars:
            self.liars[name] = Liar(self.by_id[name])
            self.place(name)["address"] = self.liars[name].address
        whole, self.path = self.path, self.path.parent / "coordinator.json"
        self.write()
        self.coordinator = self.start("coordinator-0", "--drafts", "0")
        self.path = whole
        assert nodes.wait_for(lambda: self.api("GET", "/ready")[0] == 200, 30), self.coordinator.errors()

    def api(self, method, path, body=None, timeout=120):
        status, data = self.coordinator.call(method, path, json.dumps(body) if body else None, key=None,
                                             headers={"Content-Type": "application/json"}, timeout=timeout)
        return status, json.loads(data)

    def log(self):
        self.coordinator.log.seek(0)
        return self.coordinator.log.read()

    def stop(self):
        for liar in self.liars.values():
            liar.__exit__()
        super().stop()


class Base(unittest.TestCase):
    replicas, liars = (), ()

    @classmethod
    def setUpClass(cls):
        cls.solo, cls.cluster = Solo(), Cluster(cls.replicas)
        cls.cluster.begin(cls.liars)
        cls.body = greedy("Name three rivers.", 10)
        cls.right = cls.solo.text(cls.body)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()
        cls.solo.stop()

    def ask(self):
        status, answer = self.cluster.api("POST", CHAT, self.body)
        return status, answer["choices"][0]["message"]["content"] if status == 200 else answer["error"]

    def answers_well(self):
        self.assertEqual(self.ask(), (200, self.right))

    def told(self, node, name, lie, word, times):
        """A request during which a node lies. Nobody reads an answer that another one has overtaken: the lie is told
        again then, twice at most."""
        for _ in range(3):
            before = len(self.cluster.log())
            self.tell(node, lie, times)
            lines = lambda: [line for line in self.cluster.log()[before:].splitlines() if node in line]  # noqa: E731
            if word is None or nodes.wait_for(lambda: any(word in line for line in lines()), 5):
                return
        self.fail((node, name, word, self.cluster.log()[before:]))

    def tell(self, node, lie, times):
        liar = self.cluster.liars[node]
        liar.tell(lie, times)
        try:
            self.answers_well()
            self.assertGreater(liar.told, 0, "it said no lie")
        finally:
            liar.tell(None, 0)


class Once(Base):
    """Each lie twice, then the truth: asked again until it says something sound."""
    liars = ("station-0", "station-1", "shard-0")

    def each(self, node, path, tables, count):
        self.answers_well()
        liar = self.cluster.liars[node]
        liar.only = (path,)
        for table in tables:
            for name in some(table, count, f"{node} {path}"):
                with self.subTest(node=node, path=path, lie=name):
                    self.told(node, name, *table[name], times=2)
        self.answers_well()

    def test_station_in_the_middle(self):
        self.each("station-0", "/forward", (ANY, FORWARD), 4)

    def test_last_station(self):
        self.each("station-1", "/forward", (ANY, FORWARD), 4)

    def test_a_key_that_is_wrong(self):
        """All nodes of a range refuse the key: no loss to be waited for, but a mistake to be told."""
        self.answers_well()
        liar = self.cluster.liars["station-0"]
        liar.only = ("/forward",)
        liar.tell(lies.error(401, "key"), 1)
        status, error = self.ask()
        self.assertEqual(status, 503)
        self.assertIn("station-0", error["message"])
        self.assertIn("so it says", error["message"])
        self.assertTrue(nodes.wait_for(lambda: self.ask() == (200, self.right), 20))

    def test_embedding(self):
        self.each("shard-0", "/embed", (ANY, EMBED), 3)

    def test_logits(self):
        self.each("shard-0", "/logits", (ANY, LOGITS), 3)


class ForEver(Base):
    """Whoever of a range is asked first lies from then on, at every call: the range's other node answers."""
    replicas = (("station-0", "station-2"), ("station-1", "station-3"), ("shard-0", "shard-2"))
    liars = ("station-0", "station-2", "station-1", "station-3", "shard-0", "shard-2")

    def one_of(self, names, path, name, lie, word):
        chosen, before = [], len(self.cluster.log())
        for node in names:
            def first(answer, last, me=node):
                chosen.extend([] if chosen else [me])
                return lie(answer, last) if chosen[0] == me else None
            self.cluster.liars[node].only = (path,)
            self.cluster.liars[node].tell(first)
        self.answers_well()
        for node in names:
            self.cluster.liars[node].tell(None, 0)

        def is_named():
            return any(chosen[0] in line and (word or "") in line for line in self.cluster.log()[before:].splitlines())
        self.assertTrue(nodes.wait_for(is_named, 5), (chosen, name, word, self.cluster.log()[before:]))

    def each(self, names, path, table, count, pause_s=0):
        self.answers_well()
        for name in some(table, count, f"{names} {path}"):
            with self.subTest(nodes=names, path=path, lie=name):
                self.one_of(names, path, name, *table[name])
            time.sleep(pause_s)

    def test_stations(self):
        self.each(("station-0", "station-2"), "/forward", {**ANY, **FORWARD}, 2, FORGIVEN_S)
        self.each(("station-1", "station-3"), "/forward", FORWARD, 1, FORGIVEN_S)

    def test_shards(self):
        self.each(("shard-0", "shard-2"), "/embed", EMBED, 2)
        self.each(("shard-0", "shard-2"), "/logits", LOGITS, 2)


@unittest.skipUnless(WHOLE, "make peers: each waits for half a minute")
class Alone(Base):
    """A lie for ever, and nobody else who has the range: an error that names node and lie, and the next is answered."""
    liars = ("station-0",)

    def test_refused_and_named(self):
        self.answers_well()
        for name in ("hash", "not a number", "another position", "lost sessions", "drips"):
            lie, word = {**ANY, **FORWARD, "drips": (lies.drip, "")}[name]
            with self.subTest(name):
                self.cluster.liars["station-0"].tell(lie)
                status, error = self.ask()
                self.assertTrue(status in (500, 503) and error["retryable"], error)
                self.assertIn("station-0", error["message"])
                self.assertIn(word or "", error["message"])
                self.cluster.liars["station-0"].tell(None, 0)
                self.assertTrue(nodes.wait_for(lambda: self.cluster.api("GET", "/ready")[0] == 200, 30))
                self.answers_well()


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
