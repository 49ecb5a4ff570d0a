/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a slice: which, from where, and whether they are right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "cluster/warden.h"
#include "host/slice_state.h"
#include "host/stop.h"

enum { BATCH_PIECES = 256, GAP_MAX = 4096 };

/* --- which --- */

static void add_tensor(Slice *s, const KnotTensor *t)
{
    s->targets[s->target_count++] = (SliceTarget){t, true, t->offset, t->bytes};
}

static void add_range(Slice *s, const KnotTensor *t, uint64_t offset, uint64_t bytes)
{
    s->targets[s->target_count++] = (SliceTarget){t, false, offset, bytes};
}

static void list_station(Slice *s, const ClusterNode *part)
{
    const Knot *k = &s->index.knot;
    WardenIdentity id = {k->id, false, part->range.first, part->range.last};
    const KnotTensor *embedding = knot_find(k, "token_embd_weight"), *head = knot_head(k);
    for (uint32_t i = 0; i < k->tensor_count; i++) {
        const KnotTensor *t = &k->tensors[i];
        bool wanted = warden_covers(&id, k, t, 0, t->rows, NULL) == OK;
        if (t == embedding || t == head)
            wanted = (part->embed && t == embedding) || (part->head && t == head);
        if (wanted) add_tensor(s, t);
    }
}

/* Rows of ids, whole panels. */
static void add_rows(Slice *s, const KnotTensor *t, uint32_t first, uint32_t last)
{
    uint64_t from = knot_row_offset(t, first);
    add_range(s, t, from, knot_rows_end(t, last) - from);
}

static void list_shard(Slice *s, const ClusterNode *part)
{
    const KnotTensor *embedding = knot_find(&s->index.knot, "token_embd_weight"),
                     *head = knot_head(&s->index.knot);
    add_rows(s, head, part->id_first, part->id_last);
    if (!s->rows_from_warden && embedding != head)
        add_rows(s, embedding, part->id_first, part->id_last);
}

Error slice_fill_list(Slice *s, const ClusterNode *part, Why *why)
{
    const Knot *k = &s->index.knot;
    s->target_count = 0;
    if (!knot_find(k, "token_embd_weight"))
        return error_why(why, ERR_MISSING_TENSOR, "token_embd_weight is missing");
    if (part->role == CLUSTER_STATION) list_station(s, part);
    else if (part->role == CLUSTER_SHARD) list_shard(s, part);
    else if (k->tokenizer.bytes) add_range(s, NULL, k->tokenizer.offset, k->tokenizer.bytes);
    return OK;
}

uint64_t slice_fill_bytes(const Slice *s)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->target_count; i++) sum += s->targets[i].bytes;
    return sum;
}

static const char *name_of(const SliceTarget *t)
{
    return t->tensor ? t->tensor->name : "tokenizer";
}

/* --- writing: pieces of 4 MiB at their multiples, so that the page cache has large pages --- */

typedef struct Writer {
    int fd;
    uint8_t *buffer;
    uint64_t at; /* in the file */
    size_t used;
} Writer;

static Error writer_flush(Writer *w, Why *why)
{
    TRY(slice_write_at(w->fd, w->at, w->buffer, w->used, why));
    w->at += w->used;
    w->used = 0;
    return OK;
}

static Error writer_append(Writer *w, const uint8_t *data, uint64_t bytes, Why *why)
{
    while (bytes) {
        size_t room = SLICE_STEP_BYTES - (size_t)((w->at + w->used) % SLICE_STEP_BYTES);
        size_t now = bytes < room ? (size_t)bytes : room;
        memcpy(w->buffer + w->used, data, now);
        w->used += now;
        data += now;
        bytes -= now;
        if (now == room) TRY(writer_flush(w, why));
    }
    return OK;
}

/* Padding between tensors is NUL in the file too: small gaps are written through. */
static Error writer_put(Writer *w, uint64_t at, const uint8_t *data, uint64_t bytes, Why *why)
{
    static const uint8_t zeros[GAP_MAX];
    uint64_t end = w->at + w->used;
    if (at > end && at - end < GAP_MAX && w->used) TRY(writer_append(w, zeros, at - end, why));
    else if (at != end) {
        TRY(writer_flush(w, why));
        w->at = at;
    }
    return writer_append(w, data, bytes, why);
}

