/* SPDX-License-Identifier: Apache-2.0 */
/* What a warden answers: tensors, rows, plain bytes, identity. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/warden_report.h"
#include "host/warden_state.h"

static const char octets[] = "application/octet-stream", json[] = "application/json";

static const Knot *knot_of(const WardenRole *w) { return &w->serving.index->knot; }

static Error check_headers(const WardenRole *w, const NodeRequest *r, Why *why)
{
    WardenAsked asked = {node_server_request_header(r, "X-Knot-Id"),
                         node_server_request_header(r, "X-Knot-Key"),
                         node_server_request_header(r, "X-Layer-Start"),
                         node_server_request_header(r, "X-Layer-End"),
                         node_server_request_header(r, "X-Vocab-Start"),
                         node_server_request_header(r, "X-Vocab-End")};
    return warden_gate_matches(&w->self, &asked, why);
}

/* --- tensors --- */

/* An answer being made. */
typedef struct Answer {
    AwfrPiece *pieces;
    uint32_t count;
    WardenVocabRow *rows; /* of the pieces that are embedding rows */
    uint32_t row_count;
    uint8_t *row_room;
    uint8_t *body;
    size_t body_bytes;
    WardenLater later;
} Answer;

/* Rows are known before the sizes: some come as float32. */
static Error read_rows(WardenRole *w, Answer *a, Why *why)
{
    if (!a->row_count) return OK;
    a->rows = malloc(a->row_count * sizeof *a->rows);
    a->row_room = malloc((size_t)a->row_count * w->serving.vocab->cols * sizeof(float));
    if (!a->rows || !a->row_room) return error_why(why, ERR_MEMORY, "no memory for rows");
    for (uint32_t i = 0, n = 0; i < a->count; i++)
        if (warden_answer_is_row(&w->serving, &a->pieces[i]))
            a->rows[n++].id = a->pieces[i].row_first;
    TRY(warden_vocab_read(w->vocab, a->rows, a->row_count, a->row_room, why));
    for (uint32_t i = 0, n = 0; i < a->count; i++)
        if (warden_answer_is_row(&w->serving, &a->pieces[i]))
            a->pieces[i].as_f32 = a->rows[n++].is_f32;
    return OK;
}

static Error read_pieces(WardenRole *w, Answer *a, uint8_t *payload, Why *why)
{
    uint64_t end = 0;
    for (uint32_t i = 0, n = 0; i < a->count; i++) {
        AwfrPiece *p = &a->pieces[i];
        memset(payload + end, 0, (size_t)(p->at - end));
        if (warden_answer_is_row(&w->serving, p))
            memcpy(payload + p->at, a->rows[n++].bytes, (size_t)p->bytes);
        else
            TRY(warden_levels_read(w->levels, knot_row_offset(p->tensor, p->row_first), p->bytes,
                                   payload + p->at, &a->later, why));
        warden_answer_hash(&w->serving, p, payload + p->at);
        end = p->at + p->bytes;
    }
    return OK;
}

static Error make_answer(WardenRole *w, Answer *a, uint64_t request_id, Why *why)
{
    WardenSizes sizes;
    TRY(warden_answer_check(&w->serving, a->pieces, a->count, &a->row_count, why));
    TRY(read_rows(w, a, why));
    TRY(warden_answer_lay_out(a->pieces, a->count, &sizes, why));
    a->body_bytes = sizes.header_bytes + sizes.payload_bytes;
    a->body = malloc(a->body_bytes);
    if (!a->body) return error_why(why, ERR_MEMORY, "no memory for an answer");
    TRY(read_pieces(w, a, a->body + sizes.header_bytes, why));
    warden_answer_write_head(&w->serving, a->pieces, a->count, request_id, a->body);
    return OK;
}

/* Answers, and only then writes to the caches below. */
static void reply_pieces(WardenRole *w, NodeRequest *r, AwfrPiece *pieces, uint32_t count,
                         uint64_t request_id)
{
    Why why = {{0}};
    Answer a = {.pieces = pieces, .count = count};
    Error e = make_answer(w, &a, request_id, &why);
    free(a.rows);
    free(a.row_room);
    if (e) {
        free(a.body);
        node_server_reply_error(r, e, &why);
    } else node_server_reply_take(r, 200, octets, a.body, a.body_bytes);
    warden_levels_settle(w->levels, &a.later);
    if (a.row_count) warden_vocab_settle(w->vocab);
}

static void get_tensor(void *context, NodeRequest *r)
{
    WardenRole *w = context;
    Why why = {{0}};
    AwfrPiece piece;
    Error e = check_headers(w, r, &why);
    if (e == OK) e = warden_gate_tensor(knot_of(w), r->tail, r->query, &piece, &why);
    if (e) node_server_reply_error(r, e, &why);
    else reply_pieces(w, r, &piece, 1, 0);
}

