# SPDX-License-Identifier: Apache-2.0
"""Frames between nodes (docs/format/frame.md), from that page alone: what tests send, and a reader of answers."""
import struct

MASK = (1 << 64) - 1
P1, P2, P3, P4, P5 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
                      0x27D4EB2F165667C5)
FORWARD, FORWARD_ANSWER, EMBED, EMBED_ANSWER, LOGITS, LOGITS_ANSWER = range(1, 7)
F32, F16, INT8 = 1, 2, 3
PREFILL, DECODE, VERIFY = 1, 2, 3
DENSE, SPARSE = 1, 2


def _left(x, n):
    return ((x << n) | (x >> (64 - n))) & MASK


def _round(lane, x):
    return _left((lane + x * P2) & MASK, 31) * P1 & MASK


def xxh64(data):
    """Seed 0."""
    at, n = 0, len(data)
    if n >= 32:
        a, b, c, d = (P1 + P2) & MASK, P2, 0, -P1 & MASK
        whole = n // 32 * 32
        for w, x, y, z in struct.iter_unpack("<4Q", memoryview(data)[:whole]):
            a, b, c, d = _round(a, w), _round(b, x), _round(c, y), _round(d, z)
        at = whole
        h = (_left(a, 1) + _left(b, 7) + _left(c, 12) + _left(d, 18)) & MASK
        for lane in (a, b, c, d):
            h = ((h ^ _round(0, lane)) * P1 + P4) & MASK
    else:
        h = P5
    h = (h + n) & MASK
    while at + 8 <= n:
        h = (_left(h ^ _round(0, struct.unpack_from("<Q", data, at)[0]), 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= n:
        h = (_left(h ^ struct.unpack_from("<I", data, at)[0] * P1 & MASK, 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        h = _left(h ^ byte * P5 & MASK, 11) * P1 & MASK
    h = (h ^ h >> 33) * P2 & MASK
    h = (h ^ h >> 29) * P3 & MASK
    return h ^ h >> 32


def _table():
    out = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
        out.append(i)
    return out


_CRC = _table()


def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283
assert xxh64(b"") == 0xEF46DB3751D8E999 and xxh64(b"a") == 0xD24EC4F1A98C6E5B


def seal(header):
    """Puts the CRC of section 1."""
    header = bytearray(header)
    struct.pack_into("<I", header, 12, crc32c(bytes(header[16:]), crc32c(bytes(header[:12]))))
    return bytes(header)


def header(kind, knot_id, cache, request_id, payload, fields):
    """`fields`: everything from byte 56 on."""
    size = max(128, (56 + len(fields) + 63) // 64 * 64)
    start = struct.pack("<4sHHIIQHHIQQQ", b"COBF", 1, kind, size, 0, knot_id, 1, cache, 0, request_id, len(payload),
                        xxh64(payload))
    return seal((start + fields).ljust(size, b"\0"))


class Sequence:
    def __init__(self, session, position, rows, parent=0, parent_length=0):
        self.session, self.position, self.rows = session, position, rows
        self.parent, self.parent_length = parent, parent_length


def forward(knot_id, bounds, hidden, sequences, x, request_id, mode=PREFILL, wanted=None, cache=1, ffn=0, g=b"",
            element=F32):
    """A forward frame. `x`: bytes of rows; `bounds`: (first, last)."""
    rows = sum(s.rows for s in sequences)
    fields = struct.pack("<IIBBHIIIII8x", *bounds, mode, element, 0 if wanted is None else 1, rows, hidden, ffn,
                         len(sequences), len(wanted or []))
    for s in sequences:
        fields += struct.pack("<QQIIII", s.session, s.parent, s.parent_length, s.position, s.rows, 0)
    fields += struct.pack(f"<{len(wanted or [])}I", *(wanted or []))
    return header(FORWARD, knot_id, cache, request_id, x + g, fields) + x + g


def embed(knot_id, ids_range, hidden, ids, request_id=1, element=F32, form=DENSE):
    payload = struct.pack(f"<{len(ids)}I", *ids)
    fields = struct.pack("<IIIBBHII", *ids_range, len(ids), element, form, 0, hidden, 0)
    return header(EMBED, knot_id, 0, request_id, payload, fields) + payload


class Row:
    """What is wanted of a row of logits (section 5). `seen`: [(id, count)]; `bias`: [(id, bias)]; `mask`: bytes."""

    def __init__(self, k=0, sum_scale=None, repetition=1.0, presence=0.0, frequency=0.0, seen=(), bias=(), mask=None,
                 sliced=False, wanted_id=None):
        self.seen, self.bias, self.mask, self.wanted_id = seen, bias, mask, wanted_id
        flags = (sum_scale is not None) + 2 * sliced + 4 * (mask is not None) + 8 * (wanted_id is not None)
        self.fields = struct.pack("<IffffIII", k, sum_scale or 0, repetition, presence, frequency, len(seen), len(bias),
                                  flags)

    def lists(self):
        seen = b"".join(struct.pack("<II", *p) for p in self.seen)
        bias = b"".join(struct.pack("<If", *p) for p in self.bias)
        return seen + bias + (self.mask or b"") + (
            b"" if self.wanted_id is None else struct.pack("<I", self.wanted_id))


def logits_of(knot_id, ids_range, hidden, rows, x, request_id=1, element=F32):
    """A logits frame of [Row]."""
    fields = struct.pack("<IIIB3xI20x", *ids_range, len(rows), element, hidden) + b"".join(r.fields for r in rows)
    payload = x + b"".join(r.lists() for r in rows)
    return header(LOGITS, knot_id, 0, request_id, payload, fields) + payload


def logits(knot_id, ids_range, hidden, rows, x, k, request_id=1):
    """`rows` F32 rows, the k best of each wanted."""
    fields = struct.pack("<IIIB3xI20x", *ids_range, rows, F32, hidden)
    fields += struct.pack("<IffffIII", k, 0, 1, 0, 0, 0, 0, 0) * rows
    return header(LOGITS, knot_id, 0, request_id, x, fields) + x


def payload(answer, kind):
    """The payload of an answer whose frame is sound."""
    magic, version, got, size = struct.unpack_from("<4sHHI", answer)
    assert (magic, version, got) == (b"COBF", 1, kind), (magic, version, got)
    assert seal(answer[:size]) == answer[:size], "crc"
    bytes_, hash_ = struct.unpack_from("<QQ", answer, 40)
    assert len(answer) == size + bytes_ and xxh64(answer[size:]) == hash_, "payload"
    return answer[size:]


def candidates(answer, rows):
    """[[(id, logit), ..] per row] of a logits answer without slices."""
    data, out, at = payload(answer, LOGITS_ANSWER), [], 0
    for row in range(rows):
        count = struct.unpack_from("<I", answer, 96 + 48 * row)[0]
        out.append([struct.unpack_from("<If", data, at + 8 * i) for i in range(count)])
        at += 8 * count
    return out