/* --- fetching --- */

typedef struct Fetch {
    Slice *s;
    Writer writer;
    uint8_t *step; /* [SLICE_STEP_BYTES] */
    AwfrPiece asked[BATCH_PIECES], got[BATCH_PIECES];
    uint32_t count;
    uint64_t batch_bytes, done, total;
} Fetch;

static bool has_warden(const Fetch *f)
{
    const Slice *s = f->s;
    return s->warden && !s->warden_refused && warden_client_alive(s->warden);
}

static void tell(Fetch *f, uint64_t bytes)
{
    f->done += bytes;
    tell_step(f->s->node->options->tell, "slice", f->done, f->total);
}

static Error put(Fetch *f, uint64_t offset, const uint8_t *data, uint64_t bytes, Why *why)
{
    return writer_put(&f->writer, f->s->index.knot.payload_offset + offset, data, bytes, why);
}

static void reject(Fetch *f, const char *name) { warden_client_invalidate(f->s->warden, name); }

/* It answered, but this is not the warden that the cluster file means, or it will not serve us. */
static bool is_refusal(Error e)
{
    return e == ERR_UNSUPPORTED || e == ERR_KEY || e == ERR_RANGE || e == ERR_MISSING_TENSOR ||
           e == ERR_TOO_LARGE || e == ERR_NOT_FOUND;
}

/* What became of a call. */
static void judge(Fetch *f, Error e, const Why *why)
{
    f->s->warden_refused |= is_refusal(e);
    slice_blame_warden(f->s, e, why);
}

/* The bytes came, and their hash is not the knot's. */
static void reject_bytes(Fetch *f, const char *name)
{
    Why why;
    Error e = error_why(&why, ERR_CHECKSUM, "its bytes of %s do not have the knot's hash", name);
    slice_blame_warden(f->s, e, &why);
    reject(f, name);
}

/* What a warden says by a bad frame. */
static bool is_bad_answer(Error e)
{
    return e == ERR_CHECKSUM || e == ERR_FORMAT || e == ERR_TRUNCATED || e == ERR_SHAPE ||
           e == ERR_TYPE;
}

static Error store_blocks(Fetch *f, uint64_t first, uint64_t bytes, Why *why)
{
    Slice *s = f->s;
    uint64_t bad = 0;
    if (s->store_error) {
        *why = s->store_why;
        return s->store_error;
    }
    Error e = knot_source_read(&s->store.source, &s->index, first, bytes, f->step, &bad, why);
    return e;
}

static Error warden_blocks(Fetch *f, const char *name, uint64_t first, uint64_t bytes, Why *why)
{
    KnotSource source = warden_client_source(f->s->warden);
    const Knot *k = &f->s->index.knot;
    Error e = source.read(source.context, k->payload_offset + first, bytes, f->step, why);
    judge(f, e, why);
    if (e == OK) {
        e = knot_index_check(&f->s->index, first, bytes, f->step, why);
        if (e) reject_bytes(f, name);
    }
    return e;
}

/* Whole blocks into f->step. Neither has them now: another try while there is hope. */
static Error blocks(Fetch *f, const char *name, uint64_t first, uint64_t bytes, Why *why)
{
    enum { TRIES_MAX = 6 };
    for (int tries = 1;; tries++) {
        if (stop_asked()) return error_why(why, ERR_CANCELLED, "the slice is not complete");
        if (has_warden(f) && warden_blocks(f, name, first, bytes, why) == OK) return OK;
        Error store = store_blocks(f, first, bytes, why);
        if (store == OK || store == ERR_CANCELLED) return store;
        if (store == ERR_CHECKSUM || tries == TRIES_MAX) return slice_both_failed(f->s, store, why);
        slice_wait(tries);
    }
}

