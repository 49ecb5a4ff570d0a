# SPDX-License-Identifier: Apache-2.0
"""A station or a shard that lies: it holds the cluster's key, and its answers are those of a real node until it is told
what to say instead. `lies` counts down: so many answers are lies, then it is honest again.

    with Liar(node) as liar:
        liar.tell(not_a_number, times=2)      # a function of the true answer, and of the one before
"""
import http.client
import http.server
import json
import os
import struct
import threading
import time

import _frames as frames
from _nodes import KEY

FRAMES = "/forward", "/embed", "/logits"


class Said:
    """What is said in place of an answer: status, bytes, or a function that writes to the connection itself."""

    def __init__(self, body=b"", status=200, write=None, headers=None):
        self.body, self.status, self.write, self.headers = body, status, write, headers or {}


class Liar:
    def __init__(self, node, only=FRAMES):
        liar = self
        self.node, self.only, self.lie, self.left, self.told = node, only, None, 0, 0
        self.last, self.lock = {}, threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self):
                size = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(size) if size else None
                try:
                    status, answer = node.call(self.command, self.path, body, timeout=60)
                except (OSError, http.client.HTTPException):
                    self.close_connection = True
                    return
                said = liar.say(self.path, status, answer)
                if said.write:
                    said.write(self.wfile)
                    self.close_connection = True
                    return
                self.send_response_only(said.status)
                for name, value in {"Content-Length": str(len(said.body)), **said.headers}.items():
                    if value is not None:
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(said.body)

            do_GET = do_POST = do_DELETE = pass_on

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, request, client_address):
                """Who is told a lie hangs up."""

        self.http = Server(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def tell(self, lie, times=1 << 30):
        with self.lock:
            self.lie, self.left, self.told = lie, times, 0

    def say(self, path, status, answer):
        with self.lock:
            before, kept = self.last.get(path), Said(answer, status)
            if status == 200:
                self.last[path] = answer
            if path not in self.only or self.left <= 0 or not self.lie or status != 200:
                return kept
            said = self.lie(answer, before)
            if said is None:
                return kept
            self.left -= 1
            self.told += 1
        return said if isinstance(said, Said) else Said(bytes(said))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()


# ---- Lies. Each gets the true answer and the one before it (None at first); None: it says the truth.

def header_bytes(answer):
    return struct.unpack_from("<I", answer, 8)[0]


def field(at, form, change):
    """A field of the header, with its seal; nothing else fits it."""
    def lie(answer, _):
        out, size = bytearray(answer), header_bytes(answer)
        value, = struct.unpack_from(form, out, at)
        struct.pack_into(form, out, at, change(value))
        return frames.seal(bytes(out[:size])) + bytes(out[size:])
    return lie


def payload(change):
    """Another payload of the same length, with hash and seal: nothing but its content is wrong."""
    def lie(answer, _):
        size = header_bytes(answer)
        head, body = bytearray(answer[:size]), bytearray(answer[size:])
        if not body:
            return None
        body = change(body, head) or body
        struct.pack_into("<QQ", head, 40, len(body), frames.xxh64(bytes(body)))
        return frames.seal(bytes(head)) + bytes(body)
    return lie


def number(value, at=-4):
    """A number among the rows: of the last row, or the first."""
    def change(body, _):
        struct.pack_into("<f", body, len(body) + at if at < 0 else at, value)
    return payload(change)


def without_hash(answer, _):
    size = header_bytes(answer)
    return answer[:size] + bytes([answer[size] ^ 1]) + answer[size + 1:] if len(answer) > size else None


def without_seal(answer, _):
    return answer[:60] + bytes([answer[60] ^ 1]) + answer[61:]


def older(answer, before):
    """The frame before this one, once more: as sound as can be."""
    return before if before and before != answer else None


def cut(count):
    return lambda answer, _: answer[:count] if count >= 0 else answer[:len(answer) + count]


def longer(count):
    return lambda answer, _: answer + bytes(count)


def shorter_row(body, head):
    """One number less, in a frame that is sound otherwise."""
    return body[:-4]


def endless(answer, _):
    def write(out):
        out.write(b"HTTP/1.1 200 OK\r\n\r\n" + answer)
        while True:
            out.write(bytes(1 << 16))
    return Said(write=write)


def endless_head(answer, _):
    def write(out):
        out.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            out.write(b"X-More: " + b"y" * 1000 + b"\r\n")
    return Said(write=write)


def drip(answer, _):
    def write(out):
        out.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer))
        for byte in answer:
            out.write(bytes([byte]))
            out.flush()
            time.sleep(0.1)
    return Said(write=write)


def hang_up(answer, _):
    def write(out):
        out.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer[:len(answer) // 2])
    return Said(write=write)


def chunked(answer, _):
    def write(out):
        out.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        out.write(b"%x\r\n" % len(answer) + answer + b"\r\n0\r\n\r\n")
    return Said(write=write)


def error(status, code, message="so it says"):
    body = json.dumps({"error": {"message": message, "type": "node_error", "param": None, "code": code,
                                 "retryable": status >= 500}}).encode()
    return lambda answer, _: Said(body, status)


def status(number, body=b"", **headers):
    return lambda answer, _: Said(body, number, headers={k.replace("_", "-"): v for k, v in headers.items()})


def noise(answer, _):
    return os.urandom(len(answer))


def add(count):
    return lambda value: value + count


def flip(bit):
    return lambda value: value ^ bit


# ---- Logits: candidates are pairs of id and logit, the best first.

def candidates(change):
    def alter(body, head):
        count, = struct.unpack_from("<I", head, 96)
        pairs = [struct.unpack_from("<If", body, 8 * i) for i in range(count)]
        out = change(pairs)
        for i, pair in enumerate(out[:count]):
            struct.pack_into("<If", body, 8 * i, *pair)
    return payload(alter)


def nan_first(pairs):
    return [(pairs[0][0], float("nan")), *pairs[1:]]


def infinite_first(pairs):
    return [(pairs[0][0], float("inf")), *pairs[1:]]


def of_another_shard(pairs):
    return [((pairs[0][0] + 30000) % 49152, pairs[0][1]), *pairs[1:]]


def of_nobody(pairs):
    return [(0xFFFFFFFF, pairs[0][1]), *pairs[1:]]


def backwards(pairs):
    return pairs[::-1] if len(pairs) > 1 else [(0xFFFFFFF0, pairs[0][1])]


def the_same_twice(pairs):
    return [pairs[0]] * len(pairs) if len(pairs) > 1 else [(0xFFFFFFF0, pairs[0][1])]
