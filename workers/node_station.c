/* SPDX-License-Identifier: Apache-2.0 */
/* A station: frames through its phases, one after the other.
 *
 *   POST /forward --> frame --> phase: LOAD, tiles (in memory, or brought), EVICT --> next phase --> .. --> answer
 *                                      '-- forward_range_{attn,ffn_gate,ffn_up,ffn_gate_up,ffn_down}_chunk --'
 *
 * Before an answer leaves, rows of sessions that were cut are deleted; after it the new positions
 * are written. */
#include <string.h>

#include "node_compute.h"

#define EXPORT(name) __attribute__((export_name(#name)))
#pragma clang diagnostic ignored "-Wmissing-prototypes" /* exports */

/* The frame under way. */
static struct Frame {
    bool under_way;
    uint32_t rows;
    PhaseBound at, until; /* the phase to begin; where the one that was begun ends */
    uint64_t phase_last;  /* of the payload */
    size_t answer_bytes;
} frame;

/* ---- Phases ---- */

static Error begin_phases(Phase phase, uint32_t count, uint32_t layer_first, uint32_t layer_last)
{
    PhaseBound at = phase_bound(layer_first, phase);
    bool stands = frame.under_way && frame.at == at && layer_last == layer_first + 1;
    if (!stands || at + count > node_compute.range.last)
        return error_why(&node_compute.why, ERR_USAGE,
                         "layers %u to %u, phase %s: the frame does not stand there", layer_first,
                         layer_last, phase_name(phase));
    frame.until = at + count;
    return OK;
}

EXPORT(forward_range_attn_chunk)
Error node_station_attn(uint32_t layer_first, uint32_t layer_last)
{
    return begin_phases(PHASE_ATTN, 1, layer_first, layer_last);
}
EXPORT(forward_range_ffn_gate_chunk)
Error node_station_ffn_gate(uint32_t layer_first, uint32_t layer_last)
{
    return begin_phases(PHASE_FFN_GATE, 1, layer_first, layer_last);
}
EXPORT(forward_range_ffn_up_chunk)
Error node_station_ffn_up(uint32_t layer_first, uint32_t layer_last)
{
    return begin_phases(PHASE_FFN_UP, 1, layer_first, layer_last);
}
EXPORT(forward_range_ffn_gate_up_chunk)
Error node_station_ffn_gate_up(uint32_t layer_first, uint32_t layer_last)
{
    return begin_phases(PHASE_FFN_GATE, 2, layer_first, layer_last);
}
EXPORT(forward_range_ffn_down_chunk)
Error node_station_ffn_down(uint32_t layer_first, uint32_t layer_last)
{
    return begin_phases(PHASE_FFN_DOWN, 1, layer_first, layer_last);
}

/* Gate and up together where nothing is streamed. */
static Error begin_next_phase(void)
{
    const NodeCompute *c = &node_compute;
    uint32_t layer = phase_layer(frame.at);
    switch (phase_of(frame.at)) {
    case PHASE_ATTN: return node_station_attn(layer, layer + 1);
    case PHASE_FFN_GATE:
        return c->isolate.resident && frame.at + 2 <= c->range.last
                   ? node_station_ffn_gate_up(layer, layer + 1)
                   : node_station_ffn_gate(layer, layer + 1);
    case PHASE_FFN_UP: return node_station_ffn_up(layer, layer + 1);
    case PHASE_FFN_DOWN: return node_station_ffn_down(layer, layer + 1);
    case PHASES: break;
    }
    return ERR_INTERNAL;
}

/* Where the phase's last matrix ends. */
static Error find_phase_last(const Node *n, PhaseBound at, Why *why)
{
    PhaseMatrix matrices[PHASE_MATRICES_MAX];
    uint32_t count;
    TRY(phase_matrices(&n->index.knot, &n->hyper, phase_layer(at), phase_of(at), matrices, &count,
                       why));
    frame.phase_last = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t last = matrices[i].weight->offset + matrices[i].weight->bytes;
        if (last > frame.phase_last) frame.phase_last = last;
    }
    return OK;
}

/* ---- The answer ---- */

static void say_failed(Node *n)
{
    node_compute_fail(n, "forward", node_compute.error, &node_compute.why, node_end);
}

static void fail(Node *n, Error error)
{
    NodeCompute *c = &node_compute;
    c->error = error;
    if (frame.under_way) station_service_end(c->service);
    frame.under_way = false;
    (void)node_compute_end(n);
    node_sessions_cut(n, say_failed);
}

static void say_answer(Node *n)
{
    node_reply(n, 200, NODE_GATE_OCTETS, node_compute.answer, frame.answer_bytes,
               node_sessions_put);
}

static void finish(Node *n)
{
    NodeCompute *c = &node_compute;
    uint32_t us = node_compute_end(n);
    Error error = station_service_write(c->service, us, c->answer, (size_t)c->answer_room,
                                        &frame.answer_bytes, &c->why);
    frame.under_way = false;
    c->error = error;
    if (error != OK) {
        node_sessions_cut(n, say_failed);
        return;
    }
    c->rows_done += frame.rows;
    node_sessions_cut(n, say_answer);
}

