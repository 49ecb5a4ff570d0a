/* SPDX-License-Identifier: Apache-2.0 */
/* Readers of plain fields: one value each. */
#include <string.h>

#include "api/request_state.h"

bool request_plain_bool(RequestReader *r, yyjson_val *value, const char *name, bool *out)
{
    *out = yyjson_get_bool(value);
    return yyjson_is_bool(value) || request_refuse(r, REFUSAL_TYPE, name, "must be true or false");
}

static bool read_float(RequestReader *r, yyjson_val *value, const char *name, int low, int high,
                       float *out)
{
    double number = yyjson_get_num(value);
    if (!yyjson_is_num(value)) return request_refuse(r, REFUSAL_TYPE, name, "must be a number");
    if (!(number >= low && number <= high))
        return refusal_make(r->refusal, REFUSAL_VALUE, name, "%s must be from %d to %d", name, low,
                            high);
    *out = (float)number;
    return true;
}

bool request_plain_count(RequestReader *r, yyjson_val *value, const char *name, uint32_t low,
                         uint32_t high, uint32_t *out)
{
    if (!yyjson_is_int(value))
        return request_refuse(r, REFUSAL_TYPE, name, "must be a whole number");
    bool negative = yyjson_is_sint(value) && yyjson_get_sint(value) < 0;
    uint64_t number = yyjson_get_uint(value);
    if (negative || number < low || number > high)
        return refusal_make(r->refusal, REFUSAL_VALUE, name, "%s must be from %u to %u", name, low,
                            high);
    *out = (uint32_t)number;
    return true;
}

bool request_plain_never(RequestReader *r, yyjson_val *value, const char *name)
{
    (void)value;
    return request_refuse(r, REFUSAL_UNSUPPORTED, name, "is not supported");
}

bool request_plain_string(RequestReader *r, yyjson_val *value, const char *name)
{
    return yyjson_is_str(value) || request_refuse(r, REFUSAL_TYPE, name, "must be a string");
}

bool request_plain_stream(RequestReader *r, yyjson_val *value, const char *name)
{
    return request_plain_bool(r, value, name, &r->request->stream);
}

/* include_obfuscation changes no text; a response always ends with its usage. */
bool request_plain_stream_options(RequestReader *r, yyjson_val *value, const char *name)
{
    size_t at, count;
    yyjson_val *key, *item;
    bool responses = r->request->kind == REQUEST_RESPONSES;
    if (!yyjson_is_obj(value)) return request_refuse(r, REFUSAL_TYPE, name, "must be an object");
    r->stream_options_given = true;
    yyjson_obj_foreach(value, at, count, key, item)
    {
        bool usage = !responses && yyjson_equals_str(key, "include_usage"),
             other = yyjson_equals_str(key, "include_obfuscation");
        char param[REFUSAL_PARAM_MAX];
        request_name_safe(param, "stream_options.", key);
        if (!usage && !other)
            return refusal_make(r->refusal, REFUSAL_UNKNOWN, param,
                                responses ? "stream_options has include_obfuscation only"
                                          : "stream_options has include_usage only");
        bool on = false;
        if (!yyjson_is_null(item) && !request_plain_bool(r, item, param, &on)) return false;
        if (usage) r->request->include_usage = on;
    }
    return true;
}

bool request_plain_temperature(RequestReader *r, yyjson_val *value, const char *name)
{
    return read_float(r, value, name, 0, 2, &r->request->params.temperature);
}

bool request_plain_top_p(RequestReader *r, yyjson_val *value, const char *name)
{
    return read_float(r, value, name, 0, 1, &r->request->params.top_p);
}

bool request_plain_min_p(RequestReader *r, yyjson_val *value, const char *name)
{
    return read_float(r, value, name, 0, 1, &r->request->params.min_p);
}

bool request_plain_top_k(RequestReader *r, yyjson_val *value, const char *name)
{
    return request_plain_count(r, value, name, 0, REQUEST_COUNT_MAX, &r->request->params.top_k);
}

bool request_plain_repetition(RequestReader *r, yyjson_val *value, const char *name)
{
    float *out = &r->request->params.repetition_penalty;
    if (!read_float(r, value, name, 0, 10, out)) return false;
    return *out >= 0.01f ||
           request_refuse(r, REFUSAL_VALUE, name, "must be at least 0.01; 1 is off");
}

