/* SPDX-License-Identifier: Apache-2.0 */
/* The operators, written once over vectors of OPS_LANES floats and compiled once per instruction set by ops_X.c, which
 * defines before it includes this file:
 *
 *   OPS_ISA, OPS_TABLE     the table's instruction set and name
 *   OPS_LANES              4, 8 or 16: the machine's width
 *   OPS_TILE               queries that share one pass over a block of keys or values
 *   OPS_SCORE_VECTORS      vectors of positions per query in that pass, OPS_VALUE_VECTORS the same in dimensions
 *   OPS_VEC_FROM_F16(p)    optional: OPS_LANES halves at `p`, expanded exactly
 *   OPS_VEC_FROM_BYTES(p)  optional: OPS_LANES int8 at `p` as floats
 *   OPS_READS_BYTES        optional: tiles read a q8_0 cache without expanding it first
 *
 * The width changes no bit: lanes are independent elements everywhere except in two sums, and those are defined over 16
 * lanes and a fixed tree (docs/format/numerics-ops.md) and computed with 16 / OPS_LANES vectors. Attention:
 *
 *   block of 64 keys      scores[q][64] = q . k         lanes are positions, one accumulator per score in order of dims
 *                         weights = exp(score - max)    running maximum m and sum l per query
 *   block of 64 values    out[q][d] += weight * v       lanes are dimensions, positions in order
 *
 * A tile of queries shares each loaded key or value vector. Not a header to include anywhere else. */
#ifndef COBORD_MODEL_OPS_BODY_H
#define COBORD_MODEL_OPS_BODY_H
#ifdef OPS_LANES /* nothing without the machine */

#include <string.h>

#include "model/ops.h"

#if defined(__clang__)
#define OPS_UNROLL _Pragma("clang loop unroll(full)")
#else
#define OPS_UNROLL _Pragma("GCC unroll 16")
#endif
#define OPS_INLINE static inline __attribute__((always_inline))

typedef float Vec __attribute__((vector_size(4 * OPS_LANES)));
typedef int32_t VecInt __attribute__((vector_size(4 * OPS_LANES)));
typedef uint32_t VecBits __attribute__((vector_size(4 * OPS_LANES)));
typedef uint16_t VecHalf __attribute__((vector_size(2 * OPS_LANES)));
typedef int8_t VecByte __attribute__((vector_size(OPS_LANES)));
typedef float VecAt __attribute__((vector_size(4 * OPS_LANES), aligned(4), may_alias));
typedef uint16_t VecHalfAt __attribute__((vector_size(2 * OPS_LANES), aligned(2), may_alias));
typedef int8_t VecByteAt __attribute__((vector_size(OPS_LANES), aligned(1), may_alias));

enum {
    OPS_SUM_LANES = 16,
    OPS_SUM_VECTORS = OPS_SUM_LANES / OPS_LANES,
    OPS_POSITIONS = CACHE_BLOCK_POSITIONS,
    OPS_SCALE_DIMS = 32 /* dims that share a scale in a q8_0 cache */
};

/* ---- vectors ------------------------------------------------------------------------------------------------- */

OPS_INLINE Vec ops_vec_load(const float *p) { return (Vec) * (const VecAt *)p; }
OPS_INLINE void ops_vec_store(float *p, Vec v) { *(VecAt *)p = (VecAt)v; }
OPS_INLINE Vec ops_vec_all(float x) { return x - (Vec){0}; } /* x - 0 is x, for -0 too */
OPS_INLINE VecBits ops_vec_all_bits(uint32_t x) { return x - (VecBits){0}; }

/* Lanes where `mask` (all ones or zeros) is set from a, else from b. */
OPS_INLINE Vec ops_vec_pick(VecInt mask, Vec a, Vec b)
{
    return (Vec)(((VecInt)a & mask) | ((VecInt)b & ~mask));
}

OPS_INLINE Vec ops_vec_max(Vec a, Vec b) { return ops_vec_pick((VecInt)(a > b), a, b); }

/* The first `count` lanes, zeros behind. */
OPS_INLINE Vec ops_vec_load_part(const float *p, uint32_t count)
{
    float lane[OPS_LANES] = {0};
    memcpy(lane, p, count * sizeof *p);
    return ops_vec_load(lane);
}

OPS_INLINE void ops_vec_store_part(float *p, Vec v, uint32_t count)
{
    float lane[OPS_LANES];
    ops_vec_store(lane, v);
    memcpy(p, lane, count * sizeof *p);
}

