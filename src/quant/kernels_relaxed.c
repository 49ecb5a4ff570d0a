/* SPDX-License-Identifier: Apache-2.0 */
/* WebAssembly relaxed SIMD: as kernels_simd128.c, but elements stay bytes. One instruction
 * multiplies unsigned weights by signed activations and adds neighbours to int16:
 *
 *   i16x8.relaxed_dot_i8x16_i7x16
 *   (activations e0 e1 e2 e3 in every lane) x (chunk)  ->  | e0 + e1 | e2 + e3 | per row
 *
 * Its specification leaves open what it gives for weights above 127 only. All elements here are at
 * most 63: one result everywhere, the same as the reference's. A chain of up to 8 groups stays in
 * int16 (bounds in docs/format/numerics.md, section 5), then one i32x4.dot_i16x8 applies the scale
 * and adds the two lanes of a row. The instructions with floats are never used: theirs differ.
 *
 * Functions named tile_ are inlined with constant type, chunks and tokens. */
#include "quant/kernels_tables.h"
#include "quant/panel_simd128.h"
#include "quant/quantize_simd128.h"

enum { TILE_TOKENS = 2 };

/* ---- elements -------------------------------------------------------------------------------- */

/* `mask` at bit `from` of every byte moved to bit `to`. */
UNPACK_INLINE v128_t field(v128_t v, uint32_t from, uint32_t to, uint32_t mask)
{
    if (from > to)
        v = wasm_u16x8_shr(v, from - to); /* what crosses into another byte is masked off */
    if (from < to) v = wasm_i16x8_shl(v, to - from);
    return wasm_v128_and(v, wasm_i8x16_splat((int8_t)(mask << to)));
}

/* Group g (0..7) of 32 elements, unsigned, before the zero point. */
UNPACK_INLINE v128_t group(BlockType type, const uint8_t *lines, uint32_t chunk, uint32_t g)
{
    PanelLines k = panel_lines(type);
    uint32_t crumbs = k.bit_lines, rest = crumbs + k.crumb_lines;
    v128_t v = wasm_i32x4_splat(0);
    if (k.nibble_lines) v = field(simd_line(lines, rest + g % 4, chunk), g < 4 ? 0 : 4, 0, 15);
    if (k.crumb_lines)
        v = wasm_v128_or(
            v, field(simd_line(lines, crumbs + g / 4, chunk), 2 * (g % 4), k.crumb_shift, 3));
    if (k.bit_lines) v = wasm_v128_or(v, field(simd_line(lines, 0, chunk), g, k.bit_shift, 1));
    return v;
}

/* Chains start at the negated sums of their lanes times 1 << this, the zero point; at 0 when it is
 * negative. Sixteen products of Q5 would leave int16 if they did not start at -16 times that. */
UNPACK_INLINE int chain_shift(BlockType type)
{
    switch (type) {
    case BLOCK_Q4_0: return 3;
    case BLOCK_Q5_0:
    case BLOCK_Q5_1: return 4;
    case BLOCK_Q3_K: return 2;
    case BLOCK_Q6_K: return 5;
    default: return -1;
    }
}

UNPACK_INLINE void start(const Tile *tile, size_t lanes_offset, int shift, uint32_t chunks,
                         uint32_t tokens, Sums *c)
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        v128_t v = wasm_i32x4_splat(0);
        if (shift >= 0)
            v = wasm_i16x8_shl(
                wasm_v128_load32_splat(tile->activation + t * tile->stride + lanes_offset),
                (uint32_t)shift);
        UNROLL
        for (uint32_t n = 0; n < chunks; n++) c->at[n][t] = v;
    }
}

/* Group g of 32 elements at `lines`, whose activations start at `q_offset`. */
UNPACK_INLINE void add_group(BlockType type, const Tile *tile, const uint8_t *lines,
                             size_t q_offset, uint32_t g, uint32_t chunks, uint32_t tokens, Sums *c)
{
    v128_t a[TILE_TOKENS];
    UNROLL
    for (uint32_t t = 0; t < tokens; t++)
        a[t] = wasm_v128_load32_splat(tile->activation + t * tile->stride + q_offset + 4 * g);
    UNROLL
    for (uint32_t n = 0; n < chunks; n++) {
        v128_t w = group(type, lines, tile->chunk + n, g);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            c->at[n][t] = wasm_i16x8_add(c->at[n][t], wasm_i16x8_relaxed_dot_i8x16_i7x16(a[t], w));
    }
}

/* ---- blocks of 32 ---------------------------------------------------------------------------- */

