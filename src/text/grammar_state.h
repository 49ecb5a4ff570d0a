/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a GrammarBuilder; used by grammar*.c only. */
#ifndef COBORD_TEXT_GRAMMAR_STATE_H
#define COBORD_TEXT_GRAMMAR_STATE_H

#include "text/grammar.h"

typedef enum GrammarKind {
    GRAMMAR_NODE_NONE, /* node 0 */
    GRAMMAR_NODE_EMPTY,
    GRAMMAR_NODE_BYTES,
    GRAMMAR_NODE_CLASS,
    GRAMMAR_NODE_CALL,
    GRAMMAR_NODE_REPEAT,
    GRAMMAR_NODE_SEQUENCE,
    GRAMMAR_NODE_CHOICE
} GrammarKind;

struct GrammarNode {
    uint8_t kind, nesting;
    uint32_t first;       /* text, range, rule, node, or first cell */
    uint32_t count;       /* bytes or ranges; the last cell */
    uint32_t least, most; /* of a repeat */
};

struct GrammarCell {
    uint32_t node, next, previous;
};

struct GrammarRule {
    uint32_t node; /* 0: not defined */
    char name[GRAMMAR_NAME_BYTES_MAX];
};

/* grammar_check.c: whether rules are whole. `may_be_empty`[node_count] is taken from scratch: which parts can be no
 * byte at all. Errors  as for grammar_finish. */
size_t grammar_check_scratch_bytes(void);
MUST_CHECK Error grammar_check(GrammarBuilder *b, Arena *scratch, uint8_t **may_be_empty, Why *why);

/* grammar_utf8.c: a stretch of characters as rows of byte ranges that do not overlap. */
typedef struct GrammarUtf8 {
    uint8_t low[4], high[4];
    uint32_t length;
} GrammarUtf8;
enum { GRAMMAR_UTF8_ROWS_MAX = 32 };
/* Shapes  out[GRAMMAR_UTF8_ROWS_MAX]. Result  how many. Surrogates are left out. */
uint32_t grammar_utf8_split(uint32_t low, uint32_t high, GrammarUtf8 *out);

#endif
