/* SPDX-License-Identifier: Apache-2.0 */
/* A warden: what it is made of, and what it answers. */
#include "node_warden.h"

#include <string.h>

#include "api/warden_report.h"
#include "knot/emit.h"

static const char octets[] = "application/octet-stream", json[] = "application/json";

static const Knot *knot_of(const NodeWarden *w) { return &w->serving.index->knot; }

/* --- opening: identity --- */

static Error take_setting(const Node *n, const char *name, const char **out, Why *why)
{
    *out = node_setting(n, name);
    return *out ? OK : error_why(why, ERR_USAGE, "%s is not set", name);
}

static Error open_layers(const Node *n, WardenIdentity *id, Why *why)
{
    const char *first, *last;
    uint32_t layers = n->index.knot.model.layers;
    TRY(take_setting(n, "SPECIALIZATION_START", &first, why));
    TRY(take_setting(n, "SPECIALIZATION_END", &last, why));
    TRY(phase_parse_bound(first, strlen(first), layers, &id->first, why));
    TRY(phase_parse_bound(last, strlen(last), layers, &id->last, why));
    return id->first < id->last
               ? OK
               : error_why(why, ERR_USAGE, "the range \"%s\" to \"%s\" is empty", first, last);
}

static Error open_ids(const Node *n, WardenIdentity *id, Why *why)
{
    const char *text;
    uint64_t first, last;
    uint32_t most = n->index.knot.model.vocabulary;
    TRY(take_setting(n, "VOCAB_START", &text, why));
    TRY(take_setting(n, "VOCAB_END", &text, why));
    TRY(node_setting_number(n, "VOCAB_START", 0, 0, most, &first, why));
    TRY(node_setting_number(n, "VOCAB_END", 0, first + 1, most, &last, why));
    id->first = (uint32_t)first;
    id->last = (uint32_t)last;
    return OK;
}

static Error open_identity(Node *n, Why *why)
{
    NodeWarden *w = node_warden_of(n);
    WardenIdentity id = {.knot_id = n->knot_id, .is_shard = n->kind == CLUSTER_SHARD_WARDEN};
    TRY(id.is_shard ? open_ids(n, &id, why) : open_layers(n, &id, why));
    w->self = (WardenSelf){id, n->index.knot.model.layers, n->knot_key};
    w->serving = (WardenServing){.identity = id, .index = &n->index};
    warden_identity_text(&id, w->self.layers, w->identity_text);
    if (!id.is_shard) return OK;
    TRY(warden_answer_find_vocab(&n->index, id.last, &w->serving.vocab, &w->rows.row_bytes, why));
    w->rows.value_bytes = (uint32_t)row_value_bytes(w->serving.vocab->cols);
    return OK;
}

/* --- opening: memory --- */

/* An answer with all its rows as float32, and what aligns its pieces. */
static uint64_t answer_room(const NodeWarden *w)
{
    uint64_t payload = w->self.identity.is_shard ? WARDEN_ROWS_BYTES_MAX : WARDEN_ANSWER_BYTES_MAX;
    return FRAME_HEADER_BYTES_MAX + payload + (uint64_t)AWFR_PIECES_MAX * AWFR_ALIGN;
}

static uint64_t values_room(const NodeWarden *w)
{
    return (uint64_t)NODE_BATCH_MAX * (arena_bytes(w->rows.value_bytes) + ROW_VALUE_KEY_BYTES);
}

static WardenConfig slabs_config(const NodeWarden *w)
{
    return (WardenConfig){
        .knot = knot_of(w), .identity = w->self.identity, .budget_bytes = w->slab_budget_bytes};
}

/* What is not a cache. */
static uint64_t fixed_bytes(const NodeWarden *w)
{
    WardenConfig config = slabs_config(w);
    uint64_t bytes = node_taken() + FRAME_HEADER_BYTES_MAX + AWFR_PIECES_MAX * sizeof(AwfrPiece) +
                     answer_room(w) + WARDEN_SLAB_BYTES + node_warden_slabs_table_bytes(&config);
    if (w->self.identity.is_shard)
        bytes += AWFR_PIECES_MAX * sizeof(NodeWardenRow) + values_room(w);
    return bytes + (64 << 10); /* whole pages */
}

