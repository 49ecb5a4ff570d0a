/* SPDX-License-Identifier: Apache-2.0 */
/* Embedding rows in memory (raw), in a key-value store (float32) and in the bucket. Each level is asked for
 * what the one above did not have, in batches.
 *
 *   read    memory --> GET .. GET --> READ .. READ --> then
 *   settle  DELETE .. (bad values)  PUT .. (rows of the bucket)  READ .. (rows that only had a value) --> then */
#include "node_warden.h"

#include <string.h>

Error node_warden_rows_open(Node *n, Why *why)
{
    NodeWarden *w = node_warden_of(n);
    NodeWardenRows *s = &w->rows;
    const WardenIdentity *id = &w->self.identity;
    WardenRowsConfig config = {id->first, id->last, s->row_bytes, w->row_budget_bytes};
    size_t bytes = (size_t)warden_rows_bytes(&config);
    void *table = node_take(n, bytes);
    if (!table) return error_why(why, ERR_MEMORY, "%zu bytes for embedding rows", bytes);
    Arena arena = arena_make(table, bytes);
    s->counters.has_rows = n->has_values;
    return warden_rows_build(&config, &arena, &s->memory, why);
}

/* --- batches --- */

/* The first rows that `wanted` says, as many as a batch has. */
static uint32_t rows_choose(NodeWarden *w,
                            bool (*wanted)(const NodeWarden *, const NodeWardenRow *))
{
    NodeWardenRows *s = &w->rows;
    s->batch_count = 0;
    for (uint32_t i = 0; i < s->count && s->batch_count < NODE_BATCH_MAX; i++)
        if (wanted(w, &s->row[i])) s->batch[s->batch_count++] = i;
    return s->batch_count;
}

static NodeWardenRow *rows_of_batch(const NodeWardenRows *s, uint32_t i)
{
    return &s->row[s->batch[i]];
}

static uint8_t *rows_value(const NodeWardenRows *s, uint32_t i)
{
    return s->values + i * arena_bytes(s->value_bytes);
}

/* GET, PUT or DELETE of the batch's values. */
static void rows_want_values(Node *n, NodeWishKind kind, NodeThen *then)
{
    NodeWish wishes[NODE_BATCH_MAX];
    NodeWarden *w = node_warden_of(n);
    NodeWardenRows *s = &w->rows;
    for (uint32_t i = 0; i < s->batch_count; i++)
        wishes[i] = (NodeWish){
            .kind = kind,
            .text = row_value_key(w->self.identity.knot_id, rows_of_batch(s, i)->id, s->keys[i]),
            .address = rows_value(s, i),
            .bytes = s->value_bytes,
            .seconds = ROW_VALUE_TTL_S};
    node_want_batch(n, wishes, s->batch_count, then);
}

/* READ of the batch's rows: to their places, or to those of values. */
static void rows_want_stored(Node *n, bool to_values, NodeThen *then)
{
    NodeWish wishes[NODE_BATCH_MAX];
    const NodeWarden *w = node_warden_of(n);
    const NodeWardenRows *s = &w->rows;
    uint64_t table = w->serving.index->knot.payload_offset + w->serving.vocab->offset;
    for (uint32_t i = 0; i < s->batch_count; i++) {
        const NodeWardenRow *row = rows_of_batch(s, i);
        wishes[i] = (NodeWish){.kind = NODE_READ,
                               .offset = table + (uint64_t)row->id * s->row_bytes,
                               .bytes = s->row_bytes,
                               .address = to_values ? rows_value(s, i) : row->bytes};
    }
    node_want_batch(n, wishes, s->batch_count, then);
}

static bool rows_is_right(const NodeWarden *w, uint32_t id, const uint8_t *bytes)
{
    return warden_answer_row_is_right(w->serving.index, id, bytes, w->rows.row_bytes);
}

/* A row of the bucket that came to `bytes`. */
static bool rows_take_stored(NodeWarden *w, const NodeCame *came, uint32_t id, const uint8_t *bytes)
{
    NodeWardenRows *s = &w->rows;
    if (came->failed || came->bytes != s->row_bytes) {
        w->slabs.failures++;
        return false;
    }
    s->counters.store_rows++;
    if (!rows_is_right(w, id, bytes)) {
        s->counters.store_bad++;
        return false;
    }
    warden_rows_put(s->memory, id, bytes);
    return true;
}

/* --- reading: memory --- */

static bool rows_in_memory(NodeWarden *w, NodeWardenRow *row)
{
    const uint8_t *bytes = warden_rows_get(w->rows.memory, row->id);
    if (!bytes) return false;
    if (rows_is_right(w, row->id, bytes)) {
        memcpy(row->bytes, bytes, w->rows.row_bytes);
        return true;
    }
    (void)warden_rows_forget(w->rows.memory, row->id, true);
    return false;
}

/* --- the bucket --- */

static bool rows_is_missing(const NodeWarden *w, const NodeWardenRow *row)
{
    (void)w;
    return !row->found;
}

static void rows_stored_came(Node *n);

static void rows_next_stored(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    if (rows_choose(w, rows_is_missing)) rows_want_stored(n, false, rows_stored_came);
    else w->rows.then(n);
}

static void rows_stored_came(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    NodeWardenRows *s = &w->rows;
    for (uint32_t i = 0; i < s->batch_count; i++) {
        NodeWardenRow *row = rows_of_batch(s, i);
        row->found = row->is_stored = rows_take_stored(w, &n->came[i], row->id, row->bytes);
        if (row->found || ++row->reads < NODE_WARDEN_READS_MAX || w->error) continue;
        w->error = n->came[i].failed ? error_why(&w->why, ERR_UNREACHABLE, "%s, row %u: %s",
                                                 n->knot_key, row->id, n->failure.text)
                                     : error_why(&w->why, ERR_CHECKSUM,
                                                 "token_embd_weight, row %u of the store", row->id);
    }
    if (w->error) s->then(n);
    else rows_next_stored(n);
}

