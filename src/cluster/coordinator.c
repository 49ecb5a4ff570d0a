/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/coordinator.h"

#include <string.h>

#include "base/min.h"

/* Rows of prompts beside answers in progress: enough to share the pass over the weights, few
 * enough to keep those fast. And rows that are worth a pass of their own when a prompt is cut up. */
enum { PREFILL_ROWS_BESIDE_DECODE = 64, CUT_ROWS_MIN = 32 };

typedef struct Slot {
    uint32_t *tokens; /* [context + 1]: the last one emitted needs no position */
    uint32_t count, fed, sent;
    uint32_t frames; /* under way with rows of it */
    uint32_t tokens_left, starts;
    uint32_t cut;       /* rows of one chunk of its prompt */
    bool active, alone; /* alone: in frames of its own, after a frame with others failed */
    bool degraded;
    SamplerParams params;
    SamplerBias *bias; /* [SAMPLER_BIAS_MAX] of params */
    SamplerSeen *seen; /* of its pick: one at most is under way */
    GrammarMask *mask; /* what its answer must follow, NULL: nothing */
    uint32_t *
        bits; /* [mask_words] of its pick: frames under way have them longer than there is a mask */
} Slot;

typedef struct Frame {
    CoordinatorFrame public;
    bool alone;
    uint32_t *ids;              /* [chunk] */
    StationSequence *sequences; /* [slots] */
    CoordinatorPick *picks;     /* [slots] */
} Frame;

struct Coordinator {
    CoordinatorConfig config;
    uint32_t rows_max; /* of a frame; the chunk unless limited */
    Slot *slots;
    uint32_t turn; /* the slot that is looked at first, so that none waits for ever */
    Frame *frames; /* a ring: under_way of them from `oldest` on */
    uint32_t oldest, under_way;
    CoordinatorEvent *events;
};

static uint32_t seen_max(const CoordinatorConfig *c)
{
    return min_u32(c->context + 1, SAMPLER_REPEAT_WINDOW_MAX);
}

static size_t mask_words(const CoordinatorConfig *c) { return ((size_t)c->vocabulary + 31) / 32; }

static uint32_t frames_max(const CoordinatorConfig *c) { return c->frames ? c->frames : 1; }

static uint64_t frame_bytes(const CoordinatorConfig *c)
{
    return sizeof(Frame) + arena_bytes((size_t)c->chunk * sizeof(uint32_t)) +
           arena_bytes(c->slots * sizeof(StationSequence)) +
           arena_bytes(c->slots * sizeof(CoordinatorPick));
}

uint64_t coordinator_bytes(const CoordinatorConfig *c)
{
    uint64_t slot = sizeof(Slot) + arena_bytes(((size_t)c->context + 1) * sizeof(uint32_t)) +
                    arena_bytes(seen_max(c) * sizeof(SamplerSeen)) +
                    arena_bytes(mask_words(c) * sizeof(uint32_t)) +
                    arena_bytes(SAMPLER_BIAS_MAX * sizeof(SamplerBias)) + sizeof(CoordinatorEvent);
    return arena_bytes(sizeof(Coordinator)) + c->slots * slot + frames_max(c) * frame_bytes(c) +
           6 * ARENA_ALIGN;
}

static Error build_frames(Coordinator *c, Arena *arena, Why *why)
{
    const CoordinatorConfig *config = &c->config;
    for (uint32_t i = 0; i < config->frames; i++) {
        Frame *f = &c->frames[i];
        f->ids = ARENA_NEW(arena, uint32_t, config->chunk);
        f->sequences = ARENA_NEW(arena, StationSequence, config->slots);
        f->picks = ARENA_NEW(arena, CoordinatorPick, config->slots);
        if (!f->ids || !f->sequences || !f->picks)
            return error_why(why, ERR_MEMORY, "no memory for %u frames", config->frames);
    }
    return OK;
}

static Error build_slots(Coordinator *c, Arena *arena, Why *why)
{
    const CoordinatorConfig *config = &c->config;
    for (uint32_t i = 0; i < config->slots; i++) {
        c->slots[i].tokens = ARENA_NEW(arena, uint32_t, (size_t)config->context + 1);
        c->slots[i].seen = ARENA_NEW(arena, SamplerSeen, seen_max(config));
        c->slots[i].bias = arena_take_raw(arena, SAMPLER_BIAS_MAX * sizeof(SamplerBias));
        c->slots[i].bits = arena_take_raw(arena, mask_words(config) * sizeof(uint32_t));
        if (!c->slots[i].tokens || !c->slots[i].seen || !c->slots[i].bias || !c->slots[i].bits)
            return error_why(why, ERR_MEMORY, "no memory for %u slots", config->slots);
    }
    return OK;
}

