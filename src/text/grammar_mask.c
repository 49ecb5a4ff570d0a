/* SPDX-License-Identifier: Apache-2.0 */
#include "text/grammar_mask.h"

#include <string.h>

/* Below this many tokens a walk is no slower than to ask what a state takes without changing. */
enum { WHOLE_TOKENS_MIN = 24 };

typedef struct Kept {
    uint32_t state, used; /* 0: none of now */
    uint64_t kind;        /* of its states; 0: not known */
    uint32_t *bits;
} Kept;

typedef struct Level {
    uint32_t state, end; /* nodes before `end` are below */
} Level;

struct GrammarMask {
    const GrammarVocab *v;
    GrammarMachine *machine;
    uint32_t states, words, epoch, uses;
    uint64_t *loops;     /* [states]: kinds of bytes that change nothing, of those known */
    uint8_t *loop_known; /* [states] */
    Level *levels;       /* [depth_max + 1] */
    Kept kept[GRAMMAR_MASKS];
    bool ended;
};

uint32_t grammar_mask_words(const GrammarVocab *v) { return (v->id_last - v->id_first + 31) / 32; }

size_t grammar_mask_bytes(const GrammarVocab *v, const Grammar *g, const GrammarLimits *limits)
{
    return arena_bytes(sizeof(GrammarMask)) + grammar_machine_bytes(g, limits) +
           arena_bytes(limits->states * sizeof(uint64_t)) + arena_bytes(limits->states) +
           arena_bytes((v->depth_max + 1) * sizeof(Level)) +
           GRAMMAR_MASKS * arena_bytes(grammar_mask_words(v) * sizeof(uint32_t)) + ARENA_ALIGN;
}

Error grammar_mask_build(const GrammarVocab *v, const Grammar *g, const GrammarLimits *limits,
                         Arena *arena, GrammarMask **out, Why *why)
{
    GrammarMask *m = ARENA_NEW(arena, GrammarMask, 1);
    if (!m) return error_why(why, ERR_MEMORY, "no memory for masks");
    m->v = v;
    m->states = limits->states;
    m->words = grammar_mask_words(v);
    m->loops = arena_take_raw(arena, limits->states * sizeof *m->loops);
    m->loop_known = ARENA_NEW(arena, uint8_t, limits->states);
    m->levels = arena_take_raw(arena, (v->depth_max + 1) * sizeof *m->levels);
    for (uint32_t i = 0; i < GRAMMAR_MASKS; i++) {
        m->kept[i].bits = arena_take_raw(arena, m->words * sizeof(uint32_t));
        if (!m->kept[i].bits) return error_why(why, ERR_MEMORY, "no memory for masks");
    }
    if (!m->loops || !m->loop_known || !m->levels)
        return error_why(why, ERR_MEMORY, "no memory for masks");
    TRY(grammar_machine_build(g, limits, arena, &m->machine, why));
    m->epoch = grammar_machine_epoch(m->machine);
    *out = m;
    return OK;
}

/* Numbers of states from before are worth nothing. */
static void follow_epoch(GrammarMask *m)
{
    if (m->epoch == grammar_machine_epoch(m->machine)) return;
    m->epoch = grammar_machine_epoch(m->machine);
    memset(m->loop_known, 0, m->states);
    for (uint32_t i = 0; i < GRAMMAR_MASKS; i++) m->kept[i].state = 0;
}

uint32_t grammar_mask_ids(const GrammarMask *m) { return m->v->id_last - m->v->id_first; }

void grammar_mask_restart(GrammarMask *m)
{
    grammar_machine_restart(m->machine);
    m->ended = false;
}

/* ---- the walk ---- */

static void allow(GrammarMask *m, uint32_t *bits, uint32_t rank, uint32_t end)
{
    for (; rank < end; rank++) {
        uint32_t bit = m->v->ids[rank] - m->v->id_first;
        bits[bit >> 5] |= 1u << (bit & 31);
    }
}

/* Kinds of bytes all of which leave the state as it is. false: a pool is full. */
static bool loops_of(GrammarMask *m, uint32_t state, uint64_t *out)
{
    if (!m->loop_known[state]) {
        uint64_t loops = UINT64_MAX;
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t next = grammar_machine_next(m->machine, state, (uint8_t)byte);
            if (next == GRAMMAR_UNKNOWN) return false;
            if (next != state) loops &= ~((uint64_t)1 << grammar_vocab_kind((uint8_t)byte));
        }
        m->loops[state] = loops;
        m->loop_known[state] = 1;
    }
    *out = m->loops[state];
    return true;
}

/* Whether the state takes everything below a node without changing. */
static bool takes_whole(GrammarMask *m, uint32_t state, uint32_t node, bool *full)
{
    const GrammarVocab *v = m->v;
    uint64_t loops;
    if (v->rank[v->skip[node]] - v->rank[node] < WHOLE_TOKENS_MIN) return false;
    *full = !loops_of(m, state, &loops);
    return !*full && (v->kinds[v->below[node]] & ~loops) == 0;
}

static bool is_too_much(const GrammarMask *m, uint64_t before)
{
    return grammar_machine_visits(m->machine) - before > GRAMMAR_VISITS_MAX;
}

