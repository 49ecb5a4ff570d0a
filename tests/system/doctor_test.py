#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cobord doctor on this machine, on made-up ones (folders, ports, nodes, stores), and on a real cluster."""
import email.utils
import http.server
import json
import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import _ports
import _servers

COBORD = os.path.abspath(os.environ.get("COBORD", "build/cobord"))
MODEL = "smollm2-135m"
KEY = "a-key-of-this-test"
KNOT_ID = "0123456789abcdef"
VERSION = subprocess.run([COBORD, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
SECONDS_MAX = 12


def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("COBORD_", "AWS_")) or k == "COBORD_CACHE"}
    env.update(XDG_CONFIG_HOME="/nonexistent", **more)
    return env


def run(*arguments, env=None, **more):
    return subprocess.run([COBORD, "doctor", *arguments], env=env or environment(), capture_output=True, text=True,
                          timeout=60, stdin=subprocess.DEVNULL, **more)


class Findings:
    """What `cobord doctor --json` says."""

    def __init__(self, *arguments, **more):
        began = time.monotonic()
        p = run(*arguments, "--json", **more)
        self.seconds = time.monotonic() - began
        self.code, self.errors = p.returncode, p.stderr
        self.whole = json.loads(p.stdout)
        self.checks = self.whole["checks"]

    def of(self, name, area=None):
        return [c for c in self.checks if c["name"] == name and area in (None, c["area"])]

    def one(self, name, area=None):
        found = self.of(name, area)
        assert len(found) == 1, (name, found)
        return found[0]

    def bad(self, *areas):
        return [c for c in self.checks if c["state"] != "ok" and c["area"] in areas]


