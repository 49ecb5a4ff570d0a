# SPDX-License-Identifier: Apache-2.0
"""What stations and shards are asked, and what they must answer (docs/format/frame.md; sections 7 and 10 of the
design). A list is played in order: sessions of one case are there for the next."""
import functools
import json
import random
import struct

import _frames as frames
from _conformance import Case
from _nodes import KEY, Model

MODEL = Model("smollm2-135m")
CONTEXT, CHUNK, SESSIONS = 1024, 64, 4
STATIONS, SHARDS = ["0-15", "15-end"], 2
IDS = [504, 3575, 282, 4649, 314]
HALF = MODEL.vocabulary // 2
MIB = 1 << 20
OWN = ("/health", "/ready", "/metrics")
HEALTHY = b'{"status":"ok"}'


@functools.lru_cache(None)
def rows_of(count, seed=1):
    """Plausible activations."""
    dice = random.Random(seed)
    return struct.pack(f"<{count * MODEL.hidden}f", *(dice.uniform(-1, 1) for _ in range(count * MODEL.hidden)))


def f16_rows(count):
    values = struct.unpack(f"<{count * MODEL.hidden}f", rows_of(count))
    return struct.pack(f"<{count * MODEL.hidden}e", *values)


def int8_rows(count):
    """A scale and whole numbers; the largest is 127, as a writer has it."""
    dice = random.Random(2)
    row = lambda: bytes([127]) + bytes(dice.randrange(256) for _ in range(MODEL.hidden - 1))  # noqa: E731
    return b"".join(struct.pack("<f", 1 / 127) + row().replace(b"\x80", b"\x81") for _ in range(count))


def patched(frame, at, width, value, reseal=True):
    """A frame with one field changed, its CRC right again."""
    size, = struct.unpack_from("<I", frame, 8)
    out = bytearray(frame)
    out[at:at + width] = value.to_bytes(width, "little")
    return frames.seal(out[:size]) + bytes(out[size:]) if reseal else bytes(out)


# ---- What stations, shards and wardens have in common ----

def alive(node):
    """Health without a key; what the node says of itself."""
    return [
        Case(node, "GET /health", 200, key=None, gives=HEALTHY),
        Case(node, "GET /health", 200, key="another", gives=HEALTHY),
        Case(node, "GET /health?a=b", 200, key=None, gives=HEALTHY),
        Case(node, "HEAD /health", 200, key=None),
        Case(node, "POST /health", 405, "usage", b"{}", key=None, allow="GET, HEAD",
             says="/health takes GET, HEAD, not POST"),
        Case(node, "DELETE /health", 405, "usage", key=None, allow="GET, HEAD"),
        Case(node, "GET /ready", 200, kind="json"),
        Case(node, "GET /ready?x", 200, kind="json"),
        Case(node, "HEAD /ready", 200, kind="status"),
        Case(node, "GET /metrics", 200, kind="metrics"),
        Case(node, "HEAD /metrics", 200, kind="status"),
        Case(node, "PUT /ready", 405, "usage", b"", allow="GET, HEAD"),
        Case(node, "PATCH /metrics", 405, "usage", b"", allow="GET, HEAD"),
        Case(node, "OPTIONS /ready", 405, "usage", allow="GET, HEAD"),
    ]


def keys(node, posts):
    """No key, no matter what is asked: 401, before anything else is looked at."""
    out = []
    for request in [*posts, "GET /ready", "GET /metrics", "GET /nothing", "POST /ready", "HEAD /ready"]:
        for key in (None, "", KEY[:-1], KEY + "x", KEY.swapcase(), "x" * len(KEY)):
            out.append(Case(node, request, 401, "key", b"{}" if request[0] == "P" else None, key=key,
                            says="Bearer KEY is missing"))
    for text, status in ((KEY, 401), ("Basic " + KEY, 401), ("Bearer" + KEY, 401), ("Bearer", 401), ("Bearer ", 401),
                         ("Bearer " + KEY + " x", 401), ("bearer " + KEY, 200), ("BEARER   " + KEY, 200),
                         ("Bearer " + KEY + " ", 200)):
        out.append(Case(node, "GET /ready", status, "key" if status == 401 else None, kind="bytes" if status == 401 else
                        "json", headers={"Authorization": text}))
    out.append(Case(node, posts[0], 401, "key", bytes(12 * MIB), key=None))  # the body does not matter
    return out


