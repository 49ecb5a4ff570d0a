/* SPDX-License-Identifier: Apache-2.0 */
/* GET /cluster: the topology of the cluster file beside what is known of each node. */
#include <string.h>

#include "api/json_writer.h"
#include "serve/fleet.h"

enum { NODE_BYTES = 3584, HEAD_BYTES = 8192 };

size_t fleet_describe_room(const ClusterFile *c)
{
    return HEAD_BYTES + (size_t)c->node_count * NODE_BYTES;
}

/* ---- One node ---- */

static const char *state_of(const FleetReport *p, const PipelineNode *n, bool worker)
{
    if (p->error[0]) return p->heard ? "unfit" : "unreachable";
    if (!p->asked) return "unknown";
    if (worker && n->state == PIPELINE_DOWN) return "down";
    return p->state[0] ? p->state : p->ready ? "ready" : "not ready";
}

static void write_range(const Fleet *f, const ClusterNode *n, JsonWriter *w)
{
    char range[PHASE_RANGE_TEXT_MAX];
    if (n->role == CLUSTER_STATION || n->role == CLUSTER_LAYER_WARDEN) {
        json_writer_member_text(w, "range", phase_range_text(n->range, f->cluster->layers, range));
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
        json_writer_member_text(w, "warden", f->cluster->nodes[n->warden].id);
}

static const char *const hop_names[PIPELINE_HOPS] = {"embed", "forward", "logits"};

/* What was never asked for is not there. */
static void write_hops(const PipelineNode *n, JsonWriter *w)
{
    json_writer_member(w, "hops");
    json_writer_raw(w, "{");
    for (uint32_t i = 0; i < PIPELINE_HOPS; i++) {
        const PipelineHop *h = &n->hops[i];
        if (!h->rows) continue;
        json_writer_member(w, hop_names[i]);
        json_writer_raw(w, "{");
        json_writer_member_u64(w, "rows", h->rows);
        json_writer_member_u64(w, "us", h->us);
        json_writer_member_u64(w, "bytes_sent", h->bytes_sent);
        json_writer_member_u64(w, "bytes_received", h->bytes_received);
        json_writer_raw(w, "}");
    }
    json_writer_raw(w, "}");
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
    write_hops(n, w);
}

static void write_report(const FleetReport *p, JsonWriter *w)
{
    json_writer_member_text(w, "version", p->version);
    memory_about_write(&p->memory, w);
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
        json_writer_member_u64(w, "store_bytes", p->store_bytes);
        json_writer_raw(w, "}");
    }
}

static void write_node(const Fleet *f, uint32_t node, JsonWriter *w)
{
    const ClusterNode *n = &f->cluster->nodes[node];
    const FleetReport *p = &f->reports[node];
    bool worker = n->role == CLUSTER_STATION || n->role == CLUSTER_SHARD;
    Why address;
    PipelineNode known = {0};
    if (worker) pipeline_node(f->pipeline, node, &known);
    json_writer_raw(w, "{");
    json_writer_member_text(w, "id", n->id);
    json_writer_member_text(w, "role", cluster_file_role_name(n->role));
    if (error_why(&address, OK, strchr(n->host, ':') ? "[%s]:%u" : "%s:%u", n->host,
                  (unsigned)n->port) == OK)
        json_writer_member_text(w, "address", address.text);
    write_range(f, n, w);
    json_writer_member_text(w, "state", state_of(p, &known, worker));
    json_writer_member_bool(w, "ready", p->ready && !p->error[0] && known.state != PIPELINE_DOWN);
    if (worker) write_calls(&known, w);
    write_report(p, w);
    json_writer_member_text(w, "last_error", p->error[0] ? p->error : known.last_error);
    json_writer_raw(w, "}");
}

/* ---- The cluster ---- */

static void write_self(const Fleet *f, JsonWriter *w)
{
    json_writer_member(w, "coordinator");
    json_writer_raw(w, "{");
    json_writer_member_text(w, "id", f->self->id);
    memory_about_write(&f->memory, w);
    json_writer_raw(w, "}");
}

/* One step is one pass of frames' rows through every stage. */
static void write_step(const Fleet *f, JsonWriter *w)
{
    PipelineStages stages;
    pipeline_stages(f->pipeline, &stages);
    json_writer_member(w, "step");
    json_writer_raw(w, "{");
    json_writer_member_u64(w, "count", stages.frames);
    json_writer_member_u64(w, "rows", stages.rows);
    json_writer_member_u64(w, "embed_us", stages.us[PIPELINE_EMBED]);
    json_writer_member_u64(w, "forward_us", stages.us[PIPELINE_FORWARD]);
    json_writer_member_u64(w, "logits_us", stages.us[PIPELINE_LOGITS]);
    if (f->own_us) json_writer_member_u64(w, "own_us", f->own_us);
    json_writer_raw(w, "}");
}

static void write_head(const Fleet *f, JsonWriter *w)
{
    const ClusterFile *c = f->cluster;
    json_writer_member_text(w, "kind", "cluster");
    json_writer_member_text(w, "model", c->model_name);
    json_writer_member(w, "knot_id");
    json_writer_raw(w, "\"");
    json_writer_hex64(w, c->knot_id);
    json_writer_raw(w, "\"");
    json_writer_member_text(w, "version", f->version);
    json_writer_member_bool(w, "ready", f->ready);
    json_writer_member_bool(w, "complete", f->complete);
    if (!f->complete) json_writer_member_text(w, "missing", f->missing);
    json_writer_member_u64(w, "uptime_seconds", f->uptime_ms / 1000);
    json_writer_member_u64(w, "uptime_ms", f->uptime_ms);
    json_writer_member_u64(w, "refresh_ms", f->refresh_ms);
    json_writer_member_u64(w, "layers", c->layers);
    json_writer_member_u64(w, "vocabulary", c->vocabulary);
    json_writer_member_u64(w, "context", c->context);
    json_writer_member_u64(w, "chunk", f->chunk);
    json_writer_member_u64(w, "frames", f->frames);
    json_writer_member_text(w, "cache_type", c->cache == CACHE_F16 ? "f16" : "q8_0");
    json_writer_member_text(w, "element", rows_element_name(c->element));
    json_writer_member_u64(w, "replays", pipeline_replays(f->pipeline));
    json_writer_member_u64(w, "degraded", pipeline_degraded(f->pipeline));
    json_writer_member_u64(w, "own_store_calls", f->own_calls);
    write_step(f, w);
    write_self(f, w);
}

size_t fleet_describe(const Fleet *f, char *out, size_t room)
{
    const ClusterFile *c = f->cluster;
    JsonWriter w = json_writer_make(out, room);
    write_head(f, &w);
    json_writer_raw(&w, ",\"nodes\":[");
    bool first = true;
    for (uint32_t i = 0; i < c->node_count; i++) {
        if (c->nodes[i].role == CLUSTER_COORDINATOR) continue;
        if (!first) json_writer_raw(&w, ",");
        first = false;
        write_node(f, i, &w);
    }
    json_writer_raw(&w, "]");
    ASSERT(!w.full);
    return w.used;
}
