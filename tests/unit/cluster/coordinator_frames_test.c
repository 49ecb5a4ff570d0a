/* SPDX-License-Identifier: Apache-2.0 */
/* Guesses, scores, pools and forks in any order of frames: what each slot says is what it says alone. */
#include "coordinator_world.h"

enum { SEEDS = 600 };

/* A drafter that is right most of the time, and sometimes says what is no token. */
static uint32_t draft(void *context, uint32_t slot, const uint32_t *tokens, uint32_t count,
                      const SamplerParams *params, uint32_t *out, uint32_t max)
{
    World *w = context;
    uint32_t n = world_random(w, max + 1), said[WORLD_CONTEXT + 1];
    (void)slot;
    assert_true(max && count + max <= WORLD_CONTEXT);
    memcpy(said, tokens, count * sizeof *said);
    for (uint32_t i = 0; i < n; i++) {
        said[count + i] = world_next(params, said, count + i);
        if (world_random(w, 6) == 0) said[count + i] = world_random(w, WORLD_IDS + 1);
        out[i] = said[count + i];
    }
    return n;
}

typedef struct Way {
    bool drafts, drafter, forks, scores, failures;
} Way;

typedef struct Figures {
    uint64_t guessed, right, copies;
} Figures;

static CoordinatorConfig random_config(World *dice, bool drafts)
{
    uint32_t most = drafts ? 1 + world_random(dice, COORDINATOR_DRAFTS_MAX) : 0;
    return (CoordinatorConfig){.chunk = 1 + world_random(dice, 40),
                               .logit_rows = 1 + world_random(dice, 60),
                               .frames = 1 + world_random(dice, 5),
                               .drafts = most};
}

static Figures run_seeds(Way way)
{
    Figures all = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        World dice = {.random = seed * 77}, w;
        CoordinatorConfig config = random_config(&dice, way.drafts);
        uint64_t guessed, right;
        world_open(&w, seed, &config);
        w.forks = way.forks;
        w.scores = way.scores;
        w.failures = way.failures;
        if (way.drafter) coordinator_set_drafter(w.c, &(CoordinatorDrafter){&w, draft});
        world_run(&w);
        coordinator_count_drafts(w.c, &guessed, &right);
        assert_true(right <= guessed && (way.drafts || !guessed));
        all.guessed += guessed;
        all.right += right;
        all.copies += w.copies;
        free(w.memory);
    }
    return all;
}

static void without_guesses(void **state)
{
    (void)state;
    run_seeds((Way){.failures = true});
}

/* Guesses of the text itself: some are right, many are not, none shows. */
static void with_guesses(void **state)
{
    (void)state;
    Figures f = run_seeds((Way){.drafts = true});
    assert_true(f.right > 1000 && f.guessed > f.right);
    run_seeds((Way){.drafts = true, .failures = true});
}

static void with_a_drafter(void **state)
{
    (void)state;
    Figures f = run_seeds((Way){.drafts = true, .drafter = true, .failures = true});
    assert_true(f.right > 3000 && f.guessed > f.right);
}

static void with_forks(void **state)
{
    (void)state;
    Figures f = run_seeds((Way){.forks = true});
    assert_true(f.copies > SEEDS);
    f = run_seeds((Way){.drafts = true, .forks = true, .failures = true});
    assert_true(f.copies > SEEDS && f.right > 1000);
}

static void with_scores(void **state)
{
    (void)state;
    run_seeds((Way){.scores = true});
    run_seeds((Way){.scores = true, .failures = true});
}

static void with_everything(void **state)
{
    (void)state;
    run_seeds((Way){true, true, true, true, true});
}

static uint32_t as_many_as_may_be(void *context, uint32_t slot, const uint32_t *tokens,
                                  uint32_t count, const SamplerParams *params, uint32_t *out,
                                  uint32_t max)
{
    (void)context, (void)slot, (void)tokens, (void)count, (void)params;
    for (uint32_t i = 0; i < max; i++) out[i] = 1;
    return max;
}

/* Rows of the first frame of so many answers, each of which would be guessed for without end. */
static uint32_t rows_of_answers(uint32_t answers, uint32_t drafts, uint32_t spread)
{
    const CoordinatorConfig config = {.vocabulary = WORLD_IDS,
                                      .context = WORLD_CONTEXT,
                                      .chunk = 600,
                                      .slots = answers,
                                      .logit_rows = 600,
                                      .frames = 2,
                                      .spread = spread,
                                      .drafts = drafts};
    const SamplerParams greedy = sampler_defaults();
    const uint32_t prompt = 1;
    size_t bytes = (size_t)coordinator_bytes(&config);
    void *memory = malloc(bytes);
    Arena arena = arena_make(memory, bytes);
    Coordinator *c;
    CoordinatorFrame *frame;
    assert_int_equal(coordinator_build(&config, &arena, &c, NULL), OK);
    coordinator_set_drafter(c, &(CoordinatorDrafter){NULL, as_many_as_may_be});
    for (uint32_t i = 0; i < answers; i++)
        assert_int_equal(coordinator_start(c, i, &prompt, 1, 60, &greedy, NULL), OK);
    assert_true(coordinator_frame(c, &frame));
    uint32_t rows = frame->rows;
    assert_int_equal(frame->pick_count, rows);
    free(memory);
    return rows;
}

/* However many answers are in progress, a frame has no more rows of guesses than one answer may bring. */
static void answers_share_the_rows_of_guesses(void **state)
{
    (void)state;
    assert_int_equal(rows_of_answers(1, 15, 1), 16);
    assert_int_equal(rows_of_answers(2, 15, 1), 16);
    assert_int_equal(rows_of_answers(3, 15, 1), 3 * 5);
    assert_int_equal(rows_of_answers(8, 15, 1), 16);
    assert_int_equal(rows_of_answers(8, 15, 2), 16); /* four of them in each of two frames */
    assert_int_equal(rows_of_answers(8, 31, 1), 32);
    assert_int_equal(rows_of_answers(9, 15, 1), 9);
    assert_int_equal(rows_of_answers(20, 15, 1), 20);
    for (uint32_t n = 1; n < 30; n++) assert_true(rows_of_answers(n, 7, 1) <= (n > 8 ? n : 8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_guesses),
        cmocka_unit_test(with_guesses),
        cmocka_unit_test(with_a_drafter),
        cmocka_unit_test(with_forks),
        cmocka_unit_test(with_scores),
        cmocka_unit_test(with_everything),
        cmocka_unit_test(answers_share_the_rows_of_guesses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
