#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mishaps that do not come alone: twice in a row, during the rebuild, several at once, a replica after its first node.
And one round with another model."""
import signal
import sys
import unittest

from _cluster import GO_ON, Cluster, Solo, wait_until, words
from _late import TooLate, in_time
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

    def goes_on(self, body, pieces, strike):
        """The text is whole, whatever strike(stream) does once so many pieces are there. Its hits are over then."""
        expected = self.solo.text(body)

        def attempt():
            stream = self.c.begin(body)
            with self.c.striking([stream], [expected]) as hits:
                stream.wait_pieces(pieces)
                hits += strike(stream)
                stream.still_on()
            return stream
        return in_time(attempt)


class Several(Base):
    def test_at_token_one_and_at_token_fifty(self):
        for node in ("station-0", "station-2"):
            with self.subTest(node):
                def twice(stream):
                    first = self.c.hit(node, signal.SIGKILL)
                    stream.wait_pieces(50)
                    self.c.wait_for_new(*first)
                    return [self.c.hit(node, signal.SIGKILL)]
                self.goes_on(greedy("Tell me of a mountain.", 70, **GO_ON), 1, twice)

    def test_during_the_rebuild(self):
        """The new process of a station has been given some of the lost rows, and not all."""
        for i, node in enumerate(("station-1", "station-0", "coordinator-0", "shard-1")):
            with self.subTest(node):
                def at_once(_):
                    first = self.c.hit("station-1", signal.SIGKILL)
                    self.c.wait_for_new(*first)
                    rows = wait_until(lambda: self.c.figures("station-1").get(ROWS, 0))
                    if rows >= 250:
                        raise TooLate("the rebuild was too quick for this test")
                    return [self.c.hit(node, signal.SIGKILL)]
                self.goes_on(greedy(words(250, 100 + i), 40, **GO_ON), 3, at_once)

    def test_at_once(self):
        """Two stations; all stations and shards; everybody but the coordinator, half of them frozen."""
        stations, shards = [f"station-{i}" for i in range(3)], ["shard-0", "shard-1"]
        for gone in (stations[:2], [stations[0], stations[2]], stations + shards):
            for number in (signal.SIGKILL, signal.SIGSTOP):
                with self.subTest(gone=gone, number=number):
                    self.goes_on(greedy("What is a lighthouse for?", 40, **GO_ON), 3, lambda _: [
                        self.c.hit(node, number if i % 2 else signal.SIGKILL) for i, node in enumerate(gone)])

    def test_a_station_and_the_coordinator(self):
        s = self.goes_on(greedy("What is a harbour for?", 40, **GO_ON), 3, lambda _: [
            self.c.hit("station-1", signal.SIGSTOP), self.c.hit("coordinator-0", signal.SIGKILL)])
        self.assertGreater(s.breaks, 0)

    def test_the_coordinator_twice(self):
        def twice(stream):
            self.c.hit("coordinator-0", signal.SIGKILL)
            wait_until(lambda: stream.breaks > 0 or stream.ended)
            stream.wait_pieces(len(stream.pieces) + 3)
            return [self.c.hit("coordinator-0", signal.SIGKILL)]
        self.goes_on(greedy("Tell me of a valley.", 120, **GO_ON), 3, twice)

    def test_four_conversations(self):
        bodies = [greedy(words(30 + 40 * i, 200 + i), 40, **GO_ON) for i in range(4)]
        expected = [self.solo.text(body) for body in bodies]

        def attempt():
            streams = [self.c.begin(body) for body in bodies]
            with self.c.striking(streams, expected) as hits:
                for s in streams[:2]:
                    s.wait_pieces(2)
                hits += [self.c.hit("station-1", signal.SIGKILL), self.c.hit("shard-0", signal.SIGKILL)]
                for s in streams:
                    s.still_on()
        in_time(attempt)


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
                    self.goes_on(body, 3, lambda _: [self.c.hit(self.active(0), number)])

    def test_both(self):
        both = [n["id"] for n in self.stations(1)]
        self.assertEqual(len(both), 2)
        self.goes_on(greedy("Tell me of an island.", 60, **GO_ON), 3, lambda _: [
            self.c.hit(node, signal.SIGKILL) for node in both])

    def test_in_the_prompt(self):
        body = greedy(words(250, 310), 10)
        expected = self.solo.text(body)
        before = {n["id"]: self.c.figures(n["id"])[ROWS] for n in self.stations(1)}
        s = self.c.begin(body)  # whichever of them has come back first gets its rows
        node = wait_until(lambda: next((n for n in before if self.c.figures(n).get(ROWS, 0) > before[n]), None))
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
                    self.goes_on(greedy("Name three rivers of Europe.", 24), 3, lambda _: [self.c.hit(node, number)])


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2, warnings="ignore"))
