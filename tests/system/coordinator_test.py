#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A coordinator, stations and shards as processes: the same texts as one process, and what a client is told
when the cluster is not whole. Nodes are started by hand from a cluster file that is written here."""

import http.client
import itertools
import json
import os
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from _late import TooLate, in_time
from _nodes import first_line
from _ports import free_ports
from resume_test import said, whole_events
from serve_test import CHAT, COBORD, COMPLETIONS, LONG, MODEL, Server, content, environment, events_in, greedy, send

CONTEXT = 1024
MEMORY = int(os.environ.get("CLUSTER_MEMORY", 128 << 20))  # a sanitizer needs more
KEY = "a-key-that-only-this-test-knows"


def info(model):
    return json.loads(subprocess.run([COBORD, "info", model, "--json"], capture_output=True, env=environment()).stdout)


def models_directory():
    cache = os.environ.get("COBORD_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "cobord"
    )
    return os.path.join(cache, "models")


class Node:
    """One `cobord node`, with its errors in a file."""

    def __init__(self, path, name):
        self.log = tempfile.TemporaryFile("a+")
        self.process = subprocess.Popen(
            [COBORD, "node", "--cluster", path, "--id", name],
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=environment(),
        )

    def wait_up(self):
        """Until it says its line, or ends without one."""
        assert first_line(self.process, 30) is not None, self.errors()

    def errors(self):
        self.log.seek(0)
        return self.log.read()

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout=30)
        self.process.stdout.close()
        self.log.close()
        return code


class Cluster(Server):
    """A cluster file and its running nodes; as a Server, its coordinator."""

    def __init__(self, stations=2, shards=2, key=True, without=(), store=None, tls=None, **more):
        self.directory = tempfile.mkdtemp()
        self.tls = tls
        if tls:
            more["tls"] = {"certificate": tls + "/certificate.pem", "key": tls + "/key.pem"}
            more["tls"]["ca"] = tls + "/certificate.pem"
        self.nodes = {}
        about = info(MODEL)
        model = about["model"]
        ports = free_ports(1 + stations + shards)
        self.port = ports[0]
        if key:
            self.write("key", KEY)
        layers, words = model["layers"], model["vocabulary"]

        def cut(total, count, i):
            return total * i // count

        self.file = {
            "cobord_cluster": 1,
            "model": {
                "name": MODEL,
                "knot_id": about["id"],
                "knot_key": MODEL + ".knot",
                "store": models_directory(),
                "layers": layers,
                "vocabulary": words,
            },
            "context": CONTEXT,
            "chunk": 64,
            "memory": MEMORY,
            "sessions": 4,
            "coordinator": {"id": "coordinator-0", "address": f"127.0.0.1:{ports[0]}"},
            "stations": [
                {
                    "id": f"station-{i}",
                    "address": f"127.0.0.1:{ports[1 + i]}",
                    "range": f"{cut(layers, stations, i)}-{cut(layers, stations, i + 1)}",
                }
                for i in range(stations)
            ],
            "shards": [
                {
                    "id": f"shard-{i}",
                    "address": f"127.0.0.1:{ports[1 + stations + i]}",
                    "ids": [cut(words, shards, i), cut(words, shards, i + 1)],
                }
                for i in range(shards)
            ],
            "key_file": "key" if key else "",
            **more,
        }
        self.path = self.write("cluster.json", json.dumps(self.file))
        own = dict(self.file, model=dict(self.file["model"], store=store)) if store else self.file
        self.own_path = self.write("own.json", json.dumps(own))
        names = [f"station-{i}" for i in range(stations)] + [f"shard-{i}" for i in range(shards)]
        try:
            for name in names:
                self.start(name, without)
            for node in self.nodes.values():  # what the coordinator finds at first is what it says of them
                node.wait_up()
            self.start("coordinator-0", (), self.own_path)
            self.wait_alive()
            if not without:
                self.wait_complete()
        except BaseException:
            self.stop()
            raise

    def connect(self, timeout=120):
        if not self.tls:
            return super().connect(timeout)
        context = ssl.create_default_context(cafile=self.tls + "/certificate.pem")
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=context)

    def write(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w", opener=lambda p, f: os.open(p, f, 0o600)) as f:
            f.write(text)
        return path

    def start(self, name, without=(), path=None):
        if name not in without:
            self.nodes[name] = Node(path or self.path, name)

    def kill(self, name, number=signal.SIGKILL):
        return self.nodes.pop(name).stop(number)

    def wait_alive(self, seconds=30):
        end = time.time() + seconds
        while True:
            try:
                if self.call("GET", "/health", timeout=5)[0] == 200:
                    return
            except OSError:
                pass
            node = self.nodes["coordinator-0"]
            if node.process.poll() is not None or time.time() > end:
                raise AssertionError("no coordinator: " + node.errors())
            time.sleep(0.05)

    def wait_ready(self, status=200, seconds=30):
        end = time.time() + seconds
        while self.call("GET", "/ready")[0] != status:
            if time.time() > end:
                raise AssertionError(f"/ready: {self.call('GET', '/ready')}; {self.errors()}")
            time.sleep(0.05)

    def wait_complete(self):
        """Every node was asked: before that it is ready already when it could do without the others."""
        self.wait_ready()
        wait_until(lambda: self.cluster()["complete"], "complete", 30)

    def is_ready(self):
        try:
            return self.call("GET", "/ready", timeout=5)[0] == 200
        except OSError:
            return False

    def missing(self):
        return json.loads(self.call("GET", "/ready")[2])["missing"]

    def errors(self):
        return "".join(f"--- {name}\n{node.errors()}" for name, node in self.nodes.items())

    def cluster(self):
        return json.loads(self.call("GET", "/cluster")[2])

    def node(self, name):
        return next(n for n in self.cluster()["nodes"] if n["id"] == name)

    def sessions(self, station):
        port = int(self.file["stations"][station]["address"].split(":")[1])
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        c.request("GET", "/metrics", headers={"Authorization": "Bearer " + KEY})
        text = c.getresponse().read().decode()
        c.close()
        return int(re.search(r"^cobord_station_sessions (\d+)$", text, re.M).group(1))

    def stop(self):
        codes = {}
        if "coordinator-0" in self.nodes:
            codes["coordinator-0"] = self.nodes.pop("coordinator-0").stop()
        for name in list(self.nodes):
            codes[name] = self.nodes.pop(name).stop()
        shutil.rmtree(self.directory)
        return codes


class Second(Cluster):
    """Another coordinator of the same stations and shards, with a journal of its own."""

    def __init__(self, first, directory):
        self.directory, self.tls, self.port = directory, None, free_ports(1)[0]
        self.write("key", KEY)
        coordinator = {"id": "coordinator-0", "address": f"127.0.0.1:{self.port}"}
        self.path = self.write("cluster.json", json.dumps(dict(first.file, coordinator=coordinator)))


def wait_until(condition, what, seconds=10):
    end = time.time() + seconds
    while not condition():
        if time.time() > end:
            raise AssertionError("not in time: " + what)
        time.sleep(0.02)


def has_news(s):
    return bool(select.select([s], [], [], 0)[0])


ASKED = [
    greedy("Tell me about the sea.", 40),
    greedy("What is a river?", 30, n=2),
    {"messages": [{"role": "user", "content": "Name a colour."}], "temperature": 1, "seed": 7, "max_tokens": 30},
    greedy("Say it again.", 20, temperature=0.8, seed=3, top_p=0.9, presence_penalty=0.5, logit_bias={"30": 2}),
]


def answers(server):
    return [[c["message"]["content"] for c in server.json(CHAT, body)["choices"]] for body in ASKED]


class TwoCoordinatorsTest(unittest.TestCase):
    def test_begun_in_the_same_second(self):
        """Each has sessions of its own at the stations, whatever the clock says: neither finds the other's."""
        with tempfile.TemporaryDirectory() as d:
            first = Cluster(without=("coordinator-0",), sessions=8, context=256)
            try:
                first.kill("coordinator-0", signal.SIGTERM)
                second = Second(first, d)
                time.sleep(1.05 - time.time() % 1)
                first.start("coordinator-0")
                first.nodes["coordinator-1"] = Node(second.path, "coordinator-0")
                for c in (first, second):
                    wait_until(lambda c=c: c.is_ready(), "both coordinators", 30)
                texts = [[content(c.json(CHAT, greedy(f"{ask} {c.port}", 12))) for c in (first, second, first)]
                         for ask in ("Say something of", "Count down from", "Who was")]
                for one, _, again in texts:
                    self.assertEqual(one, again)
                for c in (first, second):
                    self.assertEqual([n["failures"] for n in c.cluster()["nodes"]], [0] * 4)
                    self.assertEqual(c.cluster()["replays"], 0)
            finally:
                first.stop()


class WholeClusterTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        serve = Server("--context", str(CONTEXT))
        try:
            cls.expected = answers(serve)
            cls.sea = serve.json(CHAT, greedy("Tell me about the sea.", 200))
        finally:
            serve.stop()
        cls.c = Cluster()

    @classmethod
    def tearDownClass(cls):
        codes = cls.c.stop()
        assert set(codes.values()) == {0}, codes

    def test_same_texts(self):
        self.assertEqual(answers(self.c), self.expected)

    def test_same_stream(self):
        events = self.c.events(CHAT, ASKED[0])
        self.assertEqual(events[-1], "[DONE]")
        text = "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1])
        self.assertEqual(text, self.expected[0][0])

    def test_at_once(self):
        got = [None] * 6

        def ask(i):
            body = ASKED[i % len(ASKED)]
            got[i] = [c["message"]["content"] for c in self.c.json(CHAT, body)["choices"]]

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(got))]
        for t in threads:
            t.start()
        for t in threads:
            t.join(120)
        self.assertEqual(got, [self.expected[i % len(ASKED)] for i in range(len(got))])

    def test_prefix_is_used_again(self):
        body = greedy("Tell me about mountains, valleys and rivers.", 5)
        first, second = self.c.json(CHAT, body), self.c.json(CHAT, body)
        self.assertEqual(content(first), content(second))
        self.assertGreater(second["usage"]["prompt_tokens_details"]["cached_tokens"], 5)

    def test_completions_and_tokens(self):
        ids = self.c.json("/tokenize", {"text": "Hello there"})["ids"]
        self.assertEqual(self.c.json("/detokenize", {"ids": ids})["text"], "Hello there")
        a = self.c.json(COMPLETIONS, {"prompt": ids, "max_tokens": 8, "temperature": 0})
        b = self.c.json(COMPLETIONS, {"prompt": "Hello there", "max_tokens": 8, "temperature": 0})
        self.assertEqual(a["choices"], b["choices"])

    def test_client_leaves(self):
        s = self.c.open_stream(LONG)
        s.close()
        self.c.wait_for("cobord_slots_active", 0, 5)
        self.assertEqual(content(self.c.json(CHAT, ASKED[0])), self.expected[0][0])

    def test_client_leaves_a_prompt(self):
        """Noticed within a second, long before the prompt is done, and its attention cache is freed."""
        numbers = itertools.count()  # a prompt that was there before is done at once

        def attempt():
            s = socket.create_connection(("127.0.0.1", self.c.port), timeout=60)
            prompt = f"{next(numbers)} " + "one two three four five " * 190
            send(s, COMPLETIONS, {"prompt": prompt, "max_tokens": 5})
            wait_until(lambda: self.c.figure("cobord_slots_active") == 1 or has_news(s), "a slot", 60)
            if has_news(s):
                with s:
                    self.assertIn(b" 200 ", s.recv(4096))
                raise TooLate("it was done before anybody looked")
            return s
        s = in_time(attempt)
        before = time.time()
        s.close()
        self.c.wait_for("cobord_slots_active", 0, 5)
        self.assertLess(time.time() - before, 1)

    def test_caches_are_freed(self):
        """After an answer that was given up no station has its session."""
        wait_until(lambda: self.c.figure("cobord_slots_active") == 0, "idle")
        held = [self.c.sessions(i) for i in range(2)]
        for _ in range(4):
            sockets = [self.c.open_stream(LONG) for _ in range(4)]
            for s in sockets:
                s.close()
            self.c.wait_for("cobord_slots_active", 0, 5)
        for i in range(2):
            wait_until(lambda: self.c.sessions(i) <= held[i], f"station-{i}: {self.c.sessions(i)}, before {held[i]}")

    def test_many_hang_ups(self):
        for i in range(40):
            s = socket.create_connection(("127.0.0.1", self.c.port))
            send(s, CHAT, dict(LONG, stream=i % 2 == 0))
            if i % 3:
                time.sleep(0.01 * (i % 5))
            s.close()
        self.c.wait_for("cobord_slots_active", 0, 10)
        self.assertEqual(content(self.c.json(CHAT, ASKED[0])), self.expected[0][0])

    def test_description(self):
        about = self.c.cluster()
        self.assertTrue(about["complete"])
        self.assertEqual(about["queue"]["slots"], 4)
        self.assertEqual([n["id"] for n in about["nodes"]], ["station-0", "station-1", "shard-0", "shard-1"])
        self.c.json(CHAT, ASKED[0])
        wait_until(lambda: self.c.node("station-1")["calls"] > 0, "calls")
        wait_until(lambda: self.c.node("station-1")["memory"]["peak_bytes"] > 0, "memory")
        station = self.c.node("station-1")
        self.assertEqual((station["state"], station["ready"], station["range"]), ("ready", True, "15-end"))
        self.assertLessEqual(station["memory"]["peak_bytes"], station["memory"]["budget_bytes"])
        self.assertGreater(station["p95_us"], 0)
        self.assertGreater(station["compute_p50_us"], 0)
        self.assertLess(station["compute_p50_us"], station["p95_us"])
        memory = about["coordinator"]["memory"]
        self.assertLessEqual(memory["peak_bytes"], memory["budget_bytes"])
        wait_until(lambda: self.c.cluster()["step"]["count"] > 0, "steps")
        about = self.c.cluster()
        self.assertEqual((about["kind"], about["draining"]), ("cluster", False))
        for name in ("count", "rows", "embed_us", "forward_us", "logits_us", "own_us"):
            self.assertGreater(about["step"][name], 0, name)
        hop = about["nodes"][1]["hops"]["forward"]
        self.assertTrue(hop["us"] and hop["bytes_sent"] and hop["bytes_received"])
        self.assertIn("logits", about["nodes"][2]["hops"])
        wait_until(self.a_hop_is_within_the_step, "a station's usual time within that of all", 30)

    def a_hop_is_within_the_step(self):
        """The usual time of one station and the last of all: on a busy machine a last one may be shorter than usual."""
        self.c.json(CHAT, ASKED[1])
        about = self.c.cluster()
        return about["nodes"][1]["hops"]["forward"]["us"] <= about["step"]["forward_us"]

    def test_status(self):
        def status(*arguments):
            return subprocess.run([COBORD, "status", *arguments], capture_output=True, text=True, env=environment())

        p = status(f"127.0.0.1:{self.c.port}")
        self.assertEqual((p.returncode, p.stderr), (0, ""))
        for word in ("complete", "station-0", "15-end", "shard-1", "24576-49152", "ready"):
            self.assertIn(word, p.stdout)
        self.assertLessEqual(max(len(line) for line in p.stdout.splitlines()), 80)
        p = status(f"http://127.0.0.1:{self.c.port}/", "--json")
        self.assertEqual(len(json.loads(p.stdout)["nodes"]), 4)
        p = status(f"127.0.0.1:{free_ports(1)[0]}")
        self.assertEqual((p.returncode, p.stdout), (1, ""))
        self.assertIn("no connection", p.stderr)

    def test_no_proxy_is_used(self):
        """The test's environment has none; a coordinator with one in its environment reaches its nodes all the same."""
        self.assertNotIn("http_proxy", environment())
        os.environ["http_proxy"] = os.environ["ALL_PROXY"] = "http://127.0.0.1:1"
        try:
            self.c.kill("coordinator-0", signal.SIGTERM)
            self.c.start("coordinator-0")
            self.c.wait_alive()
            self.c.wait_complete()
            self.assertEqual(content(self.c.json(CHAT, ASKED[0])), self.expected[0][0])
        finally:
            del os.environ["http_proxy"], os.environ["ALL_PROXY"]