class Answering(http.server.ThreadingHTTPServer):
    """A server of our own: `answers` maps method and path to a function of the handler's request."""
    daemon_threads = True

    def __init__(self, answer, certificate=None, date=0):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def date_time_string(self, timestamp=None):
                return email.utils.formatdate(time.time() + date, usegmt=True)

            def any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.asked.append((self.command, self.path))
                status, text = answer(self.command, self.path, self.headers, body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(text)

            do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = any

            def log_message(self, *_):
                pass

        self.asked = []
        super().__init__(("127.0.0.1", 0), Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def port(self):
        return self.server_address[1]

    def handle_error(self, *_):
        pass


def node(version=VERSION, knot_id=KNOT_ID, state="ready", key=KEY, frame_version=1):
    """What a node answers."""
    def answer(method, path, headers, _):
        if path == "/health":
            return 200, b'{"status":"ok"}'
        if headers.get("Authorization") != f"Bearer {key}":
            return 401, b"{}"
        if path == "/ready":
            about = {"ready": True, "state": state, "version": version, "frame_version": frame_version,
                     "knot_id": knot_id}
            return 200, json.dumps(about).encode()
        return 404, b"{}"
    return answer


class DoctorTest(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text):
        with open(self.path(name), "w") as f:
            f.write(text)
        os.chmod(self.path(name), 0o600)
        return self.path(name)

    def serve(self, answer, **more):
        server = Answering(answer, **more)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server

    def cluster(self, ports, tls=None, store=""):
        """A cluster file: coordinator, stations and a shard at these ports."""
        count = len(ports) - 2
        address = [f"127.0.0.1:{port}" for port in ports]
        stations = [{"id": f"station-{i}", "address": address[i + 1],
                     "range": f"{i}-{i + 1 if i + 1 < count else 'end'}"} for i in range(count)]
        file = {"cobord_cluster": 1, "context": 128, "chunk": 8, "key_file": self.write("key", KEY + "\n"),
                "model": {"name": "m", "knot_id": KNOT_ID, "knot_key": "m.knot", "store": store, "layers": count,
                          "vocabulary": 1000},
                "coordinator": {"id": "coordinator-0", "address": address[0]}, "stations": stations,
                "shards": [{"id": "shard-0", "address": address[-1], "ids": [0, 1000]}]}
        if tls:
            file["tls"] = tls
        return self.write("cluster.json", json.dumps(file))


class MachineTest(DoctorTest):
    def test_this_machine(self):
        p = run(env=environment(XDG_CACHE_HOME=self.folder, COBORD_CACHE=self.path("cache")))
        self.assertEqual((p.returncode, p.stderr), (0, ""))
        for area in ("Processor", "Memory", "Disk", "Ports", "Clock", "Optional programs"):
            self.assertRegex(p.stdout, rf"(?m)^{area}$")
        self.assertEqual([line for line in p.stdout.splitlines() if len(line) > 80 and " /" not in line], [])
        self.assertNotIn("\x1b", p.stdout)
        self.assertRegex(p.stdout, r"(?m)^  ok      kernels +\w+ is used")
        self.assertRegex(p.stdout, r"(?m)^  ok      bandwidth +[0-9.]+ GB/s")
        self.assertRegex(p.stdout, rf"[0-9.]+\s+of\s+{MODEL}")
        self.assertEqual(os.listdir(self.folder), []) # nothing is left, the cache is not even made

    def test_json(self):
        found = Findings()
        self.assertLess(found.seconds, SECONDS_MAX)
        self.assertEqual(found.code, 1 if found.whole["problems"] else 0)
        states = [c["state"] for c in found.checks]
        self.assertEqual(found.whole["problems"], states.count("problem"))
        self.assertEqual(found.whole["warnings"], states.count("warning"))
        for c in found.checks:
            self.assertIn(c["state"], ("ok", "warning", "problem"))
            self.assertEqual("advice" in c, c["state"] != "ok", c)

    def test_limits_of_the_process(self):
        def less():
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
            resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        found = Findings(preexec_fn=less)
        self.assertEqual(found.one("ulimit -n")["state"], "warning")
        self.assertIn("256 open files", found.one("ulimit -n")["found"])
        self.assertIn("8.6 GB", found.one("ulimit -v")["found"])

    def test_fewer_cores(self):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            self.skipTest("one core")
        found = Findings(preexec_fn=lambda: os.sched_setaffinity(0, cores[:1]))
        self.assertRegex(found.one("cores")["found"], r"\A1 of the machine's [2-9]")

    def test_usage(self):
        for arguments, word in ((["--frobnicate"], "--frobnicate"), (["a", "b"], "b"),
                                (["--cluster", "/no/such.json"], "/no/such.json")):
            p = run(*arguments)
            self.assertIn(p.returncode, (1, 2))
            self.assertEqual(p.stdout, "")
            self.assertRegex(p.stderr, r"\Acobord: [^\n]+\n\Z")
            self.assertIn(word, p.stderr)


class DiskTest(DoctorTest):
    def look(self, *arguments, cache=None):
        return Findings(*arguments, env=environment(COBORD_CACHE=cache or self.path("cache")))

    def test_no_place(self):
        found = self.look(cache="/proc/none")
        self.assertEqual(found.code, 1)
        self.assertEqual(found.one("cache")["state"], "problem")
        self.assertIn("COBORD_CACHE", found.one("cache")["advice"])

    def test_leftovers_and_damage(self):
        os.makedirs(self.path("cache", "models", ".half.pull"))
        self.write("cache/models/.mine.knot.123.part", "")
        self.write("cache/models/broken.knot", "KNOT\x02 and no more")
        self.write("cache/models/.talks\x1b]0;to\x07\u009b2Jyou.part", "")
        found = self.look()
        self.assertEqual(found.code, 1)
        self.assertEqual(len(found.of("leftover")), 3)
        said = run(env=environment(COBORD_CACHE=self.path("cache"))).stdout
        self.assertIn(".talks?]0;to???2Jyou.part", said.replace("\n", ""))
        self.assertNotRegex(said, "[\x00-\x09\x0b-\x1f\x7f-\x9f]")
        self.assertTrue(any("cobord rm half" in c["advice"] for c in found.of("leftover")))
        self.assertIn("broken", found.one("model", "Disk")["found"])
        self.assertIn("cobord rm broken", found.one("model", "Disk")["advice"])

    def test_memory_disk(self):
        if not os.path.isdir("/dev/shm") or not os.access("/dev/shm", os.W_OK):
            self.skipTest("no /dev/shm")
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            found = self.look(cache=folder)
        self.assertEqual(found.one("file system")["state"], "warning")
        self.assertIn("tmpfs", found.one("file system")["found"])

    def test_models(self):
        found = Findings(MODEL)
        self.assertEqual(found.bad("Model"), [])
        self.assertIn(MODEL, found.one("file", "Model")["found"])
        self.assertRegex(found.one("speed", "Model")["found"], r"at most about [0-9.e+]+ tokens/s")
        self.assertRegex(found.one("reading")["found"], r"\A\d+ MB/s")
        found = self.look(MODEL)
        self.assertEqual(found.code, 1)
        self.assertEqual(found.one("file")["advice"], f"Run: cobord pull {MODEL}")
        found = self.look("qwen2.5-coder:1.5b")
        self.assertIn("Did you mean qwen2.5-coder-1.5b?", found.one("file")["found"])


class PortsTest(DoctorTest):
    def test_free_and_taken(self):
        port = _ports.free_ports(1)[0]
        where = f"127.0.0.1:{port}"
        self.assertEqual(Findings("--listen", where).one("listen")["state"], "ok")
        with socket.create_server(("127.0.0.1", port)):
            taken = Findings("--listen", where).one("listen")
        self.assertEqual(taken["state"], "warning")
        self.assertRegex(taken["found"], rf"{where} is taken by python\S* \(process {os.getpid()}\)")
        self.assertEqual(Findings("--listen", "192.0.2.1:80").one("listen")["state"], "problem")
        self.assertEqual(Findings("--listen", "nonsense:x").one("listen")["state"], "problem")


class LinksTest(DoctorTest):
    def test_nodes_of_all_kinds(self):
        """One is fine, one has another version, one another file, one another key, one hangs, one is not there."""
        hanging = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(hanging.close)
        servers = [self.serve(node()), self.serve(node(version="0.0.1")), self.serve(node(knot_id="f" * 16)),
                   self.serve(node(key="another-key")), self.serve(node(state="loading"), date=3600)]
        ports = [s.port for s in servers] + [hanging.getsockname()[1], *_ports.free_ports(1)]
        found = Findings("--cluster", self.cluster(ports))
        self.assertEqual(found.code, 1)
        self.assertLess(found.seconds, SECONDS_MAX)
        links = {name: [c for c in found.of(name, "Links")]
                 for name in ["coordinator-0", *(f"station-{i}" for i in range(5)), "shard-0"]}
        words = {name: " ".join(c["found"] for c in checks) for name, checks in links.items()}
        worst = {name: {c["state"] for c in checks} for name, checks in links.items()}
        self.assertEqual(worst["coordinator-0"], {"ok"})
        self.assertRegex(words["coordinator-0"], r"[0-9.]+ ms there and back")
        self.assertEqual(worst["station-0"], {"ok", "warning"})
        self.assertIn("it is version 0.0.1", words["station-0"])
        self.assertEqual(worst["station-1"], {"ok", "problem"})
        self.assertIn("it serves knot ffffffffffffffff", words["station-1"])
        self.assertEqual(worst["station-2"], {"ok", "problem"})
        self.assertIn("refuses this machine's key", words["station-2"])
        self.assertEqual(worst["station-3"], {"ok", "warning"})
        self.assertIn("it is loading", words["station-3"])
        self.assertRegex(words["station-3"], r"its clock is 3[56]\d\d s ahead of ours")
        self.assertRegex(words["station-3"], r"\d+ MB/s to it")
        self.assertEqual(worst["station-4"], {"problem"})
        self.assertIn("too late", words["station-4"])
        self.assertEqual(worst["shard-0"], {"problem"})
        self.assertIn("no connection", words["shard-0"])
        self.assertNotIn(KEY, json.dumps(found.whole))

    def test_frames_of_another_version(self):
        servers = [self.serve(node()), self.serve(node(frame_version=99)), self.serve(node())]
        found = Findings("--cluster", self.cluster([s.port for s in servers]))
        self.assertIn("version 99 of the frames", " ".join(c["found"] for c in found.of("station-0", "Links")))
        self.assertEqual(found.code, 1)

    def certificate(self, name, start, end):
        """Its own authority, of 127.0.0.1; times as YYYYMMDDhhmmssZ."""
        files = self.path(name + ".pem"), self.path(name + "-key.pem")
        self.write("ca.cnf", f"[ca]\ndefault_ca=a\n[a]\nnew_certs_dir={self.folder}\ndatabase={self.path('index')}\n"
                   f"serial={self.path('serial')}\ndefault_md=sha256\npolicy=p\nx509_extensions=e\n[p]\n"
                   "commonName=supplied\n[e]\nsubjectAltName=IP:127.0.0.1\nbasicConstraints=CA:true\n")
        self.write("index", "")
        self.write("serial", "01\n")
        for command in (["req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=" + name, "-out", self.path("csr"),
                         "-keyout", files[1]],
                        ["ca", "-config", self.path("ca.cnf"), "-batch", "-selfsign", "-keyfile", files[1], "-in",
                         self.path("csr"), "-startdate", start, "-enddate", end, "-notext", "-out", files[0]]):
            subprocess.run(["openssl", *command], check=True, capture_output=True)
        return files

    def test_certificates(self):
        soon = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + 5 * 86400 + 3600))
        good = self.certificate("good", "20200101000000Z", soon)
        old = self.certificate("old", "20200101000000Z", "20210101000000Z")
        with open(self.path("both.pem"), "w") as f:
            for files in (good, old):
                with open(files[0]) as part:
                    f.write(part.read())
        servers = [self.serve(node(), certificate=good), self.serve(node(), certificate=old),
                   self.serve(node(), certificate=good)]
        tls = {"certificate": good[0], "key": good[1], "ca": self.path("both.pem")}
        found = Findings("--cluster", self.cluster([s.port for s in servers], tls))
        self.assertIn("its certificate ends in 5 days", [c["found"] for c in found.of("coordinator-0", "Links")])
        ended = found.one("station-0", "Links")
        self.assertEqual(ended["state"], "problem")
        self.assertRegex(ended["found"], r"its certificate ended \d{4} days ago")
        # Whom nobody vouches for is not told the key.
        stranger = self.certificate("stranger", "20200101000000Z", "20900101000000Z")
        keys = []

        def listen(method, path, headers, body):
            keys.append(headers.get("Authorization"))
            return node()(method, path, headers, body)
        servers[1] = self.serve(listen, certificate=stranger)
        found = Findings("--cluster", self.cluster([s.port for s in servers], tls))
        self.assertIn("not trusted", found.one("station-0", "Links")["found"])
        self.assertEqual(set(keys), {None})

    def test_real_cluster(self):
        """Nothing to complain of, no line in its log, and a port of it is known as Cobord's."""
        port = _ports.free_ports(1)[0]
        with open(self.path("log"), "w") as log:
            up = subprocess.Popen([COBORD, "up", MODEL, "--stations", "2", "--shards", "1", "--listen",
                                   f"127.0.0.1:{port}", "--dir", self.path("up")], stdout=log, stderr=log,
                                  env=environment())
        try:
            end = time.monotonic() + 60
            said = (rf"(?m)^{MODEL}: \d+ slots", "the cluster is complete")
            while not all(re.search(words, self.read("log")) for words in said) and time.monotonic() < end:
                time.sleep(0.1)
            before = self.read("log")
            found = Findings("--cluster", self.path("up", "cluster.json"))
            self.assertEqual(found.bad("Links", "Ports"), [])
            self.assertEqual(len([c for c in found.checks if c["area"] == "Links"]), 4)
            self.assertRegex(found.one("station-0", "Links")["found"], r"ms there and back, \d+ MB/s to it")
            self.assertIn("4 are used by cobord", found.one("cluster file")["found"])
            self.assertIn(f"is taken by {os.path.basename(COBORD)}",
                          Findings("--listen", f"127.0.0.1:{port}").one("listen")["found"])
            self.assertEqual(self.read("log"), before)
        finally:
            up.send_signal(signal.SIGTERM)
            up.wait(30)

    def read(self, name):
        with open(self.path(name)) as f:
            return f.read()