/* The embedding rows of a shard warden get at most half of what is left. */
static Error choose_budgets(Node *n, Why *why)
{
    NodeWarden *w = node_warden_of(n);
    uint64_t fixed = fixed_bytes(w), budget = n->budget_bytes;
    if (fixed > budget)
        return error_why(why, ERR_PLAN,
                         "%s: instance, buffers and answers need %llu MiB, MEMORY_BUDGET_BYTES is "
                         "%llu MiB",
                         n->id, (unsigned long long)((fixed >> 20) + 1),
                         (unsigned long long)(budget >> 20));
    w->row_budget_bytes = w->self.identity.is_shard ? (budget - fixed) / 2 : 0;
    w->slab_budget_bytes = budget - fixed - w->row_budget_bytes;
    return OK;
}

static Error take_buffers(Node *n, Why *why)
{
    NodeWarden *w = node_warden_of(n);
    n->body = node_take(n, FRAME_HEADER_BYTES_MAX);
    n->body_bytes_max = FRAME_HEADER_BYTES_MAX;
    w->pieces = node_take(n, AWFR_PIECES_MAX * sizeof *w->pieces);
    w->answer_room = answer_room(w);
    w->answer = node_take(n, w->answer_room);
    w->slabs.passing = node_take(n, WARDEN_SLAB_BYTES);
    bool all = n->body && w->pieces && w->answer && w->slabs.passing;
    if (w->self.identity.is_shard) {
        NodeWardenRows *s = &w->rows;
        s->row = node_take(n, AWFR_PIECES_MAX * sizeof *s->row);
        s->values = node_take(n, NODE_BATCH_MAX * (uint64_t)arena_bytes(s->value_bytes));
        s->keys = node_take(n, NODE_BATCH_MAX * sizeof *s->keys);
        all = all && s->row && s->values && s->keys;
    }
    return all ? OK : error_why(why, ERR_MEMORY, "no memory for a warden's answers");
}

static Error open_parts(Node *n, Why *why)
{
    NodeWarden *w = node_warden_of(n);
    TRY(open_identity(n, why));
    TRY(choose_budgets(n, why));
    TRY(take_buffers(n, why));
    WardenConfig config = slabs_config(w);
    TRY(node_warden_slabs_open(n, &config, why));
    return w->self.identity.is_shard ? node_warden_rows_open(n, why) : OK;
}

static void open_warden(Node *n)
{
    Why why = {{0}};
    n->state = node_take(n, sizeof(NodeWarden));
    Error e =
        n->state ? open_parts(n, &why) : error_why(&why, ERR_MEMORY, "no memory for a warden");
    if (e) node_open_failed(n, e, &why);
    else node_opened(n);
}

/* --- answers: their end --- */

static void settled(Node *n) { node_end(n); }

/* What is written to the caches below comes after the response. */
static void answered(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    if (w->rows.count) node_warden_rows_settle(n, settled);
    else node_end(n);
}

static void refuse(Node *n, Error e, const Why *why) { node_reply_error(n, e, why, answered); }

/* --- tensors --- */

static void next_piece(Node *n);

static void piece_came(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    if (w->error) {
        refuse(n, w->error, &w->why);
        return;
    }
    AwfrPiece *p = &w->pieces[w->at++];
    warden_answer_hash(&w->serving, p, w->answer + w->sizes.header_bytes + p->at);
    next_piece(n);
}

/* Rows lie where they would as float32; they move towards the answer's start, each to behind the piece before it. */
static void place_row(NodeWarden *w, AwfrPiece *p, NodeWardenRow *row)
{
    uint8_t *to = w->answer + w->sizes.header_bytes + p->at;
    memmove(to, row->bytes, (size_t)p->bytes);
    row->bytes = to;
    warden_answer_hash(&w->serving, p, to);
}