/* --- values --- */

static bool rows_wants_value(const NodeWarden *w, const NodeWardenRow *row)
{
    (void)w;
    return !row->found && !row->asked;
}

static void rows_take_value(NodeWarden *w, const NodeCame *came, uint32_t i)
{
    NodeWardenRows *s = &w->rows;
    NodeWardenRow *row = rows_of_batch(s, i);
    uint32_t cols = w->serving.vocab->cols;
    row->asked = true;
    if (came->failed) s->counters.rows.failures++;
    else if (came->status) {
        row->found = row->is_f32 = row_value_is_good(rows_value(s, i), (size_t)came->bytes, cols);
        row->is_bad = !row->found;
    }
    s->counters.rows.bad += row->is_bad;
    s->counters.rows.hits += row->found;
    s->counters.rows.misses += !row->found;
    if (row->found) memcpy(row->bytes, rows_value(s, i), cols * sizeof(float));
}

static void rows_values_came(Node *n);

static void rows_next_value(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    bool may = n->has_values && w->rows.asked < NODE_WARDEN_VALUES_MAX;
    if (may && rows_choose(w, rows_wants_value)) rows_want_values(n, NODE_GET, rows_values_came);
    else rows_next_stored(n);
}

static void rows_values_came(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    w->rows.asked += w->rows.batch_count;
    for (uint32_t i = 0; i < w->rows.batch_count; i++) rows_take_value(w, &n->came[i], i);
    rows_next_value(n);
}

void node_warden_rows_read(Node *n, NodeThen *then)
{
    NodeWarden *w = node_warden_of(n);
    NodeWardenRows *s = &w->rows;
    w->error = OK;
    s->then = then;
    s->asked = s->written = 0;
    for (uint32_t i = 0; i < s->count; i++) s->row[i].found = rows_in_memory(w, &s->row[i]);
    rows_next_value(n);
}

/* --- after the response: rows that only had a value --- */

static bool rows_is_cold(const NodeWarden *w, const NodeWardenRow *row)
{
    return row->is_f32 && warden_rows_room(w->rows.memory) &&
           !warden_rows_has(w->rows.memory, row->id);
}

static void rows_cold_came(Node *n);

static void rows_next_cold(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    if (rows_choose(w, rows_is_cold)) {
        rows_want_stored(n, true, rows_cold_came);
        return;
    }
    w->rows.count = 0;
    w->rows.then(n);
}

static void rows_cold_came(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    NodeWardenRows *s = &w->rows;
    for (uint32_t i = 0; i < s->batch_count; i++) {
        NodeWardenRow *row = rows_of_batch(s, i);
        (void)rows_take_stored(w, &n->came[i], row->id, rows_value(s, i));
        row->is_f32 = false; /* its turn is over: the value serves again */
    }
    rows_next_cold(n);
}

/* --- values of rows that the bucket had --- */

static bool rows_is_unwritten(const NodeWarden *w, const NodeWardenRow *row)
{
    (void)w;
    return row->is_stored;
}

static void rows_written(Node *n);

static void rows_next_unwritten(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    NodeWardenRows *s = &w->rows;
    const KnotTensor *t = w->serving.vocab;
    bool may = n->has_values && s->written < NODE_WARDEN_VALUES_MAX;
    if (!may || !rows_choose(w, rows_is_unwritten)) {
        rows_next_cold(n);
        return;
    }
    for (uint32_t i = 0; i < s->batch_count; i++) {
        float *to = (float *)(void *)rows_value(s, i);
        if (block_dequantize_row(t->type, rows_of_batch(s, i)->bytes, t->cols, to, NULL) != OK)
            memset(
                to, 0,
                s->value_bytes); /* never: its type was sized. Nobody takes it without its hash */
        else row_value_seal(rows_value(s, i), t->cols);
    }
    rows_want_values(n, NODE_PUT, rows_written);
}

static void rows_written(Node *n)
{
    NodeWardenRows *s = &node_warden_of(n)->rows;
    s->written += s->batch_count;
    for (uint32_t i = 0; i < s->batch_count; i++) {
        if (n->came[i].failed) s->counters.rows.failures++;
        else s->counters.rows.writes++;
        rows_of_batch(s, i)->is_stored = false;
    }
    rows_next_unwritten(n);
}

/* --- bad values that nothing replaces --- */

static bool rows_is_bad(const NodeWarden *w, const NodeWardenRow *row)
{
    (void)w;
    return row->is_bad && !row->is_stored;
}

static void rows_deleted(Node *n);

static void rows_next_bad(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    if (rows_choose(w, rows_is_bad)) rows_want_values(n, NODE_DELETE, rows_deleted);
    else rows_next_unwritten(n);
}

static void rows_deleted(Node *n)
{
    NodeWardenRows *s = &node_warden_of(n)->rows;
    for (uint32_t i = 0; i < s->batch_count; i++) {
        s->counters.rows.failures += n->came[i].failed;
        rows_of_batch(s, i)->is_bad = false;
    }
    rows_next_bad(n);
}

void node_warden_rows_settle(Node *n, NodeThen *then)
{
    node_warden_of(n)->rows.then = then;
    rows_next_bad(n);
}

WardenVocabCounters node_warden_rows_counters(const NodeWarden *w)
{
    WardenVocabCounters c = w->rows.counters;
    c.memory = warden_rows_counters(w->rows.memory);
    return c;
}
