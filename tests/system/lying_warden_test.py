#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wardens that lie, with the cluster's key in hand, to the stations and shards whose weights and rows they keep: what
they give is compared with the knot's hashes, they are named in the log, the store is read instead, and the text is that
of one process. Without a store the error names the warden, and the next request, to which it tells the truth, works.
PEERS=whole (`make peers`): every lie in every place, else some of them."""
import array
import contextlib
import fcntl
import functools
import json
import os
import random
import socket
import sqlite3
import struct
import sys
import threading
import time
import unittest

import _frames as frames
import _liar as lies
import _nodes as nodes
import _wardens
from _liar import Liar, Said, field
from _wardens import KNOT, MIB, MODEL, OTHER, FileServer, Knot, descriptors

WHOLE = os.environ.get("PEERS") == "whole"
REST_S = 5.2  # after which a warden that was gone is asked again
LINE_S = 1.05  # there is a line a second of it
BUDGET = 128 * MIB
PIECE = "<IBBHIIIIQQ8x"
NAME, TYPE, HASHED, FIRST, ROWS = 0, 1, 3, 6, 7  # places in a piece; its data are the last
F32 = 0


def some(table, count, seed):
    names = list(table)
    return names if WHOLE else random.Random(seed).sample(names, min(count, len(names)))


class LyingWarden(Liar):
    """Tells lies about what `only` has: "/tensors", "/knot?bytes", "/knot?size". `asked` is the path of the call;
    `has_all`: also where the warden itself has no answer."""
    has_all = False

    def say(self, path, status, answer):
        self.asked = path
        return super().say(path.partition("=")[0], 200 if self.has_all else status, answer)


# ---- Lies about tensors. The frame around them is as sound as can be.

def retell(change):
    """`change` gets the names and the pieces, [number of the name, .., rows, length, hash, data], and alters them."""
    def lie(answer, _):
        size, = struct.unpack_from("<I", answer, 8)
        count_names, count = struct.unpack_from("<II", answer, 56)
        names = [answer[64 + 64 * i:128 + 64 * i] for i in range(count_names)]
        pieces, end = [], 0
        for i in range(count):
            piece = list(struct.unpack_from(PIECE, answer, 64 + 64 * count_names + 48 * i))
            at = size + (end + 63) // 64 * 64
            pieces.append([*piece, answer[at:at + piece[8]]])
            end = at - size + piece[8]
        change(names, pieces)
        payload, table = b"", b""
        for p in pieces:
            payload = payload.ljust((len(payload) + 63) // 64 * 64, b"\0") + p[10]
            table += struct.pack(PIECE, *p[:8], len(p[10]), p[9])
        fields = answer[:40] + struct.pack("<Q8xII", len(payload), len(names), len(pieces))
        head = bytearray((fields + b"".join(names) + table).ljust(max(128, size), b"\0"))
        head = head.ljust((len(head) + 63) // 64 * 64, b"\0")
        struct.pack_into("<I", head, 8, len(head))
        return frames.seal(bytes(head)) + payload
    return lie


def fill(piece, data, **more):
    """Other bytes, and the hash of them."""
    piece[9], piece[10] = frames.xxh64(data), data
    for place, value in more.items():
        piece[{"first": FIRST, "rows": ROWS, "type": TYPE, "hashed": HASHED}[place]] = value


def smallest(names, pieces):
    """A matrix, since hashing is slow here."""
    return min((p for p in pieces if p[7] > 1), key=lambda p: len(p[10]))


def name_of(names, piece):
    return names[piece[NAME]].rstrip(b"\0").decode()


def elsewhere(name):
    """The same matrix of another layer."""
    _, layer, rest = name.split("_", 2)
    return f"blk_{(int(layer) + 7) % MODEL.layers}_{rest}"


def another_tensor(names, pieces):
    p = smallest(names, pieces)
    fill(p, KNOT.bytes(elsewhere(name_of(names, p))))


def another_knot(names, pieces):
    p = smallest(names, pieces)
    fill(p, p[10].translate(bytes(b ^ 1 for b in range(256))))


def another_name(names, pieces):
    p = smallest(names, pieces)
    other = elsewhere(name_of(names, p))
    fill(p, KNOT.bytes(other))
    names[p[NAME]] = other.encode().ljust(64, b"\0")


def shorter(names, pieces):
    p = smallest(names, pieces)
    fill(p, p[10][:len(p[10]) // p[ROWS] * (p[ROWS] - 16)], rows=p[ROWS] - 16, hashed=3)


def longer(names, pieces):
    p = smallest(names, pieces)
    fill(p, p[10] + p[10][:len(p[10]) // p[ROWS] * 16], rows=p[ROWS] + 16)


def later_rows(names, pieces):
    p = smallest(names, pieces)
    fill(p, p[10][len(p[10]) // p[ROWS] * 16:], first=16, rows=p[ROWS] - 16, hashed=3)


def another_order(names, pieces):
    pieces[0], pieces[1] = pieces[1], pieces[0]


def bytes_of_each_other(names, pieces):
    same = [p for p in pieces if p[5] == pieces[0][5] and len(p[10]) == len(pieces[0][10])]
    same[0][9:], same[1][9:] = same[1][9:], same[0][9:]


def one_less(names, pieces):
    pieces.pop()


def between(answer, _):
    """A byte that is not NUL between two pieces."""
    size, = struct.unpack_from("<I", answer, 8)
    count_names, = struct.unpack_from("<I", answer, 56)
    length, = struct.unpack_from("<Q", answer, 64 + 64 * count_names + 24)
    at = size + length
    return answer[:at] + b"x" + answer[at + 1:] if length % 64 else None


def partial(answer, _):
    """A part, as if it had been asked for."""
    return Said(answer, 206, headers={"Content-Range": f"bytes 1-{len(answer)}/{len(answer) + 1}"})


# name: (lie, a word of what is said about it)
ANY = {
    "a part": (partial, "206"),
    "no content": (lies.status(204), "204"),
    "elsewhere": (lies.status(302, Location="http://127.0.0.1:9/"), "302"),
    "teapot": (lies.status(418, b"short and stout"), "418"),
    "error of no shape": (lies.status(500, b'{"error":'), "500"),
    "another key": (lies.error(401, "key"), "so it says"),
    "another identity": (lies.error(409, "unsupported"), "so it says"),
    "lost": (lies.error(410, "session"), "so it says"),
    "not found": (lies.error(404, "not_found"), "so it says"),
    "nothing": (lies.cut(0), ""),
    "a byte less": (lies.cut(-1), ""),
    "a byte more": (lies.longer(1), ""),
    "megabytes more": (lies.longer(9 << 20), "room for"),
    "noise": (lies.noise, ""),
    "a page": (lambda a, b: b"<html>hello</html>", ""),
    "endless": (lies.endless, "arger"),
}
FRAME = {
    "another knot": (field(16, "<Q", lies.flip(1)), "knot"),
    "another numerics": (field(24, "<H", lies.add(1)), "numerics"),
    "another request": (field(32, "<Q", lies.add(1)), "request id"),
    "the answer before": (lies.older, "request id"),
    "seal": (lies.without_seal, ""),
    "payload of any size": (field(40, "<Q", lambda v: (1 << 64) - 1), ""),
    "one less": (retell(one_less), ""),
}
TENSORS = {
    "another tensor": (retell(another_tensor), "its bytes of blk_"),
    "another knot's tensor": (retell(another_knot), "its bytes of blk_"),
    "another name": (retell(another_name), "blk_"),
    "shorter": (retell(shorter), "blk_"),
    "longer": (retell(longer), "rows"),
    "later rows": (retell(later_rows), "blk_"),
    "another order": (retell(another_order), ""),
}
GONE = {  # it is not asked again for five seconds
    "half of it": (lies.hang_up, "broken off"),
    "endless head": (lies.endless_head, ""),
}


def values_of(row):
    return struct.pack(f"<{MODEL.hidden}f", *_wardens.Base.values(None, row))


def rows_as_float32(shift=0, change=None):
    """Each row as a cache has it, or the one so many further."""
    def alter(_, pieces):
        for p in pieces:
            data = values_of(p[FIRST] + shift)
            fill(p, change(data) if change else data, type=F32, hashed=3)
    return retell(alter)


def other_rows(_, pieces):
    for p in pieces:
        fill(p, KNOT.row(p[FIRST] + 1))


def rows_of_the_next(_, pieces):
    for p in pieces:
        fill(p, KNOT.row(p[FIRST] + 1), first=p[FIRST] + 1)


def first_row_only(_, pieces):
    for p in pieces[1:]:
        p[9:] = pieces[0][9:]


ROWS_OF = {
    "another row": (retell(other_rows), "its row"),
    "another row, and says so": (retell(rows_of_the_next), ""),
    "another row as float32": (rows_as_float32(1), "its float32 row"),
    "a number more": (rows_as_float32(0, lambda d: struct.pack("<f", 0.125) + d[4:]), "its float32 row"),
    "not a number": (rows_as_float32(0, lambda d: struct.pack("<f", float("nan")) + d[4:]), "its float32 row"),
    "one row for all": (retell(first_row_only), "its row"),
    "another order": (retell(another_order), ""),
}


class Base(unittest.TestCase):
    store = True
    model = MODEL
    said_at = 0

    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.files = cls.stack.enter_context(FileServer(cls.model.path.parent)) if cls.store else None
        cls.cluster = _wardens.Cluster(cls.model, node_store=cls.files.url if cls.store else "nowhere", memory=BUDGET)
        cls.stack.callback(cls.cluster.stop)
        file, layers, ids = cls.cluster.file, cls.model.layers, cls.model.vocabulary
        file["stations"][0]["range"], file["stations"][1]["range"] = "0-1", f"1-{layers}"
        file["shards"][0]["ids"], file["shards"][1]["ids"] = [0, 512], [512, ids]
        for layer, shard in zip(file["layer_wardens"], file["shard_wardens"]):
            layer["range"], shard["ids"] = "0-end", [0, ids]
        cls.cluster.write()
        cls.liars = {}
        for name in ("layer-warden-0", "shard-warden-0"):
            cls.liars[name] = cls.stack.enter_context(LyingWarden(cls.cluster.start(name)))
            cls.cluster.entry(name)["address"] = cls.liars[name].address
        cls.cluster.write()

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def lied_to(self, node, name, only, lie, word, act):
        """One thing that a node does while its warden lies; not in the same second as the one before."""
        time.sleep(max(0, self.said_at + LINE_S - time.monotonic()))
        liar, before = self.liars[name], len(node.errors())
        liar.only = only
        liar.tell(lie)
        try:
            out = act()
            self.assertGreater(liar.told, 0, "it said no lie")
        finally:
            liar.tell(None, 0)
        said = lambda: node.errors()[before:]  # noqa: E731
        if word is not None:
            self.assertTrue(nodes.wait_for(lambda: any(f"{name} is passed over" in line and word in line
                                                       for line in said().splitlines()), 5), (word, said()))
            self.said_at = time.monotonic()
        self.assertTrue(node.alive())
        self.assertLess(node.memory("VmHWM"), BUDGET)
        return out

    def configure(self, node, **value):
        return node.call("POST", "/configure", json.dumps({k.rstrip("_"): v for k, v in value.items()}).encode())


class Station(Base):
    def setUp(self):
        self.station, self.layers = self.cluster.without_file("station-0"), 1
        self.addCleanup(self.station.kill)

    def grow(self):
        """One layer more, which it has to fetch, and it has the knot's bytes of it."""
        self.layers += 1
        status, body = self.configure(self.station, range=f"0-{self.layers}")
        self.assertEqual(status, 200, body)
        with open(descriptors(self.station, "cobord-slice")[0], "rb") as f:
            for name, t in KNOT.tensors.items():
                if name.startswith(f"blk_{self.layers - 1}_"):
                    f.seek(KNOT.payload + t["offset"])
                    self.assertEqual(f.read(t["length"]), KNOT.bytes(name), name)

    def each(self, table, count, pause_s=0):
        for name in some(table, count, "tensors"):
            with self.subTest(lie=name):
                lie, word = table[name]
                self.lied_to(self.station, "layer-warden-0", ("/tensors",), lie, word, self.grow)
                time.sleep(pause_s)

    def test_frames(self):
        self.grow()
        self.each({**ANY, **FRAME}, 1)

    def test_tensors(self):
        self.each(TENSORS, 2)
        if WHOLE:
            self.each(GONE, 2, REST_S)
        asked = self.files.requests
        self.grow()
        self.assertEqual(self.files.requests, asked)  # the warden is believed again


