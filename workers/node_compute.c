/* SPDX-License-Identifier: Apache-2.0 */
/* Stations and shards: memory, building, and the bytes that stay. */
#include "node_compute.h"

#include <string.h>

#include "base/max.h"
#include "base/min.h"
#include "reserve.h"

NodeCompute node_compute;

enum { PIN_STEP_BYTES = 4 << 20 };

/* ---- Blocks ---- */

static void blocks_are_there(Node *n)
{
    NodeCompute *c = &node_compute;
    c->error = n->fetch.error;
    c->why = n->fetch.why;
    if (c->error == OK) blocks_came(&c->weights, &c->read);
    c->then(n);
}

void node_compute_bring(Node *n, uint64_t offset, uint64_t bytes, uint64_t until, NodeThen *then)
{
    NodeCompute *c = &node_compute;
    c->then = then;
    if (blocks_ceiling(offset + bytes, c->weights.end) - blocks_floor(offset) >
        c->weights.window_bytes) {
        c->error =
            error_why(&c->why, ERR_TOO_LARGE, "%llu bytes at once, the window has %llu",
                      (unsigned long long)bytes, (unsigned long long)c->weights.window_bytes);
        then(n);
        return;
    }
    c->read = blocks_need(&c->weights, offset, bytes, until);
    if (c->read.bytes)
        node_want_blocks(n, c->read.offset, c->read.bytes, c->read.to, blocks_are_there);
    else then(n);
}

/* ---- Building: memory ---- */

static Error take_roles(Node *n, const NodeSizes *sizes, Why *why)
{
    NodeCompute *c = &node_compute;
    StationKeeperTerms keeper = node_compute_keeper_terms(n);
    uint64_t kept =
        sizes->floor_bytes + sizes->cache_bytes + sizes->logits_bytes + sizes->service_bytes +
        (c->is_station ? station_keeper_bytes(&keeper, c->sessions) : 0) + 8 * ARENA_ALIGN;
    void *memory = node_take(n, kept), *scratch = node_take(n, sizes->scratch_bytes);
    if (!memory || !scratch)
        return error_why(why, ERR_MEMORY, "%llu bytes for a role", (unsigned long long)kept);
    Arena arena = arena_make(memory, (size_t)kept);
    if (c->is_station) {
        StationConfig config = node_compute_station_config(n);
        TRY(station_build(&config, &arena, scratch, &c->station, why));
        TRY(station_service_build(&c->terms, c->station, &arena, &c->service, why));
        TRY(station_keeper_build(&keeper, c->station, station_service_table(c->service), &arena,
                                 &c->keeper, why));
    }
    if (!c->embed && !c->head) return OK;
    ShardConfig config = node_compute_shard_config(n);
    ShardServiceConfig service = node_compute_shard_service(n);
    TRY(shard_build(&config, &arena, scratch, &c->shard, why));
    return shard_service_build(&service, c->shard, &arena, &c->shard_service, why);
}

static Error take_weights(Node *n, Why *why)
{
    NodeCompute *c = &node_compute;
    const Isolate *o = &c->isolate;
    uint64_t rows = o->rows_last - o->rows_first, end = n->index.knot.block_hashes.offset;
    c->rows = (Blocks){
        .memory = node_take(n, rows), .first = o->rows_first, .pinned_bytes = rows, .end = end};
    c->weights = (Blocks){.memory = node_take(n, o->pinned_bytes + o->window_bytes),
                          .first = o->first,
                          .window_bytes = o->window_bytes,
                          .end = end};
    if (c->rows.memory && c->weights.memory) return OK;
    return error_why(why, ERR_MEMORY, "%llu bytes for weights", (unsigned long long)o->total_bytes);
}

static Error take_all(Node *n, Why *why)
{
    NodeCompute *c = &node_compute;
    NodeSizes sizes;
    TRY(node_compute_size(n, &c->isolate, &sizes, why));
    node_give_back(n, c->mark);
    c->terms = node_compute_terms(n);
    c->weight_bytes = sizes.weights_last - sizes.weights_first;
    c->answer_room = sizes.answer_bytes_max;
    c->answer = node_take(n, sizes.answer_bytes_max);
    n->body = node_take(n, sizes.body_bytes_max);
    n->body_bytes_max = sizes.body_bytes_max;
    if (!c->answer || !n->body) return error_why(why, ERR_MEMORY, "no memory for frames");
    TRY(take_roles(n, &sizes, why));
    return take_weights(n, why);
}

