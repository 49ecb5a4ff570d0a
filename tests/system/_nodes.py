# SPDX-License-Identifier: Apache-2.0
"""Nodes as processes: a cluster file on free ports, one process a node, calls to them."""
import http.client
import json
import os
import pathlib
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
import time

from _ports import free_ports

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
import _frames as frames  # noqa: E402
import support  # noqa: E402

COBORD = os.path.abspath(os.environ.get("COBORD", "build/cobord"))
START_SECONDS = 60
KEY = "a key of the tests"[::-1].replace(" ", "-")


def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("COBORD_") or k == "COBORD_CACHE"}
    env.update(XDG_CONFIG_HOME="/nonexistent", **more)
    return env


class Model:
    """What tests need to know of a pulled model."""

    def __init__(self, name):
        self.name = name
        self.path = support.models_folder() / (name + ".knot")
        info = json.loads(support.must("info", self.path, "--json"))
        self.knot_id = info["id"]
        self.id = int(info["id"], 16)
        for field in ("layers", "hidden", "ffn", "vocabulary"):
            setattr(self, field, info["model"][field])


def members(file):
    """All nodes of a cluster file."""
    out = [file["coordinator"]]
    for kind in ("stations", "shards", "layer_wardens", "shard_wardens"):
        for node in file.get(kind, []):
            out += [node, *node.get("replicas", [])]
    return out


def give_ports(file):
    """Every node of a file that `plan` wrote has a port of this test: of plan's, others may have taken one meanwhile.
    Result: the ports."""
    nodes = members(file)
    ports = free_ports(len(nodes))
    for node, port in zip(nodes, ports):
        node["address"] = f"127.0.0.1:{port}"
    return ports


def first_line(process, seconds):
    """What a process says first; "" when it ended by itself without a word, None when it said nothing in time."""
    with selectors.DefaultSelector() as s:
        s.register(process.stdout, selectors.EVENT_READ)
        if not s.select(seconds):
            return None
    line = process.stdout.readline()
    if not line:  # it is about to end by itself: with its own code, not by our signal
        process.wait(30)
    return line.strip()


def bound(text, layers):
    if text == "end":
        return layers * 4
    layer, _, phase = text.partition(".")
    return int(layer) * 4 + ["attn", "ffn_gate", "ffn_up", "ffn_down"].index(phase or "attn")


class Cluster:
    """A cluster file in a folder of its own. Nodes are started one by one."""

    def __init__(self, model, stations, shards, key=True, tls=None, **members):
        self.model = model
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name) / "cluster.json"
        ports = iter(free_ports(1 + len(stations) + shards))
        place = lambda: f"127.0.0.1:{next(ports)}"  # noqa: E731
        cuts = [model.vocabulary * i // max(shards, 1) for i in range(shards + 1)]
        self.file = {
            "cobord_cluster": 1,
            "model": {"name": model.name, "knot_id": model.knot_id, "knot_key": model.path.name,
                      "store": str(model.path.parent), "layers": model.layers, "vocabulary": model.vocabulary},
            "coordinator": {"id": "coordinator-0", "address": place()},
            "stations": [{"id": f"station-{i}", "address": place(), "range": r} for i, r in enumerate(stations)],
            "shards": [{"id": f"shard-{i}", "address": place(), "ids": [cuts[i], cuts[i + 1]]} for i in range(shards)],
            "context": 1024, **members}
        if key:
            self.file["key_file"] = "key"
            (self.path.parent / "key").touch(0o600)
            (self.path.parent / "key").write_text(KEY + "\n")
        self.tls = tls
        if tls:
            self.file["tls"] = {"certificate": str(tls / "certificate.pem"), "key": str(tls / "key.pem"),
                                "ca": str(tls / "certificate.pem")}
        self.nodes = []
        self.write()

    def write(self):
        self.path.write_text(json.dumps(self.file))

    def entry(self, node_id):
        nodes = [self.file["coordinator"], *self.file["stations"], *self.file["shards"]]
        return next(n for n in nodes if n["id"] == node_id)

    def bounds(self, node_id):
        first, last = self.entry(node_id)["range"].split("-")
        return bound(first, self.model.layers), bound(last, self.model.layers)

    def start(self, node_id, *arguments, **more):
        node = Node(self, node_id, arguments, **more)
        self.nodes.append(node)
        return node

    def run(self, node_id, *arguments, timeout=60, **more):
        """A node that is expected to end by itself."""
        return subprocess.run([COBORD, "node", "--cluster", str(self.path), "--id", node_id, *arguments],
                              capture_output=True, timeout=timeout, env=environment(), **more)

    def stop(self):
        for node in self.nodes:
            node.kill()
        self.folder.cleanup()


class Node:
    def __init__(self, cluster, node_id, arguments=(), wait=True, env=None):
        self.cluster, self.id = cluster, node_id
        self.host, _, port = cluster.entry(node_id)["address"].rpartition(":")
        self.port = int(port)
        self.log = tempfile.TemporaryFile("a+")
        self.process = subprocess.Popen(
            [COBORD, "node", "--cluster", str(cluster.path), "--id", node_id, *map(str, arguments)],
            text=True, stdout=subprocess.PIPE, stderr=self.log, env=environment(**(env or {})))
        self.line = first_line(self.process, START_SECONDS) if wait else None
        if wait and not self.line:
            raise SystemExit(f"{node_id} did not start: {self.errors()}")

    def errors(self):
        self.log.seek(0)
        return self.log.read()

    def connection(self, timeout=60):
        if self.cluster.tls:
            import ssl
            context = ssl.create_default_context(cafile=str(self.cluster.tls / "certificate.pem"))
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=context)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def call(self, method, path, body=None, key=KEY, headers=None, connection=None, timeout=60):
        """(status, body) of a call; a connection that is given stays open."""
        c = connection or self.connection(timeout)
        headers = dict(headers or {})
        if key is not None:
            headers["Authorization"] = "Bearer " + key
        c.request(method, path, body, headers)
        answer = c.getresponse()
        data = answer.read()
        if not connection:
            c.close()
        return answer.status, data

    def error(self, method, path, body=None, **more):
        """(status, code) of a call that has to fail, in the one shape of errors."""
        status, data = self.call(method, path, body, **more)
        value = json.loads(data)["error"]
        assert set(value) == {"message", "type", "param", "code", "retryable"}, data
        assert value["message"], data
        return status, value["code"]

    def ready(self):
        return json.loads(self.call("GET", "/ready")[1])

    def metrics(self):
        text = self.call("GET", "/metrics")[1].decode()
        return {line.split()[0]: float(line.split()[1]) for line in text.splitlines() if line[0] != "#"}

    def memory(self, name="VmRSS"):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        raise ValueError(name)

    def alive(self):
        return self.process.poll() is None

    def kill(self, number=signal.SIGKILL):
        if self.alive():
            self.process.send_signal(number)
        self.process.wait(60)
        if not self.process.stdout.closed:
            self.process.stdout.close()
        return self.process.returncode


