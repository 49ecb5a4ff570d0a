/* SPDX-License-Identifier: Apache-2.0 */
#include "host/journal.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "host/clock.h"
#include "host/log.h"
#include "host/places.h"

enum { BUSY_MS = 1000, SWEEP_S = 60, SCHEMA_VERSION = 1 };

typedef struct Emitted {
    char stream[JOURNAL_NAME_BYTES];
    uint32_t answer, position, token;
} Emitted;

typedef enum Statement {
    BEGIN_STREAM,
    ADD_TOKEN,
    FIND_STREAM,
    FIND_TOKENS,
    DROP_OLD,
    DROP_SURPLUS,
    DROP_TOKENS,
    STATEMENTS
} Statement;

static const char *const statement_texts[STATEMENTS] = {
    [BEGIN_STREAM] = "INSERT OR IGNORE INTO streams(id, kind, created, seed, knot, body)"
                     " VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
    [ADD_TOKEN] = "INSERT OR IGNORE INTO tokens VALUES(?1, ?2, ?3, ?4)",
    [FIND_STREAM] = "SELECT kind, created, seed, body FROM streams WHERE id = ?1 AND knot = ?2",
    [FIND_TOKENS] = "SELECT answer, position, token FROM tokens WHERE stream = ?1"
                    " ORDER BY answer, position",
    [DROP_OLD] = "DELETE FROM streams WHERE created < ?1",
    [DROP_SURPLUS] = "DELETE FROM streams WHERE id NOT IN"
                     " (SELECT id FROM streams ORDER BY created DESC LIMIT ?1)",
    [DROP_TOKENS] = "DELETE FROM tokens WHERE stream NOT IN (SELECT id FROM streams)"};

static const char schema[] =
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -256;"
    "CREATE TABLE IF NOT EXISTS streams(id TEXT PRIMARY KEY, kind INTEGER, created INTEGER,"
    " seed INTEGER, knot INTEGER, body BLOB) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS tokens(stream TEXT, answer INTEGER, position INTEGER,"
    " token INTEGER, PRIMARY KEY(stream, answer, position)) WITHOUT ROWID;"
    "PRAGMA user_version = 1;";

struct Journal {
    pthread_mutex_t lock; /* of everything below */
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENTS];
    uint64_t knot_id;
    Emitted *emitted; /* not written yet */
    size_t emitted_count, emitted_room;
    uint64_t opened_s, opened_steady_s; /* the same moment by both clocks */
    uint64_t swept_s;                   /* by the steady one */
    uint64_t failures;
    bool warned;
    char path[];
};

static void warn(Journal *j)
{
    j->failures++;
    if (!j->warned)
        log_say(LOG_ERROR,
                "the journal cannot be written: %s: %s; answers go on, but could not be resumed "
                "after a restart",
                j->path, sqlite3_errmsg(j->db));
    j->warned = true;
}

uint64_t journal_failures(Journal *j)
{
    pthread_mutex_lock(&j->lock);
    uint64_t failures = j->failures;
    pthread_mutex_unlock(&j->lock);
    return failures;
}

/* ---- Opening ---- */

static Error check_version(Journal *j, const char *path, Why *why)
{
    sqlite3_stmt *s = NULL;
    int version = -1;
    if (sqlite3_prepare_v2(j->db, "PRAGMA user_version", -1, &s, NULL) == SQLITE_OK &&
        sqlite3_step(s) == SQLITE_ROW)
        version = sqlite3_column_int(s, 0);
    sqlite3_finalize(s);
    if (version == 0 || version == SCHEMA_VERSION) return OK;
    return error_why(why, ERR_UNSUPPORTED,
                     "%s is a journal of version %d, this program reads and writes version %d. It "
                     "is left as it is: name another file with --journal, or move it away",
                     path, version, SCHEMA_VERSION);
}

static Error prepare(Journal *j, const char *path, Why *why)
{
    TRY(check_version(j, path, why));
    bool fine = sqlite3_exec(j->db, schema, NULL, NULL, NULL) == SQLITE_OK;
    for (int i = 0; fine && i < STATEMENTS; i++)
        fine = sqlite3_prepare_v3(j->db, statement_texts[i], -1, SQLITE_PREPARE_PERSISTENT,
                                  &j->statements[i], NULL) == SQLITE_OK;
    if (fine) return OK;
    return error_why(why, ERR_IO, "%s: %s", path, sqlite3_errmsg(j->db));
}

/* The directories above the file, readable by their owner. What fails here, opening says. */
static void make_directories(const char *path)
{
    char above[PLACES_PATH_BYTES];
    const char *name = strrchr(path, '/');
    size_t bytes = name ? (size_t)(name - path) : 0;
    if (!bytes || bytes >= sizeof above) return;
    memcpy(above, path, bytes);
    above[bytes] = '\0';
    (void)!places_make_directory(above, 0700, NULL);
}

