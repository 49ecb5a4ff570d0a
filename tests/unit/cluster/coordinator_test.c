/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's wishes in order: chunks, one row of logits, more candidates when asked, tokens, and the ways it ends. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/coordinator.h"

enum { VOCABULARY = 100, CONTEXT = 20, CHUNK = 4 };

static void *memory;

static Coordinator *make(void)
{
    CoordinatorConfig config = {VOCABULARY, CONTEXT, CHUNK};
    Coordinator *c;
    size_t bytes = coordinator_bytes(&config);
    memory = malloc(bytes);
    Arena arena = arena_make(memory, bytes);
    assert_int_equal(coordinator_build(&config, &arena, &c, NULL), OK);
    return c;
}

static void expect_rows(Coordinator *c, uint32_t position, uint32_t rows)
{
    CoordinatorWish wish;
    coordinator_next(c, &wish);
    assert_int_equal(wish.kind, COORDINATOR_EMBED);
    assert_int_equal(wish.position, position);
    assert_int_equal(wish.rows, rows);
    coordinator_next(c, &wish);
    assert_int_equal(wish.kind, COORDINATOR_FORWARD);
    assert_int_equal(wish.position, position);
    assert_int_equal(wish.rows, rows);
}

static void expect_token(Coordinator *c, uint32_t row, uint32_t id)
{
    CoordinatorWish wish;
    coordinator_next(c, &wish);
    assert_int_equal(wish.kind, COORDINATOR_LOGITS);
    assert_int_equal(wish.logits_row, row);
    coordinator_next(c, &wish);
    assert_int_equal(wish.kind, COORDINATOR_TOP);
    assert_true(wish.k >= 1);
    SamplerCandidate best = {id, 3.5f};
    assert_int_equal(coordinator_give_top(c, &best, 1, false, NULL, NULL), OK);
    coordinator_next(c, &wish);
    assert_int_equal(wish.kind, COORDINATOR_TOKEN);
    assert_int_equal(wish.token, id);
}

static void expect_done(Coordinator *c)
{
    CoordinatorWish wish;
    coordinator_next(c, &wish);
    assert_int_equal(wish.kind, COORDINATOR_DONE);
    coordinator_next(c, &wish);
    assert_int_equal(wish.kind, COORDINATOR_DONE);
}

static void chunks_then_tokens(void **state)
{
    (void)state;
    Coordinator *c = make();
    SamplerParams greedy = sampler_defaults();
    uint32_t prompt[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, count;
    assert_int_equal(coordinator_start(c, prompt, 10, 2, &greedy, NULL), OK);
    expect_rows(c, 0, 4);
    expect_rows(c, 4, 4);
    expect_rows(c, 8, 2);
    expect_token(c, 1, 42);
    expect_rows(c, 10, 1);
    expect_token(c, 0, 43);
    expect_done(c);
    const uint32_t *tokens = coordinator_tokens(c, &count);
    assert_int_equal(count, 12);
    assert_int_equal(tokens[11], 43);
    assert_int_equal(coordinator_start(c, prompt, 1, 1, &greedy, NULL), OK); /* 43 was not forwarded yet */
    expect_rows(c, 11, 2);
    expect_token(c, 1, 5);
    expect_done(c);
    free(memory);
}

static void edges(void **state)
{
    (void)state;
    Coordinator *c = make();
    SamplerParams greedy = sampler_defaults();
    uint32_t prompt[CONTEXT + 1] = {0}, bad = VOCABULARY;
    Why why = {{0}};
    assert_int_equal(coordinator_start(c, prompt, 0, 1, &greedy, &why), ERR_USAGE);
    assert_int_equal(coordinator_start(c, prompt, CONTEXT + 1, 1, &greedy, &why), ERR_CAPACITY);
    assert_int_equal(coordinator_start(c, &bad, 1, 1, &greedy, &why), ERR_RANGE);
    assert_int_equal(coordinator_start(c, prompt, 3, 0, &greedy, &why), OK); /* prefill only */
    expect_rows(c, 0, 3);
    expect_done(c);
    assert_int_equal(coordinator_start(c, prompt, 0, 1, &greedy, &why), OK); /* the last row's logits once more */
    expect_rows(c, 2, 1);
    expect_token(c, 0, 9);
    expect_done(c);
    coordinator_truncate(c, 1);
    assert_int_equal(coordinator_start(c, prompt, CONTEXT - 1, 5, &greedy, &why), OK); /* the context fills up */
    for (uint32_t at = 1; at < CONTEXT; at += CHUNK) expect_rows(c, at, CONTEXT - at < CHUNK ? CONTEXT - at : CHUNK);
    expect_token(c, (CONTEXT - 2) % CHUNK, 7);
    expect_done(c);
    free(memory);
}

static void stops_and_failures(void **state)
{
    (void)state;
    Coordinator *c = make();
    SamplerParams greedy = sampler_defaults();
    uint32_t prompt[6] = {1, 2, 3, 4, 5, 6};
    assert_int_equal(coordinator_start(c, prompt, 3, 9, &greedy, NULL), OK);
    expect_rows(c, 0, 3);
    expect_token(c, 2, 1);
    coordinator_stop(c);
    expect_done(c);
    coordinator_truncate(c, 0);
    assert_int_equal(coordinator_start(c, prompt, 6, 9, &greedy, NULL), OK);
    expect_rows(c, 0, 4);
    CoordinatorWish wish;
    coordinator_next(c, &wish); /* EMBED of the second chunk fails */
    coordinator_fail(c, 4);
    expect_done(c);
    assert_int_equal(coordinator_start(c, NULL, 0, 1, &greedy, NULL), OK); /* again, from where the stations are */
    expect_rows(c, 4, 2);
    expect_token(c, 1, 2);
    expect_done(c);
    free(memory);
}

static void more_candidates(void **state)
{
    (void)state;
    Coordinator *c = make();
    SamplerParams all = sampler_defaults();
    all.temperature = 1;
    all.seed = 3;
    uint32_t prompt = 1, asked = 0;
    assert_int_equal(coordinator_start(c, &prompt, 1, 1, &all, NULL), OK);
    expect_rows(c, 0, 1);
    CoordinatorWish wish;
    coordinator_next(c, &wish);
    SamplerCandidate flat[VOCABULARY];
    float logits[VOCABULARY] = {0};
    LogSum sum;
    for (uint32_t i = 0; i < VOCABULARY; i++) flat[i] = (SamplerCandidate){i, 0};
    for (coordinator_next(c, &wish); wish.kind == COORDINATOR_TOP; coordinator_next(c, &wish)) {
        assert_true(wish.k > asked && wish.k <= VOCABULARY);
        assert_true(wish.wants_sum);
        asked = wish.k;
        logsum_start(&sum);
        logsum_add(&sum, logits, VOCABULARY, wish.sum_scale);
        assert_int_equal(coordinator_give_top(c, flat, wish.k, wish.k == VOCABULARY, &sum, NULL), OK);
    }
    assert_int_equal(wish.kind, COORDINATOR_TOKEN);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(chunks_then_tokens), cmocka_unit_test(edges),
                                       cmocka_unit_test(stops_and_failures), cmocka_unit_test(more_candidates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
