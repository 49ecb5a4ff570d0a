/* SPDX-License-Identifier: Apache-2.0 */
/* GET /cluster: the topology of the cluster file beside what is known of each node. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/json_writer.h"
#include "host/memory.h"
#include "host/ports.h"
#include "host/remote_state.h"

enum { NODE_BYTES = 3072, HEAD_BYTES = 8192 };

size_t remote_describe_room(const ClusterFile *cluster)
{
    return HEAD_BYTES + (size_t)cluster->node_count * NODE_BYTES;
}

static void put_name(JsonWriter *w, const char *name)
{
    json_writer_raw(w, ",");
    json_writer_text(w, name);
    json_writer_raw(w, ":");
}

static void put_number(JsonWriter *w, const char *name, uint64_t value)
{
    put_name(w, name);
    json_writer_u64(w, value);
}

static void put_text(JsonWriter *w, const char *name, const char *text)
{
    put_name(w, name);
    json_writer_text(w, text);
}

static void put_bool(JsonWriter *w, const char *name, bool value)
{
    put_name(w, name);
    json_writer_bool(w, value);
}

/* ---- One node ---- */

static const char *state_of(const RemoteReport *p, const PipelineNode *n, bool worker)
{
    if (p->error[0]) return p->heard ? "unfit" : "unreachable";
    if (!p->asked) return "unknown";
    if (worker && n->state == PIPELINE_DOWN) return "down";
    return p->state[0] ? p->state : p->ready ? "ready" : "not ready";
}

static void write_range(const Remote *r, const ClusterNode *n, JsonWriter *w)
{
    char range[PHASE_RANGE_TEXT_MAX];
    if (n->role == CLUSTER_STATION || n->role == CLUSTER_LAYER_WARDEN) {
        put_text(w, "range", phase_range_text(n->range, r->options.cluster->layers, range));
    } else {
        put_name(w, "ids");
        json_writer_raw(w, "[");
        json_writer_u64(w, n->id_first);
        json_writer_raw(w, ",");
        json_writer_u64(w, n->id_last);
        json_writer_raw(w, "]");
    }
    put_number(w, "part", n->part);
    if (n->embed) json_writer_raw(w, ",\"embed\":true");
    if (n->head) json_writer_raw(w, ",\"head\":true");
    put_bool(w, "replica", n->is_replica);
    if (n->warden != CLUSTER_FILE_NONE)
        put_text(w, "warden", r->options.cluster->nodes[n->warden].id);
}

static void write_calls(const PipelineNode *n, JsonWriter *w)
{
    put_bool(w, "active", n->active);
    put_number(w, "calls", n->calls);
    put_number(w, "failures", n->failures);
    put_number(w, "hedges", n->hedges);
    put_number(w, "replays", n->replays);
    put_number(w, "bytes_sent", n->bytes_sent);
    put_number(w, "bytes_received", n->bytes_received);
    put_number(w, "p50_us", n->p50_us);
    put_number(w, "p95_us", n->p95_us);
    put_number(w, "compute_p50_us", n->compute_p50_us);
    put_number(w, "compute_p95_us", n->compute_p95_us);
}

static void write_report(const RemoteReport *p, JsonWriter *w)
{
    put_text(w, "version", p->version);
    put_name(w, "memory");
    json_writer_raw(w, "{\"budget_bytes\":");
    json_writer_u64(w, p->budget_bytes);
    put_number(w, "need_bytes", p->need_bytes);
    put_number(w, "resident_bytes", p->resident_bytes);
    put_number(w, "peak_bytes", p->peak_bytes);
    json_writer_raw(w, "}");
    if (p->has_weights) {
        put_name(w, "weights");
        json_writer_raw(w, "{\"resident\":");
        json_writer_bool(w, p->weights_resident);
        put_number(w, "bytes", p->weight_bytes);
        put_number(w, "pinned_bytes", p->pinned_bytes);
        json_writer_raw(w, "}");
    }
    if (p->has_hits) {
        put_name(w, "cache");
        json_writer_raw(w, "{\"hits\":");
        json_writer_u64(w, p->hits);
        put_number(w, "misses", p->misses);
        put_number(w, "bytes", p->cached_bytes);
        put_number(w, "l2_hits", p->l2_hits);
        put_number(w, "l2_misses", p->l2_misses);
        json_writer_raw(w, "}");
    }
}

