/* SPDX-License-Identifier: Apache-2.0 */
/* A panel's lines and scales as 256-bit x86 vectors, and tiles of 16 rows x up to 4 tokens: the same for
 * kernels_avx2.c and kernels_avxvnni.c. Private to this room.
 *
 *   line (64 B):  | rows 0..7, 4 elements each | rows 8..15 |      one ymm each: half 0, half 1 */
#ifndef COBORD_QUANT_PANEL_AVX2_H
#define COBORD_QUANT_PANEL_AVX2_H

#ifdef __AVX2__ /* nothing without the instructions */
#include <immintrin.h>

#include "quant/activation.h"
#include "quant/kernels.h"
#include "quant/panel.h"
#include "quant/unroll.h"

enum { TILE_TOKENS = 4, HALF_LINE = 32, HALF_ROWS = 8, GROUPS = 8 };

/* 16 rows of something for each token. */
typedef __m256i Chains[TILE_TOKENS][2];

/* Activations of a tile at one block, and 32 weights of 16 rows as bytes (or as stored, when `lines`). */
typedef struct Tile {
    const uint8_t *activation;
    size_t stride;
    const uint8_t *unpacked; /* [GROUPS][64] */
    const uint8_t *lines;    /* instead of `unpacked` */
} Tile;

enum { PREFETCH_BYTES = 8192 };
UNPACK_INLINE void ymm_prefetch(const uint8_t *p, uint32_t bytes)
{
    UNROLL
    for (uint32_t at = 0; at < bytes; at += LINE_BYTES)
        _mm_prefetch((const char *)(p + PREFETCH_BYTES + at), _MM_HINT_T0);
}

UNPACK_INLINE __m256i ymm_line(const uint8_t *lines, uint32_t line, uint32_t half)
{
    return _mm256_loadu_si256(
        (const __m256i *)(const void *)(lines + line * LINE_BYTES + half * HALF_LINE));
}
UNPACK_INLINE __m256i ymm_all32(const void *p) { return _mm256_set1_epi32((int)bytes_load32(p)); }
UNPACK_INLINE __m256 ymm_all_f32(const void *p) { return _mm256_set1_ps(bytes_load_f32(p)); }
UNPACK_INLINE __m256 ymm_halves(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
UNPACK_INLINE __m256i ymm_nibbles(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }

/* Shifts 16-bit lanes left by `from_to` (right when negative): callers mask what crosses a byte. */
UNPACK_INLINE __m256i ymm_shift(__m256i v, int left)
{
    return left >= 0 ? _mm256_slli_epi16(v, left) : _mm256_srli_epi16(v, -left);
}

/* Group g (0..7) of 32 elements as unsigned bytes. */
UNPACK_INLINE __m256i ymm_group(BlockType type, const uint8_t *lines, uint32_t half, uint32_t g)
{
    PanelLines k = panel_lines(type);
    uint32_t crumbs = k.bit_lines, rest = crumbs + k.crumb_lines;
    __m256i v = _mm256_setzero_si256();
    if (k.byte_lines) return ymm_line(lines, rest + g, half);
    if (k.nibble_lines) {
        __m256i line = ymm_line(lines, rest + g % 4, half);
        v = ymm_nibbles(g < 4 ? line : _mm256_srli_epi16(line, 4));
    }
    if (k.crumb_lines) {
        __m256i line =
            ymm_shift(ymm_line(lines, crumbs + g / 4, half), (int)k.crumb_shift - 2 * (int)(g % 4));
        v = _mm256_or_si256(v,
                            _mm256_and_si256(line, _mm256_set1_epi8((char)(3 << k.crumb_shift))));
    }
    if (k.bit_lines) {
        __m256i line = ymm_shift(ymm_line(lines, 0, half), (int)k.bit_shift - (int)g);
        v = _mm256_or_si256(v, _mm256_and_si256(line, _mm256_set1_epi8((char)(1 << k.bit_shift))));
    }
    return v;
}

UNPACK_INLINE void ymm_unpack(BlockType type, const uint8_t *lines, uint8_t *out)
{
    UNROLL
    for (uint32_t half = 0; half < 2; half++) UNROLL
    for (uint32_t g = 0; g < GROUPS; g++)
        _mm256_store_si256((__m256i *)(void *)(out + LINE_BYTES * g + HALF_LINE * half),
                           ymm_group(type, lines, half, g));
}

/* ---- scales ---- */

/* (first, second) int16 per row -> (first, first) or (second, second) */
UNPACK_INLINE __m256i ymm_twice(__m256i pairs, uint32_t which)
{
    __m256i pattern = which
                          ? _mm256_setr_epi8(2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15,
                                             2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15)
                          : _mm256_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13, 0,
                                             1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13);
    return _mm256_shuffle_epi8(pairs, pattern);
}

/* Pair p of scales of a half's rows, as int16. */
UNPACK_INLINE __m256i ymm_pair(BlockType type, const uint8_t *pairs, uint32_t p, uint32_t half)
{
    __m128i bytes =
        _mm_loadu_si128((const __m128i *)(const void *)(pairs + PAIR_BYTES * p + 16 * half));
    if (type == BLOCK_Q3_K || type == BLOCK_Q6_K) return _mm256_cvtepi8_epi16(bytes);
    return _mm256_cvtepu8_epi16(bytes);
}

UNPACK_INLINE bool ymm_is_wide(const Tile *tile, uint32_t tokens)
{
    uint32_t wide = 0;
    UNROLL
    for (uint32_t t = 0; t < tokens; t++)
        wide |= bytes_load32(tile->activation + t * tile->stride + offsetof(Activation256, wide));
    return wide != 0;
}

/* ---- tiles ---- */

/* Keeps a chain in its register and its additions in order: regrouped, they would need twice the registers. */
#define YMM_PIN(v) __asm__("" : "+x"(v))

/* Integer sums of a block. In memory: they are touched once per chain. */
typedef struct Sums {
    __m256i of[KERNEL_TOKENS_MAX][2];
} Sums;

/* `call` with a constant number of tokens for every tile of 4 and the rest: t is its first token. */
#define YMM_EACH_TILE(tokens, call)                             \
    do {                                                        \
        uint32_t t = 0;                                         \
        for (; (tokens) - t >= TILE_TOKENS; t += TILE_TOKENS) { \
            enum { N = TILE_TOKENS };                           \
            call;                                               \
        }                                                       \
        if ((tokens) - t == 1) {                                \
            enum { N = 1 };                                     \
            call;                                               \
        }                                                       \
        if ((tokens) - t == 2) {                                \
            enum { N = 2 };                                     \
            call;                                               \
        }                                                       \
        if ((tokens) - t == 3) {                                \
            enum { N = 3 };                                     \
            call;                                               \
        }                                                       \
    } while (0)

UNPACK_INLINE Tile ymm_tile(const uint8_t *activations, size_t stride, uint32_t t,
                            const uint8_t *unpacked, const uint8_t *lines)
{
    return (Tile){activations + t * stride, stride, unpacked, lines};
}

#endif
#endif
