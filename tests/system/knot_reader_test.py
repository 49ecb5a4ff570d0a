# SPDX-License-Identifier: Apache-2.0
"""A second reader of knots, written from docs/format/knot.md and layout.md alone, with the standard library only.
It reads the same synthetic model as version 1 (rows) and version 2 (x16.1) and wants
the same numbers in both, bit by bit."""
import json
import pathlib
import resource
import struct
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
from support import Checks, must, run  # noqa: E402

BLOCK = {"F32": (1, 4), "Q5_0": (32, 22), "Q8_0": (32, 34), "Q4_K": (256, 144), "Q6_K": (256, 210)}
PANEL = {"F32": 64, "Q5_0": 352, "Q8_0": 544, "Q4_K": 2368, "Q6_K": 3360}


def read(path):
    whole = path.read_bytes()
    version, length = struct.unpack_from("<HI", whole, 4)
    align = (10 + length + 3) & ~3
    assert whole[:4] == b"KNOT" and whole[align] == 0x40 and not any(whole[10 + length:align])
    start = align + 1 if version == 1 else (align + 1 + 4095) & ~4095
    return json.loads(whole[10:10 + length]), whole[start:]


def scales_k4(s):
    sc, m = [], []
    for n in range(8):
        if n < 4:
            sc.append(s[n] & 63)
            m.append(s[4 + n] & 63)
        else:
            sc.append(s[4 + n] & 15 | s[n - 4] >> 6 << 4)
            m.append(s[4 + n] >> 4 | s[n] >> 6 << 4)
    return sc, m