static void post_tensors(void *context, NodeRequest *r)
{
    WardenRole *w = context;
    Why why = {{0}};
    uint32_t count;
    uint64_t request_id;
    AwfrPiece *pieces = calloc(AWFR_PIECES_MAX, sizeof *pieces);
    Error e =
        pieces ? check_headers(w, r, &why) : error_why(&why, ERR_MEMORY, "no memory for a request");
    if (e == OK)
        e = warden_answer_read(&w->serving, r->body, r->body_bytes, pieces, &count, &request_id,
                               &why);
    if (e) node_server_reply_error(r, e, &why);
    else reply_pieces(w, r, pieces, count, request_id);
    free(pieces);
}

/* --- plain bytes --- */

static void reply_size(const WardenRole *w, NodeRequest *r)
{
    char text[64];
    int n = snprintf(text, sizeof text, "{\"bytes\":%" PRIu64 "}", knot_of(w)->file_bytes);
    node_server_reply(r, 200, json, text, (size_t)n);
}

static void get_knot(void *context, NodeRequest *r)
{
    WardenRole *w = context;
    Why why = {{0}};
    uint64_t first = 0, bytes = 0;
    uint8_t *body = NULL;
    WardenLater later = {0};
    Error e = check_headers(w, r, &why);
    if (e == OK && strcmp(r->query, "size") == 0) {
        reply_size(w, r);
        return;
    }
    if (e == OK) e = warden_gate_bytes(knot_of(w), r->query, &first, &bytes, &why);
    if (e == OK) {
        body = malloc((size_t)bytes);
        e = body ? warden_levels_read_file(w->levels, first, bytes, body, &later, &why)
                 : error_why(&why, ERR_MEMORY, "no memory for an answer");
    }
    if (e) {
        free(body);
        node_server_reply_error(r, e, &why);
    } else node_server_reply_take(r, 200, octets, body, (size_t)bytes);
    warden_levels_settle(w->levels, &later);
}

/* --- the rest --- */

static Error invalidate(WardenRole *w, const char *what, Why *why)
{
    const KnotTensor *t;
    uint32_t row;
    TRY(warden_gate_invalidate(&w->self, knot_of(w), what, &t, &row, why));
    if (t) warden_levels_forget(w->levels, t->offset, t->bytes);
    else warden_vocab_forget(w->vocab, row);
    return OK;
}

static void post_invalidate(void *context, NodeRequest *r)
{
    WardenRole *w = context;
    Why why = {{0}};
    Error e = check_headers(w, r, &why);
    if (e == OK) e = invalidate(w, r->tail, &why);
    if (e) {
        node_server_reply_error(r, e, &why);
        return;
    }
    node_server_reply(r, 200, json, "{}", 2);
    if (w->vocab) warden_vocab_settle(w->vocab);
}

static Error configure(const WardenRole *w, const NodeRequest *r, Why *why)
{
    void *pool = malloc(WARDEN_CONFIGURE_POOL_BYTES);
    if (!pool) return error_why(why, ERR_MEMORY, "no memory to read a body");
    Error e = warden_gate_configure(&w->self, r->body, r->body_bytes, pool, why);
    free(pool);
    return e;
}

static void post_configure(void *context, NodeRequest *r)
{
    WardenRole *w = context;
    Why why = {{0}};
    char text[WARDEN_IDENTITY_TEXT_MAX + 32];
    Error e = check_headers(w, r, &why);
    if (e == OK) e = configure(w, r, &why);
    if (e) {
        node_server_reply_error(r, e, &why);
        return;
    }
    int n = snprintf(text, sizeof text, "{\"identity\":\"%s\"}", w->identity_text);
    node_server_reply(r, 200, json, text, (size_t)n);
}

static void get_stats(void *context, NodeRequest *r)
{
    char *text = malloc(WARDEN_REPORT_BYTES_MAX);
    Why why = {{0}};
    if (!text) {
        node_server_reply_error(r, error_why(&why, ERR_MEMORY, "no memory for an answer"), &why);
        return;
    }
    warden_state_write(context, text, WARDEN_REPORT_BYTES_MAX);
    node_server_reply_take(r, 200, json, text, strlen(text));
}

const NodeRoute warden_routes[] = {
    {"GET", "/tensor/", get_tensor},
    {"POST", "/tensors", post_tensors},
    {"GET", "/knot", get_knot},
    {"POST", "/configure", post_configure},
    {"POST", "/invalidate/", post_invalidate},
    {"GET", "/stats", get_stats},
};
const uint32_t warden_routes_count = sizeof warden_routes / sizeof warden_routes[0];
