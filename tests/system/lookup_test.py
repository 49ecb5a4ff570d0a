#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Guesses looked up in an answer's own text change nothing but the number of passes: texts, stop strings, limits,
streams, scores and usage are the same with and without, and /metrics counts the guesses."""
import unittest

from draft_test import SameTexts, run
from serve_test import CHAT, COMPLETIONS, MODEL, Server, content, greedy

VERSE = "one two three four five six seven eight nine ten\n" * 6 + "one two three"


def completion(prompt, tokens, **more):
    return {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "temperature": 0, **more}


BODIES = [
    completion(VERSE, 60),
    completion(VERSE, 60, temperature=0.8, seed=3),
    completion(VERSE, 60, stop=["seven eight"]),
    completion(VERSE, 60, stop=["three four five six"]),
    completion(VERSE, 7),
    completion(VERSE, 1),
    completion(VERSE, 40, logprobs=2),
    completion([VERSE, "a b c a b c a b c"], 30, n=2, temperature=1.1, seed=5),
]


class Lookup(SameTexts, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--context", "1024")
        cls.plain = Server("--context", "1024", "--drafts", "0")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0
        assert cls.plain.stop() == 0

    def with_draft(self, body):
        return content(self.server.json(CHAT, body))

    def without(self, body):
        return content(self.plain.json(CHAT, body))

    def test_completions(self):
        for body in BODIES:
            with self.subTest(body):
                got, want = self.server.json(COMPLETIONS, body), self.plain.json(COMPLETIONS, body)
                self.assertEqual(got["choices"], want["choices"])
                self.assertEqual(got["usage"]["completion_tokens"], want["usage"]["completion_tokens"])

    def test_streams(self):
        for body in BODIES[:4]:
            with self.subTest(body):
                texts = ["".join(e["choices"][0]["text"] for e in server.events(COMPLETIONS, body)
                                 if e != "[DONE]" and e["choices"]) for server in (self.server, self.plain)]
                self.assertEqual(texts[0], texts[1])
                self.assertEqual(texts[0], self.plain.json(COMPLETIONS, body)["choices"][0]["text"])

    def test_figures(self):
        names = "cobord_draft_tokens_total", "cobord_draft_accepted_total", "cobord_steps_total"
        before = [self.server.figure(name) for name in names]
        tokens = self.server.json(COMPLETIONS, completion(VERSE, 200))["usage"]["completion_tokens"]
        guessed, right, steps = (self.server.figure(name) - b for name, b in zip(names, before))
        self.assertGreater(right, 5)
        self.assertGreaterEqual(guessed, right)
        self.assertLessEqual(steps, tokens - 5, "each pass has one token more than guesses that were right")
        self.assertEqual(self.plain.figure("cobord_draft_tokens_total"), 0)


class Run(unittest.TestCase):
    def test_same_text(self):
        for more in (["-t", "0"], ["-t", "0.8", "--seed", "4"], ["-t", "0", "--stop", "four five"],
                     ["-t", "0", "--memory", "48M"]):
            with self.subTest(more):
                ways = [run(MODEL, VERSE, "--raw", "-n", "50", "--context", "256", "--drafts", n, *more)
                        for n in ("0", "3", "15", "31")]
                for code, out, err in ways:
                    self.assertEqual((code, out), (0, ways[0][1]), err)
                self.assertNotIn("guesses", ways[0][2])


if __name__ == "__main__":
    unittest.main()
