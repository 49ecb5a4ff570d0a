/* SPDX-License-Identifier: Apache-2.0 */
/* 64-bit ARM with the dot product extension: sdot multiplies the 4 elements of a group in 4 rows at
 * once by 4 elements of one token, which are one lane of a register that holds 16.
 *
 *   chunk of a line | r0: e0..e3 | r1 | r2 | r3 |   x   lane g of the token | g0 | g1 | g2 | g3 |
 *
 * gives sums of r0 r1 r2 r3. A tile is 2 chunks x 4 tokens (16 sums: those of the sub and those of the
 * block) or 4 chunks x 1 token; weights are taken apart once per tile. Sums are exact in 32 bits.
 * Functions named tile_ are inlined with constant type, chunks and tokens. */
#include "quant/kernels_tables.h"
#include "quant/panel_neon.h"
#include "quant/quantize_neon.h"

enum { TILE_CHUNKS = 4, TILE_TOKENS = 4 };

/* Where one tile reads and adds: a block, its first chunk, its first token's activations there. */
typedef struct Tile {
    const uint8_t *block;
    uint32_t chunk;
    const uint8_t *activation;
    size_t stride;
    float *acc; /* [tokens][16], at row 4 chunk */
} Tile;

typedef struct Sums {
    int32x4_t at[TILE_CHUNKS][TILE_TOKENS];
} Sums;

/* Lane numbers must be constants for every compiler at every level. */
UNPACK_INLINE int32x4_t dot(int32x4_t sum, int8x16_t w, int8x16_t a, uint32_t lane)
{
    switch (lane) {
    case 0: return vdotq_laneq_s32(sum, w, a, 0);
    case 1: return vdotq_laneq_s32(sum, w, a, 1);
    case 2: return vdotq_laneq_s32(sum, w, a, 2);
    default: return vdotq_laneq_s32(sum, w, a, 3);
    }
}

UNPACK_INLINE void zero(uint32_t chunks, uint32_t tokens, Sums *s)
{
    UNROLL
    for (uint32_t c = 0; c < chunks; c++) UNROLL
    for (uint32_t t = 0; t < tokens; t++) s->at[c][t] = vdupq_n_s32(0);
}

/* Sums start at minus the zero point times the elements' sum, at `offset` of each activation. */
UNPACK_INLINE void start(BlockType type, const Tile *tile, size_t offset, uint32_t chunks,
                         uint32_t tokens, Sums *s)
{
    if (neon_zero_shift(type) < 0) {
        zero(chunks, tokens, s);
        return;
    }
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        int32x4_t v = neon_all_s32(tile->activation + t * tile->stride + offset)
                      << neon_zero_shift(type);
        UNROLL
        for (uint32_t c = 0; c < chunks; c++) s->at[c][t] = v;
    }
}

/* q of 16 elements, for every token. Both forms of activations start with q. */
UNPACK_INLINE void load_elements(const Tile *tile, uint32_t at, uint32_t tokens,
                                 int8x16_t a[TILE_TOKENS])
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++)
        a[t] = vld1q_s8((const int8_t *)tile->activation + t * tile->stride + at);
}

UNPACK_INLINE void add_group(BlockType type, const Tile *tile, const uint8_t *lines, uint32_t g,
                             const int8x16_t a[TILE_TOKENS], uint32_t chunks, uint32_t tokens,
                             Sums *s)
{
    UNROLL
    for (uint32_t c = 0; c < chunks; c++) {
        int8x16_t w = neon_elements(type, lines, tile->chunk + c, g);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) s->at[c][t] = dot(s->at[c][t], w, a[t], g % 4);
    }
}

/* Groups 4h..4h+3. */
UNPACK_INLINE void add_half(BlockType type, const Tile *tile, const uint8_t *lines, uint32_t at,
                            uint32_t h, uint32_t chunks, uint32_t tokens, Sums *s)
{
    int8x16_t a[TILE_TOKENS];
    load_elements(tile, at + 16 * h, tokens, a);
    UNROLL
    for (uint32_t g = 4 * h; g < 4 * h + 4; g++)
        add_group(type, tile, lines, g, a, chunks, tokens, s);
}

