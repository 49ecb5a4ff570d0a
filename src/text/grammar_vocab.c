/* SPDX-License-Identifier: Apache-2.0 */
#include "text/grammar_vocab.h"

#include <string.h>

#include "base/hash.h"

/* One token of the range. */
struct GrammarPiece {
    uint32_t at, bytes; /* in Build.text */
    uint32_t id;
};
typedef struct GrammarPiece Piece;
typedef GrammarVocabOrder Build;

enum { KIND_SETS_MAX = UINT16_MAX, KIND_SLOTS = 1 << 17 };

/* ---- sizes ---- */

static size_t text_bytes(const Tokenizer *t, uint32_t first, uint32_t last)
{
    size_t sum = 0;
    uint32_t bytes;
    for (uint32_t id = first; id < last; id++) {
        (void)vocab_token(tokenizer_vocab(t), id, &bytes);
        sum += bytes;
    }
    return sum;
}

size_t grammar_vocab_scratch_bytes(const Tokenizer *t, uint32_t first, uint32_t last)
{
    size_t text = text_bytes(t, first, last), ids = last - first;
    return arena_bytes(text + TOKENIZER_PIECE_BYTES_MAX) + 2 * arena_bytes(ids * sizeof(Piece)) +
           arena_bytes(KIND_SLOTS * sizeof(uint32_t)) + ARENA_ALIGN;
}

static size_t sets_max(const Build *b)
{
    return b->node_count < KIND_SETS_MAX ? (size_t)b->node_count + 1 : KIND_SETS_MAX;
}

size_t grammar_vocab_bytes(const GrammarVocabOrder *b)
{
    size_t n = b->node_count;
    return arena_bytes(n) + arena_bytes(n * sizeof(uint32_t)) +
           arena_bytes((n + 1) * sizeof(uint32_t)) + arena_bytes(b->count * sizeof(uint32_t)) +
           arena_bytes(n * sizeof(uint16_t)) + arena_bytes(sets_max(b) * sizeof(uint64_t)) +
           arena_bytes(n * sizeof(uint64_t)) + ARENA_ALIGN;
}

/* ---- kinds of bytes ---- */

static uint32_t kind_of_ascii(uint8_t c)
{
    if (c == '\t' || c == '\n' || c == '\r') return 1 + (c == '\n') + 2u * (c == '\r');
    if (c < 0x20 || c == 0x7F) return 0;
    if (c >= '0' && c <= '9') return 4;
    if (c >= 'a' && c <= 'z') return c <= 'f' ? 5 : 6;
    if (c >= 'A' && c <= 'Z') return c <= 'F' ? 7 : 8;
    if (c < '0') return 9u + (c - 0x20u);                                   /* 16 */
    if (c < 'A') return 25u + (uint32_t)(c - ':');                          /* 7 */
    return c < 'a' ? 32u + (uint32_t)(c - '[') : 38u + (uint32_t)(c - '{'); /* 6, 4 */
}

uint32_t grammar_vocab_kind(uint8_t byte)
{
    if (byte < 0x80) return kind_of_ascii(byte);
    if (byte < 0xC0) return 42;
    if (byte < 0xE0) return 43;
    return byte < 0xF0 ? 44 : 45;
}

/* ---- sorting ---- */

