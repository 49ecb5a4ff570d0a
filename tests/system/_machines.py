# SPDX-License-Identifier: Apache-2.0
"""Machines of their own: network namespaces on one wire, each with its addresses.

    with Wire(2) as wire:                   skips the test where namespaces cannot be made
        with wire.inside(0):                what this thread opens and starts now belongs to machine 0
            ...
        wire.silence(1)                     packets of machine 1 vanish on their way out; hear(1) ends it
        wire.unplug(1), wire.plug(1)        the cable

Machine i has 10.77.0.(i+1) and fd77::(i+1).
"""
import contextlib
import ctypes
import os
import subprocess
import unittest

CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)


def ip(*words, check=True):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if check and done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Wire:
    def __init__(self, count):
        self.names = [f"cobord-{os.getpid()}-{i}" for i in range(count)]
        self.switch = f"cobord-{os.getpid()}-s"
        try:
            self.make()
        except OSError as error:  # no ip program too
            self.close()
            raise unittest.SkipTest(f"no network namespaces here: {error}") from error

    def make(self):
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "switch", "type", "bridge")
        ip("-n", self.switch, "link", "set", "switch", "up")
        for i, name in enumerate(self.names):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "add", "wire", "type", "veth", "peer", "name", f"port{i}", "netns", self.switch)
            ip("-n", self.switch, "link", "set", f"port{i}", "master", "switch", "up")
            ip("-n", name, "link", "set", "wire", "up")
            ip("-n", name, "address", "add", f"10.77.0.{i + 1}/24", "dev", "wire")
            ip("-n", name, "-6", "address", "add", f"fd77::{i + 1}/64", "dev", "wire", "nodad")

    @contextlib.contextmanager
    def inside(self, machine):
        with open("/proc/thread-self/ns/net") as home, open("/var/run/netns/" + self.names[machine]) as there:
            self.enter(there)
            try:
                yield
            finally:
                self.enter(home)

    @staticmethod
    def enter(file):
        if LIBC.setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")

    def silence(self, machine):
        """A firewall that drops: nobody is told anything."""
        for i in range(len(self.names)):
            if i != machine:
                ip("-n", self.names[machine], "route", "add", "blackhole", f"10.77.0.{i + 1}/32")

    def hear(self, machine):
        for i in range(len(self.names)):
            if i != machine:
                ip("-n", self.names[machine], "route", "del", "blackhole", f"10.77.0.{i + 1}/32")

    def unplug(self, machine):
        ip("-n", self.switch, "link", "set", f"port{machine}", "down")

    def plug(self, machine):
        ip("-n", self.switch, "link", "set", f"port{machine}", "up")

    def close(self):
        for name in [*self.names, self.switch]:
            with contextlib.suppress(OSError):
                ip("netns", "del", name, check=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
