/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/cost.h"

#define GIGA 1e9

static uint32_t cost_machine_of(const CostRequest *r, uint32_t role)
{
    return r->role_machine ? r->role_machine[role] : 0;
}

static bool cost_is_positive(double x) { return x > 0 && x < 1e30; }

static Error cost_check(const CostRequest *r, Why *why)
{
    if (!r->machines || r->machines > COST_MACHINES_MAX)
        return error_why(why, ERR_RANGE, "%u machines, 1 to %d are possible", r->machines,
                         COST_MACHINES_MAX);
    for (uint32_t i = 0; i < r->machines; i++) {
        const CostMachine *m = &r->machine[i];
        if (!cost_is_positive(m->bandwidth_gbs) || !cost_is_positive(m->stream_gbs) ||
            !cost_is_positive(m->network_gbs) || !(m->hop_us >= 0 && m->hop_us < 1e12))
            return error_why(why, ERR_RANGE, "a speed of machine %u is not above 0", i);
    }
    for (uint32_t i = 0; i < r->plan->role_count; i++)
        if (cost_machine_of(r, i) >= r->machines)
            return error_why(why, ERR_RANGE, "role %u is on machine %u of %u", i,
                             cost_machine_of(r, i), r->machines);
    return OK;
}

static uint64_t cost_streamed(const PlanRole *role)
{
    return role->weight_bytes > role->pinned_bytes ? role->weight_bytes - role->pinned_bytes : 0;
}

/* A role's weights through its machine. */
static double cost_compute_seconds(const CostRequest *r, uint32_t i)
{
    const CostMachine *m = &r->machine[cost_machine_of(r, i)];
    const PlanRole *role = &r->plan->role[i];
    uint64_t streamed = cost_streamed(role);
    return (double)(role->weight_bytes - streamed) / (m->bandwidth_gbs * GIGA) +
           (double)streamed / (m->stream_gbs * GIGA);
}

/* ---- Bytes between nodes, for one row. */

static uint64_t cost_bound_bytes(const CostRequest *r, PhaseBound bound)
{
    const Hyper *h = r->plan->request.hyper;
    uint64_t bytes = rows_row_bytes(r->element, h->hidden);
    bool with_g = phase_of(bound) == PHASE_FFN_UP || phase_of(bound) == PHASE_FFN_DOWN;
    return bytes + (with_g ? rows_row_bytes(r->element, h->ffn) : 0);
}

static uint64_t cost_forward_bytes(const CostRequest *r, uint32_t station)
{
    PhaseRange range = r->plan->role[station].range;
    return cost_bound_bytes(r, range.first) + cost_bound_bytes(r, range.last) +
           2 * COST_HEADER_BYTES;
}

static uint64_t cost_embed_bytes(const CostRequest *r)
{
    return rows_row_bytes(r->element, r->plan->request.hyper->hidden) + 2 * COST_HEADER_BYTES;
}

static uint64_t cost_logits_bytes(const CostRequest *r)
{
    return rows_row_bytes(r->element, r->plan->request.hyper->hidden) +
           COST_CANDIDATES * sizeof(SamplerCandidate) + 2 * COST_HEADER_BYTES;
}

static double cost_hop_seconds(const CostMachine *m, uint64_t bytes)
{
    return m->hop_us * 1e-6 + (double)bytes / (m->network_gbs * GIGA);
}

/* ---- The token's way */

static void cost_stations(const CostRequest *r, Cost *out, double *busy)
{
    for (uint32_t i = 0; i < r->plan->request.stations; i++) {
        uint32_t machine = cost_machine_of(r, i);
        uint64_t bytes = cost_forward_bytes(r, i);
        double compute = cost_compute_seconds(r, i);
        out->seconds += compute + cost_hop_seconds(&r->machine[machine], bytes);
        out->moved_bytes += bytes;
        busy[machine] += compute;
    }
}

