/* SPDX-License-Identifier: Apache-2.0 */
/* The bump allocator: alignment, zeroes, limits, and that a plan's sum is what building uses up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"

static _Alignas(64) uint8_t memory[4096 + 64];

static void pieces_are_aligned_zeroed_and_apart(void **state)
{
    (void)state;
    memset(memory, 0xaa, sizeof memory);
    Arena arena = arena_make(memory, 4096);
    uint8_t *last_end = memory;
    for (size_t bytes = 1; bytes < 200; bytes += 37) {
        uint8_t *p = arena_take(&arena, bytes);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % ARENA_ALIGN, 0);
        assert_true(p >= last_end);
        for (size_t i = 0; i < bytes; i++) assert_int_equal(p[i], 0);
        memset(p, 0xff, bytes);
        last_end = p + bytes;
    }
    assert_true(last_end <= memory + 4096);
}

static void crooked_memory_costs_at_most_63_bytes(void **state)
{
    (void)state;
    for (size_t skew = 0; skew < 64; skew++) {
        Arena arena = arena_make(memory + skew, 1024);
        assert_int_equal((uintptr_t)arena.base % ARENA_ALIGN, 0);
        assert_true(arena.size >= 1024 - 63);
        assert_true(arena.base + arena.size <= memory + skew + 1024);
    }
}

static void memory_smaller_than_the_skew(void **state)
{
    (void)state;
    Arena arena = arena_make(memory + 1, 10);
    assert_int_equal(arena.size, 0);
    assert_null(arena_take(&arena, 1));
    assert_non_null(arena_take(&arena, 0));
}

static void refusal_changes_nothing(void **state)
{
    (void)state;
    Arena arena = arena_make(memory, 256);
    assert_non_null(arena_take(&arena, 100));
    size_t used = arena.used;
    assert_null(arena_take(&arena, 129));
    assert_null(arena_take(&arena, SIZE_MAX));
    assert_null(arena_take(&arena, SIZE_MAX - 10));
    assert_int_equal(arena.used, used);
    assert_non_null(arena_take(&arena, 128));
    assert_null(arena_take(&arena, 1));
}

static void last_piece_may_end_inside_a_unit(void **state)
{
    (void)state;
    Arena arena = arena_make(memory, 100);
    assert_non_null(arena_take(&arena, 100));
    assert_int_equal(arena.used, 100);
}

static void array_product_is_checked(void **state)
{
    (void)state;
    Arena arena = arena_make(memory, 4096);
    assert_null(arena_take_array(&arena, SIZE_MAX / 2 + 2, 2));
    assert_null(arena_take_array(&arena, SIZE_MAX, SIZE_MAX));
    assert_int_equal(arena.used, 0);
    uint32_t *numbers = ARENA_NEW(&arena, uint32_t, 1024);
    assert_non_null(numbers);
    assert_int_equal(arena.used, 4096);
}

static void reset_gives_zeroes_again(void **state)
{
    (void)state;
    Arena arena = arena_make(memory, 1024);
    assert_non_null(arena_take(&arena, 64));
    size_t mark = arena_mark(&arena);
    uint8_t *first = arena_take(&arena, 64);
    memset(first, 1, 64);
    arena_reset(&arena, mark);
    uint8_t *second = arena_take(&arena, 64);
    assert_ptr_equal(first, second);
    assert_int_equal(second[63], 0);
}

static void sum_of_sizes_is_what_building_uses(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 64, 65, 0, 127, 3};
    size_t sum = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) sum += arena_bytes(sizes[i]);
    Arena arena = arena_make(memory, sum);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_non_null(arena_take(&arena, sizes[i]));
    assert_int_equal(arena.used, sum);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_aligned_zeroed_and_apart),
        cmocka_unit_test(crooked_memory_costs_at_most_63_bytes),
        cmocka_unit_test(memory_smaller_than_the_skew),
        cmocka_unit_test(refusal_changes_nothing),
        cmocka_unit_test(last_piece_may_end_inside_a_unit),
        cmocka_unit_test(array_product_is_checked),
        cmocka_unit_test(reset_gives_zeroes_again),
        cmocka_unit_test(sum_of_sizes_is_what_building_uses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
