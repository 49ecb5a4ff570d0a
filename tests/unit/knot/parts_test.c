/* SPDX-License-Identifier: Apache-2.0 */
/* The small parts that the readers and writers of the room stand on: ranges, names, cursor, JSON
 * text, foreign files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <yyjson.h>

#include "knot/emit.h"
#include "knot/foreign.h"
#include "knot/members.h"
#include "knot/names.h"
#include "knot/ranges.h"
#include "tiny_gguf.h"

static void ranges_are_sorted_whatever_their_order(void **state)
{
    (void)state;
    for (size_t count = 0; count < 40; count++)
        for (uint64_t seed = 1; seed < 30; seed++) {
            Range r[40];
            uint64_t x = seed * 0x9e3779b97f4a7c15u;
            for (size_t i = 0; i < count; i++) {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                r[i] = (Range){x % 50, 1, "r"};
            }
            ranges_sort(r, count);
            for (size_t i = 1; i < count; i++) assert_true(r[i - 1].offset <= r[i].offset);
        }
}

static void ranges_must_tile(void **state)
{
    (void)state;
    Why why = {""};
    const Range fine[] = {{0, 10, "a"}, {16, 4, "b"}};
    assert_int_equal(ranges_check(fine, 2, 6, 20, &why), OK);
    assert_int_equal(ranges_check(fine, 2, 5, 20, &why), ERR_RANGE);
    assert_int_equal(ranges_check(fine, 2, 6, 21, &why), ERR_FORMAT);
    assert_int_equal(ranges_check(fine, 2, 6, 19, &why), ERR_TRUNCATED);
    assert_int_equal(ranges_check(fine, 0, 6, 0, &why), OK);
    const Range overlap[] = {{0, 10, "a"}, {9, 4, "b"}};
    assert_int_equal(ranges_check(overlap, 2, 6, 13, &why), ERR_RANGE);
    assert_non_null(strstr(why.text, "b at offset 9 overlaps a"));
    const Range wraps[] = {{0, UINT64_MAX, "a"}, {5, UINT64_MAX - 2, "b"}};
    assert_int_not_equal(ranges_check(wraps, 2, 6, 100, &why), OK);
}

static void names_are_found_once(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    static char texts[COUNT][12];
    size_t room = names_bytes(COUNT) + 128;
    void *memory = malloc(room);
    Arena arena = arena_make(memory, room);
    Names n;
    Why why = {""};
    assert_int_equal(names_make(&n, COUNT, &arena, &why), OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        (void)snprintf(texts[i], sizeof texts[i], "t%u", i);
        assert_true(names_put(&n, texts[i], strlen(texts[i]), i));
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(names_find(&n, texts[i], strlen(texts[i])), i);
        assert_false(names_put(&n, texts[i], strlen(texts[i]), 0));
    }
    assert_int_equal(names_find(&n, "t", 1), NAMES_NONE);
    assert_int_equal(names_find(&n, "", 0), NAMES_NONE);
    Arena small = arena_make(memory, 64);
    assert_int_equal(names_make(&n, COUNT, &small, &why), ERR_MEMORY);
    free(memory);
}

static void the_cursor_crosses_its_window(void **state)
{
    (void)state;
    enum { BYTES = 3 * CURSOR_WINDOW_BYTES + 17 };
    uint8_t *bytes = malloc(BYTES), *copy = malloc(BYTES),
            *memory = malloc(CURSOR_WINDOW_BYTES + 128);
    for (size_t i = 0; i < BYTES; i++) bytes[i] = (uint8_t)(i * 7 + i / 300);
    TinyFile file = {bytes, 0, 0};
    CursorPort port = {tiny_read, &file, BYTES};
    Arena arena = arena_make(memory, CURSOR_WINDOW_BYTES + 128);
    Cursor c;
    Why why = {""};
    const uint8_t *p = NULL;
    assert_int_equal(cursor_start(&c, &port, &arena, &why), OK);
    for (size_t at = 0, step = 1; at + step <= BYTES; at += step, step = step % 1000 + 1) {
        assert_int_equal(cursor_take(&c, step, "bytes", &p, &why), OK);
        assert_memory_equal(p, bytes + at, step);
    }
    assert_true(file.read_bytes < 2 * BYTES);
    cursor_seek(&c, 5);
    assert_int_equal(cursor_copy(&c, copy, BYTES - 5, "bytes", &why), OK);
    assert_memory_equal(copy, bytes + 5, BYTES - 5);
    assert_int_equal(cursor_left(&c), 0);
    assert_int_equal(cursor_take(&c, 1, "one more", &p, &why), ERR_TRUNCATED);
    assert_non_null(strstr(why.text, "one more"));
    assert_int_equal(cursor_skip(&c, UINT64_MAX, "many", &why), ERR_TRUNCATED);
    assert_int_equal(cursor_take(&c, 0, "none", &p, &why), OK);
    free(bytes);
    free(copy);
    free(memory);
}

/* What is written as JSON reads back as the same values, whatever they are. */
static void json_text_reads_back(void **state)
{
    (void)state;
    static const float floats[] = {0.0f,   -0.0f, 1e-6f, 9.99999997e-07f, 1e6f, 3.4e38f,
                                   1e-45f, 0.1f,  -2.5f};
    static const char *const texts[] = {"", "plain", "q\"b\\s", "a\nb\x1b[31m\x7f", "\xe2\x82\xac"};
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
        char out[64] = "";
        Emit e = emit_make(out, sizeof out - 1);
        emit_f32(&e, floats[i]);
        assert_true(emit_fits(&e));
        assert_true((float)strtod(out, NULL) == floats[i]);
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char out[128] = "";
        Emit e = emit_make(out, sizeof out - 1);
        emit_string(&e, texts[i]);
        yyjson_doc *doc = yyjson_read(out, e.used, 0);
        assert_non_null(doc);
        assert_string_equal(yyjson_get_str(yyjson_doc_get_root(doc)), texts[i]);
        yyjson_doc_free(doc);
    }
    char out[40] = "";
    Emit e = emit_make(out, sizeof out - 1);
    emit_u64(&e, UINT64_MAX);
    emit_text(&e, " ");
    emit_hex64(&e, 0x0123456789abcdefu);
    assert_string_equal(out, "18446744073709551615 0123456789abcdef");
    emit_text(&e, "too much");
    assert_false(emit_fits(&e));
}

