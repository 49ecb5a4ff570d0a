# SPDX-License-Identifier: Apache-2.0
"""Conformance of hosts: requests as data, what every host must answer to them, and the comparison of two hosts.

    cases --play(cluster)--> answers --faults()--> what this host does against the pages
                                '------ differences(other answers) --> where two hosts are not the same

Two hosts answer the same bytes: status, type, Allow, Retry-After and body. What is left out of that is a
measurement, and all of it is in the tables below."""
import http.client
import json
import re
import struct
import time

import _frames as frames
from _nodes import KEY

# Members of /ready and /stats, and lines of /metrics, that tell of the machine or of the moment. Not one more.
MEASURED_MEMBERS = {
    "isa", "threads",  # what computes
    "memory.need_bytes", "memory.resident_bytes", "memory.peak_bytes", "memory.cache_bytes",
    "l3.reads", "l3.bytes", "l3.retries",  # how a store is read: whole slabs, blocks or ranges
    "weights.pinned_bytes",  # what is left of the budget for weights
}
MEASURED_METRICS = {
    "cobord_node_memory_bytes", "cobord_node_memory_peak_bytes", "cobord_node_memory_need_bytes",
    "cobord_node_compute_seconds_total", "cobord_node_connections", "cobord_node_queue", "cobord_node_running",
    "cobord_node_weight_pinned_bytes",
    "cobord_node_unauthorized_total", "cobord_node_refused_total",  # a Worker's front refuses before its object counts
    "cobord_node_weight_tiles_total", "cobord_node_dropped_bytes_total",  # tiles follow from the budget
}
# Lines that only a host with an object store of its own has; of a process, which a Worker is not.
OWN_METRICS = {
    "cobord_node_store_reads_total", "cobord_node_store_bytes_total", "cobord_build_info", "cobord_log_dropped_total",
    "cobord_memory_budget_bytes", "cobord_memory_peak_bytes", "process_cpu_seconds_total", "process_max_fds",
    "process_open_fds", "process_resident_memory_bytes", "process_start_time_seconds", "cobord_node_request_seconds",
    "cobord_node_request_seconds_bucket", "cobord_node_request_seconds_count", "cobord_node_request_seconds_sum",
}
# Names and times in what a coordinator says.
MEASURED_TEXT = [
    (re.compile(rb'\b((?:chatcmpl|cmpl|resp|msg|call|fc|embd)[-_])[0-9a-f]{16,}'), rb"\1ID"),
    (re.compile(rb'"(created|created_at|completed_at|modified_at)":("[^"]*"|\d+)'), rb'"\1":T'),
    (re.compile(rb'"(total_duration|load_duration|prompt_eval_duration|eval_duration)":\d+'), rb'"\1":T'),
    (re.compile(rb'"(expires_at)":"[^"]*"'), rb'"\1":T'),
]
SETTLE_SECONDS = 30
HEADERS = ("content-type", "allow", "retry-after", "content-length")
# Section 10 of the page of frames.
RETRYABLE = {"checksum", "truncated", "session", "position", "io", "again", "capacity", "cancelled", "memory",
             "unreachable", "no_space"}
CODES = {400: {"checksum", "truncated", "format", "range", "type", "shape", "duplicate", "usage"}, 401: {"key"},
         404: {"not_found", "missing_tensor"}, 405: {"usage"}, 409: {"position", "superseded", "unsupported"},
         410: {"session"}, 413: {"too_large"},
         500: {"not_finite", "internal", "io", "not_available", "stale", "plan"},
         503: {"again", "capacity", "cancelled", "memory", "no_space", "unreachable"}}