/* All 8 groups, in the order 0 4 1 5 .., so that both nibbles of a line come from one load. */
UNPACK_INLINE void add_both(BlockType type, const Tile *tile, const uint8_t *lines, uint32_t at,
                            uint32_t chunks, uint32_t tokens, Sums *s)
{
    int8x16_t a[2][TILE_TOKENS];
    load_elements(tile, at, tokens, a[0]);
    load_elements(tile, at + 16, tokens, a[1]);
    UNROLL
    for (uint32_t n = 0; n < 8; n++)
        add_group(type, tile, lines, n / 2 + 4 * (n % 2), a[n % 2], chunks, tokens, s);
}

/* ---- blocks of 32 ---------------------------------------------------------------------------- */

UNPACK_INLINE void tile_32(BlockType type, const Tile *tile, uint32_t chunks, uint32_t tokens)
{
    Sums s;
    start(type, tile, offsetof(Activation32, negative_sum), chunks, tokens, &s);
    add_both(type, tile, tile->block + panel_head_bytes(type), 0, chunks, tokens, &s);
    UNROLL
    for (uint32_t c = 0; c < chunks; c++) {
        const uint8_t *halves = tile->block + 2 * CHUNK_ROWS * (tile->chunk + c);
        float32x4_t d = neon_halves(halves), m = vdupq_n_f32(0);
        if (unpack_has_min(type)) m = neon_halves(halves + HALVES_BYTES);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            const uint8_t *a = tile->activation + t * tile->stride;
            float *acc = tile->acc + t * PANEL_ROWS + CHUNK_ROWS * c;
            float32x4_t scale = neon_all_f32(a + offsetof(Activation32, scale));
            float32x4_t step = vmulq_f32(d, vmulq_f32(scale, vcvtq_f32_s32(s.at[c][t])));
            if (unpack_has_min(type))
                step = vaddq_f32(step,
                                 vmulq_f32(m, neon_all_f32(a + offsetof(Activation32, scale_sum))));
            vst1q_f32(acc, vaddq_f32(vld1q_f32(acc), step));
        }
    }
}

/* ---- blocks of 256 --------------------------------------------------------------------------- */

/* i += (scale k) s, where the scales are the `which`-th of pair p and k is that of sub j. */
UNPACK_INLINE void add_scaled(BlockType type, const Tile *tile, uint32_t p, uint32_t which,
                              uint32_t j, const Sums *s, uint32_t chunks, uint32_t tokens, Sums *i)
{
    int16x4_t scale[TILE_CHUNKS];
    UNROLL
    for (uint32_t c = 0; c < chunks; c++)
        scale[c] = neon_scale(type, neon_pairs(type, tile->block), p, tile->chunk + c, which);
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        const uint8_t *k = tile->activation + t * tile->stride + offsetof(Activation256, k) + 2 * j;
        int16x4_t k_all = vld1_dup_s16((const int16_t *)(const void *)k);
        UNROLL
        for (uint32_t c = 0; c < chunks; c++)
            i->at[c][t] = vmlaq_s32(i->at[c][t], vmull_s16(scale[c], k_all), s->at[c][t]);
    }
}

/* Sub j: one sum of 32 elements, or two of 16, each with its scale. */
UNPACK_INLINE void add_sub(BlockType type, const Tile *tile, uint32_t j, uint32_t chunks,
                           uint32_t tokens, Sums *i)
{
    const uint8_t *lines = neon_sub_lines(type, tile->block, j);
    Sums s;
    if (unpack_scale_count(type) == 8) {
        zero(chunks, tokens, &s);
        add_both(type, tile, lines, 32 * j, chunks, tokens, &s);
        add_scaled(type, tile, j / 2, j % 2, j, &s, chunks, tokens, i);
        return;
    }
    UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        start(type, tile, offsetof(Activation256, negative_half_sums) + 4 * (2 * j + h), chunks,
              tokens, &s);
        add_half(type, tile, lines, 32 * j, h, chunks, tokens, &s);
        add_scaled(type, tile, j, h, j, &s, chunks, tokens, i);
    }
}