def row_block(kind, b):
    """Scales and unsigned quants of one block of a row."""
    if kind == "F32":
        return b
    if kind == "Q8_0":
        return b[:2], [(q + 128) & 255 for q in b[2:]]
    if kind == "Q5_0":
        high = int.from_bytes(b[2:6], "little")
        low = [q & 15 for q in b[6:]] + [q >> 4 for q in b[6:]]
        return b[:2], [low[i] | (high >> i & 1) << 4 for i in range(32)]
    if kind == "Q4_K":
        quants = [b[16 + 32 * (j // 2) + i] >> 4 * (j % 2) & 15 for j in range(8) for i in range(32)]
        return b[:4], scales_k4(b[4:16]), quants
    quants = []
    for j in range(8):
        for i in range(32):
            low = b[64 * (j // 4) + 32 * (j % 2) + i] >> (4 if j % 4 >= 2 else 0) & 15
            quants.append(low | (b[128 + 32 * (j // 4) + i] >> 2 * (j % 4) & 3) << 4)
    return b[208:210], list(b[192:208]), quants


def nibbles(b, r):
    out = [0] * 32
    for g in range(4):
        for k in range(4):
            out[4 * g + k], out[16 + 4 * g + k] = b[64 * g + 4 * r + k] & 15, b[64 * g + 4 * r + k] >> 4
    return out


def crumbs(b, r):
    return [b[64 * (i // 16) + 4 * r + i % 4] >> 2 * (i // 4 % 4) & 3 for i in range(32)]


def pairs(b, r, count):
    return [b[32 * (n // 2) + 2 * r + n % 2] for n in range(count)]


def panel_block(kind, b, r):
    """The same of row r of one block of a panel."""
    if kind == "F32":
        return b[4 * r:4 * r + 4]
    d = b[2 * r:2 * r + 2]
    if kind == "Q8_0":
        return d, [b[32 + 64 * (i // 4) + 4 * r + i % 4] for i in range(32)]
    if kind == "Q5_0":
        high, low = b[32:96], nibbles(b[96:], r)
        return d, [low[i] | (high[4 * r + i % 4] >> i // 4 & 1) << 4 for i in range(32)]
    if kind == "Q4_K":
        quants = [q for j in range(8) for q in nibbles(b[320 + 256 * j:576 + 256 * j], r)]
        return d + b[32 + 2 * r:34 + 2 * r], (pairs(b[64:], r, 8), pairs(b[192:], r, 8)), quants
    quants = []
    for j in range(8):
        sub = b[288 + 384 * j:672 + 384 * j]
        quants += [n | c << 4 for n, c in zip(nibbles(sub[128:], r), crumbs(sub, r))]
    return d, pairs(b[32:], r, 16), quants


def same_matrix(kind, rows, cols, one, two):
    elements, row_bytes = BLOCK[kind]
    blocks = cols // elements
    chosen = sorted({0, 1, 15, 16, rows // 2, rows - 1} & set(range(rows)))
    for row in chosen:
        for n in sorted({0, blocks // 2, blocks - 1}):
            a = one[(row * blocks + n) * row_bytes:][:row_bytes]
            panel = (row // 16 * blocks + n) * PANEL[kind]
            if row_block(kind, a) != panel_block(kind, two[panel:panel + PANEL[kind]], row % 16):
                return f"row {row}, block {n}"
    return None


def versions(checks, folder, shape):
    one, two = folder / f"{shape}-1.knot", folder / f"{shape}-2.knot"
    must("synth", "--shape", shape, "-o", one, "--knot-version", 1)
    must("synth", "--shape", shape, "-o", two)
    (json1, payload1), (json2, payload2) = read(one), read(two)
    checks.that(json1["model"] == json2["model"], f"{shape}: the versions differ in `model`")
    checks.that(len(payload2) == json2["payload_bytes"], f"{shape}: payload_bytes")
    old = {t["name"]: t for t in json1["tensors"]}
    for t in json2["tensors"]:
        source = old["token_embd_weight"] if t.get("tied") else old[t["name"]]
        a = payload1[source["offset"]:source["offset"] + source["length"]]
        b = payload2[t["offset"]:t["offset"] + t["length"]]
        if t["layout"] == "rows":
            checks.that(a == b, f"{shape}: {t['name']} differs")
            continue
        rows, cols = t["shape"]
        fault = same_matrix(t["type"], rows, cols, a, b)
        checks.that(fault is None, f"{shape}: {t['name']} ({t['type']}) differs at {fault}")


def info_agrees(checks, folder):
    path = folder / "test-2.knot"
    meta, _ = read(path)
    told = json.loads(must("info", path, "--json"))
    names = [t["name"] for t in meta["tensors"]]
    checks.that([t["name"] for t in told["tensors"]] == names, "info lists other tensors")
    checks.that(told["id"] == meta["knot_id"], "info shows another id")


def info_is_safe(checks, folder):
    """A file cannot write to the terminal."""
    evil = json.dumps({"model": {"name": "\x1b]0;owned\x07\n"}, "tensors": [
        {"name": "a", "type": "F32", "shape": [8], "offset": 0, "length": 32}]}).encode()
    path = folder / "evil.knot"
    pad = -(10 + len(evil)) % 4
    path.write_bytes(b"KNOT\1\0" + struct.pack("<I", len(evil)) + evil + b"\0" * pad + b"\x40" + b"\0" * 32)
    for arguments in (["info", path], ["info", path, "--json"]):
        done = run(*arguments)
        checks.that(done.returncode == 0 and b"\x1b" not in done.stdout and b"\x07" not in done.stdout,
                    f"{arguments[1:]} lets control characters through")


def memory_stays_small(checks, folder):
    must("synth", "--shape", "qwen2.5-coder-0.5b", "-o", folder / "half.knot", timeout=600)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    checks.that(peak <= 64, f"the encoder took {peak:.0f} MiB for a 0.5B model; 64 are allowed")


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for shape in ("test", "test-llama", "test-qwen3", "test-gemma3", "test-narrow"):
            versions(checks, folder, shape)
        info_agrees(checks, folder)
        info_is_safe(checks, folder)
        memory_stays_small(checks, folder)
    return checks.end()


sys.exit(main())