class LostNodesTest(unittest.TestCase):
    """What a running answer and a new one see when nodes go."""

    @classmethod
    def setUpClass(cls):
        serve = Server("--context", str(CONTEXT))
        try:
            cls.body = greedy("Tell me about the sea.", 400, logit_bias={"2": -100, "0": -100})
            cls.expected = content(serve.json(CHAT, cls.body))
        finally:
            serve.stop()

    def answer_while(self, c, do):
        """The answer is right, whatever do() does in its midst."""
        name = "cobord_generated_tokens_total"

        def attempt():
            got, before = [], c.figure(name)
            thread = threading.Thread(target=lambda: got.append(c.json(CHAT, self.body)))
            thread.start()
            try:
                wait_until(lambda: not thread.is_alive() or c.figure(name) >= before + 20, "twenty tokens", 60)
                if not thread.is_alive():
                    raise TooLate("it was over before anybody looked")
                do()
            finally:
                thread.join(90)
                self.assertEqual(content(got[0]), self.expected)
                self.assertNotIn("degraded", got[0])
        in_time(attempt)

    def test_station_dies_and_returns(self):
        c = Cluster()
        try:

            def restart():
                c.kill("station-1")
                time.sleep(0.5)
                c.start("station-1")

            self.answer_while(c, restart)
            wait_until(lambda: c.cluster()["replays"] > 0, "replays")
        finally:
            c.stop()

    def test_coordinator_dies(self):
        """The client asks the next one for the rest, by Last-Event-ID."""
        c = Cluster()
        try:
            s = socket.create_connection(("127.0.0.1", c.port), timeout=60)
            send(s, CHAT, dict(self.body, stream=True))
            got = b""
            while got.count(b"data: ") < 30:
                got += s.recv(4096)
            c.kill("coordinator-0")
            s.close()
            events = whole_events(got)
            c.start("coordinator-0")
            c.wait_alive()
            c.wait_ready()
            status, _, text = c.call("POST", CHAT, None, {"Last-Event-ID": events[-1][0]})
            self.assertEqual(status, 200, text)
            self.assertEqual(said(events) + said(events_in(text)), self.expected)
        finally:
            c.stop()

    def test_shard_dies(self):
        """The coordinator reads the rows itself: same text, nothing degraded."""
        c = Cluster()
        try:
            self.answer_while(c, lambda: c.kill("shard-1"))
            wait_until(lambda: c.cluster()["own_store_calls"] > 0, "own_store_calls")
            wait_until(lambda: not c.cluster()["complete"], "notices")
            self.assertEqual(c.call("GET", "/ready")[0], 200)
            self.assertEqual(content(c.json(CHAT, self.body)), self.expected)
            self.assertIn("shard-1", c.nodes["coordinator-0"].errors())
            c.kill("station-0")
            c.wait_ready(503)
            self.assertIn("station-0", c.missing())
            self.causes_come_first(c)
        finally:
            c.stop()

    def causes_come_first(self, c):
        """What the log says of a node stands before what follows for the cluster."""
        errors = c.nodes["coordinator-0"].errors
        wait_until(lambda: "station-0 (layers" in errors(), "station-0")
        c.start("shard-1")
        c.start("station-0")
        wait_until(lambda: errors().count("the cluster is complete") == 2, "complete")
        said = errors()
        said = said[said.index("the cluster is complete"):]  # before it, a slow start is told in the same words
        self.assertLess(said.index("shard-1 (ids"), said.index("the cluster is not complete: shard-1"))
        for node in ("shard-1", "station-0"):
            self.assertLess(said.index(" is back", said.index(node + " (")), said.rindex("the cluster is complete"))

    def test_degraded(self):
        """No shard, and an own store that is damaged: the answer says so, whole and as a stream."""
        with tempfile.TemporaryDirectory() as store:
            path = os.path.join(store, MODEL + ".knot")
            shutil.copy(os.path.join(models_directory(), MODEL + ".knot"), path)
            about = info(path)
            with open(path, "r+b") as f:
                f.seek(about["payload_offset"] + 4096)
                f.write(b"\x55" * 4096)
            c = Cluster(store=store)
            try:
                self.assertNotIn("degraded", c.json(CHAT, greedy("Hi", 3)))
                c.kill("shard-1")
                got = c.json(CHAT, greedy("Tell me about the sea.", 10))
                self.assertIs(got["degraded"], True)
                events = c.events(CHAT, greedy("Tell me about the sea.", 10))
                self.assertIs(events[-2]["degraded"], True)
                c.start("shard-1")
                wait_until(lambda: c.node("shard-1")["state"] == "ready", "shard-1")
                self.answer_while(c, lambda: None)
            finally:
                c.stop()


