/* SPDX-License-Identifier: Apache-2.0 */
/* A wait by the steady clock ends when its moment has come, or sooner when the condition has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "host/clock.h"

static pthread_cond_t condition;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool there;

static void test_by_the_steady_clock(void **state)
{
    (void)state;
    clock_condition(&condition);
    pthread_mutex_lock(&lock);
    uint64_t begin = clock_now_ns();
    assert_false(clock_wait_until(&condition, &lock, begin + 30000000));
    uint64_t took = clock_now_ns() - begin;
    assert_in_range(took, 30000000, 20000000000u);
    assert_false(clock_wait_until(&condition, &lock, 0)); /* long ago */
    pthread_mutex_unlock(&lock);
}

static void *tell(void *unused)
{
    pthread_mutex_lock(&lock);
    there = true;
    pthread_cond_broadcast(&condition);
    pthread_mutex_unlock(&lock);
    return unused;
}

static void test_told_before(void **state)
{
    (void)state;
    pthread_t thread;
    clock_condition(&condition);
    pthread_mutex_lock(&lock);
    assert_int_equal(pthread_create(&thread, NULL, tell, NULL), 0);
    uint64_t until = clock_now_ns() + 60000000000u;
    while (!there) assert_true(clock_wait_until(&condition, &lock, until));
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_by_the_steady_clock),
                                       cmocka_unit_test(test_told_before)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
