/* SPDX-License-Identifier: Apache-2.0 */
#include "text/grammar_machine.h"

#include <string.h>

/* A place in the program on top of a stack. */
typedef struct Node {
    uint32_t code, round, below;
    uint32_t depth;
} Node;

typedef struct State {
    uint32_t first, count; /* of places */
    bool may_end;
} State;

/* A place that the step under way has been to. */
typedef struct Seen {
    uint32_t code, round, below, step;
} Seen;

enum { SEEN_SLOTS = 4 * GRAMMAR_PLACES_MAX };
#define ENTERED UINT32_MAX /* as a round: the mark that this step began one */

struct GrammarMachine {
    const Grammar *g;
    GrammarLimits limits;
    uint32_t node_slots, state_slots; /* powers of two, twice the limits */
    Node *nodes;                      /* node 0: the bottom */
    State *states;
    uint32_t *places;      /* nodes */
    uint16_t *rows;        /* [states][class_count] */
    uint32_t *node_table;  /* by hash; 0: free */
    uint32_t *state_table; /* by hash; 0: free */
    uint32_t *moved;       /* [nodes]: of grammar_machine_forget */
    Seen *seen;
    Node *work; /* [GRAMMAR_PLACES_MAX]: places to go on from; places are never deeper than that */
    uint32_t *found;
    uint32_t node_count, state_count, place_count;
    uint32_t work_count, found_count, seen_count, step, epoch, current;
    uint64_t visits;
    bool may_end, full, tangled;
};

GrammarLimits grammar_machine_limits(void)
{
    return (GrammarLimits){.nodes = 1 << 14, .states = 2048, .places = 1 << 15};
}

static uint32_t slots_for(uint32_t count)
{
    uint32_t slots = 16;
    while (slots < 2 * count) slots *= 2;
    return slots;
}

size_t grammar_machine_bytes(const Grammar *g, const GrammarLimits *l)
{
    return arena_bytes(sizeof(GrammarMachine)) + arena_bytes(l->nodes * sizeof(Node)) +
           arena_bytes(l->states * sizeof(State)) + arena_bytes(l->places * sizeof(uint32_t)) +
           arena_bytes((size_t)l->states * g->class_count * sizeof(uint16_t)) +
           arena_bytes(slots_for(l->nodes) * sizeof(uint32_t)) +
           arena_bytes(slots_for(l->states) * sizeof(uint32_t)) +
           arena_bytes(l->nodes * sizeof(uint32_t)) + arena_bytes(SEEN_SLOTS * sizeof(Seen)) +
           arena_bytes(GRAMMAR_PLACES_MAX * sizeof(Node)) +
           arena_bytes(GRAMMAR_PLACES_MAX * sizeof(uint32_t)) + ARENA_ALIGN;
}

/* ---- nodes ---- */

