/* SPDX-License-Identifier: Apache-2.0 */
/* WebAssembly SIMD: 4 rows (a quarter of a panel line, a *chunk*) in one vector, a few chunks x tokens at a time.
 *
 *   line chunk (16 B):  | row 0: e0 e1 e2 e3 | row 1: .. | row 2: .. | row 3: .. |      16-bit lanes: e0 | e1 << 8, ..
 *
 * A mask takes e0 and e2 of every row as 16-bit numbers, a shift e1 and e3: widening costs no shuffle, and
 * i32x4.dot_i16x8 with the activations (a0, a2) or (a1, a3) in every lane leaves one 32-bit sum per row. Nibbles,
 * two-bit and one-bit lines are taken apart by the same shifts. Sums are exact in 32 bits: nothing saturates.
 *
 * The activations of a block are widened once per panel: for 16 elements | pairs 0 2, 4 6, .. | pairs 1 3, 5 7, .. |.
 * Functions named tile_ are inlined with constant type, chunks and tokens. */
#include "quant/kernels_tables.h"
#include "quant/panel_simd128.h"
#include "quant/quantize_simd128.h"

enum { TILE_CHUNKS = 4, TILE_TOKENS = 2 };

/* ---- widened activations ------------------------------------------------------------------------------------- */

enum { WIDE_16 = 32, WIDE_BLOCK_MAX = 256 * 2 };

UNPACK_INLINE void widen(const int8_t *q, uint32_t elements, uint8_t *out)
{
    for (uint32_t i = 0; i < elements; i += 16, out += WIDE_16) {
        v128_t v = wasm_v128_load(q + i);
        wasm_v128_store(out, wasm_i16x8_shr(wasm_i16x8_shl(v, 8), 8));
        wasm_v128_store(out + 16, wasm_i16x8_shr(v, 8));
    }
}

/* Elements 0 and 2 of group g, or with `odd` 1 and 3, in every lane. */
UNPACK_INLINE v128_t wide_pair(const uint8_t *wide, uint32_t g, uint32_t odd)
{
    return wasm_v128_load32_splat(wide + g / 4 * WIDE_16 + 16 * odd + g % 4 * 4);
}

/* ---- elements ------------------------------------------------------------------------------------------------ */

/* Bits of `mask` at `from` of every 16-bit lane, moved to `to`. */
UNPACK_INLINE v128_t field(v128_t v, uint32_t from, uint32_t to, uint32_t mask)
{
    if (from > to) v = wasm_u16x8_shr(v, from - to);
    if (from < to) v = wasm_i16x8_shl(v, to - from);
    return wasm_v128_and(v, wasm_i16x8_splat((int16_t)(mask << to)));
}

/* Elements 0 and 2 (or 1 and 3) of group g, unsigned, before the zero point. */
UNPACK_INLINE v128_t elements(BlockType type, const uint8_t *lines, uint32_t chunk, uint32_t g, uint32_t odd)
{
    PanelLines k = panel_lines(type);
    uint32_t crumbs = k.bit_lines, rest = crumbs + k.crumb_lines, byte = 8 * odd;
    if (k.byte_lines) {
        v128_t line = simd_line(lines, rest + g, chunk);
        return odd ? wasm_u16x8_shr(line, 8) : wasm_v128_and(line, wasm_i16x8_splat(255));
    }
    v128_t v = wasm_i32x4_splat(0);
    if (k.nibble_lines) {
        v128_t line = simd_line(lines, rest + g % 4, chunk);
        v = odd && g >= 4 ? wasm_u16x8_shr(line, 12) : field(line, byte + (g < 4 ? 0 : 4), 0, 15);
    }
    if (k.crumb_lines)
        v = wasm_v128_or(v, field(simd_line(lines, crumbs + g / 4, chunk), byte + 2 * (g % 4), k.crumb_shift, 3));
    if (k.bit_lines) v = wasm_v128_or(v, field(simd_line(lines, 0, chunk), byte + g, k.bit_shift, 1));
    return v;
}

UNPACK_INLINE int32_t zero_shift(BlockType type)
{
    switch (type) {
    case BLOCK_Q4_0: return 3;
    case BLOCK_Q5_0: return 4;
    case BLOCK_Q8_0: return 7;
    case BLOCK_Q3_K: return 2;
    case BLOCK_Q6_K: return 5;
    default: return -1; /* no zero point */
    }
}

/* Sums start at minus the zero point times the elements' sum, found at `offset` of each activation. */
UNPACK_INLINE void start(BlockType type, const Tile *tile, size_t offset, uint32_t chunks, uint32_t tokens, Sums *s)
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        v128_t v = wasm_i32x4_splat(0);
        if (zero_shift(type) >= 0)
            v = wasm_i32x4_shl(wasm_v128_load32_splat(tile->activation + t * tile->stride + offset),
                               (uint32_t)zero_shift(type));
        UNROLL
        for (uint32_t c = 0; c < chunks; c++) s->at[c][t] = v;
    }
}

