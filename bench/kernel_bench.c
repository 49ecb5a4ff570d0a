/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of every kernel beside the machine's raw read bandwidth.
 *
 *   kernel_bench [--threads N] [--isa NAME] [--type NAME] [--tokens LIST] [--cols N] [--megabytes N] [--ms N]
 *                [--rounds N]
 *
 * One token streams the weights from memory (GB/s is what counts); many tokens compute (GMAC/s). Each figure is the
 * fastest run of its round; rounds alternate over all cases, and the best round is printed, because other programs
 * run on the machine too. Not part of any test. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "quant/measure.h"

/* ---- a pool that spins: nothing else is measured here ---- */

typedef struct Pool {
    _Atomic uint32_t epoch, next, done;
    ParallelJob job;
    void *argument;
    uint32_t items, workers;
} Pool;

typedef struct Thread {
    Pool *pool;
    uint32_t worker;
} Thread;

static void pool_work(Pool *pool, uint32_t worker)
{
    for (uint32_t item; (item = atomic_fetch_add(&pool->next, 1)) < pool->items;)
        pool->job(pool->argument, item, worker);
    atomic_fetch_add(&pool->done, 1);
}

static void *thread_main(void *argument)
{
    Thread *thread = argument;
    for (uint32_t epoch = 0;; epoch++) {
        while (atomic_load(&thread->pool->epoch) == epoch) __builtin_ia32_pause();
        pool_work(thread->pool, thread->worker);
    }
    return NULL;
}

static void pool_run(void *context, ParallelJob job, void *argument, uint32_t items)
{
    Pool *pool = context;
    pool->job = job, pool->argument = argument, pool->items = items;
    atomic_store(&pool->next, 0);
    atomic_store(&pool->done, 0);
    atomic_fetch_add(&pool->epoch, 1);
    pool_work(pool, 0);
    while (atomic_load(&pool->done) < pool->workers) __builtin_ia32_pause();
}

