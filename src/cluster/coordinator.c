/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/coordinator_state.h"

#include <string.h>

#include "base/max.h"
#include "base/min.h"

/* Rows that are worth a pass of their own when a prompt is cut up. */
enum { CUT_ROWS_MIN = 32 };

static uint32_t frames_max(const CoordinatorConfig *c) { return c->frames ? c->frames : 1; }

static uint32_t picks_max(const CoordinatorConfig *c)
{
    uint64_t drafting = (uint64_t)c->slots * (1 + (uint64_t)c->drafts),
             most = drafting > SCORED_ROWS_MAX ? drafting : SCORED_ROWS_MAX;
    return (uint32_t)(most < c->logit_rows ? most : c->logit_rows);
}

static uint64_t frame_bytes(const CoordinatorConfig *c)
{
    return sizeof(Frame) + 2 * arena_bytes((size_t)c->chunk * sizeof(uint32_t)) +
           arena_bytes(c->slots * sizeof(StationSequence)) +
           arena_bytes(c->slots * sizeof(CoordinatorPool)) +
           arena_bytes(picks_max(c) * sizeof(Choice)) + picks_max(c) * sizeof(CoordinatorPick);
}

static uint64_t slot_bytes(const CoordinatorConfig *c)
{
    return sizeof(Slot) + arena_bytes(((size_t)c->context + 1) * sizeof(uint32_t)) +
           arena_bytes(coordinator_seen_max(c) * sizeof(SamplerSeen)) +
           arena_bytes(coordinator_mask_words(c) * sizeof(uint32_t)) +
           arena_bytes(coordinator_scored_rows(c) * sizeof(CoordinatorScore)) +
           arena_bytes((size_t)c->hidden * sizeof(double)) +
           (c->drafts ? draft_bytes(c->context + 1) : 0) +
           arena_bytes(SAMPLER_BIAS_MAX * sizeof(SamplerBias)) + sizeof(CoordinatorEvent);
}

uint64_t coordinator_bytes(const CoordinatorConfig *c)
{
    return arena_bytes(sizeof(Coordinator)) + c->slots * slot_bytes(c) +
           frames_max(c) * frame_bytes(c) + 8 * ARENA_ALIGN;
}

static Error build_frames(Coordinator *c, Arena *arena, Why *why)
{
    const CoordinatorConfig *config = &c->config;
    for (uint32_t i = 0; i < config->frames; i++) {
        Frame *f = &c->frames[i];
        f->ids = ARENA_NEW(arena, uint32_t, config->chunk);
        f->wanted = ARENA_NEW(arena, uint32_t, config->chunk);
        f->sequences = ARENA_NEW(arena, StationSequence, config->slots);
        f->pools = ARENA_NEW(arena, CoordinatorPool, config->slots);
        f->choices = ARENA_NEW(arena, Choice, c->picks_max);
        f->picks = c->picks + (size_t)i * c->picks_max;
        if (!f->ids || !f->wanted || !f->sequences || !f->pools || !f->choices)
            return error_why(why, ERR_MEMORY, "no memory for %u frames", config->frames);
    }
    return OK;
}

static bool build_slot(const CoordinatorConfig *config, Slot *s, Arena *arena)
{
    s->tokens = ARENA_NEW(arena, uint32_t, (size_t)config->context + 1);
    s->seen = ARENA_NEW(arena, SamplerSeen, coordinator_seen_max(config));
    s->bias = arena_take_raw(arena, SAMPLER_BIAS_MAX * sizeof(SamplerBias));
    s->bits = arena_take_raw(arena, coordinator_mask_words(config) * sizeof(uint32_t));
    s->score = arena_take_raw(arena, coordinator_scored_rows(config) * sizeof(CoordinatorScore));
    if (config->drafts && !draft_build(&s->draft, config->context + 1, arena)) return false;
    if (config->hidden) s->sum = ARENA_NEW(arena, double, config->hidden);
    return s->tokens && s->seen && s->bias && s->bits && s->score && (s->sum || !config->hidden);
}

static Error check_config(const CoordinatorConfig *config, Why *why)
{
    if (config->frames > COORDINATOR_FRAMES_MAX)
        return error_why(why, ERR_RANGE, "%u frames under way, at most %u are possible",
                         config->frames, (unsigned)COORDINATOR_FRAMES_MAX);
    if (config->drafts > COORDINATOR_DRAFTS_MAX)
        return error_why(why, ERR_RANGE, "%u drafts, at most %u are possible", config->drafts,
                         (unsigned)COORDINATOR_DRAFTS_MAX);
    return OK;
}

