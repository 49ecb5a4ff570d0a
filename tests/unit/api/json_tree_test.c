/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "api/json_tree.h"

static void same_values(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "null",
        "true",
        "-12",
        "18446744073709551615",
        "0.1",
        "-1e300",
        "\"a\\\"b\\n\\u0001\xC3\xA9\"",
        "[]",
        "{}",
        "[1,[2,{\"a\":[]}],null]",
        "{\"a\":1,\"b\":{\"\":false},\"c\":\"\"}",
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char out[512];
        yyjson_doc *doc = yyjson_read(texts[i], strlen(texts[i]), 0);
        assert_non_null(doc);
        JsonWriter w = json_writer_make(out, sizeof out);
        json_tree_write(&w, yyjson_doc_get_root(doc));
        yyjson_doc *again = yyjson_read(out, w.used, 0);
        assert_non_null(again);
        assert_true(yyjson_equals(yyjson_doc_get_root(doc), yyjson_doc_get_root(again)));
        for (size_t room = 0; room < w.used; room++) {
            JsonWriter small = json_writer_make(out, room);
            json_tree_write(&small, yyjson_doc_get_root(doc));
            assert_true(small.full);
        }
        yyjson_doc_free(again);
        yyjson_doc_free(doc);
    }
}

static void nothing_is_null(void **state)
{
    (void)state;
    char out[8];
    JsonWriter w = json_writer_make(out, sizeof out);
    json_tree_write(&w, NULL);
    assert_int_equal(w.used, 4);
    assert_memory_equal(out, "null", 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_values),
                                       cmocka_unit_test(nothing_is_null)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
