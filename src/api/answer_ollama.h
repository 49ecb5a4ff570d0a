/* SPDX-License-Identifier: Apache-2.0 */
/* What Ollama's clients ask about the model. */
#ifndef COBORD_API_ANSWER_OLLAMA_H
#define COBORD_API_ANSWER_OLLAMA_H

#include "api/answer.h"
#include "knot/knot.h"
#include "knot/vocab.h"

/* Of the one model that is served. */
typedef struct AnswerOllamaModel {
    const char *name;
    const Knot *knot;
    const Vocab *vocab;
    uint64_t created_s; /* since when it is served */
    uint32_t context;
    bool tools; /* its template knows them */
} AnswerOllamaModel;

/* Suffices for each of these bodies. */
size_t answer_ollama_bytes(const AnswerOllamaModel *m);
void answer_ollama_tags(const AnswerOllamaModel *m, JsonWriter *w);
void answer_ollama_processes(const AnswerOllamaModel *m, JsonWriter *w);
void answer_ollama_show(const AnswerOllamaModel *m, JsonWriter *w);
/* The answer to a request that only wants the model loaded, as a line of a stream or as a body. */
void answer_ollama_loaded(AnswerHead *head, JsonWriter *w);

#endif
