/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces of a range of token ids as a tree of their bytes, written down in the order of a walk:
 *
 *   node      0 root  1 'a'  2 'b'  3 'c'  4 'x'  ..     a, ab, ac, x
 *   skip      n       4      3      4      5             the first node that is not below this one
 *   tokens    the ids that end at node i are ids[rank[i] .. rank[i + 1]), those at it and below it .. rank[skip[i]])
 *   below     which kinds of bytes come below: an index of `kinds`; bytes are sorted into 64 kinds, so that "every
 *             byte down there is one that may stand in a string" is one AND
 *
 * Built once per vocabulary and range, about 11 bytes a node (Qwen's 151,936 tokens: 3.7 MB), read-only afterwards.
 * Control tokens, unused ones and those without text are not in it; those that end an answer are in `ends`. */
#ifndef COBORD_TEXT_GRAMMAR_VOCAB_H
#define COBORD_TEXT_GRAMMAR_VOCAB_H

#include "text/tokenizer.h"

enum { GRAMMAR_ENDS_MAX = 16, GRAMMAR_BYTE_KINDS = 64 };

typedef struct GrammarVocab {
    const Tokenizer *tokenizer;
    uint32_t id_first, id_last;
    uint32_t node_count, id_count, kinds_count;
    const uint8_t *bytes;  /* [node_count]: the byte that leads to a node */
    const uint32_t *skip;  /* [node_count] */
    const uint32_t *rank;  /* [node_count + 1] */
    const uint32_t *ids;   /* [id_count] */
    const uint16_t *below; /* [node_count] */
    const uint64_t *kinds; /* [kinds_count]; entry 0: all, for trees with too many different ones */
    uint32_t depth_max;    /* bytes of the longest piece */
    uint32_t ends[GRAMMAR_ENDS_MAX], end_count;
} GrammarVocab;

/* First the pieces in order, by which the size of the tree is known; then the tree. */
typedef struct GrammarPiece GrammarPiece;
typedef struct GrammarVocabOrder {
    const Tokenizer *tokenizer;
    uint32_t id_first, id_last;
    uint8_t *text;
    GrammarPiece *pieces, *merged;
    uint32_t *slots; /* by hash of a set of kinds: its index + 1 */
    uint32_t count, node_count, depth_max;
} GrammarVocabOrder;

/* Owner  the order lives in the scratch, and the tokenizer outlives it. Errors  ERR_RANGE (ids), ERR_MEMORY. */
size_t grammar_vocab_scratch_bytes(const Tokenizer *t, uint32_t id_first, uint32_t id_last);
MUST_CHECK Error grammar_vocab_sort(const Tokenizer *t, uint32_t id_first, uint32_t id_last,
                                    Arena *scratch, GrammarVocabOrder *out, Why *why);
/* Uses up the order. Owner  the tokenizer outlives it. Errors  ERR_MEMORY. */
size_t grammar_vocab_bytes(const GrammarVocabOrder *order); /* more than is kept */
MUST_CHECK Error grammar_vocab_plant(const GrammarVocabOrder *order, Arena *arena,
                                     GrammarVocab *out, Why *why);
/* Both. */
MUST_CHECK Error grammar_vocab_build(const Tokenizer *t, uint32_t id_first, uint32_t id_last,
                                     Arena *scratch, Arena *arena, GrammarVocab *out, Why *why);

/* 0 .. GRAMMAR_BYTE_KINDS - 1 */
uint32_t grammar_vocab_kind(uint8_t byte);

#endif
