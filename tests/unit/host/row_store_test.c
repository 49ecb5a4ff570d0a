/* SPDX-License-Identifier: Apache-2.0 */
/* Rows come back as they were put, or not at all; what is bad goes away; nothing waits for a dead server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <sqlite3.h>

#include "host/row_store.h"

enum { HIDDEN = 96, VALUE_BYTES = HIDDEN * 4 + 8 };
static const uint64_t knot = 0x0123456789abcdefu;

static char folder[64], where[128], path[112];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/cobord-rows-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    (void)snprintf(path, sizeof path, "%s/rows.sqlite", folder);
    (void)snprintf(where, sizeof where, "sqlite:%s", path);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    static const char *const names[] = {"rows.sqlite", "rows.sqlite-wal", "rows.sqlite-shm",
                                        "other"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char name[160];
        (void)snprintf(name, sizeof name, "%s/%s", folder, names[i]);
        (void)unlink(name);
    }
    return rmdir(folder);
}

static RowStore *opened(uint64_t id)
{
    RowStore *s = NULL;
    Why why = {{0}};
    Error error = row_store_open(where, id, HIDDEN, &s, &why);
    if (error != OK) print_error("%s\n", why.text);
    assert_int_equal(error, OK);
    return s;
}

static void fill(float *values, uint32_t row)
{
    for (uint32_t i = 0; i < HIDDEN; i++) values[i] = (float)row * 0.25f - (float)i;
}

static void put(RowStore *s, uint32_t row)
{
    float values[HIDDEN];
    fill(values, row);
    row_store_put(s, row, values);
}

/* Whether the row is there, and then right. */
static bool has(RowStore *s, uint32_t row)
{
    float got[HIDDEN], wanted[HIDDEN];
    bool found = true;
    memset(got, 0x55, sizeof got);
    row_store_get(s, &row, 1, got, &found);
    fill(wanted, row);
    if (found) assert_memory_equal(got, wanted, sizeof wanted);
    return found;
}

/* A number that one statement over the file gives. */
static int64_t ask(const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *q;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    (void)sqlite3_busy_timeout(db, 2000);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &q, NULL), SQLITE_OK);
    int64_t value =
        sqlite3_step(q) == SQLITE_ROW ? sqlite3_column_int64(q, 0) : sqlite3_changes(db);
    assert_int_equal(sqlite3_finalize(q), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return value;
}

static void rows_come_back(void **state)
{
    (void)state;
    RowStore *s = opened(knot);
    enum { COUNT = 700 }; /* more than one batch */
    static float out[COUNT][HIDDEN];
    static bool found[COUNT];
    uint32_t rows[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        rows[i] = i * 7;
        if (i % 3) put(s, rows[i]);
    }
    assert_false(has(s, 7)); /* not before it is settled */
    row_store_settle(s);
    row_store_get(s, rows, COUNT, out[0], found);
    for (uint32_t i = 0; i < COUNT; i++) {
        float wanted[HIDDEN];
        fill(wanted, rows[i]);
        assert_int_equal(found[i], i % 3 != 0);
        if (found[i]) assert_memory_equal(out[i], wanted, sizeof wanted);
    }
    RowStoreCounters c = row_store_counters(s);
    assert_int_equal(c.hits, 466);
    assert_int_equal(c.misses, 1 + 234);
    assert_int_equal(c.writes, 466);
    assert_int_equal(c.bad + c.failures, 0);
    row_store_close(s);
    s = opened(knot); /* it outlives the process */
    assert_true(has(s, 7));
    RowStore *other = opened(knot + 1); /* another model's rows are not ours */
    assert_false(has(other, 7));
    put(other, 7);
    row_store_settle(other);
    put(s, 21); /* two at one file */
    row_store_settle(s);
    assert_true(has(other, 7));
    row_store_close(other);
    row_store_close(s);
    assert_int_equal(
        ask("SELECT count(*) FROM entries WHERE key = 'cobord:row:0123456789abcdef:7'"), 1);
    assert_int_equal(
        ask("SELECT count(*) FROM entries WHERE key = 'cobord:row:0123456789abcdf0:7'"), 1);
}

