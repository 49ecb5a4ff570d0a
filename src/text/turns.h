/* SPDX-License-Identifier: Apache-2.0 */
/* The two turn formats that are built in: ChatML (qwen2, qwen3, smollm) and Gemma's. Text of a message can never become a
 * control token: markers and message text are tokenized separately. Chosen by the tokens the vocabulary has. */
#ifndef COBORD_TEXT_TURNS_H
#define COBORD_TEXT_TURNS_H

#include "text/tokenizer.h"

typedef enum TurnFormat { TURNS_NONE, TURNS_CHATML, TURNS_GEMMA, TURNS_LLAMA3 } TurnFormat;

typedef struct Turn {
    const char *role; /* "system", "user", "assistant" */
    const uint8_t *text;
    size_t bytes;
} Turn;

TurnFormat turns_format(const Tokenizer *t);

/* Appends the conversation and the opening of the assistant's answer to ids; with `first` also BOS where the model wants
 * it. Errors  ERR_USAGE for an unknown role, ERR_CAPACITY, ERR_MEMORY. */
size_t turns_scratch_bytes(const Tokenizer *t, const Turn *turns, size_t count);
size_t turns_ids_max(const Turn *turns, size_t count);
MUST_CHECK Error turns_encode(const Tokenizer *t, const Turn *turns, size_t count, bool first, Arena *scratch,
                              uint32_t *ids, size_t ids_max, size_t *ids_count, Why *why);

#endif
