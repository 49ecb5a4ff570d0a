/* SPDX-License-Identifier: Apache-2.0 */
/* A node with the role of a station. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/metrics.h"
#include "api/node_configure.h"
#include "api/node_gate.h"
#include "cluster/cache.h"
#include "cluster/station_service.h"
#include "host/cpu.h"
#include "host/node_roles.h"
#include "host/node_vocab.h"
#include "quant/numerics.h"

typedef struct NodeStation {
    NodeWork work; /* first: what routes get is this */
    PhaseRange range;
    PhaseRange shown; /* by /ready: under the lock */
    ForwardTerms terms;
    Station *station;
    StationService *service;
    NodeVocab vocab; /* of a small model: all of the embedding, or of the head */
    atomic_ullong rows;
    atomic_uint sessions;
    atomic_ullong evictions;
} NodeStation;

static NodeStation *station_of(NodeWork *w) { return (NodeStation *)(void *)w; }
static const NodeStation *station_of_const(const NodeWork *w)
{
    return (const NodeStation *)(const void *)w;
}

/* ---- The role ---- */

static StationConfig make_config(const NodeStation *s)
{
    const NodeWork *w = &s->work;
    const ClusterFile *c = w->node->cluster;
    return (StationConfig){
        .knot = &w->model.file.knot,
        .hyper = &w->model.hyper,
        .range = s->range,
        .cache = c->cache,
        .rows_max = w->chunk,
        .sessions_max = c->sessions,
        .context = c->context,
        .blocks = c->sessions * cache_blocks_for(c->context),
        .workers = w->threads,
        .tile_bytes_max = w->memory.tile_bytes_max,
        .kernels = w->kernels,
        .ops = w->ops,
    };
}

static ForwardTerms make_terms(const NodeStation *s)
{
    const NodeWork *w = &s->work;
    const ClusterFile *c = w->node->cluster;
    return (ForwardTerms){
        .identity = {c->knot_id, NUMERICS_VERSION, frame_cache(c->cache)},
        .hyper = &w->model.hyper,
        .range = s->range,
        .rows_max = w->chunk,
        .sequences_max = c->sessions,
        .context = c->context,
    };
}

static Error size_station(NodeWork *w, NodeMemory *m, Why *why)
{
    NodeStation *s = station_of(w);
    StationConfig config = make_config(s);
    ForwardTerms terms = make_terms(s);
    TRY(node_sizes_station(&config, &terms, &m->sizes, why));
    return node_vocab_size(&s->vocab, w, m, why);
}

static Error build_station(NodeWork *w, Arena *arena, void *scratch, Why *why)
{
    NodeStation *s = station_of(w);
    StationConfig config = make_config(s);
    s->terms = make_terms(s);
    s->sessions = 0;
    TRY(station_build(&config, arena, scratch, &s->station, why));
    TRY(station_service_build(&s->terms, s->station, arena, &s->service, why));
    TRY(node_vocab_build(&s->vocab, w, arena, scratch, why));
    return worker_read_floor(&w->worker, s->station, why);
}

static void name_range(const NodeWork *w, char out[NODE_ABOUT_RANGE_BYTES])
{
    const NodeStation *s = station_of_const(w);
    node_about_layers(s->range, w->model.hyper.layers, s->vocab.embed, s->vocab.head, out);
}

static void describe(const NodeWork *w, const NodeAbout *a, JsonWriter *out)
{
    const NodeStation *s = station_of_const(w);
    const ClusterFile *c = w->node->cluster;
    NodeAboutStation station = {
        .range = s->shown,
        .layers = w->model.hyper.layers,
        .embed = s->vocab.embed,
        .head = s->vocab.head,
        .chunk = w->chunk,
        .context = c->context,
        .cache = c->cache,
        .sessions_known = s->sessions,
        .sessions_max = c->sessions,
    };
    node_about_write(a, &station, NULL, out);
}

static void write_metrics(const NodeWork *w, JsonWriter *out)
{
    const NodeStation *s = station_of_const(w);
    node_about_station(s->rows, s->sessions, s->evictions, out);
    node_vocab_write_metrics(&s->vocab, out);
}

/* ---- Routes ---- */

static Error compute(NodeStation *s, const NodeRequest *r, uint32_t *rows, Why *why)
{
    StationFrame frame;
    TRY(station_service_read(s->service, r->body, r->body_bytes, &frame, why));
    *rows = frame.rows;
    http_exchange_drop_body(r->x); /* the frame has all of it */
    Error error = worker_run_station(&s->work.worker, s->station, &frame, why);
    if (error != OK) station_service_end(s->service);
    return error;
}

