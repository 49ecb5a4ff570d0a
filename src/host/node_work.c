/* SPDX-License-Identifier: Apache-2.0 */
#include "host/node_work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/node_gate.h"
#include "cluster/plan_cluster.h"
#include "host/clock.h"
#include "host/cpu.h"
#include "host/memory.h"
#include "wire/node_error.h"

enum { QUEUE_MAX = 64, LOG_PAUSE_S = 1 };

/* ---- Requests ---- */

bool node_work_refuses(NodeWork *w, NodeRequest *r)
{
    Why why;
    const char *id = w->node->self->id;
    if (!w->loaded) node_server_reply_error(r, node_gate_loading(id, &why), &why);
    else if (w->drained) node_server_reply_error(r, node_gate_drained(id, &why), &why);
    return r->replied;
}

/* What a coordinator does in the normal course of things is no news; what strangers send gets a line a second. */
static bool is_worth_a_line(NodeWork *w, Error error)
{
    unsigned status = node_error_status(error);
    if (status == 503 || status == 409 || status == 410) return error == ERR_UNSUPPORTED;
    uint64_t now = clock_now_ns();
    if (status != 500 && now - w->last_log_ns < LOG_PAUSE_S * 1000000000ull) return false;
    w->last_log_ns = now;
    return true;
}

void node_work_fail(NodeWork *w, NodeRequest *r, const char *what, Error error, const Why *why)
{
    atomic_fetch_add(&w->figures.failures, 1);
    if (is_worth_a_line(w, error)) node_log(w->node, w->range, what, error, why);
    node_server_reply_error(r, error, why);
    /* Whoever starts it again begins with the file as it is then. */
    if (error == ERR_IO && knot_file_intact(&w->model.file, NULL) != OK) node_server_stop();
}

void node_work_configured(NodeWork *w, NodeRequest *r, Error error, const Why *why)
{
    if (error != OK) {
        node_work_fail(w, r, "configure", error, why);
        return;
    }
    node_announce(w->node, w->range);
    node_server_reply(r, 200, NODE_GATE_JSON, NODE_GATE_CONFIGURED_BODY,
                      sizeof NODE_GATE_CONFIGURED_BODY - 1);
}

uint64_t node_work_begin(NodeWork *w, NodeRequest *r)
{
    w->current = r;
    atomic_fetch_add(&w->figures.calls, 1);
    return clock_now_ns();
}