static Error fetch_range(Fetch *f, const SliceTarget *t, Why *why)
{
    uint64_t first, last;
    knot_index_blocks(&f->s->index, t->offset, t->bytes, &first, &last);
    for (uint64_t at = first; at < last; at += SLICE_STEP_BYTES) {
        uint64_t bytes = last - at < SLICE_STEP_BYTES ? last - at : SLICE_STEP_BYTES;
        TRY(blocks(f, name_of(t), at, bytes, why));
        TRY(put(f, at, f->step, bytes, why));
        tell(f, bytes);
    }
    return OK;
}

/* --- tensors, from the warden by name --- */

static bool is_right(const Fetch *f, const KnotTensor *t, uint64_t hash)
{
    uint64_t wanted;
    return knot_index_tensor_hash(&f->s->index, t, &wanted) && wanted == hash;
}

static Error fetch_from_store(Fetch *f, const KnotTensor *t, Why *why)
{
    SliceTarget target = {t, false, t->offset, t->bytes};
    return fetch_range(f, &target, why);
}

static Error take_piece(Fetch *f, const AwfrPiece *p, const uint8_t *data, Why *why)
{
    if (is_right(f, p->tensor, hash_xxh64(data, (size_t)p->bytes))) {
        tell(f, p->bytes);
        return put(f, p->tensor->offset, data, p->bytes, why);
    }
    reject_bytes(f, p->tensor->name);
    return fetch_from_store(f, p->tensor, why);
}

/* The whole tensors that were gathered. */
static Error flush_batch(Fetch *f, Why *why)
{
    const uint8_t *payload;
    uint32_t count = f->count;
    f->count = 0;
    f->batch_bytes = 0;
    if (!count) return OK;
    bool asks = has_warden(f);
    Error e = asks ? warden_client_tensors(f->s->warden, &f->s->index.knot, f->asked, count, false,
                                           f->got, &payload, why)
                   : ERR_UNREACHABLE;
    if (e == ERR_CANCELLED) return e;
    if (asks) judge(f, e, why);
    for (uint32_t i = 0; i < count; i++) {
        if (is_bad_answer(e)) reject(f, f->asked[i].tensor->name);
        TRY(e == OK ? take_piece(f, &f->got[i], payload + f->got[i].at, why)
                    : fetch_from_store(f, f->asked[i].tensor, why));
    }
    return OK;
}

/* In tiles, hashed as one. */
static Error fetch_tiles(Fetch *f, const KnotTensor *t, uint64_t *hash, Why *why)
{
    HashStream64 stream;
    uint64_t unit = knot_unit_rows(t), unit_bytes = knot_rows_end(t, 1) - t->offset;
    uint64_t step = SLICE_STEP_BYTES / unit_bytes ? SLICE_STEP_BYTES / unit_bytes * unit : unit;
    hash_stream64_start(&stream);
    for (uint64_t row = 0; row < t->rows; row += step) {
        const uint8_t *data;
        uint64_t rows = t->rows - row < step ? t->rows - row : step;
        AwfrPiece asked = {.tensor = t, .row_first = (uint32_t)row, .row_count = (uint32_t)rows},
                  got;
        TRY(warden_client_tensors(f->s->warden, &f->s->index.knot, &asked, 1, false, &got, &data,
                                  why));
        hash_stream64_update(&stream, data + got.at, (size_t)got.bytes);
        TRY(put(f, knot_row_offset(t, (uint32_t)row), data + got.at, got.bytes, why));
        tell(f, got.bytes);
    }
    *hash = hash_stream64_end(&stream);
    return OK;
}

static Error fetch_large(Fetch *f, const KnotTensor *t, Why *why)
{
    uint64_t hash = 0, before = f->done;
    bool asks = has_warden(f);
    Error e = asks ? fetch_tiles(f, t, &hash, why) : ERR_UNREACHABLE;
    if (e == ERR_CANCELLED || e == ERR_NO_SPACE) return e;
    if (asks) judge(f, e, why);
    if (e == OK && is_right(f, t, hash)) return OK;
    if (e == OK) reject_bytes(f, t->name);
    else if (is_bad_answer(e)) reject(f, t->name);
    f->done = before;
    return fetch_from_store(f, t, why);
}