Error journal_open(const char *path, uint64_t knot_id, Journal **out, Why *why)
{
    size_t bytes = strlen(path) + 1;
    Journal *j = calloc(1, sizeof *j + bytes);
    if (!j) return error_why(why, ERR_MEMORY, "no memory for the journal");
    pthread_mutex_init(&j->lock, NULL);
    j->knot_id = knot_id;
    memcpy(j->path, path, bytes);
    j->opened_s = (uint64_t)time(NULL);
    j->opened_steady_s = clock_now_s();
    make_directories(path);
    mode_t before = umask(0077);
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    int opened = sqlite3_open_v2(path, &j->db, flags, NULL);
    Error error = OK;
    if (opened != SQLITE_OK)
        error = error_why(why, ERR_IO, "%s: %s", path, j->db ? sqlite3_errmsg(j->db) : "no memory");
    if (error == OK) sqlite3_busy_timeout(j->db, BUSY_MS);
    if (error == OK) error = prepare(j, path, why);
    umask(before);
    if (error == OK) *out = j;
    else journal_close(j);
    return error;
}

void journal_close(Journal *j)
{
    if (!j) return;
    if (j->statements[ADD_TOKEN]) journal_settle(j);
    for (int i = 0; i < STATEMENTS; i++) sqlite3_finalize(j->statements[i]);
    sqlite3_close(j->db);
    pthread_mutex_destroy(&j->lock);
    free(j->emitted);
    free(j);
}

/* ---- Writing ---- */

static bool run(Journal *j, sqlite3_stmt *s)
{
    bool fine = sqlite3_step(s) == SQLITE_DONE;
    if (!fine) warn(j);
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    return fine;
}

/* The time of day, but no later than it can be by the steady clock: when somebody sets the clock ahead, what is being
 * answered is not old. */
static uint64_t now_s(const Journal *j)
{
    uint64_t wall = (uint64_t)time(NULL),
             counted = j->opened_s + (clock_now_s() - j->opened_steady_s);
    return wall < counted ? wall : counted;
}

/* What is too old or too much, at most once a minute. */
static void sweep(Journal *j)
{
    uint64_t steady_s = clock_now_s();
    if (j->swept_s && steady_s - j->swept_s < SWEEP_S) return;
    j->swept_s = steady_s;
    sqlite3_bind_int64(j->statements[DROP_OLD], 1, (sqlite3_int64)now_s(j) - JOURNAL_KEEP_S);
    sqlite3_bind_int64(j->statements[DROP_SURPLUS], 1, JOURNAL_STREAMS_MAX);
    (void)(run(j, j->statements[DROP_OLD]) && run(j, j->statements[DROP_SURPLUS]) &&
           run(j, j->statements[DROP_TOKENS]));
}

void journal_begin(Journal *j, const char *stream, const JournalStream *request)
{
    pthread_mutex_lock(&j->lock);
    sqlite3_stmt *s = j->statements[BEGIN_STREAM];
    sweep(j);
    sqlite3_bind_text(s, 1, stream, -1, SQLITE_STATIC);
    sqlite3_bind_int64(s, 2, request->kind);
    sqlite3_bind_int64(s, 3, (sqlite3_int64)request->created_s);
    sqlite3_bind_int64(s, 4, (sqlite3_int64)request->seed);
    sqlite3_bind_int64(s, 5, (sqlite3_int64)j->knot_id);
    sqlite3_bind_blob64(s, 6, request->body, request->body_bytes, SQLITE_STATIC);
    (void)run(j, s);
    pthread_mutex_unlock(&j->lock);
}

static bool make_room(Journal *j)
{
    if (j->emitted_count < j->emitted_room) return true;
    size_t room = j->emitted_room ? 2 * j->emitted_room : 64;
    Emitted *grown = realloc(j->emitted, room * sizeof *grown);
    if (!grown) return false;
    j->emitted = grown;
    j->emitted_room = room;
    return true;
}

void journal_token(Journal *j, const char *stream, uint32_t answer, uint32_t position,
                   uint32_t token)
{
    pthread_mutex_lock(&j->lock);
    if (make_room(j)) {
        Emitted *e = &j->emitted[j->emitted_count++];
        *e = (Emitted){.answer = answer, .position = position, .token = token};
        snprintf(e->stream, sizeof e->stream, "%s", stream);
    }
    pthread_mutex_unlock(&j->lock);
}

