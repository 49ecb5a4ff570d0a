/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/engine_options.h"

#include <stdio.h>
#include <string.h>

#include "cli/complain.h"
#include "cli/progress.h"
#include "host/clock.h"
#include "host/cpu.h"
#include "host/memory.h"
#include "host/stop.h"

static bool isa_of_name(const char *name, Isa *out)
{
    for (Isa isa = ISA_SCALAR; isa < ISAS; isa++)
        if (strcmp(name, kernels_isa_name(isa)) == 0) {
            *out = isa;
            return true;
        }
    return false;
}

Error engine_options_isa(const Options *o, Isa *out, Why *why)
{
    const char *name = options_text(o, OPTION_ISA);
    *out = cpu_best();
    if (!name || !isa_of_name(name, out)) return OK; /* auto */
    if (cpu_has(*out) && kernels_for(*out) && ops_for(*out)) return OK;
    return error_why(why, ERR_NOT_AVAILABLE, "instruction set %s", name);
}

static Error read_options(const Options *o, EngineOptions *out, Why *why)
{
    *out = (EngineOptions){
        .stations = (uint32_t)options_count(o, OPTION_STATIONS),
        .shards = (uint32_t)options_count(o, OPTION_SHARDS),
        .ranges = options_text(o, OPTION_RANGES),
        .threads = (uint32_t)options_count(o, OPTION_THREADS),
        .chunk = (uint32_t)options_count(o, OPTION_CHUNK),
        .context = (uint32_t)options_count(o, OPTION_CONTEXT),
        .memory_bytes = options_given(o, OPTION_MEMORY) ? options_count(o, OPTION_MEMORY) : 0,
        .cache = options_count(o, OPTION_CACHE_TYPE) ? CACHE_Q8_0 : CACHE_F16,
        .isa_given = true,
    };
    return engine_options_isa(o, &out->isa, why);
}

/* Streaming from small pages is slow, and nobody would guess why. */
static void say_small_pages(double share, const char *model)
{
    if (share < 0 || share >= 0.5) return;
    fprintf(stderr, "cobord: note: the page cache holds ");
    options_print_safely(stderr, model);
    fprintf(
        stderr,
        " in small pages, which makes streaming slower. Copying the file, or reading it afresh after it left "
        "the cache, gives large ones.\n");
}

/* The draft model first: what it takes is taken off the budget of the other. */
static Error open_draft(const Options *o, const EngineOptions *engine, const EngineNeeds *needs,
                        EngineSession *out, uint64_t *memory_bytes, Why *why)
{
    uint64_t whole = engine->memory_bytes ? engine->memory_bytes : memory_allowed();
    DraftModelOptions options = {
        .model = options_text(o, OPTION_DRAFT),
        .guesses_for = &out->model.file,
        .slots = needs->sessions ? needs->sessions : 1,
        .context = engine->context,
        .memory_bytes = options_given(o, OPTION_DRAFT_MEMORY)
                            ? options_count(o, OPTION_DRAFT_MEMORY)
                            : whole / 3,
        .threads = engine->threads,
        .cache = engine->cache,
        .isa = engine->isa,
        .tell = progress_tell(),
    };
    if (!options.model) return OK;
    if (options.memory_bytes >= whole)
        return error_why(why, ERR_PLAN, "--draft-memory takes all of the %llu MiB that there are",
                         (unsigned long long)(whole >> 20));
    Error error = draft_model_open(&options, &out->draft, why);
    progress_end(error == OK);
    if (error == OK) *memory_bytes = whole - draft_model_bytes(out->draft);
    return error;
}

static Error open_engine(const Options *o, EngineOptions *options, const EngineNeeds *needs,
                         EngineSession *out, const char **thing, Why *why)
{
    char line[160];
    *thing = options_text(o, OPTION_DRAFT);
    TRY(open_draft(o, options, needs, out, &options->memory_bytes, why));
    *thing = o->operands[0];
    TRY(engine_open(&out->model, options, &out->engine, why));
    say_small_pages(engine_large_pages(out->engine), *thing);
    if (!out->draft) return OK;
    draft_model_attach(out->draft, engine_coordinator(out->engine));
    draft_model_describe(out->draft, line, sizeof line);
    fprintf(stderr, "cobord: %s\n", line);
    return OK;
}

int engine_options_open(const Options *o, const char *model, unsigned what,
                        const EngineNeeds *needs, EngineSession *out)
{
    Why why = {{0}};
    EngineOptions options;
    out->engine = NULL;
    out->draft = NULL;
    if (options_given(o, OPTION_SHARDS) && !options_count(o, OPTION_SHARDS))
        return complain_usage("bad value: %s: '0' is not a whole number from 1 to 511; 0 is for "
                              "plan and up.",
                              options_where(o, OPTION_SHARDS));
    stop_install();
    Error error = read_options(o, &options, &why);
    if (error != OK) return complain(error, &why, options_where(o, OPTION_ISA), NULL);
    error = open_model_open(model, what, progress_tell(), &out->model, &why);
    progress_end(error == OK);
    if (error != OK) return complain(error, &why, model, NULL);
    if (!options.context) options.context = needs->context;
    options.logit_rows = needs->logit_rows;
    options.sessions = needs->sessions;
    options.drafts = needs->drafts;
    options.forms = needs->forms;
    const char *thing = model;
    error = open_engine(o, &options, needs, out, &thing, &why);
    if (error == OK) return 0;
    int code = complain(error, &why, thing, NULL);
    engine_options_close(out);
    return code;
}

void engine_options_close(EngineSession *s)
{
    engine_close(s->engine);
    draft_model_close(s->draft);
    open_model_close(&s->model);
}

double engine_options_seconds(void) { return 1e-9 * (double)clock_now_ns(); }
