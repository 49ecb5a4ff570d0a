/* SPDX-License-Identifier: Apache-2.0 */
/* Stations, shards and a model made of hashes around a coordinator: many slots with answers,
 * scores, pools, forks and guesses, in any order of frames, failures and stops. What each slot must
 * say is computed beside it, alone. */
#ifndef COBORD_TEST_COORDINATOR_WORLD_H
#define COBORD_TEST_COORDINATOR_WORLD_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/coordinator.h"

enum { WORLD_IDS = 40, WORLD_SLOTS = 5, WORLD_CONTEXT = 90, WORLD_HIDDEN = 3, WORLD_RING = 8 };

typedef struct WorldSlot {
    bool started, ended, scored, pooled;
    uint32_t prompt, count; /* tokens that it begins with; that it must have in the end */
    uint32_t want[WORLD_CONTEXT + 1];
    uint32_t said; /* through events */
    uint32_t tops, score_first, scores;
    SamplerParams params;
    uint32_t held[WORLD_CONTEXT], length; /* the stations' session */
} WorldSlot;

typedef struct World {
    Coordinator *c;
    void *memory;
    uint64_t random;
    WorldSlot slot[WORLD_SLOTS];
    CoordinatorFrame *frame[WORLD_RING];
    uint32_t oldest, frames, frames_max;
    uint64_t copies; /* that the stations made */
    bool forks, scores, failures;
} World;

static inline uint32_t world_random(World *w, uint32_t n)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w->random >> 33) % n;
}

