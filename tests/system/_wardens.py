# SPDX-License-Identifier: Apache-2.0
"""Clusters with wardens, for tests: two cluster files (wardens have a store, nodes do not), readers of answers and
knots that are written from the formats' pages alone, a store over HTTP, and a liar between node and warden."""
import contextlib
import copy
import http.server
import json
import os
import pathlib
import struct
import subprocess
import threading
import time
import unittest

import _frames as frames
import _nodes as nodes
from _nodes import KEY
from _ports import free_ports

MODEL = nodes.Model("smollm2-135m")
OTHER = nodes.Model("qwen2.5-coder-0.5b")
IDS = [504, 3575, 282, 4649, 314, 30000, 44444]
COUNT = 4
MIB = 1 << 20
SLAB = 4 * MIB


class Cluster(nodes.Cluster):
    """Two stations and two shards, each with a warden. The nodes read a second cluster file, whose store is not there:
    what they have of the knot comes from elsewhere."""

    def __init__(self, model=MODEL, store=None, layer=None, shard=None, node_store="nowhere", **members):
        half = model.layers // 2
        super().__init__(model, [f"0-{half}", f"{half}-end"], 2, **members)
        ports = iter(free_ports(4))
        if store:
            self.file["model"]["store"] = store
        self.file["layer_wardens"] = [
            {"id": f"layer-warden-{i}", "address": f"127.0.0.1:{next(ports)}", "range": s["range"], **(layer or {})}
            for i, s in enumerate(self.file["stations"])]
        self.file["shard_wardens"] = [
            {"id": f"shard-warden-{i}", "address": f"127.0.0.1:{next(ports)}", "ids": s["ids"], **(shard or {})}
            for i, s in enumerate(self.file["shards"])]
        for i in range(2):
            self.file["stations"][i]["warden"] = f"layer-warden-{i}"
            self.file["shards"][i]["warden"] = f"shard-warden-{i}"
        self.folder_path = pathlib.Path(self.folder.name)
        self.cache = self.folder_path / "cache"
        self.node_store = node_store
        self.write()

    def write(self):
        super().write()
        if "layer_wardens" in self.file:
            other = copy.deepcopy(self.file)
            other["model"]["store"] = self.node_store
            (self.folder_path / "nodes.json").write_text(json.dumps(other))

    def entry(self, node_id):
        for node in self.file["layer_wardens"] + self.file["shard_wardens"]:
            if node["id"] == node_id:
                return node
        return super().entry(node_id)

    def without_file(self, node_id, env=None, **more):
        """A station or a shard on a machine that does not have the knot."""
        (self.cache / "models").mkdir(parents=True, exist_ok=True)
        whole, self.path = self.path, self.folder_path / "nodes.json"
        try:
            return self.start(node_id, env={"COBORD_CACHE": str(self.cache), **(env or {})}, **more)
        finally:
            self.path = whole

    def run_without_file(self, node_id, timeout=120):
        """One that is expected to end by itself."""
        (self.cache / "models").mkdir(parents=True, exist_ok=True)
        file = str(self.folder_path / "nodes.json")
        return subprocess.run([nodes.COBORD, "node", "--cluster", file, "--id", node_id], capture_output=True,
                              timeout=timeout, env=nodes.environment(COBORD_CACHE=str(self.cache)))

    def all_without_file(self, env=None):
        stations = [self.without_file(f"station-{i}", env=env) for i in range(2)]
        return stations, [self.without_file(f"shard-{i}", env=env) for i in range(2)]

    def wardens(self, env=None):
        return [self.start(f"{kind}-warden-{i}", env=env) for kind in ("layer", "shard") for i in range(2)]


def stats(warden):
    return json.loads(warden.call("GET", "/stats")[1])


def wait_for(what, truth, seconds=20):
    end = time.time() + seconds
    while not truth():
        assert time.time() < end, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def greedy(stations, shards, ids=IDS, count=COUNT, session=1):
    return nodes.Driver(stations, shards, first_request=int(time.time() * 1000)).greedy(ids, count, session)