Error coordinator_build(const CoordinatorConfig *config, Arena *arena, Coordinator **out, Why *why)
{
    TRY(check_config(config, why));
    Coordinator *c = ARENA_NEW(arena, Coordinator, 1);
    if (!c) return error_why(why, ERR_MEMORY, "no memory for a coordinator");
    c->config = *config;
    c->config.frames = frames_max(config);
    if (!config->spread) c->config.spread = c->config.frames;
    c->rows_max = config->chunk;
    c->picks_max = picks_max(config);
    c->plain = sampler_defaults();
    c->slots = ARENA_NEW(arena, Slot, config->slots);
    c->frames = ARENA_NEW(arena, Frame, c->config.frames);
    c->picks = ARENA_NEW(arena, CoordinatorPick, (size_t)c->config.frames * c->picks_max);
    c->events = ARENA_NEW(arena, CoordinatorEvent, config->slots);
    if (!c->slots || !c->frames || !c->picks || !c->events)
        return error_why(why, ERR_MEMORY, "no memory for a coordinator");
    TRY(build_frames(c, arena, why));
    for (uint32_t i = 0; i < config->slots; i++)
        if (!build_slot(config, &c->slots[i], arena))
            return error_why(why, ERR_MEMORY, "no memory for %u slots", config->slots);
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

void coordinator_rewind(Coordinator *c, Slot *s, uint32_t fed)
{
    uint32_t slot = (uint32_t)(s - c->slots);
    s->fed = s->sent = fed;
    s->forks = s->forks && fed;
    if (!fed && s->pools) {
        memset(s->sum, 0, c->config.hidden * sizeof *s->sum);
        s->pooled = 0;
    }
    uint32_t left = s->count - fed, spread = c->config.spread;
    s->cut = max_u32(left / spread + (left % spread != 0), CUT_ROWS_MIN);
    for (uint32_t i = 0; i < c->config.slots; i++) {
        Slot *copy = &c->slots[i];
        if (copy->forks && copy->parent == slot && copy->fed > fed)
            coordinator_rewind(c, copy, fed);
    }
}

/* What belongs to one answer only. */
static void end_answer(Slot *s)
{
    s->active = s->alone = s->scores = s->pools = false;
    s->mask = NULL;
    s->scored = 0;
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
    end_answer(s);
    coordinator_rewind(c, s, s->fed);
    s->params = *params;
    s->params.bias = s->bias;
    if (params->bias_count) memcpy(s->bias, params->bias, params->bias_count * sizeof *s->bias);
    if (c->config.drafts) draft_restart(&s->draft);
    s->tokens_left = tokens_max;
    s->active = true;
    s->starts++;
    return OK;
}

Error coordinator_check_started(const Coordinator *c, uint32_t slot, Why *why)
{
    if (slot >= c->config.slots || !c->slots[slot].active || c->slots[slot].frames)
        return error_why(why, ERR_USAGE, "slot %u has not just been started", slot);
    return OK;
}

Error coordinator_constrain(Coordinator *c, uint32_t slot, GrammarMask *mask, Why *why)
{
    TRY(coordinator_check_started(c, slot, why));
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
    if (c->config.drafts) draft_cut(&s->draft, s->count);
    end_answer(s);
    coordinator_rewind(c, s, min_u32(s->fed, s->count));
}

void coordinator_forget_sessions(Coordinator *c)
{
    ASSERT(c->under_way == 0);
    for (uint32_t i = 0; i < c->config.slots; i++) coordinator_rewind(c, &c->slots[i], 0);
}

void coordinator_mark_degraded(Coordinator *c, uint32_t slot) { c->slots[slot].degraded = true; }

bool coordinator_is_degraded(const Coordinator *c, uint32_t slot)
{
    return slot < c->config.slots && c->slots[slot].degraded;
}

void coordinator_set_drafter(Coordinator *c, const CoordinatorDrafter *drafter)
{
    c->drafter = *drafter;
}

void coordinator_count_drafts(const Coordinator *c, uint64_t *guessed, uint64_t *right)
{
    *guessed = c->guessed;
    *right = c->right;
}