/* false: a pool is full, or it took too much. */
static bool walk(GrammarMask *m, uint32_t start, uint32_t *bits, uint64_t before)
{
    const GrammarVocab *v = m->v;
    Level *top = m->levels;
    *top = (Level){start, v->node_count};
    for (uint32_t node = 1; node < v->node_count;) {
        while (node >= top->end) top--;
        uint32_t next = grammar_machine_next(m->machine, top->state, v->bytes[node]);
        if (next == GRAMMAR_UNKNOWN || is_too_much(m, before)) return false;
        uint32_t skip = v->skip[node];
        bool full = false;
        if (next == GRAMMAR_DEAD) {
            node = skip;
        } else if (next == top->state && takes_whole(m, next, node, &full)) {
            allow(m, bits, v->rank[node], v->rank[skip]);
            node = skip;
        } else {
            if (full) return false;
            allow(m, bits, v->rank[node], v->rank[node + 1]);
            if (node + 1 < skip) *++top = (Level){next, skip};
            node++;
        }
    }
    return true;
}

static void allow_ends(GrammarMask *m, uint32_t *bits)
{
    for (uint32_t i = 0; i < m->v->end_count; i++) {
        uint32_t bit = m->v->ends[i] - m->v->id_first;
        bits[bit >> 5] |= 1u << (bit & 31);
    }
}

/* The one used longest ago. */
static Kept *oldest(GrammarMask *m)
{
    Kept *found = &m->kept[0];
    for (uint32_t i = 1; i < GRAMMAR_MASKS; i++)
        if (m->kept[i].used < found->used) found = &m->kept[i];
    return found;
}

/* That of the state, or of another of its kind. */
static Kept *find(GrammarMask *m, uint32_t state)
{
    for (uint32_t i = 0; i < GRAMMAR_MASKS; i++)
        if (m->kept[i].state == state) return &m->kept[i];
    uint64_t kind = grammar_machine_kind(m->machine, state, m->v->depth_max);
    for (uint32_t i = 0; kind && i < GRAMMAR_MASKS; i++)
        if (m->kept[i].kind == kind) {
            m->kept[i].state = state;
            return &m->kept[i];
        }
    return NULL;
}

/* Tries again from nothing when a pool is full; then what was found must do: it is a part of what is allowed. */
static Kept *make(GrammarMask *m)
{
    Kept *k = oldest(m);
    uint64_t before = grammar_machine_visits(m->machine);
    for (int attempt = 0; attempt < 2; attempt++) {
        uint32_t state = grammar_machine_state(m->machine);
        memset(k->bits, 0, m->words * sizeof *k->bits);
        k->state = state;
        k->kind = grammar_machine_kind(m->machine, state, m->v->depth_max);
        if (walk(m, state, k->bits, before)) break;
        k->kind = 0;
        if (attempt == 1) break;
        if (is_too_much(m, before)) break;
        grammar_machine_forget(m->machine);
        follow_epoch(m);
    }
    if (is_too_much(m, before)) memset(k->bits, 0, m->words * sizeof *k->bits);
    else if (grammar_machine_may_end(m->machine, k->state)) allow_ends(m, k->bits);
    return k;
}

const uint32_t *grammar_mask_now(GrammarMask *m)
{
    follow_epoch(m);
    Kept *k = m->ended ? oldest(m) : find(m, grammar_machine_state(m->machine));
    if (m->ended) {
        k->state = 0;
        k->kind = 0;
        memset(k->bits, 0, m->words * sizeof *k->bits);
        return k->bits;
    }
    if (!k) k = make(m);
    k->used = ++m->uses;
    return k->bits;
}

bool grammar_mask_is_empty(GrammarMask *m)
{
    const uint32_t *bits = grammar_mask_now(m);
    for (uint32_t i = 0; i < m->words; i++)
        if (bits[i]) return false;
    return true;
}

/* ---- tokens ---- */

static bool is_end(const GrammarVocab *v, uint32_t id)
{
    for (uint32_t i = 0; i < v->end_count; i++)
        if (v->ends[i] == id) return true;
    return false;
}

static Error not_allowed(uint32_t id, Why *why)
{
    return error_why(why, ERR_RANGE, "token %u does not fit the grammar here", id);
}

/* All of the piece, or, by the state kept, nothing: the machine can be asked without being moved. */
static bool take_piece(GrammarMask *m, const uint8_t *piece, size_t bytes)
{
    uint32_t state = grammar_machine_state(m->machine);
    for (size_t i = 0; i < bytes && state != GRAMMAR_UNKNOWN; i++) {
        state = grammar_machine_next(m->machine, state, piece[i]);
        if (state == GRAMMAR_DEAD) return false;
    }
    for (size_t i = 0; i < bytes; i++)
        if (!grammar_machine_take(m->machine, piece[i])) return false;
    return true;
}

Error grammar_mask_take(GrammarMask *m, uint32_t id, Why *why)
{
    uint8_t piece[TOKENIZER_PIECE_BYTES_MAX];
    size_t bytes = 0;
    if (m->ended) return not_allowed(id, why);
    if (is_end(m->v, id)) {
        if (!grammar_machine_may_end(m->machine, grammar_machine_state(m->machine)))
            return not_allowed(id, why);
        m->ended = true;
        return OK;
    }
    TRY(tokenizer_piece(m->v->tokenizer, id, false, piece, sizeof piece, &bytes, why));
    return bytes && take_piece(m, piece, bytes) ? OK : not_allowed(id, why);
}

bool grammar_mask_has_ended(const GrammarMask *m) { return m->ended; }

void grammar_mask_cut(const uint32_t *mask, uint32_t first, uint32_t count, uint32_t *out)
{
    uint32_t words = (count + 31) / 32, shift = first & 31, last = (first + count - 1) / 32;
    for (uint32_t i = 0; i < words; i++) {
        uint32_t at = first / 32 + i;
        uint32_t high = shift && at < last ? mask[at + 1] << (32 - shift) : 0;
        out[i] = mask[at] >> shift | high;
    }
    if (count & 31) out[words - 1] &= (1u << (count & 31)) - 1;
}
