#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stores and caches of rows against real servers: an S3 gateway, Redis, SQLite files that several processes share.

The program under test is store_probe (tests/system/tools): a thin hand on the two interfaces.
"""
import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import _ports
import _servers
from _late import TooLate, in_time

COBORD = os.path.abspath(os.environ.get("COBORD", "build/cobord"))
PROBE = os.path.abspath(os.environ.get("STORE_PROBE", "build/tests/store_probe"))
NOT_FOUND, UNREACHABLE, KEY, TRUNCATED = 112, 202, 118, 102
DAY = 24 * 60 * 60
HIDDEN = 1536
VALUE_BYTES = HIDDEN * 4 + 8
SECRET_NAMES = ("AWS_", "COBORD_", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "no_proxy")


class ProbeError(Exception):
    def __init__(self, number, words):
        super().__init__(f"{number}: {words}")
        self.number = number
        self.words = words


class Probe:
    def __init__(self, *arguments, environment=None):
        env = {k: v for k, v in os.environ.items() if not k.startswith(SECRET_NAMES)}
        env.update(environment or {})
        self.log = tempfile.TemporaryFile("a+")
        self.process = subprocess.Popen([PROBE, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log, env=env)

    def say(self, *words):
        try:
            self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            raise AssertionError(f"the probe ended, {self.process.wait(10)}: {self.errors()}") from None
        answer = self.process.stdout.readline().decode().split()
        if not answer:
            raise AssertionError(f"the probe ended: {self.errors()}")
        if answer[0] == "error":
            raise ProbeError(int(answer[1]), " ".join(answer[2:]))
        return answer[1:]

    def read(self, name, offset, count):
        bytes_ = int(self.say("read", name, offset, count)[0])
        return self.process.stdout.read(bytes_)

    def size(self, name):
        return int(self.say("size", name)[0])

    def get(self, *rows):
        return [int(x) for x in self.say("get", *rows)]

    def counters(self):
        return [int(x) for x in self.say("counters")]

    def put(self, *rows):
        for row in rows:
            self.say("put", row)
        self.say("settle")

    def errors(self):
        self.log.seek(0)
        return self.log.read()

    def close(self):
        self.process.stdin.close()
        code = self.process.wait(timeout=60)
        self.process.stdout.close()
        self.log.close()
        return code

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.close() != 0 and not kind:
            raise AssertionError("the probe failed")


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="cobord-store-")
        self.addCleanup(shutil.rmtree, self.folder)


class S3(Folder):
    def setUp(self):
        super().setUp()
        self.content = random.Random(7).randbytes((9 << 20) + 123)
        self.name = "model one+two%.knot"  # all that an address escapes
        os.makedirs(os.path.join(self.folder, "models", "sub"))
        self.place("models/sub/" + "x.knot", self.content)
        self.place("models/empty", b"")
        self.place("models/sub/" + self.name.replace(" ", "_"), b"abc")
        self.server = _servers.start_s3(self.folder)
        self.addCleanup(self.server.stop)

    def place(self, path, content):
        with open(os.path.join(self.folder, path), "wb") as f:
            f.write(content)

    def probe(self, where="s3://models/sub", **environment):
        return Probe("store", where, environment={**self.server.environment, **environment})

    def test_ranges_equal_the_file(self):
        n = len(self.content)
        with self.probe() as p:
            self.assertEqual(p.size("x.knot"), n)
            chosen = random.Random(3)
            ranges = [(0, 1), (n - 1, 1), (0, n), (4096, 4096), (1, 8 << 20), (0, 0)]
            ranges += [(a := chosen.randrange(n), chosen.randrange(min(n - a, 100000)) + 1) for _ in range(40)]
            for offset, count in ranges:
                self.assertEqual(p.read("x.knot", offset, count), self.content[offset:offset + count], (offset, count))
            self.assertEqual(p.read("model_one+two%.knot", 0, 3), b"abc")
            reads, bytes_, retries, failures = p.counters()
            self.assertEqual((reads, retries, failures), (46, 0, 0))
        with self.probe("s3://models") as p:
            self.assertEqual(p.read("sub/x.knot", 77, 1000), self.content[77:1077])
            self.assertEqual(p.size("empty"), 0)

    def test_connections_are_kept(self):
        with self.probe() as p:
            for i in range(50):
                p.read("x.knot", i * 1000, 500)
            own = [line for line in connections(p.process.pid) if line.endswith(f":{self.server.port}")]
            self.assertEqual(len(own), 1, own)

    def test_missing(self):
        with self.probe() as p:
            for name in ("nothing.knot", "x.knot.bak"):
                with self.assertRaises(ProbeError) as caught:
                    p.read(name, 0, 4)
                self.assertEqual(caught.exception.number, NOT_FOUND)
                self.assertIn(f"s3://models/sub/{name}", caught.exception.words)
                with self.assertRaises(ProbeError) as caught:
                    p.size(name)
                self.assertEqual(caught.exception.number, NOT_FOUND)
            with self.assertRaises(ProbeError) as caught:
                p.read("x.knot", len(self.content) - 10, 11)
            self.assertEqual(caught.exception.number, TRUNCATED)
            with self.assertRaises(ProbeError) as caught:
                p.read("x.knot", len(self.content), 1)
            self.assertEqual(caught.exception.number, TRUNCATED)
            self.assertEqual(p.counters()[2], 0)  # nothing of this was tried twice
        with self.probe("s3://nobucket") as p:
            with self.assertRaises(ProbeError) as caught:
                p.size("x")
            self.assertEqual(caught.exception.number, NOT_FOUND)

    def test_wrong_keys(self):
        wrong = [{"AWS_SECRET_ACCESS_KEY": "not-the-secret"}, {"AWS_ACCESS_KEY_ID": "nobody"},
                 {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}]
        for environment in wrong:
            with self.probe(**environment) as p:
                for call in (lambda: p.size("x.knot"), lambda: p.read("x.knot", 0, 100000)):
                    with self.assertRaises(ProbeError) as caught:
                        call()
                    self.assertEqual(caught.exception.number, KEY, caught.exception)
                    self.assertNotIn("not-the-secret", caught.exception.words)
                self.assertNotIn("not-the-secret", p.errors())

    def test_proxies_are_not_asked(self):
        nobody = f"http://127.0.0.1:{_ports.free_port()}"
        with self.probe(http_proxy=nobody, HTTP_PROXY=nobody, ALL_PROXY=nobody) as p:
            self.assertEqual(p.read("x.knot", 5, 10), self.content[5:15])

    def test_dead_and_back(self):
        with self.probe() as p:
            self.assertEqual(p.read("x.knot", 0, 100), self.content[:100])
            self.server.kill()
            start = time.time()
            with self.assertRaises(ProbeError) as caught:
                p.read("x.knot", 0, 100)
            self.assertEqual(caught.exception.number, UNREACHABLE)
            self.assertGreater(time.time() - start, 3)  # 100 + 200 + .. + 1600 ms
            self.assertLess(time.time() - start, 20)
            self.assertEqual(p.counters()[2:], [5, 1])
            self.server.restart()
            self.assertEqual(p.read("x.knot", 9, 100), self.content[9:109])

    def test_a_restart_costs_retries_only(self):
        with self.probe() as p:
            p.read("x.knot", 0, 100)
            self.server.kill()
            back = threading.Timer(0.6, self.server.start)
            back.start()
            n = len(self.content)
            self.assertEqual(p.read("x.knot", 0, n), self.content)
            back.join()
            self.assertGreaterEqual(p.counters()[2], 1)
            self.assertEqual(p.counters()[3], 0)

    def test_killed_in_the_midst_of_reads(self):
        with self.probe() as p:
            p.read("x.knot", 0, 10)
            for _ in range(4):
                troubles = threading.Timer(random.random() * 0.02, self.server.restart)
                troubles.start()
                for _ in range(3):
                    self.assertEqual(p.read("x.knot", 0, len(self.content)), self.content)
                troubles.join()
            self.assertEqual(p.counters()[3], 0)


@unittest.skipUnless(shutil.which("openssl"), "no openssl program to make a certificate with")
class S3OverTls(Folder):
    def setUp(self):
        super().setUp()
        certificate, key = (os.path.join(self.folder, name) for name in ("my certificate.pem", "key.pem"))
        self.certificate = certificate, key
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                        "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-out", certificate,
                        "-keyout", key], check=True, capture_output=True)
        os.makedirs(os.path.join(self.folder, "s3", "models"))
        with open(os.path.join(self.folder, "s3", "models", "x"), "wb") as f:
            f.write(b"0123456789" * 1000)
        self.server = _servers.start_s3(os.path.join(self.folder, "s3"), self.certificate)
        self.addCleanup(self.server.stop)

    def test_trusted_and_not(self):
        environment = {**self.server.environment, "AWS_CA_BUNDLE": self.certificate[0]}
        with Probe("store", "s3://models", environment=environment) as p:
            self.assertEqual(p.read("x", 5, 5000), (b"0123456789" * 1000)[5:5005])
        with Probe("store", "s3://models", environment=self.server.environment) as p:
            with self.assertRaises(ProbeError) as caught:
                p.read("x", 5, 5000)
            self.assertEqual(caught.exception.number, UNREACHABLE)
            self.assertIn("not trusted", caught.exception.words)


def connections(pid):
    """The far ends of the TCP connections of a process."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            link = os.readlink(f"/proc/{pid}/fd/{fd}")
            if link.startswith("socket:["):
                inodes.add(link[8:-1])
    with open(f"/proc/{pid}/net/tcp", encoding="ascii") as f:
        lines = [line.split() for line in f.readlines()[1:]]
    return [f"{line[2].split(':')[0]}:{int(line[2].split(':')[1], 16)}" for line in lines if line[9] in inodes]