/* Q5_1 has no zero point and gets back what its chain started at. */
UNPACK_INLINE void tile_32(BlockType type, const Tile *tile, uint32_t chunks, uint32_t tokens)
{
    const uint8_t *lines = tile->block + panel_head_bytes(type);
    Sums c, s;
    start(tile, offsetof(Activation32, negative_lanes), chain_shift(type), chunks, tokens, &c);
    UNROLL
    for (uint32_t n = 0; n < 8; n++) /* 0 4 1 5 ..: both nibbles of a line come from one load */
        add_group(type, tile, lines, 0, n / 2 + 4 * (n % 2), chunks, tokens, &c);
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        const uint8_t *sum =
            tile->activation + t * tile->stride + offsetof(Activation32, negative_sum);
        v128_t back = wasm_i32x4_splat(0);
        if (type == BLOCK_Q5_1) back = wasm_i32x4_shl(wasm_v128_load32_splat(sum), 4);
        UNROLL
        for (uint32_t n = 0; n < chunks; n++)
            s.at[n][t] =
                wasm_i32x4_sub(wasm_i32x4_dot_i16x8(c.at[n][t], wasm_i16x8_splat(1)), back);
    }
    simd_finish_32(type, tile, &s, chunks, tokens);
}

/* ---- blocks of 256 --------------------------------------------------------------------------- */

/* i += (scale k) c for chains of sub j; scales are the `which`-th of pair p. */
UNPACK_INLINE void add_chains(BlockType type, const Tile *tile, const uint8_t *pairs, uint32_t p,
                              uint32_t which, uint32_t j, const Sums *c, uint32_t chunks,
                              uint32_t tokens, Sums *i)
{
    UNROLL
    for (uint32_t n = 0; n < chunks; n++) {
        v128_t pair =
            simd_pair(pairs, p, tile->chunk + n, type == BLOCK_Q3_K || type == BLOCK_Q6_K);
        if (type == BLOCK_Q2_K) pair = wasm_v128_and(pair, wasm_i16x8_splat(15));
        v128_t scale = simd_twice(pair, which);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            const uint8_t *k =
                tile->activation + t * tile->stride + offsetof(Activation256, k_twice) + 4 * j;
            v128_t scale_k = wasm_i16x8_mul(scale, wasm_v128_load32_splat(k));
            i->at[n][t] = wasm_i32x4_add(i->at[n][t], wasm_i32x4_dot_i16x8(c->at[n][t], scale_k));
        }
    }
}

/* Sub j of Q4_K: one chain of 16 products a lane, at most 15 * 127 * 16 = 30480. */
UNPACK_INLINE void sub_q4_k(const Tile *tile, const uint8_t *lines, const uint8_t *pairs,
                            uint32_t j, uint32_t chunks, uint32_t tokens, Sums *i)
{
    Sums c;
    start(tile, 0, -1, chunks, tokens, &c);
    UNROLL
    for (uint32_t n = 0; n < 8; n++)
        add_group(BLOCK_Q4_K, tile, lines, 32 * j, n / 2 + 4 * (n % 2), chunks, tokens, &c);
    add_chains(BLOCK_Q4_K, tile, pairs, j / 2, j % 2, j, &c, chunks, tokens, i);
}

/* Sub j of the other types: two chains of 8 products, each with its scale (Q5_K: the same). */
UNPACK_INLINE void sub_halves(BlockType type, const Tile *tile, const uint8_t *lines,
                              const uint8_t *pairs, uint32_t j, uint32_t chunks, uint32_t tokens,
                              Sums *i)
{
    UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        Sums c;
        start(tile, offsetof(Activation256, negative_half_lanes) + 4 * (2 * j + h),
              chain_shift(type), chunks, tokens, &c);
        UNROLL
        for (uint32_t g = 4 * h; g < 4 * h + 4; g++)
            add_group(type, tile, lines, 32 * j, g, chunks, tokens, &c);
        if (type == BLOCK_Q5_K)
            add_chains(type, tile, pairs, j / 2, j % 2, j, &c, chunks, tokens, i);
        else add_chains(type, tile, pairs, j, h, j, &c, chunks, tokens, i);
    }
}

