#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Secrets stay where they were put. Every kind of them is a marker here, is given to every verb that takes one and to
every process, and errors of all kinds are provoked at the most talkative level of the log, in both formats. Then
everything that was said, logged, shown over HTTP, or can be read of other processes is searched for them."""
import json
import os
import pathlib
import secrets
import signal
import subprocess
import tempfile
import time
import unittest

from serve_test import CHAT, COBORD, MODEL
from tls_test import make_certificate
from _nodes import support
from up_test import Up, wait_until

NOWHERE = "127.0.0.1:1"
FOLDER = tempfile.TemporaryDirectory()
MARKS = {name: f"{name}-{secrets.token_hex(12)}" for name in (
    "cluster", "alice", "ops", "wrong", "s3", "session", "redis", "client", "hub", "cloudflare", "url", "odd")}
VARIABLES = {"AWS_SECRET_ACCESS_KEY": "s3", "AWS_SESSION_TOKEN": "session", "COBORD_REDIS_PASSWORD": "redis",
             "COBORD_API_KEY": "client", "COBORD_HUB_TOKEN": "hub", "CLOUDFLARE_API_TOKEN": "cloudflare"}
NODES_NEED = {"AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "COBORD_REDIS_PASSWORD"}  # for their stores
TALK = ["--log-level", "debug"]


def path(name):
    return os.path.join(FOLDER.name, name)


def write(name, text, mode=0o600):
    pathlib.Path(path(name)).write_text(text)
    os.chmod(path(name), mode)
    return path(name)


def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("COBORD_") or k == "COBORD_CACHE"}
    env.update({v: MARKS[mark] for v, mark in VARIABLES.items()}, XDG_CONFIG_HOME=path("config"),
               XDG_STATE_HOME=path("state"), AWS_ACCESS_KEY_ID="who", COBORD_S3_ENDPOINT="http://" + NOWHERE)
    return {**env, **more}


def leaked(text):
    """Names of the secrets that are in a text, whole or the half of one."""
    text = text if isinstance(text, str) else text.decode(errors="replace")
    return [name for name, mark in MARKS.items() if mark in text or mark[-12:] in text] + \
        ["TLS key"] * any(line in text for line in tls_lines())


def tls_lines():
    with open(make.key) as f:
        return [line.strip() for line in f if "-----" not in line and len(line) > 40]


def make():
    """The files with secrets."""
    make.certificate, make.key = make_certificate("secrets", "IP:127.0.0.1")
    make.cluster_key = write("cluster.key", MARKS["cluster"] + "\n")
    keys = [{"name": "alice", "key": MARKS["alice"]}, {"name": "ops", "key": MARKS["ops"], "admin": True}]
    make.keys = write("keys.json", json.dumps({"keys": keys}))
    support.must("plan", MODEL, "--stations", 1, "--shards", 1, "--context", 256, "--wardens", "--key-file",
                 make.cluster_key, "--listen", "127.0.0.1:0", "-o", path("cluster.json"))
    make.cluster = json.loads(pathlib.Path(path("cluster.json")).read_text())


def cluster(name, **changes):
    """A cluster file with other values: store=.., or row_cache=.. of the wardens."""
    file = json.loads(json.dumps(make.cluster))
    if "store" in changes:
        file["model"]["store"] = changes["store"]
    for node in file.get("shard_wardens", []):
        node.update({k: v for k, v in changes.items() if k != "store"})
    return write(name, json.dumps(file))


def setUpModule():
    make()


def tearDownModule():
    FOLDER.cleanup()


class Verbs(unittest.TestCase):
    """Each call fails, and says why without the secret that it met."""

    def fails(self, *arguments, **more):
        with self.subTest(" ".join(map(str, arguments))[:90]):
            done = subprocess.run([COBORD, *map(str, arguments)], capture_output=True, timeout=60,
                                  env=environment(**more), stdin=subprocess.DEVNULL)
            said = done.stdout + done.stderr
            self.assertNotEqual(done.returncode, 0, said)
            self.assertGreater(len(said), 20)
            self.assertNotIn(b"Sanitizer", said)
            self.assertEqual(leaked(said), [], said.decode(errors="replace"))

    def test_addresses_with_a_password(self):
        web = f"http://somebody:{MARKS['url']}@{NOWHERE}"
        self.fails("run", MODEL, "hi", "--url", web)
        self.fails("status", web)
        self.fails("status", web, "--json")
        self.fails("ready", web)
        self.fails("status", f"somebody:{MARKS['url']}@{NOWHERE}")
        self.fails("status", f"http://127.0.0.1:1:{MARKS['url']}@x")
        self.fails("doctor", "--store", web + "/models")
        self.fails("doctor", "--store", web + "/models", "--json")
        self.fails("doctor", "--store", "s3://bucket/models", COBORD_S3_ENDPOINT=web)
        self.fails("pull", web + "/model.gguf")
        self.fails("pull", web.replace("http:", "https:") + "/model.gguf")
        self.fails("pull", "s3://bucket/model.gguf", COBORD_S3_ENDPOINT=web)
        self.fails("pull", "hf:some/where/model.gguf", COBORD_HUB=web)
        for verb in ("run", "serve", "up", "info", "verify", "plan"):
            self.fails(verb, web + "/model.knot")
        self.fails("serve", MODEL, "--listen", f"somebody:{MARKS['url']}@127.0.0.1:0", *TALK)
        self.fails("serve", MODEL, "--cors", web, "--listen", "1.2.3.4:1")

    def test_settings_with_a_password(self):
        web = f"http://somebody:{MARKS['url']}@{NOWHERE}"
        self.fails("status", COBORD_URL=web)
        self.fails("serve", MODEL, COBORD_LISTEN=web)
        self.fails("run", MODEL, "hi", COBORD_URL=web)

    def test_servers_that_are_not_there(self):
        self.fails("run", MODEL, "hi", "--url", "http://" + NOWHERE)
        self.fails("status", "http://" + NOWHERE)
        self.fails("pull", "hf:some/where/model.gguf", COBORD_HUB="http://" + NOWHERE)
        self.fails("pull", "s3://bucket/model.gguf")
        self.fails("doctor", "--store", "s3://bucket/models")
        self.fails("status", "--cluster", path("cluster.json"))

    def test_secrets_as_arguments(self):
        for flag in ("--api-key", "--hub-token", "--redis-password", "--key"):
            for words in ([flag, MARKS["odd"]], [f"{flag}={MARKS['odd']}"]):
                for verb in ("run", "serve", "up", "pull"):
                    self.fails(verb, MODEL, *words)

    def test_secrets_in_the_place_of_other_files(self):
        key, keys = make.cluster_key, make.keys
        for secret in (key, keys, make.key):
            for verb in ("run", "serve", "info", "verify", "plan", "tokenize", "encode"):
                self.fails(verb, secret)
            self.fails("node", "--cluster", secret, "--id", "station-0", *TALK)
            self.fails("up", "--cluster", secret, *TALK)
            self.fails("status", "--cluster", secret)
            self.fails("plan", MODEL, "--hosts", secret)
            self.fails("serve", MODEL, "--tls-certificate", secret, "--tls-key", secret)
            self.fails("run", MODEL, "hi", "--url", "https://" + NOWHERE, "--tls-ca", secret)
        for file in (key, make.key):
            self.fails("serve", MODEL, "--api-keys", file)
            self.fails("keys", "list", "--file", file)
        self.fails("serve", MODEL, "--tls-certificate", make.key, "--tls-key", make.certificate)

    def test_bad_files_of_secrets(self):
        mark = MARKS["odd"]
        for text in (f'{{"keys": [{{"name": "a", "key": "{mark}" "x"}}]}}', f'{{"keys": [{{"key": "{mark}"}}]}}',
                     f'{{"keys": [{{"name": "a", "key": "{mark}", "{mark}": 1}}]}}',
                     f'{{"keys": [{{"name": "a", "key": "{mark}\\u0001"}}]}}', f'{{"{mark}": 1}}',
                     f'{{"keys": [{{"name": "a", "key": "{mark}"}}, {{"name": "b", "key": "{mark}"}}]}}',
                     f'{{"keys": {{"a": "{mark}"}}}}', f'{{"keys": [{{"name": "a", "hash": "{mark}"}}]}}'):
            self.fails("serve", MODEL, "--api-keys", write("bad.json", text), *TALK)
            self.fails("keys", "list", "--file", path("bad.json"))
        for text in (mark + " " + mark, mark + "\n" + mark, mark * 30, mark + "\u00e9"):
            file = cluster("bad-cluster.json")
            value = json.loads(pathlib.Path(file).read_text())
            value["key_file"] = write("bad.key", text)
            write("bad-cluster.json", json.dumps(value))
            self.fails("node", "--cluster", file, "--id", "station-0", *TALK)
            self.fails("up", "--cluster", file, *TALK)
        os.makedirs(path("odd/cobord"), exist_ok=True)
        for text in (f"api-key {mark}", f"api-key: {mark}", f"hub-token {mark}\x01", f"apikey = {mark}"):
            write("odd/cobord/config", text + "\n")
            self.fails("run", MODEL, "hi", "--url", "http://" + NOWHERE, XDG_CONFIG_HOME=path("odd"))

    def test_addresses_in_cluster_files(self):
        mark = MARKS["url"]
        stores = (f"https://somebody:{mark}@{NOWHERE}/x", f"s3://somebody:{mark}@bucket/x", f"ftp://a:{mark}@h/x",
                  f"http://{NOWHERE}/x?token={mark}")
        for store in stores:
            file = cluster("stores.json", store=store)
            for node in ("layer-warden-0", "shard-warden-0"):
                self.fails("node", "--cluster", file, "--id", node, *TALK)
            self.fails("up", "--cluster", file, *TALK)
            self.fails("doctor", "--cluster", file)
        for cache in (f"redis://:{mark}@{NOWHERE}/0", f"rediss://a:{mark}@{NOWHERE}", f"redis:a:{mark}@{NOWHERE}"):
            file = cluster("caches.json", cache=cache)
            self.fails("node", "--cluster", file, "--id", "shard-warden-0", *TALK)


def about(pid, name):
    return pathlib.Path(f"/proc/{pid}/{name}").read_bytes()


class Processes(unittest.TestCase):
    """`up` with wardens, keys, certificate and every variable: who can read what."""

    @classmethod
    def setUpClass(cls):
        cls.said = {}
        for format in ("text", "json"):
            cls.said[format] = cls.live(format)

    @classmethod
    def live(cls, format):
        """What one life of a cluster shows: {where: bytes}."""
        folder = path("dir-" + format)
        usual = Up.__init__.__globals__["environment"]
        Up.__init__.__globals__["environment"] = lambda state: environment(XDG_STATE_HOME=state)
        try:
            up = Up("--listen", "127.0.0.1:0", "--dir", folder, "--key-file", make.cluster_key, "--api-keys", make.keys,
                    "--stations", "1", "--shards", "1", "--context", "256", "--wardens", *TALK, "--log-format", format)
        finally:
            Up.__init__.__globals__["environment"] = usual
        try:
            wait_until(lambda: len(up.nodes()) == 5)
            shown = {"line": up.line.encode(), **cls.calls(up.port)}
            for name, pid in [*up.nodes().items(), ("up", up.process.pid)]:
                for what in ("cmdline", "environ", "limits"):
                    shown[f"{name} {what}"] = about(pid, what)
            shown["modes"] = {str(p): p.stat().st_mode & 0o777 for p in pathlib.Path(folder).rglob("*") if p.is_file()}
            up.kill("station-0", signal.SIGKILL)
            time.sleep(0.5)
            up.process.terminate()
            up.process.wait(60)
            shown["stderr"] = up.errors().encode()
        finally:
            up.close()
        for log in pathlib.Path(folder).rglob("*.log*"):
            shown[log.name] = log.read_bytes()
        return shown

    @staticmethod
    def calls(port):
        """Answers to those who have a key, a wrong one, and one in a place where none belongs."""
        import http.client
        shown = {}
        body = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4})
        for who in ("alice", "ops", "wrong"):
            for method, where in (("GET", "/metrics"), ("GET", "/cluster"), ("GET", "/ready"), ("POST", CHAT),
                                  ("GET", "/v1/models"), ("GET", f"/none?api_key={MARKS['wrong']}"),
                                  ("BREW", "/"), ("POST", "/v1/none")):
                for head in ("Bearer ", "Basic ", ""):
                    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                    headers = {"Authorization": head + MARKS[who], "x-api-key": MARKS[who],
                               "Cookie": "key=" + MARKS[who]}
                    c.request(method, where, body if method == "POST" else None, headers)
                    answer = c.getresponse()
                    shown[f"{who} {method} {where} {head}"] = repr(answer.getheaders()).encode() + answer.read()
                    c.close()
        return shown

    def each(self):
        for format, shown in self.said.items():
            for where, text in shown.items():
                yield f"{format}: {where}", where, text

    def test_nobody_says_a_secret(self):
        for name, where, text in self.each():
            if where != "modes" and not where.endswith(("environ", "limits")):
                with self.subTest(name):
                    self.assertEqual(leaked(text), [])

    def test_it_did_speak(self):
        for format, shown in self.said.items():
            self.assertGreater(len(shown["stderr"]), 2000, format)
            self.assertIn(b"station-0", shown["stderr"])
            self.assertTrue(any(where.endswith(".log") and text for where, text in shown.items()), list(shown))

    def test_nodes_have_what_they_need_and_no_more(self):
        allowed = {VARIABLES[v] for v in NODES_NEED}
        for name, where, text in self.each():
            if where.endswith(" environ") and where != "up environ":
                with self.subTest(name):
                    self.assertEqual(set(leaked(text)) - allowed, set())
                    self.assertIn(MARKS["s3"].encode(), text)

    def test_no_process_leaves_its_memory_behind(self):
        for name, where, text in self.each():
            if where.endswith(" limits"):
                with self.subTest(name):
                    line = next(x for x in text.decode().splitlines() if x.startswith("Max core file size"))
                    self.assertEqual(line.split()[4], "0", line)

    def test_files_are_the_owners_own(self):
        for format, shown in self.said.items():
            self.assertGreater(len(shown["modes"]), 3)
            for file, mode in shown["modes"].items():
                with self.subTest(file):
                    if file.endswith("cluster.json"):  # which nodes there are is no secret, but for its writer
                        self.assertEqual(mode & 0o022, 0, oct(mode))
                        continue
                    self.assertEqual(mode & 0o077, 0, oct(mode))


if __name__ == "__main__":
    unittest.main()
