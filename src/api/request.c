/* SPDX-License-Identifier: Apache-2.0 */
/* The table of fields, and the readers of plain ones. Messages, prompts, stops and bias: request_parts.c. */
#include "api/request.h"

#include <string.h>

#include "api/request_state.h"

/* ---- names ---- */

static void end_name(JsonWriter *w) { w->bytes[w->used] = '\0'; }

void request_name_at(char *out, const char *name, size_t index, const char *more)
{
    JsonWriter w = json_writer_make(out, REFUSAL_PARAM_MAX - 1);
    json_writer_raw(&w, name);
    json_writer_raw(&w, "[");
    json_writer_u64(&w, index);
    json_writer_raw(&w, "]");
    json_writer_raw(&w, more);
    end_name(&w);
}

static bool is_plain(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && c != '_' && c != '-' && c != '.') return false;
    }
    return bytes > 0 && bytes <= 64;
}

void request_name_safe(char *out, const char *before, yyjson_val *key)
{
    JsonWriter w = json_writer_make(out, REFUSAL_PARAM_MAX - 1);
    const char *text = yyjson_get_str(key);
    size_t bytes = yyjson_get_len(key);
    if (is_plain(text, bytes)) {
        json_writer_raw(&w, before);
        json_writer_bytes(&w, text, bytes);
    }
    end_name(&w);
}

/* ---- readers of one value ---- */

static bool read_bool_value(RequestReader *r, yyjson_val *value, const char *name, bool *out)
{
    *out = yyjson_get_bool(value);
    return yyjson_is_bool(value) ||
           refusal_make(r->refusal, REFUSAL_TYPE, name, "%s must be true or false", name);
}

static bool read_float(RequestReader *r, yyjson_val *value, const char *name, int low, int high,
                       float *out)
{
    double number = yyjson_get_num(value);
    if (!yyjson_is_num(value))
        return refusal_make(r->refusal, REFUSAL_TYPE, name, "%s must be a number", name);
    if (!(number >= low && number <= high))
        return refusal_make(r->refusal, REFUSAL_VALUE, name, "%s must be from %d to %d", name, low,
                            high);
    *out = (float)number;
    return true;
}

static bool read_count(RequestReader *r, yyjson_val *value, const char *name, uint32_t low,
                       uint32_t high, uint32_t *out)
{
    if (!yyjson_is_int(value))
        return refusal_make(r->refusal, REFUSAL_TYPE, name, "%s must be a whole number", name);
    bool negative = yyjson_is_sint(value) && yyjson_get_sint(value) < 0;
    uint64_t number = yyjson_get_uint(value);
    if (negative || number < low || (high && number > high))
        return high ? refusal_make(r->refusal, REFUSAL_VALUE, name, "%s must be from %u to %u",
                                   name, low, high)
                    : refusal_make(r->refusal, REFUSAL_VALUE, name, "%s must be %u or more", name,
                                   low);
    *out = number > REQUEST_TOKENS_UNLIMITED ? REQUEST_TOKENS_UNLIMITED : (uint32_t)number;
    return true;
}

static bool read_model(RequestReader *r, yyjson_val *value, const char *name)
{
    return yyjson_is_str(value) ||
           refusal_make(r->refusal, REFUSAL_TYPE, name, "%s must be a string", name);
}

static bool read_stream(RequestReader *r, yyjson_val *value, const char *name)
{
    return read_bool_value(r, value, name, &r->request->stream);
}

static bool read_stream_options(RequestReader *r, yyjson_val *value, const char *name)
{
    size_t at, count;
    yyjson_val *key, *item;
    if (!yyjson_is_obj(value))
        return refusal_make(r->refusal, REFUSAL_TYPE, name, "%s must be an object", name);
    r->stream_options_given = true;
    yyjson_obj_foreach(value, at, count, key, item)
    {
        bool usage = yyjson_equals_str(key, "include_usage"),
             other = yyjson_equals_str(key, "include_obfuscation");
        char param[REFUSAL_PARAM_MAX];
        request_name_safe(param, "stream_options.", key);
        if (!usage && !other)
            return refusal_make(r->refusal, REFUSAL_UNKNOWN, param,
                                "stream_options has include_usage only");
        bool on = false;
        if (!yyjson_is_null(item) && !read_bool_value(r, item, param, &on)) return false;
        if (usage) r->request->include_usage = on;
    }
    return true;
}

