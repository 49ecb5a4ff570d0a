#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Nodes while their calls fail, one after the other: stations, shards and both kinds of warden, at their start and
while they answer; then a whole cluster under `cobord up`.

    fail_nodes_test.py [--all]     --all: every n; else some of each kind

A node says in one line what is wrong and ends, or serves. A request of a node whose calls fail is refused with a clear
error, breaks off, or has the right bytes; the next has them; and descriptors are as many as before. What a client asks
of a cluster has the right text or a clear error, whatever fails in which node.
"""
import http.client
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time

import _frames as frames
import _nodes as nodes
from _faults import UNSEEN, Faults, chosen, descriptors
from _ports import free_ports

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
from support import COBORD, Checks, must  # noqa: E402

KINDS = ["memory", "read", "write", "sync", "open", "net", "wait", "thread"]
NODES = ["station-0", "shard-0", "layer-warden-0", "shard-warden-0"]
START_SECONDS = 40
SOME = 3
PROMPT = {"prompt": "river stone bread", "temperature": 0, "max_tokens": 4, "logit_bias": {"0": -100, "1": -100}}


class Model(nodes.Model):
    def __init__(self, path):
        info = json.loads(must("info", path, "--json"))
        self.name, self.path, self.knot_id = path.stem, path, info["id"]
        self.id = int(info["id"], 16)
        for field in ("layers", "hidden", "ffn", "vocabulary"):
            setattr(self, field, info["model"][field])
        self.tensors = {t["name"]: t for t in info["tensors"]}


class Cluster(nodes.Cluster):
    """A station, a shard, and a warden for each, which the two ask for everything: they have no store."""

    def __init__(self, model, faults):
        super().__init__(model, ["0-end"], 1)
        self.faults = faults
        self.folder_path = pathlib.Path(self.folder.name)
        layer, shard = free_ports(2)
        self.file["context"] = 128
        self.file["layer_wardens"] = [{"id": "layer-warden-0", "address": f"127.0.0.1:{layer}", "range": "0-end",
                                       "cache": f"dir:{self.folder_path}/slabs"}]
        self.file["shard_wardens"] = [{"id": "shard-warden-0", "address": f"127.0.0.1:{shard}",
                                       "ids": [0, model.vocabulary], "cache": f"sqlite:{self.folder_path}/rows.db"}]
        self.file["stations"][0]["warden"] = "layer-warden-0"
        self.file["shards"][0]["warden"] = "shard-warden-0"
        self.write()
        whole, self.path = self.path, self.folder_path / "nodes.json"
        self.file["model"]["store"] = "nowhere"
        self.write()
        self.path = whole

    def entry(self, node_id):
        for node in self.file.get("layer_wardens", []) + self.file.get("shard_wardens", []):
            if node["id"] == node_id:
                return node
        return super().entry(node_id)

    def begin(self, node_id):
        """The node, with the library in it, or None when it ended by itself."""
        whole = self.path
        if "warden" not in node_id:
            self.path = self.folder_path / "nodes.json"
        cache = self.folder_path / ("cache-" + node_id)
        (cache / "models").mkdir(parents=True, exist_ok=True)
        node = nodes.Node(self, node_id, wait=False, env={"COBORD_CACHE": str(cache), **self.faults.environment})
        self.path = whole
        self.nodes.append(node)
        node.line = nodes.first_line(node.process, START_SECONDS)
        return node


class Asking:
    """Requests of one node, each with what has to come back."""

    def __init__(self, cluster, node):
        self.cluster, self.node, self.model = cluster, node, cluster.model
        self.number = time.time_ns() // 1000  # no request takes less than that
        x = struct.pack("<256f", *((i * 37 % 101 - 50) / 50 for i in range(256))) * 3
        vocabulary = [0, self.model.vocabulary]
        kind = node.id.rsplit("-", 1)[0]
        embed = frames.embed(self.model.id, vocabulary, 256, [5, 700, 999])
        logits = frames.logits(self.model.id, vocabulary, 256, 3, x, 4)
        self.requests = {
            "station": [("POST", "/forward", lambda: self.forward(x), frames.FORWARD_ANSWER),
                        ("GET", "/health", lambda: None, None)],
            "shard": [("POST", "/embed", lambda: embed, frames.EMBED_ANSWER),
                      ("POST", "/logits", lambda: logits, frames.LOGITS_ANSWER)],
            "layer-warden": [("GET", "/tensor/blk_0_attn_q_weight", lambda: None, None),
                             ("GET", "/tensor/blk_2_ffn_down_weight?rows=16-48", lambda: None, None)],
            "shard-warden": [("GET", "/tensor/token_embd_weight?rows=5-9", lambda: None, None),
                             ("POST", "/invalidate/5", lambda: b"", None)],
        }[kind]

    def forward(self, x):
        self.number += 1
        bounds = (0, self.model.layers * 4)
        return frames.forward(self.model.id, bounds, 256, [frames.Sequence(7, 0, 3)], x, self.number)

    def ask(self, which):
        """(status, bytes); 0: the connection broke; -1: nothing in time."""
        method, path, body, kind = self.requests[which]
        try:
            status, data = self.node.call(method, path, body(), timeout=20)
            return status, frames.payload(data, kind) if status == 200 and kind else data
        except TimeoutError:
            return -1, b"nothing in time"
        except (OSError, http.client.HTTPException) as error:
            return 0, repr(error).encode()


def fair(checks, answer, right, where):
    status, data = answer
    if status < 400:
        checks.that(answer == right or status == 0, f"{where}: {status}, {len(data)} bytes that are not those")
        return
    try:
        message = json.loads(data)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = ""
    checks.that(bool(message), f"{where}: {status} without words: {data[:200]!r}")


def lasts_of(kind):
    return {"short": (False,), "again": (False,), "one": (True,)}.get(kind, (False, True))


class Answering:
    """One node of a cluster that is up."""

    def __init__(self, checks, cluster, node):
        self.checks, self.faults, self.node = checks, cluster.faults, node
        self.asking = Asking(cluster, node)
        self.right = [self.asking.ask(i) for i in range(len(self.asking.requests))]
        bad = [r[1][:200] for r in self.right if r[0] != 200]
        assert not bad, (node.id, bad, node.errors())
        self.runs = 0

    def one(self, which, kind, at, lasts):
        where = f"{self.node.id} {self.asking.requests[which][1]}, {kind} {at}{' and on' if lasts else ''}"
        self.faults.arm(self.node.id, kind, at, lasts)
        answer = self.asking.ask(which)
        self.faults.disarm(self.node.id)
        self.runs += 1
        right = self.right[which]
        fair(self.checks, answer, right, where)
        if kind in UNSEEN:
            self.checks.that(answer == right, f"{where}: is noticed: {answer[0]} {answer[1][:200]}")
        after = self.asking.ask(which)
        end = time.monotonic() + 3
        while after[0] == 503 and time.monotonic() < end:  # what rests from a failure, for a second
            time.sleep(0.2)
            after = self.asking.ask(which)
        self.checks.that(after == right, f"{where}: the next one: {after[0]} {after[1][:300]}")
        return self.node.alive()

    def every(self, everything):
        before = descriptors(self.node.process.pid)
        for kind in KINDS + UNSEEN:
            for which in range(len(self.asking.requests)):
                self.faults.arm(self.node.id, kind, 0)
                self.asking.ask(which)
                calls = self.faults.count(self.node.id)
                self.faults.disarm(self.node.id)
                for at in chosen(calls, everything, SOME):
                    for lasts in lasts_of(kind):
                        if not self.one(which, kind, at, lasts):
                            self.checks.that(False, f"{self.node.id}, {kind} {at}: ended: {self.node.errors()[-400:]}")
                            return
        self.checks.that(nodes.wait_for(lambda: descriptors(self.node.process.pid) <= before),
                         f"{self.node.id}: {before} descriptors before, {descriptors(self.node.process.pid)} after")


def briefly(answers):
    return [(status, data[:60]) for status, data in answers]


def start_again(checks, cluster, old, right, everything):
    """The node's start, with each of its calls failing. Result: the runs, and the node as it is in the end."""
    name, runs = old.id, 0
    last = [Asking(cluster, old).ask(i) for i in range(2)]
    checks.that(last == right, f"{name} in the end: {briefly(last)}")
    old.kill(signal.SIGTERM)

    def clean():
        for path in (cluster.folder_path / ("cache-" + name)).rglob("*"):
            if path.is_file():
                path.unlink()
    # Of a sample each node has its share of the kinds.
    for kind in (KINDS + UNSEEN)[0 if everything else NODES.index(name)::1 if everything else len(NODES)]:
        clean()
        cluster.faults.arm(name, kind, 0)
        node = cluster.begin(name)
        calls = cluster.faults.count(name)
        node.kill(signal.SIGTERM)
        for at in chosen(calls, everything, SOME - 1):
            where = f"start of {name}, {kind} {at}"
            clean()
            runs += 1
            cluster.faults.arm(name, kind, at, kind == "one")
            node = cluster.begin(name)
            cluster.faults.disarm(name)
            if node.line:
                answers = [Asking(cluster, node).ask(i) for i in range(2)]
                checks.that(answers == right, f"{where}: {briefly(answers)}")
                code = node.kill(signal.SIGTERM)
                checks.that(code == 0, f"{where}: ends with {code}: {node.errors()[-300:]}")
                continue
            code, said = node.kill(signal.SIGTERM), node.errors().strip()
            checks.that(code in (1, 2), f"{where}: code {code}: {said[-400:]}")
            checks.that(said.startswith("cobord"), f"{where}: says {said[-400:]!r}")
            checks.that(kind not in UNSEEN, f"{where}: is noticed: {said[-300:]}")
    clean()
    node = cluster.begin(name)
    assert node.line, node.errors()
    return runs, node


