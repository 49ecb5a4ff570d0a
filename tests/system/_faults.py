# SPDX-License-Identifier: Apache-2.0
"""Calls that fail while a process runs: fail_nth.c, told what by a file that both map.

    with Faults() as f:
        Server(..., environment=f.environment)      a process with the library in it
        f.arm("self", "memory", 3)                  its third request for memory from now on gets none
        f.count("self"), f.failed("self")           such calls since then, and how many of them failed
        f.disarm("self")
"""
import mmap
import os
import pathlib
import struct
import tempfile

LIBRARY = os.path.abspath(os.environ.get("FAIL_NTH", "build/tests/libfail_nth.so"))
assert os.path.exists(LIBRARY), LIBRARY  # it would be left out without a word
KINDS = ["none", "memory", "read", "write", "sync", "open", "net", "wait", "thread", "short", "one", "again"]
# What a call does and nobody may notice.
UNSEEN = ["short", "one", "again"]
WORDS = 6


class Faults:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.environment = {"LD_PRELOAD": LIBRARY, "FAIL_CONTROL": self.folder.name}
        self.maps = {}

    def map(self, name):
        if name not in self.maps:
            path = pathlib.Path(self.folder.name) / name
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            os.ftruncate(fd, 8 * WORDS)
            self.maps[name] = mmap.mmap(fd, 8 * WORDS)
            os.close(fd)
        return self.maps[name]

    def arm(self, name, kind, at, lasts=False, libraries=False):
        """`at` 0: only counts."""
        m = self.map(name)
        m[0:8] = struct.pack("<q", 0)  # while the others change nothing is due
        m[8:] = struct.pack("<5q", at, lasts, libraries, 0, 0)
        m[0:8] = struct.pack("<q", KINDS.index(kind))

    def disarm(self, name):
        self.map(name)[0:8] = struct.pack("<q", 0)

    def count(self, name):
        return struct.unpack_from("<q", self.map(name), 32)[0]

    def failed(self, name):
        return struct.unpack_from("<q", self.map(name), 40)[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for m in self.maps.values():
            m.close()
        self.folder.cleanup()


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def chosen(calls, everything, some):
    """Every number, or the first, the last and some between."""
    if everything or calls <= some:
        return range(1, calls + 1)
    return sorted({1 + i * (calls - 1) // (some - 1) for i in range(some)})
