/* SPDX-License-Identifier: Apache-2.0 */
/* The calls through a dialect's table, ids and places; and bodies that no dialect has for itself. */
#include "api/answer.h"

#include <string.h>

#include "api/answer_state.h"
#include "base/error.h"

static const AnswerTable *const tables[ANSWER_DIALECTS] = {
    [ANSWER_COMPLETION] = &answer_openai_completion,
    [ANSWER_CHAT] = &answer_openai_chat,
    [ANSWER_EMBEDDINGS] = &answer_embeddings,
    [ANSWER_RESPONSES] = &answer_responses,
    [ANSWER_OLLAMA_CHAT] = &answer_ollama_chat,
    [ANSWER_OLLAMA_GENERATE] = &answer_ollama_generate,
};

static const AnswerTable *table_of(AnswerDialect dialect)
{
    ASSERT(dialect < ANSWER_DIALECTS && tables[dialect]);
    return tables[dialect];
}

void answer_make_id(AnswerHead *head, const uint64_t number[2])
{
    JsonWriter w = json_writer_make(head->id, sizeof head->id - 1);
    json_writer_raw(&w, table_of(head->dialect)->prefix);
    json_writer_hex64(&w, number[0]);
    json_writer_hex64(&w, number[1]);
    head->id[w.used] = '\0';
}

/* ---- Streams ---- */

const char *answer_stream_type(AnswerDialect dialect) { return table_of(dialect)->type; }

const char *answer_comment(AnswerDialect dialect) { return table_of(dialect)->comment; }

bool answer_has_places(AnswerDialect dialect) { return table_of(dialect)->places; }

bool answer_repeats(AnswerDialect dialect) { return table_of(dialect)->repeats > 0; }

size_t answer_bytes(const AnswerHead *head, size_t text_bytes)
{
    const AnswerTable *table = table_of(head->dialect);
    size_t times = table->repeats ? table->repeats : 1, events = head->choices + 2 + table->events;
    return times * JSON_WRITER_GROWTH * text_bytes + events * ANSWER_EVENT_BYTES +
           table->events * head->echo_bytes;
}

void answer_write_role(AnswerHead *head, JsonWriter *w, uint32_t index)
{
    const AnswerTable *table = table_of(head->dialect);
    if (table->role) table->role(head, w, index);
}

void answer_write_piece(AnswerHead *head, JsonWriter *w, uint32_t index, const AnswerPiece *piece)
{
    const AnswerTable *table = table_of(head->dialect);
    if (table->piece) table->piece(head, w, index, piece);
}

void answer_write_finish(AnswerHead *head, JsonWriter *w, uint32_t index, AnswerFinish finish)
{
    const AnswerTable *table = table_of(head->dialect);
    if (table->finish) table->finish(head, w, index, finish);
}

void answer_write_end(AnswerHead *head, JsonWriter *w, const AnswerPiece *whole,
                      const AnswerUsage *usage)
{
    const AnswerTable *table = table_of(head->dialect);
    if (table->stream_end) table->stream_end(head, w, whole, usage);
}

void answer_write_fault(AnswerHead *head, JsonWriter *w, const Refusal *refusal)
{
    const AnswerTable *table = table_of(head->dialect);
    if (table->fault) table->fault(head, w, refusal);
}

void answer_write_hops(JsonWriter *w, const AnswerUsage *usage)
{
    if (!usage->hops) return;
    json_writer_raw(w, ",\"hops\":[");
    for (uint32_t i = 0; i < usage->hop_count; i++) {
        const AnswerHop *hop = &usage->hops[i];
        json_writer_raw(w, i ? ",{" : "{");
        json_writer_member_text(w, "node", hop->node);
        json_writer_member_u64(w, "calls", hop->calls);
        json_writer_member(w, "ms");
        json_writer_thousandths(w, hop->us);
        json_writer_member_u64(w, "bytes_sent", hop->bytes_sent);
        json_writer_member_u64(w, "bytes_received", hop->bytes_received);
        json_writer_raw(w, "}");
    }
    json_writer_raw(w, "]");
}

/* ---- Where a stream can go on ---- */

void answer_write_place(const AnswerHead *head, JsonWriter *w)
{
    if (!head->resumable) return;
    json_writer_raw(w, "id: ");
    json_writer_raw(w, head->id);
    for (uint32_t i = 0; i < head->choices; i++) {
        json_writer_raw(w, i ? "," : ":");
        json_writer_u64(w, head->places[i]);
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

void answer_begin(AnswerHead *head, JsonWriter *w) { table_of(head->dialect)->begin(head, w); }

void answer_choice(AnswerHead *head, JsonWriter *w, uint32_t index, const AnswerPiece *piece,
                   AnswerFinish finish)
{
    table_of(head->dialect)->choice(head, w, index, piece, finish);
}

void answer_end(AnswerHead *head, JsonWriter *w, const AnswerUsage *usage)
{
    table_of(head->dialect)->end(head, w, usage);
}

/* ---- Other bodies ---- */

void answer_model(JsonWriter *w, const char *model, uint64_t created_s, uint32_t context,
                  uint32_t hidden)
{
    json_writer_raw(w, "{");
    json_writer_member_text(w, "id", model);
    json_writer_member_text(w, "object", "model");
    json_writer_member_u64(w, "created", created_s);
    json_writer_member_text(w, "owned_by", "cobord");
    json_writer_member_u64(w, "context_length", context);
    json_writer_member_u64(w, "embedding_length", hidden);
    json_writer_member_text(w, "embedding_pooling", "mean");
    json_writer_raw(w, "}");
}

void answer_models(JsonWriter *w, const char *model, uint64_t created_s, uint32_t context,
                   uint32_t hidden)
{
    json_writer_raw(w, "{\"object\":\"list\",\"data\":[");
    answer_model(w, model, created_s, context, hidden);
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