def node_by_node(checks, model, everything):
    runs = 0
    with Faults() as faults:
        cluster = Cluster(model, faults)
        try:
            there = {name: cluster.begin(name) for name in reversed(NODES)}
            for name, node in there.items():
                assert node.line, (name, node.errors())
            for name in NODES:
                answering = Answering(checks, cluster, there[name])
                answering.every(everything)
                more, there[name] = start_again(checks, cluster, there[name], answering.right, everything)
                runs += answering.runs + more
        finally:
            cluster.stop()
    return runs


class Up:
    """cobord up with the library in every process."""

    def __init__(self, faults, model, folder):
        self.folder, self.log = folder, open(folder / "stderr", "w+")
        self.process = subprocess.Popen(
            [COBORD, "up", model, "--listen", "127.0.0.1:0", "--dir", folder / "up", "--stations", "2", "--shards", "2",
             "--context", "128", "--drafts", "0", "--threads", "1"], stdout=subprocess.PIPE, stderr=self.log, text=True,
            env={**nodes.environment(), "XDG_STATE_HOME": str(folder), **faults.environment})
        line = nodes.first_line(self.process, START_SECONDS) or ""
        self.port = int(line.rsplit(":", 1)[1]) if "http://" in line else None

    def ask(self):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            c.request("POST", "/v1/completions", json.dumps(PROMPT), {"Content-Type": "application/json"})
            answer = c.getresponse()
            status, body = answer.status, answer.read()
            return status, json.loads(body)["choices"][0]["text"].encode() if status == 200 else body
        except TimeoutError:
            return -1, b"nothing in time"
        except (OSError, http.client.HTTPException) as error:
            return 0, repr(error).encode()
        finally:
            c.close()

    def right_again(self, right, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            answer = self.ask()
            if answer == right:
                return answer
            if answer[0] == 200:
                break
            time.sleep(0.2)
        return answer

    def errors(self):
        return (self.folder / "stderr").read_text()

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            self.process.stdout.close()
            self.log.close()


def whole_cluster(checks, model, folder, everything):
    """Something fails in one node while the cluster answers."""
    runs = 0
    with Faults() as faults:
        up = Up(faults, model, folder)
        assert up.port, up.errors()
        right = up.ask()
        assert right[0] == 200, (right, up.errors())
        for name in ("coordinator-0", "station-1", "shard-0"):
            for kind in KINDS + UNSEEN:
                faults.arm(name, kind, 0)
                up.ask()
                calls = faults.count(name)
                faults.disarm(name)
                for at in chosen(calls, everything, SOME - 1):
                    where = f"{name} of a cluster, {kind} {at}"
                    lasts = kind == "one"
                    faults.arm(name, kind, at, lasts)
                    answer = up.ask()
                    faults.disarm(name)
                    runs += 1
                    fair(checks, answer, right, where)
                    if kind in UNSEEN:
                        checks.that(answer == right, f"{where}: is noticed: {answer}")
                    after = up.right_again(right)
                    checks.that(after == right, f"{where}: the next one: {after}")
        checks.that(" signal " not in up.errors(), f"a node was ended by a signal: {up.errors()[-1500:]}")
        checks.that(up.end() == 0, f"up ends badly: {up.errors()[-500:]}")
    return runs


def start_of_cluster(checks, model, folder, everything):
    """Something fails in `up` itself while it starts the others."""
    runs = 0
    with Faults() as faults:
        some = ("memory", "thread", "again")
        for kind in (*some, "open", "read", "write", "sync", "net", "wait") if everything else some:
            place = folder / kind
            place.mkdir()
            faults.arm("self", kind, 0)
            up = Up(faults, model, place)
            calls = faults.count("self")
            faults.disarm("self")
            assert up.port and up.end() == 0, up.errors()
            for at in chosen(calls, everything and calls < 60, 30 if everything else 2):
                place = folder / f"{kind}-{at}"
                place.mkdir()
                faults.arm("self", kind, at)
                up = Up(faults, model, place)
                faults.disarm("self")
                runs += 1
                where = f"start of up, {kind} {at}"
                if up.port:
                    checks.that(up.ask()[0] == 200, f"{where}: does not answer: {up.errors()[-400:]}")
                    checks.that(up.end() == 0, f"{where}: ends badly: {up.errors()[-400:]}")
                    continue
                code = up.end()
                checks.that(code in (1, 2), f"{where}: code {code}: {up.errors()[-400:]}")
                checks.that("cobord" in up.errors(), f"{where}: says {up.errors()[-400:]!r}")
                checks.that(kind != "again", f"{where}: is noticed: {up.errors()[-400:]}")
    return runs


def main():
    checks, everything = Checks(), "--all" in sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        path = folder / "small.knot"
        must("synth", "--shape", "test", "-o", path)
        must("verify", path)
        model = Model(path)
        runs = node_by_node(checks, model, everything)
        for part in (whole_cluster, start_of_cluster):
            (folder / part.__name__).mkdir()
            runs += part(checks, path, folder / part.__name__, everything)
    print(f"{runs} runs")
    return checks.end()


if __name__ == "__main__":
    sys.exit(main())
