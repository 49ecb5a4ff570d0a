/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks in GGUF order, taken apart and put together again: the one place that knows where their bits are
 * (docs/format/layout.md, section 1). Private to this room.
 *
 * Thirty-two elements travel as eight words; byte b of word g is element 4g + b, unsigned, before any zero point:
 *
 *     w[0] = | e3 | e2 | e1 | e0 |   ...   w[7] = | e31 | e30 | e29 | e28 |
 *
 * All functions are inlined with a constant type, so that the branches on it vanish. */
#ifndef COBORD_QUANT_UNPACK_H
#define COBORD_QUANT_UNPACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "quant/block.h"

#define UNPACK_INLINE static inline __attribute__((always_inline))

enum {
    UNPACK_NIBBLES = 0x0f0f0f0f,
    UNPACK_CRUMBS = 0x03030303,
    UNPACK_BITS = 0x01010101
};

/* What a block holds besides its elements, as stored; counts by type. */
typedef struct UnpackScales {
    uint16_t d, dmin;       /* f16; dmin is `m` in Q4_1 and Q5_1 */
    uint8_t sc[16], min[16]; /* sc is signed in Q3_K and Q6_K */
} UnpackScales;

/* Scales per 256: 8 (one per 32 elements), 16, or 0 for the 32-wide types. */
UNPACK_INLINE uint32_t unpack_scale_count(BlockType type)
{
    if (type == BLOCK_Q4_K || type == BLOCK_Q5_K) return 8;
    return type == BLOCK_Q2_K || type == BLOCK_Q3_K || type == BLOCK_Q6_K ? 16 : 0;
}
UNPACK_INLINE bool unpack_has_min(BlockType type)
{
    return type == BLOCK_Q4_1 || type == BLOCK_Q5_1 || type == BLOCK_Q2_K || type == BLOCK_Q4_K ||
           type == BLOCK_Q5_K;
}
/* Offset of d; the minimum, where there is one, is the next half. */
UNPACK_INLINE uint32_t unpack_d_offset(BlockType type)
{
    if (type == BLOCK_Q2_K) return 80;
    if (type == BLOCK_Q3_K) return 108;
    return type == BLOCK_Q6_K ? 208 : 0;
}

/* What is taken from an element as it is stored; by type. */
UNPACK_INLINE int32_t unpack_zero_point(BlockType type)
{
    switch (type) {
    case BLOCK_Q4_0: return 8;
    case BLOCK_Q5_0: return 16;
    case BLOCK_Q8_0: return 128;
    case BLOCK_Q3_K: return 4;
    case BLOCK_Q6_K: return 32;
    default: return 0;
    }
}

/* Bits 3..0 of n to the lowest bits of four bytes, and back. */
UNPACK_INLINE uint32_t unpack_spread(uint32_t n) { return (n * 0x00204081u) & UNPACK_BITS; }
UNPACK_INLINE uint32_t unpack_gather(uint32_t w) { return ((w & UNPACK_BITS) * 0x10204080u) >> 28; }

/* ---- six-bit scales ---- */

UNPACK_INLINE void unpack_scales_k4(const uint8_t s[12], UnpackScales *out)
{
    for (uint32_t n = 0; n < 4; n++) {
        out->sc[n] = s[n] & 63;
        out->min[n] = s[4 + n] & 63;
        out->sc[4 + n] = (uint8_t)((s[8 + n] & 15) | (s[n] >> 6) << 4);
        out->min[4 + n] = (uint8_t)(s[8 + n] >> 4 | (s[4 + n] >> 6) << 4);
    }
}
UNPACK_INLINE void unpack_pack_k4(const UnpackScales *in, uint8_t s[12])
{
    for (uint32_t n = 0; n < 4; n++) {
        s[n] = (uint8_t)((in->sc[n] & 63) | (in->sc[4 + n] >> 4) << 6);
        s[4 + n] = (uint8_t)((in->min[n] & 63) | (in->min[4 + n] >> 4) << 6);
        s[8 + n] = (uint8_t)((in->sc[4 + n] & 15) | in->min[4 + n] << 4);
    }
}
UNPACK_INLINE void unpack_scales_k3(const uint8_t s[12], UnpackScales *out)
{
    for (uint32_t n = 0; n < 16; n++) {
        uint32_t low = n < 8 ? s[n] & 15u : s[n - 8] >> 4;
        uint32_t high = (s[8 + n % 4] >> (2 * (n / 4))) & 3u;
        out->sc[n] = (uint8_t)((low | high << 4) - 32u);
    }
}
UNPACK_INLINE void unpack_pack_k3(const UnpackScales *in, uint8_t s[12])
{
    memset(s, 0, 12);
    for (uint32_t n = 0; n < 16; n++) {
        uint32_t v = (in->sc[n] + 32u) & 63u;
        s[n % 8] |= (uint8_t)((v & 15) << (n < 8 ? 0 : 4));
        s[8 + n % 4] |= (uint8_t)((v >> 4) << (2 * (n / 4)));
    }
}

