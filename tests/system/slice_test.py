#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Nodes without the file: slices in memory and on disk, wardens that lie, die and freeze, stores that are elsewhere,
and memory that warden and station share."""
import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import unittest

import _nodes as nodes
import _servers as servers
from _nodes import KEY
from _wardens import (ATTN, IDS, KNOT, MIB, MODEL, OTHER, Base, FileServer, Liar, descriptors, solo, stats,
                      wait_for)


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
        time.sleep(1.2)  # what takes longer than a second leaves a line
        said = shards[1].errors()
        shards[1].kill(signal.SIGTERM)
        self.assertNotIn("slice ", shards[1].errors()[len(said):])  # not one of how long the node has lived
        shards[1] = cluster.without_file("shard-1")
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
                for liar, word in zip(liars, ("/invalidate/blk_", "/invalidate/blk_", "/invalidate/504")):
                    wait_for(f"{word} of bad bytes", lambda: any(x.startswith(word) for x in liar.posts))

    def test_coordinator(self):
        """Nobody but the wardens has the file: the tokenizer comes from one of them."""
        cluster = self.cluster()
        wardens = cluster.wardens()
        cluster.all_without_file()
        coordinator = cluster.without_file("coordinator-0")
        self.assertFalse(descriptors(coordinator, ".knot"))
        prompt = "The capital of France is"
        ids = json.loads(nodes.support.must("tokenize", MODEL.path, "--json-lines",
                                            stdin=json.dumps({"text": prompt}).encode()))["ids"]
        right = solo(ids, 6)
        line = json.dumps({"ids": right}).encode()
        text = json.loads(nodes.support.must("detokenize", MODEL.path, stdin=line))["text"]
        self.assertEqual(self.complete(coordinator, prompt, 6), text)
        self.assertGreater(stats(wardens[0])["l1"]["hits"], 0)

    def complete(self, coordinator, prompt, count):
        body = {"model": "any", "prompt": prompt, "max_tokens": count, "temperature": 0}
        status, answer = coordinator.call("POST", "/v1/completions", json.dumps(body),
                                          headers={"Content-Type": "application/json"})
        self.assertEqual(status, 200, answer)
        return json.loads(answer)["choices"][0]["text"]

    def test_store_alone(self):
        """No wardens at all: nodes read the store, a shard its embedding rows too."""
        with FileServer(MODEL.path.parent) as store:
            cluster = self.cluster(node_store=store.url)
            for node in cluster.file["stations"] + cluster.file["shards"]:
                del node["warden"]
            cluster.file["layer_wardens"], cluster.file["shard_wardens"] = [], []
            cluster.write()
            stations, shards = cluster.all_without_file()
            self.text_is_right(stations, shards)
        self.text_is_right(stations, shards, session=2)  # nothing is asked for any more

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


class Shared(Base):
    """A store that is elsewhere, and one machine's memory for warden and station."""

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
            self.assertTrue(fcntl.fcntl(fd, 1034) & 8)
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


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
