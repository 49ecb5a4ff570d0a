/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of an answer's head: kept as they are, or refused when they could break the head. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "serve/answer_headers.h"

static void keeps_lines_in_order(void **state)
{
    AnswerHeaders h = {0};
    (void)state;
    assert_true(answer_headers_add(&h, "ETag: \"1\""));
    assert_true(answer_headers_add(&h, "Vary: Origin"));
    assert_string_equal(h.text, "ETag: \"1\"\nVary: Origin\n");
    assert_int_equal(h.bytes, strlen(h.text));
    answer_headers_free(&h);
    assert_null(h.text);
}

static void refuses_what_is_no_line(void **state)
{
    static const char *const lines[] = {"",           ": x",    "Name",   "Name:x", "A: b\r\nC: d",
                                        "A: b\nC: d", "A b: c", "A: \x7f"};
    AnswerHeaders h = {0};
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        assert_false(answer_headers_add(&h, lines[i]));
    assert_null(h.text);
}

static void is_limited(void **state)
{
    char line[1026];
    AnswerHeaders h = {0};
    (void)state;
    memset(line, 'a', sizeof line);
    line[1] = ':', line[2] = ' ', line[1023] = '\0';
    for (int i = 0; i < 3; i++) assert_true(answer_headers_add(&h, line));
    line[1022] = '\0'; /* the last byte is the NUL's */
    assert_true(answer_headers_add(&h, line));
    assert_false(answer_headers_add(&h, "A: b"));
    assert_int_equal(h.bytes, ANSWER_HEADERS_BYTES_MAX - 1);
    answer_headers_free(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(keeps_lines_in_order),
                                       cmocka_unit_test(refuses_what_is_no_line),
                                       cmocka_unit_test(is_limited)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
