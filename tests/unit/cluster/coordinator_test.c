/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's frames: chunks of a prompt, answers in progress beside it, candidates, ends, and failures. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "../text/small_vocab.h"
#include "cluster/coordinator.h"

enum { VOCABULARY = 100, CONTEXT = 20, CHUNK = 4 };

static void *memory;

static Coordinator *make_frames(uint32_t slots, uint32_t chunk, uint32_t context, uint32_t frames)
{
    CoordinatorConfig config = {VOCABULARY, context, chunk, slots, slots, frames, 0, 0, 0};
    Coordinator *c;
    size_t bytes = (size_t)coordinator_bytes(&config);
    memory = malloc(bytes);
    Arena arena = arena_make(memory, bytes);
    assert_int_equal(coordinator_build(&config, &arena, &c, NULL), OK);
    return c;
}

static Coordinator *make(uint32_t slots, uint32_t chunk, uint32_t context)
{
    return make_frames(slots, chunk, context, 0);
}

/* The next token of a pick is `id`, whatever the model. */
static void give(Coordinator *c, CoordinatorPick *pick, uint32_t id)
{
    SamplerCandidate best = {id, 3.5f};
    assert_int_equal(coordinator_give_top(c, pick, &best, 1, false, NULL, 0, NULL), OK);
    assert_true(pick->picked);
}

static void expect_rows(Coordinator *c, uint32_t position, uint32_t rows, bool ends)
{
    CoordinatorFrame *frame;
    uint32_t count;
    assert_true(coordinator_frame(c, &frame));
    assert_int_equal(frame->sequence_count, 1);
    assert_int_equal(frame->sequences[0].position, position);
    assert_int_equal(frame->rows, rows);
    assert_int_equal(frame->pick_count, 0);
    const CoordinatorEvent *event = coordinator_end_frame(c, frame, &count);
    assert_int_equal(count, ends);
    if (ends) assert_true(event->ended && event->token_count == 0 && event->error == OK);
}

static void expect_token(Coordinator *c, uint32_t position, uint32_t rows, uint32_t id, bool ends)
{
    CoordinatorFrame *frame;
    uint32_t count;
    assert_true(coordinator_frame(c, &frame));
    assert_int_equal(frame->sequences[0].position, position);
    assert_int_equal(frame->rows, rows);
    assert_int_equal(frame->pick_count, 1);
    assert_int_equal(frame->picks[0].row, rows - 1);
    assert_true(frame->picks[0].k >= 1);
    give(c, &frame->picks[0], id);
    const CoordinatorEvent *event = coordinator_end_frame(c, frame, &count);
    assert_int_equal(count, 1);
    assert_int_equal(event->token_count, 1);
    assert_int_equal(event->tokens[0], id);
    assert_int_equal(event->ended, ends);
}

static void expect_idle(Coordinator *c)
{
    CoordinatorFrame *frame;
    assert_false(coordinator_frame(c, &frame));
}

