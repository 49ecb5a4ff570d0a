/* SPDX-License-Identifier: Apache-2.0 */
/* The sampler: parameters and their limits, what each of them means, the same token for any number of shards, and
 * distributions over many seeds by chi-square (the seeds are fixed, so a failure is a change, not chance). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/sampler.h"

enum { VOCABULARY = 1003 };

/* ---- a whole step over `shards` shards, asking again as told ------------------------------------------------- */

typedef struct Step {
    Error error;
    uint32_t id, asked, k;
    double log_sum;
} Step;

static uint32_t gather(const SamplerParams *p, const float *adjusted, uint32_t n, uint32_t shards, uint32_t k,
                       SamplerCandidate *all, LogSum *sum)
{
    static SamplerCandidate part[VOCABULARY], scratch[VOCABULARY];
    uint32_t count = 0;
    logsum_start(sum);
    for (uint32_t s = shards; s-- > 0;) { /* answers arrive in any order */
        uint32_t a = (uint32_t)((uint64_t)n * s / shards), b = (uint32_t)((uint64_t)n * (s + 1) / shards);
        LogSum shard_sum;
        logsum_start(&shard_sum);
        logsum_add(&shard_sum, adjusted + a, b - a, sampler_scale(p));
        logsum_merge(sum, &shard_sum);
        count = sampler_merge(all, count, part, sampler_top(adjusted + a, b - a, a, k, part), k, scratch);
    }
    return count;
}

static Step step(const SamplerParams *p, const float *logits, uint32_t n, uint32_t shards, const uint32_t *text,
                 uint32_t text_count, uint64_t position, uint32_t first_k)
{
    static float adjusted[VOCABULARY];
    static SamplerCandidate all[VOCABULARY];
    SamplerSeen seen[64];
    uint32_t seen_count = sampler_count(p, text, text_count, seen, 64);
    memcpy(adjusted, logits, n * sizeof *logits);
    for (uint32_t s = 0; s < shards; s++) {
        uint32_t a = (uint32_t)((uint64_t)n * s / shards), b = (uint32_t)((uint64_t)n * (s + 1) / shards);
        sampler_adjust(p, seen, seen_count, a, adjusted + a, b - a);
    }
    Step r = {.k = first_k ? first_k : sampler_first_k(p, n)};
    for (r.asked = 1; r.asked < 20; r.asked++) {
        LogSum sum;
        SamplerResult result;
        Why why;
        uint32_t k = r.k < n ? r.k : n, count = gather(p, adjusted, n, shards, k, all, &sum);
        r.error = sampler_pick(p, all, count, count == n, &sum, position, &result, &why);
        r.log_sum = logsum_log(&sum);
        r.id = result.id;
        if (r.error != OK || result.verdict == SAMPLER_TOKEN) return r;
        assert_true(result.wants_k > k);
        r.k = result.wants_k;
    }
    fail();
    return r;
}

static void random_logits(float *x, uint32_t n, double spread, int steps)
{
    for (uint32_t i = 0; i < n; i++) {
        double v = (drand48() + drand48() + drand48() - 1.5) * spread;
        x[i] = (float)(steps ? round(v * steps) / steps : v); /* coarse steps give ties */
    }
}

