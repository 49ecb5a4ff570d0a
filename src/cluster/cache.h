/* SPDX-License-Identifier: Apache-2.0 */
/* The attention cache of a station: a pool of blocks of 64 positions, each holding all layers of
 * the station, and per session a list of the blocks it has.
 *
 *   session 0: [b7][b2][b9]             block b = layer 0 | layer 1 | ... each ops_cache_block_bytes()
 *   session 1: [b0]                     free list: b1 b3 b4 ...
 */
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
    uint32_t free_count;
    uint32_t *tables;  /* [sessions][blocks_per_session] block numbers */
    uint32_t *lengths; /* [sessions] positions stored */
} Cache;

uint64_t cache_memory_bytes(const CacheConfig *config); /* the blocks themselves */
uint64_t cache_table_bytes(const CacheConfig *config);  /* bookkeeping */
MUST_CHECK Error cache_build(Cache *cache, const CacheConfig *config, Arena *arena);

static inline uint32_t cache_blocks_for(uint32_t positions)
{
    return positions / CACHE_BLOCK_POSITIONS + (positions % CACHE_BLOCK_POSITIONS != 0);
}

/* Makes room for positions 0..length - 1. Errors  ERR_CAPACITY, and then nothing changed. */
MUST_CHECK Error cache_reserve(Cache *cache, uint32_t session, uint32_t length, Why *why);
void cache_truncate(Cache *cache, uint32_t session, uint32_t length);
/* Makes session `to` the first `length` positions of session `from`, which has at least as many. Whole
 * blocks are copied, since a block belongs to one session: cache_blocks_for(length) * block_bytes, 28 KiB a
 * position for 14 layers of a 7B model in f16. What follows `length` in the last block is never looked
 * at. Errors  ERR_CAPACITY, and then nothing changed. */
MUST_CHECK Error cache_copy(Cache *cache, uint32_t from, uint32_t to, uint32_t length, Why *why);
/* The block of `layer` that holds positions 64 i ... */
uint8_t *cache_block(const Cache *cache, uint32_t session, uint32_t i, uint32_t layer);

#endif
