/* SPDX-License-Identifier: Apache-2.0 */
/* Rows as encoders make them come back from their float32 bit for bit, also in place; others come back as something,
 * whatever the numbers are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../kernel/random_blocks.h"

enum { COLS = 512, TRIES = 200 };

static bool has_inverse(BlockType type)
{
    return type != BLOCK_Q2_K && type != BLOCK_Q3_K && type != BLOCK_Q6_K;
}

static uint32_t last_level(BlockType type)
{
    switch (type) {
    case BLOCK_Q8_0: return 255;
    case BLOCK_Q5_0:
    case BLOCK_Q5_1:
    case BLOCK_Q5_K: return 31;
    default: return 15;
    }
}

/* 32 elements with the marks: the far end of symmetric types, levels 0 and 1 of the others. */
static void marked_words(Random *r, BlockType type, uint32_t w[8])
{
    uint32_t most = last_level(type);
    bool is_q8 = type == BLOCK_Q8_0; /* -127 .. 127 */
    memset(w, 0, 8 * sizeof *w);
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t level = is_q8 ? 1 + random_next(r) % 255 : random_next(r) % (most + 1);
        if (i == 3) level = is_q8 ? (random_next(r) & 1 ? 1 : 255) : 0;
        if (i == 17 && unpack_has_min(type)) level = 1;
        w[i / 4] |= level << (8 * (i % 4));
    }
}

static void marked_block(Random *r, BlockType type, uint8_t *block)
{
    uint32_t w[8], subs = unpack_scale_count(type);
    float d = random_normal(r) * 0.02f;
    bool is_positive = unpack_has_min(type) || type == BLOCK_Q8_0;
    if (is_positive && d < 0) d = -d;
    float m = unpack_has_min(type) ? random_normal(r) * 0.1f : 0;
    if (subs && m < 0) m = -m;
    UnpackScales scales = {.d = block_f32_to_f16(d), .dmin = block_f32_to_f16(m)};
    for (uint32_t j = 0; j < subs; j++) {
        scales.sc[j] = (uint8_t)(j == 5 ? 63 : 1 + random_next(r) % 63);
        scales.min[j] = (uint8_t)(j == 2 ? 63 : random_next(r) % 64);
    }
    memset(block, 0, block_traits(type)->bytes);
    for (uint32_t j = 0; j < (subs ? subs : 1); j++) {
        marked_words(r, type, w);
        unpack_pack_words(type, w, j, block);
    }
    unpack_pack_scales(type, &scales, block);
}

static void marked_row(Random *r, BlockType type, uint8_t *row)
{
    const BlockTraits *traits = block_traits(type);
    if (traits->elements == 1) random_row(r, type, COLS, row);
    else
        for (uint32_t at = 0; at < COLS; at += traits->elements, row += traits->bytes)
            marked_block(r, type, row);
}

static void rows_come_back(void **state)
{
    (void)state;
    Random r = {7};
    float x[COLS];
    uint8_t row[4 * COLS], out[4 * COLS + 1];
    for (int i = 0; i < ALL_TYPES_COUNT; i++) {
        BlockType type = ALL_TYPES[i];
        uint64_t bytes;
        assert_int_equal(block_row_bytes(type, COLS, &bytes, NULL), OK);
        for (int n = 0; n < TRIES && has_inverse(type); n++) {
            marked_row(&r, type, row);
            assert_int_equal(block_dequantize_row(type, row, COLS, x, NULL), OK);
            out[bytes] = 0xa5;
            assert_true(block_restore_row(type, x, COLS, out));
            assert_memory_equal(out, row, bytes);
            assert_int_equal(out[bytes], 0xa5);
            assert_true(block_restore_row(type, x, COLS, x)); /* in place */
            assert_memory_equal(x, row, bytes);
        }
    }
}

static void zeros_come_back(void **state)
{
    (void)state;
    float x[COLS];
    uint8_t row[4 * COLS];
    for (int i = 0; i < ALL_TYPES_COUNT; i++) {
        if (!has_inverse(ALL_TYPES[i])) continue;
        memset(x, 0, sizeof x);
        assert_true(block_restore_row(ALL_TYPES[i], x, COLS, row));
        memset(x, 0xff, sizeof x);
        assert_int_equal(block_dequantize_row(ALL_TYPES[i], row, COLS, x, NULL), OK);
        for (uint32_t c = 0; c < COLS; c++) assert_true(x[c] == 0);
    }
}

static void any_numbers_give_bytes(void **state)
{
    (void)state;
    Random r = {8};
    uint8_t x[4 * COLS + 1], row[4 * COLS];
    for (int i = 0; i < ALL_TYPES_COUNT; i++)
        for (int n = 0; n < TRIES; n++) {
            random_bytes(&r, x, sizeof x); /* some are infinite, some no numbers */
            assert_int_equal(block_restore_row(ALL_TYPES[i], x + 1, COLS, row),
                             has_inverse(ALL_TYPES[i]));
        }
}

static void widths_and_types(void **state)
{
    (void)state;
    float x[256] = {0};
    uint8_t row[1024];
    assert_false(block_restore_row(BLOCK_Q4_K, x, 128, row));
    assert_false(block_restore_row(BLOCK_Q8_0, x, 33, row));
    assert_false(block_restore_row((BlockType)4, x, 32, row));
    assert_false(block_restore_row(BLOCK_Q6_K, x, 256, row));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_back),
        cmocka_unit_test(zeros_come_back),
        cmocka_unit_test(any_numbers_give_bytes),
        cmocka_unit_test(widths_and_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