static void test_same_token_for_any_shards(void **state)
{
    (void)state;
    static float x[VOCABULARY];
    static const uint32_t shards[] = {1, 2, 3, 5, 7, 64};
    static const SamplerBias bias[] = {{3, 4.0f}, {500, -100.0f}, {1002, 2.5f}, {3, -1.0f}};
    uint32_t text[] = {5, 9, 1002, 5, 700, 5, 3};
    SamplerParams sets[] = {
        {.temperature = 0, .top_p = 1, .repetition_penalty = 1},
        {.temperature = 1, .top_p = 1, .repetition_penalty = 1},
        {.temperature = 0.7f, .top_p = 0.9f, .repetition_penalty = 1.1f},
        {.temperature = 1.5f, .top_p = 0.999f, .min_p = 0.01f, .repetition_penalty = 1},
        {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repetition_penalty = 1},
        {.temperature = 3.0f, .top_k = 5000, .top_p = 1, .repetition_penalty = 1, .frequency_penalty = 0.5f},
        {.temperature = 100.0f, .top_p = 1, .repetition_penalty = 1, .presence_penalty = -1},
        {.temperature = 0.01f, .top_p = 0.5f, .repetition_penalty = 1.3f},
        {.temperature = 1, .top_p = 1, .min_p = 0.2f, .repetition_penalty = 1},
    };
    for (size_t set = 0; set < sizeof sets / sizeof sets[0]; set++)
        for (uint64_t position = 0; position < 60; position++) {
            SamplerParams p = sets[set];
            random_logits(x, VOCABULARY, 8, position % 2 ? 2 : 0);
            p.seed = 1234, p.bias = bias, p.bias_count = set % 2 ? 4 : 0;
            Step one = step(&p, x, VOCABULARY, 1, text, 7, position, 0);
            assert_int_equal(one.error, OK);
            for (size_t s = 0; s < sizeof shards / sizeof shards[0]; s++) {
                Step r = step(&p, x, VOCABULARY, shards[s], text, 7, position, 0);
                assert_int_equal(r.id, one.id);
                assert_memory_equal(&r.log_sum, &one.log_sum, sizeof r.log_sum);
                r = step(&p, x, VOCABULARY, shards[s], text, 7, position, VOCABULARY); /* everything at once */
                assert_int_equal(r.id, one.id);
                r = step(&p, x, VOCABULARY, shards[s], text, 7, position, 1); /* grows from one candidate */
                assert_int_equal(r.id, one.id);
            }
        }
}

static void test_ties_go_to_the_lower_id(void **state)
{
    (void)state;
    float x[100];
    SamplerParams p = sampler_defaults();
    for (int i = 0; i < 100; i++) x[i] = i % 3 == 1 ? 7.0f : -1.0f;
    x[40] = 7.0f;
    for (uint32_t shards = 1; shards <= 7; shards++)
        assert_int_equal(step(&p, x, 100, shards, NULL, 0, 0, 0).id, 1);
    for (int i = 0; i < 100; i++) x[i] = i % 2 ? 0.0f : -0.0f; /* zeros are equal whatever their sign */
    assert_int_equal(step(&p, x, 100, 3, NULL, 0, 0, 0).id, 0);
    SamplerCandidate top[10];
    assert_int_equal(sampler_top(x, 100, 50, 10, top), 10);
    for (uint32_t i = 0; i < 10; i++) assert_int_equal(top[i].id, 50 + i);
}

