/* SPDX-License-Identifier: Apache-2.0 */
/* The loop that both kinds of tokenizer share: a row of symbols, and again and again the best neighbouring
 * pair becomes one symbol, until no pair has a merge. Best is the lowest key, among equals the leftmost.
 *
 *   symbols  0 <-> 1 <-> 2 <-> 3       a doubly linked list, addressed by the index of a symbol's first part
 *   heap     pair (i, next[i]) by (key, i), at most one entry per symbol; place[i] says where it lies
 *
 * n symbols cost O(n log n): every merge removes a symbol and changes two keys. All memory is the caller's. */
#ifndef COBORD_TEXT_MERGE_H
#define COBORD_TEXT_MERGE_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/error.h"

typedef struct Merge {
    uint32_t count;
    uint32_t *next, *previous; /* `count` behind the last, MERGE_NONE before the first */
    uint32_t *id;              /* what a symbol is; filled in by the caller, updated by merges */
    /* Of the pair that begins at a symbol: its rank, and what it would become. */
    uint32_t *key, *merged;
    uint32_t *place, *heap, heap_count;
} Merge;

#define MERGE_NONE UINT32_MAX

/* True when the pair of symbols left and right has a merge; sets its key and the merged id. */
typedef bool (*MergeLookup)(const void *context, const Merge *m, uint32_t left, uint32_t right,
                            uint32_t *key, uint32_t *merged);

size_t merge_bytes(size_t count);
/* Errors  ERR_MEMORY, ERR_TOO_LARGE (2^31 symbols or more). */
MUST_CHECK Error merge_make(Merge *m, size_t count, Arena *scratch, Why *why);
/* The caller has filled in id[0..count); afterwards the symbols are those reached from 0 by next. */
void merge_run(Merge *m, MergeLookup lookup, const void *context);

#endif
