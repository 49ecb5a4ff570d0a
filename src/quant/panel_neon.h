/* SPDX-License-Identifier: Apache-2.0 */
/* A panel's lines and scales as 128-bit ARM vectors: 4 rows (a quarter of a line, a *chunk*) in one
 * register, the same for kernels_neon.c and kernels_i8mm.c. Private to this room.
 *
 *   chunk (16 B):  | row 0: e0 e1 e2 e3 | row 1: .. | row 2: .. | row 3: .. | */
#ifndef COBORD_QUANT_PANEL_NEON_H
#define COBORD_QUANT_PANEL_NEON_H

#ifdef __aarch64__ /* nothing without the machine */
#include <arm_neon.h>

#include "quant/activation.h"
#include "quant/panel.h"
#include "quant/unroll.h"

enum { CHUNK_ROWS = 4, CHUNKS = PANEL_ROWS / CHUNK_ROWS, CHUNK_BYTES = 16 };

UNPACK_INLINE uint8x16_t neon_line(const uint8_t *lines, uint32_t line, uint32_t chunk)
{
    return vld1q_u8(lines + line * LINE_BYTES + chunk * CHUNK_BYTES);
}

UNPACK_INLINE float32x4_t neon_halves(const uint8_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}
UNPACK_INLINE float32x4_t neon_all_f32(const uint8_t *p)
{
    return vld1q_dup_f32((const float *)(const void *)p);
}
UNPACK_INLINE int32x4_t neon_all_s32(const uint8_t *p)
{
    return vld1q_dup_s32((const int32_t *)(const void *)p);
}
/* Two int16 again and again: 0 1 0 1. */
UNPACK_INLINE int16x4_t neon_all_pair(const uint8_t *p)
{
    return vreinterpret_s16_s32(vld1_dup_s32((const int32_t *)(const void *)p));
}

/* ---- elements -------------------------------------------------------------------------------- */

/* `bits` bits at `from` of every byte moved to `to`; what is around them stays. */
UNPACK_INLINE uint8x16_t neon_moved(uint8x16_t v, uint32_t from, uint32_t to)
{
    if (from > to) return v >> (from - to);
    return from < to ? v << (to - from) : v;
}

/* Group g of 32 elements as kernels multiply it: Q8_0 signed, all others before the zero point. The
 * nibble is inserted below or above the bits that a one-bit or two-bit line adds, then one mask serves
 * both. */
UNPACK_INLINE int8x16_t neon_elements(BlockType type, const uint8_t *lines, uint32_t chunk,
                                      uint32_t g)
{
    PanelLines k = panel_lines(type);
    uint32_t crumbs = k.bit_lines, rest = crumbs + k.crumb_lines;
    if (k.byte_lines)
        return vreinterpretq_s8_u8(neon_line(lines, rest + g, chunk) ^ vdupq_n_u8(128));
    uint8x16_t v = vdupq_n_u8(0), nibbles = v;
    if (k.nibble_lines) nibbles = neon_line(lines, rest + g % 4, chunk);
    if (k.nibble_lines && rest == 0) /* Q4 */
        return vreinterpretq_s8_u8(g < 4 ? nibbles & vdupq_n_u8(15) : nibbles >> 4);
    uint32_t from = k.crumb_lines ? 2 * (g % 4) : g,
             top = k.bit_lines && !k.crumb_lines ? 0x10 : 0x30;
    if (k.nibble_lines) { /* Q5, Q6 */
        uint8x16_t high = neon_line(lines, k.crumb_lines ? crumbs + g / 4 : 0, chunk);
        if (g < 4) v = vsliq_n_u8(nibbles, neon_moved(high, from, 0), 4);
        else v = vsriq_n_u8(neon_moved(high, from, 4), nibbles, 4);
        return vreinterpretq_s8_u8(v & vdupq_n_u8((uint8_t)(top | 15)));
    }
    v = neon_moved(neon_line(lines, crumbs + g / 4, chunk), from, 0) & vdupq_n_u8(3);
    if (k.bit_lines)
        v |= neon_moved(neon_line(lines, 0, chunk), g, k.bit_shift) & vdupq_n_u8(4); /* Q3_K */
    return vreinterpretq_s8_u8(v);
}

/* log2 of the zero point, -1 where there is none (left). */
UNPACK_INLINE int32_t neon_zero_shift(BlockType type)
{
    switch (type) {
    case BLOCK_Q4_0: return 3;
    case BLOCK_Q5_0: return 4;
    case BLOCK_Q3_K: return 2;
    case BLOCK_Q6_K: return 5;
    default: return -1;
    }
}

/* ---- scales ---------------------------------------------------------------------------------- */

/* The `which`-th scale of pair p, for the 4 rows of a chunk. */
UNPACK_INLINE int16x4_t neon_scale(BlockType type, const uint8_t *pairs, uint32_t p, uint32_t chunk,
                                   uint32_t which)
{
    uint16x4_t both = vreinterpret_u16_u8(vld1_u8(pairs + PAIR_BYTES * p + 2 * CHUNK_ROWS * chunk));
    if (type == BLOCK_Q3_K || type == BLOCK_Q6_K)
        return vshr_n_s16(vreinterpret_s16_u16(which ? both : both << 8), 8);
    uint16x4_t one = which ? both >> 8 : both;
    return vreinterpret_s16_u16(one & vdup_n_u16(type == BLOCK_Q2_K ? 15 : 255));
}
/* Minimums of Q2_K are the upper nibbles, those of Q4_K and Q5_K follow 4 pairs later. */
UNPACK_INLINE int16x4_t neon_minimum(BlockType type, const uint8_t *pairs, uint32_t p,
                                     uint32_t chunk, uint32_t which)
{
    if (type != BLOCK_Q2_K) return neon_scale(type, pairs, 4 + p, chunk, which);
    uint16x4_t both = vreinterpret_u16_u8(vld1_u8(pairs + PAIR_BYTES * p + 2 * CHUNK_ROWS * chunk));
    return vreinterpret_s16_u16((which ? both >> 12 : both >> 4) & vdup_n_u16(15));
}

UNPACK_INLINE const uint8_t *neon_pairs(BlockType type, const uint8_t *block)
{
    return block + HALVES_BYTES * (unpack_has_min(type) ? 2 : 1);
}
UNPACK_INLINE const uint8_t *neon_sub_lines(BlockType type, const uint8_t *block, uint32_t j)
{
    return block + panel_head_bytes(type) + j * panel_lines_count(panel_lines(type)) * LINE_BYTES;
}

#endif
#endif