class Case:
    """A request, and what is known of its answer.

    `status` is a number or a tuple of them; `code` of an error; `says`: a pattern in its message; `body` is sent;
    `gives`: the answer's bytes. `kind` says how to compare: "bytes", "forward" (a frame with microseconds), "json"
    (members), "metrics", "text" (a coordinator's), "status" (that alone). `until`: of the answer, true when
    what comes after the answers of the cases before has come; it is asked again till then."""

    def __init__(self, node, request, status, code=None, body=None, key=KEY, headers=None, says=None, gives=None,
                 allow=None, kind="bytes", chunked=False, until=None):
        self.node, self.until = node, until
        self.method, self.path = request.split(" ", 1)
        self.statuses = status if isinstance(status, tuple) else (status,)
        self.code, self.body, self.says, self.gives, self.allow = code, body, says, gives, allow
        self.kind, self.chunked = kind, chunked
        self.headers = dict(headers or {})
        if key is not None and "Authorization" not in self.headers:
            self.headers["Authorization"] = "Bearer " + key

    def more_faults(self, answer):
        """What other kinds of cases know of their answers."""
        return []

    def __str__(self):
        body = "" if self.body is None else f" {len(self.body)} bytes {self.body[:40]!r}"
        more = {k: v for k, v in self.headers.items() if v != "Bearer " + KEY}
        return f"{self.node} {self.method} {self.path[:80]}{' ' + str(more) if more else ''}{body}"


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.body = status, body
        self.headers = {k: headers[k] for k in HEADERS if k in headers}

    def error(self):
        return json.loads(self.body)["error"]

    def __str__(self):
        body = self.body if len(self.body) <= 300 else self.body[:300] + b"..%d" % len(self.body)
        return f"{self.status} {self.headers} {body!r}"


class Lines:
    """A kept connection to each node of a host. `address(node)`: (host, port)."""

    def __init__(self, address, timeout=60):
        self.address, self.timeout, self.lines = address, timeout, {}

    def ask(self, case):
        for attempt in range(2):
            fresh = case.node not in self.lines
            if fresh:
                self.lines[case.node] = http.client.HTTPConnection(*self.address(case.node), timeout=self.timeout)
            line = self.lines[case.node]
            try:
                body = iter([case.body[i:i + 65536] for i in range(0, len(case.body), 65536)]) if case.chunked \
                    else case.body
                line.request(case.method, case.path, body, case.headers, encode_chunked=case.chunked)
                got = line.getresponse()
                return Answer(got.status, {k.lower(): v for k, v in got.getheaders()}, got.read())
            except (OSError, http.client.HTTPException) as error:
                self.lines.pop(case.node).close()  # a line that was idle for too long, or a body that is refused early
                if fresh or attempt:
                    return Answer(0, {}, repr(error).encode())
        raise AssertionError("not reached")

    def close(self):
        for line in self.lines.values():
            line.close()


def play(address, cases):
    """The answers of a host, in order."""
    lines, answers = Lines(address), []
    try:
        for case in cases:
            answers.append(lines.ask(case))
            end = time.monotonic() + SETTLE_SECONDS
            while case.until and not case.until(answers[-1]) and time.monotonic() < end:
                time.sleep(0.05)
                answers[-1] = lines.ask(case)
            if case.until:
                assert case.until(answers[-1]), f"not within {SETTLE_SECONDS} s: {case.path}: {answers[-1].body[:2000]}"
        return answers
    finally:
        lines.close()


# ---- What every host must do ----

def node_error_faults(case, answer):
    """The one shape of errors of nodes."""
    try:
        value = answer.error()
        if set(value) != {"message", "type", "param", "code", "retryable"} or value["type"] != "node_error":
            return ["not the shape of errors"]
    except (ValueError, KeyError, TypeError):
        return ["no error in JSON"]
    out = []
    if value["code"] not in CODES.get(answer.status, ()):
        out.append(f"code {value['code']} does not go with {answer.status}")
    if value["retryable"] != (value["code"] in RETRYABLE):
        out.append("retryable is wrong")
    if not value["message"] or len(answer.body) > 2048 or value["param"] is not None:
        out.append("message or param is wrong")
    if case.code is not None and value["code"] != case.code:
        out.append(f"code is {value['code']}, not {case.code}")
    if case.says is not None and not re.search(case.says, value["message"]):
        out.append(f"message has no {case.says!r}")
    return out


