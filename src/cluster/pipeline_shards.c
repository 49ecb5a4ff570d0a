/* SPDX-License-Identifier: Apache-2.0 */
/* A stage that asks shards: each of them on its own, until all have answered.
 *
 *   the range's nodes that are not DOWN, each once --> the coordinator's own store
 *      ^                                                   |
 *      '-- once more, after a while ------------------------ until there is no hope: zero rows
 *
 * Nodes that all refuse our key are no loss to be borne but a mistake to be told: the frame is refused.
 * No hope: every node has been DOWN for 3 s, or six calls failed. What is asked of a range that has been DOWN
 * for longer therefore costs nothing but the own store's answer.
 *
 * A call that takes four times as long as usual gets a twin at a replica; the first answer counts. */
#include "cluster/pipeline_state.h"

static const uint64_t GRACE_NS = 3000 * MS, RETRY_NS = 50 * MS, HEDGE_MIN_NS = 5 * MS;
enum { FAILURES_MAX = 6, HEDGE_TIMES = 4 };

/* ---- Asking ---- */

static PipelinePath path_of(const Frame *f)
{
    return f->stage == STAGE_EMBED ? PIPELINE_EMBED : PIPELINE_LOGITS;
}

static uint32_t rows_of(const Frame *f)
{
    return f->stage == STAGE_EMBED ? f->work->rows : f->round_count;
}

static void send(Pipeline *p, Frame *f, uint32_t shard, uint32_t twin, uint32_t node)
{
    Ask *a = &f->asks[shard];
    const Range *r = pipeline_shard(p, shard);
    a->request_id[twin] = pipeline_request_id(p);
    if (f->stage == STAGE_EMBED) pipeline_embed_write(p, f, shard, twin);
    else pipeline_logits_write(p, f, shard, twin);
    if (node != PIPELINE_OWN) a->tried |= 1u << (node - r->first);
    PipelineCall call = {.call = pipeline_calls_of_shard(p, f, shard, twin),
                         .node = node,
                         .part = pipeline_ends_part(p, shard, node),
                         .path = path_of(f),
                         .parts = {a->header[twin], a->payload},
                         .part_bytes = {a->header_bytes, a->payload_bytes},
                         .answer = a->answer[twin],
                         .answer_room = a->room};
    pipeline_calls_make(p, &call, rows_of(f));
}

/* A node that can be asked and was not: the active one first. */
static uint32_t choose(const Pipeline *p, const Range *r, const Ask *a)
{
    for (uint32_t i = 0; i < r->count; i++) {
        uint32_t node = r->first + (r->active - r->first + i) % r->count;
        if (!(a->tried >> (node - r->first) & 1) && pipeline_nodes_usable(p, node)) return node;
    }
    return NONE;
}

/* All others are taken as zero: without this one there is nothing. */
static bool is_last_hope(const Pipeline *p, const Frame *f, uint32_t shard)
{
    for (uint32_t i = 0; i < p->shards; i++)
        if (i != shard && (f->asks[i].open || f->asks[i].answered)) return false;
    return true;
}

static uint64_t grace_ns(const Pipeline *p, const Frame *f, uint32_t shard)
{
    return is_last_hope(p, f, shard) ? p->patience_ns : GRACE_NS;
}

static bool is_hopeless(const Pipeline *p, const Frame *f, uint32_t shard)
{
    uint64_t since = pipeline_shard(p, shard)->none_since_ns;
    if (since && p->now_ns - since >= grace_ns(p, f, shard)) return true;
    return f->asks[shard].failures >= FAILURES_MAX && !is_last_hope(p, f, shard);
}

static void take_zero(Pipeline *p, Frame *f, uint32_t shard)
{
    f->asks[shard].open = false;
    p->degraded++;
    p->again = true;
    if (f->stage == STAGE_EMBED) pipeline_embed_zero(p, f, shard);
    else pipeline_logits_zero(p, f, shard);
}

/* Nothing is under way for it: the next rung of the ladder. */
static void climb(Pipeline *p, Frame *f, uint32_t shard)
{
    Ask *a = &f->asks[shard];
    const Range *r = pipeline_shard(p, shard);
    if (p->now_ns < a->retry_ns) return;
    uint32_t node = choose(p, r, a);
    if (node != NONE) {
        send(p, f, shard, 0, node);
    } else if (!a->own_failed) {
        send(p, f, shard, 0, PIPELINE_OWN);
    } else if (pipeline_nodes_locked(p, r)) {
        Why why;
        Error error = pipeline_nodes_explain(p, r, &why);
        pipeline_refuse(p, f, error, &why);
    } else if (is_hopeless(p, f, shard)) {
        take_zero(p, f, shard);
    } else if (!r->none_since_ns) {
        a->tried = 0;
        a->retry_ns =
            p->now_ns + (RETRY_NS << (a->failures < FAILURES_MAX ? a->failures : FAILURES_MAX));
    }
}

/* ---- Hedges ---- */

static uint64_t hedge_ns(const Pipeline *p, const Frame *f, const Call *main)
{
    uint64_t usual = pipeline_nodes_usual_ns(p, main->body.node, path_of(f), main->rows);
    uint64_t after = HEDGE_TIMES * usual;
    if (!usual || main->state != CALL_OUT) return UINT64_MAX;
    return main->start_ns + (after > HEDGE_MIN_NS ? after : HEDGE_MIN_NS);
}

