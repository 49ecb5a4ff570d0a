/* SPDX-License-Identifier: Apache-2.0 */
/* What every frame between nodes starts with (docs/format/frame.md, section 1).
 *
 *   [ prefix 16 | identity, sizes 40 | fields of the kind | tables | 0.. to 64 ][ payload ]
 *     \_ frame_header_bytes           \_ forward, shard_frames, awfr              \_ frame_check_payload
 *
 * A receiver: read 16 bytes, frame_header_bytes; read the header, the kind's reader (which calls
 * frame_open); read payload_bytes, frame_check_payload; then the values. A writer: payload first,
 * then the header with its hash.
 *
 * Errors  ERR_UNSUPPORTED is the handshake's alone: the two sides do not agree on version, knot,
 * numerics, cache type or range; the Why has both values. */
#ifndef COBORD_WIRE_FRAME_H
#define COBORD_WIRE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/ops.h"

enum {
    FRAME_VERSION = 1,
    FRAME_PREFIX_BYTES = 16,
    FRAME_FIELDS_AT = 56,
    FRAME_HEADER_UNIT = 64,
    FRAME_HEADER_BYTES_MIN = 128,
    FRAME_HEADER_BYTES_MAX = 262144,
    FRAME_ROWS_MAX = 4096
};

typedef enum FrameKind {
    FRAME_FORWARD = 1,
    FRAME_FORWARD_ANSWER,
    FRAME_EMBED,
    FRAME_EMBED_ANSWER,
    FRAME_LOGITS,
    FRAME_LOGITS_ANSWER,
    FRAME_TENSORS,
    FRAME_TENSORS_ANSWER
} FrameKind;

typedef enum FrameCache { FRAME_CACHE_NONE, FRAME_CACHE_F16, FRAME_CACHE_Q8_0 } FrameCache;

/* What both sides must have in common. */
typedef struct FrameIdentity {
    uint64_t knot_id;
    uint16_t numerics; /* NUMERICS_VERSION */
    FrameCache cache;  /* of stations; FRAME_CACHE_NONE elsewhere */
} FrameIdentity;

typedef struct FrameHead {
    uint32_t header_bytes;
    uint64_t request_id, payload_bytes;
    uint64_t payload_hash; /* XXH64; 0 in FRAME_TENSORS_ANSWER, whose pieces have their own */
} FrameHead;

const char *frame_kind_name(FrameKind kind);
static inline FrameCache frame_cache(CacheType type)
{
    return type == CACHE_F16 ? FRAME_CACHE_F16 : FRAME_CACHE_Q8_0;
}

/* From the first 16 bytes: how long the header is.
 * Errors  ERR_TRUNCATED, ERR_FORMAT (shows the bytes), ERR_UNSUPPORTED (version), ERR_TOO_LARGE. */
MUST_CHECK Error frame_header_bytes(const uint8_t *prefix, size_t bytes, FrameKind kind,
                                    uint32_t *header_bytes, Why *why);

/* Checks the whole header's CRC and the identity. `bytes` may go beyond the header.
 * Errors  as above, ERR_CHECKSUM, ERR_UNSUPPORTED (knot, numerics, cache), ERR_FORMAT. */
MUST_CHECK Error frame_open(const uint8_t *header, size_t bytes, FrameKind kind,
                            const FrameIdentity *mine, FrameHead *out, Why *why);

/* Ends a reader: the tables end at `tables_end`, the rest of the header is 0 and exactly that of
 * section 1; the payload has the bytes that the fields give. Errors  ERR_FORMAT. */
MUST_CHECK Error frame_check_sizes(const uint8_t *header, const FrameHead *head,
                                   uint64_t tables_end, uint64_t payload_bytes, Why *why);
/* Errors  ERR_FORMAT when any of header[first .. last) is not 0. */
MUST_CHECK Error frame_check_zero(const uint8_t *header, size_t first, size_t last, Why *why);
/* An answer's request id, and the range that it repeats. Errors  ERR_FORMAT. */
MUST_CHECK Error frame_check_echo(uint64_t got, uint64_t sent, const char *what, Why *why);

/* Errors  ERR_TRUNCATED, ERR_FORMAT (longer), ERR_CHECKSUM. */
MUST_CHECK Error frame_check_payload(const FrameHead *head, const uint8_t *payload, uint64_t bytes,
                                     Why *why);

/* The header's size for tables that end at `tables_end`. */
static inline uint64_t frame_header_size(uint64_t tables_end)
{
    uint64_t size = (tables_end + FRAME_HEADER_UNIT - 1) & ~(uint64_t)(FRAME_HEADER_UNIT - 1);
    return size < FRAME_HEADER_BYTES_MIN ? FRAME_HEADER_BYTES_MIN : size;
}

/* Writes zeros and the first 56 bytes; fields and tables follow, then frame_seal puts the CRC.
 * Shapes  out[head->header_bytes]. */
void frame_start(uint8_t *out, FrameKind kind, const FrameIdentity *identity,
                 const FrameHead *head);
/* For writers that know the hash late. */
void frame_put_payload_hash(uint8_t *out, uint64_t payload_hash);
void frame_seal(uint8_t *out);

#endif
