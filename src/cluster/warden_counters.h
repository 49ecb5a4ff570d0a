/* SPDX-License-Identifier: Apache-2.0 */
/* What the levels of a warden count, on every host. */
#ifndef COBORD_CLUSTER_WARDEN_COUNTERS_H
#define COBORD_CLUSTER_WARDEN_COUNTERS_H

#include "cluster/warden.h"
#include "cluster/warden_rows.h"

/* The object store. */
typedef struct StoreCounters {
    uint64_t reads, bytes, retries, failures;
} StoreCounters;

/* Slabs on disk. */
typedef struct SlabCacheCounters {
    uint64_t hits, misses, bad, writes, failures, evictions;
    uint64_t held_bytes;
} SlabCacheCounters;

/* Rows in a key-value store. */
typedef struct RowStoreCounters {
    uint64_t hits, misses, bad, writes, failures;
} RowStoreCounters;

/* Slabs. */
typedef struct WardenLevelsCounters {
    WardenCounters memory;
    SlabCacheCounters disk;
    StoreCounters store;
    uint64_t store_bad; /* blocks of the store that were read again */
    bool has_disk, shared;
} WardenLevelsCounters;

/* Embedding rows. */
typedef struct WardenVocabCounters {
    WardenRowsCounters memory;
    RowStoreCounters rows;
    uint64_t store_rows, store_bad;
    bool has_rows;
} WardenVocabCounters;

#endif
