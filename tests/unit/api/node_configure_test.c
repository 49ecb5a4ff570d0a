/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "api/node_configure.h"

static Error range_of(const char *body, PhaseRange *out)
{
    Why why;
    return node_configure_read_range((const uint8_t *)body, strlen(body), 30, out, &why);
}

static Error ids_of(const char *body, uint32_t *first, uint32_t *last)
{
    Why why;
    return node_configure_read_ids((const uint8_t *)body, strlen(body), 1000, first, last, &why);
}

static void ranges(void **state)
{
    (void)state;
    PhaseRange r;
    assert_int_equal(range_of("{\"range\":\"0-7\"}", &r), OK);
    assert_int_equal(r.first, 0);
    assert_int_equal(r.last, 28);
    assert_int_equal(range_of("{\"range\":\"5.ffn_up-end\"}", &r), OK);
    assert_int_equal(r.first, 22);
    assert_int_equal(r.last, 120);
    static const char *const bad[] = {"",
                                      "{",
                                      "[]",
                                      "null",
                                      "{}",
                                      "{\"range\":1}",
                                      "{\"range\":\"\"}",
                                      "{\"range\":\"-\"}",
                                      "{\"range\":\"7\"}",
                                      "{\"range\":\"7-7\"}",
                                      "{\"range\":\"8-7\"}",
                                      "{\"range\":\"0-31\"}",
                                      "{\"range\":\"0-7-9\"}",
                                      "{\"range\":\"0-7\",\"a\":1}",
                                      "{\"range\":\"0\\u0000-7\"}",
                                      "{\"ids\":[0,1]}",
                                      "{\"range\":\"0-99999999999999999999\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_not_equal(range_of(bad[i], &r), OK);
}

static void ids(void **state)
{
    (void)state;
    uint32_t first, last;
    assert_int_equal(ids_of("{\"ids\":[3,1000]}", &first, &last), OK);
    assert_int_equal(first, 3);
    assert_int_equal(last, 1000);
    static const char *const bad[] = {"{\"ids\":[]}",
                                      "{\"ids\":[3]}",
                                      "{\"ids\":[3,4,5]}",
                                      "{\"ids\":[4,4]}",
                                      "{\"ids\":[5,4]}",
                                      "{\"ids\":[0,1001]}",
                                      "{\"ids\":[-1,5]}",
                                      "{\"ids\":[0,1.5]}",
                                      "{\"ids\":[\"0\",5]}",
                                      "{\"ids\":[0,4294967297]}",
                                      "{\"ids\":[0,18446744073709551616]}",
                                      "{\"ids\":{}}",
                                      "{\"range\":\"0-7\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_not_equal(ids_of(bad[i], &first, &last), OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranges), cmocka_unit_test(ids)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