static inline uint64_t world_hash(const uint32_t *tokens, uint32_t count, uint64_t salt)
{
    uint64_t h = 14695981039346656037u ^ salt;
    for (uint32_t i = 0; i < count; i++) h = (h ^ tokens[i]) * 1099511628211u;
    return (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
}

/* Mostly from the last token, so that text repeats itself; a little from all of them, so that
 * nothing may be lost. */
static inline void world_logits(const uint32_t *tokens, uint32_t count, float *logits)
{
    for (uint32_t i = 0; i < WORLD_IDS; i++) {
        uint64_t near = world_hash(tokens + count - 1, 1, i), all = world_hash(tokens, count, i);
        logits[i] = (float)(near >> 40) * 0x1p-18f + (float)(all >> 40) * 0x1p-24f;
    }
}

static inline void world_hidden(const uint32_t *tokens, uint32_t count, float *hidden)
{
    for (uint32_t i = 0; i < WORLD_HIDDEN; i++)
        hidden[i] = (float)(world_hash(tokens, count, 1000 + i) >> 40) * 0x1p-20f;
}

/* ---- What a slot must say ---- */

static inline void world_adjusted(const SamplerParams *p, const uint32_t *tokens, uint32_t count,
                                  float *logits)
{
    SamplerSeen seen[WORLD_CONTEXT + 1];
    uint32_t n = sampler_count(p, tokens, count, seen, WORLD_CONTEXT + 1);
    world_logits(tokens, count, logits);
    sampler_adjust(p, seen, n, 0, logits, WORLD_IDS);
}

static inline uint32_t world_next(const SamplerParams *p, const uint32_t *tokens, uint32_t count)
{
    float logits[WORLD_IDS];
    SamplerCandidate all[WORLD_IDS];
    SamplerResult result;
    LogSum sum;
    world_adjusted(p, tokens, count, logits);
    logsum_start(&sum);
    logsum_add(&sum, logits, WORLD_IDS, sampler_scale(p));
    sampler_top(logits, WORLD_IDS, 0, WORLD_IDS, all);
    assert_int_equal(sampler_pick(p, all, WORLD_IDS, true, &sum, count, &result, NULL), OK);
    assert_int_equal(result.verdict, SAMPLER_TOKEN);
    return result.id;
}

static inline void world_expect_score(const WorldSlot *s, uint32_t index,
                                      const CoordinatorScore *got)
{
    float logits[WORLD_IDS];
    SamplerCandidate all[WORLD_IDS];
    SamplerParams plain = sampler_defaults();
    LogSum sum;
    world_adjusted(index < s->prompt ? &plain : &s->params, s->want, index, logits);
    logsum_start(&sum);
    logsum_add(&sum, logits, WORLD_IDS, 1);
    double log_sum = logsum_log(&sum);
    sampler_top(logits, WORLD_IDS, 0, WORLD_IDS, all);
    assert_int_equal(got->token, s->want[index]);
    float logprob = (float)((double)logits[got->token] - log_sum);
    assert_memory_equal(&got->logprob, &logprob, sizeof logprob);
    assert_int_equal(got->top_count, s->tops);
    for (uint32_t i = 0; i < s->tops; i++) {
        logprob = (float)((double)all[i].logit - log_sum);
        assert_int_equal(got->top[i].id, all[i].id);
        assert_memory_equal(&got->top[i].logit, &logprob, sizeof logprob);
    }
}

/* ---- Starting ---- */

static inline SamplerParams world_params(World *w)
{
    SamplerParams p = sampler_defaults();
    if (world_random(w, 3)) p.temperature = 0.2f + 0.3f * (float)world_random(w, 4);
    if (world_random(w, 3) == 0) p.top_p = 0.9f;
    if (world_random(w, 3) == 0) p.top_k = 7;
    if (world_random(w, 6) == 0) p.repetition_penalty = 1.2f;
    p.seed = world_random(w, 1000);
    return p;
}

static inline void world_begin_scores(World *w, uint32_t slot, uint32_t kept)
{
    WorldSlot *s = &w->slot[slot];
    s->scored = true;
    s->tops = world_random(w, 4);
    uint32_t from = kept + 1 + world_random(w, s->prompt);
    if (world_random(w, 2)) from = UINT32_MAX;
    s->score_first = from < s->prompt ? from : s->prompt;
    assert_int_equal(coordinator_score(w->c, slot, s->tops, from, NULL), OK);
}

/* The first `kept` of s->want are said already. */
static inline void world_start(World *w, uint32_t slot, uint32_t kept)
{
    WorldSlot *s = &w->slot[slot];
    uint32_t most = world_random(w, 40);
    s->started = true;
    s->prompt = kept + 1 + world_random(w, 30);
    s->params = world_params(w);
    for (uint32_t i = kept; i < s->prompt; i++) s->want[i] = world_random(w, WORLD_IDS);
    s->pooled = w->scores && !kept && world_random(w, 5) == 0;
    if (s->pooled || s->prompt + most > WORLD_CONTEXT + 1) most = 0;
    s->count = s->prompt + most;
    for (uint32_t i = s->prompt; i < s->count; i++) s->want[i] = world_next(&s->params, s->want, i);
    assert_int_equal(
        coordinator_start(w->c, slot, s->want + kept, s->prompt - kept, most, &s->params, NULL),
        OK);
    if (s->pooled) assert_int_equal(coordinator_pool(w->c, slot, NULL), OK);
    else if (w->scores && world_random(w, 2)) world_begin_scores(w, slot, kept);
}

static inline void world_start_somehow(World *w, uint32_t slot)
{
    uint32_t from = world_random(w, WORLD_SLOTS), fed = coordinator_fed(w->c, from);
    WorldSlot *s = &w->slot[slot];
    if (!w->forks || from == slot || !fed) {
        world_start(w, slot, 0);
        return;
    }
    uint32_t kept = 1 + world_random(w, fed > 50 ? 50 : fed);
    memcpy(s->want, w->slot[from].want, kept * sizeof *s->want);
    assert_int_equal(coordinator_fork(w->c, from, slot, kept, NULL), OK);
    assert_int_equal(coordinator_fed(w->c, slot), kept);
    world_start(w, slot, kept);
}

/* ---- The cluster ---- */

static inline void world_give(World *w, CoordinatorPick *pick)
{
    const WorldSlot *s = &w->slot[pick->slot];
    float logits[WORLD_IDS];
    SamplerCandidate best[WORLD_IDS];
    if (pick->picked) return;
    world_logits(s->held, pick->position, logits);
    sampler_adjust(pick->params, pick->seen, pick->seen_count, 0, logits, WORLD_IDS);
    for (uint32_t rounds = 0; !pick->picked; rounds++) {
        LogSum sum;
        logsum_start(&sum);
        logsum_add(&sum, logits, WORLD_IDS, pick->sum_scale);
        uint32_t count = sampler_top(logits, WORLD_IDS, 0, pick->k, best);
        assert_true(rounds < 9);
        assert_int_equal(coordinator_give_top(w->c, pick, best, count, count == WORLD_IDS,
                                              pick->wants_sum ? &sum : NULL,
                                              pick->wants_id ? logits[pick->id] : 0, NULL),
                         OK);
    }
}

static inline void world_fork_sessions(World *w, const CoordinatorFrame *f)
{
    for (uint32_t i = 0; i < f->sequence_count; i++) {
        const StationSequence *q = &f->sequences[i];
        if (!q->forks) continue;
        const WorldSlot *parent = &w->slot[q->parent];
        assert_true(q->position <= parent->length && q->parent != q->session);
        for (uint32_t j = 0; j < f->sequence_count; j++)
            assert_true(f->sequences[j].session != q->parent || !f->sequences[j].forks);
        memcpy(w->slot[q->session].held, parent->held, q->position * sizeof *parent->held);
        w->slot[q->session].length = q->position;
        w->copies++;
    }
}

/* Result  false: the stations fail after they have cut their sessions. */
static inline bool world_forward(World *w, const CoordinatorFrame *f, bool fails)
{
    uint32_t row = 0;
    world_fork_sessions(w, f);
    for (uint32_t i = 0; i < f->sequence_count; i++) {
        const StationSequence *q = &f->sequences[i];
        WorldSlot *s = &w->slot[q->session];
        assert_true(q->position <= s->length);
        assert_true(q->position + q->rows <= WORLD_CONTEXT);
        s->length = q->position + (fails ? 0 : q->rows);
        for (uint32_t r = 0; r < q->rows; r++, row++)
            if (!fails) s->held[q->position + r] = f->ids[row];
    }
    assert_int_equal(row, f->rows);
    return !fails;
}

static inline void world_give_pools(World *w, const CoordinatorFrame *f)
{
    for (uint32_t i = 0; i < f->pool_count; i++) {
        const CoordinatorPool *p = &f->pools[i];
        const WorldSlot *s = &w->slot[p->slot];
        float hidden[WORLD_HIDDEN];
        for (uint32_t r = 0; r < p->count; r++) {
            world_hidden(s->held, s->length - p->count + r + 1, hidden);
            coordinator_give_hidden(w->c, p->slot, hidden);
        }
    }
}

static inline void world_check_wanted(const CoordinatorFrame *f)
{
    uint32_t of_pools = 0;
    for (uint32_t i = 1; i < f->wanted_count; i++) assert_true(f->wanted[i] > f->wanted[i - 1]);
    for (uint32_t i = 0; i < f->pick_count; i++)
        assert_int_equal(f->wanted[f->picks[i].wanted], f->picks[i].row);
    for (uint32_t i = 0; i < f->pool_count; i++) of_pools += f->pools[i].count;
    assert_int_equal(f->wanted_count, f->pick_count + of_pools);
}

/* ---- Events ---- */

static inline void world_take_scores(World *w, uint32_t slot)
{
    WorldSlot *s = &w->slot[slot];
    uint32_t count;
    const CoordinatorScore *score = coordinator_take_scores(w->c, slot, &count);
    for (uint32_t i = 0; i < count; i++, s->scores++)
        world_expect_score(s, s->score_first + s->scores, &score[i]);
}

static inline void world_take_events(World *w, const CoordinatorEvent *events, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const CoordinatorEvent *e = &events[i];
        WorldSlot *s = &w->slot[e->slot];
        assert_true(!s->ended && e->error == OK);
        assert_true(s->prompt + s->said + e->token_count <= s->count);
        assert_memory_equal(e->tokens, s->want + s->prompt + s->said,
                            e->token_count * sizeof *e->tokens);
        s->said += e->token_count;
        s->ended = e->ended;
    }
}

