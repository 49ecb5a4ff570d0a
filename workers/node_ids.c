/* SPDX-License-Identifier: Apache-2.0 */
/* A part of the vocabulary: head rows like a station's weights, embedding rows where they are.
 *
 *   rows that stay --> given at once
 *   else, 64 ids at a time, each once:  warden there? --POST /tensors--> rows, checked --wrong--> it is told; the store
 *                                           |no, or it gave nothing
 *                                           '--> a batch of READs, checked, three times at most */
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/min.h"
#include "node_compute.h"
#include "quant/numerics.h"
#include "wire/awfr.h"

enum { READS_MAX = 3, FRAME_ROOM = 16 << 10 };

/* The rows that are in the window now, ascending. */
static struct Rows {
    uint32_t id[ISOLATE_ROWS_AT_ONCE];
    uint8_t *bytes[ISOLATE_ROWS_AT_ONCE]; /* as stored */
    bool wrong[ISOLATE_ROWS_AT_ONCE];
    uint32_t count, tries;
    uint64_t request_id;
} rows;

static AwfrPiece asked[ISOLATE_ROWS_AT_ONCE], got[ISOLATE_ROWS_AT_ONCE];
static uint8_t request[FRAME_ROOM];
static char head[NODE_HEAD_BYTES];
static ShardServiceKind kind;

static void step(Node *n);

static const KnotTensor *table_of(const Node *n)
{
    return knot_find(&n->index.knot, "token_embd_weight");
}

static size_t raw_bytes(const KnotTensor *t) { return (size_t)(t->bytes / t->rows); }

/* ---- The answer ---- */

static void fail(Node *n, Error error)
{
    (void)node_compute_end(n);
    node_compute_fail(n, kind == SHARD_SERVICE_EMBED ? "embed" : "logits", error, &node_compute.why,
                      node_end);
}

static void finish(Node *n)
{
    NodeCompute *c = &node_compute;
    size_t bytes;
    Error error =
        shard_service_write(c->shard_service, c->answer, (size_t)c->answer_room, &bytes, &c->why);
    if (error != OK) {
        fail(n, error);
        return;
    }
    (void)node_compute_end(n);
    node_reply(n, 200, NODE_GATE_OCTETS, c->answer, bytes, node_end);
}

/* ---- Embedding rows ---- */

/* The next ids that the shard will ask for, each once, ascending. */
static void list_rows(void)
{
    uint32_t wanted[4 * ISOLATE_ROWS_AT_ONCE];
    uint32_t count =
        min_u32(shard_wanted_rows(node_compute.shard, wanted, 4 * ISOLATE_ROWS_AT_ONCE),
                4 * ISOLATE_ROWS_AT_ONCE);
    rows.count = rows.tries = 0;
    for (uint32_t i = 0; i < count && rows.count < ISOLATE_ROWS_AT_ONCE; i++) {
        uint32_t at = rows.count;
        while (at && rows.id[at - 1] > wanted[i]) at--;
        if (at && rows.id[at - 1] == wanted[i]) continue;
        memmove(&rows.id[at + 1], &rows.id[at], (rows.count - at) * sizeof rows.id[0]);
        rows.id[at] = wanted[i];
        rows.count++;
    }
    memset(rows.wrong, 1, sizeof rows.wrong);
}

static uint32_t find_row(uint32_t id)
{
    for (uint32_t i = 0; i < rows.count; i++)
        if (rows.id[i] == id) return i;
    return UINT32_MAX;
}

static bool is_right(const Node *n, uint32_t i)
{
    uint64_t wanted;
    return knot_index_row_hash(&n->index, rows.id[i], &wanted) &&
           hash_xxh64(rows.bytes[i], raw_bytes(table_of(n))) == wanted;
}

static void ask_store(Node *n);