static void chunks_then_tokens(void **state)
{
    (void)state;
    Coordinator *c = make(1, CHUNK, CONTEXT);
    SamplerParams greedy = sampler_defaults();
    uint32_t prompt[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, count;
    assert_int_equal(coordinator_start(c, 0, prompt, 10, 2, &greedy, NULL), OK);
    assert_int_equal(coordinator_start(c, 0, prompt, 1, 2, &greedy, NULL), ERR_USAGE);
    expect_rows(c, 0, 4, false);
    expect_rows(c, 4, 4, false);
    expect_token(c, 8, 2, 42, false);
    expect_token(c, 10, 1, 43, true);
    expect_idle(c);
    const uint32_t *tokens = coordinator_tokens(c, 0, &count);
    assert_int_equal(count, 12);
    assert_int_equal(tokens[11], 43);
    assert_int_equal(coordinator_start(c, 0, prompt, 1, 1, &greedy, NULL),
                     OK); /* 43 was not forwarded yet */
    expect_token(c, 11, 2, 5, true);
    expect_idle(c);
    free(memory);
}

static void edges(void **state)
{
    (void)state;
    Coordinator *c = make(1, CHUNK, CONTEXT);
    SamplerParams greedy = sampler_defaults();
    uint32_t prompt[CONTEXT + 1] = {0}, bad = VOCABULARY;
    Why why = {{0}};
    assert_int_equal(coordinator_start(c, 0, prompt, 0, 1, &greedy, &why), ERR_USAGE);
    assert_int_equal(coordinator_start(c, 1, prompt, 1, 1, &greedy, &why), ERR_RANGE);
    assert_int_equal(coordinator_start(c, 0, prompt, CONTEXT + 1, 1, &greedy, &why), ERR_CAPACITY);
    assert_int_equal(coordinator_start(c, 0, &bad, 1, 1, &greedy, &why), ERR_RANGE);
    assert_int_equal(coordinator_start(c, 0, prompt, 3, 0, &greedy, &why), OK); /* prefill only */
    expect_rows(c, 0, 3, true);
    expect_idle(c);
    assert_int_equal(coordinator_start(c, 0, prompt, 0, 1, &greedy, &why),
                     OK); /* the last row's logits once more */
    expect_token(c, 2, 1, 9, true);
    coordinator_truncate(c, 0, 1);
    assert_int_equal(coordinator_start(c, 0, prompt, CONTEXT - 1, 5, &greedy, &why),
                     OK); /* the context fills up */
    for (uint32_t at = 1; at + CHUNK < CONTEXT; at += CHUNK) expect_rows(c, at, CHUNK, false);
    expect_token(c, CONTEXT - 3, 3, 7, true);
    expect_idle(c);
    free(memory);
}

static void answers_and_prompts_share_frames(void **state)
{
    (void)state;
    Coordinator *c = make(3, CHUNK, CONTEXT);
    SamplerParams greedy = sampler_defaults();
    uint32_t prompt[6] = {1, 2, 3, 4, 5, 6}, count;
    CoordinatorFrame *frame;
    assert_int_equal(coordinator_start(c, 0, prompt, 1, 9, &greedy, NULL), OK);
    expect_token(c, 0, 1, 50, false);
    assert_int_equal(coordinator_start(c, 2, prompt, 6, 9, &greedy, NULL), OK);
    assert_true(coordinator_frame(c, &frame));
    assert_int_equal(frame->rows, CHUNK); /* one row of slot 0, three of slot 2's prompt */
    assert_int_equal(frame->sequence_count, 2);
    assert_int_equal(frame->ids[0], 50);
    assert_int_equal(frame->sequences[1].session, 2);
    assert_int_equal(frame->sequences[1].rows, 3);
    assert_int_equal(frame->pick_count, 1);
    give(c, &frame->picks[0], 51);
    coordinator_end_frame(c, frame, &count);
    assert_int_equal(count, 1);
    assert_true(coordinator_frame(c, &frame));
    assert_int_equal(frame->pick_count, 2);
    assert_int_equal(frame->picks[1].row, 3);
    give(c, &frame->picks[0], 52);
    give(c, &frame->picks[1], 60);
    const CoordinatorEvent *events = coordinator_end_frame(c, frame, &count);
    assert_int_equal(count, 2);
    assert_int_equal(events[1].slot, 2);
    assert_int_equal(events[1].tokens[0], 60);
    coordinator_stop(c, 0);
    assert_false(coordinator_is_active(c, 0));
    assert_true(coordinator_frame(c, &frame));
    assert_int_equal(frame->sequence_count, 1);
    assert_int_equal(frame->sequences[0].session, 2);
    free(memory);
}

/* One of two slots is bad: the other goes on, and the bad one ends alone. */
static void failures_are_isolated(void **state)
{
    (void)state;
    Coordinator *c = make(2, CHUNK, CONTEXT);
    SamplerParams greedy = sampler_defaults();
    uint32_t prompt[2] = {1, 2}, count, ended = 0;
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(coordinator_start(c, i, prompt, 2, 2, &greedy, NULL), OK);
    CoordinatorFrame *frame;
    assert_true(coordinator_frame(c, &frame));
    assert_int_equal(frame->sequence_count, 2);
    coordinator_fail_frame(c, frame, ERR_NOT_FINITE, &count);
    assert_int_equal(count, 0);
    for (int i = 0; i < 2; i++) {
        assert_true(coordinator_frame(c, &frame));
        assert_int_equal(frame->sequence_count, 1);
        assert_int_equal(frame->sequences[0].position, 0);
        if (frame->sequences[0].session == 0) {
            const CoordinatorEvent *event =
                coordinator_fail_frame(c, frame, ERR_NOT_FINITE, &count);
            assert_int_equal(count, 1);
            assert_true(event->ended && event->error == ERR_NOT_FINITE && event->slot == 0);
            ended++;
        } else {
            give(c, &frame->picks[0], 7);
            coordinator_end_frame(c, frame, &count);
            assert_int_equal(count, 1);
        }
    }
    assert_int_equal(ended, 1);
    assert_false(coordinator_is_active(c, 0));
    expect_token(c, 2, 1, 8, true);
    expect_idle(c);
    free(memory);
}

static void more_candidates(void **state)
{
    (void)state;
    Coordinator *c = make(1, CHUNK, CONTEXT);
    SamplerParams all = sampler_defaults();
    all.temperature = 1;
    all.seed = 3;
    uint32_t prompt = 1, asked = 0, rounds = 0;
    assert_int_equal(coordinator_start(c, 0, &prompt, 1, 1, &all, NULL), OK);
    CoordinatorFrame *frame;
    assert_true(coordinator_frame(c, &frame));
    CoordinatorPick *pick = &frame->picks[0];
    SamplerCandidate flat[VOCABULARY];
    float logits[VOCABULARY] = {0};
    LogSum sum;
    for (uint32_t i = 0; i < VOCABULARY; i++) flat[i] = (SamplerCandidate){i, 0};
    for (; !pick->picked; rounds++) {
        assert_true(pick->k > asked && pick->k <= VOCABULARY && pick->wants_sum);
        asked = pick->k;
        logsum_start(&sum);
        logsum_add(&sum, logits, VOCABULARY, pick->sum_scale);
        assert_int_equal(
            coordinator_give_top(c, pick, flat, pick->k, pick->k == VOCABULARY, &sum, 0, NULL), OK);
    }
    assert_true(rounds >= 1 && pick->token < VOCABULARY);
    free(memory);
}

/* ---- Several frames under way ---- */

static CoordinatorFrame *expect_frame(Coordinator *c, uint32_t slot, uint32_t position,
                                      uint32_t rows, uint32_t picks)
{
    CoordinatorFrame *frame;
    assert_true(coordinator_frame(c, &frame));
    assert_int_equal(frame->sequence_count, 1);
    assert_int_equal(frame->sequences[0].session, slot);
    assert_int_equal(frame->sequences[0].position, position);
    assert_int_equal(frame->rows, rows);
    assert_int_equal(frame->pick_count, picks);
    return frame;
}

/* A prompt's chunks do not wait for each other; its pick does; a stopped slot waits for its frames. */
static void chunks_are_under_way_together(void **state)
{
    (void)state;
    Coordinator *c = make_frames(2, CHUNK, CONTEXT, 3);
    SamplerParams greedy = sampler_defaults();
    uint32_t prompt[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, count;
    assert_int_equal(coordinator_start(c, 0, prompt, 10, 2, &greedy, NULL), OK);
    CoordinatorFrame *one = expect_frame(c, 0, 0, 4, 0), *two = expect_frame(c, 0, 4, 4, 0),
                     *three = expect_frame(c, 0, 8, 2, 1);
    assert_true(one->number != two->number && two->number != three->number);
    expect_idle(c);
    assert_int_equal(coordinator_fed(c, 0), 0);
    coordinator_end_frame(c, one, &count);
    assert_int_equal(coordinator_fed(c, 0), 4);
    expect_idle(c); /* its token is being picked */
    coordinator_end_frame(c, two, &count);
    assert_int_equal(count, 0);
    coordinator_stop(c, 0);
    assert_true(coordinator_is_under_way(c, 0) && !coordinator_frame_is_wanted(c, three));
    assert_int_equal(coordinator_start(c, 0, prompt, 1, 1, &greedy, NULL), ERR_USAGE);
    coordinator_end_frame(c, three, &count);
    assert_int_equal(count, 0); /* the token that nobody wanted */
    assert_false(coordinator_is_under_way(c, 0));
    assert_int_equal(coordinator_fed(c, 0), 10);
    assert_int_equal(coordinator_start(c, 0, NULL, 0, 1, &greedy, NULL), OK);
    expect_token(c, 9, 1, 5, true);
    free(memory);
}

/* Five answers over two frames: three and two; a prompt beside them gets 64 rows of a frame. */
static void answers_are_spread(void **state)
{
    (void)state;
    Coordinator *c = make_frames(6, 200, 500, 2);
    SamplerParams greedy = sampler_defaults();
    uint32_t prompt[300] = {0}, count;
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(coordinator_start(c, i, prompt, 1, 9, &greedy, NULL), OK);
    CoordinatorFrame *one, *two, *none;
    assert_true(coordinator_frame(c, &one));
    assert_true(coordinator_frame(c, &two));
    assert_false(coordinator_frame(c, &none));
    assert_int_equal(one->rows, 3);
    assert_int_equal(two->rows, 2);
    assert_int_equal(coordinator_start(c, 5, prompt, 300, 9, &greedy, NULL), OK);
    for (uint32_t i = 0; i < 3; i++) give(c, &one->picks[i], 7);
    coordinator_end_frame(c, one, &count);
    assert_int_equal(count, 3);
    assert_true(coordinator_frame(c, &one));
    assert_int_equal(one->rows, 3 + 64);
    assert_int_equal(one->sequences[3].session, 5);
    for (uint32_t i = 0; i < 2; i++) give(c, &two->picks[i], 7);
    coordinator_end_frame(c, two, &count);
    assert_true(coordinator_frame(c, &two));
    assert_int_equal(two->rows, 2 + 64);
    assert_int_equal(two->sequences[2].position, 64);
    free(memory);
}

/* Rows of a prompt: about as many chunks as frames, none of them tiny; and all of it when there is one frame. */
static void prompts_are_cut(void **state)
{
    (void)state;
    SamplerParams greedy = sampler_defaults();
    uint32_t prompt[300] = {0};
    static const struct {
        uint32_t frames, count, rows;
    } cases[] = {{1, 300, 200}, {2, 300, 150}, {4, 300, 75}, {4, 40, 32}, {4, 20, 20}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Coordinator *c = make_frames(1, 200, 500, cases[i].frames);
        assert_int_equal(coordinator_start(c, 0, prompt, cases[i].count, 9, &greedy, NULL), OK);
        expect_frame(c, 0, 0, cases[i].rows, cases[i].rows == cases[i].count);
        free(memory);
    }
}

static void given_up_frames(void **state)
{
    (void)state;
    Coordinator *c = make_frames(2, CHUNK, CONTEXT, 4);
    SamplerParams greedy = sampler_defaults();
    uint32_t prompt[7] = {1, 2, 3, 4, 5, 6, 7}, count;
    assert_int_equal(coordinator_start(c, 0, prompt, 7, 2, &greedy, NULL), OK);
    CoordinatorFrame *one = expect_frame(c, 0, 0, 4, 0), *two = expect_frame(c, 0, 4, 3, 1);
    coordinator_end_frame(c, one, &count);
    assert_int_equal(coordinator_start(c, 1, prompt, 4, 2, &greedy, NULL), OK);
    CoordinatorFrame *three = expect_frame(c, 1, 0, 4, 1);
    coordinator_give_up_frames(c, three);
    assert_false(coordinator_is_under_way(c, 0) || coordinator_is_under_way(c, 1));
    assert_int_equal(coordinator_fed(c, 0), 4);
    assert_true(coordinator_frame(c, &two)); /* what was confirmed stays */
    coordinator_give_up_frames(c, two);
    assert_int_equal(coordinator_fed(c, two->sequences[0].session), 0);
    coordinator_give_up_frames(c, NULL);
    assert_true(coordinator_frame(c, &one));
    const CoordinatorEvent *events = coordinator_refuse_frame(c, one, ERR_UNREACHABLE, &count);
    assert_int_equal(count, one->sequence_count);
    for (uint32_t i = 0; i < count; i++)
        assert_true(events[i].ended && events[i].error == ERR_UNREACHABLE);
    free(memory);
}

static void degraded_slots_start_again(void **state)
{
    (void)state;
    Coordinator *c = make(1, CHUNK, CONTEXT);
    SamplerParams greedy = sampler_defaults();
    uint32_t prompt[3] = {1, 2, 3};
    assert_int_equal(coordinator_start(c, 0, prompt, 3, 2, &greedy, NULL), OK);
    coordinator_mark_degraded(c, 0);
    expect_token(c, 0, 3, 7, false);
    coordinator_stop(c, 0);
    assert_int_equal(coordinator_start(c, 0, NULL, 0, 1, &greedy, NULL), OK);
    assert_true(coordinator_is_degraded(c, 0)); /* the same answer goes on */
    expect_token(c, 3, 1, 8, true);
    coordinator_truncate(c, 0, 3);
    assert_false(coordinator_is_degraded(c, 0));
    assert_int_equal(coordinator_fed(c, 0), 0);
    assert_int_equal(coordinator_start(c, 0, NULL, 0, 1, &greedy, NULL), OK);
    expect_token(c, 0, 3, 7, true);
    coordinator_forget_sessions(c);
    assert_int_equal(coordinator_fed(c, 0), 0);
    free(memory);
}

/* ---- Any order of frames, stops, failures: the same tokens ---- */

enum { SLOTS = 5, LONG = 60, POISON = 99 };

/* A model whose next token is a hash of all tokens of the session, and a station that keeps them. */
typedef struct World {
    Coordinator *c;
    uint64_t random;
    uint32_t held[SLOTS][LONG + 1], length[SLOTS];
    uint32_t tokens_max[SLOTS];
    CoordinatorFrame *frame[8];
    uint32_t oldest, frames;
    bool ended[SLOTS];
    Error error[SLOTS];
} World;

static uint32_t world_random(World *w, uint32_t n)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w->random >> 33) % n;
}

