/* SPDX-License-Identifier: Apache-2.0 */
/* A node with the role of a shard. */
#include <stdio.h>
#include <stdlib.h>

#include "api/metrics.h"
#include "cluster/shard_service.h"
#include "host/node_configure.h"
#include "host/node_roles.h"
#include "host/node_work.h"
#include "quant/numerics.h"

/* For embedding rows beside a resident head. */
static const uint64_t ROWS_WINDOW_BYTES = (uint64_t)8 << 20;

typedef struct NodeShard {
    NodeWork work; /* first: what routes get is this */
    uint32_t id_first, id_last;
    Shard *shard;
    ShardService *service;
    atomic_ullong embeds, logits;
} NodeShard;

static NodeShard *shard_of(NodeWork *w) { return (NodeShard *)(void *)w; }
static const NodeShard *shard_of_const(const NodeWork *w)
{
    return (const NodeShard *)(const void *)w;
}

/* ---- The role ---- */

static ShardConfig make_config(const NodeShard *s)
{
    const NodeWork *w = &s->work;
    return (ShardConfig){
        .knot = &w->model.file.knot,
        .hyper = &w->model.hyper,
        .id_first = s->id_first,
        .id_last = s->id_last,
        .rows_max = w->logit_rows,
        .workers = w->threads,
        .tile_bytes_max = w->memory.tile_bytes_max,
        .kernels = w->kernels,
    };
}

static ShardServiceConfig make_service_config(const NodeShard *s)
{
    const NodeWork *w = &s->work;
    ShardServiceConfig c = {
        .terms = {.identity = {w->node->cluster->knot_id, NUMERICS_VERSION, FRAME_CACHE_NONE},
                  .hyper = &w->model.hyper,
                  .id_first = s->id_first,
                  .id_last = s->id_last,
                  .rows_max = w->chunk},
        .logit_rows_max = w->logit_rows,
    };
    c.terms.payload_bytes_max = shard_service_payload_bytes_max(&c);
    return c;
}

/* The head's rows of these ids, whole panels. */
static Error find_weights(const NodeShard *s, NodeMemory *m, Why *why)
{
    const Knot *knot = &s->work.model.file.knot;
    const KnotTensor *head = knot_find(knot, "output_weight");
    if (!head) head = knot_find(knot, "token_embd_weight");
    if (!head) return error_why(why, ERR_MISSING_TENSOR, "token_embd_weight is missing");
    bool panels = head->layout == LAYOUT_X16;
    uint64_t unit_bytes, unit = panels ? PANEL_ROWS : 1;
    TRY(panels ? layout_panel_bytes(head->type, head->cols, &unit_bytes, why)
               : block_row_bytes(head->type, head->cols, &unit_bytes, why));
    m->weights_first = head->offset + s->id_first / unit * unit_bytes;
    m->weights_last = head->offset + (s->id_last + unit - 1) / unit * unit_bytes;
    m->rows_window_bytes = ROWS_WINDOW_BYTES;
    return OK;
}

/* An embed's rows, or of each row of logits: every candidate, the whole slice. */
static uint64_t answer_bytes_max(const NodeShard *s)
{
    uint64_t ids = s->id_last - s->id_first;
    uint64_t embed = (uint64_t)s->work.chunk * s->work.model.hyper.hidden * sizeof(float);
    uint64_t logits = s->work.logit_rows * ids * (sizeof(SamplerCandidate) + sizeof(float));
    return (embed > logits ? embed : logits) + FRAME_HEADER_BYTES_MIN +
           (uint64_t)(s->work.chunk + s->work.logit_rows) * FRAME_HEADER_UNIT;
}

static Error size_shard(NodeWork *w, NodeMemory *m, Why *why)
{
    NodeShard *s = shard_of(w);
    ShardConfig config = make_config(s);
    ShardServiceConfig service = make_service_config(s);
    ShardSizes sizes;
    TRY(shard_sizes(&config, &sizes, why));
    m->floor_bytes = sizes.floor_bytes;
    m->scratch_bytes = sizes.scratch_bytes;
    m->logits_bytes = sizes.logits_bytes;
    m->widest_panel_bytes = sizes.widest_panel_bytes;
    m->service_bytes = shard_service_bytes(&service);
    m->body_bytes_max = shard_service_body_bytes_max(&service);
    m->answer_bytes_max = answer_bytes_max(s);
    return find_weights(s, m, why);
}

static Error build_shard(NodeWork *w, Arena *arena, void *scratch, Why *why)
{
    NodeShard *s = shard_of(w);
    ShardConfig config = make_config(s);
    ShardServiceConfig service = make_service_config(s);
    TRY(shard_build(&config, arena, scratch, &s->shard, why));
    return shard_service_build(&service, s->shard, arena, &s->service, why);
}

static void name_range(const NodeWork *w, char out[NODE_RANGE_BYTES])
{
    const NodeShard *s = shard_of_const(w);
    (void)snprintf(out, NODE_RANGE_BYTES, "ids %u to %u", s->id_first, s->id_last);
}

