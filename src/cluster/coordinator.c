/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/coordinator.h"

#include <string.h>

/* Rows of prompts beside answers in progress: enough to share the pass over the weights, few
 * enough to keep those fast. */
enum { PREFILL_ROWS_BESIDE_DECODE = 64 };

typedef struct Slot {
    uint32_t *tokens; /* [context + 1]: the last one emitted needs no position */
    uint32_t count, fed;
    uint32_t tokens_left;
    bool active, alone; /* alone: in frames of its own, after a frame with others failed */
    SamplerParams params;
    SamplerSeen *seen;
} Slot;

struct Coordinator {
    CoordinatorConfig config;
    uint32_t rows_max; /* of a frame; the chunk unless limited */
    Slot *slots;
    uint32_t turn; /* the slot that is looked at first, so that none waits for ever */
    CoordinatorFrame frame;
    uint32_t *ids;
    StationSequence *sequences;
    CoordinatorPick *picks;
    CoordinatorEvent *events;
};

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

static uint32_t seen_max(const CoordinatorConfig *c)
{
    return min_u32(c->context + 1, SAMPLER_REPEAT_WINDOW_MAX);
}

uint64_t coordinator_bytes(const CoordinatorConfig *c)
{
    uint64_t slot = sizeof(Slot) + arena_bytes((c->context + 1) * sizeof(uint32_t)) +
                    arena_bytes(seen_max(c) * sizeof(SamplerSeen)) + sizeof(StationSequence) +
                    sizeof(CoordinatorPick) + sizeof(CoordinatorEvent);
    return arena_bytes(sizeof(Coordinator)) + c->slots * slot +
           arena_bytes(c->chunk * sizeof(uint32_t)) + 6 * ARENA_ALIGN;
}

Error coordinator_build(const CoordinatorConfig *config, Arena *arena, Coordinator **out, Why *why)
{
    Coordinator *c = ARENA_NEW(arena, Coordinator, 1);
    if (!c) return error_why(why, ERR_MEMORY, "no memory for a coordinator");
    c->config = *config;
    c->rows_max = config->chunk;
    c->slots = ARENA_NEW(arena, Slot, config->slots);
    c->ids = ARENA_NEW(arena, uint32_t, config->chunk);
    c->sequences = ARENA_NEW(arena, StationSequence, config->slots);
    c->picks = ARENA_NEW(arena, CoordinatorPick, config->slots);
    c->events = ARENA_NEW(arena, CoordinatorEvent, config->slots);
    if (!c->slots || !c->ids || !c->sequences || !c->picks || !c->events)
        return error_why(why, ERR_MEMORY, "no memory for a coordinator");
    for (uint32_t i = 0; i < config->slots; i++) {
        c->slots[i].tokens = ARENA_NEW(arena, uint32_t, config->context + 1);
        c->slots[i].seen = ARENA_NEW(arena, SamplerSeen, seen_max(config));
        if (!c->slots[i].tokens || !c->slots[i].seen)
            return error_why(why, ERR_MEMORY, "no memory for %u slots", config->slots);
    }
    *out = c;
    return OK;
}

/* --- Starting and ending --- */

static Error check_start(const Coordinator *c, uint32_t slot, const uint32_t *ids, uint32_t count,
                         Why *why)
{
    if (slot >= c->config.slots)
        return error_why(why, ERR_RANGE, "slot %u of %u", slot, c->config.slots);
    const Slot *s = &c->slots[slot];
    if (s->active) return error_why(why, ERR_USAGE, "slot %u is answering", slot);
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] >= c->config.vocabulary)
            return error_why(why, ERR_RANGE, "token %u at index %u; ids are 0 to %u", ids[i], i,
                             c->config.vocabulary - 1);
    if (count > c->config.context || s->count > c->config.context - count)
        return error_why(why, ERR_CAPACITY,
                         "%u tokens, and %u said before, exceed the context of %u", count, s->count,
                         c->config.context);
    return s->count + count ? OK : error_why(why, ERR_USAGE, "an empty prompt");
}

Error coordinator_start(Coordinator *c, uint32_t slot, const uint32_t *ids, uint32_t count,
                        uint32_t tokens_max, const SamplerParams *params, Why *why)
{
    TRY(sampler_check(params, c->config.vocabulary, why));
    TRY(check_start(c, slot, ids, count, why));
    Slot *s = &c->slots[slot];
    if (count) memcpy(s->tokens + s->count, ids, count * sizeof *ids);
    s->count += count;
    if (s->fed == s->count) s->fed--; /* the last row's logits are needed again */
    s->params = *params;
    s->tokens_left = tokens_max;
    s->active = true;
    s->alone = false;
    return OK;
}

void coordinator_stop(Coordinator *c, uint32_t slot)
{
    if (slot < c->config.slots) c->slots[slot].active = false;
}

bool coordinator_is_active(const Coordinator *c, uint32_t slot)
{
    return slot < c->config.slots && c->slots[slot].active;
}

const uint32_t *coordinator_tokens(const Coordinator *c, uint32_t slot, uint32_t *count)
{
    *count = c->slots[slot].count;
    return c->slots[slot].tokens;
}

uint32_t coordinator_fed(const Coordinator *c, uint32_t slot) { return c->slots[slot].fed; }

void coordinator_truncate(Coordinator *c, uint32_t slot, uint32_t count)
{
    Slot *s = &c->slots[slot];
    s->count = min_u32(s->count, count);
    s->fed = min_u32(s->fed, s->count);
    s->active = false;
}

/* --- Frames --- */

