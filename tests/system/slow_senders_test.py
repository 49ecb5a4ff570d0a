#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A11: a hundred clients that send a byte of a header every few seconds, two that send bodies by and by: /health
answers all the while, others get answers, and the slow ones are cut off after a minute and after two."""

import socket
import sys
import time
import unittest

from serve_test import CHAT, Server, greedy


class SlowSendersTest(unittest.TestCase):
    def test_they_wait_for_nobody_and_have_an_end(self):
        server = Server("--context", "256", "--slots", "1", "--journal", "none")
        senders = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(102)]
        try:
            self.watch(server, senders[:100], senders[100:])
        finally:
            for s in senders:
                s.close()
            self.assertEqual(server.stop(), 0)

    def watch(self, server, heads, bodies):
        for s, size in zip(bodies, (6000000, 50000000)):
            s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n{" % size)
        began, ends, worst = time.time(), {}, 0
        pieces = {s: iter(b"GET /health HTTP/1.1\r\nX-Slow: " + b"y" * 99) for s in heads}
        while len(ends) < 102 and time.time() - began < 150:
            for s in heads + bodies:
                if s not in ends and is_over(s, pieces):
                    ends[s] = time.time() - began
            for _ in range(5):
                start = time.time()
                self.assertEqual(server.call("GET", "/health", timeout=5)[0], 200)
                worst = max(worst, time.time() - start)
            self.assertEqual(server.json(CHAT, greedy("Hi", 2))["usage"]["completion_tokens"], 2)
            time.sleep(4)
        self.assertEqual(len(ends), 102)
        self.assertTrue(all(50 < ends[s] < 75 for s in heads), sorted(ends.values()))
        self.assertLess(max(ends[s] for s in bodies), 135)
        self.assertLess(worst, 0.1)


def is_over(s, pieces):
    """Sends the next of a slow sender; whether its connection is at an end."""
    try:
        s.sendall(bytes([next(pieces[s])]) if s in pieces else b"x" * 1000)
        s.setblocking(False)
        return s.recv(4096) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        s.setblocking(True)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
