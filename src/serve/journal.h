/* SPDX-License-Identifier: Apache-2.0 */
/* What a coordinator has to remember so that a stream can go on after it was killed: each request as
 * it came, the seed that was drawn for it, and the tokens that were emitted.
 *
 *   streams   id | kind | created | seed | knot | body       one row a request
 *   tokens    stream | answer | position | token             one row a token, written once a step; behind the last
 *                                                            token of an answer that is over: JOURNAL_END
 *
 * A request says everything and the rest follows from it bit for bit: whoever asks for a stream
 * again gets it from these two tables and from computing on. Tokens that are written twice are the
 * same tokens. Rows are dropped an hour after the request, and beyond JOURNAL_STREAMS_MAX. A journal
 * that cannot be written warns once and costs nobody an answer. Who keeps it: host/journal.h. */
#ifndef COBORD_SERVE_JOURNAL_H
#define COBORD_SERVE_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    JOURNAL_KEEP_S = 3600,
    JOURNAL_STREAMS_MAX = 4096,
    JOURNAL_ANSWERS_MAX = 64,
    JOURNAL_NAME_BYTES =
        128 /* of a stream: the answer's id; with keys '/' and the name of whose it is */
};

#define JOURNAL_END UINT32_MAX /* no token */

typedef struct Journal Journal;

typedef struct JournalStream {
    uint32_t kind; /* the caller's */
    uint64_t created_s, seed;
    uint8_t *body;
    size_t body_bytes;
    uint32_t *tokens[JOURNAL_ANSWERS_MAX]; /* emitted by each answer, in order */
    uint32_t token_counts[JOURNAL_ANSWERS_MAX];
    bool ended[JOURNAL_ANSWERS_MAX]; /* false: it goes on, or its end was lost */
} JournalStream;

/* Thread  any for all of them. */

/* Writes that failed since it was opened. */
uint64_t journal_failures(Journal *j);
/* A request that is about to be answered. */
void journal_begin(Journal *j, const char *stream, const JournalStream *request);
/* Remembers a token, or JOURNAL_END, for journal_settle. */
void journal_token(Journal *j, const char *stream, uint32_t answer, uint32_t position,
                   uint32_t token);
/* Writes what is remembered: once a step. A token that went out and was not written is computed again. */
void journal_settle(Journal *j);

/* Owner  journal_free. Errors  ERR_NOT_FOUND, ERR_MEMORY, ERR_IO. */
MUST_CHECK Error journal_load(Journal *j, const char *stream, JournalStream *out, Why *why);
void journal_free(JournalStream *s);

#endif
