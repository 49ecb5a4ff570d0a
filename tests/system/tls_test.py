#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The API over TLS: serve, up and status with certificates made here, bad files, and strangers at the port."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest

COBORD = os.path.abspath(os.environ.get("COBORD", "build/cobord"))
MODEL = "smollm2-135m"
CHAT = "/v1/chat/completions"
STATE = tempfile.TemporaryDirectory()
BODY = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 8}


def environment():
    env = {k: v for k, v in os.environ.items() if not k.startswith("COBORD_") or k == "COBORD_CACHE"}
    env.update(XDG_CONFIG_HOME="/nonexistent", XDG_STATE_HOME=STATE.name)
    return env


def make_certificate(name, subject):
    """(certificate, key) of `subject`, such as "IP:127.0.0.1"."""
    files = [os.path.join(STATE.name, name + end) for end in ("-certificate.pem", "-key.pem")]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=" + name]
        + ["-addext", "subjectAltName=" + subject, "-out", files[0], "-keyout", files[1]],
        check=True,
        capture_output=True,
    )
    return files


def run(*arguments, **more):
    return subprocess.run([COBORD, *arguments], capture_output=True, text=True, env={**environment(), **more},
                          timeout=120)


class Server:
    """`cobord serve` or `up` with a certificate, until stop()."""

    def __init__(self, verb, certificate, key, *arguments, name="127.0.0.1", listen="127.0.0.1:0"):
        self.name, self.certificate = name, certificate
        self.err = tempfile.TemporaryFile("a+")
        self.process = subprocess.Popen(
            [COBORD, verb, MODEL, "--listen", listen, "--tls-certificate", certificate, "--tls-key", key, *arguments],
            text=True,
            stdout=subprocess.PIPE,
            stderr=self.err,
            env=environment(),
        )
        self.line = self.process.stdout.readline().strip()
        match = re.search(r" on https://[0-9.]+:(\d+)$", self.line)
        if not match:
            self.process.kill()
            raise AssertionError(f"no address in {self.line!r}: {self.errors()}")
        self.port = int(match.group(1))

    def errors(self):
        self.err.seek(0)
        return self.err.read()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        self.process.stdout.close()
        self.err.close()
        return code

    def call(self, path, body=None, headers=None):
        context = ssl.create_default_context(cafile=self.certificate)
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.sock = context.wrap_socket(plain, server_hostname=self.name)
        try:
            connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers or {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def ask(self):
        status, answer = self.call(CHAT, BODY)
        assert status == 200, answer
        return answer["choices"][0]["message"]["content"]

    def bytes_after(self, text):
        """What a client gets that says this without TLS."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as s:
            s.sendall(text)
            got = b""
            try:
                while piece := s.recv(4096):
                    got += piece
            except ConnectionResetError:
                pass
            return got


@unittest.skipUnless(shutil.which("openssl"), "no openssl program to make a certificate with")
class TlsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.own = make_certificate("own", "IP:127.0.0.1")
        cls.named = make_certificate("named", "DNS:models.example")
        cls.text = run("run", MODEL, "Hi", "--temperature", "0", "--max-tokens", "8").stdout.strip()

    def test_serve(self):
        server = Server("serve", *self.own, "--context", "512")
        try:
            self.assertEqual(server.ask().strip(), self.text)
            self.assertNotIn("anyone", server.errors())
            for text in (b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", b"POST " + CHAT.encode() + b" HTTP/1.1\r\n",
                         bytes(5000), b"\x16\x03\x01\xff\xff" + bytes(300), os.urandom(3000)):
                self.assertNotIn(b"HTTP/1.1 200", server.bytes_after(text))
            silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
            self.assertEqual(server.ask().strip(), self.text)
            for s in silent:
                s.close()
            url = f"https://127.0.0.1:{server.port}"
            status = run("status", url, "--tls-ca", self.own[0])
            self.assertEqual((status.returncode, status.stderr), (0, ""))
            self.assertIn("one process", status.stdout)
            status = run("status", url, "--tls-ca", self.named[0])
            self.assertEqual(status.returncode, 1)
            self.assertIn("not trusted", status.stderr)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_warning_beyond_this_machine(self):
        server = Server("serve", *self.own, "--context", "512", listen="0.0.0.0:0")
        try:
            self.assertRegex(server.errors(), r"anyone who reaches 0\.0\.0\.0:\d+ can use .*: it has no keys\n")
        finally:
            self.assertEqual(server.stop(), 0)

    def test_bad_files(self):
        certificate, key = self.own
        nonsense = os.path.join(STATE.name, "nonsense.pem")
        with open(nonsense, "wb") as f:
            f.write(b"-----BEGIN CERTIFICATE-----\nnonsense\n" + bytes(200))
        long = os.path.join(STATE.name, "long.pem")
        with open(long, "wb") as f:
            f.write(b"a" * (3 << 20))
        for verb in ("serve", "up"):
            for files in ((certificate, "/nonexistent/key.pem"), ("/nonexistent/c.pem", key), (nonsense, key),
                          (certificate, nonsense), (certificate, self.named[1]), (key, certificate), (STATE.name, key),
                          (long, key), ("/dev/null", "/dev/null")):
                got = run(verb, MODEL, "--tls-certificate", files[0], "--tls-key", files[1])
                self.assertEqual((got.returncode, got.stdout, got.stderr.count("\n")), (2, "", 1), (files, got.stderr))
                self.assertTrue(files[0] in got.stderr or files[1] in got.stderr, got.stderr)
            for one in (("--tls-certificate", certificate), ("--tls-key", key)):
                got = run(verb, MODEL, *one)
                self.assertEqual((got.returncode, got.stderr.count("\n")), (2, 1), got.stderr)
                self.assertIn("--tls-", got.stderr)

    def test_up(self):
        """The certificate is made out to a name that the nodes do not have: nobody in the cluster minds."""
        up = Server("up", *self.named, "--stations", "2", "--shards", "1", "--context", "512", name="models.example")
        try:
            self.assertEqual(up.ask().strip(), self.text)
            nodes = subprocess.run(["pgrep", "-P", str(up.process.pid)], capture_output=True, text=True).stdout.split()
            self.assertEqual(len(nodes), 4)
            time.sleep(5)  # longer than a node may be silent
            again = subprocess.run(["pgrep", "-P", str(up.process.pid)], capture_output=True, text=True).stdout.split()
            self.assertEqual(nodes, again, up.errors())
            self.assertNotIn("started again", up.errors())
            status = run("status", f"https://127.0.0.1:{up.port}", "--tls-ca", self.named[0])
            self.assertEqual(status.returncode, 1)  # the address is not the certificate's name
            self.assertNotIn(b"HTTP/1.1 200", up.bytes_after(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"))
            self.assertEqual(up.ask().strip(), self.text)
        finally:
            self.assertEqual(up.stop(), 0)

    def test_status(self):
        up = Server("up", *self.own, "--stations", "2", "--shards", "1", "--context", "512")
        try:
            for where in ([f"https://127.0.0.1:{up.port}"], [f"127.0.0.1:{up.port}"]):
                status = run("status", *where, "--tls-ca", self.own[0])
                self.assertEqual((status.returncode, status.stderr), (0, ""))
                self.assertIn("station-1", status.stdout)
            status = run("status", f"https://127.0.0.1:{up.port}", "--json")
            self.assertEqual(status.returncode, 1)
            self.assertIn("not trusted", status.stderr)
            status = run("status", f"https://127.0.0.1:{up.port}", "--tls-ca", "/nonexistent.pem")
            self.assertEqual((status.returncode, status.stderr.count("\n")), (1, 1))
            self.assertIn("/nonexistent.pem", status.stderr)
        finally:
            self.assertEqual(up.stop(), 0)

    def test_no_tls_there(self):
        """The other way round: https, where nobody speaks TLS."""
        with socket.create_server(("127.0.0.1", 0)) as s:
            def answer():
                peer, _ = s.accept()
                peer.recv(4096)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                peer.close()
            url = f"https://127.0.0.1:{s.getsockname()[1]}"
            for words in (["ready", url], ["status", url], ["run", MODEL, "hi", "--url", url]):
                thread = threading.Thread(target=answer)
                thread.start()
                done = run(*words)
                thread.join()
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, r"Without TLS its address begins with http://\.?\n\Z")

    def test_ready(self):
        """As the check of a container: the server's own variables say where it is, and that it has TLS."""
        server = Server("serve", *self.own)
        url, here = f"https://127.0.0.1:{server.port}", f"0.0.0.0:{server.port}"
        try:
            for variables in ({"COBORD_LISTEN": here, "COBORD_TLS_CERTIFICATE": self.own[0]},
                              {"COBORD_URL": url, "COBORD_TLS_CA": self.own[0]}):
                done = run("ready", **variables)
                self.assertEqual((done.returncode, done.stderr), (0, ""), variables)
            done = run("status", COBORD_URL=url, COBORD_TLS_CA=self.own[0])
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            done = run("ready", COBORD_URL=url)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"not trusted: [^\n]*--tls-ca FILE\.?\n")
            done = run("ready", COBORD_LISTEN=here)
            self.assertEqual(done.returncode, 1)
            self.assertIn("begins with https://", done.stderr)
        finally:
            self.assertEqual(server.stop(), 0)
        for variables in ({"COBORD_LISTEN": here, "COBORD_TLS_CERTIFICATE": self.own[0]}, {"COBORD_URL": url}):
            done = run("ready", **variables)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"https://127.0.0.1:{server.port}/ready", done.stderr)
        self.assertEqual(run("ready", COBORD_LISTEN="nowhere").returncode, 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
