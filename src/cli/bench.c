/* SPDX-License-Identifier: Apache-2.0 */
/* cobord bench: tokens per second of prefill, decode and batches, and the memory they took. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <yyjson.h>

#include "cli/bench_kernels.h"
#include "cli/complain.h"
#include "cli/engine_options.h"
#include "cli/verbs.h"
#include "host/memory.h"

static const OptionId bench_options[] = {OPTION_PROMPT,  OPTION_GEN,  OPTION_BATCH,   OPTION_DEPTH,
                                         OPTION_KERNELS, OPTION_JSON, OPTIONS_ENGINE, OPTION_END};
const OptionVerb bench_verb = {
    .name = "bench",
    .usage = "MODEL | --kernels",
    .summary =
        "Measures prefill of --prompt tokens, decode of --gen tokens, and decode of several\n"
        "sequences at once (--batch), beside the speed at which all weights can be read. --depth\n"
        "fills the context before a single sequence is decoded.\n"
        "With --kernels: the matrix kernels alone, per type and instruction set.",
    .examples = "  cobord bench qwen2.5-coder-1.5b --threads 2\n"
                "  cobord bench qwen2.5-coder-1.5b --prompt 512 --gen 64 --batch 1,4,8 --json\n"
                "  cobord bench --kernels\n",
    .options = bench_options,
    .operands_min = 0,
    .operands_max = 1,
    .operand_names = "MODEL",
};

enum {
    BENCH_BATCHES_MAX = 16,
    BENCH_SEQUENCES_MAX = 256,
    BENCH_PROMPT_DEFAULT = 512,
    BENCH_GEN_DEFAULT = 64
};

typedef struct Bench {
    uint32_t prompt, gen, depth;
    uint32_t batches[BENCH_BATCHES_MAX];
    uint32_t batch_count, sequences_max;
    double prefill_tps, decode_tps, batch_tps[BENCH_BATCHES_MAX], read_gbs;
} Bench;

static int read_settings(const Options *o, Bench *b)
{
    b->prompt = options_given(o, OPTION_PROMPT) ? (uint32_t)options_count(o, OPTION_PROMPT)
                                                : BENCH_PROMPT_DEFAULT;
    b->gen =
        options_given(o, OPTION_GEN) ? (uint32_t)options_count(o, OPTION_GEN) : BENCH_GEN_DEFAULT;
    b->depth = (uint32_t)options_count(o, OPTION_DEPTH);
    b->sequences_max = 1;
    const char *text = options_text(o, OPTION_BATCH);
    if (!text) return 0;
    long count = options_parse_list(text, BENCH_SEQUENCES_MAX, b->batches, BENCH_BATCHES_MAX);
    if (count < 1 || count > BENCH_BATCHES_MAX)
        return complain_usage("--batch %.60s: give up to %d numbers of 1 to %d, like 1,8", text,
                              BENCH_BATCHES_MAX, BENCH_SEQUENCES_MAX);
    b->batch_count = (uint32_t)count;
    for (uint32_t i = 0; i < b->batch_count; i++) {
        if (!b->batches[i]) return complain_usage("--batch %.60s: a batch of 0 sequences", text);
        if (b->batches[i] > b->sequences_max) b->sequences_max = b->batches[i];
    }
    return 0;
}

/* Tokens that vary, from the start of the context; the seconds they took. */
static Error fill_context(Engine *e, uint32_t count, uint32_t vocabulary, double *seconds, Why *why)
{
    uint32_t *ids = malloc((count ? count : 1) * sizeof *ids);
    if (!ids) return error_why(why, ERR_MEMORY, "no memory for %u token ids", count);
    for (uint32_t i = 0; i < count; i++) ids[i] = (i * 7919 + 13) % vocabulary;
    double start = engine_options_seconds();
    Error error = engine_forward(e, ids, count, 0, why);
    *seconds = engine_options_seconds() - start;
    free(ids);
    return error;
}

/* Each sequence decodes from `position` on; the context before it is filled. */
static Error measure_batch(Engine *e, uint32_t sequences, uint32_t position, uint32_t steps,
                           double *tps, Why *why)
{
    uint32_t ids[BENCH_SEQUENCES_MAX];
    for (uint32_t i = 0; i < sequences; i++) ids[i] = 13 + i;
    double start = engine_options_seconds();
    for (uint32_t s = 0; s < steps; s++) TRY(engine_batch(e, ids, sequences, position + s, why));
    *tps = sequences * steps / (engine_options_seconds() - start);
    return OK;
}

static void measure_read(Bench *b, Engine *e)
{
    uint64_t sum = 0;
    for (int round = 0; round < 3;
         round++) { /* the best of three: a neighbour's noise only slows */
        double start = engine_options_seconds();
        double gbs =
            (double)engine_read_weights(e, &sum) * 1e-9 / (engine_options_seconds() - start);
        if (gbs > b->read_gbs) b->read_gbs = gbs;
    }
}

