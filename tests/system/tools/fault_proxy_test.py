#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The fault proxy does to a connection what its switches say, and nothing else. Usage: fault_proxy_test.py PROGRAM"""
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time


class Echo:
    """Answers each connection with the bytes it gets."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.echo, args=(connection,), daemon=True).start()

    @staticmethod
    def echo(connection):
        try:
            while data := connection.recv(65536):
                connection.sendall(data)
        except OSError:
            pass
        connection.close()


class Proxy:
    def __init__(self, program, target, *options):
        self.process = subprocess.Popen([program, "0", f"127.0.0.1:{target}", *options], text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.port = int(self.process.stdout.readline().split()[1])

    def say(self, line):
        self.process.stdin.write(line + "\n")
        return self.process.stdout.readline().strip()

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=5)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s


def receive(s, count):
    data = b""
    while len(data) < count:
        piece = s.recv(count - len(data))
        if not piece:
            break
        data += piece
    return data


def exchange(s, data):
    s.sendall(data)
    return receive(s, len(data))


def fails(action, *kinds):
    try:
        action()
    except kinds:
        return True
    return False


def test_delay(p):
    with p.connect() as s:
        for delay in (0, 5, 12.5):
            assert p.say(f"delay-ms {delay}") == "ok"
            exchange(s, b"warm")
            best = 1.0
            for _ in range(15):
                start = time.perf_counter()
                assert exchange(s, b"x" * 6000) == b"x" * 6000
                best = min(best, time.perf_counter() - start)
            assert delay / 1e3 <= best < delay / 1e3 + 0.002, f"{delay} ms took {best * 1e3:.2f} ms"
        p.say("delay-ms 40")  # pieces keep their distance: the delay is not added up
        best = 1.0
        for _ in range(5):
            start = time.perf_counter()
            for piece in (b"a", b"b", b"c"):
                s.sendall(piece)
                time.sleep(0.01)
            assert receive(s, 3) == b"abc"
            best = min(best, time.perf_counter() - start)
        assert 0.055 < best < 0.1


def test_corrupt(p):
    with p.connect() as s:
        assert exchange(s, b"before") == b"before"
        p.say("corrupt-at 3")
        assert exchange(s, b"abcdef") == b"abc" + bytes([ord("d") ^ 0x10]) + b"ef"
        assert exchange(s, b"abcdef") == b"abcdef"


def test_drop(p):
    p.say("drop-after 10")
    with p.connect() as s:
        s.sendall(b"0123456789abcdef")
        assert receive(s, 16) == b"0123456789"
    p.say("clear")
    with p.connect() as s:
        exchange(s, b"x")
        p.say("drop")
        assert s.recv(1) == b""


def test_reset_and_refuse(p):
    with p.connect() as s:
        exchange(s, b"x")
        p.say("reset on")
        assert fails(lambda: s.recv(1), ConnectionResetError)
        assert fails(lambda: exchange(p.connect(), b"x"), ConnectionError)
        p.say("clear")
    p.say("refuse on")
    assert fails(p.connect, ConnectionRefusedError)
    p.say("refuse off")
    with p.connect() as s:
        assert exchange(s, b"again") == b"again"


def test_silence(p):
    with p.connect() as s:
        p.say("freeze on")
        s.settimeout(0.1)
        assert fails(lambda: exchange(s, b"late"), TimeoutError)
        p.say("freeze off")
        assert receive(s, 4) == b"late"
        p.say("blackhole on")
        assert fails(lambda: exchange(s, b"lost"), TimeoutError)
        p.say("blackhole off")
        assert exchange(s, b"here") == b"here"


def test_slow(p):
    p.say("slow 100000")
    with p.connect() as s:
        start = time.perf_counter()
        data = os.urandom(30000)
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)  # the rest comes although the other side has closed too
        assert receive(s, 30001) == data
        assert 0.25 < time.perf_counter() - start < 3


def test_bulk(p):
    data = os.urandom(8 << 20)
    with p.connect() as s:
        sender = threading.Thread(target=s.sendall, args=(data,))
        sender.start()
        assert receive(s, len(data)) == data
        sender.join()


def test_dead_target(program):
    unused = socket.create_server(("127.0.0.1", 0))
    port = unused.getsockname()[1]
    unused.close()
    p = Proxy(program, port)
    assert fails(lambda: exchange(p.connect(), b"x"), ConnectionError)
    p.process.stdin.close()
    assert p.process.wait(5) == 0


def test_control_socket(program, echo):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "control")
        p = Proxy(program, echo.port, "--control", path, "--delay-ms", "1")
        with socket.socket(socket.AF_UNIX) as control, p.connect() as s:
            control.connect(path)
            exchange(s, b"12345")
            control.sendall(b"stats\nnonsense 1\ndelay-ms -1\n")
            lines = b""
            while lines.count(b"\n") < 3:
                lines += control.recv(400)
            stats, unknown, bad = lines.decode().splitlines()
            assert json.loads(stats) == {"connections": 1, "open": 1, "request_bytes": 5, "answer_bytes": 5}
            assert unknown == "error: nonsense 1" and bad == "error: delay-ms -1"
        p.process.stdin.close()
        assert p.process.wait(5) == 0


def main():
    program, echo = sys.argv[1], Echo()
    p = Proxy(program, echo.port)
    for test in (test_delay, test_corrupt, test_drop, test_reset_and_refuse, test_silence, test_slow, test_bulk):
        test(p)
        assert p.say("clear") == "ok"
        print(test.__name__)
    p.process.stdin.close()
    assert p.process.wait(5) == 0
    test_dead_target(program)
    test_control_socket(program, echo)
    assert subprocess.run([program, "0", "127.0.0.1:1", "--nonsense", "1"], capture_output=True).returncode == 2


main()
