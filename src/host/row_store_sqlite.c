/* SPDX-License-Identifier: Apache-2.0 */
/* Rows in an SQLite file: one table, write-ahead log, so that readers never wait for a writer and several processes
 * can share the file. A crash may lose the last writes, never the file (synchronous=NORMAL): it is a cache.
 *
 *   entries(key TEXT PRIMARY KEY, value BLOB, expires INTEGER)       expires: seconds since 1970
 *
 * `PRAGMA user_version` is the version of this table, 1; 0 is what programs wrote before they said so. The file of
 * another version is another program's, perhaps one that runs: it is left alone, and PATH.v1 is used beside it.
 *
 * Small on purpose: 1 MiB of page cache, no mapping, a log of about 4 MiB. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <sqlite3.h>

#include "host/clock.h"
#include "host/log.h"
#include "host/places.h"
#include "host/row_store_backend.h"

enum {
    ROW_STORE_SQLITE_BUSY_MS = 500,     /* another process writes */
    ROW_STORE_SQLITE_MAKING_MS = 15000, /* others make the file, too */
    ROW_STORE_SQLITE_SWEEP = 256,       /* entries a sweep removes at most */
    ROW_STORE_SQLITE_VERSION = 1
};

typedef enum RowStoreSqliteStatement {
    ROW_SQLITE_BEGIN,
    ROW_SQLITE_BEGIN_WRITE,
    ROW_SQLITE_COMMIT,
    ROW_SQLITE_GET,
    ROW_SQLITE_PUT,
    ROW_SQLITE_DELETE,
    ROW_SQLITE_SWEEP,
    ROW_SQLITE_STATEMENTS
} RowStoreSqliteStatement;

static const char *const row_store_sqlite_text[ROW_SQLITE_STATEMENTS] = {
    [ROW_SQLITE_BEGIN] = "BEGIN",
    [ROW_SQLITE_BEGIN_WRITE] = "BEGIN IMMEDIATE",
    [ROW_SQLITE_COMMIT] = "COMMIT",
    [ROW_SQLITE_GET] = "SELECT CASE WHEN typeof(value) = 'blob' AND length(value) = ?3 "
                       "THEN value END FROM entries WHERE key = ?1 AND expires > ?2",
    [ROW_SQLITE_PUT] = "INSERT OR REPLACE INTO entries(key, value, expires) VALUES(?1, ?2, ?3)",
    [ROW_SQLITE_DELETE] = "DELETE FROM entries WHERE key = ?1",
    [ROW_SQLITE_SWEEP] = "DELETE FROM entries WHERE rowid IN "
                         "(SELECT rowid FROM entries WHERE expires <= ?1 LIMIT ?2)",
};

typedef struct RowStoreSqlite {
    sqlite3 *db;
    sqlite3_stmt *statements[ROW_SQLITE_STATEMENTS];
    char path[];
} RowStoreSqlite;

static Error row_store_sqlite_error(const RowStoreSqlite *s, Why *why)
{
    Error error = sqlite3_errcode(s->db) == SQLITE_NOMEM ? ERR_MEMORY : ERR_IO;
    if (sqlite3_errcode(s->db) == SQLITE_FULL) error = ERR_NO_SPACE;
    return error_why(why, error, "%s: %s", s->path, sqlite3_errmsg(s->db));
}

/* Runs a statement that has no rows. */
static Error row_store_sqlite_run(RowStoreSqlite *s, RowStoreSqliteStatement which, Why *why)
{
    sqlite3_stmt *q = s->statements[which];
    Error error = sqlite3_step(q) == SQLITE_DONE ? OK : row_store_sqlite_error(s, why);
    (void)sqlite3_reset(q);
    return error;
}

