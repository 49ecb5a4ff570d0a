/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a Tokenizer, shared by the files of this room that build and read it. Everything lives in
 * the arena that tokenizer_build was given and is read-only afterwards.
 *
 *   tokens    text -> id           open addressing, u32 slots, MERGE-like: slot = id or VOCAB_NO_TOKEN
 *   merges    (left, right) -> rank  the same; BPE only
 *   specials  a trie over the bytes of control and user-defined tokens
 *
 * A file chooses the texts, so a search looks at TABLES_PROBES_MAX slots at most and a vocabulary that needs
 * more is refused: no crafted collision makes building or tokenizing slow. */
#ifndef COBORD_TEXT_TABLES_H
#define COBORD_TEXT_TABLES_H

#include "base/arena.h"
#include "text/tokenizer.h"

enum { TABLES_PROBES_MAX = 2048, TOKENIZER_ENDS_MAX = 16, PRINTABLE_COUNT = 324 };

typedef struct SpecialNode {
    uint32_t child, sibling; /* node indices, 0 for none */
    uint32_t id;             /* of the token that ends here, or VOCAB_NO_TOKEN */
    uint8_t byte;
} SpecialNode;

struct Tokenizer {
    const Vocab *vocab;
    uint32_t *token_slots, token_mask;
    uint32_t *merge_slots, merge_mask;
    SpecialNode *nodes; /* node 0 is the root */
    uint32_t node_count;
    uint32_t root_child[256]; /* the root's children by byte */
    uint32_t byte_token[256];
    int16_t printable[PRINTABLE_COUNT]; /* GPT-2's printable character -> byte, -1 for others */
    uint32_t token_bytes_max;
    uint32_t ends[TOKENIZER_ENDS_MAX], end_count;
};

/* Ids being collected. */
typedef struct Ids {
    uint32_t *list;
    size_t max, count;
} Ids;

MUST_CHECK Error tables_push(Ids *ids, uint32_t id, Why *why);

size_t tables_bytes(const Vocab *vocab);
MUST_CHECK Error tables_build(Tokenizer *t, Arena *arena, Why *why);
/* The id of a text, VOCAB_NO_TOKEN when there is none. When several tokens have one text, the lowest. */
uint32_t tables_find(const Tokenizer *t, const uint8_t *text, size_t bytes);
/* The rank of a merge, VOCAB_NO_TOKEN when there is none. */
uint32_t tables_merge(const Tokenizer *t, uint32_t left, uint32_t right);

/* GPT-2's printable character for a byte, as UTF-8 of one or two bytes. */
uint32_t tables_printable(uint8_t byte, uint8_t *out);

/* specials.c: which tokens are matched as a whole. Control tokens, the unknown token and every marker of a
 * turn (some files call those user-defined) only where the caller allows it; other user-defined tokens always. */
bool specials_is_control(const Vocab *vocab, uint32_t id);
size_t specials_bytes(const Vocab *vocab);
MUST_CHECK Error specials_build(Tokenizer *t, Arena *arena, Why *why);
/* The longest special token at the front of text: its length, 0 when there is none. */
size_t specials_match(const Tokenizer *t, const uint8_t *text, size_t bytes, bool control,
                      uint32_t *id);

/* bpe.c, sentencepiece.c: append the ids of text without special tokens. */
size_t bpe_scratch_bytes(const Tokenizer *t, size_t bytes);
MUST_CHECK Error bpe_encode(const Tokenizer *t, const uint8_t *text, size_t bytes, Arena *scratch,
                            Ids *ids, Why *why);
MUST_CHECK Error bpe_piece(const Tokenizer *t, const uint8_t *piece, size_t bytes, uint8_t *out,
                           size_t *out_bytes);
size_t sentencepiece_scratch_bytes(size_t bytes);
/* `prefix`: put a space in front. */
MUST_CHECK Error sentencepiece_encode(const Tokenizer *t, const uint8_t *text, size_t bytes,
                                      bool prefix, Arena *scratch, Ids *ids, Why *why);
/* The byte that <0xNN> stands for, -1 for another text. */
int sentencepiece_byte(const uint8_t *piece, size_t bytes);
size_t sentencepiece_piece(const uint8_t *piece, size_t bytes, uint8_t *out);

#endif
