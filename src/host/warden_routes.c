/* SPDX-License-Identifier: Apache-2.0 */
/* What a warden answers: tensors, rows, plain bytes, identity. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "host/warden_state.h"
#include "quant/numerics.h"
#include "wire/awfr.h"

static const char octets[] = "application/octet-stream", json[] = "application/json";

static const Knot *knot_of(const WardenRole *w) { return &warden_levels_index(w->levels)->knot; }

static AwfrTerms terms_of(const WardenRole *w)
{
    return (AwfrTerms){.identity = {w->identity.knot_id, NUMERICS_VERSION, FRAME_CACHE_NONE},
                       .knot = knot_of(w),
                       .pieces_max = AWFR_PIECES_MAX,
                       .payload_bytes_max = 0};
}

/* --- identity --- */

static Error check_headers(const WardenRole *w, const NodeRequest *r, Why *why)
{
    WardenAsked asked = {node_server_request_header(r, "X-Knot-Id"),
                         node_server_request_header(r, "X-Knot-Key"),
                         node_server_request_header(r, "X-Layer-Start"),
                         node_server_request_header(r, "X-Layer-End"),
                         node_server_request_header(r, "X-Vocab-Start"),
                         node_server_request_header(r, "X-Vocab-End")};
    return warden_state_matches(w, &asked, why);
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

static bool is_row(const WardenRole *w, const AwfrPiece *p)
{
    return w->vocab && p->tensor == warden_vocab_tensor(w->vocab) && p->row_count == 1;
}

static Error check_size(uint64_t bytes, uint64_t bytes_max, Why *why)
{
    if (bytes <= bytes_max) return OK;
    return error_why(why, ERR_TOO_LARGE,
                     "%llu bytes; a warden gives %llu at once: ask for fewer rows",
                     (unsigned long long)bytes, (unsigned long long)bytes_max);
}

/* Rows are known before the sizes: some come as float32. */
static Error read_rows(WardenRole *w, Answer *a, Why *why)
{
    for (uint32_t i = 0; i < a->count; i++) a->row_count += is_row(w, &a->pieces[i]);
    if (!a->row_count) return OK;
    uint64_t values = (uint64_t)warden_vocab_tensor(w->vocab)->cols * sizeof(float);
    TRY(check_size(a->row_count * values, WARDEN_ROWS_BYTES_MAX, why));
    a->rows = malloc(a->row_count * sizeof *a->rows);
    a->row_room = malloc(a->row_count * values);
    if (!a->rows || !a->row_room) return error_why(why, ERR_MEMORY, "no memory for rows");
    for (uint32_t i = 0, n = 0; i < a->count; i++)
        if (is_row(w, &a->pieces[i])) a->rows[n++].id = a->pieces[i].row_first;
    TRY(warden_vocab_read(w->vocab, a->rows, a->row_count, a->row_room, why));
    for (uint32_t i = 0, n = 0; i < a->count; i++)
        if (is_row(w, &a->pieces[i])) a->pieces[i].as_f32 = a->rows[n++].is_f32;
    return OK;
}

/* The knot's hash where it has one of just these bytes, which were checked; else our own. */
static void put_hash(const WardenRole *w, AwfrPiece *p, const uint8_t *bytes)
{
    const KnotIndex *index = warden_levels_index(w->levels);
    bool embedding = strcmp(p->tensor->name, "token_embd_weight") == 0;
    p->hash_kind = AWFR_HASH_PIECE;
    if (p->row_count == p->tensor->rows && knot_index_tensor_hash(index, p->tensor, &p->hash))
        p->hash_kind = AWFR_HASH_TENSOR;
    else if (embedding && p->row_count == 1 && !p->as_f32 && p->tensor->layout == LAYOUT_ROWS &&
             knot_index_row_hash(index, p->row_first, &p->hash))
        p->hash_kind = AWFR_HASH_EMBEDDING_ROW;
    else p->hash = hash_xxh64(bytes, (size_t)p->bytes);
}

static Error read_pieces(WardenRole *w, Answer *a, uint8_t *payload, Why *why)
{
    uint64_t end = 0;
    for (uint32_t i = 0, n = 0; i < a->count; i++) {
        AwfrPiece *p = &a->pieces[i];
        memset(payload + end, 0, (size_t)(p->at - end));
        if (is_row(w, p)) memcpy(payload + p->at, a->rows[n++].bytes, (size_t)p->bytes);
        else
            TRY(warden_levels_read(w->levels, knot_row_offset(p->tensor, p->row_first), p->bytes,
                                   payload + p->at, &a->later, why));
        put_hash(w, p, payload + p->at);
        end = p->at + p->bytes;
    }
    return OK;
}

static Error make_answer(WardenRole *w, Answer *a, uint64_t request_id, Why *why)
{
    uint64_t payload;
    AwfrTerms terms = terms_of(w);
    for (uint32_t i = 0; i < a->count; i++)
        TRY(warden_covers(&w->identity, terms.knot, a->pieces[i].tensor, a->pieces[i].row_first,
                          a->pieces[i].row_count, why));
    TRY(awfr_lay_out(a->pieces, a->count, &payload, why));
    TRY(check_size(payload, w->vocab ? WARDEN_ROWS_BYTES_MAX : WARDEN_ANSWER_BYTES_MAX, why));
    TRY(read_rows(w, a, why));
    TRY(awfr_lay_out(a->pieces, a->count, &payload, why));
    size_t header = awfr_header_size(a->pieces, a->count);
    a->body_bytes = header + (size_t)payload;
    a->body = malloc(a->body_bytes);
    if (!a->body) return error_why(why, ERR_MEMORY, "no memory for an answer");
    TRY(read_pieces(w, a, a->body + header, why));
    awfr_write(FRAME_TENSORS_ANSWER, &terms, request_id, a->pieces, a->count, a->body);
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

/* "NAME=A-B". Result  false for any other form. */
static bool parse_pair(const char *query, const char *name, uint64_t out[2])
{
    size_t start = strlen(name);
    const char *at = query + start;
    if (strncmp(query, name, start) != 0) return false;
    for (int i = 0; i < 2; i++) {
        const char *first = at;
        for (out[i] = 0; *at >= '0' && *at <= '9' && at - first < 18; at++)
            out[i] = out[i] * 10 + (uint64_t)(*at - '0');
        if (at == first || *at != (i ? '\0' : '-')) return false;
        at += !i;
    }
    return true;
}

static Error parse_rows(const char *query, AwfrPiece *p, Why *why)
{
    uint64_t pair[2];
    *p = (AwfrPiece){.tensor = p->tensor, .row_count = p->tensor->rows};
    if (!query[0]) return OK;
    if (!parse_pair(query, "rows=", pair) || pair[0] >= pair[1] || pair[1] > UINT32_MAX)
        return error_why(why, ERR_USAGE, "\"%s\": rows=FIRST-LAST, the last one excluded", query);
    p->row_first = (uint32_t)pair[0];
    p->row_count = (uint32_t)(pair[1] - pair[0]);
    return OK;
}

static void get_tensor(void *context, NodeRequest *r)
{
    WardenRole *w = context;
    Why why = {{0}};
    AwfrPiece piece = {.tensor = knot_find(knot_of(w), r->tail)};
    Error e = check_headers(w, r, &why);
    if (e == OK && !piece.tensor)
        e = error_why(&why, ERR_MISSING_TENSOR, "the knot has no tensor \"%s\"", r->tail);
    if (e == OK) e = parse_rows(r->query, &piece, &why);
    if (e) node_server_reply_error(r, e, &why);
    else reply_pieces(w, r, &piece, 1, 0);
}

static Error read_request(const WardenRole *w, const NodeRequest *r, AwfrPiece *pieces,
                          uint32_t *count, FrameHead *head, Why *why)
{
    AwfrTerms terms = terms_of(w);
    TRY(check_headers(w, r, why));
    TRY(awfr_read(FRAME_TENSORS, r->body, r->body_bytes, &terms, pieces, count, head, why));
    return frame_check_payload(head, r->body + head->header_bytes,
                               r->body_bytes - head->header_bytes, why);
}

static void post_tensors(void *context, NodeRequest *r)
{
    WardenRole *w = context;
    Why why = {{0}};
    FrameHead head;
    uint32_t count;
    AwfrPiece *pieces = calloc(AWFR_PIECES_MAX, sizeof *pieces);
    Error e = pieces ? read_request(w, r, pieces, &count, &head, &why)
                     : error_why(&why, ERR_MEMORY, "no memory for a request");
    if (e) node_server_reply_error(r, e, &why);
    else reply_pieces(w, r, pieces, count, head.request_id);
    free(pieces);
}

/* --- plain bytes --- */

static Error parse_bytes(const WardenRole *w, const char *query, uint64_t *first, uint64_t *bytes,
                         Why *why)
{
    uint64_t pair[2];
    if (!parse_pair(query, "bytes=", pair))
        return error_why(why, ERR_USAGE, "\"%s\": bytes=FIRST-LAST, or size", query);
    if (pair[0] > pair[1] || pair[1] >= knot_of(w)->file_bytes)
        return error_why(why, ERR_RANGE, "bytes %llu to %llu, the file has %llu",
                         (unsigned long long)pair[0], (unsigned long long)pair[1],
                         (unsigned long long)knot_of(w)->file_bytes);
    *first = pair[0];
    *bytes = pair[1] - pair[0] + 1;
    return check_size(*bytes, WARDEN_ANSWER_BYTES_MAX, why);
}

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
    if (e == OK) e = parse_bytes(w, r->query, &first, &bytes, &why);
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
    char *end;
    unsigned long row = strtoul(what, &end, 10);
    if (what[0] >= '0' && what[0] <= '9' && *end == '\0') {
        if (!w->vocab || row < w->identity.first || row >= w->identity.last)
            return error_why(why, ERR_RANGE, "row %s: not of this warden, %s", what,
                             w->identity_text);
        warden_vocab_forget(w->vocab, (uint32_t)row);
        return OK;
    }
    const KnotTensor *t = knot_find(knot_of(w), what);
    if (!t) return error_why(why, ERR_MISSING_TENSOR, "the knot has no tensor \"%s\"", what);
    warden_levels_forget(w->levels, t->offset, t->bytes);
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

static void post_configure(void *context, NodeRequest *r)
{
    WardenRole *w = context;
    Why why = {{0}};
    char text[WARDEN_IDENTITY_TEXT_MAX + 32];
    Error e = check_headers(w, r, &why);
    if (e == OK) e = warden_state_configure(w, r->body, r->body_bytes, &why);
    if (e) {
        node_server_reply_error(r, e, &why);
        return;
    }
    int n = snprintf(text, sizeof text, "{\"identity\":\"%s\"}", w->identity_text);
    node_server_reply(r, 200, json, text, (size_t)n);
}

static void get_stats(void *context, NodeRequest *r)
{
    enum { STATS_BYTES = 8192 };
    char *text = malloc(STATS_BYTES);
    Why why = {{0}};
    if (!text) {
        node_server_reply_error(r, error_why(&why, ERR_MEMORY, "no memory for an answer"), &why);
        return;
    }
    warden_state_write(context, text, STATS_BYTES);
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
