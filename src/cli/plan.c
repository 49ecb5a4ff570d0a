/* SPDX-License-Identifier: Apache-2.0 */
/* cobord plan: who holds what, what each process needs, and whether it fits. Reads the model's header only. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/complain.h"
#include "cli/engine_options.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "host/cpu.h"

static const OptionId plan_options[] = {
    OPTION_WORKERS, OPTION_STATIONS, OPTION_SHARDS,     OPTION_RANGES, OPTION_MEMORY,
    OPTION_CONTEXT, OPTION_CHUNK,    OPTION_CACHE_TYPE, OPTION_JSON,   OPTION_END};
static const OptionVerb plan_verb = {
    .name = "plan",
    .usage = "MODEL --memory 128M [--workers N | --stations N --shards M]",
    .summary =
        "Cuts a model into stations (layers) and shards (vocabulary), one process each, and adds\n"
        "up what each needs. A plan that does not fit --memory (default 128M) is refused with its sum.",
    .examples = "  cobord plan qwen2.5-coder-1.5b --memory 128M\n"
                "  cobord plan qwen2.5-coder-1.5b --memory 96M --stations 12 --shards 8 --json\n",
    .options = plan_options,
    .operands_min = 1,
    .operands_max = 1,
    .operand_names = "MODEL",
};

static const uint64_t MEMORY_DEFAULT = (uint64_t)128 << 20;

static void role_texts(const Plan *p, uint32_t i, char *name, size_t name_bytes, char *range,
                       size_t range_bytes)
{
    const PlanRole *role = &p->role[i];
    uint32_t number = role->is_shard ? i - p->request.stations : i;
    snprintf(name, name_bytes, "%s-%" PRIu32, role->is_shard ? "shard" : "station", number);
    if (role->is_shard) {
        snprintf(range, range_bytes, "ids %" PRIu32 "-%" PRIu32, role->id_first, role->id_last);
        return;
    }
    char text[PHASE_RANGE_TEXT_MAX];
    snprintf(range, range_bytes, "layers %s",
             phase_range_text(role->range, p->request.hyper->layers, text));
}

static double mib(uint64_t bytes) { return (double)bytes / (1 << 20); }

static void print_table(const Plan *p)
{
    printf("%-11s %-28s %8s %8s %8s %8s %8s %8s %8s %8s\n", "MiB", "", "weights", "process",
           "floor", "window", "activat.", "cache", "pinned", "total");
    for (uint32_t i = 0; i < p->role_count; i++) {
        const PlanRole *r = &p->role[i];
        char name[24], range[PHASE_RANGE_TEXT_MAX + 16];
        role_texts(p, i, name, sizeof name, range, sizeof range);
        printf("%-11s %-28s %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f\n", name, range,
               mib(r->weight_bytes), mib(r->process_bytes), mib(r->floor_bytes),
               mib(r->window_bytes), mib(r->scratch_bytes + r->logits_bytes), mib(r->cache_bytes),
               mib(r->pinned_bytes), mib(r->total_bytes));
    }
    uint64_t streamed = 0;
    for (uint32_t i = 0; i < p->role_count; i++)
        streamed += p->role[i].weight_bytes - p->role[i].pinned_bytes;
    printf("context %" PRIu32 ", chunk %" PRIu32 ", cache %s, at most %.0f MiB a process; ",
           p->context, p->chunk, p->request.cache == CACHE_Q8_0 ? "q8_0" : "f16",
           mib(p->request.memory_bytes));
    if (streamed) printf("%.1f MiB of weights are streamed for every pass\n", mib(streamed));
    else printf("every weight stays resident\n");
}

static void print_json(const Plan *p)
{
    printf("{\"context\":%" PRIu32 ",\"chunk\":%" PRIu32 ",\"memory_bytes\":%" PRIu64
           ",\"cache_type\":\"%s\",\"roles\":[",
           p->context, p->chunk, p->request.memory_bytes,
           p->request.cache == CACHE_Q8_0 ? "q8_0" : "f16");
    for (uint32_t i = 0; i < p->role_count; i++) {
        const PlanRole *r = &p->role[i];
        char name[24], range[PHASE_RANGE_TEXT_MAX + 16];
        role_texts(p, i, name, sizeof name, range, sizeof range);
        printf("%s{\"id\":\"%s\",", i ? "," : "", name);
        if (r->is_shard)
            printf("\"id_first\":%" PRIu32 ",\"id_last\":%" PRIu32 ",", r->id_first, r->id_last);
        else printf("\"range\":\"%s\",", range + sizeof "layers " - 1);
        printf("\"weight_bytes\":%" PRIu64 ",\"process_bytes\":%" PRIu64 ",\"floor_bytes\":%" PRIu64
               ",\"window_bytes\":%" PRIu64 ",\"activation_bytes\":%" PRIu64
               ",\"cache_bytes\":%" PRIu64 ",\"pinned_bytes\":%" PRIu64 ",\"total_bytes\":%" PRIu64
               "}",
               r->weight_bytes, r->process_bytes, r->floor_bytes, r->window_bytes,
               r->scratch_bytes + r->logits_bytes, r->cache_bytes, r->pinned_bytes, r->total_bytes);
    }
    printf("]}\n");
}

static Error make(const Options *o, const OpenModel *model, PhaseRange *ranges, Plan *plan,
                  Why *why)
{
    PlanRequest request = {
        .knot = &model->file.knot,
        .hyper = &model->hyper,
        .memory_bytes =
            options_given(o, OPTION_MEMORY) ? options_count(o, OPTION_MEMORY) : MEMORY_DEFAULT,
        .process_bytes = PLAN_PROCESS_BYTES,
        .stations = (uint32_t)options_count(o, OPTION_STATIONS),
        .shards = (uint32_t)options_count(o, OPTION_SHARDS),
        .context = (uint32_t)options_count(o, OPTION_CONTEXT),
        .chunk = (uint32_t)options_count(o, OPTION_CHUNK),
        .logit_rows = 1,
        .workers = 1,
        .cache = options_count(o, OPTION_CACHE_TYPE) ? CACHE_Q8_0 : CACHE_F16,
        .kernels = kernels_for(ISA_SCALAR),
        .ops = ops_for(ISA_SCALAR),
    };
    uint32_t workers = (uint32_t)options_count(o, OPTION_WORKERS);
    if (workers) {
        if (workers < 2)
            return error_why(why, ERR_RANGE, "%u workers; a station and a shard need at least 2",
                             workers);
        plan_split_workers(request.knot, request.hyper, workers, &request.stations,
                           &request.shards);
    }
    if (!request.stations) request.stations = PLAN_STATIONS_DEFAULT;
    if (!request.shards) request.shards = PLAN_SHARDS_DEFAULT;
    if (options_text(o, OPTION_RANGES)) {
        request.ranges = ranges;
        TRY(phase_parse_ranges(options_text(o, OPTION_RANGES), model->hyper.layers, ranges,
                               PLAN_ROLES_MAX, &request.stations, why));
    }
    return plan_make(&request, plan, why);
}

int cli_plan(int argc, char **argv)
{
    static PhaseRange ranges[PLAN_ROLES_MAX];
    static Plan plan;
    static OpenModel model;
    Options o;
    int code;
    if (!options_read(&o, &plan_verb, argc, argv, &code)) return code;
    if (options_given(&o, OPTION_WORKERS) &&
        (options_given(&o, OPTION_STATIONS) || options_given(&o, OPTION_SHARDS)))
        return complain_usage("plan: give either --workers or --stations and --shards");
    Why why = {{0}};
    Error error = open_model_open(o.operands[0], 0, progress_tell(), &model, &why);
    progress_end(error == OK);
    if (error != OK) return complain(error, &why, o.operands[0], NULL);
    error = make(&o, &model, ranges, &plan, &why);
    if (error == OK) {
        if (options_switch(&o, OPTION_JSON)) print_json(&plan);
        else print_table(&plan);
    } else {
        code = complain(error, &why, o.operands[0], NULL);
    }
    open_model_close(&model);
    return error == OK ? 0 : code;
}
