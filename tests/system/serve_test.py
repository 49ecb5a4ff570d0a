#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cobord serve as a client meets it: answers, refusals, streams, hang-ups, crowds. One server for most of it."""

import concurrent.futures
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from _late import TooLate, in_time
from _signals import deliver

COBORD = os.path.abspath(os.environ.get("COBORD", "build/cobord"))
MODEL = "smollm2-135m"
CONTEXT = 1024
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
STATE = tempfile.TemporaryDirectory()


def environment():
    env = {k: v for k, v in os.environ.items() if not k.startswith("COBORD_") or k == "COBORD_CACHE"}
    env.update(XDG_CONFIG_HOME="/nonexistent", XDG_STATE_HOME=STATE.name)
    return env


def events_in(text):
    """(id, value) of each event of a stream; the value of the last is [DONE]."""
    events = []
    for block in text.decode().split("\n\n"):
        if not block or block.startswith(":"):
            continue
        lines = block.split("\n")
        place = lines.pop(0)[4:] if lines[0].startswith("id: ") else None
        assert len(lines) == 1 and lines[0].startswith("data: "), block
        data = lines[0][6:]
        events.append((place, data if data == "[DONE]" else json.loads(data)))
    return events


class Server:
    """A server on a free port, until stop()."""

    def __init__(self, *arguments, model=MODEL, listen="127.0.0.1:0"):
        self.log = tempfile.TemporaryFile("a+")  # appended to, wherever it is read
        self.process = subprocess.Popen(
            [COBORD, "serve", model, "--listen", listen, *arguments],
            text=True,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=environment(),
        )
        line = self.process.stdout.readline()
        match = re.search(r"http://[0-9.]+:(\d+)$", line.strip())
        if not match:
            self.process.kill()
            raise AssertionError(f"no address in {line!r}: {self.errors()}")
        self.port = int(match.group(1))

    def errors(self):
        self.log.seek(0)
        return self.log.read()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self):
        code = self.process.wait(timeout=60)
        self.process.stdout.close()
        self.log.close()
        return code

    def connect(self, timeout=120):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def call(self, method, path, body=None, headers=None, timeout=120):
        """(status, headers, bytes)"""
        connection = self.connect(timeout)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        try:
            connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def json(self, path, body=None, status=200):
        got, _, text = self.call("GET" if body is None else "POST", path, body)
        if got != status:
            raise AssertionError(f"{path} {body}: {got} {text!r}")
        return json.loads(text)

    def events(self, path, body):
        """The values of a stream's data lines, [DONE] last."""
        status, headers, text = self.call("POST", path, dict(body, stream=True))
        assert status == 200 and headers["Content-Type"] == "text/event-stream", (status, text)
        return [x for _, x in events_in(text)]

    def open_stream(self, body, path=CHAT):
        """A socket on which a stream has begun."""
        s = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        send(s, path, dict(body, stream=True))
        read_until(s, b"data: ")
        return s

    def figure(self, name):
        text = self.call("GET", "/metrics")[2].decode()
        return float(re.search(rf"^{name} (\S+)$", text, re.M).group(1))

    def wait_for(self, name, value, seconds=30):
        end = time.time() + seconds
        while self.figure(name) != value:
            if time.time() > end:
                raise AssertionError(f"{name} is {self.figure(name)}, not {value}")
            time.sleep(0.02)


def send(s, path, body):
    text = json.dumps(body).encode()
    s.sendall(
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(text)}\r\n\r\n".encode()
        + text
    )


def read_until(s, mark):
    got = b""
    while mark not in got:
        more = s.recv(4096)
        if not more:
            raise AssertionError(f"ended before {mark!r}: {got!r}")
        got += more
    return got


def user(text):
    return [{"role": "user", "content": text}]


def greedy(text, tokens=24, **more):
    return {"messages": user(text), "temperature": 0, "max_tokens": tokens, **more}


def content(answer):
    return answer["choices"][0]["message"]["content"]


def run_text(prompt, tokens, *more):
    p = subprocess.run(
        [
            COBORD,
            "run",
            MODEL,
            prompt,
            "--temperature",
            "0",
            "--max-tokens",
            str(tokens),
            "--context",
            str(CONTEXT),
            *more,
        ],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=300,
    )
    assert p.returncode == 0, p.stderr
    return p.stdout


LONG = {
    "messages": user("Count from one upwards, one number a line, and never stop."),
    "temperature": 0,
    "logit_bias": {"2": -100, "0": -100},
    "max_tokens": 900,
}


class ServeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--context", str(CONTEXT), "--slots", "4")

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        assert code == 0, code

    def tearDown(self):
        """Whatever a test did: no slot stays busy, and the next request works."""
        self.server.wait_for("cobord_slots_active", 0)
        self.server.wait_for("cobord_queue_length", 0)
        self.assertEqual(self.server.json(CHAT, greedy("Hi", 1))["usage"]["completion_tokens"], 1)

    # ---- answers

    def test_text_is_that_of_run(self):
        for prompt in ("Say hello.", "What is the capital of France?"):
            with self.subTest(prompt):
                answer = self.server.json(CHAT, greedy(prompt))
                self.assertEqual(content(answer), run_text(prompt, 24))
                self.assertEqual(answer["object"], "chat.completion")
                self.assertEqual(answer["model"], MODEL)
                self.assertEqual(answer["choices"][0]["message"]["role"], "assistant")
        raw = self.server.json(COMPLETIONS, {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 20})
        self.assertEqual(raw["choices"][0]["text"], run_text("Once upon a time", 20, "--raw"))
        self.assertEqual(raw["object"], "text_completion")

    def test_conversation_and_parts(self):
        messages = [
            {"role": "system", "content": "You are brief."},
            {"role": "user", "content": "Name a colour."},
            {"role": "assistant", "content": "Red."},
            {"role": "user", "content": "Another one."},
        ]
        whole = self.server.json(CHAT, {"messages": messages, "temperature": 0, "max_tokens": 16})
        parts = [
            dict(
                m,
                content=[
                    {"type": "text", "text": m["content"][:3]},
                    {"type": "text", "text": m["content"][3:]},
                ],
            )
            for m in messages
        ]
        parts[0]["role"] = "developer"
        self.assertEqual(
            content(self.server.json(CHAT, {"messages": parts, "temperature": 0, "max_tokens": 16})),
            content(whole),
        )
        for roles in (
            ["user", "assistant", "system", "user"],
            ["system"],
            ["assistant"],
            ["system", "system"],
            ["user", "user"],
        ):
            with self.subTest(roles):
                messages = [{"role": role, "content": f"text {i}"} for i, role in enumerate(roles)]
                self.server.json(CHAT, {"messages": messages, "max_tokens": 2})

    def test_stream(self):
        whole = self.server.json(CHAT, greedy("Tell me about the sea."))
        for usage in (False, True):
            with self.subTest(usage):
                options = {"stream_options": {"include_usage": True}} if usage else {}
                events = self.server.events(CHAT, greedy("Tell me about the sea.", **options))
                self.assertEqual(events.pop(), "[DONE]")
                if usage:
                    last = events.pop()
                    self.assertEqual(last["choices"], [])
                    self.assertEqual(last["usage"]["completion_tokens"], whole["usage"]["completion_tokens"])
                    self.assertTrue(all(e["usage"] is None for e in events))
                else:
                    self.assertTrue(all("usage" not in e for e in events))
                choices = [e["choices"][0] for e in events]
                self.assertEqual(choices[0]["delta"], {"role": "assistant", "content": ""})
                self.assertEqual(
                    [c["finish_reason"] for c in choices], [None] * (len(choices) - 1) + ["length"]
                )
                self.assertEqual("".join(c["delta"].get("content", "") for c in choices), content(whole))
                self.assertEqual(len({e["id"] for e in events}), 1)
                self.assertEqual({e["object"] for e in events}, {"chat.completion.chunk"})
        events = self.server.events(COMPLETIONS, {"prompt": "Once upon", "temperature": 0, "max_tokens": 8})
        text = "".join(e["choices"][0]["text"] for e in events[:-1])
        self.assertEqual(
            text,
            self.server.json(COMPLETIONS, {"prompt": "Once upon", "temperature": 0, "max_tokens": 8})[
                "choices"
            ][0]["text"],
        )

    def test_token_limits_and_usage(self):
        for tokens in (0, 1, 2, 5):
            for name in ("max_tokens", "max_completion_tokens"):
                answer = self.server.json(
                    CHAT, {"messages": user("Tell me a story."), "temperature": 0, name: tokens}
                )
                usage = answer["usage"]
                self.assertEqual(usage["completion_tokens"], tokens)
                self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + tokens)
                self.assertEqual(answer["choices"][0]["finish_reason"], "length")
                self.assertEqual(content(answer) == "", tokens == 0)
        self.assertEqual(
            self.server.json(COMPLETIONS, {"prompt": "a b c", "logit_bias": {"2": -100, "0": -100}})["usage"][
                "completion_tokens"
            ],
            16,
        )
        ids = self.server.json("/tokenize", {"text": "a b c"})["ids"]
        answer = self.server.json(COMPLETIONS, {"prompt": ids, "max_tokens": 1})
        self.assertEqual(answer["usage"]["prompt_tokens"], len(ids))
        ends = self.server.json(CHAT, greedy("Reply with the single word: yes", 200))
        self.assertEqual(ends["choices"][0]["finish_reason"], "stop")

    def test_context(self):
        ids = self.server.json("/tokenize", {"text": "word " * 1100})["ids"]
        for count, tokens in ((CONTEXT - 1, 2), (CONTEXT, 1)):
            answer = self.server.json(
                COMPLETIONS,
                {
                    "prompt": ids[:count],
                    "max_tokens": 50,
                    "temperature": 0,
                    "logit_bias": {"2": -100, "0": -100},
                },
            )
            self.assertEqual(answer["usage"]["completion_tokens"], tokens)
            self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        for body in ({"prompt": ids[: CONTEXT + 1]}, {"prompt": ids[: CONTEXT + 1], "stream": True}):
            error = self.server.json(COMPLETIONS, body, 400)["error"]
            self.assertEqual(
                (error["code"], error["n_prompt_tokens"], error["n_ctx"]),
                ("context_length_exceeded", CONTEXT + 1, CONTEXT),
            )
        error = self.server.json(CHAT, {"messages": user("word " * 1100)}, 400)["error"]
        self.assertEqual((error["code"], error["param"]), ("context_length_exceeded", "messages"))

    def test_stops(self):
        plain = content(self.server.json(CHAT, greedy("Tell me about the sea.", 40)))
        for stop in (plain[8:13], plain[3:20], [plain[10:14], plain[9:16]], ["never said", plain[5]]):
            with self.subTest(stop):
                answer = self.server.json(CHAT, greedy("Tell me about the sea.", 40, stop=stop))
                stops = [stop] if isinstance(stop, str) else stop
                first = min((plain.find(s) + len(s), plain.find(s)) for s in stops if s in plain)[1]
                self.assertEqual(content(answer), plain[:first])
                self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
                events = self.server.events(CHAT, greedy("Tell me about the sea.", 40, stop=stop))
                self.assertEqual(
                    "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1]), plain[:first]
                )
        held = self.server.json(CHAT, greedy("Tell me about the sea.", 40, stop=plain[-3:] + "\x01"))
        self.assertEqual(content(held), plain)

    def test_sampling_fields_have_effect(self):
        base = {"prompt": "The best thing about", "max_tokens": 12, "temperature": 1, "seed": 7}
        text = lambda **more: self.server.json(COMPLETIONS, {**base, **more})["choices"][0]["text"]
        plain = text()
        self.assertEqual(text(), plain)
        self.assertNotEqual(text(seed=8), plain)
        self.assertNotEqual(text(seed=-1), plain)
        best = text(temperature=0)
        for one in ({"top_k": 1}, {"top_p": 0}, {"min_p": 1}, {"temperature": 0, "seed": 3}):
            with self.subTest(one):
                self.assertEqual(text(**one), best)
        ids = self.server.json("/tokenize", {"text": best})["ids"]
        self.assertNotEqual(text(temperature=0, logit_bias={str(ids[0]): -100}), best)
        self.assertEqual(
            set(text(temperature=0, logit_bias={"29": 100}).strip()),
            set(self.server.json("/detokenize", {"ids": [29]})["text"].strip()),
        )
        loop = {"prompt": "one two one two one two one two one two one", "temperature": 0, "max_tokens": 12}
        plain = self.server.json(COMPLETIONS, loop)["choices"][0]["text"]
        for one in ({"repetition_penalty": 5}, {"presence_penalty": 2, "frequency_penalty": 2}):
            with self.subTest(one):
                self.assertNotEqual(self.server.json(COMPLETIONS, {**loop, **one})["choices"][0]["text"], plain)

    def test_n_and_prompts(self):
        body = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 1, "seed": 5, "n": 3}
        choices = self.server.json(COMPLETIONS, body)["choices"]
        self.assertEqual([c["index"] for c in choices], [0, 1, 2])
        for i, choice in enumerate(choices):
            solo = self.server.json(COMPLETIONS, {**body, "n": 1, "seed": 5 + i})["choices"][0]["text"]
            self.assertEqual(choice["text"], solo)
        self.assertEqual(len({c["text"] for c in choices}), 3)
        events = self.server.events(COMPLETIONS, body)
        for i in range(3):
            self.assertEqual(
                "".join(e["choices"][0]["text"] for e in events[:-1] if e["choices"][0]["index"] == i),
                choices[i]["text"],
            )
        both = self.server.json(
            COMPLETIONS, {"prompt": ["A cat", "A dog"], "temperature": 0, "max_tokens": 6, "n": 1}
        )["choices"]
        for choice, prompt in zip(both, ("A cat", "A dog")):
            solo = self.server.json(COMPLETIONS, {"prompt": prompt, "temperature": 0, "max_tokens": 6})[
                "choices"
            ][0]["text"]
            self.assertEqual(choice["text"], solo)
        eight = self.server.json(CHAT, greedy("Hi", 4, n=8))["choices"]
        self.assertEqual(len({content({"choices": [c]}) for c in eight}), 1)

    def test_tokenize(self):
        for text in ("Hello, world", "", "naïve 🙂 日本", "<|im_start|>user"):
            with self.subTest(text):
                answer = self.server.json("/tokenize", {"text": text})
                self.assertEqual(answer["count"], len(answer["ids"]))
                self.assertEqual(self.server.json("/detokenize", {"ids": answer["ids"]})["text"], text)
        p = subprocess.run(
            [COBORD, "tokenize", MODEL, "--json-lines"],
            input='{"text":"A <|im_end|> B"}\n',
            capture_output=True,
            text=True,
            env=environment(),
            timeout=60,
        )
        self.assertEqual(
            self.server.json("/tokenize", {"text": "A <|im_end|> B"})["ids"], json.loads(p.stdout)["ids"]
        )
        split = self.server.json("/tokenize", {"text": "<|im_end|>", "parse_special": False})["ids"]
        self.assertGreater(len(split), 1)

    def test_prefix_is_kept(self):
        text = "A long beginning that both prompts share, word by word, up to here. " * 3
        first = self.server.json(COMPLETIONS, {"prompt": text + "One", "temperature": 0, "max_tokens": 6})
        second = self.server.json(COMPLETIONS, {"prompt": text + "Two", "temperature": 0, "max_tokens": 6})
        shared = len(self.server.json("/tokenize", {"text": text})["ids"])
        cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertGreaterEqual(cached, shared - 2)
        self.assertLess(cached, second["usage"]["prompt_tokens"])
        self.assertLess(first["usage"]["prompt_tokens_details"]["cached_tokens"], shared - 2)
        again = self.server.json(COMPLETIONS, {"prompt": text + "Two", "temperature": 0, "max_tokens": 6})
        self.assertEqual(again["choices"], second["choices"])
        self.assertEqual(
            again["usage"]["prompt_tokens_details"]["cached_tokens"], second["usage"]["prompt_tokens"] - 1
        )
        self.assertEqual(second["choices"][0]["text"], run_text(text + "Two", 6, "--raw"))

    # ---- refusals

    def assert_error(self, answer, status, param=None, code=None):
        got, headers, text = answer
        self.assertEqual(got, status, text)
        self.assertEqual(headers["Content-Type"], "application/json")
        error = json.loads(text)["error"]
        self.assertLessEqual({"message", "type", "param", "code", "retryable"}, set(error))
        self.assertTrue(error["message"].isascii() and error["message"])
        if param:
            self.assertEqual(error["param"], param)
        if code:
            self.assertEqual(error["code"], code)

    def test_paths_and_methods(self):
        for method, path, status in (
            ("GET", "/nothing", 404),
            ("GET", "/v1", 404),
            ("POST", "/v1/nothing", 404),
            ("GET", "/v1/models/other", 404),
            ("GET", "/%ff%fe", 404),
            ("GET", CHAT, 405),
            ("POST", "/health", 405),
            ("DELETE", "/v1/models", 405),
            ("PUT", "/tokenize", 405),
        ):
            with self.subTest(method=method, path=path):
                answer = self.server.call(method, path, b"{}" if method == "POST" else None)
                self.assert_error(answer, status)
                if status == 405:
                    self.assertIn(answer[1]["Allow"], ("POST", "GET, HEAD"))
        self.assert_error(self.server.call("GET", "/" + "x" * 3000), 404)
        self.assertEqual(self.server.json("/v1/models")["data"][0]["id"], MODEL)
        self.assertEqual(self.server.json("/v1/models/" + MODEL)["id"], MODEL)
        self.assertEqual(self.server.call("HEAD", "/health")[0], 200)

    def test_bodies(self):
        for body in (
            "",
            "nonsense",
            "[]",
            "5",
            '{"a":',
            '{"messages":[]}x',
            "{}",
            '{"prompt":"\udcff"}'.encode("utf-8", "surrogateescape"),
            b'{"prompt":"\xff\xfe"}',
            b"\xb4\xf3",
            '{"prompt":1e400}',
            '{"prompt":"a","prompt":"b"}',
            '{"prompt":NaN}',
        ):
            with self.subTest(body):
                self.assert_error(self.server.call("POST", COMPLETIONS, body), 400)
        for depth in (100, 1000, 100000):
            for field in ("prompt", "unknown"):
                body = '{"%s":%s1%s}' % (field, "[" * depth, "]" * depth)
                self.assert_error(self.server.call("POST", COMPLETIONS, body), 400, code="invalid_json")
        self.assert_error(self.server.call("POST", COMPLETIONS, "[" * 2000000), 400, code="invalid_json")
        self.assert_error(self.server.call("POST", COMPLETIONS, b'{"prompt":"' + b"x" * (9 << 20) + b'"}'), 413)
        for kind, status in (
            ("text/plain", 415),
            ("application/jsonx", 415),
            ("application/json; charset=utf-8", 200),
            ("application/x-www-form-urlencoded", 200),
        ):
            with self.subTest(kind):
                answer = self.server.call("POST", "/tokenize", '{"text":"a"}', {"Content-Type": kind})
                self.assertEqual(answer[0], status)
        self.assert_error(
            self.server.call(
                "POST",
                "/tokenize",
                '{"text":"a"}',
                {"Content-Type": "application/x-www-form-urlencoded", "Origin": "http://elsewhere"},
            ),
            415,
        )
        connection = self.server.connect()  # a page's bytes of no type: its browser asks nobody first
        connection.request("POST", "/tokenize", b'{"text":"a"}', {"Origin": "http://elsewhere"})
        self.assertEqual(connection.getresponse().status, 415)
        connection.close()
        self.assert_error(
            self.server.call("POST", "/tokenize", '{"text":"a"}', {"Content-Encoding": "gzip"}), 415
        )

    def test_chunked_body(self):
        s = socket.create_connection(("127.0.0.1", self.server.port), timeout=30)
        s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in (b'{"te', b'xt":', b'"a b"}'):
            s.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        s.sendall(b"0\r\n\r\n")
        self.assertIn(b"200 OK", read_until(s, b"}"))
        s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(9):
            s.sendall(b"100000\r\n" + b"x" * (1 << 20) + b"\r\n")
        s.sendall(b"0\r\n\r\n")
        self.assertIn(b" 413 ", read_until(s, b"}}"))
        s.close()

    def test_values(self):
        vocabulary = 49152
        ids = [
            [-1],
            [[-1]],
            [vocabulary],
            [2**31],
            [5279552648203111001],
            [1.5],
            [True],
            [None],
            [],
            [[]],
            [{}],
        ]
        for value in ids:
            with self.subTest(prompt=value):
                self.assert_error(self.server.call("POST", COMPLETIONS, {"prompt": value}), 400)
        self.assert_error(self.server.call("POST", COMPLETIONS, {"prompt": [1, 2, -1]}), 400, "prompt[2]")
        self.assert_error(self.server.call("POST", COMPLETIONS, {"prompt": ""}), 400, "prompt")
        for bias in (
            {"49152": -100},
            {"-1": 1},
            {"abc": 1},
            {"5": "x"},
            {"5": 101},
            {"05": 1},
            [1],
            {str(i): 0 for i in range(1025)},
        ):
            with self.subTest(bias=str(bias)[:40]):
                self.assert_error(self.server.call("POST", CHAT, greedy("Hi", logit_bias=bias)), 400)
        both = {"messages": user("Hi"), "max_tokens": 1, "max_completion_tokens": 2}
        self.assert_error(self.server.call("POST", CHAT, both), 400)
        for name, value in (("echo", 1), ("logprobs", True), ("logprobs", 21)):
            answer = self.server.call("POST", COMPLETIONS, {"prompt": "a", name: value, "max_tokens": 0})
            self.assert_error(answer, 400, name)

    def test_fields(self):
        refused = {
            "temperature": (-0.1, 2.1, "1", True, [], {}),
            "top_p": (-0.1, 1.1, "x"),
            "top_k": (-1, 1.5, "1"),
            "min_p": (-1, 2),
            "repetition_penalty": (0, -1, 11),
            "presence_penalty": (-3, 3),
            "frequency_penalty": (-3, 3),
            "seed": (1.5, "1", 1e300),
            "max_tokens": (-1, -2, 1.5, "5", True),
            "max_completion_tokens": (-1,),
            "n": (0, 9, -1, 1.5),
            "stop": ("", [""], [1], 5, ["x"] * 17, "y" * 1025),
            "stream": (1, "true"),
            "logprobs": (1, "true"),
            "hops": (1,),
            "top_logprobs": (3,),
            "tools": ([{"type": "function"}],),
            "tool_choice": ("required", {}),
            "response_format": ({"type": "xml"}, {"type": "json_schema", "json_schema": {}},
            {"type": "json_schema"}, {}, {"type": "text", "x": 1},
                                {"type": "json_object", "json_schema": {}}, {"type": "json_schema",
                                "json_schema": {"schema": {"not": {}}}}),
            "modalities": (["audio"],),
            "store": (True,),
            "reasoning_effort": ("low",),
            "grammar": ("root ::= x",),
            "frobnicate": (1, None),
            "stream_options": ({"include_usage": True},),
            "model": (5,),
            "user": (5,),
            "messages": ([], {}, "x", None),
        }
        for name, values in refused.items():
            for value in values:
                with self.subTest(name=name, value=str(value)[:40]):
                    status, _, text = answer = self.server.call("POST", CHAT, {**greedy("Hi", 1), name: value})
                    self.assert_error(answer, 400)
                    self.assertTrue(json.loads(text)["error"]["param"].startswith(name), text)

    def test_cluster(self):
        """One process says of its roles what a coordinator says of its nodes, and `cobord status` shows it."""
        before = self.server.json("/cluster")
        self.assertEqual((before["kind"], before["complete"], before["draining"]), ("process", True, False))
        self.server.json(CHAT, greedy("Tell me about the sea.", 8))
        about = self.server.json("/cluster")
        self.assertEqual(about["queue"]["generated_tokens"] - before["queue"]["generated_tokens"], 8)
        self.assertGreaterEqual(about["step"]["count"], before["step"]["count"] + 1)
        stations = [n for n in about["nodes"] if n["role"] == "station"]
        shards = [n for n in about["nodes"] if n["role"] == "shard"]
        self.assertEqual((stations[0]["range"], stations[1]["range"]), ("0-15", "15-end"))
        self.assertEqual((shards[0]["ids"][0], shards[-1]["ids"][1]), (0, about["vocabulary"]))
        times = [n["hops"][kind]["us"] for nodes, kind in ((stations, "forward"), (shards, "logits")) for n in nodes]
        self.assertTrue(all(us > 0 for us in times), times)
        self.assertEqual(sum(times), about["step"]["forward_us"] + about["step"]["logits_us"])
        memory = about["coordinator"]["memory"]
        self.assertTrue(0 < memory["resident_bytes"] <= memory["peak_bytes"] <= memory["budget_bytes"], memory)
        p = subprocess.run([COBORD, "status", f"127.0.0.1:{self.server.port}"], capture_output=True, text=True,
                           env=environment())
        self.assertEqual((p.returncode, p.stderr), (0, ""))
        for word in ("one process", "station-1", "15-end", "shard-7", "sampling"):
            self.assertIn(word, p.stdout)
        self.assertLessEqual(max(len(line) for line in p.stdout.splitlines()), 80)

    def test_forms(self):
        schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "rank": {"enum": [1]}},
                  "required": ["city", "rank"]}
        form = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}
        answer = self.server.json(CHAT, {**greedy("Of Paris.", 99), "temperature": 1.5, "response_format": form})
        value = json.loads(answer["choices"][0]["message"]["content"])
        self.assertEqual(list(value), ["city", "rank"])
        self.assertTrue(len(value["city"]) <= 12 and value["rank"] == 1)
        answer = self.server.json(CHAT, {**greedy("Say maybe.", 20), "grammar": 'root ::= "yes, " [0-9]{3} | "no"'})
        self.assertRegex(answer["choices"][0]["message"]["content"], r"^(yes, [0-9]{3}|no)$")

    def test_neutral_values(self):
        self.server.json(
            CHAT,
            greedy(
                "Hi",
                1,
                logprobs=False,
                top_logprobs=0,
                tools=[],
                tool_choice="auto",
                user="me",
                n=1,
                seed=None,
                stop=None,
                response_format={"type": "text"},
                logit_bias={},
                store=False,
                max_completion_tokens=1,
                model="some-other-model",
                stream=False,
                temperature=None,
                functions=None,
            ),
        )

    def test_messages(self):
        for message in (
            {"role": "tool", "content": "x"},
            {"role": "robot", "content": "x"},
            {"role": 5, "content": "x"},
            {"content": "x"},
            {"role": "user"},
            {"role": "user", "content": None},
            {"role": "user", "content": 5},
            5,
            [],
            {"role": "assistant", "content": None},
            {"role": "user", "content": []},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
            {"role": "user", "content": [{"type": "text"}]},
            {"role": "user", "content": ["x"]},
            {"role": "user", "content": "x", "name": "me"},
            {"role": "user", "content": "x", "colour": "red"},
        ):
            with self.subTest(message):
                answer = self.server.call("POST", CHAT, {"messages": user("Hi") + [message]})
                self.assert_error(answer, 400)
                self.assertIn("messages[1]", json.loads(answer[2])["error"]["param"])
        self.server.json(CHAT, {"messages": user(""), "max_tokens": 1})

    def test_nothing_of_the_client_comes_back(self):
        for body in ({"prompt": "a", "weird\x1b[31m\u00e9": 1}, {"prompt": "a", "x" * 5000: 1}):
            status, _, text = self.server.call("POST", COMPLETIONS, body)
            self.assertEqual(status, 400)
            self.assertLess(len(text), 500)
            self.assertNotIn(b"weird", text)

    def test_no_http(self):
        for junk in (b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"\0" * 100, b"GET / HTTP/9.9\r\n\r\n"):
            s = socket.create_connection(("127.0.0.1", self.server.port), timeout=10)
            s.sendall(junk)
            s.close()
        s = socket.create_connection(("127.0.0.1", self.server.port), timeout=10)
        s.sendall(b"GET / HTTP/9.9\r\n\r\n")
        self.assertIn(b" 505 ", read_until(s, b"\r\n\r\n"))
        s.close()

    # ---- crowds and hang-ups

    def test_eight_at_once(self):
        prompts = [f"Tell me something about the number {i}." for i in range(8)]
        solo = [content(self.server.json(CHAT, greedy(p, 20))) for p in prompts]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda p: content(self.server.json(CHAT, greedy(p, 20))), prompts))
        self.assertEqual(together, solo)

    def test_health_in_a_crowd(self):
        idle = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(200)]
        for s in idle[:100]:
            s.sendall(b"GET /hea")
        streams = [self.server.open_stream(LONG) for _ in range(4)]
        worst = 0
        connection = self.server.connect()
        for _ in range(30):
            start = time.time()
            connection.request("GET", "/health")
            self.assertEqual(connection.getresponse().read(), b'{"status":"ok"}')
            worst = max(worst, time.time() - start)
            time.sleep(0.01)
        connection.close()
        self.server.wait_for("cobord_slots_active", 4)
        for s in idle + streams:
            s.close()
        self.assertLess(worst, 0.1)

    def assert_slot_freed(self, end):
        before = self.server.figure("cobord_disconnects_total")
        s = self.server.open_stream(LONG)
        self.server.wait_for("cobord_slots_active", 1)
        end(s)
        tokens = self.server.figure("cobord_generated_tokens_total")
        self.server.wait_for("cobord_slots_active", 0, 5)
        self.server.wait_for("cobord_disconnects_total", before + 1, 5)
        self.assertLess(self.server.figure("cobord_generated_tokens_total") - tokens, 100)

    def test_hang_up_while_streaming(self):
        def reset(s):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()

        self.assert_slot_freed(lambda s: s.close())
        self.assert_slot_freed(reset)
        self.assert_slot_freed(lambda s: (s.shutdown(socket.SHUT_WR), s.recv(1 << 20), s.close()))

    def test_hang_up_without_a_stream(self):
        s = socket.create_connection(("127.0.0.1", self.server.port))
        send(s, CHAT, LONG)
        self.server.wait_for("cobord_slots_active", 1)
        s.close()
        self.server.wait_for("cobord_slots_active", 0, 5)

    def test_hang_up_during_the_prompt(self):
        ids = self.server.json("/tokenize", {"text": "every word is new " * 250})["ids"][:1000]
        done = self.server.figure("cobord_generated_tokens_total")
        s = socket.create_connection(("127.0.0.1", self.server.port))
        send(s, COMPLETIONS, {"prompt": ids[::-1], "max_tokens": 20, "temperature": 0})
        self.server.wait_for("cobord_slots_active", 1)
        s.close()
        self.server.wait_for("cobord_slots_active", 0, 5)
        self.assertLess(self.server.figure("cobord_generated_tokens_total") - done, 20)

    def test_hang_up_in_the_queue(self):
        running = [self.server.open_stream(LONG) for _ in range(4)]
        waiting = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(3)]
        self.server.wait_for("cobord_slots_active", 4)
        prompts = self.server.figure("cobord_prompt_tokens_total")
        for s in waiting:
            send(s, CHAT, LONG)
        self.server.wait_for("cobord_queue_length", 3)
        for s in waiting[:2]:
            s.close()
        self.server.wait_for("cobord_queue_length", 1, 5)
        running[0].close()
        self.server.wait_for("cobord_queue_length", 0, 5)
        for s in running + waiting:
            s.close()
        self.server.wait_for("cobord_slots_active", 0, 5)
        self.assertLess(self.server.figure("cobord_prompt_tokens_total") - prompts, 100)

    def test_many_hang_ups(self):
        for i in range(60):
            s = socket.create_connection(("127.0.0.1", self.server.port))
            send(s, CHAT, dict(LONG, stream=i % 2 == 0))
            if i % 3:
                time.sleep(0.005 * (i % 5))
            s.close()

    def test_slow_reader(self):
        """It reads nothing for a while and then everything: no byte is missing, and others are not slower for it."""
        body = {"prompt": "a b c d", "temperature": 0, "max_tokens": 900, "logit_bias": {"2": -100, "0": -100}}
        whole = self.server.json(COMPLETIONS, body)["choices"][0]["text"]
        s = socket.create_connection(("127.0.0.1", self.server.port), timeout=60)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        send(s, COMPLETIONS, dict(body, stream=True))
        time.sleep(1)
        self.server.json(CHAT, greedy("Hi", 4))
        got = read_until(s, b"data: [DONE]").decode()
        s.close()
        text = "".join(json.loads(x)["choices"][0]["text"] for x in re.findall(r"data: (\{.*\})", got))
        self.assertEqual(text, whole)


