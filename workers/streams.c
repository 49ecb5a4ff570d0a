/* SPDX-License-Identifier: Apache-2.0 */
#include "streams.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "serve/machine.h"

enum { ID_BYTES = JOURNAL_NAME_BYTES, HEAD_BYTES = 24, PIECE_BYTES = 8, TOKENS_FIRST = 32, TOKENS_OF_ROW = 32 };
#define KEY "stream/"

typedef struct Stream {
    struct Stream *next; /* the newest first */
    char id[ID_BYTES];
    JournalStream kept; /* JOURNAL_END is among its tokens, the last of an answer that is over */
    uint32_t rooms[JOURNAL_ANSWERS_MAX], written[JOURNAL_ANSWERS_MAX]; /* of its tokens */
    uint32_t rows;                                                     /* that are written */
    bool dropped; /* its rows are to be deleted */
    size_t bytes;
} Stream;

struct Journal {
    Stream *first;
    uint32_t count;
    size_t bytes;
    char key[STREAMS_KEY_BYTES];
    uint8_t *row; /* of the wish */
};

static Journal journal;

Journal *streams_journal(void) { return &journal; }

/* ---- Streams ---- */

static Stream *find(const char *id)
{
    Stream *s = journal.first;
    while (s && (s->dropped || strcmp(s->id, id) != 0)) s = s->next;
    return s;
}

static void free_tokens_and_body(Stream *s)
{
    journal_free(&s->kept);
    journal.bytes -= s->bytes;
    s->bytes = 0;
}

static void drop(Stream *s)
{
    if (s->dropped) return;
    free_tokens_and_body(s);
    s->dropped = true;
    journal.count--;
}

static void drop_oldest(void)
{
    Stream *oldest = NULL;
    for (Stream *s = journal.first; s; s = s->next)
        if (!s->dropped) oldest = s;
    if (oldest) drop(oldest);
}

static void drop_surplus(void)
{
    uint64_t now = machine_time_s();
    for (Stream *s = journal.first; s; s = s->next)
        if (now > s->kept.created_s + JOURNAL_KEEP_S) drop(s);
    while (journal.count > STREAMS_MAX || journal.bytes > STREAMS_BYTES_MAX) drop_oldest();
}

/* Result  NULL: no memory, and then it cannot be resumed. */
static Stream *add(const char *id, const JournalStream *request)
{
    Stream *s = strlen(id) < ID_BYTES ? calloc(1, sizeof *s) : NULL;
    uint8_t *body = s ? malloc(request->body_bytes + 1) : NULL;
    if (!body) {
        free(s);
        return NULL;
    }
    memcpy(s->id, id, strlen(id));
    if (request->body_bytes) memcpy(body, request->body, request->body_bytes);
    s->kept = (JournalStream){.kind = request->kind,
                              .created_s = request->created_s,
                              .seed = request->seed,
                              .body = body,
                              .body_bytes = request->body_bytes};
    s->bytes = sizeof *s + request->body_bytes;
    s->next = journal.first;
    journal.first = s;
    journal.count++;
    journal.bytes += s->bytes;
    return s;
}

static void add_token(Stream *s, uint32_t answer, uint32_t position, uint32_t token)
{
    uint32_t *count = &s->kept.token_counts[answer];
    if (position != *count) return; /* the same once more, or one too far */
    if (*count == s->rooms[answer]) {
        uint32_t room = s->rooms[answer] ? 2 * s->rooms[answer] : TOKENS_FIRST;
        uint32_t *grown = realloc(s->kept.tokens[answer], room * sizeof *grown);
        if (!grown) return;
        s->bytes += (room - s->rooms[answer]) * sizeof *grown;
        journal.bytes += (room - s->rooms[answer]) * sizeof *grown;
        s->kept.tokens[answer] = grown;
        s->rooms[answer] = room;
    }
    s->kept.tokens[answer][(*count)++] = token;
}

/* ---- The server's side ---- */

void journal_begin(Journal *j, const char *id, const JournalStream *request)
{
    (void)j;
    if (request->body_bytes > STREAMS_ROW_BYTES_MAX - HEAD_BYTES) return;
    (void)add(id, request);
    drop_surplus();
}

void journal_token(Journal *j, const char *id, uint32_t answer, uint32_t position, uint32_t token)
{
    (void)j;
    Stream *s = answer < JOURNAL_ANSWERS_MAX ? find(id) : NULL;
    if (s) add_token(s, answer, position, token);
}

void journal_settle(Journal *j) { (void)j; }

uint64_t journal_failures(Journal *j)
{
    (void)j;
    return 0;
}

