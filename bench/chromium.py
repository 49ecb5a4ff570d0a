# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium and files for it: told what to do over a pipe, in the browser's own protocol, so that no driver
is needed.

    with Files({"/models/": folder}) as files, Chromium(program) as browser:
        page = browser.page(files.address("/bench/page.html"))
        value = page.call("bench.run", {"some": "argument"})
"""
import http.server
import json
import os
import posixpath
import select
import shutil
import sys
import tempfile
import threading
import urllib.parse

from programs import BenchError
from servers import Process

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CALL_SECONDS_MAX = 900
TYPES = {".html": "text/html", ".mjs": "text/javascript", ".js": "text/javascript", ".wasm": "application/wasm"}
# The browser reads commands at descriptor 3 and answers at 4.
LAUNCH = ("import fcntl, os, sys\n"
          "ends = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3]]\n"
          "os.dup2(ends[0], 3), os.dup2(ends[1], 4)\n"
          "os.execvp(sys.argv[3], sys.argv[3:])\n")


def find():
    """Debian's, or COBORD_CHROMIUM."""
    for name in (os.environ.get("COBORD_CHROMIUM"), *PROGRAMS):
        if name and shutil.which(name):
            return shutil.which(name)
    raise BenchError("no Chromium here. Run scripts/prepare browser, or set COBORD_CHROMIUM.")


class Chromium(Process):
    def __init__(self, program):
        self.profile = tempfile.TemporaryDirectory(prefix="cobord-browser-")
        there, here = os.pipe(), os.pipe()
        self.to, self.back, self.rest, self.number = there[1], here[0], b"", 0
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   "--disable-background-networking", "--disable-component-update", "--disable-extensions",
                   "--disable-background-timer-throttling", "--disable-renderer-backgrounding",
                   f"--user-data-dir={self.profile.name}", "--remote-debugging-pipe", "about:blank"]
        command = [sys.executable, "-c", LAUNCH, str(there[0]), str(here[1]), program, *options]
        super().__init__(command, pass_fds=(there[0], here[1]))
        os.close(there[0])
        os.close(here[1])

    def __exit__(self, *_):
        super().__exit__(*_)
        os.close(self.to)
        os.close(self.back)
        self.profile.cleanup()

    def version(self):
        return self.command_result("Browser.getVersion", {})["product"]

    def page(self, address):
        target = self.command_result("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.command_result("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = Page(self, session)
        page.open(address)
        return page

    def command_result(self, method, parameters, session=None):
        """Sends one command and waits for its answer; what the browser tells meanwhile is passed over."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        left = json.dumps(message).encode() + b"\0"
        while left:
            left = left[os.write(self.to, left):]
        while (answer := self.next_message()).get("id") != self.number:
            pass
        if "error" in answer:
            raise BenchError(f"Chromium: {method}: {answer['error'].get('message')}")
        return answer["result"]

    def next_message(self):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.back], [], [], CALL_SECONDS_MAX)
            data = os.read(self.back, 1 << 16) if ready else b""
            if not data:
                raise self.failed("has ended" if ready else f"no answer within {CALL_SECONDS_MAX} s")
            self.rest += data
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)


class Page:
    def __init__(self, browser, session):
        self.browser, self.session = browser, session

    def open(self, address):
        """Returns when the page's module has run: it sets `bench`."""
        self.browser.command_result("Page.navigate", {"url": address}, self.session)
        self.evaluate("new Promise(done => { const wait = () => window.bench ? done(1) : setTimeout(wait, 20);"
                      "                      wait(); })")

    def call(self, function, argument):
        return self.evaluate(f"{function}({json.dumps(argument)})")

    def evaluate(self, expression):
        answer = self.browser.command_result(
            "Runtime.evaluate", {"expression": expression, "awaitPromise": True, "returnByValue": True}, self.session)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            text = details.get("exception", {}).get("description") or details.get("text")
            raise BenchError(f"Chromium: {expression[:60]}: {text}")
        return answer["result"].get("value")


class Files:
    """Files over HTTP on a port of this machine. `places`: a prefix of the path -> a folder, or one file."""

    def __init__(self, places):
        files = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                files.send(self)

            def log_message(self, *_):
                pass

        self.places = places
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def address(self, path):
        return f"http://127.0.0.1:{self.server.server_address[1]}{path}"

    def find(self, path):
        path = posixpath.normpath(urllib.parse.unquote(urllib.parse.urlsplit(path).path))
        for prefix, place in self.places.items():
            if path == prefix:
                return place
            if prefix.endswith("/") and path.startswith(prefix):
                return os.path.join(place, path[len(prefix):])
        return None

    def send(self, request):
        place = self.find(request.path)
        if not place or not os.path.isfile(place):
            request.send_error(404)
            return
        with open(place, "rb") as f:
            request.send_response(200)
            request.send_header("Content-Type", TYPES.get(os.path.splitext(place)[1], "application/octet-stream"))
            request.send_header("Content-Length", str(os.fstat(f.fileno()).st_size))
            request.end_headers()
            shutil.copyfileobj(f, request.wfile, 1 << 20)