static void other_widths_are_bad(void **state)
{
    (void)state;
    RowStore *s = opened(knot);
    put(s, 5);
    row_store_close(s);
    assert_int_equal(row_store_open(where, knot, HIDDEN * 2, &s, NULL), OK);
    float out[HIDDEN * 2];
    bool found;
    row_store_get(s, &(uint32_t){5}, 1, out, &found);
    assert_false(found);
    assert_int_equal(row_store_counters(s).bad, 1);
    row_store_close(s);
}

/* What somebody else wrote there is found out, counted and gone after the next settle. */
static void bad_entries_go_away(void **state)
{
    (void)state;
    static const char *const harm[] = {
        "UPDATE entries SET value = substr(value, 1, length(value) - 4)",
        "UPDATE entries SET value = x''",
        "UPDATE entries SET value = value || x'00000000'",
        "UPDATE entries SET value = zeroblob(length(value))",
        "UPDATE entries SET value = 'text'",
        "UPDATE entries SET value = 17",
        "UPDATE entries SET value = zeroblob(50000000)",
        "UPDATE entries SET value = substr(value, 1, 100) || x'ff' || substr(value, 102)",
    };
    uint64_t bad = 0;
    RowStore *s = opened(knot);
    for (size_t i = 0; i < sizeof harm / sizeof harm[0]; i++) {
        put(s, 3);
        row_store_settle(s);
        assert_true(has(s, 3));
        assert_int_equal(ask(harm[i]), 1);
        assert_false(has(s, 3));
        assert_int_equal(row_store_counters(s).bad, ++bad);
        assert_int_equal(ask("SELECT count(*) FROM entries"), 1); /* the deletion waits */
        row_store_settle(s);
        assert_int_equal(ask("SELECT count(*) FROM entries"), 0);
        assert_false(has(s, 3));
        assert_int_equal(row_store_counters(s).bad, bad);
    }
    assert_int_equal(row_store_counters(s).failures, 0);
    row_store_close(s);
}

static void entries_expire(void **state)
{
    (void)state;
    RowStore *s = opened(knot);
    for (uint32_t row = 0; row < 600; row++) put(s, row);
    row_store_close(s);
    int64_t day = 24 * 60 * 60, now = time(NULL);
    int64_t least = ask("SELECT min(expires) FROM entries");
    assert_true(least >= now + day - 60 && least <= now + day);
    char sql[128];
    (void)snprintf(sql, sizeof sql, "UPDATE entries SET expires = %lld WHERE rowid <= 590",
                   (long long)now - 1);
    assert_int_equal(ask(sql), 590);
    s = opened(knot);
    assert_false(has(s, 0)); /* expired, though still in the file */
    assert_true(has(s, 599));
    row_store_settle(s); /* a bounded number each time */
    int64_t left = ask("SELECT count(*) FROM entries");
    assert_true(left > 10 && left < 600);
    row_store_settle(s);
    row_store_settle(s);
    assert_int_equal(ask("SELECT count(*) FROM entries"), 10);
    assert_true(has(s, 599));
    row_store_close(s);
}

static void deletes_and_puts_keep_their_order(void **state)
{
    (void)state;
    RowStore *s = opened(knot);
    for (uint32_t row = 1; row <= 4; row++) put(s, row);
    put(s, 2);
    row_store_delete(s, 2); /* takes both puts back */
    row_store_settle(s);
    assert_true(has(s, 1));
    assert_false(has(s, 2));
    assert_true(has(s, 3) && has(s, 4));
    row_store_delete(s, 3);
    put(s, 3); /* later, so it stays */
    row_store_settle(s);
    assert_true(has(s, 3));
    row_store_delete(s, 3);
    row_store_close(s); /* settles */
    s = opened(knot);
    assert_false(has(s, 3));
    row_store_close(s);
}

static void what_waits_is_bounded(void **state)
{
    (void)state;
    enum { WIDE = 1 << 18 }; /* a megabyte a row */
    RowStore *s;
    float *row = calloc(WIDE, sizeof *row);
    assert_non_null(row);
    assert_int_equal(row_store_open(where, knot, WIDE, &s, NULL), OK);
    for (uint32_t i = 0; i < 20; i++) row_store_put(s, i, row);
    assert_int_equal(row_store_counters(s).failures, 13);
    for (uint32_t i = 0; i < 5000; i++) row_store_delete(s, i + 100);
    assert_int_equal(row_store_counters(s).failures, 13 + 904);
    row_store_settle(s);
    assert_int_equal(row_store_counters(s).writes, 7);
    row_store_close(s);
    free(row);
}