static bool write_emitted(Journal *j)
{
    sqlite3_stmt *s = j->statements[ADD_TOKEN];
    bool fine = true;
    for (size_t i = 0; fine && i < j->emitted_count; i++) {
        const Emitted *e = &j->emitted[i];
        sqlite3_bind_text(s, 1, e->stream, -1, SQLITE_STATIC);
        sqlite3_bind_int64(s, 2, e->answer);
        sqlite3_bind_int64(s, 3, e->position);
        sqlite3_bind_int64(s, 4, e->token);
        fine = run(j, s);
    }
    return fine;
}

void journal_settle(Journal *j)
{
    pthread_mutex_lock(&j->lock);
    if (j->emitted_count) {
        bool fine = sqlite3_exec(j->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK;
        fine = fine && write_emitted(j);
        if (sqlite3_exec(j->db, fine ? "COMMIT" : "ROLLBACK", NULL, NULL, NULL) != SQLITE_OK ||
            !fine)
            warn(j);
        j->emitted_count = 0; /* what is lost is computed again */
    }
    pthread_mutex_unlock(&j->lock);
}

/* ---- Reading ---- */

static Error read_stream(Journal *j, const char *stream, JournalStream *out, Why *why)
{
    sqlite3_stmt *s = j->statements[FIND_STREAM];
    sqlite3_bind_text(s, 1, stream, -1, SQLITE_STATIC);
    sqlite3_bind_int64(s, 2, (sqlite3_int64)j->knot_id);
    int found = sqlite3_step(s);
    if (found == SQLITE_DONE)
        return error_why(why, ERR_NOT_FOUND, "no stream of this name in the last hour");
    if (found != SQLITE_ROW) return error_why(why, ERR_IO, "journal: %s", sqlite3_errmsg(j->db));
    out->kind = (uint32_t)sqlite3_column_int64(s, 0);
    out->created_s = (uint64_t)sqlite3_column_int64(s, 1);
    out->seed = (uint64_t)sqlite3_column_int64(s, 2);
    out->body_bytes = (size_t)sqlite3_column_bytes(s, 3);
    out->body = malloc(out->body_bytes + 1);
    if (!out->body) return error_why(why, ERR_MEMORY, "no memory for a journaled request");
    const void *body = sqlite3_column_blob(s, 3);
    if (out->body_bytes) memcpy(out->body, body, out->body_bytes);
    return OK;
}

static bool keep_token(JournalStream *out, uint32_t answer, uint32_t position, uint32_t token)
{
    uint32_t count = out->token_counts[answer];
    if (position != count) return true; /* a gap: what follows is computed again */
    if (token == JOURNAL_END) return out->ended[answer] = true;
    if ((count & (count - 1)) == 0) { /* room doubles at every power of two */
        uint32_t *grown = realloc(out->tokens[answer], (count ? 2 * count : 1) * sizeof *grown);
        if (!grown) return false;
        out->tokens[answer] = grown;
    }
    out->tokens[answer][out->token_counts[answer]++] = token;
    return true;
}

static Error read_tokens(Journal *j, const char *stream, JournalStream *out, Why *why)
{
    sqlite3_stmt *s = j->statements[FIND_TOKENS];
    int found;
    sqlite3_bind_text(s, 1, stream, -1, SQLITE_STATIC);
    while ((found = sqlite3_step(s)) == SQLITE_ROW) {
        sqlite3_int64 answer = sqlite3_column_int64(s, 0), position = sqlite3_column_int64(s, 1),
                      token = sqlite3_column_int64(s, 2);
        if (answer < 0 || answer >= JOURNAL_ANSWERS_MAX || position < 0 || position > UINT32_MAX ||
            token < 0 || token > UINT32_MAX)
            return error_why(why, ERR_FORMAT, "the journal has a token that cannot be");
        if (!keep_token(out, (uint32_t)answer, (uint32_t)position, (uint32_t)token))
            return error_why(why, ERR_MEMORY, "no memory for a journaled answer");
    }
    if (found == SQLITE_DONE) return OK;
    return error_why(why, ERR_IO, "journal: %s", sqlite3_errmsg(j->db));
}

Error journal_load(Journal *j, const char *stream, JournalStream *out, Why *why)
{
    *out = (JournalStream){0};
    journal_settle(j);
    pthread_mutex_lock(&j->lock);
    Error error = read_stream(j, stream, out, why);
    if (error == OK) error = read_tokens(j, stream, out, why);
    sqlite3_reset(j->statements[FIND_STREAM]);
    sqlite3_reset(j->statements[FIND_TOKENS]);
    pthread_mutex_unlock(&j->lock);
    if (error != OK) journal_free(out);
    return error;
}

void journal_free(JournalStream *s)
{
    free(s->body);
    for (int i = 0; i < JOURNAL_ANSWERS_MAX; i++) free(s->tokens[i]);
    *s = (JournalStream){0};
}
