# SPDX-License-Identifier: Apache-2.0
"""What wardens are asked, and what they must answer (docs/format/frame.md, sections 7 and 8)."""
import json
import struct

import _frames as frames
from _conform_nodes import MODEL, SESSIONS, alive, broken_frames, ids_of, keys, paths, patched
from _conformance import Case
from _wardens import ATTN, KNOT, MIB, OTHER

HEAD, EMBEDDING = "output_weight", "token_embd_weight"
MORE_ROWS = 4 * MIB // len(KNOT.row(0)) + 1
assert SESSIONS


def mine(node, **more):
    """The identity of a warden as its body of /configure."""
    out = {"knot_id": MODEL.knot_id, "knot_key": MODEL.path.name}
    if node.startswith("layer"):
        out.update(layer_start=0, layer_end=15) if node[-1] == "0" else out.update(layer_start=15, layer_end="end")
    else:
        first, last = ids_of("shard-" + node[-1])
        out.update(vocab_start=first, vocab_end=last)
    return {**out, **more}


def headers_of(identity):
    names = {"knot_id": "X-Knot-Id", "knot_key": "X-Knot-Key", "layer_start": "X-Layer-Start",
             "layer_end": "X-Layer-End", "vocab_start": "X-Vocab-Start", "vocab_end": "X-Vocab-End"}
    return {names[k]: str(v) for k, v in identity.items()}


def strangers(node):
    """Identities that are another's: 409; that are none: 400."""
    is_layer = node.startswith("layer")
    wrong = [{"knot_id": OTHER.knot_id}, {"knot_key": "tiny.knot"}, {"knot_key": ""},
             {"knot_key": MODEL.path.name + "x"}]
    wrong += [{"layer_end": 14}, {"layer_start": 1}, {"layer_start": "1.ffn_up"},
              {"layer_end": "end"}] if is_layer else \
        [{"vocab_start": 7}, {"vocab_end": MODEL.vocabulary}, {"vocab_end": 5}]
    broken = [{"knot_id": "1234"}, {"knot_id": "0123456789abcdeg"}, {"knot_id": "-123456789abcdef"},
              {"knot_id": "+123456789abcdef"}, {"knot_id": "0x23456789abcdef"}, {"knot_id": MODEL.knot_id + "0"}]
    broken += [{"layer_end": 99}, {"layer_start": "x"}, {"layer_start": "5."}, {"layer_end": "end "}] if is_layer else \
        [{"vocab_start": "x"}, {"vocab_end": "-1"}, {"vocab_end": "4294967296"}, {"vocab_end": "1 "}]
    return [(x, 409, "unsupported") for x in wrong] + [(x, 400, None) for x in broken]


