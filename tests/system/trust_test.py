#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who is believed: every call between the processes of a cluster over TLS, a certificate of another authority, a node
with another cluster key, a node with another file of the same name or another quantization of the same model."""
import http.client
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile
import unittest

import _nodes as nodes
from _cluster import Solo, plan
from serve_test import CHAT, greedy
from up_test import COBORD, environment

MODEL = nodes.Model("smollm2-135m")
SEA = greedy("Tell me about the sea.", 30)


def openssl(*words, folder):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, cwd=folder)


def authority(folder, name):
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2, "-keyout",
            f"{name}-ca.key", "-out", f"{name}-ca.pem", "-subj", f"/CN={name}", folder=folder)


def certificate(folder, name, host="IP:127.0.0.1"):
    """A certificate that an authority of this name signed."""
    (folder / "extensions").write_text(f"subjectAltName={host}\n")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key", "-out",
            f"{name}.csr", "-subj", "/CN=node", folder=folder)
    openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{name}-ca.pem", "-CAkey", f"{name}-ca.key",
            "-CAcreateserial", "-days", 2, "-extfile", "extensions", "-out", f"{name}.pem", folder=folder)


class ByHand(nodes.Cluster):
    """Two stations and two shards, each with a file that may be changed."""

    def __init__(self, **more):
        super().__init__(MODEL, ["0-15", "15-end"], 2, chunk=16, **more)
        self.by_id = {}

    def start_with(self, name, change=None):
        whole, self.path = self.path, self.path.parent / f"{name}.json"
        value = json.loads(json.dumps(self.file))
        if change:
            change(value)
        self.path.write_text(json.dumps(value))
        try:
            self.by_id[name] = self.start(name)
        finally:
            self.path = whole
        return self.by_id[name]

    def call_api(self, method, path, body=None):
        status, data = self.by_id["coordinator-0"].call(method, path, json.dumps(body) if body else None, key=None)
        return status, json.loads(data)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def cluster(self, other, change, **more):
        """A cluster of which one node has another file."""
        c = ByHand(**more)
        self.addCleanup(c.stop)
        for name in ("station-0", "station-1", "shard-0", "shard-1", "coordinator-0"):
            c.start_with(name, change if name == other else None)
        return c

    def is_missed(self, c, *words):
        """The coordinator says what is wrong with the node, and refuses answers until it is mended."""
        def says_so():
            missing = c.call_api("GET", "/ready")[1].get("missing", "")
            return all(word in missing for word in words)
        self.assertTrue(nodes.wait_for(says_so, 20), c.call_api("GET", "/ready"))
        status, value = c.call_api("POST", CHAT, SEA)
        self.assertEqual((status, value["error"]["retryable"]), (503, True))
        self.assertEqual(c.call_api("GET", "/health")[0], 200)

    def is_mended(self, c, name):
        c.by_id[name].kill()
        c.start_with(name)
        self.assertTrue(nodes.wait_for(lambda: c.call_api("GET", "/ready")[0] == 200, 20))
        self.assertEqual(c.call_api("POST", CHAT, SEA)[0], 200)


@unittest.skipUnless(shutil.which("openssl"), "no openssl program to make certificates with")
class Tls(Case):
    def setUp(self):
        super().setUp()
        for name in ("certificate", "other"):
            authority(self.folder, name)
            certificate(self.folder, name)

    def tls(self, **more):
        return {"certificate": str(self.folder / "certificate.pem"), "key": str(self.folder / "certificate.key"),
                "ca": str(self.folder / "certificate-ca.pem"), **more}

    def by_hand(self, other=None, **tls):
        """All nodes have a certificate of ours, one of them something else. The test trusts both authorities."""

        def all_of(file):
            file["tls"] = self.tls()

        def one(file):
            file["tls"] = self.tls(**tls)
        c = ByHand()
        self.addCleanup(c.stop)
        trust = self.folder / "trust"
        trust.mkdir()
        shutil.copy(self.folder / "certificate-ca.pem", trust / "certificate.pem")
        with open(trust / "certificate.pem", "a") as f:
            f.write((self.folder / "other-ca.pem").read_text())
        c.tls = trust
        for name in ("station-0", "station-1", "shard-0", "shard-1", "coordinator-0"):
            c.file.pop("tls", None)
            c.start_with(name, one if name == other else all_of)
        c.file["tls"] = self.tls()
        return c

    def test_everybody(self):
        c = self.by_hand()
        self.assertTrue(nodes.wait_for(lambda: c.call_api("GET", "/ready")[0] == 200, 20))
        solo = Solo()
        self.addCleanup(solo.stop)
        status, value = c.call_api("POST", CHAT, SEA)
        self.assertEqual((status, value["choices"][0]["message"]["content"]), (200, solo.text(SEA)))
        for node in c.by_id.values():
            self.assertIn("https://", node.line)

    def test_another_authority(self):
        """A node whose certificate somebody else signed gets nothing from the coordinator."""
        c = self.by_hand("station-1", certificate=str(self.folder / "other.pem"), key=str(self.folder / "other.key"))
        self.is_missed(c, "station-1", "certificate")
        self.is_mended(c, "station-1")

    def test_a_coordinator_that_trusts_another(self):
        c = self.by_hand("coordinator-0", ca=str(self.folder / "other-ca.pem"))
        self.is_missed(c, "station-0", "station-1", "shard-0", "shard-1", "certificate")

    def test_another_host(self):
        certificate(self.folder, "certificate", "IP:127.0.0.9")
        c = self.by_hand()
        context = ssl.create_default_context(cafile=str(self.folder / "certificate-ca.pem"))
        context.check_hostname = False  # it is the test's own name too

        def missing():
            node = c.by_id["coordinator-0"]
            line = http.client.HTTPSConnection(node.host, node.port, timeout=10, context=context)
            line.request("GET", "/ready")
            value = json.loads(line.getresponse().read())
            line.close()
            return value.get("missing", "")
        self.assertTrue(nodes.wait_for(lambda: "station-0" in missing() and "not trusted" in missing(), 20), missing())

    def test_under_up_with_wardens(self):
        """Every role, wardens too, supervised."""
        context = ssl.create_default_context(cafile=str(self.folder / "certificate-ca.pem"))
        with tempfile.TemporaryDirectory() as own:
            file = plan(own, "--stations", 2, "--shards", 2, "--context", 512, "--wardens")
            file["tls"] = self.tls()
            nodes.give_ports(file)
            path = os.path.join(own, "cluster.json")
            with open(path, "w") as f:
                json.dump(file, f)
            process = subprocess.Popen([COBORD, "up", "--cluster", path], stdout=subprocess.PIPE, text=True,
                                       stderr=subprocess.PIPE, env=environment(own))
            try:
                line = process.stdout.readline()
                self.assertIn("https://", line)
                connection = http.client.HTTPSConnection(file["coordinator"]["address"], timeout=60, context=context)
                connection.request("POST", CHAT, json.dumps(dict(SEA, max_tokens=5)))
                self.assertEqual(connection.getresponse().status, 200)
                connection.close()
            finally:
                process.terminate()
                errors = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, 0, errors)
            for word in ("no connection:", "not trusted"):  # one that is "not in time" is a busy machine's
                self.assertNotIn(word, errors)


class Keys(Case):
    def test_another_key_on_one_node(self):
        for name in ("station-1", "shard-0"):
            with self.subTest(name):
                def change(file):
                    file["key_file"] = str(self.folder / "other-key")
                path = self.folder / "other-key"
                path.touch(0o600)
                path.write_text("a-key-that-nobody-else-has\n")
                c = self.cluster(name, change)
                self.is_missed(c, name, "key")
                log = c.by_id["coordinator-0"].errors()
                for secret in (nodes.KEY, "a-key-that-nobody-else-has"):
                    self.assertNotIn(secret, log + c.by_id[name].errors())
                self.is_mended(c, name)

    def test_no_key_on_the_coordinator(self):
        c = self.cluster("coordinator-0", lambda file: file.pop("key_file"))
        self.is_missed(c, "station-0", "shard-1", "key")


class Files(Case):
    """The knot of a node is not the one of the others; both ids are named."""

    def other_knot(self, path, name):
        about = json.loads(nodes.support.must("info", path, "--json"))
        self.assertNotEqual(about["id"], MODEL.knot_id)

        def change(file):
            file["model"].update(knot_id=about["id"], store=str(self.folder), knot_key=path.name)
        c = self.cluster(name, change)
        self.is_missed(c, name, about["id"], MODEL.knot_id)
        self.is_mended(c, name)

    def test_another_file_of_the_same_name(self):
        path = self.folder / MODEL.path.name
        nodes.support.must("synth", "--shape", MODEL.name, "--seed", "7", "-o", path)
        self.other_knot(path, "station-1")
        # And with the right id in the cluster file, which that file then does not have: said at start.
        c = ByHand()
        self.addCleanup(c.stop)
        c.file["model"]["store"] = str(self.folder)
        c.write()
        done = c.run("shard-1")
        self.assertEqual(done.returncode, 1)
        self.assertIn(MODEL.knot_id.encode(), done.stderr)

    def test_another_quantization(self):
        """The same model with one other scale, as another run of a quantizer gives it."""
        nodes.support.must("pull", MODEL.name, "--keep")
        source = nodes.support.models_folder() / (MODEL.name + ".gguf")
        path = self.folder / MODEL.path.name
        nodes.support.must("encode", requantized(source, self.folder / "other.gguf"), "-o", path)
        self.other_knot(path, "shard-1")


def requantized(source, path):
    data = bytearray(source.read_bytes())
    data[-1000] ^= 1
    path.write_bytes(data)
    return path


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2, warnings="ignore"))