/* A file that cannot be written any more costs hits, not answers. */
static void a_broken_file_is_a_miss(void **state)
{
    (void)state;
    RowStore *s = opened(knot);
    put(s, 1);
    row_store_settle(s);
    assert_int_equal(ask("DROP TABLE entries"), 0);
    assert_false(has(s, 1));
    put(s, 1);
    row_store_settle(s);
    assert_int_equal(row_store_counters(s).failures, 2);
    row_store_close(s);
}

static void addresses_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *where;
        Error error;
    } cases[] = {
        {"", ERR_USAGE},
        {"memcached:x", ERR_USAGE},
        {"sqlite:", ERR_USAGE},
        {"redis://", ERR_USAGE},
        {"redis://h:0", ERR_USAGE},
        {"redis://h:65536", ERR_USAGE},
        {"redis://h:99999999999999999999", ERR_USAGE},
        {"redis://h:1/x", ERR_USAGE},
        {"redis://h:1/1x", ERR_USAGE},
        {"redis://[::1", ERR_USAGE},
        {"redis://:secret@h:1", ERR_USAGE},
        {"sqlite:/nonexistent/folder/x", ERR_IO},
        {"sqlite:/", ERR_IO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        RowStore *s = NULL;
        Why why = {{0}};
        assert_int_equal(row_store_open(cases[i].where, knot, HIDDEN, &s, &why), cases[i].error);
        assert_true(why.text[0] != 0);
        assert_null(strstr(why.text, "secret"));
    }
    RowStore *s = NULL;
    assert_int_equal(row_store_open(where, knot, 0, &s, NULL), ERR_RANGE);
    assert_int_equal(row_store_open(where, knot, UINT32_MAX, &s, NULL), ERR_RANGE);
    assert_int_equal(row_store_open("redis://[::1]:7/3", knot, HIDDEN, &s, NULL), OK);
    row_store_close(s);
    char other[128], other_where[144];
    (void)snprintf(other, sizeof other, "%s/other", folder);
    (void)snprintf(other_where, sizeof other_where, "sqlite:%s", other);
    FILE *f = fopen(other, "w");
    assert_non_null(f);
    for (int i = 0; i < 300; i++) fputs("this is not a database\n", f);
    fclose(f);
    assert_int_equal(row_store_open(other_where, knot, HIDDEN, &s, NULL), ERR_IO);
    struct stat state_of;
    assert_int_equal(stat(other, &state_of), 0); /* left as it was */
    assert_int_equal(state_of.st_size, 300 * 23);
}

/* ---- who may read it ---- */

static const char *const endings[] = {"", "-wal", "-shm"};

static const char *file_of(int i)
{
    static char name[160];
    (void)snprintf(name, sizeof name, "%s%s", path, endings[i]);
    return name;
}

/* Which rows there are tells which words were used: also in files that an earlier program made, and may be using, but
 * not in those that their owner lets others write. */
static void rows_are_their_owners(void **state)
{
    (void)state;
    static const mode_t cases[][2] = {{0644, 0600}, {0640, 0600}, {0604, 0600},
                                      {0600, 0600}, {0660, 0660}, {0664, 0664}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        RowStore *running = opened(knot);
        put(running, 3);
        row_store_settle(running);
        for (int file = 0; file < 3; file++) assert_int_equal(chmod(file_of(file), cases[i][0]), 0);
        RowStore *s = opened(knot);
        assert_true(has(s, 3));
        for (int file = 0; file < 3; file++) {
            struct stat about;
            assert_int_equal(stat(file_of(file), &about), 0);
            assert_int_equal(about.st_mode & 0777, cases[i][1]);
        }
        row_store_close(s);
        row_store_close(running);
    }
}

/* ---- a Redis that misbehaves ---- */

typedef struct Fake {
    int listener, port;
    const char *answer; /* sent for whatever comes */
    size_t answer_bytes, times;
    bool hold; /* then keeps the connection open */
    pthread_t thread;
} Fake;