def paths(node, wrong, methods):
    """Nothing at these paths; paths that take another method."""
    out = []
    for path in [*wrong, "/", "/Health", "/%", "/%2", "/%zz", "/%+5", "/ready%", "/ready%2", "/a%2fb", "/%2e%2e/x",
                 "/health/", "/ready/x", "/a%20b", "/%c3%bf", "/a?b=c", "/%7Eq",
                 "/" + "a" * 254, "/" + "a" * 255, "/" + "a" * 1000]:
        shown = path.split("?")[0].replace("%20", " ").replace("%7E", "~")
        plain = "%" not in path or "20" in path or "7E" in path
        says = "no such path: " + (shown if len(shown) < 256 else "$") if plain else None
        for method in ("GET", "POST"):
            out.append(Case(node, f"{method} {path}", 404, "not_found", b"x" if method == "POST" else None,
                            says=says and says.replace("+", r"\+")))
    for path, allow, others in methods:
        for method in others:
            out.append(Case(node, f"{method} {path}", 405, "usage", allow=allow,
                            says=f"{path} takes {allow}, not {method}" if method != "HEAD" else None))
    return out


def drained(node, request, body):
    """The last that is asked of a node: no more frames, and the rest as before."""
    return [
        Case(node, "GET /drain", 405, "usage", allow="POST"),
        Case(node, "POST /drain", 200, body=b"", gives=b'{"state":"draining"}'),
        Case(node, "POST /drain", 200, body=b"whatever", gives=b'{"state":"draining"}'),
        Case(node, request, 503, "again", body, says=f"{node} is drained"),
        Case(node, request, 503, "again", b"not even a frame"),
        Case(node, "POST /configure", 503, "again", b"{}", says=f"{node} is drained"),
        Case(node, "GET /ready", 503, kind="json"),
        Case(node, "GET /metrics", 200, kind="metrics"),
        Case(node, "GET /health", 200, key=None, gives=HEALTHY),
    ]


# ---- Stations ----

def bounds_of(text):
    first, last = text.split("-")
    return tuple(MODEL.layers * 4 if b == "end" else int(b) * 4 for b in (first, last))


class Forward:
    """Frames for one station; request ids rise."""

    def __init__(self, node):
        self.node, self.bounds, self.request = node, bounds_of(STATIONS[int(node[-1])]), 100

    def frame(self, *sequences, x=None, knot=MODEL.id, bounds=None, request=None, **more):
        """Sequences are (session, position, rows[, parent, parent_length])."""
        self.request += 1
        several = [frames.Sequence(*s) for s in sequences]
        x = rows_of(sum(s.rows for s in several)) if x is None else x
        return frames.forward(knot, bounds or self.bounds, MODEL.hidden, several, x, request or self.request, **more)

    def ok(self, *sequences, **more):
        return Case(self.node, "POST /forward", 200, body=self.frame(*sequences, **more), kind="forward")

    def no(self, status, code, body, says=None):
        return Case(self.node, "POST /forward", status, code, body, says=says, kind="forward")


