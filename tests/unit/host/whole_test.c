/* SPDX-License-Identifier: Apache-2.0 */
/* All bytes of a range of a file, or why not. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "host/whole.h"

static void reads_what_was_written(void **state)
{
    (void)state;
    FILE *file = tmpfile();
    char back[8] = "", text[] = "0123456";
    assert_non_null(file);
    assert_true(whole_write(fileno(file), 1000, text, sizeof text));
    assert_true(whole_read(fileno(file), 1000, back, sizeof text));
    assert_memory_equal(back, text, sizeof text);
    assert_true(whole_read(fileno(file), 1u << 30, back, 0));
    fclose(file);
}

static void says_why_not(void **state)
{
    (void)state;
    FILE *file = tmpfile();
    char bytes[8] = "";
    assert_non_null(file);
    assert_true(whole_write(fileno(file), 0, "abcd", 4));
    errno = EIO;
    assert_false(whole_read(fileno(file), 1, bytes, 4));
    assert_int_equal(errno, 0); /* it ends too early */
    assert_false(whole_read(-1, 0, bytes, 1));
    assert_int_equal(errno, EBADF);
    assert_false(whole_write(-1, 0, bytes, 1));
    assert_int_equal(errno, EBADF);
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads_what_was_written),
                                       cmocka_unit_test(says_why_not)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
