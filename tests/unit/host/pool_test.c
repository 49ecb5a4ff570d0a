/* SPDX-License-Identifier: Apache-2.0 */
/* The pool runs every item exactly once, whatever the counts; costs nothing while it waits; and
 * survives a storm of jobs. The storm is also what -fsanitize=thread looks at. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/memory.h"
#include "host/pool.h"

enum { ITEMS_MAX = 200000 };

typedef struct Count {
    uint32_t workers;
    atomic_uint inside[PARALLEL_WORKERS_MAX]; /* items that run on one worker at once */
    uint8_t runs[ITEMS_MAX]; /* not atomic: a double run is a race that TSan shows */
    atomic_bool bad;
} Count;

static Count count;

static void count_item(void *argument, uint32_t item, uint32_t worker)
{
    Count *c = argument;
    if (worker >= c->workers || item >= ITEMS_MAX) {
        atomic_store(&c->bad, true);
        return;
    }
    if (atomic_fetch_add(&c->inside[worker], 1) != 0) atomic_store(&c->bad, true);
    c->runs[item]++;
    atomic_fetch_sub(&c->inside[worker], 1);
}

static void check_job(const Parallel *p, uint32_t items)
{
    memset(count.runs, 0, sizeof count.runs);
    count.workers = p->workers;
    parallel_run(p, count_item, &count, items);
    assert_false(atomic_load(&count.bad));
    for (uint32_t i = 0; i < ITEMS_MAX; i++) assert_int_equal(count.runs[i], i < items);
}

static void every_item_runs_once(void **state)
{
    (void)state;
    static const uint32_t workers[] = {1, 2, 3, 4, 7, 16, 64};
    static const uint32_t items[] = {0,  1,    2,     3,     5,      63,       64,
                                     65, 1000, 65535, 65536, 131071, ITEMS_MAX};
    for (size_t w = 0; w < sizeof workers / sizeof workers[0]; w++) {
        Pool *pool;
        assert_int_equal(pool_start(workers[w], &pool, NULL), OK);
        Parallel p = pool_parallel(pool);
        assert_int_equal(p.workers, workers[w]);
        for (size_t i = 0; i < sizeof items / sizeof items[0]; i++) check_job(&p, items[i]);
        pool_stop(pool);
    }
}

static void counts_out_of_range_are_refused(void **state)
{
    (void)state;
    Pool *pool = NULL;
    Why why = {{0}};
    assert_int_equal(pool_start(0, &pool, &why), ERR_RANGE);
    assert_int_equal(pool_start(65, &pool, &why), ERR_RANGE);
    assert_non_null(strstr(why.text, "65"));
    assert_null(pool);
    pool_stop(NULL);
}

typedef struct Sum {
    uint64_t parts[PARALLEL_WORKERS_MAX][8];
    const uint32_t *input;
} Sum;

static void sum_item(void *argument, uint32_t item, uint32_t worker)
{
    Sum *s = argument;
    s->parts[worker][0] += s->input[item];
}

/* Many tiny jobs with changing sizes: stale claims, late threads and sleepers all occur. What a job
 * wrote is visible to the caller without further care, and what the caller wrote to the job. */
static void storm(void **state)
{
    (void)state;
    Pool *pool;
    assert_int_equal(pool_start(4, &pool, NULL), OK);
    Parallel p = pool_parallel(pool);
    uint32_t input[97];
    uint64_t random = 1;
    for (uint32_t job = 0; job < 20000; job++) {
        Sum sum;
        memset(&sum, 0, sizeof sum);
        sum.input = input;
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint32_t items = (uint32_t)(random >> 33) % 97;
        uint64_t expected = 0, got = 0;
        for (uint32_t i = 0; i < items; i++) expected += input[i] = job + i;
        parallel_run(&p, sum_item, &sum, items);
        for (uint32_t w = 0; w < p.workers; w++) got += sum.parts[w][0];
        assert_int_equal(got, expected);
        if (job % 1000 == 0) usleep(200); /* let the threads fall asleep */
    }
    pool_stop(pool);
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void waiting_costs_nothing(void **state)
{
    (void)state;
    Pool *pool;
    assert_int_equal(pool_start(16, &pool, NULL), OK);
    Parallel p = pool_parallel(pool);
    check_job(&p, 1000);
    usleep(20000);
    uint64_t before = cpu_ns();
    usleep(300000);
    uint64_t used = cpu_ns() - before;
    pool_stop(pool);
    assert_true(used < 10000000); /* 10 ms of 300 ms x 16 */
}

static void spin_item(void *argument, uint32_t item, uint32_t worker)
{
    (void)worker;
    atomic_uint *busy = argument;
    if (item == 0) usleep(50000);
    atomic_fetch_add(busy, 1);
}

/* One slow item holds up nobody but the caller, who sleeps meanwhile; the others are stolen. */
static void slow_item_is_waited_for(void **state)
{
    (void)state;
    Pool *pool;
    assert_int_equal(pool_start(2, &pool, NULL), OK);
    Parallel p = pool_parallel(pool);
    atomic_uint busy = 0;
    for (int i = 0; i < 3; i++) parallel_run(&p, spin_item, &busy, 64);
    assert_int_equal(atomic_load(&busy), 3 * 64);
    pool_stop(pool);
}

/* Threads are cheap: 63 more of them take little memory. In a child, so that VmRSS is not the
 * tests' before. */
static void threads_take_little_memory(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    skip();
#endif
#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
    skip();
#endif
#endif
    pid_t child = fork();
    if (child == 0) {
        uint64_t before = memory_resident();
        Pool *pool;
        if (pool_start(64, &pool, NULL) != OK) _exit(2);
        Parallel p = pool_parallel(pool);
        count.workers = 64;
        for (int i = 0; i < 100; i++) parallel_run(&p, count_item, &count, 64);
        uint64_t after = memory_resident();
        _exit(after - before > 64 * 48 * 1024 ? 1 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void nested_item(void *argument, uint32_t item, uint32_t worker)
{
    (void)item;
    (void)worker;
    parallel_run(argument, count_item, &count, 4);
}

static void use_from_inside_a_job_aborts(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        /* The test library catches these and would go on with the next test. */
        signal(SIGABRT, SIG_DFL);
        signal(SIGILL, SIG_DFL);
        signal(SIGTRAP, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr)) _exit(0);
        Pool *pool;
        if (pool_start(1, &pool, NULL) != OK) _exit(2);
        Parallel p = pool_parallel(pool);
        parallel_run(&p, nested_item, &p, 1);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_runs_once),
        cmocka_unit_test(counts_out_of_range_are_refused),
        cmocka_unit_test(storm),
        cmocka_unit_test(waiting_costs_nothing),
        cmocka_unit_test(slow_item_is_waited_for),
        cmocka_unit_test(threads_take_little_memory),
        cmocka_unit_test(use_from_inside_a_job_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
