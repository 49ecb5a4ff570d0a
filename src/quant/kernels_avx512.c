/* SPDX-License-Identifier: Apache-2.0 */
/* AVX-512 with VNNI: 16 rows (a whole panel line) x up to 8 tokens.
 *
 * vpdpbusd adds four products of unsigned weight bytes and signed activation bytes to an int32 lane; the activation
 * comes as a broadcast of four bytes from memory. Weights are unpacked once and serve all tokens.
 *
 * Every instruction that multiplies takes one of two ports, so scales go by pairs where sums fit int16: two sums side
 * by side, (S0, S1), times (sc0 k0, sc1 k1) in one vpdpwssd. In Q4_K that holds unless a token's block is `wide`
 * (docs/format/numerics.md, section 5); in Q2_K and Q3_K always; in Q5_K and Q6_K never.
 *
 * The token count is a constant in every function named tile_; arrays of it are registers. */
#include <immintrin.h>

#include "quant/activation.h"
#include "quant/kernels_tables.h"
#include "quant/panel.h"
#include "quant/quantize_avx2.h"
#include "quant/unroll.h"

/* Activation rows of a tile at one block. */
typedef struct Rows {
    const uint8_t *first;
    size_t stride;
} Rows;

UNPACK_INLINE const uint8_t *row_at(Rows rows, uint32_t t, size_t offset)
{
    return rows.first + t * rows.stride + offset;
}

UNPACK_INLINE __m512i load_line(const uint8_t *lines, uint32_t line)
{
    return _mm512_loadu_si512(lines + line * LINE_BYTES);
}
UNPACK_INLINE __m512i broadcast32(const uint8_t *p) { return _mm512_set1_epi32((int)bytes_load32(p)); }
UNPACK_INLINE __m512 broadcast_f32(const uint8_t *p) { return _mm512_set1_ps(bytes_load_f32(p)); }
UNPACK_INLINE __m256i load_32_bytes(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
UNPACK_INLINE __m512 load_halves(const uint8_t *p) { return _mm512_cvtph_ps(load_32_bytes(p)); }
UNPACK_INLINE __m512i nibbles(__m512i v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }

/* Bits of `v` where the mask byte has them, shifted left (right when negative), joined to `low`. */
UNPACK_INLINE __m512i join_bits(__m512i low, __m512i v, int left, int mask)
{
    __m512i shifted = left >= 0 ? _mm512_slli_epi16(v, (unsigned)left) : _mm512_srli_epi16(v, (unsigned)-left);
    return _mm512_ternarylogic_epi32(low, shifted, _mm512_set1_epi8((char)mask), 0xf8); /* low | (shifted & mask) */
}

/* Groups first..first+count-1 of 32 elements as unsigned bytes. */
UNPACK_INLINE void groups(BlockType type, const uint8_t *lines, uint32_t first, uint32_t count, __m512i w[])
{
    PanelLines k = panel_lines(type);
    uint32_t crumbs = k.bit_lines, rest = crumbs + k.crumb_lines;
    UNROLL
    for (uint32_t n = 0; n < count; n++) {
        uint32_t g = first + n;
        __m512i v = _mm512_setzero_si512();
        if (k.byte_lines) v = load_line(lines, rest + g);
        if (k.nibble_lines) {
            __m512i line = load_line(lines, rest + g % 4);
            v = nibbles(g < 4 ? line : _mm512_srli_epi16(line, 4));
        }
        if (k.crumb_lines)
            v = join_bits(v, load_line(lines, crumbs + g / 4), (int)k.crumb_shift - 2 * (int)(g % 4),
                          3 << k.crumb_shift);
        if (k.bit_lines) v = join_bits(v, load_line(lines, 0), (int)k.bit_shift - (int)g, 1 << k.bit_shift);
        w[n] = v;
    }
}

/* start + sum over `count` groups whose activations begin at q. */
UNPACK_INLINE __m512i dot(__m512i start, const __m512i w[], const uint8_t *q, uint32_t count)
{
    UNROLL
    for (uint32_t g = 0; g < count; g++) start = _mm512_dpbusd_epi32(start, w[g], broadcast32(q + 4 * g));
    return start;
}

/* Software prefetch in small steps, one per stretch of lines that is about to be read: measured on Zen 5 it lifts one
 * thread from 20..35 GB/s to what memory gives (40..47), for any number of tokens; in bursts of a block it does not. */
enum { PREFETCH_BYTES = 8192 };
UNPACK_INLINE void prefetch(const uint8_t *p, uint32_t bytes)
{
    UNROLL
    for (uint32_t at = 0; at < bytes; at += LINE_BYTES)
        _mm_prefetch((const char *)(p + PREFETCH_BYTES + at), _MM_HINT_T0);
}

/* ---- blocks of 32 ---- */

UNPACK_INLINE __m512i zero_start_32(BlockType type, const uint8_t *a)
{
    int left = type == BLOCK_Q4_0 ? 3 : type == BLOCK_Q5_0 ? 4 : 7;
    if (unpack_has_min(type)) return _mm512_setzero_si512();
    return _mm512_slli_epi32(broadcast32(a + offsetof(Activation32, negative_sum)), (unsigned)left);
}

UNPACK_INLINE void tile_32(BlockType type, const uint8_t *block, Rows rows, uint32_t tokens, __m512 acc[])
{
    __m512i w[8];
    __m512 d = load_halves(block), m = _mm512_setzero_ps();
    if (unpack_has_min(type)) m = load_halves(block + HALVES_BYTES);
    groups(type, block + panel_head_bytes(type), 0, 8, w);
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        const uint8_t *a = row_at(rows, t, 0);
        __m512i s = dot(zero_start_32(type, a), w, a, 8);
        __m512 scaled = _mm512_mul_ps(broadcast_f32(a + offsetof(Activation32, scale)), _mm512_cvtepi32_ps(s));
        __m512 step = _mm512_mul_ps(d, scaled);
        if (unpack_has_min(type))
            step = _mm512_add_ps(step, _mm512_mul_ps(m, broadcast_f32(a + offsetof(Activation32, scale_sum))));
        acc[t] = _mm512_add_ps(acc[t], step);
    }
}