static void add_pick(Coordinator *c, uint32_t slot)
{
    Slot *s = &c->slots[slot];
    CoordinatorPick *p = &c->picks[c->frame.pick_count++];
    *p = (CoordinatorPick){
        .slot = slot,
        .row = c->frame.rows - 1,
        .params = &s->params,
        .seen = s->seen,
        .seen_count = sampler_count(&s->params, s->tokens, s->count, s->seen, seen_max(&c->config)),
        .k = sampler_first_k(&s->params, c->config.vocabulary),
        .wants_sum = sampler_needs_sum(&s->params),
        .sum_scale = sampler_scale(&s->params),
    };
}

/* Up to `room` rows of one slot; the row that ends its tokens only when there is room for its pick. */
static void add_rows(Coordinator *c, uint32_t slot, uint32_t room)
{
    Slot *s = &c->slots[slot];
    uint32_t rows = min_u32(s->count - s->fed, room);
    bool ends = rows == s->count - s->fed, wants_pick = ends && s->tokens_left;
    if (wants_pick && c->frame.pick_count == c->config.logit_rows) rows--;
    if (!rows) return;
    memcpy(c->ids + c->frame.rows, s->tokens + s->fed, rows * sizeof *c->ids);
    c->sequences[c->frame.sequence_count++] = (StationSequence){slot, s->fed, rows};
    c->frame.rows += rows;
    if (wants_pick && s->fed + rows == s->count) add_pick(c, slot);
}

static bool add_alone(Coordinator *c)
{
    for (uint32_t i = 0; i < c->config.slots; i++)
        if (c->slots[i].active && c->slots[i].alone) {
            add_rows(c, i, c->rows_max);
            return true;
        }
    return false;
}

/* Answers in progress, or prompts. */
static void add_slots(Coordinator *c, bool decode, uint32_t rows_max)
{
    for (uint32_t n = 0; n < c->config.slots; n++) {
        uint32_t i = (c->turn + n) % c->config.slots;
        const Slot *s = &c->slots[i];
        if (s->active && (s->count - s->fed == 1) == decode && c->frame.rows < rows_max)
            add_rows(c, i, rows_max - c->frame.rows);
    }
}

uint32_t coordinator_rows(const Coordinator *c) { return c->frame.rows; }

void coordinator_limit_rows(Coordinator *c, uint32_t rows)
{
    c->rows_max = min_u32(rows ? rows : 1, c->config.chunk);
}

bool coordinator_frame(Coordinator *c, CoordinatorFrame *frame)
{
    c->frame = (CoordinatorFrame){.ids = c->ids, .sequences = c->sequences, .picks = c->picks};
    if (!add_alone(c)) {
        add_slots(c, true, c->rows_max);
        uint32_t rows = c->frame.rows;
        add_slots(c, false,
                  rows ? min_u32(c->rows_max, rows + PREFILL_ROWS_BESIDE_DECODE)
                       : c->rows_max);
    }
    c->turn = (c->turn + 1) % c->config.slots;
    *frame = c->frame;
    return frame->rows > 0;
}

Error coordinator_give_top(Coordinator *c, CoordinatorPick *pick,
                           const SamplerCandidate *candidates, uint32_t count, bool complete,
                           const LogSum *sum, Why *why)
{
    SamplerResult result;
    TRY(sampler_pick(pick->params, candidates, count, complete, sum, c->slots[pick->slot].count,
                     &result, why));
    pick->picked = result.verdict == SAMPLER_TOKEN;
    if (pick->picked) pick->token = result.id;
    else pick->k = result.wants_k;
    return OK;
}

static const CoordinatorPick *pick_of(const Coordinator *c, uint32_t slot)
{
    for (uint32_t i = 0; i < c->frame.pick_count; i++)
        if (c->picks[i].slot == slot) return &c->picks[i];
    return NULL;
}

/* Moves one slot past its rows of the frame. Result  whether that is an event. */
static bool end_rows(Coordinator *c, const StationSequence *q, CoordinatorEvent *event)
{
    Slot *s = &c->slots[q->session];
    const CoordinatorPick *pick = pick_of(c, q->session);
    *event = (CoordinatorEvent){.slot = q->session};
    s->fed = q->position + q->rows;
    s->alone = false;
    if (pick && s->active) {
        ASSERT(pick->picked);
        s->tokens[s->count++] = event->token = pick->token;
        s->tokens_left--;
        event->has_token = true;
    }
    event->ended = s->active && (s->count > c->config.context ||
                                 (s->tokens_left == 0 && (pick || s->fed == s->count)));
    if (event->ended) s->active = false;
    return event->has_token || event->ended;
}

const CoordinatorEvent *coordinator_end_frame(Coordinator *c, uint32_t *count)
{
    *count = 0;
    for (uint32_t i = 0; i < c->frame.sequence_count; i++)
        *count += end_rows(c, &c->sequences[i], &c->events[*count]);
    return c->events;
}

const CoordinatorEvent *coordinator_fail_frame(Coordinator *c, Error error, uint32_t *count)
{
    *count = 0;
    bool only = c->frame.sequence_count == 1;
    for (uint32_t i = 0; i < c->frame.sequence_count; i++) {
        Slot *s = &c->slots[c->sequences[i].session];
        s->alone = !only;
        s->fed = min_u32(s->fed, c->sequences[i].position);
        if (!only) continue;
        s->active = false;
        c->events[(*count)++] =
            (CoordinatorEvent){.slot = c->sequences[i].session, .ended = true, .error = error};
    }
    return c->events;
}