class Pull(Folder):
    """cobord pull s3://BUCKET/KEY"""

    def setUp(self):
        super().setUp()
        os.makedirs(os.path.join(self.folder, "s3", "models"))
        self.server = _servers.start_s3(os.path.join(self.folder, "s3"))
        self.addCleanup(self.server.stop)

    def make(self, name, shape):
        path = os.path.join(self.folder, "s3", "models", name)
        subprocess.run([COBORD, "synth", "--shape", shape, "--seed", "1", "-o", path], check=True, capture_output=True)
        with open(path, "rb") as f:
            return f.read()

    def start(self, model, **environment):
        env = {k: v for k, v in os.environ.items() if not k.startswith(SECRET_NAMES)}
        env.update(self.server.environment, COBORD_CACHE=os.path.join(self.folder, "cache"))
        env.update(environment, XDG_CONFIG_HOME="/nonexistent")
        return subprocess.Popen([COBORD, "pull", model], env=env, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT)

    def pull(self, model, **environment):
        p = self.start(model, **environment)
        text = p.communicate(timeout=300)[0]
        return p.returncode, text

    def models(self, end):
        found = []
        for folder, _, names in os.walk(os.path.join(self.folder, "cache", "models")):
            found += [os.path.join(folder, n) for n in names if n.endswith(end)]
        return found

    def arrived(self, content):
        with open(self.models(".knot")[0], "rb") as f:
            self.assertEqual(f.read(), content)

    def begun(self, model, content):
        """A pull of which some is there, and whose server is frozen."""
        def some():
            return any(os.path.getsize(f) > 1 << 20 for f in self.models("model.gguf"))
        p = self.start(model)
        self.assertTrue(within(60, lambda: p.poll() is not None or some(), 0.001), "nothing comes")
        self.server.freeze()
        if p.poll() is None:
            return p
        self.server.thaw()
        self.assertEqual(p.returncode, 0, p.communicate()[0])
        self.arrived(content)
        shutil.rmtree(os.path.join(self.folder, "cache"))
        raise TooLate("the pull was faster than this test")

    def test_a_knot(self):
        content = self.make("my test.knot", "test")
        code, text = self.pull("s3://models/my test.knot")
        self.assertEqual(code, 0, text)
        self.arrived(content)

    def test_what_goes_wrong(self):
        self.make("x.knot", "test")
        for model, environment, words in (
                ("s3://models/y.knot", {}, "404"),
                ("s3://nobucket/x.knot", {}, "404"),
                ("s3://models/x.knot", {"AWS_SECRET_ACCESS_KEY": "wrong-secret"}, "Check AWS_ACCESS_KEY_ID"),
                ("s3://models/x.knot", {"AWS_SECRET_ACCESS_KEY": ""}, "AWS_SECRET_ACCESS_KEY is not"),
                ("s3://models/x.knot", {"COBORD_S3_ENDPOINT": "nowhere"}, "COBORD_S3_ENDPOINT must be"),
                ("s3://models", {}, "s3://BUCKET/KEY"),
                ("s3://m/x.knot", {}, "s3://BUCKET/KEY")):
            code, text = self.pull(model, **environment)
            self.assertIn(code, (1, 2), text)
            self.assertIn(words, text)
            self.assertNotIn("wrong-secret", text)
        self.assertEqual(self.models(".knot"), [])

    def test_stopped_and_resumed(self):
        content = self.make("big.knot", "smollm2-135m")
        p = in_time(lambda: self.begun("s3://models/big.knot", content), 5)
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=60)
        self.assertEqual(p.returncode, 130)
        had = os.path.getsize(self.models("model.gguf")[0])
        self.assertGreater(had, 1 << 20)
        self.server.thaw()
        code, text = self.pull("s3://models/big.knot")
        self.assertEqual(code, 0, text)
        self.arrived(content)


