/* SPDX-License-Identifier: Apache-2.0 */
/* Rows on the wire: F32 keeps bits, the others keep their bounds, nothing that is not finite passes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/rows.h"

enum { WIDTH_MAX = 259, ROWS = 5 };
static float x[ROWS * WIDTH_MAX], y[ROWS * WIDTH_MAX];
static uint8_t bytes[ROWS * (4 * WIDTH_MAX + 8) + 8];

/* What is read is what is let pass. */
static Error read_and_check(RowsElement e, const uint8_t *in, uint32_t rows, uint32_t width,
                            float *to, Why *why)
{
    Error error = rows_read(e, in, rows, width, to, why);
    assert_int_equal(rows_check(e, in, rows, width, NULL), error);
    return error;
}

static void fill(uint32_t n, double size)
{
    for (uint32_t i = 0; i < n; i++) x[i] = (float)((drand48() - 0.5) * size);
}

static void round_trip(RowsElement e, uint32_t width, size_t shift)
{
    Why why;
    assert_int_equal(rows_write(e, x, ROWS, width, bytes + shift, &why), OK);
    assert_int_equal(read_and_check(e, bytes + shift, ROWS, width, y, &why), OK);
}

static void test_f32_exact(void **state)
{
    (void)state;
    for (uint32_t width = 1; width <= WIDTH_MAX; width += 43) {
        fill(ROWS * width, 1e6);
        x[0] = -0.0f;
        x[1 % width] = 0x1p-149f;
        round_trip(ROWS_F32, width, width % 4);
        assert_memory_equal(x, y, ROWS * width * sizeof *x);
    }
}

static void test_f16_bound(void **state)
{
    (void)state;
    for (uint32_t width = 1; width <= WIDTH_MAX; width += 6) {
        fill(ROWS * width, 1e4);
        round_trip(ROWS_F16, width, width % 4);
        for (uint32_t i = 0; i < ROWS * width; i++)
            assert_true(fabsf(x[i] - y[i]) <= fmaxf(fabsf(x[i]) * 0x1p-11f, 0x1p-25f));
    }
    float edge[2] = {65504.0f, 65519.0f}; /* the second rounds down to the first */
    float back[2];
    assert_int_equal(rows_write(ROWS_F16, edge, 1, 2, bytes, NULL), OK);
    assert_int_equal(read_and_check(ROWS_F16, bytes, 1, 2, back, NULL), OK);
    assert_true(back[0] == 65504.0f && back[1] == 65504.0f);
    edge[1] = 65520.0f;
    assert_int_equal(rows_write(ROWS_F16, edge, 1, 2, bytes, NULL), ERR_NOT_FINITE);
}

static void test_int8_bound(void **state)
{
    (void)state;
    for (int power = -90; power < 120; power += 7)
        for (uint32_t width = 1; width <= WIDTH_MAX; width += 43) {
            fill(ROWS * width, ldexp(1.0, power));
            round_trip(ROWS_INT8, width, width % 4);
            for (uint32_t r = 0; r < ROWS; r++) {
                float most = 0;
                for (uint32_t i = 0; i < width; i++) most = fmaxf(most, fabsf(x[r * width + i]));
                for (uint32_t i = 0; i < width; i++)
                    assert_true(fabsf(x[r * width + i] - y[r * width + i]) <=
                                fmaxf(most / 127.0f * 0.50002f, 0x1p-96f));
            }
        }
}

static void test_int8_edges(void **state)
{
    (void)state;
    float row[4] = {0x1p-97f, -0x1p-120f, 0, -0.0f}, back[4];
    assert_int_equal(rows_write(ROWS_INT8, row, 1, 4, bytes, NULL), OK);
    for (int i = 0; i < 8; i++) assert_int_equal(bytes[i], 0); /* too small: zeros */
    float most[2] = {0x1p120f * 127.0f, -0x1p119f * 127.0f};
    assert_int_equal(rows_write(ROWS_INT8, most, 1, 2, bytes, NULL), OK);
    assert_int_equal(read_and_check(ROWS_INT8, bytes, 1, 2, back, NULL), OK);
    assert_true(back[0] == most[0] && isfinite(back[1]));
    most[0] = nextafterf(0x1p120f * 127.0f, INFINITY);
    most[0] = nextafterf(most[0], INFINITY);
    assert_int_equal(rows_write(ROWS_INT8, most, 1, 2, bytes, NULL), ERR_NOT_FINITE);
    /* halves go to even: scale 1 */
    float halves[5] = {127.0f, 0.5f, 1.5f, 2.5f, -2.5f};
    assert_int_equal(rows_write(ROWS_INT8, halves, 1, 5, bytes, NULL), OK);
    static const int8_t want[5] = {127, 0, 2, 2, -2};
    assert_memory_equal(bytes + 4, want, 5);
}

