/* SPDX-License-Identifier: Apache-2.0 */
/* Embedding rows through a shard warden's levels: memory (raw rows), a key-value store (float32 rows), the store.
 *
 *   rows --> memory ---------hit--> raw bytes
 *              | miss, bad
 *              v
 *            row store ------hit--> float32; the raw row goes to memory after the response
 *              | miss
 *              v
 *            store ----------------> raw bytes, to memory at once; to the row store after the response
 *
 * Raw rows are checked with the knot's row hashes on every read of every level, float32 rows with the hash that was
 * stored with them. */
#ifndef COBORD_HOST_WARDEN_VOCAB_H
#define COBORD_HOST_WARDEN_VOCAB_H

#include "cluster/warden_rows.h"
#include "host/row_store.h"
#include "host/warden_levels.h"

typedef struct WardenVocabOptions {
    uint32_t id_first, id_last;
    uint64_t budget_bytes;
    const char *row_store; /* "sqlite:PATH", "redis://..", or "": none */
} WardenVocabOptions;

/* One row of an answer. */
typedef struct WardenVocabRow {
    uint32_t id;
    bool is_f32;
    uint8_t *bytes; /* row_bytes or 4 * cols */
} WardenVocabRow;

typedef struct WardenVocab WardenVocab;

/* Owner  levels outlive it; warden_vocab_close. Errors  ERR_MISSING_TENSOR (no embedding), ERR_FORMAT (no row hashes),
 * those of row_store_open. */
MUST_CHECK Error warden_vocab_open(const WardenVocabOptions *options, WardenLevels *levels,
                                   WardenVocab **out, Why *why);
void warden_vocab_close(WardenVocab *v);
const KnotTensor *warden_vocab_tensor(const WardenVocab *v);

/* Fills rows[count]: ids of the range in, bytes out; `room` has count * 4 * cols bytes for them.
 * Thread  any; one call at a time is carried out. Errors  those of the store, ERR_CHECKSUM. */
MUST_CHECK Error warden_vocab_read(WardenVocab *v, WardenVocabRow *rows, uint32_t count,
                                   uint8_t *room, Why *why);
/* After the response. */
void warden_vocab_settle(WardenVocab *v);
void warden_vocab_forget(WardenVocab *v, uint32_t id);
WardenVocabCounters warden_vocab_counters(WardenVocab *v);

#endif