static uint32_t next_token(const uint32_t *tokens, uint32_t count)
{
    uint64_t h = 14695981039346656037u;
    for (uint32_t i = 0; i < count; i++) h = (h ^ tokens[i]) * 1099511628211u;
    return (uint32_t)(h >> 40) % (VOCABULARY - 1);
}

static void take_events(World *w, const CoordinatorEvent *events, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (events[i].ended) {
            w->ended[events[i].slot] = true;
            w->error[events[i].slot] = events[i].error;
        }
}

static bool is_poisoned(const CoordinatorFrame *f)
{
    for (uint32_t i = 0; i < f->rows; i++)
        if (f->ids[i] == POISON) return true;
    return false;
}

/* The stations get the oldest frame. */
static void carry_out(World *w, const CoordinatorFrame *f)
{
    uint32_t row = 0;
    for (uint32_t i = 0; i < f->sequence_count; i++) {
        const StationSequence *q = &f->sequences[i];
        assert_true(q->position <= w->length[q->session]);
        for (uint32_t r = 0; r < q->rows; r++, row++) {
            w->held[q->session][q->position + r] = f->ids[row];
            w->length[q->session] = q->position + r + 1;
            for (uint32_t p = 0; p < f->pick_count; p++)
                if (f->picks[p].row == row)
                    give(w->c, &f->picks[p],
                         next_token(w->held[q->session], w->length[q->session]));
        }
    }
}