static void write_node(const Remote *r, uint32_t node, JsonWriter *w)
{
    const ClusterNode *n = &r->options.cluster->nodes[node];
    const RemoteReport *p = &r->reports[node];
    bool worker = n->role == CLUSTER_STATION || n->role == CLUSTER_SHARD;
    char address[PORTS_TEXT_BYTES];
    PipelineNode known = {0};
    if (worker) pipeline_node(r->pipeline, node, &known);
    json_writer_raw(w, "{\"id\":");
    json_writer_text(w, n->id);
    put_text(w, "role", cluster_file_role_name(n->role));
    put_text(w, "address", ports_text(n->host, n->port, address));
    write_range(r, n, w);
    put_text(w, "state", state_of(p, &known, worker));
    put_bool(w, "ready", p->ready && !p->error[0] && known.state != PIPELINE_DOWN);
    if (worker) write_calls(&known, w);
    write_report(p, w);
    put_text(w, "last_error", p->error[0] ? p->error : known.last_error);
    json_writer_raw(w, "}");
}

/* ---- The cluster ---- */

static void write_head(const Remote *r, uint64_t now_ns, JsonWriter *w)
{
    const ClusterFile *c = r->options.cluster;
    char knot_id[20];
    (void)snprintf(knot_id, sizeof knot_id, "%016" PRIx64, c->knot_id);
    json_writer_raw(w, "\"model\":");
    json_writer_text(w, c->model_name);
    put_text(w, "knot_id", knot_id);
    put_text(w, "version", r->options.version);
    put_bool(w, "ready", r->ready);
    put_bool(w, "complete", r->complete);
    if (!r->complete) put_text(w, "missing", r->missing.text);
    put_number(w, "uptime_seconds", (now_ns - r->opened_ns) / 1000000000u);
    put_number(w, "layers", c->layers);
    put_number(w, "vocabulary", c->vocabulary);
    put_number(w, "context", c->context);
    put_number(w, "chunk", pipeline_coordinator_config(&r->config).chunk);
    put_number(w, "frames", r->config.frames);
    put_text(w, "cache_type", c->cache == CACHE_F16 ? "f16" : "q8_0");
    put_text(w, "element", rows_element_name(c->element));
    put_number(w, "replays", pipeline_replays(r->pipeline));
    put_number(w, "degraded", pipeline_degraded(r->pipeline));
    put_number(w, "own_store_calls", r->own.calls);
    put_name(w, "coordinator");
    json_writer_raw(w, "{\"id\":");
    json_writer_text(w, r->options.self->id);
    put_name(w, "memory");
    json_writer_raw(w, "{\"budget_bytes\":");
    json_writer_u64(w, c->memory_bytes);
    put_number(w, "need_bytes", r->need_bytes);
    put_number(w, "resident_bytes", memory_resident());
    put_number(w, "peak_bytes", memory_peak());
    json_writer_raw(w, "}}");
}

size_t remote_describe_write(const Remote *r, uint64_t now_ns, char *out, size_t room)
{
    const ClusterFile *c = r->options.cluster;
    JsonWriter w = json_writer_make(out, room);
    write_head(r, now_ns, &w);
    json_writer_raw(&w, ",\"nodes\":[");
    bool first = true;
    for (uint32_t i = 0; i < c->node_count; i++) {
        if (c->nodes[i].role == CLUSTER_COORDINATOR) continue;
        if (!first) json_writer_raw(&w, ",");
        first = false;
        write_node(r, i, &w);
    }
    json_writer_raw(&w, "]");
    ASSERT(!w.full);
    return w.used;
}
