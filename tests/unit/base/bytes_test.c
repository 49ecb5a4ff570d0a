/* SPDX-License-Identifier: Apache-2.0 */
/* Little-endian loads and stores at every alignment, and checked arithmetic at its borders. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"

static void loads_are_little_endian_at_any_alignment(void **state)
{
    (void)state;
    uint8_t buffer[24];
    for (size_t at = 0; at < 8; at++) {
        memset(buffer, 0, sizeof buffer);
        for (uint8_t i = 0; i < 8; i++) buffer[at + i] = (uint8_t)(i + 1);
        assert_int_equal(bytes_load16(buffer + at), 0x0201);
        assert_int_equal(bytes_load32(buffer + at), 0x04030201);
        assert_true(bytes_load64(buffer + at) == 0x0807060504030201u);
    }
}

static void stores_write_their_width_only(void **state)
{
    (void)state;
    uint8_t buffer[24];
    for (size_t at = 1; at < 9; at++) {
        memset(buffer, 0xee, sizeof buffer);
        bytes_store16(buffer + at, 0x0102);
        assert_int_equal(buffer[at], 2);
        assert_int_equal(buffer[at + 1], 1);
        assert_int_equal(buffer[at - 1], 0xee);
        assert_int_equal(buffer[at + 2], 0xee);
        bytes_store32(buffer + at, 0x01020304);
        assert_int_equal(buffer[at], 4);
        assert_int_equal(buffer[at + 4], 0xee);
        bytes_store64(buffer + at, 0x0102030405060708u);
        assert_int_equal(buffer[at], 8);
        assert_int_equal(buffer[at + 7], 1);
        assert_int_equal(buffer[at + 8], 0xee);
    }
}

static void floats_keep_their_bits(void **state)
{
    (void)state;
    uint8_t buffer[5];
    bytes_store_f32(buffer + 1, -1.5f); /* 0xbfc00000 */
    assert_int_equal(bytes_load32(buffer + 1), 0xbfc00000);
    assert_true(bytes_load_f32(buffer + 1) == -1.5f);
}

static void sums_and_products_report_overflow(void **state)
{
    (void)state;
    uint64_t out;
    assert_true(bytes_add(UINT64_MAX - 1, 1, &out));
    assert_true(out == UINT64_MAX);
    assert_false(bytes_add(UINT64_MAX, 1, &out));
    assert_true(bytes_mul(UINT64_C(1) << 32, UINT32_MAX, &out));
    assert_true(out == UINT64_C(0xffffffff00000000));
    assert_false(bytes_mul(UINT64_C(1) << 32, UINT64_C(1) << 32, &out));
    assert_true(bytes_mul(UINT64_MAX, 0, &out));
    assert_true(out == 0);
}

static void rounding_up_reports_overflow(void **state)
{
    (void)state;
    uint64_t out;
    assert_true(bytes_round_up(0, 64, &out) && out == 0);
    assert_true(bytes_round_up(1, 64, &out) && out == 64);
    assert_true(bytes_round_up(64, 64, &out) && out == 64);
    assert_true(bytes_round_up(65, 1, &out) && out == 65);
    assert_true(bytes_round_up(UINT64_MAX - 4095, 4096, &out) && out == UINT64_MAX - 4095);
    assert_false(bytes_round_up(UINT64_MAX - 4094, 4096, &out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_are_little_endian_at_any_alignment),
        cmocka_unit_test(stores_write_their_width_only),
        cmocka_unit_test(floats_keep_their_bits),
        cmocka_unit_test(sums_and_products_report_overflow),
        cmocka_unit_test(rounding_up_reports_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
