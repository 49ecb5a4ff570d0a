#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A station is drained, stopped and started again while streams run: none is dropped, each has its text."""
import signal
import sys
import unittest

from _cluster import GO_ON, Cluster, Solo, wait_until, words
from _late import in_time
from serve_test import greedy


class Drain(unittest.TestCase):
    def cluster(self, *arguments, **counts):
        c = Cluster("--chunk", "16", *arguments, **counts)
        self.addCleanup(c.close)
        solo = Solo()
        self.addCleanup(solo.stop)
        return c, solo

    def drain(self, c, node):
        """As one does by hand: no new frames, those under way end, then the process."""
        old = c.nodes()[node]
        status, text = c.call_node(node, "POST", "/drain", 30)
        self.assertEqual(status, 200, text)
        c.kill(node, signal.SIGTERM)
        return node, old

    def undisturbed(self, c, solo, bodies, drain):
        """drain(streams) gives the node that goes while they are under way, and its process."""
        expected = [solo.text(body) for body in bodies]

        def attempt():
            streams = [c.begin(body) for body in bodies]
            try:
                with c.striking(streams, expected) as hits:
                    hits.append(drain(streams))
            finally:
                self.assertEqual([s.breaks for s in streams], [0] * len(streams))
        in_time(attempt)

    def some(self, count, tokens):
        return [greedy(words(20 + 30 * i, 700 + i), tokens, **GO_ON) for i in range(count)]

    def test_alone_in_its_range(self):
        """The streams wait for the new process, which is given what the old one knew."""
        c, solo = self.cluster()
        for node in ("station-0", "station-1"):
            def drain(streams):
                for s in streams:
                    s.wait_pieces(2)
                drained = self.drain(c, node)
                for s in streams:
                    s.still_on()
                return drained
            self.undisturbed(c, solo, self.some(3, 100), drain)
        self.assertEqual(c.stop(), 0)

    def test_with_a_replica(self):
        """The other node of the range takes over before the first one is gone."""
        c, solo = self.cluster("--replicas", "1", stations=2, shards=1)
        nodes = [n for n in c.json("/cluster")[1]["nodes"] if n["role"] == "station" and n["part"] == 0]
        self.assertEqual(len(nodes), 2)

        def drain(streams):
            for s in streams:
                s.wait_pieces(2)
            active = next(n["id"] for n in c.json("/cluster")[1]["nodes"]
                          if n["role"] == "station" and n["part"] == 0 and n["active"])
            status, text = c.call_node(active, "POST", "/drain", 30)
            self.assertEqual(status, 200, text)
            had = [len(s.pieces) for s in streams]
            for s, count in zip(streams, had):  # they go on while that node is still there, drained
                s.wait_pieces(count + 5)
            self.assertEqual(c.call_node(active, "GET", "/ready")[0], 503)
            old = c.nodes()[active]
            c.kill(active, signal.SIGTERM)
            return active, old
        for _ in range(2):
            self.undisturbed(c, solo, self.some(2, 200), drain)
        self.assertEqual(c.stop(), 0)

    def test_in_the_midst_of_a_prompt(self):
        c, solo = self.cluster()
        rows = "cobord_station_rows_total"
        before = c.figures("station-1")[rows]

        def drain(_):
            wait_until(lambda: c.figures("station-1")[rows] > before)
            return self.drain(c, "station-1")
        self.undisturbed(c, solo, [greedy(words(250, 720), 10)], drain)
        self.assertEqual(c.stop(), 0)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2, warnings="ignore"))
