/* SPDX-License-Identifier: Apache-2.0 */
/* docs/format/numerics.md, section 3, 32 elements at a time. fcvtns is round() of that page; sums of
 * neighbours come as int16 (elements 0 1 | elements 2 3 of a group), which are the lanes that
 * activation.h stores. */
#include "quant/quantize_neon.h"

#include <arm_neon.h>
#include <stdbool.h>

#include "base/bytes.h"
#include "quant/activation.h"
#include "quant/numerics.h"
#include "quant/unpack.h"
#include "quant/unroll.h"

/* 32 numbers in order. */
typedef struct Quantized {
    int8x16_t half[2];
} Quantized;

UNPACK_INLINE uint32_t magnitude_max(const float *x)
{
    uint32x4_t max = vdupq_n_u32(0);
    UNROLL
    for (int i = 0; i < 32; i += 4)
        max = vmaxq_u32(
            max, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), vdupq_n_u32(0x7fffffff)));
    return vmaxvq_u32(max);
}

UNPACK_INLINE int16x4_t rounded(const float *x, float factor)
{
    return vqmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x), factor)));
}

/* Products rounded and held in -127..127. */
UNPACK_INLINE Quantized quantized(const float *x, float factor)
{
    Quantized q;
    UNROLL
    for (int h = 0; h < 2; h++, x += 16) {
        int16x8_t low = vcombine_s16(rounded(x, factor), rounded(x + 4, factor));
        int16x8_t high = vcombine_s16(rounded(x + 8, factor), rounded(x + 12, factor));
        int8x16_t all = vcombine_s8(vqmovn_s16(low), vqmovn_s16(high));
        q.half[h] = vmaxq_s8(all, vdupq_n_s8(-ACTIVATION_MAX));
    }
    return q;
}

/* Lanes 0 and 1: sums of the elements with index 0 or 1, and 2 or 3, modulo 4. */
UNPACK_INLINE int16x4_t lane_sums(int16x8_t pairs)
{
    int16x4_t four = vadd_s16(vget_low_s16(pairs), vget_high_s16(pairs));
    return vadd_s16(four, vext_s16(four, four, 2));
}
UNPACK_INLINE uint32_t negative_lanes(int16x4_t lanes)
{
    return vget_lane_u32(vreinterpret_u32_s16(vneg_s16(lanes)), 0);
}
UNPACK_INLINE int32_t lanes_total(int16x4_t lanes) { return vget_lane_s32(vpaddl_s16(lanes), 0); }

static void finish_32(Activation32 *a, Quantized q, float scale)
{
    int16x4_t lanes = lane_sums(vaddq_s16(vpaddlq_s8(q.half[0]), vpaddlq_s8(q.half[1])));
    int32_t sum = lanes_total(lanes);
    vst1q_s8(a->q, q.half[0]);
    vst1q_s8(a->q + 16, q.half[1]);
    a->scale = scale;
    a->scale_sum = scale * (float)sum;
    a->negative_sum = -sum;
    bytes_store32(a->negative_lanes, negative_lanes(lanes));
}

void quantize_neon_32(const float *x, uint32_t cols, uint8_t *out)
{
    Activation32 *a = (Activation32 *)(void *)out;
    for (uint32_t at = 0; at < cols; at += 32, a++) {
        uint32_t bits = magnitude_max(x + at);
        float max = bytes_load_f32(&bits);
        if (bits >= ACTIVATION_NOT_FINITE) activation_flat_32(a, __builtin_nanf(""));
        else if (max < NUMERICS_TINY) activation_flat_32(a, 0.0f);
        else finish_32(a, quantized(x + at, 127.0f / max), max / 127.0f);
    }
}

/* Positive and negated negative parts from the sum and the sum of magnitudes. */
UNPACK_INLINE bool is_wide(Quantized q, int32_t sum)
{
    int16x8_t pairs = vaddq_s16(vpaddlq_s8(vabsq_s8(q.half[0])), vpaddlq_s8(vabsq_s8(q.half[1])));
    int32_t magnitudes = vaddlvq_s16(pairs);
    return magnitudes + sum > 2 * ACTIVATION_NARROW || magnitudes - sum > 2 * ACTIVATION_NARROW;
}

/* Sub j: its q and everything that is summed from them. */
UNPACK_INLINE void finish_sub(Activation256 *a, uint32_t j, Quantized q, uint8_t k)
{
    int32_t sum = 0;
    UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t n = 2 * j + h;
        int16x4_t lanes = lane_sums(vpaddlq_s8(q.half[h]));
        int32_t half = lanes_total(lanes);
        vst1q_s8(a->q + 16 * n, q.half[h]);
        a->negative_half_sums[n] = -half;
        a->k_half_sums[n] = (int16_t)(k * half);
        a->k_twice[n] = k;
        bytes_store32(a->negative_half_lanes + 2 * n, negative_lanes(lanes));
        sum += half;
    }
    a->k[j] = k;
    a->k_sums[j] = (int16_t)(uint16_t)(uint32_t)(k * sum);
    a->wide |= is_wide(q, sum);
}

static void quantize_block_256(const float *x, Activation256 *a)
{
    uint32_t bits[8], bits_max = 0;
    for (uint32_t j = 0; j < 8; j++) {
        bits[j] = magnitude_max(x + 32 * j);
        if (bits[j] > bits_max) bits_max = bits[j];
    }
    float max = bytes_load_f32(&bits_max);
    if (bits_max >= ACTIVATION_NOT_FINITE) {
        activation_flat_256(a, __builtin_nanf(""));
        return;
    }
    if (max < NUMERICS_TINY) {
        activation_flat_256(a, 0.0f);
        return;
    }
    float u = 15.0f / max, v = 1905.0f / max;
    a->scale = max / 1905.0f;
    a->wide = 0;
    for (uint32_t j = 0; j < 8; j++) {
        uint8_t k = activation_k(bytes_load_f32(&bits[j]), u);
        finish_sub(a, j, quantized(x + 32 * j, v / (float)k), k);
    }
}

void quantize_neon_256(const float *x, uint32_t cols, uint8_t *out)
{
    Activation256 *a = (Activation256 *)(void *)out;
    for (uint32_t at = 0; at < cols; at += 256) quantize_block_256(x + at, a++);
}
