/* SPDX-License-Identifier: Apache-2.0 */
/* One 64-bit word per worker holds what is left of its part; every claim is one compare-and-swap.
 *
 *    63          32 31      16 15       0
 *   | epoch        | low      | high     |     units low..high-1 are free; the owner takes low, a
 *                                              thief high - 1
 *
 * Invariants
 *   1. The epoch grows with every job, so a claim that was prepared during one job cannot succeed
 *      in another.
 *   2. Whoever claimed a unit may read `job`: the caller writes it only when all units of the job
 *      before have finished, that is when `finished` has reached their number.
 *   3. A worker adds what it finished before it looks for the next job.
 *   4. All words are empty between jobs.
 *
 * A unit is one item, or several when there are more than 65,535 of them. */
#include "host/pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/clock.h"
#include "host/cpu.h"

enum {
    POOL_UNITS_MAX = 65535,
    POOL_SPIN_NS = 20000,
    POOL_SPIN_PAUSES = 16,        /* between looks at the clock */
    POOL_STACK_BYTES = 256 << 10, /* of address space; memory is what is touched, some 12 KiB */
    POOL_LINE_BYTES = 64
};

typedef struct PoolPart {
    _Alignas(POOL_LINE_BYTES) _Atomic uint64_t word;
} PoolPart;

typedef struct PoolThread {
    Pool *pool;
    pthread_t thread;
    uint32_t worker;
} PoolThread;

struct Pool {
    uint32_t workers, spin_ns;
    struct {
        ParallelJob function;
        void *argument;
        uint32_t items, items_per_unit, units;
    } job;
    uint32_t epoch; /* the caller's */
    atomic_bool running;
    _Alignas(POOL_LINE_BYTES) _Atomic uint32_t
        posted;                /* changes with every job; idle threads sleep on it */
    _Atomic uint32_t sleeping; /* threads that are, or are about to be, asleep */
    atomic_bool stopping;
    _Alignas(
        POOL_LINE_BYTES) _Atomic uint32_t finished; /* units of this job; the caller sleeps on it */
    _Atomic uint32_t caller_sleeps;
    PoolThread *threads; /* workers - 1 */
    PoolPart parts[];    /* workers */
};