static void store_came(Node *n)
{
    NodeCompute *c = &node_compute;
    Error error = OK;
    for (uint32_t i = 0, at = 0; i < rows.count; i++) {
        if (!rows.wrong[i]) continue;
        const NodeCame *came = &n->came[at++];
        rows.wrong[i] = came->failed || came->bytes != raw_bytes(table_of(n)) || !is_right(n, i);
        if (!rows.wrong[i]) continue;
        error = came->failed ? error_why(&c->why, ERR_UNREACHABLE, "the store: %s", n->failure.text)
                             : error_why(&c->why, ERR_CHECKSUM,
                                         "token_embd_weight, row %u of the store", rows.id[i]);
    }
    if (error != OK && ++rows.tries < READS_MAX) ask_store(n);
    else if (error != OK) fail(n, error);
    else step(n);
}

static void ask_store(Node *n)
{
    const KnotTensor *t = table_of(n);
    uint64_t at = n->index.knot.payload_offset + t->offset, bytes = raw_bytes(t);
    uint8_t *room = blocks_lend(&node_compute.weights);
    NodeWish wishes[ISOLATE_ROWS_AT_ONCE];
    uint32_t count = 0;
    for (uint32_t i = 0; i < rows.count; i++) {
        if (!rows.wrong[i]) continue;
        uint8_t *to = room + (size_t)i * t->cols * sizeof(float);
        rows.bytes[i] = to;
        wishes[count++] = (NodeWish){.kind = NODE_READ,
                                     .offset = at + rows.id[i] * bytes,
                                     .bytes = (uint32_t)bytes,
                                     .address = to};
    }
    node_want_batch(n, wishes, count, store_came);
}

static AwfrTerms awfr_terms(const Node *n)
{
    return (AwfrTerms){.identity = {n->knot_id, NUMERICS_VERSION, FRAME_CACHE_NONE},
                       .knot = &n->index.knot,
                       .pieces_max = rows.count,
                       .payload_bytes_max = node_compute.weights.window_bytes};
}

/* Where the warden's answer lies: rows are moved to their own places afterwards, so that the store
 * can follow. */
static Error read_answer(Node *n, uint8_t *answer, size_t bytes, Why *why)
{
    uint32_t count;
    FrameHead frame;
    AwfrTerms terms = awfr_terms(n);
    TRY(awfr_read(FRAME_TENSORS_ANSWER, answer, bytes, &terms, got, &count, &frame, why));
    TRY(frame_check_echo(frame.request_id, rows.request_id, "request id", why));
    TRY(awfr_check_answer(asked, rows.count, got, count, why));
    if (bytes - frame.header_bytes != frame.payload_bytes)
        return error_why(why, ERR_TRUNCATED, "%zu bytes of tensors", bytes - frame.header_bytes);
    uint8_t *payload = answer + frame.header_bytes;
    TRY(awfr_check_gaps(got, count, payload, why));
    for (uint32_t i = 0; i < count; i++) {
        TRY(awfr_check_piece(&got[i], payload + got[i].at, why));
        rows.bytes[i] = payload + got[i].at;
    }
    return OK;
}

/* A row that is not what the knot says is told to the warden and read from the store. One that came as float32 is put
 * back into the blocks that the knot has a hash of, where its numbers were. */
static void check_rows(Node *n)
{
    const KnotTensor *t = table_of(n);
    for (uint32_t i = 0; i < rows.count; i++) {
        char name[16];
        bool stored =
            !got[i].as_f32 || block_restore_row(t->type, rows.bytes[i], t->cols, rows.bytes[i]);
        rows.wrong[i] = !stored || !is_right(n, i);
        if (!rows.wrong[i] || !stored) continue; /* nothing is known of what cannot be put back */
        JsonWriter w = json_writer_make(name, sizeof name - 1);
        json_writer_u64(&w, rows.id[i]);
        name[w.used] = '\0';
        node_tell_warden(n, name);
    }
}

static bool any_wrong(void)
{
    for (uint32_t i = 0; i < rows.count; i++)
        if (rows.wrong[i]) return true;
    return false;
}

static void warden_came(Node *n)
{
    Why why = {{0}};
    const NodeCame *came = &n->came[0];
    uint8_t *answer = blocks_lend(&node_compute.weights);
    bool fine = !came->failed && came->status == 200 &&
                read_answer(n, answer, (size_t)came->bytes, &why) == OK;
    if (fine) check_rows(n);
    else node_warden_rests(n);
    if (fine && !any_wrong()) {
        step(n);
        return;
    }
    memset(rows.wrong, 1, sizeof rows.wrong); /* the answer's place is needed for what comes */
    ask_store(n);
}