UNPACK_INLINE void tile_256(BlockType type, const Tile *tile, uint32_t chunks, uint32_t tokens)
{
    const uint8_t *pairs = tile->block + HALVES_BYTES * (unpack_has_min(type) ? 2 : 1);
    const uint8_t *lines = tile->block + panel_head_bytes(type);
    uint32_t sub_bytes = panel_lines_count(panel_lines(type)) * LINE_BYTES;
    Sums i;
    start(tile, 0, -1, chunks, tokens, &i);
    for (uint32_t p = 0; p < 4; p++) /* two subs a step */
        UNROLL
    for (uint32_t j = 2 * p; j < 2 * p + 2; j++) {
        if (type == BLOCK_Q4_K) sub_q4_k(tile, lines + j * sub_bytes, pairs, j, chunks, tokens, &i);
        else sub_halves(type, tile, lines + j * sub_bytes, pairs, j, chunks, tokens, &i);
    }
    simd_finish_256(type, tile, pairs, &i, chunks, tokens);
}

/* ---- panels of blocks ------------------------------------------------------------------------ */

/* Measured with V8: more chunks would spill where elements take more steps to make. */
UNPACK_INLINE uint32_t tile_chunks(BlockType type)
{
    return type == BLOCK_Q4_K || !unpack_scale_count(type) ? 4 : 2;
}

UNPACK_INLINE void tile_any(BlockType type, Tile tile, uint32_t tokens)
{
    uint32_t chunks = tile_chunks(type);
    for (tile.chunk = 0; tile.chunk < CHUNKS;
         tile.chunk += chunks, tile.acc += CHUNK_ROWS * chunks) {
        if (unpack_scale_count(type)) tile_256(type, &tile, chunks, tokens);
        else tile_32(type, &tile, chunks, tokens);
    }
}

UNPACK_INLINE void panel_blocks(BlockType type, const uint8_t *panel, uint32_t cols,
                                const uint8_t *activations, size_t stride, uint32_t tokens,
                                float *out, size_t out_stride)
{
    bool is_256 = unpack_scale_count(type) != 0;
    size_t step = is_256 ? sizeof(Activation256) : sizeof(Activation32);
    float acc[KERNEL_TOKENS_MAX * PANEL_ROWS] = {0};
    for (uint32_t b = 0; b < cols / (is_256 ? 256 : 32);
         b++, panel += panel_block_bytes(type), activations += step) {
        Tile tile = {panel, 0, activations, stride, acc, NULL, 0};
        for (uint32_t left = tokens; left > 0; left -= left > 1 ? TILE_TOKENS : 1) {
            if (left > 1) tile_any(type, tile, TILE_TOKENS);
            else tile_any(type, tile, 1);
            tile.activation += TILE_TOKENS * stride;
            tile.acc += TILE_TOKENS * PANEL_ROWS;
        }
    }
    for (uint32_t t = 0; t < tokens; t++)
        memcpy(out + t * out_stride, acc + t * PANEL_ROWS, PANEL_ROWS * sizeof *acc);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Types that gain nothing: floats, and the bytes of Q8_0, which would have to become nibbles. */
#define PANEL_AS_SIMD128(name, type)                                                            \
    static void name(const uint8_t *panel, uint32_t cols, const uint8_t *activations,           \
                     size_t stride, uint32_t tokens, float *out, size_t out_stride)             \
    {                                                                                           \
        kernels_simd128.panel[type](panel, cols, activations, stride, tokens, out, out_stride); \
    }

PANEL_AS_SIMD128(panel_f32, BLOCK_F32)
PANEL_AS_SIMD128(panel_f16, BLOCK_F16)
PANEL_AS_SIMD128(panel_bf16, BLOCK_BF16)
PANEL_AS_SIMD128(panel_q8_0, BLOCK_Q8_0)
KERNELS_PANEL(panel_q2_k, panel_blocks, BLOCK_Q2_K)
KERNELS_PANEL(panel_q3_k, panel_blocks, BLOCK_Q3_K)
KERNELS_PANEL(panel_q4_0, panel_blocks, BLOCK_Q4_0)
KERNELS_PANEL(panel_q4_1, panel_blocks, BLOCK_Q4_1)
KERNELS_PANEL(panel_q5_0, panel_blocks, BLOCK_Q5_0)
KERNELS_PANEL(panel_q5_1, panel_blocks, BLOCK_Q5_1)
KERNELS_PANEL(panel_q4_k, panel_blocks, BLOCK_Q4_K)
KERNELS_PANEL(panel_q5_k, panel_blocks, BLOCK_Q5_K)
KERNELS_PANEL(panel_q6_k, panel_blocks, BLOCK_Q6_K)

const Kernels kernels_relaxed = {
    ISA_RELAXED, KERNELS_PANELS,
    {activation_quantize_float, quantize_simd128_32, quantize_simd128_256}};

