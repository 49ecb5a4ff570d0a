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
 * and adds the two lanes of a row. The instructions with floats are never used: theirs differ. Nor
 * is i32x4.relaxed_dot_i8x16_i7x16_add: one instruction on some machines, five on others, and the
 * first compiler of V8 11.3 (Node 20) gives wrong sums. */
#include "quant/kernels_tables.h"
#include "quant/panel_simd128.h"
#include "quant/quantize_simd128.h"

UNPACK_INLINE v128_t dot(v128_t sums, v128_t activations, v128_t weights)
{
    return wasm_i16x8_add(sums, wasm_i16x8_relaxed_dot_i8x16_i7x16(activations, weights));
}

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

/* Groups l and l + 4 of a type with nibbles, where l is known only when it runs. */
UNPACK_INLINE void two_groups(BlockType type, const uint8_t *lines, uint32_t chunk, uint32_t l,
                              v128_t *low, v128_t *high)
{
    PanelLines k = panel_lines(type);
    uint32_t crumbs = k.bit_lines, rest = crumbs + k.crumb_lines;
    v128_t nibbles = simd_line(lines, rest + l, chunk);
    *low = field(nibbles, 0, 0, 15);
    *high = field(nibbles, 4, 0, 15);
    if (k.bit_lines) {
        v128_t bits = simd_line(lines, 0, chunk),
               factor = wasm_v128_load16_splat(&simd_bit_factor[l]);
        v128_t next = wasm_u16x8_shr(bits, 4);
        *low = wasm_v128_or(*low, field(wasm_i16x8_mul(bits, factor), 4, 4, 1));
        *high = wasm_v128_or(*high, field(wasm_i16x8_mul(next, factor), 4, 4, 1));
    }
    if (k.crumb_lines) {
        v128_t factor = wasm_v128_load16_splat(&simd_crumb_factor[l]);
        v128_t first = wasm_i16x8_mul(simd_line(lines, crumbs, chunk), factor);
        v128_t second = wasm_i16x8_mul(simd_line(lines, crumbs + 1, chunk), factor);
        *low = wasm_v128_or(*low, field(first, 6, 4, 3));
        *high = wasm_v128_or(*high, field(second, 6, 4, 3));
    }
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
UNPACK_INLINE v128_t chain_start(BlockType type, const void *lanes)
{
    int shift = chain_shift(type);
    if (shift < 0) return wasm_i32x4_splat(0);
    return wasm_i16x8_shl(wasm_v128_load32_splat(lanes), (uint32_t)shift);
}

/* Chains per 32 elements of the K types: one of all, or one of each half. */
UNPACK_INLINE uint32_t chain_count(BlockType type) { return type == BLOCK_Q4_K ? 1 : 2; }

/* Groups l and l + 4 of every line: first += the former, second (may be the same) += the latter. */
UNPACK_INLINE void line_chains(BlockType type, const uint8_t *lines, uint32_t chunk, Tokens q,
                               uint32_t chunks, uint32_t tokens, Sums *first, Sums *second)
{
    ROLLED
    for (uint32_t l = 0; l < 4; l++) {
        v128_t a[SIMD_TOKENS_MAX], b[SIMD_TOKENS_MAX];
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            a[t] = wasm_v128_load32_splat(simd_token(q, t) + 4 * l);
            b[t] = wasm_v128_load32_splat(simd_token(q, t) + 4 * l + 16);
        }
        UNROLL
        for (uint32_t n = 0; n < chunks; n++) {
            v128_t low, high;
            two_groups(type, lines, chunk + n, l, &low, &high);
            UNROLL
            for (uint32_t t = 0; t < tokens; t++) {
                first->at[n][t] = dot(first->at[n][t], a[t], low);
                second->at[n][t] = dot(second->at[n][t], b[t], high);
            }
        }
    }
}

/* The same without a loop, one chunk. */
UNPACK_INLINE void chunk_chains(BlockType type, const uint8_t *lines, uint32_t chunk, Tokens q,
                                uint32_t tokens, Sums *first, Sums *second)
{
    UNROLL
    for (uint32_t n = 0; n < 8; n++) { /* 0 4 1 5 ..: both nibbles of a line come from one load */
        uint32_t g = n / 2 + 4 * (n % 2);
        v128_t w = group(type, lines, chunk, g), *to = g < 4 ? first->at[0] : second->at[0];
        UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            to[t] = dot(to[t], wasm_v128_load32_splat(simd_token(q, t) + 4 * g), w);
    }
}

UNPACK_INLINE void chains(BlockType type, const uint8_t *lines, uint32_t chunk, Tokens q,
                          uint32_t chunks, uint32_t tokens, Sums *first, Sums *second)
{
    if (chunks == 1) chunk_chains(type, lines, chunk, q, tokens, first, second);
    else line_chains(type, lines, chunk, q, chunks, tokens, first, second);
}

/* The sum of a chain of 32. Q5_1 has no zero point and gets back what its chain started at. */
UNPACK_INLINE v128_t chain_sum(BlockType type, v128_t c, const uint8_t *activation)
{
    v128_t sum = wasm_i32x4_dot_i16x8(c, wasm_i16x8_splat(1));
    if (type != BLOCK_Q5_1) return sum;
    v128_t start = wasm_v128_load32_splat(activation + offsetof(Activation32, negative_sum));
    return wasm_i32x4_sub(sum, wasm_i32x4_shl(start, 4));
}

UNPACK_INLINE v128_t chain_start_32(BlockType type, const uint8_t *activation)
{
    return chain_start(type, activation + offsetof(Activation32, negative_lanes));
}
UNPACK_INLINE v128_t chain_start_256(BlockType type, const uint8_t *activation, uint32_t half)
{
    return chain_start(type, activation + offsetof(Activation256, negative_half_lanes) + 4 * half);
}
UNPACK_INLINE v128_t chain_scale(BlockType type, v128_t scale)
{
    (void)type;
    return wasm_v128_or(scale, wasm_i32x4_shl(scale, 16));
}
UNPACK_INLINE v128_t chain_scaled(BlockType type, v128_t c, v128_t scale_k)
{
    (void)type;
    return wasm_i32x4_dot_i16x8(c, scale_k);
}

/* Measured with V8: with two chains of four tokens, two chunks are more vectors than it has registers for. */
UNPACK_INLINE uint32_t chain_tile_chunks(BlockType type, uint32_t tokens)
{
    if (tokens == 1) return panel_lines(type).nibble_lines ? CHUNKS : 1;
    return unpack_scale_count(type) && type != BLOCK_Q4_K ? 1 : 2;
}

#define SIMD128_CHAINS
#include "quant/panel_simd128_body.h"

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
    ISA_RELAXED,
    KERNELS_PANELS,
    {activation_quantize_float, quantize_simd128_32, quantize_simd128_256}};