_expected = {}


def solo(ids, count, model=MODEL):
    """The ids that one process with the whole file goes on with."""
    out = list(ids)
    for _ in range(count):
        at = nodes.support.logits(model.name, out, "--top", "1")["positions"][-1]
        out.append(at["top"][0][0])
    return out[len(ids):]


def expected(model=MODEL):
    if model.name not in _expected:
        _expected[model.name] = solo(IDS, COUNT, model)
    return _expected[model.name]


class Tensors:
    """An answer of tensors, read by the page alone: [(name, type, first row, hash kind, hash, bytes)]."""

    def __init__(self, body):
        size, = struct.unpack_from("<I", body, 8)
        assert body[:4] == b"AWFR" and frames.seal(body[:size]) == body[:size]
        names, count = struct.unpack_from("<II", body, 56)
        texts = [body[64 + 64 * i:128 + 64 * i].rstrip(b"\0").decode() for i in range(names)]
        self.pieces, at = [], 0
        for i in range(count):
            name, kind, layout, hashed, _, _, first, rows, length, value = struct.unpack_from(
                "<IBBHIIIIQQ", body, 64 + 64 * names + 48 * i)
            at = (at + 63) // 64 * 64
            data = body[size + at:size + at + length]
            assert frames.xxh64(data) == value if length < 4 * MIB else True
            self.pieces.append((texts[name], kind, first, hashed, value, data))
            at += length
        assert size + at == len(body)


class Knot:
    """What the tests need of a file: where tensors are, and their bytes."""

    def __init__(self, model):
        self.path = model.path
        with open(model.path, "rb") as f:
            head = f.read(10)
            meta, = struct.unpack_from("<I", head, 6)
            self.header = json.loads(f.read(meta))
        align = (10 + meta + 3) & ~3
        self.payload = (align + 1 + 4095) // 4096 * 4096
        self.tensors = {t["name"]: t for t in self.header["tensors"]}

    def read(self, offset, count):
        with open(self.path, "rb") as f:
            f.seek(self.payload + offset)
            return f.read(count)

    def bytes(self, name):
        t = self.tensors[name]
        return self.read(t["offset"], t["length"])

    def row(self, row):
        t = self.tensors["token_embd_weight"]
        size = t["length"] // t["shape"][0]
        return self.read(t["offset"] + row * size, size)

    def request(self, pieces, knot_id=None):
        """A tensors request for [(name, first row, rows, length)]."""
        types = {"F32": 0, "Q4_1": 3, "Q8_0": 8}
        names = sorted({p[0] for p in pieces})
        fields = struct.pack("<II", len(names), len(pieces))
        fields += b"".join(n.encode().ljust(64, b"\0") for n in names)
        for name, first, rows, length in pieces:
            t = self.tensors[name]
            shape = t["shape"] if len(t["shape"]) == 2 else [1, *t["shape"]]
            fields += struct.pack("<IBBHIIIIQQ8x", names.index(name), types[t["type"]],
                                  int(t.get("layout", "rows") != "rows"), 0, *shape, first, rows, length, 0)
        body = bytearray(frames.header(7, MODEL.id if knot_id is None else knot_id, 0, 5, b"", fields))
        body[:4] = b"AWFR"
        return frames.seal(bytes(body))


KNOT = Knot(MODEL)
ATTN = "blk_0_attn_q_weight"


