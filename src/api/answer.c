/* SPDX-License-Identifier: Apache-2.0 */
#include "api/answer.h"

#include <string.h>

static const char *const finish_names[] = {
    [ANSWER_GOES_ON] = "null", [ANSWER_STOP] = "\"stop\"", [ANSWER_LENGTH] = "\"length\""};

void answer_make_id(AnswerHead *head, uint64_t number)
{
    JsonWriter w = json_writer_make(head->id, sizeof head->id - 1);
    json_writer_raw(&w, head->chat ? "chatcmpl-" : "cmpl-");
    for (unsigned shift = 64; shift;) {
        shift -= 4;
        json_writer_bytes(&w, &"0123456789abcdef"[number >> shift & 15], 1);
    }
    head->id[w.used] = '\0';
}

static void write_head(const AnswerHead *head, JsonWriter *w, const char *chat_object)
{
    json_writer_raw(w, "{\"id\":");
    json_writer_text(w, head->id);
    json_writer_raw(w, ",\"object\":");
    json_writer_text(w, head->chat ? chat_object : "text_completion");
    json_writer_raw(w, ",\"created\":");
    json_writer_u64(w, head->created_s);
    json_writer_raw(w, ",\"model\":");
    json_writer_text(w, head->model);
    if (head->degraded) json_writer_raw(w, ",\"degraded\":true");
}

static void write_usage(JsonWriter *w, const AnswerUsage *u)
{
    json_writer_raw(w, "\"usage\":{\"prompt_tokens\":");
    json_writer_u64(w, u->prompt);
    json_writer_raw(w, ",\"completion_tokens\":");
    json_writer_u64(w, u->completion);
    json_writer_raw(w, ",\"total_tokens\":");
    json_writer_u64(w, u->prompt + u->completion);
    json_writer_raw(w, ",\"prompt_tokens_details\":{\"cached_tokens\":");
    json_writer_u64(w, u->cached);
    json_writer_raw(w, "}}");
}

/* ---- Streams ---- */

static void begin_event(const AnswerHead *head, JsonWriter *w, uint32_t index)
{
    json_writer_raw(w, "data: ");
    write_head(head, w, "chat.completion.chunk");
    json_writer_raw(w, ",\"choices\":[{\"index\":");
    json_writer_u64(w, index);
}

static void end_event(const AnswerHead *head, JsonWriter *w, AnswerFinish finish)
{
    json_writer_raw(w, ",\"logprobs\":null,\"finish_reason\":");
    json_writer_raw(w, finish_names[finish]);
    json_writer_raw(w, head->stream_usage ? "}],\"usage\":null}\n\n" : "}]}\n\n");
}

void answer_write_role(const AnswerHead *head, JsonWriter *w, uint32_t index)
{
    if (!head->chat) return;
    begin_event(head, w, index);
    json_writer_raw(w, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"}");
    end_event(head, w, ANSWER_GOES_ON);
}

void answer_write_text(const AnswerHead *head, JsonWriter *w, uint32_t index, const uint8_t *text,
                       size_t bytes)
{
    begin_event(head, w, index);
    json_writer_raw(w, head->chat ? ",\"delta\":{\"content\":" : ",\"text\":");
    json_writer_string(w, text, bytes);
    if (head->chat) json_writer_raw(w, "}");
    end_event(head, w, ANSWER_GOES_ON);
}

void answer_write_finish(const AnswerHead *head, JsonWriter *w, uint32_t index, AnswerFinish finish)
{
    begin_event(head, w, index);
    json_writer_raw(w, head->chat ? ",\"delta\":{}" : ",\"text\":\"\"");
    end_event(head, w, finish);
}

void answer_write_usage(const AnswerHead *head, JsonWriter *w, const AnswerUsage *usage)
{
    json_writer_raw(w, "data: ");
    write_head(head, w, "chat.completion.chunk");
    json_writer_raw(w, ",\"choices\":[],");
    write_usage(w, usage);
    json_writer_raw(w, "}\n\n");
}

void answer_write_done(JsonWriter *w) { json_writer_raw(w, "data: [DONE]\n\n"); }

void answer_write_fault(JsonWriter *w, const Refusal *refusal)
{
    json_writer_raw(w, "data: ");
    refusal_write(refusal, w);
    json_writer_raw(w, "\n\n");
}

/* ---- Where a stream can go on ---- */