static void end_oldest(World *w)
{
    uint32_t count;
    CoordinatorFrame *f = w->frame[w->oldest];
    const CoordinatorEvent *events;
    if (is_poisoned(f)) {
        events = coordinator_fail_frame(w->c, f, ERR_NOT_FINITE, &count);
        w->frames = 0;
    } else {
        carry_out(w, f);
        events = coordinator_end_frame(w->c, f, &count);
        w->oldest = (w->oldest + 1) % 8;
        w->frames--;
    }
    take_events(w, events, count);
}

/* A station lost the sessions of one frame, or only the frames got lost. */
static void lose(World *w)
{
    CoordinatorFrame *f = w->frame[(w->oldest + world_random(w, w->frames)) % 8];
    bool sessions = world_random(w, 2);
    for (uint32_t i = 0; sessions && i < f->sequence_count; i++)
        w->length[f->sequences[i].session] = 0;
    coordinator_give_up_frames(w->c, sessions ? f : NULL);
    w->frames = 0;
}

/* Stops an answer, and asks for the rest of it when its frames have ended. */
static void stop_and_go_on(World *w)
{
    SamplerParams greedy = sampler_defaults();
    uint32_t slot = world_random(w, SLOTS), said;
    if (w->ended[slot] || !coordinator_is_active(w->c, slot)) return;
    coordinator_stop(w->c, slot);
    while (coordinator_is_under_way(w->c, slot)) end_oldest(w);
    (void)coordinator_tokens(w->c, slot, &said);
    uint32_t left = w->tokens_max[slot] - said;
    assert_int_equal(coordinator_start(w->c, slot, NULL, 0, left, &greedy, NULL), OK);
}