static Error fetch_tensor(Fetch *f, const KnotTensor *t, Why *why)
{
    if (!f->s->index.tensor_hashes || !has_warden(f)) {
        TRY(flush_batch(f, why));
        return fetch_from_store(f, t, why);
    }
    if (t->bytes > SLICE_STEP_BYTES / 2) {
        TRY(flush_batch(f, why));
        return fetch_large(f, t, why);
    }
    if (f->count == BATCH_PIECES || f->batch_bytes + t->bytes + AWFR_ALIGN > SLICE_STEP_BYTES)
        TRY(flush_batch(f, why));
    f->asked[f->count++] = (AwfrPiece){.tensor = t, .row_count = t->rows};
    f->batch_bytes += t->bytes + AWFR_ALIGN;
    return OK;
}

static Error fetch_all(Fetch *f, Why *why)
{
    Slice *s = f->s;
    for (uint32_t i = 0; i < s->target_count; i++) {
        const SliceTarget *t = &s->targets[i];
        if (t->whole && s->done[t->tensor - s->index.knot.tensors]) continue;
        if (!t->whole) TRY(flush_batch(f, why));
        TRY(t->whole ? fetch_tensor(f, t->tensor, why) : fetch_range(f, t, why));
    }
    TRY(flush_batch(f, why));
    TRY(writer_flush(&f->writer, why));
    for (uint32_t i = 0; i < s->target_count; i++)
        if (s->targets[i].whole) s->done[s->targets[i].tensor - s->index.knot.tensors] = 1;
    return OK;
}

Error slice_fill_fetch(Slice *s, Why *why)
{
    Fetch *f = calloc(1, sizeof *f);
    uint8_t *buffers = malloc((size_t)2 * SLICE_STEP_BYTES);
    Error e = error_why(why, ERR_MEMORY, "no memory to fetch a slice");
    if (f && buffers) {
        f->s = s;
        f->writer = (Writer){.fd = s->writable, .buffer = buffers};
        f->step = buffers + SLICE_STEP_BYTES;
        f->total = slice_fill_bytes(s);
        e = fetch_all(f, why);
        if (e == OK) tell_end(s->node->options->tell);
    }
    free(buffers);
    free(f);
    return e;
}

/* --- checking --- */

static Error check_tensor(const Slice *s, const KnotFile *file, const KnotTensor *t, Why *why)
{
    HashStream64 stream;
    uint64_t wanted;
    hash_stream64_start(&stream);
    for (uint64_t at = 0; at < t->bytes; at += SLICE_STEP_BYTES) {
        uint64_t bytes = t->bytes - at < SLICE_STEP_BYTES ? t->bytes - at : SLICE_STEP_BYTES;
        hash_stream64_update(&stream, knot_file_payload(file, t->offset + at), (size_t)bytes);
        knot_file_drop(file, t->offset + at, bytes);
    }
    if (knot_index_tensor_hash(&s->index, t, &wanted) && wanted == hash_stream64_end(&stream))
        return OK;
    return error_why(why, ERR_CHECKSUM, "%s has another hash than the knot says", t->name);
}

static Error check_range(const Slice *s, const KnotFile *file, const SliceTarget *t, Why *why)
{
    uint64_t first, last;
    knot_index_blocks(&s->index, t->offset, t->bytes, &first, &last);
    for (uint64_t at = first; at < last; at += SLICE_STEP_BYTES) {
        uint64_t bytes = last - at < SLICE_STEP_BYTES ? last - at : SLICE_STEP_BYTES;
        TRY(knot_index_check(&s->index, at, bytes, knot_file_payload(file, at), why));
        knot_file_drop(file, at, bytes);
    }
    return OK;
}

Error slice_fill_check(const Slice *s, const KnotFile *file, Why *why)
{
    for (uint32_t i = 0; i < s->target_count; i++) {
        const SliceTarget *t = &s->targets[i];
        if (stop_asked()) return error_why(why, ERR_CANCELLED, "stopped");
        TRY(t->whole && s->index.tensor_hashes ? check_tensor(s, file, t->tensor, why)
                                               : check_range(s, file, t, why));
    }
    return OK;
}
