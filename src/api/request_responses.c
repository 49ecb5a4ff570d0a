/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/responses, of which text is taken: a string or messages, in and out. An answer's output can be put into the next
 * request's input as it is. Nothing is stored, so what refers to stored things is refused.
 *
 *   instructions --> the first system turn      input --> turns      text.format --> the form */
#include <string.h>

#include "api/json_tree.h"
#include "api/request_state.h"

/* ---- input ---- */

static bool refuse_item(RequestReader *r, RefusalKind kind, size_t index, const char *field,
                        const char *text)
{
    char param[REFUSAL_PARAM_MAX];
    request_name_at(param, "input", index, field);
    return refusal_make(r->refusal, kind, param, "%s %s", param, text);
}

static bool is_blank(yyjson_val *value)
{
    return !value || yyjson_is_null(value) || (yyjson_is_arr(value) && yyjson_arr_size(value) == 0);
}

/* Members of a part or item beside those that are read: NULL-ended names, and whether they may be blank only. */
static bool check_members(RequestReader *r, yyjson_val *object, size_t index, const char *before,
                          const char *const *read, const char *const *blank)
{
    size_t at, count;
    yyjson_val *key, *value;
    yyjson_obj_foreach(object, at, count, key, value)
    {
        size_t i = 0, k = 0;
        while (read[i] && !yyjson_equals_str(key, read[i])) i++;
        while (blank[k] && !yyjson_equals_str(key, blank[k])) k++;
        if (read[i] || (blank[k] && is_blank(value))) continue;
        char field[REFUSAL_PARAM_MAX];
        request_name_safe(field, before, key);
        return refuse_item(r, blank[k] ? REFUSAL_UNSUPPORTED : REFUSAL_UNKNOWN, index, field,
                           "is not supported");
    }
    return true;
}

static bool read_part(RequestReader *r, yyjson_val *part, size_t index)
{
    static const char *const read[] = {"type", "text", NULL}, *const blank[] = {"annotations",
                                                                                "logprobs", NULL};
    yyjson_val *type = yyjson_obj_get(part, "type"), *text = yyjson_obj_get(part, "text");
    if (!yyjson_equals_str(type, "input_text") && !yyjson_equals_str(type, "output_text"))
        return refuse_item(r, REFUSAL_UNSUPPORTED, index, ".content",
                           "has a part that is no text; input_text and output_text are supported");
    if (!yyjson_is_str(text))
        return refuse_item(r, REFUSAL_TYPE, index, ".content", "has a part without a text");
    if (!check_members(r, part, index, ".content.", read, blank)) return false;
    memcpy(r->text + r->text_bytes, yyjson_get_str(text), yyjson_get_len(text));
    r->text_bytes += yyjson_get_len(text);
    return true;
}

static bool read_content(RequestReader *r, yyjson_val *content, size_t index, Turn *turn)
{
    size_t at, count, from = r->text_bytes;
    yyjson_val *part;
    turn->text = (const uint8_t *)yyjson_get_str(content);
    turn->bytes = yyjson_get_len(content);
    if (yyjson_is_str(content)) return true;
    if (!content) return refuse_item(r, REFUSAL_MISSING, index, ".content", "is missing");
    if (!yyjson_is_arr(content))
        return refuse_item(r, REFUSAL_TYPE, index, ".content", "must be a string or parts of text");
    yyjson_arr_foreach(content, at, count, part)
    {
        if (!read_part(r, part, index)) return false;
    }
    if (!count) return refuse_item(r, REFUSAL_VALUE, index, ".content", "has no parts");
    turn->text = r->text + from;
    turn->bytes = r->text_bytes - from;
    return true;
}

static bool read_item(RequestReader *r, yyjson_val *item, size_t index, Turn *turn)
{
    static const char *const read[] = {"type", "role", "content", "id", "status", NULL},
                             *const blank[] = {"phase", NULL};
    yyjson_val *type = yyjson_obj_get(item, "type"), *role = yyjson_obj_get(item, "role");
    if (!yyjson_is_obj(item)) return refuse_item(r, REFUSAL_TYPE, index, "", "must be an object");
    if (type && !yyjson_equals_str(type, "message"))
        return refuse_item(r, REFUSAL_UNSUPPORTED, index, ".type",
                           "is not supported; items are messages");
    if (!check_members(r, item, index, ".", read, blank)) return false;
    if (!role) return refuse_item(r, REFUSAL_MISSING, index, ".role", "is missing");
    turn->role = request_parts_role(role);
    if (!turn->role)
        return refuse_item(r, REFUSAL_VALUE, index, ".role",
                           "must be system, developer, user or assistant");
    return read_content(r, yyjson_obj_get(item, "content"), index, turn);
}

/* The turns have one in front, which instructions may take. */
static bool make_turns(RequestReader *r, size_t count, const char *name)
{
    size_t mark = arena_mark(r->arena);
    Turn *turns = ARENA_NEW(r->arena, Turn, count + 1);
    if (!turns) { /* more items than its bytes can hold whole ones */
        arena_reset(r->arena, mark);
        return request_refuse(r, REFUSAL_TYPE, name, "must hold objects");
    }
    r->request->turns = turns + 1;
    return true;
}