Error coordinator_build(const CoordinatorConfig *config, Arena *arena, Coordinator **out, Why *why)
{
    if (config->frames > COORDINATOR_FRAMES_MAX)
        return error_why(why, ERR_RANGE, "%u frames under way, at most %u are possible",
                         config->frames, (unsigned)COORDINATOR_FRAMES_MAX);
    Coordinator *c = ARENA_NEW(arena, Coordinator, 1);
    if (!c) return error_why(why, ERR_MEMORY, "no memory for a coordinator");
    c->config = *config;
    c->config.frames = frames_max(config);
    if (!config->spread) c->config.spread = c->config.frames;
    c->rows_max = config->chunk;
    c->slots = ARENA_NEW(arena, Slot, config->slots);
    c->frames = ARENA_NEW(arena, Frame, c->config.frames);
    c->events = ARENA_NEW(arena, CoordinatorEvent, config->slots);
    if (!c->slots || !c->frames || !c->events)
        return error_why(why, ERR_MEMORY, "no memory for a coordinator");
    TRY(build_frames(c, arena, why));
    TRY(build_slots(c, arena, why));
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
    if (s->frames) return error_why(why, ERR_USAGE, "slot %u is still under way", slot);
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

/* What frames under way have of it counts no longer; `fed` positions stay. */
static void rewind_slot(const Coordinator *c, Slot *s, uint32_t fed)
{
    s->fed = s->sent = fed;
    uint32_t left = s->count - fed, spread = c->config.spread;
    s->cut = left / spread + (left % spread != 0);
    if (s->cut < CUT_ROWS_MIN) s->cut = CUT_ROWS_MIN;
}

static void forget_degraded(Slot *s)
{
    if (s->degraded) s->fed = 0;
    s->degraded = false;
}

Error coordinator_start(Coordinator *c, uint32_t slot, const uint32_t *ids, uint32_t count,
                        uint32_t tokens_max, const SamplerParams *params, Why *why)
{
    TRY(sampler_check(params, c->config.vocabulary, why));
    TRY(check_start(c, slot, ids, count, why));
    Slot *s = &c->slots[slot];
    if (count) forget_degraded(s);
    if (count) memcpy(s->tokens + s->count, ids, count * sizeof *ids);
    s->count += count;
    if (s->fed == s->count) s->fed--; /* the last row's logits are needed again */
    rewind_slot(c, s, s->fed);
    s->params = *params;
    s->params.bias = s->bias;
    if (params->bias_count) memcpy(s->bias, params->bias, params->bias_count * sizeof *s->bias);
    s->mask = NULL;
    s->tokens_left = tokens_max;
    s->active = true;
    s->alone = false;
    s->starts++;
    return OK;
}

Error coordinator_constrain(Coordinator *c, uint32_t slot, GrammarMask *mask, Why *why)
{
    if (slot >= c->config.slots || !c->slots[slot].active || c->slots[slot].frames)
        return error_why(why, ERR_USAGE, "slot %u has not just been started", slot);
    if (grammar_mask_ids(mask) != c->config.vocabulary)
        return error_why(why, ERR_RANGE, "a mask of %u ids for a vocabulary of %u",
                         grammar_mask_ids(mask), c->config.vocabulary);
    c->slots[slot].mask = mask;
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

uint32_t coordinator_starts(const Coordinator *c, uint32_t slot) { return c->slots[slot].starts; }

bool coordinator_is_under_way(const Coordinator *c, uint32_t slot)
{
    return slot < c->config.slots && c->slots[slot].frames > 0;
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
    ASSERT(s->frames == 0);
    forget_degraded(s);
    s->count = min_u32(s->count, count);
    rewind_slot(c, s, min_u32(s->fed, s->count));
    s->active = false;
    s->mask = NULL;
}

void coordinator_forget_sessions(Coordinator *c)
{
    ASSERT(c->under_way == 0);
    for (uint32_t i = 0; i < c->config.slots; i++) rewind_slot(c, &c->slots[i], 0);
}

void coordinator_mark_degraded(Coordinator *c, uint32_t slot) { c->slots[slot].degraded = true; }

bool coordinator_is_degraded(const Coordinator *c, uint32_t slot)
{
    return slot < c->config.slots && c->slots[slot].degraded;
}

/* --- Making frames --- */

static Frame *frame_at(const Coordinator *c, uint32_t index)
{
    return &c->frames[(c->oldest + index) % c->config.frames];
}

static void add_pick(const Coordinator *c, CoordinatorFrame *frame, uint32_t slot)
{
    Slot *s = &c->slots[slot];
    CoordinatorPick *p = &frame->picks[frame->pick_count++];
    if (s->mask)
        memcpy(s->bits, grammar_mask_now(s->mask), mask_words(&c->config) * sizeof *s->bits);
    *p = (CoordinatorPick){
        .slot = slot,
        .row = frame->rows - 1,
        .params = &s->params,
        .seen = s->seen,
        .seen_count = sampler_count(&s->params, s->tokens, s->count, s->seen, seen_max(&c->config)),
        .mask = s->mask ? s->bits : NULL,
        .k = sampler_first_k(&s->params, c->config.vocabulary),
        .wants_sum = sampler_needs_sum(&s->params),
        .sum_scale = sampler_scale(&s->params),
    };
}

/* Up to `room` rows of one slot; the row that ends its tokens only when there is room for its pick. */
static void add_rows(const Coordinator *c, Frame *to, uint32_t slot, uint32_t room)
{
    Slot *s = &c->slots[slot];
    CoordinatorFrame *f = &to->public;
    uint32_t left = s->count - s->sent, rows = min_u32(min_u32(left, s->cut), room);
    bool wants_pick = rows == left && s->tokens_left;
    if (wants_pick && f->pick_count == c->config.logit_rows) rows--, wants_pick = false;
    if (!rows) return;
    memcpy(to->ids + f->rows, s->tokens + s->sent, rows * sizeof *to->ids);
    to->sequences[f->sequence_count++] =
        (StationSequence){.session = slot, .position = s->sent, .rows = rows};
    f->rows += rows;
    s->sent += rows;
    s->frames++;
    if (wants_pick) add_pick(c, f, slot);
}

static bool is_ready(const Slot *s) { return s->active && s->sent < s->count; }

static void add_alone(const Coordinator *c, Frame *to)
{
    for (uint32_t i = 0; i < c->config.slots && !to->public.rows; i++)
        if (c->slots[i].alone && is_ready(&c->slots[i])) add_rows(c, to, i, c->rows_max);
    to->alone = to->public.rows > 0;
}

/* An answer in progress, its next row waiting or under way; else a prompt. */
static bool is_decode(const Slot *s) { return s->tokens_left && s->count - s->sent <= 1; }

/* Answers in progress, or prompts. */
static void add_slots(const Coordinator *c, Frame *to, bool decode, uint32_t slots_most,
                      uint32_t rows_max)
{
    for (uint32_t n = 0; n < c->config.slots; n++) {
        uint32_t i = (c->turn + n) % c->config.slots, rows = to->public.rows;
        const Slot *s = &c->slots[i];
        if (is_ready(s) && !s->alone && is_decode(s) == decode && rows < rows_max &&
            to->public.sequence_count < slots_most)
            add_rows(c, to, i, rows_max - rows);
    }
}

static uint32_t count_decode(const Coordinator *c)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->config.slots; i++)
        count += c->slots[i].active && is_decode(&c->slots[i]);
    return count;
}