static void next_piece(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    uint8_t *payload = w->answer + w->sizes.header_bytes;
    for (; w->at < w->count; w->at++) {
        AwfrPiece *p = &w->pieces[w->at];
        uint64_t end = w->at ? p[-1].at + p[-1].bytes : 0;
        if (!warden_answer_is_row(&w->serving, p)) {
            memset(payload + end, 0, (size_t)(p->at - end));
            node_warden_slabs_read(n, knot_row_offset(p->tensor, p->row_first), p->bytes,
                                   payload + p->at, piece_came);
            return;
        }
        place_row(w, p, &w->rows.row[w->row_at++]);
        memset(payload + end, 0, (size_t)(p->at - end));
    }
    warden_answer_write_head(&w->serving, w->pieces, w->count, w->request_id, w->answer);
    node_reply(n, 200, octets, w->answer, w->sizes.header_bytes + w->sizes.payload_bytes, answered);
}

static void rows_came(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    Error e = w->error;
    for (uint32_t i = 0, r = 0; i < w->count; i++)
        if (warden_answer_is_row(&w->serving, &w->pieces[i]))
            w->pieces[i].as_f32 = w->rows.row[r++].is_f32;
    if (e == OK) e = warden_answer_lay_out(w->pieces, w->count, &w->sizes, &w->why);
    if (e) refuse(n, e, &w->why);
    else next_piece(n);
}

/* As large as it can become. */
static Error place_pieces(NodeWarden *w, Why *why)
{
    uint32_t rows, r = 0;
    TRY(warden_answer_check(&w->serving, w->pieces, w->count, &rows, why));
    for (uint32_t i = 0; i < w->count; i++)
        w->pieces[i].as_f32 = warden_answer_is_row(&w->serving, &w->pieces[i]) &&
                              w->pieces[i].tensor->type != BLOCK_F32;
    TRY(warden_answer_lay_out(w->pieces, w->count, &w->sizes, why));
    TRY(warden_answer_check_size(w->sizes.payload_bytes, w->answer_room - FRAME_HEADER_BYTES_MAX,
                                 why));
    for (uint32_t i = 0; i < w->count; i++) {
        const AwfrPiece *p = &w->pieces[i];
        if (!warden_answer_is_row(&w->serving, p)) continue;
        w->rows.row[r++] =
            (NodeWardenRow){.id = p->row_first, .bytes = w->answer + w->sizes.header_bytes + p->at};
    }
    w->rows.count = rows;
    return OK;
}

static void answer_pieces(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    w->error = place_pieces(w, &w->why);
    if (w->error) refuse(n, w->error, &w->why);
    else if (w->rows.count) node_warden_rows_read(n, rows_came);
    else rows_came(n);
}

static void get_tensor(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    const NodeRequest *r = &n->request;
    Error e = warden_gate_tensor(knot_of(w), r->tail, r->query, &w->pieces[0], &w->why);
    w->count = 1;
    if (e) refuse(n, e, &w->why);
    else answer_pieces(n);
}

static void post_tensors(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    const NodeRequest *r = &n->request;
    Error e = warden_answer_read(&w->serving, r->body, r->body_bytes, w->pieces, &w->count,
                                 &w->request_id, &w->why);
    if (e) refuse(n, e, &w->why);
    else answer_pieces(n);
}

/* --- plain bytes --- */

static void knot_came(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    if (w->error) refuse(n, w->error, &w->why);
    else node_reply(n, 200, octets, w->answer, w->answer_bytes, answered);
}

static void reply_size(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    Emit e = emit_make(w->answer, 64);
    emit_text(&e, "{\"bytes\":");
    emit_u64(&e, knot_of(w)->file_bytes);
    emit_text(&e, "}");
    node_reply(n, 200, json, w->answer, e.used, answered);
}

static void get_knot(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    uint64_t first, bytes;
    KnotIndexRest rest;
    if (strcmp(n->request.query, "size") == 0) {
        reply_size(n);
        return;
    }
    Error e = warden_gate_bytes(knot_of(w), n->request.query, &first, &bytes, &w->why);
    if (e) {
        refuse(n, e, &w->why);
        return;
    }
    w->answer_bytes = (size_t)bytes;
    knot_index_copy(w->serving.index, first, bytes, w->answer, &rest);
    node_warden_slabs_read(n, rest.offset, rest.bytes, w->answer + rest.at, knot_came);
}

/* --- the rest --- */

