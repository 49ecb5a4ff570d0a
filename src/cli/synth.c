/* SPDX-License-Identifier: Apache-2.0 */
/* cobord synth: a knot of random weights in the shape of a real model, for capacity tests. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/complain.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "host/encode_loop.h"
#include "host/pool.h"
#include "host/stop.h"
#include "knot/synth.h"

enum { SYNTH_ARENA_BYTES = 56 << 20, SYNTH_ROWS_AT_ONCE = 16 };

static const OptionId synth_options[] = {OPTION_SHAPE, OPTION_OUTPUT, OPTION_SEED,
                                         OPTION_KNOT_VERSION, OPTION_END};
const OptionVerb synth_verb = {
    .name = "synth",
    .usage = "--shape NAME -o OUT.knot",
    .summary =
        "Makes a knot of random weights (finite logits, byte-level tokenizer, the types of a "
        "Q4_K_M file) in the\n"
        "shape of a model: qwen2.5-coder-7b qwen2.5-coder-1.5b qwen2.5-coder-0.5b smollm2-135m "
        "gemma3-270m, or\n"
        "a small one: test test-llama test-qwen3 test-gemma3 test-narrow. One seed gives one file.",
    .examples = "  cobord synth --shape qwen2.5-coder-7b -o /tmp/7b.knot\n"
                "  cobord synth --shape test --seed 7 -o /tmp/test.knot\n",
    .options = synth_options,
    .operands_min = 0,
    .operands_max = 0,
    .operand_names = "",
};

typedef struct SynthSource {
    const EncodeInput *input;
    const Parallel *parallel;
    uint64_t seed;
    /* of the wish being granted */
    uint32_t tensor, row_first, rows;
    size_t row_bytes;
    uint8_t *out;
} SynthSource;

static void synth_job(void *argument, uint32_t item, uint32_t worker)
{
    (void)worker;
    const SynthSource *s = argument;
    uint32_t first = item * SYNTH_ROWS_AT_ONCE, count = s->rows - first;
    if (count > SYNTH_ROWS_AT_ONCE) count = SYNTH_ROWS_AT_ONCE;
    synth_rows(s->input, s->tensor, s->seed, s->row_first + first, count,
               s->out + first * s->row_bytes);
}

static Error synth_read(void *context, uint32_t source, uint64_t offset, uint8_t *out, size_t bytes,
                        Why *why)
{
    (void)why;
    SynthSource *s = context;
    const GgufTensor *t = &s->input->tensors[source];
    s->row_bytes = (size_t)(t->bytes / t->rows);
    s->tensor = source;
    s->row_first = (uint32_t)(offset / s->row_bytes);
    s->rows = (uint32_t)(bytes / s->row_bytes);
    s->out = out;
    parallel_run(s->parallel, synth_job, s,
                 (s->rows + SYNTH_ROWS_AT_ONCE - 1) / SYNTH_ROWS_AT_ONCE);
    return OK;
}

static Error synth_write(const SynthShape *shape, uint64_t seed, unsigned version, const char *path,
                         Pool *pool, Arena *arena, Why *why)
{
    EncodeInput input;
    Parallel parallel = pool_parallel(pool);
    TRY(synth_input(shape, arena, &input, why));
    input.version = version;
    SynthSource source = {&input, &parallel, seed, 0, 0, 0, 0, NULL};
    EncodeReader reader = {synth_read, &source};
    return encode_loop_run(&input, &reader, path, &parallel, arena, progress_tell(), why);
}

static Error synth_run(const SynthShape *shape, uint64_t seed, unsigned version, const char *path,
                       Why *why)
{
    Pool *pool = NULL;
    void *memory = malloc(SYNTH_ARENA_BYTES);
    if (!memory) return error_why(why, ERR_MEMORY, "the encoder's tables");
    Error e = pool_start(encode_loop_workers(), &pool, why);
    Arena arena = arena_make(memory, SYNTH_ARENA_BYTES);
    if (e == OK) e = synth_write(shape, seed, version, path, pool, &arena, why);
    pool_stop(pool);
    free(memory);
    return e;
}

int cli_synth(int argc, char **argv)
{
    Options o;
    int code;
    if (!options_read(&o, &synth_verb, argc, argv, &code)) return code;
    const char *name = options_text(&o, OPTION_SHAPE), *out = options_text(&o, OPTION_OUTPUT);
    if (!name) return complain_usage("synth: which shape? Add --shape qwen2.5-coder-7b");
    if (!out) return complain_usage("synth: where to? Add -o OUT.knot");
    const SynthShape *shape = synth_shape(name);
    if (!shape)
        return complain_usage("synth: no shape is called %.80s; `cobord help synth` lists them",
                              name);
    uint64_t seed = options_given(&o, OPTION_SEED) ? options_count(&o, OPTION_SEED) : 1;
    unsigned version = options_given(&o, OPTION_KNOT_VERSION)
                           ? (unsigned)options_count(&o, OPTION_KNOT_VERSION)
                           : 2;
    if (version != 1 && version != 2)
        return complain_usage("synth: knot version %u; 1 and 2 can be written", version);
    stop_install();
    Why why = {{0}};
    Error error = synth_run(shape, seed, version, out, &why);
    progress_end(error == OK);
    return error == OK ? 0 : complain(error, &why, out, NULL);
}
