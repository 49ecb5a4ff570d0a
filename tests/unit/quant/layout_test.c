/* SPDX-License-Identifier: Apache-2.0 */
/* Rows to panels and back; and spot checks of the byte tables, so that a wrong pair of directions cannot agree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../kernel/random_blocks.h"
#include "quant/layout.h"

enum { COLS = 768, GUARD = 64 };

static void test_round_trip(void **state)
{
    (void)state;
    Random r = {1};
    for (int i = 0; i < ALL_TYPES_COUNT; i++)
        for (uint32_t rows = 1; rows <= 16; rows++) {
            BlockType type = ALL_TYPES[i];
            uint64_t row_bytes, panel_bytes;
            assert_int_equal(block_row_bytes(type, COLS, &row_bytes, NULL), OK);
            assert_int_equal(layout_panel_bytes(type, COLS, &panel_bytes, NULL), OK);
            uint8_t *in = calloc(16, row_bytes), *panel = malloc(panel_bytes + GUARD), *back = malloc(16 * row_bytes);
            random_bytes(&r, in, rows * row_bytes); /* any bytes at all: nothing may be lost */
            memset(panel, 0xa5, panel_bytes + GUARD);
            memset(back, 0xa5, 16 * row_bytes);
            assert_int_equal(layout_panel_from_rows(type, in, rows, COLS, panel, NULL), OK);
            for (int g = 0; g < GUARD; g++) assert_int_equal(panel[panel_bytes + g], 0xa5);
            assert_int_equal(layout_rows_from_panel(type, panel, rows, COLS, back, NULL), OK);
            assert_memory_equal(in, back, rows * row_bytes);
            for (size_t at = rows * row_bytes; at < 16 * row_bytes; at++) assert_int_equal(back[at], 0xa5);
            assert_int_equal(layout_rows_from_panel(type, panel, 16, COLS, back, NULL), OK);
            assert_memory_equal(in, back, 16 * row_bytes); /* missing rows are rows of zero bytes */
            free(in), free(panel), free(back);
        }
}

/* Element e of sub j of block b and row r, read by the words of docs/format/layout.md. */
static uint32_t panel_element(BlockType type, const uint8_t *panel, uint32_t block_bytes, uint32_t head, uint32_t b,
                              uint32_t r, uint32_t j, uint32_t e)
{
    uint32_t g = e / 4, at = 4 * r + e % 4, lines = type == BLOCK_Q8_0 ? 8 : 4;
    uint32_t bits = type == BLOCK_Q5_K || type == BLOCK_Q5_0 || type == BLOCK_Q5_1 || type == BLOCK_Q3_K;
    uint32_t crumbs = type == BLOCK_Q2_K || type == BLOCK_Q3_K || type == BLOCK_Q6_K ? 2 : 0;
    if (type == BLOCK_Q2_K || type == BLOCK_Q3_K) lines = 0;
    const uint8_t *sub = panel + b * block_bytes + head + j * 64 * (bits + crumbs + lines);
    uint32_t bit = bits ? sub[at] >> g & 1 : 0;
    uint32_t crumb = crumbs ? sub[64 * (bits + e / 16) + at] >> (2 * (g % 4)) & 3 : 0;
    const uint8_t *nibbles = sub + 64 * (bits + crumbs);
    uint32_t nibble = lines == 4 ? nibbles[64 * (g % 4) + at] >> (g < 4 ? 0 : 4) & 15 : 0;
    switch (type) {
    case BLOCK_Q8_0: return nibbles[64 * g + at];
    case BLOCK_Q2_K: return crumb;
    case BLOCK_Q3_K: return crumb | bit << 2;
    case BLOCK_Q6_K: return nibble | crumb << 4;
    default: return nibble | bit << 4;
    }
}

static void check_elements(BlockType type, uint32_t block_bytes, uint32_t head, float zero)
{
    Random r = {type + 100u};
    const BlockTraits *traits = block_traits(type);
    uint32_t cols = 2u * traits->elements, subs = traits->elements / 32u;
    uint8_t *rows = malloc(32u * traits->bytes), *panel = malloc(2 * block_bytes);
    float x[512];
    random_bytes(&r, rows, 32u * traits->bytes);
    for (uint32_t b = 0; b < 32; b++) { /* d = 1, min = 0, all scales 1: what is expanded is q - zero point */
        UnpackScales scales = {0x3c00, 0, {0}, {0}};
        memset(scales.sc, 1, 16);
        unpack_pack_scales(type, &scales, rows + b * traits->bytes);
    }
    uint64_t bytes;
    assert_int_equal(layout_panel_bytes(type, cols, &bytes, NULL), OK);
    assert_int_equal(bytes, 2 * block_bytes);
    assert_int_equal(layout_panel_from_rows(type, rows, 16, cols, panel, NULL), OK);
    for (uint32_t row = 0; row < 16; row++) {
        assert_int_equal(block_dequantize_row(type, rows + row * 2u * traits->bytes, cols, x, NULL), OK);
        for (uint32_t c = 0; c < cols; c++) {
            uint32_t b = c / traits->elements, j = c / 32 % subs;
            uint32_t q = panel_element(type, panel, block_bytes, head, b, row, j, c % 32);
            if ((float)q - zero != x[c]) fail_msg("%s row %u column %u", traits->name, row, c);
        }
    }
    free(rows), free(panel);
}

