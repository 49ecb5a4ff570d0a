/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/host_name.h"

static void addresses_and_localhost(void **state)
{
    (void)state;
    static const char *const known[] = {"127.0.0.1",       "127.0.0.1:8080",  "192.168.1.20:80",
                                        "[::1]",           "[::1]:8080",      "localhost",
                                        "localhost:8080",  "LocalHost:1",     "localhost.",
                                        "localhost.:8080", "me.localhost:8",  "",
                                        "[fe80::1]:8080",  "[::ffff:1.2.3.4]"};
    static const char *const strange[] = {"evil.example",
                                          "evil.example:8080",
                                          "localhost.evil.example",
                                          "notlocalhost",
                                          "127.0.0.1.evil.example",
                                          "127.0.0.1.nip.io:8080",
                                          "1.2.3",
                                          "1.2.3.4.5",
                                          "1.2.3.",
                                          "1..2.3",
                                          "1.2.3.4567",
                                          "x",
                                          "[::1",
                                          "[evil.example]",
                                          "[]",
                                          ":8080",
                                          ".",
                                          "evil.example@localhost"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        assert_true(host_name_is_known(known[i], "", NULL));
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++)
        assert_false(host_name_is_known(strange[i], "", NULL));
    assert_true(host_name_is_known(NULL, "", NULL));
}

static void names_of_the_operator(void **state)
{
    (void)state;
    static const char cors[] = "https://chat.example,http://Other.example:3000,app://x";
    assert_true(host_name_is_known("desk.home:8080", "desk.home", NULL));
    assert_false(host_name_is_known("desk.home.evil.example:8080", "desk.home", NULL));
    assert_true(host_name_is_known("chat.example", "", cors));
    assert_true(host_name_is_known("CHAT.example:443", "", cors));
    assert_true(host_name_is_known("other.example", "", cors));
    assert_true(host_name_is_known("x:1", "", cors));
    assert_false(host_name_is_known("chat.example.org", "", cors));
    assert_false(host_name_is_known("hat.example", "", cors));
    assert_false(host_name_is_known("https", "", cors));
    assert_true(host_name_is_known("evil.example", "", "*"));
    assert_false(host_name_is_known("x", "", "nothing,that://"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(addresses_and_localhost),
                                              cmocka_unit_test(names_of_the_operator)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