static void act(World *w, uint32_t frames)
{
    uint32_t dice = world_random(w, 20);
    if (dice == 0 && w->frames) lose(w);
    else if (dice == 1) stop_and_go_on(w);
    else if (dice == 2) coordinator_limit_rows(w->c, 1 + world_random(w, 7));
    else if (dice < 12 && w->frames < frames) {
        CoordinatorFrame *f;
        if (coordinator_frame(w->c, &f)) w->frame[(w->oldest + w->frames++) % 8] = f;
    } else if (w->frames) end_oldest(w);
}

static void run_world(uint64_t seed)
{
    World w = {.random = seed};
    uint32_t frames = 1 + world_random(&w, 5), poisoned = world_random(&w, 2 * SLOTS);
    uint32_t prompt[SLOTS][LONG + 1], prompts[SLOTS], left = SLOTS, started = 0, said;
    SamplerParams greedy = sampler_defaults();
    w.c = make_frames(SLOTS, 7, LONG, frames);
    for (uint64_t steps = 0; left; steps++) {
        assert_true(steps < 100000);
        if (started < SLOTS && world_random(&w, 4) == 0) {
            uint32_t i = started++;
            prompts[i] = 1 + world_random(&w, 30);
            w.tokens_max[i] = prompts[i] + 1 + world_random(&w, 20);
            for (uint32_t n = 0; n < prompts[i]; n++) prompt[i][n] = world_random(&w, POISON);
            if (i == poisoned) prompt[i][world_random(&w, prompts[i])] = POISON;
            assert_int_equal(coordinator_start(w.c, i, prompt[i], prompts[i],
                                               w.tokens_max[i] - prompts[i], &greedy, NULL),
                             OK);
        }
        act(&w, frames);
        left = SLOTS;
        for (uint32_t i = 0; i < SLOTS; i++) left -= w.ended[i];
    }
    for (uint32_t i = 0; i < SLOTS; i++) {
        assert_int_equal(w.error[i], i == poisoned ? ERR_NOT_FINITE : OK);
        if (i == poisoned) continue;
        const uint32_t *tokens = coordinator_tokens(w.c, i, &said);
        assert_int_equal(said, w.tokens_max[i]);
        for (uint32_t n = prompts[i]; n < said; n++) prompt[i][n] = next_token(prompt[i], n);
        assert_memory_equal(tokens, prompt[i], said * sizeof *tokens);
    }
    free(memory);
}

