/* SPDX-License-Identifier: Apache-2.0 */
/* One token streams the weights from memory, so that GB/s beside the raw read is what counts; 64
 * tokens compute, so that GMAC/s is. Each figure is the fastest of several runs over weights that no
 * cache holds (one token) or of a matrix's usual size (64). */
#include "cli/bench_kernels.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "cli/complain.h"
#include "cli/engine_options.h"
#include "host/clock.h"
#include "host/cpu.h"
#include "host/pool.h"
#include "quant/measure.h"

enum { COLS = 1536, TOKENS_MANY = 64 };
static const size_t STREAM_BYTES = (size_t)96 << 20, MATRIX_BYTES = (size_t)1 << 20;
static const size_t MEMORY_BYTES = (size_t)128 << 20;
static const uint64_t BUDGET_NS = 100000000;

typedef struct KernelBench {
    uint8_t *memory;
    Parallel parallel;
    MeasureClock clock;
    bool json, any;
} KernelBench;

static uint64_t now_ns(void *context)
{
    (void)context;
    return clock_now_ns();
}

static Error rate_of(KernelBench *b, const Kernels *kernels, BlockType type, uint32_t tokens,
                     MeasureRate *rate, Why *why)
{
    uint64_t panel;
    size_t bytes;
    TRY(layout_panel_bytes(type, COLS, &panel, why));
    size_t weights = tokens == 1 ? STREAM_BYTES : MATRIX_BYTES;
    MeasureShape shape = {type, (uint32_t)(weights / panel) * PANEL_ROWS, COLS, tokens};
    TRY(measure_bytes(&shape, &bytes, why));
    if (bytes > MEMORY_BYTES)
        return error_why(why, ERR_CAPACITY, "%zu bytes for one product", bytes);
    return measure_product(kernels, &shape, b->memory, &b->parallel, &b->clock, BUDGET_NS, rate,
                           why);
}

static void print_rates(KernelBench *b, Isa isa, const char *type, double one, double many)
{
    if (b->json)
        printf("%s{\"isa\":\"%s\",\"type\":\"%s\",\"gbs\":%.2f,\"gmacs\":%.2f}", b->any ? "," : "",
               kernels_isa_name(isa), type, one, many);
    else printf("%-9s %-5s %9.1f %12.1f\n", kernels_isa_name(isa), type, one, many);
    b->any = true;
    fflush(stdout);
}

static Error measure_isa(KernelBench *b, Isa isa, Why *why)
{
    const Kernels *kernels = kernels_for(isa);
    for (uint32_t type = 0; type < BLOCK_TYPES_END; type++) {
        if (!block_traits(type) || !kernels->panel[type]) continue;
        MeasureRate one, many;
        TRY(rate_of(b, kernels, (BlockType)type, 1, &one, why));
        TRY(rate_of(b, kernels, (BlockType)type, TOKENS_MANY, &many, why));
        print_rates(b, isa, block_traits(type)->name, one.gb_per_s, many.gmac_per_s);
    }
    return OK;
}

static Error measure_all(KernelBench *b, const Options *o, uint32_t threads, Why *why)
{
    Isa only;
    TRY(engine_options_isa(o, &only, why));
    bool all = !options_given(o, OPTION_ISA);
    MeasureRate read =
        measure_read(b->memory, STREAM_BYTES, &b->parallel, &b->clock, 4 * BUDGET_NS);
    if (b->json)
        printf("{\"threads\":%" PRIu32 ",\"read_bandwidth_gbs\":%.2f,\"kernels\":[", threads,
               read.gb_per_s);
    else
        printf("%" PRIu32 " threads, %d columns, raw read %.1f GB/s\n%-9s %-5s %9s %12s\n", threads,
               COLS, read.gb_per_s, "isa", "type", "GB/s (1)", "GMAC/s (64)");
    for (Isa isa = ISA_SCALAR; isa < ISAS; isa++)
        if ((all || isa == only) && cpu_has(isa) && kernels_for(isa)) TRY(measure_isa(b, isa, why));
    if (b->json) printf("]}\n");
    return OK;
}

int bench_kernels(const Options *o)
{
    Why why = {{0}};
    Pool *pool;
    uint32_t threads =
        options_count(o, OPTION_THREADS) ? (uint32_t)options_count(o, OPTION_THREADS) : cpu_cores();
    Error error = pool_start(threads, &pool, &why);
    if (error != OK) return complain(error, &why, "bench --kernels", NULL);
    KernelBench b = {.parallel = pool_parallel(pool),
                     .clock = {now_ns, NULL},
                     .json = options_switch(o, OPTION_JSON)};
    b.memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b.memory == MAP_FAILED) {
        pool_stop(pool);
        return complain(ERR_MEMORY, NULL, "bench --kernels: 128 MiB", NULL);
    }
    (void)madvise(b.memory, MEMORY_BYTES, MADV_HUGEPAGE);
    memset(b.memory, 1,
           MEMORY_BYTES); /* pages of its own: the kernel's page of zeros stays in the cache */
    error = measure_all(&b, o, threads, &why);
    (void)munmap(b.memory, MEMORY_BYTES);
    pool_stop(pool);
    return error == OK ? 0 : complain(error, &why, "bench --kernels", NULL);
}
