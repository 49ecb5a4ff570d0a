/* SPDX-License-Identifier: Apache-2.0 */
/* The builder: parts of rules, collected in pools. grammar_emit.c makes the program of them. */
#include "text/grammar.h"

#include <string.h>

#include "text/grammar_state.h"

enum { CELLS_MAX = 2 * GRAMMAR_NODES_MAX };

size_t grammar_builder_bytes(void)
{
    return arena_bytes(GRAMMAR_NODES_MAX * sizeof(GrammarNode)) +
           arena_bytes(CELLS_MAX * sizeof(GrammarCell)) +
           arena_bytes(GRAMMAR_RULES_MAX * sizeof(GrammarRule)) +
           arena_bytes(GRAMMAR_RANGES_MAX * sizeof(GrammarRange)) +
           arena_bytes(GRAMMAR_TEXT_BYTES_MAX) + ARENA_ALIGN;
}

Error grammar_builder_start(GrammarBuilder *b, Arena *scratch, Why *why)
{
    *b = (GrammarBuilder){.node_count = 1, .cell_count = 1};
    b->nodes = arena_take_raw(scratch, GRAMMAR_NODES_MAX * sizeof(GrammarNode));
    b->cells = arena_take_raw(scratch, CELLS_MAX * sizeof(GrammarCell));
    b->rules = arena_take_raw(scratch, GRAMMAR_RULES_MAX * sizeof(GrammarRule));
    b->ranges = arena_take_raw(scratch, GRAMMAR_RANGES_MAX * sizeof(GrammarRange));
    b->text = arena_take_raw(scratch, GRAMMAR_TEXT_BYTES_MAX);
    if (!b->nodes || !b->cells || !b->rules || !b->ranges || !b->text)
        return error_why(why, ERR_MEMORY, "no memory to build a grammar");
    b->nodes[0] = (GrammarNode){.kind = GRAMMAR_NODE_NONE};
    b->cells[0] = (GrammarCell){0};
    return OK;
}

uint32_t grammar_fault(GrammarBuilder *b, Error error, const Why *why)
{
    if (b->error == OK) {
        b->error = error;
        b->why = *why;
    }
    return 0;
}

static uint32_t too_large(GrammarBuilder *b, const char *what, uint32_t most)
{
    Why why;
    return grammar_fault(
        b, error_why(&why, ERR_TOO_LARGE, "the grammar has more than %u %s", most, what), &why);
}

static uint32_t add_node(GrammarBuilder *b, GrammarNode node)
{
    if (b->error != OK) return 0;
    if (b->node_count == GRAMMAR_NODES_MAX) return too_large(b, "parts", GRAMMAR_NODES_MAX);
    if (node.nesting > GRAMMAR_NESTING_MAX)
        return too_large(b, "levels in one rule", GRAMMAR_NESTING_MAX);
    b->nodes[b->node_count] = node;
    return b->node_count++;
}

/* ---- rules ---- */

uint32_t grammar_find(const GrammarBuilder *b, const char *name, size_t bytes)
{
    if (bytes >= GRAMMAR_NAME_BYTES_MAX) return UINT32_MAX;
    for (uint32_t i = 0; i < b->rule_count; i++)
        if (memcmp(b->rules[i].name, name, bytes) == 0 && b->rules[i].name[bytes] == '\0') return i;
    return UINT32_MAX;
}

uint32_t grammar_rule(GrammarBuilder *b, const char *name, size_t bytes)
{
    if (b->error != OK) return 0;
    if (b->rule_count == GRAMMAR_RULES_MAX) return too_large(b, "rules", GRAMMAR_RULES_MAX);
    GrammarRule *rule = &b->rules[b->rule_count];
    if (bytes >= sizeof rule->name) bytes = sizeof rule->name - 1;
    *rule = (GrammarRule){0};
    memcpy(rule->name, name, bytes);
    return b->rule_count++;
}

void grammar_define(GrammarBuilder *b, uint32_t rule, uint32_t node)
{
    if (b->error == OK) b->rules[rule].node = node;
}

bool grammar_is_defined(const GrammarBuilder *b, uint32_t rule) { return b->rules[rule].node != 0; }

/* ---- parts ---- */

uint32_t grammar_empty(GrammarBuilder *b)
{
    return add_node(b, (GrammarNode){.kind = GRAMMAR_NODE_EMPTY});
}

uint32_t grammar_bytes(GrammarBuilder *b, const void *text, size_t bytes)
{
    if (!bytes) return grammar_empty(b);
    if (b->error != OK) return 0;
    if (bytes > GRAMMAR_TEXT_BYTES_MAX - b->text_bytes)
        return too_large(b, "bytes of text", GRAMMAR_TEXT_BYTES_MAX);
    uint32_t at = b->text_bytes;
    memcpy(b->text + at, text, bytes);
    b->text_bytes += (uint32_t)bytes;
    return add_node(
        b, (GrammarNode){.kind = GRAMMAR_NODE_BYTES, .first = at, .count = (uint32_t)bytes});
}

uint32_t grammar_text(GrammarBuilder *b, const char *text)
{
    return grammar_bytes(b, text, strlen(text));
}