static uint64_t hash_node(uint32_t code, uint32_t round, uint32_t below)
{
    uint64_t x = ((uint64_t)code << 32 | below) * 0x9e3779b97f4a7c15u + round;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

/* Result  the one node of these, UINT32_MAX when there is no room. */
static uint32_t keep_node(GrammarMachine *m, uint32_t code, uint32_t round, uint32_t below)
{
    uint32_t slot = (uint32_t)hash_node(code, round, below) & (m->node_slots - 1);
    for (; m->node_table[slot]; slot = (slot + 1) & (m->node_slots - 1)) {
        const Node *n = &m->nodes[m->node_table[slot]];
        if (n->code == code && n->round == round && n->below == below) return m->node_table[slot];
    }
    if (m->node_count == m->limits.nodes) {
        m->full = true;
        return UINT32_MAX;
    }
    m->nodes[m->node_count] = (Node){code, round, below, m->nodes[below].depth + 1};
    m->node_table[slot] = m->node_count;
    return m->node_count++;
}

/* ---- a step: from places to all places where a byte is taken ---- */

static void begin_step(GrammarMachine *m)
{
    m->work_count = m->found_count = m->seen_count = 0;
    m->may_end = m->full = m->tangled = false;
    m->step++;
}

/* The slot of a place: that of this step, or a free one. */
static Seen *seen_at(const GrammarMachine *m, uint32_t code, uint32_t round, uint32_t below)
{
    uint32_t slot = (uint32_t)hash_node(code, round, below) & (SEEN_SLOTS - 1);
    for (; m->seen[slot].step == m->step; slot = (slot + 1) & (SEEN_SLOTS - 1)) {
        const Seen *s = &m->seen[slot];
        if (s->code == code && s->round == round && s->below == below) break;
    }
    return &m->seen[slot];
}

/* false: this step has been there, or can take no more. */
static bool is_new(GrammarMachine *m, uint32_t code, uint32_t round, uint32_t below)
{
    Seen *s = seen_at(m, code, round, below);
    if (s->step == m->step) return false;
    m->tangled |= m->seen_count == 2 * GRAMMAR_PLACES_MAX;
    if (m->tangled) return false;
    *s = (Seen){code, round, below, m->step};
    m->seen_count++;
    m->visits++;
    return true;
}

/* Puts a place on the list unless this step has been there. */
static void visit(GrammarMachine *m, uint32_t code, uint32_t round, uint32_t below)
{
    if (!is_new(m, code, round, below)) return;
    if (m->work_count == GRAMMAR_PLACES_MAX) m->tangled = true;
    else m->work[m->work_count++] = (Node){code, round, below, 0};
}

/* Goes into a rule or round that comes back to `code`; deeper than the limit, that way is closed. Result  the top of
 * the stack, UINT32_MAX: not entered. */
static uint32_t enter(GrammarMachine *m, uint32_t start, uint32_t code, uint32_t round,
                      uint32_t below)
{
    if (m->nodes[below].depth >= GRAMMAR_STACK_MAX) return UINT32_MAX;
    uint32_t node = keep_node(m, code, round, below);
    if (node != UINT32_MAX) visit(m, start, 0, node);
    return node;
}

/* Between rounds. A count above `least` without an upper bound stays there, so that rounds without number are one
 * state. */
static void count_round(GrammarMachine *m, const Node *n, const GrammarCode *c)
{
    const GrammarCount *count = &m->g->counts[c->index];
    uint32_t done = n->round + 1;
    if (count->most == GRAMMAR_UNBOUNDED && done > count->least) done = count->least;
    if (n->round >= count->least) visit(m, c->next, 0, n->below);
    if (n->round >= count->most) return;
    uint32_t top = enter(m, c->argument, n->code, done, n->below);
    if (count->may_be_empty && top != UINT32_MAX) (void)is_new(m, n->code, ENTERED, top);
}

/* A round that may be empty and was begun in this very step took no byte: what follows it is there already, with
 * a round less done. */
static bool is_idle_round(const GrammarMachine *m, uint32_t top)
{
    const Node *n = &m->nodes[top];
    const GrammarCode *c = &m->g->code[n->code];
    if (c->op != GRAMMAR_COUNT || !m->g->counts[c->index].may_be_empty) return false;
    return seen_at(m, n->code, ENTERED, top)->step == m->step;
}

static void go_back(GrammarMachine *m, uint32_t top)
{
    const Node *n = &m->nodes[top];
    if (top == 0) m->may_end = true;
    else if (!is_idle_round(m, top)) visit(m, n->code, n->round, n->below);
}

static void find_place(GrammarMachine *m, const Node *n)
{
    if (m->found_count == GRAMMAR_PLACES_MAX) {
        m->tangled = true;
        return;
    }
    uint32_t node = keep_node(m, n->code, 0, n->below);
    if (node != UINT32_MAX) m->found[m->found_count++] = node;
}

static void run(GrammarMachine *m)
{
    while (m->work_count && !m->full && !m->tangled) {
        Node n = m->work[--m->work_count];
        const GrammarCode *c = &m->g->code[n.code];
        switch ((GrammarOp)c->op) {
        case GRAMMAR_RETURN: go_back(m, n.below); break;
        case GRAMMAR_RANGE:
        case GRAMMAR_SET: find_place(m, &n); break;
        case GRAMMAR_SPLIT:
            visit(m, c->next, 0, n.below);
            visit(m, c->argument, 0, n.below);
            break;
        case GRAMMAR_CALL:
            if (c->next == 0) visit(m, m->g->starts[c->argument], 0, n.below);
            else (void)enter(m, m->g->starts[c->argument], c->next, 0, n.below);
            break;
        case GRAMMAR_COUNT: count_round(m, &n, c); break;
        }
    }
}

/* ---- states ---- */

static void sift(uint32_t *list, uint32_t at, uint32_t count)
{
    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && list[child + 1] > list[child]) child++;
        if (list[at] >= list[child]) return;
        uint32_t t = list[at];
        list[at] = list[child], list[child] = t;
    }
}

static void sort(uint32_t *list, uint32_t count)
{
    for (uint32_t i = count / 2; i-- > 0;) sift(list, i, count);
    for (uint32_t last = count; last-- > 1;) {
        uint32_t t = list[0];
        list[0] = list[last], list[last] = t;
        sift(list, 0, last);
    }
}

static uint32_t hash_state(const uint32_t *places, uint32_t count, bool may_end)
{
    uint64_t x = count * 2u + may_end;
    for (uint32_t i = 0; i < count; i++) x = (x ^ places[i]) * 0x9e3779b97f4a7c15u + (x >> 31);
    return (uint32_t)(x ^ x >> 32);
}

