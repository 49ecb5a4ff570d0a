/* SPDX-License-Identifier: Apache-2.0 */
/* Which rows go into the next frame, and which of them are asked for something.
 *
 *   an answer   [last][drafts ...]     a pick each
 *   a prompt    [ids ...]              a pick at its end; with scores also one of each row whose next token has none
 *   a pool      [ids ...]              no pick; all rows are wanted
 *
 * Picks and rows of a frame are shared out so that each active slot may have one of both. The answers in progress of a
 * frame share the rows that a single one may have with all its guesses: a pass is cheap up to some rows, however many
 * answers they are of. */
#include "cluster/coordinator_state.h"

#include <string.h>

#include "base/max.h"
#include "base/min.h"

/* Rows of prompts beside answers in progress: enough to share the pass over the weights, few
 * enough to keep those fast. */
enum { PREFILL_ROWS_BESIDE_DECODE = 64 };

static void add_pick(const Coordinator *c, Frame *to, uint32_t slot, uint32_t row,
                     uint32_t position)
{
    Slot *s = &c->slots[slot];
    CoordinatorFrame *f = &to->public;
    CoordinatorPick *p = &f->picks[f->pick_count];
    bool known = position < s->count; /* of a prompt: only its score is wanted */
    Choice *choice = &to->choices[f->pick_count++];
    *choice = (Choice){.score = s->scores ? &s->score[s->asked++] : NULL};
    *p = (CoordinatorPick){.slot = slot,
                           .row = row,
                           .wanted = f->wanted_count,
                           .position = position,
                           .params = known ? &c->plain : &s->params,
                           .seen = s->seen,
                           .wants_id = known,
                           .id = known ? s->tokens[position] : 0,
                           .k = 1,
                           .sum_scale = 1};
    to->wanted[f->wanted_count++] = row;
    if (!known) {
        p->seen_count = sampler_count(&s->params, s->tokens, s->count, s->seen,
                                      coordinator_seen_max(&c->config));
        p->mask = s->mask ? s->bits : NULL;
        p->k = sampler_first_k(&s->params, c->config.vocabulary);
        p->wants_sum = sampler_needs_sum(&s->params);
        p->sum_scale = sampler_scale(&s->params);
    }
    if (choice->score) coordinator_scores_ask(c, p);
}

/* What a slot puts into a frame. */
typedef struct Part {
    uint32_t rows;   /* of its tokens */
    uint32_t scored; /* the last of them, that have picks */
    uint32_t drafts;
    bool pick; /* of the last row */
} Part;

/* Picks that are left for the slot in the frame. */
static uint32_t picks_left(const Coordinator *c, const Frame *to)
{
    return min_u32(c->picks_max - to->public.pick_count, to->share);
}

/* Rows whose next token is known and has no score yet, among the first `rows` from s->sent on. */
static uint32_t scored_rows(const Slot *s, uint32_t rows)
{
    uint32_t first = s->score_next - 1; /* row of the first that has none */
    uint32_t end = min_u32(s->sent + rows, s->count - 1);
    return s->scores && end > first ? end - max_u32(first, s->sent) : 0;
}

static Part plan_part(const Coordinator *c, const Frame *to, const Slot *s, uint32_t room)
{
    uint32_t left = s->count - s->sent, picks = picks_left(c, to);
    if (s->scores) picks = min_u32(picks, coordinator_scored_rows(&c->config));
    Part p = {.rows = min_u32(min_u32(left, s->cut), room)};
    p.scored = scored_rows(s, p.rows);
    if (p.scored > picks) {
        p.rows = max_u32(s->score_next - 1, s->sent) - s->sent + picks;
        p.scored = picks;
    }
    p.pick = p.rows == left && s->tokens_left;
    if (p.pick && p.scored == picks) {
        p.rows--;
        p.pick = false;
    }
    return p;
}

static void add_picks(const Coordinator *c, Frame *to, uint32_t slot, const Part *p, uint32_t row)
{
    Slot *s = &c->slots[slot];
    uint32_t first = p->rows - p->scored; /* the last row has either a score's pick or its own */
    if (p->scored && s->sent + p->rows == s->count) first--;
    for (uint32_t i = 0; i < p->scored; i++)
        add_pick(c, to, slot, row + first + i, s->sent + first + i + 1);
    if (p->pick && s->mask)
        memcpy(s->bits, grammar_mask_now(s->mask),
               coordinator_mask_words(&c->config) * sizeof *s->bits);
    for (uint32_t i = 0; p->pick && i <= p->drafts; i++)
        add_pick(c, to, slot, row + p->rows - 1 + i, s->count + i);
}

static void add_pool(Frame *to, uint32_t slot, uint32_t row, uint32_t rows)
{
    CoordinatorFrame *f = &to->public;
    to->pools[f->pool_count++] =
        (CoordinatorPool){.slot = slot, .first = f->wanted_count, .count = rows};
    for (uint32_t i = 0; i < rows; i++) to->wanted[f->wanted_count++] = row + i;
}

static bool has_penalties(const SamplerParams *p)
{
    return p->repetition_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0;
}

/* Only what the host knows is asked whether it is a token. */
static uint32_t guess_elsewhere(const Coordinator *c, uint32_t slot, uint32_t *out, uint32_t most)
{
    const CoordinatorDrafter *d = &c->drafter;
    const Slot *s = &c->slots[slot];
    if (!d->draft) return 0;
    uint32_t n = d->draft(d->context, slot, s->tokens, s->count, &s->params, out, most), i = 0;
    while (i < n && i < most && out[i] < c->config.vocabulary) i++;
    return i;
}