static void members_are_checked(void **state)
{
    (void)state;
    static const char json[] =
        "{\"a\":1,\"a\":2,\"n\":-1,\"f\":1.5,\"s\":\"text\",\"big\":18446744073709551615}";
    yyjson_doc *doc = yyjson_read(json, sizeof json - 1, 0);
    Members m = {yyjson_doc_get_root(doc), "here"};
    Why why = {""};
    uint64_t u = 0;
    float f = 0.0f;
    char text[5];
    assert_int_equal(members_u64(m, "a", 9, 0, &u, &why), ERR_DUPLICATE);
    assert_non_null(strstr(why.text, "here: member `a`"));
    assert_int_equal(members_u64(m, "none", 9, 7, &u, &why), OK);
    assert_int_equal(u, 7);
    assert_int_equal(members_u64(m, "n", 9, 0, &u, &why), ERR_FORMAT);
    assert_int_equal(members_u64(m, "f", 9, 0, &u, &why), ERR_FORMAT);
    assert_int_equal(members_u64(m, "big", INT64_MAX, 0, &u, &why), ERR_RANGE);
    assert_int_equal(members_f32(m, "f", &f, &why), OK);
    assert_true(f == 1.5f);
    assert_int_equal(members_f32(m, "s", &f, &why), ERR_FORMAT);
    assert_int_equal(members_text(m, "s", text, sizeof text, &why), OK);
    assert_string_equal(text, "text");
    assert_int_equal(members_text(m, "s", text, 4, &why), ERR_RANGE);
    assert_int_equal(members_text(m, "f", text, sizeof text, &why), ERR_FORMAT);
    yyjson_doc_free(doc);
}

static void foreign_files_are_judged_by_few_bytes(void **state)
{
    (void)state;
    assert_string_equal(foreign_kind((const uint8_t *)"", 0), "an empty file");
    assert_null(foreign_kind((const uint8_t *)"hello", 5));
    assert_null(foreign_advice((const uint8_t *)"hello", 5));
    static const char html[] = "<!DoCtYpE HtMl>";
    for (size_t n = 0; n < sizeof html; n++) (void)foreign_kind((const uint8_t *)html, n);
    assert_string_equal(foreign_kind((const uint8_t *)html, sizeof html - 1), "an HTML page");
    assert_non_null(foreign_advice((const uint8_t *)html, sizeof html - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranges_are_sorted_whatever_their_order),
                                       cmocka_unit_test(ranges_must_tile),
                                       cmocka_unit_test(names_are_found_once),
                                       cmocka_unit_test(the_cursor_crosses_its_window),
                                       cmocka_unit_test(json_text_reads_back),
                                       cmocka_unit_test(members_are_checked),
                                       cmocka_unit_test(foreign_files_are_judged_by_few_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