/* ---- Building: bytes that stay ---- */

static NodeThen *built;

static void finish(Node *n)
{
    NodeCompute *c = &node_compute;
    c->loaded = c->error == OK;
    if (c->is_station) node_about_layers(c->range, n->hyper.layers, c->embed, c->head, c->owns);
    else node_about_ids(c->id_first, c->id_last, c->owns);
    c->counts = (NodeWorkCounts){.calls = c->counts.calls, .failures = c->counts.failures};
    built(n);
}

/* Pieces of the embedding rows, then of the pinned weights, straight to their places. */
static void pin_next(Node *n);

static void piece_came(Node *n)
{
    NodeCompute *c = &node_compute;
    if (n->fetch.error != OK) {
        c->error = n->fetch.error;
        c->why = n->fetch.why;
        finish(n);
        return;
    }
    c->at_byte += n->fetch.bytes;
    pin_next(n);
}

static void pin_next(Node *n)
{
    NodeCompute *c = &node_compute;
    uint64_t rows = c->rows.pinned_bytes, all = rows + c->isolate.pinned_bytes;
    if (c->at_byte == all) {
        c->weights.pinned_bytes = c->isolate.pinned_bytes;
        (void)blocks_lend(&c->weights);
        finish(n);
        return;
    }
    bool row = c->at_byte < rows;
    uint64_t at = row ? c->at_byte : c->at_byte - rows,
             left = (row ? rows : c->isolate.pinned_bytes) - at;
    const Blocks *b = row ? &c->rows : &c->weights;
    node_want_blocks(n, b->first + at, min_u64(left, PIN_STEP_BYTES), b->memory + at, piece_came);
}

/* Vectors of the station, through the window. */
static void floor_next(Node *n)
{
    NodeCompute *c = &node_compute;
    for (; c->error == OK && c->station && c->at < station_floor_count(c->station); c->at++) {
        float *to;
        const KnotTensor *t = station_floor_tensor(c->station, c->at, &to);
        const uint8_t *bytes = blocks_at(&c->weights, t->offset, t->bytes);
        if (!bytes) {
            node_compute_bring(n, t->offset, t->bytes, t->offset + t->bytes, floor_next);
            return;
        }
        c->error = block_dequantize_row(t->type, bytes, t->cols, to, &c->why);
    }
    c->at_byte = 0;
    if (c->error == OK) pin_next(n);
    else finish(n);
}

void node_compute_build(Node *n, NodeThen *then)
{
    NodeCompute *c = &node_compute;
    built = then;
    c->loaded = false;
    c->why = (Why){{0}};
    c->error = take_all(n, &c->why);
    c->at = 0;
    if (c->error == OK) floor_next(n);
    else finish(n);
}

/* ---- Opening ---- */

static void opened(Node *n)
{
    NodeCompute *c = &node_compute;
    if (c->error == OK) node_opened(n);
    else node_open_failed(n, c->error, &c->why);
}

static void built_first(Node *n)
{
    if (node_compute.error == OK && node_compute.keeper) node_sessions_restore(n, opened);
    else opened(n);
}

/* A range that /configure gave, kept from before: its body. */
static uint8_t range_row[NODE_CONFIGURE_BYTES_MAX];

static void range_came(Node *n)
{
    Why why = {{0}};
    if (n->came[0].failed || !n->came[0].status) {
        node_compute_build(n, built_first);
        return;
    }
    Error error = node_compute_read_range(n, range_row, (size_t)n->came[0].bytes, &why);
    if (error != OK) node_log(n, "the range that was configured", error, &why);
    node_want_rows(n, NODE_COMPUTE_RANGE_KEY, range_row, sizeof range_row, range_came);
}

void node_compute_open(Node *n)
{
    Why why = {{0}};
    Error error = node_compute_read_settings(n, &why);
    node_compute.mark = node_mark(n);
    if (error != OK) node_open_failed(n, error, &why);
    else node_want_rows(n, NODE_COMPUTE_RANGE_KEY, range_row, sizeof range_row, range_came);
}

/* ---- Another range ---- */

Error node_compute_read_range(Node *n, const uint8_t *body, size_t bytes, Why *why)
{
    NodeCompute *c = &node_compute;
    if (c->is_station)
        return node_configure_read_range(body, bytes, n->hyper.layers, &c->range, why);
    return node_configure_read_ids(body, bytes, n->hyper.vocabulary, &c->id_first, &c->id_last,
                                   why);
}