def sessions(node):
    """Positions, cuts, copies, drops, evictions."""
    f = Forward(node)
    first = f.frame((1, 0, 5))
    out = [
        f.no(410, "session", f.frame((1, 3, 1)), "session 1 is not known here, and position is 3"),
        Case(node, "POST /forward", 200, body=first, kind="forward"),
        f.no(409, "superseded", first, "session 1: request"),
        f.no(409, "superseded", f.frame((1, 5, 1), request=3)),
        f.ok((1, 5, 1), mode=frames.DECODE),
        f.no(409, "position", f.frame((1, 9, 1)), "session 1: position 9, expected 6"),
        f.ok((1, 6, 4), mode=frames.VERIFY),
        f.ok((1, 7, 1), mode=frames.DECODE),  # cuts what was verified
        f.no(409, "position", f.frame((1, 9, 1)), "expected 8"),
        f.ok((1, 0, 64)), f.ok((1, 64, 64)), f.ok((1, 128, 1), mode=frames.DECODE),  # two blocks of the cache
        f.ok((2, 70, 1, 1, 70)),  # a copy of 70 positions, then a row
        f.ok((1, 129, 1), (2, 71, 1), mode=frames.DECODE),
        f.no(410, "session", f.frame((3, 4, 1, 99, 4)), "its parent 99 is not known here"),
        f.no(409, "position", f.frame((3, 4, 1, 1, 500)), "500 positions of its parent 1, which has 130"),
        f.no(400, "range", f.frame((3, 5, 1, 1, 4)), "position 5 is beyond its parent's 4"),
        f.no(400, "range", f.frame((3, 1, 1, 3, 4)), "sequence 0 is its own parent"),
        f.no(400, "range", f.frame((2, 2, 1, 1, 2), (3, 2, 1, 2, 2)), "becomes a copy in the same frame"),
        f.no(400, "range", f.frame((3, 2, 1, 0, 2)), "2 positions of parent 0"),
        f.no(400, "range", f.frame((3, 2, 1, 1, 0))),
        f.no(400, "duplicate", f.frame((1, 0, 1), (1, 1, 1)), "sequences 0 and 1 have one session, 1"),
        f.no(400, "range", f.frame((0, 0, 1)), "sequence 0 has session 0"),
        f.no(400, "range", f.frame((1, 0, 2), mode=frames.DECODE), "sequence 0 has 2 rows in decode"),
        f.no(400, "range", f.frame((1, 1020, 5)), "the context has 1024 positions"),
        f.no(400, "range", f.frame((1, 1025, 0), x=b"")),
        f.no(413, "too_large", f.frame((1, 0, 65))),
        f.no(413, "too_large", f.frame(*[(10 + i, 0, 1) for i in range(5)]), "5 sequences, at most 4"),
        f.ok(x=b""), f.ok((3, 0, 0), x=b""),
        f.ok(*[(1 << 62, 0, 3), (7, 0, 1), ((1 << 64) - 1, 0, 7), (8, 0, 1)]),  # four new: the others make room
        f.no(410, "session", f.frame((1, 130, 1))), f.no(410, "session", f.frame((2, 72, 1))),
    ]
    return out + drops(f) + elements(f)


def drops(f):
    """DELETE /sessions/{id}."""
    node = f.node
    out = [
        Case(node, "DELETE /sessions/7", 200, gives=b'{"dropped":true}'),
        Case(node, "DELETE /sessions/7", 404, "not_found", says="session 7"),
        Case(node, f"DELETE /sessions/{(1 << 64) - 1}", 200, gives=b'{"dropped":true}'),
        Case(node, "DELETE /sessions/8?x=1", 200, gives=b'{"dropped":true}'),
        Case(node, "DELETE /sessions/%38", 404, "not_found"),
        Case(node, f"DELETE /sessions/{1 << 62}", 200, body=b"a body", gives=b'{"dropped":true}'),
        f.no(410, "session", f.frame((7, 1, 1))),
    ]
    for bad in ("x", "", "0", "-1", "+1", "1x", "1%20", "%201", "18446744073709551616", "1/2", "0x10", "9" * 90):
        out.append(Case(node, "DELETE /sessions/" + bad, 400, "usage", says="is no number from 1 to 2\\^64 - 1"))
    return out


