/* SPDX-License-Identifier: Apache-2.0 */
/* From parts to instructions. Each part is written with the place where the text goes on after it known, so code is
 * made from the end of a rule to its start and nothing is patched but loops. */
#include <string.h>

#include "text/grammar_state.h"

enum { COUNTS_MAX = 1 << 14, SETS_MAX = 1 << 13 };

typedef struct Emitter {
    const GrammarBuilder *b;
    const uint8_t *may_be_empty;
    GrammarCode *code;
    GrammarCount *counts;
    GrammarSet *sets;
    uint32_t *starts;
    uint32_t code_count, count_count, set_count;
    Error error;
    Why *why;
} Emitter;

size_t grammar_finish_scratch_bytes(void)
{
    return grammar_check_scratch_bytes() + grammar_bytes_max();
}

size_t grammar_bytes_max(void)
{
    return arena_bytes(GRAMMAR_CODE_MAX * sizeof(GrammarCode)) +
           arena_bytes(COUNTS_MAX * sizeof(GrammarCount)) +
           arena_bytes(SETS_MAX * sizeof(GrammarSet)) +
           arena_bytes(GRAMMAR_RULES_MAX * sizeof(uint32_t)) + ARENA_ALIGN;
}

/* Result  the new instruction; 0 after a fault, which is kept. */
static uint32_t add(Emitter *e, GrammarCode code)
{
    if (e->error == OK && e->code_count == GRAMMAR_CODE_MAX)
        e->error = error_why(e->why, ERR_TOO_LARGE, "the grammar needs more than %u instructions",
                             (unsigned)GRAMMAR_CODE_MAX);
    if (e->error != OK) return 0;
    e->code[e->code_count] = code;
    return e->code_count++;
}

static uint32_t split(Emitter *e, uint32_t a, uint32_t b)
{
    return add(e, (GrammarCode){.op = GRAMMAR_SPLIT, .next = a, .argument = b});
}

static uint32_t range(Emitter *e, uint8_t low, uint8_t high, uint32_t next)
{
    return add(e, (GrammarCode){.op = GRAMMAR_RANGE, .low = low, .high = high, .next = next});
}

static uint32_t set(Emitter *e, const GrammarSet *bits, uint32_t next)
{
    uint32_t i = 0;
    while (i < e->set_count && memcmp(&e->sets[i], bits, sizeof *bits) != 0) i++;
    if (i == SETS_MAX) {
        if (e->error == OK)
            e->error = error_why(e->why, ERR_TOO_LARGE, "the grammar has more than %u classes",
                                 (unsigned)SETS_MAX);
        return 0;
    }
    if (i == e->set_count) e->sets[e->set_count++] = *bits;
    return add(e, (GrammarCode){.op = GRAMMAR_SET, .next = next, .index = i});
}

/* ---- classes ---- */

/* The bytes below 0x80 of a class. Result  how many. */
static uint32_t ascii_of(const GrammarRange *r, uint32_t count, GrammarSet *out)
{
    uint32_t bytes = 0;
    *out = (GrammarSet){0};
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t c = r[i].low; c <= r[i].high && c < 0x80; c++, bytes++)
            out->bits[c >> 5] |= 1u << (c & 31);
    return bytes;
}

static uint32_t emit_ascii(Emitter *e, const GrammarSet *bits, uint32_t count, uint32_t next)
{
    uint8_t low = 0, high = 127;
    while (!grammar_set_has(bits, low)) low++;
    while (!grammar_set_has(bits, high)) high--;
    if ((uint32_t)(high - low) + 1 == count) return range(e, low, high, next);
    return set(e, bits, next);
}

/* One row; `tails` remembers chains of n free bytes in front of `next`, which rows share. */
static uint32_t emit_row(Emitter *e, const GrammarUtf8 *row, uint32_t *tails)
{
    uint32_t at = tails[0], fixed = row->length, free_bytes = 0;
    while (fixed > 1 && row->low[fixed - 1] == 0x80 && row->high[fixed - 1] == 0xBF) {
        fixed--;
        free_bytes++;
        if (!tails[free_bytes]) tails[free_bytes] = range(e, 0x80, 0xBF, at);
        at = tails[free_bytes];
    }
    while (fixed--) at = range(e, row->low[fixed], row->high[fixed], at);
    return at;
}