UNPACK_INLINE bool is_wide(const Tile *tile, uint32_t tokens)
{
    uint32_t wide = 0;
    UNROLL
    for (uint32_t t = 0; t < tokens; t++)
        wide |= bytes_load32(tile->activation + t * tile->stride + offsetof(Activation256, wide));
    return wide != 0;
}

/* j += both minimums of pair p times k A: sums of 32, or with `halves` two sums of 16 for each. */
UNPACK_INLINE void add_minimums(BlockType type, const Tile *tile, uint32_t p, bool halves,
                                uint32_t chunks, uint32_t tokens, Sums *j)
{
    size_t offset = type == BLOCK_Q2_K ? offsetof(Activation256, k_half_sums) + 4 * p
                    : halves           ? offsetof(Activation256, k_half_sums) + 8 * p
                                       : offsetof(Activation256, k_sums) + 4 * p;
    UNROLL
    for (uint32_t c = 0; c < chunks; c++) {
        int16x4_t m0 = neon_minimum(type, neon_pairs(type, tile->block), p, tile->chunk + c, 0);
        int16x4_t m1 = neon_minimum(type, neon_pairs(type, tile->block), p, tile->chunk + c, 1);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            const uint8_t *sums = tile->activation + t * tile->stride + offset;
            int32x4_t sum = j->at[c][t];
            if (halves) {
                int16x4_t a = neon_all_pair(sums), b = neon_all_pair(sums + 4);
                sum = vmlal_lane_s16(vmlal_lane_s16(sum, m0, a, 0), m0, a, 1);
                sum = vmlal_lane_s16(vmlal_lane_s16(sum, m1, b, 0), m1, b, 1);
            } else {
                int16x4_t a = neon_all_pair(sums);
                sum = vmlal_lane_s16(vmlal_lane_s16(sum, m0, a, 0), m1, a, 1);
            }
            j->at[c][t] = sum;
        }
    }
}

/* sum of m k A. Sums of 32 fit int16 unless a token is wide; sums of 16 always do. */
UNPACK_INLINE void minimums(BlockType type, const Tile *tile, uint32_t chunks, uint32_t tokens,
                            Sums *j)
{
    zero(chunks, tokens, j);
    if (type != BLOCK_Q2_K && is_wide(tile, tokens))
        for (uint32_t p = 0; p < 4; p++) add_minimums(type, tile, p, true, chunks, tokens, j);
    else
        for (uint32_t p = 0; p < unpack_scale_count(type) / 2; p++)
            add_minimums(type, tile, p, false, chunks, tokens, j);
}

UNPACK_INLINE void tile_256(BlockType type, const Tile *tile, uint32_t chunks, uint32_t tokens)
{
    Sums i, j;
    zero(chunks, tokens, &i);
    ROLLED
    for (uint32_t p = 0; p < 4; p++) { /* two subs a step */
        add_sub(type, tile, 2 * p, chunks, tokens, &i);
        add_sub(type, tile, 2 * p + 1, chunks, tokens, &i);
    }
    if (unpack_has_min(type)) minimums(type, tile, chunks, tokens, &j);
    UNROLL
    for (uint32_t c = 0; c < chunks; c++) {
        const uint8_t *halves = tile->block + 2 * CHUNK_ROWS * (tile->chunk + c);
        float32x4_t d = neon_halves(halves), dmin = vdupq_n_f32(0);
        if (unpack_has_min(type)) dmin = neon_halves(halves + HALVES_BYTES);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            float *acc = tile->acc + t * PANEL_ROWS + CHUNK_ROWS * c;
            float32x4_t scale =
                neon_all_f32(tile->activation + t * tile->stride + offsetof(Activation256, scale));
            float32x4_t step = vmulq_f32(d, vcvtq_f32_s32(i.at[c][t]));
            if (unpack_has_min(type))
                step = vsubq_f32(step, vmulq_f32(dmin, vcvtq_f32_s32(j.at[c][t])));
            vst1q_f32(acc, vaddq_f32(vld1q_f32(acc), vmulq_f32(scale, step)));
        }
    }
}

/* ---- panels of blocks ------------------------------------------------------------------------ */