def make_certificate(directory):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=nodes"]
        + ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", directory + "/key.pem"]
        + ["-out", directory + "/certificate.pem"],
        check=True,
        capture_output=True,
    )


@unittest.skipUnless(shutil.which("openssl"), "no openssl program to make a certificate with")
class TlsTest(unittest.TestCase):
    def test_tls(self):
        """Every call is encrypted; a node with another certificate is not spoken to."""
        with tempfile.TemporaryDirectory() as tls, tempfile.TemporaryDirectory() as other:
            make_certificate(tls)
            make_certificate(other)
            c = Cluster(tls=tls)
            try:
                self.assertEqual(c.json(CHAT, greedy("Hi", 5))["usage"]["completion_tokens"], 5)
                p = subprocess.run(
                    [COBORD, "status", "--cluster", c.path], capture_output=True, text=True, env=environment()
                )
                self.assertEqual((p.returncode, p.stderr), (0, ""))
                self.assertIn("station-1", p.stdout)
                url = f"https://127.0.0.1:{c.port}"
                p = subprocess.run([COBORD, "status", url], capture_output=True, text=True, env=environment())
                self.assertEqual((p.returncode, p.stdout), (1, ""))
                self.assertIn("not trusted", p.stderr)
                self.assertIsNone(c.nodes["coordinator-0"].process.poll())
                c.kill("station-1")
                file = dict(c.file, tls={"certificate": other + "/certificate.pem", "key": other + "/key.pem"})
                c.start("station-1", path=c.write("other.json", json.dumps(file)))
                c.kill("coordinator-0", signal.SIGTERM)
                c.start("coordinator-0")
                c.wait_alive()
                wait_until(lambda: "not trusted" in c.missing(), "certificate", 20)
            finally:
                c.stop()