uint32_t grammar_call(GrammarBuilder *b, uint32_t rule)
{
    return add_node(b, (GrammarNode){.kind = GRAMMAR_NODE_CALL, .first = rule});
}

uint32_t grammar_repeat(GrammarBuilder *b, uint32_t node, uint32_t least, uint32_t most)
{
    Why why;
    if (b->error != OK) return 0;
    if (least > most || least > GRAMMAR_COUNT_MAX ||
        (most > GRAMMAR_COUNT_MAX && most != GRAMMAR_UNBOUNDED))
        return grammar_fault(b,
                             error_why(&why, ERR_RANGE,
                                       "a repetition from %u to %u; counts rise, up to %u", least,
                                       most, (unsigned)GRAMMAR_COUNT_MAX),
                             &why);
    if (least == 1 && most == 1) return node;
    if (most == 0) return grammar_empty(b);
    return add_node(b, (GrammarNode){.kind = GRAMMAR_NODE_REPEAT,
                                     .nesting = (uint8_t)(b->nodes[node].nesting + 1),
                                     .first = node,
                                     .least = least,
                                     .most = most});
}

void grammar_add(GrammarBuilder *b, GrammarList *list, uint32_t node)
{
    if (b->error != OK) return;
    if (b->cell_count == CELLS_MAX) {
        (void)too_large(b, "parts", CELLS_MAX);
        return;
    }
    uint32_t at = b->cell_count++;
    b->cells[at] = (GrammarCell){.node = node, .previous = list->count ? list->last : 0};
    if (list->count++) b->cells[list->last].next = at;
    else list->first = at;
    list->last = at;
}

static uint32_t add_list(GrammarBuilder *b, GrammarKind kind, const GrammarList *list)
{
    uint8_t nesting = 0;
    if (b->error != OK) return 0;
    if (list->count == 1) return b->cells[list->first].node;
    for (uint32_t c = list->first; c; c = b->cells[c].next) {
        uint8_t inner = b->nodes[b->cells[c].node].nesting;
        if (inner > nesting) nesting = inner;
    }
    return add_node(b, (GrammarNode){.kind = (uint8_t)kind,
                                     .nesting = (uint8_t)(nesting + 1),
                                     .first = list->first,
                                     .count = list->last});
}

uint32_t grammar_sequence(GrammarBuilder *b, const GrammarList *list)
{
    return list->count ? add_list(b, GRAMMAR_NODE_SEQUENCE, list) : grammar_empty(b);
}

uint32_t grammar_choice(GrammarBuilder *b, const GrammarList *list)
{
    Why why;
    if (!list->count)
        return grammar_fault(b, error_why(&why, ERR_RANGE, "a choice between nothing"), &why);
    return add_list(b, GRAMMAR_NODE_CHOICE, list);
}

/* ---- classes ---- */

/* Insertion sort: classes are short, and the longest one that fits takes no time to speak of. */
static void sort_ranges(GrammarRange *r, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        GrammarRange x = r[i];
        uint32_t at = i;
        for (; at && r[at - 1].low > x.low; at--) r[at] = r[at - 1];
        r[at] = x;
    }
}

static uint32_t join_ranges(GrammarRange *r, uint32_t count)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (kept && r[i].low <= r[kept - 1].high + 1) {
            if (r[i].high > r[kept - 1].high) r[kept - 1].high = r[i].high;
        } else {
            r[kept++] = r[i];
        }
    }
    return kept;
}

/* In place; needs room for one more. */
static uint32_t negate_ranges(GrammarRange *r, uint32_t count)
{
    uint32_t next = 0, kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        GrammarRange x = r[i];
        if (x.low > next) r[kept++] = (GrammarRange){next, x.low - 1};
        next = x.high + 1;
    }
    if (next <= GRAMMAR_CHARACTER_MAX) r[kept++] = (GrammarRange){next, GRAMMAR_CHARACTER_MAX};
    return kept;
}

static bool only_surrogates(const GrammarRange *r, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (r[i].low < 0xD800 || r[i].high > 0xDFFF) return false;
    return true;
}

uint32_t grammar_class(GrammarBuilder *b, const GrammarRange *ranges, uint32_t count, bool negated)
{
    Why why;
    if (b->error != OK) return 0;
    if (count >= GRAMMAR_RANGES_MAX - b->range_count)
        return too_large(b, "ranges", GRAMMAR_RANGES_MAX);
    GrammarRange *r = b->ranges + b->range_count;
    for (uint32_t i = 0; i < count; i++) {
        r[i] = ranges[i];
        if (r[i].low > r[i].high || r[i].high > GRAMMAR_CHARACTER_MAX)
            return grammar_fault(b,
                                 error_why(&why, ERR_RANGE, "no range of characters: U+%x to U+%x",
                                           r[i].low, r[i].high),
                                 &why);
    }
    sort_ranges(r, count);
    count = join_ranges(r, count);
    if (negated) count = negate_ranges(r, count);
    if (only_surrogates(r, count))
        return grammar_fault(b, error_why(&why, ERR_RANGE, "a class without a character"), &why);
    uint32_t first = b->range_count;
    b->range_count += count;
    return add_node(b, (GrammarNode){.kind = GRAMMAR_NODE_CLASS, .first = first, .count = count});
}
