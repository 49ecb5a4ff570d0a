#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of different versions in one cluster. Whoever speaks other frames or computes by other numerics is named
with both versions by the coordinator (/ready, /cluster, `cobord status`) and by the node (its answer, its log), gets no
work, and harms nobody else; when the right program is there, everything goes on.

With OLD_COBORD, a program of an earlier commit (`make upgrade` builds one): clusters of both, in either order."""
import contextlib
import http.server
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

import _frames as frames
import _nodes as nodes
from _liar import Liar

CHAT = "/v1/chat/completions"
OLD = os.environ.get("OLD_COBORD")
ASKED = {"messages": [{"role": "user", "content": "Tell me of the sea."}], "max_tokens": 12, "temperature": 0}


class Synth(nodes.Model):
    def __init__(self, folder):
        self.name, self.path = "synth", pathlib.Path(folder) / "synth.knot"
        subprocess.run([nodes.COBORD, "synth", "--shape", "test", "-o", self.path], check=True, capture_output=True)
        info = json.loads(subprocess.run([nodes.COBORD, "info", self.path, "--json"], check=True,
                                         capture_output=True).stdout)
        self.knot_id, self.id = info["id"], int(info["id"], 16)
        for field in ("layers", "hidden", "ffn", "vocabulary"):
            setattr(self, field, info["model"][field])


class OtherNode(http.server.ThreadingHTTPServer):
    """A node of another version, at a node's address: says so, and refuses frames that are not its own."""
    daemon_threads, allow_reuse_address = True, True

    def __init__(self, cluster, node_id, **says):
        host, _, port = cluster.entry(node_id)["address"].rpartition(":")
        super().__init__((host, int(port)), Handler)
        self.frames = 0
        self.about = {"ready": True, "state": "ready", "id": node_id, "role": node_id.rpartition("-")[0],
                      "version": "9.9.9", "frame_version": 1, "numerics_version": 1,
                      "knot_id": cluster.model.knot_id, **says}
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")  # the next call may be another program's
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True

    def do_GET(self):
        self.reply(200, self.server.about)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.frames += 1
        theirs, ours = struct.unpack_from("<H", body, 4)[0], self.server.about["frame_version"]
        self.reply(409, {"error": {"message": f"the frame has protocol version {theirs}, this node {ours}: install the "
                                   "same version of cobord on every machine", "type": "invalid_request_error",
                                   "param": None, "code": "unsupported", "retryable": False}})

    do_DELETE = do_GET


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.base = tempfile.TemporaryDirectory()
        cls.model = Synth(cls.base.name)

    @classmethod
    def tearDownClass(cls):
        cls.base.cleanup()

    def setUp(self):
        self.cluster = nodes.Cluster(self.model, ["0-1", "1-end"], 1, context=256, chunk=16)
        self.addCleanup(self.cluster.stop)
        self.others = []
        self.addCleanup(lambda: [o.stop() for o in self.others])

    def other(self, node_id, **says):
        self.others.append(OtherNode(self.cluster, node_id, **says))
        return self.others[-1]

    def gone(self, other):
        self.others.remove(other)
        other.stop()

    def api(self, method, path, body=None):
        status, data = self.coordinator.call(method, path, json.dumps(body) if body else None, key=None)
        return status, json.loads(data)

    def is_ready(self):
        return self.api("GET", "/ready")[0] == 200

    def text(self):
        status, value = self.api("POST", CHAT, ASKED)
        self.assertEqual(status, 200, value)
        return value["choices"][0]["message"]["content"]

    def all_but(self, *without):
        for node_id in ("station-0", "station-1", "shard-0"):
            if node_id not in without:
                self.cluster.start(node_id)

    def alone(self):
        """The text of one process."""
        if not hasattr(Case, "said"):
            question = ASKED["messages"][0]["content"]
            done = subprocess.run([nodes.COBORD, "run", self.model.path, question, "--temperature", "0", "--max-tokens",
                                   "12", "--context", "256"], check=True, capture_output=True)
            Case.said = done.stdout.decode("utf-8", "replace").rstrip("\n")
        return Case.said


