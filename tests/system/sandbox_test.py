#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A whole cluster of an unprivileged user, without capabilities and without a way to more, under the filter of system
calls that containers get (deploy/docker/seccomp.json), where any other call kills. Wardens, TLS between nodes, a row
cache, a journal; a station dies, and the cluster drains. And that the filter does kill."""
import http.client
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import unittest

import up_test
from tls_test import make_certificate
from up_test import MODEL, Up, alone, wait_until
from _nodes import give_ports, support

HERE = pathlib.Path(__file__).resolve().parent
PROFILE = HERE.parents[1] / "deploy/docker/seccomp.json"
USER = 61234 if os.geteuid() == 0 else os.geteuid()


class SafeUp(Up):
    """With the certificate of its cluster file at the API too."""

    def begin(self, certificate):
        self.line = self.process.stdout.readline()
        match = re.search(r" on https://127[.]0[.]0[.]1:(\d+)$", self.line.strip())
        assert match, (self.line, self.errors())
        self.port, self.context = int(match.group(1)), ssl.create_default_context(cafile=str(certificate))

    def json(self, path="/v1/chat/completions", data=None, timeout=120):
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=self.context)
        try:
            connection.request("POST" if data else "GET", path, json.dumps(data).encode() if data else None)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


class Sandbox(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if platform.machine() != "x86_64":
            raise unittest.SkipTest("the loader of the filter knows the numbers of x86-64 only")
        cls.own = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.own.cleanup)
        cls.folder = pathlib.Path(cls.own.name)
        # What its user may read: this tree and the cache are the caller's.
        shutil.copy(up_test.COBORD, cls.folder / "cobord")
        shutil.copy(PROFILE, cls.folder)
        (cls.folder / "cache/models").mkdir(parents=True)
        for path in support.models_folder().glob(f"{MODEL}.*"):
            shutil.copy(path, cls.folder / "cache/models")
        cls.command = cls.folder / "confined"
        loader = shutil.copy(HERE / "tools/confined.py", cls.folder)
        cls.command.write_text(f"#!/bin/sh\nexec {sys.executable} {loader} {cls.folder}/seccomp.json {USER} \"$@\"\n")
        program = cls.folder / "program"
        program.write_text(f"#!/bin/sh\nexec {cls.command} {cls.folder}/cobord \"$@\"\n")
        for path in (cls.command, program):
            path.chmod(0o755)
        cls.program = str(program)

    def cluster(self):
        """The cluster file: every kind of node, a key, certificates."""
        certificate, key = make_certificate("sandbox", "IP:127.0.0.1")
        shutil.copy(certificate, self.folder / "certificate.pem")
        shutil.copy(key, self.folder / "key.pem")
        (self.folder / "key").write_text("the-key-of-this-sandbox")
        support.must("plan", MODEL, "--stations", 2, "--shards", 2, "--context", 1024, "--wardens", "--key-file",
                     self.folder / "key", "-o", self.folder / "cluster.json")
        file = json.loads((self.folder / "cluster.json").read_text())
        file["model"]["store"] = str(self.folder / "cache/models")
        certificate, key = (str(self.folder / name) for name in ("certificate.pem", "key.pem"))
        file["tls"] = {"certificate": certificate, "key": key, "ca": certificate}
        ports = give_ports(file)
        file["shard_wardens"][0]["cache"] = f"sqlite:{self.folder}/rows"
        (self.folder / "cluster.json").write_text(json.dumps(file))
        if os.geteuid() == 0:
            for path in [self.folder, *self.folder.rglob("*")]:
                os.chown(path, USER, USER)
        for name in ("key", "key.pem"):
            os.chmod(self.folder / name, 0o600)
        return self.folder / "cluster.json", len(ports)

    def confined(self, *command):
        return subprocess.run([self.command, *command], capture_output=True, text=True, timeout=60)

    def status(self, pid):
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
        return {name: value.split() for name, _, value in (line.partition(":") for line in lines)}

    def test_the_filter_kills(self):
        python = "/usr/bin/python3"
        if not os.path.exists(python):
            self.skipTest("no Python of the system, which its users may run")
        self.assertEqual(self.confined(python, "-c", "print(1)").stdout, "1\n")
        for call in ("os.chroot('/')", "os.sched_setscheduler(0, 0, os.sched_param(0))", "os.setuid(0)",
                     "__import__('socket').socket(17, 3, 0)", "__import__('ctypes').CDLL(None).unshare(0x10000000)",
                     "__import__('ctypes').CDLL(None).ptrace(0, 0, 0, 0)", "os.memfd_create('x') and os.mknod('/x')"):
            with self.subTest(call):
                self.assertEqual(self.confined(python, "-c", f"import os\n{call}").returncode, -signal.SIGSYS)

    def test_a_cluster_works_within(self):
        file, count = self.cluster()
        usual, environment = up_test.COBORD, up_test.environment
        up_test.COBORD = self.program
        up_test.environment = lambda _: dict(environment(self.folder / "state"), TMPDIR=self.own.name,
                                             HOME=self.own.name, COBORD_CACHE=f"{self.folder}/cache")
        try:
            up = SafeUp("--cluster", str(file), model=None, wait=False)
        finally:
            up_test.COBORD, up_test.environment = usual, environment
        self.addCleanup(up.close)
        up.begin(self.folder / "certificate.pem")
        self.assertEqual(len(up.nodes()), count)
        for pid in [up.process.pid, *up.nodes().values()]:
            status = self.status(pid)
            self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), (["1"], ["2"]))
            self.assertEqual(set(status["Uid"]), {str(USER)})
            for name in ("CapEff", "CapPrm", "CapAmb"):
                self.assertEqual(int(status[name][0], 16), 0, name)
        expected = alone("--temperature", "0")
        self.assertEqual(self.ask(up), expected)
        old = up.kill("station-0")
        up.wait_for_new("station-0", old)
        self.assertEqual(wait_until(lambda: self.ask(up)), expected)
        said = up.errors()
        self.assertEqual(up.stop(), 0)
        self.assertRegex(said, "station-0 was ended by signal 9")
        self.assertNotRegex(said, r"signal 31|SIGSYS|Bad system call")

    def ask(self, up):
        code, answer = up.json(data=up_test.body())
        return answer["choices"][0]["message"]["content"] if code == 200 else None


if __name__ == "__main__":
    unittest.main()
