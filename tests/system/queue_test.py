#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who waits for a slot of cobord serve, who gets one, and who is refused."""

import json
import sys
import threading
import unittest

from serve_test import CHAT, LONG, Server, greedy


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

    def test_many_answers_leave_room(self):
        """A request for eight answers came first; one that came later gets the first slot that is free."""
        server = Server("--context", "512", "--slots", "2")
        many = greedy("Tell me about the sea.", 60, n=8, logit_bias={"2": -100, "0": -100})
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
