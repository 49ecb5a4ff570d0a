/* SPDX-License-Identifier: Apache-2.0 */
#include "api/node_about.h"

#include <string.h>

#include "api/metrics.h"
#include "quant/numerics.h"
#include "wire/frame.h"

/* ---- What it owns ---- */

static JsonWriter text_of(char out[NODE_ABOUT_RANGE_BYTES])
{
    return json_writer_make(out, NODE_ABOUT_RANGE_BYTES - 1);
}

static void end_text(JsonWriter *w)
{
    ASSERT(!w->full);
    w->bytes[w->used] = '\0';
}

void node_about_layers(PhaseRange range, uint32_t layers, bool embed, bool head,
                       char out[NODE_ABOUT_RANGE_BYTES])
{
    char text[PHASE_RANGE_TEXT_MAX];
    JsonWriter w = text_of(out);
    json_writer_raw(&w, "layers ");
    json_writer_raw(&w, phase_range_text(range, layers, text));
    if (embed) json_writer_raw(&w, " and embedding");
    if (head) json_writer_raw(&w, " and head");
    end_text(&w);
}

void node_about_ids(uint32_t id_first, uint32_t id_last, char out[NODE_ABOUT_RANGE_BYTES])
{
    JsonWriter w = text_of(out);
    json_writer_raw(&w, "ids ");
    json_writer_u64(&w, id_first);
    json_writer_raw(&w, " to ");
    json_writer_u64(&w, id_last);
    end_text(&w);
}

/* ---- /ready ---- */

bool node_about_is_ready(const NodeAbout *a) { return strcmp(a->state, "ready") == 0; }

static void write_knot_id(uint64_t id, JsonWriter *w)
{
    json_writer_member(w, "knot_id");
    json_writer_raw(w, "\"");
    json_writer_hex64(w, id);
    json_writer_raw(w, "\"");
}

static void write_weights(const NodeAbout *a, JsonWriter *w)
{
    json_writer_member(w, "weights");
    json_writer_raw(w, "{");
    json_writer_member_bool(w, "resident", a->resident);
    json_writer_member_u64(w, "bytes", a->weight_bytes);
    json_writer_member_u64(w, "pinned_bytes", a->pinned_bytes);
    json_writer_raw(w, "}");
}

static void write_station(const NodeAboutStation *s, JsonWriter *w)
{
    char range[PHASE_RANGE_TEXT_MAX];
    json_writer_member_text(w, "range", phase_range_text(s->range, s->layers, range));
    if (s->embed) json_writer_member_bool(w, "embed", true);
    if (s->head) json_writer_member_bool(w, "head", true);
    json_writer_member_u64(w, "chunk", s->chunk);
    json_writer_member_u64(w, "context", s->context);
    json_writer_member_text(w, "cache_type", s->cache == CACHE_F16 ? "f16" : "q8_0");
    json_writer_member(w, "sessions");
    json_writer_raw(w, "{");
    json_writer_member_u64(w, "known", s->sessions_known);
    json_writer_member_u64(w, "max", s->sessions_max);
    json_writer_raw(w, "}");
}

static void write_shard(const NodeAboutShard *s, JsonWriter *w)
{
    json_writer_member(w, "ids");
    json_writer_raw(w, "[");
    json_writer_u64(w, s->id_first);
    json_writer_raw(w, ",");
    json_writer_u64(w, s->id_last);
    json_writer_raw(w, "]");
    json_writer_member_u64(w, "chunk", s->chunk);
    json_writer_member_u64(w, "logit_rows", s->logit_rows);
}

void node_about_write(const NodeAbout *a, const NodeAboutStation *station,
                      const NodeAboutShard *shard, JsonWriter *w)
{
    json_writer_raw(w, "{");
    json_writer_member_bool(w, "ready", node_about_is_ready(a));
    json_writer_member_text(w, "state", a->state);
    json_writer_member_text(w, "id", a->id);
    json_writer_member_text(w, "role", a->role);
    json_writer_member_text(w, "version", a->version);
    json_writer_member_u64(w, "frame_version", FRAME_VERSION);
    json_writer_member_u64(w, "numerics_version", NUMERICS_VERSION);
    write_knot_id(a->knot_id, w);
    json_writer_member_text(w, "isa", a->isa);
    json_writer_member_u64(w, "threads", a->threads);
    json_writer_member_text(w, "owns", a->owns);
    memory_about_write(&a->memory, w);
    write_weights(a, w);
    if (station) write_station(station, w);
    if (shard) write_shard(shard, w);
    json_writer_raw(w, "}");
}

