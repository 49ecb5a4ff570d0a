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
    return 2 * arena_bytes((size_t)c->blocks * sizeof(uint32_t)) + arena_bytes((size_t)tables) +
           arena_bytes(c->sessions * sizeof(uint32_t));
}

Error cache_build(Cache *cache, const CacheConfig *config, Arena *arena)
{
    *cache = (Cache){.config = *config};
    cache->layer_bytes = layer_bytes(config);
    cache->block_bytes = cache->layer_bytes * config->layers;
    cache->blocks_per_session = cache_blocks_for(config->context);
    cache->free_list = ARENA_NEW(arena, uint32_t, config->blocks);
    cache->lists = ARENA_NEW(arena, uint32_t, config->blocks);
    cache->tables =
        ARENA_NEW(arena, uint32_t, (size_t)config->sessions * cache->blocks_per_session);
    cache->lengths = ARENA_NEW(arena, uint32_t, config->sessions);
    cache->memory = arena_take_raw(arena, (size_t)cache_memory_bytes(config));
    if (!cache->free_list || !cache->lists || !cache->tables || !cache->lengths || !cache->memory)
        return ERR_MEMORY;
    cache->free_count = config->blocks;
    for (uint32_t i = 0; i < config->blocks; i++) cache->free_list[i] = config->blocks - 1 - i;
    return OK;
}

static uint32_t *table_of(const Cache *cache, uint32_t session)
{
    return cache->tables + (size_t)session * cache->blocks_per_session;
}

static uint8_t *bytes_of(const Cache *cache, uint32_t block)
{
    return cache->memory + (size_t)block * cache->block_bytes;
}

static uint32_t take_block(Cache *cache)
{
    ASSERT(cache->free_count); /* invariant 1 */
    uint32_t block = cache->free_list[--cache->free_count];
    cache->lists[block] = 1;
    return block;
}

static void leave_block(Cache *cache, uint32_t block)
{
    if (--cache->lists[block] == 0) cache->free_list[cache->free_count++] = block;
}

/* Whether a session that has `have` blocks may have `need`. */
static Error check_room(const Cache *cache, uint32_t have, uint32_t need, Why *why)
{
    uint32_t free = cache_blocks_free(cache);
    if (need > have && need - have > free)
        return error_why(why, ERR_CAPACITY,
                         "the attention cache is full: %u blocks of 64 positions wanted, %u free",
                         need - have, free);
    return OK;
}

/* The block that the session writes into next becomes its own. */
static void own_last_block(Cache *cache, uint32_t session)
{
    uint32_t length = cache->lengths[session];
    if (length % CACHE_BLOCK_POSITIONS == 0) return;
    uint32_t *place = table_of(cache, session) + length / CACHE_BLOCK_POSITIONS, shared = *place;
    if (cache->lists[shared] == 1) return;
    *place = take_block(cache);
    memcpy(bytes_of(cache, *place), bytes_of(cache, shared), cache->block_bytes);
    leave_block(cache, shared);
}

Error cache_reserve(Cache *cache, uint32_t session, uint32_t length, Why *why)
{
    uint32_t have = cache_blocks_for(cache->lengths[session]), need = cache_blocks_for(length);
    if (length <= cache->lengths[session]) return OK;
    if (need > cache->blocks_per_session)
        return error_why(why, ERR_CAPACITY, "%u positions exceed the context of %u", length,
                         cache->config.context);
    TRY(check_room(cache, have, need, why));
    own_last_block(cache, session);
    for (uint32_t i = have; i < need; i++) table_of(cache, session)[i] = take_block(cache);
    cache->charged += need - have;
    cache->lengths[session] = length;
    return OK;
}

void cache_truncate(Cache *cache, uint32_t session, uint32_t length)
{
    if (length >= cache->lengths[session]) return;
    uint32_t have = cache_blocks_for(cache->lengths[session]), keep = cache_blocks_for(length);
    for (uint32_t i = have; i > keep; i--) leave_block(cache, table_of(cache, session)[i - 1]);
    cache->charged -= have - keep;
    cache->lengths[session] = length;
}

