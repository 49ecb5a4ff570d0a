/* SPDX-License-Identifier: Apache-2.0 */
/* OpenAI's chat completions and completions.
 *
 *   stream   data: {role} - data: {text} ... - data: {finish_reason} - [data: {usage, no choices}] - data: [DONE]
 *   fault    data: {"error":{...}}  and the stream ends
 *   waiting  : keep-alive
 *
 * finish_reason is null in every event but the last of a choice; a completion has no event for the role. */
#include "api/answer_state.h"

static const char *const finish_names[] = {[ANSWER_GOES_ON] = "null",
                                           [ANSWER_STOP] = "\"stop\"",
                                           [ANSWER_LENGTH] = "\"length\"",
                                           [ANSWER_TOOLS] = "\"tool_calls\""};

static bool is_chat(const AnswerHead *head) { return head->dialect == ANSWER_CHAT; }

static void write_head(const AnswerHead *head, JsonWriter *w, const char *chat_object)
{
    json_writer_raw(w, "{");
    json_writer_member_text(w, "id", head->id);
    json_writer_member_text(w, "object", is_chat(head) ? chat_object : "text_completion");
    json_writer_member_u64(w, "created", head->created_s);
    json_writer_member_text(w, "model", head->model);
    if (head->degraded) json_writer_member_bool(w, "degraded", true);
}

static void write_usage(JsonWriter *w, const AnswerUsage *u)
{
    json_writer_raw(w, "\"usage\":{");
    json_writer_member_u64(w, "prompt_tokens", u->prompt);
    json_writer_member_u64(w, "completion_tokens", u->completion);
    json_writer_member_u64(w, "total_tokens", u->prompt + u->completion);
    json_writer_raw(w, ",\"prompt_tokens_details\":{");
    json_writer_member_u64(w, "cached_tokens", u->cached);
    json_writer_raw(w, "}");
    answer_write_hops(w, u);
    json_writer_raw(w, "}");
}

/* ---- Streams ---- */

static void begin_event(const AnswerHead *head, JsonWriter *w, uint32_t index)
{
    answer_write_place(head, w);
    json_writer_raw(w, "data: ");
    write_head(head, w, "chat.completion.chunk");
    json_writer_raw(w, ",\"choices\":[{\"index\":");
    json_writer_u64(w, index);
}

static void end_event(const AnswerHead *head, JsonWriter *w, const AnswerPiece *piece,
                      AnswerFinish finish)
{
    answer_scores_write(head, w, piece);
    json_writer_raw(w, ",\"finish_reason\":");
    json_writer_raw(w, finish_names[finish]);
    json_writer_raw(w, head->stream_usage ? "}],\"usage\":null}\n\n" : "}]}\n\n");
}

static void write_role(AnswerHead *head, JsonWriter *w, uint32_t index)
{
    begin_event(head, w, index);
    json_writer_raw(w, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"}");
    end_event(head, w, NULL, ANSWER_GOES_ON);
}

static void write_piece(AnswerHead *head, JsonWriter *w, uint32_t index, const AnswerPiece *piece)
{
    bool text = piece->bytes || !piece->tool_count;
    begin_event(head, w, index);
    json_writer_raw(w, is_chat(head) ? ",\"delta\":{" : ",\"text\":");
    if (is_chat(head) && text) json_writer_raw(w, "\"content\":");
    if (text) json_writer_string(w, piece->text, piece->bytes);
    if (text && piece->tool_count) json_writer_raw(w, ",");
    if (piece->tool_count) answer_tools_write(head, w, index, piece, true);
    if (is_chat(head)) json_writer_raw(w, "}");
    end_event(head, w, piece, ANSWER_GOES_ON);
}

static void write_finish(AnswerHead *head, JsonWriter *w, uint32_t index, AnswerFinish finish)
{
    begin_event(head, w, index);
    json_writer_raw(w, is_chat(head) ? ",\"delta\":{}" : ",\"text\":\"\"");
    end_event(head, w, NULL, finish);
}

static void write_stream_end(AnswerHead *head, JsonWriter *w, const AnswerPiece *whole,
                             const AnswerUsage *usage)
{
    (void)whole;
    if (head->stream_usage) {
        json_writer_raw(w, "data: ");
        write_head(head, w, "chat.completion.chunk");
        json_writer_raw(w, ",\"choices\":[],");
        write_usage(w, usage);
        json_writer_raw(w, "}\n\n");
    }
    json_writer_raw(w, "data: [DONE]\n\n");
}

static void write_fault(AnswerHead *head, JsonWriter *w, const Refusal *refusal)
{
    (void)head;
    json_writer_raw(w, "data: ");
    refusal_write(refusal, w);
    json_writer_raw(w, "\n\n");
}

/* ---- Whole answers ---- */

static void begin(AnswerHead *head, JsonWriter *w)
{
    write_head(head, w, "chat.completion");
    json_writer_raw(w, ",\"choices\":[");
}

static void choice(AnswerHead *head, JsonWriter *w, uint32_t index, const AnswerPiece *piece,
                   AnswerFinish finish)
{
    json_writer_raw(w, index ? ",{\"index\":" : "{\"index\":");
    json_writer_u64(w, index);
    json_writer_raw(w, is_chat(head) ? ",\"message\":{\"role\":\"assistant\",\"content\":"
                                     : ",\"text\":");
    if (piece->tool_count && !piece->bytes) json_writer_raw(w, "null");
    else json_writer_string(w, piece->text, piece->bytes);
    if (piece->tool_count) {
        json_writer_raw(w, ",");
        answer_tools_write(head, w, index, piece, false);
    }
    if (is_chat(head)) json_writer_raw(w, ",\"refusal\":null}");
    answer_scores_write(head, w, piece);
    json_writer_raw(w, ",\"finish_reason\":");
    json_writer_raw(w, finish_names[finish]);
    json_writer_raw(w, "}");
}

static void end(AnswerHead *head, JsonWriter *w, const AnswerUsage *usage)
{
    (void)head;
    json_writer_raw(w, "],");
    write_usage(w, usage);
    json_writer_raw(w, "}");
}

/* ---- The tables ---- */

/* A completion has no role. */
#define TABLE(name, first)             \
    {.prefix = name,                   \
     .type = ANSWER_EVENTS_TYPE,       \
     .comment = ANSWER_EVENTS_COMMENT, \
     .places = true,                   \
     .role = first,                    \
     .piece = write_piece,             \
     .finish = write_finish,           \
     .stream_end = write_stream_end,   \
     .fault = write_fault,             \
     .begin = begin,                   \
     .choice = choice,                 \
     .end = end}

const AnswerTable answer_openai_completion = TABLE("cmpl-", NULL),
                  answer_openai_chat = TABLE("chatcmpl-", write_role);