void answer_write_place(const AnswerHead *head, JsonWriter *w, const uint32_t *tokens,
                        uint32_t count)
{
    json_writer_raw(w, "id: ");
    json_writer_raw(w, head->id);
    for (uint32_t i = 0; i < count; i++) {
        json_writer_raw(w, i ? "," : ":");
        json_writer_u64(w, tokens[i]);
    }
    json_writer_raw(w, "\n");
}

static bool read_tokens(const char **at, uint32_t *out)
{
    uint64_t value = 0;
    const char *first = *at;
    for (; **at >= '0' && **at <= '9' && value <= UINT32_MAX; (*at)++)
        value = value * 10 + (uint64_t)(**at - '0');
    *out = (uint32_t)value;
    return *at != first && value <= UINT32_MAX;
}

bool answer_read_place(const char *text, AnswerPlace *out)
{
    const char *colon = strchr(text, ':');
    *out = (AnswerPlace){.count = 0};
    size_t bytes = colon ? (size_t)(colon - text) : 0;
    if (!bytes || bytes >= sizeof out->id) return false;
    memcpy(out->id, text, bytes);
    for (const char *at = colon;;) {
        if (out->count == ANSWER_CHOICES_MAX) return false;
        at++;
        if (!read_tokens(&at, &out->tokens[out->count++])) return false;
        if (!*at) return true;
        if (*at != ',') return false;
    }
}

/* ---- Whole answers ---- */

void answer_begin(const AnswerHead *head, JsonWriter *w)
{
    write_head(head, w, "chat.completion");
    json_writer_raw(w, ",\"choices\":[");
}

void answer_choice(const AnswerHead *head, JsonWriter *w, uint32_t index, const uint8_t *text,
                   size_t bytes, AnswerFinish finish)
{
    json_writer_raw(w, index ? ",{\"index\":" : "{\"index\":");
    json_writer_u64(w, index);
    json_writer_raw(w, head->chat ? ",\"message\":{\"role\":\"assistant\",\"content\":"
                                  : ",\"text\":");
    json_writer_string(w, text, bytes);
    if (head->chat) json_writer_raw(w, ",\"refusal\":null}");
    json_writer_raw(w, ",\"logprobs\":null,\"finish_reason\":");
    json_writer_raw(w, finish_names[finish]);
    json_writer_raw(w, "}");
}

void answer_end(JsonWriter *w, const AnswerUsage *usage)
{
    json_writer_raw(w, "],");
    write_usage(w, usage);
    json_writer_raw(w, "}");
}

/* ---- Other bodies ---- */

void answer_model(JsonWriter *w, const char *model, uint64_t created_s, uint32_t context)
{
    json_writer_raw(w, "{\"id\":");
    json_writer_text(w, model);
    json_writer_raw(w, ",\"object\":\"model\",\"created\":");
    json_writer_u64(w, created_s);
    json_writer_raw(w, ",\"owned_by\":\"cobord\",\"context_length\":");
    json_writer_u64(w, context);
    json_writer_raw(w, "}");
}

void answer_models(JsonWriter *w, const char *model, uint64_t created_s, uint32_t context)
{
    json_writer_raw(w, "{\"object\":\"list\",\"data\":[");
    answer_model(w, model, created_s, context);
    json_writer_raw(w, "]}");
}

static void write_list(JsonWriter *w, const uint32_t *ids, size_t count)
{
    json_writer_raw(w, "[");
    for (size_t i = 0; i < count; i++) {
        if (i) json_writer_raw(w, ",");
        json_writer_u64(w, ids[i]);
    }
    json_writer_raw(w, "]");
}

void answer_ids(JsonWriter *w, const uint32_t *ids, size_t count)
{
    json_writer_raw(w, "{\"ids\":");
    write_list(w, ids, count);
    json_writer_raw(w, ",\"tokens\":");
    write_list(w, ids, count);
    json_writer_raw(w, ",\"count\":");
    json_writer_u64(w, count);
    json_writer_raw(w, "}");
}

void answer_prompt(JsonWriter *w, const uint8_t *text, size_t bytes)
{
    json_writer_raw(w, "{\"prompt\":");
    json_writer_string(w, text, bytes);
    json_writer_raw(w, "}");
}

void answer_detokenized(JsonWriter *w, const uint8_t *text, size_t bytes)
{
    json_writer_raw(w, "{\"text\":");
    json_writer_string(w, text, bytes);
    json_writer_raw(w, ",\"content\":");
    json_writer_string(w, text, bytes);
    json_writer_raw(w, "}");
}