static void test_not_finite(void **state)
{
    (void)state;
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    for (int e = ROWS_F32; e <= ROWS_INT8; e++)
        for (int b = 0; b < 3; b++) {
            fill(ROWS * 7, 2.0);
            x[3 * 7 + 2] = bad[b];
            Why why;
            assert_int_equal(rows_write((RowsElement)e, x, ROWS, 7, bytes, &why), ERR_NOT_FINITE);
            assert_non_null(strstr(why.text, "row 3"));
        }
    memset(bytes, 0, sizeof bytes);
    float inf = INFINITY;
    memcpy(bytes + 4, &inf, 4);
    assert_int_equal(read_and_check(ROWS_F32, bytes, 1, 2, y, NULL), ERR_NOT_FINITE);
    assert_int_equal(read_and_check(ROWS_F32, bytes, 1, 1, y, NULL), OK);
    bytes[0] = 0, bytes[1] = 0x7c, bytes[2] = bytes[3] = 0;
    assert_int_equal(read_and_check(ROWS_F16, bytes, 1, 2, y, NULL), ERR_NOT_FINITE);
}

static void read_int8(float scale, uint8_t q, uint8_t padding, Error want)
{
    uint8_t row[8] = {0};
    memcpy(row, &scale, 4);
    row[4] = q, row[7] = padding;
    assert_int_equal(read_and_check(ROWS_INT8, row, 1, 3, y, NULL), want);
}

static void test_hostile_int8(void **state)
{
    (void)state;
    read_int8(1.0f, 0x81, 0, OK);
    read_int8(1.0f, 0x80, 0, ERR_FORMAT);
    read_int8(1.0f, 1, 1, ERR_FORMAT);
    read_int8(0x1p120f, 0x7f, 0, OK);
    read_int8(0x1.000002p120f, 0, 0, ERR_FORMAT);
    read_int8(-0.0f, 0, 0, ERR_FORMAT);
    read_int8(-1.0f, 0, 0, ERR_FORMAT);
    read_int8(NAN, 0, 0, ERR_FORMAT);
    read_int8(INFINITY, 0, 0, ERR_FORMAT);
}

static void test_names_and_sizes(void **state)
{
    (void)state;
    RowsElement e;
    assert_int_equal(rows_element_from_name("int8", 4, &e, NULL), OK);
    assert_int_equal(e, ROWS_INT8);
    assert_int_equal(rows_element_from_name("int", 3, &e, NULL), ERR_TYPE);
    assert_int_equal(rows_element_from_number(0, &e, NULL), ERR_TYPE);
    assert_int_equal(rows_element_from_number(4, &e, NULL), ERR_TYPE);
    assert_int_equal(rows_bytes(ROWS_F32, 3, 5), 60);
    assert_int_equal(rows_bytes(ROWS_F16, 3, 5), 36);
    assert_int_equal(rows_bytes(ROWS_INT8, 3, 5), 36);
    assert_int_equal(rows_bytes(ROWS_INT8, 0, 5), 0);
    assert_true(rows_bytes(ROWS_F32, 4096, 262144) == (uint64_t)4 << 30);
    assert_int_equal(rows_write(ROWS_F32, NULL, 0, 5, NULL, NULL), OK); /* no rows: legal */
    assert_int_equal(read_and_check(ROWS_INT8, NULL, 0, 5, NULL, NULL), OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32_exact),       cmocka_unit_test(test_f16_bound),
        cmocka_unit_test(test_int8_bound),      cmocka_unit_test(test_int8_edges),
        cmocka_unit_test(test_not_finite),      cmocka_unit_test(test_hostile_int8),
        cmocka_unit_test(test_names_and_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
