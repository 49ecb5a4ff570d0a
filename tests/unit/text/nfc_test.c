/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "text/nfc.h"
#include "text/unicode.h"
#include "text/utf8.h"

/* The normal form, to be freed. */
static uint8_t *normal_form(const void *text, size_t bytes, size_t *out_bytes)
{
    size_t room = nfc_scratch_bytes(bytes) + ARENA_ALIGN;
    void *memory = malloc(room);
    uint8_t *out = malloc(NFC_GROWTH_MAX * bytes + 1);
    Arena scratch = arena_make(memory, room);
    assert_int_equal(nfc_normalize(text, bytes, &scratch, out, out_bytes, NULL), OK);
    assert_int_equal(scratch.used, 0);
    assert_true(*out_bytes <= NFC_GROWTH_MAX * bytes);
    free(memory);
    return out;
}

static void expect(const char *text, const char *want)
{
    size_t bytes;
    uint8_t *out = normal_form(text, strlen(text), &bytes);
    assert_int_equal(bytes, strlen(want));
    assert_memory_equal(out, want, bytes);
    free(out);
}

/* Source  NormalizationTest.txt of the Unicode Character Database (columns 1 and 2), and UAX #15's examples. */
static void test_facts(void **state)
{
    (void)state;
    expect("", "");
    expect("plain", "plain");
    expect("e\u0301", "\u00E9");
    expect("\u212B", "\u00C5");
    expect("D\u0307\u0323", "\u1E0C\u0307");
    expect("\u1E9B\u0323", "\u1E9B\u0323");
    expect("\u0344", "\u0308\u0301");
    expect("\uFB2C", "\u05E9\u05BC\u05C1");
    expect("\u1112\u1161\u11AB", "\uD55C");
    expect("\u0958", "\u0915\u093C");
    expect("\u09C7\u09BE", "\u09CB");
    expect("a\u0315\u0300\u05AE"
           "b",
           "\u00E0\u05AE\u0315b");
    expect("\U0001D160", "\U0001D158\U0001D165\U0001D16E");
    expect("\u0301a", "\u0301a");
    expect("\u0F71\u0F72\u0F71", "\u0F71\u0F71\u0F72");
    expect("\uFB01", "\uFB01");
}

static void test_invalid_bytes_pass_and_separate(void **state)
{
    (void)state;
    expect("\xFF", "\xFF");
    expect("e\xCC", "e\xCC");
    expect("e\xFF\u0301", "e\xFF\u0301");
    expect("\xED\xA0\x80"
           "e\u0301\xC0\x80",
           "\xED\xA0\x80\u00E9\xC0\x80");
}

/* Every character: normalizing twice changes nothing, and text that is called plain is its own normal form. */
static void test_every_character(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= UNICODE_LAST; c++) {
        if (c >= 0xD800 && c < 0xE000) continue;
        uint8_t text[8];
        size_t bytes = utf8_write(c, text), once_bytes, twice_bytes;
        uint8_t *once = normal_form(text, bytes, &once_bytes);
        uint8_t *twice = normal_form(once, once_bytes, &twice_bytes);
        assert_int_equal(once_bytes, twice_bytes);
        assert_memory_equal(once, twice, once_bytes);
        if (nfc_is_plain(text, bytes)) assert_memory_equal(once, text, bytes);
        free(once);
        free(twice);
    }
}

static void test_a_megabyte_of_marks_is_sorted_stably(void **state)
{
    (void)state;
    enum { MARKS = 1 << 19 };
    uint8_t *text = malloc(2 * MARKS);
    for (size_t i = 0; i < MARKS; i++)
        utf8_write(i % 2 ? 0x323 : i % 4 ? 0x301 : 0x300, text + 2 * i);
    size_t bytes;
    uint8_t *out = normal_form(text, 2 * MARKS, &bytes);
    assert_int_equal(bytes, 2 * MARKS);
    for (size_t i = 0; i < MARKS; i++) {
        uint32_t length, want = i < MARKS / 2 ? 0x323 : i % 2 ? 0x301 : 0x300;
        assert_int_equal(utf8_read(out + 2 * i, 2, &length), want);
    }
    free(out);
    free(text);
}

static void test_too_little_scratch(void **state)
{
    (void)state;
    uint8_t out[16];
    size_t bytes;
    Arena none = arena_make(out, 0);
    Why why = {{0}};
    assert_int_equal(nfc_normalize((const uint8_t *)"abc", 3, &none, out, &bytes, &why),
                     ERR_MEMORY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_facts),
                                       cmocka_unit_test(test_invalid_bytes_pass_and_separate),
                                       cmocka_unit_test(test_every_character),
                                       cmocka_unit_test(test_a_megabyte_of_marks_is_sorted_stably),
                                       cmocka_unit_test(test_too_little_scratch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