Error cache_fork(Cache *cache, uint32_t from, uint32_t to, uint32_t length, Why *why)
{
    ASSERT(from != to && length <= cache->lengths[from]);
    uint32_t blocks = cache_blocks_for(length);
    TRY(check_room(cache, cache_blocks_for(cache->lengths[to]), blocks, why));
    cache_truncate(cache, to, 0);
    for (uint32_t i = 0; i < blocks; i++) {
        uint32_t block = table_of(cache, from)[i];
        table_of(cache, to)[i] = block;
        cache->lists[block]++;
    }
    cache->charged += blocks;
    cache->lengths[to] = length;
    return OK;
}

uint32_t cache_blocks_free(const Cache *cache) { return cache->config.blocks - cache->charged; }

uint8_t *cache_block(const Cache *cache, uint32_t session, uint32_t i, uint32_t layer)
{
    return bytes_of(cache, table_of(cache, session)[i]) + (size_t)layer * cache->layer_bytes;
}

/* --- Single positions --- */

/* `count` elements of `size` bytes that lie `step` elements apart in a block. */
typedef struct Strand {
    size_t at, step, count, size;
} Strand;

enum { STRANDS_MAX = 4, SCALE_DIMS = 32 };

/* Where a position of one kv head lies (model/ops.h): K, V, K's scales, V's scales. Result  how many. */
static uint32_t strands_of(const CacheConfig *c, uint32_t head, uint32_t position,
                           Strand out[STRANDS_MAX])
{
    size_t element = c->type == CACHE_F16 ? 2 : 1, dim = c->head_dim;
    size_t head_elements = dim * CACHE_BLOCK_POSITIONS, part = head_elements * c->kv_heads;
    size_t scales = dim / SCALE_DIMS, head_scales = scales * CACHE_BLOCK_POSITIONS;
    size_t k = head * head_elements, v = part + k;
    out[0] = (Strand){(k + position) * element, CACHE_BLOCK_POSITIONS, dim, element};
    out[1] = (Strand){(v + position * dim) * element, 1, dim, element};
    if (c->type == CACHE_F16) return 2;
    size_t first = 2 * part, k_scales = head * head_scales,
           v_scales = c->kv_heads * head_scales + k_scales;
    out[2] = (Strand){first + (k_scales + position) * sizeof(float), CACHE_BLOCK_POSITIONS, scales,
                      sizeof(float)};
    out[3] =
        (Strand){first + (v_scales + position * scales) * sizeof(float), 1, scales, sizeof(float)};
    return STRANDS_MAX;
}

size_t cache_position_bytes(const Cache *cache)
{
    return cache->block_bytes / CACHE_BLOCK_POSITIONS;
}

/* Result  the place behind it in `flat`. */
static uint8_t *copy_strand(const Strand *s, uint8_t *block, uint8_t *flat, bool into_block)
{
    for (size_t i = 0; i < s->count; i++, flat += s->size) {
        uint8_t *at = block + s->at + i * s->step * s->size;
        memcpy(into_block ? at : flat, into_block ? flat : at, s->size);
    }
    return flat;
}

static void copy_position(const Cache *cache, uint32_t session, uint32_t position, uint8_t *flat,
                          bool into_block)
{
    Strand strands[STRANDS_MAX];
    for (uint32_t layer = 0; layer < cache->config.layers; layer++) {
        uint8_t *block = cache_block(cache, session, position / CACHE_BLOCK_POSITIONS, layer);
        for (uint32_t head = 0; head < cache->config.kv_heads; head++) {
            uint32_t count =
                strands_of(&cache->config, head, position % CACHE_BLOCK_POSITIONS, strands);
            for (uint32_t i = 0; i < count; i++)
                flat = copy_strand(&strands[i], block, flat, into_block);
        }
    }
}

void cache_get_position(const Cache *cache, uint32_t session, uint32_t position, uint8_t *out)
{
    copy_position(cache, session, position, out, false);
}

void cache_put_position(Cache *cache, uint32_t session, uint32_t position, const uint8_t *in)
{
    copy_position(cache, session, position, (uint8_t *)(uintptr_t)in, true);
}
