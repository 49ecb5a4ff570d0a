/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a grammar's rules are whole, in time that grows with its size only, without recursion.
 *
 * Two questions have the same shape: which parts can be empty, which can end. Both are answered from the leaves up: a
 * part that is settled tells the parts above it (a rule tells its callers), a choice is settled by its first part that
 * is, a sequence by its last. Left recursion is a circle among the parts that can come first. */
#include <string.h>

#include "text/grammar_state.h"

typedef struct Above {
    uint32_t *from; /* [node_count + 1]: the parts above node n are list[from[n] .. from[n + 1]) */
    uint32_t *list;
} Above;

typedef struct Step {
    uint32_t node, cell; /* cell: of the list, the next to be looked at */
} Step;

typedef struct Checker {
    const GrammarBuilder *b;
    Above above;
    uint8_t *empty, *ends, *visit; /* [node_count] */
    uint32_t *missing, *queue;     /* [node_count] */
    Step *steps;                   /* [node_count] */
} Checker;

enum { EDGES_MAX = 3 * GRAMMAR_NODES_MAX };

size_t grammar_check_scratch_bytes(void)
{
    return 3 * arena_bytes(GRAMMAR_NODES_MAX) +
           3 * arena_bytes((GRAMMAR_NODES_MAX + 1) * sizeof(uint32_t)) +
           arena_bytes(EDGES_MAX * sizeof(uint32_t)) +
           arena_bytes(GRAMMAR_NODES_MAX * sizeof(Step)) + ARENA_ALIGN;
}

static bool is_list(const GrammarNode *n)
{
    return n->kind == GRAMMAR_NODE_SEQUENCE || n->kind == GRAMMAR_NODE_CHOICE;
}

/* The part below one that has exactly one, 0 for others. */
static uint32_t only_part(const GrammarBuilder *b, const GrammarNode *n)
{
    if (n->kind == GRAMMAR_NODE_REPEAT) return n->first;
    return n->kind == GRAMMAR_NODE_CALL ? b->rules[n->first].node : 0;
}

/* First counts, then, with `place`, puts each part above below its own. */
static void visit_edges(const GrammarBuilder *b, uint32_t *at, uint32_t *list)
{
    for (uint32_t i = 1; i < b->node_count; i++) {
        const GrammarNode *n = &b->nodes[i];
        uint32_t part = only_part(b, n);
        if (part && list) list[at[part]] = i;
        if (part) at[part]++;
        if (!is_list(n)) continue;
        for (uint32_t c = n->first; c; c = b->cells[c].next) {
            if (list) list[at[b->cells[c].node]] = i;
            at[b->cells[c].node]++;
        }
    }
}

static void find_above(Checker *k)
{
    uint32_t n = k->b->node_count, sum = 0;
    uint32_t *from = k->above.from;
    memset(from, 0, (n + 1) * sizeof *from);
    visit_edges(k->b, from, NULL);
    for (uint32_t i = 0; i <= n; i++) {
        uint32_t count = from[i];
        from[i] = sum;
        sum += count;
    }
    visit_edges(k->b, from, k->above.list); /* moves each start to its end: the next one's start */
    for (uint32_t i = n; i > 0; i--) from[i] = from[i - 1];
    from[0] = 0;
}

static uint32_t parts_of(const GrammarBuilder *b, const GrammarNode *n)
{
    uint32_t count = 0;
    if (n->kind != GRAMMAR_NODE_SEQUENCE) return 1;
    for (uint32_t c = n->first; c; c = b->cells[c].next) count++;
    return count;
}

static bool is_settled(const GrammarNode *n, bool leaves)
{
    if (n->kind == GRAMMAR_NODE_BYTES || n->kind == GRAMMAR_NODE_CLASS) return leaves;
    return n->kind == GRAMMAR_NODE_EMPTY || (n->kind == GRAMMAR_NODE_REPEAT && n->least == 0);
}

/* Fills `settled`; `leaves`: bytes and classes are. */
static void settle(Checker *k, bool leaves, uint8_t *settled)
{
    const GrammarBuilder *b = k->b;
    uint32_t waiting = 0;
    settled[0] = 0;
    for (uint32_t i = 1; i < b->node_count; i++) {
        k->missing[i] = parts_of(b, &b->nodes[i]);
        settled[i] = is_settled(&b->nodes[i], leaves);
        if (settled[i]) k->queue[waiting++] = i;
    }
    while (waiting) {
        uint32_t node = k->queue[--waiting];
        for (uint32_t e = k->above.from[node]; e < k->above.from[node + 1]; e++) {
            uint32_t above = k->above.list[e];
            if (settled[above] || --k->missing[above]) continue;
            settled[above] = 1;
            k->queue[waiting++] = above;
        }
    }
}

