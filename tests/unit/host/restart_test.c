/* SPDX-License-Identifier: Apache-2.0 */
/* When a process that died is started again. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "host/restart.h"

static void delays_double_and_calm_down(void **state)
{
    (void)state;
    static const uint32_t expected[] = {100, 200, 400, 800, 1600, 3200, 5000, 5000};
    Restart r = {0};
    uint64_t now = 1000;
    uint32_t delay;
    for (int i = 0; i < 8; i++) {
        restart_started(&r, now);
        restart_well(&r);
        assert_true(restart_died(&r, 137, now += 10, &delay));
        assert_int_equal(delay, expected[i]);
    }
    restart_started(&r, now);
    restart_well(&r);
    assert_true(restart_died(&r, 1, now += RESTART_CALM_MS, &delay));
    assert_int_equal(delay, 100);
    restart_started(&r, now);
    restart_well(&r);
    assert_true(restart_died(&r, 1, now += RESTART_CALM_MS - 1, &delay));
    assert_int_equal(delay, 200);
}

static void what_cannot_work_is_given_up(void **state)
{
    (void)state;
    Restart r = {0};
    uint32_t delay;
    restart_started(&r, 0);
    assert_false(restart_died(&r, 2, 1, &delay)); /* wrong usage: at once */
    r = (Restart){0};
    for (int i = 0; i < RESTART_USELESS_MAX - 1; i++) {
        restart_started(&r, 0);
        assert_true(restart_died(&r, 1, 10, &delay));
    }
    Restart once_well = r;
    restart_started(&r, 0);
    assert_false(restart_died(&r, 137, 10, &delay)); /* never well, whatever ended it */
    restart_started(&once_well, 0);
    restart_well(&once_well); /* counts from the beginning */
    assert_true(restart_died(&once_well, 1, 10, &delay));
    for (int i = 0; i < RESTART_USELESS_MAX - 1; i++) {
        restart_started(&once_well, 0);
        assert_true(restart_died(&once_well, 1, 10, &delay));
    }
    restart_started(&once_well, 0);
    assert_false(restart_died(&once_well, 1, 10, &delay));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delays_double_and_calm_down),
        cmocka_unit_test(what_cannot_work_is_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
