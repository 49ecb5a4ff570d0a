/* SPDX-License-Identifier: Apache-2.0 */
/* The engine over a real file: the same tokens for every topology and in any company, and a step that allocates
 * nothing. malloc and its kin are counted by standing in front of the C library's. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/verbs.h"
#include "host/engine.h"
#include "host/memory.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif
/* A sanitizer stands there already. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTS_ALLOCATIONS 0
#else
#define COUNTS_ALLOCATIONS 1
#endif

static atomic_ulong allocations;

#if COUNTS_ALLOCATIONS
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

void *malloc(size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(count, bytes);
}
void *realloc(void *old, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(old, bytes);
}
#endif

enum { TOKENS = 24, SLOTS = 4 };

/* Beyond what the process has (a sanitizer takes much): too little for the weights. */
#define STREAMED ((uint64_t)18 << 20)

static char path[64];
static OpenModel model;

static int make_model(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/engine_test.%d.knot", (int)getpid());
    char verb[] = "synth", shape[] = "--shape", test[] = "test", to[] = "-o";
    char *arguments[] = {verb, shape, test, to, path, NULL};
    Why why = {{0}};
    if (cli_synth(5, arguments)) return 1;
    return open_model_open(path, MODEL_TOKENIZER, NULL, &model, &why) == OK ? 0 : 1;
}

static int drop_model(void **state)
{
    (void)state;
    open_model_close(&model);
    return unlink(path);
}

static Engine *open_engine(EngineOptions options)
{
    Engine *e;
    Why why = {{0}};
    if (engine_open(&model, &options, &e, &why) != OK) fail_msg("%s", why.text);
    return e;
}

static void start(Engine *e, uint32_t slot)
{
    uint32_t ids[40], count = 5 + 11 * slot;
    for (uint32_t i = 0; i < count; i++) ids[i] = (i * 37 + slot * 101) % model.hyper.vocabulary;
    SamplerParams params = sampler_defaults();
    params.temperature = slot % 2 ? 0.9f : 0;
    params.seed = slot;
    params.repetition_penalty = 1.1f;
    Why why = {{0}};
    if (coordinator_start(engine_coordinator(e), slot, ids, count, TOKENS, &params, &why) != OK)
        fail_msg("%s", why.text);
}

/* Runs until every slot has ended; out[slot] gets its tokens. */
static void run(Engine *e, uint32_t out[SLOTS][TOKENS])
{
    uint32_t have[SLOTS] = {0}, count;
    const CoordinatorEvent *events;
    Why why = {{0}};
    while (engine_step(e, &events, &count, &why))
        for (uint32_t i = 0; i < count; i++) {
            if (events[i].error != OK) fail_msg("%s", why.text);
            for (uint32_t t = 0; t < events[i].token_count; t++)
                out[events[i].slot][have[events[i].slot]++] = events[i].tokens[t];
        }
    for (uint32_t i = 0; i < SLOTS; i++) assert_true(have[i] == 0 || have[i] == TOKENS);
}

static void solo(EngineOptions options, uint32_t slot, uint32_t out[SLOTS][TOKENS])
{
    options.sessions = SLOTS;
    Engine *e = open_engine(options);
    start(e, slot);
    run(e, out);
    engine_close(e);
}

static void same_tokens_for_every_topology(void **state)
{
    (void)state;
    static const EngineOptions ways[] = {
        {.stations = 1, .shards = 1, .threads = 1, .context = 128},
        {.stations = 2, .shards = 8, .threads = 2, .context = 128, .chunk = 3},
        {.ranges = "0-0.ffn_up,0.ffn_up-end",
         .shards = 3,
         .threads = 3,
         .context = 128,
         .chunk = 7},
        {.stations = 2,
         .shards = 5,
         .threads = 2,
         .context = 128,
         .isa_given = true,
         .isa = ISA_SCALAR},
        {.stations = 2,
         .shards = 5,
         .threads = 2,
         .context = 128,
         .memory_bytes = STREAMED},
    };
    uint32_t want[SLOTS][TOKENS], got[SLOTS][TOKENS];
    for (uint32_t slot = 0; slot < 2; slot++) {
        solo(ways[0], slot, want);
        for (size_t i = 1; i < sizeof ways / sizeof ways[0]; i++) {
            EngineOptions way = ways[i];
            if (way.memory_bytes == STREAMED) way.memory_bytes += memory_resident();
            solo(way, slot, got);
            assert_memory_equal(got[slot], want[slot], sizeof want[slot]);
        }
    }
}

static void company_changes_nothing(void **state)
{
    (void)state;
    EngineOptions options = {.stations = 2,
                             .shards = 4,
                             .threads = 2,
                             .context = 128,
                             .chunk = 16,
                             .sessions = SLOTS,
                             .logit_rows = SLOTS};
    uint32_t want[SLOTS][TOKENS], got[SLOTS][TOKENS];
    for (uint32_t slot = 0; slot < SLOTS; slot++) solo(options, slot, want);
    Engine *e = open_engine(options);
    for (uint32_t slot = 0; slot < SLOTS; slot++) start(e, slot);
    run(e, got);
    engine_close(e);
    assert_memory_equal(got, want, sizeof want);
}

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    if (!COUNTS_ALLOCATIONS) {
        print_message("a sanitizer replaces malloc, so it cannot be counted\n");
        skip();
    }
    Engine *e = open_engine((EngineOptions){.stations = 2,
                                            .shards = 4,
                                            .threads = 2,
                                            .context = 128,
                                            .sessions = SLOTS,
                                            .logit_rows = SLOTS});
    const CoordinatorEvent *events;
    uint32_t count, steps = 0;
    Why why = {{0}};
    for (uint32_t slot = 0; slot < SLOTS; slot++) start(e, slot);
    unsigned long before = atomic_load(&allocations);
    assert_true(before > 0); /* the counter counts */
    while (engine_step(e, &events, &count, &why)) steps++;
    assert_true(steps >= TOKENS);
    assert_int_equal(atomic_load(&allocations), before);
    engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_tokens_for_every_topology),
        cmocka_unit_test(company_changes_nothing),
        cmocka_unit_test(a_step_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, make_model, drop_model);
}
