# SPDX-License-Identifier: Apache-2.0
"""The part of Cloudflare's API that a deployment by wrangler calls, on this machine: what was sent is kept, and what
the platform would refuse is refused (a binding to a script, a bucket or a namespace that is not there).

    with Api(buckets=["cobord"]) as api:
        run("wrangler", "deploy", .., env={**os.environ, **api.environment})
        api.scripts     {name: {"metadata": .., "modules": {file name: bytes}}}, in the order in which they came
        api.refused     the messages of what was refused
"""
import http.server
import json
import re
import threading

ACCOUNT = "0123456789abcdef" * 2


class Refusal(Exception):
    def __init__(self, status, code, message):
        super().__init__(message)
        self.status, self.code = status, code


class Api:
    def __init__(self, buckets=()):
        self.buckets, self.namespaces, self.scripts, self.refused, self.addresses = list(buckets), [], {}, [], set()
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                path = self.path.split("?")[0].removeprefix(f"/client/v4/accounts/{ACCOUNT}")
                out = {"success": True, "errors": [], "messages": [], "result": None}
                status = 200
                try:
                    if self.headers.get("authorization") != "Bearer test-token":
                        raise Refusal(401, 10000, "Authentication error")
                    kind = self.headers.get("content-type") or ""
                    beyond = re.search(r"[?&]page=[2-9]", self.path)  # of a list, which is whole in its first page
                    out["result"] = [] if beyond else api.call(self.command, path, kind, body)
                except Refusal as r:
                    status = r.status
                    out.update(success=False, errors=[{"code": r.code, "message": str(r)}])
                    if status != 404:
                        api.refused.append(str(r))
                text = json.dumps(out).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = answer

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    @property
    def environment(self):
        base = f"http://127.0.0.1:{self.server.server_address[1]}/client/v4"
        return {"CLOUDFLARE_API_BASE_URL": base, "CLOUDFLARE_API_TOKEN": "test-token"}

    def call(self, method, path, kind, body):
        found = re.fullmatch(r"/workers/scripts/([^/]+)(/.*)?", path)
        if found and method == "PUT" and not found[2]:
            return self.upload(found[1], kind, body)
        if found and found[2] == "/subdomain":
            if method == "POST" and json.loads(body)["enabled"]:
                self.addresses.add(found[1])
            return {"enabled": found[1] in self.addresses, "previews_enabled": False}
        if path == "/workers/scripts":
            return [{"id": name} for name in self.scripts]
        if path == "/workers/subdomain":
            return {"subdomain": "someone"}
        if path == "/storage/kv/namespaces":
            if method == "POST":
                self.namespaces.append({"id": f"{len(self.namespaces) + 1:032x}", "title": json.loads(body)["title"]})
                return self.namespaces[-1]
            return self.namespaces
        bucket = re.fullmatch(r"/r2/buckets(?:/(.+))?", path)
        if bucket and method == "POST":
            self.buckets.append(json.loads(body)["name"])
            return {}
        if bucket and bucket[1] in self.buckets:
            return {"name": bucket[1]}
        raise Refusal(404, 10007, f"{method} {path}: not there")

    def upload(self, name, kind, body):
        boundary = re.search(r"boundary=(\S+)", kind)[1].encode()
        metadata, modules = None, {}
        for part in body.split(b"--" + boundary)[1:-1]:
            head, _, content = part.partition(b"\r\n\r\n")
            content = content.removesuffix(b"\r\n")
            file = re.search(rb'filename="([^"]+)"', head)
            if file:
                modules[file[1].decode()] = content
            elif b'name="metadata"' in head:
                metadata = json.loads(content)
        for b in metadata["bindings"]:
            there = {"service": lambda b: b["service"] in self.scripts,
                     "r2_bucket": lambda b: b["bucket_name"] in self.buckets,
                     "kv_namespace": lambda b: b["namespace_id"] in [n["id"] for n in self.namespaces]}
            if not there.get(b["type"], lambda b: True)(b):
                raise Refusal(400, 10143, f"{name}: what the binding {b['name']} names is not there")
        self.scripts.pop(name, None)
        self.scripts[name] = {"metadata": metadata, "modules": modules}
        return {"id": name, "etag": "e", "deployment_id": "d" * 32, "startup_time_ms": 5}

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
