/* SPDX-License-Identifier: Apache-2.0 */
/* From logits to one token: the shard's half works on its rows in place, the coordinator's half on a short descending
 * list. Every choice is a prefix of that list, so a longer list never changes it; sums run over the list in order, in
 * f64, with our own exponential (docs/format/numerics-ops.md). */
#include "model/sampler.h"

#include <string.h>

#include "model/elementary.h"

enum { SAMPLER_ASK_PREFIX = 128, SAMPLER_ASK_ALL = 256, SAMPLER_ASK_GROWTH = 8 };

SamplerParams sampler_defaults(void) { return (SamplerParams){.top_p = 1.0f, .repetition_penalty = 1.0f}; }

bool sampler_is_greedy(const SamplerParams *p) { return p->temperature < SAMPLER_TEMPERATURE_MIN; }

float sampler_scale(const SamplerParams *p) { return sampler_is_greedy(p) ? 1.0f : 1.0f / p->temperature; }

bool sampler_needs_sum(const SamplerParams *p)
{
    return !sampler_is_greedy(p) && p->top_k == 0 && (p->top_p < 1.0f || p->min_p == 0.0f);
}

/* Inclusive; NaN is outside. */
static Error sampler_number(const char *name, float value, float least, float most, const char *allowed,
                            Why *why)
{
    if (value >= least && value <= most) return OK;
    return error_why(why, ERR_RANGE, "%s must be a number from %s", name, allowed);
}

static Error sampler_check_bias(const SamplerParams *p, uint32_t vocabulary, Why *why)
{
    if (p->bias_count > SAMPLER_BIAS_MAX)
        return error_why(why, ERR_RANGE, "logit_bias has %u entries, at most %u are allowed", p->bias_count,
                         (unsigned)SAMPLER_BIAS_MAX);
    for (uint32_t i = 0; i < p->bias_count; i++) {
        if (p->bias[i].id >= vocabulary)
            return error_why(why, ERR_RANGE, "logit_bias names token %u, the vocabulary has %u", p->bias[i].id,
                             vocabulary);
        TRY(sampler_number("a logit_bias", p->bias[i].bias, -1e6f, 1e6f, "-1000000 to 1000000", why));
    }
    return OK;
}

Error sampler_check(const SamplerParams *p, uint32_t vocabulary, Why *why)
{
    TRY(sampler_number("temperature", p->temperature, 0.0f, 100.0f, "0 to 100", why));
    TRY(sampler_number("top_p", p->top_p, 0.0f, 1.0f, "0 to 1", why));
    TRY(sampler_number("min_p", p->min_p, 0.0f, 1.0f, "0 to 1", why));
    TRY(sampler_number("repetition_penalty", p->repetition_penalty, 0.01f, 100.0f, "0.01 to 100", why));
    TRY(sampler_number("presence_penalty", p->presence_penalty, -100.0f, 100.0f, "-100 to 100", why));
    TRY(sampler_number("frequency_penalty", p->frequency_penalty, -100.0f, 100.0f, "-100 to 100", why));
    if (p->repeat_window > SAMPLER_REPEAT_WINDOW_MAX)
        return error_why(why, ERR_RANGE, "the repeat window is %u, at most %u is allowed", p->repeat_window,
                         (unsigned)SAMPLER_REPEAT_WINDOW_MAX);
    return sampler_check_bias(p, vocabulary, why);
}

/* ---- shard side ---------------------------------------------------------------------------------------------- */

static bool sampler_has_penalties(const SamplerParams *p)
{
    return p->repetition_penalty != 1.0f || p->presence_penalty != 0 || p->frequency_penalty != 0;
}

static void sampler_sink_id(SamplerSeen *heap, uint32_t at, uint32_t n)
{
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1].id > heap[child].id) child++;
        if (heap[at].id >= heap[child].id) return;
        SamplerSeen t = heap[at];
        heap[at] = heap[child], heap[child] = t;
    }
}

uint32_t sampler_count(const SamplerParams *p, const uint32_t *tokens, uint32_t n, SamplerSeen *out,
                       uint32_t out_max)
{
    uint32_t tail = p->repeat_window && p->repeat_window < n ? p->repeat_window : n;
    if (tail > out_max) tail = out_max;
    if (!sampler_has_penalties(p) || tail == 0) return 0;
    for (uint32_t i = 0; i < tail; i++) out[i] = (SamplerSeen){tokens[n - tail + i], 1};
    for (uint32_t i = tail / 2; i-- > 0;) sampler_sink_id(out, i, tail);
    for (uint32_t last = tail - 1; last > 0; last--) {
        SamplerSeen t = out[0];
        out[0] = out[last], out[last] = t;
        sampler_sink_id(out, 0, last);
    }
    uint32_t kept = 0;
    for (uint32_t i = 1; i < tail; i++) {
        if (out[i].id == out[kept].id) out[kept].count++;
        else out[++kept] = out[i];
    }
    return kept + 1;
}

