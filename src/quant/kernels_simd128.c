/* SPDX-License-Identifier: Apache-2.0 */
/* WebAssembly SIMD: 4 rows (a quarter of a panel line, a *chunk*) in one vector, a few chunks x tokens at a time.
 *
 *   line chunk (16 B):  | row 0: e0 e1 e2 e3 | row 1: .. | row 2: .. | row 3: .. |      16-bit lanes: e0 | e1 << 8, ..
 *
 * A mask takes e0 and e2 of every row as 16-bit numbers, a shift e1 and e3: widening costs no shuffle, and
 * i32x4.dot_i16x8 with the activations (a0, a2) or (a1, a3) in every lane leaves one 32-bit sum per row. Nibbles,
 * two-bit and one-bit lines are taken apart by the same shifts. Sums are exact in 32 bits: nothing saturates. The
 * activations are widened where they are read, for all four chunks of a line. */
#include "quant/kernels_tables.h"
#include "quant/panel_simd128.h"
#include "quant/quantize_simd128.h"

/* ---- elements ------------------------------------------------------------------------------------------------ */

/* Of four bytes in every lane: 0 and 2 as int16, and 1 and 3. */
UNPACK_INLINE v128_t even(v128_t v) { return wasm_i16x8_shr(wasm_i16x8_shl(v, 8), 8); }
UNPACK_INLINE v128_t odd(v128_t v) { return wasm_i16x8_shr(v, 8); }

/* Bits of `mask` at `from` of every 16-bit lane, moved to `to`. */
UNPACK_INLINE v128_t field(v128_t v, uint32_t from, uint32_t to, uint32_t mask)
{
    if (from > to) v = wasm_u16x8_shr(v, from - to);
    if (from < to) v = wasm_i16x8_shl(v, to - from);
    return wasm_v128_and(v, wasm_i16x8_splat((int16_t)(mask << to)));
}

/* Elements 0 and 2 (or with `byte` 8: 1 and 3) of groups l and l + 4, unsigned, before the zero point. */
UNPACK_INLINE void two_groups(BlockType type, const uint8_t *lines, uint32_t chunk, uint32_t l,
                              uint32_t byte, v128_t *low, v128_t *high)
{
    PanelLines k = panel_lines(type);
    uint32_t crumbs = k.bit_lines, rest = crumbs + k.crumb_lines;
    v128_t nibbles = simd_line(lines, rest + l, chunk);
    *low = field(nibbles, byte, 0, 15);
    *high = field(nibbles, byte + 4, 0, 15);
    if (k.bit_lines) {
        v128_t bits = field(simd_line(lines, 0, chunk), byte, 0, 255);
        bits = wasm_i16x8_mul(bits, wasm_v128_load16_splat(&simd_bit_factor[l]));
        *low = wasm_v128_or(*low, field(bits, 4, 4, 1));
        *high = wasm_v128_or(*high, field(bits, 8, 4, 1));
    }
    if (k.crumb_lines) {
        v128_t factor = wasm_v128_load16_splat(&simd_crumb_factor[l]);
        v128_t first = field(simd_line(lines, crumbs, chunk), byte, 0, 255);
        v128_t second = field(simd_line(lines, crumbs + 1, chunk), byte, 0, 255);
        *low = wasm_v128_or(*low, field(wasm_i16x8_mul(first, factor), 6, 4, 3));
        *high = wasm_v128_or(*high, field(wasm_i16x8_mul(second, factor), 6, 4, 3));
    }
}

/* Group g alone, where nothing is known only when it runs. */
UNPACK_INLINE v128_t one_group(BlockType type, const uint8_t *lines, uint32_t chunk, uint32_t g,
                               uint32_t byte)
{
    PanelLines k = panel_lines(type);
    if (k.byte_lines) return field(simd_line(lines, g, chunk), byte, 0, 255);
    v128_t v =
        field(simd_line(lines, k.bit_lines + g / 4, chunk), byte + 2 * (g % 4), k.crumb_shift, 3);
    if (k.bit_lines)
        v = wasm_v128_or(v, field(simd_line(lines, 0, chunk), byte + g, k.bit_shift, 1));
    return v;
}

/* ---- chains: one sum of 32 bits per row ------------------------------------------------------------------------ */

/* Sums start at minus the zero point times the elements' sum: that, shifted; at 0 where there is no zero point. */
UNPACK_INLINE v128_t chain_start(BlockType type, const uint8_t *negative_sum)
{
    v128_t sum = wasm_v128_load32_splat(negative_sum);
    switch (type) {
    case BLOCK_Q3_K: return wasm_i32x4_shl(sum, 2);
    case BLOCK_Q4_0: return wasm_i32x4_shl(sum, 3);
    case BLOCK_Q5_0: return wasm_i32x4_shl(sum, 4);
    case BLOCK_Q6_K: return wasm_i32x4_shl(sum, 5);
    case BLOCK_Q8_0: return wasm_i32x4_shl(sum, 7);
    default: return wasm_i32x4_splat(0);
    }
}
UNPACK_INLINE v128_t chain_start_32(BlockType type, const uint8_t *activation)
{
    return chain_start(type, activation + offsetof(Activation32, negative_sum));
}
UNPACK_INLINE v128_t chain_start_256(BlockType type, const uint8_t *activation, uint32_t half)
{
    return chain_start(type, activation + offsetof(Activation256, negative_half_sums) + 4 * half);
}

UNPACK_INLINE uint32_t chain_count(BlockType type)
{
    return unpack_scale_count(type) == 16 ? 2 : 1;
}

UNPACK_INLINE v128_t chain_sum(BlockType type, v128_t c, const uint8_t *activation)
{
    (void)type, (void)activation;
    return c;
}

