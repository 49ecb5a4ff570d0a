/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's frames: chunks of a prompt, answers in progress beside it, candidates, ends, and failures. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/coordinator.h"

enum { VOCABULARY = 100, CONTEXT = 20, CHUNK = 4 };

static void *memory;

static Coordinator *make(uint32_t slots, uint32_t chunk, uint32_t context)
{
    CoordinatorConfig config = {VOCABULARY, context, chunk, slots, slots};
    Coordinator *c;
    size_t bytes = (size_t)coordinator_bytes(&config);
    memory = malloc(bytes);
    Arena arena = arena_make(memory, bytes);
    assert_int_equal(coordinator_build(&config, &arena, &c, NULL), OK);
    return c;
}

/* The next token of a pick is `id`, whatever the model. */
static void give(Coordinator *c, CoordinatorPick *pick, uint32_t id)
{
    SamplerCandidate best = {id, 3.5f};
    assert_int_equal(coordinator_give_top(c, pick, &best, 1, false, NULL, NULL), OK);
    assert_true(pick->picked);
}

static void expect_rows(Coordinator *c, uint32_t position, uint32_t rows, bool ends)
{
    CoordinatorFrame frame;
    uint32_t count;
    assert_true(coordinator_frame(c, &frame));
    assert_int_equal(frame.sequence_count, 1);
    assert_int_equal(frame.sequences[0].position, position);
    assert_int_equal(frame.rows, rows);
    assert_int_equal(frame.pick_count, 0);
    const CoordinatorEvent *event = coordinator_end_frame(c, &count);
    assert_int_equal(count, ends);
    if (ends) assert_true(event->ended && !event->has_token && event->error == OK);
}

static void expect_token(Coordinator *c, uint32_t position, uint32_t rows, uint32_t id, bool ends)
{
    CoordinatorFrame frame;
    uint32_t count;
    assert_true(coordinator_frame(c, &frame));
    assert_int_equal(frame.sequences[0].position, position);
    assert_int_equal(frame.rows, rows);
    assert_int_equal(frame.pick_count, 1);
    assert_int_equal(frame.picks[0].row, rows - 1);
    assert_true(frame.picks[0].k >= 1);
    give(c, &frame.picks[0], id);
    const CoordinatorEvent *event = coordinator_end_frame(c, &count);
    assert_int_equal(count, 1);
    assert_true(event->has_token);
    assert_int_equal(event->token, id);
    assert_int_equal(event->ended, ends);
}

static void expect_idle(Coordinator *c)
{
    CoordinatorFrame frame;
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
    CoordinatorFrame frame;
    assert_int_equal(coordinator_start(c, 0, prompt, 1, 9, &greedy, NULL), OK);
    expect_token(c, 0, 1, 50, false);
    assert_int_equal(coordinator_start(c, 2, prompt, 6, 9, &greedy, NULL), OK);
    assert_true(coordinator_frame(c, &frame));
    assert_int_equal(frame.rows, CHUNK); /* one row of slot 0, three of slot 2's prompt */
    assert_int_equal(frame.sequence_count, 2);
    assert_int_equal(frame.ids[0], 50);
    assert_int_equal(frame.sequences[1].session, 2);
    assert_int_equal(frame.sequences[1].rows, 3);
    assert_int_equal(frame.pick_count, 1);
    give(c, &frame.picks[0], 51);
    coordinator_end_frame(c, &count);
    assert_int_equal(count, 1);
    assert_true(coordinator_frame(c, &frame));
    assert_int_equal(frame.pick_count, 2);
    assert_int_equal(frame.picks[1].row, 3);
    give(c, &frame.picks[0], 52);
    give(c, &frame.picks[1], 60);
    const CoordinatorEvent *events = coordinator_end_frame(c, &count);
    assert_int_equal(count, 2);
    assert_int_equal(events[1].slot, 2);
    assert_int_equal(events[1].token, 60);
    coordinator_stop(c, 0);
    assert_false(coordinator_is_active(c, 0));
    assert_true(coordinator_frame(c, &frame));
    assert_int_equal(frame.sequence_count, 1);
    assert_int_equal(frame.sequences[0].session, 2);
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
    CoordinatorFrame frame;
    assert_true(coordinator_frame(c, &frame));
    assert_int_equal(frame.sequence_count, 2);
    coordinator_fail_frame(c, ERR_NOT_FINITE, &count);
    assert_int_equal(count, 0);
    for (int i = 0; i < 2; i++) {
        assert_true(coordinator_frame(c, &frame));
        assert_int_equal(frame.sequence_count, 1);
        assert_int_equal(frame.sequences[0].position, 0);
        if (frame.sequences[0].session == 0) {
            const CoordinatorEvent *event = coordinator_fail_frame(c, ERR_NOT_FINITE, &count);
            assert_int_equal(count, 1);
            assert_true(event->ended && event->error == ERR_NOT_FINITE && event->slot == 0);
            ended++;
        } else {
            give(c, &frame.picks[0], 7);
            coordinator_end_frame(c, &count);
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
    CoordinatorFrame frame;
    assert_true(coordinator_frame(c, &frame));
    CoordinatorPick *pick = &frame.picks[0];
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
            coordinator_give_top(c, pick, flat, pick->k, pick->k == VOCABULARY, &sum, NULL), OK);
    }
    assert_true(rounds >= 1 && pick->token < VOCABULARY);
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