static bool read_input(RequestReader *r, yyjson_val *value, const char *name)
{
    size_t at, count = yyjson_is_str(value) ? 1 : yyjson_arr_size(value);
    yyjson_val *item;
    if (!yyjson_is_str(value) && !yyjson_is_arr(value))
        return request_refuse(r, REFUSAL_TYPE, name, "must be a string or an array of messages");
    if (!count) return request_refuse(r, REFUSAL_VALUE, name, "is empty");
    if (!make_turns(r, count, name)) return false;
    if (yyjson_is_str(value))
        r->request->turns[0] = (Turn){.role = "user",
                                      .text = (const uint8_t *)yyjson_get_str(value),
                                      .bytes = yyjson_get_len(value)};
    yyjson_arr_foreach(value, at, count, item)
    {
        if (!read_item(r, item, at, &r->request->turns[at])) return false;
    }
    r->request->turn_count = yyjson_is_str(value) ? 1 : count;
    return true;
}

static bool read_instructions(RequestReader *r, yyjson_val *value, const char *name)
{
    r->request->echo.instructions = value;
    return request_plain_string(r, value, name);
}

/* ---- other fields ---- */

static bool read_metadata(RequestReader *r, yyjson_val *value, const char *name)
{
    size_t at, count;
    yyjson_val *key, *item;
    if (!yyjson_is_obj(value))
        return request_refuse(r, REFUSAL_TYPE, name, "must be an object of strings");
    if (yyjson_obj_size(value) > 16)
        return request_refuse(r, REFUSAL_VALUE, name, "has more than 16 members");
    yyjson_obj_foreach(value, at, count, key, item)
    {
        char param[REFUSAL_PARAM_MAX];
        request_name_safe(param, "metadata.", key);
        const char *shown = param[0] ? param : name;
        if (!yyjson_is_str(item)) return request_refuse(r, REFUSAL_TYPE, shown, "must be a string");
        if (yyjson_get_len(key) > 64 || yyjson_get_len(item) > 512)
            return request_refuse(r, REFUSAL_VALUE, shown,
                                  "is too long: names have at most 64 bytes, values 512");
    }
    r->request->echo.metadata = value;
    return true;
}

static bool read_temperature(RequestReader *r, yyjson_val *value, const char *name)
{
    r->request->echo.temperature = value;
    return request_plain_temperature(r, value, name);
}

static bool read_top_p(RequestReader *r, yyjson_val *value, const char *name)
{
    r->request->echo.top_p = value;
    return request_plain_top_p(r, value, name);
}

static bool read_tokens_max(RequestReader *r, yyjson_val *value, const char *name)
{
    r->request->echo.tokens_max = value;
    return request_plain_tokens_max(r, value, name);
}

/* Nothing is stored: what a client leaves out is not promised, what it asks for is. */
static bool read_store(RequestReader *r, yyjson_val *value, const char *name)
{
    return yyjson_is_false(value) ||
           refusal_make(r->refusal, REFUSAL_UNSUPPORTED, name,
                        "%s: answers are not stored; leave it out, or false", name);
}

static bool read_word(RequestReader *r, yyjson_val *value, const char *name,
                      const char *const *taken)
{
    for (; *taken; taken++)
        if (yyjson_equals_str(value, *taken)) return true;
    return refusal_make(r->refusal, REFUSAL_UNSUPPORTED, name, "%s: this value is not supported",
                        name);
}

static bool read_truncation(RequestReader *r, yyjson_val *value, const char *name)
{
    return read_word(r, value, name, (const char *const[]){"disabled", NULL});
}

static bool read_tier(RequestReader *r, yyjson_val *value, const char *name)
{
    return read_word(r, value, name, (const char *const[]){"auto", "default", NULL});
}

static bool read_verbosity(RequestReader *r, yyjson_val *value, const char *name)
{
    return read_word(r, value, name, (const char *const[]){"medium", NULL});
}

/* Without tools both are the same. */
static bool read_parallel(RequestReader *r, yyjson_val *value, const char *name)
{
    bool ignored;
    return request_plain_bool(r, value, name, &ignored);
}

/* What cannot be honoured, whatever it holds: but nothing, in its own way. */
static bool read_blank(RequestReader *r, yyjson_val *value, const char *name)
{
    bool nothing = yyjson_is_false(value) || is_blank(value) ||
                   (yyjson_is_obj(value) && yyjson_obj_size(value) == 0) ||
                   (yyjson_is_uint(value) && yyjson_get_uint(value) == 0);
    return nothing || request_plain_never(r, value, name);
}

/* An object of whose members only those without a value are taken. */
static bool read_blank_members(RequestReader *r, yyjson_val *value, const char *name)
{
    size_t at, count;
    yyjson_val *key, *item;
    bool blank = yyjson_is_obj(value);
    yyjson_obj_foreach(value, at, count, key, item) blank &= yyjson_is_null(item);
    return blank || request_plain_never(r, value, name);
}