static bool is_state(const GrammarMachine *m, uint32_t state, const uint32_t *places,
                     uint32_t count, bool may_end)
{
    const State *s = &m->states[state];
    return s->count == count && s->may_end == may_end &&
           memcmp(m->places + s->first, places, count * sizeof *places) == 0;
}

/* `places` may be the end of m->places. */
static uint32_t keep_state(GrammarMachine *m, const uint32_t *places, uint32_t count, bool may_end)
{
    uint32_t mask = m->state_slots - 1, slot = hash_state(places, count, may_end) & mask;
    for (; m->state_table[slot]; slot = (slot + 1) & mask)
        if (is_state(m, m->state_table[slot], places, count, may_end)) return m->state_table[slot];
    if (m->state_count == m->limits.states || count > m->limits.places - m->place_count)
        return GRAMMAR_UNKNOWN;
    uint32_t state = m->state_count++;
    memmove(m->places + m->place_count, places, count * sizeof *places);
    m->states[state] = (State){m->place_count, count, may_end};
    m->place_count += count;
    memset(m->rows + (size_t)state * m->g->class_count, 0, m->g->class_count * sizeof *m->rows);
    m->state_table[slot] = state;
    return state;
}

static uint32_t end_step(GrammarMachine *m)
{
    run(m);
    if (m->tangled) return GRAMMAR_DEAD;
    if (m->full) return GRAMMAR_UNKNOWN;
    if (!m->found_count && !m->may_end) return GRAMMAR_DEAD;
    sort(m->found, m->found_count);
    return keep_state(m, m->found, m->found_count, m->may_end);
}

static bool takes(const GrammarMachine *m, const GrammarCode *c, uint8_t byte)
{
    if (c->op == GRAMMAR_SET) return grammar_set_has(&m->g->sets[c->index], byte);
    return byte >= c->low && byte <= c->high;
}

static uint32_t step(GrammarMachine *m, uint32_t state, uint8_t byte)
{
    begin_step(m);
    const State *s = &m->states[state];
    for (uint32_t i = 0; i < s->count && !m->tangled; i++) {
        const Node *n = &m->nodes[m->places[s->first + i]];
        const GrammarCode *c = &m->g->code[n->code];
        if (takes(m, c, byte)) visit(m, c->next, 0, n->below);
    }
    return end_step(m);
}

uint32_t grammar_machine_next(GrammarMachine *m, uint32_t state, uint8_t byte)
{
    if (state == GRAMMAR_DEAD) return GRAMMAR_DEAD;
    uint8_t class = m->g->byte_class[byte];
    uint16_t *cell = &m->rows[(size_t)state * m->g->class_count + class];
    if (*cell == GRAMMAR_UNKNOWN) *cell = (uint16_t)step(m, state, m->g->class_byte[class]);
    return *cell;
}

/* ---- kinds of states ---- */

enum { KIND_NODES_MAX = 4096, ROUND_EARLY = -1, ROUND_MIDDLE = -2 };

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    return (x ^ x >> 27) * 0x94d049bb133111ebu;
}

/* A byte ends at most one round and begins another. */
static uint32_t round_kind(const GrammarMachine *m, const Node *n, uint32_t reach)
{
    const GrammarCode *c = &m->g->code[n->code];
    if (c->op != GRAMMAR_COUNT) return n->round;
    const GrammarCount *count = &m->g->counts[c->index];
    uint64_t end = (uint64_t)n->round + reach + 1;
    if (end < count->least) return (uint32_t)ROUND_EARLY;
    bool open = count->most == GRAMMAR_UNBOUNDED || end < count->most;
    return n->round >= count->least && open ? (uint32_t)ROUND_MIDDLE : n->round;
}

uint64_t grammar_machine_kind(const GrammarMachine *m, uint32_t state, uint32_t reach)
{
    if (state < GRAMMAR_FIRST_STATE || !m->g->count_count) return 0;
    const State *s = &m->states[state];
    uint32_t looked = 0;
    uint64_t sum = mix(2 * (uint64_t)s->count + s->may_end + 1);
    for (uint32_t i = 0; i < s->count; i++) {
        uint64_t x = 1;
        for (uint32_t at = m->places[s->first + i]; at; at = m->nodes[at].below) {
            const Node *n = &m->nodes[at];
            if (looked++ == KIND_NODES_MAX) return 0;
            x = mix((x + 0x9e3779b97f4a7c15u) ^
                    ((uint64_t)n->code << 32 | round_kind(m, n, reach)));
        }
        sum += mix(x);
    }
    return mix(sum) | 1;
}