Error journal_load(Journal *j, const char *id, JournalStream *out, Why *why)
{
    (void)j;
    drop_surplus();
    const Stream *s = find(id);
    *out = (JournalStream){0};
    if (!s) return error_why(why, ERR_NOT_FOUND, "%s", id);
    *out = s->kept;
    out->body = malloc(s->kept.body_bytes + 1);
    bool fine = out->body != NULL;
    if (fine && s->kept.body_bytes) memcpy(out->body, s->kept.body, s->kept.body_bytes);
    for (uint32_t i = 0; i < JOURNAL_ANSWERS_MAX; i++) {
        uint32_t count = s->kept.token_counts[i];
        out->ended[i] = count && s->kept.tokens[i][count - 1] == JOURNAL_END;
        out->token_counts[i] = count - out->ended[i];
        size_t bytes = out->token_counts[i] * sizeof(uint32_t);
        out->tokens[i] = bytes ? malloc(bytes) : NULL;
        fine = fine && (!bytes || out->tokens[i]);
        if (bytes && out->tokens[i]) memcpy(out->tokens[i], s->kept.tokens[i], bytes);
    }
    if (fine) return OK;
    journal_free(out);
    return error_why(why, ERR_MEMORY, "a stream's tokens");
}

void journal_free(JournalStream *s)
{
    for (uint32_t i = 0; i < JOURNAL_ANSWERS_MAX; i++) free(s->tokens[i]);
    free(s->body);
    *s = (JournalStream){0};
}

/* ---- Rows ---- */

static const char *key_of(const Stream *s)
{
    size_t bytes = strlen(s->id);
    memcpy(journal.key, KEY, sizeof KEY - 1);
    memcpy(journal.key + sizeof KEY - 1, s->id, bytes + 1);
    return journal.key;
}

static uint8_t *take_row(size_t bytes)
{
    free(journal.row);
    journal.row = malloc(bytes);
    return journal.row;
}

static bool write_request(Stream *s, StreamsWish *out)
{
    const JournalStream *k = &s->kept;
    uint8_t *row = take_row(HEAD_BYTES + k->body_bytes);
    if (!row) return false;
    bytes_store32(row, k->kind);
    bytes_store32(row + 4, JOURNAL_ANSWERS_MAX);
    bytes_store64(row + 8, k->created_s);
    bytes_store64(row + 16, k->seed);
    if (k->body_bytes) memcpy(row + HEAD_BYTES, k->body, k->body_bytes);
    *out = (StreamsWish){STREAMS_PUT, key_of(s), s->rows++, row, HEAD_BYTES + k->body_bytes};
    return true;
}

/* Tokens that went out and were not written are computed again: a row for each would cost more than that. */
static bool write_tokens(Stream *s, StreamsWish *out)
{
    for (uint32_t i = 0; i < JOURNAL_ANSWERS_MAX; i++) {
        uint32_t first = s->written[i], count = s->kept.token_counts[i] - first;
        bool due = count >= TOKENS_OF_ROW ||
                   (count && s->kept.tokens[i][first + count - 1] == JOURNAL_END);
        uint8_t *row = due ? take_row(PIECE_BYTES + (size_t)count * 4) : NULL;
        if (!row) continue;
        bytes_store32(row, i);
        bytes_store32(row + 4, first);
        for (uint32_t t = 0; t < count; t++)
            bytes_store32(row + PIECE_BYTES + (size_t)t * 4, s->kept.tokens[i][first + t]);
        s->written[i] = first + count;
        *out =
            (StreamsWish){STREAMS_PUT, key_of(s), s->rows++, row, PIECE_BYTES + (size_t)count * 4};
        return true;
    }
    return false;
}

bool streams_next(StreamsWish *out)
{
    for (Stream **at = &journal.first; *at; at = &(*at)->next) {
        Stream *s = *at;
        if (!s->dropped) {
            if (s->rows ? write_tokens(s, out) : write_request(s, out)) return true;
            continue;
        }
        *out = (StreamsWish){.kind = STREAMS_DELETE, .key = key_of(s)};
        *at = s->next;
        free(s);
        return true;
    }
    return false;
}

void streams_restore(const char *key, uint32_t number, const uint8_t *bytes, size_t count)
{
    if (strncmp(key, KEY, sizeof KEY - 1) != 0) return;
    const char *id = key + sizeof KEY - 1;
    Stream *s = find(id);
    if (!number && count >= HEAD_BYTES && !s) {
        JournalStream request = {.kind = bytes_load32(bytes),
                                 .created_s = bytes_load64(bytes + 8),
                                 .seed = bytes_load64(bytes + 16),
                                 .body = (uint8_t *)(uintptr_t)bytes + HEAD_BYTES,
                                 .body_bytes = count - HEAD_BYTES};
        s = add(id, &request);
        if (s) s->rows = 1;
    } else if (number && s && number == s->rows && count >= PIECE_BYTES &&
               bytes_load32(bytes) < JOURNAL_ANSWERS_MAX) {
        uint32_t answer = bytes_load32(bytes), first = bytes_load32(bytes + 4);
        for (uint32_t t = 0; t < (count - PIECE_BYTES) / 4; t++)
            add_token(s, answer, first + t, bytes_load32(bytes + PIECE_BYTES + (size_t)t * 4));
        s->written[answer] = s->kept.token_counts[answer];
        s->rows++;
    }
}