def descriptors(node, word):
    """Paths of a process's open files that have a word in their names."""
    found = []
    for file in pathlib.Path(f"/proc/{node.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            if word in os.readlink(file):
                found.append(file)
    return found


class Base(unittest.TestCase):
    def cluster(self, *arguments, **more):
        cluster = Cluster(*arguments, **more)
        self.addCleanup(cluster.stop)
        return cluster

    def text_is_right(self, stations, shards, session=1):
        self.assertEqual(greedy(stations, shards, session=session), expected())

    def tensor(self, warden, name, rows=""):
        status, body = warden.call("GET", f"/tensor/{name}{rows}")
        self.assertEqual(status, 200, body[:300])
        return Tensors(body).pieces[0]

    def row(self, warden, *rows):
        size = len(KNOT.row(0))
        status, body = warden.call("POST", "/tensors", KNOT.request([("token_embd_weight", r, 1, size) for r in rows]))
        self.assertEqual(status, 200, body[:300])
        return Tensors(body).pieces

    def values(self, row):
        """Q8_0: blocks of an f16 scale and 32 integers; the product is rounded to f32."""
        data = KNOT.row(row)
        for at in range(0, len(data), 34):
            scale, = struct.unpack_from("<e", data, at)
            for q in struct.unpack_from("<32b", data, at + 2):
                yield scale * q


class QuietServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64  # beyond them a connection waits for a second

    def handle_error(self, request, client_address):
        """A node that is killed hangs up: no news."""


class FileServer:
    """A folder over HTTP with ranges: a store that has no keys. `refuse`: what it says to headers that it does not
    like, with 403; None: nothing."""

    def __init__(self, folder, delay=0.0, refuse=None):
        server = self
        self.requests, self.delay, self.refused = 0, delay, 0

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self):
                self.answer(False)

            def do_GET(self):
                self.answer(True)

            def answer(self, body):
                path = pathlib.Path(folder) / self.path.lstrip("/")
                server.requests += 1
                time.sleep(server.delay)
                words = refuse and refuse(self.headers)
                if words:
                    server.refused += 1
                    self.send_response(403)
                    self.send_header("Content-Length", str(len(words)))
                    self.end_headers()
                    self.wfile.write(words)
                    return
                size = path.stat().st_size if path.exists() else None
                if size is None:
                    self.send_response(404)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                first, last = 0, size - 1
                wanted = self.headers.get("Range")
                if wanted:
                    first, last = (int(x) if x else size - 1 for x in wanted.split("=")[1].split("-"))
                self.send_response(206 if wanted else 200)
                if wanted:
                    self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
                self.send_header("Content-Length", str(last - first + 1))
                self.end_headers()
                if body:
                    with open(path, "rb") as f:
                        f.seek(first)
                        self.wfile.write(server.change(first, f.read(last - first + 1)))

            def log_message(self, *_):
                pass

        self.http = QuietServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def change(self, first, data):
        """What it sends of these bytes, of which the first is so far into the file: as many."""
        return data

    def __enter__(self):
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()


class Liar:
    """Between a node and a warden: flips a bit in the payload of every tensors answer and makes its frame fit; plain
    bytes are flipped too, in answers that end before `last`."""

    def __init__(self, node, last=1 << 62):
        liar, self.posts, key = self, [], KEY

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self):
                size = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(size) if size else None
                headers = {k: v for k, v in self.headers.items() if k.lower().startswith("x-")}
                status, answer = node.call(self.command, self.path, body, key=key, headers=headers)
                if self.command == "POST" and self.path.startswith("/invalidate/"):
                    liar.posts.append(self.path)
                if status == 200 and answer[:4] == b"AWFR":
                    answer = liar.spoil(answer)
                elif (status == 200 and "bytes=" in self.path and len(answer) > 200000
                      and int(self.path.split("-")[-1]) < last):
                    answer = answer[:5000] + bytes([answer[5000] ^ 1]) + answer[5001:]
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = pass_on

            def log_message(self, *_):
                pass

        self.http = QuietServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.http.server_port}"

    @staticmethod
    def spoil(answer):
        out = bytearray(answer)
        size, = struct.unpack_from("<I", out, 8)
        names, count = struct.unpack_from("<II", out, 56)
        at = 0
        for i in range(count):
            entry = 64 + 64 * names + 48 * i
            length, = struct.unpack_from("<Q", out, entry + 24)
            at = (at + 63) // 64 * 64
            out[size + at + 7] ^= 4
            struct.pack_into("<Q", out, entry + 32, frames.xxh64(bytes(out[size + at:size + at + length])))
            at += length
        return frames.seal(bytes(out[:size])) + bytes(out[size:])

    def __enter__(self):
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()