/* Ends a transaction, also one that the failure has ended already. */
static Error row_store_sqlite_end(RowStoreSqlite *s, Error error, Why *why)
{
    if (error == OK) error = row_store_sqlite_run(s, ROW_SQLITE_COMMIT, why);
    if (error != OK) (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return error;
}

static Error row_store_sqlite_bind_key(RowStoreSqlite *s, sqlite3_stmt *q, const RowKey *key,
                                       Why *why)
{
    int bound = sqlite3_bind_text(q, 1, key->text, -1, SQLITE_STATIC);
    return bound == SQLITE_OK ? OK : row_store_sqlite_error(s, why);
}

/* A value of another length is not even loaded. */
static Error row_store_sqlite_get_one(RowBackend *b, const RowKey *key, uint32_t index,
                                      RowTake take, void *context, Why *why)
{
    RowStoreSqlite *s = b->state;
    sqlite3_stmt *q = s->statements[ROW_SQLITE_GET];
    TRY(row_store_sqlite_bind_key(s, q, key, why));
    (void)sqlite3_bind_int64(q, 2, time(NULL));
    (void)sqlite3_bind_int64(q, 3, (sqlite3_int64)b->value_bytes);
    int step = sqlite3_step(q);
    Error error = OK;
    if (step == SQLITE_ROW) {
        const void *bytes = sqlite3_column_blob(q, 0);
        size_t length = (size_t)sqlite3_column_bytes(q, 0);
        take(context, index, bytes, bytes ? length : SIZE_MAX);
    } else if (step != SQLITE_DONE) {
        error = row_store_sqlite_error(s, why);
    }
    (void)sqlite3_reset(q);
    return error;
}

static Error row_store_sqlite_get(RowBackend *b, const RowKey *keys, uint32_t count, RowTake take,
                                  void *context, Why *why)
{
    RowStoreSqlite *s = b->state;
    TRY(row_store_sqlite_run(s, ROW_SQLITE_BEGIN, why)); /* one look at the file for all of them */
    Error error = OK;
    for (uint32_t i = 0; i < count && error == OK; i++)
        error = row_store_sqlite_get_one(b, &keys[i], i, take, context, why);
    return row_store_sqlite_end(s, error, why);
}

static Error row_store_sqlite_put(RowStoreSqlite *s, const RowKey *key, const uint8_t *value,
                                  size_t bytes, Why *why)
{
    sqlite3_stmt *q = s->statements[ROW_SQLITE_PUT];
    TRY(row_store_sqlite_bind_key(s, q, key, why));
    (void)sqlite3_bind_blob64(q, 2, value, bytes, SQLITE_STATIC);
    (void)sqlite3_bind_int64(q, 3, time(NULL) + ROW_VALUE_TTL_S);
    Error error = row_store_sqlite_run(s, ROW_SQLITE_PUT, why);
    (void)sqlite3_clear_bindings(q);
    return error;
}

static Error row_store_sqlite_write(RowBackend *b, const RowKey *deleted, uint32_t delete_count,
                                    const RowKey *put, const uint8_t *values, uint32_t put_count,
                                    Why *why)
{
    RowStoreSqlite *s = b->state;
    TRY(row_store_sqlite_run(s, ROW_SQLITE_BEGIN_WRITE, why));
    Error error = OK;
    for (uint32_t i = 0; i < delete_count && error == OK; i++) {
        error = row_store_sqlite_bind_key(s, s->statements[ROW_SQLITE_DELETE], &deleted[i], why);
        if (error == OK) error = row_store_sqlite_run(s, ROW_SQLITE_DELETE, why);
    }
    for (uint32_t i = 0; i < put_count && error == OK; i++)
        error = row_store_sqlite_put(s, &put[i], values + i * b->value_bytes, b->value_bytes, why);
    return row_store_sqlite_end(s, error, why);
}

/* ERR_AGAIN: there may be more. */
static Error row_store_sqlite_sweep(RowBackend *b, Why *why)
{
    RowStoreSqlite *s = b->state;
    sqlite3_stmt *q = s->statements[ROW_SQLITE_SWEEP];
    (void)sqlite3_bind_int64(q, 1, time(NULL));
    (void)sqlite3_bind_int(q, 2, ROW_STORE_SQLITE_SWEEP);
    TRY(row_store_sqlite_run(s, ROW_SQLITE_SWEEP, why));
    return sqlite3_changes(s->db) == ROW_STORE_SQLITE_SWEEP ? ERR_AGAIN : OK;
}

static void row_store_sqlite_free(RowStoreSqlite *s)
{
    if (!s) return;
    for (int i = 0; i < ROW_SQLITE_STATEMENTS; i++) (void)sqlite3_finalize(s->statements[i]);
    (void)sqlite3_close(s->db);
    free(s);
}

static void row_store_sqlite_close(RowBackend *b) { row_store_sqlite_free(b->state); }

/* -1: it cannot be read. */
static int row_store_sqlite_version(RowStoreSqlite *s)
{
    sqlite3_stmt *q = NULL;
    int version = -1;
    if (sqlite3_prepare_v2(s->db, "PRAGMA user_version", -1, &q, NULL) == SQLITE_OK &&
        sqlite3_step(q) == SQLITE_ROW)
        version = sqlite3_column_int(q, 0);
    (void)sqlite3_finalize(q);
    return version;
}

static Error row_store_sqlite_prepare(RowStoreSqlite *s, Why *why)
{
    /* auto_vacuum stays off: freed pages are taken again by the next rows. */
    static const char setup[] = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; "
                                "PRAGMA cache_size=-1024; PRAGMA mmap_size=0; "
                                "PRAGMA temp_store=MEMORY; PRAGMA journal_size_limit=4194304; "
                                "PRAGMA trusted_schema=OFF; "
                                "CREATE TABLE IF NOT EXISTS entries(key TEXT PRIMARY KEY, "
                                "value BLOB NOT NULL, expires INTEGER NOT NULL); "
                                "CREATE INDEX IF NOT EXISTS expiry ON entries(expires);";
    /* Several processes may make the file at once, and the change to WAL does not wait for the others by itself. */
    uint64_t until_ms = clock_now_ms() + ROW_STORE_SQLITE_MAKING_MS;
    int result;
    while ((result = sqlite3_exec(s->db, setup, NULL, NULL, NULL)) == SQLITE_BUSY &&
           clock_now_ms() < until_ms)
        (void)sqlite3_sleep(10);
    if (result == SQLITE_OK && row_store_sqlite_version(s) == 0)
        result = sqlite3_exec(s->db, "PRAGMA user_version = 1", NULL, NULL, NULL);
    if (result != SQLITE_OK) return row_store_sqlite_error(s, why);
    for (int i = 0; i < ROW_SQLITE_STATEMENTS; i++)
        if (sqlite3_prepare_v3(s->db, row_store_sqlite_text[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &s->statements[i], NULL) != SQLITE_OK)
            return row_store_sqlite_error(s, why);
    return OK;
}

static Error row_store_sqlite_open_file(const char *path, RowStoreSqlite **out, Why *why)
{
    size_t bytes = strlen(path) + 1;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    RowStoreSqlite *s = *out = calloc(1, sizeof *s + bytes);
    if (!s) return error_why(why, ERR_MEMORY, "no memory for %s", path);
    memcpy(s->path, path, bytes);
    int opened = sqlite3_open_v2(path, &s->db, flags, NULL);
    if (!s->db) return error_why(why, ERR_MEMORY, "no memory for %s", path);
    (void)sqlite3_busy_timeout(s->db, ROW_STORE_SQLITE_BUSY_MS);
    return opened == SQLITE_OK ? OK : row_store_sqlite_error(s, why);
}

/* The file, or that beside it when the file is of another version. */
static Error row_store_sqlite_choose(const char *path, RowStoreSqlite **out, Why *why)
{
    TRY(row_store_sqlite_open_file(path, out, why));
    int version = row_store_sqlite_version(*out);
    size_t room = strlen(path) + 32;
    if (version <= ROW_STORE_SQLITE_VERSION) return OK;
    char *beside = malloc(room);
    if (!beside) return error_why(why, ERR_MEMORY, "no memory for %s", path);
    (void)snprintf(beside, room, "%s.v%d", path, ROW_STORE_SQLITE_VERSION);
    log_say(LOG_INFO,
            "%s has rows of version %d, this program's are of version %d: it is left as it is, "
            "rows go to %s",
            path, version, ROW_STORE_SQLITE_VERSION, beside);
    row_store_sqlite_free(*out);
    Error error = row_store_sqlite_open_file(beside, out, why);
    free(beside);
    return error;
}

/* Earlier programs made files that everybody may read. Where others may write as well, somebody shares them on
 * purpose. By name: SQLite's locks end with any descriptor of the file that is closed. */
static void row_store_sqlite_hide(const RowStoreSqlite *s)
{
    static const char *const endings[] = {"", "-wal", "-shm"};
    const char *path = sqlite3_db_filename(s->db, "main");
    for (size_t i = 0; path && i < sizeof endings / sizeof endings[0]; i++) {
        char name[PLACES_PATH_BYTES];
        struct stat about;
        int length = snprintf(name, sizeof name, "%s%s", path, endings[i]);
        if (length >= (int)sizeof name || stat(name, &about) != 0 || !S_ISREG(about.st_mode))
            continue;
        if (about.st_uid == geteuid() && (about.st_mode & 044) && !(about.st_mode & 022))
            (void)!chmod(name, about.st_mode & 0700);
    }
}

Error row_store_sqlite_open(const char *where, RowBackend *out, Why *why)
{
    RowStoreSqlite *s = NULL;
    if (!*where) return error_why(why, ERR_USAGE, "sqlite: needs the path of a file");
    mode_t before = umask(0077); /* which rows there are tells which words were used */
    Error error = row_store_sqlite_choose(where, &s, why);
    if (error == OK) error = row_store_sqlite_prepare(s, why);
    (void)umask(before);
    if (error == OK) row_store_sqlite_hide(s);
    if (error != OK) {
        row_store_sqlite_free(s);
        return error;
    }
    *out = (RowBackend){.state = s,
                        .value_bytes = out->value_bytes,
                        .get = row_store_sqlite_get,
                        .write = row_store_sqlite_write,
                        .sweep = row_store_sqlite_sweep,
                        .close = row_store_sqlite_close};
    return OK;
}
