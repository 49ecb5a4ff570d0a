/* SPDX-License-Identifier: Apache-2.0 */
/* 64-bit ARM with int8 matrix products: smmla multiplies 2 rows x 8 elements by 2 tokens x 8 elements,
 * twice the work of an sdot. A zip of two lines makes the rows, and all that follows keeps the shape of
 * its result:
 *
 *   lines g and h = g + 1      | r0 g | r1 g | r2 g | r3 g |   | r0 h | r1 h | r2 h | r3 h |
 *   zip, half 0                | r0 g | r0 h | r1 g | r1 h |          half 1: rows 2 and 3
 *   tokens                     | t0: 8 elements | t1: 8 elements |
 *   sums, half 0               | r0 t0 | r0 t1 | r1 t0 | r1 t1 |          a *square*
 *
 * Tokens go in pairs, whose elements are woven together once per panel and block; an odd last one is left
 * to the dot product's kernels. A tile is 1 chunk x 4 pairs: 16 squares, those of the sub and those of the
 * block. Functions named tile_ are inlined with constant type and pairs. */
#include "quant/kernels_tables.h"
#include "quant/panel_neon.h"
#include "quant/quantize_neon.h"

enum {
    TILE_PAIRS = 4,
    SQUARE = 4,
    PAIR_FLOATS = 2 * PANEL_ROWS,
    WOVEN_BYTES = 2 * 256 /* of a pair */
};

typedef struct Tile {
    const uint8_t *block;
    uint32_t chunk;
    const uint8_t *activation;
    size_t stride;
    const int8_t *woven; /* [pairs][WOVEN_BYTES]: 8 elements of one token, 8 of the other, .. */
    float *acc;          /* [pairs][chunk][half][4], at this tile's chunk */
} Tile;

typedef struct Sums {
    int32x4_t at[2][TILE_PAIRS]; /* [half][pair] */
} Sums;

/* What one token has at `offset`, and the other: 0 1 0 1. */
UNPACK_INLINE int32x4_t tokens_s32(const Tile *tile, uint32_t pair, size_t offset)
{
    const uint8_t *at = tile->activation + 2 * pair * tile->stride + offset;
    return vzip1q_s32(neon_all_s32(at), neon_all_s32(at + tile->stride));
}
UNPACK_INLINE float32x4_t tokens_f32(const Tile *tile, uint32_t pair, size_t offset)
{
    return vreinterpretq_f32_s32(tokens_s32(tile, pair, offset));
}
UNPACK_INLINE int16x4_t tokens_s16(const Tile *tile, uint32_t pair, size_t offset)
{
    const uint8_t *at = tile->activation + 2 * pair * tile->stride + offset;
    return vzip1_s16(vld1_dup_s16((const int16_t *)(const void *)at),
                     vld1_dup_s16((const int16_t *)(const void *)(at + tile->stride)));
}

/* Rows 0 and 1, or 2 and 3, each twice: 0 0 1 1. */
UNPACK_INLINE int16x4_t rows_s16(int16x4_t v, uint32_t half)
{
    return half ? vzip2_s16(v, v) : vzip1_s16(v, v);
}
UNPACK_INLINE float32x4_t rows_f32(float32x4_t v, uint32_t half)
{
    return half ? vzip2q_f32(v, v) : vzip1q_f32(v, v);
}

UNPACK_INLINE void zero(uint32_t pairs, Sums *s)
{
    UNROLL
    for (uint32_t u = 0; u < pairs; u++) s->at[0][u] = s->at[1][u] = vdupq_n_s32(0);
}

/* Sums start at minus the zero point times the elements' sum, at `offset` of each activation. */
UNPACK_INLINE void start(BlockType type, const Tile *tile, size_t offset, uint32_t pairs, Sums *s)
{
    if (neon_zero_shift(type) < 0) {
        zero(pairs, s);
        return;
    }
    UNROLL
    for (uint32_t u = 0; u < pairs; u++)
        s->at[0][u] = s->at[1][u] = tokens_s32(tile, u, offset) << neon_zero_shift(type);
}

