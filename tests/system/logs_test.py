#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests by name through every process, lines of the log, and what SIGTERM does to answers under way."""
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from _cluster import Cluster, wait_until
from serve_test import CHAT, COBORD, MODEL, Server, content, environment, greedy, read_until
from up_test import Up

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
SECRET = "The word nobody may log is xylophone."
LONG = greedy("Count to a thousand.", 1500, logit_bias={"2": -100, "0": -100})


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


class Requests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--log-format", "json")

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def line(self, request_id):
        """The request's own line, which is written when it is over."""
        def find():
            return [e for e in lines_of(self.server.errors()) if e.get("request_id") == request_id]
        return wait_until(find, 10)[0]

    def test_names_are_kept(self):
        status, headers, _ = self.server.call("POST", CHAT, greedy(SECRET, 8),
                                              {"X-Request-Id": "client.1", "traceparent": PARENT})
        self.assertEqual((status, headers["X-Request-Id"]), (200, "client.1"))
        e = self.line("client.1")
        self.assertRegex(e["time"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertEqual((e["level"], e["node"], e["event"], e["method"], e["path"], e["status"]),
                         ("info", "serve", "request", "POST", CHAT, 200))
        self.assertEqual((e["trace_id"], e["parent_id"]), (TRACE, SPAN))
        self.assertRegex(e["span_id"], "^[0-9a-f]{16}$")
        self.assertEqual(e["completion_tokens"], 8)
        self.assertGreater(e["prompt_tokens"], 8)
        self.assertLess(e["ttft_ms"], e["ms"])
        self.assertNotIn("error", e)

    def test_names_are_made(self):
        ids = set()
        for given in (None, "", "a b", "x" * 129, 'a"b', "ä".encode().decode("latin-1")):
            headers = {"traceparent": "00-bad-bad-01"} if given is None else {"X-Request-Id": given}
            got = self.server.call("GET", "/v1/models", headers=headers)[1]["X-Request-Id"]
            self.assertRegex(got, "^req_[0-9a-f]{16}$")
            ids.add(got)
        self.assertEqual(len(ids), 6)
        traces = {self.line(i)["trace_id"] for i in ids}
        self.assertEqual(len(traces), 6)

    def test_every_answer_has_its_id(self):
        for method, path, body, status in (("GET", "/health", None, 200), ("GET", "/ready", None, 200),
                                           ("GET", "/metrics", None, 200), ("GET", "/nix", None, 404),
                                           ("PUT", CHAT, "{}", 405), ("POST", CHAT, "no json", 400),
                                           ("POST", CHAT, dict(greedy("Hi", 2), stream=True), 200)):
            got, headers, _ = self.server.call(method, path, body, {"X-Request-Id": f"each-{path[1:3]}-{status}"})
            self.assertEqual((got, headers["X-Request-Id"]), (status, f"each-{path[1:3]}-{status}"))
        self.assertEqual(self.line("each-v1-400")["error"], "invalid_json")
        self.assertEqual(self.line("each-ni-404")["error"], "not_found")
        self.assertEqual(self.line("each-v1-200")["completion_tokens"], 2)
        self.assertNotIn("each-he-200", self.server.errors())  # at debug only

    def test_a_client_that_leaves(self):
        with self.server.open_stream(dict(LONG, user="u")) as s:
            for _ in range(3):  # the first event comes before the first token
                read_until(s, b"data: ")
        wait_until(lambda: "client_left" in self.server.errors(), 10)
        e = next(e for e in lines_of(self.server.errors()) if e.get("error") == "client_left")
        self.assertGreater(e["completion_tokens"], 0)
        self.assertLess(e["completion_tokens"], 1500)

    def test_what_is_never_logged(self):
        self.server.call("POST", CHAT, greedy(SECRET, 4), {"Authorization": "Bearer my-own-key"})
        self.server.call("GET", "/v1/models/%0d%0a%1b[2Jx?q=secret-query")
        self.server.call("GET", "/" + "y" * 300)
        text = self.server.errors()
        for word in ("xylophone", "my-own-key", "secret-query", "\x1b"):
            self.assertNotIn(word, text)
        lines_of(text)  # each is an object

    def test_the_name_of_a_key(self):
        with tempfile.NamedTemporaryFile("w") as f:
            json.dump({"keys": [{"name": "alice", "key": "sk-alice-0123456789"}]}, f)
            f.flush()
            s = Server("--log-format", "json", "--api-keys", f.name)
            self.addCleanup(s.stop)
            for name, key in (("hers", "sk-alice-0123456789"), ("nobodys", "sk-bob-0123456789")):
                s.call("GET", "/v1/models", headers={"X-Request-Id": name, "Authorization": f"Bearer {key}"})
            wait_until(lambda: "nobodys" in s.errors(), 10)
            hers, nobodys = [e for e in lines_of(s.errors()) if e.get("path") == "/v1/models"]
            self.assertEqual((hers["key"], hers["status"]), ("alice", 200))
            self.assertNotIn("key", nobodys)
            self.assertEqual((nobodys["status"], nobodys["error"]), (401, "invalid_api_key"))
            self.assertNotIn("sk-", s.errors())
            s.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "1 API keys were read again" in s.errors(), 10)
            os.truncate(f.name, 5)
            s.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "stay as they were" in s.errors(), 10)
            lines_of(s.errors())  # objects, these too

    def test_what_is_said_of_keys(self):
        with tempfile.NamedTemporaryFile("w") as f:
            os.chmod(f.name, 0o644)
            json.dump({"keys": []}, f)
            f.flush()
            s = Server("--log-format", "json", "--api-keys", f.name)
            self.addCleanup(s.stop)
            s.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "0 API keys were read again" in s.errors(), 10)
            f.write("no json")
            f.flush()
            s.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "the API keys stay as they were" in s.errors(), 10)
            said = [(e["level"], e["message"]) for e in lines_of(s.errors())]  # each is an object
            self.assertIn(("info", f"others may read {f.name}: chmod 600 keeps its keys secret"), said)
            self.assertEqual([level for level, text in said if "stay as they were" in text], ["error"])

    def test_bad_settings(self):
        for name, value in (("--log-format", "xml"), ("--log-level", "loud"), ("--drain-seconds", "-1")):
            p = subprocess.run([COBORD, "serve", MODEL, name, value], capture_output=True, text=True, env=environment())
            self.assertEqual(p.returncode, 2)
            self.assertIn(name, p.stderr)


