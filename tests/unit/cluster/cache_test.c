/* SPDX-License-Identifier: Apache-2.0 */
/* The attention cache against a model of it: each session a plain array of what was written last at each of its
 * positions. Whatever is forked, cut and written in whatever order, each session reads its own, and whether there is
 * room depends on the lengths alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/cache.h"

enum {
    LAYERS = 2,
    SESSIONS = 5,
    CONTEXT = 300, /* the last block of a session is never full */
    SESSION_BLOCKS = 5
};

typedef struct Model {
    uint32_t text[SESSIONS][CONTEXT];
    uint32_t length[SESSIONS];
} Model;

typedef struct Rig {
    Cache cache;
    void *memory;
    Model model;
    uint64_t random;
    uint32_t written;
} Rig;

static void rig_open(Rig *r, uint32_t blocks, uint64_t seed)
{
    CacheConfig config = {CACHE_F16, LAYERS, 1, 32, blocks, SESSIONS, CONTEXT};
    size_t bytes = (size_t)(cache_memory_bytes(&config) + cache_table_bytes(&config)) + ARENA_ALIGN;
    *r = (Rig){.memory = malloc(bytes), .random = seed};
    memset(r->memory, 0xff, bytes);
    Arena arena = arena_make(r->memory, bytes);
    assert_int_equal(cache_build(&r->cache, &config, &arena), OK);
}

static void rig_close(Rig *r) { free(r->memory); }

static uint32_t draw(Rig *r, uint32_t below)
{
    r->random = r->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->random >> 33) % below;
}

/* What stands for a position's keys and values: four bytes of the block of each layer. */
static uint8_t *place_of(const Cache *c, uint32_t session, uint32_t position, uint32_t layer)
{
    return cache_block(c, session, position / CACHE_BLOCK_POSITIONS, layer) +
           position % CACHE_BLOCK_POSITIONS * sizeof(uint32_t);
}

static void write_positions(Rig *r, uint32_t session, uint32_t first, uint32_t end)
{
    for (uint32_t p = first; p < end; p++) {
        uint32_t value = ++r->written;
        r->model.text[session][p] = value;
        for (uint32_t layer = 0; layer < LAYERS; layer++, value += 1u << 24)
            memcpy(place_of(&r->cache, session, p, layer), &value, sizeof value);
    }
}

static void check_texts(const Rig *r)
{
    for (uint32_t s = 0; s < SESSIONS; s++) {
        assert_int_equal(r->cache.lengths[s], r->model.length[s]);
        for (uint32_t p = 0; p < r->model.length[s]; p++)
            for (uint32_t layer = 0; layer < LAYERS; layer++) {
                uint32_t value;
                memcpy(&value, place_of(&r->cache, s, p, layer), sizeof value);
                assert_int_equal(value, r->model.text[s][p] + (layer << 24));
            }
    }
}

static uint32_t model_charges(const Model *m)
{
    uint32_t sum = 0;
    for (uint32_t s = 0; s < SESSIONS; s++) sum += cache_blocks_for(m->length[s]);
    return sum;
}

/* Every block is listed as often as it says, or is free; charges are what the lengths say. */
static void check_books(const Rig *r)
{
    const Cache *c = &r->cache;
    uint32_t lists[SESSIONS * SESSION_BLOCKS] = {0}, unlisted = 0;
    assert_true(c->config.blocks <= SESSIONS * SESSION_BLOCKS);
    for (uint32_t s = 0; s < SESSIONS; s++)
        for (uint32_t i = 0; i < cache_blocks_for(c->lengths[s]); i++)
            lists[c->tables[s * c->blocks_per_session + i]]++;
    for (uint32_t b = 0; b < c->config.blocks; b++) {
        assert_int_equal(c->lists[b], lists[b]);
        unlisted += lists[b] == 0;
    }
    assert_int_equal(c->free_count, unlisted);
    for (uint32_t i = 0; i < c->free_count; i++) {
        assert_int_equal(lists[c->free_list[i]], 0);
        lists[c->free_list[i]] = 1; /* once in the list */
    }
    assert_int_equal(cache_blocks_free(c), c->config.blocks - model_charges(&r->model));
    assert_true(c->free_count >= cache_blocks_free(c));
}

/* ---- Operations, on the cache and on the model */

static void grow(Rig *r, uint32_t session, uint32_t length)
{
    Model *m = &r->model;
    Why why = {{0}};
    uint32_t first = m->length[session];
    uint32_t charges = model_charges(m) - cache_blocks_for(first) + cache_blocks_for(length);
    Error error = cache_reserve(&r->cache, session, length, &why);
    assert_int_equal(error, charges <= r->cache.config.blocks ? OK : ERR_CAPACITY);
    if (error != OK) return;
    m->length[session] = length;
    write_positions(r, session, first, length);
}

static void cut(Rig *r, uint32_t session, uint32_t length)
{
    cache_truncate(&r->cache, session, length);
    if (length < r->model.length[session]) r->model.length[session] = length;
}

static void fork_to(Rig *r, uint32_t from, uint32_t to, uint32_t length)
{
    Model *m = &r->model;
    Why why = {{0}};
    uint32_t charges =
        model_charges(m) - cache_blocks_for(m->length[to]) + cache_blocks_for(length);
    Error error = cache_fork(&r->cache, from, to, length, &why);
    assert_int_equal(error, charges <= r->cache.config.blocks ? OK : ERR_CAPACITY);
    if (error != OK) return;
    memcpy(m->text[to], m->text[from], length * sizeof(uint32_t));
    m->length[to] = length;
}