/* Groups g and g + 1, whose elements are at `at` in the activations. */
UNPACK_INLINE void add_groups(BlockType type, const Tile *tile, const uint8_t *lines, uint32_t at,
                              uint32_t g, uint32_t pairs, Sums *s)
{
    int32x4_t w0 = vreinterpretq_s32_s8(neon_elements(type, lines, tile->chunk, g));
    int32x4_t w1 = vreinterpretq_s32_s8(neon_elements(type, lines, tile->chunk, g + 1));
    int8x16_t low = vreinterpretq_s8_s32(vzip1q_s32(w0, w1));
    int8x16_t high = vreinterpretq_s8_s32(vzip2q_s32(w0, w1));
    UNROLL
    for (uint32_t u = 0; u < pairs; u++) {
        int8x16_t a = vld1q_s8(tile->woven + u * WOVEN_BYTES + 2 * at);
        s->at[0][u] = vmmlaq_s32(s->at[0][u], low, a);
        s->at[1][u] = vmmlaq_s32(s->at[1][u], high, a);
    }
}

/* ---- blocks of 32 ---------------------------------------------------------------------------- */

UNPACK_INLINE void tile_32(BlockType type, const Tile *tile, uint32_t pairs)
{
    Sums s;
    start(type, tile, offsetof(Activation32, negative_sum), pairs, &s);
    UNROLL
    for (uint32_t n = 0; n < 4; n++) { /* 0 4 2 6: both nibbles of a line come from one load */
        uint32_t g = n / 2 * 2 + 4 * (n % 2);
        add_groups(type, tile, tile->block + panel_head_bytes(type), 4 * g, g, pairs, &s);
    }
    UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const uint8_t *halves = tile->block + 2 * CHUNK_ROWS * (tile->chunk);
        float32x4_t d = rows_f32(neon_halves(halves), h), m = vdupq_n_f32(0);
        if (unpack_has_min(type)) m = rows_f32(neon_halves(halves + HALVES_BYTES), h);
        UNROLL
        for (uint32_t u = 0; u < pairs; u++) {
            float *acc = tile->acc + u * PAIR_FLOATS + SQUARE * h;
            float32x4_t scale = tokens_f32(tile, u, offsetof(Activation32, scale));
            float32x4_t step = vmulq_f32(d, vmulq_f32(scale, vcvtq_f32_s32(s.at[h][u])));
            if (unpack_has_min(type))
                step = vaddq_f32(
                    step, vmulq_f32(m, tokens_f32(tile, u, offsetof(Activation32, scale_sum))));
            vst1q_f32(acc, vaddq_f32(vld1q_f32(acc), step));
        }
    }
}

/* ---- blocks of 256 --------------------------------------------------------------------------- */

/* i += (scale k) s, where the scales are the `which`-th of pair p and k is that of sub j. */
UNPACK_INLINE void add_scaled(BlockType type, const Tile *tile, uint32_t p, uint32_t which,
                              uint32_t j, const Sums *s, uint32_t pairs, Sums *i)
{
    int16x4_t k[TILE_PAIRS];
    UNROLL
    for (uint32_t u = 0; u < pairs; u++)
        k[u] = tokens_s16(tile, u, offsetof(Activation256, k) + 2 * j);
    int16x4_t scale = neon_scale(type, neon_pairs(type, tile->block), p, tile->chunk, which);
    UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        UNROLL
        for (uint32_t u = 0; u < pairs; u++)
            i->at[h][u] = vmlaq_s32(i->at[h][u], vmull_s16(rows_s16(scale, h), k[u]), s->at[h][u]);
    }
}

/* Sub j: one sum of 32 elements, or two of 16, each with its scale. */
UNPACK_INLINE void add_sub(BlockType type, const Tile *tile, uint32_t j, uint32_t pairs, Sums *i)
{
    const uint8_t *lines = neon_sub_lines(type, tile->block, j);
    Sums s;
    if (unpack_scale_count(type) == 8) {
        zero(pairs, &s);
        UNROLL
        for (uint32_t n = 0; n < 4; n++) {
            uint32_t g = n / 2 * 2 + 4 * (n % 2);
            add_groups(type, tile, lines, 32 * j + 4 * g, g, pairs, &s);
        }
        add_scaled(type, tile, j / 2, j % 2, j, &s, pairs, i);
        return;
    }
    UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        start(type, tile, offsetof(Activation256, negative_half_sums) + 4 * (2 * j + h), pairs, &s);
        UNROLL
        for (uint32_t g = 4 * h; g < 4 * h + 4; g += 2)
            add_groups(type, tile, lines, 32 * j + 4 * g, g, pairs, &s);
        add_scaled(type, tile, j, h, j, &s, pairs, i);
    }
}

UNPACK_INLINE bool is_wide(const Tile *tile, uint32_t pairs)
{
    uint32_t wide = 0;
    UNROLL
    for (uint32_t t = 0; t < 2 * pairs; t++)
        wide |= bytes_load32(tile->activation + t * tile->stride + offsetof(Activation256, wide));
    return wide != 0;
}

