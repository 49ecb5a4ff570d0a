/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/pipeline_state.h"

static const uint64_t UNWANTED_NS = 1000 * MS;

/* ---- Events ---- */

static void push_events(Pipeline *p, const CoordinatorEvent *events, uint32_t count, const Why *why)
{
    for (uint32_t i = 0; i < count; i++) {
        ASSERT(p->events_count < p->events_max);
        Event *e = &p->events[(p->events_first + p->events_count++) % p->events_max];
        e->event = events[i];
        e->starts = coordinator_starts(p->coordinator, events[i].slot);
        e->why = why ? *why : (Why){{0}};
    }
}

/* An event that waited while its slot was given to another answer is nobody's any more. */
bool pipeline_next_event(Pipeline *p, CoordinatorEvent *event, Why *why)
{
    while (p->events_count) {
        const Event *e = &p->events[p->events_first];
        p->events_first = (p->events_first + 1) % p->events_max;
        p->events_count--;
        *event = e->event;
        if (why) *why = e->why;
        if (e->starts == coordinator_starts(p->coordinator, event->slot)) return true;
    }
    return false;
}

/* ---- Frames that come to nothing ---- */

static void leave(Pipeline *p, Frame *f)
{
    f->stage = STAGE_LEAVING;
    f->work = NULL;
    pipeline_calls_cancel_frame(p, f);
    p->again = true;
}

/* The frames from place `from` of the order on. */
static void leave_from(Pipeline *p, uint32_t from)
{
    for (uint32_t i = from; i < p->under_way; i++) leave(p, &p->frames[p->order[i]]);
    p->under_way = from;
}

static uint32_t place_of(const Pipeline *p, const Frame *f)
{
    uint32_t place = 0;
    while (&p->frames[p->order[place]] != f) place++;
    return place;
}

void pipeline_give_up(Pipeline *p)
{
    coordinator_give_up_frames(p->coordinator, NULL);
    leave_from(p, 0);
}

void pipeline_fail(Pipeline *p, Frame *f, Error error, const Why *why)
{
    uint32_t count;
    const CoordinatorEvent *events = coordinator_fail_frame(p->coordinator, f->work, error, &count);
    push_events(p, events, count, why);
    leave_from(p, place_of(p, f));
}

void pipeline_refuse(Pipeline *p, Frame *f, Error error, const Why *why)
{
    uint32_t count;
    const CoordinatorEvent *events =
        coordinator_refuse_frame(p->coordinator, f->work, error, &count);
    push_events(p, events, count, why);
    leave_from(p, place_of(p, f));
}

static bool is_wanted(const Pipeline *p, const Frame *f)
{
    return coordinator_frame_is_wanted(p->coordinator, f->work);
}

/* The newest frames, while nobody waits for them: their slots are free at once. */
static void leave_unwanted(Pipeline *p)
{
    uint32_t from = p->under_way;
    while (from && !is_wanted(p, &p->frames[p->order[from - 1]])) from--;
    if (from == p->under_way) return;
    coordinator_give_up_from(p->coordinator, p->frames[p->order[from]].work);
    leave_from(p, from);
}

/* A station that loses sessions faster than they are replayed would go on for ever. */
static bool is_replayed_in_vain(Pipeline *p, const CoordinatorFrame *w)
{
    bool vain = false;
    for (uint32_t i = 0; i < w->sequence_count; i++)
        vain |= ++p->slot_replays[w->sequences[i].session] > REPLAYS_MAX;
    return vain;
}

void pipeline_replay(Pipeline *p, Frame *f, uint32_t node, const Why *why)
{
    p->replays++;
    pipeline_count(&pipeline_node_of(p, node)->counts.replays, 1);
    if (is_replayed_in_vain(p, f->work)) {
        Why named;
        Error error = pipeline_nodes_name(p, node, ERR_SESSION, why, &named);
        pipeline_refuse(p, f, error, &named);
        return;
    }
    coordinator_give_up_frames(p->coordinator, f->work);
    leave_from(p, 0);
}

void pipeline_replay_all(Pipeline *p, uint32_t node)
{
    p->replays++;
    pipeline_count(&pipeline_node_of(p, node)->counts.replays, 1);
    pipeline_give_up(p);
    coordinator_forget_sessions(p->coordinator);
}

/* ---- Sessions ---- */

static void rename_session(Pipeline *p, uint32_t slot)
{
    if (p->used[slot]) pipeline_nodes_drop(p, p->sessions[slot]);
    p->used[slot] = false;
    p->sessions[slot] = pipeline_session_id(p);
}

void pipeline_new_sessions(Pipeline *p, const CoordinatorFrame *work)
{
    for (uint32_t i = 0; i < work->sequence_count; i++)
        rename_session(p, work->sequences[i].session);
}