class Shard(Base):
    ids = (7, 8, 300, 504)

    def setUp(self):
        self.shard, self.first = self.cluster.without_file("shard-0"), 0
        self.addCleanup(self.shard.kill)

    def rows(self, ids=ids):
        status, body = self.shard.call("POST", "/embed", frames.embed(self.model.id, [0, 512], self.model.hidden, ids))
        self.assertEqual(status, 200, body)
        self.assertEqual(frames.payload(body, frames.EMBED_ANSWER), b"".join(values_of(i) for i in ids))

    def move(self):
        """Other ids, whose rows of the head it has to fetch, in plain bytes."""
        self.first = (self.first + 1024) % 48128
        status, body = self.configure(self.shard, ids=[self.first, self.first + 512])
        self.assertEqual(status, 200, body)
        head = KNOT.tensors["output_weight"]
        row = head["length"] // head["shape"][0]
        with open(descriptors(self.shard, "cobord-slice")[0], "rb") as f:
            f.seek(KNOT.payload + head["offset"] + self.first * row)
            self.assertEqual(f.read(512 * row), KNOT.read(head["offset"] + self.first * row, 512 * row))

    def each(self, only, act, table, count):
        for name in some(table, count, only):
            with self.subTest(only=only, lie=name):
                lie, word = table[name]
                self.lied_to(self.shard, "shard-warden-0", (only,), lie, word, act)
                time.sleep(REST_S if WHOLE and (name in GONE or name == "drips") else 0)

    def test_rows(self):
        self.rows()
        # Two seconds, as of one that says nothing, then it is passed over.
        self.each("/tensors", self.rows, ROWS_OF, 3)
        self.each("/tensors", self.rows, {**ANY, **FRAME}, 2)
        asked = self.files.requests
        self.rows()
        self.assertEqual(self.files.requests, asked)
        self.each("/tensors", self.rows, {**GONE, "drips": (lies.drip, "too late")}, 1)

    def test_honest_float32(self):
        """What a cache keeps so is as good as the row: nobody is blamed, and the store is not asked."""
        said, asked = len(self.shard.errors()), self.files.requests
        self.lied_to(self.shard, "shard-warden-0", ("/tensors",), rows_as_float32(), None, self.rows)
        self.assertEqual((self.shard.errors()[said:], self.files.requests), ("", asked))

    def test_plain_bytes(self):
        liar = self.liars["shard-warden-0"]

        def shifted(answer, _):
            first, last = (int(x) for x in liar.asked.partition("=")[2].split("-"))
            return liar.node.call("GET", f"/knot?bytes={first + 1}-{last + 1}")[1]
        other = {"a byte further": (shifted, "its bytes"), "another block": (lambda a, b: a[::-1], "its bytes"),
                 "the range before": (lambda a, b: self.before, "")}
        self.before = liar.node.call("GET", "/knot?bytes=1000000-1300000")[1]
        self.move()
        self.each("/knot?bytes", self.move, other, 1)
        self.each("/knot?bytes", self.move, {**ANY, **(GONE if WHOLE else {})}, 1)
        asked = self.files.requests
        self.move()
        self.assertEqual(self.files.requests, asked)


