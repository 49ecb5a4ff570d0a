/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/frame.h"

#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/hash.h"
#include "knot/emit.h"

static const char frame_magic[4] = {'C', 'O', 'B', 'F'};
static const char frame_magic_tensors[4] = {'A', 'W', 'F', 'R'};

enum {
    AT_VERSION = 4,
    AT_KIND = 6,
    AT_HEADER_BYTES = 8,
    AT_CRC = 12,
    AT_KNOT = 16,
    AT_NUMERICS = 24,
    AT_CACHE = 26,
    AT_ZERO = 28,
    AT_REQUEST = 32,
    AT_PAYLOAD_BYTES = 40,
    AT_PAYLOAD_HASH = 48
};

static bool frame_has_hash(FrameKind kind) { return kind != FRAME_TENSORS_ANSWER; }

static const char *frame_magic_of(FrameKind kind)
{
    return kind >= FRAME_TENSORS ? frame_magic_tensors : frame_magic;
}

const char *frame_kind_name(FrameKind kind)
{
    switch (kind) {
    case FRAME_FORWARD: return "forward";
    case FRAME_FORWARD_ANSWER: return "forward answer";
    case FRAME_EMBED: return "embed";
    case FRAME_EMBED_ANSWER: return "embed answer";
    case FRAME_LOGITS: return "logits";
    case FRAME_LOGITS_ANSWER: return "logits answer";
    case FRAME_TENSORS: return "tensors";
    case FRAME_TENSORS_ANSWER: return "tensors answer";
    }
    return "unknown";
}

static const char *frame_cache_name(unsigned cache)
{
    return cache == FRAME_CACHE_F16    ? "f16"
           : cache == FRAME_CACHE_Q8_0 ? "q8_0"
           : cache == FRAME_CACHE_NONE ? "none"
                                       : "unknown";
}

static Error frame_check_prefix(const uint8_t *prefix, FrameKind kind, Why *why)
{
    uint16_t version = bytes_load16(prefix + AT_VERSION), got = bytes_load16(prefix + AT_KIND);
    if (memcmp(prefix, frame_magic_of(kind), 4) != 0)
        return error_why(why, ERR_FORMAT, "not a %s frame: it starts with \"%c%c%c%c\"",
                         frame_kind_name(kind), prefix[0], prefix[1], prefix[2], prefix[3]);
    if (version != FRAME_VERSION)
        return error_why(why, ERR_UNSUPPORTED,
                         "the frame has protocol version %u, this node %u: "
                         "install the same version of cobord on every machine",
                         (unsigned)version, (unsigned)FRAME_VERSION);
    if (got != kind)
        return error_why(why, ERR_FORMAT, "a frame of kind %u (%s) where kind %u (%s) belongs",
                         (unsigned)got, frame_kind_name((FrameKind)got), (unsigned)kind,
                         frame_kind_name(kind));
    return OK;
}

Error frame_header_bytes(const uint8_t *prefix, size_t bytes, FrameKind kind,
                         uint32_t *header_bytes, Why *why)
{
    if (bytes < FRAME_PREFIX_BYTES)
        return error_why(why, ERR_TRUNCATED, "the %s frame ends after %zu bytes",
                         frame_kind_name(kind), bytes);
    TRY(frame_check_prefix(prefix, kind, why));
    uint32_t size = bytes_load32(prefix + AT_HEADER_BYTES);
    if (size > FRAME_HEADER_BYTES_MAX)
        return error_why(why, ERR_TOO_LARGE, "a header of %u bytes, at most %u are allowed", size,
                         (unsigned)FRAME_HEADER_BYTES_MAX);
    if (size < FRAME_HEADER_BYTES_MIN || size % FRAME_HEADER_UNIT != 0)
        return error_why(why, ERR_FORMAT, "a header of %u bytes is not possible", size);
    *header_bytes = size;
    return OK;
}

static uint32_t frame_crc(const uint8_t *header, uint32_t header_bytes)
{
    uint32_t crc = crc32c_update(0, header, AT_CRC);
    return crc32c_update(crc, header + AT_KNOT, header_bytes - AT_KNOT);
}

static Error frame_other_knot(uint64_t got, uint64_t mine, Why *why)
{
    char text[2][17] = {{0}};
    Emit a = emit_make(text[0], 16), b = emit_make(text[1], 16);
    emit_hex64(&a, got);
    emit_hex64(&b, mine);
    return error_why(why, ERR_UNSUPPORTED, "the frame is for knot %s, this node has %s", text[0],
                     text[1]);
}

static Error frame_check_identity(const uint8_t *header, const FrameIdentity *mine, Why *why)
{
    uint64_t knot = bytes_load64(header + AT_KNOT);
    unsigned numerics = bytes_load16(header + AT_NUMERICS), cache = bytes_load16(header + AT_CACHE);
    if (knot != mine->knot_id) return frame_other_knot(knot, mine->knot_id, why);
    if (numerics != mine->numerics)
        return error_why(why, ERR_UNSUPPORTED, "the frame has numerics version %u, this node %u",
                         numerics, (unsigned)mine->numerics);
    if (cache != (unsigned)mine->cache)
        return error_why(why, ERR_UNSUPPORTED,
                         "the frame has cache type %u (%s), this node %u (%s)", cache,
                         frame_cache_name(cache), (unsigned)mine->cache,
                         frame_cache_name((unsigned)mine->cache));
    return OK;
}

