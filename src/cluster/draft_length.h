/* SPDX-License-Identifier: Apache-2.0 */
/* How many tokens a draft model should guess for an answer, from what guessing cost and brought so far.
 *
 *   k guesses, each right with probability p after right ones, make (1 - p^(k+1)) / (1 - p) tokens of one pass, which
 *   costs pass + answers * k * guess. The k with the most tokens a second is taken.
 *
 * When that is none, guessing rests for a while and is tried again with a few: the text may have become easier. p is
 * the share of what was looked at that was right, where older guesses count less and less. */
#ifndef COBORD_CLUSTER_DRAFT_LENGTH_H
#define COBORD_CLUSTER_DRAFT_LENGTH_H

#include <stdint.h>

enum {
    DRAFT_LENGTH_FIRST = 4, /* while nothing is known, and after a rest */
    DRAFT_LENGTH_REST = 24  /* passes */
};

typedef struct DraftLength {
    double right, looked_at; /* guesses, faded */
    uint64_t pass_ns;        /* of the model that is guessed for; 0: not known */
    uint64_t guess_ns;       /* of the draft model, one guess; 0: not known */
    uint32_t resting;        /* passes still to come without guesses */
} DraftLength;

/* The next pass may carry this many guesses, at most `max`; `answers` are guessed for in each pass. */
uint32_t draft_length_choose(DraftLength *d, uint32_t max, uint32_t answers);
/* What became of the last guesses: the first `right` of `guessed`. */
void draft_length_learn(DraftLength *d, uint32_t guessed, uint32_t right);
/* How long a pass took from the end of guessing to the next time, and how long `guessed` guesses took. */
void draft_length_time_pass(DraftLength *d, uint64_t ns);
void draft_length_time_guesses(DraftLength *d, uint64_t ns, uint32_t guessed);

#endif
