/* SPDX-License-Identifier: Apache-2.0 */
/* Candidates of a pick, and how frames end.
 *
 *   pick:  candidates --> token --> refuses the drafts behind it, when the next of them is another
 *             ^  '-- larger k --'   '-- scored: another sum --> score
 *
 * A frame that has ended moves its slots: fed by the rows whose ids were the slot's tokens, drafts
 * that were right included; the tokens by one more than drafts that were right. */
#include "cluster/coordinator_state.h"

#include "base/min.h"

/* ---- Candidates ---- */

static Frame *frame_of(const Coordinator *c, const CoordinatorPick *pick)
{
    return &c->frames[(size_t)(pick - c->picks) / c->picks_max];
}

/* The row behind the pick's is the same slot's, and has another token. */
static bool refuses_next(const CoordinatorFrame *f, const CoordinatorPick *pick)
{
    const CoordinatorPick *next = pick + 1;
    return next < f->picks + f->pick_count && next->slot == pick->slot &&
           f->ids[next->row] != pick->token;
}

static void settle(const CoordinatorFrame *f, CoordinatorPick *pick)
{
    pick->picked = true;
    if (!refuses_next(f, pick)) return;
    for (CoordinatorPick *p = pick + 1; p < f->picks + f->pick_count && p->slot == pick->slot; p++)
        p->picked = true;
}

/* Sets pick->token, or a larger pick->k. Result  which of both. */
static Error choose(CoordinatorPick *pick, const SamplerCandidate *candidates, uint32_t count,
                    bool complete, const LogSum *sum, bool *chosen, Why *why)
{
    SamplerResult result;
    TRY(sampler_pick(pick->params, candidates, count, complete,
                     sampler_needs_sum(pick->params) ? sum : NULL, pick->position, &result, why));
    if (result.verdict == SAMPLER_TOKEN && pick->mask && !grammar_mask_has(pick->mask, result.id))
        return error_why(why, ERR_RANGE, "token %u came although the grammar forbids it",
                         result.id);
    *chosen = result.verdict == SAMPLER_TOKEN;
    if (*chosen) pick->token = result.id;
    else pick->k = result.wants_k;
    return OK;
}

Error coordinator_give_top(Coordinator *c, CoordinatorPick *pick,
                           const SamplerCandidate *candidates, uint32_t count, bool complete,
                           const LogSum *sum, float id_logit, Why *why)
{
    Frame *f = frame_of(c, pick);
    Choice *choice = &f->choices[pick - f->picks];
    bool chosen = pick->wants_id || choice->summed;
    if (pick->picked) return OK;
    if (!chosen) TRY(choose(pick, candidates, count, complete, sum, &chosen, why));
    else if (!choice->summed) pick->token = pick->id, choice->logit = id_logit;
    if (!chosen) return OK;
    if (choice->score) {
        if (!choice->summed && !coordinator_scores_note(c, pick, choice, candidates, count))
            return OK;
        TRY(coordinator_scores_finish(pick, choice, sum, why));
    }
    settle(&f->public, pick);
    return OK;
}

/* ---- Ending ---- */

/* The slot's first pick in the frame, and how many it has. */
static const CoordinatorPick *picks_of(const CoordinatorFrame *frame, uint32_t slot,
                                       uint32_t *count)
{
    uint32_t first = 0;
    while (first < frame->pick_count && frame->picks[first].slot != slot) first++;
    *count = 0;
    while (first + *count < frame->pick_count && frame->picks[first + *count].slot == slot)
        ++*count;
    return frame->picks + first;
}

/* Takes the tokens that were picked, and the scores. Result  how many drafts were right. */
static uint32_t take_picks(Slot *s, const CoordinatorFrame *f, const CoordinatorPick *picks,
                           uint32_t count, CoordinatorEvent *event)
{
    for (uint32_t i = 0; i < count; i++) {
        const CoordinatorPick *p = &picks[i];
        ASSERT(p->picked);
        if (!p->wants_id) {
            s->tokens[s->count++] = p->token;
            s->tokens_left--;
            event->token_count++;
            if (s->mask) event->error = grammar_mask_take(s->mask, p->token, NULL);
        }
        if (s->scores) {
            s->scored++;
            s->score_next = p->position + 1;
        }
        if (refuses_next(f, p)) break;
    }
    return event->token_count ? event->token_count - 1 : 0;
}

