/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling in two halves that give the same token for any number of shards.
 *
 *   on a shard's rows:  mask, bias, penalties  --> adjusted logits, their top k, their LogSum at the temperature
 *   at the coordinator: merge --> temperature, top-k, top-p, min-p --> one id
 *
 * Ties are broken by the lower id. Random numbers are a function of (seed, position). Temperature 0 is greedy: the best
 * id. When the candidates do not cover what the parameters ask for, the result is SAMPLER_WANTS_MORE and a larger k.
 *
 *   mask         forbids what has no bit in it, whatever the bias says
 *   bias         logit + bias; -100 and below forbids
 *   repetition   of tokens seen: logit / penalty when positive, else logit * penalty
 *   frequency, presence   logit - count * frequency - presence, of tokens seen
 *   temperature  weight = exp((logit - best) / temperature)
 *   top-k        the k best
 *   top-p        the fewest best whose weights reach top_p of all (of the k best when top-k is on); at least one
 *   min-p        those with at least min_p of the best one's weight; at least one
 *
 * Which tokens count as seen is the caller's choice. */
#ifndef COBORD_MODEL_SAMPLER_H
#define COBORD_MODEL_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/logsum.h"

enum { SAMPLER_BIAS_MAX = 1024, SAMPLER_REPEAT_WINDOW_MAX = 4096 };
#define SAMPLER_TEMPERATURE_MIN 1e-5f /* anything below is greedy */

typedef struct SamplerBias {
    uint32_t id;
    float bias; /* -100 and below forbids */
} SamplerBias;

typedef struct SamplerParams {
    float temperature;                         /* 0: greedy */
    uint32_t top_k;                            /* 0: off */
    float top_p;                               /* 1: off */
    float min_p;                               /* 0: off */
    float repetition_penalty;                  /* 1: off */
    float presence_penalty, frequency_penalty; /* 0: off */
    uint32_t repeat_window;                    /* last tokens that the penalties look at; 0: all kept */
    uint64_t seed;
    const SamplerBias *bias;
    uint32_t bias_count;
} SamplerParams;

SamplerParams sampler_defaults(void); /* greedy, everything off */
bool sampler_is_greedy(const SamplerParams *p);
/* 1 / temperature, 1 when greedy: the scale for logsum_add. */
float sampler_scale(const SamplerParams *p);
/* Greedy and top-k need no LogSum. */
bool sampler_needs_sum(const SamplerParams *p);
/* Errors  ERR_RANGE: names the parameter and the values allowed; ids are checked against `vocabulary`. */
MUST_CHECK Error sampler_check(const SamplerParams *p, uint32_t vocabulary, Why *why);

typedef struct SamplerCandidate {
    uint32_t id;
    float logit; /* adjusted, before temperature */
} SamplerCandidate;

/* One distinct token of the recent text and how often it occurs. */
typedef struct SamplerSeen {
    uint32_t id, count;
} SamplerSeen;
/* Counts the tail of tokens[0..n) per repeat_window, out_max tokens at most; returns how many distinct ids, ascending.
 * 0 when no penalty is on. */
uint32_t sampler_count(const SamplerParams *p, const uint32_t *tokens, uint32_t n, SamplerSeen *out,
                       uint32_t out_max);

/* Shard side, before sampler_adjust: forbids every row i whose bit bit_first + i of `mask` is 0. */
void sampler_mask(const uint32_t *mask, uint32_t bit_first, float *logits, uint32_t n);
/* Shard side: adjusts logits of rows id_first.. in place. */
void sampler_adjust(const SamplerParams *p, const SamplerSeen *seen, uint32_t seen_count, uint32_t id_first,
                    float *logits, uint32_t n);
/* Shard side: the k best, descending, ties by lower id; returns how many (min(k, n)). A heap in `out`. NaN counts as
 * the best of all, so that it is seen and refused. */
uint32_t sampler_top(const float *logits, uint32_t n, uint32_t id_first, uint32_t k, SamplerCandidate *out);
/* Coordinator: merges two descending lists in place into a (a_count + b_count cut to k). scratch: k entries. */
uint32_t sampler_merge(SamplerCandidate *a, uint32_t a_count, const SamplerCandidate *b, uint32_t b_count,
                       uint32_t k, SamplerCandidate *scratch);

typedef enum SamplerVerdict { SAMPLER_TOKEN, SAMPLER_WANTS_MORE } SamplerVerdict;
typedef struct SamplerResult {
    SamplerVerdict verdict;
    uint32_t id;
    uint32_t wants_k; /* ask the shards again with this k */
} SamplerResult;

/* How many candidates to ask for first. */
uint32_t sampler_first_k(const SamplerParams *p, uint32_t vocabulary);
/* Coordinator: candidates descending, `complete` when they are the whole vocabulary; `sum` is the merged LogSum of
 * adjusted logits * sampler_scale, NULL allowed when !sampler_needs_sum. The token does not depend on how many
 * candidates came, as long as they suffice.
 * Errors  ERR_NOT_FINITE when the best candidate or the sum is not finite (all forbidden, NaN). */
MUST_CHECK Error sampler_pick(const SamplerParams *p, const SamplerCandidate *candidates, uint32_t count,
                              bool complete, const LogSum *sum, uint64_t position, SamplerResult *out,
                              Why *why);

#endif