def forged_header():
    """The knot's, but for its size: 2^25 tokens, whose rows have 256 MiB of hashes. With the payload's bytes."""
    header = json.loads(json.dumps(KNOT.header))
    rows = 1 << 25
    table = next(t for t in header["tensors"] if t["name"] == "token_embd_weight")
    at, row = table["offset"], table["length"] // table["shape"][0]
    table.update(shape=[rows, table["shape"][1]], length=rows * row)
    header["model"]["vocabulary"] = rows
    at += rows * row
    for name, length in (("tokenizer", header["tokenizer"]["length"]), ("embedding_row_hashes", 8 * rows),
                         ("tensor_hashes", 8 * len(header["tensors"])), ("block_hashes", 0)):
        at = (at + 63) // 64 * 64
        header[name] = {"offset": at, "length": length or 8 * ((at + (1 << 18) - 1) >> 18)}
        at += header[name]["length"]
    header["payload_bytes"] = at
    return header, at


class Start(Base):
    """Header and hash tables, which a node reads before it knows anything."""

    def start_with(self, only, lie, word=""):
        liar = self.liars["layer-warden-0"]
        liar.only = only
        liar.tell(lie)
        station = self.cluster.without_file("station-0")
        try:
            self.assertGreater(liar.told, 0)
            self.assertIn("layer-warden-0 is passed over", station.errors())
            self.assertIn(word, station.errors())
            self.assertLess(station.memory("VmHWM"), BUDGET)
        finally:
            liar.tell(None, 0)
            station.kill()

    def test_header_and_tables(self):
        table = {"a byte further": (lambda a, b: a[1:] + b"x", ""), "another knot": (self.renamed, "wanted is"),
                 "another order": (lambda a, b: a[::-1], ""), **ANY}
        for name in some(table, 2, "start"):
            with self.subTest(lie=name):
                self.start_with(("/knot?bytes",), *table[name])

    @staticmethod
    def renamed(answer, _):
        return answer.replace(MODEL.knot_id.encode(), OTHER.knot_id.encode())

    def test_size(self):
        size = MODEL.path.stat().st_size
        for said in some([b"0", b"1", b"-5", b"none", b"%d" % (size - 1), b"18446744073709551615"], 2, "size"):
            with self.subTest(size=said):
                self.start_with(("/knot?size",), lambda a, b, text=said: b'{"bytes":' + text + b"}")

    def test_tables_that_do_not_fit(self):
        """They would take more than the node's memory before their last byte shows that they are not the knot's."""
        header, payload = forged_header()
        text = json.dumps(header, separators=(",", ":")).encode()
        start = struct.pack("<4sHI", b"KNOT", 2, len(text)) + text
        payload_at = ((len(start) + 3 & ~3) + 1 + 4095) // 4096 * 4096
        liar = self.liars["layer-warden-0"]
        liar.has_all = True
        self.addCleanup(setattr, liar, "has_all", False)
        start = start.ljust(len(start) + 3 & ~3, b"\0") + b"\x40"

        def lie(answer, _):
            if "size" in liar.asked:
                return b'{"bytes":%d}' % (payload_at + payload)
            first, last = (int(x) for x in liar.asked.partition("=")[2].split("-"))
            return start[first:last + 1].ljust(last + 1 - first, b"\0")
        self.start_with(("/knot?size", "/knot?bytes"), lie, "memory has")


