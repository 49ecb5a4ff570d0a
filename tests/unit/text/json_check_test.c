/* SPDX-License-Identifier: Apache-2.0 */
/* JSON objects byte by byte, against yyjson. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <yyjson.h>

#include "text/json_check.h"

/* WHOLE only when the last byte makes it so. */
static JsonCheckResult check(const char *text, size_t bytes)
{
    JsonCheck c = {0};
    JsonCheckResult result = JSON_CHECK_GOES_ON;
    for (size_t i = 0; i < bytes; i++) {
        if (result == JSON_CHECK_WHOLE) return JSON_CHECK_FAULT;
        result = json_check_push(&c, (uint8_t)text[i]);
        if (result == JSON_CHECK_FAULT) return result;
    }
    return result;
}

static bool is_object(const char *text, size_t bytes)
{
    yyjson_doc *doc = yyjson_read(text, bytes, 0);
    bool object = yyjson_is_obj(yyjson_doc_get_root(doc));
    yyjson_doc_free(doc);
    return object;
}

static const char *const texts[] = {
    "{}",
    " \r\n\t{ }",
    "{\"a\":1}",
    "{\"a\": [1, -2.5, 0, 1e5, 1.0E-7, 2E+1], \"b\": {\"c\": [[]]}}",
    "{\"a\": \"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00ff\"}",
    "{\"a\": \"\\ud83d\\uDE00x\", \"\\uD800\\udfff\": \"\\u0064\"}",
    "{\"a\":[1e99,-10.00e+99,0.0e999,-0e1234567890123,1e-99999999999999999999,0.001E0300]}",
    "{\"a\":[0.00000000000000000000000000000000000001e300]}",
    "{\"t\": true, \"f\": false, \"n\": null}",
    "{\"a\":[{},[],\"\",[0],{\"\":[]}]}"};

static void takes_objects(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t bytes = strlen(texts[i]);
        assert_true(is_object(texts[i], bytes));
        assert_int_equal(check(texts[i], bytes), JSON_CHECK_WHOLE);
        for (size_t cut = 0; cut < bytes; cut++)
            assert_int_equal(check(texts[i], cut), JSON_CHECK_GOES_ON);
    }
}

/* One byte put in, taken out or changed, everywhere: both say the same. */
static void agrees_with_yyjson(void **state)
{
    (void)state;
    static const char bytes[] = "{}[]:,\"\\ntfu0123-+.eE \n\x01"
                                "abx/d8Dc";
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t count = strlen(texts[i]);
        for (size_t at = 0; at <= count; at++) {
            for (size_t b = 0; b < sizeof bytes - 1; b++) {
                for (size_t drop = 0; drop < 2 && at + drop <= count; drop++) {
                    char text[256];
                    int length = snprintf(text, sizeof text, "%.*s%c%s", (int)at, texts[i],
                                          bytes[b], texts[i] + at + drop);
                    size_t end = (size_t)length;
                    if (end && strchr(" \n", text[end - 1])) continue;
                    bool same = is_object(text, end) == (check(text, end) == JSON_CHECK_WHOLE);
                    if (!same) fail_msg("%s", text);
                }
            }
        }
    }
}

/* What is infinite as a double is no number: the power of ten decides, so also the last below that, from 1e308 on. */
static void bounds_numbers(void **state)
{
    (void)state;
    static const char *const infinite[] = {
        "1e309",    "-2e308",  "1e999",     "-0.01e+311", "1E4294967296",
        "10.0e308", "0.1e310", "123.4e307", "2000e305",   "1e99999999999999999999999"};
    static const char *const last[] = {"1e308", "1.7976931348623157e308", "100e306", "0.1e309"};
    char text[512];
    for (size_t i = 0; i < sizeof infinite / sizeof *infinite; i++) {
        size_t bytes = (size_t)snprintf(text, sizeof text, "{\"a\":%s}", infinite[i]);
        assert_false(is_object(text, bytes));
        if (check(text, bytes) != JSON_CHECK_FAULT) fail_msg("%s", text);
    }
    for (size_t i = 0; i < sizeof last / sizeof *last; i++) {
        size_t bytes = (size_t)snprintf(text, sizeof text, "{\"a\":%s}", last[i]);
        assert_true(is_object(text, bytes));
        assert_int_equal(check(text, bytes), JSON_CHECK_FAULT);
    }
    for (int digits = 306; digits < 312; digits++) {
        size_t bytes = (size_t)snprintf(text, sizeof text, "{\"a\":9%0*d}", digits - 1, 0);
        assert_int_equal(is_object(text, bytes), digits < 309);
        assert_int_equal(check(text, bytes), digits < 309 ? JSON_CHECK_WHOLE : JSON_CHECK_FAULT);
    }
}

static void bounds_the_depth(void **state)
{
    (void)state;
    for (size_t depth = JSON_CHECK_DEPTH_MAX - 1; depth < JSON_CHECK_DEPTH_MAX + 1; depth++) {
        char text[512] = "{\"a\":";
        size_t at = 5;
        for (size_t i = 0; i < depth; i++) text[at++] = '[';
        for (size_t i = 0; i < depth; i++) text[at++] = ']';
        text[at++] = '}';
        assert_int_equal(check(text, at),
                         depth < JSON_CHECK_DEPTH_MAX ? JSON_CHECK_WHOLE : JSON_CHECK_FAULT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_objects),
        cmocka_unit_test(agrees_with_yyjson),
        cmocka_unit_test(bounds_numbers),
        cmocka_unit_test(bounds_the_depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
