/* SPDX-License-Identifier: Apache-2.0 */
/* docs/format/numerics.md, section 3, 32 elements at a time.
 *
 * Rounding is the reference's: adding 1.5 * 2^23 leaves the nearest even integer in the low bits. Sums of neighbours
 * come as int16 (elements 0 1 | elements 2 3 of a group), which are the lanes that activation.h stores. */
#include "quant/quantize_simd128.h"

#include <stdbool.h>
#include <wasm_simd128.h>

#include "base/bytes.h"
#include "quant/activation.h"
#include "quant/numerics.h"
#include "quant/unpack.h"
#include "quant/unroll.h"

/* 32 numbers in order. */
typedef struct Quantized {
    v128_t half[2];
} Quantized;

UNPACK_INLINE uint32_t magnitude_max(const float *x)
{
    v128_t mask = wasm_i32x4_splat(0x7fffffff), max = wasm_i32x4_splat(0);
    UNROLL
    for (int i = 0; i < 32; i += 4) max = wasm_i32x4_max(max, wasm_v128_and(wasm_v128_load(x + i), mask));
    max = wasm_i32x4_max(max, wasm_i32x4_shuffle(max, max, 2, 3, 0, 1));
    max = wasm_i32x4_max(max, wasm_i32x4_shuffle(max, max, 1, 0, 3, 2));
    return (uint32_t)wasm_i32x4_extract_lane(max, 0);
}

UNPACK_INLINE v128_t rounded(const float *x, v128_t factor)
{
    v128_t shifted = wasm_f32x4_add(wasm_f32x4_mul(wasm_v128_load(x), factor), wasm_f32x4_splat(0x1.8p23f));
    return wasm_i32x4_sub(shifted, wasm_i32x4_splat(0x4b400000));
}

/* Products rounded and held in -127..127. */
UNPACK_INLINE Quantized quantized(const float *x, float factor)
{
    Quantized q;
    v128_t f = wasm_f32x4_splat(factor);
    UNROLL
    for (int h = 0; h < 2; h++, x += 16) {
        v128_t low = wasm_i16x8_narrow_i32x4(rounded(x, f), rounded(x + 4, f));
        v128_t high = wasm_i16x8_narrow_i32x4(rounded(x + 8, f), rounded(x + 12, f));
        q.half[h] = wasm_i8x16_max(wasm_i8x16_narrow_i16x8(low, high), wasm_i8x16_splat(-ACTIVATION_MAX));
    }
    return q;
}

/* Lanes 0 and 1: sums of the elements with index 0 or 1, and 2 or 3, modulo 4. */
UNPACK_INLINE v128_t lane_sums(v128_t pairs)
{
    pairs = wasm_i16x8_add(pairs, wasm_i32x4_shuffle(pairs, pairs, 2, 3, 0, 1));
    return wasm_i16x8_add(pairs, wasm_i32x4_shuffle(pairs, pairs, 1, 0, 3, 2));
}
UNPACK_INLINE uint32_t negative_lanes(v128_t lanes)
{
    return (uint32_t)wasm_i32x4_extract_lane(wasm_i16x8_neg(lanes), 0);
}
UNPACK_INLINE int32_t lanes_total(v128_t lanes)
{
    return wasm_i32x4_extract_lane(wasm_i32x4_extadd_pairwise_i16x8(lanes), 0);
}

static void finish_32(Activation32 *a, Quantized q, float scale)
{
    v128_t lanes = lane_sums(wasm_i16x8_add(wasm_i16x8_extadd_pairwise_i8x16(q.half[0]),
                                            wasm_i16x8_extadd_pairwise_i8x16(q.half[1])));
    int32_t sum = lanes_total(lanes);
    wasm_v128_store(a->q, q.half[0]);
    wasm_v128_store(a->q + 16, q.half[1]);
    a->scale = scale;
    a->scale_sum = scale * (float)sum;
    a->negative_sum = -sum;
    bytes_store32(a->negative_lanes, negative_lanes(lanes));
}

void quantize_simd128_32(const float *x, uint32_t cols, uint8_t *out)
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
    v128_t pairs = wasm_i16x8_add(wasm_u16x8_extadd_pairwise_u8x16(wasm_i8x16_abs(q.half[0])),
                                  wasm_u16x8_extadd_pairwise_u8x16(wasm_i8x16_abs(q.half[1])));
    int32_t magnitudes = lanes_total(lane_sums(pairs));
    return magnitudes + sum > 2 * ACTIVATION_NARROW || magnitudes - sum > 2 * ACTIVATION_NARROW;
}

/* Sub j: its q and everything that is summed from them. */
UNPACK_INLINE void finish_sub(Activation256 *a, uint32_t j, Quantized q, uint8_t k)
{
    int32_t sum = 0;
    UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t n = 2 * j + h;
        v128_t lanes = lane_sums(wasm_i16x8_extadd_pairwise_i8x16(q.half[h]));
        int32_t half = lanes_total(lanes);
        wasm_v128_store(a->q + 16 * n, q.half[h]);
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

void quantize_simd128_256(const float *x, uint32_t cols, uint8_t *out)
{
    Activation256 *a = (Activation256 *)(void *)out;
    for (uint32_t at = 0; at < cols; at += 256) quantize_block_256(x + at, a++);
}