static int descending(const void *a, const void *b)
{
    const SamplerCandidate *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static void test_top_against_sort(void **state)
{
    (void)state;
    static float x[VOCABULARY];
    static SamplerCandidate want[VOCABULARY], got[VOCABULARY];
    for (int round = 0; round < 200; round++) {
        uint32_t n = 1 + (uint32_t)(drand48() * (VOCABULARY - 1)), k = 1 + (uint32_t)(drand48() * 2 * n);
        random_logits(x, n, 10, round % 3);
        for (uint32_t i = 0; i < n; i++) want[i] = (SamplerCandidate){i + 7, x[i]};
        qsort(want, n, sizeof *want, descending);
        uint32_t count = sampler_top(x, n, 7, k, got);
        assert_int_equal(count, k < n ? k : n);
        for (uint32_t i = 0; i < count; i++) assert_int_equal(got[i].id, want[i].id);
    }
    assert_int_equal(sampler_top(x, 0, 0, 5, got), 0);
    assert_int_equal(sampler_top(x, 5, 0, 0, got), 0);
}

/* ---- distributions ------------------------------------------------------------------------------------------- */

/* Chi-square of `draws` draws against p[0..n); the limit is far in the tail (p < 1e-5) for the given degrees. */
static void check_distribution(const SamplerParams *params, const float *logits, uint32_t n, const double *p)
{
    enum { DRAWS = 20000 };
    static uint32_t hits[VOCABULARY];
    double chi = 0;
    int cells = 0;
    memset(hits, 0, sizeof hits);
    for (uint64_t i = 0; i < DRAWS; i++) hits[step(params, logits, n, 2, NULL, 0, i, 0).id]++;
    for (uint32_t i = 0; i < n; i++) {
        if (p[i] == 0) {
            assert_int_equal(hits[i], 0);
            continue;
        }
        double expected = p[i] * DRAWS;
        chi += (hits[i] - expected) * (hits[i] - expected) / expected;
        cells++;
    }
    double freedom = cells > 1 ? cells - 1 : 1;
    assert_true(chi < freedom + 4.5 * sqrt(2 * freedom) + 8);
}

static void test_distributions(void **state)
{
    (void)state;
    static const float x[8] = {1.0f, 3.0f, 2.0f, 0.5f, 2.5f, -1.0f, 3.0f, 0.0f};
    double p[8], sum = 0;
    SamplerParams s = sampler_defaults();
    s.temperature = 0.8f, s.seed = 42;
    for (int i = 0; i < 8; i++) sum += p[i] = exp(x[i] / 0.8);
    for (int i = 0; i < 8; i++) p[i] /= sum;
    check_distribution(&s, x, 8, p); /* everything off */

    s.top_k = 3; /* 1, 6 (tie, lower id first), 4 */
    double three[8] = {0};
    three[1] = three[6] = exp(3 / 0.8), three[4] = exp(2.5 / 0.8);
    sum = three[1] + three[6] + three[4];
    for (int i = 0; i < 8; i++) three[i] /= sum;
    check_distribution(&s, x, 8, three);

    s.top_k = 0, s.top_p = 0.75f; /* 1 and 6 have 0.67 of it, so 4 crosses the line and is kept */
    assert_true(p[1] + p[6] < 0.75 && p[1] + p[6] + p[4] > 0.75);
    check_distribution(&s, x, 8, three);

    s.top_p = 1,
    s.min_p = 0.5f; /* at least half of the best: exp(-0.5 / 0.8) = 0.535 stays, exp(-1 / 0.8) goes */
    check_distribution(&s, x, 8, three);

    s.min_p = 0, s.top_k = 3, s.top_p = 0.7f; /* top-p counts within the three: 1 and 6 have 0.79 of them */
    double two[8] = {0};
    two[1] = two[6] = 0.5;
    check_distribution(&s, x, 8, two);
}

static void test_seed_and_position_decide(void **state)
{
    (void)state;
    static float x[VOCABULARY];
    SamplerParams s = sampler_defaults();
    s.temperature = 1.0f;
    random_logits(x, VOCABULARY, 1, 0);
    uint32_t same_seed = 0, same_position = 0;
    for (uint64_t i = 0; i < 300; i++) {
        s.seed = 9;
        uint32_t a = step(&s, x, VOCABULARY, 1, NULL, 0, i, 0).id;
        assert_int_equal(a, step(&s, x, VOCABULARY, 1, NULL, 0, i, 0).id);
        same_position += a == step(&s, x, VOCABULARY, 1, NULL, 0, i + 1, 0).id;
        s.seed = 10;
        same_seed += a == step(&s, x, VOCABULARY, 1, NULL, 0, i, 0).id;
    }
    assert_true(same_seed < 20 && same_position < 20); /* flat over 1003: chance is a fraction of one percent */
}

/* ---- what the parameters mean -------------------------------------------------------------------------------- */

static void test_edges_keep_one(void **state)
{
    (void)state;
    static const float x[5] = {1, 5, 2, 4.9f, 0};
    SamplerParams s = sampler_defaults();
    s.temperature = 100;
    for (int kind = 0; kind < 5; kind++)
        for (uint64_t position = 0; position < 200; position++) {
            SamplerParams t = s;
            if (kind == 0) t.top_k = 1;
            if (kind == 1) t.top_p = 0;
            if (kind == 2) t.min_p = 1;
            if (kind == 3) t.temperature = 0;
            if (kind == 4) t.temperature = 1e-9f;
            assert_int_equal(step(&t, x, 5, 2, NULL, 0, position, 0).id, 1);
        }
    s.top_k = 4000000000u; /* more than there are: off */
    assert_int_equal(step(&s, x, 5, 2, NULL, 0, 3, 0).error, OK);
}

static void test_penalties(void **state)
{
    (void)state;
    float x[6] = {2, -2, 3, 0, 1, -1};
    uint32_t text[] = {0, 1, 1, 4, 1};
    SamplerSeen seen[8];
    SamplerParams p = sampler_defaults();
    assert_int_equal(sampler_count(&p, text, 5, seen, 8), 0); /* nothing to count for */
    p.repetition_penalty = 2, p.frequency_penalty = 0.25f, p.presence_penalty = 0.5f;
    assert_int_equal(sampler_count(&p, text, 5, seen, 8), 3);
    assert_true(seen[0].id == 0 && seen[0].count == 1 && seen[1].id == 1 && seen[1].count == 3 &&
                seen[2].id == 4);
    sampler_adjust(&p, seen, 3, 0, x, 6);
    assert_true(x[0] == 2.0f / 2 - 0.25f - 0.5f);
    assert_true(x[1] == -2.0f * 2 - 0.75f - 0.5f);
    assert_true(x[2] == 3 && x[3] == 0 && x[5] == -1);
    assert_true(x[4] == 1.0f / 2 - 0.25f - 0.5f);
    p.repeat_window = 2;
    assert_int_equal(sampler_count(&p, text, 5, seen, 8), 2);
    assert_true(seen[0].id == 1 && seen[1].id == 4);
    assert_int_equal(sampler_count(&p, text, 0, seen, 8), 0);
    p.repeat_window = 0;
    assert_int_equal(sampler_count(&p, text, 5, seen, 1), 1); /* the buffer holds one: the newest */
    assert_true(seen[0].id == 1);
}

static void test_bias(void **state)
{
    (void)state;
    float x[4] = {1, 1, 1, 1};
    SamplerBias bias[] = {{11, 2}, {12, -100}, {9, 5}, {14, 5}, {13, -99}};
    SamplerParams p = sampler_defaults();
    p.bias = bias, p.bias_count = 5;
    sampler_adjust(&p, NULL, 0, 10, x, 4);
    assert_true(x[0] == 1 && x[1] == 3 && x[2] == -INFINITY && x[3] == -98);
}

static void test_not_finite_is_an_error(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY};
    float x[50];
    for (int kind = 0; kind < 2; kind++)
        for (int at = 0; at < 50; at += 7)
            for (uint32_t shards = 1; shards < 6; shards++)
                for (int greedy = 0; greedy < 2; greedy++) {
                    SamplerParams p = sampler_defaults();
                    p.temperature = greedy ? 0 : 1;
                    for (int i = 0; i < 50; i++) x[i] = (float)i;
                    x[at] = bad[kind];
                    assert_int_equal(step(&p, x, 50, shards, NULL, 0, 0, 0).error, ERR_NOT_FINITE);
                }
    for (int i = 0; i < 50; i++) x[i] = -INFINITY; /* everything forbidden */
    SamplerParams p = sampler_defaults();
    assert_int_equal(step(&p, x, 50, 3, NULL, 0, 0, 0).error, ERR_NOT_FINITE);
    x[31] = -7; /* one is left: it is taken, however the numbers fall */
    p.temperature = 1;
    for (uint64_t i = 0; i < 100; i++) assert_int_equal(step(&p, x, 50, 3, NULL, 0, i, 0).id, 31);
    SamplerResult r;
    Why why;
    assert_int_equal(sampler_pick(&p, NULL, 0, true, NULL, 0, &r, &why), ERR_NOT_FINITE);
}