UNPACK_INLINE void unpack_scales(BlockType type, const uint8_t *block, UnpackScales *out)
{
    const uint8_t *d = block + unpack_d_offset(type);
    out->d = bytes_load16(d);
    out->dmin = unpack_has_min(type) ? bytes_load16(d + 2) : 0;
    if (type == BLOCK_Q4_K || type == BLOCK_Q5_K) unpack_scales_k4(block + 4, out);
    if (type == BLOCK_Q3_K) unpack_scales_k3(block + 96, out);
    if (type == BLOCK_Q6_K) memcpy(out->sc, block + 192, 16);
    if (type == BLOCK_Q2_K)
        for (uint32_t n = 0; n < 16; n++) {
            out->sc[n] = block[n] & 15;
            out->min[n] = block[n] >> 4;
        }
}
UNPACK_INLINE void unpack_pack_scales(BlockType type, const UnpackScales *in, uint8_t *block)
{
    uint8_t *d = block + unpack_d_offset(type);
    bytes_store16(d, in->d);
    if (unpack_has_min(type)) bytes_store16(d + 2, in->dmin);
    if (type == BLOCK_Q4_K || type == BLOCK_Q5_K) unpack_pack_k4(in, block + 4);
    if (type == BLOCK_Q3_K) unpack_pack_k3(in, block + 96);
    if (type == BLOCK_Q6_K) memcpy(block + 192, in->sc, 16);
    if (type == BLOCK_Q2_K)
        for (uint32_t n = 0; n < 16; n++) block[n] = (uint8_t)((in->sc[n] & 15) | in->min[n] << 4);
}

/* ---- elements ---- */

/* Where the plane words of sub j start, and how far they are shifted. */
typedef struct UnpackPlanes {
    uint32_t low, low_shift, high, high_shift;
} UnpackPlanes;

UNPACK_INLINE UnpackPlanes unpack_planes(BlockType type, uint32_t j)
{
    switch (type) {
    case BLOCK_Q2_K: return (UnpackPlanes){16 + 32 * (j / 4), 2 * (j % 4), 0, 0};
    case BLOCK_Q3_K: return (UnpackPlanes){32 + 32 * (j / 4), 2 * (j % 4), 0, j};
    case BLOCK_Q4_K: return (UnpackPlanes){16 + 32 * (j / 2), 4 * (j % 2), 0, 0};
    case BLOCK_Q5_K: return (UnpackPlanes){48 + 32 * (j / 2), 4 * (j % 2), 16, j};
    default: /* Q6_K */
        return (UnpackPlanes){64 * (j / 4) + 32 * (j % 2), 4 * (j % 4 / 2), 128 + 32 * (j / 4), 2 * (j % 4)};
    }
}