static uint32_t emit_class(Emitter *e, const GrammarNode *n, uint32_t next)
{
    const GrammarRange *r = e->b->ranges + n->first;
    uint32_t tails[4] = {next}, at = 0;
    bool has = false;
    GrammarSet ascii;
    GrammarUtf8 rows[GRAMMAR_UTF8_ROWS_MAX];
    uint32_t ascii_count = ascii_of(r, n->count, &ascii);
    if (ascii_count) at = emit_ascii(e, &ascii, ascii_count, next), has = true;
    for (uint32_t i = 0; i < n->count && e->error == OK; i++) {
        uint32_t low = r[i].low < 0x80 ? 0x80 : r[i].low;
        uint32_t count = low <= r[i].high ? grammar_utf8_split(low, r[i].high, rows) : 0;
        for (uint32_t k = 0; k < count; k++) {
            uint32_t row = emit_row(e, &rows[k], tails);
            at = has ? split(e, row, at) : row;
            has = true;
        }
    }
    return at;
}

/* ---- the other parts ---- */

static uint32_t emit(Emitter *e, uint32_t node, uint32_t next);

static uint32_t emit_bytes(Emitter *e, const GrammarNode *n, uint32_t next)
{
    const uint8_t *text = e->b->text + n->first;
    for (uint32_t i = n->count; i-- > 0;) next = range(e, text[i], text[i], next);
    return next;
}

/* Back to a SPLIT that is there before what it leads to. */
static uint32_t emit_loop(Emitter *e, uint32_t body, bool at_least_one, uint32_t next)
{
    uint32_t loop = split(e, 0, next), start = emit(e, body, loop);
    if (e->error != OK) return 0;
    e->code[loop].next = start;
    return at_least_one ? start : loop;
}

static uint32_t emit_count(Emitter *e, const GrammarNode *n, uint32_t next)
{
    if (e->error == OK && e->count_count == COUNTS_MAX)
        e->error = error_why(e->why, ERR_TOO_LARGE, "the grammar has more than %u repetitions",
                             (unsigned)COUNTS_MAX);
    if (e->error != OK) return 0;
    bool empty = e->may_be_empty[n->first];
    uint32_t index = e->count_count++;
    e->counts[index] = (GrammarCount){empty ? 0 : n->least, n->most, empty};
    uint32_t body = emit(e, n->first, 0);
    return add(e,
               (GrammarCode){.op = GRAMMAR_COUNT, .next = next, .argument = body, .index = index});
}

static uint32_t emit_repeat(Emitter *e, const GrammarNode *n, uint32_t next)
{
    bool endless = n->most == GRAMMAR_UNBOUNDED;
    if (endless && (n->least <= 1 || e->may_be_empty[n->first]))
        return emit_loop(e, n->first, n->least == 1, next);
    if (n->least == 0 && n->most == 1) return split(e, emit(e, n->first, next), next);
    return emit_count(e, n, next);
}

static uint32_t emit_list(Emitter *e, const GrammarNode *n, uint32_t next)
{
    uint32_t at = next;
    bool choice = n->kind == GRAMMAR_NODE_CHOICE;
    for (uint32_t c = n->count; c && e->error == OK; c = e->b->cells[c].previous) {
        uint32_t part = emit(e, e->b->cells[c].node, choice ? next : at);
        at = choice && c != n->count ? split(e, part, at) : part;
    }
    return at;
}

static uint32_t emit(Emitter *e, uint32_t node, uint32_t next)
{
    const GrammarNode *n = &e->b->nodes[node];
    if (e->error != OK) return 0;
    switch ((GrammarKind)n->kind) {
    case GRAMMAR_NODE_EMPTY: return next;
    case GRAMMAR_NODE_BYTES: return emit_bytes(e, n, next);
    case GRAMMAR_NODE_CLASS: return emit_class(e, n, next);
    case GRAMMAR_NODE_CALL:
        return add(e, (GrammarCode){.op = GRAMMAR_CALL, .next = next, .argument = n->first});
    case GRAMMAR_NODE_REPEAT: return emit_repeat(e, n, next);
    case GRAMMAR_NODE_SEQUENCE:
    case GRAMMAR_NODE_CHOICE: return emit_list(e, n, next);
    case GRAMMAR_NODE_NONE: break;
    }
    ASSERT(false);
    return 0;
}

/* ---- the whole ---- */

