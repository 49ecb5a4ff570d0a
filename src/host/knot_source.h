/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a knot that is somewhere else: its index (knot/knot_index.h) and blocks that are checked with it. */
#ifndef COBORD_HOST_KNOT_SOURCE_H
#define COBORD_HOST_KNOT_SOURCE_H

#include "knot/knot_index.h"

/* Where bytes of the file come from: a store, or a warden's GET /knot. */
typedef struct KnotSource {
    /* Errors  those of store_read. Shapes  out[bytes]. */
    Error (*size)(void *context, uint64_t *bytes, Why *why);
    Error (*read)(void *context, uint64_t offset, uint64_t bytes, uint8_t *out, Why *why);
    void *context;
} KnotSource;

/* Header and tables say themselves how large they are, and only the last of them shows whether they are the knot's:
 * together they get at most `bytes_max`. Owner  knot_source_close.
 * Errors  those of the source and of knot_index_give, ERR_TOO_LARGE. */
MUST_CHECK Error knot_source_open(const KnotSource *source, uint64_t knot_id, uint64_t bytes_max,
                                  KnotIndex *out, Why *why);
void knot_source_close(KnotIndex *index);

/* Reads whole blocks and checks them; wrong ones are read again, three times in all: a cache on the way may be stale.
 * *bad counts them. */
MUST_CHECK Error knot_source_read(const KnotSource *source, const KnotIndex *index, uint64_t offset,
                                  uint64_t bytes, uint8_t *out, uint64_t *bad, Why *why);

#endif
