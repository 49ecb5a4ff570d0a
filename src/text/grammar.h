/* SPDX-License-Identifier: Apache-2.0 */
/* A grammar as a small program over bytes, for output that may only take one form.
 *
 *   GBNF text, JSON schema --> GrammarBuilder: a tree per rule --> checks --> Grammar: instructions
 *                                                                              |
 *                                 grammar_machine.h: which bytes may follow <--+--> grammar_mask.h: which tokens may
 *
 * A character above U+007F becomes the byte sequences of its UTF-8 form, so that the machine never has to know
 * whether a token ends inside a character.
 *
 *   RANGE lo..hi, SET   take a byte, go on at `next`
 *   SPLIT               go on at `next` and at `argument`
 *   CALL                rule `argument`, then `next`; nothing is remembered when `next` is RETURN
 *   COUNT               rounds of `argument`, at least and at most so many, then `next`
 *   RETURN              instruction 0: the end of a rule or of a round
 *
 * Refused by name: a rule that is not defined, one that calls itself without taking a byte first (left recursion),
 * one that can never end. So every state that is reached has a way to the end of the text.
 *
 * Limits: GRAMMAR_RULES_MAX rules, GRAMMAR_NODES_MAX parts, GRAMMAR_CODE_MAX instructions, a nesting of
 * GRAMMAR_NESTING_MAX in one rule, repetition counts up to GRAMMAR_COUNT_MAX. */
#ifndef COBORD_TEXT_GRAMMAR_H
#define COBORD_TEXT_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

enum {
    GRAMMAR_RULES_MAX = 4096,
    GRAMMAR_NODES_MAX = 1 << 16,
    GRAMMAR_RANGES_MAX = 1 << 15,
    GRAMMAR_TEXT_BYTES_MAX = 1 << 20,
    GRAMMAR_CODE_MAX = 1 << 17,
    GRAMMAR_NESTING_MAX = 100,
    GRAMMAR_COUNT_MAX = 1 << 20,
    GRAMMAR_NAME_BYTES_MAX = 64
};
#define GRAMMAR_UNBOUNDED UINT32_MAX /* as the maximum of a repetition */
#define GRAMMAR_CHARACTER_MAX 0x10FFFFu

/* ---- building: each function returns a node, 0 after a fault. The fault is kept in `error` and `why`, the first one
 * counts, and grammar_finish returns it: so a whole grammar is built without a question after every part. Nodes may be
 * used in several places. */

typedef struct GrammarRange {
    uint32_t low, high; /* characters, both included */
} GrammarRange;

/* Parts of a sequence or choice being collected; starts as {0}. */
typedef struct GrammarList {
    uint32_t first, last, count;
} GrammarList;

typedef struct GrammarNode GrammarNode;
typedef struct GrammarCell GrammarCell;
typedef struct GrammarRule GrammarRule;

typedef struct GrammarBuilder {
    GrammarNode *nodes;
    GrammarCell *cells;
    GrammarRule *rules;
    GrammarRange *ranges;
    uint8_t *text;
    uint32_t node_count, cell_count, rule_count, range_count, text_bytes;
    Error error;
    Why why;
} GrammarBuilder;

/* What building takes from an arena; all of it is free again after grammar_finish. Pages that a small grammar does not
 * need are never touched. */
size_t grammar_builder_bytes(void);
MUST_CHECK Error grammar_builder_start(GrammarBuilder *b, Arena *scratch, Why *why);
/* Records a fault: grammar_fault(b, error_why(&b->why, ...)) unless there was one before. Result  0. */
uint32_t grammar_fault(GrammarBuilder *b, Error error, const Why *why);

/* Rules are numbered from 0, the root. The name is copied, cut, and shown in faults. */
uint32_t grammar_rule(GrammarBuilder *b, const char *name, size_t bytes);
void grammar_define(GrammarBuilder *b, uint32_t rule, uint32_t node);
bool grammar_is_defined(const GrammarBuilder *b, uint32_t rule);
/* The rule of that name, UINT32_MAX when there is none. */
uint32_t grammar_find(const GrammarBuilder *b, const char *name, size_t bytes);

uint32_t grammar_empty(GrammarBuilder *b);
uint32_t grammar_bytes(GrammarBuilder *b, const void *text, size_t bytes); /* exactly these */
uint32_t grammar_text(GrammarBuilder *b, const char *text);
/* One character of the ranges, or, negated, one that is in none of them. Surrogates are never part of it.
 * Errors  ERR_RANGE when nothing is left, or a range is upside down. */
uint32_t grammar_class(GrammarBuilder *b, const GrammarRange *ranges, uint32_t count, bool negated);
uint32_t grammar_call(GrammarBuilder *b, uint32_t rule);
uint32_t grammar_repeat(GrammarBuilder *b, uint32_t node, uint32_t least, uint32_t most);
void grammar_add(GrammarBuilder *b, GrammarList *list, uint32_t node);
uint32_t grammar_sequence(GrammarBuilder *b, const GrammarList *list); /* of nothing: empty */
uint32_t grammar_choice(GrammarBuilder *b,
                        const GrammarList *list); /* Errors  ERR_RANGE of nothing */

/* ---- the program */

typedef enum GrammarOp {
    GRAMMAR_RETURN,
    GRAMMAR_RANGE,
    GRAMMAR_SET,
    GRAMMAR_SPLIT,
    GRAMMAR_CALL,
    GRAMMAR_COUNT
} GrammarOp;

typedef struct GrammarCode {
    uint8_t op, low, high;
    uint32_t next, argument;
    uint32_t index; /* of a SET in sets, of a COUNT in counts */
} GrammarCode;

typedef struct GrammarCount {
    uint32_t least, most;
    bool may_be_empty; /* a round; `least` is then 0 */
} GrammarCount;

typedef struct GrammarSet {
    uint32_t bits[8];
} GrammarSet;

typedef struct Grammar {
    const GrammarCode *code;
    const uint32_t *starts; /* of rules */
    const GrammarCount *counts;
    const GrammarSet *sets;
    uint32_t code_count, rule_count, count_count, set_count;
    uint8_t byte_class[256]; /* bytes that no instruction tells apart have one class */
    uint8_t class_byte[256]; /* one byte of each */
    uint32_t class_count;    /* at most 256 */
} Grammar;

/* Checks the rules and writes the program to `arena`; `scratch` needs grammar_finish_scratch_bytes().
 * Errors  the builder's, ERR_NOT_FOUND (a rule that is not defined), ERR_RANGE (left recursion, a rule without an end),
 *         ERR_TOO_LARGE, ERR_MEMORY. Thread  read-only afterwards. */
size_t grammar_finish_scratch_bytes(void);
size_t grammar_bytes_max(void); /* what grammar_finish takes at most */
MUST_CHECK Error grammar_finish(GrammarBuilder *b, Arena *scratch, Arena *arena, Grammar *out,
                                Why *why);

/* GBNF: rules `name ::= alternatives`, "text", [classes], `.`, groups, * + ? {m} {m,} {m,n}, # comments; escapes
 * \n \r \t \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH. The text starts at the rule named root.
 * Errors  ERR_FORMAT with line and column; those of grammar_finish. */
size_t grammar_gbnf_scratch_bytes(void);
MUST_CHECK Error grammar_gbnf(const uint8_t *text, size_t bytes, Arena *scratch, Arena *arena,
                              Grammar *out, Why *why);

static inline bool grammar_set_has(const GrammarSet *set, uint8_t byte)
{
    return set->bits[byte >> 5] >> (byte & 31) & 1;
}

#endif
