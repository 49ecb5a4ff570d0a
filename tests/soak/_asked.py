# SPDX-License-Identifier: Apache-2.0
"""How a soak asks: whole answers, streams, slow readers, readers that break off and go on, clients that leave.

Whoever is asked may refuse, with a status and a code that say so and when to come again; everything else than that and
the whole answer is a violation: a connection that ends, an answer that stops, an error of the server, none in time."""
import http.client
import json
import socket
import struct
import time

import _said as said

ANSWER_SECONDS_MAX = 150   # without a byte
PATIENCE_SECONDS = 240     # of refusals and breaks, until an answer counts as lost
REFUSALS = {429: {"queue_full"}, 503: {"not_ready", "unreachable"}}
RESET = struct.pack("ii", 1, 0)
SMALL_BUFFER = 2048


class Refused(Exception):
    """As one is allowed to."""

    def __init__(self, code, seconds):
        super().__init__(code)
        self.code, self.seconds = code, seconds


class Wrong(Exception):
    """What must not be."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


class Connection(http.client.HTTPConnection):
    """One that may have a small window, so that who writes has to wait."""

    def __init__(self, port, slow=False):
        super().__init__("127.0.0.1", port, timeout=ANSWER_SECONDS_MAX)
        self.slow = slow

    def connect(self):
        self.sock = socket.socket()
        if self.slow:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
        self.sock.settimeout(self.timeout)
        self.sock.connect((self.host, self.port))

    def reset(self):
        if self.sock:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def refusal_of(status, headers, data):
    """Of an answer that is no 200. Raises."""
    try:
        error = json.loads(data)["error"]
        code, retryable, message = error["code"], error["retryable"], error["message"]
    except (ValueError, KeyError, TypeError):
        raise Wrong("unclear refusal", f"{status} {data[:500]!r}") from None
    if code not in REFUSALS.get(status, ()) or not retryable or not message or "Retry-After" not in headers:
        raise Wrong("refusal", f"{status} {dict(headers)} {data[:500]!r}")
    raise Refused(code, float(headers["Retry-After"]))


class Asking:
    """One request and its answer, at one server."""

    def __init__(self, server, path, body, dice, tally):
        self.server, self.path, self.body = server, path, body
        self.dice, self.tally = dice, tally
        self.degraded = False
        self.details = None
        self.fresh()

    def fresh(self):
        self.texts, self.ends, self.logprobs, self.place = {}, {}, {}, None

    # Whole answers.

    def whole(self):
        connection = Connection(self.server.port)
        try:
            connection.request("POST", self.path, json.dumps(self.body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Wrong("broken connection", f"{self.server.name} {self.path}: {error!r}") from error
        finally:
            connection.close()
        if answer.status != 200:
            refusal_of(answer.status, answer.headers, data)
        value = json.loads(data)
        self.degraded = bool(value.get("degraded"))
        self.details = said.details_of(self.path, value)
        return said.texts_of(self.path, value)

    # Streams.

    def stream(self, slow=False, leave_after=None, break_after=None):
        """To its end; or, after so many events, None: left for good, or for now (`break_after`)."""
        connection = Connection(self.server.port, slow)
        try:
            answer = self.begin_stream(connection)
            for count, (place, event) in enumerate(self.events(answer, slow), 1):
                if event == "[DONE]":
                    return self.finished()
                self.take(event)
                self.place = place or self.place
                if count in (leave_after, break_after):
                    if self.dice.random() < 0.5:
                        connection.reset()
                    return None
            raise Wrong("cut stream", f"{self.server.name} ended without [DONE] after {self.place}")
        except (OSError, http.client.HTTPException) as error:
            raise Wrong("broken connection", f"{self.server.name} {self.path}: {error!r}") from error
        finally:
            connection.close()

    def begin_stream(self, connection):
        if self.place:
            connection.request("POST", self.path, headers={"Last-Event-ID": self.place})
        else:
            connection.request("POST", self.path, json.dumps(dict(self.body, stream=True)),
                               {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            refusal_of(answer.status, answer.headers, answer.read())
        return answer

    def events(self, answer, slow):
        """(id or None, value) of each."""
        place = None
        for line in answer:
            if slow:
                time.sleep(0.004)
            if line.startswith(b"id: "):
                place = line[4:].strip().decode()
            elif line.startswith(b"data: "):
                yield place, "[DONE]" if line == b"data: [DONE]\n" else json.loads(line[6:])
                place = None
            elif line.strip() and not line.startswith(b":"):
                raise Wrong("no event", repr(line[:300]))

    def take(self, event):
        if "error" in event:
            error = event["error"]
            if error.get("code") not in REFUSALS[503] or not error.get("retryable"):
                raise Wrong("stream error", json.dumps(event))
            raise Refused("in a stream: " + error["code"], 1)
        self.degraded = self.degraded or bool(event.get("degraded"))
        for choice in event["choices"]:
            at = choice["index"]
            piece = choice.get("text") if self.path == said.COMPLETIONS else choice["delta"].get("content")
            self.texts[at] = self.texts.get(at, "") + (piece or "")
            if choice.get("finish_reason"):
                self.ends[at] = choice["finish_reason"]

    def finished(self):
        return [(self.texts[at], self.ends.get(at)) for at in sorted(self.texts)]

    # However.

    def text_so_far(self):
        return [self.texts[at] for at in sorted(self.texts)]

    def answer(self, how):
        """Asked again after each refusal and each break, until it is there."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                texts = self.once(how)
                if texts is not None:
                    return texts
                self.tally.add("streams broken off, to go on")
            except Refused as refused:
                self.tally.add(f"refused: {refused.code}")
                if time.monotonic() > end:
                    raise Wrong("lost answer", f"{self.server.name} refuses for {PATIENCE_SECONDS} s: "
                                               f"{refused.code}") from refused
                time.sleep(refused.seconds * (0.5 + self.dice.random()))

    def once(self, how):
        if how == "whole":
            return self.whole()
        if how == "breaks" and self.dice.random() < 0.7:
            return self.stream(break_after=self.dice.randrange(1, 12))
        return self.stream(slow=how == "slow")

    def leave(self):
        """A client that goes: before, in or behind the first event. What it got is in text_so_far()."""
        kind = self.dice.randrange(4)
        try:
            if kind == 0:
                self.send_and_go()
            else:
                self.stream(leave_after=self.dice.randrange(1, 20))
        except Refused as refused:
            self.tally.add(f"refused: {refused.code}")

    def send_and_go(self):
        data = json.dumps(dict(self.body, stream=self.dice.random() < 0.5)).encode()
        head = f"POST {self.path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=ANSWER_SECONDS_MAX) as s:
            s.sendall((head + data)[:self.dice.choice([0, 20, len(head), len(head) + 5, 1 << 30])])
            time.sleep(self.dice.random() * 0.2)
            if self.dice.random() < 0.5:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
