/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer section of a knot: what a model's vocabulary says, as one binary section that is
 * used in place. Byte table in docs/format/knot.md. Written by the encoder from GGUF metadata, read
 * by `text`. */
#ifndef COBORD_KNOT_VOCAB_H
#define COBORD_KNOT_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* GGUF's tokenizer.ggml.model */
typedef enum VocabModel { VOCAB_BPE = 1, VOCAB_SENTENCEPIECE = 2 } VocabModel;

/* GGUF's tokenizer.ggml.pre, only those that `text` implements; anything else is an error in the
 * encoder. */
typedef enum VocabPre {
    VOCAB_PRE_NONE = 0,
    VOCAB_PRE_QWEN2 = 1,
    VOCAB_PRE_GPT2 = 2,
    VOCAB_PRE_LLAMA_BPE = 3,
    VOCAB_PRE_SMOLLM = 4
} VocabPre;

/* GGUF's token types. */
typedef enum VocabTokenType {
    VOCAB_NORMAL = 1,
    VOCAB_UNKNOWN = 2,
    VOCAB_CONTROL = 3,
    VOCAB_USER_DEFINED = 4,
    VOCAB_UNUSED = 5,
    VOCAB_BYTE = 6
} VocabTokenType;

#define VOCAB_NO_TOKEN UINT32_MAX

enum { VOCAB_HEADER_BYTES = 64, VOCAB_TOKENS_MAX = 1 << 22, VOCAB_TOKEN_BYTES_MAX = 1024 };

typedef struct VocabMerge {
    uint32_t left, right, merged; /* token ids; the index in the list is the rank */
} VocabMerge;

/* A view into the section's bytes, every length and id checked by vocab_parse. Owner  the section's
 * bytes. */
typedef struct Vocab {
    VocabModel model;
    VocabPre pre;
    bool add_bos, add_eos, add_space_prefix;
    uint32_t tokens; /* ids 0..tokens-1 */
    uint32_t merges;
    uint32_t bos, eos, eot, unknown, pad; /* VOCAB_NO_TOKEN where the file names none */
    const uint8_t *token_ends;            /* u32[tokens]: token i is text[ends[i-1] .. ends[i]) */
    /* Pieces as in GGUF (byte-level BPE pieces still in GPT-2's printable form). */
    const uint8_t *token_text;
    const uint8_t *types;         /* u8[tokens] */
    const uint8_t *scores;        /* f32[tokens] or NULL */
    const uint8_t *merge_list;    /* VocabMerge[merges], 12 bytes each */
    const uint8_t *chat_template; /* UTF-8, not terminated; length 0 when there is none */
    uint32_t chat_template_bytes;
} Vocab;

/* Errors  ERR_TRUNCATED, ERR_FORMAT, ERR_RANGE. */
MUST_CHECK Error vocab_parse(const uint8_t *section, size_t bytes, Vocab *out, Why *why);

const uint8_t *vocab_token(const Vocab *v, uint32_t id, uint32_t *bytes);
VocabTokenType vocab_type(const Vocab *v, uint32_t id);
float vocab_score(const Vocab *v, uint32_t id); /* 0 when the section has no scores */
VocabMerge vocab_merge(const Vocab *v, uint32_t rank);

/* --- for writers of a section --- */

typedef struct VocabShape {
    VocabModel model;
    VocabPre pre;
    bool add_bos, add_eos, add_space_prefix, scores;
    uint32_t tokens, merges;
    uint32_t bos, eos, eot, unknown, pad;
    uint32_t text_bytes, chat_template_bytes;
} VocabShape;

/* Where a writer puts its numbers: the section's parts. `scores` is meaningless without scores. */
typedef struct VocabParts {
    uint8_t *ends, *scores, *merges, *types, *text, *chat_template;
} VocabParts;

uint64_t vocab_section_bytes(const VocabShape *shape);
/* Writes the first 64 bytes; the caller fills the parts and checks the result with vocab_parse. */
VocabParts vocab_write_fixed(const VocabShape *shape, uint8_t *section);

#endif
