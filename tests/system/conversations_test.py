#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What one conversation says is never heard in another's; and clusters of odd shapes and places that say what one
process says."""
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import unittest

from _cluster import Cluster, Solo, plan
from serve_test import COMPLETIONS, Server, greedy
from up_test import COBORD, MODEL, environment

MARKERS = [a + b for a in "zorblat quimfex vandrol keptish".split() for b in "anu ite oro ubb eky iml".split()]
ROUNDS = 90


class Markers(unittest.TestCase):
    """Seeded conversations, each with a word of its own, two at once, on three slots with prefixes used again."""

    @classmethod
    def setUpClass(cls):
        cls.solo = Solo()
        cls.c = Cluster("--slots", "3", "--chunk", "16")

    @classmethod
    def tearDownClass(cls):
        cls.solo.stop()
        try:
            assert cls.c.stop() == 0
        finally:
            cls.c.close()

    def body(self, marker, turn):
        """A conversation that grows by a turn each time, as they do."""
        messages = [{"role": "system", "content": "You repeat the secret word when you are asked."}]
        for i in range(turn):
            messages += [{"role": "user", "content": f"The secret word is {marker}. Say it, number {i}."},
                         {"role": "assistant", "content": f"The secret word is {marker}."}]
        messages.append({"role": "user", "content": f"My secret word is {marker}. Which is it?"})
        return {"messages": messages, "max_tokens": 14, "temperature": 0.7, "seed": turn * 100 + len(marker)}

    def test_no_foreign_marker(self):
        dice = random.Random(11)
        said = 0
        for number in range(ROUNDS):
            pair = [self.body(m, dice.randrange(3)) for m in dice.sample(MARKERS, 2)]
            words = [b["messages"][-1]["content"].split()[4].rstrip(".") for b in pair]
            answers = [None, None]

            def ask(i, pair=pair, answers=answers):
                status, value = self.c.json(data=pair[i])
                answers[i] = value["choices"][0]["message"]["content"] if status == 200 else value
            threads = [threading.Thread(target=ask, args=(i,)) for i in range(2)]
            for t in threads:
                t.start()
            for t in threads:
                t.join(60)
            for i in range(2):
                self.assertIsInstance(answers[i], str, (number, answers[i]))
                foreign = [m for m in MARKERS if m in answers[i] and m != words[i]]
                self.assertEqual(foreign, [], (number, words[i], answers[i]))
                said += words[i] in answers[i]
                if number % 5 == 0:
                    self.assertEqual(answers[i], self.solo.text(pair[i]), number)
        self.assertGreater(said, ROUNDS // 3)  # so that the words are heard at all
        self.assertGreater(self.c.gauge("cobord_cached_tokens_total"), 1000)

    def test_three_lengths_at_once_and_again(self):
        """Of a cache that is cut short and used again: the lengths of the cases, each thrice, other orders."""
        texts = ["hi", "one two three four five six seven eight nine ten " * 60, "red green blue " * 12]
        bodies = [greedy(text, 12) for text in texts]
        bodies += [greedy(text[: len(text) // 2] + " and then", 12) for text in texts]
        expected = [self.solo.text(body) for body in bodies]
        for turn in range(3):
            order = random.Random(turn).sample(range(len(bodies)), len(bodies))
            streams = {i: self.c.begin(bodies[i]) for i in order}
            for i in order:
                self.assertEqual(streams[i].text(), expected[i], (turn, i))


class LongPrompts(unittest.TestCase):
    def test_the_first_is_long(self):
        """The first prompt after the start has 5,000 tokens, the next ones 1 and 100, and then the long one goes on."""
        ids = [500 + i * 37 % 9000 for i in range(5000)]
        context = ["--context", "5200", "--slots", "1"]
        server = Server(*context)
        bodies = [{"prompt": p, "max_tokens": 4, "temperature": 0} for p in (ids, ids[:1], ids[7:107], ids + [11, 12])]
        try:
            expected = [server.json(COMPLETIONS, body)["choices"] for body in bodies]
        finally:
            server.stop()
        c = Cluster(*context)
        self.addCleanup(c.close)
        for body, choices in zip(bodies, expected):
            status, value = c.json(COMPLETIONS, body)
            self.assertEqual((status, value.get("choices")), (200, choices))
        self.assertEqual(c.stop(), 0)


class Shapes(unittest.TestCase):
    BODY = greedy("Tell me about the sea.", 20)
    SEEDED = dict(BODY, temperature=1.1, seed=5, top_p=0.95)

    @classmethod
    def setUpClass(cls):
        cls.solo = Solo()

    @classmethod
    def tearDownClass(cls):
        cls.solo.stop()

    def says_the_same(self, *arguments, **counts):
        c = Cluster(*arguments, **counts)
        self.addCleanup(c.close)
        for body in (self.BODY, self.SEEDED):
            self.assertEqual(c.ask(**body), self.solo.text(body))
        return c

    def test_shards_that_do_not_divide(self):
        for shards in (1, 5, 7):
            with self.subTest(shards):
                c = self.says_the_same(stations=1, shards=shards)
                ids = [s["ids"] for s in c.file["shards"]]
                self.assertEqual((ids[0][0], ids[-1][1]), (0, 49152))
                sizes = [b - a for a, b in ids]
                self.assertEqual(sizes, sorted(sizes, reverse=True))  # the first have the remainder
                self.assertLessEqual(sizes[0] - sizes[-1], 16)
                self.assertEqual(c.stop(), 0)

    def test_many_stations(self):
        c = self.says_the_same(stations=10, shards=2)
        self.assertEqual(c.stop(), 0)

    def test_ranges_of_phases(self):
        ranges = ["--ranges", "0-1.ffn_gate,1.ffn_gate-20.ffn_down,20.ffn_down-end"]
        c = self.says_the_same(*ranges, edit=lambda file: None)
        self.assertEqual(c.stop(), 0)

    def test_one_id_alone(self):
        """A shard with one row, at either end, and one with all others."""
        def edit(file):
            for shard, ids in zip(file["shards"], ([0, 1], [1, 49151], [49151, 49152])):
                shard["ids"] = ids
        c = self.says_the_same(stations=1, shards=3, edit=edit)
        self.assertEqual(c.stop(), 0)

    def test_ipv6_loopback(self):
        def edit(file):
            for kind in ("stations", "shards"):
                for node in file[kind]:
                    node["address"] = "[::1]:" + node["address"].rpartition(":")[2]
        try:
            c = self.says_the_same(edit=edit)
        except OSError as error:
            self.skipTest(f"no IPv6 here: {error}")
        self.assertIn("http://[::1]:", c.errors())
        self.assertNotIn("anyone who reaches", c.errors())
        self.assertEqual(c.stop(), 0)

    def test_proxy_in_the_environment(self):
        """Calls between nodes use none."""
        names = ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY")
        before = {n: os.environ.get(n) for n in names}
        try:
            for n in names:
                os.environ[n] = "http://127.0.0.1:9"
            c = self.says_the_same("--wardens")
        finally:
            for n, value in before.items():
                os.environ.pop(n)
                if value is not None:
                    os.environ[n] = value
        self.assertEqual(c.stop(), 0)


class Faults(unittest.TestCase):
    """Cluster files that cannot be: said in one line that names the place, before anything is started."""

    def refused(self, change, *words):
        with tempfile.TemporaryDirectory() as folder:
            file = plan(folder, "--stations", 2, "--shards", 3, "--context", 256)
            change(file)
            path = os.path.join(folder, "cluster.json")
            with open(path, "w") as f:
                json.dump(file, f)
            for verb in (["up", "--cluster", path], ["node", "--cluster", path, "--id", "station-0"],
                         ["node", "--cluster", path, "--id", "coordinator-0"]):
                done = subprocess.run([COBORD, *verb], capture_output=True, text=True, timeout=60,
                                      env=environment(folder))
                self.assertNotEqual(done.returncode, 0, (verb, words))
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                for word in words:
                    self.assertIn(word, done.stderr)

    def test_holes_overlaps_and_twins(self):
        def stations(*ranges):
            def change(file):
                for node, text in zip(file["stations"], ranges):
                    node["range"] = text
            return change

        def shards(*ids):
            def change(file):
                for node, pair in zip(file["shards"], ids):
                    node["ids"] = pair
            return change
        self.refused(stations("0-10", "12-end"), "station-1")
        self.refused(stations("0-16", "15-end"), "station-1")
        self.refused(stations("0-10", "10-29"), "layer 29 attn")
        self.refused(stations("1-10", "10-end"), "station-0")
        self.refused(shards([0, 100], [101, 200], [200, 49152]), "shard-1")
        self.refused(shards([0, 100], [99, 200], [200, 49152]), "shard-1")
        self.refused(shards([0, 100], [100, 200], [200, 49151]), "ids 49151 to 49152")
        self.refused(shards([0, 100], [100, 200], [200, 49153]), "shard-2")
        self.refused(shards([0, 100], [100, 100], [100, 49152]), "shard-1")

        def same_id(file):
            file["stations"][1]["id"] = "station-0"

        def same_address(file):
            file["stations"][1]["address"] = file["shards"][0]["address"]
        self.refused(same_id, "station-0")
        self.refused(same_address, "shard-0")

    def test_more_shards_than_rows(self):
        done = subprocess.run([COBORD, "plan", MODEL, "--shards", "50000"], capture_output=True, text=True,
                              env=environment("/nonexistent"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("shards", done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2, warnings="ignore"))