static bool read_temperature(RequestReader *r, yyjson_val *value, const char *name)
{
    return read_float(r, value, name, 0, 2, &r->request->params.temperature);
}

static bool read_top_p(RequestReader *r, yyjson_val *value, const char *name)
{
    return read_float(r, value, name, 0, 1, &r->request->params.top_p);
}

static bool read_min_p(RequestReader *r, yyjson_val *value, const char *name)
{
    return read_float(r, value, name, 0, 1, &r->request->params.min_p);
}

static bool read_top_k(RequestReader *r, yyjson_val *value, const char *name)
{
    return read_count(r, value, name, 0, 0, &r->request->params.top_k);
}

static bool read_repetition(RequestReader *r, yyjson_val *value, const char *name)
{
    float *out = &r->request->params.repetition_penalty;
    if (!read_float(r, value, name, 0, 10, out)) return false;
    return *out >= 0.01f || refusal_make(r->refusal, REFUSAL_VALUE, name,
                                         "%s must be at least 0.01; 1 is off", name);
}

static bool read_presence(RequestReader *r, yyjson_val *value, const char *name)
{
    return read_float(r, value, name, -2, 2, &r->request->params.presence_penalty);
}

static bool read_frequency(RequestReader *r, yyjson_val *value, const char *name)
{
    return read_float(r, value, name, -2, 2, &r->request->params.frequency_penalty);
}

static bool read_seed(RequestReader *r, yyjson_val *value, const char *name)
{
    if (!yyjson_is_int(value))
        return refusal_make(r->refusal, REFUSAL_TYPE, name, "%s must be a whole number", name);
    r->request->params.seed = yyjson_get_uint(value); /* the bits of a negative one */
    r->request->seed_given = true;
    return true;
}

/* max_tokens and its newer name: one of them, or both alike. */
static bool read_tokens_max(RequestReader *r, yyjson_val *value, const char *name)
{
    uint32_t before = r->request->tokens_max;
    if (!read_count(r, value, name, 0, 0, &r->request->tokens_max)) return false;
    if (r->tokens_given && before != r->request->tokens_max)
        return refusal_make(r->refusal, REFUSAL_VALUE, name,
                            "max_tokens and max_completion_tokens differ; give one of them");
    r->tokens_given = true;
    return true;
}

static bool read_n(RequestReader *r, yyjson_val *value, const char *name)
{
    return read_count(r, value, name, 1, REQUEST_CHOICES_MAX, &r->request->n);
}

static bool read_best_of(RequestReader *r, yyjson_val *value, const char *name)
{
    return read_count(r, value, name, 1, REQUEST_CHOICES_MAX, &r->best_of);
}

static bool read_user(RequestReader *r, yyjson_val *value, const char *name)
{
    return yyjson_is_str(value) ||
           refusal_make(r->refusal, REFUSAL_TYPE, name, "%s must be a string", name);
}

/* Fields that exist elsewhere: their neutral value is taken, another one is refused by name. */
static bool is_neutral(yyjson_val *value, const char *name)
{
    if (yyjson_is_false(value)) return true;
    if (yyjson_is_arr(value)) return yyjson_arr_size(value) == 0;
    if (yyjson_is_str(value) && strcmp(name, "tool_choice") == 0)
        return yyjson_equals_str(value, "none") || yyjson_equals_str(value, "auto");
    if (yyjson_is_str(value) && strcmp(name, "suffix") == 0) return yyjson_get_len(value) == 0;
    if (yyjson_is_int(value) && strcmp(name, "top_logprobs") == 0)
        return yyjson_get_uint(value) == 0;
    return false;
}

static bool read_neutral(RequestReader *r, yyjson_val *value, const char *name)
{
    return is_neutral(value, name) ||
           refusal_make(r->refusal, REFUSAL_UNSUPPORTED, name, "%s is not supported", name);
}

static bool read_modalities(RequestReader *r, yyjson_val *value, const char *name)
{
    bool text = yyjson_is_arr(value) && yyjson_arr_size(value) == 1 &&
                yyjson_equals_str(yyjson_arr_get(value, 0), "text");
    return text || refusal_make(r->refusal, REFUSAL_UNSUPPORTED, name,
                                "%s: only [\"text\"] is supported", name);
}

