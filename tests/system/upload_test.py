#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Uploads in parts to a real S3 gateway: interrupted, resumed, broken on their way, refused. Nothing is ever under the
final name but the whole file.

The program under test is store_probe (tests/system/tools): a thin hand on the interface.
"""
import hashlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import _servers

PROBE = os.path.abspath(os.environ.get("STORE_PROBE", "build/tests/store_probe"))
PART = 8 << 20
BYTES = 6 * PART + 12345
AT_ONCE = 4
IO, KEY, NOT_FOUND, USAGE, CANCELLED, UNREACHABLE = 3, 118, 112, 100, 201, 202
SECRET_NAMES = ("AWS_", "COBORD_", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "no_proxy")


class Wire(threading.Thread):
    """Between the program and the store: passes bytes on, and does harm. `harm(number, sent)` is asked before each
    piece of connection `number` goes to the store: None passes it on, "cut" ends the connection, "flip" changes it."""

    def __init__(self, port, harm):
        super().__init__(daemon=True)
        self.store, self.harm = port, harm
        self.door = socket.create_server(("127.0.0.1", 0))
        self.port = self.door.getsockname()[1]
        self.count = 0
        self.stopped = threading.Event()
        self.start()

    def run(self):
        while not self.stopped.is_set():
            try:
                client, _ = self.door.accept()
            except OSError:
                return
            self.count += 1
            threading.Thread(target=self.connect, args=(client, self.count), daemon=True).start()

    def connect(self, client, number):
        with client, socket.create_connection(("127.0.0.1", self.store)) as store:
            back = threading.Thread(target=self.down, args=(store, client), daemon=True)
            back.start()
            try:
                self.up(client, store, number)
            except OSError:
                pass
            for s in (client, store):
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
            back.join()

    def up(self, client, store, number):
        sent = 0
        while piece := client.recv(1 << 16):
            what = self.harm(number, sent)
            if what == "cut":
                return
            if what == "flip":
                piece = piece[:-1] + bytes([piece[-1] ^ 1])
            store.sendall(piece)
            sent += len(piece)

    @staticmethod
    def down(store, client):
        try:
            while piece := store.recv(1 << 16):
                client.sendall(piece)
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def stop(self):
        self.stopped.set()
        self.door.close()


class Upload(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.content = random.Random(11).randbytes(BYTES)

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="cobord-upload-")
        self.addCleanup(shutil.rmtree, self.folder)
        os.makedirs(os.path.join(self.folder, "store", "models"))
        self.path = os.path.join(self.folder, "model.knot")
        self.write(self.content)
        sidecar = os.path.join(self.folder, "sidecar")
        os.makedirs(sidecar)
        self.server = _servers.start_s3(os.path.join(self.folder, "store"), sidecar=sidecar)
        self.addCleanup(self.server.stop)

    def write(self, content):
        with open(self.path, "wb") as f:
            f.write(content)

    def start(self, where="s3://models/model.knot", port=None, **environment):
        env = {k: v for k, v in os.environ.items() if not k.startswith(SECRET_NAMES)}
        env.update(self.server.environment)
        if port:
            env["COBORD_S3_ENDPOINT"] = f"http://127.0.0.1:{port}"
        env.update(environment)
        return subprocess.Popen([PROBE, "upload", where, self.path], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=env)

    def upload(self, *arguments, **environment):
        """(bytes, found, parts, retries), or (error, its words)."""
        p = self.start(*arguments, **environment)
        out, _ = p.communicate(timeout=120)
        words = out.split()
        if words and words[0] == "ok":
            return tuple(map(int, words[1:]))
        self.assertEqual(words[:1], ["error"], out)
        return int(words[1]), " ".join(words[2:])

    def wire(self, harm):
        wire = Wire(self.server.port, harm)
        self.addCleanup(wire.stop)
        return wire

    @property
    def stored(self):
        return os.path.join(self.folder, "store", "models", "model.knot")

    def arrived(self, content=None):
        with open(self.stored, "rb") as f:
            self.assertEqual(hashlib.sha256(f.read()).digest(), hashlib.sha256(content or self.content).digest())

    def hidden(self):
        self.assertFalse(os.path.exists(self.stored), "something is under the final name")

    def held(self, whole):
        """(an upload, what lets it go on). So many parts are whole, each on a connection of its own; of the parts that
        come after them on a connection, and of those on the other connections, half has arrived."""
        go, lock, rests = threading.Event(), threading.Lock(), {}
        self.addCleanup(go.set)
        resting = set()

        def harm(number, sent):
            with lock:
                if sent > PART // 2:
                    rests.setdefault(number, PART + PART // 2 if len(rests) < whole else PART // 2)
            if sent > rests.get(number, BYTES):
                resting.add(number)
                go.wait(60)
        p = self.start(port=self.wire(harm).port)
        end = time.monotonic() + 60
        while len(resting) < min(AT_ONCE, BYTES // PART - whole):
            self.hidden()
            self.assertIsNone(p.poll())
            self.assertLess(time.monotonic(), end, resting)
            time.sleep(0.01)
        return p, go

    def interrupt(self, whole):
        p, _ = self.held(whole)
        time.sleep(0.5)  # what has arrived is put away
        p.kill()
        p.communicate()

    def test_whole(self):
        p = self.start()
        out, progress = p.communicate(timeout=120)
        self.assertEqual(out.split(), ["ok", str(BYTES), "0", "7", "0"])
        self.arrived()
        steps = [tuple(map(int, line.split()[1:])) for line in progress.splitlines()]
        self.assertEqual({total for _, total in steps}, {BYTES})
        self.assertEqual(sorted(steps), steps)  # never backwards
        self.assertGreater(len(steps), 3)

    def test_sizes(self):
        for count in (1, PART - 1, PART, PART + 1):
            self.write(self.content[:count])
            self.assertEqual(self.upload(), (count, 0, (count + PART - 1) // PART, 0))
            self.arrived(self.content[:count])
        self.write(b"")
        self.assertEqual(self.upload()[0], USAGE)

    def test_killed_and_resumed(self):
        self.interrupt(3)
        self.hidden()
        bytes_, found, parts, _ = self.upload()
        self.assertEqual((bytes_, parts), (BYTES, 7))
        self.assertGreaterEqual(found, PART)
        self.arrived()

    def test_interrupted_politely(self):
        p, _ = self.held(2)
        time.sleep(0.5)  # what has arrived is put away
        p.send_signal(signal.SIGINT)
        out, _ = p.communicate(timeout=30)
        self.assertEqual(out.split()[:2], ["error", str(CANCELLED)])
        self.hidden()
        self.assertGreaterEqual(self.upload()[1], PART)
        self.arrived()

    def test_another_file_under_the_name(self):
        """Parts of what was there before do not get into the new one."""
        self.interrupt(4)
        other = bytearray(self.content)
        other[PART + 5] ^= 1
        other = bytes(other[:BYTES - 100])
        self.write(other)
        self.upload()
        self.arrived(other)
        self.write(self.content)
        self.assertEqual(self.upload()[1], 0)  # what was completed is no part of this
        self.arrived()

    def test_broken_connections(self):
        """Each connection's first megabytes arrive, then it breaks; later ones are fine."""
        wire = self.wire(lambda number, sent: "cut" if 1 < number < 6 and sent > (3 << 20) else None)
        bytes_, _, _, retries = self.upload("s3://models/model.knot", wire.port)
        self.assertEqual(bytes_, BYTES)
        self.assertGreaterEqual(retries, 1)
        self.arrived()

    def test_bytes_change_on_their_way(self):
        """The store finds out by the signature, and the part is sent again."""
        flipped = []

        def harm(number, sent):
            if sent > (2 << 20) and number not in flipped and len(flipped) < 3:
                flipped.append(number)
                return "flip"
            return None

        wire = self.wire(harm)
        result = self.upload("s3://models/model.knot", wire.port)
        self.assertEqual(result[0], BYTES, result)
        self.assertGreaterEqual(result[3], len(flipped))
        self.assertTrue(flipped)
        self.arrived()

    def test_store_restarts(self):
        p, go = self.held(1)
        self.server.kill()
        time.sleep(0.3)
        self.hidden()
        self.server.start()
        go.set()
        out, _ = p.communicate(timeout=60)
        self.assertEqual(out.split()[:2], ["ok", str(BYTES)], out)
        self.arrived()

    def test_store_is_gone(self):
        self.server.kill()
        error, words = self.upload()
        self.assertEqual(error, UNREACHABLE)
        self.assertIn("s3://models/model.knot", words)

    def test_refused(self):
        for wrong in ({"AWS_SECRET_ACCESS_KEY": "not-the-secret"}, {"AWS_ACCESS_KEY_ID": "nobody"}):
            error, words = self.upload(**wrong)
            self.assertEqual(error, KEY, words)
            self.assertIn("AWS_ACCESS_KEY_ID", words)
            self.assertNotIn("not-the-secret", words)
        error, words = self.upload("s3://nobucket/model.knot")
        self.assertEqual(error, NOT_FOUND)
        self.assertIn("NoSuchBucket", words)
        self.hidden()
        for bad in ("s3://models", "s3://models/", "models/model.knot"):
            self.assertEqual(self.upload(bad)[0], USAGE)

    def test_two_at_once(self):
        """Of the same file: whoever is later finds it whole, or completes it once more."""
        both = [self.start() for _ in range(2)]
        codes = [p.communicate(timeout=120)[0].split()[0] for p in both]
        self.assertIn("ok", codes)
        self.arrived()


if __name__ == "__main__":
    unittest.main(verbosity=2)
