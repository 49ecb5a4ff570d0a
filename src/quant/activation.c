/* SPDX-License-Identifier: Apache-2.0 */
/* The reference quantizers of activation rows: docs/format/numerics.md, section 3, line by line. */
#include "quant/activation.h"

#include <stdbool.h>

#include "base/bytes.h"
#include "quant/numerics.h"

static float float_from_bits(uint32_t bits) { return bytes_load_f32(&bits); }

static uint32_t magnitude_max(const float *x, uint32_t n)
{
    uint32_t max = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t magnitude = bytes_load32(x + i) & 0x7fffffff;
        if (magnitude > max) max = magnitude;
    }
    return max;
}

/* Adding 1.5 * 2^23 leaves the nearest even integer in the low bits. */
static int8_t round_clamped(float x)
{
    float shifted = x + 0x1.8p23f;
    int32_t q = (int32_t)(bytes_load32(&shifted) - 0x4b400000u);
    return (int8_t)(q > ACTIVATION_MAX ? ACTIVATION_MAX : q < -ACTIVATION_MAX ? -ACTIVATION_MAX : q);
}

static const float NOT_A_NUMBER = __builtin_nanf("");

static int32_t sum_of(const int8_t *q, uint32_t n)
{
    int32_t sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += q[i];
    return sum;
}

static void lanes_of(const int8_t *q, uint32_t n, int16_t out[2])
{
    int32_t sums[2] = {0, 0};
    for (uint32_t i = 0; i < n; i++) sums[i >> 1 & 1] += q[i];
    out[0] = (int16_t)-sums[0];
    out[1] = (int16_t)-sums[1];
}

void activation_finish_32(Activation32 *a, float scale)
{
    int32_t sum = sum_of(a->q, 32);
    a->scale = scale;
    a->scale_sum = scale * (float)sum;
    a->negative_sum = -sum;
    lanes_of(a->q, 32, a->negative_lanes);
}

void activation_flat_32(Activation32 *a, float scale)
{
    memset(a, 0, sizeof *a);
    a->scale = scale;
    a->scale_sum = scale * 0.0f;
}

static bool is_wide(const int8_t *q)
{
    int32_t positive = 0, negative = 0;
    for (uint32_t i = 0; i < 32; i++)
        if (q[i] > 0) positive += q[i];
        else negative -= q[i];
    return positive > ACTIVATION_NARROW || negative > ACTIVATION_NARROW;
}

void activation_finish_256(Activation256 *a, float scale, const uint8_t k[8])
{
    a->scale = scale;
    a->wide = 0;
    for (uint32_t j = 0; j < 8; j++) {
        int32_t half[2];
        for (uint32_t h = 0; h < 2; h++) {
            uint32_t n = 2 * j + h;
            half[h] = sum_of(a->q + 16 * n, 16);
            a->negative_half_sums[n] = -half[h];
            a->k_half_sums[n] = (int16_t)(k[j] * half[h]);
            lanes_of(a->q + 16 * n, 16, a->negative_half_lanes + 2 * n);
            a->k_twice[n] = k[j];
        }
        a->k[j] = k[j];
        a->k_sums[j] = (int16_t)(uint16_t)(uint32_t)(k[j] * (half[0] + half[1]));
        a->wide |= is_wide(a->q + 32 * j);
    }
}

void activation_flat_256(Activation256 *a, float scale)
{
    static const uint8_t ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    memset(a->q, 0, sizeof a->q);
    activation_finish_256(a, scale, ones);
}

void activation_quantize_float(const float *x, uint32_t cols, uint8_t *out)
{
    memcpy(out, x, cols * sizeof *x);
}

static void quantize_block_32(const float *x, Activation32 *a)
{
    uint32_t bits = magnitude_max(x, 32);
    float max = float_from_bits(bits);
    if (bits >= ACTIVATION_NOT_FINITE) activation_flat_32(a, NOT_A_NUMBER);
    else if (max < NUMERICS_TINY) activation_flat_32(a, 0.0f);
    else {
        float inverse = 127.0f / max;
        for (uint32_t i = 0; i < 32; i++) a->q[i] = round_clamped(x[i] * inverse);
        activation_finish_32(a, max / 127.0f);
    }
}

void activation_quantize_32(const float *x, uint32_t cols, uint8_t *out)
{
    Activation32 *a = (Activation32 *)(void *)out;
    for (uint32_t at = 0; at < cols; at += 32) quantize_block_32(x + at, a++);
}

static void quantize_block_256(const float *x, Activation256 *a)
{
    uint32_t bits = magnitude_max(x, 256);
    float max = float_from_bits(bits);
    if (bits >= ACTIVATION_NOT_FINITE) {
        activation_flat_256(a, NOT_A_NUMBER);
        return;
    }
    if (max < NUMERICS_TINY) {
        activation_flat_256(a, 0.0f);
        return;
    }
    float u = 15.0f / max, v = 1905.0f / max;
    uint8_t k[8];
    for (uint32_t j = 0; j < 8; j++) {
        k[j] = activation_k(float_from_bits(magnitude_max(x + 32 * j, 32)), u);
        float s = v / (float)k[j];
        for (uint32_t i = 32 * j; i < 32 * j + 32; i++) a->q[i] = round_clamped(x[i] * s);
    }
    activation_finish_256(a, max / 1905.0f, k);
}

void activation_quantize_256(const float *x, uint32_t cols, uint8_t *out)
{
    Activation256 *a = (Activation256 *)(void *)out;
    for (uint32_t at = 0; at < cols; at += 256) quantize_block_256(x + at, a++);
}
