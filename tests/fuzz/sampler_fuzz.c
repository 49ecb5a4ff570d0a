/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling over any logits with any parameters that sampler_check takes: the same token for one shard and for
 * several, for few candidates and for all, and never one that is forbidden. */
#include "base/bytes.h"
#include "feed.h"
#include "model/sampler.h"

enum { VOCABULARY = 96, BIASES = 6, SEEN = 24 };

typedef struct Case {
    SamplerParams p;
    SamplerBias bias[BIASES];
    SamplerSeen seen[SEEN];
    uint32_t seen_count, mask[VOCABULARY / 32];
    float logits[VOCABULARY], adjusted[VOCABULARY];
    bool masked;
} Case;

/* Any float, or one of the sizes that people use. */
static float take_float(Feed *f, float usual)
{
    uint32_t bits = feed_u32(f);
    float any;
    memcpy(&any, &bits, 4);
    return bits & 1 ? any : (float)(bits >> 1 & 0xff) / 255.0f * usual;
}

static void take_params(Feed *f, Case *c)
{
    c->p = sampler_defaults();
    uint32_t which = feed_u8(f);
    if (which & 1) c->p.temperature = take_float(f, 2.0f);
    if (which & 2) c->p.top_k = feed_below(f, VOCABULARY + 20);
    if (which & 4) c->p.top_p = take_float(f, 1.0f);
    if (which & 8) c->p.min_p = take_float(f, 1.0f);
    if (which & 16) c->p.repetition_penalty = take_float(f, 2.0f);
    if (which & 32) c->p.presence_penalty = take_float(f, 2.0f);
    if (which & 64) c->p.frequency_penalty = take_float(f, 2.0f);
    c->p.repeat_window = feed_u8(f);
    c->p.seed = feed_bits(f, 2);
    c->p.bias = c->bias;
    c->p.bias_count = feed_below(f, BIASES + 1);
    for (uint32_t i = 0; i < c->p.bias_count; i++)
        c->bias[i] = (SamplerBias){feed_below(f, VOCABULARY + 4), take_float(f, 100.0f)};
}

static void take_logits(Feed *f, Case *c)
{
    uint32_t tokens[SEEN], count = feed_below(f, SEEN + 1);
    for (uint32_t i = 0; i < count; i++) tokens[i] = feed_below(f, VOCABULARY);
    c->seen_count = sampler_count(&c->p, tokens, count, c->seen, SEEN);
    for (uint32_t i = 1; i < c->seen_count; i++) CHECK(c->seen[i - 1].id < c->seen[i].id);
    c->masked = feed_u8(f) & 1;
    for (uint32_t i = 0; i < VOCABULARY / 32; i++)
        c->mask[i] = c->masked ? feed_u32(f) : UINT32_MAX;
    uint32_t wild = feed_u8(f);
    for (uint32_t i = 0; i < VOCABULARY; i++)
        c->logits[i] = wild == 1 ? take_float(f, 30.0f) : (float)(int8_t)feed_u8(f) / 8.0f;
}

/* The k best of `shards` shards together; *sum is all of theirs. */
static uint32_t gather(const Case *c, uint32_t shards, uint32_t k, SamplerCandidate *best,
                       LogSum *sum)
{
    SamplerCandidate some[VOCABULARY], scratch[VOCABULARY];
    uint32_t count = 0, each = (VOCABULARY + shards - 1) / shards;
    logsum_start(sum);
    for (uint32_t first = 0; first < VOCABULARY; first += each) {
        float logits[VOCABULARY];
        uint32_t n = VOCABULARY - first < each ? VOCABULARY - first : each;
        memcpy(logits, c->logits + first, n * sizeof *logits);
        if (c->masked) sampler_mask(c->mask, first, logits, n);
        sampler_adjust(&c->p, c->seen, c->seen_count, first, logits, n);
        logsum_add(sum, logits, n, sampler_scale(&c->p));
        uint32_t got = sampler_top(logits, n, first, k, some);
        CHECK(got == (k < n ? k : n));
        count = sampler_merge(best, count, some, got, k, scratch);
    }
    for (uint32_t i = 1; i < count; i++)
        CHECK(!(best[i - 1].logit < best[i].logit) &&
              (best[i - 1].logit != best[i].logit || best[i - 1].id < best[i].id));
    return count;
}

static Error pick(const Case *c, uint32_t shards, uint32_t k, uint64_t position, SamplerResult *out)
{
    SamplerCandidate best[VOCABULARY];
    LogSum sum;
    Why why = {{0}};
    for (;;) {
        uint32_t count = gather(c, shards, k, best, &sum);
        Error error =
            sampler_pick(&c->p, best, count, count == VOCABULARY, &sum, position, out, &why);
        if (error != OK) {
            CHECK(error == ERR_NOT_FINITE && why.text[0]);
            return error;
        }
        if (out->verdict == SAMPLER_TOKEN) return OK;
        CHECK(out->wants_k > k && k < VOCABULARY); /* so it ends */
        k = out->wants_k < VOCABULARY ? out->wants_k : VOCABULARY;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Feed f = {data, size};
    Case c;
    SamplerResult one, other;
    Why why = {{0}};
    take_params(&f, &c);
    if (sampler_check(&c.p, VOCABULARY, &why) != OK) {
        CHECK(why.text[0]);
        return 0;
    }
    take_logits(&f, &c);
    uint64_t position = feed_u8(&f);
    uint32_t first = sampler_first_k(&c.p, VOCABULARY);
    CHECK(first >= 1 && first <= VOCABULARY);
    Error a = pick(&c, 1, VOCABULARY, position, &one);
    Error b = pick(&c, 1 + feed_below(&f, 5), first, position, &other);
    CHECK(a == b && (a != OK || one.id == other.id));
    if (a != OK) return 0;
    CHECK(one.id < VOCABULARY && (c.mask[one.id / 32] >> one.id % 32 & 1));
    for (uint32_t i = 0; i < c.p.bias_count; i++)
        CHECK(c.bias[i].id != one.id || c.bias[i].bias > -100.0f);
    return 0;
}