static inline void world_end_oldest(World *w)
{
    uint32_t count;
    CoordinatorFrame *f = w->frame[w->oldest];
    bool fails = w->failures && f->sequence_count > 1 && world_random(w, 12) == 0;
    world_check_wanted(f);
    if (!world_forward(w, f, fails)) {
        coordinator_fail_frame(w->c, f, ERR_NOT_FINITE, &count);
        assert_int_equal(count, 0);
        w->frames = 0;
        return;
    }
    for (uint32_t i = 0; i < f->pick_count; i++) {
        if (coordinator_is_active(w->c, f->picks[i].slot)) world_give(w, &f->picks[i]);
        if (w->failures && world_random(w, 200) == 0) {
            coordinator_give_up_frames(w->c, NULL);
            w->frames = 0;
            return;
        }
    }
    world_give_pools(w, f);
    const CoordinatorEvent *events = coordinator_end_frame(w->c, f, &count);
    w->oldest = (w->oldest + 1) % WORLD_RING;
    w->frames--;
    world_take_events(w, events, count);
}

/* A station lost the sessions of one frame, or only the frames got lost. */
static inline void world_lose(World *w)
{
    CoordinatorFrame *f = w->frame[(w->oldest + world_random(w, w->frames)) % WORLD_RING];
    bool sessions = world_random(w, 2);
    for (uint32_t i = 0; sessions && i < f->sequence_count; i++)
        w->slot[f->sequences[i].session].length = 0;
    coordinator_give_up_frames(w->c, sessions ? f : NULL);
    w->frames = 0;
}