static bool read_text(RequestReader *r, yyjson_val *value, const char *name)
{
    if (r->request->prompt_count)
        return refusal_make(r->refusal, REFUSAL_VALUE, name,
                            "give one of text, content and prompt");
    if (!yyjson_is_str(value))
        return refusal_make(r->refusal, REFUSAL_TYPE, name, "%s must be a string", name);
    r->request->prompts[r->request->prompt_count++] = (RequestPrompt){
        .text = (const uint8_t *)yyjson_get_str(value), .bytes = yyjson_get_len(value)};
    return true;
}

static bool read_ids(RequestReader *r, yyjson_val *value, const char *name)
{
    if (r->request->prompt_count)
        return refusal_make(r->refusal, REFUSAL_VALUE, name, "give one of ids and tokens");
    if (!yyjson_is_arr(value))
        return refusal_make(r->refusal, REFUSAL_TYPE, name, "%s must be an array of token ids",
                            name);
    return request_parts_ids(r, value, name, &r->request->prompts[r->request->prompt_count++]);
}

static bool read_add_special(RequestReader *r, yyjson_val *value, const char *name)
{
    return read_bool_value(r, value, name, &r->request->add_bos);
}

static bool read_parse_special(RequestReader *r, yyjson_val *value, const char *name)
{
    bool parse = true;
    if (!read_bool_value(r, value, name, &parse)) return false;
    r->request->plain_specials = !parse;
    return true;
}

/* ---- the table ---- */

enum {
    IN_CHAT = 1 << REQUEST_CHAT,
    IN_COMPLETION = 1 << REQUEST_COMPLETION,
    IN_TOKENIZE = 1 << REQUEST_TOKENIZE,
    IN_DETOKENIZE = 1 << REQUEST_DETOKENIZE,
    IN_TEMPLATE = 1 << REQUEST_TEMPLATE,
    IN_BOTH = IN_CHAT | IN_COMPLETION,
    IN_ALL = IN_BOTH | IN_TOKENIZE | IN_DETOKENIZE | IN_TEMPLATE
};

typedef struct Field {
    const char *name;
    unsigned kinds;
    RequestRead read;
} Field;

static const Field fields[] = {
    {"model", IN_ALL, read_model},
    {"messages", IN_CHAT | IN_TEMPLATE, request_parts_messages},
    {"prompt", IN_COMPLETION, request_parts_prompt},
    {"stream", IN_BOTH, read_stream},
    {"stream_options", IN_BOTH, read_stream_options},
    {"temperature", IN_BOTH, read_temperature},
    {"top_p", IN_BOTH, read_top_p},
    {"top_k", IN_BOTH, read_top_k},
    {"min_p", IN_BOTH, read_min_p},
    {"repetition_penalty", IN_BOTH, read_repetition},
    {"presence_penalty", IN_BOTH, read_presence},
    {"frequency_penalty", IN_BOTH, read_frequency},
    {"seed", IN_BOTH, read_seed},
    {"stop", IN_BOTH, request_parts_stop},
    {"logit_bias", IN_BOTH, request_parts_bias},
    {"max_tokens", IN_BOTH, read_tokens_max},
    {"max_completion_tokens", IN_CHAT, read_tokens_max},
    {"n", IN_BOTH, read_n},
    {"best_of", IN_COMPLETION, read_best_of},
    {"user", IN_BOTH, read_user},
    {"logprobs", IN_BOTH, read_neutral},
    {"top_logprobs", IN_CHAT, read_neutral},
    {"echo", IN_COMPLETION, read_neutral},
    {"suffix", IN_COMPLETION, read_neutral},
    {"tools", IN_CHAT, read_neutral},
    {"tool_choice", IN_CHAT, read_neutral},
    {"parallel_tool_calls", IN_CHAT, read_neutral},
    {"functions", IN_CHAT, read_neutral},
    {"function_call", IN_CHAT, read_neutral},
    {"response_format", IN_CHAT, request_form_response_format},
    {"modalities", IN_CHAT, read_modalities},
    {"store", IN_CHAT, read_neutral},
    {"audio", IN_CHAT, read_neutral},
    {"prediction", IN_CHAT, read_neutral},
    {"reasoning_effort", IN_CHAT, read_neutral},
    {"web_search_options", IN_CHAT, read_neutral},
    {"grammar", IN_BOTH, request_form_grammar},
    {"stop_token_ids", IN_BOTH, read_neutral},
    {"text", IN_TOKENIZE, read_text},
    {"content", IN_TOKENIZE, read_text},
    {"prompt", IN_TOKENIZE, read_text},
    {"add_special", IN_TOKENIZE, read_add_special},
    {"parse_special", IN_TOKENIZE, read_parse_special},
    {"ids", IN_DETOKENIZE, read_ids},
    {"tokens", IN_DETOKENIZE, read_ids},
};
enum { FIELDS = sizeof fields / sizeof fields[0] };
_Static_assert(FIELDS <= 64, "one bit each in read_fields");

