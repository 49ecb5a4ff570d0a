/* SPDX-License-Identifier: Apache-2.0 */
/* See merge.h. Invariants between two merges:
 *   - heap[place[i]] == i for every symbol i that has a merge with its right neighbour,
 *     place[i] == MERGE_NONE for the others;
 *   - key[i] and merged[i] belong to the present pair (i, next[i]). */
#include "text/merge.h"

enum { ARRAYS = 7 };

size_t merge_bytes(size_t count) { return arena_bytes(count * ARRAYS * sizeof(uint32_t)); }

Error merge_make(Merge *m, size_t count, Arena *scratch, Why *why)
{
    if (count >= (size_t)1 << 31)
        return error_why(why, ERR_TOO_LARGE, "a text of %zu symbols", count);
    uint32_t *all = arena_take_array(scratch, count, ARRAYS * sizeof *all);
    if (!all) return error_why(why, ERR_MEMORY, "no room to tokenize %zu symbols", count);
    *m = (Merge){.count = (uint32_t)count,
                 .next = all,
                 .previous = all + count,
                 .id = all + 2 * count,
                 .key = all + 3 * count,
                 .merged = all + 4 * count,
                 .place = all + 5 * count,
                 .heap = all + 6 * count};
    return OK;
}

static bool before(const Merge *m, uint32_t a, uint32_t b)
{
    return m->key[a] < m->key[b] || (m->key[a] == m->key[b] && a < b);
}

static void put(Merge *m, uint32_t at, uint32_t symbol)
{
    m->heap[at] = symbol;
    m->place[symbol] = at;
}

static void sift_down(Merge *m, uint32_t at)
{
    uint32_t symbol = m->heap[at];
    for (uint32_t child; (child = 2 * at + 1) < m->heap_count; at = child) {
        if (child + 1 < m->heap_count && before(m, m->heap[child + 1], m->heap[child])) child++;
        if (!before(m, m->heap[child], symbol)) break;
        put(m, at, m->heap[child]);
    }
    put(m, at, symbol);
}

static void sift_up(Merge *m, uint32_t at)
{
    uint32_t symbol = m->heap[at];
    for (uint32_t parent; at > 0 && before(m, symbol, m->heap[parent = (at - 1) / 2]); at = parent)
        put(m, at, m->heap[parent]);
    put(m, at, symbol);
}

static void heap_remove(Merge *m, uint32_t symbol)
{
    uint32_t at = m->place[symbol];
    if (at == MERGE_NONE) return;
    m->place[symbol] = MERGE_NONE;
    uint32_t last = m->heap[--m->heap_count];
    if (last == symbol) return;
    put(m, at, last);
    sift_up(m, at);
    sift_down(m, m->place[last]);
}

/* Looks the pair (symbol, next) up again after one of its halves has changed. */
static void update_pair(Merge *m, uint32_t symbol, MergeLookup lookup, const void *context)
{
    uint32_t right = m->next[symbol];
    bool found =
        right < m->count && lookup(context, m, symbol, right, &m->key[symbol], &m->merged[symbol]);
    if (!found) {
        heap_remove(m, symbol);
        return;
    }
    if (m->place[symbol] == MERGE_NONE) put(m, m->heap_count++, symbol);
    sift_up(m, m->place[symbol]);
    sift_down(m, m->place[symbol]);
}

static void fill(Merge *m, MergeLookup lookup, const void *context)
{
    for (uint32_t i = 0; i < m->count; i++) {
        m->next[i] = i + 1;
        m->previous[i] = i ? i - 1 : MERGE_NONE;
        m->place[i] = MERGE_NONE;
    }
    m->heap_count = 0;
    for (uint32_t i = 0; i + 1 < m->count; i++)
        if (lookup(context, m, i, i + 1, &m->key[i], &m->merged[i])) put(m, m->heap_count++, i);
    for (uint32_t i = m->heap_count / 2; i-- > 0;) sift_down(m, i);
}

void merge_run(Merge *m, MergeLookup lookup, const void *context)
{
    fill(m, lookup, context);
    while (m->heap_count) {
        uint32_t left = m->heap[0], right = m->next[left];
        m->id[left] = m->merged[left];
        heap_remove(m, right);
        m->next[left] = m->next[right];
        if (m->next[left] < m->count) m->previous[m->next[left]] = left;
        update_pair(m, left, lookup, context);
        if (m->previous[left] != MERGE_NONE) update_pair(m, m->previous[left], lookup, context);
    }
}