/* j += both minimums of pair p times k A: sums of 32, or with `halves` two sums of 16 for each. */
UNPACK_INLINE void add_minimums(BlockType type, const Tile *tile, uint32_t p, bool halves,
                                uint32_t pairs, Sums *j)
{
    const size_t sums = offsetof(Activation256, k_sums),
                 half_sums = offsetof(Activation256, k_half_sums);
    UNROLL
    for (uint32_t which = 0; which < 2; which++) {
        size_t at = halves ? half_sums + 8 * p + 4 * which
                           : (type == BLOCK_Q2_K ? half_sums : sums) + 4 * p + 2 * which;
        int16x4_t a[TILE_PAIRS], b[TILE_PAIRS];
        UNROLL
        for (uint32_t u = 0; u < pairs; u++) {
            a[u] = tokens_s16(tile, u, at);
            b[u] = halves ? tokens_s16(tile, u, at + 2) : a[u];
        }
        UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            int16x4_t m = neon_minimum(type, neon_pairs(type, tile->block), p, tile->chunk, which);
            m = rows_s16(m, h);
            UNROLL
            for (uint32_t u = 0; u < pairs; u++) {
                int32x4_t sum = vmlal_s16(j->at[h][u], m, a[u]);
                j->at[h][u] = halves ? vmlal_s16(sum, m, b[u]) : sum;
            }
        }
    }
}

/* sum of m k A. Sums of 32 fit int16 unless a token is wide; sums of 16 always do. */
UNPACK_INLINE void minimums(BlockType type, const Tile *tile, uint32_t pairs, Sums *j)
{
    zero(pairs, j);
    if (type != BLOCK_Q2_K && is_wide(tile, pairs))
        for (uint32_t p = 0; p < 4; p++) add_minimums(type, tile, p, true, pairs, j);
    else
        for (uint32_t p = 0; p < unpack_scale_count(type) / 2; p++)
            add_minimums(type, tile, p, false, pairs, j);
}

UNPACK_INLINE void tile_256(BlockType type, const Tile *tile, uint32_t pairs)
{
    Sums i, j;
    zero(pairs, &i);
    ROLLED
    for (uint32_t p = 0; p < 4; p++) { /* two subs a step */
        add_sub(type, tile, 2 * p, pairs, &i);
        add_sub(type, tile, 2 * p + 1, pairs, &i);
    }
    if (unpack_has_min(type)) minimums(type, tile, pairs, &j);
    UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const uint8_t *halves = tile->block + 2 * CHUNK_ROWS * (tile->chunk);
        float32x4_t d = rows_f32(neon_halves(halves), h), dmin = vdupq_n_f32(0);
        if (unpack_has_min(type)) dmin = rows_f32(neon_halves(halves + HALVES_BYTES), h);
        UNROLL
        for (uint32_t u = 0; u < pairs; u++) {
            float *acc = tile->acc + u * PAIR_FLOATS + SQUARE * h;
            float32x4_t scale = tokens_f32(tile, u, offsetof(Activation256, scale));
            float32x4_t step = vmulq_f32(d, vcvtq_f32_s32(i.at[h][u]));
            if (unpack_has_min(type))
                step = vsubq_f32(step, vmulq_f32(dmin, vcvtq_f32_s32(j.at[h][u])));
            vst1q_f32(acc, vaddq_f32(vld1q_f32(acc), vmulq_f32(scale, step)));
        }
    }
}

/* ---- panels ---------------------------------------------------------------------------------- */

/* All 16 rows for some pairs of tokens of one block, moved on to the tokens after them. */
UNPACK_INLINE void tile_rows(BlockType type, Tile *tile, uint32_t pairs)
{
    Tile part = *tile;
    for (part.chunk = 0; part.chunk < CHUNKS; part.chunk++, part.acc += 2 * SQUARE) {
        if (unpack_scale_count(type)) tile_256(type, &part, pairs);
        else tile_32(type, &part, pairs);
    }
    tile->activation += 2 * pairs * tile->stride;
    tile->woven += pairs * WOVEN_BYTES;
    tile->acc += pairs * PAIR_FLOATS;
}

UNPACK_INLINE void block_pairs(BlockType type, Tile tile, uint32_t pairs)
{
    if (pairs == 4) {
        tile_rows(type, &tile, 4);
        return;
    }
    if (pairs & 2) tile_rows(type, &tile, 2);
    if (pairs & 1) tile_rows(type, &tile, 1);
}

