/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/cache.h"

#include <string.h>

static size_t layer_bytes(const CacheConfig *c)
{
    return ops_cache_block_bytes(c->type, c->kv_heads, c->head_dim);
}

uint64_t cache_memory_bytes(const CacheConfig *c)
{
    return (uint64_t)c->blocks * c->layers * layer_bytes(c);
}

uint64_t cache_table_bytes(const CacheConfig *c)
{
    uint64_t tables = (uint64_t)c->sessions * cache_blocks_for(c->context) * sizeof(uint32_t);
    return arena_bytes((size_t)c->blocks * sizeof(uint32_t)) + arena_bytes((size_t)tables) +
           arena_bytes(c->sessions * sizeof(uint32_t));
}

Error cache_build(Cache *cache, const CacheConfig *config, Arena *arena)
{
    *cache = (Cache){.config = *config};
    cache->layer_bytes = layer_bytes(config);
    cache->block_bytes = cache->layer_bytes * config->layers;
    cache->blocks_per_session = cache_blocks_for(config->context);
    cache->free_list = ARENA_NEW(arena, uint32_t, config->blocks);
    cache->tables =
        ARENA_NEW(arena, uint32_t, (size_t)config->sessions * cache->blocks_per_session);
    cache->lengths = ARENA_NEW(arena, uint32_t, config->sessions);
    cache->memory = arena_take_raw(arena, (size_t)cache_memory_bytes(config));
    if (!cache->free_list || !cache->tables || !cache->lengths || !cache->memory) return ERR_MEMORY;
    cache->free_count = config->blocks;
    for (uint32_t i = 0; i < config->blocks; i++) cache->free_list[i] = config->blocks - 1 - i;
    return OK;
}

Error cache_reserve(Cache *cache, uint32_t session, uint32_t length, Why *why)
{
    uint32_t have = cache_blocks_for(cache->lengths[session]), need = cache_blocks_for(length);
    if (need > cache->blocks_per_session)
        return error_why(why, ERR_CAPACITY, "%u positions exceed the context of %u", length,
                         cache->config.context);
    if (need > have && need - have > cache->free_count)
        return error_why(why, ERR_CAPACITY,
                         "the attention cache is full: %u blocks of 64 positions wanted, %u free",
                         need - have, cache->free_count);
    uint32_t *table = cache->tables + (size_t)session * cache->blocks_per_session;
    for (uint32_t i = have; i < need; i++) table[i] = cache->free_list[--cache->free_count];
    if (length > cache->lengths[session]) cache->lengths[session] = length;
    return OK;
}

void cache_truncate(Cache *cache, uint32_t session, uint32_t length)
{
    if (length >= cache->lengths[session]) return;
    uint32_t *table = cache->tables + (size_t)session * cache->blocks_per_session;
    for (uint32_t i = cache_blocks_for(cache->lengths[session]); i > cache_blocks_for(length); i--)
        cache->free_list[cache->free_count++] = table[i - 1];
    cache->lengths[session] = length;
}

Error cache_copy(Cache *cache, uint32_t from, uint32_t to, uint32_t length, Why *why)
{
    ASSERT(from != to && length <= cache->lengths[from]);
    TRY(cache_reserve(cache, to, length, why));
    cache_truncate(cache, to, length);
    for (uint32_t i = 0; i < cache_blocks_for(length); i++)
        memcpy(cache_block(cache, to, i, 0), cache_block(cache, from, i, 0), cache->block_bytes);
    return OK;
}

uint8_t *cache_block(const Cache *cache, uint32_t session, uint32_t i, uint32_t layer)
{
    uint32_t block = cache->tables[(size_t)session * cache->blocks_per_session + i];
    return cache->memory + (size_t)block * cache->block_bytes + (size_t)layer * cache->layer_bytes;
}
