# SPDX-License-Identifier: Apache-2.0
"""Thousands of connections that say nothing, half a head, or too little: from one address or from many, with a watch on
who is served meanwhile. One process of its own each, which opens what it may."""
import contextlib
import errno
import http.client
import resource
import select
import socket
import statistics
import threading
import time


def may_open(files):
    """Raises this process's limit. Result: how many files it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(files, hard), hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Crowd:
    """`count` connections, each of which sends `text(i)` and then nothing. `sources`: addresses they come from."""

    def __init__(self, port, count, text=lambda i: b"", sources=("127.0.0.1",)):
        self.port, self.text, self.sources = port, text, sources
        self.sockets, self.ended = [], 0
        for i in range(count):
            self.add(i)

    def add(self, i):
        s = socket.socket()
        s.setblocking(False)
        s.bind((self.sources[i % len(self.sources)], 0))
        error = s.connect_ex(("127.0.0.1", self.port))
        assert error in (0, errno.EINPROGRESS), errno.errorcode[error]
        self.sockets.append(s)
        if self.text(i):
            poll = select.poll() # select() takes small numbers only
            poll.register(s, select.POLLOUT)
            poll.poll(10000)
            with contextlib.suppress(OSError):
                s.send(self.text(i))

    def standing(self):
        """How many the server has not ended."""
        poll = select.poll()
        for s in self.sockets:
            poll.register(s, select.POLLIN | select.POLLRDHUP)
        return len(self.sockets) - len(poll.poll(0))

    def close(self):
        for s in self.sockets:
            s.close()
        self.sockets = []


class Watch(threading.Thread):
    """Asks /health on new connections all the while, from an address of its own."""

    def __init__(self, port, source="127.0.0.1", key=None):
        super().__init__(daemon=True)
        self.port, self.source, self.over = port, source, threading.Event()
        self.times, self.failures = [], []
        self.start()

    def run(self):
        while not self.over.is_set():
            began = time.monotonic()
            try:
                c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20, source_address=(self.source, 0))
                c.request("GET", "/health")
                assert c.getresponse().status == 200
                c.close()
            except (OSError, http.client.HTTPException, AssertionError) as e:
                self.failures.append(repr(e))
            self.times.append(time.monotonic() - began)
            self.over.wait(0.005)

    def stop(self):
        """(count, median, p99, worst) in milliseconds."""
        self.over.set()
        self.join()
        times = sorted(self.times)
        return len(times), *(round(1000 * t, 1) for t in (statistics.median(times), times[len(times) * 99 // 100],
                                                          times[-1]))
