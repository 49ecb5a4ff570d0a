#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wardens as processes: identities, what each level keeps and what a bad entry in it comes to, nodes without the file,
shared memory, and the stores of the real world (Redis, SQLite, an S3 gateway, a disk that is full)."""
import contextlib
import copy
import fcntl
import http.server
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import tempfile
import threading
import time
import unittest

import _frames as frames
import _nodes as nodes
import _servers as servers
from _nodes import KEY

MODEL = nodes.Model("smollm2-135m")
OTHER = nodes.Model("qwen2.5-coder-0.5b")
IDS = [504, 3575, 282, 4649, 314, 30000, 44444]
COUNT = 4
MIB = 1 << 20
SLAB = 4 * MIB
SEAL_WRITE, GET_SEALS = 8, 1034


class Cluster(nodes.Cluster):
    """Two stations and two shards, each with a warden. The nodes read a second cluster file, whose store is not there:
    what they have of the knot comes from elsewhere."""

    def __init__(self, model=MODEL, store=None, layer=None, shard=None, node_store="nowhere", **members):
        half = model.layers // 2
        super().__init__(model, [f"0-{half}", f"{half}-end"], 2, **members)
        ports = iter(nodes.free_ports(4))
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


def expected(model=MODEL, ids=IDS, count=COUNT):
    """The text of one process with the whole file."""
    if model.name not in _expected:
        out = list(ids)
        for _ in range(count):
            at = nodes.support.logits(model.name, out, "--top", "1")["positions"][-1]
            out.append(at["top"][0][0])
        _expected[model.name] = out[len(ids):]
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
    folder = pathlib.Path(f"/proc/{node.process.pid}/fd")
    return [f for f in folder.iterdir() if word in os.readlink(f)]


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


class Identity(Base):
    def test_who_it_is_for(self):
        cluster = self.cluster()
        warden, shard = cluster.start("layer-warden-0"), cluster.start("shard-warden-1")
        first, last = cluster.entry("shard-warden-1")["ids"]
        mine = {"knot_id": MODEL.knot_id, "knot_key": MODEL.path.name}
        layers = {**mine, "layer_start": 0, "layer_end": 15}
        ids = {**mine, "vocab_start": first, "vocab_end": last}

        def configure(node, value):
            return node.call("POST", "/configure", json.dumps(value).encode())

        for node, right in ((warden, layers), (shard, ids), (warden, {**layers, "layer_end": "15"})):
            status, body = configure(node, right)
            self.assertEqual(status, 200, body)
            self.assertIn(MODEL.knot_id, json.loads(body)["identity"])
        wrong = [(warden, {**layers, "layer_end": 14}), (warden, {**layers, "knot_id": OTHER.knot_id}),
                 (warden, {**layers, "knot_key": "tiny.knot"}), (warden, {**layers, "layer_start": "1.ffn_up"}),
                 (warden, ids), (shard, layers), (shard, {**ids, "vocab_start": first + 1})]
        for node, value in wrong:
            status, body = configure(node, value)
            self.assertEqual(status, 409, (value, body))
        status, body = configure(warden, {**layers, "knot_id": OTHER.knot_id})
        for text in (MODEL.knot_id + "|0-15", OTHER.knot_id + "|0-15"):
            self.assertIn(text, json.loads(body)["error"]["message"])
        for broken in ({**mine}, {"layer_start": 0, "layer_end": 15}, {**layers, "knot_id": "1234"},
                       {**layers, "layer_end": 99}, [], {"knot_id": MODEL.knot_id, "layer_start": 0, "layer_end": 15}):
            self.assertEqual(configure(warden, broken)[0], 400, broken)

        def head(**h):
            return warden.call("GET", "/tensor/" + ATTN, headers={k.replace("_", "-"): v for k, v in h.items()})[0]
        right = {"X_Knot_Id": MODEL.knot_id, "X_Knot_Key": MODEL.path.name, "X_Layer_Start": "0", "X_Layer_End": "15"}
        self.assertEqual(head(**right), 200)
        self.assertEqual(head(X_Knot_Id=OTHER.knot_id), 409)
        self.assertEqual(head(X_Layer_Start="0", X_Layer_End="end"), 409)
        self.assertEqual(head(X_Knot_Key="other.knot"), 409)
        self.assertEqual(head(X_Vocab_Start="0", X_Vocab_End="15"), 409)
        self.assertEqual(head(X_Layer_Start="x"), 400)
        self.assertEqual(warden.call("POST", "/tensors", KNOT.request([(ATTN, 0, 16, 5760)], OTHER.id))[0], 409)

    def test_answers(self):
        cluster = self.cluster()
        warden, shard = cluster.start("layer-warden-0"), cluster.start("shard-warden-0")
        name, _, first, kind, value, data = self.tensor(warden, ATTN)
        self.assertEqual((name, first, kind), (ATTN, 0, 1))
        self.assertEqual(data, KNOT.bytes(ATTN))
        part = self.tensor(warden, ATTN, "?rows=32-64")
        self.assertEqual((part[2], part[3], part[5]), (32, 3, KNOT.bytes(ATTN)[len(data) // 18:len(data) // 9]))
        pieces = self.row(shard, 504, 5, 504)
        self.assertEqual([p[5] for p in pieces], [KNOT.row(r) for r in (504, 5, 504)])
        self.assertEqual([p[3] for p in pieces], [2, 2, 2])
        for node, path, status in (
                (warden, "/tensor/blk_20_attn_q_weight", 400), (warden, "/tensor/nothing", 404),
                (warden, f"/tensor/{ATTN}?rows=0-15", 400), (warden, f"/tensor/{ATTN}?rows=16-0", 400),
                (warden, f"/tensor/{ATTN}?rows=0-16&x", 400), (warden, f"/tensor/{ATTN}?rows=560-592", 400),
                (warden, "/tensor/output_weight", 413), (shard, f"/tensor/{ATTN}", 400),
                (shard, "/tensor/token_embd_weight?rows=40000-40001", 400), (warden, "/knot?bytes=5-4", 400),
                (warden, "/knot?bytes=0-99999999999", 400), (warden, "/knot?bytes=0-4194304", 413),
                (warden, "/knot", 400), (warden, "/knot?bytes=0-9x", 400), (warden, "/knot?bytes=-9", 400)):
            self.assertEqual(node.error("GET", path)[0], status, path)
        self.assertEqual(warden.call("POST", "/tensors", b"AWFR")[0], 400)
        self.assertEqual(warden.call("GET", "/stats", key="another-key")[0], 401)
        size = json.loads(warden.call("GET", "/knot?size")[1])["bytes"]
        whole = MODEL.path.read_bytes()
        self.assertEqual(size, len(whole))
        for a, b in ((0, 99), (31000, 40000), (KNOT.payload + 4 * MIB - 5, KNOT.payload + 4 * MIB + 5),
                     (size - 70000, size - 1), (size - 1, size - 1)):
            status, body = warden.call("GET", f"/knot?bytes={a}-{b}")
            self.assertEqual((status, body), (200, whole[a:b + 1]), (a, b))
        self.assertEqual(warden.call("POST", "/invalidate/" + ATTN)[0], 200)
        self.assertEqual(warden.call("POST", "/invalidate/nothing")[0], 404)
        self.assertEqual(warden.call("POST", "/invalidate/5")[0], 400)
        self.assertEqual(shard.call("POST", "/invalidate/504")[0], 200)
        self.assertEqual(shard.call("POST", "/invalidate/48000")[0], 400)
        metrics = warden.metrics()
        self.assertGreater(metrics["cobord_warden_l1_hits_total"], 0)
        self.assertTrue(warden.ready()["ready"])

    def test_strangers(self):
        """Any bytes at every door: an error in the one shape, and the warden goes on."""
        cluster = self.cluster()
        dice = random.Random(3)
        for node in (cluster.start("layer-warden-0"), cluster.start("shard-warden-0")):
            right = KNOT.request([(ATTN, 0, 16, 5760), ("output_norm_weight", 0, 1, 2304)])
            paths = [("POST", "/tensors"), ("POST", "/configure"), ("POST", "/invalidate/%41"), ("GET", "/tensor/a%00b"),
                     ("GET", "/tensor/" + "x" * 900), ("GET", "/knot?bytes=%31-2"), ("POST", "/invalidate/-1"),
                     ("POST", "/invalidate/99999999999999999999"), ("DELETE", "/tensors"), ("GET", "/tensor/../etc")]
            for i in range(300):
                method, path = dice.choice(paths)
                body = bytearray(dice.choice([right, dice.randbytes(dice.randrange(400)), b"", b"{" * 4000]))
                for _ in range(dice.randrange(4)):
                    if body:
                        body[dice.randrange(len(body))] = dice.randrange(256)
                if i % 5 == 0 and len(body) >= 128:
                    body = frames.seal(bytes(body))
                status, answer = node.call(method, path, bytes(body))
                self.assertIn(status, (200, 400, 404, 405, 409, 413), answer)
                if status != 200:
                    self.assertIn("message", json.loads(answer)["error"])
            self.assertTrue(node.alive())
            self.assertEqual(node.call("POST", "/tensors", bytes(300 << 10))[0], 413)
            self.assertLess(node.memory("VmHWM"), 64 * MIB)

    def test_warden_of_another_model(self):
        """The address in the file has a warden of another knot: its bytes are never used."""
        cluster, stranger = self.cluster(node_store=str(MODEL.path.parent)), self.cluster(OTHER)
        cluster.file["model"]["knot_key"] = MODEL.path.name
        address = cluster.entry("layer-warden-0")["address"]
        stranger.entry("layer-warden-0")["address"] = address
        stranger.write()
        (stranger.path.parent / "key").write_text(KEY + "\n")
        warden = stranger.start("layer-warden-0")
        # The nodes' own store is a server that gives the file by ranges.
        with FileServer(MODEL.path.parent) as store:
            cluster.node_store = store.url
            cluster.write()
            stations, shards = cluster.all_without_file()
            self.text_is_right(stations, shards)
        self.assertIn("warden is not used", stations[0].errors())
        self.assertIn(OTHER.knot_id, stations[0].errors())
        self.assertEqual(stats(warden)["l1"]["misses"], 0)


class QuietServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A node that is killed hangs up: no news."""


