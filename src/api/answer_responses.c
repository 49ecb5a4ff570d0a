/* SPDX-License-Identifier: Apache-2.0 */
/* OpenAI's Responses: one message of text.
 *
 *   response.created  .in_progress  .output_item.added  .content_part.added          before the first piece
 *   response.output_text.delta ...
 *   response.output_text.done  .content_part.done  .output_item.done  .completed     or .incomplete
 *
 * Every event has its number in the stream, also in a part of one that was resumed: what a client has already is
 * counted, too. A place to go on from is only an event after which the rest makes sense alone: the last of the first
 * four, and the pieces. A fault is an event `error`, with the shape of every other path beside its own members. */
#include "api/answer_state.h"

/* The id of the only item: the answer's, under another name. */
static void write_item_id(const AnswerHead *head, JsonWriter *w)
{
    const char *number = head->id;
    while (*number && *number != '_') number++;
    json_writer_raw(w, "\"msg");
    json_writer_raw(w, number);
    json_writer_raw(w, "\"");
}

/* `text` is NULL for a part that has just begun. */
static void write_part(JsonWriter *w, const AnswerPiece *text)
{
    json_writer_raw(w, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":");
    if (text) json_writer_string(w, text->text, text->bytes);
    else json_writer_raw(w, "\"\"");
    json_writer_raw(w, "}");
}

static const char *status_of(AnswerFinish finish)
{
    if (finish == ANSWER_GOES_ON) return "in_progress";
    return finish == ANSWER_LENGTH ? "incomplete" : "completed";
}

static void write_item(const AnswerHead *head, JsonWriter *w, const AnswerPiece *text,
                       AnswerFinish finish)
{
    json_writer_raw(w, "{\"id\":");
    write_item_id(head, w);
    json_writer_raw(w, ",\"type\":\"message\",\"role\":\"assistant\"");
    json_writer_member_text(w, "status", status_of(finish));
    json_writer_raw(w, ",\"content\":[");
    if (text) write_part(w, text);
    json_writer_raw(w, "]}");
}

/* ---- The response ---- */

static void write_usage(JsonWriter *w, const AnswerUsage *u)
{
    json_writer_raw(w, ",\"usage\":{");
    json_writer_member_u64(w, "input_tokens", u->prompt);
    json_writer_raw(w, ",\"input_tokens_details\":{");
    json_writer_member_u64(w, "cached_tokens", u->cached);
    json_writer_raw(w, ",\"cache_write_tokens\":0}");
    json_writer_member_u64(w, "output_tokens", u->completion);
    json_writer_raw(w, ",\"output_tokens_details\":{\"reasoning_tokens\":0}");
    json_writer_member_u64(w, "total_tokens", u->prompt + u->completion);
    json_writer_raw(w, "}");
}

/* Up to the items of its output. */
static void begin(AnswerHead *head, JsonWriter *w)
{
    json_writer_raw(w, "{");
    json_writer_member_text(w, "id", head->id);
    json_writer_member_text(w, "object", "response");
    json_writer_member_u64(w, "created_at", head->created_s);
    json_writer_member_text(w, "model", head->model);
    if (head->degraded) json_writer_member_bool(w, "degraded", true);
    json_writer_raw(w, ",\"output\":[");
}

/* After its output; `usage` is NULL until the end. */
static void write_rest(const AnswerHead *head, JsonWriter *w, const AnswerUsage *usage)
{
    json_writer_raw(w, "]");
    json_writer_member_text(w, "status", status_of(head->finish));
    json_writer_raw(w, ",\"completed_at\":");
    if (head->finish == ANSWER_GOES_ON || head->finish == ANSWER_LENGTH) json_writer_raw(w, "null");
    else json_writer_u64(w, head->created_s + (usage ? usage->total_ns / 1000000000 : 0));
    json_writer_raw(w, ",\"error\":null,\"incomplete_details\":");
    json_writer_raw(w,
                    head->finish == ANSWER_LENGTH ? "{\"reason\":\"max_output_tokens\"}" : "null");
    json_writer_bytes(w, head->echo, head->echo_bytes);
    json_writer_raw(w, ",\"parallel_tool_calls\":true,\"tool_choice\":\"auto\",\"tools\":[],"
                       "\"previous_response_id\":null,\"reasoning\":{\"effort\":null,"
                       "\"summary\":null},\"store\":false,\"background\":false,"
                       "\"truncation\":\"disabled\"");
    if (usage) write_usage(w, usage);
    else json_writer_raw(w, ",\"usage\":null");
    json_writer_raw(w, "}");
}

static void choice(AnswerHead *head, JsonWriter *w, uint32_t index, const AnswerPiece *piece,
                   AnswerFinish finish)
{
    if (index) json_writer_raw(w, ",");
    head->finish = finish;
    write_item(head, w, piece, finish);
}