void pipeline_forget(Pipeline *p, uint32_t slot)
{
    ASSERT(slot < p->config.slots && !coordinator_is_active(p->coordinator, slot));
    p->forget[slot] = coordinator_is_under_way(p->coordinator, slot);
    if (p->forget[slot]) return;
    rename_session(p, slot);
    coordinator_truncate(p->coordinator, slot, 0);
    p->again = true;
}

void pipeline_forget_waiting(Pipeline *p)
{
    for (uint32_t i = 0; i < p->config.slots; i++)
        if (p->forget[i]) pipeline_forget(p, i);
}

bool pipeline_is_degraded(const Pipeline *p, uint32_t slot)
{
    return coordinator_is_degraded(p->coordinator, slot);
}

/* ---- Steps ---- */

static Frame *find_idle(Pipeline *p)
{
    for (uint32_t i = 0; i < p->frame_count; i++) {
        Frame *f = &p->frames[i];
        if (f->stage == STAGE_LEAVING && !f->calls) f->stage = STAGE_IDLE;
        if (f->stage == STAGE_IDLE) return f;
    }
    return NULL;
}

/* None while events wait: whoever reads them may stop a slot first. */
static void take_frames(Pipeline *p)
{
    Frame *f;
    CoordinatorFrame *work;
    while (!p->events_count && (f = find_idle(p)) != NULL &&
           coordinator_frame(p->coordinator, &work)) {
        f->work = work;
        f->bad = 0;
        p->order[p->under_way++] = f->number;
        pipeline_embed_begin(p, f);
    }
}

/* Nobody waits for it, but for frames behind it: it goes on as long as it moves. */
static void step_unwanted(Pipeline *p, Frame *f)
{
    if (f->stage == STAGE_LOGITS) pipeline_logits_drop(p, f);
    else if (f->stage != STAGE_DONE && p->now_ns - f->moved_ns >= UNWANTED_NS) pipeline_give_up(p);
}

static void step_frame(Pipeline *p, Frame *f)
{
    if (!is_wanted(p, f)) step_unwanted(p, f);
    if (f->stage == STAGE_EMBED || f->stage == STAGE_LOGITS) pipeline_shards_step(p, f);
    else if (f->stage == STAGE_FORWARD) pipeline_forward_step(p, f);
}

static void end_frame(Pipeline *p, Frame *f)
{
    uint32_t count;
    for (uint32_t i = 0; i < f->work->sequence_count; i++)
        p->slot_replays[f->work->sequences[i].session] = 0;
    p->last_rows = f->work->rows;
    p->last_ns = f->slowest_ns;
    p->frames_ended++;
    pipeline_nodes_time_stages(p, f);
    pipeline_logits_give_pools(p, f);
    const CoordinatorEvent *events = coordinator_end_frame(p->coordinator, f->work, &count);
    push_events(p, events, count, NULL);
    f->stage = STAGE_IDLE;
    f->work = NULL;
    p->under_way--;
    for (uint32_t i = 0; i < p->under_way; i++) p->order[i] = p->order[i + 1];
    p->again = true;
}

static bool is_oldest_done(const Pipeline *p)
{
    return p->under_way && p->frames[p->order[0]].stage == STAGE_DONE;
}

void pipeline_advance(Pipeline *p, uint64_t now_ns)
{
    p->now_ns = now_ns;
    do {
        p->again = false;
        pipeline_nodes_step(p);
        leave_unwanted(p);
        take_frames(p);
        for (uint32_t i = 0; i < p->under_way; i++) step_frame(p, &p->frames[p->order[i]]);
        while (is_oldest_done(p)) end_frame(p, &p->frames[p->order[0]]);
        pipeline_forget_waiting(p);
    } while (p->again);
}

uint64_t pipeline_wake_ns(const Pipeline *p)
{
    uint64_t wake = pipeline_nodes_wake_ns(p);
    for (uint32_t i = 0; i < p->under_way; i++) {
        const Frame *f = &p->frames[p->order[i]];
        uint64_t at = UINT64_MAX;
        if (f->stage == STAGE_FORWARD) at = pipeline_forward_wake_ns(p, f);
        else if (f->stage != STAGE_DONE) at = pipeline_shards_wake_ns(p, f);
        if (at < wake) wake = at;
    }
    return wake;
}

/* ---- Told ---- */

bool pipeline_is_busy(const Pipeline *p)
{
    bool busy = p->under_way > 0;
    for (uint32_t i = 0; i < p->config.slots && !busy; i++)
        busy = coordinator_is_active(p->coordinator, i);
    return busy;
}

uint64_t pipeline_replays(const Pipeline *p) { return p->replays; }
uint64_t pipeline_degraded(const Pipeline *p) { return p->degraded; }

uint64_t pipeline_frame_time(const Pipeline *p, uint32_t *rows, uint64_t *slowest_ns)
{
    *rows = p->last_rows;
    *slowest_ns = p->last_ns;
    return p->frames_ended;
}