def elements(f):
    """Rows in three types, and which of them are wanted."""
    nan = struct.pack("<f", float("nan")) + rows_of(2)[4:]
    infinite = rows_of(2)[:-4] + struct.pack("<f", -float("inf"))
    scale = struct.pack("<f", 1e38) + int8_rows(1)[4:]
    return [
        f.ok((21, 0, 3), x=f16_rows(3), element=frames.F16), f.ok((21, 3, 2), x=int8_rows(2), element=frames.INT8),
        f.ok((21, 0, 5), wanted=[4]), f.ok((21, 0, 5), wanted=[]), f.ok((21, 0, 5), wanted=[0, 2, 4]),
        f.ok((21, 0, 3), (22, 0, 2), wanted=[2, 4], x=f16_rows(5), element=frames.F16),
        f.no(400, "range", f.frame((21, 0, 5), wanted=[5]), "wanted row 0 is 5"),
        f.no(400, "range", f.frame((21, 0, 5), wanted=[2, 2])),
        f.no(413, "too_large", f.frame((21, 0, 2), wanted=[0, 1, 2])),
        f.no(500, "not_finite", f.frame((21, 0, 2), x=nan)), f.no(500, "not_finite", f.frame((21, 0, 2), x=infinite)),
        f.no(400, "format", f.frame((21, 0, 1), x=scale, element=frames.INT8)),
        f.no(500, "not_finite", f.frame((21, 0, 1), x=b"\0\x7c" + f16_rows(1)[2:], element=frames.F16)),
        f.no(400, "type", f.frame((21, 0, 2), element=4)), f.no(400, "type", f.frame((21, 0, 2), element=0)),
        f.ok((21, 3, 1), mode=frames.DECODE),  # none of it has changed the session
    ]


def handshake(node):
    """Both values of what does not fit."""
    f = Forward(node)
    other = (f.bounds[0], f.bounds[1] - 4) if node == "station-0" else (f.bounds[0] + 4, f.bounds[1])
    good = f.frame((31, 0, 2))
    return [
        f.no(409, "unsupported", f.frame((31, 0, 2), knot=MODEL.id ^ 1),
             f"the frame is for knot {MODEL.id ^ 1:016x}, this node has {MODEL.knot_id}"),
        f.no(409, "unsupported", f.frame((31, 0, 2), bounds=other), "the frame is for layer"),
        f.no(409, "unsupported", f.frame((31, 0, 2), bounds=(0, 120)),
             "the frame is for layer 0 attn to layer 30 attn"),
        f.no(409, "unsupported", f.frame((31, 0, 2), cache=2), r"cache type 2 \(q8_0\), this node 1 \(f16\)"),
        f.no(409, "unsupported", f.frame((31, 0, 2), cache=0), r"cache type 0 \(none\)"),
        f.no(409, "unsupported", patched(good, 4, 2, 2), "protocol version 2, this node 1"),
        f.no(409, "unsupported", patched(good, 24, 2, 9), "numerics version 9, this node 1"),
        f.no(400, "format", patched(good, 6, 2, 3), r"kind 3 \(embed\) where kind 1 \(forward\)"),
        f.no(400, "format", b"AWFR" + good[4:], 'not a forward frame: it starts with "AWFR"'),
        f.no(400, "shape", f.frame((31, 0, 2), ffn=MODEL.ffn), "g rows have 1536 elements, the model's 0"),
    ]


def broken_frames(node, request, good, kind, fields, status=(200, 400, 409, 410, 413)):
    """Every field at its extremes; bits flipped; cut and longer."""
    extremes = {1: (0, 1, 2, 3, 4, 255), 2: (0, 1, 2, 8, 0x7fff, 0xffff),
                4: (0, 1, 3, 0x7fffffff, 0x80000000, 0xffffffff, 0x3f800000),
                8: (0, 1, 1 << 31, 1 << 32, 1 << 63, (1 << 64) - 1, (1 << 40) - 3)}
    out = []
    for at, width in fields:
        for value in extremes[width]:
            frame = patched(good, at, width, value)
            if frame != good:
                out.append(Case(node, request, status, body=frame, kind=kind))
    for at in [*range(0, 128, 5), *range(128, len(good), 403)]:
        out.append(Case(node, request, (400, 409, 413),
                        body=good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1:]))
    for cut in (0, 1, 15, 16, 17, 127, 128, 129, len(good) - 1, len(good) + 1):
        out.append(Case(node, request, 400, body=(good + b"\0")[:cut]))
    noise = random.Random(4).randbytes(4096)
    for body in (b"GET / HTTP/1.1\r\n\r\n", b"{}", bytes(4096), b"\xff" * 4096, noise, b"COBF" + noise):
        out.append(Case(node, request, (400, 409), body=body))
    out.append(Case(node, request, 400, "truncated", body=None))
    return out