static void write_number(JsonWriter *out, const char *before, uint64_t value)
{
    json_writer_raw(out, before);
    json_writer_u64(out, value);
}

/* The range is written under the lock, by run_configure. */
static void describe(const NodeWork *w, JsonWriter *out)
{
    const NodeShard *s = shard_of_const(w);
    write_number(out, ",\"ids\":[", s->id_first);
    write_number(out, ",", s->id_last);
    write_number(out, "],\"chunk\":", w->chunk);
    write_number(out, ",\"logit_rows\":", w->logit_rows);
}

static void write_metrics(const NodeWork *w, JsonWriter *out)
{
    const NodeShard *s = shard_of_const(w);
    metrics_write_count(out, "cobord_shard_embeds_total", "Requests for embedding rows.",
                        s->embeds);
    metrics_write_count(out, "cobord_shard_logits_total", "Requests for logits.", s->logits);
}

/* ---- Routes ---- */

static Error answer(NodeShard *s, ShardServiceKind kind, const NodeRequest *r, uint8_t **out,
                    size_t *bytes, Why *why)
{
    TRY(shard_service_begin(s->service, kind, r->body, r->body_bytes, why));
    Slice *slice = s->work.model.slice;
    TRY(slice ? slice_run_shard(slice, &s->work.worker, s->shard, why)
              : worker_run_shard(&s->work.worker, s->shard, why));
    size_t room = shard_service_answer_bytes(s->service);
    *out = malloc(room);
    if (!*out) return error_why(why, ERR_MEMORY, "no memory for an answer of %zu bytes", room);
    Error error = shard_service_write(s->service, *out, room, bytes, why);
    if (error != OK) free(*out);
    return error;
}

static void run(NodeShard *s, ShardServiceKind kind, const char *what, NodeRequest *r)
{
    Why why = {{0}};
    uint8_t *bytes = NULL;
    size_t count = 0;
    if (node_work_refuses(&s->work, r)) return;
    uint64_t begun = node_work_begin(&s->work, r);
    Error error = answer(s, kind, r, &bytes, &count, &why);
    (void)node_work_end(&s->work, begun);
    if (error == OK) node_reply_take(r, 200, "application/octet-stream", bytes, count);
    else node_work_fail(&s->work, r, what, error, &why);
}

static void run_embed(void *work, NodeRequest *r)
{
    NodeShard *s = shard_of(work);
    atomic_fetch_add(&s->embeds, 1);
    run(s, SHARD_SERVICE_EMBED, "embed", r);
}

static void run_logits(void *work, NodeRequest *r)
{
    NodeShard *s = shard_of(work);
    atomic_fetch_add(&s->logits, 1);
    run(s, SHARD_SERVICE_LOGITS, "logits", r);
}

static void set_ids(NodeShard *s, uint32_t first, uint32_t last)
{
    pthread_mutex_lock(&s->work.lock);
    s->id_first = first;
    s->id_last = last;
    pthread_mutex_unlock(&s->work.lock);
}

static void run_configure(void *work, NodeRequest *r)
{
    NodeShard *s = shard_of(work);
    NodeWork *w = &s->work;
    Why why = {{0}};
    NodeMemory sum;
    uint32_t first, last, first_before = s->id_first, last_before = s->id_last;
    if (node_work_refuses(w, r)) return;
    Error error = node_configure_read_ids(r->body, r->body_bytes, w->model.hyper.vocabulary, &first,
                                          &last, &why);
    if (error == OK) {
        set_ids(s, first, last);
        ClusterNode part = *w->node->self;
        part.id_first = first;
        part.id_last = last;
        error = node_work_fits(w, &sum, &why);
        if (error == OK) error = node_model_extend(&w->model, &part, &why);
        if (error != OK) set_ids(s, first_before, last_before);
        else error = node_work_rebuild(w, &sum, &why);
    }
    if (error != OK) {
        node_work_fail(w, r, "configure", error, &why);
        return;
    }
    node_announce(w->node, w->range);
    node_reply(r, 200, "application/json", "{\"configured\":true}", 19);
}

static const NodeRoute routes[] = {
    {"POST", "/embed", run_embed},
    {"POST", "/logits", run_logits},
    {"POST", "/configure", run_configure},
    {"POST", "/drain", node_work_drain},
};

static const NodeWorkRole role = {
    .routes = routes,
    .route_count = sizeof routes / sizeof routes[0],
    .size = size_shard,
    .build = build_shard,
    .name_range = name_range,
    .describe = describe,
    .write_metrics = write_metrics,
};

Error node_shard_run(Node *node, Why *why)
{
    NodeShard *s = calloc(1, sizeof *s);
    if (!s) return error_why(why, ERR_MEMORY, "no memory for a shard");
    s->id_first = node->self->id_first;
    s->id_last = node->self->id_last;
    Error error = node_work_run(&s->work, node, &role, 1, why);
    free(s);
    return error;
}