static void any_order_gives_the_same_tokens(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2000; seed++) run_world(seed);
}

/* A grammar's masks for a small vocabulary. */
typedef struct Rule {
    SmallVocab *small;
    GrammarVocab vocab;
    Grammar grammar;
    GrammarMask *mask;
    void *memory;
} Rule;

static void rule_open(Rule *r, const char *text)
{
    size_t bytes = 64 << 20;
    Why why;
    GrammarLimits limits = grammar_machine_limits();
    r->small = small_bpe(VOCAB_PRE_QWEN2);
    r->memory = malloc(bytes);
    assert_int_equal(small_build(r->small, &why), OK);
    Arena all = arena_make(r->memory, bytes),
          scratch = arena_make((uint8_t *)r->memory + bytes / 2, bytes / 2);
    all.size = bytes / 2;
    assert_int_equal(grammar_vocab_build(r->small->tokenizer, 0, r->small->vocab.tokens, &scratch,
                                         &all, &r->vocab, &why),
                     OK);
    assert_int_equal(
        grammar_gbnf((const uint8_t *)text, strlen(text), &scratch, &all, &r->grammar, &why), OK);
    assert_int_equal(grammar_mask_build(&r->vocab, &r->grammar, &limits, &all, &r->mask, &why), OK);
}