class Driver:
    """A small coordinator: greedy, one session, as the frames' page has it."""

    def __init__(self, stations, shards, first_request=1):
        self.stations, self.shards = stations, shards
        self.cluster = stations[0].cluster
        self.model = self.cluster.model
        self.request = first_request
        self.lines = {n: n.connection() for n in [*stations, *shards]}

    def post(self, node, path, body):
        status, data = node.call("POST", path, body, connection=self.lines[node])
        assert status == 200, (node.id, path, status, data)
        return data

    def embed(self, ids):
        rows = [0.0] * (len(ids) * self.model.hidden)
        for shard in self.shards:
            body = frames.embed(self.model.id, self.cluster.entry(shard.id)["ids"], self.model.hidden, ids)
            part = frames.payload(self.post(shard, "/embed", body), frames.EMBED_ANSWER)
            rows = [a + b for a, b in zip(rows, struct.unpack(f"<{len(rows)}f", part))]
        return struct.pack(f"<{len(rows)}f", *rows)

    def next_request(self):
        self.request += 1
        return self.request

    def frame(self, station, x, session, position, mode=frames.PREFILL, wanted=None):
        rows, cache = len(x) // 4 // self.model.hidden, 2 if self.cluster.file.get("cache_type") == "q8_0" else 1
        return frames.forward(self.model.id, self.cluster.bounds(station.id), self.model.hidden,
                              [frames.Sequence(session, position, rows)], x, self.next_request(), mode, wanted, cache)

    def forward(self, x, session, position, mode=frames.PREFILL):
        for station in self.stations:
            body = self.frame(station, x, session, position, mode)
            x = frames.payload(self.post(station, "/forward", body), frames.FORWARD_ANSWER)
        return x

    def best(self, x, k):
        """The k best (id, logit) of each row over all shards."""
        rows = len(x) // 4 // self.model.hidden
        out = [[] for _ in range(rows)]
        for shard in self.shards:
            body = frames.logits(self.model.id, self.cluster.entry(shard.id)["ids"], self.model.hidden, rows, x, k)
            for row, some in zip(out, frames.candidates(self.post(shard, "/logits", body), rows)):
                row += some
        return [sorted(row, key=lambda c: (-c[1], c[0]))[:k] for row in out]

    def greedy(self, ids, count, session):
        """The next `count` tokens."""
        out, position, mode = [], 0, frames.PREFILL
        while len(out) < count:
            x = self.forward(self.embed(ids), session, position, mode)
            out.append(self.best(x[-4 * self.model.hidden:], 1)[0][0][0])
            position += len(ids)
            ids, mode = [out[-1]], frames.DECODE
        return out


def wait_for(truth, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if truth():
            return True
        time.sleep(0.02)
    return False