/* ---- the whole ---- */

static void clear(GrammarMachine *m)
{
    m->nodes[0] = (Node){0};
    m->node_count = 1;
    m->state_count = GRAMMAR_FIRST_STATE;
    m->place_count = 0;
    memset(m->node_table, 0, m->node_slots * sizeof *m->node_table);
    memset(m->state_table, 0, m->state_slots * sizeof *m->state_table);
    m->epoch++;
}

void grammar_machine_restart(GrammarMachine *m)
{
    clear(m);
    begin_step(m);
    visit(m, m->g->starts[0], 0, 0);
    m->current = end_step(m);
}

/* Marks what the current state stands on, then moves those nodes together in order: what is below has the smaller
 * number. */
void grammar_machine_forget(GrammarMachine *m)
{
    State s = m->states[m->current];
    uint32_t nodes = m->node_count;
    memset(m->moved, 0, nodes * sizeof *m->moved);
    memmove(m->places, m->places + s.first, s.count * sizeof *m->places);
    for (uint32_t i = 0; i < s.count; i++)
        for (uint32_t n = m->places[i]; n && !m->moved[n]; n = m->nodes[n].below) m->moved[n] = 1;
    clear(m);
    for (uint32_t n = 1; n < nodes; n++) {
        Node old = m->nodes[n];
        if (m->moved[n]) m->moved[n] = keep_node(m, old.code, old.round, m->moved[old.below]);
    }
    for (uint32_t i = 0; i < s.count; i++) m->places[i] = m->moved[m->places[i]];
    m->current = keep_state(m, m->places, s.count, s.may_end);
}

bool grammar_machine_take(GrammarMachine *m, uint8_t byte)
{
    uint32_t next = grammar_machine_next(m, m->current, byte);
    if (next == GRAMMAR_UNKNOWN) {
        grammar_machine_forget(m);
        next = grammar_machine_next(m, m->current, byte);
    }
    if (next < GRAMMAR_FIRST_STATE) return false;
    m->current = next;
    return true;
}

uint32_t grammar_machine_state(const GrammarMachine *m) { return m->current; }
uint32_t grammar_machine_epoch(const GrammarMachine *m) { return m->epoch; }
uint64_t grammar_machine_visits(const GrammarMachine *m) { return m->visits; }

bool grammar_machine_may_end(const GrammarMachine *m, uint32_t state)
{
    return state >= GRAMMAR_FIRST_STATE && m->states[state].may_end;
}

bool grammar_machine_must_end(const GrammarMachine *m, uint32_t state)
{
    return grammar_machine_may_end(m, state) && m->states[state].count == 0;
}

Error grammar_machine_build(const Grammar *g, const GrammarLimits *limits, Arena *arena,
                            GrammarMachine **out, Why *why)
{
    GrammarMachine *m = ARENA_NEW(arena, GrammarMachine, 1);
    ASSERT(limits->states > GRAMMAR_FIRST_STATE && limits->states <= UINT16_MAX && limits->nodes);
    if (!m) return error_why(why, ERR_MEMORY, "no memory for a grammar's states");
    m->g = g;
    m->limits = *limits;
    m->node_slots = slots_for(limits->nodes);
    m->state_slots = slots_for(limits->states);
    m->nodes = arena_take_raw(arena, limits->nodes * sizeof *m->nodes);
    m->states = arena_take_raw(arena, limits->states * sizeof *m->states);
    m->places = arena_take_raw(arena, limits->places * sizeof *m->places);
    m->rows = arena_take_raw(arena, (size_t)limits->states * g->class_count * sizeof *m->rows);
    m->node_table = arena_take_raw(arena, m->node_slots * sizeof *m->node_table);
    m->state_table = arena_take_raw(arena, m->state_slots * sizeof *m->state_table);
    m->moved = arena_take_raw(arena, limits->nodes * sizeof *m->moved);
    m->seen = ARENA_NEW(arena, Seen, SEEN_SLOTS);
    m->work = arena_take_raw(arena, GRAMMAR_PLACES_MAX * sizeof *m->work);
    m->found = arena_take_raw(arena, GRAMMAR_PLACES_MAX * sizeof *m->found);
    if (!m->nodes || !m->states || !m->places || !m->rows || !m->node_table || !m->state_table ||
        !m->moved || !m->seen || !m->work || !m->found)
        return error_why(why, ERR_MEMORY, "no memory for a grammar's states");
    grammar_machine_restart(m);
    if (m->current < GRAMMAR_FIRST_STATE)
        return error_why(why, ERR_CAPACITY,
                         "the grammar begins in more ways than can be kept at once");
    *out = m;
    return OK;
}