FORWARD_FIELDS = [(4, 2), (6, 2), (8, 4), (16, 8), (24, 2), (26, 2), (28, 4), (40, 8), (48, 8), (56, 4), (60, 4),
                  (64, 1), (65, 1), (66, 2), (68, 4), (72, 4), (76, 4), (80, 4), (84, 4), (88, 8), (96, 8), (104, 8),
                  (112, 4), (116, 4), (120, 4), (124, 4)]


def station_configure(node):
    f = Forward(node)
    own = STATIONS[int(node[-1])]
    out = [f.ok((41, 0, 2))]
    for bad, code in ((b"", "format"), (b"{}", "format"), (b"[]", "format"), (b"7", "format"), (b"{", "format"),
                      (b'{"range":7}', "format"), (b'{"range":null}', "format"), (b'{"range":"7"}', "usage"),
                      (b'{"range":"7-7"}', "range"), (b'{"range":"9-7"}', "range"), (b'{"range":"0-31"}', None),
                      (b'{"range":"-1-7"}', None), (b'{"range":"0-7.x"}', None), (b'{"range":"0-7","x":1}', "format"),
                      (b'{"ids":[0,7]}', "format"), (b'{"range":"0.attn-\xff"}', None), (b'{"Range":"0-7"}', "format"),
                      (b'{"range":"0-7"}' + b" " * 4096, "format"), (b'{"range":"0-7"' * 400, "format"),
                      (b'{"range":"0-7","range":"0-8"}', "format"), (b'{"range":"0-7"} x', "format")):
        out.append(Case(node, "POST /configure", 400, code, bad))
    out.append(f.ok((41, 2, 1)))  # it is as it was
    for text in ("0-7", "7.ffn_up-9", own):
        out += [Case(node, "POST /configure", 200, body=json.dumps({"range": text}).encode(),
                     gives=b'{"configured":true}'), Case(node, "GET /ready", 200, kind="json")]
    out += [f.no(410, "session", f.frame((41, 3, 1))), f.ok((41, 0, 2)),
            Case(node, "POST /configure?x=y", 200, body=json.dumps({"range": own}, indent=1).encode())]
    return out


def too_large(node, request):
    """Announced, or found out; and the largest body that is looked at."""
    return [Case(node, request, 413, "too_large", bytes(12 * MIB), says="the body has more than [0-9]+ bytes"),
            Case(node, request, 413, "too_large", bytes(9 * MIB), chunked=True, says="the body has more than")]


