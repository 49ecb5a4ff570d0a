/* SPDX-License-Identifier: Apache-2.0 */
/* Slots that begin as copies of others. The stations make the copy, with the first frame of the
 * slot that is to be one:
 *
 *   coordinator_fork(A -> B, n)     B.fed = n, B.forks, B.parent = A      "A's session has these n positions"
 *   frame with rows of B            sequence {B, position, forks, parent A};  B.forks is over
 *   that frame given up             B.forks again
 *
 * While B.forks, A keeps at least B.fed positions fed: coordinator_rewind lowers B with A. No frame
 * has a copy of a copy that it makes itself: a copy's parent is the one that the bytes come
 * from. */
#include "cluster/coordinator_state.h"

#include <string.h>

static Error check(const Coordinator *c, uint32_t from, uint32_t to, uint32_t count, Why *why)
{
    if (from >= c->config.slots || to >= c->config.slots)
        return error_why(why, ERR_RANGE, "slots %u and %u of %u", from, to, c->config.slots);
    const Slot *f = &c->slots[from], *t = &c->slots[to];
    if (from == to || t->active || t->frames)
        return error_why(why, ERR_USAGE, "slot %u cannot become a copy now", to);
    if (f->degraded) return error_why(why, ERR_USAGE, "slot %u is degraded", from);
    if (count > f->fed)
        return error_why(why, ERR_RANGE, "%u tokens of slot %u, which has %u", count, from, f->fed);
    return OK;
}

Error coordinator_fork(Coordinator *c, uint32_t from, uint32_t to, uint32_t count, Why *why)
{
    TRY(check(c, from, to, count, why));
    const Slot *f = &c->slots[from];
    Slot *t = &c->slots[to];
    uint32_t parent = f->forks ? f->parent : from;
    if (parent == to) { /* it is what `from` is to be copied from */
        coordinator_truncate(c, to, count);
        return OK;
    }
    coordinator_truncate(c, to, 0);
    memcpy(t->tokens, f->tokens, count * sizeof *t->tokens);
    t->count = count;
    coordinator_rewind(c, t, count);
    t->forks = count > 0;
    t->parent = parent;
    return OK;
}

/* Where the bytes come from: not from a slot that becomes a copy later, or in this frame. */
static uint32_t source(const Coordinator *c, const CoordinatorFrame *frame, uint32_t slot)
{
    while (c->slots[slot].forks) slot = c->slots[slot].parent;
    for (uint32_t i = 0; i < frame->sequence_count; i++)
        if (frame->sequences[i].session == slot && frame->sequences[i].forks)
            return frame->sequences[i].parent;
    return slot;
}

void coordinator_forks_send(Coordinator *c, const CoordinatorFrame *frame, uint32_t slot,
                            StationSequence *sequence)
{
    Slot *s = &c->slots[slot];
    if (!s->forks) return;
    s->parent = source(c, frame, s->parent);
    s->forks = false;
    sequence->forks = true;
    sequence->parent = s->parent;
}

void coordinator_forks_return(Coordinator *c, const StationSequence *sequence)
{
    if (!sequence->forks) return;
    Slot *s = &c->slots[sequence->session];
    const Slot *parent = &c->slots[sequence->parent];
    uint32_t kept = parent->forks ? 0 : parent->fed; /* it has become a copy itself since */
    s->forks = true;
    s->parent = sequence->parent;
    if (kept < s->fed) coordinator_rewind(c, s, kept);
}
