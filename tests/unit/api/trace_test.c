/* SPDX-License-Identifier: Apache-2.0 */
/* Trace contexts, by the rules and examples of W3C Trace Context; ids of requests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "api/trace.h"

#define ID "0af7651916cd43dd8448eb211c80319c"
#define SPAN "b7ad6b7169203331"

static void continues_what_it_is_given(void **state)
{
    Trace t;
    char out[TRACE_PARENT_BYTES];
    (void)state;
    assert_true(trace_continue("00-" ID "-" SPAN "-01", 0x1234, &t));
    assert_string_equal(t.trace_id, ID);
    assert_string_equal(t.parent_id, SPAN);
    assert_string_equal(t.span_id, "0000000000001234");
    trace_write(&t, out);
    assert_string_equal(out, "00-" ID "-0000000000001234-01");
    assert_true(trace_continue("00-" ID "-" SPAN "-00", 1, &t));
    assert_int_equal(t.flags, 0);
    /* a later version may have more behind, and flags that we do not know */
    assert_true(trace_continue("cc-" ID "-" SPAN "-03-more", 1, &t));
    trace_write(&t, out);
    assert_string_equal(out, "00-" ID "-0000000000000001-01");
}

static void begins_anew_for_anything_else(void **state)
{
    static const char *const headers[] = {NULL,
                                          "",
                                          "00",
                                          "00-" ID "-" SPAN,
                                          "00-" ID "-" SPAN "-0",
                                          "00-" ID "-" SPAN "-01-more",
                                          "ff-" ID "-" SPAN "-01",
                                          "00-0AF7651916CD43DD8448EB211C80319C-" SPAN "-01",
                                          "00-00000000000000000000000000000000-" SPAN "-01",
                                          "00-" ID "-0000000000000000-01",
                                          "00_" ID "-" SPAN "-01",
                                          "00-" ID "." SPAN "-01",
                                          "00-" ID "-" SPAN "-0g",
                                          "cc-" ID "-" SPAN "-01more"};
    Trace t;
    (void)state;
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        assert_false(trace_continue(headers[i], 1, &t));
    t = trace_begin(0, 0, 0); /* chance can be all zeros, an id can not */
    assert_string_equal(t.trace_id, "00000000000000010000000000000000");
    assert_string_equal(t.span_id, "0000000000000001");
    assert_string_equal(t.parent_id, "");
}

static void spans_hang_below_each_other(void **state)
{
    (void)state;
    Trace t = trace_begin(1, 2, 3), below = trace_below(&t, 4);
    assert_string_equal(below.trace_id, t.trace_id);
    assert_string_equal(below.parent_id, t.span_id);
    assert_string_equal(below.span_id, "0000000000000004");
}

static void ids_are_plain(void **state)
{
    char id[TRACE_REQUEST_BYTES + 1];
    (void)state;
    assert_true(trace_is_request_id("a-Z_0.9"));
    assert_false(trace_is_request_id(NULL));
    assert_false(trace_is_request_id(""));
    assert_false(trace_is_request_id("a b"));
    assert_false(trace_is_request_id("a\r\nSet-Cookie: b"));
    assert_false(trace_is_request_id("\xc3\xa4"));
    memset(id, 'x', sizeof id);
    id[128] = '\0';
    assert_true(trace_is_request_id(id));
    id[128] = 'x', id[129] = '\0';
    assert_false(trace_is_request_id(id));
    trace_make_request_id(0xabc, id);
    assert_string_equal(id, "req_0000000000000abc");
    assert_true(trace_is_request_id(id));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(continues_what_it_is_given),
                                       cmocka_unit_test(begins_anew_for_anything_else),
                                       cmocka_unit_test(spans_hang_below_each_other),
                                       cmocka_unit_test(ids_are_plain)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
