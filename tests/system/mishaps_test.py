#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mishaps that do not come alone: twice in a row, during the rebuild, several at once, a replica after its first node.
And one round with another model."""
import signal
import sys
import unittest

from _cluster import GO_ON, Cluster, Solo, wait_until, words
from serve_test import greedy

ROWS = "cobord_station_rows_total"


class Base(unittest.TestCase):
    """One cluster for each class."""

    arguments = ("--chunk", "16")
    counts = {"stations": 3, "shards": 2}

    @classmethod
    def setUpClass(cls):
        cls.solo = Solo(cls.counts.get("model", "smollm2-135m"))
        cls.c = Cluster(*cls.arguments, **cls.counts)

    @classmethod
    def tearDownClass(cls):
        cls.c.end_beside(cls.solo)

    def tearDown(self):
        self.c.whole_again()

    def begin(self, body, pieces):
        expected = self.solo.text(body)
        stream = self.c.begin(body)
        stream.wait_pieces(pieces)
        return stream, expected


class Several(Base):
    def test_at_token_one_and_at_token_fifty(self):
        for node in ("station-0", "station-2"):
            with self.subTest(node):
                s, expected = self.begin(greedy("Tell me of a mountain.", 70, **GO_ON), 1)
                first = self.c.hit(node, signal.SIGKILL)
                s.wait_pieces(50)
                self.c.wait_for_new(*first)
                second = self.c.hit(node, signal.SIGKILL)
                self.assertEqual(s.text(), expected)
                self.c.whole_again(second)

    def test_during_the_rebuild(self):
        """The new process of a station has been given some of the lost rows, and not all."""
        for i, node in enumerate(("station-1", "station-0", "coordinator-0", "shard-1")):
            with self.subTest(node):
                s, expected = self.begin(greedy(words(250, 100 + i), 40, **GO_ON), 3)
                hits = [self.c.hit("station-1", signal.SIGKILL)]
                self.c.wait_for_new(*hits[0])
                wait_until(lambda: self.c.figures("station-1").get(ROWS, 0) > 0)
                self.assertLess(self.c.figures("station-1")[ROWS], 250, "the rebuild was too quick for this test")
                hits = [self.c.hit(node, signal.SIGKILL)]
                self.assertEqual(s.text(), expected)
                self.c.whole_again(*hits)

    def test_at_once(self):
        """Two stations; all stations and shards; everybody but the coordinator, half of them frozen."""
        stations, shards = [f"station-{i}" for i in range(3)], ["shard-0", "shard-1"]
        for gone in (stations[:2], [stations[0], stations[2]], stations + shards):
            for number in (signal.SIGKILL, signal.SIGSTOP):
                with self.subTest(gone=gone, number=number):
                    s, expected = self.begin(greedy("What is a lighthouse for?", 40, **GO_ON), 3)
                    hits = [self.c.hit(node, number if i % 2 else signal.SIGKILL) for i, node in enumerate(gone)]
                    self.assertEqual(s.text(), expected)
                    self.c.whole_again(*hits)

    def test_a_station_and_the_coordinator(self):
        s, expected = self.begin(greedy("What is a harbour for?", 40, **GO_ON), 3)
        hits = [self.c.hit("station-1", signal.SIGSTOP), self.c.hit("coordinator-0", signal.SIGKILL)]
        self.assertEqual(s.text(), expected)
        self.assertGreater(s.breaks, 0)
        self.c.whole_again(*hits)

    def test_the_coordinator_twice(self):
        s, expected = self.begin(greedy("Tell me of a valley.", 120, **GO_ON), 3)
        self.c.hit("coordinator-0", signal.SIGKILL)
        wait_until(lambda: s.breaks > 0)
        had = len(s.pieces)
        s.wait_pieces(had + 3)
        hit = self.c.hit("coordinator-0", signal.SIGKILL)
        self.assertEqual(s.text(), expected)
        self.c.whole_again(hit)

    def test_four_conversations(self):
        bodies = [greedy(words(30 + 40 * i, 200 + i), 40, **GO_ON) for i in range(4)]
        expected = [self.solo.text(body) for body in bodies]
        streams = [self.c.begin(body) for body in bodies]
        for s in streams[:2]:
            s.wait_pieces(2)
        hits = [self.c.hit("station-1", signal.SIGKILL), self.c.hit("shard-0", signal.SIGKILL)]
        self.assertEqual([s.text() for s in streams], expected)
        self.c.whole_again(*hits)


class Replicas(Base):
    arguments = ("--chunk", "16", "--replicas", "1")
    counts = {"stations": 2, "shards": 1}

    def stations(self, part):
        return [n for n in self.c.json("/cluster")[1]["nodes"] if n["role"] == "station" and n["part"] == part]

    def active(self, part):
        return next(n["id"] for n in self.stations(part) if n["active"])

    def test_there_and_back(self):
        """Whoever is active goes, while the one before it has returned with other things in mind."""
        for number in (signal.SIGKILL, signal.SIGSTOP):
            for turn in range(3):  # conversations that begin alike and then differ
                with self.subTest(number=number, turn=turn):
                    body = greedy(words(60, 300 + number) + f" Chapter {turn} is about", 60, **GO_ON)
                    s, expected = self.begin(body, 3)
                    hit = self.c.hit(self.active(0), number)
                    self.assertEqual(s.text(), expected)
                    self.c.whole_again(hit)

    def test_both(self):
        s, expected = self.begin(greedy("Tell me of an island.", 60, **GO_ON), 3)
        both = [n["id"] for n in self.stations(1)]
        self.assertEqual(len(both), 2)
        hits = [self.c.hit(node, signal.SIGKILL) for node in both]
        self.assertEqual(s.text(), expected)
        self.c.whole_again(*hits)

    def test_in_the_prompt(self):
        body = greedy(words(250, 310), 10)
        expected = self.solo.text(body)
        before = {n["id"]: self.c.figures(n["id"])[ROWS] for n in self.stations(1)}
        s = self.c.begin(body)  # whichever of them has come back first gets its rows
        node = wait_until(lambda: next((n for n in before if self.c.figures(n)[ROWS] > before[n]), None))
        hit = self.c.hit(node, signal.SIGSTOP)
        self.assertEqual(s.text(), expected)
        self.c.whole_again(hit)


class AnotherModel(Base):
    arguments = ("--chunk", "16", "--memory", "160M")
    counts = {"stations": 2, "shards": 2, "model": "qwen2.5-coder-0.5b"}

    def test_each_role(self):
        for number in (signal.SIGKILL, signal.SIGSTOP):
            for node in ("station-0", "station-1", "shard-1", "coordinator-0"):
                with self.subTest(node=node, number=number):
                    s, expected = self.begin(greedy("Name three rivers of Europe.", 24), 3)
                    hit = self.c.hit(node, number)
                    self.assertEqual(s.text(), expected)
                    self.c.whole_again(hit)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2, warnings="ignore"))
