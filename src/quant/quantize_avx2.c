/* SPDX-License-Identifier: Apache-2.0 */
/* docs/format/numerics.md, section 3, 32 elements at a time.
 *
 * vcvtps2dq rounds to nearest even, as the reference does. Sums of four neighbours come from vpmaddubsw by ones:
 * int16 pairs (elements 0 1 | elements 2 3 of a group), which are the lanes that the kernels want. */
#include "quant/quantize_avx2.h"

#include <immintrin.h>

#include "base/bytes.h"
#include "quant/activation.h"
#include "quant/numerics.h"
#include "quant/unpack.h"

typedef struct Floats32 {
    __m256 part[4];
} Floats32;

UNPACK_INLINE Floats32 load_32(const float *x)
{
    return (Floats32){{_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8), _mm256_loadu_ps(x + 16), _mm256_loadu_ps(x + 24)}};
}

/* Largest |x| as integer bits per lane, then of all lanes. */
UNPACK_INLINE __m256i magnitude_lanes(const Floats32 *v)
{
    __m256i mask = _mm256_set1_epi32(0x7fffffff), max = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++)
        max = _mm256_max_epi32(max, _mm256_and_si256(_mm256_castps_si256(v->part[i]), mask));
    return max;
}
UNPACK_INLINE uint32_t max_of_lanes(__m256i v)
{
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

UNPACK_INLINE __m256i rounded(const Floats32 *v, int part, __m256 factor)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(v->part[part], factor));
}

/* 32 products rounded and held in -127..127, in order. */
UNPACK_INLINE __m256i quantized(const Floats32 *v, float factor)
{
    __m256 f = _mm256_set1_ps(factor);
    __m256i ab = _mm256_packs_epi32(rounded(v, 0, f), rounded(v, 1, f)); /* a0-3 b0-3 a4-7 b4-7 */
    __m256i cd = _mm256_packs_epi32(rounded(v, 2, f), rounded(v, 3, f));
    __m256i mixed = _mm256_packs_epi16(ab, cd);
    __m256i q = _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    return _mm256_max_epi8(q, _mm256_set1_epi8(-ACTIVATION_MAX));
}

/* Both 128-bit halves: four groups' (lane 0, lane 1) int16 pairs added up, the same in every pair of the half. */
UNPACK_INLINE __m256i lane_sums(__m256i q)
{
    __m256i s = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    s = _mm256_add_epi16(s, _mm256_shuffle_epi32(s, 0x4e));
    return _mm256_add_epi16(s, _mm256_shuffle_epi32(s, 0xb1));
}

UNPACK_INLINE int32_t half_lanes(__m256i lanes, int half)
{
    return half ? _mm256_extract_epi32(lanes, 4) : _mm256_extract_epi32(lanes, 0);
}

static void finish_32(Activation32 *a, __m256i q, float scale)
{
    __m256i zero = _mm256_setzero_si256(), lanes = lane_sums(q);
    lanes = _mm256_add_epi16(lanes, _mm256_permute4x64_epi64(lanes, 0x4e)); /* both halves */
    __m256i negative = _mm256_sub_epi16(zero, lanes);
    int32_t sum = _mm256_extract_epi32(_mm256_madd_epi16(lanes, _mm256_set1_epi16(1)), 0);
    _mm256_storeu_si256((__m256i *)(void *)a->q, q);
    bytes_store32(a->negative_lanes, (uint32_t)half_lanes(negative, 0));
    a->negative_sum = -sum;
    a->scale = scale;
    a->scale_sum = scale * (float)sum;
}

void quantize_avx2_32(const float *x, uint32_t cols, uint8_t *out)
{
    Activation32 *a = (Activation32 *)(void *)out;
    for (uint32_t at = 0; at < cols; at += 32, a++) {
        Floats32 v = load_32(x + at);
        uint32_t bits = max_of_lanes(magnitude_lanes(&v));
        float max = bytes_load_f32(&bits);
        if (bits >= ACTIVATION_NOT_FINITE) activation_flat_32(a, __builtin_nanf(""));
        else if (max < NUMERICS_TINY) activation_flat_32(a, 0.0f);
        else finish_32(a, quantized(&v, 127.0f / max), max / 127.0f);
    }
}

/* Positive and negated negative parts, each summed over 32. */
UNPACK_INLINE bool is_wide(__m256i q)
{
    __m256i zero = _mm256_setzero_si256();
    __m256i positive = _mm256_sad_epu8(_mm256_max_epi8(q, zero), zero);
    __m256i negative = _mm256_sad_epu8(_mm256_max_epi8(_mm256_sub_epi8(zero, q), zero), zero);
    __m256i both = _mm256_or_si256(positive, _mm256_slli_epi64(negative, 32)); /* 32-bit lanes: P N P N .. */
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(s) > ACTIVATION_NARROW || _mm_extract_epi32(s, 1) > ACTIVATION_NARROW;
}

/* Sub j: its q and everything that is summed from them. */
UNPACK_INLINE void finish_sub(Activation256 *a, uint32_t j, __m256i q, uint8_t k)
{
    __m256i lanes = lane_sums(q), negative = _mm256_sub_epi16(_mm256_setzero_si256(), lanes);
    __m256i sums = _mm256_madd_epi16(lanes, _mm256_set1_epi16(1));
    int32_t half[2] = {_mm256_extract_epi32(sums, 0), _mm256_extract_epi32(sums, 4)};
    _mm256_storeu_si256((__m256i *)(void *)(a->q + 32 * j), q);
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t n = 2 * j + h;
        a->negative_half_sums[n] = -half[h];
        a->k_half_sums[n] = (int16_t)(k * half[h]);
        a->k_twice[n] = k;
        bytes_store32(a->negative_half_lanes + 2 * n, (uint32_t)half_lanes(negative, (int)h));
    }
    a->k[j] = k;
    a->k_sums[j] = (int16_t)(uint16_t)(uint32_t)(k * (half[0] + half[1]));
    a->wide |= is_wide(q);
}

static void quantize_block_256(const float *x, Activation256 *a)
{
    uint32_t bits[8], bits_max = 0;
    for (uint32_t j = 0; j < 8; j++) {
        Floats32 v = load_32(x + 32 * j);
        bits[j] = max_of_lanes(magnitude_lanes(&v));
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
        Floats32 part = load_32(x + 32 * j);
        uint8_t k = activation_k(bytes_load_f32(&bits[j]), u);
        finish_sub(a, j, quantized(&part, v / (float)k), k);
    }
}

void quantize_avx2_256(const float *x, uint32_t cols, uint8_t *out)
{
    Activation256 *a = (Activation256 *)(void *)out;
    for (uint32_t at = 0; at < cols; at += 256) quantize_block_256(x + at, a++);
}