/* Scales are in the low halves; their products with k are 32 bits wide. */
UNPACK_INLINE v128_t chain_scale(BlockType type, v128_t scale)
{
    (void)type;
    return scale;
}
UNPACK_INLINE v128_t chain_scaled(BlockType type, v128_t c, v128_t scale_k)
{
    bool is_signed = type == BLOCK_Q3_K || type == BLOCK_Q6_K;
    if (is_signed) scale_k = wasm_i32x4_shr(wasm_i32x4_shl(scale_k, 16), 16);
    return wasm_i32x4_mul(c, scale_k);
}

UNPACK_INLINE v128_t dot(v128_t sums, v128_t activations, v128_t weights)
{
    return wasm_i32x4_add(sums, wasm_i32x4_dot_i16x8(weights, activations));
}

/* Groups l and l + 4 of every line of nibbles. */
UNPACK_INLINE void nibble_chains(BlockType type, const uint8_t *lines, uint32_t chunk, Tokens q,
                                 uint32_t chunks, uint32_t tokens, Sums *first, Sums *second)
{
    ROLLED
    for (uint32_t l = 0; l < 4; l++) {
        UNROLL
        for (uint32_t byte = 0; byte <= 8; byte += 8) {
            v128_t a[SIMD_TOKENS_MAX], b[SIMD_TOKENS_MAX];
            UNROLL
            for (uint32_t t = 0; t < tokens; t++) {
                v128_t low = wasm_v128_load32_splat(simd_token(q, t) + 4 * l);
                v128_t high = wasm_v128_load32_splat(simd_token(q, t) + 4 * l + 16);
                a[t] = byte ? odd(low) : even(low);
                b[t] = byte ? odd(high) : even(high);
            }
            UNROLL
            for (uint32_t n = 0; n < chunks; n++) {
                v128_t low, high;
                two_groups(type, lines, chunk + n, l, byte, &low, &high);
                UNROLL
                for (uint32_t t = 0; t < tokens; t++) {
                    first->at[n][t] = dot(first->at[n][t], a[t], low);
                    second->at[n][t] = dot(second->at[n][t], b[t], high);
                }
            }
        }
    }
}

/* Group g of lines without nibbles. */
UNPACK_INLINE void group_chains(BlockType type, const uint8_t *lines, uint32_t chunk, Tokens q,
                                uint32_t g, uint32_t chunks, uint32_t tokens, Sums *sums)
{
    UNROLL
    for (uint32_t byte = 0; byte <= 8; byte += 8) {
        v128_t a[SIMD_TOKENS_MAX];
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            v128_t v = wasm_v128_load32_splat(simd_token(q, t) + 4 * g);
            a[t] = byte ? odd(v) : even(v);
        }
        UNROLL
        for (uint32_t n = 0; n < chunks; n++) {
            v128_t w = one_group(type, lines, chunk + n, g, byte);
            UNROLL
            for (uint32_t t = 0; t < tokens; t++) sums->at[n][t] = dot(sums->at[n][t], a[t], w);
        }
    }
}

UNPACK_INLINE void chains(BlockType type, const uint8_t *lines, uint32_t chunk, Tokens q,
                          uint32_t chunks, uint32_t tokens, Sums *first, Sums *second)
{
    if (panel_lines(type).nibble_lines) {
        nibble_chains(type, lines, chunk, q, chunks, tokens, first, second);
    } else if (panel_lines(type).byte_lines) {
        ROLLED
        for (uint32_t g = 0; g < 8; g++)
            group_chains(type, lines, chunk, q, g, chunks, tokens, first);
    } else {
        UNROLL
        for (uint32_t g = 0; g < 8; g++)
            group_chains(type, lines, chunk, q, g, chunks, tokens, g < 4 ? first : second);
    }
}

UNPACK_INLINE uint32_t chain_tile_chunks(BlockType type, uint32_t tokens)
{
    (void)type;
    return tokens == 1 ? CHUNKS : 2;
}

#define SIMD128_CHAINS
#include "quant/panel_simd128_body.h"

/* ---- floats -------------------------------------------------------------------------------------------------- */

UNPACK_INLINE v128_t load_floats(BlockType type, const uint8_t *panel, size_t at)
{
    if (type == BLOCK_F32) return wasm_v128_load(panel + 4 * at);
    if (type == BLOCK_F16) return simd_halves(panel + 2 * at);
    return wasm_i32x4_shl(wasm_u32x4_load16x4(panel + 2 * at), 16);
}

UNPACK_INLINE void tile_float(BlockType type, const uint8_t *panel, uint32_t cols, const uint8_t *x,
                              size_t stride, uint32_t tokens, float *out, size_t out_stride)
{
    v128_t acc[CHUNKS][2];
    UNROLL
    for (uint32_t c = 0; c < CHUNKS; c++) acc[c][0] = acc[c][1] = wasm_i32x4_splat(0);
    for (size_t col = 0; col < cols; col++) UNROLL
    for (uint32_t c = 0; c < CHUNKS; c++) {
        v128_t w = load_floats(type, panel, PANEL_ROWS * col + CHUNK_ROWS * c);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            acc[c][t] = wasm_f32x4_add(acc[c][t],
                                       wasm_f32x4_mul(w, simd_all_f32(x + t * stride + 4 * col)));
    }
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) UNROLL
    for (uint32_t c = 0; c < CHUNKS; c++)
        wasm_v128_store(out + t * out_stride + CHUNK_ROWS * c, acc[c][t]);
}

UNPACK_INLINE void panel_floats(BlockType type, const uint8_t *panel, uint32_t cols,
                                const uint8_t *x, size_t stride, uint32_t tokens, float *out,
                                size_t out_stride)
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
    ISA_SIMD128,
    KERNELS_PANELS,
    {activation_quantize_float, quantize_simd128_32, quantize_simd128_256}};
