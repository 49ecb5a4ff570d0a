#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Beginnings that conversations share are computed once, whichever slot computed them and whether or not it is still
at work; the texts are those of a server that has seen nothing before. On one process and on a cluster."""
import itertools
import signal
import sys
import threading
import time
import unittest

from _cluster import GO_ON, Cluster, words
from _late import TooLate, in_time
from serve_test import CHAT, COMPLETIONS, Server, content

SYSTEM = "You answer in short sentences. These are your notes. " + words(300, 4)
SYSTEM_TOKENS = 300  # at least


def ask(question, tokens=20, system=SYSTEM, **more):
    return dict({"messages": [{"role": "system", "content": system}, {"role": "user", "content": question}],
                 "max_tokens": tokens, "temperature": 0}, **more)


def goes_on(body, answer, question, tokens=20):
    """The next turn of a conversation."""
    return dict(body, max_tokens=tokens, messages=[*body["messages"], {"role": "assistant", "content": answer},
                                                   {"role": "user", "content": question}])


def cached(value):
    return value["usage"]["prompt_tokens_details"]["cached_tokens"]


def prompt(value):
    return value["usage"]["prompt_tokens"]


class Fresh:
    """Texts of servers that have seen nothing before."""
    known = {}

    @classmethod
    def text(cls, body):
        key = repr(body)
        if key not in cls.known:
            server = Server("--context", "1024", "--slots", "1")
            cls.known[key] = content(server.json(CHAT, body))
            server.stop()
        return cls.known[key]


class Background(threading.Thread):
    """A request whose answer is wanted later."""

    def __init__(self, ask_json, *arguments):
        super().__init__(daemon=True)
        self.ask_json, self.arguments, self.value = ask_json, arguments, None
        self.start()

    def run(self):
        self.value = self.ask_json(*self.arguments)

    def result(self):
        self.join(120)
        assert self.value is not None
        return self.value


class Conversations:
    """What holds on either kind of server; self.post(body, path) gives the value of an answer."""

    def test_another_question_of_the_same_notes(self):
        """The first conversation is over; its slot is kept and so is the other's."""
        first, second = ask("Tell me all about birds.", 100), ask("Name a colour of the sky, please.")
        one = self.post(first)
        two = self.post(second)
        self.assertGreater(cached(two), SYSTEM_TOKENS)
        self.assertEqual(content(two), Fresh.text(second))
        third = goes_on(first, content(one), "And what is a fish?")
        three = self.post(third)
        self.assertEqual(content(three), Fresh.text(third))
        self.assertGreater(cached(three), prompt(one))  # nothing of it was cut off for the second

    def test_while_the_first_is_at_work(self):
        """A running answer's beginning is shared, and both go on with their own."""
        numbers = itertools.count()

        def beside():
            system = f"Other notes {next(numbers)}. " + SYSTEM  # which lie in no slot
            long = ask("Count from one upwards, and never stop.", 400, system=system, **GO_ON)
            other = ask("What is rain?", system=system)
            running = Background(self.post, long)
            self.wait_generated(8, running)
            value = self.post(other)
            late = not running.is_alive()
            self.assertGreater(cached(value), SYSTEM_TOKENS)
            self.assertEqual(content(value), Fresh.text(other))
            self.assertEqual(content(running.result()), Fresh.text(long))
            if late:
                raise TooLate("the first was over")
        in_time(beside)

    def test_at_the_same_time(self):
        """Two that come together: one computes the notes, the other waits for them."""
        system = "Third notes. " + SYSTEM
        bodies = [ask("What is a tree?", system=system), ask("What is a stone?", system=system)]
        asked = [Background(self.post, b) for b in bodies]
        values = [a.result() for a in asked]
        for body, value in zip(bodies, values):
            self.assertEqual(content(value), Fresh.text(body))
        self.assertGreater(max(map(cached, values)), SYSTEM_TOKENS)

    def test_n_answers_compute_the_prompt_once(self):
        body = dict(ask("Say something.", 12, system="Fourth notes. " + SYSTEM), n=3, temperature=1.0, seed=5)
        before = self.gauge("cobord_prompt_tokens_total") - self.gauge("cobord_cached_tokens_total")
        value = self.post(body)
        computed = self.gauge("cobord_prompt_tokens_total") - self.gauge("cobord_cached_tokens_total") - before
        self.assertLess(computed, prompt(value) + 2 * 64)
        server = Server("--context", "1024", "--slots", "3")
        fresh = server.json(CHAT, body)
        server.stop()
        texts = [c["message"]["content"] for c in value["choices"]]
        self.assertEqual(texts, [c["message"]["content"] for c in fresh["choices"]])
        self.assertEqual(len(set(texts)), 3)

    def test_the_same_prompt_again(self):
        """All of it is there; the last token is computed, since the answer begins with what follows it."""
        body = {"prompt": [500 + 7 * i for i in range(200)], "max_tokens": 8, "temperature": 0}
        one, two = self.post(body, COMPLETIONS), self.post(body, COMPLETIONS)
        self.assertEqual(one["choices"], two["choices"])
        self.assertEqual((cached(two), prompt(two)), (199, 200))

    def test_short_beginnings_are_not_copied(self):
        """A copy takes a slot of its own, which less than a block of positions is not worth."""
        ids = [900 + 3 * i for i in range(40)]
        self.post({"prompt": ids, "max_tokens": 4, "temperature": 0}, COMPLETIONS)
        value = self.post({"prompt": ids + [11, 12], "max_tokens": 4, "temperature": 0}, COMPLETIONS)
        self.assertEqual(cached(value), 40)  # taken, all the same