/* The answers in progress are spread over the frames; no frame makes those wait for a long prompt. */
static void add_together(const Coordinator *c, Frame *to)
{
    uint32_t decode = count_decode(c), spread = c->config.spread, most = c->rows_max;
    add_slots(c, to, true, decode / spread + (decode % spread != 0), most);
    if (decode) most = min_u32(most, to->public.rows + PREFILL_ROWS_BESIDE_DECODE);
    add_slots(c, to, false, c->config.slots, most);
}

void coordinator_limit_rows(Coordinator *c, uint32_t rows)
{
    c->rows_max = min_u32(rows ? rows : 1, c->config.chunk);
}

bool coordinator_frame(Coordinator *c, CoordinatorFrame **frame)
{
    if (c->under_way == c->config.frames) return false;
    Frame *f = frame_at(c, c->under_way);
    f->public = (CoordinatorFrame){.number = (uint32_t)(f - c->frames),
                                   .ids = f->ids,
                                   .sequences = f->sequences,
                                   .picks = f->picks};
    add_alone(c, f);
    if (!f->alone) add_together(c, f);
    c->turn = (c->turn + 1) % c->config.slots;
    if (!f->public.rows) return false;
    c->under_way++;
    *frame = &f->public;
    return true;
}

Error coordinator_give_top(Coordinator *c, CoordinatorPick *pick,
                           const SamplerCandidate *candidates, uint32_t count, bool complete,
                           const LogSum *sum, Why *why)
{
    SamplerResult result;
    TRY(sampler_pick(pick->params, candidates, count, complete, sum, c->slots[pick->slot].count,
                     &result, why));
    if (result.verdict == SAMPLER_TOKEN && pick->mask && !grammar_mask_has(pick->mask, result.id))
        return error_why(why, ERR_RANGE, "token %u came although the grammar forbids it",
                         result.id);
    pick->picked = result.verdict == SAMPLER_TOKEN;
    if (pick->picked) pick->token = result.id;
    else pick->k = result.wants_k;
    return OK;
}

