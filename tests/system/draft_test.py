#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A draft model changes nothing but the time: the same texts with and without, greedy and sampled, on one process and
on a cluster; its memory is part of the budget; one of another vocabulary is refused."""
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

from _cluster import Cluster
from _late import in_time
from serve_test import CHAT, COBORD, COMPLETIONS, MODEL, Server, content, environment, greedy

BIG, SMALL = "qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b"
MIB = 1 << 20
BODIES = [
    greedy("Tell me about the sea.", 60),
    greedy("Write a list of ten animals.", 60),
    greedy("Tell me about the sea.", 40, temperature=1.0, seed=7),
    greedy("Invent a name for a ship.", 40, temperature=1.3, seed=8, top_p=0.9, top_k=50),
    greedy("Invent a name for a ship.", 30, temperature=0.8, seed=9, logit_bias={"400": -5, "501": 3}),
    greedy("Say yes.", 30, temperature=0, repetition_penalty=1.2),
    greedy("Say it again and again.", 40, stop=["the"]),
]


def run(*arguments):
    """(code, out, err) of `cobord run`."""
    process = subprocess.Popen([COBORD, "run", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               stdin=subprocess.DEVNULL, env=environment())
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


class SameTexts:
    """self.with_draft and self.without: ask(body)."""

    def test_one_after_the_other(self):
        for body in BODIES:
            self.assertEqual(self.with_draft(body), self.without(body), body)

    def test_together(self):
        """More answers than are guessed for, and then fewer again."""
        values = [None] * len(BODIES)

        def ask(i):
            values[i] = self.with_draft(BODIES[i])
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(BODIES))]
        for t in threads:
            t.start()
        for t in threads:
            t.join(120)
        self.assertEqual(values, [self.without(b) for b in BODIES])

    def test_a_conversation_goes_on(self):
        first = greedy("Name three rivers.", 24)
        answer = self.with_draft(first)
        second = dict(first, messages=[*first["messages"], {"role": "assistant", "content": answer},
                                       {"role": "user", "content": "And three lakes."}])
        self.assertEqual(self.with_draft(second), self.without(second))


class OneProcess(SameTexts, unittest.TestCase):
    """The model itself as draft model: every guess is right, sampled ones too, when positions and seeds are."""

    @classmethod
    def setUpClass(cls):
        cls.plain = Server("--context", "1024", "--drafts", "0")
        cls.server = Server("--context", "1024", "--draft", MODEL)
        cls.known = {}

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0
        assert cls.plain.stop() == 0

    def with_draft(self, body):
        return content(self.server.json(CHAT, body))

    def without(self, body):
        key = repr(body)
        if key not in self.known:
            self.known[key] = content(self.plain.json(CHAT, body))
        return self.known[key]

    def test_sampled_guesses_are_right(self):
        """Each in a slot that knows nothing yet of what guessing costs: it guesses four, as it begins with. With draws
        of their own hardly one of them would be right at this temperature."""
        server = Server("--context", "512", "--slots", "8", "--draft", MODEL)
        self.addCleanup(server.stop)
        for seed in range(8):
            ids = [1000 + 100 * seed + i for i in range(6)]
            body = {"prompt": ids, "max_tokens": 6, "temperature": 1.5, "seed": seed}
            self.assertEqual(server.json(COMPLETIONS, body)["choices"], self.plain.json(COMPLETIONS, body)["choices"])
        guessed, right = map(server.figure, ("cobord_draft_tokens_total", "cobord_draft_accepted_total"))
        self.assertGreaterEqual(guessed, 8 * 3)
        self.assertGreaterEqual(right, 0.9 * guessed)


class Processes(SameTexts, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.plain = Server("--context", "1024", "--drafts", "0")
        cls.c = Cluster("--slots", "3", "--draft", MODEL, steady=False)
        cls.known = {}

    without = OneProcess.without

    @classmethod
    def tearDownClass(cls):
        cls.plain.stop()
        try:
            assert cls.c.stop() == 0
        finally:
            cls.c.close()

    def with_draft(self, body):
        status, value = self.c.json(data=body)
        assert status == 200, value
        return content(value)

    def test_a_station_dies(self):
        body = greedy("Tell me about the sea, at length.", 120)
        expected = self.without(body)

        def attempt():
            stream = self.c.begin(body)
            with self.c.striking([stream], [expected]) as hits:
                stream.wait_pieces(3)
                hits.append(self.c.hit("station-0", signal.SIGKILL))
        in_time(attempt)
        self.assertEqual(self.with_draft(BODIES[0]), self.without(BODIES[0]))


class Run(unittest.TestCase):
    def test_a_smaller_model_in_128_mib(self):
        arguments = ["Write a C function that adds two numbers.", "--temperature", "0", "--max-tokens", "24"]
        code, plain, err = run(BIG, *arguments, "--drafts", "0", "--context", "512")
        self.assertEqual(code, 0, err)
        with tempfile.TemporaryFile("a+") as err:
            process = subprocess.Popen([COBORD, "run", BIG, *arguments, "--draft", SMALL, "--memory", "128M",
                                        "--context", "512"], stdout=subprocess.PIPE, stderr=err, text=True,
                                       stdin=subprocess.DEVNULL, env=environment())
            peak, out = 0, []
            reader = threading.Thread(target=lambda: out.append(process.stdout.read()))
            reader.start()
            while process.poll() is None:
                try:
                    with open(f"/proc/{process.pid}/status") as f:
                        text = f.read()
                    peak = max(peak, int(text.split("VmHWM:")[1].split()[0]) * 1024)
                except (OSError, IndexError):
                    pass
            reader.join()
            process.stdout.close()
            err.seek(0)
            said = err.read()
        self.assertEqual(process.returncode, 0, said)
        self.assertEqual(out[0], plain)
        self.assertIn(f"{SMALL} guesses for it", said)
        self.assertLess(20 * MIB, peak)
        self.assertLessEqual(peak, 128 * MIB)

    def test_another_vocabulary_is_refused(self):
        for verb in (["run", MODEL, "Hi"], ["serve", MODEL, "--listen", "127.0.0.1:0"],
                     ["up", MODEL, "--listen", "127.0.0.1:0"]):
            done = subprocess.run([COBORD, *verb, "--draft", "gemma3-270m"], capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL, timeout=120, env=environment())
            self.assertEqual(done.returncode, 2, (verb, done.stderr))
            self.assertIn("another vocabulary", done.stderr)
            self.assertEqual(done.stdout, "")

    def test_one_that_is_not_there_is_said(self):
        code, _, err = run(MODEL, "Hi", "--draft", "/nonexistent.knot")
        self.assertEqual(code, 1)
        self.assertIn("/nonexistent.knot", err)

    def test_a_budget_that_is_too_small_is_said(self):
        code, _, err = run(MODEL, "Hi", "--draft", MODEL, "--memory", "128M", "--draft-memory", "1M")
        self.assertEqual(code, 1)
        self.assertIn("MiB", err)
        code, _, err = run(MODEL, "Hi", "--draft", MODEL, "--memory", "128M", "--draft-memory", "128M")
        self.assertEqual(code, 1)
        self.assertIn("--draft-memory takes all", err)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
