/* SPDX-License-Identifier: Apache-2.0 */
/* The attention cache of a station: a pool of blocks of 64 positions, each holding all layers of
 * the station, and per session a list of the blocks it has. Sessions that begin alike may list the
 * same blocks; each block knows how many list it.
 *
 *   session 0: [b7][b2][b9]             block b = layer 0 | layer 1 | ... each ops_cache_block_bytes()
 *   session 1: [b7][b2][b0]             lists: b7 2, b2 2, b9 1, b0 1       free list: b1 b3 b4 ...
 *
 *   b2 shared, session 1 cut to the middle of it, then written on:
 *   session 0: [b7][b2][b9]
 *   session 1: [b7][b3]                 b3 = a copy of b2, made by the reserve before the write
 *
 * Invariants
 *   1. A session is charged for every block that it lists, shared or not. What is listed at least once is at most
 *      the sum of the charges, and that is at most the pool. So whether a reserve succeeds depends on the lengths of
 *      the sessions alone, as if nothing were shared, and a block to copy into is always there: sharing never makes a
 *      later reserve fail. (A pool of sessions * blocks of the context never fails at all.)
 *   2. Only what cache_reserve has just made room for may be written, and none of it lies in a block that another
 *      session lists.
 *   3. What a block holds at positions that its session does not have is never looked at: it may be another
 *      session's later text (model/ops.h: masked positions add nothing). */
#ifndef COBORD_CLUSTER_CACHE_H
#define COBORD_CLUSTER_CACHE_H

#include "base/arena.h"
#include "base/error.h"
#include "model/ops.h"

typedef struct CacheConfig {
    CacheType type;
    uint32_t layers, kv_heads, head_dim;
    uint32_t blocks, sessions, context;
} CacheConfig;

typedef struct Cache {
    CacheConfig config;
    size_t layer_bytes, block_bytes;
    uint32_t blocks_per_session;
    uint8_t *memory;
    uint32_t *free_list;
    uint32_t free_count; /* blocks that nobody lists: at least cache_blocks_free() */
    uint32_t charged;    /* blocks listed, a shared one once for each session */
    uint32_t *lists;     /* [blocks] sessions that list the block */
    uint32_t *tables;    /* [sessions][blocks_per_session] block numbers */
    uint32_t *lengths;   /* [sessions] positions stored */
} Cache;

uint64_t cache_memory_bytes(const CacheConfig *config); /* the blocks themselves */
uint64_t cache_table_bytes(const CacheConfig *config);  /* bookkeeping */
MUST_CHECK Error cache_build(Cache *cache, const CacheConfig *config, Arena *arena);

static inline uint32_t cache_blocks_for(uint32_t positions)
{
    return positions / CACHE_BLOCK_POSITIONS + (positions % CACHE_BLOCK_POSITIONS != 0);
}

/* Makes room for positions 0..length - 1; those beyond the old length may be written. Costs the
 * copy of a block when the old length ends inside one that others list too. Errors  ERR_CAPACITY,
 * and then nothing changed. */
MUST_CHECK Error cache_reserve(Cache *cache, uint32_t session, uint32_t length, Why *why);
void cache_truncate(Cache *cache, uint32_t session, uint32_t length);
/* Makes session `to` the first `length` positions of session `from`, which has at least as many:
 * it lists the same blocks, and nothing is copied. When the last of them is cut by `length`,
 * whichever of the two writes into it first copies it (cache_reserve). Errors  ERR_CAPACITY, and
 * then nothing changed. */
MUST_CHECK Error cache_fork(Cache *cache, uint32_t from, uint32_t to, uint32_t length, Why *why);
/* Blocks that sessions may still be charged for. */
uint32_t cache_blocks_free(const Cache *cache);
/* Bytes of one position over all layers, and their copies out of the blocks and back into them;
 * written positions were reserved. Shapes  per layer K [kv_heads][dim], V [kv_heads][dim], then
 * (q8_0) the scales of K, of V. */
size_t cache_position_bytes(const Cache *cache);
void cache_get_position(const Cache *cache, uint32_t session, uint32_t position, uint8_t *out);
void cache_put_position(Cache *cache, uint32_t session, uint32_t position, const uint8_t *in);
/* The block of `layer` that holds positions 64 i ... */
uint8_t *cache_block(const Cache *cache, uint32_t session, uint32_t i, uint32_t layer);

#endif