/* The time to hedge the part's call; UINT64_MAX when there is nothing to hedge, or nobody to ask. */
static uint64_t hedge_at(const Pipeline *p, const Frame *f, uint32_t shard)
{
    const Call *main = &p->calls[pipeline_calls_of_shard(p, f, shard, 0)];
    const Ask *a = &f->asks[shard];
    bool single = pipeline_calls_is_free(p, pipeline_calls_of_shard(p, f, shard, 1));
    if (p->twins < TWINS || !a->open || !single || main->state != CALL_OUT) return UINT64_MAX;
    if (main->body.node == PIPELINE_OWN || choose(p, pipeline_shard(p, shard), a) == NONE)
        return UINT64_MAX;
    return hedge_ns(p, f, main);
}

static void hedge(Pipeline *p, Frame *f, uint32_t shard)
{
    if (hedge_at(p, f, shard) > p->now_ns) return;
    uint32_t node = choose(p, pipeline_shard(p, shard), &f->asks[shard]);
    pipeline_count(&pipeline_node_of(p, node)->counts.hedges, 1);
    send(p, f, shard, 1, node);
}

/* ---- The stage ---- */

static bool is_idle(const Pipeline *p, const Frame *f, uint32_t shard)
{
    return pipeline_calls_is_free(p, pipeline_calls_of_shard(p, f, shard, 0)) &&
           pipeline_calls_is_free(p, pipeline_calls_of_shard(p, f, shard, 1));
}

void pipeline_shards_step(Pipeline *p, Frame *f)
{
    bool open = false;
    for (uint32_t i = 0; i < p->shards; i++) {
        if (!f->asks[i].open) continue;
        if (is_idle(p, f, i)) climb(p, f, i);
        else hedge(p, f, i);
        if (f->stage == STAGE_LEAVING) return;
        open |= f->asks[i].open;
    }
    if (open || f->calls) return;
    p->again = true;
    if (f->stage == STAGE_EMBED) pipeline_embed_end(p, f);
    else pipeline_logits_end(p, f);
}

uint64_t pipeline_shards_wake_ns(const Pipeline *p, const Frame *f)
{
    uint64_t wake = UINT64_MAX;
    for (uint32_t i = 0; i < p->shards; i++) {
        const Ask *a = &f->asks[i];
        const Range *r = pipeline_shard(p, i);
        uint64_t at = hedge_at(p, f, i);
        if (a->open && is_idle(p, f, i))
            at = r->none_since_ns ? r->none_since_ns + grace_ns(p, f, i) : a->retry_ns;
        if (a->open && at < a->retry_ns) at = a->retry_ns;
        if (at < wake) wake = at;
    }
    return wake;
}

/* ---- Answers ---- */

static void take_answer(Pipeline *p, Frame *f, uint32_t shard, uint32_t twin, Ended *e)
{
    Ask *a = &f->asks[shard];
    Range *r = pipeline_shard(p, shard);
    e->error = f->stage == STAGE_EMBED ? pipeline_embed_take(p, f, shard, twin, e->bytes, &e->why)
                                       : pipeline_logits_take(p, f, shard, twin, e->bytes, &e->why);
    if (e->error != OK) return;
    a->open = false;
    a->answered = true;
    pipeline_nodes_succeeded(p, e);
    pipeline_calls_cancel(p, pipeline_calls_of_shard(p, f, shard, !twin));
    if (e->call->node != PIPELINE_OWN && !pipeline_nodes_usable(p, r->active))
        r->active = e->call->node;
}

static bool is_refusal(Error error)
{
    return error >= ERR_USAGE && error <= ERR_TOO_LARGE && error != ERR_UNSUPPORTED &&
           error != ERR_MISSING_TENSOR && error != ERR_NOT_FOUND &&
           error != ERR_CHECKSUM; /* damaged on the way */
}

static void take_failure(Pipeline *p, Frame *f, uint32_t shard, const Ended *e)
{
    Ask *a = &f->asks[shard];
    uint32_t node = e->call->node;
    a->failures++;
    a->own_failed |= node == PIPELINE_OWN;
    if (e->error == ERR_CANCELLED && node != PIPELINE_OWN) return; /* by us: its node is DOWN */
    bool ours = e->answered && e->error == ERR_NOT_FINITE;
    if (e->answered && node != PIPELINE_OWN && is_refusal(e->error)) ours |= ++a->bad >= BAD_MAX;
    if (ours) {
        Why named;
        Error error = pipeline_nodes_name(p, node, e->error, &e->why, &named);
        pipeline_fail(p, f, error, &named);
    } else pipeline_nodes_failed(p, node, e->error, &e->why);
}

void pipeline_shards_ended(Pipeline *p, Frame *f, uint32_t shard, uint32_t twin, const Ended *ended)
{
    Ended e = *ended;
    bool answered = e.answered && e.error != OK;
    p->again = true;
    if (!f->asks[shard].open) return;
    if (e.error == OK) take_answer(p, f, shard, twin, &e);
    e.answered = answered; /* what an answer's own bytes show is its sender's fault */
    if (e.error != OK) take_failure(p, f, shard, &e);
}