Error frame_open(const uint8_t *header, size_t bytes, FrameKind kind, const FrameIdentity *mine,
                 FrameHead *out, Why *why)
{
    uint32_t size;
    TRY(frame_header_bytes(header, bytes, kind, &size, why));
    if (bytes < size)
        return error_why(why, ERR_TRUNCATED, "the %s frame's header has %zu of %u bytes",
                         frame_kind_name(kind), bytes, size);
    uint32_t stated = bytes_load32(header + AT_CRC), is = frame_crc(header, size);
    if (stated != is)
        return error_why(why, ERR_CHECKSUM, "the %s frame's header has CRC %x, its bytes %x",
                         frame_kind_name(kind), stated, is);
    TRY(frame_check_identity(header, mine, why));
    TRY(frame_check_zero(header, AT_ZERO, AT_REQUEST, why));
    *out = (FrameHead){.header_bytes = size,
                       .request_id = bytes_load64(header + AT_REQUEST),
                       .payload_bytes = bytes_load64(header + AT_PAYLOAD_BYTES),
                       .payload_hash = bytes_load64(header + AT_PAYLOAD_HASH)};
    if (!frame_has_hash(kind))
        return frame_check_zero(header, AT_PAYLOAD_HASH, FRAME_FIELDS_AT, why);
    return OK;
}

Error frame_check_zero(const uint8_t *header, size_t first, size_t last, Why *why)
{
    for (size_t i = first; i < last; i++)
        if (header[i] != 0)
            return error_why(why, ERR_FORMAT, "byte %zu of the header is %u, it must be 0", i,
                             (unsigned)header[i]);
    return OK;
}

Error frame_check_echo(uint64_t got, uint64_t sent, const char *what, Why *why)
{
    if (got == sent) return OK;
    return error_why(why, ERR_FORMAT, "the answer has %s %llu, the request %llu", what,
                     (unsigned long long)got, (unsigned long long)sent);
}

Error frame_check_sizes(const uint8_t *header, const FrameHead *head, uint64_t tables_end,
                        uint64_t payload_bytes, Why *why)
{
    if (head->header_bytes != frame_header_size(tables_end))
        return error_why(why, ERR_FORMAT, "a header of %u bytes, its fields make %llu",
                         head->header_bytes, (unsigned long long)frame_header_size(tables_end));
    if (head->payload_bytes != payload_bytes)
        return error_why(why, ERR_FORMAT, "a payload of %llu bytes, the fields make %llu",
                         (unsigned long long)head->payload_bytes,
                         (unsigned long long)payload_bytes);
    return frame_check_zero(header, (size_t)tables_end, head->header_bytes, why);
}

Error frame_check_payload(const FrameHead *head, const uint8_t *payload, uint64_t bytes, Why *why)
{
    if (bytes != head->payload_bytes)
        return error_why(why, bytes < head->payload_bytes ? ERR_TRUNCATED : ERR_FORMAT,
                         "a payload of %llu bytes, the header says %llu", (unsigned long long)bytes,
                         (unsigned long long)head->payload_bytes);
    if (bytes > SIZE_MAX) return error_why(why, ERR_TOO_LARGE, "the payload is too large");
    if (hash_xxh64(payload, (size_t)bytes) != head->payload_hash)
        return error_why(why, ERR_CHECKSUM, "the payload's hash is not the one in the header");
    return OK;
}

void frame_start(uint8_t *out, FrameKind kind, const FrameIdentity *identity, const FrameHead *head)
{
    ASSERT(head->header_bytes >= FRAME_HEADER_BYTES_MIN &&
           head->header_bytes <= FRAME_HEADER_BYTES_MAX);
    memset(out, 0, head->header_bytes);
    memcpy(out, frame_magic_of(kind), 4);
    bytes_store16(out + AT_VERSION, FRAME_VERSION);
    bytes_store16(out + AT_KIND, (uint16_t)kind);
    bytes_store32(out + AT_HEADER_BYTES, head->header_bytes);
    bytes_store64(out + AT_KNOT, identity->knot_id);
    bytes_store16(out + AT_NUMERICS, identity->numerics);
    bytes_store16(out + AT_CACHE, (uint16_t)identity->cache);
    bytes_store64(out + AT_REQUEST, head->request_id);
    bytes_store64(out + AT_PAYLOAD_BYTES, head->payload_bytes);
    bytes_store64(out + AT_PAYLOAD_HASH, frame_has_hash(kind) ? head->payload_hash : 0);
}

void frame_put_payload_hash(uint8_t *out, uint64_t payload_hash)
{
    bytes_store64(out + AT_PAYLOAD_HASH, payload_hash);
}

void frame_seal(uint8_t *out)
{
    bytes_store32(out + AT_CRC, frame_crc(out, bytes_load32(out + AT_HEADER_BYTES)));
}