class Alone(Base):
    """There is no store behind the warden: an error that names it, and the next request works."""
    store = False

    def is_refused(self, node, name, only, lie, act):
        status, body = self.lied_to(node, name, only, lie, None, act)
        self.assertNotEqual(status, 200)
        self.assertIn(name, json.loads(body)["error"]["message"])

    def test_rows(self):
        shard = self.cluster.without_file("shard-0")
        self.addCleanup(shard.kill)
        body = frames.embed(self.model.id, [0, 512], self.model.hidden, Shard.ids)

        def embed():
            return shard.call("POST", "/embed", body)
        right = embed()
        self.assertEqual(right[0], 200)
        table = {**ROWS_OF, **ANY, **FRAME}
        for name in some(table, 6, "alone"):
            with self.subTest(lie=name):
                self.is_refused(shard, "shard-warden-0", ("/tensors",), table[name][0], embed)
                self.assertEqual(embed(), right)

    def test_tensors(self):
        """It is asked again for some seconds before it is given up."""
        station = self.cluster.without_file("station-0")
        self.addCleanup(station.kill)
        table = {**TENSORS, **ANY}

        def grow():
            return self.configure(station, range="0-2")
        for name in table if WHOLE else ["another key"]:
            with self.subTest(lie=name):
                lie = table[name][0]
                told = lambda a, b, lie=lie: lie(a, b) if a[:4] == b"AWFR" else a[::-1]  # noqa: E731
                self.is_refused(station, "layer-warden-0", ("/tensors", "/knot?bytes"), told, grow)
        self.assertEqual(grow()[0], 200)


