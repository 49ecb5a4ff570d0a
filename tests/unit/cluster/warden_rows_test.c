/* SPDX-License-Identifier: Apache-2.0 */
/* Rows in a warden's memory against a slow model of an LRU, with random requests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "cluster/warden_rows.h"

enum { FIRST = 100, LAST = 180, ROW = 20, ROOM_MAX = LAST - FIRST };

static uint8_t memory[1 << 14];

static WardenRows *make(uint64_t budget)
{
    WardenRowsConfig config = {FIRST, LAST, ROW, budget};
    WardenRows *w;
    uint64_t bytes = warden_rows_bytes(&config);
    assert_true(bytes <= sizeof memory);
    Arena arena = arena_make(memory, (size_t)bytes);
    assert_int_equal(warden_rows_build(&config, &arena, &w, NULL), OK);
    return w;
}

static void row_of(uint32_t id, uint32_t version, uint8_t out[ROW])
{
    for (int i = 0; i < ROW; i++)
        out[i] = (uint8_t)hash_mix64(id * 1000 + version * 100 + (uint32_t)i);
}

/* Oldest first. */
static uint32_t model[ROOM_MAX], model_count;

static bool model_remove(uint32_t id)
{
    for (uint32_t i = 0; i < model_count; i++)
        if (model[i] == id) {
            memmove(&model[i], &model[i + 1], (model_count - i - 1) * sizeof *model);
            model_count--;
            return true;
        }
    return false;
}

static void model_put(uint32_t id, uint32_t room)
{
    if (!model_remove(id) && model_count == room) model_remove(model[0]);
    model[model_count++] = id;
}

static void step(WardenRows *w, uint64_t random, uint32_t versions[LAST])
{
    uint32_t id = FIRST + (uint32_t)(random >> 8) % (LAST - FIRST);
    uint8_t row[ROW];
    switch (random % 4) {
    case 0:
        row_of(id, ++versions[id], row);
        warden_rows_put(w, id, row);
        model_put(id, warden_rows_room(w));
        break;
    case 1:
        if ((random >> 20) % 3 == 0)
            assert_int_equal(warden_rows_forget(w, id, random >> 40 & 1), model_remove(id));
        break;
    default: {
        bool there = warden_rows_has(w, id);
        const uint8_t *got = warden_rows_get(w, id);
        assert_int_equal(got != NULL, there);
        assert_int_equal(got != NULL, model_remove(id));
        if (!got) break;
        model[model_count++] = id;
        row_of(id, versions[id], row);
        assert_memory_equal(got, row, ROW);
    }
    }
}

static void as_a_slow_lru(void **state)
{
    (void)state;
    for (uint64_t budget = 0; budget < 6000; budget += 371) {
        WardenRows *w = make(budget);
        uint32_t versions[LAST] = {0};
        model_count = 0;
        for (uint64_t i = 1; i < 20000; i++) {
            if (warden_rows_room(w)) step(w, hash_mix64(i * 77 + budget), versions);
            assert_int_equal(warden_rows_counters(w).held_bytes, model_count * ROW);
        }
    }
}

static void budget_is_kept(void **state)
{
    (void)state;
    for (uint64_t budget = 0; budget < 8000; budget += 100) {
        WardenRowsConfig config = {FIRST, LAST, ROW, budget};
        WardenRows *w = make(budget);
        assert_true(warden_rows_room(w) <= ROOM_MAX);
        if (warden_rows_room(w)) assert_true(warden_rows_bytes(&config) <= budget);
    }
    WardenRows *none = make(0);
    uint8_t row[ROW] = {0};
    warden_rows_put(none, FIRST, row);
    assert_null(warden_rows_get(none, FIRST));
    assert_int_equal(warden_rows_room(make(1 << 20)), ROOM_MAX);
}

static void counters_count(void **state)
{
    (void)state;
    WardenRowsConfig config = {FIRST, LAST, ROW, 0};
    WardenRows *w = make(warden_rows_bytes(&config) + 2 * (ROW + 12));
    uint8_t row[ROW] = {0};
    assert_int_equal(warden_rows_room(w), 2);
    for (uint32_t i = 0; i < 3; i++) {
        assert_null(warden_rows_get(w, FIRST + i));
        warden_rows_put(w, FIRST + i, row);
    }
    assert_null(warden_rows_get(w, FIRST));
    assert_non_null(warden_rows_get(w, FIRST + 1));
    assert_true(warden_rows_forget(w, FIRST + 1, true));
    assert_false(warden_rows_forget(w, FIRST + 1, false));
    WardenRowsCounters c = warden_rows_counters(w);
    assert_int_equal(c.hits, 1);
    assert_int_equal(c.misses, 4);
    assert_int_equal(c.evictions, 1);
    assert_int_equal(c.bad, 1);
    assert_int_equal(c.invalidations, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_a_slow_lru),
        cmocka_unit_test(budget_is_kept),
        cmocka_unit_test(counters_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