bool request_plain_presence(RequestReader *r, yyjson_val *value, const char *name)
{
    return read_float(r, value, name, -2, 2, &r->request->params.presence_penalty);
}

bool request_plain_frequency(RequestReader *r, yyjson_val *value, const char *name)
{
    return read_float(r, value, name, -2, 2, &r->request->params.frequency_penalty);
}

bool request_plain_seed(RequestReader *r, yyjson_val *value, const char *name)
{
    if (!yyjson_is_int(value))
        return request_refuse(r, REFUSAL_TYPE, name, "must be a whole number");
    r->request->params.seed = yyjson_get_uint(value); /* the bits of a negative one */
    r->request->seed_given = true;
    return true;
}

/* max_tokens and its newer name: one of them, or both alike. */
bool request_plain_tokens_max(RequestReader *r, yyjson_val *value, const char *name)
{
    uint32_t before = r->request->tokens_max;
    if (!request_plain_count(r, value, name, 0, REQUEST_COUNT_MAX, &r->request->tokens_max))
        return false;
    if (r->tokens_given && before != r->request->tokens_max)
        return refusal_make(r->refusal, REFUSAL_VALUE, name,
                            "max_tokens and max_completion_tokens differ; give one of them");
    r->tokens_given = true;
    return true;
}

bool request_plain_n(RequestReader *r, yyjson_val *value, const char *name)
{
    return request_plain_count(r, value, name, 1, REQUEST_CHOICES_MAX, &r->request->n);
}

bool request_plain_best_of(RequestReader *r, yyjson_val *value, const char *name)
{
    return request_plain_count(r, value, name, 1, REQUEST_CHOICES_MAX, &r->best_of);
}

/* Fields that exist elsewhere: their neutral value is taken, another one is refused by name. */
static bool is_neutral(yyjson_val *value, const char *name)
{
    if (yyjson_is_false(value)) return true;
    if (yyjson_is_arr(value)) return yyjson_arr_size(value) == 0;
    if (yyjson_is_str(value) && strcmp(name, "tool_choice") == 0)
        return yyjson_equals_str(value, "none") || yyjson_equals_str(value, "auto");
    if (yyjson_is_str(value) && strcmp(name, "suffix") == 0) return yyjson_get_len(value) == 0;
    return false;
}

bool request_plain_neutral(RequestReader *r, yyjson_val *value, const char *name)
{
    return is_neutral(value, name) || request_plain_never(r, value, name);
}

bool request_plain_modalities(RequestReader *r, yyjson_val *value, const char *name)
{
    bool text = yyjson_is_arr(value) && yyjson_arr_size(value) == 1 &&
                yyjson_equals_str(yyjson_arr_get(value, 0), "text");
    return text || refusal_make(r->refusal, REFUSAL_UNSUPPORTED, name,
                                "%s: only [\"text\"] is supported", name);
}

bool request_plain_text(RequestReader *r, yyjson_val *value, const char *name)
{
    if (r->request->prompt_count)
        return refusal_make(r->refusal, REFUSAL_VALUE, name,
                            "give one of text, content and prompt");
    if (!yyjson_is_str(value)) return request_refuse(r, REFUSAL_TYPE, name, "must be a string");
    r->request->prompts[r->request->prompt_count++] = (RequestPrompt){
        .text = (const uint8_t *)yyjson_get_str(value), .bytes = yyjson_get_len(value)};
    return true;
}

bool request_plain_ids(RequestReader *r, yyjson_val *value, const char *name)
{
    if (r->request->prompt_count)
        return refusal_make(r->refusal, REFUSAL_VALUE, name, "give one of ids and tokens");
    if (!yyjson_is_arr(value))
        return request_refuse(r, REFUSAL_TYPE, name, "must be an array of token ids");
    return request_parts_ids(r, value, name, &r->request->prompts[r->request->prompt_count++]);
}

bool request_plain_add_special(RequestReader *r, yyjson_val *value, const char *name)
{
    return request_plain_bool(r, value, name, &r->request->add_bos);
}

bool request_plain_parse_special(RequestReader *r, yyjson_val *value, const char *name)
{
    bool parse = true;
    if (!request_plain_bool(r, value, name, &parse)) return false;
    r->request->plain_specials = !parse;
    return true;
}