/* Batches start from an empty context, as llama-bench's tg does; only the single sequence starts at --depth. */
static Error measure(Bench *b, Engine *e, uint32_t vocabulary, Why *why)
{
    double seconds;
    measure_read(b, e);
    TRY(measure_batch(e, 1, 0, 2, &seconds, why)); /* warm */
    TRY(fill_context(e, b->prompt, vocabulary, &seconds, why));
    if (b->prompt) b->prefill_tps = b->prompt / seconds;
    if (b->depth != b->prompt) TRY(fill_context(e, b->depth, vocabulary, &seconds, why));
    if (b->gen) TRY(measure_batch(e, 1, b->depth, b->gen, &b->decode_tps, why));
    for (uint32_t i = 0; b->gen && i < b->batch_count; i++)
        TRY(measure_batch(e, b->batches[i], 0, b->gen, &b->batch_tps[i], why));
    return OK;
}

static void print_json(const Bench *b, const EngineSession *s)
{
    const Plan *plan = engine_plan(s->engine);
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc), *batch = yyjson_mut_arr(doc),
                   *peak = yyjson_mut_arr(doc);
    yyjson_mut_doc_set_root(doc, root);
    yyjson_mut_obj_add_strcpy(doc, root, "model", s->model.file.knot.model.name);
    yyjson_mut_obj_add_real(doc, root, "prefill_tps", b->prefill_tps);
    yyjson_mut_obj_add_real(doc, root, "decode_tps", b->decode_tps);
    for (uint32_t i = 0; i < b->batch_count; i++) {
        yyjson_mut_val *entry = yyjson_mut_arr_add_obj(doc, batch);
        yyjson_mut_obj_add_uint(doc, entry, "n", b->batches[i]);
        yyjson_mut_obj_add_real(doc, entry, "decode_tps", b->batch_tps[i]);
    }
    yyjson_mut_obj_add_val(doc, root, "batch", batch);
    yyjson_mut_arr_add_uint(doc, peak, memory_peak());
    yyjson_mut_obj_add_val(doc, root, "peak_rss_bytes", peak);
    yyjson_mut_obj_add_real(doc, root, "read_bandwidth_gbs", b->read_gbs);
    yyjson_mut_obj_add_uint(doc, root, "threads", plan->request.workers);
    yyjson_mut_obj_add_str(doc, root, "isa", kernels_isa_name(engine_isa(s->engine)));
    yyjson_mut_obj_add_uint(doc, root, "prompt", b->prompt);
    yyjson_mut_obj_add_uint(doc, root, "gen", b->gen);
    yyjson_mut_obj_add_uint(doc, root, "depth", b->depth);
    yyjson_mut_obj_add_uint(doc, root, "chunk", plan->chunk);
    yyjson_mut_obj_add_bool(doc, root, "resident", plan->resident);
    if (engine_large_pages(s->engine) >= 0)
        yyjson_mut_obj_add_real(doc, root, "large_page_share", engine_large_pages(s->engine));
    char *text = yyjson_mut_write(doc, 0, NULL);
    if (text) puts(text);
    free(text);
    yyjson_mut_doc_free(doc);
}

static void print_text(const Bench *b, const EngineSession *s)
{
    const Plan *plan = engine_plan(s->engine);
    printf("%s, %" PRIu32 " threads, %s, %s\n", s->model.file.knot.model.name,
           plan->request.workers, kernels_isa_name(engine_isa(s->engine)),
           plan->resident ? "weights resident" : "weights streamed");
    printf("read     %8.1f GB/s of weights\n", b->read_gbs);
    if (b->prompt)
        printf("prefill  %8.1f tokens/s over %" PRIu32 " tokens\n", b->prefill_tps, b->prompt);
    if (b->gen) printf("decode   %8.1f tokens/s over %" PRIu32 " tokens\n", b->decode_tps, b->gen);
    for (uint32_t i = 0; b->gen && i < b->batch_count; i++)
        printf("batch %-3" PRIu32 "%8.1f tokens/s in all\n", b->batches[i], b->batch_tps[i]);
    printf("memory   %8.1f MiB at the peak\n", (double)memory_peak() / (1 << 20));
}

int cli_bench(int argc, char **argv)
{
    static EngineSession session;
    static Bench b;
    Options o;
    int code;
    if (!options_read(&o, &bench_verb, argc, argv, &code)) return code;
    if (options_switch(&o, OPTION_KERNELS)) return bench_kernels(&o);
    if (!o.operand_count) return complain_usage("bench: MODEL is missing; give one, or --kernels");
    code = read_settings(&o, &b);
    if (code) return code;
    if (!b.prompt && !b.gen)
        return complain_usage("bench: --prompt 0 and --gen 0: nothing is left to measure");
    uint32_t context = b.prompt > b.depth + b.gen ? b.prompt : b.depth + b.gen;
    EngineNeeds needs = {.context = context ? context : 1,
                         .logit_rows = b.sequences_max,
                         .sessions = b.sequences_max};
    code = engine_options_open(&o, o.operands[0], MODEL_WEIGHTS, &needs, &session);
    if (code) return code;
    Why why = {{0}};
    Error error = measure(&b, session.engine, session.model.hyper.vocabulary, &why);
    if (error != OK) code = complain(error, &why, o.operands[0], NULL);
    else if (options_switch(&o, OPTION_JSON)) print_json(&b, &session);
    else print_text(&b, &session);
    engine_options_close(&session);
    return code;
}