static void ask_warden(Node *n)
{
    AwfrTerms terms = awfr_terms(n);
    Why why;
    uint64_t payload;
    uint8_t *room = blocks_lend(&node_compute.weights);
    for (uint32_t i = 0; i < rows.count; i++)
        asked[i] = (AwfrPiece){.tensor = table_of(n), .row_first = rows.id[i], .row_count = 1};
    uint32_t bytes = awfr_header_size(asked, rows.count);
    if (bytes > sizeof request || awfr_lay_out(asked, rows.count, &payload, &why) != OK) {
        ask_store(n);
        return;
    }
    awfr_write(FRAME_TENSORS, &terms, ++rows.request_id, asked, rows.count, request);
    JsonWriter w = json_writer_make(head, sizeof head - 1);
    json_writer_raw(&w, "POST /tensors");
    json_writer_raw(&w, n->fetch.identity);
    head[w.used] = '\0';
    node_want_call(n, head, request, bytes, room, (uint32_t)node_compute.weights.window_bytes,
                   warden_came);
}

static void bring_rows(Node *n)
{
    list_rows();
    if (node_warden_is_there(n)) ask_warden(n);
    else ask_store(n);
}

/* Result  false: it has to be brought first. */
static bool give_row(Node *n, const ShardWish *w, Error *error)
{
    NodeCompute *c = &node_compute;
    const uint8_t *bytes = blocks_at(&c->rows, w->offset, w->bytes);
    if (!bytes) bytes = blocks_at(&c->weights, w->offset, w->bytes);
    uint32_t i = bytes ? UINT32_MAX : find_row(w->row_first);
    if (!bytes && (i == UINT32_MAX || rows.wrong[i])) {
        bring_rows(n);
        return false;
    }
    c->counts.tiles++;
    c->counts.weight_bytes += w->bytes;
    *error = shard_give(c->shard, bytes ? bytes : rows.bytes[i], &parallel_serial, &c->why);
    return true;
}

/* ---- Head rows ---- */

static bool give_tile(Node *n, const ShardWish *w, Error *error)
{
    NodeCompute *c = &node_compute;
    const KnotTensor *t = knot_head(&n->index.knot);
    const uint8_t *bytes = blocks_at(&c->weights, w->offset, w->bytes);
    if (!bytes) {
        node_compute_bring(n, w->offset, w->bytes, knot_rows_end(t, c->id_last), step);
        return false;
    }
    c->counts.tiles++;
    c->counts.weight_bytes += w->bytes;
    *error = shard_give(c->shard, bytes, &parallel_serial, &c->why);
    return true;
}

static void step(Node *n)
{
    NodeCompute *c = &node_compute;
    Error error = c->error;
    while (error == OK) {
        ShardWish w;
        shard_next(c->shard, &w);
        if (w.kind == SHARD_DONE) {
            finish(n);
            return;
        }
        if (n->request.gone) error = error_why(&c->why, ERR_CANCELLED, "the client has left");
        else if (!(kind == SHARD_SERVICE_EMBED ? give_row : give_tile)(n, &w, &error)) return;
    }
    fail(n, error);
}

void node_ids_run(Node *n, ShardServiceKind asked_kind)
{
    NodeCompute *c = &node_compute;
    Why why;
    kind = asked_kind;
    bool embed = kind == SHARD_SERVICE_EMBED;
    if (embed ? !c->embed : !c->head) {
        node_reply_error(n, node_gate_no_part(n->id, embed, &why), &why, node_end);
        return;
    }
    if (embed) c->embeds++;
    else c->logits++;
    if (node_compute_refuses(n)) return;
    node_compute_begin(n);
    rows.count = 0;
    c->why = (Why){{0}};
    c->error = shard_service_begin(c->shard_service, kind, n->request.body, n->request.body_bytes,
                                   &c->why);
    step(n);
}
