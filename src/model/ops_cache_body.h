/* SPDX-License-Identifier: Apache-2.0 */
/* Part of ops_body.h: where things lie in a block of the attention cache, how a position is written, how 64 keys or
 * values of one head are expanded to float32.
 *
 *   f16:   | K [kv_heads][dim][64] | V [kv_heads][64][dim] |                                              2 bytes each
 *   q8_0:  | K [kv_heads][dim][64] | V [kv_heads][64][dim] | Ks [kv_heads][dim/32][64] | Vs [kv_heads][64][dim/32] |
 *            int8                                             f32 scales
 *
 * An f16 element stands for itself, a q8_0 element for scale * element, rounded to f32. */
#ifndef COBORD_MODEL_OPS_CACHE_BODY_H
#define COBORD_MODEL_OPS_CACHE_BODY_H
#ifdef OPS_LANES /* nothing without the machine */

typedef struct OpsBlock {
    const uint8_t *k, *v; /* of one kv head: f16 or int8 */
    const float *k_scale, *v_scale;
} OpsBlock;

OPS_INLINE OpsBlock ops_cache_block(CacheType type, const uint8_t *block, uint32_t kv_heads, uint32_t kv_head,
                                    uint32_t dim)
{
    size_t element = type == CACHE_F16 ? 2 : 1, head = (size_t)dim * OPS_POSITIONS;
    const uint8_t *v = block + head * element * kv_heads;
    const float *scales = (const float *)(const void *)(block + 2 * head * element * kv_heads);
    size_t head_scales = head / OPS_SCALE_DIMS;
    return (OpsBlock){block + head * element * kv_head, v + head * element * kv_head,
                      scales + head_scales * kv_head, scales + head_scales * (kv_heads + kv_head)};
}

/* One position of f16: `step` halves from one element to the next. False when one is too large. */
static bool ops_cache_put_f16(uint16_t *at, size_t step, const float *x, uint32_t dim)
{
    uint16_t half[OPS_LANES];
    uint32_t over = 0;
    for (uint32_t d = 0; d < dim; d += OPS_LANES) {
        ops_vec_to_f16(half, ops_vec_load(x + d));
        for (uint32_t j = 0; j < OPS_LANES; j++) {
            over |= (uint32_t)((half[j] & 0x7c00u) == 0x7c00u);
            at[(d + j) * step] = half[j];
        }
    }
    return over == 0;
}

/* 32 floats: scale = max / 127; element = round(x / scale), to nearest even, in -127..127. */
static float ops_cache_quantize(const float *x, int8_t out[OPS_SCALE_DIMS])
{
    Vec most = {0};
    float lane[OPS_LANES], max = 0;
    for (int i = 0; i < OPS_SCALE_DIMS; i += OPS_LANES)
        most = ops_vec_max((Vec)((VecBits)ops_vec_load(x + i) & 0x7fffffffu), most);
    ops_vec_store(lane, most);
    for (int j = 0; j < OPS_LANES; j++) max = lane[j] > max ? lane[j] : max;
    float scale = max / 127.0f;
    if (scale == 0) {
        memset(out, 0, OPS_SCALE_DIMS);
        return 0;
    }
    const Vec round = ops_vec_all(12582912.0f), most_q = ops_vec_all(127.0f);
    for (int i = 0; i < OPS_SCALE_DIMS; i += OPS_LANES) {
        Vec q = (ops_vec_load(x + i) / ops_vec_all(scale) + round) - round;
        q = -ops_vec_max(-ops_vec_max(q, -most_q), -most_q); /* a subnormal scale can be far too small */
        VecInt whole = __builtin_convertvector(q, VecInt);
        for (int j = 0; j < OPS_LANES; j++) out[i + j] = (int8_t)whole[j];
    }
    return scale;
}

static void ops_cache_put_q8(int8_t *at, size_t step, float *scale, size_t scale_step, const float *x,
                             uint32_t dim)
{
    int8_t q[OPS_SCALE_DIMS];
    for (uint32_t d = 0; d < dim; d += OPS_SCALE_DIMS) {
        scale[d / OPS_SCALE_DIMS * scale_step] = ops_cache_quantize(x + d, q);
        for (uint32_t j = 0; j < OPS_SCALE_DIMS; j++) at[(d + j) * step] = q[j];
    }
}

static bool ops_cache_store(CacheType type, uint8_t *block, uint32_t position, uint32_t kv_heads, uint32_t dim,
                            const float *k, const float *v)
{
    if (!ops_all_finite(k, kv_heads * dim) || !ops_all_finite(v, kv_heads * dim)) return false;
    bool fits = true;
    for (uint32_t head = 0; head < kv_heads; head++, k += dim, v += dim) {
        OpsBlock b = ops_cache_block(type, block, kv_heads, head, dim);
        size_t k_at = (size_t)(b.k - block), v_at = (size_t)(b.v - block);
        if (type == CACHE_F16) {
            fits &= ops_cache_put_f16((uint16_t *)(void *)(block + k_at) + position, OPS_POSITIONS, k, dim);
            fits &= ops_cache_put_f16((uint16_t *)(void *)(block + v_at) + (size_t)position * dim, 1, v, dim);
            continue;
        }
        float *k_scale = (float *)(void *)(block + ((const uint8_t *)b.k_scale - block));
        float *v_scale = (float *)(void *)(block + ((const uint8_t *)b.v_scale - block));
        ops_cache_put_q8((int8_t *)block + k_at + position, OPS_POSITIONS, k_scale + position, OPS_POSITIONS, k,
                         dim);
        ops_cache_put_q8((int8_t *)block + v_at + (size_t)position * dim, 1,
                         v_scale + (size_t)position * (dim / OPS_SCALE_DIMS), 1, v, dim);
    }
    return fits;
}

/* `count` halves to floats. */
static void ops_cache_expand_f16(const uint8_t *in, float *out, size_t count)
{
    const uint16_t *half = (const uint16_t *)(const void *)in;
    for (size_t i = 0; i < count; i += OPS_LANES) ops_vec_store(out + i, OPS_VEC_FROM_F16(half + i));
}

/* Keys: a scale per position, the same for 32 rows of dims. */
static void ops_cache_expand_k8(const uint8_t *in, const float *scale, float *out, uint32_t dim)
{
    const int8_t *q = (const int8_t *)in;
    for (uint32_t d = 0; d < dim; d++) {
        const float *s = scale + (size_t)(d / OPS_SCALE_DIMS) * OPS_POSITIONS;
        for (uint32_t p = 0; p < OPS_POSITIONS; p += OPS_LANES) {
            size_t at = (size_t)d * OPS_POSITIONS + p;
            ops_vec_store(out + at, ops_vec_load(s + p) * OPS_VEC_FROM_BYTES(q + at));
        }
    }
}

/* Values of positions first..last: a scale per 32 dims of each. */
static void ops_cache_expand_v8(const uint8_t *in, const float *scale, float *out, uint32_t dim, uint32_t first,
                                uint32_t last)
{
    const int8_t *q = (const int8_t *)in;
    for (size_t i = (size_t)first * dim; i < (size_t)(last + 1) * dim; i += OPS_SCALE_DIMS) {
        Vec s = ops_vec_all(scale[i / OPS_SCALE_DIMS]);
        OPS_UNROLL
        for (size_t j = 0; j < OPS_SCALE_DIMS; j += OPS_LANES)
            ops_vec_store(out + i + j, s * OPS_VEC_FROM_BYTES(q + i + j));
    }
}

#endif
#endif