/* Moves one slot past its rows of the frame. Result  whether that is an event. */
static bool end_rows(Coordinator *c, const Frame *f, const StationSequence *q,
                     CoordinatorEvent *event)
{
    Slot *s = &c->slots[q->session];
    uint32_t count, drafts = 0, right = 0, before = s->count;
    const CoordinatorPick *picks = picks_of(&f->public, q->session, &count);
    *event = (CoordinatorEvent){.slot = q->session, .tokens = s->tokens + before};
    for (uint32_t i = 0; i < count; i++) drafts += picks[i].position > before;
    s->frames--;
    if (f->alone) s->alone = false;
    if (count && s->active) {
        right = take_picks(s, &f->public, picks, count, event);
        c->guessed += drafts;
        c->right += right;
        if (s->learns) draft_learn(&s->draft, drafts, right);
    }
    s->fed = q->position + q->rows - drafts + right;
    if (s->fed > s->sent) s->sent = s->fed;
    event->scored = s->active && s->scored;
    event->ended =
        s->active && (event->error != OK || s->count > c->config.context ||
                      (s->tokens_left == 0 && (event->token_count || s->fed == s->count)));
    if (event->ended) s->active = false;
    return event->token_count || event->scored || event->ended;
}

const CoordinatorEvent *coordinator_end_frame(Coordinator *c, CoordinatorFrame *frame,
                                              uint32_t *count)
{
    ASSERT(c->under_way && frame == &coordinator_frame_at(c, 0)->public);
    const Frame *f = coordinator_frame_at(c, 0);
    *count = 0;
    for (uint32_t i = 0; i < frame->sequence_count; i++)
        *count += end_rows(c, f, &frame->sequences[i], &c->events[*count]);
    c->oldest = (c->oldest + 1) % c->config.frames;
    c->under_way--;
    return c->events;
}

/* ---- Failing, giving up ---- */

/* The newest frame, as if it had never been made. */
static void give_up_newest(Coordinator *c)
{
    const CoordinatorFrame *f = &coordinator_frame_at(c, --c->under_way)->public;
    for (uint32_t i = 0; i < f->sequence_count; i++) {
        Slot *s = &c->slots[f->sequences[i].session];
        s->frames--;
        s->sent = f->sequences[i].position;
        coordinator_forks_return(c, &f->sequences[i]);
    }
}

void coordinator_give_up_from(Coordinator *c, const CoordinatorFrame *frame)
{
    const CoordinatorFrame *newest;
    do {
        ASSERT(c->under_way);
        newest = &coordinator_frame_at(c, c->under_way - 1)->public;
        give_up_newest(c);
    } while (newest != frame);
}

static CoordinatorEvent *end_slots(Coordinator *c, const CoordinatorFrame *frame, Error error,
                                   uint32_t *count)
{
    for (uint32_t i = 0; i < frame->sequence_count; i++) {
        Slot *s = &c->slots[frame->sequences[i].session];
        if (s->active)
            c->events[(*count)++] = (CoordinatorEvent){
                .slot = frame->sequences[i].session, .ended = true, .error = error};
        s->active = false;
    }
    return c->events;
}

const CoordinatorEvent *coordinator_fail_frame(Coordinator *c, CoordinatorFrame *frame, Error error,
                                               uint32_t *count)
{
    *count = 0;
    coordinator_give_up_from(c, frame);
    if (frame->sequence_count == 1) return end_slots(c, frame, error, count);
    for (uint32_t i = 0; i < frame->sequence_count; i++)
        c->slots[frame->sequences[i].session].alone = true;
    return c->events;
}

const CoordinatorEvent *coordinator_refuse_frame(Coordinator *c, CoordinatorFrame *frame,
                                                 Error error, uint32_t *count)
{
    *count = 0;
    coordinator_give_up_from(c, frame);
    return end_slots(c, frame, error, count);
}

void coordinator_give_up_frames(Coordinator *c, const CoordinatorFrame *lost)
{
    while (c->under_way) give_up_newest(c);
    for (uint32_t i = 0; lost && i < lost->sequence_count; i++)
        coordinator_rewind(c, &c->slots[lost->sequences[i].session], 0);
}