class Redis(unittest.TestCase):
    password = None

    def setUp(self):
        self.server = _servers.start_redis(self.password)
        self.addCleanup(self.server.stop)

    def probe(self, where=None, **environment):
        return Probe("rows", where or self.server.url, str(HIDDEN),
                     environment={**self.server.environment, **environment})

    @staticmethod
    def key(row):
        return f"cobord:row:{0x1234:016x}:{row}"

    def test_rows_come_back_and_expire(self):
        with self.probe() as p:
            rows = list(range(0, 3000, 5))  # more than one batch
            p.put(*rows)
            self.assertEqual(p.get(*range(600)), [int(x % 5 == 0) for x in range(600)])
            self.assertEqual(p.counters(), [120, 480, 0, 600, 0])
        ttl = self.server.command("TTL", self.key(5))
        self.assertTrue(DAY - 60 < ttl <= DAY, ttl)
        self.assertEqual(len(self.server.command("GET", self.key(5))), VALUE_BYTES)
        self.assertEqual(self.server.command("DBSIZE"), 600)
        self.server.command("PEXPIRE", self.key(5), 1)
        time.sleep(0.05)
        with self.probe() as p:
            self.assertEqual(p.get(0, 5, 10), [1, 0, 1])

    def test_bad_values_are_deleted_later(self):
        with self.probe() as p:
            p.put(*range(10))
            good = self.server.command("GET", self.key(1))
            harm = {
                1: good[:-1], 2: good + b"x", 3: bytes(VALUE_BYTES), 4: good[:50] + bytes([good[50] ^ 1]) + good[51:],
                5: b"x", 6: os.urandom(50 << 20)}  # and 0, 7 are left alone
            for row, value in harm.items():
                self.server.command("SET", self.key(row), value)
            self.server.command("DEL", self.key(8), self.key(9))
            self.server.command("LPUSH", self.key(8), "a list")
            peak = peak_bytes(p.process.pid)
            self.assertEqual(p.get(*range(10)), [1, 0, 0, 0, 0, 0, 0, 1, 0, 0])
            self.assertLess(peak_bytes(p.process.pid) - peak, 4 << 20)  # the 50 MB stay where they are
            self.assertEqual(p.counters(), [2, 8, 7, 10, 0])
            self.assertEqual(self.server.command("DBSIZE"), 9)  # the deletion does not delay the answer
            p.say("settle")
            self.assertEqual(self.server.command("DBSIZE"), 2)
            self.assertEqual(p.get(*range(10)), [1, 0, 0, 0, 0, 0, 0, 1, 0, 0])
            self.assertEqual(p.counters()[2], 7)
            p.put(1)
            self.assertEqual(p.get(1), [1])

    def test_databases(self):
        with self.probe(self.server.url + "/3") as p:
            p.put(7)
        with self.probe() as p:
            self.assertEqual(p.get(7), [0])
        with self.probe(self.server.url + "/3") as p:
            self.assertEqual(p.get(7), [1])
        with self.probe(self.server.url + "/999") as p:
            self.assertEqual(p.get(7), [0])
            self.assertIn("SELECT was refused", p.errors())

    def test_dead_frozen_and_back(self):
        with self.probe() as p:
            p.put(1)
            self.server.restart()  # and is empty
            self.assertEqual(p.get(1), [0])
            self.assertEqual(p.counters()[4], 0)  # a restart in between is not even a failure
            p.put(1)
            self.assertEqual(p.get(1), [1])
            self.server.freeze()
            start = time.time()
            self.assertEqual(p.get(1), [0])
            self.assertLess(time.time() - start, 2)
            self.assertEqual(p.get(*range(100)), [0] * 100)
            self.assertLess(time.time() - start, 2)  # not asked again at once
            self.server.thaw()
            self.assertTrue(within(10, lambda: p.get(1) == [1]))
            self.server.kill()
            start = time.time()
            for _ in range(100):
                self.assertEqual(p.get(1), [0])
            p.put(2)
            self.assertLess(time.time() - start, 2)
            self.assertGreaterEqual(p.counters()[4], 101)
            self.assertEqual(p.errors().count("\n"), 1)  # a warning a minute
            self.server.start()
            self.assertTrue(within(10, lambda: p.put(3) or p.get(3) == [1]))


