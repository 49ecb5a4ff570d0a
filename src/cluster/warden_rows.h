/* SPDX-License-Identifier: Apache-2.0 */
/* Embedding rows in a warden's memory: raw quantized rows, least recently used ones make room. All
 * rows have one size, and prompts share their common words, so that plain LRU is right here.
 *
 *   slot_of[id - first] --> slot: | newer | older | id |     rows[slot]: row_bytes
 *                           newest <-> .. <-> oldest */
#ifndef COBORD_CLUSTER_WARDEN_ROWS_H
#define COBORD_CLUSTER_WARDEN_ROWS_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/error.h"

typedef struct WardenRowsConfig {
    uint32_t id_first, id_last; /* half open */
    uint32_t row_bytes;
    uint64_t budget_bytes; /* of the rows and their bookkeeping */
} WardenRowsConfig;

typedef struct WardenRowsCounters {
    uint64_t hits, misses, evictions, bad, invalidations;
    uint64_t held_bytes;
} WardenRowsCounters;

typedef struct WardenRows WardenRows;

/* At most the budget, and less when all rows fit; the table alone when the budget is smaller still. */
uint64_t warden_rows_bytes(const WardenRowsConfig *config);
/* Owner  the arena outlives it. Thread  one at a time. Errors  ERR_MEMORY. */
MUST_CHECK Error warden_rows_build(const WardenRowsConfig *config, Arena *arena, WardenRows **out,
                                   Why *why);
uint32_t warden_rows_room(const WardenRows *w);

/* The row's bytes, valid until the next put; NULL when it is not there. */
const uint8_t *warden_rows_get(WardenRows *w, uint32_t id);
bool warden_rows_has(const WardenRows *w, uint32_t id);
/* Shapes  row[row_bytes]. Replaces what is there. */
void warden_rows_put(WardenRows *w, uint32_t id, const uint8_t *row);
/* The row is not to be served again. Result  whether it was there. `bad`: its hash was wrong. */
bool warden_rows_forget(WardenRows *w, uint32_t id, bool bad);

WardenRowsCounters warden_rows_counters(const WardenRows *w);

#endif