static int compare(const Build *b, const Piece *x, const Piece *y)
{
    uint32_t shorter = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = memcmp(b->text + x->at, b->text + y->at, shorter);
    if (order) return order;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static void merge(const Build *b, const Piece *from, Piece *to, uint32_t start, uint32_t middle,
                  uint32_t end)
{
    uint32_t i = start, j = middle;
    for (uint32_t at = start; at < end; at++) {
        bool left = j == end || (i < middle && compare(b, &from[i], &from[j]) <= 0);
        to[at] = left ? from[i++] : from[j++];
    }
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

static void sort(Build *b)
{
    for (uint32_t width = 1; width < b->count; width *= 2) {
        for (uint32_t i = 0; i < b->count; i += 2 * width)
            merge(b, b->pieces, b->merged, i, least(i + width, b->count),
                  least(i + 2 * width, b->count));
        Piece *t = b->pieces;
        b->pieces = b->merged;
        b->merged = t;
    }
}

static uint32_t common(const Build *b, const Piece *x, const Piece *y)
{
    uint32_t n = 0, most = least(x->bytes, y->bytes);
    while (n < most && b->text[x->at + n] == b->text[y->at + n]) n++;
    return n;
}

/* ---- collecting ---- */

static Error collect(Build *b, Why *why)
{
    const Tokenizer *t = b->tokenizer;
    uint32_t at = 0;
    for (uint32_t id = b->id_first; id < b->id_last; id++) {
        size_t bytes;
        TRY(tokenizer_piece(t, id, false, b->text + at, TOKENIZER_PIECE_BYTES_MAX, &bytes, why));
        if (!bytes || tokenizer_is_end(t, id)) continue;
        b->pieces[b->count++] = (Piece){at, (uint32_t)bytes, id};
        if (bytes > b->depth_max) b->depth_max = (uint32_t)bytes;
        at += (uint32_t)bytes;
    }
    sort(b);
    b->node_count = 1;
    for (uint32_t i = 0; i < b->count; i++)
        b->node_count += b->pieces[i].bytes - (i ? common(b, &b->pieces[i - 1], &b->pieces[i]) : 0);
    return OK;
}

/* ---- the tree ---- */

typedef struct Arrays {
    uint8_t *bytes;
    uint32_t *skip, *rank, *ids;
    uint16_t *below;
} Arrays;

/* Closes the nodes of the path that are deeper than `depth`. */
static void close_path(uint32_t *path, uint32_t *length, uint32_t depth, uint32_t node, Arrays *a)
{
    while (*length > depth) a->skip[path[--*length]] = node;
}

static void plant_tree(const Build *b, Arrays *a)
{
    uint32_t path[TOKENIZER_PIECE_BYTES_MAX + 1], length = 1, node = 1;
    path[0] = 0;
    a->bytes[0] = 0;
    a->rank[0] = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        const Piece *p = &b->pieces[i];
        uint32_t shared = i ? common(b, &b->pieces[i - 1], p) : 0;
        close_path(path, &length, shared + 1, node, a);
        for (uint32_t n = shared; n < p->bytes; n++) {
            a->bytes[node] = b->text[p->at + n];
            a->rank[node] = i;
            path[length++] = node++;
        }
        a->ids[i] = p->id;
    }
    close_path(path, &length, 0, node, a);
    a->rank[node] = b->count;
}

/* The index of a set of kinds; 0, which stands for all of them, when there are too many sets. */
static uint16_t index_of(const Build *b, uint64_t set, uint64_t *kinds, uint32_t *count)
{
    uint32_t slot = (uint32_t)hash_mix64(set) & (KIND_SLOTS - 1);
    for (; b->slots[slot]; slot = (slot + 1) & (KIND_SLOTS - 1))
        if (kinds[b->slots[slot] - 1] == set) return (uint16_t)(b->slots[slot] - 1);
    if (*count == KIND_SETS_MAX) return 0;
    kinds[*count] = set;
    b->slots[slot] = *count + 1;
    return (uint16_t)(*count)++;
}

/* From the last node to the first, so that what is below is known. Children of a node follow each other by `skip`. */
static uint32_t find_kinds(const Build *b, Arrays *a, uint64_t *sets, uint64_t *kinds)
{
    uint32_t count = 1;
    kinds[0] = UINT64_MAX;
    for (uint32_t i = b->node_count; i-- > 0;) {
        uint64_t set = 0;
        for (uint32_t c = i + 1; c < a->skip[i]; c = a->skip[c])
            set |= sets[c] | (uint64_t)1 << grammar_vocab_kind(a->bytes[c]);
        sets[i] = set;
        a->below[i] = index_of(b, set, kinds, &count);
    }
    return count;
}

static void collect_ends(GrammarVocab *v)
{
    for (uint32_t id = v->id_first; id < v->id_last; id++)
        if (tokenizer_is_end(v->tokenizer, id) && v->end_count < GRAMMAR_ENDS_MAX)
            v->ends[v->end_count++] = id;
}

Error grammar_vocab_plant(const GrammarVocabOrder *b, Arena *arena, GrammarVocab *v, Why *why)
{
    uint32_t n = b->node_count;
    Arrays a = {.bytes = arena_take_raw(arena, n),
                .skip = arena_take_raw(arena, n * sizeof *a.skip),
                .rank = arena_take_raw(arena, ((size_t)n + 1) * sizeof *a.rank),
                .ids = arena_take_raw(arena, b->count * sizeof *a.ids),
                .below = arena_take_raw(arena, n * sizeof *a.below)};
    size_t mark = arena_mark(arena);
    uint64_t *kinds = arena_take_raw(arena, sets_max(b) * sizeof *kinds),
             *sets = arena_take_raw(arena, n * sizeof *sets); /* of each node, for now */
    if (!a.bytes || !a.skip || !a.rank || !a.ids || !a.below || !kinds || !sets)
        return error_why(why, ERR_MEMORY, "no memory for a vocabulary of %u nodes", n);
    *v = (GrammarVocab){.tokenizer = b->tokenizer,
                        .id_first = b->id_first,
                        .id_last = b->id_last,
                        .node_count = n,
                        .id_count = b->count,
                        .bytes = a.bytes,
                        .skip = a.skip,
                        .rank = a.rank,
                        .ids = a.ids,
                        .below = a.below,
                        .depth_max = b->depth_max};
    plant_tree(b, &a);
    v->kinds_count = find_kinds(b, &a, sets, kinds);
    arena_reset(arena, mark);
    v->kinds = arena_take_raw(arena, v->kinds_count * sizeof *kinds); /* the same, cut */
    collect_ends(v);
    return OK;
}

Error grammar_vocab_sort(const Tokenizer *t, uint32_t id_first, uint32_t id_last, Arena *scratch,
                         GrammarVocabOrder *out, Why *why)
{
    if (id_first >= id_last || id_last > tokenizer_vocab(t)->tokens)
        return error_why(why, ERR_RANGE, "ids %u to %u of a vocabulary of %u", id_first, id_last,
                         tokenizer_vocab(t)->tokens);
    size_t ids = id_last - id_first, text = text_bytes(t, id_first, id_last);
    *out = (GrammarVocabOrder){
        .tokenizer = t,
        .id_first = id_first,
        .id_last = id_last,
        .text = arena_take_raw(scratch, text + TOKENIZER_PIECE_BYTES_MAX),
        .pieces = arena_take_raw(scratch, ids * sizeof(Piece)),
        .merged = arena_take_raw(scratch, ids * sizeof(Piece)),
        .slots = ARENA_NEW(scratch, uint32_t, KIND_SLOTS),
    };
    if (!out->text || !out->pieces || !out->merged || !out->slots || text > UINT32_MAX / 2)
        return error_why(why, ERR_MEMORY, "no memory to sort a vocabulary");
    return collect(out, why);
}

Error grammar_vocab_build(const Tokenizer *t, uint32_t id_first, uint32_t id_last, Arena *scratch,
                          Arena *arena, GrammarVocab *out, Why *why)
{
    GrammarVocabOrder order;
    size_t mark = arena_mark(scratch);
    Error error = grammar_vocab_sort(t, id_first, id_last, scratch, &order, why);
    if (error == OK) error = grammar_vocab_plant(&order, arena, out, why);
    arena_reset(scratch, mark);
    return error;
}