class FileServer:
    """A folder over HTTP with ranges: a store that has no keys."""

    def __init__(self, folder, delay=0.0):
        server = self
        self.requests, self.delay = 0, delay

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
                size = path.stat().st_size if path.exists() else None
                if size is None:
                    self.send_response(404)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                first, last = 0, size - 1
                wanted = self.headers.get("Range")
                if wanted:
                    first, last = (int(x) for x in wanted.split("=")[1].split("-"))
                self.send_response(206 if wanted else 200)
                if wanted:
                    self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
                self.send_header("Content-Length", str(last - first + 1))
                self.end_headers()
                if body:
                    with open(path, "rb") as f:
                        f.seek(first)
                        self.wfile.write(f.read(last - first + 1))

            def log_message(self, *_):
                pass

        self.http = QuietServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def __enter__(self):
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()


class Poison(Base):
    """A bad entry is found, counted, deleted and read again from below; nobody gets it twice."""

    def test_memory_of_slabs(self):
        warden = self.cluster().start("layer-warden-0")
        self.assertEqual(self.tensor(warden, ATTN)[5], KNOT.bytes(ATTN))
        at = KNOT.payload + KNOT.tensors[ATTN]["offset"] + 1000
        memory = os.open(descriptors(warden, "cobord-warden")[0], os.O_RDWR)
        os.pwrite(memory, bytes([os.pread(memory, 1, at)[0] ^ 1]), at)
        self.assertEqual(self.tensor(warden, ATTN)[5], KNOT.bytes(ATTN))
        self.assertEqual(stats(warden)["l1"]["bad"], 1)
        before = stats(warden)["l1"]["hits"]
        self.assertEqual(self.tensor(warden, ATTN)[5], KNOT.bytes(ATTN))
        now = stats(warden)["l1"]
        self.assertEqual((now["bad"], now["hits"]), (1, before + 1))
        os.close(memory)

    def test_slab_files(self):
        cluster = self.cluster(layer={"cache": "dir:l2"})
        files = cluster.folder_path / "l2" / f"{MODEL.knot_id}-0-15"
        warden = cluster.start("layer-warden-0")
        self.tensor(warden, ATTN)
        wait_for("a slab file", lambda: stats(warden)["l2"]["writes"] == 1)
        slab = files / "00000000.slab"
        good = slab.read_bytes()
        self.assertEqual(good, KNOT.read(0, SLAB))
        for bad in (good[:70000] + bytes([good[70000] ^ 8]) + good[70001:], good[:-1], b"", good + b"\0"):
            warden.kill()  # so that memory is empty
            (files / ".7.part").write_bytes(b"left by a writer that was killed")
            slab.write_bytes(bad)
            warden = cluster.start("layer-warden-0")
            self.assertFalse((files / ".7.part").exists())
            self.assertEqual(self.tensor(warden, ATTN)[5], KNOT.bytes(ATTN))
            wait_for("the file to be right again", lambda: slab.exists() and slab.read_bytes() == good)
            now = stats(warden)["l2"]
            self.assertEqual(now["bad"], 1 if len(bad) == SLAB else 0, now)  # another length is no slab at all
        warden.kill()
        warden = cluster.start("layer-warden-0")
        self.assertEqual(self.tensor(warden, ATTN)[5], KNOT.bytes(ATTN))
        now = stats(warden)
        self.assertEqual((now["l2"]["hits"], now["l2"]["bad"]), (1, 0))

    def test_file_turns_bad_while_open(self):
        """L1 of one slab: the second comes from its file each time; the file is damaged in between."""
        cluster = self.cluster(layer={"cache": "dir:l2"}, warden_memory=42 * MIB)
        try:
            warden = cluster.start("layer-warden-0")
        except SystemExit as error:
            self.skipTest(f"the process is larger here: {error}")
        files = cluster.folder_path / "l2" / f"{MODEL.knot_id}-0-15"
        names = [n for n in KNOT.tensors if n.startswith("blk_") and int(n.split("_")[1]) < 15 and "ffn_down" in n]
        for _ in range(2):
            for name in names:
                self.assertEqual(self.tensor(warden, name)[5], KNOT.bytes(name))
        wait_for("files", lambda: len(list(files.glob("*.slab"))) >= 8)
        for path in sorted(files.glob("*.slab"))[3:]:
            data = bytearray(path.read_bytes())
            for at in range(1000, len(data), 256 << 10):
                data[at] ^= 0x10
            path.write_bytes(data)
        for name in names:
            self.assertEqual(self.tensor(warden, name)[5], KNOT.bytes(name))
        self.assertGreaterEqual(stats(warden)["l2"]["bad"], 1)

    def poison_rows(self, cluster, spoil):
        """Rows of a key-value store: spoiled, they are a miss, counted, and right again afterwards."""
        warden = cluster.start("shard-warden-0")
        rows = [504, 3575, 282]
        self.row(warden, *rows)
        wait_for("rows to be written", lambda: stats(warden)["rows_l2"]["writes"] == 3)
        warden.kill()
        warden = cluster.start("shard-warden-0")
        good = self.row(warden, *rows)
        self.assertEqual([p[1] for p in good], [0, 0, 0])  # F32
        self.assertEqual([p[3] for p in good], [3, 3, 3])
        self.assertEqual([len(p[5]) for p in good], [4 * MODEL.hidden] * 3)
        wait_for("rows to be warm", lambda: stats(warden)["rows_l1"]["bytes"] > 0)
        self.assertEqual([p[5] for p in self.row(warden, *rows)], [KNOT.row(r) for r in rows])
        warden.kill()
        spoil(504, lambda v: v[:9] + bytes([v[9] ^ 1]) + v[10:])
        spoil(3575, lambda v: v[:-4])
        warden = cluster.start("shard-warden-0")
        now = self.row(warden, *rows)
        self.assertEqual([p[1] for p in now], [8, 8, 0])
        self.assertEqual([p[5] for p in now[:2]], [KNOT.row(504), KNOT.row(3575)])
        self.assertEqual(now[2][5], good[2][5])
        wait_for("the bad ones to be replaced", lambda: stats(warden)["rows_l2"]["writes"] == 2)
        self.assertEqual(stats(warden)["rows_l2"]["bad"], 2)
        warden.kill()
        warden = cluster.start("shard-warden-0")
        self.assertEqual([p[5] for p in self.row(warden, *rows)], [p[5] for p in good])
        self.assertEqual(stats(warden)["rows_l2"]["bad"], 0)

    def test_rows_in_sqlite(self):
        cluster = self.cluster(shard={"cache": "sqlite:rows.db"})

        def spoil(row, change):
            with contextlib.closing(sqlite3.connect(cluster.folder_path / "rows.db")) as base:
                table, = base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchone()
                columns = [c[1] for c in base.execute(f"PRAGMA table_info({table})")]
                kinds = {c: base.execute(f"SELECT {c} FROM {table}").fetchone()[0] for c in columns}
                value = next(c for c, v in kinds.items() if isinstance(v, bytes) and len(v) == 4 * MODEL.hidden + 8)
                wanted = frames.struct.pack(f"<{MODEL.hidden}f", *self.values(row))
                for rowid, old in base.execute(f"SELECT rowid, {value} FROM {table}").fetchall():
                    if old[:-8] == wanted:
                        base.execute(f"UPDATE {table} SET {value} = ? WHERE rowid = ?", (change(old), rowid))
                        base.commit()
                        return
            self.fail(f"row {row} is not in the file")
        self.poison_rows(cluster, spoil)

    def values(self, row):
        """Q8_0: blocks of an f16 scale and 32 integers; the product is rounded to f32."""
        data = KNOT.row(row)
        for at in range(0, len(data), 34):
            scale, = struct.unpack_from("<e", data, at)
            for q in struct.unpack_from("<32b", data, at + 2):
                yield scale * q

    def test_rows_in_redis(self):
        with servers.start_redis() as redis:
            cluster = self.cluster(shard={"cache": redis.url})

            def spoil(row, change):
                key = f"cobord:row:{MODEL.knot_id}:{row}"
                value = redis.command("GET", key)
                self.assertEqual(len(value), 4 * MODEL.hidden + 8)
                self.assertLessEqual(redis.command("TTL", key), 24 * 3600)
                self.assertGreater(redis.command("TTL", key), 23 * 3600)
                redis.command("SET", key, change(value), "KEEPTTL")
            self.poison_rows(cluster, spoil)
            warden = cluster.nodes[-1]
            redis.kill()  # what cannot be reached is a miss
            self.assertEqual(self.row(warden, 77)[0][5], KNOT.row(77))
            self.assertTrue(warden.alive())

    def test_liar(self):
        """A warden that keeps giving bad bytes, with hashes to match: the nodes compare with the knot's own, tell it,
        and read the store."""
        cluster = self.cluster()
        real = cluster.wardens()
        with FileServer(MODEL.path.parent) as store:
            cluster.node_store = store.url
            cluster.write()
            liars = []
            for node in real:
                liars.append(Liar(node))
                cluster.entry(node.id)["address"] = liars[-1].address
            cluster.write()
            with contextlib.ExitStack() as stack:
                for liar in liars:
                    stack.enter_context(liar)
                stations, shards = cluster.all_without_file()
                self.text_is_right(stations, shards)
                wait_for("word of bad bytes", lambda: all(any(x.startswith("/invalidate/") for x in liar.posts)
                                                          for liar in liars[:3]))
                for liar in liars[:2]:
                    self.assertTrue(any("/invalidate/blk_" in x for x in liar.posts), liar.posts)
                self.assertTrue(any(x == "/invalidate/504" for x in liars[2].posts), liars[2].posts)


