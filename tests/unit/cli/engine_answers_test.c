/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of the engine over a real file: guesses and copies change nothing, scores are those of engine_score, sums of
 * hidden states do not depend on how the work is cut. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/verbs.h"
#include "host/engine.h"
#include "host/memory.h"

enum { PROMPT = 30, TOKENS = 40, SLOTS = 3, HIDDEN_MAX = 512, TOPS = 4 };

static char path[64];
static OpenModel model;

static int make_model(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/engine_answers_test.%d.knot", (int)getpid());
    char verb[] = "synth", shape[] = "--shape", test[] = "test", to[] = "-o";
    char *arguments[] = {verb, shape, test, to, path, NULL};
    Why why = {{0}};
    if (cli_synth(5, arguments)) return 1;
    return open_model_open(path, MODEL_TOKENIZER, NULL, &model, &why) == OK ? 0 : 1;
}

static int drop_model(void **state)
{
    (void)state;
    open_model_close(&model);
    return unlink(path);
}

static const EngineOptions ways[] = {
    {.stations = 1, .shards = 1, .threads = 1, .logit_rows = 1},
    {.stations = 2, .shards = 5, .threads = 2, .chunk = 7, .logit_rows = 3},
    {.stations = 3, .shards = 8, .threads = 2, .chunk = 16, .logit_rows = 40},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

static Engine *open_engine(EngineOptions options, uint32_t drafts)
{
    Engine *e;
    Why why = {{0}};
    options.context = 128;
    options.sessions = SLOTS;
    options.drafts = drafts;
    if (engine_open(&model, &options, &e, &why) != OK) fail_msg("%s", why.text);
    return e;
}

/* Text that repeats itself. */
static void make_prompt(uint32_t slot, uint32_t *ids)
{
    for (uint32_t i = 0; i < PROMPT; i++)
        ids[i] = (i % 7 * 37 + slot * 101) % model.hyper.vocabulary;
}

static SamplerParams params_of(uint32_t slot)
{
    SamplerParams p = sampler_defaults();
    p.temperature = slot ? 0.05f * (float)slot : 0; /* a model of noise is sure of nothing else */
    p.seed = slot;
    return p;
}

static void start(Engine *e, uint32_t slot, const uint32_t *ids, uint32_t count, uint32_t most)
{
    SamplerParams params = params_of(slot);
    Why why = {{0}};
    if (coordinator_start(engine_coordinator(e), slot, ids, count, most, &params, &why) != OK)
        fail_msg("%s", why.text);
}

static void run(Engine *e)
{
    uint32_t count;
    const CoordinatorEvent *events;
    Why why = {{0}};
    while (engine_step(e, &events, &count, &why))
        for (uint32_t i = 0; i < count; i++)
            if (events[i].error != OK) fail_msg("%s", why.text);
}

static void expect_said(Engine *e, uint32_t slot, const uint32_t *want, uint32_t count)
{
    uint32_t said;
    const uint32_t *tokens = coordinator_tokens(engine_coordinator(e), slot, &said);
    assert_int_equal(said, count);
    assert_memory_equal(tokens, want, count * sizeof *want);
}

/* What the slot says without company and guesses. */
static void say_alone(uint32_t slot, uint32_t *said)
{
    Engine *e = open_engine(ways[0], 0);
    uint32_t count;
    make_prompt(slot, said);
    start(e, slot, said, PROMPT, TOKENS);
    run(e);
    const uint32_t *tokens = coordinator_tokens(engine_coordinator(e), slot, &count);
    assert_int_equal(count, PROMPT + TOKENS);
    memcpy(said, tokens, count * sizeof *said);
    engine_close(e);
}

static uint32_t alone[SLOTS][PROMPT + TOKENS];

static void guesses_change_nothing(void **state)
{
    (void)state;
    uint64_t guessed, right, guessed_all = 0, right_all = 0;
    for (uint32_t slot = 0; slot < SLOTS; slot++) say_alone(slot, alone[slot]);
    for (uint32_t way = 0; way < WAYS; way++) {
        Engine *e = open_engine(ways[way], 15);
        for (uint32_t slot = 0; slot < SLOTS; slot++) start(e, slot, alone[slot], PROMPT, TOKENS);
        run(e);
        for (uint32_t slot = 0; slot < SLOTS; slot++)
            expect_said(e, slot, alone[slot], PROMPT + TOKENS);
        coordinator_count_drafts(engine_coordinator(e), &guessed, &right);
        guessed_all += guessed;
        right_all += right;
        engine_close(e);
    }
    assert_true(right_all > 0 && guessed_all > right_all);
}

static void copies_go_on_alike(void **state)
{
    (void)state;
    Why why = {{0}};
    for (uint32_t way = 0; way < WAYS; way++) {
        Engine *e = open_engine(ways[way], 15);
        Coordinator *c = engine_coordinator(e);
        uint32_t fed = PROMPT + TOKENS - 1;
        start(e, 0, alone[0], PROMPT, TOKENS);
        run(e);
        assert_int_equal(coordinator_fed(c, 0), fed);
        for (uint32_t slot = 1; slot < SLOTS; slot++) {
            uint32_t kept = slot == 1 ? fed : PROMPT - 3;
            assert_int_equal(coordinator_fork(c, 0, slot, kept, &why), OK);
            SamplerParams params = params_of(0);
            assert_int_equal(coordinator_start(c, slot, alone[0] + kept,
                                               (slot == 1 ? fed + 1 : PROMPT) - kept,
                                               slot == 1 ? 5 : TOKENS, &params, &why),
                             OK);
        }
        run(e);
        expect_said(e, 2, alone[0], PROMPT + TOKENS);
        uint32_t longer[PROMPT + TOKENS + 5], said;
        memcpy(longer, coordinator_tokens(c, 1, &said), sizeof longer);
        assert_int_equal(said, PROMPT + TOKENS + 5);
        coordinator_truncate(c, 0, 0);
        start(e, 0, alone[0], PROMPT, TOKENS + 5);
        run(e);
        expect_said(e, 0, longer, said);
        engine_close(e);
    }
}

/* ---- Scores ---- */

typedef struct Scored {
    CoordinatorScore score[PROMPT + TOKENS];
    uint32_t count;
    const uint32_t *said;
} Scored;

static void take_scores(Engine *e, uint32_t slot, Scored *to)
{
    uint32_t count;
    const CoordinatorScore *score = coordinator_take_scores(engine_coordinator(e), slot, &count);
    assert_true(to->count + count < PROMPT + TOKENS);
    if (count) memcpy(to->score + to->count, score, count * sizeof *score);
    to->count += count;
}

/* The position's logits say what the token after it was worth. */
static void compare(void *context, const EnginePosition *p)
{
    const Scored *s = context;
    if (p->position >= s->count) return;
    const CoordinatorScore *got = &s->score[p->position];
    uint32_t id = s->said[p->position + 1], slice = 0;
    assert_int_equal(got->token, id);
    while (id >= p->slice_lengths[slice]) id -= p->slice_lengths[slice++];
    float logprob = (float)((double)p->slices[slice][id] - p->log_sum);
    assert_memory_equal(&got->logprob, &logprob, sizeof logprob);
    assert_int_equal(got->top_count, TOPS);
    for (uint32_t i = 0; i < TOPS; i++) {
        logprob = (float)((double)p->top[i].logit - p->log_sum);
        assert_int_equal(got->top[i].id, p->top[i].id);
        assert_memory_equal(&got->top[i].logit, &logprob, sizeof logprob);
    }
}

static void scores_are_those_of_all_logits(void **state)
{
    (void)state;
    static Scored scored[SLOTS];
    const CoordinatorEvent *events;
    uint32_t count;
    Why why = {{0}};
    for (uint32_t way = 0; way < WAYS; way++) {
        Engine *e = open_engine(ways[way], way * 5), *other = open_engine(ways[0], 0);
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            start(e, slot, alone[slot], PROMPT, TOKENS);
            assert_int_equal(coordinator_score(engine_coordinator(e), slot, TOPS, 1, &why), OK);
            scored[slot] = (Scored){.said = alone[slot]};
        }
        while (engine_step(e, &events, &count, &why))
            for (uint32_t slot = 0; slot < SLOTS; slot++) take_scores(e, slot, &scored[slot]);
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            expect_said(e, slot, alone[slot], PROMPT + TOKENS);
            assert_int_equal(scored[slot].count, PROMPT + TOKENS - 1);
            assert_int_equal(engine_score(other, alone[slot], PROMPT + TOKENS, TOPS, compare,
                                          &scored[slot], &why),
                             OK);
        }
        engine_close(e);
        engine_close(other);
    }
}

