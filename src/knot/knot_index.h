/* SPDX-License-Identifier: Apache-2.0 */
/* What a node knows of a knot that is somewhere else: the header and the hash tables, checked
 * against knot_id; with them every other byte can be checked on its own.
 *
 *   need  PROBE    the file's first bytes
 *     |   HEADER   the rest of a long header
 *     |   PARSE    memory only
 *     |   ROWS     row hashes
 *     |   BLOCKS   block hashes -> knot_identity == knot_id
 *     v   TENSORS  the blocks with the tensor hashes, checked by them; again when they are bad
 *   open
 *
 * Reading and memory are the caller's: it asks what is needed, brings it, gives it, until it is open.
 * Whatever it gave as `memory` belongs to the index from then on. */
#ifndef COBORD_KNOT_KNOT_INDEX_H
#define COBORD_KNOT_KNOT_INDEX_H

#include "knot/knot.h"

enum { KNOT_INDEX_READS_MAX = 3 }; /* of bytes that may be stale in a cache on the way */

typedef struct KnotIndex {
    Knot knot;
    uint8_t *header; /* header_bytes of the file: JSON, NULs, marker */
    size_t header_bytes;
    uint8_t *row_hashes, *block_hashes,
        *tensor_hashes; /* the sections; tensor_hashes may be NULL */
    void *memory;       /* what `knot` points to */
} KnotIndex;

typedef enum KnotIndexStage {
    KNOT_INDEX_PROBE,
    KNOT_INDEX_HEADER,
    KNOT_INDEX_PARSE,
    KNOT_INDEX_ROWS,
    KNOT_INDEX_BLOCKS,
    KNOT_INDEX_TENSORS,
    KNOT_INDEX_OPEN
} KnotIndexStage;

typedef struct KnotIndexOpening {
    KnotIndex *index; /* as it is so far: whoever gives up frees its five pointers */
    KnotIndexStage stage;
    uint64_t knot_id, file_bytes;
    uint32_t reads; /* of the tensor hashes */
} KnotIndexOpening;

/* Bytes of the file to bring, and memory. */
typedef struct KnotIndexNeed {
    uint64_t offset, bytes; /* of the file; may be none */
    size_t memory_bytes;    /* lives as long as the index; 0: it was given before */
    size_t scratch_bytes;   /* needed until they are given; may be 0 */
    bool into_scratch;      /* where the bytes go: else to `at` of the memory */
    size_t at;
    bool grows; /* the memory is the header's, larger than before and with what it had */
} KnotIndexNeed;

/* Owner  `out` outlives the opening. */
KnotIndexOpening knot_index_start(uint64_t knot_id, uint64_t file_bytes, KnotIndex *out);
/* Result  false: it is open. */
bool knot_index_need(const KnotIndexOpening *o, KnotIndexNeed *need);
/* Takes what was needed; the memory is the index's even after an error.
 * Errors  those of knot_parse, ERR_UNSUPPORTED (another knot_id, version 1), ERR_FORMAT, ERR_CHECKSUM. */
MUST_CHECK Error knot_index_give(KnotIndexOpening *o, uint8_t *memory, uint8_t *scratch, Why *why);

/* [*first, *last) of the payload: the whole hash blocks around a range of it. Bytes of the block hash section itself
 * have no block: the range must end before it. */
void knot_index_blocks(const KnotIndex *index, uint64_t offset, uint64_t bytes, uint64_t *first,
                       uint64_t *last);
/* Whole blocks at a payload offset. Errors  ERR_CHECKSUM: names the tensor or section. */
MUST_CHECK Error knot_index_check(const KnotIndex *index, uint64_t offset, uint64_t bytes,
                                  const uint8_t *data, Why *why);

/* A range of the file, [offset, offset + bytes): copies what the index has of it, header, padding and block hashes, to
 * its places in `out`. What is left is a range of the payload for `out + rest->at`; rest->bytes may be 0. */
typedef struct KnotIndexRest {
    uint64_t offset, bytes; /* of the payload */
    size_t at;
} KnotIndexRest;
void knot_index_copy(const KnotIndex *index, uint64_t offset, uint64_t bytes, uint8_t *out,
                     KnotIndexRest *rest);

/* By the tables. Result  false when there is no such table. */
bool knot_index_tensor_hash(const KnotIndex *index, const KnotTensor *t, uint64_t *hash);
bool knot_index_row_hash(const KnotIndex *index, uint32_t row, uint64_t *hash);

#endif