class Large(Base):
    """Matrices that come alone, in tiles of up to 4 MiB, of a model that has some."""
    model = OTHER

    def test_another_layer(self):
        knot, station = Knot(OTHER), self.cluster.without_file("station-0")
        self.addCleanup(station.kill)
        large = next(t for t in knot.tensors.values() if t["name"] == "blk_1_ffn_up_weight")
        self.assertGreater(large["length"], 2 * MIB)

        def another_layer(names, pieces):
            if name_of(names, pieces[0]) == large["name"]:
                fill(pieces[0], knot.bytes("blk_2_ffn_up_weight"))

        def grow():
            status, body = self.configure(station, range="0-2")
            self.assertEqual(status, 200, body)
            with open(descriptors(station, "cobord-slice")[0], "rb") as f:
                f.seek(knot.payload + large["offset"])
                self.assertEqual(f.read(large["length"]), knot.bytes(large["name"]))
        said = f"its bytes of {large['name']}"
        self.lied_to(station, "layer-warden-0", ("/tensors",), retell(another_layer), said, grow)


class Everything(_wardens.Base):
    def test_text(self):
        """All wardens lie in half of their answers, each time in another way."""
        dice = random.Random(4)
        frame = [lie for lie, _ in {**ANY, **FRAME, **TENSORS, **ROWS_OF}.values() if lie is not lies.endless]
        plain = [lie for lie, _ in ANY.values() if lie is not lies.endless] + [lambda a, b: a[::-1]]

        def lie_of(liar, answer, before):
            if liar.told and dice.random() < 0.5:  # each says one, however few are asked of it
                return None
            with contextlib.suppress(ValueError, KeyError, IndexError, StopIteration):  # a lie about something else
                return dice.choice(frame if answer[:4] == b"AWFR" else plain)(answer, before)
            return None
        with FileServer(MODEL.path.parent) as store, contextlib.ExitStack() as stack:
            cluster = self.cluster(node_store=store.url)
            liars = [stack.enter_context(LyingWarden(w)) for w in cluster.wardens()]
            for liar in liars:
                cluster.entry(liar.node.id)["address"] = liar.address
                liar.only = ("/tensors", "/knot?bytes", "/knot?size")
                liar.tell(functools.partial(lie_of, liar))
            cluster.write()
            stations, shards = cluster.all_without_file()
            self.text_is_right(stations, shards)
            for node in stations + shards:
                self.assertIn("is passed over", node.errors())
            for liar in liars:
                liar.tell(None, 0)
            self.text_is_right(stations, shards, session=2)

    def test_rows_swapped_in_a_cache(self):
        """Values that are right, each under the other's key: the shard finds what the warden cannot."""
        cluster = self.cluster(shard={"cache": "sqlite:rows.db"})
        warden = cluster.start("shard-warden-0")
        self.row(warden, 7, 8)
        _wardens.wait_for("rows to be written", lambda: _wardens.stats(warden)["rows_l2"]["writes"] == 2)
        self.assertEqual(warden.kill(15), 0)
        with contextlib.closing(sqlite3.connect(cluster.folder_path / "rows.db")) as base:
            (one, a), (two, b) = base.execute("SELECT key, value FROM entries").fetchall()
            base.executemany("UPDATE entries SET value = ? WHERE key = ?", [(b, one), (a, two)])
            base.commit()
        warden = cluster.start("shard-warden-0")
        self.assertEqual([p[5] for p in self.row(warden, 7)], [values_of(8)])
        warden.kill()
        with FileServer(MODEL.path.parent) as store:
            cluster.node_store = store.url
            cluster.write()
            warden = cluster.start("shard-warden-0")
            shard = cluster.without_file("shard-0")
            ids = cluster.entry("shard-0")["ids"]
            status, body = shard.call("POST", "/embed", frames.embed(MODEL.id, ids, MODEL.hidden, [7, 8]))
            self.assertEqual(status, 200, body)
            self.assertEqual(frames.payload(body, frames.EMBED_ANSWER), values_of(7) + values_of(8))
            self.assertIn("shard-warden-0 is passed over: its float32 row", shard.errors())
            right = [KNOT.row(7), KNOT.row(8)]
            _wardens.wait_for("rows to be right", lambda: [p[5] for p in self.row(warden, 7, 8)] == right)

    def test_memory_with_another_header(self):
        """Shared memory that is sealed and has the knot's bytes, in which two matrices have each other's names."""
        cluster = self.cluster()
        cluster.wardens()
        cluster.file["layer_wardens"][0]["socket"] = "w.sock"
        cluster.write()
        one, two, place = (b'"blk_0_attn_%s_weight"' % x for x in (b"k", b"v", b"?"))
        whole = MODEL.path.read_bytes()
        head = whole[:KNOT.payload].replace(one, place).replace(two, one).replace(place, two)
        self.assertNotEqual(head, whole[:KNOT.payload])
        memory = os.memfd_create("lie", os.MFD_ALLOW_SEALING)
        os.write(memory, head)
        self.assertEqual(sum(os.write(memory, whole[at:at + (64 << 20)])
                             for at in range(KNOT.payload, len(whole), 64 << 20)), len(whole) - KNOT.payload)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(str(cluster.folder_path / "w.sock"))
            door.listen()

            def answer():
                line, _ = door.accept()
                with line:
                    line.recv(4096)
                    line.sendmsg([struct.pack("<4sHH", b"COBS", 1, 2)],
                                 [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [memory]))])
            teller = threading.Thread(target=answer, daemon=True)
            teller.start()
            stations = [cluster.without_file("station-0")]
            teller.join(5)
        os.close(memory)
        self.assertIn("no memory is shared with layer-warden-0: the warden shares another knot", stations[0].errors())
        stations.append(cluster.without_file("station-1"))
        self.text_is_right(stations, [cluster.without_file(f"shard-{i}") for i in range(2)])


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
