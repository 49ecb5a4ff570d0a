/* SPDX-License-Identifier: Apache-2.0 */
/* A frame at its stations. The rows of an answer are the payload of the next request, hash and all: two buffers
 * change places, nothing is copied or decoded, only looked at: what is no number does not go on.
 *
 *   station k:  wait for the turn (every older frame is past it) --> a node of the range --> answer
 *                    ^                                                   |
 *                    |<-- its node failed: again, or a replica ----------'--> station k + 1, or logits
 *
 * A replica starts with nothing that we know of: every session is replayed from its first token. */
#include "cluster/pipeline_state.h"

void pipeline_forward_begin(Pipeline *p, Frame *f)
{
    const CoordinatorFrame *w = f->work;
    f->stage = STAGE_FORWARD;
    f->begun_ns[PIPELINE_FORWARD] = p->now_ns;
    f->station = 0;
    f->slowest_ns = 0;
    f->waits_since_ns = 0;
    f->moved_ns = p->now_ns;
    p->again = true;
    bool decode = true, verify = w->pick_count == w->rows;
    for (uint32_t i = 0; i < w->sequence_count; i++) {
        const StationSequence *q = &w->sequences[i];
        f->sequences[i] = (ForwardSequence){
            .session = p->sessions[q->session], .position = q->position, .rows = q->rows};
        if (q->forks) {
            f->sequences[i].parent = p->sessions[q->parent];
            f->sequences[i].parent_length = q->position;
        }
        p->used[q->session] = true;
        decode = decode && q->rows == 1;
    }
    for (uint32_t i = 0; i < w->wanted_count; i++) f->wanted[i] = w->wanted[i];
    f->request = (Forward){.mode = decode   ? FORWARD_DECODE
                                   : verify ? FORWARD_VERIFY
                                            : FORWARD_PREFILL,
                           .element = p->element,
                           .rows = w->rows,
                           .sequences = f->sequences,
                           .sequence_count = w->sequence_count,
                           .wanted_count = w->wanted_count};
}

/* ---- Asking ---- */

/* Every older frame has passed the station, and fewer are at stations than may be at once: that bounds only when it
 * is less than the stations, and only who comes to the first. */
static bool has_turn(const Pipeline *p, const Frame *f)
{
    uint32_t at_stations = 0, most = p->frame_count - 1; /* one more gets its rows meanwhile */
    bool bound = most < p->stations && f->station == 0;
    for (uint32_t i = 0; i < p->under_way; i++) {
        const Frame *older = &p->frames[p->order[i]];
        if (older == f) return !bound || at_stations < most;
        if (older->stage == STAGE_EMBED) return false;
        if (older->stage != STAGE_FORWARD) continue;
        if (older->station <= f->station) return false;
        at_stations++;
    }
    return false;
}

static void send(Pipeline *p, Frame *f, uint32_t node)
{
    const Range *r = pipeline_station(p, f->station);
    f->request.request_id = pipeline_request_id(p);
    f->request.wanted = f->station + 1 == p->stations ? f->wanted : NULL;
    forward_write(&f->request, &r->terms.forward, f->rows_hash, f->header);
    PipelineCall call = {.call = pipeline_calls_of_forward(p, f),
                         .node = node,
                         .part = f->station,
                         .path = PIPELINE_FORWARD,
                         .parts = {f->header, f->rows},
                         .part_bytes = {forward_header_size(&f->request), (size_t)f->rows_bytes},
                         .answer = f->buffer[!f->side],
                         .answer_room = p->buffer_bytes};
    pipeline_calls_make(p, &call, f->request.rows);
}

/* A node of the range to go on with in place of the active one: any when that is gone; one that failed
 * less of late when it fails again and again, though it is alive (it drains). So each turn takes one failure more
 * than the last: it costs a replay. NONE: there is none. */
static uint32_t successor(const Pipeline *p, const Range *r)
{
    const Node *active = &p->nodes[r->active];
    for (uint32_t i = 1; i < r->count; i++) {
        uint32_t node = r->first + (r->active - r->first + i) % r->count;
        bool better = active->failed_in_a_row > 1 &&
                      pipeline_nodes_held_against(p, node) < active->failed_in_a_row;
        if ((active->gone || better) && pipeline_nodes_usable(p, node)) return node;
    }
    return NONE;
}

static bool is_patience_over(const Pipeline *p, const Range *r, const Frame *f)
{
    uint64_t now = p->now_ns;
    return now - f->waits_since_ns >= p->patience_ns ||
           (r->none_since_ns && now - r->none_since_ns >= p->patience_ns);
}

/* No node can be asked now. */
static void wait(Pipeline *p, Frame *f, const Range *r)
{
    if (!f->waits_since_ns) f->waits_since_ns = p->now_ns ? p->now_ns : 1;
    if (!coordinator_frame_is_wanted(p->coordinator, f->work)) {
        pipeline_give_up(p);
    } else if (is_patience_over(p, r, f) || pipeline_nodes_locked(p, r)) {
        Why why;
        Error error = pipeline_nodes_explain(p, r, &why);
        pipeline_refuse(p, f, error, &why);
    }
}