UNPACK_INLINE void add_group(BlockType type, const Tile *tile, const uint8_t *lines, size_t wide_offset, uint32_t g,
                             uint32_t chunks, uint32_t tokens, Sums *s)
{
    UNROLL
    for (uint32_t odd = 0; odd < 2; odd++) {
        v128_t a[TILE_TOKENS];
        UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            a[t] = wide_pair(tile->wide + t * tile->wide_stride + wide_offset, g, odd);
        UNROLL
        for (uint32_t c = 0; c < chunks; c++) {
            v128_t w = elements(type, lines, tile->chunk + c, g, odd);
            UNROLL
            for (uint32_t t = 0; t < tokens; t++)
                s->at[c][t] = wasm_i32x4_add(s->at[c][t], wasm_i32x4_dot_i16x8(w, a[t]));
        }
    }
}

/* ---- blocks of 32 -------------------------------------------------------------------------------------------- */

UNPACK_INLINE void tile_32(BlockType type, const Tile *tile, uint32_t chunks, uint32_t tokens)
{
    Sums s;
    start(type, tile, offsetof(Activation32, negative_sum), chunks, tokens, &s);
    UNROLL
    for (uint32_t n = 0; n < 8; n++) { /* 0 4 1 5 .., so that both nibbles of a line come from one load */
        uint32_t g = n / 2 + 4 * (n % 2);
        add_group(type, tile, tile->block + panel_head_bytes(type), 0, g, chunks, tokens, &s);
    }
    simd_finish_32(type, tile, &s, chunks, tokens);
}

/* ---- blocks of 256 ------------------------------------------------------------------------------------------- */

/* The first or second of each pair times k, as int32. */
UNPACK_INLINE v128_t pair_part(v128_t pair, uint32_t which)
{
    return which ? wasm_i32x4_shr(pair, 16) : wasm_i32x4_shr(wasm_i32x4_shl(pair, 16), 16);
}

/* i += (scale k) s, where the scales are the `which`-th of pair p and k is that of sub j. */
UNPACK_INLINE void add_scaled(BlockType type, const Tile *tile, const uint8_t *pairs, uint32_t p, uint32_t which,
                              uint32_t j, const Sums *s, uint32_t chunks, uint32_t tokens, Sums *i)
{
    UNROLL
    for (uint32_t c = 0; c < chunks; c++) {
        v128_t pair = simd_pair(pairs, p, tile->chunk + c, type == BLOCK_Q3_K || type == BLOCK_Q6_K);
        if (type == BLOCK_Q2_K) pair = wasm_v128_and(pair, wasm_i16x8_splat(15));
        v128_t scale = pair_part(pair, which);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            const uint8_t *k = tile->activation + t * tile->stride + offsetof(Activation256, k) + 2 * j;
            v128_t scale_k = wasm_i32x4_mul(scale, wasm_i32x4_splat((int16_t)bytes_load16(k)));
            i->at[c][t] = wasm_i32x4_add(i->at[c][t], wasm_i32x4_mul(scale_k, s->at[c][t]));
        }
    }
}

/* Sub j: one sum of 32 elements, or two of 16, each with its scale. */
UNPACK_INLINE void add_sub(BlockType type, const Tile *tile, const uint8_t *pairs, uint32_t j, uint32_t chunks,
                           uint32_t tokens, Sums *i)
{
    uint32_t sums = unpack_scale_count(type) / 8;
    const uint8_t *lines =
        tile->block + panel_head_bytes(type) + j * panel_lines_count(panel_lines(type)) * LINE_BYTES;
    Sums s[2];
    UNROLL
    for (uint32_t n = 0; n < sums; n++)
        start(type, tile, offsetof(Activation256, negative_half_sums) + 4 * (2 * j + n), chunks, tokens, &s[n]);
    UNROLL
    for (uint32_t n = 0; n < 8; n++) {
        uint32_t g = n / 2 + 4 * (n % 2);
        add_group(type, tile, lines, 2 * WIDE_16 * j, g, chunks, tokens, &s[g / 4 * (sums - 1)]);
    }
    if (sums == 1) {
        add_scaled(type, tile, pairs, j / 2, j % 2, j, &s[0], chunks, tokens, i);
    } else {
        add_scaled(type, tile, pairs, j, 0, j, &s[0], chunks, tokens, i);
        add_scaled(type, tile, pairs, j, 1, j, &s[1], chunks, tokens, i);
    }
}

UNPACK_INLINE void tile_256(BlockType type, const Tile *tile, uint32_t chunks, uint32_t tokens)
{
    const uint8_t *pairs = tile->block + HALVES_BYTES * (unpack_has_min(type) ? 2 : 1);
    Sums i;
    start(BLOCK_Q4_K, tile, 0, chunks, tokens, &i); /* zeros */
    for (uint32_t p = 0; p < 4; p++) { /* two subs a step */
        add_sub(type, tile, pairs, 2 * p, chunks, tokens, &i);
        add_sub(type, tile, pairs, 2 * p + 1, chunks, tokens, &i);
    }
    simd_finish_256(type, tile, pairs, &i, chunks, tokens);
}

