/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "text/unicode.h"
#include "text/utf8.h"

enum { KINDS = UNICODE_LETTER | UNICODE_NUMBER | UNICODE_SPACE };

static void test_classes(void **state)
{
    (void)state;
    static const struct {
        uint32_t character;
        unsigned kind;
    } facts[] = {{'a', UNICODE_LETTER},
                 {'7', UNICODE_NUMBER},
                 {' ', UNICODE_SPACE},
                 {'\n', UNICODE_SPACE},
                 {'_', 0},
                 {0x85, UNICODE_SPACE},
                 {0xA0, UNICODE_SPACE},
                 {0x3000, UNICODE_SPACE},
                 {0x2028, UNICODE_SPACE},
                 {0x1680, UNICODE_SPACE},
                 {0x202F, UNICODE_SPACE},
                 {0x200B, 0},
                 {0xFEFF, 0},
                 {0x180E, 0},
                 {0x1C, 0},
                 {0x664, UNICODE_NUMBER},
                 {0xBD, UNICODE_NUMBER},
                 {0x2167, UNICODE_NUMBER},
                 {0x2460, UNICODE_NUMBER},
                 {0x4E2D, UNICODE_LETTER},
                 {0xAC00, UNICODE_LETTER},
                 {0x301, 0},
                 {0x1F600, 0},
                 {0xE000, 0},
                 {0x10FFFF, 0},
                 {0xD800, 0},
                 {UTF8_INVALID, 0}};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        assert_int_equal(unicode_class(facts[i].character) & KINDS, facts[i].kind);
    size_t spaces = 0;
    for (uint32_t c = 0; c <= UNICODE_LAST; c++) spaces += (unicode_class(c) & UNICODE_SPACE) != 0;
    assert_int_equal(spaces, 25); /* PropList.txt: White_Space has 25 code points */
}

static void test_orders(void **state)
{
    (void)state;
    assert_int_equal(unicode_order('a'), 0);
    assert_int_equal(unicode_order(0x301), 230);
    assert_int_equal(unicode_order(0x323), 220);
    assert_int_equal(unicode_order(0x3099), 8);
    assert_int_equal(unicode_order(UTF8_INVALID), 0);
}

static void test_decompositions(void **state)
{
    (void)state;
    uint32_t parts[UNICODE_PARTS_MAX];
    assert_int_equal(unicode_decompose('a', parts), 1);
    assert_int_equal(unicode_decompose(0x1F82, parts), 4);
    assert_int_equal(parts[0], 0x3B1);
    assert_int_equal(parts[3], 0x345);
    assert_int_equal(unicode_decompose(0xD55C, parts), 3);
    assert_int_equal(parts[0], 0x1112);
    assert_int_equal(parts[1], 0x1161);
    assert_int_equal(parts[2], 0x11AB);
    assert_int_equal(unicode_decompose(0xAC00, parts), 2);
    assert_int_equal(unicode_decompose(0x10FFFF, parts), 1);
}

static void test_compositions(void **state)
{
    (void)state;
    assert_int_equal(unicode_compose('e', 0x301), 0xE9);
    assert_int_equal(unicode_compose(0x1112, 0x1161), 0xD558);
    assert_int_equal(unicode_compose(0xD558, 0x11AB), 0xD55C);
    assert_int_equal(unicode_compose(0xD558, 0x11A7), 0); /* the filler is no tail */
    assert_int_equal(unicode_compose(0xD55C, 0x11AB), 0);
    assert_int_equal(unicode_compose(0x915, 0x93C), 0); /* excluded from composition */
    assert_int_equal(unicode_compose('x', 'y'), 0);
}

/* What composes was decomposed before: for every character with two parts or more, the parts lead back or nowhere. */
static void test_tables_agree(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < unicode_composed_count; i++) {
        UnicodeComposed p = unicode_composed[i];
        uint32_t whole[UNICODE_PARTS_MAX], halves[UNICODE_PARTS_MAX];
        uint32_t count = unicode_decompose(p.composed, whole),
                 first = unicode_decompose(p.first, halves);
        assert_int_equal(count, first + 1);
        for (uint32_t k = 0; k < first; k++) assert_int_equal(whole[k], halves[k]);
        assert_int_equal(whole[first], p.second);
        assert_int_equal(unicode_compose(p.first, p.second), p.composed);
        assert_true(unicode_class(p.second) & UNICODE_JOINS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes), cmocka_unit_test(test_orders),
        cmocka_unit_test(test_decompositions), cmocka_unit_test(test_compositions),
        cmocka_unit_test(test_tables_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