/* The next part of step's node that can come first, 0: no more. */
static uint32_t next_first(const Checker *k, Step *step)
{
    const GrammarBuilder *b = k->b;
    const GrammarNode *n = &b->nodes[step->node];
    uint32_t cell = step->cell;
    step->cell = 0;
    if (!cell) return 0;
    if (!is_list(n)) return only_part(b, n);
    uint32_t part = b->cells[cell].node;
    if (n->kind == GRAMMAR_NODE_CHOICE || k->empty[part]) step->cell = b->cells[cell].next;
    return part;
}

static uint32_t first_cell(const GrammarNode *n)
{
    if (is_list(n)) return n->first;
    return n->kind == GRAMMAR_NODE_REPEAT || n->kind == GRAMMAR_NODE_CALL; /* any but 0 */
}

static const char *name_of_circle(const Checker *k, uint32_t depth, uint32_t part)
{
    while (depth-- && k->steps[depth].node != part) {
        const GrammarNode *n = &k->b->nodes[k->steps[depth].node];
        if (n->kind == GRAMMAR_NODE_CALL) return k->b->rules[n->first].name;
    }
    const GrammarNode *n = &k->b->nodes[part];
    return n->kind == GRAMMAR_NODE_CALL ? k->b->rules[n->first].name : "?";
}

enum { UNSEEN, OPEN, CLOSED };

static Error refuse_left_recursion(Checker *k, uint32_t start, Why *why)
{
    uint32_t depth = 0;
    if (k->visit[start] != UNSEEN) return OK;
    k->visit[start] = OPEN;
    k->steps[depth++] = (Step){start, first_cell(&k->b->nodes[start])};
    while (depth) {
        Step *top = &k->steps[depth - 1];
        uint32_t part = next_first(k, top);
        if (!part) {
            k->visit[top->node] = CLOSED;
            depth--;
        } else if (k->visit[part] == OPEN) {
            return error_why(why, ERR_RANGE,
                             "rule %s calls itself before it takes a character (left recursion)",
                             name_of_circle(k, depth, part));
        } else if (k->visit[part] == UNSEEN) {
            k->visit[part] = OPEN;
            k->steps[depth++] = (Step){part, first_cell(&k->b->nodes[part])};
        }
    }
    return OK;
}

static Error check_rules(Checker *k, Why *why)
{
    const GrammarBuilder *b = k->b;
    settle(k, false, k->empty);
    settle(k, true, k->ends);
    memset(k->visit, UNSEEN, b->node_count);
    for (uint32_t i = 0; i < b->rule_count; i++) {
        const GrammarRule *rule = &b->rules[i];
        if (!k->ends[rule->node])
            return error_why(why, ERR_RANGE, "rule %s can never end", rule->name);
        TRY(refuse_left_recursion(k, rule->node, why));
    }
    return OK;
}

Error grammar_check(GrammarBuilder *b, Arena *scratch, uint8_t **may_be_empty, Why *why)
{
    if (b->error != OK) {
        if (why) *why = b->why;
        return b->error;
    }
    if (!b->rule_count) return error_why(why, ERR_NOT_FOUND, "the grammar has no rule");
    for (uint32_t i = 0; i < b->rule_count; i++)
        if (!b->rules[i].node)
            return error_why(why, ERR_NOT_FOUND, "rule %s is not defined", b->rules[i].name);
    Checker k = {.b = b};
    uint32_t n = b->node_count;
    k.empty = arena_take_raw(scratch, n);
    k.ends = arena_take_raw(scratch, n);
    k.visit = arena_take_raw(scratch, n);
    k.missing = arena_take_raw(scratch, n * sizeof(uint32_t));
    k.queue = arena_take_raw(scratch, n * sizeof(uint32_t));
    k.steps = arena_take_raw(scratch, n * sizeof(Step));
    k.above.from = arena_take_raw(scratch, (n + 1) * sizeof(uint32_t));
    k.above.list = arena_take_raw(scratch, ((size_t)n + b->cell_count) * sizeof(uint32_t));
    if (!k.empty || !k.ends || !k.visit || !k.missing || !k.queue || !k.steps || !k.above.from ||
        !k.above.list)
        return error_why(why, ERR_MEMORY, "no memory to check a grammar");
    find_above(&k);
    *may_be_empty = k.empty;
    return check_rules(&k, why);
}