/* ---- Pools ---- */

/* The sum of the first `count` tokens, in two slots beside an answer. */
static void pool(EngineOptions way, uint32_t count, double *sum)
{
    Engine *e = open_engine(way, 0);
    Coordinator *c = engine_coordinator(e);
    size_t bytes = model.hyper.hidden * sizeof *sum;
    uint32_t rows;
    Why why = {{0}};
    assert_true(model.hyper.hidden <= HIDDEN_MAX);
    start(e, 1, alone[1], PROMPT, TOKENS);
    for (uint32_t slot = 0; slot < SLOTS; slot += 2) {
        start(e, slot, alone[0], count, 0);
        assert_int_equal(coordinator_pool(c, slot, &why), OK);
    }
    run(e);
    expect_said(e, 1, alone[1], PROMPT + TOKENS);
    memcpy(sum, coordinator_pooled(c, 0, &rows), bytes);
    assert_int_equal(rows, count);
    assert_memory_equal(coordinator_pooled(c, 2, &rows), sum, bytes);
    engine_close(e);
}

/* One token more adds what is about one hidden state, and no way of cutting the work changes a bit. */
static void pools_add_up(void **state)
{
    (void)state;
    double sum[PROMPT + 1][HIDDEN_MAX], same[HIDDEN_MAX];
    for (uint32_t count = PROMPT - 4; count <= PROMPT; count++) {
        pool(ways[0], count, sum[count]);
        for (uint32_t way = 1; way < WAYS; way++) {
            pool(ways[way], count, same);
            assert_memory_equal(same, sum[count], model.hyper.hidden * sizeof *same);
        }
        double square = 0;
        for (uint32_t i = 0; i < model.hyper.hidden && count > PROMPT - 4; i++) {
            double more = sum[count][i] - sum[count - 1][i];
            assert_true((double)(float)more - more < 1e-9 && more - (double)(float)more < 1e-9);
            square += more * more;
        }
        assert_true(count == PROMPT - 4 || square > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guesses_change_nothing),
        cmocka_unit_test(copies_go_on_alike),
        cmocka_unit_test(scores_are_those_of_all_logits),
        cmocka_unit_test(pools_add_up),
    };
    return cmocka_run_group_tests(tests, make_model, drop_model);
}
