/* SPDX-License-Identifier: Apache-2.0 */
/* How many guesses are worth their cost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cluster/draft_length.h"

enum { MAX = 16, PASS_NS = 20000000 };

static DraftLength make(uint64_t guess_ns)
{
    DraftLength d = {0};
    draft_length_time_pass(&d, PASS_NS);
    draft_length_time_guesses(&d, guess_ns, 1);
    return d;
}

/* Of every `of` guesses looked at, one is wrong. */
static void teach(DraftLength *d, uint32_t of)
{
    for (int i = 0; i < 60; i++) draft_length_learn(d, of, of - 1);
}

static void begins_with_a_few(void **state)
{
    (void)state;
    DraftLength d = {0};
    assert_int_equal(draft_length_choose(&d, MAX, 1), DRAFT_LENGTH_FIRST);
    assert_int_equal(draft_length_choose(&d, 2, 1), 2);
    assert_int_equal(draft_length_choose(&d, 0, 1), 0);
}

static void better_guesses_are_longer(void **state)
{
    (void)state;
    uint32_t before = 0;
    for (uint32_t of = 2; of <= 32; of *= 2) {
        DraftLength d = make(PASS_NS / 10);
        teach(&d, of);
        uint32_t length = draft_length_choose(&d, MAX, 1);
        assert_true(length > before);
        before = length;
    }
    DraftLength sure = make(PASS_NS / 10);
    for (int i = 0; i < 200; i++) draft_length_learn(&sure, 8, 8);
    assert_int_equal(draft_length_choose(&sure, MAX, 1), MAX);
}

static void dearer_guesses_are_fewer(void **state)
{
    (void)state;
    static const uint32_t shares[] = {100, 20, 5, 3, 2};
    uint32_t before = MAX + 1;
    for (int i = 0; i < 5; i++) {
        DraftLength d = make(PASS_NS / shares[i]);
        teach(&d, 5); /* four of five are right */
        uint32_t length = draft_length_choose(&d, MAX, 1);
        assert_true(length < before);
        assert_true(length > 0);
        before = length;
    }
    DraftLength d = make(PASS_NS); /* as dear as the tokens themselves */
    teach(&d, 5);
    assert_int_equal(draft_length_choose(&d, MAX, 1), 0);
}

/* Guesses for several answers are made one after the other, while their pass is one. */
static void more_answers_make_fewer(void **state)
{
    (void)state;
    uint32_t before = MAX + 1;
    for (uint32_t answers = 1; answers <= 8; answers *= 2) {
        DraftLength d = make(PASS_NS / 12);
        teach(&d, 8);
        uint32_t length = draft_length_choose(&d, MAX, answers);
        assert_true(length < before);
        before = length;
    }
}

static void what_does_not_help_rests_and_is_tried_again(void **state)
{
    (void)state;
    DraftLength d = make(PASS_NS / 2);
    for (int i = 0; i < 60; i++) draft_length_learn(&d, 4, 0);
    assert_int_equal(draft_length_choose(&d, MAX, 1), 0);
    for (int i = 1; i < DRAFT_LENGTH_REST; i++)
        assert_int_equal(draft_length_choose(&d, MAX, 1), 0);
    assert_int_equal(draft_length_choose(&d, MAX, 1), DRAFT_LENGTH_FIRST);
    assert_int_equal(draft_length_choose(&d, MAX, 1), 0); /* nothing new was learned */
    for (int i = 0; i < 10; i++) draft_length_learn(&d, 4, 4);
    d.resting = 0;
    assert_true(draft_length_choose(&d, MAX, 1) > 0);
}

static void times_follow(void **state)
{
    (void)state;
    DraftLength d = make(1000);
    draft_length_time_pass(&d, 10 * (uint64_t)PASS_NS); /* something else happened in between */
    assert_true(d.pass_ns > PASS_NS && d.pass_ns < PASS_NS + PASS_NS / 8);
    for (int i = 0; i < 100; i++) draft_length_time_pass(&d, 2 * (uint64_t)PASS_NS);
    assert_int_equal(d.pass_ns, 2 * PASS_NS);
    draft_length_time_pass(&d, PASS_NS);
    assert_int_equal(d.pass_ns, PASS_NS);
    draft_length_time_guesses(&d, 1, 0);
    assert_int_equal(d.guess_ns, 1000);
    for (int i = 0; i < 60; i++) draft_length_time_guesses(&d, 12000, 3);
    assert_in_range(d.guess_ns, 3900, 4000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begins_with_a_few),
        cmocka_unit_test(better_guesses_are_longer),
        cmocka_unit_test(dearer_guesses_are_fewer),
        cmocka_unit_test(more_answers_make_fewer),
        cmocka_unit_test(what_does_not_help_rests_and_is_tried_again),
        cmocka_unit_test(times_follow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