/* ---- panels of blocks ---------------------------------------------------------------------------------------- */

/* Measured with V8: more chunks would spill where elements take more steps to make. */
UNPACK_INLINE uint32_t tile_chunks(BlockType type)
{
    return type == BLOCK_Q4_0 || type == BLOCK_Q4_1 ? TILE_CHUNKS : 2;
}

UNPACK_INLINE void tile_any(BlockType type, Tile tile, uint32_t tokens)
{
    uint32_t chunks = tile_chunks(type);
    for (tile.chunk = 0; tile.chunk < CHUNKS; tile.chunk += chunks, tile.acc += CHUNK_ROWS * chunks) {
        if (unpack_scale_count(type)) tile_256(type, &tile, chunks, tokens);
        else tile_32(type, &tile, chunks, tokens);
    }
}

/* All tokens of one block. */
UNPACK_INLINE void block_tokens(BlockType type, Tile tile, uint32_t tokens)
{
    for (; tokens >= TILE_TOKENS; tokens -= TILE_TOKENS) {
        tile_any(type, tile, TILE_TOKENS);
        tile.activation += TILE_TOKENS * tile.stride;
        tile.wide += TILE_TOKENS * tile.wide_stride;
        tile.acc += TILE_TOKENS * PANEL_ROWS;
    }
    if (tokens) tile_any(type, tile, 1);
}

UNPACK_INLINE void panel_blocks(BlockType type, const uint8_t *panel, uint32_t cols, const uint8_t *activations,
                                size_t stride, uint32_t tokens, float *out, size_t out_stride)
{
    bool is_256 = unpack_scale_count(type) != 0;
    uint32_t elements_per_block = is_256 ? 256 : 32;
    size_t step = is_256 ? sizeof(Activation256) : sizeof(Activation32), wide_stride = 2 * elements_per_block;
    float acc[KERNEL_TOKENS_MAX * PANEL_ROWS] = {0};
    _Alignas(16) uint8_t wide[KERNEL_TOKENS_MAX * WIDE_BLOCK_MAX];
    for (uint32_t b = 0; b < cols / elements_per_block; b++, panel += panel_block_bytes(type), activations += step) {
        for (uint32_t t = 0; t < tokens; t++) /* q comes first in both forms */
            widen((const int8_t *)activations + t * stride, elements_per_block, wide + t * wide_stride);
        Tile tile = {panel, 0, activations, stride, acc, wide, wide_stride};
        block_tokens(type, tile, tokens);
    }
    for (uint32_t t = 0; t < tokens; t++) memcpy(out + t * out_stride, acc + t * PANEL_ROWS, PANEL_ROWS * sizeof *acc);
}

/* ---- floats -------------------------------------------------------------------------------------------------- */

UNPACK_INLINE v128_t load_floats(BlockType type, const uint8_t *panel, size_t at)
{
    if (type == BLOCK_F32) return wasm_v128_load(panel + 4 * at);
    if (type == BLOCK_F16) return simd_halves(panel + 2 * at);
    return wasm_i32x4_shl(wasm_u32x4_load16x4(panel + 2 * at), 16);
}

UNPACK_INLINE void tile_float(BlockType type, const uint8_t *panel, uint32_t cols, const uint8_t *x, size_t stride,
                              uint32_t tokens, float *out, size_t out_stride)
{
    v128_t acc[CHUNKS][2];
    UNROLL
    for (uint32_t c = 0; c < CHUNKS; c++) acc[c][0] = acc[c][1] = wasm_i32x4_splat(0);
    for (size_t col = 0; col < cols; col++)
        UNROLL
        for (uint32_t c = 0; c < CHUNKS; c++) {
            v128_t w = load_floats(type, panel, PANEL_ROWS * col + CHUNK_ROWS * c);
            UNROLL
            for (uint32_t t = 0; t < tokens; t++)
                acc[c][t] = wasm_f32x4_add(acc[c][t], wasm_f32x4_mul(w, simd_all_f32(x + t * stride + 4 * col)));
        }
    UNROLL
    for (uint32_t t = 0; t < tokens; t++)
        UNROLL
        for (uint32_t c = 0; c < CHUNKS; c++) wasm_v128_store(out + t * out_stride + CHUNK_ROWS * c, acc[c][t]);
}

UNPACK_INLINE void panel_floats(BlockType type, const uint8_t *panel, uint32_t cols, const uint8_t *x, size_t stride,
                                uint32_t tokens, float *out, size_t out_stride)
{
    for (; tokens >= 2; tokens -= 2, x += 2 * stride, out += 2 * out_stride)
        tile_float(type, panel, cols, x, stride, 2, out, out_stride);
    if (tokens) tile_float(type, panel, cols, x, stride, 1, out, out_stride);
}

/* ---- the table ----------------------------------------------------------------------------------------------- */

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

const Kernels kernels_simd128 = {
    ISA_SIMD128, KERNELS_PANELS, {activation_quantize_float, quantize_simd128_32, quantize_simd128_256}};
