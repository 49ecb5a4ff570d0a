/* SPDX-License-Identifier: Apache-2.0 */
/* L2 of a warden: chunks of a knot as files in a directory, with a cap on their bytes. Weights only: nothing else is
 * ever written there.
 *
 *   DIR/KNOTID-RANGE/00000012.chunk      one directory per warden, locked by it; the file is the chunk's bytes
 *
 * Files are written to a temporary name, synced and renamed, and what is read is checked: its length, and every block
 * with the knot's hash. A bad file is deleted and counted. Like in memory, the chunks that came first stay: a directory
 * smaller than the cycle would else only be written. Directories of wardens that are gone make room.
 * A full disk, or one that fails, is a cache that keeps nothing new, with one warning. */
#ifndef COBORD_HOST_CHUNK_CACHE_H
#define COBORD_HOST_CHUNK_CACHE_H

#include "host/knot_index.h"
#include "host/tell.h"

typedef struct ChunkCacheOptions {
    const char *directory, *name; /* "KNOTID-0-14" */
    uint64_t bytes_max;           /* 0: no limit */
    const KnotIndex *index;       /* outlives the cache */
    const Tell *tell;
} ChunkCacheOptions;

typedef struct ChunkCacheCounters {
    uint64_t hits, misses, bad, writes, failures, evictions;
    uint64_t held_bytes;
} ChunkCacheCounters;

typedef struct ChunkCache ChunkCache;

/* Owner  the options' texts are copied; chunk_cache_close.
 * Errors  ERR_IO (the directory cannot be made or is another warden's), ERR_MEMORY. Thread  any, for all functions. */
MUST_CHECK Error chunk_cache_open(const ChunkCacheOptions *options, ChunkCache **out, Why *why);
void chunk_cache_close(ChunkCache *c);

/* `chunk` is a number of WARDEN_CHUNK_BYTES units; `bytes` what it has up to the block hash section.
 * Result  false: not there, or it was bad and is gone. */
bool chunk_cache_get(ChunkCache *c, uint32_t chunk, uint64_t bytes, uint8_t *out);
/* Whether a chunk that is not there would be kept. */
bool chunk_cache_wants(ChunkCache *c, uint32_t chunk, uint64_t bytes);
void chunk_cache_put(ChunkCache *c, uint32_t chunk, uint64_t bytes, const uint8_t *data);
void chunk_cache_forget(ChunkCache *c, uint32_t chunk);
ChunkCacheCounters chunk_cache_counters(ChunkCache *c);

#endif