static void operate(Rig *r)
{
    uint32_t session = draw(r, SESSIONS), length = r->model.length[session];
    uint32_t other = (session + 1 + draw(r, SESSIONS - 1)) % SESSIONS;
    switch (draw(r, 4)) {
    case 0: cut(r, session, draw(r, length + 2)); break;
    case 1: fork_to(r, session, other, draw(r, length + 1)); break;
    default: { /* one row, as an answer does, or many */
        uint32_t room = CONTEXT - length;
        if (room) grow(r, session, length + 1 + draw(r, draw(r, 2) ? room : 1));
    }
    }
}

static void any_order_reads_its_own(void **state)
{
    (void)state;
    static const uint32_t pools[] = {SESSIONS * SESSION_BLOCKS, 11, 3};
    for (uint32_t seed = 0; seed < 60; seed++) {
        Rig r;
        rig_open(&r, pools[seed % 3], seed);
        for (int i = 0; i < 300; i++) {
            operate(&r);
            check_texts(&r);
            check_books(&r);
        }
        for (uint32_t s = 0; s < SESSIONS; s++) cut(&r, s, 0);
        check_books(&r);
        assert_int_equal(r.cache.free_count, r.cache.config.blocks);
        rig_close(&r);
    }
}

/* Forks copy nothing: they list the same memory. */
static void forks_share_memory(void **state)
{
    (void)state;
    Rig r;
    rig_open(&r, SESSIONS * SESSION_BLOCKS, 1);
    grow(&r, 0, 200);
    uint32_t before = r.cache.free_count;
    for (uint32_t to = 1; to < SESSIONS; to++) fork_to(&r, 0, to, 200);
    assert_int_equal(r.cache.free_count, before);
    for (uint32_t i = 0; i < 4; i++)
        assert_ptr_equal(cache_block(&r.cache, 4, i, 1), cache_block(&r.cache, 0, i, 1));
    grow(&r, 4, 201); /* the block it writes into, and no other, is copied */
    assert_int_equal(r.cache.free_count, before - 1);
    assert_ptr_equal(cache_block(&r.cache, 4, 2, 0), cache_block(&r.cache, 0, 2, 0));
    assert_ptr_not_equal(cache_block(&r.cache, 4, 3, 0), cache_block(&r.cache, 0, 3, 0));
    check_texts(&r);
    rig_close(&r);
}

/* The parent is cut into what others share and goes on: they keep what was there. The last lister writes in place. */
static void the_parent_may_be_cut_and_go_on(void **state)
{
    (void)state;
    Rig r;
    rig_open(&r, SESSIONS * SESSION_BLOCKS, 1);
    grow(&r, 0, 256);
    fork_to(&r, 0, 1, 192);
    const uint8_t *shared = cache_block(&r.cache, 0, 1, 0);
    cut(&r, 0, 70);
    grow(&r, 0, 130);
    check_texts(&r);
    assert_ptr_not_equal(cache_block(&r.cache, 0, 1, 0), shared);
    cut(&r, 1, 70);
    uint32_t before = r.cache.free_count;
    grow(&r, 1, 80);
    assert_int_equal(r.cache.free_count, before);
    assert_ptr_equal(cache_block(&r.cache, 1, 1, 0), shared);
    check_texts(&r);
    rig_close(&r);
}

/* With a context's blocks for each session all of them can always be filled, whatever they shared before. */
static void sharing_never_takes_room(void **state)
{
    (void)state;
    Rig r;
    rig_open(&r, SESSIONS * SESSION_BLOCKS, 1);
    grow(&r, 0, 290);
    for (uint32_t to = 1; to < SESSIONS; to++) fork_to(&r, 0, to, 290 - to);
    for (uint32_t s = 0; s < SESSIONS; s++) cut(&r, s, 1 + 64 * s);
    for (uint32_t s = 0; s < SESSIONS; s++) grow(&r, s, CONTEXT); /* asserts that each has room */
    check_texts(&r);
    check_books(&r);
    assert_int_equal(cache_blocks_free(&r.cache), 0);
    rig_close(&r);
}

static void a_full_pool_refuses_and_changes_nothing(void **state)
{
    (void)state;
    Rig r;
    Why why = {{0}};
    rig_open(&r, 4, 1);
    grow(&r, 0, 130);
    fork_to(&r, 0, 1, 64);
    assert_int_equal(cache_fork(&r.cache, 0, 2, 1, &why), ERR_CAPACITY);
    assert_non_null(strstr(why.text, "1 blocks of 64 positions wanted, 0 free"));
    assert_int_equal(cache_reserve(&r.cache, 1, 65, &why), ERR_CAPACITY);
    check_texts(&r);
    check_books(&r);
    fork_to(&r, 0, 1, 30); /* what it had counts */
    assert_int_equal(cache_reserve(&r.cache, 1, CONTEXT + 65, &why), ERR_CAPACITY);
    assert_non_null(strstr(why.text, "exceed the context of 300"));
    grow(&r, 1, 64);
    check_texts(&r);
    check_books(&r);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_reads_its_own),
        cmocka_unit_test(forks_share_memory),
        cmocka_unit_test(the_parent_may_be_cut_and_go_on),
        cmocka_unit_test(sharing_never_takes_room),
        cmocka_unit_test(a_full_pool_refuses_and_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