class Versions(Case):
    def named(self, node_id, *words):
        """In /ready, /cluster and status, and no half-served request."""
        def says_so():
            missing = self.api("GET", "/ready")[1].get("missing", "")
            return all(word in missing for word in (node_id, *words))
        self.assertTrue(nodes.wait_for(says_so, 20), self.api("GET", "/ready"))
        status, value = self.api("POST", CHAT, ASKED)
        self.assertEqual((status, value["error"]["retryable"]), (503, True), value)
        self.assertEqual(self.api("GET", "/health")[0], 200)
        about = json.dumps(self.api("GET", "/cluster")[1])
        done = subprocess.run([nodes.COBORD, "status", f"{self.coordinator.host}:{self.coordinator.port}"], timeout=30,
                              capture_output=True, env=nodes.environment())
        for word in words:
            self.assertIn(word, about)
            self.assertIn(word, (done.stdout + done.stderr).decode())

    def test_from_the_start(self):
        for says, words in (({"frame_version": 2}, ("version 2 of the frames", "coordinator 1")),
                            ({"numerics_version": 5}, ("version 5 of the numerics", "coordinator by 1"))):
            with self.subTest(**says):
                self.setUp()
                self.all_but("station-1")
                other = self.other("station-1", **says)
                self.coordinator = self.cluster.start("coordinator-0")
                self.named("station-1", *words)
                self.assertEqual(other.frames, 0)  # it gets no work
                self.gone(other)
                self.cluster.start("station-1")
                self.assertTrue(nodes.wait_for(self.is_ready, 20), self.api("GET", "/ready"))
                self.assertEqual(self.text(), self.alone())
                self.cluster.stop()

    def test_another_program_of_the_same_frames(self):
        """Only its own version differs: it works, since nothing that is exchanged does."""
        self.all_but()
        with Liar(self.cluster.nodes[1], only=("/ready",)) as other:
            other.tell(lambda answer, _: json.dumps({**json.loads(answer), "version": "9.9.9"}).encode())
            self.cluster.entry("station-1")["address"] = other.address
            self.cluster.write()
            self.coordinator = self.cluster.start("coordinator-0")
            self.assertTrue(nodes.wait_for(self.is_ready, 20))
            self.assertEqual(self.text(), self.alone())
            self.assertGreater(other.told, 0)

    def test_in_the_midst(self):
        """A node comes back as another version while the cluster works."""
        self.all_but("station-1")
        real = self.cluster.start("station-1")
        self.coordinator = self.cluster.start("coordinator-0")
        self.assertTrue(nodes.wait_for(self.is_ready, 20))
        before = self.text()
        real.kill()
        other = self.other("station-1", frame_version=2)

        def refused():
            status, value = self.api("POST", CHAT, ASKED)
            return status != 200 and "version 1, this node 2" in json.dumps(self.api("GET", "/cluster")[1]) + str(value)
        self.assertTrue(nodes.wait_for(refused, 20), self.api("GET", "/cluster"))
        self.gone(other)
        self.cluster.start("station-1")
        self.assertTrue(nodes.wait_for(lambda: self.api("POST", CHAT, ASKED)[0] == 200, 20), self.api("GET", "/ready"))
        self.assertEqual(self.text(), before)

    def test_the_node_says_so(self):
        station = self.cluster.start("station-0")
        rows = struct.pack(f"<{self.model.hidden}f", *[0.25] * self.model.hidden)
        good = frames.forward(self.model.id, self.cluster.bounds("station-0"), self.model.hidden,
                              [frames.Sequence(9, 0, 1)], rows, 1)
        newer = bytearray(good)
        newer[4] = 2
        status, data = station.call("POST", "/forward", bytes(newer))
        self.assertEqual(status, 409)
        for word in ("version 2", "this node 1", "same version of cobord"):
            self.assertIn(word, json.loads(data)["error"]["message"])
            self.assertTrue(nodes.wait_for(lambda: word in station.errors()), word)  # after the answer
        about = station.ready()
        self.assertEqual((about["frame_version"], about["numerics_version"]), (1, 1))
        def files():
            return len(os.listdir(f"/proc/{station.process.pid}/fd"))
        before = files()
        for _ in range(20):
            self.assertEqual(station.call("POST", "/forward", bytes(newer))[0], 409)
        self.assertEqual(station.call("POST", "/forward", good)[0], 200)
        self.assertEqual(station.metrics()["cobord_node_queue"], 0)
        # that of the last call goes a little later
        self.assertTrue(nodes.wait_for(lambda: files() <= before), (before, files()))


@unittest.skipUnless(OLD, "OLD_COBORD names no program of an earlier commit: make upgrade builds one")
class OldAndNew(Case):
    """One node after the other, as an upgrade goes."""

    @contextlib.contextmanager
    def program(self, path):
        mine, nodes.COBORD = nodes.COBORD, os.path.abspath(path)
        try:
            yield
        finally:
            nodes.COBORD = mine

    def start(self, node_id, old):
        with self.program(OLD if old else nodes.COBORD):
            return self.cluster.start(node_id)

    def roll(self, order):
        """All old; then each in turn new. Result: the texts before, between and after."""
        there = {node_id: self.start(node_id, True) for node_id in ("station-0", "station-1", "shard-0")}
        self.coordinator = there["coordinator-0"] = self.start("coordinator-0", True)
        texts = []
        for node_id in (None, *order):
            if node_id:
                there[node_id].kill(15)
                there[node_id] = self.start(node_id, False)
                self.coordinator = there["coordinator-0"]
            self.assertTrue(nodes.wait_for(lambda: self.is_ready() and self.api("POST", CHAT, ASKED)[0] == 200, 30),
                            (node_id, self.api("GET", "/ready"), self.coordinator.errors()))
            texts.append(self.text())
        return texts

    def test_nodes_first(self):
        self.assertEqual(set(self.roll(("shard-0", "station-1", "station-0", "coordinator-0"))), {self.alone()})

    def test_coordinator_first(self):
        self.assertEqual(set(self.roll(("coordinator-0", "station-0", "station-1", "shard-0"))), {self.alone()})


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1, warnings="ignore"))