/* Elements of two tokens, 8 by 8. */
UNPACK_INLINE void weave(const uint8_t *q, size_t stride, uint32_t elements, int8_t *out)
{
    for (uint32_t i = 0; i < elements; i += 16, out += 32) {
        uint64x2_t a = vreinterpretq_u64_u8(vld1q_u8(q + i));
        uint64x2_t b = vreinterpretq_u64_u8(vld1q_u8(q + stride + i));
        vst1q_s8(out, vreinterpretq_s8_u64(vtrn1q_u64(a, b)));
        vst1q_s8(out + 16, vreinterpretq_s8_u64(vtrn2q_u64(a, b)));
    }
}

/* Squares of one pair of tokens back to rows of 16. */
static void store_pair(const float *acc, float *out, size_t out_stride)
{
    for (uint32_t c = 0; c < CHUNKS; c++) {
        float32x4_t low = vld1q_f32(acc + 2 * SQUARE * c),
                    high = vld1q_f32(acc + 2 * SQUARE * c + SQUARE);
        vst1q_f32(out + CHUNK_ROWS * c, vuzp1q_f32(low, high));
        vst1q_f32(out + out_stride + CHUNK_ROWS * c, vuzp2q_f32(low, high));
    }
}

UNPACK_INLINE void panel_blocks(BlockType type, const uint8_t *panel, uint32_t cols,
                                const uint8_t *activations, size_t stride, uint32_t tokens,
                                float *out, size_t out_stride)
{
    bool is_256 = unpack_scale_count(type) != 0;
    uint32_t elements = is_256 ? 256 : 32, even = tokens & ~1u;
    size_t step = is_256 ? sizeof(Activation256) : sizeof(Activation32);
    float acc[KERNEL_TOKENS_MAX * PANEL_ROWS] = {0};
    int8_t woven[TILE_PAIRS * WOVEN_BYTES];
    for (uint32_t b = 0; even && b < cols / elements; b++) {
        const uint8_t *at = activations + b * step; /* q comes first in both forms */
        for (uint32_t u = 0; u < even / 2; u++)
            weave(at + 2 * u * stride, stride, elements, woven + u * WOVEN_BYTES);
        const uint8_t *block = panel + (size_t)b * panel_block_bytes(type);
        block_pairs(type, (Tile){block, 0, at, stride, woven, acc}, even / 2);
    }
    for (uint32_t t = 0; t < even; t += 2)
        store_pair(acc + t * PANEL_ROWS, out + t * out_stride, out_stride);
    if (tokens > even)
        kernels_neon.panel[type](panel, cols, activations + even * stride, stride, 1,
                                 out + even * out_stride, out_stride);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Floats have no matrix products of this kind. */
UNPACK_INLINE void panel_floats(BlockType type, const uint8_t *panel, uint32_t cols,
                                const uint8_t *x, size_t stride, uint32_t tokens, float *out,
                                size_t out_stride)
{
    kernels_neon.panel[type](panel, cols, x, stride, tokens, out, out_stride);
}

KERNELS_PANEL(panel_f32, panel_floats, BLOCK_F32)
KERNELS_PANEL(panel_f16, panel_floats, BLOCK_F16)
KERNELS_PANEL(panel_bf16, panel_floats, BLOCK_BF16)
KERNELS_PANEL(panel_q4_0, panel_blocks, BLOCK_Q4_0)
KERNELS_PANEL(panel_q4_1, panel_blocks, BLOCK_Q4_1)
KERNELS_PANEL(panel_q5_0, panel_blocks, BLOCK_Q5_0)
KERNELS_PANEL(panel_q5_1, panel_blocks, BLOCK_Q5_1)
KERNELS_PANEL(panel_q8_0, panel_blocks, BLOCK_Q8_0)
KERNELS_PANEL(panel_q2_k, panel_blocks, BLOCK_Q2_K)
KERNELS_PANEL(panel_q3_k, panel_blocks, BLOCK_Q3_K)
KERNELS_PANEL(panel_q4_k, panel_blocks, BLOCK_Q4_K)
KERNELS_PANEL(panel_q5_k, panel_blocks, BLOCK_Q5_K)
KERNELS_PANEL(panel_q6_k, panel_blocks, BLOCK_Q6_K)

const Kernels kernels_i8mm = {
    ISA_I8MM, KERNELS_PANELS, {activation_quantize_float, quantize_neon_32, quantize_neon_256}};