/* ---- blocks of 256 ---- */

enum {
    K = offsetof(Activation256, k),
    K_SUMS = offsetof(Activation256, k_sums),
    K_TWICE = offsetof(Activation256, k_twice),
    K_HALF_SUMS = offsetof(Activation256, k_half_sums),
    HALF_SUMS = offsetof(Activation256, negative_half_sums)
};

/* Pair p of scales as int16 side by side, one pair per row. */
UNPACK_INLINE __m512i pair_of(BlockType type, const uint8_t *pairs, uint32_t p)
{
    __m256i bytes = load_32_bytes(pairs + PAIR_BYTES * p);
    if (type == BLOCK_Q3_K || type == BLOCK_Q6_K) return _mm512_cvtepi8_epi16(bytes);
    return _mm512_cvtepu8_epi16(bytes);
}
UNPACK_INLINE __m512i first_of(__m512i pairs) { return _mm512_srai_epi32(_mm512_slli_epi32(pairs, 16), 16); }
UNPACK_INLINE __m512i second_of(__m512i pairs) { return _mm512_srai_epi32(pairs, 16); }
/* Two sums that fit int16, side by side. */
UNPACK_INLINE __m512i join_pair(__m512i first, __m512i second)
{
    return _mm512_ternarylogic_epi32(_mm512_set1_epi32(0xffff), first, _mm512_slli_epi32(second, 16), 0xca);
}
UNPACK_INLINE __m512i add_product(__m512i sum, __m512i a, __m512i b)
{
    return _mm512_add_epi32(sum, _mm512_mullo_epi32(a, b));
}

UNPACK_INLINE bool is_wide(Rows rows, uint32_t tokens)
{
    uint32_t wide = 0;
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) wide |= bytes_load32(row_at(rows, t, offsetof(Activation256, wide)));
    return wide != 0;
}

UNPACK_INLINE void add_minimum(__m512i m, Rows rows, size_t offset, uint32_t tokens, __m512i j[])
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) j[t] = _mm512_dpwssd_epi32(j[t], m, broadcast32(row_at(rows, t, offset)));
}

/* sum of m k A, as float. `wide`: sums of 32 may not fit int16, sums of 16 do. */
UNPACK_INLINE void minimums(BlockType type, const uint8_t *pairs, Rows rows, bool wide, uint32_t tokens, __m512 out[])
{
    __m512i j[KERNEL_TOKENS_MAX];
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) j[t] = _mm512_setzero_si512();
    for (uint32_t p = 0; p < (type == BLOCK_Q2_K ? 8 : 4); p++) {
        __m512i m = pair_of(type, pairs, type == BLOCK_Q2_K ? p : 4 + p);
        if (type == BLOCK_Q2_K) {
            add_minimum(_mm512_srli_epi16(m, 4), rows, K_HALF_SUMS + 4 * p, tokens, j);
        } else if (wide) {
            __m512i first = _mm512_and_si512(m, _mm512_set1_epi32(0xffff)), second = _mm512_srli_epi32(m, 16);
            add_minimum(join_pair(first, first), rows, K_HALF_SUMS + 8 * p, tokens, j);
            add_minimum(join_pair(second, second), rows, K_HALF_SUMS + 8 * p + 4, tokens, j);
        } else {
            add_minimum(m, rows, K_SUMS + 4 * p, tokens, j);
        }
    }
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) out[t] = _mm512_cvtepi32_ps(j[t]);
}

