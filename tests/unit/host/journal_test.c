/* SPDX-License-Identifier: Apache-2.0 */
/* What a coordinator wrote is there after it was killed; what is not its own is not found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/journal.h"
#include "host/places.h"

static char directory[] = "/tmp/cobord-journal-XXXXXX", path[128];
static Why why;

static int make_directory(void **state)
{
    (void)state;
    if (!mkdtemp(directory)) return 1;
    snprintf(path, sizeof path, "%s/deep/er/journal.db", directory);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    places_remove(directory);
    return 0;
}

static Journal *open_journal(uint64_t knot_id)
{
    Journal *j = NULL;
    assert_int_equal(journal_open(path, knot_id, &j, &why), OK);
    return j;
}

static void begin(Journal *j, const char *name, uint64_t created_s, const char *body)
{
    JournalStream s = {.kind = 1,
                       .created_s = created_s,
                       .seed = UINT64_MAX - 4,
                       .body = (uint8_t *)(uintptr_t)body,
                       .body_bytes = strlen(body)};
    journal_begin(j, name, &s);
}

static void test_killed_and_back(void **state)
{
    (void)state;
    uint64_t now = (uint64_t)time(NULL);
    pid_t child = fork();
    if (child == 0) {
        Journal *j = open_journal(7);
        begin(j, "a", now, "{\"x\":1}");
        for (uint32_t i = 0; i < 1000; i++) {
            journal_token(j, "a", i % 2, i / 2, 3 * i);
            if (i % 10 == 9) journal_settle(j);
        }
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    Journal *j = open_journal(7);
    JournalStream s;
    assert_int_equal(journal_load(j, "a", &s, &why), OK);
    assert_int_equal(s.kind, 1);
    assert_true(s.created_s == now && s.seed == UINT64_MAX - 4);
    assert_int_equal(s.body_bytes, 7);
    assert_memory_equal(s.body, "{\"x\":1}", 7);
    for (uint32_t answer = 0; answer < 2; answer++) {
        assert_int_equal(s.token_counts[answer], 500);
        for (uint32_t i = 0; i < 500; i++)
            assert_int_equal(s.tokens[answer][i], 3 * (2 * i + answer));
    }
    journal_free(&s);
    struct stat facts;
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0600);
    journal_close(j);
}

static void test_twice_and_gaps(void **state)
{
    (void)state;
    Journal *j = open_journal(7);
    begin(j, "b", (uint64_t)time(NULL), "");
    begin(j, "b", (uint64_t)time(NULL), "another");
    journal_token(j, "b", 0, 0, 11);
    journal_token(j, "b", 0, 0, 11);
    journal_token(j, "b", 0, 1, 12);
    journal_token(j, "b", 0, 3, 14);
    journal_token(j, "b", 0, 4, JOURNAL_END);
    journal_token(j, "b", 1, 0, 21);
    journal_token(j, "b", 1, 1, JOURNAL_END);
    journal_token(j, "b", 2, 0, JOURNAL_END);
    JournalStream s;
    assert_int_equal(journal_load(j, "b", &s, &why), OK);
    assert_int_equal(s.body_bytes, 0);
    assert_int_equal(s.token_counts[0], 2);
    assert_int_equal(s.tokens[0][1], 12);
    assert_int_equal(s.token_counts[1], 1);
    assert_int_equal(s.token_counts[2], 0);
    assert_true(!s.ended[0] && s.ended[1] && s.ended[2] && !s.ended[3]);
    journal_free(&s);
    journal_close(j);
}

/* One more than it keeps: the oldest is forgotten when the next stream begins. */
static void test_most_streams(void **state)
{
    (void)state;
    uint64_t now = (uint64_t)time(NULL);
    char name[32];
    Journal *j = open_journal(7);
    for (uint32_t i = 0; i <= JOURNAL_STREAMS_MAX; i++) {
        (void)snprintf(name, sizeof name, "s%u", i);
        begin(j, name, now - 1000 + (i > 0) + (i > 1), "{}");
    }
    journal_close(j);
    j = open_journal(7); /* what is too much is looked for once a minute, and at first */
    begin(j, "next", now, "{}");
    JournalStream s;
    assert_int_equal(journal_load(j, "s0", &s, &why), ERR_NOT_FOUND);
    for (uint32_t i = 1; i <= JOURNAL_STREAMS_MAX; i += JOURNAL_STREAMS_MAX - 1) {
        (void)snprintf(name, sizeof name, "s%u", i);
        assert_int_equal(journal_load(j, name, &s, &why), OK);
        journal_free(&s);
    }
    journal_close(j);
}

static void test_not_found(void **state)
{
    (void)state;
    Journal *j = open_journal(8);
    JournalStream s;
    assert_int_equal(journal_load(j, "a", &s, &why), ERR_NOT_FOUND); /* another knot's */
    assert_int_equal(journal_load(j, "' OR 1=1 --", &s, &why), ERR_NOT_FOUND);
    journal_close(j);
    j = open_journal(7);
    begin(j, "old", (uint64_t)time(NULL) - JOURNAL_KEEP_S - 10, "");
    journal_token(j, "old", 0, 0, 1);
    journal_close(j);
    j = open_journal(7); /* the next request sweeps */
    begin(j, "new", (uint64_t)time(NULL), "");
    assert_int_equal(journal_load(j, "old", &s, &why), ERR_NOT_FOUND);
    assert_int_equal(journal_load(j, "new", &s, &why), OK);
    journal_free(&s);
    journal_close(j);
}

static void test_strange_files(void **state)
{
    (void)state;
    Journal *j = NULL;
    char other[128];
    snprintf(other, sizeof other, "%s/other", directory);
    FILE *f = fopen(other, "w");
    assert_non_null(f);
    for (int i = 0; i < 100; i++) fputs("this is not a database\n", f);
    fclose(f);
    assert_int_not_equal(journal_open(other, 7, &j, &why), OK);
    assert_non_null(strstr(why.text, other));
    assert_int_equal(journal_open(directory, 7, &j, &why), ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_most_streams), /* first: the file is empty */
        cmocka_unit_test(test_killed_and_back), cmocka_unit_test(test_twice_and_gaps),
        cmocka_unit_test(test_not_found), cmocka_unit_test(test_strange_files)};
    return cmocka_run_group_tests_name("journal", tests, make_directory, remove_directory);
}
