#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Answers with a form over a cluster: the text of one process, whoever is killed or frozen in the midst, and after the
coordinator itself; within its memory."""
import json
import signal
import sys
import unittest

from _cluster import Cluster, Solo
from _late import in_time
from serve_test import CHAT, greedy
from up_test import MIB, status

NUMBERS = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9999}, "minItems": 30, "maxItems": 40}
RECORD = {"type": "object", "properties": {
    "title": {"type": "string", "minLength": 60, "maxLength": 90}, "kind": {"enum": ["poem", "story", "letter"]},
    "parts": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{3,9}( [a-z]{2,9}){1,3}$"}, "minItems": 6,
              "maxItems": 9}}, "required": ["title", "kind", "parts"], "additionalProperties": False}


def body(schema, **more):
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    return {**greedy("Make one.", 260), "temperature": 0.8, "seed": 3, "response_format": form, **more}


NUMBERED = body(NUMBERS)
RECORDED = body(RECORD, seed=5)
LINES = {**greedy("Write.", 120), "grammar": 'root ::= line{5,9}\nline ::= [A-Z] [a-z ]{8,20} ".\\n"',
         "temperature": 0.7, "seed": 9}


class FormsOverAClusterTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.solo = Solo()
        cls.c = Cluster("--slots", "3", "--memory", "128M", stations=2, shards=3)
        cls.texts = [cls.solo.text(b) for b in (NUMBERED, RECORDED, LINES)]

    @classmethod
    def tearDownClass(cls):
        try:
            cls.solo.stop()
            assert cls.c.stop() == 0, cls.c.errors()[-3000:]
        finally:
            cls.c.close()

    def begin(self):
        return [self.c.begin(b) for b in (NUMBERED, RECORDED, LINES)]

    def assert_texts(self):
        self.assertEqual([s.text() for s in self.begin()], self.texts)

    def struck(self, node, number, pieces):
        """The streams, after their texts were right although a node was hit in their midst."""
        def attempt():
            streams = self.begin()
            with self.c.striking(streams, self.texts) as hits:
                for s in streams:
                    s.wait_pieces(pieces)
                hits.append(self.c.hit(node, number))
            return streams
        return in_time(attempt)

    def test_texts_are_those_of_one_process(self):
        self.assertIn(len(json.loads(self.texts[1])["parts"]), range(6, 10))
        self.assertIn(len(json.loads(self.texts[0])), range(30, 41))
        self.assertRegex(self.texts[2], r"^([A-Z][a-z ]{8,20}\.\n){5,9}$")
        self.assert_texts()

    def test_a_station_or_a_shard_dies(self):
        for node, number in (("station-1", signal.SIGKILL), ("shard-0", signal.SIGKILL), ("shard-2", signal.SIGSTOP),
                             ("station-0", signal.SIGKILL)):
            with self.subTest(node=node, number=number):
                self.struck(node, number, 12)

    def test_the_coordinator_dies(self):
        streams = self.struck("coordinator-0", signal.SIGKILL, 20)
        self.assertGreaterEqual(max(s.breaks for s in streams), 1)

    def test_within_its_memory(self):
        self.assert_texts()
        peak = status(self.c.nodes()["coordinator-0"], "VmHWM") * 1024
        print(f"coordinator with forms: peak {peak / MIB:.1f} MiB of 128")
        self.assertLessEqual(peak, 128 * MIB)


class SmallTest(unittest.TestCase):
    def test_refused_without_room(self):
        with_little = Cluster("--memory", "56M", stations=2, shards=3)
        try:
            code, answer = with_little.json(CHAT, NUMBERED)
            self.assertEqual((code, answer["error"]["param"]), (400, "response_format"))
            self.assertIn("--memory", answer["error"]["message"])
            self.assertEqual(with_little.json(CHAT, greedy("Hi", 2))[0], 200)
            self.assertLessEqual(status(with_little.nodes()["coordinator-0"], "VmHWM") * 1024, 56 * MIB)
            self.assertEqual(with_little.stop(), 0)
        finally:
            with_little.close()


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