class OneProcess(Conversations, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--context", "1024", "--slots", "3")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def post(self, body, path=CHAT):
        return self.server.json(path, body)

    def gauge(self, name):
        return self.server.figure(name)

    def wait_generated(self, tokens, running):
        wait_generated(self, tokens, running)

    def test_two_slots_and_many_conversations(self):
        """More conversations than slots, in an order that takes, copies and replaces: always the fresh text."""
        server = Server("--context", "1024", "--slots", "2")
        self.addCleanup(server.stop)
        said = {}
        for turn in range(3):
            for name in ("bird", "fish", "tree"):
                body = said.get(name) and goes_on(*said[name], f"More about the {name}, number {turn}.", 10)
                body = body or ask(f"What is a {name}?", 10)
                value = server.json(CHAT, body)
                self.assertEqual(content(value), Fresh.text(body), (turn, name))
                if said:
                    self.assertGreater(cached(value), SYSTEM_TOKENS)
                said[name] = (body, content(value))


class Processes(Conversations, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.c = Cluster("--slots", "3")

    @classmethod
    def tearDownClass(cls):
        try:
            assert cls.c.stop() == 0
        finally:
            cls.c.close()

    def post(self, body, path=CHAT):
        status, value = self.c.json(path, body)
        assert status == 200, value
        return value

    def gauge(self, name):
        return self.c.gauge(name)

    def wait_generated(self, tokens, running):
        wait_generated(self, tokens, running)

    def test_a_station_dies_with_copies(self):
        """Three that share their beginning lose a station's sessions together."""
        system = "Fifth notes. " + SYSTEM
        bodies = [dict(ask(f"Count from {n} to one hundred in words.", 100, system=system), **GO_ON)
                  for n in ("one", "ten", "two")]

        expected = [Fresh.text(body) for body in bodies]

        def attempt():
            streams = [self.c.begin(bodies[0])]
            with self.c.striking(streams, expected) as hits:
                streams[0].wait_pieces(3)
                streams += [self.c.begin(b) for b in bodies[1:]]
                for stream in streams[1:]:
                    stream.wait_pieces(3)
                hits.append(self.c.hit("station-1", signal.SIGKILL))
                for stream in streams:
                    stream.still_on()
        in_time(attempt)
        after = self.post(ask("What is a boat?", system=system))
        self.assertEqual(content(after), Fresh.text(ask("What is a boat?", system=system)))


def wait_generated(test, tokens, running):
    """So many more tokens than at the call, unless its answer is over."""
    start, end = test.gauge("cobord_generated_tokens_total"), time.time() + 60
    while running.is_alive() and test.gauge("cobord_generated_tokens_total") < start + tokens:
        assert time.time() < end
        time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
