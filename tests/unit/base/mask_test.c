/* SPDX-License-Identifier: Apache-2.0 */
/* What of an address is not shown, and that everything else is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/mask.h"

static const char *masked(const char *text)
{
    static char out[400];
    mask_copy(out, sizeof out, text);
    return out;
}

static void passwords_of_addresses(void **state)
{
    (void)state;
    assert_string_equal(masked("http://ann:tiger@host:80/x"), "http://***@host:80/x");
    assert_string_equal(masked("no 'ann:tiger@host', and"), "no '***@host', and");
    assert_string_equal(masked("redis://:tiger@host/0"), "redis://***@host/0");
    assert_string_equal(masked("--store=ann:ti@ger@host/a@b:c"), "***@host/a@b:c");
    assert_string_equal(masked("http://host:1:tiger@x"), "http://***@x");
    assert_string_equal(masked("https://tiger@host/a@b"), "https://***@host/a@b");
    assert_string_equal(masked("(s3://a:b@c/d \"e:f@g\""), "(s3://***@c/d \"***@g\"");
}

static void queries_with_secrets(void **state)
{
    (void)state;
    assert_string_equal(masked("https://h/x?a=1&X-Amz-Signature=9 is"), "https://h/x?*** is");
    assert_string_equal(masked("/none?API_KEY=9"), "/none?***");
    assert_string_equal(masked("http://h/knot?size: no"), "http://h/knot?size: no");
    assert_string_equal(masked("/rows?first=1&end=2"), "/rows?first=1&end=2");
}

static void all_else_is_shown(void **state)
{
    (void)state;
    static const char *const same[] = {"",
                                       "@",
                                       ":",
                                       "a@b",
                                       "a@b:c",
                                       "http://host/a@b",
                                       "//@b",
                                       "layer 1:2, ann@host",
                                       "12:30:59 at 127.0.0.1:80",
                                       "cobord-node@station-0",
                                       "[::1]:8080",
                                       "what? key= nothing"};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        assert_string_equal(masked(same[i]), same[i]);
}

static void copies_are_cut(void **state)
{
    (void)state;
    char out[10];
    for (size_t room = 1; room <= sizeof out; room++) {
        memset(out, 'x', sizeof out);
        mask_copy(out, room, "ab //c:d@efgh");
        assert_int_equal(strlen(out), room - 1);
        assert_memory_equal(out, "ab //***@", room - 1);
    }
}

static void a_why_has_none(void **state)
{
    (void)state;
    Why why;
    assert_int_equal(error_why(&why, ERR_IO, "%s and %.*s", "http://a:b@c/", 7, "d:e@f/gh"),
                     ERR_IO);
    assert_string_equal(why.text, "http://***@c/ and ***@f/g");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passwords_of_addresses), cmocka_unit_test(queries_with_secrets),
        cmocka_unit_test(all_else_is_shown), cmocka_unit_test(copies_are_cut),
        cmocka_unit_test(a_why_has_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