/* Subs 2p and 2p + 1 of Q4_K and Q5_K, one after the other so that the weights of one fit the registers. Narrow: both
 * sums in one int16 pair. */
UNPACK_INLINE void two_subs(BlockType type, const uint8_t *lines, __m512i scales, uint32_t p, Rows rows, bool narrow,
                            uint32_t tokens, __m512i i[])
{
    __m512i w[8], s0[KERNEL_TOKENS_MAX];
    groups(type, lines, 0, 8, w);
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) s0[t] = dot(_mm512_setzero_si512(), w, row_at(rows, t, 64 * p), 8);
    groups(type, lines + panel_lines_count(panel_lines(type)) * LINE_BYTES, 0, 8, w);
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        __m512i s1 = dot(_mm512_setzero_si512(), w, row_at(rows, t, 64 * p + 32), 8);
        __m512i scale_k = _mm512_mullo_epi16(scales, broadcast32(row_at(rows, t, K + 4 * p)));
        if (narrow) i[t] = _mm512_dpwssd_epi32(i[t], join_pair(s0[t], s1), scale_k);
        else i[t] = add_product(add_product(i[t], s0[t], first_of(scale_k)), s1, second_of(scale_k));
    }
}

/* One sub of Q2_K, Q3_K and Q6_K: two halves with a scale each. */
UNPACK_INLINE void two_halves(BlockType type, const uint8_t *lines, __m512i scales, uint32_t j, Rows rows,
                              uint32_t tokens, __m512i i[])
{
    __m512i w[8];
    groups(type, lines, 0, 8, w);
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        const uint8_t *q = row_at(rows, t, 32 * j), *sums = row_at(rows, t, HALF_SUMS + 8 * j);
        __m512i s0 = _mm512_setzero_si512(), s1 = s0;
        if (type != BLOCK_Q2_K) {
            unsigned left = type == BLOCK_Q3_K ? 2 : 5;
            s0 = _mm512_slli_epi32(broadcast32(sums), left);
            s1 = _mm512_slli_epi32(broadcast32(sums + 4), left);
        }
        s0 = dot(s0, w, q, 4), s1 = dot(s1, w + 4, q + 16, 4);
        __m512i scale_k = _mm512_mullo_epi16(scales, broadcast32(row_at(rows, t, K_TWICE + 4 * j)));
        if (type != BLOCK_Q6_K) i[t] = _mm512_dpwssd_epi32(i[t], join_pair(s0, s1), scale_k);
        else i[t] = add_product(add_product(i[t], s0, first_of(scale_k)), s1, second_of(scale_k));
    }
}

UNPACK_INLINE void integers_256(BlockType type, const uint8_t *block, const uint8_t *pairs, Rows rows, bool narrow,
                                uint32_t tokens, __m512i i[])
{
    const uint8_t *lines = block + panel_head_bytes(type);
    uint32_t sub_bytes = panel_lines_count(panel_lines(type)) * LINE_BYTES;
    bool per_sub = type == BLOCK_Q4_K || type == BLOCK_Q5_K;
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) i[t] = _mm512_setzero_si512();
    for (uint32_t n = 0; n < (per_sub ? 4 : 8); n++) {
        __m512i scales = pair_of(type, pairs, n);
        prefetch(lines + n * sub_bytes * (per_sub ? 2 : 1), sub_bytes * (per_sub ? 2 : 1));
        if (type == BLOCK_Q2_K) scales = nibbles(scales);
        if (per_sub) two_subs(type, lines + 2 * n * sub_bytes, scales, n, rows, narrow, tokens, i);
        else two_halves(type, lines + n * sub_bytes, scales, n, rows, tokens, i);
    }
}

UNPACK_INLINE void tile_256(BlockType type, const uint8_t *block, Rows rows, uint32_t tokens, __m512 acc[])
{
    const uint8_t *pairs = block + HALVES_BYTES * (unpack_has_min(type) ? 2 : 1);
    bool wide = (type == BLOCK_Q4_K || type == BLOCK_Q5_K) && is_wide(rows, tokens);
    __m512i i[KERNEL_TOKENS_MAX];
    __m512 j[KERNEL_TOKENS_MAX], d = load_halves(block), dmin = _mm512_setzero_ps();
    if (unpack_has_min(type)) { /* first, because it comes first in memory */
        dmin = load_halves(block + HALVES_BYTES);
        if (wide) minimums(type, pairs, rows, true, tokens, j);
        else minimums(type, pairs, rows, false, tokens, j);
    }
    if (type == BLOCK_Q4_K && !wide) integers_256(type, block, pairs, rows, true, tokens, i);
    else integers_256(type, block, pairs, rows, false, tokens, i);
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        __m512 step = _mm512_mul_ps(d, _mm512_cvtepi32_ps(i[t]));
        if (unpack_has_min(type)) step = _mm512_sub_ps(step, _mm512_mul_ps(dmin, j[t]));
        __m512 scale = broadcast_f32(row_at(rows, t, offsetof(Activation256, scale)));
        acc[t] = _mm512_add_ps(acc[t], _mm512_mul_ps(scale, step));
    }
}

