/* SPDX-License-Identifier: Apache-2.0 */
/* The table of calls. A number says whose call it is, so that an answer finds its way:
 *
 *   [ frame, shard, twin .. | frame's forward .. | node's health .. | node's drop .. ]
 *
 *   FREE --make--> WANTED --pipeline_next_call--> OUT --pipeline_answer--> FREE
 *                     '--cancel--> FREE             '--cancel--> OUT, and pipeline_next_cancel tells the host */
#include "cluster/pipeline_state.h"

#include "wire/node_error.h"

static uint32_t shard_calls(const Pipeline *p) { return p->frame_count * p->shards * TWINS; }

uint32_t pipeline_calls_of_shard(const Pipeline *p, const Frame *f, uint32_t shard, uint32_t twin)
{
    return (f->number * p->shards + shard) * TWINS + twin;
}

uint32_t pipeline_calls_of_forward(const Pipeline *p, const Frame *f)
{
    return shard_calls(p) + f->number;
}

uint32_t pipeline_calls_of_health(const Pipeline *p, uint32_t node)
{
    return shard_calls(p) + p->frame_count + node;
}

uint32_t pipeline_calls_of_drop(const Pipeline *p, uint32_t node)
{
    return pipeline_calls_of_health(p, node) + p->config.cluster->node_count;
}

uint32_t pipeline_calls_count(const Pipeline *p)
{
    return pipeline_calls_of_drop(p, p->config.cluster->node_count);
}

uint32_t pipeline_calls_max(const Pipeline *p) { return p->calls_max; }

static Frame *frame_of(Pipeline *p, uint32_t call)
{
    uint32_t shards = shard_calls(p);
    if (call < shards) return &p->frames[call / TWINS / p->shards];
    return call - shards < p->frame_count ? &p->frames[call - shards] : NULL;
}

/* ---- Making and giving up ---- */

static void push(uint32_t *ring, uint32_t size, uint32_t first, uint32_t *count, uint32_t call)
{
    ASSERT(*count < size);
    ring[(first + (*count)++) % size] = call;
}

static uint32_t pop(const uint32_t *ring, uint32_t size, uint32_t *first, uint32_t *count)
{
    uint32_t call = ring[*first];
    *first = (*first + 1) % size;
    (*count)--;
    return call;
}

void pipeline_calls_make(Pipeline *p, const PipelineCall *body, uint32_t rows)
{
    Call *c = &p->calls[body->call];
    Frame *f = frame_of(p, body->call);
    ASSERT(c->state == CALL_FREE);
    c->state = CALL_WANTED;
    c->cancelled = false;
    c->body = *body;
    c->rows = rows;
    if (f) f->calls++;
    if (!c->in_ready) push(p->ready, p->calls_max, p->ready_first, &p->ready_count, body->call);
    c->in_ready = true;
}

/* Where the end of a call is news. Its memory is free again. */
static void end_call(Pipeline *p, Call *c, Ended *e)
{
    uint32_t number = c->body.call;
    Frame *f = frame_of(p, number);
    c->state = CALL_FREE;
    e->call = &c->body;
    e->rows = c->rows;
    if (f) f->calls--;
    if (f && f->stage == STAGE_LEAVING) return;
    if (c->body.path == PIPELINE_FORWARD) pipeline_forward_ended(p, f, e);
    else if (f) pipeline_shards_ended(p, f, number / TWINS % p->shards, number % TWINS, e);
    else if (c->body.path == PIPELINE_HEALTH) pipeline_nodes_health_ended(p, e);
    else pipeline_nodes_drop_ended(p, e);
}

void pipeline_calls_cancel(Pipeline *p, uint32_t call)
{
    Call *c = &p->calls[call];
    if (c->state == CALL_FREE || c->cancelled) return;
    c->cancelled = true;
    if (c->state == CALL_WANTED) {
        Ended e = {.error = ERR_CANCELLED};
        end_call(p, c, &e);
    } else if (!c->in_cancels) {
        c->in_cancels = true;
        push(p->cancels, p->calls_max, p->cancels_first, &p->cancels_count, call);
    }
}

