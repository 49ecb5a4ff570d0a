/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that write answers share. A dialect is one table; answer.c calls through it.
 *
 *   answer_openai.c     /v1/chat/completions, /v1/completions
 *   answer_scores.c     the two's log-probabilities
 *   answer_embeddings.c /v1/embeddings
 *   answer_responses.c  /v1/responses
 *   answer_ollama.c     /api/chat, /api/generate */
#ifndef COBORD_API_ANSWER_STATE_H
#define COBORD_API_ANSWER_STATE_H

#include "api/answer.h"

/* Of dialects that stream server-sent events. */
#define ANSWER_EVENTS_TYPE "text/event-stream"
#define ANSWER_EVENTS_COMMENT ": keep-alive\n\n"

/* answer.h says what each of these writes; a NULL one writes nothing. */
typedef struct AnswerTable {
    const char *prefix; /* of ids */
    const char *type, *comment;
    bool places;      /* events have ids */
    uint32_t repeats; /* how often the end of a stream says the whole text again */
    uint32_t events;  /* at most so many in one call */
    void (*role)(AnswerHead *head, JsonWriter *w, uint32_t index);
    void (*piece)(AnswerHead *head, JsonWriter *w, uint32_t index, const AnswerPiece *piece);
    void (*finish)(AnswerHead *head, JsonWriter *w, uint32_t index, AnswerFinish finish);
    void (*stream_end)(AnswerHead *head, JsonWriter *w, const AnswerPiece *whole,
                       const AnswerUsage *usage);
    void (*fault)(AnswerHead *head, JsonWriter *w, const Refusal *refusal);
    void (*begin)(AnswerHead *head, JsonWriter *w);
    void (*choice)(AnswerHead *head, JsonWriter *w, uint32_t index, const AnswerPiece *piece,
                   AnswerFinish finish);
    void (*end)(AnswerHead *head, JsonWriter *w, const AnswerUsage *usage);
} AnswerTable;

extern const AnswerTable answer_openai_completion, answer_openai_chat;
extern const AnswerTable answer_embeddings;
extern const AnswerTable answer_responses, answer_ollama_chat, answer_ollama_generate;

/* answer_tools.c */
/* "tool_calls":[...] of a piece that has some. */
void answer_tools_write(const AnswerHead *head, JsonWriter *w, uint32_t choice,
                        const AnswerPiece *piece, bool stream);
/* ,"logprobs": and what it is: null when the piece is NULL or has no scores. answer_scores.c */
void answer_scores_write(const AnswerHead *head, JsonWriter *w, const AnswerPiece *piece);
/* ,"hops":[...], or nothing. */
void answer_write_hops(JsonWriter *w, const AnswerUsage *usage);

/* The line "id: ..." in front of an event, when the stream can be resumed. */
void answer_write_place(const AnswerHead *head, JsonWriter *w);

#endif