static void test_asks_for_more(void **state)
{
    (void)state;
    static float x[VOCABULARY];
    SamplerParams p = sampler_defaults();
    memset(x, 0, sizeof x); /* flat: most draws lie behind the first candidates */
    p.temperature = 1, p.seed = 3;
    uint32_t again = 0;
    for (uint64_t i = 0; i < 50; i++) again += step(&p, x, VOCABULARY, 3, NULL, 0, i, 16).asked > 1;
    assert_true(again > 40);
    p.top_p = 0.5f; /* half of a flat vocabulary must be known */
    Step s = step(&p, x, VOCABULARY, 3, NULL, 0, 1, 16);
    assert_true(s.asked > 1 && s.k >= VOCABULARY / 2 && s.id <= VOCABULARY / 2);
    p.top_p = 1, p.top_k = 300;
    s = step(&p, x, VOCABULARY, 3, NULL, 0, 1, 16);
    assert_true(s.asked == 2 && s.k == 300 && s.id < 300);
    assert_int_equal(sampler_first_k(&p, VOCABULARY), 300);
    assert_int_equal(sampler_first_k(&p, 200), 200);
}

static void test_check(void **state)
{
    (void)state;
    Why why;
    SamplerParams p = sampler_defaults();
    assert_int_equal(sampler_check(&p, 100, &why), OK);
#define REFUSED(field, value)                                        \
    do {                                                             \
        SamplerParams bad = sampler_defaults();                      \
        bad.field = value;                                           \
        assert_int_equal(sampler_check(&bad, 100, &why), ERR_RANGE); \
        assert_true(strlen(why.text) > 10);                          \
    } while (0)
    REFUSED(temperature, -1);
    REFUSED(temperature, NAN);
    REFUSED(temperature, 1e9f);
    REFUSED(temperature, INFINITY);
    REFUSED(top_p, -0.1f);
    REFUSED(top_p, 1.5f);
    REFUSED(top_p, NAN);
    REFUSED(min_p, -1);
    REFUSED(min_p, 1.01f);
    REFUSED(repetition_penalty, 0);
    REFUSED(repetition_penalty, -1);
    REFUSED(repetition_penalty, NAN);
    REFUSED(presence_penalty, INFINITY);
    REFUSED(frequency_penalty, NAN);
    REFUSED(repeat_window, 4097);
    static const SamplerBias outside[] = {{100, 1}}, endless[] = {{5, INFINITY}}, fine[] = {{99, -100}};
    static SamplerBias many[SAMPLER_BIAS_MAX + 1];
    p.bias = outside, p.bias_count = 1;
    assert_int_equal(sampler_check(&p, 100, &why), ERR_RANGE);
    p.bias = endless;
    assert_int_equal(sampler_check(&p, 100, &why), ERR_RANGE);
    p.bias = many, p.bias_count = SAMPLER_BIAS_MAX + 1;
    assert_int_equal(sampler_check(&p, 100, &why), ERR_RANGE);
    p.bias = fine, p.bias_count = 1;
    assert_int_equal(sampler_check(&p, 100, &why), OK);
    p.top_p = 0, p.min_p = 1, p.top_k = UINT32_MAX, p.temperature = 1e-9f;
    assert_int_equal(sampler_check(&p, 100, &why), OK);
}

int main(void)
{
    srand48(5);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_token_for_any_shards),
        cmocka_unit_test(test_ties_go_to_the_lower_id),
        cmocka_unit_test(test_top_against_sort),
        cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_seed_and_position_decide),
        cmocka_unit_test(test_edges_keep_one),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_not_finite_is_an_error),
        cmocka_unit_test(test_asks_for_more),
        cmocka_unit_test(test_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