/* elementary_exp, lane by lane. */
OPS_INLINE Vec ops_vec_exp(Vec x)
{
    const Vec round = ops_vec_all(12582912.0f);
    Vec t = x * ops_vec_all(1.44269504f) + round;
    Vec n = t - round;
    Vec r = (x - n * ops_vec_all(0.693359375f)) - n * ops_vec_all(-2.12194440e-4f);
    Vec p = ops_vec_all(0x1.6d11fep-10f);
    p = p * r + ops_vec_all(0x1.120c62p-7f);
    p = p * r + ops_vec_all(0x1.555518p-5f);
    p = p * r + ops_vec_all(0x1.5554dcp-3f);
    p = p * r + ops_vec_all(0.5f);
    Vec y = (p * (r * r) + r) + ops_vec_all(1.0f);
    VecBits bits = (VecBits)y + (((VecBits)t - (VecBits)round) << 23);
    bits &= ~(VecBits)(x < ops_vec_all(-87.3f));
    y = ops_vec_pick((VecInt)(x > ops_vec_all(88.72283f)), (Vec)ops_vec_all_bits(0x7f800000u), (Vec)bits);
    return ops_vec_pick((VecInt)(x != x), x, y);
}

/* Sum of 16 lanes: 8 + 8, then 4 + 4, 2 + 2, 1 + 1. */
OPS_INLINE float ops_sum_tree(const float lane[OPS_SUM_LANES])
{
    float a[8], b[4];
    for (int i = 0; i < 8; i++) a[i] = lane[i] + lane[i + 8];
    for (int i = 0; i < 4; i++) b[i] = a[i] + a[i + 4];
    return (b[0] + b[2]) + (b[1] + b[3]);
}

/* ---- halves -------------------------------------------------------------------------------------------------- */

#ifndef OPS_VEC_FROM_F16
/* Exact, subnormals included: the half's 15 bits moved to a float's place are too small by 2^112, whatever they are;
 * infinities and NaNs get the exponent that the product does not give them. */
OPS_INLINE Vec ops_vec_from_f16(const uint16_t *p)
{
    VecBits h = __builtin_convertvector((VecHalf) * (const VecHalfAt *)p, VecBits);
    VecBits magnitude = (h & 0x7fffu) << 13;
    VecBits bits = (VecBits)((Vec)magnitude * ops_vec_all(0x1p112f));
    bits |= (VecBits)(magnitude >= 0x0f800000u) & 0x7f800000u;
    return (Vec)(bits | (h & 0x8000u) << 16);
}
#define OPS_VEC_FROM_F16(p) ops_vec_from_f16(p)
#endif

/* To nearest even. Normal: the exponent is moved by 112 and 13 bits are rounded off by an integer addition. Subnormal:
 * adding 0.5 lets the float unit round at 2^-24. From 65520 on: infinity. */
OPS_INLINE void ops_vec_to_f16(uint16_t *p, Vec x)
{
    VecBits bits = (VecBits)x, magnitude = bits & 0x7fffffffu;
    VecBits normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    VecBits small = (VecBits)((Vec)magnitude + ops_vec_all(0.5f)) - 0x3f000000u;
    VecBits is_small = (VecBits)(magnitude < 0x38800000u), is_large = (VecBits)(magnitude >= 0x477ff000u);
    VecBits h = (small & is_small) | (normal & ~is_small);
    h = (0x7c00u & is_large) | (h & ~is_large);
    h |= (VecBits)(magnitude > 0x7f800000u) & 0x0200u;
    h |= (bits >> 16) & 0x8000u;
    *(VecHalfAt *)p = (VecHalfAt) __builtin_convertvector(h, VecHalf);
}

#ifndef OPS_VEC_FROM_BYTES
OPS_INLINE Vec ops_vec_from_bytes(const int8_t *p)
{
    return __builtin_convertvector(__builtin_convertvector((VecByte) * (const VecByteAt *)p, VecInt), Vec);
}
#define OPS_VEC_FROM_BYTES(p) ops_vec_from_bytes(p)
#endif

/* ---- elementwise --------------------------------------------------------------------------------------------- */

static float ops_mean_of_squares(const float *x, uint32_t n)
{
    Vec sum[OPS_SUM_VECTORS] = {{0}};
    float lane[OPS_SUM_LANES];
    uint32_t i = 0;
    for (; i + OPS_SUM_LANES <= n; i += OPS_SUM_LANES) {
        OPS_UNROLL
        for (int v = 0; v < OPS_SUM_VECTORS; v++) {
            Vec a = ops_vec_load(x + i + v * OPS_LANES);
            sum[v] = sum[v] + a * a;
        }
    }
    for (int v = 0; v < OPS_SUM_VECTORS; v++) ops_vec_store(lane + v * OPS_LANES, sum[v]);
    for (uint32_t j = 0; i < n; i++, j++) lane[j] = lane[j] + x[i] * x[i];
    return ops_sum_tree(lane) / (float)n;
}