/* A row's value is deleted as one of a request that found it bad: after the response. */
static void forget(NodeWarden *w, const KnotTensor *t, uint32_t row)
{
    if (t) {
        node_warden_slabs_forget(w, t->offset, t->bytes);
        return;
    }
    (void)warden_rows_forget(w->rows.memory, row, false);
    w->rows.row[0] = (NodeWardenRow){.id = row, .found = true, .is_bad = w->rows.counters.has_rows};
    w->rows.count = 1;
}

static void post_invalidate(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    const KnotTensor *t;
    uint32_t row;
    Error e = warden_gate_invalidate(&w->self, knot_of(w), n->request.tail, &t, &row, &w->why);
    if (e) {
        refuse(n, e, &w->why);
        return;
    }
    forget(w, t, row);
    node_reply(n, 200, json, "{}", 2, answered);
}

static void post_configure(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    const NodeRequest *r = &n->request;
    Error e = warden_gate_configure(&w->self, r->body, r->body_bytes, w->answer, &w->why);
    if (e) {
        refuse(n, e, &w->why);
        return;
    }
    Emit out = emit_make(w->answer, WARDEN_IDENTITY_TEXT_MAX + 32);
    emit_text(&out, "{\"identity\":\"");
    emit_text(&out, w->identity_text);
    emit_text(&out, "\"}");
    node_reply(n, 200, json, w->answer, out.used, answered);
}

static WardenReport report_of(const Node *n)
{
    const NodeWarden *w = node_warden_of(n);
    WardenReport r = {.version = n->version,
                      .id = n->id,
                      .role = cluster_file_role_name(n->kind),
                      .knot_key = w->self.knot_key,
                      .identity = w->self.identity,
                      .layers = w->self.layers,
                      .memory.budget_bytes = n->budget_bytes,
                      .memory.need_bytes = node_taken(),
                      .memory.cache_bytes = w->slab_budget_bytes + w->row_budget_bytes,
                      .memory.resident_bytes = node_taken(),
                      .memory.peak_bytes = node_taken(),
                      .levels = node_warden_slabs_counters(n)};
    if (r.identity.is_shard) r.rows = node_warden_rows_counters(w);
    return r;
}

static bool say_ready(Node *n, char *text, size_t room)
{
    WardenReport r = report_of(n);
    JsonWriter j = json_writer_make(text, room - 1);
    warden_report_write(&r, &j);
    ASSERT(!j.full);
    text[j.used] = '\0';
    return true;
}

static void say_metrics(Node *n, char *text, size_t room)
{
    WardenReport r = report_of(n);
    JsonWriter j = json_writer_make(text, room - 1);
    warden_report_write_metrics(&r, &j);
    ASSERT(!j.full);
    text[j.used] = '\0';
}

static void get_stats(Node *n)
{
    NodeWarden *w = node_warden_of(n);
    (void)say_ready(n, (char *)w->answer, WARDEN_REPORT_BYTES_MAX);
    node_reply(n, 200, json, w->answer, strlen((const char *)w->answer), answered);
}

/* --- routes --- */

static const NodeGateRoute routes[] = {
    {"GET", "/tensor/"},    {"POST", "/tensors"},     {"GET", "/knot"},
    {"POST", "/configure"}, {"POST", "/invalidate/"}, {"GET", "/stats"},
};
enum { ROUTES = sizeof routes / sizeof routes[0] };
static void (*const runs[ROUTES])(Node *n) = {get_tensor,     post_tensors,    get_knot,
                                              post_configure, post_invalidate, get_stats};

static void run(Node *n, uint32_t route)
{
    NodeWarden *w = node_warden_of(n);
    const NodeHeaders *h = &n->request.headers;
    WardenAsked asked = {h->knot_id,    h->knot_key, h->layer_first,
                         h->layer_last, h->id_first, h->id_last};
    w->error = OK;
    w->why.text[0] = '\0';
    w->count = w->at = w->row_at = w->rows.count = 0;
    w->request_id = 0;
    Error e = runs[route] == get_stats ? OK : warden_gate_matches(&w->self, &asked, &w->why);
    if (e) refuse(n, e, &w->why);
    else runs[route](n);
}

const NodeRole node_layer_warden_role = {routes, ROUTES, open_warden, run, say_ready, say_metrics};
const NodeRole node_shard_warden_role = {routes, ROUTES, open_warden, run, say_ready, say_metrics};
