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
        json_writer_member_text(w, "range",
                                phase_range_text(n->range, r->options.cluster->layers, range));
    } else {
        json_writer_member(w, "ids");
        json_writer_raw(w, "[");
        json_writer_u64(w, n->id_first);
        json_writer_raw(w, ",");
        json_writer_u64(w, n->id_last);
        json_writer_raw(w, "]");
    }
    json_writer_member_u64(w, "part", n->part);
    if (n->embed) json_writer_member_bool(w, "embed", true);
    if (n->head) json_writer_member_bool(w, "head", true);
    json_writer_member_bool(w, "replica", n->is_replica);
    if (n->warden != CLUSTER_FILE_NONE)
        json_writer_member_text(w, "warden", r->options.cluster->nodes[n->warden].id);
}

static void write_calls(const PipelineNode *n, JsonWriter *w)
{
    json_writer_member_bool(w, "active", n->active);
    json_writer_member_u64(w, "calls", n->calls);
    json_writer_member_u64(w, "failures", n->failures);
    json_writer_member_u64(w, "hedges", n->hedges);
    json_writer_member_u64(w, "replays", n->replays);
    json_writer_member_u64(w, "bytes_sent", n->bytes_sent);
    json_writer_member_u64(w, "bytes_received", n->bytes_received);
    json_writer_member_u64(w, "p50_us", n->p50_us);
    json_writer_member_u64(w, "p95_us", n->p95_us);
    json_writer_member_u64(w, "compute_p50_us", n->compute_p50_us);
    json_writer_member_u64(w, "compute_p95_us", n->compute_p95_us);
}

static void write_report(const RemoteReport *p, JsonWriter *w)
{
    json_writer_member_text(w, "version", p->version);
    json_writer_member(w, "memory");
    json_writer_raw(w, "{");
    json_writer_member_u64(w, "budget_bytes", p->budget_bytes);
    json_writer_member_u64(w, "need_bytes", p->need_bytes);
    json_writer_member_u64(w, "resident_bytes", p->resident_bytes);
    json_writer_member_u64(w, "peak_bytes", p->peak_bytes);
    json_writer_raw(w, "}");
    if (p->has_weights) {
        json_writer_member(w, "weights");
        json_writer_raw(w, "{");
        json_writer_member_bool(w, "resident", p->weights_resident);
        json_writer_member_u64(w, "bytes", p->weight_bytes);
        json_writer_member_u64(w, "pinned_bytes", p->pinned_bytes);
        json_writer_raw(w, "}");
    }
    if (p->has_hits) {
        json_writer_member(w, "cache");
        json_writer_raw(w, "{");
        json_writer_member_u64(w, "hits", p->hits);
        json_writer_member_u64(w, "misses", p->misses);
        json_writer_member_u64(w, "bytes", p->cached_bytes);
        json_writer_member_u64(w, "l2_hits", p->l2_hits);
        json_writer_member_u64(w, "l2_misses", p->l2_misses);
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
    json_writer_raw(w, "{");
    json_writer_member_text(w, "id", n->id);
    json_writer_member_text(w, "role", cluster_file_role_name(n->role));
    json_writer_member_text(w, "address", ports_text(n->host, n->port, address));
    write_range(r, n, w);
    json_writer_member_text(w, "state", state_of(p, &known, worker));
    json_writer_member_bool(w, "ready", p->ready && !p->error[0] && known.state != PIPELINE_DOWN);
    if (worker) write_calls(&known, w);
    write_report(p, w);
    json_writer_member_text(w, "last_error", p->error[0] ? p->error : known.last_error);
    json_writer_raw(w, "}");
}

/* ---- The cluster ---- */

static void write_head(const Remote *r, uint64_t now_ns, JsonWriter *w)
{
    const ClusterFile *c = r->options.cluster;
    char knot_id[20];
    (void)snprintf(knot_id, sizeof knot_id, "%016" PRIx64, c->knot_id);
    json_writer_member_text(w, "model", c->model_name);
    json_writer_member_text(w, "knot_id", knot_id);
    json_writer_member_text(w, "version", r->options.version);
    json_writer_member_bool(w, "ready", r->ready);
    json_writer_member_bool(w, "complete", r->complete);
    if (!r->complete) json_writer_member_text(w, "missing", r->missing.text);
    json_writer_member_u64(w, "uptime_seconds", (now_ns - r->opened_ns) / 1000000000u);
    json_writer_member_u64(w, "layers", c->layers);
    json_writer_member_u64(w, "vocabulary", c->vocabulary);
    json_writer_member_u64(w, "context", c->context);
    json_writer_member_u64(w, "chunk", pipeline_coordinator_config(&r->config).chunk);
    json_writer_member_u64(w, "frames", r->config.frames);
    json_writer_member_text(w, "cache_type", c->cache == CACHE_F16 ? "f16" : "q8_0");
    json_writer_member_text(w, "element", rows_element_name(c->element));
    json_writer_member_u64(w, "replays", pipeline_replays(r->pipeline));
    json_writer_member_u64(w, "degraded", pipeline_degraded(r->pipeline));
    json_writer_member_u64(w, "own_store_calls", r->own.calls);
    json_writer_member(w, "coordinator");
    json_writer_raw(w, "{");
    json_writer_member_text(w, "id", r->options.self->id);
    json_writer_member(w, "memory");
    json_writer_raw(w, "{");
    json_writer_member_u64(w, "budget_bytes", c->memory_bytes);
    json_writer_member_u64(w, "need_bytes", r->need_bytes);
    json_writer_member_u64(w, "resident_bytes", memory_resident());
    json_writer_member_u64(w, "peak_bytes", memory_peak());
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
