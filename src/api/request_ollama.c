/* SPDX-License-Identifier: Apache-2.0 */
/* Ollama's /api/chat, /api/generate and /api/show. Streams are the default there, and so are Ollama's own values of the
 * options: who comes from there finds answers of the same temper. A request without messages or prompt asks for the
 * model to be loaded, which it always is. */
#include <string.h>

#include "api/request_state.h"

/* ---- options ---- */

static bool read_seed(RequestReader *r, yyjson_val *value, const char *name)
{
    if (yyjson_is_sint(value) && yyjson_get_sint(value) == -1) return true; /* a new one */
    return request_plain_seed(r, value, name);
}

/* -1: all; 0: none. */
static bool read_window(RequestReader *r, yyjson_val *value, const char *name)
{
    uint32_t *out = &r->request->params.repeat_window;
    bool all = yyjson_is_sint(value) && yyjson_get_sint(value) == -1;
    r->no_penalties = yyjson_is_int(value) && yyjson_get_uint(value) == 0;
    *out = 0;
    return all || r->no_penalties ||
           request_plain_count(r, value, name, 1, SAMPLER_REPEAT_WINDOW_MAX, out);
}

/* -1 and -2: up to the context. */
static bool read_predict(RequestReader *r, yyjson_val *value, const char *name)
{
    int64_t number = yyjson_get_sint(value);
    if (yyjson_is_sint(value) && (number == -1 || number == -2)) return true;
    return request_plain_count(r, value, name, 1, REQUEST_COUNT_MAX, &r->request->tokens_max);
}

static bool read_context_max(RequestReader *r, yyjson_val *value, const char *name)
{
    return request_plain_count(r, value, name, 1, REQUEST_COUNT_MAX, &r->request->context_max);
}

static bool read_one(RequestReader *r, yyjson_val *value, const char *name)
{
    return (yyjson_is_num(value) && yyjson_get_num(value) == 1) ||
           request_plain_never(r, value, name);
}

static bool read_zero(RequestReader *r, yyjson_val *value, const char *name)
{
    return (yyjson_is_num(value) && yyjson_get_num(value) == 0) ||
           request_plain_never(r, value, name);
}

static bool read_true(RequestReader *r, yyjson_val *value, const char *name)
{
    return yyjson_is_true(value) || request_plain_never(r, value, name);
}

#define FIELD(name, read) {name, REQUEST_ANY_KIND, read}

static const RequestField option_fields[] = {
    FIELD("options.temperature", request_plain_temperature),
    FIELD("options.top_p", request_plain_top_p),
    FIELD("options.top_k", request_plain_top_k),
    FIELD("options.min_p", request_plain_min_p),
    FIELD("options.repeat_penalty", request_plain_repetition),
    FIELD("options.repeat_last_n", read_window),
    FIELD("options.presence_penalty", request_plain_presence),
    FIELD("options.frequency_penalty", request_plain_frequency),
    FIELD("options.seed", read_seed),
    FIELD("options.stop", request_parts_stop),
    FIELD("options.num_predict", read_predict),
    FIELD("options.num_ctx", read_context_max),
    FIELD("options.typical_p", read_one),
    FIELD("options.tfs_z", read_one),
    FIELD("options.mirostat", read_zero),
    FIELD("options.mirostat_tau", request_plain_never),
    FIELD("options.mirostat_eta", request_plain_never),
    FIELD("options.penalize_newline", read_true),
    FIELD("options.num_keep", read_zero),
    FIELD("options.num_batch", request_plain_never),
    FIELD("options.num_gpu", request_plain_never),
    FIELD("options.main_gpu", request_plain_never),
    FIELD("options.num_thread", request_plain_never),
    FIELD("options.low_vram", request_plain_never),
    FIELD("options.f16_kv", request_plain_never),
    FIELD("options.use_mmap", request_plain_never),
    FIELD("options.use_mlock", request_plain_never),
    FIELD("options.numa", request_plain_never),
    FIELD("options.vocab_only", request_plain_neutral),
    FIELD("options.logits_all", request_plain_neutral),
    FIELD("options.embedding_only", request_plain_neutral),
};

static bool read_options(RequestReader *r, yyjson_val *value, const char *name)
{
    static const RequestTable table = {"options.", option_fields,
                                       sizeof option_fields / sizeof option_fields[0]};
    if (!yyjson_is_obj(value)) return request_refuse(r, REFUSAL_TYPE, name, "must be an object");
    return request_read_object(r, value, &table);
}

/* ---- fields ---- */

/* No messages: the model is wanted in memory, where it is. */
static bool read_messages(RequestReader *r, yyjson_val *value, const char *name)
{
    r->request->loads = yyjson_is_arr(value) && yyjson_arr_size(value) == 0;
    return r->request->loads || request_parts_messages(r, value, name);
}

static bool read_string(RequestReader *r, yyjson_val *value, const char *name, yyjson_val **out)
{
    *out = yyjson_get_len(value) ? value : NULL;
    return request_plain_string(r, value, name);
}

static bool read_prompt(RequestReader *r, yyjson_val *value, const char *name)
{
    return read_string(r, value, name, &r->prompt);
}