class Liar:
    """Between a node and a warden: flips a bit in the payload of every tensors answer and makes its frame fit; plain
    bytes are flipped too."""

    def __init__(self, node):
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
                elif status == 200 and "bytes=" in self.path and len(answer) > 200000:
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


class WithoutTheFile(Base):
    def test_memory_and_warm_rows(self):
        cluster = self.cluster()
        layer0, _, shard0, shard1 = cluster.wardens()
        stations, shards = cluster.all_without_file()
        self.text_is_right(stations, shards)
        for node in stations + shards:
            self.assertTrue(descriptors(node, "memfd:cobord-slice"), node.id)
            self.assertFalse(descriptors(node, ".knot"), node.id)
            self.assertLess(node.memory("VmHWM"), 128 * MIB)
        driver = nodes.Driver(stations, shards)
        cold = driver.embed(IDS)
        before = [stats(s)["rows_l1"] for s in (shard0, shard1)]
        warm = driver.embed(IDS + IDS)
        self.assertEqual(warm, cold + cold)
        after = [stats(s)["rows_l1"] for s in (shard0, shard1)]
        hits = sum(a["hits"] - b["hits"] for a, b in zip(after, before))
        self.assertEqual(hits, len(set(IDS)))  # each row once, whatever the request repeats
        self.assertEqual([a["misses"] for a in after], [b["misses"] for b in before])
        self.assertGreater(stats(layer0)["l1"]["hits"], 0)

    def test_disk_kept_and_reused(self):
        cluster = self.cluster(memory=56 * MIB)
        wardens = cluster.wardens()
        stations, shards = cluster.all_without_file()
        self.text_is_right(stations, shards)
        slices = cluster.cache / "slices" / MODEL.knot_id
        self.assertEqual(sorted(p.name for p in slices.glob("station*")),
                         [f"station-{i}.knot{end}" for i in range(2) for end in ("", ".checked")])
        self.assertTrue(descriptors(stations[0], "station-0.knot"))
        self.assertLess((slices / "station-0.knot").stat().st_blocks * 512, 40 * MIB)  # only its part of 122 MiB
        self.assertLess(stations[0].memory("VmHWM"), 56 * MIB)
        for node in [*stations, *shards, *wardens[:2]]:  # nothing is fetched for stations now
            node.kill()
        stations = [cluster.without_file(f"station-{i}") for i in range(2)]
        shards = [cluster.without_file(f"shard-{i}") for i in range(2)]
        self.text_is_right(stations, shards)

    def test_disk_note_and_damage(self):
        """A slice that changed since it was checked is fetched again."""
        cluster = self.cluster(memory=56 * MIB)
        warden = cluster.start("layer-warden-0")
        cluster.without_file("station-0").kill()
        slice_ = cluster.cache / "slices" / MODEL.knot_id / "station-0.knot"
        good = slice_.read_bytes()
        with open(slice_, "r+b") as f:
            f.seek(KNOT.payload + KNOT.tensors[ATTN]["offset"] + 99)
            f.write(b"\x55")
        misses = stats(warden)["l1"]["hits"]
        cluster.without_file("station-0")
        self.assertEqual(slice_.read_bytes(), good)
        self.assertGreater(stats(warden)["l1"]["hits"], misses)

    def test_other_range(self):
        """A slice grows when its node is given another range."""
        cluster = self.cluster()
        cluster.file["layer_wardens"][0]["range"] = "0-end"
        cluster.write()
        cluster.start("layer-warden-0")
        station = cluster.without_file("station-0")
        status, body = station.call("POST", "/configure", json.dumps({"range": "0-end"}).encode())
        self.assertEqual(status, 200, body)
        cluster.entry("station-0")["range"] = "0-end"
        [cluster.start(f"shard-warden-{i}") for i in range(2)]
        shards = [cluster.without_file(f"shard-{i}") for i in range(2)]
        self.text_is_right([station], shards)

    def test_nothing_there(self):
        """Neither warden nor store: an error that names both, not a hang."""
        cluster = self.cluster()
        done = cluster.run_without_file("station-0")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"nowhere", done.stderr)
        self.assertIn(b"warden", done.stderr)

    def test_warden_dies_while_it_fills(self):
        with FileServer(MODEL.path.parent, delay=0.02) as store:
            cluster = self.cluster(store=store.url, node_store=store.url)
            wardens = cluster.wardens()
            waiting = cluster.without_file("station-0", wait=False)
            wait_for("the fill to begin", lambda: stats(wardens[0])["l1"]["misses"] >= 2)
            wardens[0].kill()
            waiting.line = waiting.process.stdout.readline()
            self.assertTrue(waiting.line, waiting.errors())
            stations = [waiting, cluster.without_file("station-1")]
            shards = [cluster.without_file(f"shard-{i}") for i in range(2)]
            self.text_is_right(stations, shards)
            # A shard's warden dies, comes back, freezes.
            wardens[2].kill()
            self.text_is_right(stations, shards, session=5)
            wardens[2] = cluster.start("shard-warden-0")
            time.sleep(6)  # it is left alone for a while
            self.text_is_right(stations, shards, session=6)
            self.assertGreater(stats(wardens[2])["rows_l1"]["misses"], 0)
            wardens[2].process.send_signal(signal.SIGSTOP)
            begun = time.time()
            self.text_is_right(stations, shards, session=7)
            self.assertLess(time.time() - begun, 15)
            wardens[2].process.send_signal(signal.SIGCONT)


    @unittest.skipUnless(shutil.which("openssl"), "no openssl program to make a certificate with")
    def test_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / "key.pem",
                            "-out", folder / "certificate.pem", "-days", "2", "-subj", "/CN=localhost", "-addext",
                            "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
            cluster = self.cluster(tls=folder)
            cluster.wardens()
            stations, shards = cluster.all_without_file()
            self.text_is_right(stations, shards)
            self.assertTrue(descriptors(stations[0], "memfd:cobord-slice"))


