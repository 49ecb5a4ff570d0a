/* SPDX-License-Identifier: Apache-2.0 */
/* Messages, prompts, stop strings and bias of a request. */
#include <string.h>

#include "api/request_state.h"

/* ---- messages ---- */

/* A role as the model's turns call it, NULL when it has none. */
const char *request_parts_role(yyjson_val *role)
{
    static const char *const roles[][2] = {{"user", "user"},
                                           {"assistant", "assistant"},
                                           {"system", "system"},
                                           {"developer", "system"}};
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (yyjson_equals_str(role, roles[i][0])) return roles[i][1];
    return NULL;
}

static bool refuse_message(RequestReader *r, RefusalKind kind, size_t index, const char *field,
                           const char *text)
{
    char param[REFUSAL_PARAM_MAX];
    request_name_at(param, "messages", index, field);
    return refusal_make(r->refusal, kind, param, "%s %s", param, text);
}

static void append_text(RequestReader *r, yyjson_val *text)
{
    size_t bytes = yyjson_get_len(text);
    memcpy(r->text + r->text_bytes, yyjson_get_str(text), bytes);
    r->text_bytes += bytes;
}

/* [{"type":"text","text":"..."}, ...] joined without anything between. */
static bool read_parts(RequestReader *r, yyjson_val *parts, size_t index, Turn *turn)
{
    size_t at, count, from = r->text_bytes;
    yyjson_val *part;
    yyjson_arr_foreach(parts, at, count, part)
    {
        yyjson_val *text = yyjson_obj_get(part, "text");
        if (!yyjson_equals_str(yyjson_obj_get(part, "type"), "text"))
            return refuse_message(r, REFUSAL_UNSUPPORTED, index, ".content",
                                  "has a part that is no text; only text is supported");
        if (!yyjson_is_str(text) || yyjson_obj_size(part) != 2)
            return refuse_message(r, REFUSAL_TYPE, index, ".content",
                                  "has a part without a text of its own");
        append_text(r, text);
    }
    if (!count) return refuse_message(r, REFUSAL_VALUE, index, ".content", "has no parts");
    turn->text = r->text + from;
    turn->bytes = r->text_bytes - from;
    return true;
}

/* An assistant that calls tools may be silent; anybody else may not. */
static bool read_content(RequestReader *r, yyjson_val *content, size_t index, Turn *turn)
{
    if (turn->calls && (!content || yyjson_is_null(content))) {
        turn->silent = true;
        return true;
    }
    if (yyjson_is_arr(content)) return read_parts(r, content, index, turn);
    if (!content) return refuse_message(r, REFUSAL_MISSING, index, ".content", "is missing");
    if (!yyjson_is_str(content))
        return refuse_message(r, REFUSAL_TYPE, index, ".content",
                              "must be a string or parts of text");
    turn->text = (const uint8_t *)yyjson_get_str(content);
    turn->bytes = yyjson_get_len(content);
    return true;
}

/* A key that the role has beside role and content. */
static bool has_key(RequestKind kind, const char *role, yyjson_val *key)
{
    bool tool = strcmp(role, "tool") == 0;
    if (tool && kind == REQUEST_OLLAMA_CHAT) return yyjson_equals_str(key, "tool_name");
    if (strcmp(role, "assistant") == 0) return yyjson_equals_str(key, "tool_calls");
    return tool && (yyjson_equals_str(key, "tool_call_id") || yyjson_equals_str(key, "name"));
}

static bool is_blank(yyjson_val *key, yyjson_val *value)
{
    return yyjson_is_null(value) || (yyjson_is_arr(value) && yyjson_arr_size(value) == 0) ||
           (yyjson_equals_str(key, "thinking") && yyjson_equals_str(value, ""));
}

/* A field that nobody reads: what a client copies from an answer is fine while it is empty. */
static bool pass_over(RequestReader *r, size_t index, yyjson_val *key, yyjson_val *value)
{
    static const char *const copied[] = {"name",        "refusal",  "tool_calls",
                                         "annotations", "audio",    "function_call",
                                         "images",      "thinking", "tool_name"};
    bool known = false;
    for (size_t i = 0; i < sizeof copied / sizeof copied[0]; i++)
        known |= yyjson_equals_str(key, copied[i]);
    if (known && is_blank(key, value)) return true;
    char field[REFUSAL_PARAM_MAX];
    request_name_safe(field, ".", key);
    return refuse_message(r, known ? REFUSAL_UNSUPPORTED : REFUSAL_UNKNOWN, index, field,
                          "is not supported");
}

