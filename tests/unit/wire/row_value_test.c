/* SPDX-License-Identifier: Apache-2.0 */
/* Values of embedding rows in a key-value store: keys, and what makes a value bad. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "wire/row_value.h"

enum { HIDDEN = 24 };

static void keys_name_knot_and_row(void **state)
{
    (void)state;
    char key[ROW_VALUE_KEY_BYTES];
    assert_string_equal(row_value_key(0xabc, 7, key), "cobord:row:0000000000000abc:7");
    row_value_key(UINT64_MAX, UINT32_MAX, key);
    assert_string_equal(key, "cobord:row:ffffffffffffffff:4294967295");
}

static void a_value_is_good_or_bad(void **state)
{
    (void)state;
    uint8_t value[HIDDEN * 4 + 9] = {0};
    size_t bytes = row_value_bytes(HIDDEN);
    assert_int_equal(bytes, HIDDEN * 4 + 8);
    for (int i = 0; i < HIDDEN * 4; i++) value[i] = (uint8_t)(i * 37 + 1);
    row_value_seal(value, HIDDEN);
    uint64_t hash = hash_xxh64(value, HIDDEN * 4);
    for (int i = 0; i < 8; i++) assert_int_equal(value[HIDDEN * 4 + i], hash >> (8 * i) & 0xff);
    assert_true(row_value_is_good(value, bytes, HIDDEN));
    for (size_t i = 0; i < bytes; i++) {
        value[i] ^= 16;
        assert_false(row_value_is_good(value, bytes, HIDDEN));
        value[i] ^= 16;
    }
    assert_false(row_value_is_good(value, bytes - 1, HIDDEN));
    assert_false(row_value_is_good(value, bytes + 1, HIDDEN));
    assert_false(row_value_is_good(value, 0, HIDDEN));
    assert_false(row_value_is_good(NULL, SIZE_MAX, HIDDEN)); /* something that is no value */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_name_knot_and_row),
        cmocka_unit_test(a_value_is_good_or_bad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