/* What may follow the row that is asked for the answer's next token. */
static uint32_t guess(Coordinator *c, const Frame *to, uint32_t slot, uint32_t room, uint32_t *out)
{
    Slot *s = &c->slots[slot];
    uint32_t most = min_u32(c->config.drafts, picks_left(c, to) - 1);
    if (s->alone || s->mask || has_penalties(&s->params)) return 0;
    most = min_u32(most, min_u32(room, min_u32(to->share_rows, to->guess_rows)) - 1);
    most = min_u32(most, min_u32(s->tokens_left - 1, c->config.context - s->count));
    if (!most) return 0;
    uint32_t count = draft_guess(&s->draft, s->tokens, s->count, out, most);
    s->learns = count > 0;
    return count ? count : guess_elsewhere(c, slot, out, most);
}

/* Up to `room` rows of one slot; the row that ends its tokens only when there is room for its
 * pick. */
static void add_rows(Coordinator *c, Frame *to, uint32_t slot, uint32_t room)
{
    Slot *s = &c->slots[slot];
    CoordinatorFrame *f = &to->public;
    Part p = plan_part(c, to, s, room);
    if (!p.rows) return;
    uint32_t *ids = to->ids + f->rows;
    memcpy(ids, s->tokens + s->sent, p.rows * sizeof *ids);
    s->learns = false;
    if (p.pick && p.rows == 1) p.drafts = guess(c, to, slot, room, ids + 1);
    StationSequence *q = &to->sequences[f->sequence_count];
    uint32_t row = f->rows;
    s->asked = 0;
    *q = (StationSequence){.session = slot, .position = s->sent, .rows = p.rows + p.drafts};
    coordinator_forks_send(c, f, slot, q);
    f->sequence_count++;
    f->rows += q->rows;
    if (s->pools) add_pool(to, slot, row, p.rows);
    else add_picks(c, to, slot, &p, row);
    s->sent += p.rows;
    s->frames++;
}

/* A slot with scores has one frame at a time, and another one when they were taken. */
static bool is_ready(const Slot *s)
{
    return s->active && s->sent < s->count && !(s->scores && (s->frames || s->scored));
}

static void add_alone(Coordinator *c, Frame *to)
{
    for (uint32_t i = 0; i < c->config.slots && !to->public.rows; i++)
        if (c->slots[i].alone && is_ready(&c->slots[i])) add_rows(c, to, i, c->rows_max);
    to->alone = to->public.rows > 0;
}

/* An answer in progress, its next row waiting or under way; else a prompt. */
static bool is_decode(const Slot *s) { return s->tokens_left && s->count - s->sent <= 1; }

/* Answers in progress, or prompts. */
static void add_slots(Coordinator *c, Frame *to, bool decode, uint32_t slots_most,
                      uint32_t rows_max)
{
    for (uint32_t n = 0; n < c->config.slots; n++) {
        uint32_t i = (c->turn + n) % c->config.slots, rows = to->public.rows;
        const Slot *s = &c->slots[i];
        if (is_ready(s) && !s->alone && is_decode(s) == decode && rows < rows_max &&
            to->public.sequence_count < slots_most)
            add_rows(c, to, i, rows_max - rows);
    }
}

static uint32_t count_active(const Coordinator *c, bool decode_only)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->config.slots; i++)
        count += c->slots[i].active && (!decode_only || is_decode(&c->slots[i]));
    return count;
}

/* The answers in progress are spread over the frames; no frame makes those wait for a long
 * prompt. */
static void add_together(Coordinator *c, Frame *to)
{
    uint32_t decode = count_active(c, true), spread = c->config.spread, most = c->rows_max;
    uint32_t answers = decode / spread + (decode % spread != 0);
    to->guess_rows = max_u32((1 + c->config.drafts) / max_u32(answers, 1), 1);
    add_slots(c, to, true, answers, most);
    if (decode) most = min_u32(most, to->public.rows + PREFILL_ROWS_BESIDE_DECODE);
    add_slots(c, to, false, c->config.slots, most);
}

void coordinator_limit_rows(Coordinator *c, uint32_t rows)
{
    c->rows_max = min_u32(rows ? rows : 1, c->config.chunk);
}

bool coordinator_frame(Coordinator *c, CoordinatorFrame **frame)
{
    if (c->under_way == c->config.frames) return false;
    Frame *f = coordinator_frame_at(c, c->under_way);
    uint32_t active = max_u32(count_active(c, false), 1);
    f->share = max_u32(c->picks_max / active, 1);
    f->share_rows = max_u32(c->rows_max / active, 1);
    f->public = (CoordinatorFrame){.number = (uint32_t)(f - c->frames),
                                   .ids = f->ids,
                                   .sequences = f->sequences,
                                   .picks = f->picks,
                                   .wanted = f->wanted,
                                   .pools = f->pools};
    add_alone(c, f);
    if (!f->alone) add_together(c, f);
    c->turn = (c->turn + 1) % c->config.slots;
    if (!f->public.rows) return false;
    c->under_way++;
    *frame = &f->public;
    return true;
}

bool coordinator_frame_is_wanted(const Coordinator *c, const CoordinatorFrame *frame)
{
    for (uint32_t i = 0; i < frame->sequence_count; i++)
        if (c->slots[frame->sequences[i].session].active) return true;
    return false;
}
