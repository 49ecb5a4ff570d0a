/* SPDX-License-Identifier: Apache-2.0 */
/* Key files: what is one, what is none, who may read it; and that a key is compared whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/key.h"

static char path[64];

static void write_file(const char *bytes, size_t count, mode_t mode)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, count, f), count);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static Error read_back(const char *bytes, size_t count, char out[KEY_BYTES_MAX + 1], Why *warning)
{
    Why why;
    write_file(bytes, count, 0600);
    return key_read(path, out, warning, &why);
}

static void one_newline_does_not_count(void **state)
{
    (void)state;
    char key[KEY_BYTES_MAX + 1];
    Why warning;
    static const char *const same[] = {"abcdefgh", "abcdefgh\n", "abcdefgh\r\n"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(read_back(same[i], strlen(same[i]), key, &warning), OK);
        assert_string_equal(key, "abcdefgh");
        assert_string_equal(warning.text, "");
    }
}

static void what_is_no_key(void **state)
{
    (void)state;
    char key[KEY_BYTES_MAX + 1], large[KEY_BYTES_MAX + 2];
    Why warning, why;
    static const char *const bad[] = {"",          "\n",         "short",      "abcdefgh\n\n",
                                      "abcd efgh", "abc\tdefgh", "abcdefg\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(read_back(bad[i], strlen(bad[i]), key, &warning), ERR_FORMAT);
    assert_int_equal(read_back("abcdefg\0hijkl", 13, key, &warning), ERR_FORMAT);
    memset(large, 'k', sizeof large);
    assert_int_equal(read_back(large, KEY_BYTES_MAX, key, &warning), OK);
    assert_int_equal(read_back(large, KEY_BYTES_MAX + 1, key, &warning), ERR_FORMAT);
    assert_int_equal(key_read("/nonexistent/key", key, &warning, &why), ERR_IO);
    assert_int_equal(key_read("/", key, &warning, &why), ERR_IO);
}

static void others_may_not_read_it(void **state)
{
    (void)state;
    char key[KEY_BYTES_MAX + 1];
    Why warning, why;
    static const mode_t open_to_others[] = {0644, 0640, 0604, 0660};
    for (size_t i = 0; i < 4; i++) {
        write_file("abcdefgh", 8, open_to_others[i]);
        assert_int_equal(key_read(path, key, &warning, &why), OK);
        assert_non_null(strstr(warning.text, "chmod 600"));
    }
}

static void the_group_of_a_mounted_secret_may_read_it(void **state)
{
    (void)state;
    char key[KEY_BYTES_MAX + 1];
    Why warning, why;
    if (geteuid() != 0) skip(); /* only root gives files away */
    static const struct {
        mode_t mode;
        bool warns;
    } cases[] = {{0440, false}, {0640, false}, {0444, true}, {0660, true}};
    for (size_t i = 0; i < 4; i++) {
        write_file("abcdefgh", 8, cases[i].mode);
        assert_int_equal(chown(path, 1, 0), 0);
        assert_int_equal(key_read(path, key, &warning, &why), OK);
        assert_int_equal(strstr(warning.text, "chmod 600") != NULL, cases[i].warns);
    }
    assert_int_equal(unlink(path), 0);
}

static void a_made_key_is_new_and_private(void **state)
{
    (void)state;
    char first[KEY_BYTES_MAX + 1], second[KEY_BYTES_MAX + 1];
    Why warning, why;
    struct stat about;
    (void)unlink(path);
    assert_int_equal(key_make(path, first, &why), OK);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    assert_int_equal(key_make(path, second, &why), ERR_DUPLICATE);
    assert_int_equal(key_read(path, second, &warning, &why), OK);
    assert_string_equal(first, second);
    (void)unlink(path);
    assert_int_equal(key_make(path, second, &why), OK);
    assert_string_not_equal(first, second);
}

/* Its target may be a mistake: nothing is made there, and the link is named. */
static void link_to_nothing(void **state)
{
    (void)state;
    char key[KEY_BYTES_MAX + 1];
    Why warning, why;
    (void)unlink(path);
    assert_int_equal(symlink("/nonexistent/key", path), 0);
    assert_int_equal(key_read(path, key, &warning, &why), ERR_IO);
    assert_non_null(strstr(why.text, "a link to a file that is not there"));
    assert_int_equal(key_make(path, key, &why), ERR_DUPLICATE);
    assert_non_null(strstr(why.text, "a link to a file that is not there"));
    assert_non_null(strstr(why.text, path));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(key_read(path, key, &warning, &why), ERR_IO);
    assert_null(strstr(why.text, "a link"));
}

int main(void)
{
    (void)snprintf(path, sizeof path, "/tmp/cobord-key-test-%d", (int)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_newline_does_not_count),
        cmocka_unit_test(what_is_no_key),
        cmocka_unit_test(others_may_not_read_it),
        cmocka_unit_test(the_group_of_a_mounted_secret_may_read_it),
        cmocka_unit_test(a_made_key_is_new_and_private),
        cmocka_unit_test(link_to_nothing),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(path);
    return failed;
}
