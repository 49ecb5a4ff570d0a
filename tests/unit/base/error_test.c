/* SPDX-License-Identifier: Apache-2.0 */
/* The error list and the bounded formatter of Why. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"

static void numbers_are_unique_and_in_their_class(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int number;
    } list[] = {
#define ENTRY(name, number, text) {#name, number},
        ERROR_LIST(ENTRY)
#undef ENTRY
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        assert_in_range(list[i].number, 0, 299);
        for (size_t j = 0; j < i; j++) assert_int_not_equal(list[i].number, list[j].number);
    }
    /* Numbers are stable: they are written into journals and frames. */
    assert_int_equal(ERR_MISSING_TENSOR, 104);
    assert_int_equal(ERR_AGAIN, 200);
}

static void every_number_has_a_text(void **state)
{
    (void)state;
    assert_string_equal(error_text(OK), "ok");
    assert_string_equal(error_text(ERR_CHECKSUM), "a checksum does not match");
    assert_string_equal(error_text((Error)77), "unknown error");
    assert_string_equal(error_text((Error)-1), "unknown error");
}

#define EXPECT(expected, ...)                                       \
    do {                                                            \
        Why why;                                                    \
        assert_int_equal(error_why(&why, ERR_RANGE, __VA_ARGS__), ERR_RANGE); \
        assert_string_equal(why.text, expected);                    \
    } while (0)

static void conversions(void **state)
{
    (void)state;
    EXPECT("plain", "plain");
    EXPECT("a b c", "a %s c", "b");
    EXPECT("abc|", "%.*s|", 3, "abcdef");
    EXPECT("|", "%.*s|", -1, "abcdef");
    EXPECT("100%", "100%%");
    EXPECT("x", "%c", 'x');
    EXPECT("-2147483648 2147483647", "%d %d", INT32_MIN, INT32_MAX);
    EXPECT("4294967295 deadbeef", "%u %x", UINT32_MAX, 0xdeadbeefu);
    EXPECT("-9223372036854775808", "%lld", (long long)INT64_MIN);
    EXPECT("18446744073709551615 ffffffffffffffff", "%llu %llx", (unsigned long long)UINT64_MAX,
           (unsigned long long)UINT64_MAX);
    EXPECT("18446744073709551615 -1", "%zu %zd", SIZE_MAX, (ptrdiff_t)-1);
    EXPECT("7 -7", "%lu %ld", 7ul, -7l);
    EXPECT("0", "%u", 0u);
}

static void absent_string(void **state)
{
    (void)state;
    const char *volatile none = NULL; /* hidden, or the compiler warns about what is tested here */
    EXPECT("tensor (none)", "tensor %s", none);
}

/* What comes from a file must not move a cursor, ring a bell or end a line. */
static void unprintable_bytes_are_escaped(void **state)
{
    (void)state;
    EXPECT("\\x1b[2J\\x0a\\x7f\\xff\\x00", "%s%c", "\x1b[2J\n\x7f\xff", 0);
    EXPECT("\\xc3\\xa9", "%s", "\xc3\xa9");
}

static void long_text_is_cut_and_ended(void **state)
{
    (void)state;
    char text[2 * WHY_MAX];
    memset(text, 'y', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    struct {
        Why why;
        char guard[16];
    } out;
    memset(&out, '#', sizeof out);
    assert_int_equal(error_why(&out.why, ERR_FORMAT, "%s%s", text, text), ERR_FORMAT);
    assert_int_equal(strlen(out.why.text), WHY_MAX - 1);
    for (size_t i = 0; i < sizeof out.guard; i++) assert_int_equal(out.guard[i], '#');
}

static void cut_string_is_not_read_beyond_its_bytes(void **state)
{
    (void)state;
    char *exact = malloc(3); /* no terminator: a sanitizer sees a fourth byte read */
    assert_non_null(exact);
    memcpy(exact, "abc", 3);
    EXPECT("abc", "%.*s", 3, exact);
    free(exact);
}

static void nobody_has_to_listen(void **state)
{
    (void)state;
    assert_int_equal(error_why(NULL, ERR_IO, "%s", "unheard"), ERR_IO);
}

static Error returns_early(Error error, int *reached)
{
    TRY(error);
    *reached = 1;
    return OK;
}

static void try_returns_the_first_error(void **state)
{
    (void)state;
    int reached = 0;
    assert_int_equal(returns_early(ERR_SHAPE, &reached), ERR_SHAPE);
    assert_int_equal(reached, 0);
    assert_int_equal(returns_early(OK, &reached), OK);
    assert_int_equal(reached, 1);
}

static void broken_promise_stops_the_process(void **state)
{
    (void)state;
    ASSERT(1 + 1 == 2);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        ASSERT(child != 0);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_unique_and_in_their_class),
        cmocka_unit_test(every_number_has_a_text),
        cmocka_unit_test(conversions),
        cmocka_unit_test(absent_string),
        cmocka_unit_test(unprintable_bytes_are_escaped),
        cmocka_unit_test(long_text_is_cut_and_ended),
        cmocka_unit_test(cut_string_is_not_read_beyond_its_bytes),
        cmocka_unit_test(nobody_has_to_listen),
        cmocka_unit_test(try_returns_the_first_error),
        cmocka_unit_test(broken_promise_stops_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