static void end(AnswerHead *head, JsonWriter *w, const AnswerUsage *usage)
{
    write_rest(head, w, usage);
}

/* ---- Events ---- */

static void begin_event(AnswerHead *head, JsonWriter *w, const char *type)
{
    json_writer_raw(w, "event: ");
    json_writer_raw(w, type);
    json_writer_raw(w, "\ndata: {\"type\":");
    json_writer_text(w, type);
    json_writer_member_u64(w, "sequence_number", head->sequence++);
}

static void end_event(JsonWriter *w) { json_writer_raw(w, "}\n\n"); }

static void write_response_event(AnswerHead *head, JsonWriter *w, const char *type,
                                 const AnswerPiece *whole, const AnswerUsage *usage)
{
    begin_event(head, w, type);
    json_writer_raw(w, ",\"response\":");
    begin(head, w);
    if (whole) write_item(head, w, whole, head->finish);
    write_rest(head, w, usage);
    end_event(w);
}

static void write_item_event(AnswerHead *head, JsonWriter *w, const char *type,
                             const AnswerPiece *whole)
{
    begin_event(head, w, type);
    json_writer_raw(w, ",\"output_index\":0,\"item\":");
    write_item(head, w, whole, head->finish);
    end_event(w);
}

/* The beginning of those that are about the part of text. */
static void begin_part_event(AnswerHead *head, JsonWriter *w, const char *type)
{
    begin_event(head, w, type);
    json_writer_raw(w, ",\"item_id\":");
    write_item_id(head, w);
    json_writer_raw(w, ",\"output_index\":0,\"content_index\":0");
}

static void write_part_event(AnswerHead *head, JsonWriter *w, const char *type,
                             const AnswerPiece *whole)
{
    begin_part_event(head, w, type);
    json_writer_raw(w, ",\"part\":");
    write_part(w, whole);
    end_event(w);
}

static void write_role(AnswerHead *head, JsonWriter *w, uint32_t index)
{
    (void)index;
    write_response_event(head, w, "response.created", NULL, NULL);
    write_response_event(head, w, "response.in_progress", NULL, NULL);
    write_item_event(head, w, "response.output_item.added", NULL);
    answer_write_place(head, w);
    write_part_event(head, w, "response.content_part.added", NULL);
}

static void write_piece(AnswerHead *head, JsonWriter *w, uint32_t index, const AnswerPiece *piece)
{
    (void)index;
    answer_write_place(head, w);
    begin_part_event(head, w, "response.output_text.delta");
    json_writer_raw(w, ",\"logprobs\":[],\"delta\":");
    json_writer_string(w, piece->text, piece->bytes);
    end_event(w);
}

/* The end says it: it needs the text. */
static void write_finish(AnswerHead *head, JsonWriter *w, uint32_t index, AnswerFinish finish)
{
    (void)w;
    (void)index;
    head->finish = finish;
}

static void write_stream_end(AnswerHead *head, JsonWriter *w, const AnswerPiece *whole,
                             const AnswerUsage *usage)
{
    begin_part_event(head, w, "response.output_text.done");
    json_writer_raw(w, ",\"logprobs\":[],\"text\":");
    json_writer_string(w, whole->text, whole->bytes);
    end_event(w);
    write_part_event(head, w, "response.content_part.done", whole);
    write_item_event(head, w, "response.output_item.done", whole);
    write_response_event(
        head, w, head->finish == ANSWER_LENGTH ? "response.incomplete" : "response.completed",
        whole, usage);
}

static void write_fault(AnswerHead *head, JsonWriter *w, const Refusal *refusal)
{
    char body[REFUSAL_JSON_MAX];
    JsonWriter shape = json_writer_make(body, sizeof body);
    refusal_write(refusal, &shape); /* {"error":{...}} */
    begin_event(head, w, "error");
    json_writer_member_text(w, "code", refusal_code(refusal));
    json_writer_member_text(w, "message", refusal->why.text);
    json_writer_raw(w, ",\"param\":null,");
    json_writer_bytes(w, body + 1, shape.used - 2);
    end_event(w);
}

const AnswerTable answer_responses = {.prefix = "resp_",
                                      .type = ANSWER_EVENTS_TYPE,
                                      .comment = ANSWER_EVENTS_COMMENT,
                                      .places = true,
                                      .repeats = 4,
                                      .events = 8,
                                      .role = write_role,
                                      .piece = write_piece,
                                      .finish = write_finish,
                                      .stream_end = write_stream_end,
                                      .fault = write_fault,
                                      .begin = begin,
                                      .choice = choice,
                                      .end = end};
