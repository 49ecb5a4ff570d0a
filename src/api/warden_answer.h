/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of a warden to GET /tensor and POST /tensors, without the reading: what may be asked for, how large it
 * becomes, and the frame around it. The same on every host.
 *
 *   request -> pieces -> check -> (rows are read: some as float32) -> lay out -> (pieces are read) -> hash -> head */
#ifndef COBORD_API_WARDEN_ANSWER_H
#define COBORD_API_WARDEN_ANSWER_H

#include "cluster/warden.h"
#include "knot/knot_index.h"
#include "wire/awfr.h"

enum {
    WARDEN_ANSWER_BYTES_MAX = 4 << 20, /* tensors, plain bytes */
    WARDEN_ROWS_BYTES_MAX = 8 << 20    /* embedding rows */
};

typedef struct WardenServing {
    WardenIdentity identity;
    const KnotIndex *index;
    /* Whose single rows are looked up one by one; NULL for layer wardens. */
    const KnotTensor *vocab;
} WardenServing;

/* Of a shard warden: the embedding and its rows' bytes. Errors  ERR_MISSING_TENSOR, ERR_FORMAT (no row hashes),
 * ERR_RANGE (ids beyond it). */
MUST_CHECK Error warden_answer_find_vocab(const KnotIndex *index, uint32_t id_last,
                                          const KnotTensor **out, uint32_t *row_bytes, Why *why);
/* The knot's hash of a row. */
bool warden_answer_row_is_right(const KnotIndex *index, uint32_t id, const uint8_t *bytes,
                                uint32_t row_bytes);

typedef struct WardenSizes {
    size_t header_bytes, payload_bytes;
} WardenSizes;

/* Errors  ERR_TOO_LARGE. */
MUST_CHECK Error warden_answer_check_size(uint64_t bytes, uint64_t bytes_max, Why *why);

/* The body of POST /tensors. Shapes  pieces[AWFR_PIECES_MAX]. Errors  those of awfr_read, ERR_CHECKSUM. */
MUST_CHECK Error warden_answer_read(const WardenServing *w, const uint8_t *body, size_t bytes,
                                    AwfrPiece *pieces, uint32_t *count, uint64_t *request_id,
                                    Why *why);

/* One row of the embedding, which has a hash of its own. */
bool warden_answer_is_row(const WardenServing *w, const AwfrPiece *p);
/* Whether the pieces are this warden's, and not too many. *rows: how many are single rows.
 * Errors  ERR_RANGE, ERR_TOO_LARGE. */
MUST_CHECK Error warden_answer_check(const WardenServing *w, AwfrPiece *pieces, uint32_t count,
                                     uint32_t *rows, Why *why);
/* After `as_f32` of the rows is known. */
MUST_CHECK Error warden_answer_lay_out(AwfrPiece *pieces, uint32_t count, WardenSizes *out,
                                       Why *why);
/* Of a piece that was read and checked: the knot's hash where it has one of just these bytes, else our own. */
void warden_answer_hash(const WardenServing *w, AwfrPiece *p, const uint8_t *bytes);
/* Shapes  out[header_bytes]. */
void warden_answer_write_head(const WardenServing *w, const AwfrPiece *pieces, uint32_t count,
                              uint64_t request_id, uint8_t *out);

#endif
