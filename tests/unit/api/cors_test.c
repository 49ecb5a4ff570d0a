/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/cors.h"

static void lists(void **state)
{
    (void)state;
    Why why;
    static const char *const fine[] = {"*", "https://app.example",
                                       "http://localhost:3000,https://[::1]:8443",
                                       "chrome-extension://abcdefgh", "vscode-webview://1x"};
    static const char *const wrong[] = {"",
                                        "null",
                                        "*,https://a.example",
                                        "https://a.example,",
                                        ",https://a.example",
                                        "https://a.example/",
                                        "https://A.example",
                                        "https://a.example, https://b.example",
                                        "a.example",
                                        "https://",
                                        "://a",
                                        "https://a.example:",
                                        "https://*.example",
                                        "https://a\n"};
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++)
        assert_int_equal(cors_check(fine[i], &why), OK);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(cors_check(wrong[i], &why), ERR_USAGE);
    char longest[CORS_LIST_BYTES_MAX +
                 2]; /* origins of 255 bytes, a comma behind each but the last */
    memset(longest, 'a', sizeof longest);
    for (size_t at = 0; at < CORS_LIST_BYTES_MAX; at += 256) {
        memcpy(longest + at, "https://", 8);
        if (at) longest[at - 1] = ',';
    }
    longest[CORS_LIST_BYTES_MAX] = '\0';
    assert_int_equal(cors_check(longest, &why), OK);
    longest[CORS_LIST_BYTES_MAX] = 'a', longest[CORS_LIST_BYTES_MAX + 1] = '\0';
    assert_int_equal(cors_check(longest, &why), ERR_USAGE);
}

static void answers(void **state)
{
    (void)state;
    const char *list = "https://a.example,http://localhost:3000";
    assert_string_equal(cors_answer(list, "https://a.example"), "https://a.example");
    assert_string_equal(cors_answer(list, "http://localhost:3000"), "http://localhost:3000");
    static const char *const others[] = {"",
                                         "null",
                                         "https://a.exampl",
                                         "https://a.example.org",
                                         "http://a.example",
                                         "https://a.example:443",
                                         "http://localhost:300",
                                         "https://a.example,http://localhost:3000",
                                         "*"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_null(cors_answer(list, others[i]));
    assert_null(cors_answer(list, NULL));
    assert_null(cors_answer(NULL, "https://a.example"));
    assert_string_equal(cors_answer("*", "null"), "*");
    assert_null(cors_answer("*", NULL));
}

static void names(void **state)
{
    (void)state;
    const char *wanted = "authorization,content-type, x-stainless-os";
    assert_string_equal(cors_names(wanted), wanted);
    assert_null(cors_names(NULL));
    assert_null(cors_names(""));
    assert_null(cors_names("a\r\nSet-Cookie: x"));
    assert_null(cors_names("a;b"));
    char longest[CORS_NAMES_BYTES_MAX + 2];
    memset(longest, 'a', sizeof longest);
    longest[CORS_NAMES_BYTES_MAX + 1] = '\0';
    assert_null(cors_names(longest));
    assert_non_null(cors_names(longest + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lists), cmocka_unit_test(answers),
                                       cmocka_unit_test(names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
