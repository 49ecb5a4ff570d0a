/* SPDX-License-Identifier: Apache-2.0 */
/* Vocabularies of a few hundred tokens, put together in memory: a byte-level one with a handful of merges,
 * and a SentencePiece one. Used by the unit tests and the fuzz targets of this room. */
#ifndef COBORD_TESTS_SMALL_VOCAB_H
#define COBORD_TESTS_SMALL_VOCAB_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "text/tables.h"
#include "text/tokenizer.h"

enum { SMALL_TOKENS_MAX = 600, SMALL_TEXT_MAX = 16384, SMALL_MERGES_MAX = 200 };

typedef struct SmallVocab {
    Vocab vocab;
    uint32_t ends[SMALL_TOKENS_MAX], text_bytes;
    uint8_t text[SMALL_TEXT_MAX], types[SMALL_TOKENS_MAX];
    float scores[SMALL_TOKENS_MAX];
    VocabMerge merges[SMALL_MERGES_MAX];
    void *memory;
    Tokenizer *tokenizer;
} SmallVocab;

static inline uint32_t small_add(SmallVocab *s, const void *text, size_t bytes, VocabTokenType type,
                                 float score)
{
    memcpy(s->text + s->text_bytes, text, bytes);
    s->text_bytes += (uint32_t)bytes;
    uint32_t id = s->vocab.tokens++;
    s->ends[id] = s->text_bytes;
    s->types[id] = (uint8_t)type;
    s->scores[id] = score;
    return id;
}

static inline uint32_t small_word(SmallVocab *s, const char *text, VocabTokenType type, float score)
{
    return small_add(s, text, strlen(text), type, score);
}

static inline uint32_t small_find(const SmallVocab *s, const char *text)
{
    for (uint32_t id = 0, from = 0; id < s->vocab.tokens; from = s->ends[id++])
        if (s->ends[id] - from == strlen(text) && memcmp(s->text + from, text, strlen(text)) == 0)
            return id;
    return VOCAB_NO_TOKEN;
}

/* "left right", in GPT-2's printable form. */
static inline void small_merge(SmallVocab *s, const char *left, const char *right)
{
    char both[64];
    snprintf(both, sizeof both, "%s%s", left, right);
    uint32_t merged = small_find(s, both);
    if (merged == VOCAB_NO_TOKEN) merged = small_word(s, both, VOCAB_NORMAL, 0);
    s->merges[s->vocab.merges++] = (VocabMerge){small_find(s, left), small_find(s, right), merged};
}

static inline Error small_build(SmallVocab *s, Why *why)
{
    Vocab *v = &s->vocab;
    v->token_ends = (const uint8_t *)s->ends;
    v->token_text = s->text;
    v->types = s->types;
    v->scores = v->model == VOCAB_SENTENCEPIECE ? (const uint8_t *)s->scores : NULL;
    v->merge_list = (const uint8_t *)s->merges;
    size_t bytes = tokenizer_bytes(v);
    s->memory = malloc(bytes);
    Arena arena = arena_make(s->memory, bytes);
    return tokenizer_build(v, &arena, &s->tokenizer, why);
}

static inline void small_free(SmallVocab *s)
{
    if (s) free(s->memory);
    free(s);
}

static inline SmallVocab *small_empty(VocabModel model, VocabPre pre)
{
    SmallVocab *s = calloc(1, sizeof *s);
    s->vocab = (Vocab){.model = model,
                       .pre = pre,
                       .bos = VOCAB_NO_TOKEN,
                       .eos = VOCAB_NO_TOKEN,
                       .eot = VOCAB_NO_TOKEN,
                       .unknown = VOCAB_NO_TOKEN,
                       .pad = VOCAB_NO_TOKEN};
    return s;
}

/* The 256 bytes as ids 0..255, merges for the, ing, hello and "don't", numbers, blanks and é; ChatML's
 * markers as control, <tool> and <tool>> as user-defined. */
