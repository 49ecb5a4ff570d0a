/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/bearer.h"

static void compared_whole(void **state)
{
    (void)state;
    const char *key = "abcdefgh";
    assert_true(bearer_equals(key, "abcdefgh"));
    static const char *const others[] = {"",         "a",         "abcdefg",         "abcdefgH",
                                         "Abcdefgh", "abcdefghh", "abcdefghabcdefgh"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_false(bearer_equals(key, others[i]));
    assert_true(bearer_in_header(key, "Bearer abcdefgh"));
    assert_true(bearer_in_header(key, "bearer  abcdefgh"));
    assert_true(bearer_in_header(key, "Bearer abcdefgh \t"));
    static const char *const headers[] = {
        "abcdefgh",       "Basic abcdefgh",     "Bearer", "Bearer ", "Bearer abcdefgh x",
        "Bearerabcdefgh", "Bearer \"abcdefgh\""};
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        assert_false(bearer_in_header(key, headers[i]));
    assert_false(bearer_in_header(key, NULL));
}

static void key_of_a_header(void **state)
{
    (void)state;
    size_t bytes;
    const char *key = bearer_key("bearer  abc d \t", &bytes);
    assert_int_equal(bytes, 5);
    assert_memory_equal(key, "abc d", 5);
    assert_non_null(bearer_key("Bearer ", &bytes));
    assert_int_equal(bytes, 0);
    assert_null(bearer_key("Bearer", &bytes));
    assert_null(bearer_key("Basic abc", &bytes));
    assert_null(bearer_key(NULL, &bytes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(compared_whole),
                                       cmocka_unit_test(key_of_a_header)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
