/* SPDX-License-Identifier: Apache-2.0 */
/* Guesses of what an answer says next, from what was said: where the last tokens occurred before, what followed then is
 * guessed to follow again. Edited code, quotations, tables and JSON repeat themselves; prose does not, and there the
 * guesses get short and rare by themselves.
 *
 *   tokens   .. a b c d e f .. x  a b c | d e f ?         guess: d e f
 *
 * An index of all runs of DRAFT_RUN tokens, kept as the text grows, finds the places; of the last DRAFT_PLACES of
 * them the one that has the most in common with the end of the text is taken, among equals the latest.
 *
 *   all right     the next guess is twice as long and one more
 *   some right    the next is one longer than what was right
 *   none right    the next is of one token, after a pause that doubles */
#ifndef COBORD_CLUSTER_DRAFT_H
#define COBORD_CLUSTER_DRAFT_H

#include <stdbool.h>

#include "base/arena.h"

enum { DRAFT_RUN = 3, DRAFT_PLACES = 16, DRAFT_FIRST = 4, DRAFT_PAUSE_MAX = 64 };

typedef struct Draft {
    uint32_t *heads;    /* [heads_mask + 1] by a run's hash: index behind its last place, 0: none */
    uint32_t *previous; /* [tokens_max + 1] by that index: the place before with the same hash */
    uint32_t heads_mask, tokens_max;
    uint32_t indexed; /* runs that end at or before this index are in the index */
    uint32_t window;  /* tokens of the next guess */
    /* Steps without a guess after the last failure, and those that are left. */
    uint32_t pause, waits;
} Draft;

uint64_t draft_bytes(uint32_t tokens_max);
/* Result  false: no room in the arena. */
bool draft_build(Draft *d, uint32_t tokens_max, Arena *arena);
/* Another answer begins: what was learnt is of no use for it. */
void draft_restart(Draft *d);
/* The text is cut to `count` tokens. */
void draft_cut(Draft *d, uint32_t count);
/* Shapes  tokens[count] to out[max]. Result  how many tokens it guesses; then draft_learn follows. */
uint32_t draft_guess(Draft *d, const uint32_t *tokens, uint32_t count, uint32_t *out, uint32_t max);
/* How many of those guessed came true. */
void draft_learn(Draft *d, uint32_t guessed, uint32_t right);

#endif