static inline SmallVocab *small_bpe(VocabPre pre)
{
    SmallVocab *s = small_empty(VOCAB_BPE, pre);
    uint8_t text[2];
    for (unsigned b = 0; b < 256; b++)
        small_add(s, text, tables_printable((uint8_t)b, text), VOCAB_NORMAL, 0);
    static const char *const merges[][2] = {
        {"t", "h"},       {"th", "e"},   {"i", "n"},   {"in", "g"}, {"h", "e"},   {"l", "l"},
        {"he", "ll"},     {"hell", "o"}, {"Ġ", "the"}, {"Ġ", "Ġ"},  {"ĠĠ", "ĠĠ"}, {"'", "t"},
        {"'", "s"},       {"Ã", "©"},    {"1", "2"},   {"12", "3"}, {"a", "a"},   {"aa", "aa"},
        {"aaaa", "aaaa"}, {"Ċ", "Ċ"},    {"b", "c"},   {"a", "bc"}, {"a", "b"},   {"ab", "c"}};
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++)
        small_merge(s, merges[i][0], merges[i][1]);
    s->vocab.bos = small_word(s, "<|endoftext|>", VOCAB_CONTROL, 0);
    small_word(s, "<|im_start|>", VOCAB_CONTROL, 0);
    s->vocab.eos = small_word(s, "<|im_end|>", VOCAB_CONTROL, 0);
    small_word(s, "<tool>", VOCAB_USER_DEFINED, 0);
    small_word(s, "<tool>>", VOCAB_USER_DEFINED, 0);
    small_word(s, "[PAD]", VOCAB_UNUSED, 0);
    return s;
}

/* <unk> <s> </s>, 256 byte tokens, pieces; Gemma's markers, <start_of_turn> user-defined as in some files. */
static inline SmallVocab *small_sentencepiece(bool space_prefix)
{
    SmallVocab *s = small_empty(VOCAB_SENTENCEPIECE, VOCAB_PRE_NONE);
    s->vocab.unknown = small_word(s, "<unk>", VOCAB_UNKNOWN, 0);
    s->vocab.bos = small_word(s, "<s>", VOCAB_CONTROL, 0);
    s->vocab.eos = small_word(s, "</s>", VOCAB_CONTROL, 0);
    s->vocab.add_space_prefix = space_prefix;
    s->vocab.add_bos = true;
    for (unsigned b = 0; b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", b);
        small_word(s, text, VOCAB_BYTE, 0);
    }
    static const char *const pieces[] = {
        "▁t", "he", "in", "▁the", "▁a", "ing", "er",    "▁h", "▁hello", "ll", "lo",  "aa", "aaaa",
        "▁▁", "s>", "</", "▁",    "e",  "t",   "a",     "o",  "h",      "l",  "i",   "n",  "g",
        "r",  "s",  ">",  "<",    "/",  "é",   "world", "w",  "d",      "or", "wor", "ld"};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        small_word(s, pieces[i], VOCAB_NORMAL, -(float)i);
    small_word(s, "\n", VOCAB_USER_DEFINED, 0);
    small_word(s, "\n\n", VOCAB_USER_DEFINED, 0);
    small_word(s, "<start_of_turn>", VOCAB_USER_DEFINED, 0);
    small_word(s, "<end_of_turn>", VOCAB_CONTROL, 0);
    return s;
}

/* Ids of a text; the result lives until the next call. */
static inline const uint32_t *small_encode(const SmallVocab *s, const void *text, size_t bytes,
                                           unsigned flags, size_t *count)
{
    static uint32_t ids[1 << 16];
    size_t room = tokenizer_scratch_bytes(s->tokenizer, bytes);
    void *memory = malloc(room);
    Arena scratch = arena_make(memory, room);
    Why why = {{0}};
    Error error = tokenizer_encode(s->tokenizer, text, bytes, flags, &scratch, ids,
                                   sizeof ids / sizeof *ids, count, &why);
    if (error != OK || scratch.used != 0) abort();
    free(memory);
    return ids;
}

#endif