void pipeline_calls_cancel_frame(Pipeline *p, const Frame *f)
{
    pipeline_calls_cancel(p, pipeline_calls_of_forward(p, f));
    for (uint32_t i = 0; f->calls && i < p->shards; i++)
        for (uint32_t t = 0; t < TWINS; t++)
            pipeline_calls_cancel(p, pipeline_calls_of_shard(p, f, i, t));
}

void pipeline_calls_cancel_node(Pipeline *p, uint32_t node)
{
    for (uint32_t i = 0; i < p->calls_max; i++)
        if (p->calls[i].body.node == node) pipeline_calls_cancel(p, i);
}

/* ---- The host's side ---- */

bool pipeline_next_call(Pipeline *p, uint64_t now_ns, PipelineCall *out)
{
    while (p->ready_count) {
        uint32_t number = pop(p->ready, p->calls_max, &p->ready_first, &p->ready_count);
        Call *c = &p->calls[number];
        c->in_ready = false;
        if (c->state != CALL_WANTED) continue;
        Node *node = pipeline_node_of(p, c->body.node);
        c->state = CALL_OUT;
        c->start_ns = now_ns;
        c->body.deadline_ns =
            now_ns + pipeline_nodes_budget_ns(p, c->body.node, c->body.path, c->rows);
        pipeline_count(&node->counts.calls, c->body.path <= PIPELINE_LOGITS);
        pipeline_count(&node->counts.bytes_sent, c->body.part_bytes[0] + c->body.part_bytes[1]);
        *out = c->body;
        return true;
    }
    return false;
}

uint32_t pipeline_call_slots(Pipeline *p, uint32_t call, uint32_t *slots, uint32_t room)
{
    const Frame *f = frame_of(p, call);
    uint32_t count = 0;
    if (!f || !f->work || p->calls[call].state == CALL_FREE) return 0;
    for (uint32_t i = 0; i < f->work->sequence_count && count < room; i++)
        slots[count++] = f->work->sequences[i].session;
    return count;
}

bool pipeline_next_cancel(Pipeline *p, uint32_t *call)
{
    while (p->cancels_count) {
        *call = pop(p->cancels, p->calls_max, &p->cancels_first, &p->cancels_count);
        Call *c = &p->calls[*call];
        c->in_cancels = false;
        if (c->state == CALL_OUT && c->cancelled) return true;
    }
    return false;
}

/* What the answer is, before its frame is looked at. */
static Error read_status(const Call *c, const PipelineAnswer *a, Why *why)
{
    if (c->cancelled) return ERR_CANCELLED;
    if (a->error != OK) {
        *why = a->why;
        return a->error;
    }
    bool drops = c->body.path == PIPELINE_DROP; /* to who has none of it, too */
    if (a->status == 200 || (drops && a->status != 401)) return OK;
    return node_error_read(a->status, c->body.answer, a->bytes, why);
}

void pipeline_answer(Pipeline *p, uint32_t call, const PipelineAnswer *answer, uint64_t now_ns)
{
    ASSERT(call < p->calls_max && p->calls[call].state == CALL_OUT);
    Call *c = &p->calls[call];
    Ended e = {.answered = answer->error == OK,
               .bytes = answer->bytes,
               .took_ns = now_ns > c->start_ns ? now_ns - c->start_ns : 0};
    ASSERT(answer->error != OK || answer->bytes <= c->body.answer_room);
    p->now_ns = now_ns;
    e.error = read_status(c, answer, &e.why);
    if (e.answered)
        pipeline_count(&pipeline_node_of(p, c->body.node)->counts.bytes_received, answer->bytes);
    const Frame *f = frame_of(p, call);
    if (f && f->work) pipeline_costs_add(p, f, &c->body, e.took_ns, e.answered ? answer->bytes : 0);
    end_call(p, c, &e);
    pipeline_forget_waiting(p);
}