static Error write_answer(NodeStation *s, uint32_t compute_us, uint8_t **out, size_t *bytes,
                          Why *why)
{
    size_t room = station_service_answer_bytes(s->service);
    *out = malloc(room);
    if (!*out) {
        station_service_end(s->service);
        return error_why(why, ERR_MEMORY, "no memory for an answer of %zu bytes", room);
    }
    Error error = station_service_write(s->service, compute_us, *out, room, bytes, why);
    if (error != OK) free(*out);
    return error;
}

static void publish(NodeStation *s)
{
    s->sessions = station_service_sessions(s->service);
    s->evictions = station_service_evictions(s->service);
}

static void run_forward(void *work, NodeRequest *r)
{
    NodeStation *s = station_of(work);
    Why why = {{0}};
    uint8_t *answer = NULL;
    size_t bytes = 0;
    uint32_t rows = 0;
    if (node_work_refuses(&s->work, r)) return;
    uint64_t begun = node_work_begin(&s->work, r);
    Error error = compute(s, r, &rows, &why);
    uint32_t compute_us = node_work_end(&s->work, begun);
    if (error == OK) error = write_answer(s, compute_us, &answer, &bytes, &why);
    publish(s);
    if (error != OK) {
        node_work_fail(&s->work, r, "forward", error, &why);
        return;
    }
    atomic_fetch_add(&s->rows, rows);
    node_server_reply_take(r, 200, NODE_GATE_OCTETS, answer, bytes);
}

static void run_embed(void *work, NodeRequest *r)
{
    node_vocab_run(&station_of(work)->vocab, work, SHARD_SERVICE_EMBED, r);
}

static void run_logits(void *work, NodeRequest *r)
{
    node_vocab_run(&station_of(work)->vocab, work, SHARD_SERVICE_LOGITS, r);
}

static void run_drop(void *work, NodeRequest *r)
{
    NodeStation *s = station_of(work);
    Why why;
    uint64_t session;
    if (!s->work.loaded && node_work_refuses(&s->work, r)) return;
    Error error = node_gate_session(r->tail, &session, &why);
    if (error == OK && !station_service_drop(s->service, session))
        error = node_gate_no_session(session, &why);
    publish(s);
    if (error != OK) node_server_reply_error(r, error, &why);
    else
        node_server_reply(r, 200, NODE_GATE_JSON, NODE_GATE_DROPPED_BODY,
                          sizeof NODE_GATE_DROPPED_BODY - 1);
}

static Error rebuild(NodeStation *s, const NodeMemory *sum, Why *why)
{
    pthread_mutex_lock(&s->work.lock);
    s->shown = s->range;
    pthread_mutex_unlock(&s->work.lock);
    return node_work_rebuild(&s->work, sum, why);
}

/* Sessions end here: the attention cache of another range is another. */
static void run_configure(void *work, NodeRequest *r)
{
    NodeStation *s = station_of(work);
    NodeWork *w = &s->work;
    Why why = {{0}};
    NodeMemory sum;
    PhaseRange range, before = s->range;
    if (node_work_refuses(w, r)) return;
    Error error =
        node_configure_read_range(r->body, r->body_bytes, w->model.hyper.layers, &range, &why);
    if (error == OK) {
        s->range = range;
        ClusterNode part = *w->node->self;
        part.range = range;
        error = node_work_fits(w, &sum, &why);
        if (error == OK) error = node_model_extend(&w->model, &part, &why);
        if (error != OK) s->range = before;
        else error = rebuild(s, &sum, &why);
    }
    node_work_configured(w, r, error, &why);
}

static const NodeRoute routes[] = {
    {"POST", "/forward", run_forward},     {"POST", "/embed", run_embed},
    {"POST", "/logits", run_logits},       {"DELETE", "/sessions/", run_drop},
    {"POST", "/configure", run_configure}, {"POST", "/drain", node_work_drain},
};

static const NodeWorkRole role = {
    .routes = routes,
    .route_count = sizeof routes / sizeof routes[0],
    .size = size_station,
    .build = build_station,
    .name_range = name_range,
    .describe = describe,
    .write_metrics = write_metrics,
};

Error node_station_run(Node *node, Why *why)
{
    NodeStation *s = calloc(1, sizeof *s);
    if (!s) return error_why(why, ERR_MEMORY, "no memory for a station");
    s->range = s->shown = node->self->range;
    s->vocab = (NodeVocab){
        .id_last = node->cluster->vocabulary, .embed = node->self->embed, .head = node->self->head};
    Error error = node_work_run(&s->work, node, &role, cpu_cores(), why);
    free(s);
    return error;
}