static uint64_t now_ns(void *context)
{
    struct timespec t;
    clock_gettime(context ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* With one thread its own CPU time counts, so that other programs on the machine disturb less. */
static MeasureClock clock_for(uint32_t threads)
{
    static int cpu_time;
    return (MeasureClock){now_ns, threads == 1 ? &cpu_time : NULL};
}

/* ---- options ---- */

typedef struct Options {
    uint32_t threads, cols, ms, rounds, tokens[16], tokens_count;
    size_t megabytes;
    const char *isa, *type;
} Options;

static void parse_tokens(const char *text, Options *o)
{
    o->tokens_count = 0;
    for (char *end; *text && o->tokens_count < 16; text = *end ? end + 1 : end)
        o->tokens[o->tokens_count++] = (uint32_t)strtoul(text, &end, 10);
}

static uint32_t number(const char *text) { return (uint32_t)strtoul(text, NULL, 10); }

static Options parse(int argc, char **argv)
{
    Options o = {2, 1536, 60, 3, {1, 4, 8, 64}, 4, 96, NULL, NULL};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--threads")) o.threads = number(argv[i + 1]);
        else if (!strcmp(argv[i], "--cols")) o.cols = number(argv[i + 1]);
        else if (!strcmp(argv[i], "--ms")) o.ms = number(argv[i + 1]);
        else if (!strcmp(argv[i], "--rounds")) o.rounds = number(argv[i + 1]);
        else if (!strcmp(argv[i], "--megabytes")) o.megabytes = number(argv[i + 1]);
        else if (!strcmp(argv[i], "--isa")) o.isa = argv[i + 1];
        else if (!strcmp(argv[i], "--type")) o.type = argv[i + 1];
        else if (!strcmp(argv[i], "--tokens")) parse_tokens(argv[i + 1], &o);
        else exit((fprintf(stderr, "kernel_bench: unknown option %s\n", argv[i]), 2));
    }
    return o;
}

static bool cpu_runs(Isa isa)
{
    if (isa == ISA_AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    if (isa == ISA_AVX512) return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512dq");
    return isa == ISA_SCALAR;
}

static MeasureRate better(MeasureRate a, MeasureRate b) { return b.best_ns < a.best_ns ? b : a; }

static MeasureRate measure(const Options *o, const Kernels *kernels, BlockType type, uint32_t tokens, uint8_t *memory,
                           size_t memory_bytes, const Parallel *parallel)
{
    uint64_t panel_bytes = 0;
    size_t bytes = 0;
    Why why = {{0}};
    MeasureRate rate = {0};
    MeasureClock clock = clock_for(o->threads);
    Error error = layout_panel_bytes(type, o->cols, &panel_bytes, &why);
    /* many tokens: a matrix of the size that models have; few: more than the caches hold */
    uint64_t weights = tokens > 8 ? 1u << 20 : o->megabytes << 20;
    MeasureShape shape = {type, (uint32_t)(weights / panel_bytes) * PANEL_ROWS, o->cols, tokens};
    if (error == OK) error = measure_bytes(&shape, &bytes, &why);
    if (error == OK && bytes > memory_bytes) error = error_why(&why, ERR_TOO_LARGE, "more memory is needed");
    if (error == OK)
        error = measure_product(kernels, &shape, memory, parallel, &clock, o->ms * 1000000ull, &rate, &why);
    if (error != OK) exit((fprintf(stderr, "kernel_bench: %s: %s\n", error_text(error), why.text), 1));
    return rate;
}

static void bench_kernels(const Options *o, const Kernels *kernels, uint8_t *memory, size_t memory_bytes,
                          const Parallel *parallel)
{
    MeasureClock clock = clock_for(o->threads);
    for (uint32_t type = 0; type < BLOCK_TYPES_END; type++) {
        const BlockTraits *traits = block_traits(type);
        if (!traits || !kernels->panel[type] || o->cols % traits->elements) continue;
        if (o->type && strcmp(o->type, traits->name)) continue;
        MeasureRate best[16] = {{0}}, read = {0};
        for (uint32_t round = 0; round < o->rounds; round++) {
            MeasureRate r = measure_read(memory, o->megabytes << 20, parallel, &clock, o->ms * 1000000ull);
            read = round ? better(read, r) : r;
            for (uint32_t n = 0; n < o->tokens_count; n++) {
                r = measure(o, kernels, (BlockType)type, o->tokens[n], memory, memory_bytes, parallel);
                best[n] = round ? better(best[n], r) : r;
            }
        }
        printf("%-7s %-5s raw %5.1f GB/s |", isa_name(kernels->isa), traits->name, read.gb_per_s);
        for (uint32_t n = 0; n < o->tokens_count; n++)
            printf(" T=%u: %5.1f GB/s %6.1f GMAC/s |", o->tokens[n], best[n].gb_per_s, best[n].gmac_per_s);
        printf("\n");
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    Options o = parse(argc, argv);
    Pool pool = {.workers = o.threads};
    Parallel parallel = {pool_run, &pool, o.threads};
    static Thread threads[PARALLEL_WORKERS_MAX];
    if (o.threads == 0 || o.threads > PARALLEL_WORKERS_MAX) return 2;
    for (uint32_t i = 1; i < o.threads; i++) {
        pthread_t id;
        threads[i] = (Thread){&pool, i};
        if (pthread_create(&id, NULL, thread_main, &threads[i])) return 1;
    }
    size_t memory_bytes = (o.megabytes + 128) << 20;
    uint8_t *memory = mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    madvise(memory, memory_bytes, MADV_HUGEPAGE);
    memset(memory, 1, memory_bytes);
    for (Isa isa = 0; isa < ISAS; isa++)
        if (kernels_for(isa) && cpu_runs(isa) && (!o.isa || !strcmp(o.isa, isa_name(isa))))
            bench_kernels(&o, kernels_for(isa), memory, memory_bytes, &parallel);
    return 0;
}