class UnfitClusterTest(unittest.TestCase):
    def assert_refused(self, c):
        status, headers, text = c.call("POST", CHAT, greedy("Hi", 1))
        error = json.loads(text)["error"]
        self.assertEqual((status, error["code"], error["retryable"]), (503, "not_ready", True))
        self.assertEqual(headers["Retry-After"], "1")
        return error["message"]

    def test_hole(self):
        c = Cluster(without=("station-1", "shard-0"))
        try:
            self.assertEqual(c.call("GET", "/health")[0], 200)
            wait_until(lambda: "not asked yet" not in c.missing(), "asked")
            missing = c.missing()
            self.assertIn("no connection", missing)
            self.assertIn("station-1 (layers 15-end)", missing)
            self.assertIn("shard-0 (ids 0-24576)", missing)
            self.assertNotIn("station-0", missing)
            self.assertIn("station-1", self.assert_refused(c))
            self.assertEqual(c.call("POST", "/tokenize", {"text": "a"})[0], 200)
            p = subprocess.run(
                [COBORD, "status", f"127.0.0.1:{c.port}"], capture_output=True, text=True, env=environment()
            )
            self.assertIn("INCOMPLETE", p.stdout)
            log = c.nodes["coordinator-0"].errors()
            self.assertRegex(log, r"station-1 +127\.0\.0\.1:\d+ +layers 15-end +no connection")
            self.assertRegex(log, r"station-0 +127\.0\.0\.1:\d+ +layers 0-15 +ready \d+/\d+")
            c.start("station-1")
            c.start("shard-0")
            c.wait_ready()
            self.assertEqual(c.json(CHAT, greedy("Hi", 1))["usage"]["completion_tokens"], 1)
        finally:
            c.stop()

    def test_another_key(self):
        c = Cluster(without=("shard-1",))
        try:
            c.write("other-key", "quite-another-key")
            other = c.write("other.json", json.dumps(dict(c.file, key_file="other-key")))
            c.start("shard-1", path=other)
            wait_until(lambda: "does not take our cluster key" in c.missing(), "key")
            self.assertIn("shard-1", self.assert_refused(c))
        finally:
            c.stop()

    def test_another_knot(self):
        """A node at the right address that has another model: both ids are named."""
        c = Cluster(without=("station-0",))
        try:
            path = os.path.join(c.directory, "other.knot")
            subprocess.run(
                [COBORD, "synth", "--shape", MODEL, "--seed", "1", "-o", path],
                check=True,
                capture_output=True,
                env=environment(),
            )
            about = info(path)
            model = dict(c.file["model"], knot_id=about["id"], knot_key=path)
            c.start("station-0", path=c.write("other.json", json.dumps(dict(c.file, model=model))))
            wait_until(lambda: "has knot" in c.missing(), "knot", 30)
            self.assertIn(about["id"], c.missing())
            self.assertIn(c.file["model"]["knot_id"], c.missing())
            self.assert_refused(c)
        finally:
            c.stop()

    def test_too_little_memory(self):
        with self.assertRaises(AssertionError) as caught:
            Cluster(memory=20 << 20)
        self.assertRegex(str(caught.exception), r"coordinator-0: process with tokenizer .* MiB allowed")

    def test_files_with_faults(self):
        c = Cluster(without=("station-0", "station-1", "shard-0", "shard-1"))
        try:
            hole = json.loads(json.dumps(c.file))
            hole["stations"][1]["range"] = "16-end"
            twice = json.loads(json.dumps(c.file))
            twice["shards"][1]["address"] = twice["shards"][0]["address"]
            for file, words in ((hole, "station-1"), (twice, "shard-1")):
                node = Node(c.write("fault.json", json.dumps(file)), "coordinator-0")
                self.assertEqual(node.process.wait(timeout=20), 1)
                self.assertIn(words, node.errors())
                node.stop()
        finally:
            c.stop()


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
