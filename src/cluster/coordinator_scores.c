/* SPDX-License-Identifier: Apache-2.0 */
/* What tokens were worth, and sums of hidden states.
 *
 *   log-probability = logit - log(sum of exponentials of all logits)      a sum at scale 1
 *
 * A pick that needs a sum at another scale to choose its token gets another round for this one. */
#include "cluster/coordinator_state.h"

#include "base/max.h"
#include "base/min.h"

Error coordinator_score(Coordinator *c, uint32_t slot, uint32_t tops, uint32_t prompt_from,
                        Why *why)
{
    TRY(coordinator_check_started(c, slot, why));
    Slot *s = &c->slots[slot];
    if (tops > COORDINATOR_TOPS_MAX || prompt_from == 0)
        return error_why(why, ERR_USAGE, "%u likeliest tokens, and scores from token %u on", tops,
                         prompt_from);
    if (prompt_from <= s->count && s->fed >= prompt_from)
        return error_why(why, ERR_USAGE, "%u tokens of slot %u have been forwarded", s->fed, slot);
    s->scores = true;
    s->tops = tops;
    s->score_next = min_u32(prompt_from, s->count);
    return OK;
}

const CoordinatorScore *coordinator_take_scores(Coordinator *c, uint32_t slot, uint32_t *count)
{
    Slot *s = &c->slots[slot];
    *count = s->scored;
    s->scored = 0;
    return s->score;
}

void coordinator_scores_ask(const Coordinator *c, CoordinatorPick *pick)
{
    const Slot *s = &c->slots[pick->slot];
    pick->k = min_u32(max_u32(pick->k, s->tops), c->config.vocabulary);
    if (!pick->wants_sum) pick->sum_scale = 1;
    pick->wants_sum = true;
}

static uint32_t count_finite(const SamplerCandidate *candidates, uint32_t count)
{
    while (count && candidates[count - 1].logit - candidates[count - 1].logit != 0) count--;
    return count;
}

bool coordinator_scores_note(Coordinator *c, CoordinatorPick *pick, Choice *choice,
                             const SamplerCandidate *candidates, uint32_t count)
{
    CoordinatorScore *score = choice->score;
    score->token = pick->token;
    score->top_count = count_finite(candidates, min_u32(count, c->slots[pick->slot].tops));
    for (uint32_t i = 0; i < score->top_count; i++) score->top[i] = candidates[i];
    for (uint32_t i = 0; i < count && !pick->wants_id; i++)
        if (candidates[i].id == pick->token) choice->logit = candidates[i].logit;
    choice->summed = true;
    if (pick->sum_scale == 1) return true;
    pick->sum_scale = 1;
    pick->k = 1;
    return false;
}

Error coordinator_scores_finish(const CoordinatorPick *pick, const Choice *choice,
                                const LogSum *sum, Why *why)
{
    ASSERT(sum != NULL);
    CoordinatorScore *score = choice->score;
    double log_sum = logsum_log(sum), logprob = (double)choice->logit - log_sum;
    if (log_sum - log_sum != 0 || logprob != logprob)
        return error_why(why, ERR_NOT_FINITE, "the score of token %u is not finite", pick->token);
    score->logprob = (float)logprob;
    for (uint32_t i = 0; i < score->top_count; i++)
        score->top[i].logit = (float)((double)score->top[i].logit - log_sum);
    return OK;
}

/* ---- Pools ---- */

Error coordinator_pool(Coordinator *c, uint32_t slot, Why *why)
{
    TRY(coordinator_check_started(c, slot, why));
    Slot *s = &c->slots[slot];
    if (!c->config.hidden)
        return error_why(why, ERR_USAGE, "this coordinator adds up no hidden states");
    if (s->tokens_left || s->fed || s->forks)
        return error_why(why, ERR_USAGE, "slot %u has an answer, or was forwarded in part", slot);
    for (uint32_t i = 0; i < c->config.hidden; i++) s->sum[i] = 0;
    s->pools = true;
    s->pooled = 0;
    return OK;
}

void coordinator_give_hidden(Coordinator *c, uint32_t slot, const float *hidden)
{
    Slot *s = &c->slots[slot];
    if (!s->pools) return;
    for (uint32_t i = 0; i < c->config.hidden; i++) s->sum[i] = s->sum[i] + (double)hidden[i];
    s->pooled++;
}

const double *coordinator_pooled(const Coordinator *c, uint32_t slot, uint32_t *rows)
{
    *rows = c->slots[slot].pooled;
    return c->slots[slot].sum;
}