static void *fake_serve(void *context)
{
    Fake *f = context;
    for (;;) {
        int c = accept(f->listener, NULL, NULL);
        if (c < 0) return NULL;
        char buffer[4096];
        (void)!read(c, buffer, sizeof buffer);
        for (size_t i = 0; i < f->times; i++)
            if (send(c, f->answer, f->answer_bytes, MSG_NOSIGNAL) < 0) break;
        while (f->hold && read(c, buffer, sizeof buffer) > 0) continue;
        close(c);
    }
}

static void fake_start(Fake *f)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof a;
    f->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(f->listener, (void *)&a, sizeof a), 0);
    assert_int_equal(listen(f->listener, 8), 0);
    assert_int_equal(getsockname(f->listener, (void *)&a, &length), 0);
    f->port = ntohs(a.sin_port);
    assert_int_equal(pthread_create(&f->thread, NULL, fake_serve, f), 0);
}

static void fake_stop(Fake *f)
{
    (void)shutdown(f->listener, SHUT_RDWR);
    pthread_join(f->thread, NULL);
    close(f->listener);
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A get against such a server: a miss, in time, and the next one at once. */
static RowStoreCounters meet(Fake *f)
{
    fake_start(f);
    char address[64];
    RowStore *s;
    (void)snprintf(address, sizeof address, "redis://127.0.0.1:%d", f->port);
    assert_int_equal(row_store_open(address, knot, HIDDEN, &s, NULL), OK);
    int64_t start = now_ms();
    assert_false(has(s, 1));
    assert_true(now_ms() - start < 3000);
    start = now_ms();
    put(s, 1);
    row_store_settle(s);
    assert_false(has(s, 2));
    assert_true(now_ms() - start < 3000);
    RowStoreCounters counters = row_store_counters(s);
    row_store_close(s);
    fake_stop(f);
    return counters;
}

static void hostile_servers(void **state)
{
    (void)state;
    static char zeros[1 << 20];
    static const char huge[] = "$536870912\r\n";
    static char flood[(1 << 20) + sizeof huge];
    memcpy(flood, huge, sizeof huge - 1);
    Fake fakes[] = {
        {.answer = "", .answer_bytes = 0, .times = 0},               /* hangs up */
        {.answer = "", .answer_bytes = 0, .times = 0, .hold = true}, /* says nothing */
        {.answer = "HTTP/1.1 400 Bad Request\r\n\r\n", .answer_bytes = 28, .times = 1},
        {.answer = "$-5\r\n", .answer_bytes = 5, .times = 1, .hold = true},
        {.answer = "*1000000000\r\n", .answer_bytes = 13, .times = 1, .hold = true},
        {.answer = "$99999999999999999999\r\n", .answer_bytes = 23, .times = 1, .hold = true},
        {.answer = zeros, .answer_bytes = sizeof zeros, .times = 4},
        {.answer = flood, .answer_bytes = sizeof flood, .times = 64}, /* half a gigabyte begins */
        {.answer = "-LOADING dataset\r\n", .answer_bytes = 18, .times = 1, .hold = true},
    };
    for (size_t i = 0; i < sizeof fakes / sizeof fakes[0]; i++) {
        RowStoreCounters c = meet(&fakes[i]);
        assert_true(c.failures >= 1);
        assert_int_equal(c.hits, 0);
    }
    /* Answers that are none, for a key: bad, not a failure. */
    Fake strange = {.answer = ":7\r\n", .answer_bytes = 4, .times = 1, .hold = true};
    assert_true(meet(&strange).bad >= 1);
}

static void nobody_there(void **state)
{
    (void)state;
    RowStore *s;
    assert_int_equal(row_store_open("redis://127.0.0.1:1", knot, HIDDEN, &s, NULL), OK);
    int64_t start = now_ms();
    for (int i = 0; i < 1000; i++) assert_false(has(s, 1)); /* a pause between tries */
    assert_true(now_ms() - start < 2000);
    assert_int_equal(row_store_counters(s).failures, 1000);
    row_store_close(s);
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_come_back, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(other_widths_are_bad, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(bad_entries_go_away, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(entries_expire, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(deletes_and_puts_keep_their_order, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(what_waits_is_bounded, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_broken_file_is_a_miss, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(addresses_are_checked, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(rows_are_their_owners, make_folder, remove_folder),
        cmocka_unit_test(hostile_servers),
        cmocka_unit_test(nobody_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
