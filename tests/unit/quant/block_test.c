/* SPDX-License-Identifier: Apache-2.0 */
/* Block types against numbers of another implementation (tests/data/quant, source named in make_vectors.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../kernel/random_blocks.h"

static uint8_t *read_vector(const char *type_name, size_t *bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/quant/%s.vec", COBORD_TEST_DATA, type_name);
    for (char *c = path + strlen(COBORD_TEST_DATA); *c; c++)
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c + 32);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint8_t *data = malloc(1 << 20);
    *bytes = fread(data, 1, 1 << 20, file);
    fclose(file);
    return data;
}

static void test_vectors(void **state)
{
    (void)state;
    for (int i = 0; i < ALL_TYPES_COUNT; i++) {
        const BlockTraits *traits = block_traits(ALL_TYPES[i]);
        size_t bytes;
        uint8_t *data = read_vector(traits->name, &bytes);
        uint32_t cols = bytes_load32(data), row_bytes = bytes_load32(data + 4);
        uint64_t expected_bytes;
        assert_int_equal(block_row_bytes(ALL_TYPES[i], cols, &expected_bytes, NULL), OK);
        assert_int_equal(row_bytes, expected_bytes);
        assert_int_equal(bytes, 8 + row_bytes + 4 * (size_t)cols);
        float *out = malloc(4 * (size_t)cols);
        memset(out, 0xff, 4 * (size_t)cols);
        assert_int_equal(block_dequantize_row(ALL_TYPES[i], data + 8, cols, out, NULL), OK);
        for (uint32_t c = 0; c < cols; c++) { /* == takes -0 and 0 for equal; nothing else differs */
            float want = bytes_load_f32(data + 8 + row_bytes + 4 * (size_t)c);
            if (!(out[c] == want)) fail_msg("%s element %u: %a, expected %a", traits->name, c, out[c], want);
        }
        assert_true(block_row_finite(ALL_TYPES[i], data + 8, cols));
        free(out);
        free(data);
    }
}

static void test_block_guard(void **state)
{
    (void)state;
    static const uint32_t widths[] = {4544, 2688, 64, 1, 255, 257, 288, 0};
    for (int i = 0; i < ALL_TYPES_COUNT; i++)
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
            const BlockTraits *traits = block_traits(ALL_TYPES[i]);
            uint64_t bytes = 77;
            Why why = {{0}};
            bool fits = widths[w] && widths[w] % traits->elements == 0;
            Error error = block_row_bytes(ALL_TYPES[i], widths[w], &bytes, &why);
            assert_int_equal(error, fits ? OK : ERR_SHAPE);
            if (fits) assert_int_equal(bytes, widths[w] / traits->elements * traits->bytes);
            else assert_non_null(strstr(why.text, traits->name));
            float one;
            if (!fits) assert_int_equal(block_dequantize_row(ALL_TYPES[i], "", widths[w], &one, NULL), ERR_SHAPE);
        }
    uint64_t bytes;
    assert_int_equal(block_row_bytes(BLOCK_Q8_0, UINT64_MAX - 31, &bytes, NULL), ERR_TOO_LARGE);
    assert_int_equal(block_tensor_bytes(BLOCK_F32, UINT64_MAX / 4, 2, &bytes, NULL), ERR_TOO_LARGE);
    assert_int_equal(block_tensor_bytes(BLOCK_Q6_K, 152064, 3584, &bytes, NULL), OK);
    assert_true(bytes == 152064ull * 14 * 210);
}

static void test_unknown_type_is_an_error(void **state)
{
    (void)state;
    BlockType type;
    uint64_t bytes;
    float x[256];
    uint8_t row[512] = {0};
    for (uint32_t n = 0; n < 64; n++) {
        bool known = false;
        for (int i = 0; i < ALL_TYPES_COUNT; i++) known |= ALL_TYPES[i] == n;
        assert_int_equal(block_type_from_number(n, &type, NULL), known ? OK : ERR_TYPE);
        assert_int_equal(block_traits(n) != NULL, known);
        if (known) continue;
        assert_int_equal(block_row_bytes((BlockType)n, 256, &bytes, NULL), ERR_TYPE);
        assert_int_equal(block_dequantize_row((BlockType)n, row, 256, x, NULL), ERR_TYPE);
        assert_false(block_row_finite((BlockType)n, row, 256));
    }
    assert_int_equal(block_type_from_number(UINT64_MAX, &type, NULL), ERR_TYPE);
    assert_int_equal(block_type_from_number(1ull << 32, &type, NULL), ERR_TYPE);
    assert_int_equal(block_type_from_name("Q4_K", 4, &type, NULL), OK);
    assert_int_equal(type, BLOCK_Q4_K);
    assert_int_equal(block_type_from_name("Q4_KX", 5, &type, NULL), ERR_TYPE);
    assert_int_equal(block_type_from_name("Q4_", 3, &type, NULL), ERR_TYPE);
    assert_int_equal(block_type_from_name("", 0, &type, NULL), ERR_TYPE);
}

static void test_halves(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) { /* there and back, all of them */
        float value = block_f16_to_f32((uint16_t)bits);
        bool nan = (bits & 0x7c00) == 0x7c00 && (bits & 0x3ff);
        if (nan) assert_true(value != value && (block_f32_to_f16(value) & 0x7fff) > 0x7c00);
        else assert_int_equal(block_f32_to_f16(value), bits);
    }
    for (uint32_t bits = 0; bits < 0x7bff; bits++) { /* ties go to even, neighbours of ties to the nearer one */
        double low = block_f16_to_f32((uint16_t)bits), high = block_f16_to_f32((uint16_t)(bits + 1));
        float tie = (float)((low + high) / 2);
        uint32_t up, down;
        memcpy(&up, &tie, 4);
        down = up - 1, up++;
        float above, below;
        memcpy(&above, &up, 4);
        memcpy(&below, &down, 4);
        assert_int_equal(block_f32_to_f16(tie), bits + (bits & 1));
        assert_int_equal(block_f32_to_f16(above), bits + 1);
        assert_int_equal(block_f32_to_f16(below), bits);
        assert_int_equal(block_f32_to_f16(-above), 0x8000 | (bits + 1));
    }
    assert_int_equal(block_f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(block_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(block_f32_to_f16(-1e30f), 0xfc00);
}

static void test_not_finite_rows(void **state)
{
    (void)state;
    Random r = {5};
    for (int i = 0; i < ALL_TYPES_COUNT; i++) {
        BlockType type = ALL_TYPES[i];
        const BlockTraits *traits = block_traits(type);
        static uint8_t row[4 * 512];
        random_row(&r, type, 512, row);
        assert_true(block_row_finite(type, row, 512));
        uint8_t *last = row + (512 / traits->elements - 1) * traits->bytes;
        uint8_t *d = last + (traits->elements == 1 ? 0 : unpack_d_offset(type));
        if (type == BLOCK_F32) bytes_store32(d, 0x7f800000);
        else bytes_store16(d, 0x7f80); /* infinity in bf16, not a number in f16 */
        assert_false(block_row_finite(type, row, 512));
        if (!unpack_has_min(type)) continue;
        random_row(&r, type, 512, row);
        bytes_store16(d + 2, 0xfc00);
        assert_false(block_row_finite(type, row, 512));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors), cmocka_unit_test(test_block_guard),
        cmocka_unit_test(test_unknown_type_is_an_error), cmocka_unit_test(test_halves),
        cmocka_unit_test(test_not_finite_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
