/* SPDX-License-Identifier: Apache-2.0 */
/* Answers. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "host/clock.h"
#include "library/library.h"

/* One call of cobord_generate. */
typedef struct Generation {
    cobord_model *model;
    cobord_settings settings;
    cobord_callback callback;
    void *user;
    SamplerParams params;
    SamplerBias bias[SAMPLER_BIAS_MAX];
    LibraryForm form;
    cobord_result result;
    uint64_t start_ns, first_ns;
} Generation;

/* --- Settings --- */

static cobord_settings default_settings(void)
{
    SamplerParams p = sampler_defaults();
    return (cobord_settings){
        .size = sizeof(cobord_settings),
        .temperature = 0.7f,
        .top_p = p.top_p,
        .repetition_penalty = p.repetition_penalty,
    };
}

static uint64_t random_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) == sizeof seed) return seed;
    return clock_now_ns() * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)time(NULL);
}

void cobord_settings_init(cobord_settings *settings, size_t size)
{
    cobord_settings defaults = default_settings();
    if (!settings) return;
    defaults.seed = random_seed();
    memset(settings, 0, size);
    memcpy(settings, &defaults, size < sizeof defaults ? size : sizeof defaults);
    if (size >= sizeof size) settings->size = size;
}

static Error read_settings(Generation *g, const cobord_settings *given, Why *why)
{
    cobord_settings *s = &g->settings;
    *s = default_settings();
    if (given) TRY(library_take(given, given->size, s, sizeof *s, "cobord_settings", why));
    else s->seed = random_seed();
    if (s->flags) return error_why(why, ERR_USAGE, "cobord_settings.flags is not 0");
    if ((s->bias_count && !s->biases) || (s->stop_count && !s->stops))
        return error_why(why, ERR_USAGE, "cobord_settings counts biases or stops that are NULL");
    if (s->bias_count > SAMPLER_BIAS_MAX)
        return error_why(why, ERR_RANGE, "%zu biases; at most %d", s->bias_count, SAMPLER_BIAS_MAX);
    for (size_t i = 0; i < s->stop_count; i++)
        if (!s->stops[i]) return error_why(why, ERR_USAGE, "stop text %zu is NULL", i);
    return OK;
}

static Error read_params(Generation *g, Why *why)
{
    const cobord_settings *s = &g->settings;
    for (size_t i = 0; i < s->bias_count; i++)
        g->bias[i] = (SamplerBias){s->biases[i].id, s->biases[i].bias};
    g->params = (SamplerParams){
        .temperature = s->temperature,
        .top_k = s->top_k,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .repetition_penalty = s->repetition_penalty,
        .presence_penalty = s->presence_penalty,
        .frequency_penalty = s->frequency_penalty,
        .repeat_window = s->repeat_window,
        .seed = s->seed,
        .bias = g->bias,
        .bias_count = (uint32_t)s->bias_count,
    };
    return sampler_check(&g->params, g->model->open.hyper.vocabulary, why);
}

/* --- One answer --- */

static uint32_t end_number(SoloEnd end)
{
    switch (end) {
    case SOLO_GOES_ON: break;
    case SOLO_END_TOKEN: return COBORD_END_TOKEN;
    case SOLO_END_STOP: return COBORD_END_STOP;
    case SOLO_END_TOKENS: return COBORD_END_TOKENS;
    case SOLO_END_CONTEXT: return COBORD_END_CONTEXT;
    }
    return 0;
}

/* Tokens are shown but for the one that ends the answer, and text that came free at the end. */
static bool is_shown(const Generation *g, const SoloPiece *piece)
{
    if (piece->id == SOLO_NO_ID) return piece->bytes > 0;
    return piece->bytes > 0 || !tokenizer_is_end(g->model->open.tokenizer, piece->id);
}

static void show(Generation *g, const SoloPiece *piece)
{
    if (piece->id != SOLO_NO_ID) g->result.generated_tokens++;
    if (!g->first_ns) g->first_ns = clock_now_ns();
    g->result.end = end_number(piece->end);
    if (!g->callback || !is_shown(g, piece)) return;
    if (g->callback(g->user, (const char *)piece->text, piece->bytes, piece->id))
        g->result.end = COBORD_END_CALLBACK;
}

