/* SPDX-License-Identifier: Apache-2.0 */
/* What both WebAssembly kernels share: a chunk is 4 rows of a panel's line in one vector; scales,
 * minimums and the float steps of a tile of a few chunks x tokens. Private to this room.
 *
 *   chunk (16 B):  | row 0: e0 e1 e2 e3 | row 1: .. | row 2: .. | row 3: .. | */
#ifndef COBORD_QUANT_PANEL_SIMD128_H
#define COBORD_QUANT_PANEL_SIMD128_H

#ifdef __wasm_simd128__ /* nothing without the machine */
#include <wasm_simd128.h>

#include "quant/activation.h"
#include "quant/panel.h"
#include "quant/unroll.h"

enum { CHUNK_ROWS = 4, CHUNKS = PANEL_ROWS / CHUNK_ROWS, CHUNK_BYTES = 16, TILE_TOKENS_MAX = 2 };

/* Where one tile reads and adds: a block from its first chunk on, activations of its first token at
 * this block. */
typedef struct Tile {
    const uint8_t *block;
    uint32_t chunk;
    const uint8_t *activation;
    size_t stride;
    float *acc;          /* [tokens][16], at row 4 chunk */
    const uint8_t *wide; /* kernels_simd128.c only: widened elements of the first token */
    size_t wide_stride;
} Tile;

typedef struct Sums {
    v128_t at[CHUNKS][TILE_TOKENS_MAX];
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

/* ---- blocks of 32 ---------------------------------------------------------------------------- */

/* acc = acc + d * (scale * (float) S), with a minimum + m * scale_sum. */
UNPACK_INLINE void simd_finish_32(BlockType type, const Tile *tile, const Sums *s, uint32_t chunks,
                                  uint32_t tokens)
{
    UNROLL
    for (uint32_t c = 0; c < chunks; c++) {
        const uint8_t *halves = tile->block + 2 * CHUNK_ROWS * (tile->chunk + c);
        v128_t d = simd_halves(halves), m = wasm_i32x4_splat(0);
        if (unpack_has_min(type)) m = simd_halves(halves + HALVES_BYTES);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            const uint8_t *a = tile->activation + t * tile->stride;
            float *acc = tile->acc + t * PANEL_ROWS + CHUNK_ROWS * c;
            v128_t scale = simd_all_f32(a + offsetof(Activation32, scale));
            v128_t step =
                wasm_f32x4_mul(d, wasm_f32x4_mul(scale, wasm_f32x4_convert_i32x4(s->at[c][t])));
            if (unpack_has_min(type))
                step = wasm_f32x4_add(
                    step, wasm_f32x4_mul(m, simd_all_f32(a + offsetof(Activation32, scale_sum))));
            wasm_v128_store(acc, wasm_f32x4_add(wasm_v128_load(acc), step));
        }
    }
}

/* ---- blocks of 256 --------------------------------------------------------------------------- */

/* Pair p of scales as int16 pairs, one pair a row. */
UNPACK_INLINE v128_t simd_pair(const uint8_t *pairs, uint32_t p, uint32_t chunk, bool is_signed)
{
    const uint8_t *at = pairs + PAIR_BYTES * p + 2 * CHUNK_ROWS * chunk;
    return is_signed ? wasm_i16x8_load8x8(at) : wasm_u16x8_load8x8(at);
}

UNPACK_INLINE bool is_wide(const Tile *tile, uint32_t tokens)
{
    uint32_t wide = 0;
    UNROLL
    for (uint32_t t = 0; t < tokens; t++)
        wide |= bytes_load32(tile->activation + t * tile->stride + offsetof(Activation256, wide));
    return wide != 0;
}

UNPACK_INLINE v128_t add_minimum(v128_t j, const Tile *tile, v128_t minimum, size_t offset,
                                 uint32_t t)
{
    return wasm_i32x4_add(
        j, wasm_i32x4_dot_i16x8(
               minimum, wasm_v128_load32_splat(tile->activation + t * tile->stride + offset)));
}

/* (first, first) or (second, second) of each pair of int16. */
UNPACK_INLINE v128_t simd_twice(v128_t pairs, uint32_t which)
{
    v128_t low = wasm_v128_and(pairs, wasm_i32x4_splat(0xffff));
    if (!which) return wasm_v128_or(low, wasm_i32x4_shl(pairs, 16));
    v128_t high = wasm_u32x4_shr(pairs, 16);
    return wasm_v128_or(high, wasm_v128_andnot(pairs, wasm_i32x4_splat(0xffff)));
}

/* sum of m k A. Sums of 32 fit int16 unless a token is wide; sums of 16 always do. */
UNPACK_INLINE void simd_minimums(BlockType type, const Tile *tile, const uint8_t *pairs,
                                 uint32_t chunks, uint32_t tokens, Sums *j)
{
    enum {
        SUMS = offsetof(Activation256, k_sums),
        HALF_SUMS = offsetof(Activation256, k_half_sums)
    };
    bool halves = type == BLOCK_Q2_K, wide = !halves && is_wide(tile, tokens);
    UNROLL
    for (uint32_t c = 0; c < chunks; c++) {
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) j->at[c][t] = wasm_i32x4_splat(0);
        for (uint32_t p = 0; p < (halves ? 8 : 4); p++) {
            v128_t m = simd_pair(pairs, halves ? p : 4 + p, tile->chunk + c, false);
            if (halves) m = wasm_u16x8_shr(m, 4);
            UNROLL
            for (uint32_t t = 0; t < tokens; t++) {
                v128_t sum = j->at[c][t];
                if (!wide) sum = add_minimum(sum, tile, m, (halves ? HALF_SUMS : SUMS) + 4 * p, t);
                else {
                    sum = add_minimum(sum, tile, simd_twice(m, 0), HALF_SUMS + 8 * p, t);
                    sum = add_minimum(sum, tile, simd_twice(m, 1), HALF_SUMS + 8 * p + 4, t);
                }
                j->at[c][t] = sum;
            }
        }
    }
}

/* acc = acc + D * (d * (float) I - dmin * (float) J), J made here. */
UNPACK_INLINE void simd_finish_256(BlockType type, const Tile *tile, const uint8_t *pairs,
                                   const Sums *i, uint32_t chunks, uint32_t tokens)
{
    Sums j;
    if (unpack_has_min(type)) simd_minimums(type, tile, pairs, chunks, tokens, &j);
    UNROLL
    for (uint32_t c = 0; c < chunks; c++) {
        const uint8_t *halves = tile->block + 2 * CHUNK_ROWS * (tile->chunk + c);
        v128_t d = simd_halves(halves), dmin = wasm_i32x4_splat(0);
        if (unpack_has_min(type)) dmin = simd_halves(halves + HALVES_BYTES);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            float *acc = tile->acc + t * PANEL_ROWS + CHUNK_ROWS * c;
            v128_t scale =
                simd_all_f32(tile->activation + t * tile->stride + offsetof(Activation256, scale));
            v128_t step = wasm_f32x4_mul(d, wasm_f32x4_convert_i32x4(i->at[c][t]));
            if (unpack_has_min(type))
                step = wasm_f32x4_sub(step,
                                      wasm_f32x4_mul(dmin, wasm_f32x4_convert_i32x4(j.at[c][t])));
            wasm_v128_store(acc, wasm_f32x4_add(wasm_v128_load(acc), wasm_f32x4_mul(scale, step)));
        }
    }
}
#endif
#endif
