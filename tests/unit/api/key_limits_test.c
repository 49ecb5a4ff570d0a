/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/key_limits.h"

#define MS 1000000ull
#define SECOND (1000 * MS)
#define START (7 * SECOND)

static KeyLimiter limiter(uint32_t requests, uint32_t tokens, uint32_t concurrent)
{
    KeyLimiter k;
    key_limits_start(&k, &(KeyLimits){requests, tokens, concurrent}, START);
    return k;
}

/* Exactly as many as allowed, then one each time that one has come. */
static void at_the_limit_and_one_over(void **state)
{
    (void)state;
    KeyLimiter k = limiter(60, 0, 0);
    for (int i = 0; i < 60; i++) assert_int_equal(key_limits_take(&k.requests, 1, START), 0);
    assert_int_equal(key_limits_take(&k.requests, 1, START), 1000);
    assert_int_equal(key_limits_left(&k.requests, START), 0);
    assert_int_equal(key_limits_full_ms(&k.requests, START), 60000);
    assert_int_equal(key_limits_take(&k.requests, 1, START + SECOND - 1), 1);
    assert_int_equal(key_limits_take(&k.requests, 1, START + SECOND), 0);
    assert_int_equal(key_limits_take(&k.requests, 1, START + SECOND), 1000);
    assert_int_equal(key_limits_take(&k.requests, 60, START + 61 * SECOND), 0);
    assert_int_equal(key_limits_take(&k.requests, 61, START + 200 * SECOND), KEY_LIMITS_NEVER);
    assert_int_equal(key_limits_left(&k.requests, START + 1000 * SECOND), 60);
}

/* What a look at every tenth of a millisecond sees adds up: nothing of the time is lost. */
static void small_steps_add_up(void **state)
{
    (void)state;
    KeyLimiter k = limiter(0, 1000000, 0);
    assert_int_equal(key_limits_take(&k.tokens, 1000000, START), 0);
    for (uint64_t now = START; now <= START + 6 * SECOND; now += MS / 10)
        (void)key_limits_left(&k.tokens, now);
    assert_int_equal(key_limits_left(&k.tokens, START + 6 * SECOND), 100000);
}

static void no_limits(void **state)
{
    (void)state;
    KeyLimiter k = limiter(0, 0, 0);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(key_limits_take(&k.requests, 1, START), 0);
        assert_int_equal(key_limits_take(&k.tokens, UINT64_MAX, START), 0);
        key_limits_charge(&k.tokens, UINT64_MAX, START);
        assert_true(key_limits_enter(&k));
    }
    assert_int_equal(key_limits_full_ms(&k.tokens, START), 0);
}

/* What is generated is owed; new prompts wait until the debt is paid and they fit. */
static void debts_are_paid_first(void **state)
{
    (void)state;
    KeyLimiter k = limiter(0, 600, 0);
    assert_int_equal(key_limits_take(&k.tokens, 100, START), 0);
    for (int i = 0; i < 700; i++) key_limits_charge(&k.tokens, 1, START);
    assert_int_equal(key_limits_left(&k.tokens, START), 0);
    assert_int_equal(key_limits_take(&k.tokens, 1, START), 20100);
    assert_int_equal(key_limits_full_ms(&k.tokens, START), 80000);
    assert_int_equal(key_limits_take(&k.tokens, 1, START + 20100 * MS - 1), 1);
    assert_int_equal(key_limits_take(&k.tokens, 1, START + 20100 * MS), 0);
    key_limits_charge(&k.tokens, UINT64_MAX, START + 20100 * MS);
    uint64_t wait_ms = key_limits_take(&k.tokens, 1, START + 20100 * MS);
    assert_true(wait_ms > 23 * 3600 * 1000ull && wait_ms < 25 * 3600 * 1000ull);
}

static void clock_that_jumps(void **state)
{
    (void)state;
    KeyLimiter k = limiter(10, 0, 0);
    for (int i = 0; i < 10; i++) assert_int_equal(key_limits_take(&k.requests, 1, START), 0);
    assert_int_equal(key_limits_take(&k.requests, 1, START - 5 * SECOND), 6000);
    assert_int_equal(key_limits_take(&k.requests, 1, 0), 6000);
    assert_int_equal(key_limits_take(&k.requests, 1, 6 * SECOND), 0); /* goes on from there */
    assert_int_equal(key_limits_take(&k.requests, 1, 6 * SECOND), 6000);
    assert_int_equal(key_limits_left(&k.requests, UINT64_MAX), 10);
}

static void extremes(void **state)
{
    (void)state;
    KeyLimiter k = limiter(1000000000, 1, 0);
    assert_int_equal(key_limits_take(&k.requests, 1000000000, UINT64_MAX), 0);
    assert_int_equal(key_limits_take(&k.requests, 1, UINT64_MAX), 1);
    for (int i = 0; i < 5000; i++) key_limits_charge(&k.requests, UINT64_MAX, UINT64_MAX);
    assert_int_equal(key_limits_left(&k.requests, 0), 0);
    key_limits_change(&k, &(KeyLimits){1, 1000000000, 1}, 0);
    assert_int_equal(key_limits_left(&k.requests, 0), 0);
    assert_int_equal(key_limits_left(&k.tokens, 0), 1000000000);
}

static void requests_at_once(void **state)
{
    (void)state;
    KeyLimiter k = limiter(0, 0, 2);
    assert_true(key_limits_enter(&k));
    assert_true(key_limits_enter(&k));
    assert_false(key_limits_enter(&k));
    key_limits_leave(&k);
    assert_true(key_limits_enter(&k));
    key_limits_change(&k, &(KeyLimits){0, 0, 1}, START);
    key_limits_leave(&k);
    assert_false(key_limits_enter(&k)); /* one is still there */
    key_limits_leave(&k);
    assert_true(key_limits_enter(&k));
}

/* Half full stays half full; without a limit before, it begins full. */
static void limits_that_change(void **state)
{
    (void)state;
    KeyLimiter k = limiter(100, 0, 0);
    assert_int_equal(key_limits_take(&k.requests, 50, START), 0);
    key_limits_change(&k, &(KeyLimits){1000, 40, 0}, START);
    assert_int_equal(key_limits_left(&k.requests, START), 500);
    assert_int_equal(key_limits_left(&k.tokens, START), 40);
    key_limits_change(&k, &(KeyLimits){10, 0, 0}, START);
    assert_int_equal(key_limits_left(&k.requests, START), 5);
    assert_int_equal(key_limits_take(&k.tokens, 41, START), 0);
}

static void durations(void **state)
{
    (void)state;
    static const struct {
        uint64_t ms;
        const char *text;
    } cases[] = {{0, "0ms"},
                 {1, "1ms"},
                 {999, "999ms"},
                 {1000, "1s"},
                 {1500, "1.5s"},
                 {8640, "8.64s"},
                 {1007, "1.007s"},
                 {60000, "1m0s"},
                 {360000, "6m0s"},
                 {59999, "59.999s"},
                 {61020, "1m1.02s"},
                 {3600000, "60m0s"},
                 {UINT64_MAX, "1438560m0s"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[KEY_LIMITS_DURATION_BYTES];
        key_limits_write_duration(cases[i].ms, text);
        assert_string_equal(text, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_the_limit_and_one_over),
        cmocka_unit_test(small_steps_add_up),
        cmocka_unit_test(no_limits),
        cmocka_unit_test(debts_are_paid_first),
        cmocka_unit_test(clock_that_jumps),
        cmocka_unit_test(extremes),
        cmocka_unit_test(requests_at_once),
        cmocka_unit_test(limits_that_change),
        cmocka_unit_test(durations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