static unsigned find_field(RequestKind kind, yyjson_val *key)
{
    unsigned i = 0;
    while (i < FIELDS && !((fields[i].kinds >> kind & 1) && yyjson_equals_str(key, fields[i].name)))
        i++;
    return i;
}

static bool read_fields(RequestReader *r, yyjson_val *root)
{
    uint64_t seen = 0;
    size_t at, count;
    yyjson_val *key, *value;
    yyjson_obj_foreach(root, at, count, key, value)
    {
        unsigned i = find_field(r->request->kind, key);
        if (i == FIELDS) {
            char param[REFUSAL_PARAM_MAX];
            request_name_safe(param, "", key);
            return refusal_make(r->refusal, REFUSAL_UNKNOWN, param, "no such field here: %s",
                                param[0] ? param : "(unnamed)");
        }
        if (seen >> i & 1)
            return refusal_make(r->refusal, REFUSAL_VALUE, fields[i].name, "%s is given twice",
                                fields[i].name);
        seen |= 1ull << i;
        if (!yyjson_is_null(value) && !fields[i].read(r, value, fields[i].name)) return false;
    }
    return true;
}

/* What more than one field decides. */
static bool check_together(RequestReader *r)
{
    Request *q = r->request;
    static const char *const required[] = {[REQUEST_CHAT] = "messages",
                                           [REQUEST_COMPLETION] = "prompt",
                                           [REQUEST_TOKENIZE] = "text",
                                           [REQUEST_DETOKENIZE] = "ids",
                                           [REQUEST_TEMPLATE] = "messages"};
    if (!q->turn_count && !q->prompt_count)
        return refusal_make(r->refusal, REFUSAL_MISSING, required[q->kind], "%s is missing",
                            required[q->kind]);
    if (r->stream_options_given && !q->stream)
        return refusal_make(r->refusal, REFUSAL_VALUE, "stream_options",
                            "stream_options needs stream: true");
    if (r->best_of && r->best_of != q->n)
        return refusal_make(r->refusal, REFUSAL_UNSUPPORTED, "best_of",
                            "best_of is not supported unless it equals n");
    if (q->kind == REQUEST_COMPLETION && q->n * q->prompt_count > REQUEST_CHOICES_MAX)
        return refusal_make(r->refusal, REFUSAL_VALUE, "n",
                            "n times the number of prompts is at most %d", REQUEST_CHOICES_MAX);
    return true;
}

/* The JSON, joined texts, and arrays whose items need at least 2 bytes of body (ids) or 20 (messages) each. */
size_t request_bytes(size_t body_bytes)
{
    return json_scan_bytes(body_bytes) + arena_bytes(body_bytes) + arena_bytes(2 * body_bytes) +
           arena_bytes(body_bytes / 20 * sizeof(Turn)) + REQUEST_CHOICES_MAX * ARENA_ALIGN +
           arena_bytes(SAMPLER_BIAS_MAX * sizeof(SamplerBias)) + 4 * ARENA_ALIGN;
}

bool request_parse(RequestKind kind, uint32_t vocabulary, const uint8_t *body, size_t bytes,
                   Arena *arena, Request *out, Refusal *refusal)
{
    *out = (Request){
        .kind = kind, .n = 1, .tokens_max = REQUEST_TOKENS_UNLIMITED, .params = sampler_defaults()};
    *refusal = (Refusal){.kind = REFUSAL_NONE};
    out->params.temperature = 1;
    if (kind == REQUEST_COMPLETION) out->tokens_max = REQUEST_COMPLETION_TOKENS;
    yyjson_val *root = json_scan_object(body, bytes, arena, refusal);
    if (!root) return false;
    RequestReader r = {.request = out,
                       .refusal = refusal,
                       .arena = arena,
                       .vocabulary = vocabulary,
                       .text = arena_take_raw(arena, bytes)};
    if (!r.text) return refusal_make(refusal, REFUSAL_MEMORY, NULL, "no memory to read the body");
    return read_fields(&r, root) && check_together(&r);
}
