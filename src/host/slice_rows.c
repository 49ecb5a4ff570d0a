/* SPDX-License-Identifier: Apache-2.0 */
/* Embedding rows of a shard without the file: all that a request needs, in one call to the warden. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/warden_answer.h"
#include "base/hash.h"
#include "host/slice_state.h"
#include "host/stop.h"

enum { READS_MAX = 3, CALL_ROWS_MAX = AWFR_PIECES_MAX };

static const KnotTensor *table_of(const Slice *s)
{
    return knot_find(&s->index.knot, "token_embd_weight");
}

static size_t raw_bytes(const KnotTensor *t) { return (size_t)(t->bytes / t->rows); }

static bool is_right(const Slice *s, uint32_t row, const uint8_t *bytes)
{
    uint64_t wanted;
    return knot_index_row_hash(&s->index, row, &wanted) &&
           hash_xxh64(bytes, raw_bytes(table_of(s))) == wanted;
}

/* --- from the store --- */

static Error read_store(Slice *s, uint32_t row, uint8_t *out, Why *why)
{
    const KnotTensor *t = table_of(s);
    uint64_t at = s->index.knot.payload_offset + t->offset + (uint64_t)row * raw_bytes(t);
    if (s->store_error) {
        *why = s->store_why;
        return s->store_error;
    }
    for (int i = 0; i < READS_MAX; i++) {
        TRY(s->store.source.read(s->store.source.context, at, raw_bytes(t), out, why));
        if (is_right(s, row, out)) return OK;
    }
    return error_why(why, ERR_CHECKSUM, "token_embd_weight, row %u of the store", row);
}

/* --- from the warden --- */

/* What came as float32 is put back into blocks, which the knot has a hash of: where that is not possible, nothing is
 * known of it. */
static void take_row(Slice *s, SliceRow *row, const AwfrPiece *p, const uint8_t *came)
{
    Why why;
    const KnotTensor *t = table_of(s);
    if (!p->as_f32) memcpy(row->bytes, came, (size_t)p->bytes);
    else if (!block_restore_row(t->type, came, t->cols, row->bytes)) return;
    row->missing = row->wrong = !is_right(s, row->id, row->bytes);
    if (!row->wrong) return;
    Error e = error_why(&why, ERR_CHECKSUM, "its %srow %u of %s does not have the knot's hash",
                        p->as_f32 ? "float32 " : "", row->id, t->name);
    slice_blame_warden(s, e, &why);
}

static Error ask_warden(Slice *s, SliceRow *rows, uint32_t count, Why *why)
{
    const uint8_t *payload;
    AwfrPiece *pieces = calloc((size_t)2 * count, sizeof *pieces);
    if (!pieces) return error_why(why, ERR_MEMORY, "no memory for rows");
    AwfrPiece *got = pieces + count;
    for (uint32_t i = 0; i < count; i++)
        pieces[i] = (AwfrPiece){.tensor = table_of(s), .row_first = rows[i].id, .row_count = 1};
    Error e =
        warden_client_tensors(s->warden, &s->index.knot, pieces, count, true, got, &payload, why);
    slice_blame_warden(s, e, why);
    for (uint32_t i = 0; e == OK && i < count; i++)
        take_row(s, &rows[i], &got[i], payload + got[i].at);
    free(pieces);
    return e;
}

/* From the store, which takes its time: so much has the warden to hear what was wrong before it is told the next. */
static Error read_missing(Slice *s, const SliceRow *row, Why *why)
{
    char name[16];
    (void)snprintf(name, sizeof name, "%u", row->id);
    if (row->wrong) warden_client_invalidate(s->warden, name);
    Error e = read_store(s, row->id, row->bytes, why);
    return e == OK ? OK : slice_both_failed(s, e, why);
}

static Error fetch_rows(Slice *s, SliceRow *rows, uint32_t count, Why *why)
{
    bool asks = s->warden && s->rows_from_warden && warden_client_alive(s->warden);
    Error e = asks ? ask_warden(s, rows, count, why) : OK;
    if (e == ERR_CANCELLED) return e;
    for (uint32_t i = 0; i < count; i++) {
        if (!rows[i].missing) continue;
        if (stop_asked()) return error_why(why, ERR_CANCELLED, "stopped");
        TRY(read_missing(s, &rows[i], why));
    }
    return OK;
}

/* --- for a shard --- */

static int by_id(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static Error take_room(Slice *s, uint32_t count, Why *why)
{
    if (count <= s->row_room) return OK;
    size_t row = raw_bytes(table_of(s));
    free(s->rows);
    free(s->row_bytes);
    s->rows = malloc(count * sizeof *s->rows);
    s->row_bytes = malloc(count * row);
    s->row_room = s->rows && s->row_bytes ? count : 0;
    return s->row_room ? OK : error_why(why, ERR_MEMORY, "no memory for %u rows", count);
}

/* Each row once, however often the request has it. */
static Error list_rows(Slice *s, const Shard *shard, Why *why)
{
    uint32_t count = shard_wanted_rows(shard, NULL, 0);
    size_t row = raw_bytes(table_of(s));
    TRY(take_room(s, count, why));
    uint32_t *ids = malloc(count * sizeof *ids);
    if (!ids) return error_why(why, ERR_MEMORY, "no memory for %u rows", count);
    (void)shard_wanted_rows(shard, ids, count);
    qsort(ids, count, sizeof *ids, by_id);
    s->row_count = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!i || ids[i] != ids[i - 1]) {
            s->rows[s->row_count] =
                (SliceRow){ids[i], true, false, s->row_bytes + s->row_count * row};
            s->row_count++;
        }
    free(ids);
    return OK;
}

/* As many at once as an answer may have. */
static Error fetch_all(Slice *s, Why *why)
{
    uint32_t most = (uint32_t)(WARDEN_ROWS_BYTES_MAX / (table_of(s)->cols * sizeof(float) + 64));
    if (most > CALL_ROWS_MAX) most = CALL_ROWS_MAX;
    if (!most) most = 1;
    for (uint32_t i = 0; i < s->row_count; i += most) {
        uint32_t count = s->row_count - i < most ? s->row_count - i : most;
        TRY(fetch_rows(s, s->rows + i, count, why));
    }
    return OK;
}

static const SliceRow *row_of(const Slice *s, uint32_t id)
{
    const SliceRow *row = bsearch(&id, s->rows, s->row_count, sizeof *s->rows, by_id);
    ASSERT(row); /* the list was made from what the shard said it would ask for */
    return row;
}

static Error give_rows(Slice *s, Worker *w, Shard *shard, Why *why)
{
    ShardWish wish;
    for (shard_next(shard, &wish); wish.kind != SHARD_DONE; shard_next(shard, &wish)) {
        const SliceRow *row = row_of(s, wish.row_first);
        TRY(shard_give(shard, row->bytes, &w->parallel, why));
    }
    return OK;
}

Error slice_run_shard(Slice *s, Worker *w, Shard *shard, Why *why)
{
    if (!s->rows_from_warden || !shard_wanted_rows(shard, NULL, 0))
        return worker_run_shard(w, shard, why);
    TRY(list_rows(s, shard, why));
    TRY(fetch_all(s, why));
    return give_rows(s, w, shard, why);
}