class StoreTest(DoctorTest):
    def look(self, store, *arguments, **env):
        return Findings("--store", store, *arguments, env=environment(**env))

    def test_folder(self):
        os.mkdir(self.path("store"))
        found = self.look(self.path("store"))
        self.assertEqual(found.bad("Store"), [])
        self.assertEqual(os.listdir(self.path("store")), [])
        found = self.look(self.path("store"), MODEL)
        self.assertEqual(found.one("model", "Store")["state"], "problem")
        self.assertEqual(self.look(self.path("none")).one("folder")["state"], "problem")
        self.assertEqual(self.look("gs://x/y").one("address")["state"], "problem")

    def test_web(self):
        server = self.serve(lambda m, path, h, b: (200, b"x" * 2048) if path == f"/m/{MODEL}.knot" else (404, b""))
        found = self.look(f"http://127.0.0.1:{server.port}/m/", MODEL)
        self.assertEqual(found.bad("Store"), [])
        self.assertIn("2.0 KB", found.one("model", "Store")["found"])
        self.assertEqual(self.look(f"http://127.0.0.1:{_ports.free_ports(1)[0]}/").one("address")["state"], "problem")

    def test_s3(self):
        os.makedirs(self.path("bucket"))
        with _servers.start_s3(self.folder) as s3:
            found = self.look("s3://bucket/models", MODEL, **s3.environment)
            for right in ("list", "write", "read", "delete"):
                self.assertEqual(found.one(right, "Store")["state"], "ok", found.checks)
            self.assertEqual(found.one("its clock")["state"], "ok")
            self.assertEqual(found.one("model", "Store")["state"], "problem")
            files = [name for _, _, names in os.walk(self.path("bucket")) for name in names]
            self.assertEqual(files, []) # the probe is gone
            wrong = dict(s3.environment, AWS_SECRET_ACCESS_KEY="wrong-secret-of-this-test")
            found = self.look("s3://bucket", **wrong)
            self.assertEqual(found.code, 1)
            self.assertIn("AWS_SECRET_ACCESS_KEY", found.one("read", "Store")["advice"])
            self.assertNotIn("wrong-secret", json.dumps(found.whole))
            found = self.look("s3://no-such-bucket", **s3.environment)
            self.assertIn("NoSuchBucket", found.one("list", "Store")["found"])
            self.assertEqual(found.code, 1)

    def test_passwords_in_addresses_are_not_repeated(self):
        found = self.look("https://user:hidden-of-this-test@store.invalid/m")
        self.assertEqual(found.one("address")["state"], "problem")
        self.assertNotIn("hidden-of-this-test", json.dumps(found.whole))

    def rights(self, *allowed, date=0):
        """A store that allows some of GET (of objects), LIST, PUT, DELETE."""
        objects = {}

        def answer(method, path, headers, body):
            where, _, query = path.partition("?")
            what = "LIST" if "list-type" in query else method
            if what not in allowed:
                return 403, b"<Error><Code>AccessDenied</Code></Error>"
            if what == "PUT":
                objects[where] = body
            if what == "GET" and where not in objects:
                return 404, b"<Error><Code>NoSuchKey</Code></Error>"
            return (204, b"") if what == "DELETE" else (200, objects.get(where, b"<ListBucketResult/>"))
        server = self.serve(answer, date=date)
        found = self.look("s3://bucket/a", COBORD_S3_ENDPOINT=f"http://127.0.0.1:{server.port}",
                          AWS_ACCESS_KEY_ID="id", AWS_SECRET_ACCESS_KEY="secret-of-this-test")
        self.assertNotIn("secret-of-this-test", json.dumps(found.whole))
        return found, {r: found.one(r, "Store")["state"] for r in ("list", "write", "read", "delete")}

    def test_rights_one_by_one(self):
        found, states = self.rights("LIST", "PUT", "GET", "DELETE")
        self.assertEqual(set(states.values()), {"ok"})
        found, states = self.rights("GET")
        self.assertEqual(states, {"list": "warning", "write": "warning", "read": "ok", "delete": "ok"})
        self.assertIn("s3:ListBucket", found.one("list", "Store")["advice"])
        self.assertIn("s3:PutObject", found.one("write", "Store")["advice"])
        self.assertEqual(found.code, 0)
        found, states = self.rights("LIST", "PUT", "DELETE")
        self.assertEqual(states["read"], "problem")
        self.assertIn("s3:GetObject", found.one("read", "Store")["advice"])
        self.assertEqual(found.code, 1)
        found, states = self.rights("LIST", "PUT", "GET")
        self.assertEqual(states["delete"], "warning")
        self.assertRegex(found.one("probe", "Store")["found"], r"s3://bucket/a/\.cobord-doctor-[0-9a-f]{16} was left")

    def test_clock_and_silence(self):
        found, _ = self.rights("LIST", "PUT", "GET", "DELETE", date=-7200)
        self.assertEqual(found.one("its clock")["state"], "problem")
        self.assertRegex(found.one("its clock")["found"], r"7[12]\d\d s ahead")
        with socket.create_server(("127.0.0.1", 0)) as hanging:
            found = self.look("s3://bucket", COBORD_S3_ENDPOINT=f"http://127.0.0.1:{hanging.getsockname()[1]}",
                              AWS_ACCESS_KEY_ID="id", AWS_SECRET_ACCESS_KEY="secret-of-this-test")
            self.assertEqual(found.one("address")["state"], "problem")
            self.assertLess(found.seconds, SECONDS_MAX)
        with socket.create_server(("127.0.0.1", 0)) as hanging:
            env = environment(COBORD_S3_ENDPOINT=f"http://127.0.0.1:{hanging.getsockname()[1]}",
                              AWS_ACCESS_KEY_ID="id", AWS_SECRET_ACCESS_KEY="secret-of-this-test")
            asked = subprocess.Popen([COBORD, "doctor", "--store", "s3://bucket"], env=env, stdout=subprocess.DEVNULL)
            hanging.settimeout(60)
            with hanging.accept()[0]:  # it waits for an answer
                asked.send_signal(signal.SIGINT)
                self.assertEqual(asked.wait(SECONDS_MAX), 130)
        found = self.look("s3://bucket", AWS_ACCESS_KEY_ID="id")
        self.assertIn("AWS_SECRET_ACCESS_KEY is not", found.one("address")["found"])

    def test_store_of_a_cluster(self):
        """Its knot is looked for, and nothing is written."""
        objects = self.serve(lambda m, path, h, b: (200, b"x" * 5000) if path == "/bucket/m.knot" else (404, b""))
        nodes = [self.serve(node()) for _ in range(3)]
        file = self.cluster([s.port for s in nodes], store="s3://bucket")
        env = environment(COBORD_S3_ENDPOINT=f"http://127.0.0.1:{objects.port}", AWS_ACCESS_KEY_ID="id",
                          AWS_SECRET_ACCESS_KEY="secret-of-this-test")
        found = Findings("--cluster", file, env=env)
        self.assertIn("5.0 KB", found.one("model", "Store")["found"])
        self.assertEqual(set(objects.asked), {("HEAD", "/bucket/m.knot")})


if __name__ == "__main__":
    unittest.main()
