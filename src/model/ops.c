/* SPDX-License-Identifier: Apache-2.0 */
/* What the operator tables share: which exist in this build, sizes, and rope's tables, which are computed in f64 once
 * per model and once per position, so that no instruction set has a say in them. */
#include "model/ops.h"

#include "model/elementary.h"

extern const Ops OPS_SCALAR, OPS_AVX2, OPS_AVX512, OPS_NEON, OPS_SIMD128;

const Ops *ops_for(Isa isa)
{
    switch (isa) {
    case ISA_SCALAR: return &OPS_SCALAR;
#if defined(__x86_64__)
    case ISA_AVX2:
    case ISA_AVXVNNI: return &OPS_AVX2; /* nothing for that one to add */
    case ISA_AVX512: return &OPS_AVX512;
#elif defined(__aarch64__)
    case ISA_NEON:
    case ISA_I8MM: return &OPS_NEON; /* that one is about integer matrices */
#elif defined(__wasm__)
    case ISA_SIMD128:
    case ISA_RELAXED: return &OPS_SIMD128; /* no float instruction of relaxed SIMD keeps the bits */
#endif
    default: return NULL;
    }
}

size_t ops_cache_block_bytes(CacheType type, uint32_t kv_heads, uint32_t head_dim)
{
    size_t elements = (size_t)2 * kv_heads * head_dim * CACHE_BLOCK_POSITIONS;
    if (type == CACHE_F16) return elements * 2;
    if (head_dim % 32) return 0;
    return elements + elements / 32 * sizeof(float);
}

size_t ops_attention_rows_scratch_floats(uint32_t rows, uint32_t group_heads, uint32_t head_dim)
{
    size_t queries = (size_t)rows * group_heads;
    size_t floats = (size_t)CACHE_BLOCK_POSITIONS * head_dim + (queries + 8) * head_dim +
                    queries * CACHE_BLOCK_POSITIONS + 3 * queries;
    return (floats + 15) & ~(size_t)15;
}

static const double OPS_TWO_PI = 0x1.921fb54442d18p+2;

/* YaRN: the dimension pair whose wave turns `turns` times within the original context. */
static double ops_yarn_pair(const Hyper *h, double base, double turns)
{
    double ratio = (double)h->rope_original_context / (turns * OPS_TWO_PI);
    return (double)h->rope_dim * elementary_log64(ratio) / (2.0 * elementary_log64(base));
}

/* Fast pairs keep their frequency, slow ones are stretched by the factor, those between are mixed on a ramp. */
static void ops_yarn_stretch(const Hyper *h, double base, double *frequency, uint32_t half)
{
    double low = ops_yarn_pair(h, base, 32.0), high = ops_yarn_pair(h, base, 1.0),
           last = (double)h->rope_dim - 1;
    low = low > 0 && low < last ? (double)(uint32_t)low : low > 0 ? last : 0;
    high = high > 0 && high < last ? last - (double)(uint32_t)(last - high) : high > 0 ? last : 0;
    double span = high - low > 0.001 ? high - low : 0.001;
    for (uint32_t i = 0; i < half; i++) {
        double ramp = ((double)i - low) / span;
        double slow = ramp < 0 ? 0.0 : ramp > 1 ? 1.0 : ramp;
        frequency[i] = frequency[i] * (1.0 - slow) + frequency[i] / (double)h->rope_scale_factor * slow;
    }
}

void ops_rope_frequencies(const Hyper *h, bool local, const float *factors, double *out, float *magnitude)
{
    double base = (double)(local ? h->rope_base_local : h->rope_base), log_base = elementary_log64(base);
    uint32_t half = h->rope_dim / 2;
    *magnitude = 1.0f;
    for (uint32_t i = 0; i < half; i++)
        out[i] = elementary_exp64(-(2.0 * (double)i / (double)h->rope_dim) * log_base);
    if (local) return; /* sliding layers are never stretched */
    for (uint32_t i = 0; factors && i < half; i++) out[i] = out[i] / (double)factors[i];
    if (h->rope_scaling == ROPE_SCALE_LINEAR)
        for (uint32_t i = 0; i < half; i++) out[i] = out[i] / (double)h->rope_scale_factor;
    if (h->rope_scaling == ROPE_SCALE_YARN) {
        ops_yarn_stretch(h, base, out, half);
        *magnitude = (float)(1.0 + 0.1 * elementary_log64((double)h->rope_scale_factor));
    }
}

void ops_rope_position(const double *frequencies, uint32_t half_dim, float magnitude, uint32_t position,
                       float *cosine, float *sine)
{
    for (uint32_t i = 0; i < half_dim; i++) {
        double s, c;
        elementary_sincos64((double)position * frequencies[i], &s, &c);
        cosine[i] = (float)(c * (double)magnitude);
        sine[i] = (float)(s * (double)magnitude);
    }
}
