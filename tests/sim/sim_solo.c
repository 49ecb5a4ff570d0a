/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle: a request alone. One station with all phases, one shard with all ids, every logit looked at, no
 * pipeline, no coordinator, no wire. Its tokens are what the cluster must give, bit for bit; the hidden row
 * of every pick is kept as well, so that a wrong one is seen even when the token happens to be the same. */
#include "sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

typedef struct Solo {
    SimNode station, shard;
    float *x;
    SamplerCandidate *candidates;
    GrammarMask *mask; /* NULL: any token may follow */
} Solo;

static void remember_row(Sim *s, const float *row)
{
    if (s->row_count == s->row_room) {
        s->row_room = s->row_room ? 2 * s->row_room : 256;
        s->rows = realloc(s->rows, s->row_room * sizeof *s->rows);
        ASSERT(s->rows);
    }
    s->rows[s->row_count++] = hash_xxh64(row, SIM_HIDDEN * sizeof(float));
}

bool sim_solo_knows_row(const Sim *s, const uint8_t *row)
{
    uint64_t hash = hash_xxh64(row, SIM_HIDDEN * sizeof(float));
    for (uint32_t i = 0; i < s->row_count; i++)
        if (s->rows[i] == hash) return true;
    return false;
}

/* Forwards tokens[first .. first + count); the last row is then the head's input in solo->x. */
static Error forward(Sim *s, Solo *solo, const uint32_t *tokens, uint32_t first, uint32_t count)
{
    Why why = {{0}};
    StationSequence sequence = {0, first, count, 0, 0};
    StationFrame frame = {.x = solo->x, .rows = count, .sequences = &sequence, .sequence_count = 1};
    TRY(shard_begin_embed(solo->shard.shard, tokens + first, count, solo->x, &why));
    TRY(sim_nodes_drive_shard(s, &solo->shard, &why));
    frame.g = solo->x + (size_t)s->plan.context * SIM_HIDDEN;
    TRY(sim_nodes_drive_station(s, &solo->station, &frame, &why));
    float *last = solo->x + (size_t)(count - 1) * SIM_HIDDEN;
    station_norm_output(solo->station.station, last, solo->x);
    return OK;
}

/* What `token` is worth by the logits that the shard has, adjusted or not. */
static void score(Solo *solo, const SimRequest *q, uint32_t token, CoordinatorScore *out)
{
    LogSum sum;
    logsum_start(&sum);
    uint32_t k = shard_top(solo->shard.shard, 0, SIM_VOCABULARY, solo->candidates, &sum, 1);
    double log_sum = logsum_log(&sum);
    const float *logits = shard_logits(solo->shard.shard, 0);
    *out = (CoordinatorScore){.token = token, .logprob = (float)((double)logits[token] - log_sum)};
    for (uint32_t i = 0; i < k && i < q->tops && isfinite(solo->candidates[i].logit); i++) {
        out->top[out->top_count] = solo->candidates[i];
        out->top[out->top_count++].logit = (float)((double)solo->candidates[i].logit - log_sum);
    }
}

static Error score_prompt(Sim *s, Solo *solo, SimRequest *q)
{
    Why why = {{0}};
    for (uint32_t i = 0; i + 1 < q->said_count; i++) {
        TRY(forward(s, solo, q->said, i, 1));
        if (i + 1 < q->score_from) continue;
        remember_row(s, solo->x);
        TRY(shard_begin_logits(solo->shard.shard, solo->x, 1, &why));
        TRY(sim_nodes_drive_shard(s, &solo->shard, &why));
        score(solo, q, q->said[i + 1], &q->want_score[i + 1]);
    }
    return OK;
}

static Error add_up(Sim *s, Solo *solo, SimRequest *q)
{
    for (uint32_t i = 0; i < q->said_count; i++) {
        TRY(forward(s, solo, q->said, i, 1));
        for (uint32_t c = 0; c < SIM_HIDDEN; c++) q->want_sum[c] += (double)solo->x[c];
    }
    return OK;
}

static Error pick(Sim *s, Solo *solo, SimRequest *q, const uint32_t *tokens, uint32_t count,
                  uint32_t *token)
{
    Why why = {{0}};
    LogSum sum;
    SamplerResult result;
    SamplerSeen seen[SIM_CONTEXT_MAX + 1];
    remember_row(s, solo->x);
    TRY(shard_begin_logits(solo->shard.shard, solo->x, 1, &why));
    TRY(sim_nodes_drive_shard(s, &solo->shard, &why));
    if (solo->mask) shard_mask(solo->shard.shard, 0, grammar_mask_now(solo->mask), 0);
    shard_adjust(solo->shard.shard, 0, &q->params, seen,
                 sampler_count(&q->params, tokens, count, seen, SIM_CONTEXT_MAX + 1));
    logsum_start(&sum);
    uint32_t k = shard_top(solo->shard.shard, 0, SIM_VOCABULARY, solo->candidates, &sum,
                           sampler_scale(&q->params));
    TRY(sampler_pick(&q->params, solo->candidates, k, true, &sum, count, &result, &why));
    *token = result.id;
    if (q->scores) score(solo, q, result.id, &q->want_score[count]);
    return solo->mask ? grammar_mask_take(solo->mask, result.id, &why) : OK;
}

static Error answer(Sim *s, Solo *solo, SimRequest *q)
{
    uint32_t tokens[SIM_CONTEXT_MAX + 1], count = q->said_count, fed = 0;
    memcpy(tokens, q->said, count * sizeof *tokens);
    if (q->pools) return add_up(s, solo, q);
    if (q->scores && q->score_from < count) TRY(score_prompt(s, solo, q));
    if (q->tokens_max == 0) return forward(s, solo, tokens, 0, count);
    while (q->want_count < q->tokens_max && count <= s->plan.context) {
        uint32_t token = 0;
        TRY(forward(s, solo, tokens, fed, count - fed));
        fed = count;
        TRY(pick(s, solo, q, tokens, count, &token));
        tokens[count++] = q->want[q->want_count++] = token;
    }
    return OK;
}

void sim_solo_run(Sim *s, SimRequest *q)
{
    Solo solo = {0};
    PhaseRange all = {0, phase_bound(SIM_LAYERS, PHASE_ATTN)};
    sim_nodes_open_station(s, &solo.station, all, s->plan.context, 1);
    sim_nodes_open_shard(s, &solo.shard, 0, SIM_VOCABULARY, 1);
    solo.x = malloc((size_t)s->plan.context * (SIM_HIDDEN + SIM_FFN) * sizeof(float));
    solo.candidates = malloc(SIM_VOCABULARY * sizeof *solo.candidates);
    void *mask_memory = NULL;
    if (q->grammar >= 0)
        solo.mask =
            sim_grammar_mask(s->model->grammars, (uint32_t)q->grammar, NULL, 0, &mask_memory);
    q->want_count = 0;
    q->want_error = answer(s, &solo, q);
    free(mask_memory);
    free(solo.x);
    free(solo.candidates);
    sim_nodes_close(&solo.station);
    sim_nodes_close(&solo.shard);
}
