/* SPDX-License-Identifier: Apache-2.0 */
/* Answers as OpenAI's clients read them: whole objects, and the events of a stream.
 *
 *   stream   data: {role} - data: {text} ... - data: {finish_reason} - [data: {usage, no choices}] - data: [DONE]
 *   fault    data: {"error":{...}}  and the stream ends
 *   waiting  : keep-alive
 *
 * finish_reason is null in every event but the last of a choice. */
#ifndef COBORD_API_ANSWER_H
#define COBORD_API_ANSWER_H

#include "api/refusal.h"

enum {
    ANSWER_CHOICES_MAX = 8,
    ANSWER_ID_BYTES = 48,
    ANSWER_EVENT_BYTES = 1024 /* of an event without its text */
};

typedef enum AnswerFinish { ANSWER_GOES_ON, ANSWER_STOP, ANSWER_LENGTH } AnswerFinish;

typedef struct AnswerHead {
    bool chat; /* else a completion */
    char id[ANSWER_ID_BYTES];
    uint64_t created_s;
    const char *model;
    bool stream_usage; /* events carry "usage":null until the last */
    bool degraded;     /* "degraded":true from here on: rows of a lost shard were taken as zeros */
} AnswerHead;

typedef struct AnswerUsage {
    uint64_t prompt, cached, completion; /* tokens; cached: of the prompt, not computed again */
} AnswerUsage;

/* The id of an answer, made of a number that no other has. */
void answer_make_id(AnswerHead *head, uint64_t number);

/* ---- Streams ---- */

/* The first event of a choice: its role. Nothing for a completion. */
void answer_write_role(const AnswerHead *head, JsonWriter *w, uint32_t index);
void answer_write_text(const AnswerHead *head, JsonWriter *w, uint32_t index, const uint8_t *text,
                       size_t bytes);
void answer_write_finish(const AnswerHead *head, JsonWriter *w, uint32_t index,
                         AnswerFinish finish);
void answer_write_usage(const AnswerHead *head, JsonWriter *w, const AnswerUsage *usage);
void answer_write_done(JsonWriter *w);
void answer_write_fault(JsonWriter *w, const Refusal *refusal);
/* What is written into a stream that is silent. */
#define ANSWER_COMMENT ": keep-alive\n\n"

/* ---- Where a stream can go on: the id of the event to come, and of the last that a client got (Last-Event-ID).
 *
 *   id: chatcmpl-0123456789abcdef:12,9      after 12 tokens of the first choice and 9 of the second
 */

typedef struct AnswerPlace {
    char id[ANSWER_ID_BYTES];
    uint32_t count, tokens[ANSWER_CHOICES_MAX];
} AnswerPlace;

void answer_write_place(const AnswerHead *head, JsonWriter *w, const uint32_t *tokens,
                        uint32_t count);
/* Result  false: no id of ours. */
bool answer_read_place(const char *text, AnswerPlace *out);

/* ---- Whole answers: begin, each choice in order, end ---- */

void answer_begin(const AnswerHead *head, JsonWriter *w);
void answer_choice(const AnswerHead *head, JsonWriter *w, uint32_t index, const uint8_t *text,
                   size_t bytes, AnswerFinish finish);
void answer_end(JsonWriter *w, const AnswerUsage *usage);

/* ---- Other bodies ---- */

/* One model, or the list of one. */
void answer_model(JsonWriter *w, const char *model, uint64_t created_s, uint32_t context);
void answer_models(JsonWriter *w, const char *model, uint64_t created_s, uint32_t context);
/* {"ids":[...],"tokens":[...],"count":N}; ANSWER_ID_DIGITS per id and ANSWER_EVENT_BYTES suffice. */
enum { ANSWER_ID_DIGITS = 2 * 11 };
void answer_ids(JsonWriter *w, const uint32_t *ids, size_t count);
/* {"prompt":"..."} */
void answer_prompt(JsonWriter *w, const uint8_t *text, size_t bytes);
void answer_detokenized(JsonWriter *w, const uint8_t *text, size_t bytes);

#endif