class OtherServersTest(unittest.TestCase):
    def test_drain(self):
        in_time(self.drain)

    def drain(self):
        server = Server("--context", "512", "--slots", "2", "--drafts", "0")  # guesses would be through too soon
        got = []
        body = greedy("Tell me about the sea.", 400, logit_bias={"2": -100, "0": -100})
        thread = threading.Thread(target=lambda: got.append(server.json(CHAT, body)))
        thread.start()
        server.wait_for("cobord_slots_active", 1)
        deliver(server.process.pid, signal.SIGINT)
        try:
            while server.call("GET", "/ready")[0] != 503:
                time.sleep(0.02)
            self.assertEqual(server.call("POST", CHAT, body)[0], 503)
            self.assertEqual(server.call("GET", "/ready")[0], 503)
            self.assertEqual(server.call("GET", "/health")[0], 200)
            is_late = False
        except OSError:
            thread.join(0.2)  # an answer that is over may not have been read yet
            if thread.is_alive():
                raise
            is_late = True
        thread.join(60)
        self.assertEqual(server.wait(), 0)
        self.assertEqual(got[0]["usage"]["completion_tokens"], 400)
        if is_late:
            raise TooLate("the answer was over meanwhile, and the server with it")

    def test_second_signal(self):
        """Every reader still learns why its answer ends."""
        server = Server("--context", "1024", "--slots", "8", "--drafts", "0")  # guesses would be through too soon
        streams = [server.open_stream(LONG) for _ in range(8)]
        for _ in range(2):
            deliver(server.process.pid, signal.SIGTERM)
        for stream in streams:
            self.assertIn(b"shutting_down", read_until(stream, b"\r\n0\r\n"))
            stream.close()
        self.assertEqual(server.wait(), 0)

    def test_places(self):
        server = Server("--context", "256", "--slots", "1")
        for where, word in (
            (f"127.0.0.1:{server.port}", "in use"),
            ("nonsense", "HOST:PORT"),
            ("127.0.0.1:70000", "HOST:PORT"),
        ):
            p = subprocess.run(
                [COBORD, "serve", MODEL, "--listen", where],
                capture_output=True,
                text=True,
                env=environment(),
                timeout=60,
            )
            self.assertIn(p.returncode, (1, 2))
            self.assertIn(word, p.stderr)
            self.assertRegex(p.stderr, r"\Acobord: [^\n]+\n\Z")
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
