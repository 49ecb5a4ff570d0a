#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that come and go: a thousand that leave at any moment cost no memory and no slot; one that leaves a long
prompt is noticed on every station; one that leaves the queue never touches a station."""
import concurrent.futures
import itertools
import random
import select
import signal
import socket
import struct
import sys
import threading
import time
import unittest

from _cluster import Cluster, Solo, wait_until, words
from _late import TooLate, in_time
from serve_test import CHAT, COMPLETIONS, LONG, greedy, read_until, send
from up_test import status

CYCLES = 1000
WARM_UP = 300
# What a process may have more after the thousand than before, in KiB: 1 to 2 %. A coordinator grows by some 700 until
# its journal's caches are full (after two thousand), and not at all from then on.
GROWTH, COORDINATOR_GROWTH = 512, 1024
PAGE = 2048  # of the mapped knot: the rows of the last token may lie in one that was not there before
ROWS_SPREAD = 1000  # a row in every 32 KiB, which is less than the kernel maps at once
ROWS = "cobord_station_rows_total"
SESSIONS = "cobord_station_sessions"
RESET = struct.pack("ii", 1, 0)  # of SO_LINGER: the end of the connection is a reset


class Churn(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.solo = Solo()
        cls.c = Cluster("--slots", "2", "--chunk", "16", stations=2, shards=2)

    @classmethod
    def tearDownClass(cls):
        try:
            cls.solo.stop()
            assert cls.c.stop() == 0, cls.c.errors()[-3000:]
        finally:
            cls.c.close()

    def setUp(self):
        self.idle()

    def idle(self, seconds=30):
        wait_until(lambda: self.c.gauge("cobord_slots_active") == 0 and self.c.gauge("cobord_queue_length") == 0,
                   seconds)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.c.port), timeout=60)

    def cycles(self, count, dice):
        for i in range(count):
            s = self.connect()
            kind = dice.randrange(8)
            if kind == 0:  # nothing, or half a request
                s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 99\r\n\r\n{"[:dice.randrange(64)])
            else:
                body = dict(greedy(words(dice.randrange(1, 60), dice.randrange(40)), 400), stream=kind % 2 == 0)
                send(s, CHAT, body)
                if kind > 4:
                    time.sleep(dice.random() * 0.06)
                if kind == 7:
                    s.settimeout(0.5)
                    try:
                        s.recv(300)
                    except TimeoutError:
                        pass
            if dice.random() < 0.3:  # a reset in place of an orderly end
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            s.close()

    def memory(self):
        """(own, of files) of each process."""
        pids = {"up": self.c.process.pid, **self.c.nodes()}
        return {node: (status(pid, "RssAnon") + status(pid, "RssShmem"), status(pid, "RssFile"))
                for node, pid in pids.items()}

    def assert_memory_is_back(self, before, nodes):
        after = self.memory()
        for node in nodes:
            growth = COORDINATOR_GROWTH if node == "coordinator-0" else GROWTH
            self.assertLessEqual(after[node][0] - before[node][0], growth, (node, before, after))
            self.assertLessEqual(after[node][1] - before[node][1], growth + PAGE, (node, before, after))

    def fill_caches(self):
        """Both slots at once, with more than any cycle has: what was planned is taken when it is first used. Then
        embedding rows all over the vocabulary: the file's pages that the ids of a later text lie in are there."""
        bodies = [greedy(words(900, 50 + i), 1) for i in range(2)]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda body: self.c.ask(**body), bodies))
        ids = [i * self.c.file["model"]["vocabulary"] // ROWS_SPREAD for i in range(ROWS_SPREAD)]
        status, value = self.c.json(COMPLETIONS, {"prompt": ids, "max_tokens": 1})
        self.assertEqual(status, 200, value)

    def test_a_thousand(self):
        dice = random.Random(5)
        self.cycles(WARM_UP, dice)
        self.idle()
        self.fill_caches()  # last: the system may have taken pages of the file away that rested
        nodes, before = self.c.nodes(), self.memory()
        self.cycles(CYCLES, dice)
        self.idle()
        body = greedy("Tell me about the sea.", 30)
        self.assertEqual(self.c.ask(**body), self.solo.text(body))
        self.assertEqual(self.c.nodes(), nodes)  # nobody died of it
        self.assert_memory_is_back(before, [*nodes, "up"])
        for i in range(2):
            self.assertLessEqual(self.c.figures(f"station-{i}")[SESSIONS], 2)
        wait_until(lambda: self.c.gauge("cobord_connections") <= 2, 4)

    def test_connections_are_let_go(self):
        """Of clients that left, at any stage, also while an older one keeps its own and says nothing."""
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n"
        with self.connect():
            self.assertGreater(self.c.gauge("cobord_connections"), 0)
            for data in (b"", head[:20], head, head + b"{", None):
                for i in range(10):
                    s = self.connect()
                    if i % 2:  # a reset
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    if data is None:
                        send(s, CHAT, dict(LONG, stream=True))
                        self.assertIn(b" 200 ", s.recv(4096))  # the stream has begun
                    else:
                        s.sendall(data)
                    s.close()
                wait_until(lambda: self.c.gauge("cobord_connections") <= 3, 4)

    def test_connect_and_kill_of_processes(self):
        """As before, with answers under way and nodes that die: the others' memory stays."""
        body = greedy("Tell me about the sea.", 30)
        expected = self.solo.text(body)
        self.assertEqual(self.c.ask(**body), expected)
        before = self.memory()
        for i in range(6):
            node = ("station-0", "shard-0")[i % 2]
            s = self.connect()
            send(s, CHAT, dict(LONG, stream=True))
            read_until(s, b"data: ")
            hit = self.c.hit(node, signal.SIGKILL)
            s.close()
            self.c.wait_for_new(*hit)
        self.c.whole_again()
        self.idle()
        self.assertEqual(self.c.ask(**body), expected)
        self.assert_memory_is_back(before, ["coordinator-0", "station-1", "shard-1", "up"])

    def rows(self):
        """That each station has computed."""
        return [self.c.figures(f"station-{k}")[ROWS] for k in range(2)]

    def is_at_rest(self):
        """No station had rows of a step to compute that was under way."""
        before = self.rows()
        time.sleep(0.1)
        return self.rows() == before

    def begun_prompt(self, seed):
        """A prompt that station-1 is at, on a socket, and the rows that it had before."""
        rows = self.c.figures("station-1")[ROWS]
        s = self.connect()
        send(s, COMPLETIONS, {"prompt": words(800, seed), "max_tokens": 5})
        wait_until(lambda: self.c.figures("station-1")[ROWS] > rows)
        if select.select([s], [], [], 0)[0]:
            with s:
                self.assertIn(b" 200 ", s.recv(4096))
            raise TooLate("it was done before anybody looked")
        return s, rows

    def test_client_leaves_a_prompt(self):
        """Within a second no station works for it, and none holds its session."""
        seeds = itertools.count(500)  # a prompt that was there before is done at once
        for _ in range(3):
            held = [self.c.figures(f"station-{k}")[SESSIONS] for k in range(2)]
            s, rows = in_time(lambda: self.begun_prompt(next(seeds)))
            begun = time.monotonic()
            s.close()
            wait_until(lambda: self.c.gauge("cobord_slots_active") == 0 and
                       all(self.c.figures(f"station-{k}")[SESSIONS] <= held[k] for k in range(2)) and
                       self.is_at_rest(), 5)
            self.assertLess(time.monotonic() - begun, 1)
            done = self.c.figures("station-1")[ROWS] - rows
            self.assertLess(done, 800, "the prompt was too short for this test")
            before = self.rows()
            time.sleep(0.2)  # and none goes on
            self.assertEqual(self.rows(), before)

    def test_client_leaves_the_queue(self):
        """Both slots are taken; of two that wait the first leaves: the second is next, and not one row of the first
        was computed."""
        running = [self.connect() for _ in range(2)]
        for s in running:
            send(s, CHAT, dict(LONG, stream=True))
        wait_until(lambda: self.c.gauge("cobord_slots_active") == 2)
        gone = self.connect()
        send(gone, COMPLETIONS, {"prompt": words(700, 600), "max_tokens": 5})
        wait_until(lambda: self.c.gauge("cobord_queue_length") == 1)
        answers = []
        body = greedy("Tell me about the sea.", 30)
        waiting = threading.Thread(target=lambda: answers.append(self.c.ask(**body)))
        waiting.start()
        wait_until(lambda: self.c.gauge("cobord_queue_length") == 2)
        gone.close()
        wait_until(lambda: self.c.gauge("cobord_queue_length") == 1, 2)
        prompts = self.c.gauge("cobord_prompt_tokens_total")
        running[0].close()
        waiting.join(60)
        self.assertEqual(answers, [self.solo.text(body)])
        self.assertLess(self.c.gauge("cobord_prompt_tokens_total") - prompts, 100)
        running[1].close()

    def test_last_of_all_a_good_request(self):
        """The thousand took none of the slots: as many answers at once as there are."""
        bodies = [greedy(f"What is {i}?", 20) for i in range(2)]
        streams = [self.c.begin(body) for body in bodies]
        self.assertEqual([s.text() for s in streams], [self.solo.text(body) for body in bodies])


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2, warnings="ignore"))
