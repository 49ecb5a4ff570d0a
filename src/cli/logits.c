/* SPDX-License-Identifier: Apache-2.0 */
/* cobord logits: the numbers of every position of a list of token ids, for comparisons with other engines and between
 * topologies. The hash is XXH3-64 over all logits as little-endian float32, ids in order, positions in order. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "cli/complain.h"
#include "cli/engine_options.h"
#include "cli/verbs.h"
#include "host/memory.h"

enum { LOGITS_TOKENS_MAX = 1 << 20 };

static const OptionId logits_options[] = {OPTION_TOKENS, OPTION_TOP,     OPTION_HASH,
                                          OPTION_JSON,   OPTIONS_ENGINE, OPTION_END};
const OptionVerb logits_verb = {
    .name = "logits",
    .usage = "MODEL --tokens 1,2,3",
    .summary = "Prints the best logits and the log of the sum of exponentials for every position.\n"
               "With --hash also one number that is equal wherever and however the model runs.",
    .examples = "  cobord logits qwen2.5-coder-0.5b --tokens 1,2,3 --top 5\n"
                "  cobord logits model.knot --tokens 1,2,3 --json --hash --stations 3\n",
    .options = logits_options,
    .operands_min = 1,
    .operands_max = 1,
    .operand_names = "MODEL",
};

typedef struct LogitsPrint {
    bool json, hash;
    HashStream3 stream;
} LogitsPrint;

static void print_json_position(const EnginePosition *p)
{
    printf("%s{\"top\":[", p->position ? "," : "");
    for (uint32_t i = 0; i < p->top_count; i++)
        printf("%s[%" PRIu32 ",%.9g]", i ? "," : "", p->top[i].id, (double)p->top[i].logit);
    printf("],\"logsumexp\":%.17g}", p->log_sum);
}

static void print_text_position(const EnginePosition *p)
{
    printf("position %" PRIu32 ": ", p->position);
    for (uint32_t i = 0; i < p->top_count; i++)
        printf(" %" PRIu32 ":%.6f", p->top[i].id, (double)p->top[i].logit);
    printf("  logsumexp %.6f\n", p->log_sum);
}

static void print_position(void *context, const EnginePosition *p)
{
    LogitsPrint *print = context;
    if (print->hash)
        for (uint32_t i = 0; i < p->slice_count; i++)
            hash_stream3_update(&print->stream, p->slices[i], p->slice_lengths[i] * sizeof(float));
    if (print->json) print_json_position(p);
    else print_text_position(p);
}

static void print_end(const LogitsPrint *print, const Engine *e)
{
    const WeightsCounters *c = engine_counters(e);
    const Plan *plan = engine_plan(e);
    if (!print->json) {
        if (print->hash) printf("xxh3 %016" PRIx64 "\n", hash_stream3_end(&print->stream));
        return;
    }
    printf("]");
    if (print->hash) printf(",\"xxh3\":\"%016" PRIx64 "\"", hash_stream3_end(&print->stream));
    printf(",\"counters\":{\"phase_loads\":%" PRIu64 ",\"phase_evictions\":%" PRIu64
           ",\"tiles\":%" PRIu64 ",\"weight_bytes_read\":%" PRIu64
           ",\"weight_bytes_dropped\":%" PRIu64 ",\"resident_weight_bytes_max\":%" PRIu64
           ",\"window_bytes\":%" PRIu64 ",\"pinned_bytes\":%" PRIu64 ",\"layers\":%" PRIu32
           ",\"passes\":%" PRIu32 ",\"peak_rss_bytes\":%" PRIu64 "}",
           c->phase_loads, c->phase_evictions, c->tiles, c->bytes, c->dropped_bytes,
           c->resident_bytes_max, plan->sum.window_bytes, plan->sum.pinned_bytes,
           plan->request.hyper->layers, engine_passes(e), memory_peak());
    printf(",\"plan\":{\"stations\":%" PRIu32 ",\"shards\":%" PRIu32 ",\"chunk\":%" PRIu32
           ",\"context\":%" PRIu32 ",\"threads\":%" PRIu32 ",\"isa\":\"%s\"}}\n",
           plan->request.stations, plan->request.shards, plan->chunk, plan->context,
           plan->request.workers, kernels_isa_name(engine_isa(e)));
}

static int score(const Options *o, EngineSession *s, const uint32_t *ids, uint32_t count)
{
    LogitsPrint print = {.json = options_switch(o, OPTION_JSON),
                         .hash = options_switch(o, OPTION_HASH)};
    hash_stream3_start(&print.stream);
    uint64_t top = options_count(o, OPTION_TOP);
    uint32_t vocabulary = s->model.hyper.vocabulary;
    Why why = {{0}};
    if (print.json) printf("{\"positions\":[");
    Error error = engine_score(s->engine, ids, count, top < vocabulary ? (uint32_t)top : vocabulary,
                               print_position, &print, &why);
    if (error != OK) {
        fflush(stdout);
        return complain(error, &why, o->operands[0], NULL);
    }
    print_end(&print, s->engine);
    return 0;
}

int cli_logits(int argc, char **argv)
{
    Options o;
    int code;
    if (!options_read(&o, &logits_verb, argc, argv, &code)) return code;
    const char *text = options_text(&o, OPTION_TOKENS);
    if (!text) return complain_usage("logits: --tokens is missing; give ids like --tokens 1,2,3");
    long count = options_parse_list(text, UINT32_MAX, NULL, 0);
    if (count < 1 || count > LOGITS_TOKENS_MAX)
        return complain_usage("--tokens %.60s: give 1 to %d ids separated by commas, like 1,2,3",
                              text, LOGITS_TOKENS_MAX);
    uint32_t *ids = malloc((size_t)count * sizeof *ids);
    if (!ids) return complain(ERR_MEMORY, NULL, "the list of tokens", NULL);
    options_parse_list(text, UINT32_MAX, ids, count);
    static EngineSession session;
    EngineNeeds needs = {.context = (uint32_t)count, .logit_rows = (uint32_t)count};
    code = engine_options_open(&o, o.operands[0], MODEL_WEIGHTS, &needs, &session);
    if (code == 0) {
        code = score(&o, &session, ids, (uint32_t)count);
        engine_options_close(&session);
    }
    free(ids);
    return code;
}
