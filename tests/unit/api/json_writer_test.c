/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "api/json_writer.h"
#include "api/metrics.h"

static char bytes[4096];

static const char *string_of(const char *text, size_t count)
{
    JsonWriter w = json_writer_make(bytes, sizeof bytes - 1);
    json_writer_string(&w, text, count);
    assert_false(w.full);
    bytes[w.used] = '\0';
    return bytes;
}

static void escapes(void **state)
{
    (void)state;
    assert_string_equal(string_of("a\"b\\c\n\r\t\b\f\x01\x7f", 12),
                        "\"a\\\"b\\\\c\\n\\r\\t\\b\\f\\u0001\\u007f\"");
    assert_string_equal(string_of("\0x", 2), "\"\\u0000x\"");
    assert_string_equal(string_of("", 0), "\"\"");
    assert_string_equal(string_of("na\xC3\xAFve \xF0\x9F\x99\x82", 11),
                        "\"na\xC3\xAFve \xF0\x9F\x99\x82\"");
}

static void replaces_what_is_no_text(void **state)
{
    (void)state;
    assert_string_equal(string_of("a\xFFz", 3), "\"a\xEF\xBF\xBDz\"");
    assert_string_equal(string_of("\xC0\x80", 2), "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");
    assert_string_equal(string_of("\xED\xA0\x80", 3), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
    assert_string_equal(string_of("x\xE2\x9C", 3), "\"x\xEF\xBF\xBD\"");
}

static void numbers(void **state)
{
    (void)state;
    JsonWriter w = json_writer_make(bytes, sizeof bytes - 1);
    json_writer_u64(&w, 0);
    json_writer_raw(&w, " ");
    json_writer_u64(&w, UINT64_MAX);
    json_writer_raw(&w, " ");
    json_writer_thousandths(&w, 1004);
    json_writer_raw(&w, " ");
    json_writer_thousandths(&w, 50);
    json_writer_raw(&w, " ");
    json_writer_hex64(&w, 0x0123456789abcdefu);
    json_writer_hex64(&w, 0);
    bytes[w.used] = '\0';
    assert_string_equal(bytes,
                        "0 18446744073709551615 1.004 0.050 0123456789abcdef0000000000000000");
}

static void members(void **state)
{
    (void)state;
    JsonWriter w = json_writer_make(bytes, sizeof bytes - 1);
    json_writer_member_u64(&w, "first", 1);
    json_writer_member(&w, "inner");
    json_writer_raw(&w, "{");
    json_writer_member_text(&w, "text", "a\"b");
    json_writer_member_bool(&w, "yes", true);
    json_writer_raw(&w, "}");
    json_writer_member_u64(&w, "last", 2);
    bytes[w.used] = '\0';
    assert_string_equal(bytes,
                        "\"first\":1,\"inner\":{\"text\":\"a\\\"b\",\"yes\":true},\"last\":2");
}

static void never_beyond_the_end(void **state)
{
    (void)state;
    memset(bytes, 'g', sizeof bytes);
    for (size_t max = 0; max < 40; max++) {
        JsonWriter w = json_writer_make(bytes, max);
        json_writer_string(&w, "\x01\x02\xFF plain text \"", 17);
        json_writer_u64(&w, UINT64_MAX);
        assert_true(w.full);
        assert_true(w.used <= max);
        assert_int_equal(bytes[max], 'g');
    }
}

static void growth_bound_holds(void **state)
{
    (void)state;
    for (int c = 0; c < 256; c++) {
        char one[8];
        memset(one, c, sizeof one);
        assert_true(strlen(string_of(one, sizeof one)) <= JSON_WRITER_GROWTH * sizeof one + 2);
    }
}

static void figures(void **state)
{
    (void)state;
    JsonWriter w = json_writer_make(bytes, sizeof bytes - 1);
    metrics_write_count(&w, "a_total", "some things", 7);
    metrics_write_seconds(&w, "b_seconds_total", "time", 1500);
    metrics_write_gauge(&w, "c", "now", 0);
    bytes[w.used] = '\0';
    assert_string_equal(
        bytes,
        "# HELP a_total some things\n# TYPE a_total counter\na_total 7\n"
        "# HELP b_seconds_total time\n# TYPE b_seconds_total counter\nb_seconds_total 1.5\n"
        "# HELP c now\n# TYPE c gauge\nc 0\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(escapes),
        cmocka_unit_test(replaces_what_is_no_text),
        cmocka_unit_test(numbers),
        cmocka_unit_test(members),
        cmocka_unit_test(never_beyond_the_end),
        cmocka_unit_test(growth_bound_holds),
        cmocka_unit_test(figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