static void test_byte_tables(void **state)
{
    (void)state;
    check_elements(BLOCK_Q4_0, 288, 32, 8);
    check_elements(BLOCK_Q4_1, 320, 64, 0);
    check_elements(BLOCK_Q5_0, 352, 32, 16);
    check_elements(BLOCK_Q5_1, 384, 64, 0);
    check_elements(BLOCK_Q8_0, 544, 32, 128);
    check_elements(BLOCK_Q2_K, 1344, 320, 0);
    check_elements(BLOCK_Q3_K, 1824, 288, 4);
    check_elements(BLOCK_Q4_K, 2368, 320, 0);
    check_elements(BLOCK_Q5_K, 2880, 320, 0);
    check_elements(BLOCK_Q6_K, 3360, 288, 32);
}

static void test_scale_tables(void **state)
{
    (void)state;
    uint8_t rows[16 * 144] = {0}, panel[2368];
    for (uint32_t r = 0; r < 16; r++) {
        UnpackScales s = {(uint16_t)(0x1100 + r), (uint16_t)(0x2200 + r), {0}, {0}};
        for (uint32_t n = 0; n < 8; n++) s.sc[n] = (uint8_t)(r + n), s.min[n] = (uint8_t)(32 + r + n);
        unpack_pack_scales(BLOCK_Q4_K, &s, rows + r * 144);
    }
    assert_int_equal(layout_panel_from_rows(BLOCK_Q4_K, rows, 16, 256, panel, NULL), OK);
    for (uint32_t r = 0; r < 16; r++) {
        assert_int_equal(bytes_load16(panel + 2 * r), 0x1100 + r);
        assert_int_equal(bytes_load16(panel + 32 + 2 * r), 0x2200 + r);
        for (uint32_t n = 0; n < 8; n++) {
            assert_int_equal(panel[64 + 32 * (n / 2) + 2 * r + n % 2], r + n);
            assert_int_equal(panel[192 + 32 * (n / 2) + 2 * r + n % 2], 32 + r + n);
        }
    }
}

static void test_errors(void **state)
{
    (void)state;
    uint64_t bytes;
    uint8_t in[16] = {0}, out[2368];
    Layout layout;
    assert_int_equal(layout_panel_bytes(BLOCK_Q4_K, 288, &bytes, NULL), ERR_SHAPE);
    assert_int_equal(layout_panel_bytes((BlockType)4, 256, &bytes, NULL), ERR_TYPE);
    assert_int_equal(layout_panel_bytes(BLOCK_F32, UINT64_MAX / 8, &bytes, NULL), ERR_TOO_LARGE);
    assert_int_equal(layout_tensor_bytes(BLOCK_F32, LAYOUT_X16, UINT64_MAX, 1, &bytes, NULL), ERR_TOO_LARGE);
    assert_int_equal(layout_tensor_bytes(BLOCK_F32, LAYOUT_X16, UINT64_MAX / 32, 1, &bytes, NULL), OK);
    assert_int_equal(layout_tensor_bytes(BLOCK_F32, (Layout)2, 1, 1, &bytes, NULL), ERR_UNSUPPORTED);
    assert_int_equal(layout_tensor_bytes(BLOCK_Q4_K, LAYOUT_X16, 17, 512, &bytes, NULL), OK);
    assert_int_equal(bytes, 2 * 2 * 2368);
    assert_int_equal(layout_tensor_bytes(BLOCK_Q4_K, LAYOUT_ROWS, 17, 512, &bytes, NULL), OK);
    assert_int_equal(bytes, 17 * 2 * 144);
    assert_int_equal(layout_panel_from_rows(BLOCK_F16, in, 0, 1, out, NULL), ERR_SHAPE);
    assert_int_equal(layout_panel_from_rows(BLOCK_F16, in, 17, 1, out, NULL), ERR_SHAPE);
    assert_int_equal(layout_rows_from_panel(BLOCK_Q6_K, in, 1, 255, out, NULL), ERR_SHAPE);
    assert_int_equal(layout_from_name("x16.1", 5, &layout, NULL), OK);
    assert_int_equal(layout, LAYOUT_X16);
    assert_int_equal(layout_from_name("rows", 4, &layout, NULL), OK);
    assert_int_equal(layout, LAYOUT_ROWS);
    assert_int_equal(layout_from_name("x16.2", 5, &layout, NULL), ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_byte_tables), cmocka_unit_test(test_scale_tables),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
