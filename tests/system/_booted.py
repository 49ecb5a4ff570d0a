# SPDX-License-Identifier: Apache-2.0
"""A systemd that really runs, in a container of systemd-nspawn: this machine's /usr, a root of its own, and what `make
install` puts into /usr/local. Units are started as on a machine, with users, credentials, namespaces and filters of
system calls. The network is that of the test. Limits of memory may be beyond what a container may set.

    with Booted(models) as machine:
        machine.run("systemctl", "start", "cobord")
"""
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

import _installed as installed

BOOT_SECONDS = 30
PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
GROUP = "root:x:0:\nnogroup:x:65534:\n"


def need():
    for tool, package in (("systemd-nspawn", "systemd-container"), ("nsenter", "util-linux")):
        if not shutil.which(tool):
            raise unittest.SkipTest(f"{tool} is missing: apt-get install {package}")
    if os.geteuid() != 0:
        raise unittest.SkipTest("systemd-nspawn works for root only")
    if not os.path.islink("/lib") or not os.path.exists("/usr/lib/systemd/systemd"):
        raise unittest.SkipTest("this system has no systemd in a merged /usr")


class Booted:
    def __init__(self, models=()):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name) / "root"
        self.make_root()
        cache = self.root / "var/cache/private/cobord/models"
        cache.mkdir(parents=True)
        for path in models:
            shutil.copy(path, cache)
        self.log = open(pathlib.Path(self.folder.name) / "log", "w+")
        self.process = subprocess.Popen(
            ["systemd-nspawn", "-q", "--register=no", "--keep-unit", "--settings=no", "-D", self.root,
             "--bind-ro=/usr", f"--bind-ro={self.folder.name}/stage/usr/local:/usr/local", "--machine=cobord-test",
             "--console=pipe", "-b", "--", "--unit=basic.target"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)
        self.init = None

    def make_root(self):
        installed.install(self.folder.name + "/stage")
        for name in ("usr", "etc/default", "etc/cobord", "etc/systemd/system", "var/lib", "tmp", "run", "proc", "sys",
                     "dev", "root"):
            (self.root / name).mkdir(parents=True)
        for name in ("bin", "sbin", "lib", "lib64"):
            if os.path.islink("/" + name):
                (self.root / name).symlink_to(os.readlink("/" + name))
        etc = self.root / "etc"
        for name, text in (("passwd", PASSWD), ("group", GROUP), ("os-release", "ID=test\n"), ("hostname", "test\n"),
                           ("machine-id", "0123456789abcdef0123456789abcdef\n"),
                           ("nsswitch.conf", "passwd: files systemd\ngroup: files systemd\nhosts: files dns\n")):
            (etc / name).write_text(text)
        for name in ("ld.so.cache", "ld.so.conf"):
            shutil.copy("/etc/" + name, etc)
        for name in ("ld.so.conf.d", "ssl", "ca-certificates", "alternatives"):
            if os.path.isdir("/etc/" + name):
                shutil.copytree("/etc/" + name, etc / name, symlinks=True)

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def __enter__(self):
        end = time.time() + BOOT_SECONDS
        while time.time() < end and self.process.poll() is None:
            children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
            if children:
                self.init = children[0]
                done = self.enter("systemctl", "is-active", "basic.target")
                if done.stdout.strip() == "active":
                    return self
            time.sleep(0.1)
        said = self.said()
        self.__exit__()
        raise unittest.SkipTest(f"systemd does not start in a container here: {said[-500:]}")

    def enter(self, *command):
        return subprocess.run(["nsenter", "-t", self.init, "-m", "-u", "-i", "-p", "-C", *map(str, command)], text=True,
                              capture_output=True, timeout=120)

    def run(self, *command):
        """Standard output of a command that has to succeed."""
        done = self.enter(*command)
        assert done.returncode == 0, (command, done.stdout, done.stderr, self.journal())
        return done.stdout

    def journal(self, unit="cobord*"):
        return self.enter("journalctl", "--no-pager", "-o", "cat", "-u", unit).stdout[-4000:]

    def status_of(self, unit):
        """Fields of /proc/PID/status of a unit's main process."""
        pid = self.run("systemctl", "show", "-p", "MainPID", "--value", unit).strip()
        lines = self.run("cat", f"/proc/{pid}/status").splitlines()
        return pid, {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def __exit__(self, *_):
        if self.init and self.process.poll() is None:
            self.enter("systemctl", "--no-block", "exit", "0")
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                pass
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()
        self.folder.cleanup()
