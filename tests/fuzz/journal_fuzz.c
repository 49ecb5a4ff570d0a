/* SPDX-License-Identifier: Apache-2.0 */
/* A journal whose rows may be anybody's: what was written by the journal itself comes back as it was, and what
 * another program put into the tables gives an error or rows that are sound. The journal is compiled in, so that
 * its database (in memory) can be reached. Input: operations, each a byte and what it takes. */
#include "../../src/host/journal.c"
#include "feed.h"

enum { STREAMS = 3, OPERATIONS_MAX = 64 };

static const char *const names[STREAMS] = {"req_1", "req_2", "a"};

/* A value of any of SQLite's types. */
static void bind_any(sqlite3_stmt *s, int place, Feed *f)
{
    size_t bytes;
    const uint8_t *text;
    switch (feed_below(f, 8)) {
    case 0: sqlite3_bind_null(s, place); break;
    case 1: sqlite3_bind_int64(s, place, (sqlite3_int64)feed_u64(f)); break;
    case 2: sqlite3_bind_double(s, place, (double)feed_u32(f) * 1e20); break;
    case 3:
        text = feed_span(f, 300, &bytes);
        sqlite3_bind_text(s, place, (const char *)text, (int)bytes, SQLITE_TRANSIENT);
        break;
    case 4:
        text = feed_span(f, 300, &bytes);
        sqlite3_bind_blob64(s, place, text, bytes, SQLITE_TRANSIENT);
        break;
    default: sqlite3_bind_int64(s, place, feed_u8(f)); break;
    }
}

/* A row of somebody else, in place of one that is there. */
static void put_foreign(Journal *j, Feed *f, bool token)
{
    static const char *const texts[] = {
        "INSERT OR REPLACE INTO streams(id, knot, kind, created, seed, body) VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
        "INSERT OR REPLACE INTO tokens VALUES(?1, ?2, ?3, ?4)"};
    static sqlite3_stmt *statements[2];
    sqlite3_stmt *s = statements[token];
    if (!s) {
        CHECK(sqlite3_prepare_v2(j->db, texts[token], -1, &s, NULL) == SQLITE_OK);
        statements[token] = s;
    }
    sqlite3_bind_text(s, 1, names[feed_below(f, STREAMS)], -1, SQLITE_STATIC);
    int first = 2;
    if (!token) sqlite3_bind_int64(s, first++, (sqlite3_int64)j->knot_id);
    for (int i = first; i <= (token ? 4 : 6); i++) bind_any(s, i, f);
    (void)sqlite3_step(s);
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
}

static void begin_own(Journal *j, Feed *f)
{
    size_t bytes;
    const char *name = names[feed_below(f, STREAMS)];
    JournalStream s = {.kind = feed_u8(f), .created_s = (uint64_t)time(NULL), .seed = feed_u64(f)};
    const uint8_t *body = feed_span(f, 200, &bytes);
    s.body = (uint8_t *)(uintptr_t)body;
    s.body_bytes = bytes;
    journal_begin(j, name, &s);
}

static void check_stream(const JournalStream *s)
{
    volatile uint32_t sum = 0;
    for (size_t i = 0; i < s->body_bytes; i++) sum += s->body[i];
    for (uint32_t a = 0; a < JOURNAL_ANSWERS_MAX; a++)
        for (uint32_t i = 0; i < s->token_counts[a]; i++) {
            CHECK(s->tokens[a][i] != JOURNAL_END);
            sum += s->tokens[a][i];
        }
}

static void load(Journal *j, const char *name)
{
    JournalStream s;
    Why why = {{0}};
    Error error = journal_load(j, name, &s, &why);
    if (error == OK) {
        check_stream(&s);
        journal_free(&s);
    } else {
        CHECK(why.text[0] && (error == ERR_NOT_FOUND || error == ERR_FORMAT || error == ERR_IO));
    }
}

/* Whatever is there: a stream of our own is written, and read as it was. */
static void honest_stream(Journal *j)
{
    static const char body[] = "{\"honest\":true}";
    JournalStream s = {.kind = 1,
                       .created_s = (uint64_t)time(NULL),
                       .seed = UINT64_MAX,
                       .body = (uint8_t *)(uintptr_t)body,
                       .body_bytes = sizeof body - 1},
                  out;
    Why why = {{0}};
    journal_begin(j, "honest", &s);
    for (uint32_t i = 0; i < 5; i++) journal_token(j, "honest", 1, i, 7 * i);
    journal_token(j, "honest", 1, 5, JOURNAL_END);
    CHECK(journal_load(j, "honest", &out, &why) == OK);
    CHECK(out.kind == 1 && out.seed == UINT64_MAX && out.body_bytes == sizeof body - 1);
    CHECK(memcmp(out.body, body, out.body_bytes) == 0 && out.token_counts[1] == 5 && out.ended[1]);
    for (uint32_t i = 0; i < 5; i++) CHECK(out.tokens[1][i] == 7 * i);
    journal_free(&out);
}

/* The next input finds no rows. */
static void clear_tables(Journal *j)
{
    static sqlite3_stmt *statements[2];
    for (int i = 0; i < 2; i++) {
        const char *text = i ? "DELETE FROM tokens" : "DELETE FROM streams";
        if (!statements[i])
            CHECK(sqlite3_prepare_v2(j->db, text, -1, &statements[i], NULL) == SQLITE_OK);
        CHECK(sqlite3_step(statements[i]) == SQLITE_DONE);
        sqlite3_reset(statements[i]);
    }
}

/* A database of its own for one thread, which counts nothing: no locks around every block of memory. */
static Journal *open_journal(void)
{
    Journal *j;
    Why why = {{0}};
    CHECK(sqlite3_config(SQLITE_CONFIG_SINGLETHREAD) == SQLITE_OK);
    CHECK(sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0) == SQLITE_OK);
    CHECK(journal_open(":memory:", 7, &j, &why) == OK);
    return j;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static Journal *j;
    Feed f = {data, size};
    if (!j) j = open_journal();
    for (int i = 0; f.left && i < OPERATIONS_MAX; i++) {
        uint32_t operation = feed_below(&f, 6);
        if (operation == 0) begin_own(j, &f);
        else if (operation == 1) {
            const char *name = names[feed_below(&f, STREAMS)];
            uint32_t answer = feed_below(&f, 4), position = feed_below(&f, 8);
            journal_token(j, name, answer, position,
                          feed_below(&f, 5) ? feed_u32(&f) : JOURNAL_END);
        } else if (operation == 2) journal_settle(j);
        else if (operation == 3) load(j, names[feed_below(&f, STREAMS)]);
        else put_foreign(j, &f, operation == 4);
    }
    for (int i = 0; i < STREAMS; i++) load(j, names[i]);
    honest_stream(j);
    clear_tables(j);
    return 0;
}