/* 32-wide: four words of nibbles at qs, and where there is one, the word of fifth bits right before them. */
UNPACK_INLINE void unpack_words_32(BlockType type, const uint8_t *block, uint32_t w[8])
{
    const uint8_t *qs = block + (type == BLOCK_Q4_0 ? 2 : type == BLOCK_Q4_1 ? 4 : type == BLOCK_Q5_0 ? 6 : 8);
    if (type == BLOCK_Q8_0) {
        for (uint32_t g = 0; g < 8; g++) w[g] = bytes_load32(block + 2 + 4 * g) ^ 0x80808080u;
        return;
    }
    for (uint32_t g = 0; g < 4; g++) {
        uint32_t a = bytes_load32(qs + 4 * g);
        w[g] = a & UNPACK_NIBBLES;
        w[4 + g] = a >> 4 & UNPACK_NIBBLES;
    }
    if (type == BLOCK_Q5_0 || type == BLOCK_Q5_1) {
        uint32_t high = bytes_load32(qs - 4);
        for (uint32_t g = 0; g < 8; g++) w[g] |= unpack_spread(high >> (4 * g) & 15) << 4;
    }
}
UNPACK_INLINE void unpack_pack_words_32(BlockType type, const uint32_t w[8], uint8_t *block)
{
    uint8_t *qs = block + (type == BLOCK_Q4_0 ? 2 : type == BLOCK_Q4_1 ? 4 : type == BLOCK_Q5_0 ? 6 : 8);
    if (type == BLOCK_Q8_0) {
        for (uint32_t g = 0; g < 8; g++) bytes_store32(block + 2 + 4 * g, w[g] ^ 0x80808080u);
        return;
    }
    for (uint32_t g = 0; g < 4; g++)
        bytes_store32(qs + 4 * g, (w[g] & UNPACK_NIBBLES) | (w[4 + g] & UNPACK_NIBBLES) << 4);
    if (type == BLOCK_Q5_0 || type == BLOCK_Q5_1) {
        uint32_t high = 0;
        for (uint32_t g = 0; g < 8; g++) high |= unpack_gather(w[g] >> 4) << (4 * g);
        bytes_store32(qs - 4, high);
    }
}

/* Sub j of a block (0 for the 32-wide types). */
UNPACK_INLINE void unpack_words(BlockType type, const uint8_t *block, uint32_t j, uint32_t w[8])
{
    if (!unpack_scale_count(type)) {
        unpack_words_32(type, block, w);
        return;
    }
    UnpackPlanes p = unpack_planes(type, j);
    uint32_t low_mask = type == BLOCK_Q2_K || type == BLOCK_Q3_K ? UNPACK_CRUMBS : UNPACK_NIBBLES;
    for (uint32_t g = 0; g < 8; g++) {
        w[g] = bytes_load32(block + p.low + 4 * g) >> p.low_shift & low_mask;
        if (type == BLOCK_Q2_K || type == BLOCK_Q4_K) continue;
        uint32_t high = bytes_load32(block + p.high + 4 * g) >> p.high_shift;
        if (type == BLOCK_Q3_K) w[g] |= (high & UNPACK_BITS) << 2;
        if (type == BLOCK_Q5_K) w[g] |= (high & UNPACK_BITS) << 4;
        if (type == BLOCK_Q6_K) w[g] |= (high & UNPACK_CRUMBS) << 4;
    }
}

UNPACK_INLINE void unpack_or32(uint8_t *p, uint32_t bits) { bytes_store32(p, bytes_load32(p) | bits); }

/* Adds sub j to a block whose bytes were zero before the first sub. */
UNPACK_INLINE void unpack_pack_words(BlockType type, const uint32_t w[8], uint32_t j, uint8_t *block)
{
    if (!unpack_scale_count(type)) {
        unpack_pack_words_32(type, w, block);
        return;
    }
    UnpackPlanes p = unpack_planes(type, j);
    uint32_t low_mask = type == BLOCK_Q2_K || type == BLOCK_Q3_K ? UNPACK_CRUMBS : UNPACK_NIBBLES;
    for (uint32_t g = 0; g < 8; g++) {
        unpack_or32(block + p.low + 4 * g, (w[g] & low_mask) << p.low_shift);
        uint8_t *high = block + p.high + 4 * g;
        if (type == BLOCK_Q3_K) unpack_or32(high, (w[g] >> 2 & UNPACK_BITS) << p.high_shift);
        if (type == BLOCK_Q5_K) unpack_or32(high, (w[g] >> 4 & UNPACK_BITS) << p.high_shift);
        if (type == BLOCK_Q6_K) unpack_or32(high, (w[g] >> 4 & UNPACK_CRUMBS) << p.high_shift);
    }
}

#endif