def identity(node):
    right = mine(node)
    says = json.dumps({"identity": f"{MODEL.knot_id}|" + {
        "layer-warden-0": "0-15", "shard-warden-0": f"0-{MODEL.vocabulary // 2}"}[node]}).replace(": ", ":").encode()
    probe = "GET /knot?size"
    size = json.dumps({"bytes": MODEL.path.stat().st_size}).replace(": ", ":").encode()

    def configure(status, code, value, **more):
        return Case(node, "POST /configure", status, code,
                    value if isinstance(value, bytes) else json.dumps(value).encode(), **more)

    out = [configure(200, None, right, gives=says),
           configure(200, None, {k: v if k.startswith("knot") else str(v) for k, v in right.items()}, gives=says),
           configure(200, None, {**right, "more": [1]}, gives=says),
           configure(200, None, right, gives=says, headers=headers_of(right)),
           configure(409, "unsupported", right, headers=headers_of(mine(node, knot_id=OTHER.knot_id))),
           Case(node, probe, 200, gives=size), Case(node, probe, 200, gives=size, headers=headers_of(right)),
           Case(node, probe, 200, gives=size, headers={k.lower(): v for k, v in headers_of(right).items()})]
    for change, status, code in strangers(node):
        out.append(configure(status, code, {**right, **change}))
        if change.get("knot_key") != "" and not str(list(change.values())[0]).endswith(" "):
            out.append(Case(node, probe, status, code, headers=headers_of({**right, **change})))
    out.append(configure(409, "unsupported", mine(node, knot_id=OTHER.knot_id),
                         says=rf"{OTHER.knot_id}\|.*{MODEL.knot_id}\||{MODEL.knot_id}\|.*{OTHER.knot_id}\|"))
    for name in right:
        out.append(configure(400, "format", {k: v for k, v in right.items() if k != name}, says="configure needs"))
    for body in (b"", b"{}", b"[]", b"null", b"7", b'"x"', b"{", b"\xff\xfe", json.dumps([right]).encode()):
        out.append(configure(400, "format", body))
    out.append(configure(413, "too_large", json.dumps(right).encode() + b" " * 4096,
                         says="bytes to configure a warden"))
    both = {"layer_start": 0, "layer_end": 15, "vocab_start": 0, "vocab_end": MODEL.vocabulary // 2}
    out.append(configure(400, "usage", {**right, **both}, says="for a layer warden and for a shard warden"))
    other = mine("shard-warden-0" if node.startswith("layer") else "layer-warden-0")
    out += [configure(409, "unsupported", other), Case(node, probe, 409, "unsupported", headers=headers_of(other)),
            Case(node, "GET /tensor/" + ATTN, 409, "unsupported", headers={"X-Knot-Id": OTHER.knot_id}),
            Case(node, "POST /tensors", 409, "unsupported", b"x", headers={"X-Knot-Key": "other.knot"}),
            Case(node, "POST /invalidate/" + ATTN, 409, "unsupported", b"", headers={"X-Knot-Key": "other.knot"})]
    return out


def plain_bytes(node):
    """GET /knot: parts of the file."""
    whole = MODEL.path.read_bytes()
    end = len(whole)
    out = []
    for a, b in ((0, 0), (0, 99), (31000, 40000), (KNOT.payload - 1, KNOT.payload), (end - 70000, end - 1),
                 (end - 1, end - 1), (KNOT.payload + 4 * MIB - 5, KNOT.payload + 4 * MIB + 5), (0, 4 * MIB - 1)):
        out.append(Case(node, f"GET /knot?bytes={a}-{b}", 200, gives=whole[a:b + 1]))
    for query, status, code in (
            ("?bytes=5-4", 400, "range"), ("?bytes=0-99999999999", 400, "range"), (f"?bytes=0-{end}", 400, "range"),
            ("?bytes=0-4194304", 413, "too_large"), ("", 400, "usage"), ("?", 400, "usage"), ("?bytes=0-9x", 400,
                                                                                              "usage"),
            ("?bytes=-9", 400, "usage"), ("?bytes=9-", 400, "usage"), ("?bytes=", 400, "usage"),
            ("?bytes=0-9&bytes=0-9", 400, "usage"), ("?Bytes=0-9", 400, "usage"), ("?size=1", 400, "usage"),
            ("?sizes", 400, "usage"), ("?bytes=0+9", 400, "usage"), ("?bytes=0x0-9", 400, "usage"),
            ("?bytes=9999999999999999999-99999999999999999999", 400, "usage"), ("?bytes=+0-9", 400, "usage"),
            ("?" + "x" * 600, 400, "usage")):
        out.append(Case(node, "GET /knot" + query, status, code))
    out += [Case(node, "GET /knot?bytes=%31-2", 200, gives=whole[1:3]), Case(node, "GET /kno%74?size", 200),
            Case(node, "GET /knot?bytes=1%2D2", 200, gives=whole[1:3]), Case(node, "HEAD /knot?size", 405)]
    return out


def pieces(*several, knot_id=None):
    """[(name, first, rows)] as a tensors request, with lengths as the formats have them."""
    out = []
    for name, first, rows in several:
        t = KNOT.tensors[name]
        all_rows = t["shape"][0] if len(t["shape"]) == 2 else 1
        out.append((name, first, rows, t["length"] * rows // all_rows))
    return KNOT.request(out, knot_id)


def tensors(node, inside, outside, small, rows):
    """GET /tensor and POST /tensors; `inside` is a matrix of this warden, `rows` of it, `outside` of another; `small`:
    (name, rows) of one that is read as a whole."""
    get = lambda path, status, code=None, says=None: Case(node, "GET /tensor/" + path, status, code,
                                                          says=says)  # noqa: E731
    post = lambda body, status, code=None, says=None: Case(node, "POST /tensors", status, code, body,
                                                           says=says)  # noqa: E731
    good = pieces((inside, 0, 16), (small[0], 0, small[1]))
    size, = struct.unpack_from("<I", good, 8)
    twice = bytearray(good)  # one name two times
    twice[128:192] = twice[64:128]
    out = [
        get(inside + f"?rows={rows - 16}-{rows}", 200), get(inside + "?rows=16-32", 200), get(inside + "?rows=0%2D16",
                                                                                              200),
        get(f"{small[0]}?rows=0-{small[1]}", 200), get(f"{small[0].replace('_', '%5F')}?rows=0-{small[1]}", 200),
        get("output_norm_weight", (200, 400)),
        get("nothing", 404, "missing_tensor", 'the knot has no tensor "nothing"'), get("", 404, "missing_tensor"),
        get("x" * 200, 404, "missing_tensor"), get("a/b", 404, "missing_tensor"), get("x" * 900, 404, "not_found"),
        get(outside, (400, 413), None),
        get(inside + "?rows=0-15", 400, "range", "cut a panel of 16"), get(inside + "?rows=16-0", 400, "usage"),
        get(inside + "?rows=0-0", 400, "usage"), get(inside + "?rows=0-16&x", 400, "usage"),
        get(inside + f"?rows=0-{rows + 16}", 400, "range"), get(inside + "?rows=0-4294967296", 400, "usage"),
        get(inside + "?row=0-16", 400, "usage"), get(inside + "?x", 400, "usage"), get(inside + "?rows=-16", 400,
                                                                                       "usage"),
        *[get(f"{inside}?{q}", 200) for q in ("&&rows=0-16", "rows=0-16&", "%72ows=0-16", "rows=0-16%00x")],
        *[get(f"{inside}?{q}", 400, "usage", says) for q, says in (
            ("=x", '"=x"'), ("a=b=c", '"a=b=c"'), ("rows=%+5", '"rows=% 5"'), ("a%26b=c&d", '"a&b=c&d"'),
            ("a+b=c%2Bd", r'"a b=c\+d"'), ("+", '" "'), ("rows=%zz", '"rows=%zz"'), ("rows=%4", '"rows=%4"'))],
        get(inside.upper(), 404, "missing_tensor"),
        post(good, 200), post(pieces((inside, 16, 32), (inside, 0, 16), (inside, 16, 32)), 200),
        post(good[:size], 200), post(good + b"\0", 400, "format"), post(b"AWFR", 400, "truncated"), post(b"", 400),
        post(pieces((inside, 0, 16), knot_id=OTHER.id), 409, "unsupported"),
        post(pieces((outside, 0, 16)), 400, "range"), post(pieces((inside, 0, 15)), 400, None),
        post(frames.seal(bytes(twice)), 400, "duplicate", "twice"),
        post(patched(good, 60, 4, 5000), 413, "too_large"), post(patched(good, 56, 4, 600), 413, "too_large"),
        post(bytes(300 << 10), 413, "too_large", "the body has more than 262144 bytes"),
        Case(node, "POST /tensors", 413, "too_large", bytes(300 << 10), chunked=True),
        Case(node, "POST /tensors", 200, body=good, chunked=True),
    ]
    fields = [(4, 2), (6, 2), (8, 4), (16, 8), (24, 2), (26, 2), (28, 4), (32, 8), (40, 8), (48, 8), (56, 4), (60, 4),
              (64, 1), (120, 4), (192, 4), (196, 1), (197, 1), (198, 2), (200, 4), (204, 4), (208, 4), (212, 4), (216,
                                                                                                                  8),
              (224, 8), (232, 8)]
    return out + broken_frames(node, "POST /tensors", good, "bytes", fields, (200, 400, 404, 409, 413))


def invalidations(node, name, right, wrong):
    return [
        Case(node, "POST /invalidate/" + name, 200, body=b"", gives=b"{}"),
        Case(node, f"POST /invalidate/{name}", 200, body=b"a body", gives=b"{}"),
        Case(node, "POST /invalidate/nothing", 404, "missing_tensor", b""),
        Case(node, "POST /invalidate/", 404, "missing_tensor", b""),
        Case(node, "POST /invalidate/-1", 404, "missing_tensor", b""),
        Case(node, "POST /invalidate/5x", 404, "missing_tensor", b""),
        Case(node, "POST /invalidate/99999999999999999999", 400, "range", b""),
        Case(node, "GET /invalidate/" + name, 405, "usage", allow="POST"),
        *[Case(node, f"POST /invalidate/{r}", 200, body=b"", gives=b"{}") for r in right],
        *[Case(node, f"POST /invalidate/{r}", 400, "range", b"", says="not of this warden") for r in wrong],
    ]


def embedding_rows(node):
    first, last = ids_of("shard-" + node[-1])
    post = lambda rows, status=200, code=None: Case(  # noqa: E731
        node, "POST /tensors", status, code, pieces(*[(EMBEDDING, r, 1) for r in rows]))
    return [
        post([504, 5, 504]), post([504, 5, 504]), post([first]), post([last - 1]), post([last], 400, "range"),
        post(list(range(100, 340))), post(list(range(0, 3700)), 413, "too_large"),
        Case(node, "POST /tensors", 200, body=pieces((EMBEDDING, 64, 8), (EMBEDDING, 504, 1), (HEAD, 0, 16))),
        Case(node, "POST /invalidate/504", 200, body=b"", gives=b"{}"), post([504]), post([505, 504]),
        Case(node, "GET /tensor/" + EMBEDDING + "?rows=504-505", 200),
        Case(node, "GET /tensor/" + EMBEDDING + "?rows=504-507", 200),
        Case(node, "GET /tensor/" + EMBEDDING + "?rows=40000-40001", 400, "range"),
        Case(node, "GET /tensor/" + EMBEDDING, (400, 413)), Case(node, f"GET /tensor/{HEAD}?rows=0-16", 200),
        Case(node, f"GET /tensor/{EMBEDDING}?rows=0-{MORE_ROWS}", (200, 413)),
    ]


def common(node, posts):
    methods = [("/tensors", "POST", ("GET", "DELETE", "PUT")), ("/tensor/x", "GET", ("POST", "HEAD", "DELETE")),
               ("/knot", "GET", ("POST",)), ("/configure", "POST", ("GET",)), ("/stats", "GET", ("POST", "HEAD"))]
    return [*alive(node), *keys(node, posts),
            *paths(node, ["/tensor", "/tensors/", "/forward", "/invalidate", "/drain", "/knot/x", "/stats/"], methods)]


def rows_are_written(answer):
    """Those that were not in the cache of rows go there after the answers."""
    rows = json.loads(answer.body).get("rows_l2")
    return not rows or rows["writes"] >= rows["misses"]


def figures(node):
    return [Case(node, "GET /stats", 200, kind="json", until=rows_are_written),
            Case(node, "GET /stats?x", 200, kind="json"), Case(node, "GET /ready", 200, kind="json"),
            Case(node, "GET /metrics", 200, kind="metrics")]


def layer_warden(node):
    return [*common(node, ["POST /tensors", "GET /tensor/" + ATTN, "GET /knot?size", "GET /stats", "POST /configure",
                           "POST /invalidate/" + ATTN]),
            *identity(node), *plain_bytes(node), Case(node, "GET /tensor/" + ATTN, 200),
            Case(node, f"GET /tensor/{HEAD}", 413, "too_large", says="a warden gives 4194304 at once"),
            *tensors(node, ATTN, "blk_20_attn_q_weight", ("output_norm_weight", 1), 576),
            *invalidations(node, ATTN, [], ["5", "0", "00"]),
            Case(node, "GET /tensor/" + ATTN, 200), *figures(node)]


def shard_warden(node):
    first, last = ids_of("shard-" + node[-1])
    return [*common(node, ["POST /tensors", "GET /knot?size", "GET /stats", "POST /configure", "POST /invalidate/5"]),
            *identity(node), *plain_bytes(node), *embedding_rows(node),
            *tensors(node, HEAD, ATTN, (EMBEDDING, 2), last),
            *invalidations(node, HEAD, ["0504", str(last - 1)], [str(last), str(MODEL.vocabulary)]), *figures(node)]