/* Stops an answer, and asks for the rest of it when its frames have ended. */
static inline void world_stop_and_go_on(World *w)
{
    uint32_t slot = world_random(w, WORLD_SLOTS);
    WorldSlot *s = &w->slot[slot];
    if (s->ended || s->scored || s->pooled || !coordinator_is_active(w->c, slot)) return;
    coordinator_stop(w->c, slot);
    while (coordinator_is_under_way(w->c, slot)) world_end_oldest(w);
    assert_int_equal(
        coordinator_start(w->c, slot, NULL, 0, s->count - s->prompt - s->said, &s->params, NULL),
        OK);
}

/* A slot that has ended is given away, and perhaps what others were to copy from it. */
static inline void world_give_away(World *w)
{
    uint32_t slot = world_random(w, WORLD_SLOTS);
    if (!w->slot[slot].ended || coordinator_is_under_way(w->c, slot)) return;
    world_take_scores(w, slot);
    coordinator_truncate(w->c, slot, world_random(w, w->slot[slot].count));
}

static inline void world_act(World *w)
{
    uint32_t dice = world_random(w, 24), slot = world_random(w, WORLD_SLOTS);
    if (dice == 0 && w->frames && w->failures) world_lose(w);
    else if (dice == 1) world_stop_and_go_on(w);
    else if (dice == 2) coordinator_limit_rows(w->c, 1 + world_random(w, 40));
    else if (dice == 3 && w->forks) world_give_away(w);
    else if (dice < 8) world_take_scores(w, slot);
    else if (dice < 16 && w->frames < w->frames_max) {
        CoordinatorFrame *f;
        if (coordinator_frame(w->c, &f)) w->frame[(w->oldest + w->frames++) % WORLD_RING] = f;
    } else if (w->frames) world_end_oldest(w);
}

/* ---- The whole ---- */

static inline void world_open(World *w, uint64_t seed, const CoordinatorConfig *given)
{
    CoordinatorConfig config = *given;
    *w = (World){.random = seed, .frames_max = config.frames};
    config.vocabulary = WORLD_IDS;
    config.context = WORLD_CONTEXT;
    config.slots = WORLD_SLOTS;
    config.hidden = WORLD_HIDDEN;
    size_t bytes = (size_t)coordinator_bytes(&config);
    w->memory = malloc(bytes);
    Arena arena = arena_make(w->memory, bytes);
    assert_int_equal(coordinator_build(&config, &arena, &w->c, NULL), OK);
}

static inline void world_check_pool(const World *w, uint32_t slot)
{
    const WorldSlot *s = &w->slot[slot];
    double want[WORLD_HIDDEN] = {0};
    uint32_t rows;
    const double *sum = coordinator_pooled(w->c, slot, &rows);
    assert_int_equal(rows, s->prompt);
    for (uint32_t n = 1; n <= s->prompt; n++) {
        float hidden[WORLD_HIDDEN];
        world_hidden(s->want, n, hidden);
        for (uint32_t i = 0; i < WORLD_HIDDEN; i++) want[i] += (double)hidden[i];
    }
    assert_memory_equal(sum, want, sizeof want);
}

static inline void world_run(World *w)
{
    uint32_t left = WORLD_SLOTS, started = 0;
    for (uint64_t steps = 0; left; steps++) {
        assert_true(steps < 200000);
        if (started < WORLD_SLOTS && world_random(w, 8) == 0) world_start_somehow(w, started++);
        world_act(w);
        left = WORLD_SLOTS;
        for (uint32_t i = 0; i < WORLD_SLOTS; i++) left -= w->slot[i].ended;
        for (uint32_t i = 0; i < WORLD_SLOTS; i++)
            if (w->slot[i].pooled && w->slot[i].ended) {
                world_check_pool(w, i);
                w->slot[i].pooled = false;
            }
    }
    for (uint32_t i = 0; i < WORLD_SLOTS; i++) {
        const WorldSlot *s = &w->slot[i];
        world_take_scores(w, i);
        assert_int_equal(s->prompt + s->said, s->count);
        if (s->scored) assert_int_equal(s->scores, s->count - s->score_first);
    }
}

#endif