static float sampler_penalize(const SamplerParams *p, float logit, uint32_t count)
{
    logit = logit > 0 ? logit / p->repetition_penalty : logit * p->repetition_penalty;
    return logit - (float)count * p->frequency_penalty - p->presence_penalty;
}

void sampler_mask(const uint32_t *mask, uint32_t bit_first, float *logits, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bit = bit_first + i;
        if (!(mask[bit >> 5] >> (bit & 31) & 1)) logits[i] = -__builtin_inff();
    }
}

void sampler_adjust(const SamplerParams *p, const SamplerSeen *seen, uint32_t seen_count, uint32_t id_first,
                    float *logits, uint32_t n)
{
    for (uint32_t i = 0; i < p->bias_count; i++) {
        uint32_t row = p->bias[i].id - id_first; /* wraps to a large number below id_first */
        if (row >= n) continue;
        logits[row] = p->bias[i].bias <= -100.0f ? -__builtin_inff() : logits[row] + p->bias[i].bias;
    }
    for (uint32_t i = 0; i < seen_count; i++) {
        uint32_t row = seen[i].id - id_first;
        if (row < n) logits[row] = sampler_penalize(p, logits[row], seen[i].count);
    }
}

/* Rises with the logit; both zeros alike, NaN above everything. */
static inline uint32_t sampler_key(float logit)
{
    float x = logit + 0.0f;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x) return UINT32_MAX;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

static inline bool sampler_better(SamplerCandidate a, SamplerCandidate b)
{
    uint32_t x = sampler_key(a.logit), y = sampler_key(b.logit);
    return x != y ? x > y : a.id < b.id;
}

/* The worst is on top. */
static void sampler_sink(SamplerCandidate *heap, uint32_t at, uint32_t n)
{
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && sampler_better(heap[child], heap[child + 1])) child++;
        if (!sampler_better(heap[at], heap[child])) return;
        SamplerCandidate t = heap[at];
        heap[at] = heap[child], heap[child] = t;
    }
}

uint32_t sampler_top(const float *logits, uint32_t n, uint32_t id_first, uint32_t k, SamplerCandidate *out)
{
    uint32_t count = k < n ? k : n;
    if (count == 0) return 0;
    for (uint32_t i = 0; i < count; i++) out[i] = (SamplerCandidate){id_first + i, logits[i]};
    for (uint32_t i = count / 2; i-- > 0;) sampler_sink(out, i, count);
    for (uint32_t i = count; i < n; i++) {
        if (logits[i] <= out[0].logit) continue; /* later ids lose ties; NaN goes on */
        SamplerCandidate c = {id_first + i, logits[i]};
        if (!sampler_better(c, out[0])) continue;
        out[0] = c;
        sampler_sink(out, 0, count);
    }
    for (uint32_t last = count - 1; last > 0; last--) {
        SamplerCandidate t = out[0];
        out[0] = out[last], out[last] = t;
        sampler_sink(out, 0, last);
    }
    return count;
}

/* ---- coordinator side ---------------------------------------------------------------------------------------- */

uint32_t sampler_merge(SamplerCandidate *a, uint32_t a_count, const SamplerCandidate *b, uint32_t b_count,
                       uint32_t k, SamplerCandidate *scratch)
{
    uint32_t i = 0, j = 0, n = 0;
    while (n < k && (i < a_count || j < b_count)) {
        bool from_a = j == b_count || (i < a_count && sampler_better(a[i], b[j]));
        scratch[n++] = from_a ? a[i++] : b[j++];
    }
    memcpy(a, scratch, n * sizeof *a);
    return n;
}

uint32_t sampler_first_k(const SamplerParams *p, uint32_t vocabulary)
{
    uint32_t k = SAMPLER_ASK_ALL;
    if (sampler_is_greedy(p)) k = 1;
    else if (p->top_k) k = p->top_k;
    else if (p->top_p < 1.0f || p->min_p > 0.0f) k = SAMPLER_ASK_PREFIX;
    return k < vocabulary ? k : vocabulary;
}