bool coordinator_frame_is_wanted(const Coordinator *c, const CoordinatorFrame *frame)
{
    for (uint32_t i = 0; i < frame->sequence_count; i++)
        if (c->slots[frame->sequences[i].session].active) return true;
    return false;
}

/* --- Ending frames --- */

static const CoordinatorPick *pick_of(const CoordinatorFrame *frame, uint32_t slot)
{
    for (uint32_t i = 0; i < frame->pick_count; i++)
        if (frame->picks[i].slot == slot) return &frame->picks[i];
    return NULL;
}

/* Moves one slot past its rows of the frame. Result  whether that is an event. */
static bool end_rows(Coordinator *c, const Frame *f, const StationSequence *q,
                     CoordinatorEvent *event)
{
    Slot *s = &c->slots[q->session];
    const CoordinatorPick *pick = pick_of(&f->public, q->session);
    *event = (CoordinatorEvent){.slot = q->session};
    s->frames--;
    s->fed = q->position + q->rows;
    if (f->alone) s->alone = false;
    if (pick && s->active) {
        ASSERT(pick->picked);
        s->tokens[s->count++] = event->token = pick->token;
        s->tokens_left--;
        event->has_token = true;
        if (s->mask) event->error = grammar_mask_take(s->mask, pick->token, NULL);
    }
    event->ended = s->active && (event->error != OK || s->count > c->config.context ||
                                 (s->tokens_left == 0 && (pick || s->fed == s->count)));
    if (event->ended) s->active = false;
    return event->has_token || event->ended;
}

const CoordinatorEvent *coordinator_end_frame(Coordinator *c, CoordinatorFrame *frame,
                                              uint32_t *count)
{
    ASSERT(c->under_way && frame == &frame_at(c, 0)->public);
    const Frame *f = frame_at(c, 0);
    *count = 0;
    for (uint32_t i = 0; i < frame->sequence_count; i++)
        *count += end_rows(c, f, &frame->sequences[i], &c->events[*count]);
    c->oldest = (c->oldest + 1) % c->config.frames;
    c->under_way--;
    return c->events;
}

/* The newest frame, as if it had never been made. */
static void give_up_newest(Coordinator *c)
{
    const CoordinatorFrame *f = &frame_at(c, --c->under_way)->public;
    for (uint32_t i = 0; i < f->sequence_count; i++) {
        Slot *s = &c->slots[f->sequences[i].session];
        s->frames--;
        s->sent = f->sequences[i].position;
    }
}

void coordinator_give_up_from(Coordinator *c, const CoordinatorFrame *frame)
{
    const CoordinatorFrame *newest;
    do {
        ASSERT(c->under_way);
        newest = &frame_at(c, c->under_way - 1)->public;
        give_up_newest(c);
    } while (newest != frame);
}

static CoordinatorEvent *end_slots(Coordinator *c, const CoordinatorFrame *frame, Error error,
                                   uint32_t *count)
{
    for (uint32_t i = 0; i < frame->sequence_count; i++) {
        Slot *s = &c->slots[frame->sequences[i].session];
        if (s->active)
            c->events[(*count)++] = (CoordinatorEvent){
                .slot = frame->sequences[i].session, .ended = true, .error = error};
        s->active = false;
    }
    return c->events;
}

const CoordinatorEvent *coordinator_fail_frame(Coordinator *c, CoordinatorFrame *frame, Error error,
                                               uint32_t *count)
{
    *count = 0;
    coordinator_give_up_from(c, frame);
    if (frame->sequence_count == 1) return end_slots(c, frame, error, count);
    for (uint32_t i = 0; i < frame->sequence_count; i++)
        c->slots[frame->sequences[i].session].alone = true;
    return c->events;
}

const CoordinatorEvent *coordinator_refuse_frame(Coordinator *c, CoordinatorFrame *frame,
                                                 Error error, uint32_t *count)
{
    *count = 0;
    coordinator_give_up_from(c, frame);
    return end_slots(c, frame, error, count);
}

void coordinator_give_up_frames(Coordinator *c, const CoordinatorFrame *lost)
{
    while (c->under_way) give_up_newest(c);
    for (uint32_t i = 0; lost && i < lost->sequence_count; i++)
        rewind_slot(c, &c->slots[lost->sequences[i].session], 0);
}