/* Fields beside role and content. */
static bool check_keys(RequestReader *r, yyjson_val *message, size_t index, const char *role_name)
{
    static const char *const read[] = {".role", ".content", ".tool_calls", ".tool_call_id",
                                       ".name"};
    size_t at, count;
    unsigned seen = 0;
    yyjson_val *key, *value;
    yyjson_obj_foreach(message, at, count, key, value)
    {
        unsigned i = 0;
        while (i < sizeof read / sizeof *read && !yyjson_equals_str(key, read[i] + 1)) i++;
        if (i < sizeof read / sizeof *read && seen >> i & 1)
            return refuse_message(r, REFUSAL_VALUE, index, read[i], "is given twice");
        seen |= 1u << i;
        if (i < 2 || has_key(r->request->kind, role_name, key)) continue;
        if (!pass_over(r, index, key, value)) return false;
    }
    return true;
}

static bool read_message(RequestReader *r, yyjson_val *message, size_t index, Turn *turn)
{
    yyjson_val *role = yyjson_obj_get(message, "role");
    if (!yyjson_is_obj(message))
        return refuse_message(r, REFUSAL_TYPE, index, "", "must be an object");
    if (!role) return refuse_message(r, REFUSAL_MISSING, index, ".role", "is missing");
    turn->role = yyjson_equals_str(role, "tool") ? "tool" : request_parts_role(role);
    if (!turn->role)
        return refuse_message(r, REFUSAL_VALUE, index, ".role",
                              "must be system, developer, user, assistant or tool");
    if (!check_keys(r, message, index, turn->role)) return false;
    yyjson_val *calls = yyjson_obj_get(message, "tool_calls");
    char param[REFUSAL_PARAM_MAX];
    request_name_at(param, "messages", index, ".tool_calls");
    if (calls && !yyjson_is_null(calls) && !request_tools_calls(r, calls, param, turn))
        return false;
    if (strcmp(turn->role, "tool") == 0 && !request_tools_answer(r, message, index, turn))
        return false;
    return read_content(r, yyjson_obj_get(message, "content"), index, turn);
}

bool request_parts_messages(RequestReader *r, yyjson_val *value, const char *name)
{
    size_t at, count = yyjson_arr_size(value);
    yyjson_val *message;
    if (!yyjson_is_arr(value)) return request_refuse(r, REFUSAL_TYPE, name, "must be an array");
    if (!count) return request_refuse(r, REFUSAL_VALUE, name, "is empty");
    size_t mark = arena_mark(r->arena);
    r->request->turns = ARENA_NEW(r->arena, Turn, count);
    if (!r->request->turns) { /* more messages than its bytes can hold whole ones */
        arena_reset(r->arena, mark);
        return request_refuse(r, REFUSAL_TYPE, name, "must hold objects");
    }
    yyjson_arr_foreach(value, at, count, message)
    {
        if (!read_message(r, message, at, &r->request->turns[at])) return false;
    }
    r->request->turn_count = count;
    return true;
}

/* ---- prompts ---- */

bool request_parts_ids(RequestReader *r, yyjson_val *value, const char *name, RequestPrompt *out)
{
    size_t at, count = yyjson_arr_size(value);
    yyjson_val *item;
    uint32_t *ids = ARENA_NEW(r->arena, uint32_t, count);
    if (!ids) return refusal_make(r->refusal, REFUSAL_MEMORY, name, "no memory for %zu ids", count);
    yyjson_arr_foreach(value, at, count, item)
    {
        if (yyjson_is_uint(item) && yyjson_get_uint(item) < r->vocabulary) {
            ids[at] = (uint32_t)yyjson_get_uint(item);
            continue;
        }
        char param[REFUSAL_PARAM_MAX];
        request_name_at(param, name, at, "");
        return refusal_make(r->refusal, yyjson_is_int(item) ? REFUSAL_VALUE : REFUSAL_TYPE, param,
                            "%s must be a token id, from 0 to %u", param, r->vocabulary - 1);
    }
    *out = (RequestPrompt){.is_ids = true, .ids = ids, .count = count};
    return true;
}

static bool add_prompt(RequestReader *r, yyjson_val *value, const char *name)
{
    const char *all = request_prompt_name(r->request->kind);
    uint32_t most =
        r->request->kind == REQUEST_EMBEDDINGS ? REQUEST_INPUTS_MAX : REQUEST_CHOICES_MAX;
    if (r->request->prompt_count == most)
        return refusal_make(r->refusal, REFUSAL_VALUE, all, "%s has more than %u texts", all, most);
    RequestPrompt *prompt = &r->request->prompts[r->request->prompt_count++];
    if (yyjson_is_arr(value) && yyjson_arr_size(value))
        return request_parts_ids(r, value, name, prompt);
    if (!yyjson_is_str(value))
        return request_refuse(r, yyjson_is_arr(value) ? REFUSAL_VALUE : REFUSAL_TYPE, name,
                              "must be a text, or an array of at least one token id");
    *prompt = (RequestPrompt){.text = (const uint8_t *)yyjson_get_str(value),
                              .bytes = yyjson_get_len(value)};
    return true;
}

