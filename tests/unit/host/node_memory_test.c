/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of a node: never above its budget, all its weights when they fit, a clear no when nothing does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "host/memory.h"
#include "host/node_memory.h"

static const uint64_t MIB = (uint64_t)1 << 20;

static NodeMemory some_role(void)
{
    return (NodeMemory){.sizes.floor_bytes = 3 * MIB,
                        .sizes.scratch_bytes = 4 * MIB,
                        .sizes.cache_bytes = 8 * MIB,
                        .sizes.service_bytes = 2 * MIB,
                        .sizes.body_bytes_max = MIB,
                        .sizes.answer_bytes_max = MIB,
                        .sizes.widest_panel_bytes = MIB / 8,
                        .sizes.weights_first = 5 * MIB,
                        .sizes.weights_last = 65 * MIB};
}

static void never_above_the_budget(void **state)
{
    (void)state;
    Why why;
    uint64_t pinned = 0;
    bool fits = false, resident = false;
    uint64_t most = memory_resident() + 150 * MIB;
    for (uint64_t budget = 16 * MIB; budget < most; budget += MIB / 2) {
        NodeMemory m = some_role();
        Error error = node_memory_choose(&m, "station-3", budget, &why);
        assert_true(error == OK || !fits); /* more memory never makes it worse */
        if (error != OK) {
            assert_int_equal(error, ERR_PLAN);
            continue;
        }
        fits = true;
        assert_true(m.total_bytes <= budget);
        assert_true(m.pinned_bytes + 2 * MIB >= pinned); /* the window grows in pages of 2 MiB */
        assert_true(m.resident >= resident);
        assert_true(!m.resident || m.pinned_bytes == 60 * MIB);
        assert_true(m.resident == (m.tile_bytes_max == 0));
        pinned = m.pinned_bytes;
        resident = m.resident;
    }
    assert_true(fits && resident);
}

static void refusals_have_the_sum(void **state)
{
    (void)state;
    Why why;
    NodeMemory m = some_role();
    assert_int_equal(node_memory_choose(&m, "station-3", 20 * MIB, &why), ERR_PLAN);
    assert_non_null(strstr(why.text, "station-3 needs "));
    assert_non_null(strstr(why.text, "attention cache 8.0"));
    assert_non_null(strstr(why.text, "may take 20.0 MiB"));
    m = some_role();
    m.sizes.cache_bytes = memory_allowed();
    assert_int_equal(node_memory_choose(&m, "station-3", UINT64_MAX / 2, &why), ERR_PLAN);
    assert_non_null(strstr(why.text, "this machine has "));
}

static void what_was_counted_can_be_taken(void **state)
{
    (void)state;
    Why why;
    Arena arena;
    void *scratch;
    NodeMemory m = some_role();
    assert_int_equal(node_memory_choose(&m, "shard-0", memory_resident() + 54 * MIB, &why), OK);
    assert_int_equal(node_memory_take(&m, &arena, &scratch, &why), OK);
    memset(scratch, 1, m.sizes.scratch_bytes);
    const uint64_t parts[] = {m.sizes.floor_bytes, m.sizes.cache_bytes, m.sizes.logits_bytes, m.sizes.service_bytes};
    for (size_t i = 0; i < 4; i++) assert_non_null(arena_take_raw(&arena, parts[i]));
    node_memory_give_back(&m);
    node_memory_give_back(&m);
    assert_null(m.map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_above_the_budget),
        cmocka_unit_test(refusals_have_the_sum),
        cmocka_unit_test(what_was_counted_can_be_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
