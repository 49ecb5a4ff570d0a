/* SPDX-License-Identifier: Apache-2.0 */
/* The journal (serve/journal.h) of a Worker: the last streams in memory, and the same as rows of the object's
 * SQLite, so that a stream can go on after the object was forgotten.
 *
 *   row   key "stream/ID", number 0: the request   kind u32 | answers u32 | created u64 | seed u64 | body
 *                          number 1 + n: a piece of tokens   answer u32 | first position u32 | tokens u32[]
 *
 * Limits  STREAMS_MAX streams and STREAMS_BYTES_MAX; the oldest goes first. */
#ifndef COBORD_WORKERS_STREAMS_H
#define COBORD_WORKERS_STREAMS_H

#include <stdbool.h>

#include "serve/journal.h"

enum {
    STREAMS_MAX = 256,
    STREAMS_BYTES_MAX = 4 << 20,
    STREAMS_ROW_BYTES_MAX = 1 << 20,
    STREAMS_KEY_BYTES = 16 + JOURNAL_NAME_BYTES
};

typedef enum StreamsWishKind { STREAMS_NONE, STREAMS_PUT, STREAMS_DELETE } StreamsWishKind;

/* A row to be written, or all rows of a key to be deleted. Valid until the next call of anything here. */
typedef struct StreamsWish {
    StreamsWishKind kind;
    const char *key;
    uint32_t number;
    const uint8_t *bytes;
    size_t count;
} StreamsWish;

Journal *streams_journal(void);
bool streams_next(StreamsWish *out);
/* A row that an earlier life has written; in order of keys, then of numbers. What is none of ours is passed
 * over. */
void streams_restore(const char *key, uint32_t number, const uint8_t *bytes, size_t count);

#endif