void pipeline_forward_step(Pipeline *p, Frame *f)
{
    Range *r = pipeline_station(p, f->station);
    if (f->calls || !has_turn(p, f)) return;
    uint32_t next = successor(p, r);
    if (next != NONE) {
        r->active = next;
        p->nodes[next].failed_in_a_row = pipeline_nodes_held_against(p, next);
        pipeline_replay_all(p, next);
    } else if (pipeline_nodes_usable(p, r->active)) {
        send(p, f, r->active);
    } else {
        wait(p, f, r);
    }
}

uint64_t pipeline_forward_wake_ns(const Pipeline *p, const Frame *f)
{
    const Range *r = &p->ranges[f->station];
    if (f->calls || !f->waits_since_ns) return UINT64_MAX;
    uint64_t since = f->waits_since_ns;
    if (r->none_since_ns && r->none_since_ns < since) since = r->none_since_ns;
    return since + p->patience_ns;
}

/* ---- Answers ---- */

static Error take_rows(Pipeline *p, Frame *f, const Ended *e, uint32_t *compute_us, Why *why)
{
    const Range *r = pipeline_station(p, f->station);
    const uint8_t *answer = e->call->answer;
    ForwardAnswer a;
    FrameHead head;
    TRY(forward_read_answer(answer, e->bytes, &f->request, &r->terms.forward, &a, &head, why));
    TRY(frame_check_payload(&head, answer + head.header_bytes, e->bytes - head.header_bytes, why));
    TRY(forward_check_answer_rows(&f->request, &r->terms.forward, &a, answer + head.header_bytes,
                                  why));
    f->side = !f->side;
    f->rows = answer + head.header_bytes;
    f->rows_bytes = head.payload_bytes;
    f->rows_hash = head.payload_hash;
    f->only_wanted = a.only_wanted;
    *compute_us = a.compute_us;
    return OK;
}

static void take_answer(Pipeline *p, Frame *f, Ended *e)
{
    uint32_t compute_us = 0;
    e->error = take_rows(p, f, e, &compute_us, &e->why);
    if (e->error != OK) {
        pipeline_nodes_failed(p, e->call->node, e->error, &e->why);
        return;
    }
    pipeline_nodes_succeeded(p, e);
    pipeline_nodes_add_time(&pipeline_node_of(p, e->call->node)->compute,
                            (uint64_t)compute_us * 1000);
    if (e->took_ns > f->slowest_ns) f->slowest_ns = e->took_ns;
    f->waits_since_ns = 0;
    f->moved_ns = p->now_ns;
    f->bad = 0;
    if (++f->station == p->stations) pipeline_logits_begin(p, f);
}

static void fail_by(Pipeline *p, Frame *f, const Ended *e)
{
    Why named;
    Error error = pipeline_nodes_name(p, e->call->node, e->error, &e->why, &named);
    pipeline_fail(p, f, error, &named);
}

/* The request is wrong, they say: damaged on the way, or by our fault. (ERR_CHECKSUM is always the way's.) */
static void take_refusal(Pipeline *p, Frame *f, const Ended *e)
{
    if (++f->bad >= BAD_MAX) fail_by(p, f, e);
    else pipeline_nodes_failed(p, e->call->node, e->error, &e->why);
}

/* Who lost what the frame builds on is well; the sessions are not. Who loses them again before it has answered
 * anything is of no more use than who fails. */
static void take_loss(Pipeline *p, Frame *f, const Ended *e)
{
    uint32_t node = e->call->node;
    if (e->error == ERR_SUPERSEDED) {
        pipeline_nodes_heard(p, node);
        pipeline_new_sessions(p, f->work);
    } else if (pipeline_nodes_held_against(p, node)) {
        pipeline_nodes_failed(p, node, e->error, &e->why);
    } else {
        pipeline_nodes_heard(p, node);
        pipeline_nodes_disappoints(p, node);
    }
    pipeline_replay(p, f, node, &e->why);
}

/* Patience is for the time in which nobody could be asked: a call to a node that was there is none of it. */
static void begin_to_wait(const Pipeline *p, Frame *f, uint64_t took_ns)
{
    if (f->waits_since_ns) f->waits_since_ns += took_ns;
    else f->waits_since_ns = p->now_ns ? p->now_ns : 1;
}

void pipeline_forward_ended(Pipeline *p, Frame *f, const Ended *ended)
{
    Ended e = *ended;
    p->again = true;
    if (e.error != OK) begin_to_wait(p, f, e.took_ns);
    switch (e.error) {
    case OK: take_answer(p, f, &e); break;
    case ERR_CANCELLED: break; /* by us: its node is DOWN */
    case ERR_SESSION:
    case ERR_POSITION:
    case ERR_SUPERSEDED: take_loss(p, f, &e); break;
    case ERR_NOT_FINITE:
        pipeline_nodes_heard(p, e.call->node);
        fail_by(p, f, &e);
        break;
    case ERR_USAGE:
    case ERR_TOO_LARGE:
    case ERR_FORMAT:
    case ERR_TRUNCATED:
    case ERR_TYPE:
    case ERR_SHAPE:
    case ERR_RANGE:
    case ERR_DUPLICATE:
        if (e.answered) take_refusal(p, f, &e);
        else pipeline_nodes_failed(p, e.call->node, e.error, &e.why);
        break;
    default: pipeline_nodes_failed(p, e.call->node, e.error, &e.why);
    }
}