def header_faults(case, answer):
    out, got = [], answer.headers
    if answer.status == 405 and (got.get("allow") is None or (case.allow and got["allow"] != case.allow)):
        out.append(f"Allow is not {case.allow}")
    if (answer.status == 503) != (got.get("retry-after") is not None):
        out.append("Retry-After belongs to 503")
    if answer.status >= 400 and got.get("content-type") != "application/json":
        out.append("an error is not application/json")
    return out


def faults(case, answer):
    """What the answer does against the pages; [] when nothing."""
    if answer.status not in case.statuses:
        return [f"status is {answer.status}, not {case.statuses}"]
    out = header_faults(case, answer)
    if case.method == "HEAD":
        return out + (["a body for HEAD"] if answer.body else [])
    if answer.status >= 400 and case.kind in ("bytes", "forward"):
        out += node_error_faults(case, answer)
    if case.gives is not None and answer.body != case.gives:
        out.append(f"body is not {case.gives[:80]!r}")
    if case.kind == "forward" and answer.status == 200:
        try:
            frames.payload(answer.body, frames.FORWARD_ANSWER)
        except (AssertionError, struct.error) as error:
            out.append(f"not a sound frame: {error}")
    return out


def all_faults(cases, answers):
    return [f"{case}\n    {fault}\n    {answer}" for case, answer in zip(cases, answers)
            for fault in faults(case, answer) + case.more_faults(answer)]


# ---- Two hosts ----

def flatten(value, prefix=""):
    """{"memory.budget_bytes": 1, ..} of an object."""
    if not isinstance(value, dict):
        return {prefix[:-1]: value}
    out = {}
    for name, member in value.items():
        out.update(flatten(member, prefix + name + "."))
    return out


def metrics_of(text):
    """{line without its value: value}; comments are lines of their own."""
    out = {}
    for line in text.decode().splitlines():
        if (line.split()[2] if line.startswith("#") else line.split()[0].split("{")[0]) in OWN_METRICS:
            continue
        name, _, value = line.rpartition(" ")
        out[line if line.startswith("#") else name] = None if line.startswith("#") else value
    return {k: "measured" if k in MEASURED_METRICS else v for k, v in out.items()}


def without_microseconds(body):
    """A forward answer with its measurement, and the CRC over it, as zeros."""
    if len(body) < 128 or body[:4] != b"COBF":
        return body
    return body[:12] + bytes(4) + body[16:84] + bytes(4) + body[88:]


def comparable(case, answer):
    """The body, as far as it has to be the same on every host."""
    if case.kind == "forward" and answer.status == 200:
        return without_microseconds(answer.body)
    if case.kind == "json" and answer.body:
        value = flatten(json.loads(answer.body))
        return {k: "measured" if k in MEASURED_MEMBERS else v for k, v in value.items()}
    if case.kind == "metrics" and answer.body:
        return metrics_of(answer.body)
    if case.kind == "text":
        body = answer.body
        for pattern, text in MEASURED_TEXT:
            body = pattern.sub(text, body)
        return body
    return answer.body


def difference(case, mine, other):
    """None, or what is not the same."""
    if case.kind == "status":
        return None if mine.status == other.status else f"status {mine.status} and {other.status}"
    a, b = comparable(case, mine), comparable(case, other)
    same_headers = all(mine.headers.get(h) == other.headers.get(h) for h in HEADERS
                       if h != "content-length" or (case.kind == "bytes" and h in mine.headers and h in other.headers))
    if mine.status == other.status and same_headers and a == b and (case.kind != "json" or list(a) == list(b)):
        return None
    if isinstance(a, dict) and isinstance(b, dict) and mine.status == other.status:
        names = [k for k in {**a, **b} if a.get(k, "none") != b.get(k, "none")]
        return "; ".join(f"{k}: {a.get(k, 'none')} and {b.get(k, 'none')}" for k in names) or "order of members"
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return f"from byte {at}: {mine}\n    other: {other}"


def differences(cases, mine, other):
    out = []
    for case, a, b in zip(cases, mine, other):
        found = difference(case, a, b)
        if found:
            out.append(f"{case}\n    {found}")
    return out