class Stores(Base):
    def test_s3_and_shared_memory(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "models" / "some").mkdir(parents=True)
            shutil.copy(MODEL.path, pathlib.Path(folder) / "models" / "some")
            with servers.start_s3(folder) as s3:
                cluster = self.cluster(store="s3://models/some", layer={"socket": "S"}, warden_memory=192 * MIB)
                for i, entry in enumerate(cluster.file["layer_wardens"]):
                    entry["socket"] = f"w{i}.sock"
                cluster.write()
                wardens = cluster.wardens(env=s3.environment)
                stations, shards = cluster.all_without_file()
                self.text_is_right(stations, shards)
                self.shared_memory(cluster, wardens, stations)
                self.sockets_have_doors(cluster, wardens[0])

    def shared_memory(self, cluster, wardens, stations):
        for warden, station in zip(wardens, stations):
            mine = descriptors(station, "memfd:cobord-warden")
            self.assertEqual(len(mine), 1, station.errors())
            theirs = descriptors(warden, "memfd:cobord-warden")[0]
            self.assertEqual(os.stat(mine[0]).st_ino, os.stat(theirs).st_ino)
            fd = os.open(mine[0], os.O_RDONLY)
            self.assertTrue(fcntl.fcntl(fd, GET_SEALS) & SEAL_WRITE)
            os.close(fd)
            fd = os.open(theirs, os.O_RDWR)
            with self.assertRaises(PermissionError):
                os.pwrite(fd, b"x", 40000)
            os.close(fd)
            now = stats(warden)
            self.assertEqual(now["l1"]["shared"], 1)
            self.assertLess(warden.memory("VmHWM") + now["l1"]["bytes"], 192 * MIB)
            self.assertLess(station.memory("VmHWM"), 128 * MIB)
            # A slab that is forgotten cannot be taken out of sealed memory: it passes through from now on.
            self.assertEqual(warden.call("POST", "/invalidate/" + ("blk_0_attn_q_weight"))[0], 200)
        for _ in range(2):
            self.assertEqual(self.tensor(wardens[0], ATTN)[5], KNOT.bytes(ATTN))
        stations[0].kill()  # and it is not shared again: HTTP
        again = cluster.without_file("station-0")
        self.assertIn("no memory is shared", again.errors())
        self.assertTrue(descriptors(again, "memfd:cobord-slice"))

    def sockets_have_doors(self, cluster, warden):
        path = str(cluster.folder_path / "w0.sock")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        for message in (b"COBS" + struct.pack("<HHQ", 1, 5, MODEL.id) + b"wrong",
                        b"COBS" + struct.pack("<HHQ", 1, 0, MODEL.id),
                        b"COBS" + struct.pack("<HHQ", 1, len(KEY), OTHER.id) + KEY.encode(),
                        b"COBS" + struct.pack("<HHQ", 2, len(KEY), MODEL.id) + KEY.encode(),
                        b"COBS" + struct.pack("<HHQ", 1, 60000, MODEL.id) + KEY.encode(), b"GET / HTTP/1.1\r\n\r\n"):
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(path)
                s.sendall(message)
                answer, more, _, _ = s.recvmsg(8, 1000)
                self.assertEqual((answer, more), (b"COBS\1\0\0\0", []), message)
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(path)  # says nothing: others are not kept waiting for ever
        self.assertEqual(warden.call("GET", "/health")[0], 200)

    def test_local_file_is_shared_as_it_is(self):
        cluster = self.cluster()
        for i, entry in enumerate(cluster.file["layer_wardens"]):
            entry["socket"] = f"w{i}.sock"
        cluster.write()
        cluster.wardens()
        stations, shards = cluster.all_without_file()
        self.text_is_right(stations, shards)
        for station in stations:
            self.assertTrue(descriptors(station, str(MODEL.path)))
            self.assertFalse(descriptors(station, "memfd"))
        # A socket that a killed warden left is no obstacle.
        cluster.nodes[0].kill()
        self.assertTrue((cluster.folder_path / "w0.sock").exists())
        again = cluster.start("layer-warden-0")
        self.assertTrue(again.alive())

    def test_cap_of_the_disk(self):
        cluster = self.cluster(layer={"cache": "dir:l2", "cache_bytes": 10 * MIB})
        folder = cluster.folder_path / "l2"
        stale = folder / "00000000000000aa-0-15"  # of a warden that is gone
        stale.mkdir(parents=True)
        (stale / "00000000.slab").write_bytes(b"x" * (6 * MIB))
        (folder / "not ours").write_text("stays")
        warden = cluster.start("layer-warden-0")
        names = [n for n in KNOT.tensors if n.startswith("blk_") and int(n.split("_")[1]) < 15 and "ffn_up" in n]
        for name in names:
            self.assertEqual(self.tensor(warden, name)[5], KNOT.bytes(name))
            sizes = [p.stat().st_size for p in folder.rglob("*.slab")]
            self.assertLessEqual(sum(sizes), 10 * MIB)
        wait_for("two slabs", lambda: stats(warden)["l2"]["writes"] == 2)
        self.assertFalse(stale.exists())
        self.assertTrue((folder / "not ours").exists())
        self.assertEqual(warden.errors(), "")
        second = cluster.run("layer-warden-0")  # the address is taken
        self.assertNotEqual(second.returncode, 0)
        warden.kill()
        cluster.entry("layer-warden-0")["cache_bytes"] = 5 * MIB
        cluster.write()
        warden = cluster.start("layer-warden-0")
        self.assertEqual(stats(warden)["l2"]["bytes"], SLAB)

    def test_full_disk(self):
        with tempfile.TemporaryDirectory() as folder:
            mount = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", folder]
            if subprocess.run(mount, capture_output=True).returncode:
                self.skipTest("no right to mount a small disk")
            try:
                cluster = self.cluster(layer={"cache": f"dir:{folder}/l2"})
                warden = cluster.start("layer-warden-0")
                names = [n for n in KNOT.tensors if n.startswith("blk_") and int(n.split("_")[1]) < 15 and "ffn" in n]
                for name in names:
                    self.assertEqual(self.tensor(warden, name)[5], KNOT.bytes(name))
                wait_for("a failed write", lambda: stats(warden)["l2"]["failures"] >= 1)
                self.assertEqual(warden.errors().count("keeps nothing new"), 1, warden.errors())
                whole = list(pathlib.Path(folder).rglob("*.slab"))
                self.assertTrue(whole)
                for path in whole:
                    number = int(path.name[:8])
                    self.assertEqual(path.read_bytes(), KNOT.read(number * SLAB, SLAB))
                self.assertEqual(list(pathlib.Path(folder).rglob("*.part")), [])
                station = cluster.without_file("station-0")
                self.assertTrue(station.alive())
                # A node's slice does not fit there either: said at once.
                cluster.file["memory"] = 56 * MIB
                cluster.write()
                station.kill()
                cluster.cache = pathlib.Path(folder) / "cache"
                done = cluster.run_without_file("station-0")
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(b"the disk has", done.stderr)
            finally:
                cluster.stop()
                subprocess.run(["umount", "-l", folder], check=False)

    def test_memory_budget_and_cyclic_scan(self):
        """A scan that is larger than memory, three times over: the share that fits is hit, the budget is kept."""
        budget = 96 * MIB
        cluster = self.cluster(OTHER, warden_memory=budget)
        knot = Knot(OTHER)
        warden = cluster.start("layer-warden-0")
        names = [t for t in sorted(knot.tensors.values(), key=lambda t: t["offset"]) if t["name"].startswith("blk_")
                 and int(t["name"].split("_")[1]) < 12 and t["length"] > MIB // 8]
        slabs = len({c for t in names
                      for c in range(t["offset"] // SLAB, (t["offset"] + t["length"] - 1) // SLAB + 1)})
        passes, evictions = [], set()
        for _ in range(3):
            before = stats(warden)["l1"]
            connection = warden.connection()
            for t in names:
                status, _ = warden.call("GET", "/tensor/" + t["name"], connection=connection)
                self.assertIn(status, (200, 413))
            connection.close()
            after = stats(warden)["l1"]
            passes.append((after["hits"] - before["hits"], after["misses"] - before["misses"]))
            self.assertLessEqual(warden.memory("VmHWM") + after["bytes"], budget)
            evictions.add(after["evictions"])  # for residents, in the first pass
        held = after["bytes"] // SLAB
        self.assertGreater(slabs, held)
        self.assertEqual(passes[1], passes[2])
        self.assertGreater(passes[2][0], 0)
        self.assertEqual(len(evictions), 1)

    def test_budget_that_is_too_small(self):
        cluster = self.cluster(warden_memory=16 * MIB)
        done = cluster.run("layer-warden-0")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"warden_memory is 16 MiB", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
