/* SPDX-License-Identifier: Apache-2.0 */
/* What a node knows of a knot that is somewhere else: the header and the hash tables, checked
 * against knot_id; with them every other byte can be checked on its own.
 *
 *   source --read--> header -> knot_parse
 *                    row hashes, block hashes -> knot_identity == knot_id
 *                    tensor hashes -> their blocks */
#ifndef COBORD_HOST_KNOT_INDEX_H
#define COBORD_HOST_KNOT_INDEX_H

#include "knot/knot.h"

/* Where bytes of the file come from: a store, or a warden's GET /knot. */
typedef struct KnotSource {
    /* Errors  those of store_read. Shapes  out[bytes]. */
    Error (*size)(void *context, uint64_t *bytes, Why *why);
    Error (*read)(void *context, uint64_t offset, uint64_t bytes, uint8_t *out, Why *why);
    void *context;
} KnotSource;

typedef struct KnotIndex {
    Knot knot;
    uint8_t *header; /* header_bytes of the file: JSON, NULs, marker */
    size_t header_bytes;
    uint8_t *row_hashes, *block_hashes,
        *tensor_hashes; /* the sections; tensor_hashes may be NULL */
    void *memory;
} KnotIndex;

/* Owner  knot_index_close. Errors  those of the source and of knot_parse, ERR_UNSUPPORTED (another knot_id, version 1),
 * ERR_CHECKSUM. */
MUST_CHECK Error knot_index_open(const KnotSource *source, uint64_t knot_id, KnotIndex *out,
                                 Why *why);
void knot_index_close(KnotIndex *index);

/* [*first, *last) of the payload: the whole hash blocks around a range of it. Bytes of the block hash section itself
 * have no block: the range must end before it. */
void knot_index_blocks(const KnotIndex *index, uint64_t offset, uint64_t bytes, uint64_t *first,
                       uint64_t *last);
/* Whole blocks at a payload offset. Errors  ERR_CHECKSUM: names the tensor or section. */
MUST_CHECK Error knot_index_check(const KnotIndex *index, uint64_t offset, uint64_t bytes,
                                  const uint8_t *data, Why *why);
/* Reads whole blocks and checks them; wrong ones are read again, three times in all: a cache on the way may be stale.
 * *bad counts them. */
MUST_CHECK Error knot_index_read(const KnotIndex *index, const KnotSource *source, uint64_t offset,
                                 uint64_t bytes, uint8_t *out, uint64_t *bad, Why *why);

/* By the tables. Result  false when there is no such table. */
bool knot_index_tensor_hash(const KnotIndex *index, const KnotTensor *t, uint64_t *hash);
bool knot_index_row_hash(const KnotIndex *index, uint32_t row, uint64_t *hash);

#endif
