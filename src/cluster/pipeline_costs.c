/* SPDX-License-Identifier: Apache-2.0 */
/* What each slot's answer costs at each node: calls, their time, its share of their bytes. */
#include "cluster/pipeline_state.h"

#include <string.h>

static uint32_t node_count(const Pipeline *p) { return p->config.cluster->node_count + 1; }

uint64_t pipeline_costs_count(const Pipeline *p)
{
    return (uint64_t)p->config.slots * node_count(p);
}

static PipelineCost *costs_of(const Pipeline *p, uint32_t slot)
{
    return p->costs + (size_t)slot * node_count(p);
}

void pipeline_costs_forget(Pipeline *p, uint32_t slot)
{
    ASSERT(slot < p->config.slots);
    memset(costs_of(p, slot), 0, node_count(p) * sizeof(PipelineCost));
}

const PipelineCost *pipeline_cost(const Pipeline *p, uint32_t slot, uint32_t node)
{
    ASSERT(slot < p->config.slots);
    return &costs_of(p, slot)[node == PIPELINE_OWN ? p->config.cluster->node_count : node];
}

/* Rows of one sequence that the call is about: its own, or those of its picks in the round. */
static uint32_t rows_of(const Frame *f, const StationSequence *q, PipelinePath path)
{
    uint32_t rows = 0;
    if (path != PIPELINE_LOGITS) return q->rows;
    for (uint32_t i = 0; i < f->round_count; i++)
        rows += f->work->picks[f->round[i]].slot == q->session;
    return rows;
}

void pipeline_costs_add(Pipeline *p, const Frame *f, const PipelineCall *call, uint64_t took_ns,
                        uint64_t received)
{
    const CoordinatorFrame *w = f->work;
    uint32_t all = call->path == PIPELINE_LOGITS ? f->round_count : w->rows;
    uint64_t sent = call->part_bytes[0] + call->part_bytes[1];
    for (uint32_t i = 0; i < w->sequence_count; i++) {
        const StationSequence *q = &w->sequences[i];
        uint32_t rows = rows_of(f, q, call->path);
        if (!rows) continue;
        PipelineCost *c = costs_of(p, q->session) +
                          (call->node == PIPELINE_OWN ? p->config.cluster->node_count : call->node);
        c->calls++;
        c->ns += took_ns;
        c->bytes_sent += sent * rows / all;
        c->bytes_received += received * rows / all;
    }
}

/* ---- Figures of nodes, for any thread ---- */

const uint32_t pipeline_hop_bounds_us[PIPELINE_HOP_BUCKETS] = {
    500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 1000000, 2500000, 10000000};

/* One that was answered as it should be. */
void pipeline_costs_hop(Pipeline *p, const Ended *e)
{
    PipelinePath path = e->call->path;
    uint64_t us = e->took_ns / 1000;
    uint32_t at = 0;
    if (path > PIPELINE_LOGITS) return;
    PipelineCounts *c = &pipeline_node_of(p, e->call->node)->counts;
    while (at < PIPELINE_HOP_BUCKETS && us > pipeline_hop_bounds_us[at]) at++;
    pipeline_count(&c->hops[path][at], 1);
    pipeline_count(&c->hop_us[path], us);
}

void pipeline_counts(const Pipeline *p, uint32_t node, PipelineCounts *out)
{
    const uint64_t *from = (const uint64_t *)(const void *)&pipeline_node_of(p, node)->counts;
    uint64_t *to = (uint64_t *)(void *)out;
    for (size_t i = 0; i < sizeof *out / sizeof *to; i++)
        to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}
