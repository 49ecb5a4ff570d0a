/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks from the numbers that they were expanded to, so that a row which came as float32 can be compared with the hash
 * of its stored bytes. Encoders leave marks that say what scales and minima were:
 *
 *   Q8_0 Q5_0 Q4_0    the number furthest from zero has the last level: 127 or -127, -16, -8
 *   Q4_1 Q5_1         the least number has level 0, and the least gap between two numbers is one level
 *   Q4_K Q5_K         the same in each 32; the largest scale and the largest minimum of a block are 63
 *
 * Q2_K, Q3_K and Q6_K have too many blocks with the same expansion. */
#include "quant/block.h"
#include "quant/unpack.h"

enum { SUB = 32, K_SUBS = 8, K_SCALE_MAX = 63, ELEMENTS_MAX = 256 };

/* The next level, of 0 to `most`; what is not a number is 0. */
static uint32_t restore_level(float x, uint32_t most)
{
    if (!(x > 0)) return 0;
    return x < (float)most ? (uint32_t)(x + 0.5f) : most;
}

static float restore_inverse(float x) { return x != 0 ? 1 / x : 0; }

/* words of levels (x - low) / step + zero. */
static void restore_words(const float x[SUB], float low, float step, int32_t zero, uint32_t most,
                          uint32_t w[8])
{
    float inverse = restore_inverse(step);
    memset(w, 0, 8 * sizeof *w);
    for (uint32_t i = 0; i < SUB; i++)
        w[i / 4] |= restore_level((x[i] - low) * inverse + (float)zero, most) << (8 * (i % 4));
}

static float restore_furthest(const float x[SUB])
{
    float furthest = 0;
    for (uint32_t i = 0; i < SUB; i++)
        if (x[i] * x[i] > furthest * furthest) furthest = x[i];
    return furthest;
}

static void restore_symmetric(BlockType type, const float x[SUB], uint8_t *block)
{
    uint32_t w[8];
    int32_t zero = unpack_zero_point(type);
    float furthest = restore_furthest(x), last = type == BLOCK_Q8_0 ? 127.0f : -(float)zero;
    if (type == BLOCK_Q8_0 && furthest < 0) last = -last;
    UnpackScales scales = {.d = block_f32_to_f16(furthest / last)};
    restore_words(x, 0, block_f16_to_f32(scales.d), zero, 2 * (uint32_t)zero - 1, w);
    unpack_pack_scales(type, &scales, block);
    unpack_pack_words(type, w, 0, block);
}

/* The least number, and what one level is: the least gap says how many there are to the largest number, and over all of
 * them rounding counts least. */
static void restore_grid(const float x[SUB], float *low, float *step)
{
    float least = x[0], most = x[0], gap = 0;
    for (uint32_t i = 0; i < SUB; i++) {
        if (x[i] < least) least = x[i];
        if (x[i] > most) most = x[i];
        for (uint32_t j = 0; j < i; j++) {
            float apart = x[i] > x[j] ? x[i] - x[j] : x[j] - x[i];
            if (apart > 0 && (gap == 0 || apart < gap)) gap = apart;
        }
    }
    uint32_t levels = restore_level((most - least) * restore_inverse(gap), UINT8_MAX);
    *low = least;
    *step = levels ? (most - least) / (float)levels : 0;
}

static void restore_affine(BlockType type, const float x[SUB], uint8_t *block)
{
    uint32_t w[8];
    float low, step;
    restore_grid(x, &low, &step);
    UnpackScales scales = {.d = block_f32_to_f16(step), .dmin = block_f32_to_f16(low)};
    restore_words(x, low, step, 0, type == BLOCK_Q4_1 ? 15 : 31, w);
    unpack_pack_scales(type, &scales, block);
    unpack_pack_words(type, w, 0, block);
}

static void restore_k(BlockType type, const float *x, uint8_t *block)
{
    UnpackScales scales = {0};
    uint32_t w[8];
    float low[K_SUBS], step[K_SUBS], low_most = 0, step_most = 0;
    for (uint32_t j = 0; j < K_SUBS; j++) {
        restore_grid(x + SUB * j, &low[j], &step[j]);
        if (-low[j] > low_most) low_most = -low[j];
        if (step[j] > step_most) step_most = step[j];
    }
    scales.d = block_f32_to_f16(step_most / (float)K_SCALE_MAX);
    scales.dmin = block_f32_to_f16(low_most / (float)K_SCALE_MAX);
    float d = block_f16_to_f32(scales.d), dmin = block_f16_to_f32(scales.dmin);
    memset(block, 0, block_traits(type)->bytes);
    for (uint32_t j = 0; j < K_SUBS; j++) {
        scales.sc[j] = (uint8_t)restore_level(step[j] * restore_inverse(d), K_SCALE_MAX);
        scales.min[j] = (uint8_t)restore_level(-low[j] * restore_inverse(dmin), K_SCALE_MAX);
        restore_words(x + SUB * j, -dmin * (float)scales.min[j], d * (float)scales.sc[j], 0,
                      type == BLOCK_Q4_K ? 15 : 31, w);
        unpack_pack_words(type, w, j, block);
    }
    unpack_pack_scales(type, &scales, block);
}

static void restore_block(BlockType type, const float *x, uint8_t *block)
{
    switch (type) {
    case BLOCK_F32: bytes_store32(block, bytes_load32(x)); return;
    case BLOCK_F16: bytes_store16(block, block_f32_to_f16(x[0])); return;
    case BLOCK_BF16: bytes_store16(block, (uint16_t)(bytes_load32(x) >> 16)); return;
    case BLOCK_Q8_0: restore_symmetric(BLOCK_Q8_0, x, block); return;
    case BLOCK_Q5_0: restore_symmetric(BLOCK_Q5_0, x, block); return;
    case BLOCK_Q4_0: restore_symmetric(BLOCK_Q4_0, x, block); return;
    case BLOCK_Q4_1: restore_affine(BLOCK_Q4_1, x, block); return;
    case BLOCK_Q5_1: restore_affine(BLOCK_Q5_1, x, block); return;
    case BLOCK_Q4_K: restore_k(BLOCK_Q4_K, x, block); return;
    case BLOCK_Q5_K: restore_k(BLOCK_Q5_K, x, block); return;
    default: return;
    }
}

bool block_restore_row(BlockType type, const void *values, uint32_t cols, void *out)
{
    const BlockTraits *traits = block_traits((uint32_t)type);
    if (!traits || cols % traits->elements) return false;
    if (type == BLOCK_Q2_K || type == BLOCK_Q3_K || type == BLOCK_Q6_K) return false;
    const uint8_t *in = values;
    uint8_t *block = out;
    float x[ELEMENTS_MAX]; /* the block may take the place of its numbers */
    for (uint32_t at = 0; at < cols; at += traits->elements, block += traits->bytes) {
        memcpy(x, in + (size_t)at * sizeof *x, traits->elements * sizeof *x);
        restore_block(type, x, block);
    }
    return true;
}
