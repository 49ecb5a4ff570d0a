/* SPDX-License-Identifier: Apache-2.0 */
/* OpenAI's table of fields, and the loop that reads any dialect's. */
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

void request_name_join(char *out, const char *name, const char *more)
{
    JsonWriter w = json_writer_make(out, REFUSAL_PARAM_MAX - 1);
    json_writer_raw(&w, name);
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

/* ---- members ---- */

bool request_refuse(RequestReader *r, RefusalKind kind, const char *name, const char *text)
{
    return refusal_make(r->refusal, kind, name, "%s %s", name, text);
}

bool request_check_members(RequestReader *r, yyjson_val *object, const char *name,
                           const char *const *known)
{
    size_t at, count;
    unsigned seen = 0;
    yyjson_val *key, *item;
    if (!yyjson_is_obj(object))
        return request_refuse(r, object ? REFUSAL_TYPE : REFUSAL_MISSING, name,
                              "must be an object");
    yyjson_obj_foreach(object, at, count, key, item)
    {
        unsigned i = 0;
        while (known[i] && !yyjson_equals_str(key, known[i])) i++;
        char before[REFUSAL_PARAM_MAX], own[REFUSAL_PARAM_MAX];
        request_name_join(before, name, ".");
        request_name_safe(own, before, key);
        const char *shown = own[0] ? own : name;
        if (!known[i]) return request_refuse(r, REFUSAL_UNKNOWN, shown, "is not known here");
        if (seen >> i & 1) return request_refuse(r, REFUSAL_VALUE, shown, "is given twice");
        seen |= 1u << i;
    }
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

static const RequestField fields[] = {
    {"model", IN_ALL, request_plain_string},
    {"messages", IN_CHAT | IN_TEMPLATE, request_parts_messages},
    {"prompt", IN_COMPLETION, request_parts_prompt},
    {"stream", IN_BOTH, request_plain_stream},
    {"stream_options", IN_BOTH, request_plain_stream_options},
    {"temperature", IN_BOTH, request_plain_temperature},
    {"top_p", IN_BOTH, request_plain_top_p},
    {"top_k", IN_BOTH, request_plain_top_k},
    {"min_p", IN_BOTH, request_plain_min_p},
    {"repetition_penalty", IN_BOTH, request_plain_repetition},
    {"presence_penalty", IN_BOTH, request_plain_presence},
    {"frequency_penalty", IN_BOTH, request_plain_frequency},
    {"seed", IN_BOTH, request_plain_seed},
    {"stop", IN_BOTH, request_parts_stop},
    {"logit_bias", IN_BOTH, request_parts_bias},
    {"max_tokens", IN_BOTH, request_plain_tokens_max},
    {"max_completion_tokens", IN_CHAT, request_plain_tokens_max},
    {"n", IN_BOTH, request_plain_n},
    {"best_of", IN_COMPLETION, request_plain_best_of},
    {"user", IN_BOTH, request_plain_string},
    {"logprobs", IN_CHAT, request_scores_wanted},
    {"top_logprobs", IN_CHAT, request_scores_tops},
    {"logprobs", IN_COMPLETION, request_scores_count},
    {"echo", IN_COMPLETION, request_scores_echo},
    {"hops", IN_BOTH, request_scores_hops},
    {"suffix", IN_COMPLETION, request_plain_neutral},
    {"tools", IN_CHAT | IN_TEMPLATE, request_tools_list},
    {"tool_choice", IN_CHAT | IN_TEMPLATE, request_tools_choice},
    {"parallel_tool_calls", IN_CHAT | IN_TEMPLATE, request_tools_parallel},
    {"functions", IN_CHAT, request_plain_neutral},
    {"function_call", IN_CHAT, request_plain_neutral},
    {"response_format", IN_CHAT, request_form_response_format},
    {"modalities", IN_CHAT, request_plain_modalities},
    {"store", IN_CHAT, request_plain_neutral},
    {"audio", IN_CHAT, request_plain_neutral},
    {"prediction", IN_CHAT, request_plain_neutral},
    {"reasoning_effort", IN_CHAT, request_plain_neutral},
    {"web_search_options", IN_CHAT, request_plain_neutral},
    {"grammar", IN_BOTH, request_form_grammar},
    {"stop_token_ids", IN_BOTH, request_plain_neutral},
    {"text", IN_TOKENIZE, request_plain_text},
    {"content", IN_TOKENIZE, request_plain_text},
    {"prompt", IN_TOKENIZE, request_plain_text},
    {"add_special", IN_TOKENIZE, request_plain_add_special},
    {"parse_special", IN_TOKENIZE, request_plain_parse_special},
    {"ids", IN_DETOKENIZE, request_plain_ids},
    {"tokens", IN_DETOKENIZE, request_plain_ids},
};
enum { FIELDS = sizeof fields / sizeof fields[0] };

/* ---- the loop ---- */

static unsigned find_field(const RequestTable *table, RequestKind kind, yyjson_val *key)
{
    const RequestField *f = table->fields;
    size_t before = strlen(table->before);
    unsigned i = 0;
    while (i < table->count &&
           !((f[i].kinds >> kind & 1) && yyjson_equals_str(key, f[i].name + before)))
        i++;
    return i;
}

bool request_read_object(RequestReader *r, yyjson_val *object, const RequestTable *table)
{
    uint64_t seen = 0;
    size_t at, count;
    yyjson_val *key, *value;
    ASSERT(table->count <= 64);
    yyjson_obj_foreach(object, at, count, key, value)
    {
        unsigned i = find_field(table, r->request->kind, key);
        if (i == table->count) {
            char param[REFUSAL_PARAM_MAX];
            request_name_safe(param, table->before, key);
            return refusal_make(r->refusal, REFUSAL_UNKNOWN, param, "no such field here: %s",
                                param[0] ? param : "(unnamed)");
        }
        const RequestField *field = &table->fields[i];
        if (seen >> i & 1)
            return refusal_make(r->refusal, REFUSAL_VALUE, field->name, "%s is given twice",
                                field->name);
        seen |= 1ull << i;
        if (!yyjson_is_null(value) && !field->read(r, value, field->name)) return false;
    }
    return true;
}

/* ---- kinds ---- */

static const struct Kind {
    bool generates;
    AnswerDialect dialect;
    const char *prompt;
} kinds[REQUEST_KINDS] = {
    [REQUEST_CHAT] = {true, ANSWER_CHAT, "messages"},
    [REQUEST_COMPLETION] = {true, ANSWER_COMPLETION, "prompt"},
    [REQUEST_TOKENIZE] = {false, 0, "text"},
    [REQUEST_DETOKENIZE] = {false, 0, "ids"},
    [REQUEST_TEMPLATE] = {false, 0, "messages"},
    [REQUEST_EMBEDDINGS] = {true, ANSWER_EMBEDDINGS, "input"},
    [REQUEST_RESPONSES] = {true, ANSWER_RESPONSES, "input"},
    [REQUEST_OLLAMA_CHAT] = {true, ANSWER_OLLAMA_CHAT, "messages"},
    [REQUEST_OLLAMA_GENERATE] = {true, ANSWER_OLLAMA_GENERATE, "prompt"},
    [REQUEST_OLLAMA_SHOW] = {false, 0, "model"},
};

bool request_generates(RequestKind kind) { return kinds[kind].generates; }

AnswerDialect request_dialect(RequestKind kind) { return kinds[kind].dialect; }

const char *request_prompt_name(RequestKind kind) { return kinds[kind].prompt; }

/* ---- together ---- */

/* What more than one field decides. */
static bool check_together(RequestReader *r)
{
    Request *q = r->request;
    const char *required = request_prompt_name(q->kind);
    if (!q->turn_count && !q->prompt_count)
        return request_refuse(r, REFUSAL_MISSING, required, "is missing");
    if (r->best_of && r->best_of != q->n)
        return refusal_make(r->refusal, REFUSAL_UNSUPPORTED, "best_of",
                            "best_of is not supported unless it equals n");
    if (q->kind == REQUEST_COMPLETION && q->n * q->prompt_count > REQUEST_CHOICES_MAX)
        return refusal_make(r->refusal, REFUSAL_VALUE, "n",
                            "n times the number of prompts is at most %d", REQUEST_CHOICES_MAX);
    return request_tools_check(r);
}

static bool check_stream(RequestReader *r)
{
    return !r->stream_options_given || r->request->stream ||
           refusal_make(r->refusal, REFUSAL_VALUE, "stream_options",
                        "stream_options needs stream: true");
}

/* The JSON, joined texts, and arrays whose items need at least 2 bytes of body (ids) or 20 (messages) each. */
size_t request_bytes(size_t body_bytes)
{
    return json_scan_bytes(body_bytes) + arena_bytes(body_bytes) + arena_bytes(2 * body_bytes) +
           arena_bytes((body_bytes / 20 + 2) * sizeof(Turn)) + REQUEST_INPUTS_MAX * ARENA_ALIGN +
           arena_bytes(SAMPLER_BIAS_MAX * sizeof(SamplerBias)) + 4 * ARENA_ALIGN +
           request_tools_bytes(body_bytes);
}

static const RequestTable openai = {"", fields, FIELDS};

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
    bool ollama = kind >= REQUEST_OLLAMA_CHAT && kind <= REQUEST_OLLAMA_SHOW;
    if (ollama) request_ollama_defaults(out);
    if (ollama)
        return request_read_object(&r, root, &request_ollama_table) && request_ollama_check(&r);
    if (kind == REQUEST_EMBEDDINGS)
        return request_read_object(&r, root, &request_embeddings_table) &&
               request_embeddings_check(&r);
    if (kind == REQUEST_RESPONSES)
        return request_read_object(&r, root, &request_responses_table) &&
               request_responses_check(&r) && check_stream(&r);
    return request_read_object(&r, root, &openai) && check_together(&r) && check_stream(&r) &&
           request_scores_check(&r);
}
