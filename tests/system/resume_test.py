#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Streams of cobord serve that go on by Last-Event-ID: from any place, after a kill, and when they cannot."""

import json
import os
import re
import socket
import sys
import unittest

from serve_test import CHAT, COMPLETIONS, CONTEXT, STATE, Server, events_in, send, user


def said(events, choice=0):
    """The text of one choice in a stream's events."""
    choices = [c for _, e in events if e != "[DONE]" for c in e["choices"] if c["index"] == choice]
    return "".join(c.get("text", "") or c.get("delta", {}).get("content", "") or "" for c in choices)


def whole_events(got):
    """The events that are complete in what came of a chunked answer."""
    text = got.split(b"\r\n\r\n", 1)[1]
    text = re.sub(rb"\r\n[0-9a-fA-F]+\r\n|^[0-9a-fA-F]+\r\n", b"", text)
    return events_in(text[: text.rindex(b"\n\n") + 2])


class ResumeTest(unittest.TestCase):
    """Streams that go on, after a lost connection or a killed server, with the same text."""

    BODY = {
        "prompt": "The history of bread",
        "max_tokens": 60,
        "temperature": 0.8,
        "n": 2,
        "stream": True,
        "stop": ["qqq zzz"],
        "stream_options": {"include_usage": True},
    }

    def whole(self, server, path, body):
        status, _, text = server.call("POST", path, body)
        self.assertEqual(status, 200)
        return events_in(text)

    def resume(self, server, place, path=COMPLETIONS, method="POST"):
        status, _, text = server.call(method, path, None, {"Last-Event-ID": place})
        self.assertEqual(status, 200, text)
        return events_in(text)

    def test_from_every_place(self):
        server = Server("--context", str(CONTEXT))
        body = dict(self.BODY, max_tokens=12)
        events = self.whole(server, COMPLETIONS, body)
        places = [i for i, (place, _) in enumerate(events) if place]
        for i in places:
            rest = self.resume(server, events[i][0], method=("POST", "GET")[i % 2])
            for choice in (0, 1):
                self.assertEqual(said(events[: i + 1], choice) + said(rest, choice), said(events, choice))
            self.assertEqual(rest[-1], events[-1])
            self.assertEqual(rest[-2][1]["usage"]["completion_tokens"], events[-2][1]["usage"]["completion_tokens"])
            self.assertEqual(rest[-2][1]["usage"]["prompt_tokens"], events[-2][1]["usage"]["prompt_tokens"])
        self.assertEqual(server.stop(), 0)

    def test_twice(self):
        """A stream that went on and was lost again, at each event, also before every choice had gone on."""
        server = Server("--context", str(CONTEXT))
        events = self.whole(server, COMPLETIONS, dict(self.BODY, max_tokens=12))
        first = events[: len(events) // 2]
        begun = [int(x) for x in first[-1][0].split(":")[1].split(",")]
        self.assertTrue(all(begun), begun)  # else this test shows nothing
        rest = self.resume(server, first[-1][0])
        for i in [i for i, (place, _) in enumerate(rest) if place]:
            places = [int(x) for x in rest[i][0].split(":")[1].split(",")]
            self.assertTrue(all(a >= b for a, b in zip(places, begun)), (places, begun))
            got = first + rest[: i + 1]
            last = self.resume(server, rest[i][0])
            for choice in (0, 1):
                self.assertEqual(said(got, choice) + said(last, choice), said(events, choice))
        self.assertEqual(server.stop(), 0)

    def test_from_the_end(self):
        """Behind the last event with an id there is nothing but what has none; behind that is no place."""
        server = Server("--context", str(CONTEXT))
        chat = {"messages": user("Say: one two three"), "max_tokens": 9, "stream": True, "temperature": 0}
        ends = {"max_tokens": 9}, {"max_tokens": 200}, {"stop": ["two"], "max_tokens": 200}, {"n": 2, "temperature": 1}
        for body in (dict(chat, **more) for more in ends):
            with self.subTest(**body):
                events = self.whole(server, CHAT, body)
                last = [place for place, _ in events if place][-1]
                self.assertEqual([e for _, e in self.resume(server, last, CHAT)], ["[DONE]"])
                with_usage = dict(body, stream_options={"include_usage": True})
                last = [place for place, _ in self.whole(server, CHAT, with_usage) if place][-1]
                rest = [e for _, e in self.resume(server, last, CHAT)]
                self.assertEqual((len(rest), rest[0]["choices"], rest[1]), (2, [], "[DONE]"))
                name, places = last.split(":")
                beyond = [int(places.split(",")[0]) + 1, *map(int, places.split(",")[1:])]
                place = f"{name}:{','.join(map(str, beyond))}"
                status, _, text = server.call("POST", CHAT, None, {"Last-Event-ID": place})
                self.assertEqual((status, json.loads(text)["error"]["param"]), (400, "Last-Event-ID"))
        self.assertEqual(server.stop(), 0)

    def test_after_kill(self):
        server = Server("--context", str(CONTEXT))
        chat = {"messages": user("Count to thirty in words."), "max_tokens": 70, "temperature": 0.7, "stream": True}
        # With a seed, so that none of the answers is over before its server is killed.
        for path, body in ((COMPLETIONS, dict(self.BODY, seed=7)), (CHAT, dict(chat, seed=7))):
            s = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            send(s, path, body)
            got = b""
            while got.count(b"data: ") < 14:
                self.assertNotIn(b"[DONE]", got)
                got += s.recv(4096)
            server.process.kill()
            server.wait()
            s.close()
            events = whole_events(got)
            server = Server("--context", str(CONTEXT))
            rest = self.resume(server, events[-1][0], path)
            again = self.resume(server, events[0][0], path)
            for choice in range(body.get("n", 1)):
                whole = said(events[:1], choice) + said(again, choice)
                self.assertEqual(said(events, choice) + said(rest, choice), whole)
            self.assertEqual(rest[-1][1], "[DONE]")
        self.assertEqual(server.stop(), 0)

    def test_refusals(self):
        server = Server("--context", str(CONTEXT))
        for place, status in (("x", 400), ("", 400), ("chatcmpl-0123456789abcdef:1", 404), ("y" * 1000, 400),
                              ("chatcmpl-0123456789abcdef/me:1", 400)):
            got, _, text = server.call("POST", CHAT, {"messages": user("x")}, {"Last-Event-ID": place})
            self.assertEqual(got, status, (place, text))
            self.assertEqual(json.loads(text)["error"]["param"], "Last-Event-ID")
        self.assertEqual(server.stop(), 0)
        server = Server("--journal", "none")
        events = self.whole(server, COMPLETIONS, dict(self.BODY, max_tokens=3))
        self.assertTrue(all(place is None for place, _ in events))
        got, _, text = server.call("POST", CHAT, None, {"Last-Event-ID": "cmpl-0123456789abcdef:1"})
        self.assertEqual((got, json.loads(text)["error"]["code"]), (404, "stream_not_found"))
        self.assertEqual(server.stop(), 0)
        path = os.path.join(STATE.name, "not-a-directory")
        open(path, "w").close()
        server = Server("--journal", os.path.join(path, "j.db"))
        self.assertIn("cannot be resumed", server.errors())
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