class Levels(unittest.TestCase):
    def test_text(self):
        s = Server("--log-level", "debug")
        self.addCleanup(s.stop)
        s.call("GET", "/health", headers={"X-Request-Id": "looked"})
        line = re.compile(r"^cobord: GET /health 200 ms=[\d.]+ request_id=looked trace_id=", re.M)
        wait_until(lambda: line.search(s.errors()), 10)

    def test_errors_only(self):
        s = Server("--log-level", "error")
        s.call("GET", "/v1/models")
        errors = s.errors
        s.process.send_signal(signal.SIGTERM)
        s.process.wait(timeout=30)
        self.assertEqual(errors(), "")
        s.wait()

    def test_a_log_that_nobody_reads(self):
        """Answers go on; what was dropped is counted, and said as soon as somebody reads."""
        p = subprocess.Popen([COBORD, "serve", MODEL, "--listen", "127.0.0.1:0", "--log-format", "json"], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        try:
            port = int(p.stdout.readline().rsplit(":", 1)[1])
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            dropped, end = 0, time.time() + 30
            while not dropped and time.time() < end:
                for _ in range(100):
                    connection.request("GET", "/v1/models")
                    connection.getresponse().read()
                connection.request("GET", "/metrics")
                dropped = int(re.search(rb"^cobord_log_dropped_total (\d+)$", connection.getresponse().read(), re.M)[1])
            self.assertGreater(dropped, 0)
            start = time.time()
            connection.request("POST", CHAT, json.dumps(greedy("Hi", 4)).encode())
            self.assertEqual(connection.getresponse().read()[:1], b"{")
            self.assertLess(time.time() - start, 10)
            text = []
            reader = threading.Thread(target=lambda: text.extend(p.stderr))
            reader.start()
            wait_until(lambda: len(text) > 50, 10)  # there is room again
            connection.request("GET", "/v1/models")
            connection.getresponse().read()
            wait_until(lambda: '"dropped"' in "".join(text), 10)
            p.send_signal(signal.SIGTERM)
            reader.join(30)
            lines = lines_of("".join(text))
            self.assertTrue([e for e in lines if e["event"] == "dropped"], lines[-3:])
            self.assertEqual(p.wait(timeout=30), 0)
        finally:
            p.kill()
            p.wait()
            p.stdout.close()
            p.stderr.close()


class Supervisor(unittest.TestCase):
    def test_a_log_that_nobody_reads(self):
        """Who is dead comes back, and SIGTERM ends all."""
        reader, writer = os.pipe()
        up = Up("--listen", "127.0.0.1:0", "--stations", "1", "--shards", "1", "--context", "512", stderr=writer)
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(writer, True)
        try:
            text, old = up.ask(), up.nodes()
            os.kill(old["station-0"], signal.SIGKILL)
            wait_until(lambda: up.nodes().get("station-0", old["station-0"]) != old["station-0"], 20)
            self.assertEqual(up.ask(), text)
            up.process.send_signal(signal.SIGTERM)
            self.assertEqual(up.process.wait(timeout=30), 0)
        finally:
            os.close(reader)
            os.close(writer)
            up.close()


class ThroughTheCluster(unittest.TestCase):
    def test_one_trace(self):
        c = Cluster("--log-format", "json", "--log-level", "debug")
        self.addCleanup(c.close)
        connection = http.client.HTTPConnection("127.0.0.1", c.port, timeout=60)
        connection.request("POST", CHAT, json.dumps(greedy(SECRET, 4)).encode(),
                           {"X-Request-Id": "far", "traceparent": PARENT})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        self.assertEqual((answer.status, answer.getheader("X-Request-Id")), (200, "far"))
        self.assertEqual(c.stop(), 0)
        lines = lines_of(c.errors())  # up's own, and those of its processes: all are objects
        self.assertNotIn("xylophone", c.errors())
        self.assertLessEqual({"up", "coordinator-0", "station-0", "shard-1"}, {e["node"] for e in lines})
        mine = [e for e in lines if e.get("trace_id") == TRACE]
        request = next(e for e in mine if e["event"] == "request")
        hops = {e["span_id"]: e for e in mine if e["event"] == "hop"}
        calls = [e for e in mine if e["event"] == "call"]
        self.assertEqual((request["request_id"], request["parent_id"]), ("far", SPAN))
        self.assertEqual({(e["to"], e["path"]) for e in hops.values() if e["path"] != "/embed"},
                         {("station-0", "/forward"), ("station-1", "/forward"), ("shard-0", "/logits"),
                          ("shard-1", "/logits")})
        for e in hops.values():
            self.assertEqual((e["parent_id"], e["request_id"]), (request["span_id"], "far"))
        self.assertEqual(len(calls), len(hops))
        for e in calls:  # each node has heard the span that its caller has told
            self.assertEqual(hops[e["parent_id"]]["to"], e["node"])


class Draining(unittest.TestCase):
    def test_what_was_begun_is_finished(self):
        s = Server("--context", "2048")
        self.addCleanup(s.process.kill)
        stream = s.open_stream(dict(LONG, max_tokens=1900))
        s.process.send_signal(signal.SIGTERM)
        wait_until(lambda: s.call("GET", "/ready")[0] == 503, 5)
        self.assertEqual(s.call("GET", "/health")[0], 200)
        self.assertEqual(s.call("POST", CHAT, greedy("Hi", 2))[0], 503)
        self.assertEqual(s.figure("cobord_draining"), 1)
        self.assertIn(b"[DONE]", read_until(stream, b"[DONE]"))
        stream.close()
        self.assertEqual(s.wait(), 0)

    def test_no_longer_than_is_said(self):
        s = Server("--drain-seconds", "1", "--context", "2048")
        self.addCleanup(s.process.kill)
        stream = s.open_stream(dict(LONG, max_tokens=1900))
        start = time.time()
        s.process.send_signal(signal.SIGTERM)
        text = read_until(stream, b"shutting_down")
        self.assertIn(b"shutting_down", text)
        self.assertGreater(time.time() - start, 0.8)
        stream.close()
        self.assertEqual(s.wait(), 0)
        self.assertLess(time.time() - start, 15)

    def test_a_second_signal(self):
        s = Server("--context", "2048")
        self.addCleanup(s.process.kill)
        stream = s.open_stream(dict(LONG, max_tokens=1900))
        s.process.send_signal(signal.SIGTERM)
        wait_until(lambda: s.call("GET", "/ready")[0] == 503, 5)
        start = time.time()
        s.process.send_signal(signal.SIGTERM)
        self.assertEqual(s.wait(), 0)
        self.assertLess(time.time() - start, 10)
        stream.close()

    def test_a_cluster(self):
        """Its coordinator drains for as long as it was said, the others stay until then."""
        c = Cluster("--drain-seconds", "2")
        self.addCleanup(c.close)
        s = c.begin(dict(LONG, max_tokens=900))
        s.wait_pieces(3)
        start = time.time()
        c.process.send_signal(signal.SIGTERM)
        self.assertEqual(c.process.wait(timeout=60), 0)
        self.assertLess(time.time() - start, 20)
        wait_until(lambda: s.error or s.ended, 10)
        self.assertTrue(s.ended or "shutting_down" in str(s.error), s.error)
        self.assertNotIn("again and again", c.errors())


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2, warnings="ignore"))