static void say_configured(Node *n)
{
    node_reply(n, 200, NODE_GATE_JSON, NODE_GATE_CONFIGURED_BODY,
               sizeof NODE_GATE_CONFIGURED_BODY - 1, node_end);
}

static uint32_t range_row_bytes;

/* It lasts once it is there. Without any weights the host opens another instance, with the range
 * of before. */
static void configured(Node *n)
{
    NodeCompute *c = &node_compute;
    if (c->error != OK) {
        n->loop.failed = true;
        n->open_error = c->error;
        n->open_why = c->why;
        node_compute_fail(n, "configure", c->error, &c->why, node_end);
        return;
    }
    NodeWish row = {.kind = NODE_ROW_PUT,
                    .text = NODE_COMPUTE_RANGE_KEY,
                    .address = range_row,
                    .bytes = range_row_bytes};
    node_want(n, &row, say_configured);
}

static void rebuild(Node *n) { node_compute_build(n, configured); }

/* Sessions end here: the attention cache of another range is another. */
static void end_sessions(Node *n)
{
    if (!node_compute.keeper) {
        rebuild(n);
        return;
    }
    station_sessions_drop_all(station_service_table(node_compute.service));
    node_sessions_cut(n, rebuild);
}

void node_compute_configure(Node *n)
{
    NodeCompute *c = &node_compute, before = *c;
    NodeSizes sizes;
    Why why = {{0}};
    if (node_compute_refuses(n)) return;
    Isolate isolate;
    Error error = node_compute_read_range(n, n->request.body, n->request.body_bytes, &why);
    if (error == OK) error = node_compute_size(n, &isolate, &sizes, &why);
    if (error != OK) {
        *c = before;
        node_compute_fail(n, "configure", error, &why, node_end);
        return;
    }
    memcpy(range_row, n->request.body, n->request.body_bytes);
    range_row_bytes = n->request.body_bytes;
    end_sessions(n);
}

void node_compute_drain(Node *n)
{
    n->drained = true;
    node_reply(n, 200, NODE_GATE_JSON, NODE_GATE_DRAINING_BODY, sizeof NODE_GATE_DRAINING_BODY - 1,
               node_end);
}

/* ---- Requests ---- */

NodeAbout node_compute_about(const Node *n)
{
    const NodeCompute *c = &node_compute;
    return (NodeAbout){
        .state = n->drained  ? "draining"
                 : c->loaded ? "ready"
                             : "loading",
        .id = n->id,
        .role = cluster_file_role_name(n->kind),
        .version = n->version,
        .knot_id = n->knot_id,
        .isa = kernels_isa_name(c->kernels->isa),
        .threads = 1,
        .owns = c->owns,
        .memory.budget_bytes = n->budget_bytes,
        .memory.need_bytes = c->isolate.total_bytes,
        .memory.resident_bytes = reserve_bytes(),
        .memory.peak_bytes = reserve_bytes(),
        .resident = c->isolate.resident,
        .weight_bytes = c->weight_bytes,
        .pinned_bytes = c->isolate.pinned_bytes,
    };
}

bool node_compute_refuses(Node *n)
{
    const NodeCompute *c = &node_compute;
    Why why;
    if (!c->loaded) node_reply_error(n, node_gate_loading(n->id, &why), &why, node_end);
    else if (n->drained) node_reply_error(n, node_gate_drained(n->id, &why), &why, node_end);
    else return false;
    return true;
}

void node_compute_begin(Node *n)
{
    node_compute.begun_ms = n->now_ms;
    node_compute.counts.calls++;
}

uint32_t node_compute_end(Node *n)
{
    uint64_t us = (n->now_ms - node_compute.begun_ms) * 1000;
    node_compute.counts.compute_us += us;
    return (uint32_t)min_u64(us, UINT32_MAX);
}

/* What a coordinator does in the normal course of things is no news. */
static bool is_worth_a_line(Error error)
{
    unsigned status = node_error_status(error);
    return error == ERR_UNSUPPORTED || (status != 503 && status != 409 && status != 410);
}

void node_compute_fail(Node *n, const char *what, Error error, const Why *why, NodeThen *then)
{
    node_compute.counts.failures++;
    if (is_worth_a_line(error)) node_log(n, what, error, why);
    node_reply_error(n, error, why, then);
}
