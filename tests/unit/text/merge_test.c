/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "small_random.h"
#include "text/merge.h"

enum { LETTERS = 40 };

/* pair[a][b]: rank << 8 | merged, or 0 */
typedef struct Rules {
    uint32_t pair[LETTERS][LETTERS];
} Rules;

static bool lookup(const void *context, const Merge *m, uint32_t left, uint32_t right,
                   uint32_t *key, uint32_t *merged)
{
    uint32_t rule = ((const Rules *)context)->pair[m->id[left]][m->id[right]];
    if (!rule) return false;
    *key = rule >> 8;
    *merged = rule & 255;
    return true;
}

static void random_rules(Rules *r)
{
    memset(r, 0, sizeof *r);
    uint32_t ranks = 1 + small_random(60);
    for (int i = 0; i < 300; i++) {
        uint32_t a = small_random(LETTERS), b = small_random(LETTERS);
        r->pair[a][b] = (1 + small_random(ranks)) << 8 | small_random(LETTERS);
    }
}

/* The definition itself, in quadratic time: again and again the lowest rank, leftmost. */
static size_t merge_slowly(const Rules *r, uint32_t *ids, size_t count)
{
    for (;;) {
        size_t best = count;
        uint32_t best_rank = UINT32_MAX;
        for (size_t i = 0; i + 1 < count; i++) {
            uint32_t rule = r->pair[ids[i]][ids[i + 1]];
            if (rule && rule >> 8 < best_rank) best = i, best_rank = rule >> 8;
        }
        if (best == count) return count;
        ids[best] = r->pair[ids[best]][ids[best + 1]] & 255;
        memmove(ids + best + 1, ids + best + 2, (count - best - 2) * sizeof *ids);
        count--;
    }
}

static void test_equals_the_definition(void **state)
{
    (void)state;
    static Rules rules;
    uint8_t memory[16384];
    for (int round = 0; round < 3000; round++) {
        random_rules(&rules);
        size_t count = 1 + small_random(80);
        uint32_t slow[80];
        Arena scratch = arena_make(memory, sizeof memory);
        Merge m;
        assert_int_equal(merge_make(&m, count, &scratch, NULL), OK);
        for (size_t i = 0; i < count; i++) slow[i] = m.id[i] = small_random(LETTERS);
        merge_run(&m, lookup, &rules);
        size_t want = merge_slowly(&rules, slow, count), got = 0;
        for (uint32_t i = 0; i < m.count; i = m.next[i]) assert_int_equal(m.id[i], slow[got++]);
        assert_int_equal(got, want);
    }
}

static void test_limits(void **state)
{
    (void)state;
    uint8_t memory[256];
    Arena scratch = arena_make(memory, sizeof memory);
    Merge m;
    assert_int_equal(merge_make(&m, 1000, &scratch, NULL), ERR_MEMORY);
    assert_int_equal(merge_make(&m, (size_t)1 << 31, &scratch, NULL), ERR_TOO_LARGE);
    assert_int_equal(merge_make(&m, 0, &scratch, NULL), OK);
    merge_run(&m, lookup, NULL); /* nothing to look up */
    assert_int_equal(m.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_equals_the_definition),
                                       cmocka_unit_test(test_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