def station(node):
    f = Forward(node)
    methods = [("/forward", "POST", ("GET", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH")),
               ("/sessions/1", "DELETE", ("GET", "POST", "PUT")), ("/configure", "POST", ("GET", "DELETE")),
               ("/drain", "POST", ("GET", "PUT"))]
    good = f.frame((51, 0, 2), request=5)
    return [
        *alive(node), *keys(node, ["POST /forward", "POST /configure", "POST /drain", "POST /embed"]),
        Case(node, "DELETE /sessions/1", 401, "key", key=None),
        *paths(node, ["/forward/", "/forward/x", "/Forward", "/sessions", "/tensors", "/v1/models"], methods),
        Case(node, "POST /embed", 404, "not_found", b"x", says=f"{node} keeps no embedding"),
        Case(node, "POST /logits", 404, "not_found", b"x", says=f"{node} keeps no head"),
        Case(node, "GET /embed", 405, "usage", allow="POST"),
        *sessions(node), *handshake(node),
        *broken_frames(node, "POST /forward", good, "forward", FORWARD_FIELDS),
        *station_configure(node), *too_large(node, "POST /forward"),
        f.ok((61, 0, 3), request=900), Case(node, "POST /forward", 200, kind="forward", chunked=True,
                                            body=f.frame((61, 3, 2), request=901)),
        Case(node, "POST /forward?a=b&c", 200, kind="forward", body=f.frame((61, 5, 1), request=902)),
        Case(node, "POST /%66orward", 200, kind="forward", body=f.frame((61, 6, 1), request=903)),
        Case(node, "POST /forward?" + "q" * 510, 200, kind="forward", body=f.frame((61, 7, 1), request=904)),
        Case(node, "POST /forward?" + "q" * 600, 400, "usage", f.frame((61, 8, 1), request=905),
             says="the query is too long"),
        Case(node, "GET /ready", 200, kind="json"), Case(node, "GET /metrics", 200, kind="metrics"),
        *drained(node, "POST /forward", f.frame((61, 8, 1), request=906)),
        Case(node, "DELETE /sessions/61", 200, gives=b'{"dropped":true}'),  # also of one that is drained
    ]


# ---- Stations of another kind: cut inside an FFN, with the embedding and the head, q8_0, without a key ----

CUT = ["0-3.ffn_up", "3.ffn_up-end"]
CUT_BOUNDS = [(0, 14), (14, MODEL.layers * 4)]
WHOLE = [0, MODEL.vocabulary]


def cut_frame(station, request, sequence=(1, 0, 3), **more):
    """x for the first station; x and g for the second."""
    several = [frames.Sequence(*sequence)]
    if station:
        count = several[0].rows * MODEL.ffn
        more = {"ffn": MODEL.ffn, "g": (rows_of(9, 8) * 4)[:4 * count], **more}
    return frames.forward(MODEL.id, CUT_BOUNDS[station], MODEL.hidden, several, rows_of(several[0].rows), request,
                          **{"cache": 2, **more})


def cut_station(station, rows_max):
    node = f"station-{station}"
    part = ("/embed", "/logits")[station]
    vocab = frames.embed(MODEL.id, WHOLE, MODEL.hidden, IDS) if not station else \
        frames.logits(MODEL.id, WHOLE, MODEL.hidden, 2, rows_of(2), 5)
    ok = lambda body: Case(node, "POST /forward", 200, body=body, key=None, kind="forward")  # noqa: E731
    no = lambda status, code, body: Case(node, "POST /forward", status, code, body, key=None)  # noqa: E731
    few = cut_frame(station, 5, g=rows_of(1)) if station else cut_frame(station, 5, g=rows_of(1), ffn=MODEL.ffn)
    return [
        Case(node, "GET /health", 200, key=None, gives=HEALTHY), Case(node, "GET /ready", 200, key=None, kind="json"),
        Case(node, "GET /ready", 200, key="whatever", kind="json"),
        ok(cut_frame(station, 1)), ok(cut_frame(station, 2, (1, 3, 1), mode=frames.DECODE)),
        ok(cut_frame(station, 3, (2, 2, 1, 1, 2))), no(409, "position", cut_frame(station, 4, (1, 9, 1))),
        no(400, "format" if station else "shape", few), no(409, "unsupported", cut_frame(station, 6, cache=1)),
        no(400, "shape", cut_frame(station, 7, ffn=7)),
        Case(node, "POST " + part, 200, body=vocab, key=None),
        Case(node, "POST " + ("/logits", "/embed")[station], 404, "not_found", vocab, key=None),
        Case(node, "POST /logits", (404, 413), None, frames.logits(MODEL.id, WHOLE, MODEL.hidden, rows_max + 1,
                                                                     rows_of(rows_max + 1), 1), key=None),
        Case(node, "POST " + part, 400, "truncated", b"", key=None),
        Case(node, "POST /configure", 200, body=json.dumps({"range": CUT[station]}).encode(), key=None),
        no(410, "session", cut_frame(station, 8, (1, 4, 1))), Case(node, "POST " + part, 200, body=vocab, key=None),
        Case(node, "GET /metrics", 200, key=None, kind="metrics"),
    ]


# ---- Shards ----

def ids_of(node):
    return [0, HALF] if node == "shard-0" else [HALF, MODEL.vocabulary]


def embeds(node):
    own = ids_of(node)

    def frame(ids, ids_range=own, **more):
        return frames.embed(MODEL.id, ids_range, MODEL.hidden, ids, **more)

    mixed = [*IDS, own[0], own[1] - 1, HALF - 1, HALF, 0, MODEL.vocabulary - 1, IDS[0]]
    ok = lambda body: Case(node, "POST /embed", 200, body=body)  # noqa: E731
    no = lambda status, code, body, says=None: Case(node, "POST /embed", status, code, body, says=says)  # noqa: E731
    out = [ok(frame(mixed, element=e, form=form, request_id=7 * e + form))
           for e in (frames.F32, frames.F16, frames.INT8) for form in (frames.DENSE, frames.SPARSE)]
    out += [ok(frame([])), ok(frame([], form=frames.SPARSE)), ok(frame(list(range(CHUNK)))),
            ok(frame([own[0] ^ 1] if own[0] else [MODEL.vocabulary - 1])), ok(frame(mixed, request_id=(1 << 64) - 1))]
    for bad in (MODEL.vocabulary, 1 << 31, (1 << 32) - 1):
        out.append(no(400, "range", frame([1, bad]), f"id {bad} at 1, the vocabulary has {MODEL.vocabulary}"))
    return out + [
        no(409, "unsupported", frame([1], [own[0], own[1] - 1]), f"this node has {own[0]} to {own[1]}"),
        no(409, "unsupported", frames.embed(MODEL.id ^ 4, own, MODEL.hidden, [1]), "is for knot"),
        no(413, "too_large", frame([1] * (CHUNK + 1)), "the frame has 65 rows, at most 64 fit here"),
        no(400, "type", frame([1], element=9)), no(400, "format", frame([1], form=3), r"form 3; 1 \(dense\)"),
        no(400, "shape", frames.embed(MODEL.id, own, MODEL.hidden + 1, [1])),
        no(400, "format", frames.logits(MODEL.id, own, MODEL.hidden, 1, rows_of(1), 3), "kind 5"),
        *broken_frames(node, "POST /embed", frame(IDS), "bytes",
                       [(4, 2), (6, 2), (8, 4), (16, 8), (24, 2), (26, 2), (28, 4), (32, 8), (40, 8), (48, 8), (56, 4),
                        (60, 4), (64, 4), (68, 1), (69, 1), (70, 2), (72, 4), (76, 4), (80, 4), (124, 4)]),
    ]


def mask_of(count, seed=6):
    return random.Random(seed).randbytes((count + 31) // 32 * 4)


def logits_rows(node):
    """Requests that must be answered, each by itself and then together."""
    first, last = ids_of(node)
    seen = [(first + 5, 1), (first + 9, 3), (last - 1, 7)]
    bias = [(first, -100.0), (first + 77, 12.5), (last - 2, -1000.0), (last - 1, 3.0)]
    row = frames.Row
    return [row(k=1), row(k=0), row(k=40, sum_scale=1.0), row(k=8, sum_scale=0.7, sliced=True), row(sum_scale=-2.0),
            row(k=5, repetition=1.3, presence=0.4, frequency=-0.2, seen=seen), row(k=5, bias=bias),
            row(k=9, mask=mask_of(last - first), sum_scale=1.0), row(k=2, wanted_id=first + 3, sum_scale=1.0),
            row(k=3, mask=bytes(len(mask_of(last - first))), sum_scale=1.0, sliced=True),
            row(k=MODEL.vocabulary), row(k=6, seen=seen, repetition=0.5, bias=bias, mask=mask_of(last - first),
                                         wanted_id=last - 1, sum_scale=1.25, sliced=True)]


def logits(node, rows_max):
    own = first, last = ids_of(node)
    ok = lambda body: Case(node, "POST /logits", 200, body=body)  # noqa: E731
    no = lambda status, code, body, says=None: Case(node, "POST /logits", status, code, body, says=says)  # noqa: E731

    def frame(rows, x=None, **more):
        return frames.logits_of(MODEL.id, more.pop("own", own), MODEL.hidden, rows,
                                rows_of(len(rows)) if x is None else x, **more)

    rows = logits_rows(node)
    row = frames.Row
    out = [ok(frame([r], rows_of(1, 30 + i), request_id=i)) for i, r in enumerate(rows)]
    out += [ok(frame(rows[i:i + rows_max])) for i in range(0, len(rows), rows_max)]
    out += [ok(frame([row(k=3)] * 2, f16_rows(2), element=frames.F16)), ok(frame([])),
            ok(frame([row(k=3)], int8_rows(1), element=frames.INT8)),
            no(413, "too_large", frame([row(k=1)] * (rows_max + 1)), f"at most {rows_max} fit here"),
            no(409, "unsupported", frame([row(k=1)], own=[first, last - 1]))]
    for bad, code in ((row(k=MODEL.vocabulary + 1), None), (row(sum_scale=0.0), None), (row(repetition=0.001), None),
                      (row(presence=101.0), None), (row(frequency=float("nan")), None), (row(sum_scale=float("inf")),
                                                                                         None),
                      (row(k=1, seen=[(first + 2, 1), (first + 1, 1)]), None), (row(k=1, seen=[(last, 1)]), None),
                      (row(k=1, seen=[(first, 0)]), None), (row(k=1, bias=[(last, 1.0)]), None),
                      (row(k=1, bias=[(first, 1e7)]), None), (row(k=1, bias=[(first, 1.0)] * 1025), None),
                      (row(k=1, wanted_id=last), None), (row(k=1, mask=b"\xff" * 4), None)):
        out.append(no((400, 413), code, frame([bad])))
    bad_x = struct.pack("<f", float("inf")) + rows_of(1)[4:]
    out.append(no(500, "not_finite", frame([row(k=1)], bad_x)))
    fields = [(4, 2), (6, 2), (8, 4), (16, 8), (24, 2), (26, 2), (40, 8), (48, 8), (56, 4), (60, 4), (64, 4), (68, 1),
              (69, 1), (72, 4), (76, 4), (92, 4), (96, 4), (100, 4), (104, 4), (116, 4), (120, 4), (124, 4)]
    return out + broken_frames(node, "POST /logits", frame([rows[2]], request_id=1), "bytes", fields)


def shard_configure(node):
    own = ids_of(node)
    out = []
    for bad in (b"", b"{}", b'{"ids":[7,7]}', b'{"ids":[9,7]}', b'{"ids":[0,49153]}', b'{"ids":[-1,5]}', b'{"ids":[0]}',
                b'{"ids":[0,1,2]}', b'{"ids":"0-7"}', b'{"ids":[0,7.5]}', b'{"range":"0-7"}', b'{"ids":[0,7],"x":0}',
                b'{"ids":[0,18446744073709551615]}', b'{"ids":[0,184467440737095516150]}'):
        out.append(Case(node, "POST /configure", 400, body=bad))
    for ids in ([100, 5000], own):
        out += [Case(node, "POST /configure", 200, body=json.dumps({"ids": ids}).encode(),
                     gives=b'{"configured":true}'), Case(node, "GET /ready", 200, kind="json"),
                Case(node, "POST /embed", 200, body=frames.embed(MODEL.id, ids, MODEL.hidden, IDS)),
                Case(node, "POST /logits", 200, body=frames.logits(MODEL.id, ids, MODEL.hidden, 1, rows_of(1), 4))]
    return out


def shard(node, rows_max):
    methods = [("/embed", "POST", ("GET", "PUT", "HEAD")), ("/logits", "POST", ("GET", "DELETE", "OPTIONS")),
               ("/configure", "POST", ("GET",)), ("/drain", "POST", ("GET",))]
    return [
        *alive(node), *keys(node, ["POST /embed", "POST /logits", "POST /configure", "POST /drain"]),
        *paths(node, ["/forward", "/embed/", "/sessions/1", "/tensors", "/logits/0"], methods),
        *embeds(node), *logits(node, rows_max), *shard_configure(node), *too_large(node, "POST /embed"),
        *too_large(node, "POST /logits"),
        Case(node, "POST /embed", 200, chunked=True, body=frames.embed(MODEL.id, ids_of(node), MODEL.hidden, IDS)),
        Case(node, "GET /ready", 200, kind="json"), Case(node, "GET /metrics", 200, kind="metrics"),
        *drained(node, "POST /embed", frames.embed(MODEL.id, ids_of(node), MODEL.hidden, IDS)),
    ]