/* ---- /metrics ---- */

void node_about_figures(const NodeFigures *f, JsonWriter *w)
{
    metrics_write_count(w, "cobord_node_requests_total", "Requests that reached the queue.",
                        f->requests);
    metrics_write_count(w, "cobord_node_refused_total",
                        "Requests answered with an error of the client, or with try again.",
                        f->refused);
    metrics_write_count(w, "cobord_node_failed_total", "Requests that failed here.", f->failed);
    metrics_write_count(w, "cobord_node_unauthorized_total", "Requests without the cluster key.",
                        f->unauthorized);
    metrics_write_count(w, "cobord_node_abandoned_total",
                        "Requests whose client left while they waited.", f->abandoned);
    metrics_write_gauge(w, "cobord_node_queue", "Requests that wait.", f->queue);
    metrics_write_gauge(w, "cobord_node_running", "Requests being worked on.", f->running);
    metrics_write_gauge(w, "cobord_node_connections", "Open connections.", f->connections);
    metrics_write_count(w, "cobord_node_connections_shed_total",
                        "Connections that made room for others.", f->shed);
    metrics_write_gauge(w, "cobord_node_draining", "1 while the node finishes before its end.",
                        f->draining);
    metrics_write_gauge(w, "cobord_node_memory_bytes", "Resident memory, file pages counted.",
                        f->memory_bytes);
    metrics_write_gauge(w, "cobord_node_memory_peak_bytes", "Its highest value.",
                        f->memory_peak_bytes);
}

void node_about_work(const NodeAbout *a, const NodeWorkCounts *c, JsonWriter *w)
{
    metrics_write_count(w, "cobord_node_calls_total", "Frames begun.", c->calls);
    metrics_write_count(w, "cobord_node_call_failures_total", "Frames that failed.", c->failures);
    metrics_write_seconds(w, "cobord_node_compute_seconds_total", "Spent on frames.",
                          c->compute_us / 1000);
    metrics_write_count(w, "cobord_node_weight_bytes_total", "Bytes of weights used.",
                        c->weight_bytes);
    metrics_write_count(w, "cobord_node_weight_tiles_total", "Pieces that they came in.", c->tiles);
    metrics_write_count(w, "cobord_node_phase_loads_total", "Phases used.", c->phase_loads);
    metrics_write_count(w, "cobord_node_dropped_bytes_total",
                        "Bytes of weights given back after use.", c->dropped_bytes);
    metrics_write_gauge(w, "cobord_node_memory_need_bytes", "The sum made before the start.",
                        a->memory.need_bytes);
    metrics_write_gauge(w, "cobord_node_weight_owned_bytes", "Weights that the node owns.",
                        a->weight_bytes);
    metrics_write_gauge(w, "cobord_node_weight_pinned_bytes", "Of these, always in memory.",
                        a->pinned_bytes);
    metrics_write_gauge(w, "cobord_node_memory_budget_bytes", "What the cluster file allows.",
                        a->memory.budget_bytes);
    metrics_write_gauge(w, "cobord_node_ready", "1 when frames are taken.", node_about_is_ready(a));
}

void node_about_station(uint64_t rows, uint64_t sessions, uint64_t evictions, JsonWriter *w)
{
    metrics_write_count(w, "cobord_station_rows_total", "Rows taken through the range.", rows);
    metrics_write_gauge(w, "cobord_station_sessions", "Sessions with an attention cache.",
                        sessions);
    metrics_write_count(w, "cobord_station_evictions_total", "Sessions that made room for others.",
                        evictions);
}

void node_about_ids_counts(uint64_t embeds, uint64_t logits, JsonWriter *w)
{
    metrics_write_count(w, "cobord_shard_embeds_total", "Requests for embedding rows.", embeds);
    metrics_write_count(w, "cobord_shard_logits_total", "Requests for logits.", logits);
}