/* All 16 rows for `tokens` tokens of one block, moved on to the tokens after them. */
UNPACK_INLINE void tile_rows(BlockType type, Tile *tile, uint32_t chunks, uint32_t tokens)
{
    Tile part = *tile;
    for (part.chunk = 0; part.chunk < CHUNKS;
         part.chunk += chunks, part.acc += CHUNK_ROWS * chunks) {
        if (unpack_scale_count(type)) tile_256(type, &part, chunks, tokens);
        else tile_32(type, &part, chunks, tokens);
    }
    tile->activation += tokens * tile->stride;
    tile->acc += tokens * PANEL_ROWS;
}

UNPACK_INLINE void block_tokens(BlockType type, Tile tile, uint32_t tokens)
{
    for (; tokens >= 4; tokens -= 4) tile_rows(type, &tile, 2, 4);
    if (tokens & 2) tile_rows(type, &tile, 2, 2);
    if (tokens & 1) tile_rows(type, &tile, 4, 1);
}

UNPACK_INLINE void panel_blocks(BlockType type, const uint8_t *panel, uint32_t cols,
                                const uint8_t *activations, size_t stride, uint32_t tokens,
                                float *out, size_t out_stride)
{
    bool is_256 = unpack_scale_count(type) != 0;
    size_t step = is_256 ? sizeof(Activation256) : sizeof(Activation32);
    float acc[KERNEL_TOKENS_MAX * PANEL_ROWS] = {0};
    for (uint32_t b = 0; b < cols / (is_256 ? 256 : 32);
         b++, panel += panel_block_bytes(type), activations += step)
        block_tokens(type, (Tile){panel, 0, activations, stride, acc}, tokens);
    for (uint32_t t = 0; t < tokens; t++)
        memcpy(out + t * out_stride, acc + t * PANEL_ROWS, PANEL_ROWS * sizeof *acc);
}

/* ---- floats ---------------------------------------------------------------------------------- */

UNPACK_INLINE float32x4_t load_floats(BlockType type, const uint8_t *panel, size_t at)
{
    if (type == BLOCK_F32) return vreinterpretq_f32_u8(vld1q_u8(panel + 4 * at));
    if (type == BLOCK_F16) return neon_halves(panel + 2 * at);
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(panel + 2 * at)), 16));
}

UNPACK_INLINE void tile_float(BlockType type, const uint8_t *panel, uint32_t cols, const uint8_t *x,
                              size_t stride, uint32_t tokens, float *out, size_t out_stride)
{
    float32x4_t acc[CHUNKS][TILE_TOKENS];
    UNROLL
    for (uint32_t c = 0; c < CHUNKS; c++) UNROLL
    for (uint32_t t = 0; t < tokens; t++) acc[c][t] = vdupq_n_f32(0);
    for (size_t col = 0; col < cols; col++) UNROLL
    for (uint32_t c = 0; c < CHUNKS; c++) {
        float32x4_t w = load_floats(type, panel, PANEL_ROWS * col + CHUNK_ROWS * c);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            acc[c][t] = vaddq_f32(acc[c][t], vmulq_f32(w, neon_all_f32(x + t * stride + 4 * col)));
    }
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) UNROLL
    for (uint32_t c = 0; c < CHUNKS; c++)
        vst1q_f32(out + t * out_stride + CHUNK_ROWS * c, acc[c][t]);
}

UNPACK_INLINE void panel_floats(BlockType type, const uint8_t *panel, uint32_t cols,
                                const uint8_t *x, size_t stride, uint32_t tokens, float *out,
                                size_t out_stride)
{
    for (; tokens >= 4; tokens -= 4, x += 4 * stride, out += 4 * out_stride)
        tile_float(type, panel, cols, x, stride, 4, out, out_stride);
    for (; tokens; tokens--, x += stride, out += out_stride)
        tile_float(type, panel, cols, x, stride, 1, out, out_stride);
}

/* ---- the table ------------------------------------------------------------------------------- */

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

const Kernels kernels_neon = {
    ISA_NEON, KERNELS_PANELS, {activation_quantize_float, quantize_neon_32, quantize_neon_256}};