/* "text", [1,2], ["text","text"], [[1,2],[3]]: the first item tells the last three apart. */
bool request_parts_prompt(RequestReader *r, yyjson_val *value, const char *name)
{
    yyjson_val *first = yyjson_arr_get_first(value), *item;
    bool many = yyjson_is_str(first) || yyjson_is_arr(first);
    if (!many) return add_prompt(r, value, name);
    size_t at, count;
    yyjson_arr_foreach(value, at, count, item)
    {
        char param[REFUSAL_PARAM_MAX];
        request_name_at(param, name, at, "");
        if (!add_prompt(r, item, param)) return false;
    }
    return true;
}

/* ---- stop strings and bias ---- */

/* `list`: the field; `name`: this string of it. */
static bool add_stop(RequestReader *r, yyjson_val *value, const char *list, const char *name)
{
    Request *q = r->request;
    if (!yyjson_is_str(value)) return request_refuse(r, REFUSAL_TYPE, name, "must be a string");
    size_t bytes = yyjson_get_len(value);
    if (!bytes || bytes > DETOKENIZER_STOP_BYTES_MAX)
        return refusal_make(r->refusal, REFUSAL_VALUE, name, "%s must have 1 to %d bytes", name,
                            DETOKENIZER_STOP_BYTES_MAX);
    if (q->stop_count == DETOKENIZER_STOPS_MAX)
        return refusal_make(r->refusal, REFUSAL_VALUE, list, "%s has more than %d stop strings",
                            list, DETOKENIZER_STOPS_MAX);
    q->stops[q->stop_count] = yyjson_get_str(value);
    q->stop_bytes[q->stop_count++] = (uint32_t)bytes;
    return true;
}

bool request_parts_stop(RequestReader *r, yyjson_val *value, const char *name)
{
    size_t at, count;
    yyjson_val *item;
    if (yyjson_is_str(value)) return add_stop(r, value, name, name);
    if (!yyjson_is_arr(value))
        return request_refuse(r, REFUSAL_TYPE, name, "must be a string or an array of strings");
    yyjson_arr_foreach(value, at, count, item)
    {
        char param[REFUSAL_PARAM_MAX];
        request_name_at(param, name, at, "");
        if (!add_stop(r, item, name, param)) return false;
    }
    return true;
}

/* A token id written as a key: digits only, without a leading zero, below the vocabulary. */
static bool read_id_key(yyjson_val *key, uint32_t vocabulary, uint32_t *out)
{
    const char *text = yyjson_get_str(key);
    size_t bytes = yyjson_get_len(key);
    uint64_t id = 0;
    if (!bytes || bytes > 10 || (text[0] == '0' && bytes > 1)) return false;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        id = 10 * id + (uint64_t)(text[i] - '0');
    }
    *out = (uint32_t)id;
    return id < vocabulary;
}

static bool read_bias(RequestReader *r, yyjson_val *key, yyjson_val *value, const char *name,
                      SamplerBias *out)
{
    char param[REFUSAL_PARAM_MAX];
    request_name_safe(param, "logit_bias.", key);
    const char *shown = param[0] ? param : name;
    double bias = yyjson_get_num(value);
    if (!read_id_key(key, r->vocabulary, &out->id))
        return refusal_make(r->refusal, REFUSAL_VALUE, shown,
                            "the keys of logit_bias are token ids, from 0 to %u",
                            r->vocabulary - 1);
    if (!yyjson_is_num(value) || !(bias >= -100 && bias <= 100))
        return request_refuse(r, yyjson_is_num(value) ? REFUSAL_VALUE : REFUSAL_TYPE, shown,
                              "must be a number from -100 to 100");
    out->bias = (float)bias;
    return true;
}

bool request_parts_bias(RequestReader *r, yyjson_val *value, const char *name)
{
    size_t at, count = yyjson_obj_size(value);
    yyjson_val *key, *item;
    if (!yyjson_is_obj(value))
        return request_refuse(r, REFUSAL_TYPE, name, "must be an object of token ids and numbers");
    if (count > SAMPLER_BIAS_MAX)
        return refusal_make(r->refusal, REFUSAL_VALUE, name, "%s has more than %d entries", name,
                            SAMPLER_BIAS_MAX);
    SamplerBias *bias = ARENA_NEW(r->arena, SamplerBias, count);
    if (!bias) return refusal_make(r->refusal, REFUSAL_MEMORY, name, "no memory for %s", name);
    yyjson_obj_foreach(value, at, count, key, item)
    {
        if (!read_bias(r, key, item, name, &bias[at])) return false;
        for (size_t i = 0; i < at; i++)
            if (bias[i].id == bias[at].id)
                return request_refuse(r, REFUSAL_VALUE, name, "names a token twice");
    }
    r->request->params.bias = bias;
    r->request->params.bias_count = (uint32_t)count;
    return true;
}