/* A number in [0, 1) that is a function of seed and position: two rounds of a 64-bit mixer, upper 53 bits. */
static double sampler_random(uint64_t seed, uint64_t position)
{
    uint64_t x = seed + (position + 1) * 0x9e3779b97f4a7c15u;
    for (int round = 0; round < 2; round++) {
        x ^= x >> 30;
        x *= 0xbf58476d1ce4e5b9u;
        x ^= x >> 27;
        x *= 0x94d049bb133111ebu;
        x ^= x >> 31;
        x += seed;
    }
    return (double)(x >> 11) * 0x1p-53;
}

static bool sampler_finite(float x) { return x - x == 0; }

typedef struct SamplerPrefix {
    const SamplerCandidate *list;
    uint32_t count;               /* candidates that may be chosen */
    bool closed;                  /* nothing behind them may be chosen */
    double scale, total, covered; /* weight of all that may be chosen, and of `count` of them */
} SamplerPrefix;

static double sampler_weight(const SamplerPrefix *s, uint32_t i)
{
    return elementary_exp64(((double)s->list[i].logit - (double)s->list[0].logit) * s->scale);
}

static double sampler_sum(const SamplerPrefix *s)
{
    double sum = 0;
    for (uint32_t i = 0; i < s->count; i++) sum = sum + sampler_weight(s, i);
    return sum;
}

/* Cuts the list by top-p and min-p. Both keep a prefix, so the shorter one counts. */
static void sampler_cut(const SamplerParams *p, SamplerPrefix *s)
{
    double sum = 0, enough = (double)p->top_p * s->total;
    for (uint32_t i = 0; i < s->count; i++) {
        double w = sampler_weight(s, i);
        bool too_small = i > 0 && w < (double)p->min_p;
        if (!too_small) sum = sum + w;
        if (too_small || (p->top_p < 1.0f && sum >= enough)) {
            s->count = too_small ? i : i + 1;
            s->closed = true;
            break;
        }
    }
    s->covered = sum;
}

static uint32_t sampler_draw(const SamplerPrefix *s, double target)
{
    double sum = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        sum = sum + sampler_weight(s, i);
        if (sum > target) return s->list[i].id;
    }
    return s->list[s->count - 1].id; /* rounding put the target behind the last */
}

static SamplerResult sampler_wants(uint32_t count)
{
    uint64_t k = (uint64_t)count * SAMPLER_ASK_GROWTH;
    return (SamplerResult){SAMPLER_WANTS_MORE, 0, k < UINT32_MAX ? (uint32_t)k : UINT32_MAX};
}

static SamplerResult sampler_choose(const SamplerParams *p, SamplerPrefix *s, double u)
{
    bool cuts = p->top_p < 1.0f || p->min_p > 0.0f;
    sampler_cut(p, s);
    if (!s->closed && cuts) return sampler_wants(s->count);
    double target = u * (cuts ? s->covered : s->total);
    if (!s->closed && s->covered <= target) return sampler_wants(s->count);
    return (SamplerResult){SAMPLER_TOKEN, sampler_draw(s, target), 0};
}

Error sampler_pick(const SamplerParams *p, const SamplerCandidate *candidates, uint32_t count, bool complete,
                   const LogSum *sum, uint64_t position, SamplerResult *out, Why *why)
{
    if (count == 0 || !sampler_finite(candidates[0].logit))
        return error_why(why, ERR_NOT_FINITE, "no token can be chosen: the best logit is %s",
                         count == 0                ? "missing"
                         : candidates[0].logit < 0 ? "-infinity: every token is forbidden."
                         : candidates[0].logit > 0 ? "infinity"
                                                   : "not a number");
    *out = (SamplerResult){SAMPLER_TOKEN, candidates[0].id, 0};
    if (sampler_is_greedy(p)) return OK;
    SamplerPrefix s = {
        .list = candidates, .count = count, .closed = complete, .scale = (double)sampler_scale(p)};
    while (!sampler_finite(candidates[s.count - 1].logit)) s.count--, s.closed = true; /* forbidden ones */
    if (p->top_k && p->top_k <= s.count) s.count = p->top_k, s.closed = true;
    if (p->top_k && !s.closed) {
        *out = (SamplerResult){SAMPLER_WANTS_MORE, 0, p->top_k};
        return OK;
    }
    if (sampler_needs_sum(p)) {
        ASSERT(sum != NULL);
        double log_sum = logsum_log(sum);
        if (!(log_sum - log_sum == 0))
            return error_why(why, ERR_NOT_FINITE, "the sum over all logits is not finite");
        s.total = elementary_exp64(log_sum - (double)candidates[0].logit * s.scale);
    } else {
        s.total = sampler_sum(&s);
    }
    *out = sampler_choose(p, &s, sampler_random(p->seed, position));
    return OK;
}