static bool takes(const GrammarCode *c, const GrammarSet *sets, uint32_t byte)
{
    return c->op == GRAMMAR_SET ? grammar_set_has(&sets[c->index], (uint8_t)byte)
                                : byte >= c->low && byte <= c->high;
}

/* Splits the classes of bytes by whether an instruction takes them. */
static void refine(Grammar *g, const GrammarCode *c, const GrammarSet *sets)
{
    uint16_t moved[256] = {0}; /* class -> its part that is taken, + 1 */
    uint16_t outside[256] = {0};
    for (uint32_t i = 0; i < 256; i++) outside[g->byte_class[i]] |= !takes(c, sets, i);
    for (uint32_t i = 0; i < 256; i++) {
        uint8_t old = g->byte_class[i];
        if (!outside[old] || !takes(c, sets, i)) continue;
        if (!moved[old]) moved[old] = (uint16_t)(++g->class_count);
        g->byte_class[i] = (uint8_t)(moved[old] - 1);
    }
}

static void find_classes(Grammar *g)
{
    uint8_t seen[256 * 256 / 8] = {0};
    g->class_count = 1;
    for (uint32_t i = 0; i < g->set_count; i++)
        refine(g, &(GrammarCode){.op = GRAMMAR_SET, .index = i}, g->sets);
    for (uint32_t i = 0; i < g->code_count; i++) {
        const GrammarCode *c = &g->code[i];
        uint32_t pair = (uint32_t)c->low << 8 | c->high;
        if (c->op != GRAMMAR_RANGE || seen[pair >> 3] >> (pair & 7) & 1) continue;
        seen[pair >> 3] |= (uint8_t)(1 << (pair & 7));
        refine(g, c, g->sets);
    }
    for (uint32_t i = 256; i-- > 0;) g->class_byte[g->byte_class[i]] = (uint8_t)i;
}

static void *keep(Arena *arena, const void *from, size_t bytes)
{
    void *to = arena_take_raw(arena, bytes);
    if (to && bytes) memcpy(to, from, bytes);
    return to;
}

static Error keep_program(const Emitter *e, Arena *arena, Grammar *out, Why *why)
{
    uint32_t rules = e->b->rule_count;
    *out = (Grammar){.code = keep(arena, e->code, e->code_count * sizeof *e->code),
                     .starts = keep(arena, e->starts, rules * sizeof *e->starts),
                     .counts = keep(arena, e->counts, e->count_count * sizeof *e->counts),
                     .sets = keep(arena, e->sets, e->set_count * sizeof *e->sets),
                     .code_count = e->code_count,
                     .rule_count = rules,
                     .count_count = e->count_count,
                     .set_count = e->set_count};
    if (!out->code || !out->starts || !out->counts || !out->sets)
        return error_why(why, ERR_MEMORY, "no memory for a grammar of %u instructions",
                         e->code_count);
    find_classes(out);
    return OK;
}

static Error emit_rules(Emitter *e, Arena *scratch, Arena *arena, Grammar *out)
{
    e->code = arena_take_raw(scratch, GRAMMAR_CODE_MAX * sizeof *e->code);
    e->counts = arena_take_raw(scratch, COUNTS_MAX * sizeof *e->counts);
    e->sets = arena_take_raw(scratch, SETS_MAX * sizeof *e->sets);
    e->starts = arena_take_raw(scratch, GRAMMAR_RULES_MAX * sizeof *e->starts);
    if (!e->code || !e->counts || !e->sets || !e->starts)
        return error_why(e->why, ERR_MEMORY, "no memory to write a grammar");
    (void)add(e, (GrammarCode){.op = GRAMMAR_RETURN});
    for (uint32_t i = 0; i < e->b->rule_count; i++) e->starts[i] = emit(e, e->b->rules[i].node, 0);
    return e->error != OK ? e->error : keep_program(e, arena, out, e->why);
}

Error grammar_finish(GrammarBuilder *b, Arena *scratch, Arena *arena, Grammar *out, Why *why)
{
    Why own;
    Emitter e = {.b = b, .why = why ? why : &own};
    size_t mark = arena_mark(scratch);
    uint8_t *may_be_empty = NULL;
    Error error = grammar_check(b, scratch, &may_be_empty, why);
    e.may_be_empty = may_be_empty;
    if (error == OK) error = emit_rules(&e, scratch, arena, out);
    arena_reset(scratch, mark);
    return error;
}
