/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/draft_length.h"

/* Thirty guesses back counts half; two that were right and one that was wrong is where it begins. */
static const double FADE = 0.977, FIRST_RIGHT = 2, FIRST_LOOKED_AT = 3;

static double chance(const DraftLength *d)
{
    return (d->right + FIRST_RIGHT) / (d->looked_at + FIRST_LOOKED_AT);
}

/* Tokens a nanosecond, of every k from 0 on: the best. */
static uint32_t best_length(const DraftLength *d, uint32_t max, uint32_t answers)
{
    double p = chance(d), power = 1, tokens = 0, best_speed = 0;
    uint32_t best = 0;
    for (uint32_t k = 0; k <= max; k++, power *= p) {
        tokens += power;
        double cost = (double)d->pass_ns + (double)answers * k * (double)d->guess_ns;
        if (tokens <= best_speed * cost) continue;
        best_speed = tokens / cost;
        best = k;
    }
    return best;
}

uint32_t draft_length_choose(DraftLength *d, uint32_t max, uint32_t answers)
{
    uint32_t first = max < DRAFT_LENGTH_FIRST ? max : DRAFT_LENGTH_FIRST;
    if (d->resting) return --d->resting ? 0 : first;
    if (!d->pass_ns || !d->guess_ns) return first;
    uint32_t best = best_length(d, max, answers);
    if (!best) d->resting = DRAFT_LENGTH_REST;
    return best;
}

void draft_length_learn(DraftLength *d, uint32_t guessed, uint32_t right)
{
    uint32_t looked_at = right < guessed ? right + 1 : right;
    for (uint32_t i = 0; i < looked_at; i++) {
        d->right = d->right * FADE + (i < right ? 1 : 0);
        d->looked_at = d->looked_at * FADE + 1;
    }
}

/* The shortest of late: what else happened in between is not the pass's. */
void draft_length_time_pass(DraftLength *d, uint64_t ns)
{
    uint64_t grown = d->pass_ns + d->pass_ns / 16;
    d->pass_ns = !d->pass_ns || ns < grown ? ns : grown;
}

void draft_length_time_guesses(DraftLength *d, uint64_t ns, uint32_t guessed)
{
    if (!guessed) return;
    uint64_t one = ns / guessed;
    d->guess_ns = d->guess_ns ? d->guess_ns - d->guess_ns / 4 + one / 4 : one;
}
