/* SPDX-License-Identifier: Apache-2.0 */
/* Names that show only whole files: what killed writers left, two at once, files that must be new, private files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host/file_writer.h"

static char folder[64], place[128];

static const char *at(const char *name)
{
    (void)snprintf(place, sizeof place, "%s/%s", folder, name);
    return place;
}

static int make(const char *name)
{
    int fd = open(at(name), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "half", 4), 4);
    return fd;
}

static bool is_there(const char *name) { return access(at(name), F_OK) == 0; }

static void write_new(const char *name)
{
    FileWriter w;
    Why why;
    assert_int_equal(file_writer_open(&w, at(name), 0, &why), OK);
    assert_int_equal(file_writer_append(&w, "whole", 5, &why), OK);
    assert_int_equal(file_writer_commit(&w, &why), OK);
}

static void assert_holds(const char *name, const char *text)
{
    char found[16] = {0};
    int fd = open(at(name), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(read(fd, found, sizeof found - 1) >= 0);
    assert_string_equal(found, text);
    (void)close(fd);
}

static int start(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/cobord-file-writer-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) (void)unlinkat(dirfd(d), e->d_name, 0);
    if (d) (void)closedir(d);
    return rmdir(folder);
}

/* Only files of this very name, and only those that nobody writes. */
static void what_was_left_goes(void **state)
{
    (void)state;
    static const char *const others[] = {".b.7.part",    ".a.7x.part", ".a.part", "a.7.part",
                                         ".a.7.part.gz", ".aa.7.part", ".a..part"};
    (void)close(make(".a.7.part"));
    (void)close(make(".a.12345.part"));
    int busy = make(".a.8.part");
    assert_int_equal(flock(busy, LOCK_EX), 0);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) (void)close(make(others[i]));
    assert_int_equal(symlink("/nonexistent", at(".a.9.part")), 0);
    write_new("a");
    assert_holds("a", "whole");
    assert_false(is_there(".a.7.part") || is_there(".a.12345.part"));
    assert_true(is_there(".a.8.part"));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) assert_true(is_there(others[i]));
    (void)close(busy);
    write_new("a");
    assert_false(is_there(".a.8.part"));
}

/* A process of another container may have our number: its half file is not ours, and whose it is nobody's loss. */
static void two_of_one_number(void **state)
{
    (void)state;
    FileWriter first, second;
    Why why;
    assert_int_equal(file_writer_open(&first, at("a"), 0, &why), OK);
    assert_int_equal(file_writer_append(&first, "first", 5, &why), OK);
    assert_int_equal(file_writer_open(&second, at("a"), 0, &why), ERR_IO);
    assert_non_null(strstr(why.text, "another cobord"));
    assert_int_equal(file_writer_commit(&first, &why), OK);
    assert_holds("a", "first");
    write_new("a");
    assert_holds("a", "whole");
}

/* What was there under our own temporary name is taken, without its bytes and without its readers. */
static void a_name_taken_over(void **state)
{
    (void)state;
    char name[32];
    struct stat about;
    FileWriter w;
    Why why;
    (void)snprintf(name, sizeof name, ".a.%ld.part", (long)getpid());
    (void)close(make(name));
    assert_int_equal(chmod(at(name), 0644), 0);
    assert_int_equal(file_writer_open_private(&w, at("a"), &why), OK);
    assert_int_equal(fstat(w.descriptor, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    assert_int_equal(about.st_size, 0);
    assert_int_equal(file_writer_append(&w, "x", 1, &why), OK);
    assert_int_equal(file_writer_commit(&w, &why), OK);
    assert_holds("a", "x");
}

static void *let_go_later(void *held)
{
    const struct timespec pause = {0, 300000000};
    (void)nanosleep(&pause, NULL);
    (void)flock(*(int *)held, LOCK_UN);
    return NULL;
}

/* Somebody made a file of our temporary name before us, holds its lock until we have looked, and would read along. */
static void nobody_reads_along(void **state)
{
    (void)state;
    char name[32];
    struct stat theirs, written;
    pthread_t thread;
    FileWriter w;
    Why why;
    (void)snprintf(name, sizeof name, ".s.%ld.part", (long)getpid());
    int held = make(name);
    assert_int_equal(flock(held, LOCK_EX), 0);
    assert_int_equal(pthread_create(&thread, NULL, let_go_later, &held), 0);
    assert_int_equal(file_writer_open_private(&w, at("s"), &why), OK);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(file_writer_append(&w, "secret", 6, &why), OK);
    assert_int_equal(file_writer_commit(&w, &why), OK);
    assert_holds("s", "secret");
    assert_int_equal(stat(at("s"), &written), 0);
    assert_int_equal(fstat(held, &theirs), 0);
    assert_true(theirs.st_ino != written.st_ino);
    assert_int_equal(theirs.st_size, 4);
    (void)close(held);
}

/* A link of our temporary name leads somewhere else, and what is not ours to remove is named. */
static void a_link_is_not_followed(void **state)
{
    (void)state;
    char name[32];
    FileWriter w;
    Why why;
    (void)snprintf(name, sizeof name, ".l.%ld.part", (long)getpid());
    (void)close(make("elsewhere"));
    assert_int_equal(symlink("elsewhere", at(name)), 0);
    assert_int_equal(file_writer_open_private(&w, at("l"), &why), ERR_IO);
    assert_non_null(strstr(why.text, name));
    assert_holds("elsewhere", "half");
}

static void only_when_new(void **state)
{
    (void)state;
    FileWriter one, other;
    Why why;
    assert_int_equal(file_writer_open_private(&one, at("k"), &why), OK);
    assert_int_equal(file_writer_append(&one, "one", 3, &why), OK);
    (void)close(make("k")); /* somebody was faster */
    assert_int_equal(file_writer_commit_new(&one, &why), ERR_DUPLICATE);
    assert_holds("k", "half");
    assert_int_equal(unlink(at("k")), 0);
    assert_int_equal(file_writer_open_private(&other, at("k"), &why), OK);
    assert_int_equal(file_writer_append(&other, "other", 5, &why), OK);
    assert_int_equal(file_writer_commit_new(&other, &why), OK);
    assert_holds("k", "other");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_left_goes, start, end),
        cmocka_unit_test_setup_teardown(two_of_one_number, start, end),
        cmocka_unit_test_setup_teardown(a_name_taken_over, start, end),
        cmocka_unit_test_setup_teardown(nobody_reads_along, start, end),
        cmocka_unit_test_setup_teardown(a_link_is_not_followed, start, end),
        cmocka_unit_test_setup_teardown(only_when_new, start, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
