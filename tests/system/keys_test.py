#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""API keys, their limits and pages of other origins: `serve`, `up`, `cobord keys`, and what the official clients make
of it."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from _late import TooLate, in_time
from _packages import need
from serve_test import CHAT, COBORD, MODEL, Server, environment, read_until
from tls_test import Server as TlsServer, make_certificate
from up_test import Up

need("openai", "3.57.0")
need("ollama", "0.6.3")
import ollama  # noqa: E402
import openai  # noqa: E402

FOLDER = tempfile.TemporaryDirectory()
HI = [{"role": "user", "content": "Hi"}]
STORY = [{"role": "user", "content": "Tell me a long story about the sea."}]
APP = "https://app.example"
ALICE = "sk-alice-0123456789"
KEYS = {
    "alice": {"key": ALICE},
    "ops": {"key": "sk-ops-0123456789", "admin": True},
    "slow": {"key": "sk-slow-0123456789", "requests_per_minute": 3},
    "few": {"key": "sk-few-0123456789", "tokens_per_minute": 120},
    "one": {"key": "sk-one-0123456789", "concurrent": 1},
}


def write_keys(path, keys, mode=0o600):
    with open(path, "w") as f:
        json.dump({"keys": [{"name": name, **about} for name, about in keys.items()]}, f)
    os.chmod(path, mode)
    return path


def secret(name):
    return KEYS[name]["key"]


def bearer(key):
    return {"Authorization": "Bearer " + key}


def wait_until(condition, seconds=30):
    end = time.time() + seconds
    while not condition():
        if time.time() > end:
            raise AssertionError("it did not happen")
        time.sleep(0.05)


def cobord(*arguments, **more):
    env = dict(environment(), XDG_CONFIG_HOME=FOLDER.name, **more)
    return subprocess.run([COBORD, *arguments], capture_output=True, text=True, env=env, timeout=60)


def open_stream(server, key, tokens):
    """A socket on which a stream of a key has begun."""
    s = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    body = json.dumps({"messages": STORY, "stream": True, "max_tokens": tokens, "temperature": 0,
                       "logit_bias": {"2": -100, "0": -100}}).encode()  # so many, and none less
    s.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
              f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    read_until(s, b"data: ")
    return s


def what_is_there(s):
    """What has arrived already, without a wait."""
    got = b""
    s.settimeout(0)
    with contextlib.suppress(BlockingIOError):
        while more := s.recv(1 << 16):
            got += more
    return got


class KeyServer(Server):
    def ask(self, key, path=CHAT, body=None, headers=None):
        """(status, headers in lower case, value)"""
        status, got, text = self.call("GET" if body is None else "POST", path, body,
                                      {**(bearer(key) if key else {}), **(headers or {})})
        lower = {name.lower(): value for name, value in got.items()}
        return status, lower, json.loads(text) if text[:1] in (b"{", b"[") else text.decode()

    def chat(self, key, tokens=1, **more):
        return self.ask(key, CHAT, {"messages": HI, "max_tokens": tokens, "temperature": 0, **more})

    def client(self, key, **more):
        return openai.OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key=key, max_retries=0, **more)


class ServeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.path = write_keys(os.path.join(FOLDER.name, "serve.json"), KEYS)
        cls.server = KeyServer("--api-keys", cls.path, "--cors", APP + ",http://localhost:3000", "--context", "512")

    @classmethod
    def tearDownClass(cls):
        errors = cls.server.errors()
        assert not any(about["key"] in errors for about in KEYS.values()), errors
        assert cls.server.stop() == 0

    def refused(self, got, status, code):
        self.assertEqual((got[0], got[2]["error"]["code"]), (status, code), got)
        for about in KEYS.values():
            self.assertNotIn(about["key"], json.dumps(got))

    def ask_openai(self, client):
        return client.chat.completions.create(model=MODEL, messages=HI, max_tokens=1)

    # --- streams of others ---

    def test_a_stream_goes_on_for_its_own_key_only(self):
        with open_stream(self.server, ALICE, 40) as s:
            got = read_until(s, b"id: chatcmpl-")
            while not (place := re.search(rb"id: (chatcmpl-[0-9a-f]{32}:[1-9][0-9]*)\n", got)):
                got += s.recv(4096)
        place = {"Last-Event-ID": place[1].decode()}
        self.refused(self.server.ask(secret("ops"), CHAT, {}, place), 404, "stream_not_found")
        self.refused(self.server.ask(None, CHAT, {}, place), 401, "invalid_api_key")
        number, _, tokens = place["Last-Event-ID"].partition(":")
        for forged in (f"{number}/alice:{tokens}", f"{number}/:{tokens}"):
            self.refused(self.server.ask(secret("ops"), CHAT, {}, {"Last-Event-ID": forged}), 400, "invalid_value")
        status, _, rest = self.server.ask(ALICE, CHAT, {}, place)
        self.assertEqual(status, 200, rest)
        self.assertIn("[DONE]", rest)

    # --- who ---

    def test_unknown_keys(self):
        server = self.server
        for headers in ({}, bearer("sk-nobody-0123456789"), bearer(ALICE + "x"), bearer(ALICE[:-1]), bearer(""),
                        {"Authorization": "Basic " + ALICE}, {"Authorization": ALICE}, {"X-Api-Key": ALICE}):
            for path, body in ((CHAT, {"messages": HI}), ("/v1/models", None), ("/metrics", None), ("/cluster", None),
                               ("/api/tags", None), ("/api/chat", {"messages": HI}), ("/nothing", None),
                               ("/tokenize", {"content": "x"})):
                got = server.ask(None, path, body, headers)
                self.refused(got, 401, "invalid_api_key")
                self.assertEqual(got[2]["error"]["type"], "invalid_request_error")
                self.assertEqual(got[1]["www-authenticate"], "Bearer")
        for path in ("/health", "/ready", "/", "/web/shell.mjs"):
            self.assertEqual(server.ask(None, path)[0], 200, path)

    def test_known_keys(self):
        for key in (secret("alice"), secret("ops")):
            self.assertEqual(self.server.chat(key)[0], 200)
            self.assertEqual(self.server.ask(key, "/v1/models")[0], 200)
            self.assertEqual(self.server.ask(key, "/nothing")[0], 404)
        self.assertEqual(self.server.ask(secret("ops"), "/metrics")[0], 200)
        figures = self.server.ask(secret("ops"), "/metrics")[2]
        for line in (r'cobord_key_requests_total\{key="alice"\} [1-9]', r'cobord_key_running\{key="one"\} 0',
                     r'cobord_key_prompt_tokens_total\{key="alice"\} [1-9]', "# TYPE cobord_key_running gauge"):
            self.assertRegex(figures, line)
        self.assertNotIn("sk-", figures)
        for path in ("/metrics", "/cluster"):
            self.refused(self.server.ask(ALICE, path), 403, "insufficient_permissions")
        self.assertNotEqual(self.server.ask(secret("ops"), "/cluster")[0], 403)

    def test_a_big_body_without_a_key(self):
        """Is refused by its head: nobody waits for the body."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=30) as s:
            s.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Type: application/json\r\n"
                      "Content-Length: 5000000\r\n\r\n".encode())
            self.assertTrue(s.recv(4096).startswith(b"HTTP/1.1 401 "))

    def test_official_clients(self):
        with self.assertRaises(openai.AuthenticationError) as caught:
            self.ask_openai(self.server.client("sk-nobody-0123456789"))
        self.assertEqual(caught.exception.code, "invalid_api_key")
        self.assertTrue(self.ask_openai(self.server.client(ALICE)).choices)
        with self.assertRaises(openai.RateLimitError) as caught:
            for _ in range(4):
                self.ask_openai(self.server.client(secret("slow")))
        self.assertEqual(caught.exception.code, "rate_limit_exceeded")
        host = f"http://127.0.0.1:{self.server.port}"
        with self.assertRaises(ollama.ResponseError) as caught:
            ollama.Client(host=host).chat(model=MODEL, messages=HI)
        self.assertEqual(caught.exception.status_code, 401)
        one = ollama.Client(host=host, headers=bearer(ALICE))
        self.assertTrue(one.chat(model=MODEL, messages=HI, options={"num_predict": 2}).message.content)

    # --- how much ---

    def test_tokens(self):
        """The prompt is charged when it is let in, the answer as it comes, also beyond the limit."""
        key, server = secret("few"), self.server
        began = time.time()
        status, headers, answer = server.chat(key, tokens=100, messages=STORY)
        self.assertEqual(status, 200)
        prompt, spent = answer["usage"]["prompt_tokens"], answer["usage"]["total_tokens"]
        self.assertEqual(headers["x-ratelimit-limit-tokens"], "120")
        self.assertEqual(int(headers["x-ratelimit-remaining-tokens"]), 120 - prompt)
        self.assertNotIn("x-ratelimit-limit-requests", headers)
        self.assertGreater(spent + prompt, 120)
        got = server.chat(key, messages=STORY)
        self.refused(got, 429, "rate_limit_exceeded")
        self.assertEqual(got[2]["error"]["type"], "tokens")
        self.assertTrue(got[2]["error"]["retryable"])
        wait = int(got[1]["retry-after"])
        most = (spent + prompt - 120) / 2  # two come each second
        self.assertTrue(most - (time.time() - began) - 1 <= wait <= most + 1, (wait, most))
        self.assertRegex(got[1]["x-ratelimit-reset-tokens"], r"^([0-9]+m)?[0-9.]+s$")
        for path, body in (("/v1/embeddings", {"input": "word " * 60}), ("/tokenize", {"content": "word " * 60})):
            self.refused(server.ask(key, path, body), 429, "rate_limit_exceeded")
        got = server.ask(key, "/tokenize", {"content": "word " * 200})
        self.refused(got, 413, "request_too_large")
        self.assertIn("120 a minute", got[2]["error"]["message"])

    def test_one_at_a_time(self):
        key, server = secret("one"), self.server

        def beside():
            stream = open_stream(server, key, 400)
            got = server.chat(key)
            if got[0] == 200:
                self.assertIn(b"[DONE]", what_is_there(stream), "a second one beside the first")
                stream.close()
                raise TooLate("the stream was over before the next was asked")
            return stream, got
        stream, got = in_time(beside, 5)
        self.refused(got, 429, "rate_limit_exceeded")
        self.assertEqual(got[2]["error"]["type"], "requests")
        self.assertEqual(got[1]["retry-after"], "1")
        self.assertEqual(server.ask(key, "/v1/models")[0], 200)  # takes no turn
        stream.close()
        wait_until(lambda: server.chat(key)[0] == 200, 30)
        for body in ({"messages": []}, {"messages": HI, "max_tokens": -1}, {"nonsense": 1}):  # each gives its turn back
            self.assertEqual(server.ask(key, CHAT, body)[0], 400)
        self.assertEqual(server.ask(key, "/tokenize", {"content": "x"})[0], 200)
        self.assertEqual(server.chat(key)[0], 200)

    # --- pages of other origins ---

    def preflight(self, origin, path=CHAT, **more):
        return self.options(path, {"Origin": origin, "Access-Control-Request-Method": "POST", **more})

    def options(self, path, headers):
        status, got, text = self.server.call("OPTIONS", path, None, headers)
        return status, {name.lower(): value for name, value in got.items()}, text

    def test_preflight(self):
        wanted = {"Access-Control-Request-Headers": "authorization,content-type,x-stainless-os"}
        for path in (CHAT, "/v1/models", "/api/chat", "/nothing"):
            status, headers, text = self.preflight(APP, path, **wanted)
            self.assertEqual((status, text), (204, b""))
            self.assertEqual(headers["access-control-allow-origin"], APP)
            self.assertEqual(headers["access-control-allow-headers"], wanted["Access-Control-Request-Headers"])
            self.assertIn("POST", headers["access-control-allow-methods"])
            self.assertEqual(headers["vary"], "Origin")
            self.assertNotIn("access-control-allow-credentials", headers)
        for origin in ("https://evil.example", "null", APP + ".evil.example", "http://app.example"):
            status, headers, text = self.preflight(origin)
            self.assertEqual((status, json.loads(text)["error"]["code"]), (403, "origin_not_allowed"))
            self.assertNotIn("access-control-allow-origin", headers)
        self.assertNotIn("access-control-allow-headers",
                         self.preflight(APP, **{"Access-Control-Request-Headers": "a;b"})[1])
        self.assertEqual(self.options(CHAT, {})[0], 405)  # no page asks
        self.assertEqual(self.options(CHAT, {"Origin": APP})[0], 405)

    def test_answers_to_pages(self):
        """Errors, too, can be read by the page that got them."""
        page = {"Origin": APP}
        big = {"Content-Type": "application/json", "Content-Length": "90000000", "Expect": "100-continue"}
        for status, got in ((401, self.server.ask(None, CHAT, {"messages": HI}, page)),
                            (404, self.server.ask(ALICE, "/nothing", None, page)),
                            (405, self.server.ask(ALICE, CHAT, None, page)),
                            (400, self.server.ask(ALICE, CHAT, {"nonsense": 1}, page)),
                            (403, self.server.ask(ALICE, "/metrics", None, page)),
                            (200, self.server.ask(ALICE, "/v1/models", None, page)),
                            (200, self.server.ask(ALICE, CHAT, {"messages": HI, "max_tokens": 1}, page)),
                            (200, self.server.ask(ALICE, CHAT, {"messages": HI, "stream": True, "max_tokens": 1},
                                                  page)),
                            (200, self.server.ask(None, "/health", None, page))):
            self.assertEqual((got[0], got[1].get("access-control-allow-origin")), (status, APP), got)
            self.assertIn("Retry-After", got[1]["access-control-expose-headers"])
        answer = self.raw(f"POST {CHAT}", {**page, **bearer(ALICE), **big})
        self.assertTrue(answer.startswith(b"HTTP/1.1 413 "), answer)
        self.assertIn(b"Access-Control-Allow-Origin: " + APP.encode(), answer)
        other = self.server.ask(ALICE, "/v1/models", None, {"Origin": "https://evil.example"})
        self.assertEqual((other[0], other[1]["vary"]), (200, "Origin"))
        self.assertNotIn("access-control-allow-origin", other[1])

    def raw(self, line, headers):
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=30) as s:
            lines = [line + " HTTP/1.1", "Host: x", *(f"{k}: {v}" for k, v in headers.items())]
            s.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
            return s.recv(8192)


class FullQueueTest(unittest.TestCase):
    def test_who_finds_no_place_pays_nothing(self):
        about = {"key": ALICE, "tokens_per_minute": 100000, "admin": True}
        path = write_keys(os.path.join(FOLDER.name, "full.json"), {"alice": about})
        server = KeyServer("--api-keys", path, "--slots", "1", "--queue", "1", "--context", "1024")

        def charged():
            figures = server.ask(ALICE, "/metrics")[2]
            return int(re.search(r'^cobord_key_prompt_tokens_total\{key="alice"\} (\d+)$', figures, re.M)[1])

        try:
            streams = [open_stream(server, ALICE, 900) for _ in range(2)]
            before = charged()
            for _ in range(3):
                status, headers, answer = server.chat(ALICE)
                self.assertEqual((status, answer["error"]["code"]), (429, "queue_full"))
                self.assertIn("x-ratelimit-remaining-tokens", headers)
            self.assertEqual(charged(), before)
            for s in streams:
                s.close()
            wait_until(lambda: server.chat(ALICE)[0] == 200)
            self.assertGreater(charged(), before)
        finally:
            self.assertEqual(server.stop(), 0)


class ReadAgainTest(unittest.TestCase):
    def test_hangup(self):
        path = write_keys(os.path.join(FOLDER.name, "again.json"), {"alice": {"key": ALICE}}, 0o644)
        server = KeyServer("--api-keys", path, "--cors", "*", "--context", "512")
        try:
            self.assertIn(f"others may read {path}", server.errors())
            self.assertEqual(server.chat(ALICE)[0], 200)
            stream = open_stream(server, ALICE, 60)
            with open(path, "w") as f:
                f.write('{"keys": [{"name": "alice", "key": "sk-other-SECRET", "speed": 1}]}')
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "stay as they were" in server.errors())
            self.assertIn("key 1 (alice): speed is none of", server.errors())
            self.assertEqual(server.chat(ALICE)[0], 200)
            write_keys(path, {"bob": {"key": "sk-bob-SECRET"}})
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: server.chat(ALICE)[0] == 401)
            self.assertEqual(server.chat("sk-bob-SECRET")[0], 200)
            wait_until(lambda: "1 API keys were read again" in server.errors())  # said when it is done
            self.assertNotIn("SECRET", server.errors())
            with open(f"/proc/{server.process.pid}/cmdline") as f:
                self.assertNotIn("sk-", f.read())
            self.all_origins(server)
            read_until(stream, b"data: [DONE]")  # who was let in is served
            stream.close()
        finally:
            self.assertEqual(server.stop(), 0)

    def all_origins(self, server):
        """With "*" the name of Authorization is still said: "*" alone would not mean it."""
        for origin in ("https://any.example", "null"):
            status, headers, _ = server.call("OPTIONS", CHAT, None, {
                "Origin": origin, "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization"})
            self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (204, "*"))
            self.assertEqual(headers["Access-Control-Allow-Headers"], "authorization")
            self.assertEqual(server.ask("sk-bob-SECRET", "/v1/models", None, {"Origin": origin})[1]
                             ["access-control-allow-origin"], "*")

    def test_without_keys_and_origins(self):
        """As ever: nobody is asked, and no page of another origin gets anything."""
        server = KeyServer("--context", "512")
        try:
            self.assertEqual(server.chat(None)[0], 200)
            self.assertEqual(server.chat("sk-any")[0], 200)
            status, headers, text = server.call("OPTIONS", CHAT, None, {
                "Origin": APP, "Access-Control-Request-Method": "POST"})
            self.assertEqual((status, json.loads(text)["error"]["code"]), (405, "method_not_allowed"))
            self.assertFalse([h for h in headers if h.lower().startswith(("access-control", "vary"))])
        finally:
            self.assertEqual(server.stop(), 0)


@unittest.skipUnless(shutil.which("openssl"), "no openssl program to make a certificate with")
class TlsTest(unittest.TestCase):
    def test_keys_over_tls(self):
        """With keys nobody is warned of an address that everybody reaches."""
        path = write_keys(os.path.join(FOLDER.name, "tls.json"), {"alice": {"key": ALICE}})
        server = TlsServer("serve", *make_certificate("keys", "IP:127.0.0.1"), "--context", "512", "--api-keys", path,
                           listen="0.0.0.0:0")
        try:
            self.assertNotIn("anyone", server.errors())
            self.assertEqual(server.call("/v1/models")[0], 401)
            self.assertEqual(server.call("/v1/models", headers=bearer(ALICE))[0], 200)
            self.assertEqual(server.call("/health")[0], 200)
        finally:
            self.assertEqual(server.stop(), 0)


class UpTest(unittest.TestCase):
    def ask(self, up, key, path=CHAT):
        connection = http.client.HTTPConnection("127.0.0.1", up.port, timeout=60)
        try:
            body = json.dumps({"messages": HI, "max_tokens": 1}) if path == CHAT else None
            connection.request("POST" if body else "GET", path, body, bearer(key) if key else {})
            return connection.getresponse().status
        finally:
            connection.close()

    def test_up(self):
        path = write_keys(os.path.join(FOLDER.name, "up.json"), {"alice": {"key": ALICE}})
        up = Up("--listen", "127.0.0.1:0", "--stations", "2", "--shards", "1", "--context", "512",
                "--api-keys", path)
        try:
            self.assertEqual([self.ask(up, key) for key in (None, "sk-nobody", ALICE)], [401, 401, 200])
            self.assertEqual([self.ask(up, None, p) for p in ("/health", "/ready", "/cluster")], [200, 200, 401])
            before = up.nodes()
            write_keys(path, {"bob": {"key": "sk-bob-0123456789", "admin": True}})
            up.process.send_signal(signal.SIGHUP)
            wait_until(lambda: self.ask(up, ALICE) == 401)
            self.assertEqual(self.ask(up, "sk-bob-0123456789"), 200)
            self.assertEqual(up.nodes(), before)
            for key, code in (("sk-bob-0123456789", 0), ("sk-alice", 1)):
                got = cobord("status", f"127.0.0.1:{up.port}", COBORD_API_KEY=key)
                self.assertEqual(got.returncode, code, got.stderr)
            self.assertIn("COBORD_API_KEY", got.stderr)
            got = cobord("run", MODEL, "Hi", "--url", f"127.0.0.1:{up.port}", COBORD_API_KEY="sk-alice")
            self.assertIn("not known here. Set COBORD_API_KEY", got.stderr)
        finally:
            self.assertEqual(up.stop(), 0)


class CommandTest(unittest.TestCase):
    def test_new_list_revoke(self):
        file = os.path.join(FOLDER.name, "made", "keys.json")
        os.mkdir(os.path.dirname(file))
        made = cobord("keys", "new", "alice", "--file", file, "--requests-per-minute", "60", "--admin")
        key = made.stdout.strip()
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertRegex(key, r"^sk-cobord-[0-9a-f]{48}$")
        self.assertNotIn(key, made.stderr)
        self.assertEqual(os.stat(file).st_mode & 0o777, 0o600)
        with open(file) as f:
            text = f.read()
        self.assertNotIn(key, text)
        self.assertNotIn(key[10:], text)
        self.assertEqual(cobord("keys", "new", "bob", "--file", file).returncode, 0)
        twice = cobord("keys", "new", "bob", "--file", file)
        self.assertEqual((twice.returncode, twice.stdout), (1, ""))
        listed = json.loads(cobord("keys", "list", "--json", "--file", file).stdout)
        self.assertEqual(listed, [{"name": "alice", "requests_per_minute": 60, "admin": True},
                                  {"name": "bob", "admin": False}])
        self.assertIn("alice", cobord("keys", "list", COBORD_API_KEYS=file).stdout)
        self.assertEqual(cobord("keys", "revoke", "alice", "--file", file).returncode, 0)
        self.assertEqual([k["name"] for k in json.loads(cobord("keys", "list", "--json", "--file", file).stdout)],
                         ["bob"])
        gone = cobord("keys", "revoke", "alice", "--file", file)
        self.assertEqual(gone.returncode, 1)
        self.assertEqual(os.listdir(os.path.dirname(file)), ["keys.json"])

    def test_the_file_at_home(self):
        self.assertEqual(cobord("keys", "new", "me").returncode, 0)
        self.assertIn("me", cobord("keys", "list").stdout)
        self.assertEqual(os.stat(os.path.join(FOLDER.name, "cobord", "keys.json")).st_mode & 0o777, 0o600)

    def test_many_at_once(self):
        """None is lost."""
        file = os.path.join(FOLDER.name, "many.json")
        running = [subprocess.Popen([COBORD, "keys", "new", f"user-{i}", "--file", file], env=environment(),
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for i in range(12)]
        self.assertEqual([p.wait(timeout=60) for p in running], [0] * 12)
        self.assertEqual(len(json.loads(cobord("keys", "list", "--json", "--file", file).stdout)), 12)

    def test_what_is_wrong(self):
        dangling = os.path.join(FOLDER.name, "dangling")
        os.symlink("/nonexistent/keys.json", dangling)
        bad = os.path.join(FOLDER.name, "bad.json")
        with open(bad, "w") as f:
            f.write('{"keys": [\n  {"name": "alice", "key": "sk-SECRET-1234", "concurrent": "SECRET"}\n]}')
        os.chmod(bad, 0o600)
        for words, code, said in ((("new", "a b"), 2, "a name has"), (("new", "sk-SECRET"), 2, "not begin with sk-"),
                                  (("new",), 2, "takes the name"), (("list", "x"), 2, "takes no name"),
                                  (("make",), 2, "new, list and revoke"), (("revoke", "sk-SECRET"), 2, "not the key"),
                                  (("new", "x", "--file", dangling), 1, "a link to a file that is not there"),
                                  (("new", "x", "--file", bad), 1, "line 2, key 1 (alice): concurrent must"),
                                  (("new", "x", "--file", FOLDER.name), 1, "no regular file"),
                                  (("list", "--file", bad + ".missing"), 1, "is not there")):
            got = cobord("keys", *words)
            self.assertEqual((got.returncode, got.stdout, got.stderr.count("\n")), (code, "", 1), (words, got.stderr))
            self.assertIn(said, got.stderr)
            self.assertNotIn("SECRET", got.stderr)
        for words, said in ((("--api-keys", dangling), "a link to a file"), (("--api-keys", bad), "line 2, key 1"),
                            (("--api-keys", bad + ".missing"), "No such file"), (("--cors", "null"), "is no origin"),
                            (("--cors", "https://a.example/"), "is no origin")):
            for verb in ("serve", "up"):
                got = cobord(verb, MODEL, *words)
                self.assertNotEqual(got.returncode, 0)
                self.assertIn(said, got.stderr)
                self.assertNotIn("SECRET", got.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
