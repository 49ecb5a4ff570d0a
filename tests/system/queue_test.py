#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who waits for a slot of cobord serve, who gets one, and who is refused."""

import json
import socket
import sys
import threading
import time
import unittest

from serve_test import CHAT, COMPLETIONS, LONG, Server, greedy, read_until, send


class QueueTest(unittest.TestCase):
    def test_full_queue(self):
        server = Server("--context", "1024", "--slots", "1", "--queue", "1")
        try:
            running = server.open_stream(LONG)
            waiting = server.open_stream(LONG)
            for _ in range(4):
                status, headers, text = server.call("POST", CHAT, greedy("Hi", 1))
                self.assertEqual(status, 429)
                self.assertEqual(headers["Retry-After"], "1")
                error = json.loads(text)["error"]
                self.assertEqual((error["code"], error["retryable"]), ("queue_full", True))
            running.close()
            server.wait_for("cobord_queue_length", 0, 5)
            waiting.close()
            server.wait_for("cobord_slots_active", 0, 5)
            self.assertEqual(server.json(CHAT, greedy("Hi", 1))["usage"]["completion_tokens"], 1)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_refused_before_the_prompt_is_read(self):
        """A prompt that is far too long would be a 400; where nobody has room it costs nothing, and is a 429."""
        server = Server("--context", "1024", "--slots", "1", "--queue", "0")
        long = {"prompt": "river " * 200000, "max_tokens": 1}
        try:
            self.assertEqual(server.call("POST", COMPLETIONS, long)[0], 400)
            running = server.open_stream(LONG)
            self.assertEqual(server.call("POST", COMPLETIONS, long)[0], 429)
            self.assertEqual(server.call("POST", COMPLETIONS, b"{")[0], 400)
            self.assertEqual(server.call("POST", "/tokenize", {"text": "river"})[0], 200)
            running.close()
            server.wait_for("cobord_slots_active", 0, 5)
            self.assertEqual(server.call("POST", COMPLETIONS, long)[0], 400)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_retry_after_is_true(self):
        """Half of the queue has had its turn about then, and who comes again then is let in."""
        server = Server("--context", "1024", "--slots", "1", "--queue", "8", "--drafts", "0")
        body = greedy("Tell me about the sea.", 200, logit_bias={"2": -100, "0": -100})
        asked = [self.ask(server, body) for _ in range(9)]
        try:
            for count in (1, 2):  # until it knows how long answers take
                while server.figure("cobord_answers_total") < count:
                    time.sleep(0.02)
                asked.append(self.ask(server, body))
            server.wait_for("cobord_queue_length", 8)
            status, headers, _ = server.call("POST", CHAT, body)
            refused, told = time.monotonic(), int(headers["Retry-After"])
            self.assertEqual(status, 429)
            while server.figure("cobord_queue_length") > 4:
                time.sleep(0.02)
            took = time.monotonic() - refused
            self.assertLessEqual(told, 1 + 2 * took)
            self.assertGreaterEqual(told, took / 3)
            time.sleep(max(0, told - took))
            asked.append(self.ask(server, greedy("Hi", 1)))
            self.assertIn(b" 200 ", read_until(asked[-1], b"\r\n"))
        finally:
            for s in asked:
                s.close()
            self.assertEqual(server.stop(), 0)

    def ask(self, server, body):
        s = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        send(s, CHAT, dict(body, stream=True))
        return s

    def test_many_answers_leave_room(self):
        """A request for eight answers came first; one that came later gets the first slot that is free."""
        server = Server("--context", "512", "--slots", "2")
        many = greedy("Tell me about the sea.", 100, n=8, logit_bias={"2": -100, "0": -100})
        try:
            ends = []

            def ask(body):
                server.json(CHAT, body)
                ends.append(body.get("n", 1))

            first = threading.Thread(target=ask, args=(many,))
            first.start()
            server.wait_for("cobord_slots_active", 2)
            second = threading.Thread(target=ask, args=(greedy("Hi", 5),))
            second.start()
            first.join(120)
            second.join(120)
            self.assertEqual(ends, [1, 8])
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
