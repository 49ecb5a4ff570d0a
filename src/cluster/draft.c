/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/draft.h"

#include <string.h>

#include "base/min.h"

enum { COMMON_MAX = 64 }; /* tokens that are compared backwards */

static uint32_t heads_count(uint32_t tokens_max)
{
    uint32_t count = 64;
    while (count < tokens_max && count < 1u << 20) count *= 2;
    return count;
}

uint64_t draft_bytes(uint32_t tokens_max)
{
    return arena_bytes(heads_count(tokens_max) * sizeof(uint32_t)) +
           arena_bytes(((size_t)tokens_max + 1) * sizeof(uint32_t));
}

bool draft_build(Draft *d, uint32_t tokens_max, Arena *arena)
{
    uint32_t heads = heads_count(tokens_max);
    *d = (Draft){.heads = ARENA_NEW(arena, uint32_t, heads),
                 .previous = ARENA_NEW(arena, uint32_t, (size_t)tokens_max + 1),
                 .heads_mask = heads - 1,
                 .tokens_max = tokens_max};
    draft_restart(d);
    return d->heads && d->previous;
}

void draft_restart(Draft *d)
{
    d->window = DRAFT_FIRST;
    d->pause = d->waits = 0;
}

/* Rare, so the index is simply made again. */
void draft_cut(Draft *d, uint32_t count)
{
    if (count >= d->indexed) return;
    memset(d->heads, 0, (d->heads_mask + (size_t)1) * sizeof *d->heads);
    d->indexed = 0;
}

/* Of the run that ends before `end`. */
static uint32_t *head_of(const Draft *d, const uint32_t *end)
{
    uint64_t hash = 0;
    for (int i = DRAFT_RUN; i > 0; i--) hash = (hash ^ end[-i]) * 0x9e3779b97f4a7c15u;
    return &d->heads[(uint32_t)(hash >> 40) & d->heads_mask];
}

static void add_runs(Draft *d, const uint32_t *tokens, uint32_t end)
{
    for (uint32_t i = d->indexed + 1; i <= end; i++) {
        if (i < DRAFT_RUN) continue;
        uint32_t *head = head_of(d, tokens + i);
        d->previous[i] = *head;
        *head = i;
    }
    if (end > d->indexed) d->indexed = end;
}

/* How many tokens before `place` equal those before `count`. */
static uint32_t common_before(const uint32_t *tokens, uint32_t place, uint32_t count)
{
    uint32_t same = 0, most = min_u32(place, COMMON_MAX);
    while (same < most && tokens[place - 1 - same] == tokens[count - 1 - same]) same++;
    return same;
}

/* Index behind the best place, 0: none. */
static uint32_t find_place(const Draft *d, const uint32_t *tokens, uint32_t count)
{
    uint32_t best = 0, most = DRAFT_RUN - 1, place = *head_of(d, tokens + count);
    for (int i = 0; i < DRAFT_PLACES && place; i++, place = d->previous[place]) {
        uint32_t same = common_before(tokens, place, count);
        if (same <= most) continue;
        most = same;
        best = place;
    }
    return best;
}

uint32_t draft_guess(Draft *d, const uint32_t *tokens, uint32_t count, uint32_t *out, uint32_t max)
{
    if (count > d->tokens_max || count <= DRAFT_RUN) return 0;
    add_runs(d, tokens, count - 1);
    if (d->waits) {
        d->waits--;
        return 0;
    }
    uint32_t place = find_place(d, tokens, count), n = place ? min_u32(d->window, max) : 0;
    for (uint32_t i = 0; i < n; i++) /* what repeats itself goes on in the guess */
        out[i] = place + i < count ? tokens[place + i] : out[place + i - count];
    return n;
}

void draft_learn(Draft *d, uint32_t guessed, uint32_t right)
{
    if (!guessed) return;
    if (right == guessed) {
        d->window = min_u32(2 * d->window + 1, d->tokens_max);
    } else if (right) {
        d->window = right + 1;
    } else {
        d->window = 1;
        d->pause = d->pause ? min_u32(2 * d->pause, DRAFT_PAUSE_MAX) : 1;
        d->waits = d->pause;
    }
    if (right) d->pause = 0;
}