/* What is asked of a station beside its layers: its computing was counted with them. */
static void cost_ends(const CostRequest *r, Cost *out)
{
    const PlanRequest *p = &r->plan->request;
    uint64_t embed = p->embed ? cost_embed_bytes(r) : 0, head = p->head ? cost_logits_bytes(r) : 0;
    const CostMachine *first = &r->machine[cost_machine_of(r, 0)],
                      *last = &r->machine[cost_machine_of(r, p->stations - 1)];
    if (p->embed) out->seconds += cost_hop_seconds(first, embed);
    if (p->head) out->seconds += cost_hop_seconds(last, head);
    out->moved_bytes += embed + head;
}

/* One shard embeds; all of them multiply, machine beside machine. */
static void cost_shards(const CostRequest *r, Cost *out, double *busy)
{
    double head[COST_MACHINES_MAX] = {0}, slowest = 0, embed = 0;
    uint64_t bytes = cost_logits_bytes(r);
    for (uint32_t i = r->plan->request.stations; i < r->plan->role_count; i++) {
        uint32_t machine = cost_machine_of(r, i);
        double compute = cost_compute_seconds(r, i);
        double hop = cost_hop_seconds(&r->machine[machine], cost_embed_bytes(r));
        if (hop > embed) embed = hop;
        if (r->plan->request.head) continue;
        if (head[machine] == 0) head[machine] = r->machine[machine].hop_us * 1e-6;
        head[machine] += compute + (double)bytes / (r->machine[machine].network_gbs * GIGA);
        busy[machine] += compute;
        out->moved_bytes += bytes;
    }
    for (uint32_t m = 0; m < r->machines; m++)
        if (head[m] > slowest) slowest = head[m];
    out->seconds += slowest;
    if (r->plan->request.embed || !r->plan->request.shards) return;
    out->seconds += embed;
    out->moved_bytes += cost_embed_bytes(r);
}

static void cost_alone(const CostRequest *r, Cost *out)
{
    for (uint32_t i = 0; i < r->machines; i++) {
        const CostMachine *m = &r->machine[i];
        uint64_t memory = m->memory_bytes ? m->memory_bytes : UINT64_MAX;
        uint64_t streamed = out->weight_bytes > memory ? out->weight_bytes - memory : 0;
        double seconds = (double)(out->weight_bytes - streamed) / (m->bandwidth_gbs * GIGA) +
                         (double)streamed / (m->stream_gbs * GIGA);
        if (i && seconds >= out->alone_seconds) continue;
        out->alone_machine = i;
        out->alone_seconds = seconds;
        out->alone_streamed_bytes = streamed;
    }
    out->alone_tokens_per_s = out->alone_seconds > 0 ? 1 / out->alone_seconds : 0;
}

Error cost_of(const CostRequest *r, Cost *out, Why *why)
{
    const PlanRequest *p = &r->plan->request;
    double busy[COST_MACHINES_MAX] = {0}, busiest = 0;
    ASSERT(!p->solo);
    TRY(cost_check(r, why));
    *out = (Cost){.calls = p->stations + (p->head ? 1 : p->shards) + 1, .hops = p->stations + 2};
    for (uint32_t i = 0; i < r->plan->role_count; i++) {
        out->weight_bytes += r->plan->role[i].weight_bytes;
        out->streamed_bytes += cost_streamed(&r->plan->role[i]);
    }
    cost_stations(r, out, busy);
    cost_ends(r, out);
    cost_shards(r, out, busy);
    cost_alone(r, out);
    for (uint32_t m = 0; m < r->machines; m++)
        if (busy[m] > busiest) busiest = busy[m];
    out->tokens_per_s = out->seconds > 0 ? 1 / out->seconds : 0;
    out->busy_tokens_per_s = busiest > 0 ? 1 / busiest : 0;
    out->alone_is_faster = out->alone_seconds < out->seconds;
    return OK;
}