/* The form may have left nothing to say: that is not the weights' fault. */
static Error explain(const Generation *g, Error error, Why *why)
{
    if (error != ERR_NOT_FINITE || !g->form.mask || !grammar_mask_is_empty(g->form.mask))
        return error;
    return error_why(why, ERR_UNSUPPORTED,
                     "the form leaves no token after %u: none of the model's fits, or what it asks "
                     "for nests or branches too much",
                     g->result.generated_tokens);
}

static Error run(Generation *g, const uint32_t *ids, size_t count, Why *why)
{
    Solo *solo = &g->model->solo;
    SoloRequest request = {
        .ids = ids,
        .count = count,
        .tokens_max = g->settings.tokens_max ? g->settings.tokens_max : UINT32_MAX,
        .params = &g->params,
        .stops = g->settings.stops,
        .stop_count = g->settings.stop_count,
        .mask = g->form.mask,
    };
    TRY(solo_start(solo, &request, &g->result.kept_tokens, why));
    Error error = OK;
    while (error == OK && !g->result.end) {
        SoloPiece piece;
        error = solo_next(solo, &piece, why);
        if (error == OK) show(g, &piece);
    }
    solo_stop(solo);
    return explain(g, error, why);
}

static Error generate(Generation *g, const uint32_t *ids, size_t count,
                      const cobord_settings *settings, Why *why)
{
    TRY(read_settings(g, settings, why));
    TRY(read_params(g, why));
    TRY(library_form_make(g->model, &g->settings, &g->form, why));
    g->start_ns = clock_now_ns();
    g->result.prompt_tokens = (uint32_t)count;
    return run(g, ids, count, why);
}

/* --- The call --- */

static Error check(const cobord_model *m, const uint32_t *ids, size_t count,
                   const cobord_result *result, Why *why)
{
    if (!m || (!ids && count)) return error_why(why, ERR_USAGE, "cobord_generate got NULL");
    if (!m->engine)
        return error_why(why, ERR_USAGE, "the model was opened with COBORD_OPEN_TOKENIZER_ONLY");
    if (result && (result->size < sizeof result->size || result->size > UINT16_MAX))
        return error_why(why, ERR_USAGE, "cobord_result.size is not sizeof(cobord_result)");
    return OK;
}

static void give_result(Generation *g, cobord_result *out)
{
    uint64_t end_ns = clock_now_ns();
    size_t size = out->size;
    if (!g->first_ns) g->first_ns = end_ns;
    g->result.size = size;
    g->result.prompt_ns = g->first_ns - g->start_ns;
    g->result.generate_ns = end_ns - g->first_ns;
    memset(out, 0, size);
    memcpy(out, &g->result, size < sizeof g->result ? size : sizeof g->result);
}

int cobord_generate(cobord_model *m, const uint32_t *ids, size_t count,
                    const cobord_settings *settings, cobord_callback callback, void *user,
                    cobord_result *result)
{
    Why why = {{0}};
    Error error = check(m, ids, count, result, &why);
    if (error != OK) return library_result(error, &why);
    Generation *g = calloc(1, sizeof *g);
    if (!g) return library_result(error_why(&why, ERR_MEMORY, "no memory for an answer"), &why);
    *g = (Generation){.model = m, .callback = callback, .user = user};
    if (atomic_exchange(&m->busy, true)) {
        free(g);
        return library_result(
            error_why(&why, ERR_AGAIN, "the model is busy: one generation at a time"), &why);
    }
    atomic_store(&m->cancelled, false);
    error = generate(g, ids, count, settings, &why);
    library_form_free(&g->form);
    if (error == OK && result) give_result(g, result);
    free(g);
    atomic_store(&m->busy, false);
    return library_result(error, &why);
}

void cobord_cancel(cobord_model *m)
{
    if (m) atomic_store(&m->cancelled, true);
}