/* ---- text ---- */

static bool read_format(RequestReader *r, yyjson_val *value, const char *name)
{
    r->request->echo.format = value;
    return request_form_text_format(r, value, name);
}

static bool read_text(RequestReader *r, yyjson_val *value, const char *name)
{
    static const RequestField fields[] = {
        {"text.format", REQUEST_ANY_KIND, read_format},
        {"text.verbosity", REQUEST_ANY_KIND, read_verbosity},
    };
    static const RequestTable table = {"text.", fields, sizeof fields / sizeof fields[0]};
    if (!yyjson_is_obj(value)) return request_refuse(r, REFUSAL_TYPE, name, "must be an object");
    return request_read_object(r, value, &table);
}

/* ---- the table ---- */

#define FIELD(name, read) {name, REQUEST_ANY_KIND, read}

static const RequestField fields[] = {
    FIELD("model", request_plain_string),
    FIELD("input", read_input),
    FIELD("instructions", read_instructions),
    FIELD("stream", request_plain_stream),
    FIELD("stream_options", request_plain_stream_options),
    FIELD("max_output_tokens", read_tokens_max),
    FIELD("temperature", read_temperature),
    FIELD("top_p", read_top_p),
    FIELD("top_k", request_plain_top_k),
    FIELD("min_p", request_plain_min_p),
    FIELD("repetition_penalty", request_plain_repetition),
    FIELD("presence_penalty", request_plain_presence),
    FIELD("frequency_penalty", request_plain_frequency),
    FIELD("seed", request_plain_seed),
    FIELD("stop", request_parts_stop),
    FIELD("logit_bias", request_parts_bias),
    FIELD("text", read_text),
    FIELD("grammar", request_form_grammar),
    FIELD("metadata", read_metadata),
    FIELD("user", request_plain_string),
    FIELD("safety_identifier", request_plain_string),
    FIELD("prompt_cache_key", request_plain_string),
    FIELD("store", read_store),
    FIELD("truncation", read_truncation),
    FIELD("service_tier", read_tier),
    FIELD("parallel_tool_calls", read_parallel),
    FIELD("tools", request_plain_neutral),
    FIELD("tool_choice", request_plain_neutral),
    FIELD("max_tool_calls", read_blank),
    FIELD("include", read_blank),
    FIELD("background", read_blank),
    FIELD("reasoning", read_blank_members),
    FIELD("top_logprobs", read_blank),
    FIELD("previous_response_id", read_blank),
    FIELD("conversation", read_blank),
    FIELD("prompt", read_blank),
    FIELD("context_management", read_blank),
    FIELD("moderation", read_blank),
    FIELD("prompt_cache_options", read_blank),
    FIELD("prompt_cache_retention", read_blank),
};

const RequestTable request_responses_table = {"", fields, sizeof fields / sizeof fields[0]};

/* Instructions stand in front of all. */
bool request_responses_check(RequestReader *r)
{
    Request *q = r->request;
    yyjson_val *instructions = q->echo.instructions;
    if (!q->turn_count)
        return refusal_make(r->refusal, REFUSAL_MISSING, "input", "input is missing");
    if (!instructions) return true;
    *--q->turns = (Turn){.role = "system",
                         .text = (const uint8_t *)yyjson_get_str(instructions),
                         .bytes = yyjson_get_len(instructions)};
    q->turn_count++;
    return true;
}

/* ---- what the answer says again ---- */

static void write_echo(const Request *q, JsonWriter *w)
{
    const RequestEcho *e = &q->echo;
    json_writer_raw(w, ",\"instructions\":");
    json_tree_write(w, e->instructions);
    json_writer_raw(w, ",\"max_output_tokens\":");
    json_tree_write(w, e->tokens_max);
    json_writer_raw(w, ",\"metadata\":");
    if (e->metadata) json_tree_write(w, e->metadata);
    else json_writer_raw(w, "{}");
    json_writer_raw(w, ",\"temperature\":");
    if (e->temperature) json_tree_write(w, e->temperature);
    else json_writer_raw(w, "1.0");
    json_writer_raw(w, ",\"top_p\":");
    if (e->top_p) json_tree_write(w, e->top_p);
    else json_writer_raw(w, "1.0");
    json_writer_raw(w, ",\"text\":{\"format\":");
    if (e->format) json_tree_write(w, e->format);
    else json_writer_raw(w, "{\"type\":\"text\"}");
    json_writer_raw(w, "}");
}

bool request_echo(const Request *q, JsonWriter *w, Refusal *refusal)
{
    if (q->kind == REQUEST_RESPONSES) write_echo(q, w);
    if (!w->full) return true;
    const char *param = q->echo.instructions ? "instructions" : "text";
    return refusal_make(refusal, REFUSAL_VALUE, param,
                        "instructions, metadata and text.format have more than %d bytes together",
                        REQUEST_ECHO_BYTES_MAX);
}
