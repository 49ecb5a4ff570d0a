#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ten thousand connections that say nothing, or half a head, or stall a handshake, or do not read, at a server and at a
node: others are answered all the while, who is being served stays, and afterwards all is as it was. Sources are
addresses of 127/8, as if they were hosts. PEERS=whole (`make peers`): ten thousand, else fewer; it then prints what
docs/RELIABILITY.md has."""
import json
import os
import pathlib
import shutil
import socket
import ssl
import sys
import time
import unittest

import _nodes as nodes
from _crowd import Crowd, Watch, may_open
from serve_test import CHAT, Server, greedy, read_until, send
from tls_test import Server as TlsServer, make_certificate

WHOLE = os.environ.get("PEERS") == "whole"
FILES = may_open(12000)
COUNT = min(10000, FILES - 1000) if WHOLE else 2500
HALF = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Ha"
SAID = {"nothing": lambda i: b"", "half a head": lambda i: HALF,
        "head by head": lambda i: (b"", HALF, HALF[:7])[i % 3],
        "a body that does not come": lambda i: b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
                                               b"Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{"}
LINES, NODE_LINES = 1024, 256
MANY = tuple(f"127.0.{i // 250}.{i % 250 + 2}" for i in range(500))
P99_MS = 3000 # a client whose first packet finds the queue full sends it again after a second


def tell(*words):
    if WHOLE:
        print(*words, flush=True)


def resident(process):
    text = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def files(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


class Base(unittest.TestCase):
    def stands(self, port, process, name, sources, honest, open_now, room):
        """A crowd comes, and stays for two seconds, and as long as two requests take. Result: what stands."""
        before, had = resident(process), files(process)
        watch = Watch(port, "127.99.0.1")
        crowd = Crowd(port, COUNT, SAID[name], sources)
        began, asked = time.monotonic(), 0
        while asked < 2 or time.monotonic() - began < 2:
            honest()
            asked += 1
        self.assertLess(time.monotonic() - began, 30)
        stands, grown = open_now(), resident(process) - before
        count, median, p99, worst = watch.stop()
        crowd.close()
        tell(f"{COUNT} of {len(sources)} addresses, {name}: {stands} stand; /health {count} times, ms median {median}",
             f"p99 {p99} worst {worst}; {asked} requests answered; {grown:+.1f} MiB")
        self.assertEqual(watch.failures, [])
        self.assertLessEqual(stands, room)
        self.assertLess(p99, P99_MS)
        self.assertLess(grown, 80)
        self.assertTrue(nodes.wait_for(lambda: open_now() < 10 and files(process) <= had + 2, 20),
                        (open_now(), files(process), had))


class Serve(Base):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--context", "512", "--slots", "2", "--journal", "none")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def ask(self):
        self.assertEqual(self.server.json(CHAT, greedy("Hi", 2))["usage"]["completion_tokens"], 2)

    def open_now(self):
        return self.server.figure("cobord_connections")

    def test_crowds(self):
        self.ask()
        crowds = [("a body that does not come", ("127.0.0.1",)), ("head by head", MANY)]
        if WHOLE:
            crowds += [("nothing", ("127.0.0.1",)), ("half a head", ("127.0.0.1",))]
        for name, sources in crowds:
            with self.subTest(name):
                self.stands(self.server.port, self.server.process, name, sources, self.ask, self.open_now, LINES)
        self.assertGreater(self.server.figure("cobord_connections_shed_total"), COUNT // 2)
        self.assertIn("made room for others", self.server.errors())

    def test_an_answer_under_way_and_its_line_stay(self):
        kept = self.server.connect()
        for _ in range(2):
            kept.request("POST", "/tokenize", json.dumps({"content": "x"}), {"Content-Type": "application/json"})
            self.assertEqual(kept.getresponse().read()[:8], b'{"ids":[')
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as stream:
            send(stream, CHAT, {**greedy("Tell me a story.", 200), "stream": True, "logit_bias": {"2": -100}})
            read_until(stream, b"data: ")
            crowd = Crowd(self.server.port, 3000)
            read_until(stream, b"[DONE]")
            kept.request("POST", "/tokenize", json.dumps({"content": "x"}), {"Content-Type": "application/json"})
            self.assertEqual(kept.getresponse().status, 200)  # the same line: it has been served before
            crowd.close()

    def test_who_has_few_stays(self):
        """Addresses with ten silent connections each, beside one with thousands. One of a thousand addresses shares
        that one's count, and nobody knows which: so of three, two."""
        few = [Crowd(self.server.port, 10, sources=(f"127.5.5.{i}",)) for i in (5, 6, 7)]
        crowd = Crowd(self.server.port, 3000)
        self.assertTrue(nodes.wait_for(lambda: crowd.standing() < LINES))
        self.assertGreaterEqual([one.standing() for one in few].count(10), 2)
        for one in (*few, crowd):
            one.close()

    def test_readers_that_do_not_read(self):
        """Each has asked twenty times and reads none of it: after five seconds they make room. Small segments keep the
        system's buffers small."""
        watch, lines = Watch(self.server.port, "127.99.0.1"), []
        for _ in range(LINES + 300):
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
            s.settimeout(20)
            s.connect(("127.0.0.1", self.server.port))
            s.setblocking(False)
            s.send(b"GET /web/markdown.mjs HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
            lines.append(s)
        began = time.monotonic()
        self.ask()
        self.assertLess(time.monotonic() - began, 20)
        count, median, p99, worst = watch.stop()
        tell(f"{len(lines)} that do not read: /health {count} times, ms median {median} p99 {p99} worst {worst}")
        for s in lines:
            s.close()
        self.assertEqual(watch.failures, [])
        self.assertTrue(nodes.wait_for(lambda: self.open_now() < 10, 20))


    def test_a_slow_reader_stays(self):
        """It takes 2 kB a second, so that an answer takes nine; others come all the while."""
        asked, file = 20, b"GET /web/markdown.mjs HTTP/1.1\r\nHost: localhost\r\n\r\n"
        whole = len(self.server.call("GET", "/web/markdown.mjs")[2])
        crowd = Crowd(self.server.port, LINES)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
            s.settimeout(20)
            s.connect(("127.0.0.1", self.server.port))
            s.sendall(file * (asked - 1) + file.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            began, got = time.monotonic(), 0
            while time.monotonic() - began < 10:
                got += len(s.recv(512))
                crowd.add(0)
                time.sleep(0.25)
            crowd.close()
            while more := len(s.recv(65536)):
                got += more
        self.assertGreater(got, asked * whole)  # bodies and heads


class Node(Base):
    @classmethod
    def setUpClass(cls):
        cls.cluster = nodes.Cluster(nodes.Model("smollm2-135m"), ["0-end"], 1)
        cls.station, cls.shard = cls.cluster.start("station-0"), cls.cluster.start("shard-0")
        cls.driver = nodes.Driver([cls.station], [cls.shard])

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def test_crowds(self):
        session = iter(range(1, 1 << 20))
        right = self.driver.greedy([504, 3575, 282], 2, next(session))
        for node in (self.station, self.shard):
            for name in ("nothing", "half a head") if WHOLE else ("half a head",):
                with self.subTest(node=node.id, name=name):
                    def honest():
                        # over the lines that the driver has kept from its first call on
                        self.assertEqual(self.driver.greedy([504, 3575, 282], 2, next(session)), right)
                    self.stands(node.port, node.process, name, ("127.0.0.1",), honest,
                                lambda n=node: n.metrics()["cobord_node_connections"], NODE_LINES)
            self.assertGreater(node.metrics()["cobord_node_connections_shed_total"], COUNT // 2)


@unittest.skipUnless(shutil.which("openssl"), "no openssl program to make a certificate with")
class Tls(Base):
    def test_handshakes_that_stall(self):
        server = TlsServer("serve", *make_certificate("own", "IP:127.0.0.1"), "--context", "256")
        try:
            text = server.ask()
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            hello = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
            with self.assertRaises(ssl.SSLWantReadError):
                hello.do_handshake()
            first = outgoing.read()
            # what is a whole hello costs the server a signature; one that is not costs nothing
            for said, count in ((b"", LINES + 400), (first[:3], LINES + 400), (first[:40], LINES + 400), (first, 200)):
                crowd = Crowd(server.port, count, lambda i: said)
                began = time.monotonic()
                self.assertEqual(server.ask(), text)
                took = time.monotonic() - began
                tell(f"{count} handshakes that stall after {len(said)} bytes: an answer in {took:.2f} s")
                self.assertLess(took, 5)
                crowd.close()
        finally:
            self.assertEqual(server.stop(), 0)


def setUpModule():
    if FILES < 4000:
        raise unittest.SkipTest(f"{FILES} files are all that a process may have here: no crowd")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