static void ops_rms_norm(const float *x, const float *weight, uint32_t n, float epsilon, float *out)
{
    float mean = ops_mean_of_squares(x, n);
    /* mean - mean is 0, or NaN where the sum overflowed: a row that is too large must not come out as zeros. */
    float r = 1.0f / __builtin_sqrtf(mean + epsilon) + (mean - mean);
    uint32_t i = 0;
    for (; i + OPS_LANES <= n; i += OPS_LANES)
        ops_vec_store(out + i, (ops_vec_load(x + i) * ops_vec_all(r)) * ops_vec_load(weight + i));
    for (; i < n; i++) out[i] = (x[i] * r) * weight[i];
}

static void ops_add(float *x, const float *y, uint32_t n)
{
    uint32_t i = 0;
    for (; i + OPS_LANES <= n; i += OPS_LANES) ops_vec_store(x + i, ops_vec_load(x + i) + ops_vec_load(y + i));
    for (; i < n; i++) x[i] = x[i] + y[i];
}

OPS_INLINE Vec ops_vec_gate(Gate gate, Vec g, Vec u)
{
    Vec t = -g;
    if (gate == GATE_GELU_TANH) {
        Vec cube = (g * g) * g;
        t = -((g + cube * ops_vec_all(0.044715f)) * ops_vec_all(1.59576912f));
    }
    return (g / (ops_vec_all(1.0f) + ops_vec_exp(t))) * u;
}

OPS_INLINE void ops_gate_kind(Gate gate, float *g, const float *u, uint32_t n)
{
    uint32_t i = 0;
    for (; i + OPS_LANES <= n; i += OPS_LANES)
        ops_vec_store(g + i, ops_vec_gate(gate, ops_vec_load(g + i), ops_vec_load(u + i)));
    if (i == n) return;
    Vec y = ops_vec_gate(gate, ops_vec_load_part(g + i, n - i), ops_vec_load_part(u + i, n - i));
    ops_vec_store_part(g + i, y, n - i);
}

static void ops_gate(Gate gate, float *g, const float *u, uint32_t n)
{
    if (gate == GATE_SILU) ops_gate_kind(GATE_SILU, g, u, n);
    else ops_gate_kind(GATE_GELU_TANH, g, u, n);
}

static void ops_rope_halves(float *low, float *high, const float *cosine, const float *sine, uint32_t half)
{
    uint32_t i = 0;
    for (; i + OPS_LANES <= half; i += OPS_LANES) {
        Vec a = ops_vec_load(low + i), b = ops_vec_load(high + i);
        Vec c = ops_vec_load(cosine + i), s = ops_vec_load(sine + i);
        ops_vec_store(low + i, a * c - b * s);
        ops_vec_store(high + i, a * s + b * c);
    }
    for (; i < half; i++) {
        float a = low[i], b = high[i];
        low[i] = a * cosine[i] - b * sine[i];
        high[i] = a * sine[i] + b * cosine[i];
    }
}

static void ops_rope(RopeKind kind, float *head, const float *cosine, const float *sine, uint32_t rope_dim)
{
    uint32_t half = rope_dim / 2;
    if (kind == ROPE_HALVES) {
        ops_rope_halves(head, head + half, cosine, sine, half);
        return;
    }
    for (uint32_t i = 0; i < half; i++) {
        float a = head[2 * i], b = head[2 * i + 1];
        head[2 * i] = a * cosine[i] - b * sine[i];
        head[2 * i + 1] = a * sine[i] + b * cosine[i];
    }
}

static bool ops_all_finite(const float *x, uint32_t n)
{
    VecInt bad = {0};
    uint32_t i = 0, lane_bad = 0;
    for (; i + OPS_LANES <= n; i += OPS_LANES)
        bad |= (VecInt)(((VecBits)ops_vec_load(x + i) & 0x7f800000u) == 0x7f800000u);
    for (int j = 0; j < OPS_LANES; j++) lane_bad |= (uint32_t)bad[j];
    for (; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        lane_bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return lane_bad == 0;
}

#include "model/ops_cache_body.h"
#include "model/ops_attention_body.h"

extern const Ops OPS_TABLE;
const Ops OPS_TABLE = {
    .isa = OPS_ISA,
    .rms_norm = ops_rms_norm,
    .add = ops_add,
    .gate = ops_gate,
    .rope = ops_rope,
    .cache_store = ops_cache_store,
    .attention = ops_attention,
    .attention_rows = ops_attention_rows,
    .all_finite = ops_all_finite,
};

#endif
#endif
