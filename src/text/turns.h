/* SPDX-License-Identifier: Apache-2.0 */
/* The turn formats that are built in, chosen by the tokens that the vocabulary has:
 *
 *   ChatML (qwen, smollm)  <|im_start|>ROLE\nTEXT<|im_end|>\n ... <|im_start|>assistant\n
 *   Gemma                  <start_of_turn>ROLE\nTEXT<end_of_turn>\n ... <start_of_turn>model\n
 *   Llama 3                <|start_header_id|>ROLE<|end_header_id|>\n\nTEXT<|eot_id|> ... assistant's header and \n\n
 *
 * Text of a message can never become a control token: markers are put in as ids, and what stands between two
 * markers (role, line break, text) is tokenized in one piece as plain text, so that the ids equal those of
 * the published templates. Gemma and Llama 3 trim messages. Gemma has no system turn: the text goes in front
 * of the next user turn, and a blank line. ChatML without a system turn: the default system text that the
 * model's own chat template contains ("<|im_start|>system" directly followed by its words, as Qwen2.5's and
 * SmolLM2's do), else none; a system turn with empty text suppresses it. */
#ifndef COBORD_TEXT_TURNS_H
#define COBORD_TEXT_TURNS_H

#include "text/jinja_value.h"
#include "text/tokenizer.h"

typedef enum TurnFormat { TURNS_NONE, TURNS_CHATML, TURNS_GEMMA, TURNS_LLAMA3 } TurnFormat;

typedef struct Turn {
    const char *role; /* "system", "user", "assistant"; for templates and chat_fold also "tool" */
    const uint8_t *text;
    size_t bytes;
    bool silent; /* nothing was said: an assistant's turn that only calls tools */
    /* Of an assistant: a list of {"id", "type", "function": {"name", "arguments": a dictionary}}; NULL: no calls. */
    const JinjaValue *calls;
    /* Of a tool's turn: which call it answers, which tool; NULL: not said. */
    const char *call_id, *name;
} Turn;

TurnFormat turns_format(const Tokenizer *t);

/* Appends the conversation and the opening of the assistant's answer to ids. With `first` it begins with BOS
 * where the model wants one and the default system text; without it, it continues ids that end with the
 * marker that closed the last answer.
 * Errors  ERR_UNSUPPORTED for a vocabulary without turn markers, ERR_USAGE for an unknown role,
 * ERR_CAPACITY, ERR_MEMORY. */
size_t turns_scratch_bytes(const Tokenizer *t, const Turn *turns, size_t count);
size_t turns_ids_max(const Turn *turns, size_t count);
MUST_CHECK Error turns_encode(const Tokenizer *t, const Turn *turns, size_t count, bool first,
                              Arena *scratch, uint32_t *ids, size_t ids_max, size_t *ids_count,
                              Why *why);

#endif
