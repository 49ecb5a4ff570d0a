/* SPDX-License-Identifier: Apache-2.0 */
/* What both WebAssembly kernels share: a chunk is 4 rows of a panel's line in one vector; its scales,
 * minimums and float steps. Private to this room.
 *
 *   chunk (16 B):  | row 0: e0 e1 e2 e3 | row 1: .. | row 2: .. | row 3: .. | */
#ifndef COBORD_QUANT_PANEL_SIMD128_H
#define COBORD_QUANT_PANEL_SIMD128_H

#ifdef __wasm_simd128__ /* nothing without the machine */
#include <wasm_simd128.h>

#include "quant/activation.h"
#include "quant/panel.h"
#include "quant/unroll.h"

enum { CHUNK_ROWS = 4, CHUNKS = PANEL_ROWS / CHUNK_ROWS, CHUNK_BYTES = 16, SIMD_TOKENS_MAX = 4 };

/* Activation rows of one block, of the first of several tokens. */
typedef struct Tokens {
    const uint8_t *first;
    size_t stride;
} Tokens;

UNPACK_INLINE const uint8_t *simd_token(Tokens tokens, uint32_t t)
{
    return tokens.first + t * tokens.stride;
}

/* Multiplied by these, bit l of a number comes to bit 4, and bits 2l + 1..2l come to bits 7..6: what is taken apart in
 * a loop over l. Shifts by a number that is no constant take V8 four instructions. */
static const uint16_t simd_bit_factor[4] = {16, 8, 4, 2}, simd_crumb_factor[4] = {64, 16, 4, 1};

/* A vector for each chunk and token of a tile. */
typedef struct Sums {
    v128_t at[CHUNKS][SIMD_TOKENS_MAX];
} Sums;

UNPACK_INLINE v128_t simd_line(const uint8_t *lines, uint32_t line, uint32_t chunk)
{
    return wasm_v128_load(lines + line * LINE_BYTES + chunk * CHUNK_BYTES);
}
UNPACK_INLINE v128_t simd_all_f32(const void *p) { return wasm_v128_load32_splat(p); }

/* Four halves to f32. x << 13 with the sign kept is the number times 2^-112; exponent 31 is
 * infinity or NaN. */
UNPACK_INLINE v128_t simd_halves(const uint8_t *p)
{
    v128_t bits = wasm_i32x4_shl(wasm_i32x4_load16x4(p), 13),
           exponent = wasm_i32x4_splat(0x0f800000);
    v128_t special = wasm_i32x4_eq(wasm_v128_and(bits, exponent), exponent);
    v128_t number = wasm_v128_and(bits, wasm_i32x4_splat((int32_t)0x8fffe000));
    number = wasm_f32x4_mul(number, wasm_f32x4_splat(0x1p112f));
    return wasm_v128_or(number, wasm_v128_and(special, wasm_i32x4_splat(0x7f800000)));
}

/* d and, where there is one, the minimum of four rows. */
typedef struct ChunkHalves {
    v128_t d, m;
} ChunkHalves;

UNPACK_INLINE ChunkHalves simd_chunk_halves(BlockType type, const uint8_t *block, uint32_t chunk)
{
    const uint8_t *at = block + 2 * CHUNK_ROWS * chunk;
    ChunkHalves h = {simd_halves(at), wasm_i32x4_splat(0)};
    if (unpack_has_min(type)) h.m = simd_halves(at + HALVES_BYTES);
    return h;
}

/* ---- blocks of 32 ---------------------------------------------------------------------------- */

/* acc + d * (scale * (float) S), with a minimum + m * scale_sum. */
UNPACK_INLINE v128_t simd_add_32(BlockType type, v128_t acc, ChunkHalves h, v128_t s,
                                 const uint8_t *activation)
{
    v128_t scale = simd_all_f32(activation + offsetof(Activation32, scale));
    v128_t step = wasm_f32x4_mul(h.d, wasm_f32x4_mul(scale, wasm_f32x4_convert_i32x4(s)));
    if (unpack_has_min(type)) {
        v128_t sum = simd_all_f32(activation + offsetof(Activation32, scale_sum));
        step = wasm_f32x4_add(step, wasm_f32x4_mul(h.m, sum));
    }
    return wasm_f32x4_add(acc, step);
}

