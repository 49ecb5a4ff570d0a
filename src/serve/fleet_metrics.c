/* SPDX-License-Identifier: Apache-2.0 */
/* What a coordinator sees of its stations and shards, as lines of GET /metrics. */
#include "api/metrics.h"
#include "serve/fleet.h"

enum {
    NODE_BYTES = 1400,           /* of all but hops */
    HOP_LINES = 1400,            /* of a route of a node, without its buckets */
    BUCKET_BYTES = 128,          /* of a line */
    NODES_WITH_BUCKETS_MAX = 64, /* more would make the page a burden: they get one bucket each */
    HEADS_BYTES = 4096
};

static bool is_worker(const ClusterNode *n)
{
    return n->role == CLUSTER_STATION || n->role == CLUSTER_SHARD;
}

size_t fleet_metrics_bytes(const ClusterFile *c)
{
    size_t hop = HOP_LINES;
    if (c->node_count <= NODES_WITH_BUCKETS_MAX) hop += PIPELINE_HOP_BUCKETS * BUCKET_BYTES;
    return HEADS_BYTES + c->node_count * (NODE_BYTES + PIPELINE_HOP_KINDS * hop);
}

typedef struct Figure {
    const char *name, *help;
    size_t at; /* in PipelineCounts */
} Figure;

#define FIGURE(field, name, help) {"cobord_hop_" name, help, offsetof(PipelineCounts, field)}
static const Figure figures[] = {
    FIGURE(calls, "calls_total", "Calls to a node."),
    FIGURE(failures, "failures_total", "Calls to a node that failed."),
    FIGURE(hedges, "hedges_total", "Calls given to a second node because a first one was slow."),
    FIGURE(replays, "replays_total", "Times that answers were computed again because of a node."),
    FIGURE(bytes_sent, "sent_bytes_total", "Bytes of frames sent to a node."),
    FIGURE(bytes_received, "received_bytes_total", "Bytes of frames that came from a node."),
};
#undef FIGURE

static void write_figure(const ClusterFile *c, const Pipeline *p, const Figure *f, JsonWriter *w)
{
    metrics_head(w, f->name, f->help, METRICS_COUNTER);
    for (uint32_t i = 0; i < c->node_count; i++) {
        PipelineCounts counts;
        if (!is_worker(&c->nodes[i])) continue;
        pipeline_counts(p, i, &counts);
        metrics_line(w, f->name, &METRICS_LABEL("node", c->nodes[i].id),
                     *(const uint64_t *)(const void *)((const char *)&counts + f->at));
    }
}

static uint64_t sum(const uint64_t *counts)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i <= PIPELINE_HOP_BUCKETS; i++) all += counts[i];
    return all;
}

static void write_hops(const ClusterFile *c, const Pipeline *p, uint32_t node, JsonWriter *w)
{
    static const char *const routes[PIPELINE_HOP_KINDS] = {[PIPELINE_EMBED] = "/embed",
                                                           [PIPELINE_FORWARD] = "/forward",
                                                           [PIPELINE_LOGITS] = "/logits"};
    PipelineCounts counts;
    pipeline_counts(p, node, &counts);
    for (uint32_t i = 0; i < PIPELINE_HOP_KINDS; i++) {
        const MetricsLabels labels = {"node", c->nodes[node].id, "route", routes[i]};
        uint64_t all = sum(counts.hops[i]);
        if (!all) continue;
        if (c->node_count <= NODES_WITH_BUCKETS_MAX)
            metrics_histogram(w, "cobord_hop_seconds", &labels, pipeline_hop_bounds_us,
                              PIPELINE_HOP_BUCKETS, counts.hops[i], counts.hop_us[i]);
        else metrics_histogram(w, "cobord_hop_seconds", &labels, NULL, 0, &all, counts.hop_us[i]);
    }
}

void fleet_metrics(const ClusterFile *c, const Pipeline *p, JsonWriter *w)
{
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        write_figure(c, p, &figures[i], w);
    metrics_head(w, "cobord_hop_seconds", "Calls to a node that went well, as the caller sees it.",
                 METRICS_HISTOGRAM);
    for (uint32_t i = 0; i < c->node_count; i++)
        if (is_worker(&c->nodes[i])) write_hops(c, p, i, w);
}
