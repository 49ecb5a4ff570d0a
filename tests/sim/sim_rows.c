/* SPDX-License-Identifier: Apache-2.0 */
/* Which hidden rows of a request for logits need not be known: those behind a guess that is wrong, of which no request
 * says anything alone. The pipeline's frame tells which row is whose; its pick, and the ids in front of it:
 *
 *   rows   [last][d0][d1][d2]      d0 right, d1 wrong: the rows of d1 and d2 are anybody's */
#include "sim.h"

#include "cluster/pipeline_state.h"

/* Token `index` of the request's conversation as it is alone; UINT32_MAX: there is none. */
static uint32_t token_alone(const SimRequest *q, uint32_t index)
{
    if (index < q->said_count) return q->said[index];
    uint32_t wanted = index - (q->said_count - q->emitted);
    return wanted < q->want_count ? q->want[wanted] : UINT32_MAX;
}

bool sim_rows_may_be_unknown(const Sim *s, uint32_t call, uint32_t row)
{
    const Frame *f = &s->pipeline->frames[call / TWINS / s->pipeline->shards];
    const CoordinatorFrame *w = f->work;
    ASSERT(w && row < f->round_count);
    const CoordinatorPick *pick = &w->picks[f->round[row]];
    int i = s->slot_request[pick->slot];
    for (const CoordinatorPick *p = w->picks; p < pick; p++) {
        if (p->slot != pick->slot) continue;
        /* Who was cancelled, and left the slot to nobody or somebody else, cannot be asked. */
        if (i < 0 || s->requests[i].state != SIM_RUNNING ||
            !coordinator_is_active(s->coordinator, pick->slot))
            return true;
        if (w->ids[p->row + 1] != token_alone(&s->requests[i], p->position)) return true;
    }
    return false;
}