/* ---- blocks of 256 --------------------------------------------------------------------------- */

UNPACK_INLINE const uint8_t *simd_pairs(BlockType type, const uint8_t *block)
{
    return block + HALVES_BYTES * (unpack_has_min(type) ? 2 : 1);
}

/* Pair p of scales as int16 pairs, one pair a row. */
UNPACK_INLINE v128_t simd_pair(const uint8_t *pairs, uint32_t p, uint32_t chunk, bool is_signed)
{
    const uint8_t *at = pairs + PAIR_BYTES * p + 2 * CHUNK_ROWS * chunk;
    return is_signed ? wasm_i16x8_load8x8(at) : wasm_u16x8_load8x8(at);
}

/* Scale n of 8 or 16 of a block as int16, in the low half of each row's 32 bits. Pairs are read from their second byte
 * on for odd n, up to one byte of the lines behind: a shift by a number that is no constant would take longer. */
UNPACK_INLINE v128_t simd_scale(BlockType type, const uint8_t *pairs, uint32_t n, uint32_t chunk)
{
    v128_t scale = simd_pair(pairs + n % 2, n / 2, chunk, type == BLOCK_Q3_K || type == BLOCK_Q6_K);
    return wasm_v128_and(scale, wasm_i32x4_splat(type == BLOCK_Q2_K ? 15 : 0xffff));
}

/* (first, first) or (second, second) of each pair of int16. */
UNPACK_INLINE v128_t simd_twice(v128_t pairs, uint32_t which)
{
    v128_t low = wasm_v128_and(pairs, wasm_i32x4_splat(0xffff));
    if (!which) return wasm_v128_or(low, wasm_i32x4_shl(pairs, 16));
    v128_t high = wasm_u32x4_shr(pairs, 16);
    return wasm_v128_or(high, wasm_v128_andnot(pairs, wasm_i32x4_splat(0xffff)));
}

UNPACK_INLINE v128_t add_minimum(v128_t j, v128_t minimum, const void *sums)
{
    return wasm_i32x4_add(j, wasm_i32x4_dot_i16x8(minimum, wasm_v128_load32_splat(sums)));
}

/* sum of m k A. Sums of 32 fit int16 unless the activation is wide; sums of 16 always do. */
UNPACK_INLINE v128_t simd_minimum(BlockType type, const uint8_t *pairs, uint32_t chunk,
                                  const uint8_t *activation)
{
    const uint8_t *sums = activation + offsetof(Activation256, k_sums);
    const uint8_t *half_sums = activation + offsetof(Activation256, k_half_sums);
    bool halves = type == BLOCK_Q2_K;
    v128_t j = wasm_i32x4_splat(0);
    if (!halves && bytes_load32(activation + offsetof(Activation256, wide))) {
        for (uint32_t p = 0; p < 4; p++) {
            v128_t m = simd_pair(pairs, 4 + p, chunk, false);
            j = add_minimum(j, simd_twice(m, 0), half_sums + 8 * p);
            j = add_minimum(j, simd_twice(m, 1), half_sums + 8 * p + 4);
        }
        return j;
    }
    UNROLL
    for (uint32_t p = 0; p < (halves ? 8 : 4); p++) {
        v128_t m = simd_pair(pairs, halves ? p : 4 + p, chunk, false);
        if (halves) m = wasm_u16x8_shr(m, 4);
        j = add_minimum(j, m, (halves ? half_sums : sums) + 4 * p);
    }
    return j;
}

/* acc + D * (d * (float) I - dmin * (float) J), J made here. */
UNPACK_INLINE v128_t simd_add_256(BlockType type, v128_t acc, ChunkHalves h, v128_t i,
                                  const uint8_t *pairs, uint32_t chunk, const uint8_t *activation)
{
    v128_t scale = simd_all_f32(activation + offsetof(Activation256, scale));
    v128_t step = wasm_f32x4_mul(h.d, wasm_f32x4_convert_i32x4(i));
    if (unpack_has_min(type)) {
        v128_t j = simd_minimum(type, pairs, chunk, activation);
        step = wasm_f32x4_sub(step, wasm_f32x4_mul(h.m, wasm_f32x4_convert_i32x4(j)));
    }
    return wasm_f32x4_add(acc, wasm_f32x4_mul(scale, step));
}
#endif
#endif