/* ---- The loop ---- */

static void step(Node *n);

/* Result  false: it has to be brought first, or has failed. */
static bool compute_tile(Node *n, const StationWish *w)
{
    NodeCompute *c = &node_compute;
    const uint8_t *bytes = blocks_at(&c->weights, w->offset, w->bytes);
    if (!bytes) {
        node_compute_bring(n, w->offset, w->bytes, frame.phase_last, step);
        return false;
    }
    c->counts.tiles++;
    c->counts.weight_bytes += w->bytes;
    Error error = station_give(c->station, bytes, &parallel_serial, &c->why);
    if (error != OK) fail(n, error);
    return error == OK;
}

/* Begins the next phase when one was over. */
static Error load(Node *n, const StationWish *w)
{
    NodeCompute *c = &node_compute;
    frame.at = w->phase;
    if (frame.at == frame.until) TRY(begin_next_phase());
    c->counts.phase_loads++;
    return find_phase_last(n, w->phase, &c->why);
}

static void step(Node *n)
{
    NodeCompute *c = &node_compute;
    Error error = c->error;
    while (error == OK) {
        StationWish w;
        if (n->request.gone) error = error_why(&c->why, ERR_CANCELLED, "the client has left");
        if (error != OK) break;
        station_next(c->station, &w);
        if (w.kind == STATION_DONE) {
            finish(n);
            return;
        }
        if (w.kind == STATION_TILE && !compute_tile(n, &w)) return;
        if (w.kind == STATION_LOAD) error = load(n, &w);
    }
    fail(n, error);
}

static void run_forward(Node *n)
{
    NodeCompute *c = &node_compute;
    StationFrame f;
    if (node_compute_refuses(n)) return;
    node_compute_begin(n);
    c->why = (Why){{0}};
    c->error =
        station_service_read(c->service, n->request.body, n->request.body_bytes, &f, &c->why);
    if (c->error == OK) {
        frame = (struct Frame){
            .under_way = true, .rows = f.rows, .at = c->range.first, .until = c->range.first};
        c->error = station_begin(c->station, &f, &parallel_serial, &c->why);
    }
    step(n);
}

/* ---- Other routes ---- */

static void say_dropped(Node *n)
{
    node_reply(n, 200, NODE_GATE_JSON, NODE_GATE_DROPPED_BODY, sizeof NODE_GATE_DROPPED_BODY - 1,
               node_end);
}

static void run_drop(Node *n)
{
    NodeCompute *c = &node_compute;
    Why why;
    uint64_t session;
    if (!c->loaded && node_compute_refuses(n)) return;
    Error error = node_gate_session(n->request.tail, &session, &why);
    if (error == OK && !station_service_drop(c->service, session))
        error = node_gate_no_session(session, &why);
    if (error != OK) node_reply_error(n, error, &why, node_end);
    else node_sessions_cut(n, say_dropped);
}

enum { FORWARD, EMBED, LOGITS, DROP, CONFIGURE, DRAIN };

static void run(Node *n, uint32_t route)
{
    switch (route) {
    case FORWARD: run_forward(n); return;
    case EMBED: node_ids_run(n, SHARD_SERVICE_EMBED); return;
    case LOGITS: node_ids_run(n, SHARD_SERVICE_LOGITS); return;
    case DROP: run_drop(n); return;
    case CONFIGURE: node_compute_configure(n); return;
    default: node_compute_drain(n);
    }
}

static bool ready(Node *n, char *json, size_t room)
{
    const NodeCompute *c = &node_compute;
    NodeAbout a = node_compute_about(n);
    NodeAboutStation s = {.range = c->range,
                          .layers = n->hyper.layers,
                          .embed = c->embed,
                          .head = c->head,
                          .chunk = c->chunk,
                          .context = c->context,
                          .cache = c->cache,
                          .sessions_known = station_service_sessions(c->service),
                          .sessions_max = c->sessions};
    JsonWriter w = json_writer_make(json, room - 1);
    node_about_write(&a, &s, NULL, &w);
    ASSERT(!w.full);
    json[w.used] = '\0';
    return node_about_is_ready(&a);
}

static void metrics(Node *n, char *text, size_t room)
{
    const NodeCompute *c = &node_compute;
    NodeAbout a = node_compute_about(n);
    JsonWriter w = json_writer_make(text, room - 1);
    node_about_work(&a, &c->counts, &w);
    node_about_station(c->rows_done, station_service_sessions(c->service),
                       station_service_evictions(c->service), &w);
    if (c->embed || c->head) node_about_ids_counts(c->embeds, c->logits, &w);
    ASSERT(!w.full);
    text[w.used] = '\0';
}

static const NodeGateRoute routes[] = {{"POST", "/forward"},   {"POST", "/embed"},
                                       {"POST", "/logits"},    {"DELETE", "/sessions/"},
                                       {"POST", "/configure"}, {"POST", "/drain"}};

const NodeRole node_station_role = {.routes = routes,
                                    .route_count = sizeof routes / sizeof routes[0],
                                    .open = node_compute_open,
                                    .run = run,
                                    .ready = ready,
                                    .metrics = metrics};