static bool read_system(RequestReader *r, yyjson_val *value, const char *name)
{
    return read_string(r, value, name, &r->system);
}

static bool read_raw(RequestReader *r, yyjson_val *value, const char *name)
{
    return request_plain_bool(r, value, name, &r->raw);
}

/* "", [] and false say nothing. */
static bool read_empty(RequestReader *r, yyjson_val *value, const char *name)
{
    bool empty = yyjson_is_false(value) || (yyjson_is_str(value) && !yyjson_get_len(value)) ||
                 (yyjson_is_arr(value) && !yyjson_arr_size(value)) ||
                 (yyjson_is_uint(value) && !yyjson_get_uint(value));
    return empty || request_plain_never(r, value, name);
}

/* A number of seconds, or "5m": the model stays longer than anybody can ask for, and cannot be made to go. */
static bool read_keep_alive(RequestReader *r, yyjson_val *value, const char *name)
{
    const char *text = yyjson_get_str(value);
    if (!yyjson_is_num(value) && !yyjson_is_str(value))
        return request_refuse(r, REFUSAL_TYPE, name,
                              "must be a number of seconds or a duration such as \"5m\"");
    bool any = yyjson_is_num(value) && yyjson_get_num(value) != 0;
    for (size_t i = 0; i < yyjson_get_len(value); i++) any |= text[i] >= '1' && text[i] <= '9';
    return any || refusal_make(r->refusal, REFUSAL_UNSUPPORTED, name,
                               "%s: the model that is served cannot be unloaded", name);
}

enum {
    IN_CHAT = 1 << REQUEST_OLLAMA_CHAT,
    IN_GENERATE = 1 << REQUEST_OLLAMA_GENERATE,
    IN_SHOW = 1 << REQUEST_OLLAMA_SHOW,
    IN_BOTH = IN_CHAT | IN_GENERATE
};

static const RequestField fields[] = {
    {"model", IN_BOTH | IN_SHOW, request_plain_string},
    {"messages", IN_CHAT, read_messages},
    {"prompt", IN_GENERATE, read_prompt},
    {"system", IN_GENERATE, read_system},
    {"raw", IN_GENERATE, read_raw},
    {"stream", IN_BOTH, request_plain_stream},
    {"format", IN_BOTH, request_form_format},
    {"options", IN_BOTH, read_options},
    {"keep_alive", IN_BOTH, read_keep_alive},
    {"tools", IN_CHAT, request_tools_list},
    {"think", IN_BOTH, read_empty},
    {"logprobs", IN_BOTH, read_empty},
    {"top_logprobs", IN_BOTH, read_empty},
    {"suffix", IN_GENERATE, read_empty},
    {"template", IN_GENERATE, read_empty},
    {"context", IN_GENERATE, read_empty},
    {"images", IN_GENERATE, read_empty},
    {"width", IN_GENERATE, read_empty},
    {"height", IN_GENERATE, read_empty},
    {"steps", IN_GENERATE, read_empty},
    {"name", IN_SHOW, request_plain_string},
    {"verbose", IN_SHOW, read_empty},
};

const RequestTable request_ollama_table = {"", fields, sizeof fields / sizeof fields[0]};

void request_ollama_defaults(Request *q)
{
    q->stream = true;
    q->params.temperature = 0.8f;
    q->params.top_k = 40;
    q->params.top_p = 0.9f;
    q->params.repetition_penalty = 1.1f;
    q->params.repeat_window = 64;
}

/* ---- together ---- */

static Turn make_turn(const char *role, yyjson_val *text)
{
    return (Turn){
        .role = role, .text = (const uint8_t *)yyjson_get_str(text), .bytes = yyjson_get_len(text)};
}

/* A prompt is a user's turn, unless it is raw. */
static bool take_prompt(RequestReader *r)
{
    Request *q = r->request;
    if (r->raw && r->system)
        return refusal_make(r->refusal, REFUSAL_VALUE, "system",
                            "raw says that the prompt is all: put the system text into it");
    q->loads = !r->prompt;
    if (q->loads) return true;
    if (r->raw) {
        q->prompts[q->prompt_count++] = (RequestPrompt){
            .text = (const uint8_t *)yyjson_get_str(r->prompt), .bytes = yyjson_get_len(r->prompt)};
        return true;
    }
    q->turns = ARENA_NEW(r->arena, Turn, 2);
    if (!q->turns)
        return refusal_make(r->refusal, REFUSAL_MEMORY, "prompt", "no memory for the prompt");
    if (r->system) q->turns[q->turn_count++] = make_turn("system", r->system);
    q->turns[q->turn_count++] = make_turn("user", r->prompt);
    return true;
}

bool request_ollama_check(RequestReader *r)
{
    Request *q = r->request;
    if (q->kind == REQUEST_OLLAMA_SHOW) return true;
    if (r->no_penalties) {
        q->params.repetition_penalty = 1;
        q->params.presence_penalty = q->params.frequency_penalty = 0;
    }
    if (q->kind == REQUEST_OLLAMA_CHAT) {
        q->loads = !q->turn_count;
        return request_tools_check(r);
    }
    return take_prompt(r);
}