static void pool_futex(_Atomic uint32_t *word, int operation, uint32_t value)
{
    (void)syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static void pool_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits a little for `word` to differ from `seen` (or, with `equal`, to become it). Result  whether
 * it did. */
static bool pool_spin(const Pool *pool, const _Atomic uint32_t *word, uint32_t seen, bool equal)
{
    uint64_t end = 0;
    for (;;) {
        for (int i = 0; i < POOL_SPIN_PAUSES; i++) {
            if ((atomic_load_explicit(word, memory_order_acquire) == seen) == equal) return true;
            pool_pause();
        }
        if (pool->spin_ns == 0) return false;
        uint64_t now = clock_now_ns();
        if (end == 0) end = now + pool->spin_ns;
        if (now >= end) return false;
    }
}

static uint64_t pool_word(uint32_t epoch, uint32_t low, uint32_t high)
{
    return (uint64_t)epoch << 32 | low << 16 | high;
}

/* Takes one unit of a part, from the front or the back. */
static bool pool_claim(PoolPart *part, bool back, uint32_t *unit)
{
    uint64_t word = atomic_load_explicit(&part->word, memory_order_relaxed);
    for (;;) {
        uint32_t epoch = (uint32_t)(word >> 32), low = (uint32_t)(word >> 16) & 0xffff,
                 high = (uint32_t)word & 0xffff;
        if (low == high) return false;
        uint64_t next = back ? pool_word(epoch, low, high - 1) : pool_word(epoch, low + 1, high);
        if (atomic_compare_exchange_weak_explicit(&part->word, &word, next, memory_order_acq_rel,
                                                  memory_order_relaxed)) {
            *unit = back ? high - 1 : low;
            return true;
        }
    }
}

static void pool_run_unit(Pool *pool, uint32_t unit, uint32_t worker)
{
    uint32_t step = pool->job.items_per_unit, items = pool->job.items;
    uint32_t first = unit * step;
    uint32_t end = items - first < step ? items : first + step;
    for (uint32_t item = first; item < end; item++)
        pool->job.function(pool->job.argument, item, worker);
}

/* Works until no part has a free unit. Result  how many units it ran. */
static uint32_t pool_work(Pool *pool, uint32_t worker)
{
    uint32_t done = 0, unit;
    while (pool_claim(&pool->parts[worker], false, &unit)) {
        pool_run_unit(pool, unit, worker);
        done++;
    }
    for (uint32_t i = 1; i < pool->workers; i++) {
        uint32_t other = worker + i < pool->workers ? worker + i : worker + i - pool->workers;
        while (pool_claim(&pool->parts[other], true, &unit)) {
            pool_run_unit(pool, unit, worker);
            done++;
        }
    }
    return done;
}

static void pool_finish(Pool *pool, uint32_t done)
{
    /* Nothing of the job may be read after this addition: the caller may be at the next one. */
    if (done == 0) return;
    (void)atomic_fetch_add(&pool->finished, done);
    if (atomic_load(&pool->caller_sleeps)) pool_futex(&pool->finished, FUTEX_WAKE, 1);
}

static void *pool_thread(void *argument)
{
    const PoolThread *self = argument;
    Pool *pool = self->pool;
    uint32_t seen = 0;
    while (!atomic_load(&pool->stopping)) {
        uint32_t posted = atomic_load_explicit(&pool->posted, memory_order_acquire);
        if (posted != seen) {
            seen = posted;
            pool_finish(pool, pool_work(pool, self->worker));
        } else if (!pool_spin(pool, &pool->posted, seen, false)) {
            (void)atomic_fetch_add(&pool->sleeping, 1);
            pool_futex(&pool->posted, FUTEX_WAIT,
                       seen); /* returns at once when a job came in between */
            (void)atomic_fetch_sub(&pool->sleeping, 1);
        }
    }
    return NULL;
}

/* Lays out the parts and wakes as many threads as there is work for. */
static void pool_post(Pool *pool, ParallelJob job, void *argument, uint32_t items)
{
    uint32_t step = items / POOL_UNITS_MAX + (items % POOL_UNITS_MAX != 0);
    uint32_t units = items / step + (items % step != 0);
    pool->job.function = job;
    pool->job.argument = argument;
    pool->job.items = items;
    pool->job.items_per_unit = step;
    pool->job.units = units;
    atomic_store_explicit(&pool->finished, 0, memory_order_relaxed);
    pool->epoch++;
    for (uint32_t i = 0; i < pool->workers; i++) {
        uint32_t low = (uint32_t)((uint64_t)units * i / pool->workers);
        uint32_t high = (uint32_t)((uint64_t)units * (i + 1) / pool->workers);
        atomic_store_explicit(&pool->parts[i].word, pool_word(pool->epoch, low, high),
                              memory_order_release);
    }
    (void)atomic_fetch_add(&pool->posted, 1);
    uint32_t sleeping = atomic_load(&pool->sleeping);
    if (sleeping)
        pool_futex(&pool->posted, FUTEX_WAKE, units - 1 < sleeping ? units - 1 : sleeping);
}

static void pool_wait(Pool *pool)
{
    uint32_t units = pool->job.units;
    while (!pool_spin(pool, &pool->finished, units, true)) {
        atomic_store(&pool->caller_sleeps, 1);
        uint32_t finished = atomic_load(&pool->finished);
        if (finished != units) pool_futex(&pool->finished, FUTEX_WAIT, finished);
        atomic_store(&pool->caller_sleeps, 0);
    }
}

static void pool_run(void *self, ParallelJob job, void *argument, uint32_t items)
{
    Pool *pool = self;
    ASSERT(!atomic_exchange(&pool->running, true));
    if (pool->workers == 1 || items <= 1) {
        for (uint32_t item = 0; item < items; item++) job(argument, item, 0);
    } else {
        pool_post(pool, job, argument, items);
        pool_finish(pool, pool_work(pool, 0));
        pool_wait(pool);
    }
    atomic_store(&pool->running, false);
}

Parallel pool_parallel(Pool *pool)
{
    return (Parallel){.run = pool_run, .pool = pool, .workers = pool->workers};
}

static int pool_start_thread(Pool *pool, uint32_t index)
{
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return ENOMEM;
    size_t stack = POOL_STACK_BYTES;
    long least = sysconf(_SC_THREAD_STACK_MIN); /* grows with the processor's registers */
    if (least > 0 && stack < (size_t)least * 2) stack = (size_t)least * 2;
    (void)pthread_attr_setstacksize(&attributes, stack);
    /* Signals are the main thread's: it is the one that looks at stop_asked. */
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)sigdelset(&all, SIGBUS); /* of the thread that meets it: file_guard.h */
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    PoolThread *t = &pool->threads[index];
    *t = (PoolThread){.pool = pool, .worker = index + 1};
    int failed = pthread_create(&t->thread, &attributes, pool_thread, t);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    (void)pthread_attr_destroy(&attributes);
    return failed;
}

/* Ends the first `count` threads and frees the pool. */
static void pool_end(Pool *pool, uint32_t count)
{
    atomic_store(&pool->stopping, true);
    (void)atomic_fetch_add(&pool->posted, 1);
    pool_futex(&pool->posted, FUTEX_WAKE, INT_MAX);
    for (uint32_t i = 0; i < count; i++) (void)pthread_join(pool->threads[i].thread, NULL);
    free(pool->threads);
    free(pool);
}

Error pool_start(uint32_t workers, Pool **out, Why *why)
{
    if (workers < 1 || workers > PARALLEL_WORKERS_MAX)
        return error_why(why, ERR_RANGE, "%u threads, allowed are 1 to %d", workers,
                         PARALLEL_WORKERS_MAX);
    size_t bytes = sizeof(Pool) + workers * sizeof(PoolPart);
    Pool *pool = aligned_alloc(POOL_LINE_BYTES, bytes + (-bytes & (POOL_LINE_BYTES - 1)));
    if (!pool) return error_why(why, ERR_MEMORY, "no memory for a pool of %u threads", workers);
    memset(pool, 0, bytes);
    pool->workers = workers;
    /* More threads than processors: whoever spins keeps another from working. */
    pool->spin_ns = workers <= cpu_cores() ? POOL_SPIN_NS : 0;
    pool->threads = calloc(workers, sizeof *pool->threads);
    if (!pool->threads) {
        free(pool);
        return error_why(why, ERR_MEMORY, "no memory for a pool of %u threads", workers);
    }
    for (uint32_t i = 0; i + 1 < workers; i++) {
        if (pool_start_thread(pool, i) == 0) continue;
        pool_end(pool, i);
        return error_why(why, ERR_MEMORY, "cannot start thread %u of %u: use fewer --threads.",
                         i + 2, workers);
    }
    *out = pool;
    return OK;
}

void pool_stop(Pool *pool)
{
    if (pool) pool_end(pool, pool->workers - 1);
}
