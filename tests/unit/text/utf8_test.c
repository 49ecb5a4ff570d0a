/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "text/utf8.h"

static int look(const char *text) { return utf8_look((const uint8_t *)text, strlen(text)); }

static void test_every_character_round_trips(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        if (c >= 0xD800 && c < 0xE000) continue;
        uint8_t bytes[4];
        uint32_t length, written = utf8_write(c, bytes);
        assert_int_equal(written, c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4);
        assert_int_equal(utf8_read(bytes, written, &length), c);
        assert_int_equal(length, written);
        for (uint32_t cut = 1; cut < written; cut++) assert_int_equal(utf8_look(bytes, cut), 0);
    }
}

/* Source  The Unicode Standard, section 3.9, tables 3-8 to 3-11. */
static void test_maximal_subparts(void **state)
{
    (void)state;
    assert_int_equal(look("\x80"), -1);
    assert_int_equal(look("\xC0\x80"), -1);
    assert_int_equal(look("\xC1\xBF"), -1);
    assert_int_equal(look("\xE0\x9F\xBF"), -1);
    assert_int_equal(look("\xED\xA0\x80"), -1);
    assert_int_equal(look("\xF0\x8F\xBF\xBF"), -1);
    assert_int_equal(look("\xF4\x90\x80\x80"), -1);
    assert_int_equal(look("\xF5\x80\x80\x80"), -1);
    assert_int_equal(look("\xFF\xFE"), -1);
    assert_int_equal(look("\xE1\x80"
                          "A"),
                     -2);
    assert_int_equal(look("\xF0\x91\x92"
                          "A"),
                     -3);
    assert_int_equal(look("\xE6\xAD"), 0);
    assert_int_equal(look("\xF0\x9F"), 0);
}

static void test_invalid_bytes_are_read_one_by_one(void **state)
{
    (void)state;
    uint32_t length;
    assert_int_equal(utf8_read((const uint8_t *)"\xF0\x91\x92"
                                                "A",
                               4, &length),
                     UTF8_INVALID);
    assert_int_equal(length, 1);
    assert_int_equal(utf8_read((const uint8_t *)"\xE6", 1, &length), UTF8_INVALID);
    assert_int_equal(length, 1);
}

static bool is_text(const char *text) { return utf8_is_text((const uint8_t *)text, strlen(text)); }

static void test_whole_texts(void **state)
{
    (void)state;
    assert_true(is_text("") && is_text("na\xC3\xAFve \xF0\x9F\x99\x82"));
    assert_false(is_text("a\xC3") || is_text("\xAF") || is_text("a\xED\xA0\x80z"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_character_round_trips),
                                       cmocka_unit_test(test_whole_texts),
                                       cmocka_unit_test(test_maximal_subparts),
                                       cmocka_unit_test(test_invalid_bytes_are_read_one_by_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
