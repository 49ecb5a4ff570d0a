/* SPDX-License-Identifier: Apache-2.0 */
/* AWFR frames: pieces of tensors between wardens and those they serve (docs/format/frame.md,
 * section 7).
 *
 *   [ head | names | pieces ][ piece 0 | 0.. | piece 1 | 0.. | ... ]     every piece 64-aligned
 *
 * Both sides have the knot's header, and a piece must be what it says of the tensor. Each piece has
 * the hash of its own bytes: awfr_check_piece compares it, and the caller compares awfr hashes of
 * whole tensors and embedding rows with the knot's tables. */
#ifndef COBORD_WIRE_AWFR_H
#define COBORD_WIRE_AWFR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "knot/knot.h"
#include "wire/frame.h"

enum { AWFR_NAMES_MAX = 512, AWFR_PIECES_MAX = 4096, AWFR_ALIGN = 64 };

typedef enum AwfrHash {
    AWFR_HASH_NONE,          /* requests */
    AWFR_HASH_TENSOR,        /* the knot's, of the whole tensor */
    AWFR_HASH_EMBEDDING_ROW, /* the knot's, of one row of token_embd_weight */
    AWFR_HASH_PIECE          /* the sender's */
} AwfrHash;

typedef struct AwfrPiece {
    const KnotTensor *tensor;
    uint32_t row_first, row_count; /* x16.1: whole panels */
    AwfrHash hash_kind;
    uint64_t hash;
    uint64_t bytes; /* filled in by readers and awfr_lay_out */
    uint64_t at;    /* from the payload's start; the same */
    /* Answers only: one embedding row as float32, from a cache that keeps them so; AWFR_HASH_PIECE. */
    bool as_f32;
} AwfrPiece;

typedef struct AwfrTerms {
    FrameIdentity identity; /* cache: FRAME_CACHE_NONE */
    const Knot *knot;
    uint32_t pieces_max;        /* at most AWFR_PIECES_MAX */
    uint64_t payload_bytes_max; /* what a receiver has room for */
} AwfrTerms;

/* Sets `bytes` and `at` of every piece. Result  the payload's bytes.
 * Errors  ERR_RANGE (rows of the tensor, panels cut), ERR_TOO_LARGE. */
MUST_CHECK Error awfr_lay_out(AwfrPiece *pieces, uint32_t count, uint64_t *payload_bytes, Why *why);

/* Of pieces with at most AWFR_NAMES_MAX tensors among them. */
uint32_t awfr_header_size(const AwfrPiece *pieces, uint32_t count);

/* Request: hashes are none. `kind` is FRAME_TENSORS or FRAME_TENSORS_ANSWER. The pieces are laid
 * out. Shapes  out[awfr_header_size]. */
void awfr_write(FrameKind kind, const AwfrTerms *terms, uint64_t request_id,
                const AwfrPiece *pieces, uint32_t count, uint8_t *out);

/* Shapes  pieces[terms->pieces_max]. Errors  those of frame_open, ERR_MISSING_TENSOR (a name that
 * the knot does not have), ERR_TYPE, ERR_SHAPE (both values), ERR_RANGE, ERR_TOO_LARGE,
 * ERR_DUPLICATE (a name), ERR_FORMAT. */
MUST_CHECK Error awfr_read(FrameKind kind, const uint8_t *header, size_t bytes,
                           const AwfrTerms *terms, AwfrPiece *pieces, uint32_t *count,
                           FrameHead *head, Why *why);

/* An answer's pieces are those of the request, in its order. Errors  ERR_FORMAT. */
MUST_CHECK Error awfr_check_answer(const AwfrPiece *asked, uint32_t asked_count,
                                   const AwfrPiece *got, uint32_t got_count, Why *why);

/* The piece's bytes, wherever they were read to. Errors  ERR_CHECKSUM: names tensor and rows. */
MUST_CHECK Error awfr_check_piece(const AwfrPiece *piece, const uint8_t *bytes, Why *why);
/* The bytes between pieces. Shapes  payload[payload_bytes]. Errors  ERR_FORMAT. */
MUST_CHECK Error awfr_check_gaps(const AwfrPiece *pieces, uint32_t count, const uint8_t *payload,
                                 Why *why);

#endif
