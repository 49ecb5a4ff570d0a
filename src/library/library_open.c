/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, closing, describing. */
#include <stdlib.h>
#include <string.h>

#include "host/memory.h"
#include "library/library.h"

static const uint32_t KNOWN_FLAGS = COBORD_OPEN_TOKENIZER_ONLY | COBORD_OPEN_FORMS;

static cobord_options default_options(void)
{
    return (cobord_options){.size = sizeof(cobord_options)};
}

void cobord_options_init(cobord_options *options, size_t size)
{
    cobord_options defaults = default_options();
    if (!options) return;
    memset(options, 0, size);
    memcpy(options, &defaults, size < sizeof defaults ? size : sizeof defaults);
    if (size >= sizeof size) options->size = size;
}

static Error read_options(const cobord_options *given, cobord_options *out, Why *why)
{
    *out = default_options();
    if (given) TRY(library_take(given, given->size, out, sizeof *out, "cobord_options", why));
    if (out->cache_type != COBORD_CACHE_F16 && out->cache_type != COBORD_CACHE_Q8_0)
        return error_why(why, ERR_USAGE, "cobord_options.cache_type %u is none", out->cache_type);
    if (out->flags & ~KNOWN_FLAGS)
        return error_why(why, ERR_USAGE, "cobord_options.flags 0x%x has an unknown flag",
                         out->flags);
    if (out->threads > PARALLEL_WORKERS_MAX)
        return error_why(why, ERR_RANGE, "cobord_options.threads %u is more than %u", out->threads,
                         (unsigned)PARALLEL_WORKERS_MAX);
    return OK;
}

static bool is_cancelled(void *context)
{
    cobord_model *m = context;
    return atomic_load_explicit(&m->cancelled, memory_order_relaxed);
}

/* The budget is the model's: what the process had before comes on top. */
static Error open_engine(cobord_model *m, const cobord_options *o, uint64_t before_bytes, Why *why)
{
    EngineOptions options = {
        .threads = o->threads,
        .context = o->context,
        .memory_bytes = o->memory_bytes ? before_bytes + o->memory_bytes : 0,
        .cache = o->cache_type == COBORD_CACHE_Q8_0 ? CACHE_Q8_0 : CACHE_F16,
        .forms = o->flags & COBORD_OPEN_FORMS,
    };
    TRY(engine_open(&m->open, &options, &m->engine, why));
    engine_set_cancel(m->engine, is_cancelled, m);
    if (options.forms && !engine_plan(m->engine)->sum.form_bytes)
        return error_why(why, ERR_PLAN,
                         "there is no memory for answers with a form beside the model; give more "
                         "or open it without COBORD_OPEN_FORMS");
    return OK;
}

static Error open_parts(cobord_model *m, const char *name, const cobord_options *o, Why *why)
{
    bool whole = !(o->flags & COBORD_OPEN_TOKENIZER_ONLY);
    Tell tell = {.step = o->progress, .context = o->progress_user};
    uint64_t before_bytes = memory_resident();
    TRY(open_model_open(name, MODEL_TOKENIZER | (whole ? MODEL_WEIGHTS : 0), &tell, &m->open, why));
    if (whole) TRY(open_engine(m, o, before_bytes, why));
    return solo_open(&m->solo, &m->open, m->engine, why);
}

static Error open_model(const char *name, const cobord_options *given, cobord_model **out, Why *why)
{
    cobord_options options;
    if (!name) return error_why(why, ERR_USAGE, "cobord_open without a name");
    TRY(read_options(given, &options, why));
    cobord_model *m = calloc(1, sizeof *m);
    if (!m) return error_why(why, ERR_MEMORY, "no memory for a model");
    Error error = open_parts(m, name, &options, why);
    if (error == OK) *out = m;
    else cobord_close(m);
    return error;
}

int cobord_open(const char *name, const cobord_options *options, cobord_model **out)
{
    Why why = {{0}};
    if (!out) return library_result(error_why(&why, ERR_USAGE, "cobord_open without out"), &why);
    *out = NULL;
    return library_result(open_model(name, options, out, &why), &why);
}

void cobord_close(cobord_model *m)
{
    if (!m) return;
    solo_close(&m->solo);
    engine_close(m->engine);
    if (m->open.tokenizer) open_model_close(&m->open); /* else it was never open */
    free(m->vocab_memory);
    free(m);
}

static void describe_engine(const Engine *e, cobord_info *out)
{
    const Plan *plan = engine_plan(e);
    out->memory_bytes = plan->sum.total_bytes - plan->sum.process_bytes;
    out->context = plan->context;
    out->resident = plan->resident;
}

int cobord_get_info(const cobord_model *m, cobord_info *info, size_t size)
{
    Why why = {{0}};
    if (!m || !info || size < sizeof size)
        return library_result(error_why(&why, ERR_USAGE, "cobord_get_info without a place"), &why);
    cobord_info all = {
        .size = size,
        .path = m->open.path,
        .architecture = hyper_arch_name(m->open.hyper.arch),
        .file_bytes = m->open.file.knot.file_bytes,
        .knot_id = m->open.file.knot.id,
        .layers = m->open.hyper.layers,
        .hidden = m->open.hyper.hidden,
        .vocabulary = m->open.hyper.vocabulary,
        .context_trained = m->open.hyper.context,
        .can_chat = m->solo.chat.way != CHAT_NONE,
    };
    if (m->engine) describe_engine(m->engine, &all);
    memset(info, 0, size);
    memcpy(info, &all, size < sizeof all ? size : sizeof all);
    return COBORD_OK;
}
