# SPDX-License-Identifier: Apache-2.0
"""Stands in for a node: answers /health and /ready, and fails as it is told.

node.py PORT [chatty] [code N] [mute] [freezes]"""

import http.server
import os
import signal
import sys

port, what = int(sys.argv[1]), sys.argv[2:]
print("begins", os.getpid(), flush=True)
if "chatty" in what:
    for i in range(3000):
        print("line", i, "." * 100)
    print("no newline at the end", end="", flush=True)
    os._exit(7)
if "code" in what:
    print("ended on purpose", file=sys.stderr, flush=True)
    os._exit(int(what[1]))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/ready" and "mute" in what:
            self.send_response(503)
        else:
            self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass


def end(*_):
    print("ends", flush=True)
    os._exit(0)


signal.signal(signal.SIGTERM, end)
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
if "freezes" in what:  # before it has answered anybody, though others can connect
    os.kill(os.getpid(), signal.SIGSTOP)
server.serve_forever()