uint32_t node_work_end(NodeWork *w, uint64_t begun_ns)
{
    const WeightsCounters *c = &w->worker.weights.counters;
    uint64_t us = (clock_now_ns() - begun_ns) / 1000;
    w->current = NULL;
    atomic_fetch_add(&w->figures.compute_us, us);
    w->figures.weight_bytes = c->bytes;
    w->figures.tiles = c->tiles;
    w->figures.phase_loads = c->phase_loads;
    w->figures.dropped_bytes = c->dropped_bytes;
    return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

static bool client_is_gone(void *work)
{
    const NodeWork *w = work;
    return w->current && node_server_request_gone(w->current);
}

void node_work_drain(void *work, NodeRequest *r)
{
    NodeWork *w = work;
    w->drained = true;
    node_server_reply(r, 200, NODE_GATE_JSON, NODE_GATE_DRAINING_BODY,
                      sizeof NODE_GATE_DRAINING_BODY - 1);
}

/* ---- What the node says of itself ---- */

static const char *state_name(const NodeWork *w)
{
    if (w->drained || (w->server && node_server_draining(w->server))) return "draining";
    return w->loaded ? "ready" : "loading";
}

/* Under the lock, for the texts. */
static NodeAbout about(const NodeWork *w)
{
    return (NodeAbout){
        .state = state_name(w),
        .id = w->node->self->id,
        .role = cluster_file_role_name(w->node->self->role),
        .version = w->node->options->version,
        .knot_id = w->node->cluster->knot_id,
        .isa = kernels_isa_name(w->kernels->isa),
        .threads = w->threads,
        .owns = w->range,
        .memory.budget_bytes = w->node->cluster->memory_bytes,
        .memory.need_bytes = w->loaded_total_bytes,
        .memory.resident_bytes = memory_resident(),
        .memory.peak_bytes = memory_peak(),
        .resident = w->loaded_resident,
        .weight_bytes = w->loaded_weight_bytes,
        .pinned_bytes = w->loaded_pinned_bytes,
    };
}

static bool say_ready(void *work, char *json, size_t room)
{
    NodeWork *w = work;
    JsonWriter out = json_writer_make(json, room - 1);
    pthread_mutex_lock(&w->lock);
    NodeAbout a = about(w);
    w->role->describe(w, &a, &out);
    pthread_mutex_unlock(&w->lock);
    ASSERT(!out.full);
    json[out.used] = '\0';
    return node_about_is_ready(&a);
}

static void say_metrics(void *work, char *text, size_t room)
{
    NodeWork *w = work;
    const NodeWorkFigures *f = &w->figures;
    NodeWorkCounts counts = {f->calls, f->failures,    f->compute_us,   f->weight_bytes,
                             f->tiles, f->phase_loads, f->dropped_bytes};
    JsonWriter out = json_writer_make(text, room - 1);
    pthread_mutex_lock(&w->lock);
    NodeAbout a = about(w);
    node_about_work(&a, &counts, &out);
    pthread_mutex_unlock(&w->lock);
    w->role->write_metrics(w, &out);
    ASSERT(!out.full);
    text[out.used] = '\0';
}

/* ---- Building ---- */

Error node_work_fits(NodeWork *w, NodeMemory *sum, Why *why)
{
    *sum = (NodeMemory){.process_bytes = w->memory.process_bytes};
    TRY(w->role->size(w, sum, why));
    return node_memory_choose(sum, w->node->self->id, w->node->cluster->memory_bytes, why);
}

static Error build(NodeWork *w, Why *why)
{
    Arena arena;
    void *scratch;
    NodeMemory *m = &w->memory;
    TRY(node_memory_take(m, &arena, &scratch, why));
    TRY(worker_start(&w->worker, &w->model.file, 0, m->window_bytes, w->threads, why));
    weights_pin(&w->worker.weights, m->sizes.weights_first,
                m->sizes.weights_first + m->pinned_bytes);
    knot_file_bring_in(&w->model.file, m->sizes.weights_first, m->pinned_bytes);
    w->worker.cancelled = client_is_gone;
    w->worker.cancel_context = w;
    TRY(w->role->build(w, &arena, scratch, why));
    weights_drop(&w->worker.weights);
    w->worker.weights.counters = (WeightsCounters){0};
    pthread_mutex_lock(&w->lock);
    w->role->name_range(w, w->range);
    w->loaded_total_bytes = m->total_bytes;
    w->loaded_pinned_bytes = m->pinned_bytes;
    w->loaded_weight_bytes = m->sizes.weights_last - m->sizes.weights_first;
    w->loaded_resident = m->resident;
    pthread_mutex_unlock(&w->lock);
    return OK;
}

static void tear_down(NodeWork *w)
{
    NodeMemory *m = &w->memory;
    worker_stop(&w->worker);
    node_memory_give_back(m);
    if (m->sizes.weights_last > m->sizes.weights_first)
        knot_file_drop(&w->model.file, m->sizes.weights_first,
                       m->sizes.weights_last - m->sizes.weights_first);
}

Error node_work_rebuild(NodeWork *w, const NodeMemory *sum, Why *why)
{
    w->loaded = false;
    tear_down(w);
    w->memory = *sum;
    node_server_limit_bodies(w->server, (size_t)sum->sizes.body_bytes_max,
                             (size_t)node_memory_bodies_bytes(sum));
    TRY(build(w, why));
    w->loaded = true;
    return OK;
}

static Error choose_isa(NodeWork *w, Why *why)
{
    const NodeOptions *o = w->node->options;
    Isa isa = o->isa_given ? o->isa : cpu_best();
    w->kernels = kernels_for(isa);
    w->ops = ops_for(isa);
    if (w->kernels && w->ops && cpu_has(isa)) return OK;
    return error_why(why, ERR_NOT_AVAILABLE, "instruction set %s", kernels_isa_name(isa));
}

/* What all nodes of a file must find alike: rows of a frame, rows that want logits. */
static Error choose_rows(NodeWork *w, Why *why)
{
    static Plan plan;
    const ClusterFile *c = w->node->cluster;
    PhaseRange ranges[PHASES * 512];
    uint32_t stations = c->parts[CLUSTER_STATION];
    if (stations > sizeof ranges / sizeof ranges[0])
        return error_why(why, ERR_RANGE, "%u stations", stations);
    for (uint32_t i = 0; i < stations; i++)
        ranges[i] = c->nodes[cluster_file_part(c, CLUSTER_STATION, i)].range;
    PlanRequest request = {
        .knot = &w->model.file.knot,
        .hyper = &w->model.hyper,
        .memory_bytes = c->memory_bytes,
        .process_bytes = PLAN_PROCESS_BYTES,
        .stations = stations,
        .shards = c->parts[CLUSTER_SHARD],
        .embed = c->nodes[cluster_file_part(c, CLUSTER_STATION, 0)].embed,
        .head = c->nodes[cluster_file_part(c, CLUSTER_STATION, stations - 1)].head,
        .ranges = ranges,
        .context = c->context,
        .chunk = c->chunk,
        .logit_rows = c->sessions,
        .drafts = PLAN_DRAFTS_DEFAULT,
        .ids_most = plan_cluster_ids_most(c, w->model.hyper.vocabulary),
        .sessions = c->sessions,
        .workers = 1,
        .cache = c->cache,
        .kernels = w->kernels,
        .ops = w->ops,
    };
    Error error = plan_make(&request, &plan, why);
    if (error == ERR_PLAN && c->chunk) error = OK; /* another node's matter: this one sees below */
    w->chunk = plan.chunk;
    w->logit_rows = plan.logit_rows;
    return error;
}

static Error open_server(NodeWork *w, Why *why)
{
    NodeServerOptions options = {
        .listen = w->node->listen,
        .key = w->node->key,
        .certificate_file = w->node->certificate_file,
        .certificate_key_file = w->node->certificate_key_file,
        .routes = w->role->routes,
        .route_count = w->role->route_count,
        .threads = 1,
        .queue_max = QUEUE_MAX,
        .version = w->node->options->version,
        .role = cluster_file_role_name(w->node->self->role),
        .memory_bytes = w->node->cluster->memory_bytes,
        .drain_s = w->node->options->drain_s,
        .body_bytes_max = (size_t)w->memory.sizes.body_bytes_max,
        .bodies_bytes_max = (size_t)node_memory_bodies_bytes(&w->memory),
        .context = w,
        .ready = say_ready,
        .metrics = say_metrics,
    };
    w->node->listen.fd = -1;
    return node_server_open(&options, &w->server, why);
}

static Error serve(NodeWork *w, uint32_t threads_default, Why *why)
{
    TRY(choose_isa(w, why));
    w->threads = w->node->options->threads ? w->node->options->threads : threads_default;
    TRY(node_model_open(w->node, &w->model, why));
    TRY(choose_rows(w, why));
    TRY(node_work_fits(w, &w->memory, why));
    w->role->name_range(w, w->range);
    TRY(open_server(w, why));
    TRY(node_model_verify(w->node, &w->model, why));
    TRY(build(w, why));
    char range[NODE_ABOUT_RANGE_BYTES];
    memcpy(range, w->range, sizeof range);
    w->loaded = true; /* from here on the range is the working thread's */
    node_server_begin();
    node_announce(w->node, range);
    node_server_run(w->server);
    return knot_file_intact(&w->model.file, why);
}

Error node_work_run(NodeWork *w, Node *node, const NodeWorkRole *role, uint32_t threads_default,
                    Why *why)
{
    w->node = node;
    w->role = role;
    w->model.file.descriptor = -1;
    pthread_mutex_init(&w->lock, NULL);
    Error error = serve(w, threads_default, why);
    node_server_close(w->server);
    worker_stop(&w->worker);
    node_memory_give_back(&w->memory);
    node_model_close(&w->model);
    pthread_mutex_destroy(&w->lock);
    return error;
}