static void rule_close(Rule *r)
{
    small_free(r->small);
    free(r->memory);
}

/* The next frame's pick allows exactly these tokens, and with `ends` those that end an answer. */
static CoordinatorFrame *expect_allowed(Coordinator *c, const Rule *r, const uint32_t *ids,
                                        uint32_t count, bool ends)
{
    CoordinatorFrame *frame;
    uint32_t allowed = 0;
    assert_true(coordinator_frame(c, &frame));
    assert_int_equal(frame->pick_count, 1);
    assert_non_null(frame->picks[0].mask);
    for (uint32_t id = 0; id < r->small->vocab.tokens; id++)
        allowed += grammar_mask_has(frame->picks[0].mask, id);
    assert_int_equal(allowed, count + (ends ? r->vocab.end_count : 0));
    for (uint32_t i = 0; i < count; i++)
        assert_true(grammar_mask_has(frame->picks[0].mask, ids[i]));
    return frame;
}

static void answers_follow_a_grammar(void **state)
{
    (void)state;
    Rule r;
    Why why;
    rule_open(&r, "root ::= \"ab\" \"c\"?");
    uint32_t tokens = r.small->vocab.tokens, count, prompt[] = {'x', 'y'};
    uint32_t ab = small_find(r.small, "ab"), abc = small_find(r.small, "abc"),
             end = r.small->vocab.eos;
    CoordinatorConfig config = {tokens, CONTEXT, CHUNK, 1, 1, 1, 0, 0, 0};
    Coordinator *c;
    size_t bytes = (size_t)coordinator_bytes(&config);
    memory = malloc(bytes);
    Arena arena = arena_make(memory, bytes);
    SamplerParams params = sampler_defaults();
    assert_int_equal(coordinator_build(&config, &arena, &c, NULL), OK);
    assert_int_equal(coordinator_constrain(c, 0, r.mask, &why), ERR_USAGE); /* not started */
    assert_int_equal(coordinator_start(c, 0, prompt, 2, 10, &params, NULL), OK);
    assert_int_equal(coordinator_constrain(c, 0, r.mask, &why), OK);

    CoordinatorFrame *frame = expect_allowed(c, &r, (uint32_t[]){'a', ab, abc}, 3, false);
    SamplerCandidate forbidden = {'b', 1.0f};
    assert_int_equal(coordinator_give_top(c, frame->picks, &forbidden, 1, false, NULL, 0, &why),
                     ERR_RANGE);
    coordinator_give_up_frames(c, NULL); /* and the same once more */
    frame = expect_allowed(c, &r, (uint32_t[]){'a', ab, abc}, 3, false);
    give(c, frame->picks, ab);
    const CoordinatorEvent *event = coordinator_end_frame(c, frame, &count);
    assert_true(count == 1 && event->tokens[0] == ab && !event->ended);

    frame = expect_allowed(c, &r, (uint32_t[]){'c'}, 1, true);
    coordinator_stop(c, 0); /* a reader that is slow: what is under way counts no longer */
    give(c, frame->picks, 'c');
    (void)coordinator_end_frame(c, frame, &count);
    assert_int_equal(count, 0);
    assert_int_equal(coordinator_start(c, 0, NULL, 0, 9, &params, NULL), OK);
    assert_int_equal(coordinator_constrain(c, 0, r.mask, &why), OK);
    frame = expect_allowed(c, &r, (uint32_t[]){'c'}, 1, true);
    give(c, frame->picks, end);
    (void)coordinator_end_frame(c, frame, &count);
    assert_true(grammar_mask_has_ended(r.mask));

    coordinator_truncate(c, 0, 0);
    assert_int_equal(coordinator_start(c, 0, prompt, 2, 10, &params, NULL), OK);
    assert_true(coordinator_frame(c, &frame));
    assert_null(frame->picks[0].mask); /* the next answer is free */
    free(memory);
    rule_close(&r);
}