/* ---- floats ---- */

UNPACK_INLINE __m512 load_floats(BlockType type, const uint8_t *column)
{
    if (type == BLOCK_F32) return _mm512_loadu_ps(column);
    if (type == BLOCK_F16) return load_halves(column);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_32_bytes(column)), 16));
}

UNPACK_INLINE void tile_float(BlockType type, const uint8_t *column, Rows rows, uint32_t tokens, __m512 acc[])
{
    __m512 w = load_floats(type, column);
    UNROLL
    for (uint32_t t = 0; t < tokens; t++)
        acc[t] = _mm512_add_ps(acc[t], _mm512_mul_ps(w, broadcast_f32(row_at(rows, t, 0))));
}

/* ---- panels ---- */

/* From this many tokens on a kernel computes longer than memory takes, and the hardware's own prefetch falls behind. */
UNPACK_INLINE void panel_tokens(BlockType type, const uint8_t *panel, uint32_t cols, Rows rows, uint32_t tokens,
                                float *out, size_t out_stride)
{
    bool is_float = type == BLOCK_F32 || type == BLOCK_F16 || type == BLOCK_BF16;
    uint32_t elements = is_float ? 1 : unpack_scale_count(type) ? 256 : 32, block_bytes = panel_block_bytes(type);
    size_t step = elements == 1 ? sizeof(float) : elements == 32 ? sizeof(Activation32) : sizeof(Activation256);
    __m512 acc[KERNEL_TOKENS_MAX];
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) acc[t] = _mm512_setzero_ps();
    for (uint32_t b = cols / elements; b; b--, panel += block_bytes, rows.first += step) {
        if (elements == 32) prefetch(panel, block_bytes);
        if (elements == 256) prefetch(panel, panel_head_bytes(type));
        if (elements == 1) tile_float(type, panel, rows, tokens, acc);
        else if (elements == 32) tile_32(type, panel, rows, tokens, acc);
        else tile_256(type, panel, rows, tokens, acc);
    }
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) _mm512_storeu_ps(out + t * out_stride, acc[t]);
}

UNPACK_INLINE void panel_any(BlockType type, const uint8_t *panel, uint32_t cols, const uint8_t *activations,
                             size_t stride, uint32_t tokens, float *out, size_t out_stride)
{
    Rows rows = {activations, stride};
    switch (tokens) {
    case 1: panel_tokens(type, panel, cols, rows, 1, out, out_stride); break;
    case 2: panel_tokens(type, panel, cols, rows, 2, out, out_stride); break;
    case 3: panel_tokens(type, panel, cols, rows, 3, out, out_stride); break;
    case 4: panel_tokens(type, panel, cols, rows, 4, out, out_stride); break;
    case 5: panel_tokens(type, panel, cols, rows, 5, out, out_stride); break;
    case 6: panel_tokens(type, panel, cols, rows, 6, out, out_stride); break;
    case 7: panel_tokens(type, panel, cols, rows, 7, out, out_stride); break;
    default: panel_tokens(type, panel, cols, rows, 8, out, out_stride); break;
    }
}

KERNELS_PANEL(panel_f32, panel_any, BLOCK_F32)
KERNELS_PANEL(panel_f16, panel_any, BLOCK_F16)
KERNELS_PANEL(panel_bf16, panel_any, BLOCK_BF16)
KERNELS_PANEL(panel_q4_0, panel_any, BLOCK_Q4_0)
KERNELS_PANEL(panel_q4_1, panel_any, BLOCK_Q4_1)
KERNELS_PANEL(panel_q5_0, panel_any, BLOCK_Q5_0)
KERNELS_PANEL(panel_q5_1, panel_any, BLOCK_Q5_1)
KERNELS_PANEL(panel_q8_0, panel_any, BLOCK_Q8_0)
KERNELS_PANEL(panel_q2_k, panel_any, BLOCK_Q2_K)
KERNELS_PANEL(panel_q3_k, panel_any, BLOCK_Q3_K)
KERNELS_PANEL(panel_q4_k, panel_any, BLOCK_Q4_K)
KERNELS_PANEL(panel_q5_k, panel_any, BLOCK_Q5_K)
KERNELS_PANEL(panel_q6_k, panel_any, BLOCK_Q6_K)

const Kernels kernels_avx512 = {
    ISA_AVX512, KERNELS_PANELS, {activation_quantize_float, quantize_avx2_32, quantize_avx2_256}};