class RedisWithPassword(Redis):
    password = "a b-secret"

    def test_wrong_password(self):
        for wrong in ("wrong-secret", ""):
            with self.probe(COBORD_REDIS_PASSWORD=wrong) as p:
                p.put(1)
                self.assertEqual(p.get(1), [0])
                self.assertNotIn("secret", p.errors())
                self.assertRegex(p.errors(), "AUTH was refused: WRONGPASS|NOAUTH")


def within(seconds, condition, pause=0.05):
    end = time.time() + seconds
    while time.time() < end:
        if condition():
            return True
        time.sleep(pause)
    return False


def peak_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM"))


class Sqlite(Folder):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.folder, "rows.sqlite")

    def probe(self):
        return Probe("rows", "sqlite:" + self.path, str(HIDDEN))

    def test_several_processes(self):
        probes = [self.probe() for _ in range(4)]

        def work(p, first):
            for row in range(first, first + 400, 40):
                p.put(*range(row, row + 40))

        threads = [threading.Thread(target=work, args=(p, i)) for i, p in enumerate(probes)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for p in probes:
            self.assertEqual(p.get(*range(400)), [1] * 400)
            self.assertEqual(p.counters()[2:], [0, 400, 0])
            self.assertEqual(p.close(), 0)

    def test_made_by_several_at_once(self):
        for turn in range(8):
            self.path = os.path.join(self.folder, f"rows-{turn}.sqlite")
            probes = [self.probe() for _ in range(6)]
            for i, p in enumerate(probes):
                p.put(i)
            for p in probes:
                self.assertEqual(p.get(*range(6)), [1] * 6)
                self.assertEqual(p.close(), 0)

    def test_killed_while_writing(self):
        for _ in range(5):
            p = self.probe()
            troubles = threading.Timer(0.03 + random.random() * 0.05, p.process.kill)
            troubles.start()
            try:
                for r in range(10000):
                    p.put(*range(r * 20, r * 20 + 20))
            except (AssertionError, OSError):
                pass
            troubles.join()
            p.process.wait()
            try:
                p.close()
            except OSError:
                pass
        with sqlite3.connect(self.path) as db:
            self.assertEqual(db.execute("PRAGMA integrity_check").fetchone(), ("ok",))
            keys = {key for (key,) in db.execute("SELECT key FROM entries")}
        self.assertGreater(len(keys), 0)
        with self.probe() as p:
            self.assertEqual(p.get(*range(4000)), [int(Redis.key(row) in keys) for row in range(4000)])
            self.assertEqual(p.counters()[2], 0)

    def test_memory_is_small(self):
        with self.probe() as p:
            for r in range(0, 4000, 500):
                p.put(*range(r, r + 500))
            before = peak_bytes(p.process.pid)
            for r in range(0, 4000, 250):
                self.assertEqual(p.get(*range(r, r + 250)), [1] * 250)
            # 250 rows of 6 KB twice are the probe's own
            self.assertLess(peak_bytes(p.process.pid), max(before, 16 << 20) + (4 << 20))

    def test_a_locked_file_is_a_miss(self):
        with self.probe() as p:
            p.put(1)
            db = sqlite3.connect(self.path, isolation_level=None)
            db.execute("BEGIN EXCLUSIVE")
            start = time.time()
            self.assertEqual(p.get(1), [1])  # readers do not wait for a writer
            self.assertLess(time.time() - start, 0.3)
            p.put(2)
            self.assertLess(time.time() - start, 5)
            self.assertEqual(p.counters()[4], 1)
            db.execute("ROLLBACK")
            db.close()
            p.put(2)
            self.assertEqual(p.get(1, 2), [1, 1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