/* With room for more picks than a slot has for scores, a long prompt takes several frames. */
static void long_prompts_are_scored_in_parts(void **state)
{
    (void)state;
    enum { PROMPT = 320, PARTS = 256 };
    Coordinator *c = make(PROMPT, PROMPT, PROMPT);
    SamplerParams params = sampler_defaults();
    uint32_t ids[PROMPT], scored = 0, count;
    for (uint32_t i = 0; i < PROMPT; i++) ids[i] = i % VOCABULARY;
    assert_int_equal(coordinator_start(c, 0, ids, PROMPT, 0, &params, NULL), OK);
    assert_int_equal(coordinator_score(c, 0, 0, 1, NULL), OK);
    for (CoordinatorFrame *frame; coordinator_frame(c, &frame);) {
        assert_in_range(frame->pick_count, 1, PARTS);
        for (uint32_t i = 0; i < frame->pick_count; i++) {
            CoordinatorPick *pick = &frame->picks[i];
            float logits[] = {0, 1};
            SamplerCandidate best = {pick->id, 1};
            LogSum sum;
            logsum_start(&sum);
            logsum_add(&sum, logits, 2, 1);
            assert_int_equal(coordinator_give_top(c, pick, &best, 1, false, &sum, 1, NULL), OK);
        }
        coordinator_end_frame(c, frame, &count);
        const CoordinatorScore *scores = coordinator_take_scores(c, 0, &count);
        for (uint32_t i = 0; i < count; i++) assert_int_equal(scores[i].token, ids[1 + scored + i]);
        scored += count;
    }
    assert_int_equal(scored, PROMPT - 1);
    assert_false(coordinator_is_active(c, 0));
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_then_tokens),
        cmocka_unit_test(edges),
        cmocka_unit_test(answers_and_prompts_share_frames),
        cmocka_unit_test(failures_are_isolated),
        cmocka_unit_test(more_candidates),
        cmocka_unit_test(chunks_are_under_way_together),
        cmocka_unit_test(answers_are_spread),
        cmocka_unit_test(prompts_are_cut),
        cmocka_unit_test(given_up_frames),
        cmocka_unit_test(degraded_slots_start_again),
        cmocka_unit_test(any_order_gives_the_same_tokens),
        cmocka_unit_test(answers_follow_a_grammar),
        cmocka_unit_test(long_prompts_are_scored_in_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
