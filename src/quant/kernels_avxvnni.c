/* SPDX-License-Identifier: Apache-2.0 */
/* AVX2 with AVX-VNNI: 16 rows (a panel line, two registers) x up to 4 tokens at a time.
 *
 * vpdpbusd adds four products of unsigned weight bytes and signed activation bytes to an int32 lane, one lane a row:
 * no int16 that could wrap, no addition of its own, and Q8_0 needs no second pass. Tiles are those of kernels_avx2.c.
 *
 * Every instruction that multiplies takes one of two ports, so two sums that fit int16 share one vpdpwssd:
 *
 *   chain of the second sum, shifted left 16, plus 0x8000 | chain of the first sum on top | xor 0x8000
 *     = | first | second |, one int16 pair per row, times (sc0 k0, sc1 k1)
 *
 * The 0x8000 keeps a negative first sum from borrowing of the second. In Q4_K sums fit unless a token's block is
 * `wide` (docs/format/numerics.md, section 5); in Q2_K and Q3_K always; in Q5_K and Q6_K never. */
#include "quant/kernels_tables.h"
#include "quant/panel_avx2.h"
#include "quant/quantize_avx2.h"

UNPACK_INLINE void add_group(__m256i w0, __m256i w1, const Tile *tile, size_t q_offset,
                             uint32_t tokens, Chains c)
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        __m256i a = ymm_all32(tile->activation + t * tile->stride + q_offset);
        c[t][0] = _mm256_dpbusd_avx_epi32(c[t][0], w0, a);
        c[t][1] = _mm256_dpbusd_avx_epi32(c[t][1], w1, a);
        YMM_PIN(c[t][0]);
        YMM_PIN(c[t][1]);
    }
}

/* Groups first..first+count-1 into the chains; q_offset is that of group 0. */
UNPACK_INLINE void add_groups(BlockType type, const Tile *tile, uint32_t first, uint32_t count,
                              size_t q_offset, uint32_t tokens, Chains c)
{
    if (tile->lines) {
        UNROLL
        for (uint32_t g = first; g < first + count; g++)
            add_group(ymm_group(type, tile->lines, 0, g), ymm_group(type, tile->lines, 1, g), tile,
                      q_offset + 4 * g, tokens, c);
    } else {
        ROLLED /* unrolled, stored weights would be kept in registers that there are not */
            for (uint32_t g = first; g < first + count; g++)
                add_group(ymm_line(tile->unpacked, g, 0), ymm_line(tile->unpacked, g, 1), tile,
                          q_offset + 4 * g, tokens, c);
    }
}

UNPACK_INLINE void clear(uint32_t tokens, Chains v)
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) v[t][0] = v[t][1] = _mm256_setzero_si256();
}
/* Starts every chain at a negated sum of activations times 1 << shift_left, the zero point. */
UNPACK_INLINE void start(const Tile *tile, size_t sum_offset, int shift_left, uint32_t tokens,
                         Chains v)
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++)
        v[t][0] = v[t][1] = _mm256_slli_epi32(
            ymm_all32(tile->activation + t * tile->stride + sum_offset), shift_left);
}

/* ---- blocks of 32 ---- */

UNPACK_INLINE void tile_32(BlockType type, const uint8_t *block, const Tile *tile, uint32_t tokens,
                           float *acc)
{
    Chains s;
    if (unpack_has_min(type)) clear(tokens, s);
    else
        start(tile, offsetof(Activation32, negative_sum),
              type == BLOCK_Q4_0   ? 3
              : type == BLOCK_Q5_0 ? 4
                                   : 7,
              tokens, s);
    add_groups(type, tile, 0, GROUPS, 0, tokens, s);
    UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        __m256 d = ymm_halves(block + 2 * HALF_ROWS * half), m = _mm256_setzero_ps();
        if (unpack_has_min(type)) m = ymm_halves(block + HALVES_BYTES + 2 * HALF_ROWS * half);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            const uint8_t *a = tile->activation + t * tile->stride;
            float *out = acc + t * PANEL_ROWS + HALF_ROWS * half;
            __m256 scaled = _mm256_mul_ps(ymm_all_f32(a + offsetof(Activation32, scale)),
                                          _mm256_cvtepi32_ps(s[t][half]));
            __m256 step = _mm256_mul_ps(d, scaled);
            if (unpack_has_min(type))
                step = _mm256_add_ps(
                    step, _mm256_mul_ps(m, ymm_all_f32(a + offsetof(Activation32, scale_sum))));
            _mm256_storeu_ps(out, _mm256_add_ps(_mm256_loadu_ps(out), step));
        }
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

UNPACK_INLINE __m256i scales_of(BlockType type, const uint8_t *pairs, uint32_t p, uint32_t half)
{
    __m256i scales = ymm_pair(type, pairs, p, half);
    return type == BLOCK_Q2_K ? ymm_nibbles(scales) : scales;
}
/* One of two int16 as int32. */
UNPACK_INLINE __m256i one_of(__m256i pairs, uint32_t which)
{
    return _mm256_srai_epi32(which ? pairs : _mm256_slli_epi32(pairs, 16), 16);
}

/* Finished second sums make room for the first ones, which start at their zero point (`shift_left` < 0: none). */
UNPACK_INLINE void make_room(const Tile *tile, size_t sum_offset, int shift_left, uint32_t tokens,
                             Chains c)
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        __m256i low = _mm256_set1_epi32(0x8000);
        if (shift_left >= 0) {
            __m256i sum = ymm_all32(tile->activation + t * tile->stride + sum_offset);
            low = _mm256_add_epi32(low, _mm256_slli_epi32(sum, shift_left));
        }
        UNROLL
        for (uint32_t half = 0; half < 2; half++)
            c[t][half] = _mm256_add_epi32(_mm256_slli_epi32(c[t][half], 16), low);
    }
}
/* i += first * sc0 k0 + second * sc1 k1; k_offset is that of (k0, k1). */
UNPACK_INLINE void add_pairs(const Tile *tile, const __m256i scales[2], size_t k_offset, Chains c,
                             uint32_t tokens, __m256i i[][2])
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        __m256i k = ymm_all32(tile->activation + t * tile->stride + k_offset);
        UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            __m256i sums = _mm256_xor_si256(c[t][half], _mm256_set1_epi32(0x8000));
            i[t][half] =
                _mm256_dpwssd_avx_epi32(i[t][half], sums, _mm256_mullo_epi16(scales[half], k));
        }
    }
}

/* Subs 2p and 2p + 1 of Q4_K, when no token is wide. */
UNPACK_INLINE void tile_narrow(BlockType type, const Tile *tile, const Tile *next,
                               const uint8_t *pairs, uint32_t p, uint32_t tokens, __m256i i[][2])
{
    Chains c;
    __m256i scales[2] = {scales_of(type, pairs, p, 0), scales_of(type, pairs, p, 1)};
    clear(tokens, c);
    add_groups(type, next, 0, GROUPS, 64 * p + 32, tokens, c);
    make_room(tile, 0, -1, tokens, c);
    add_groups(type, tile, 0, GROUPS, 64 * p, tokens, c);
    add_pairs(tile, scales, K + 4 * p, c, tokens, i);
}

/* Sub j of Q2_K and Q3_K: halves as pairs. */
UNPACK_INLINE void tile_halves(BlockType type, const Tile *tile, const uint8_t *pairs, uint32_t j,
                               uint32_t tokens, __m256i i[][2])
{
    Chains c;
    size_t sums = HALF_SUMS + 8 * j;
    __m256i scales[2] = {scales_of(type, pairs, j, 0), scales_of(type, pairs, j, 1)};
    if (type == BLOCK_Q3_K) start(tile, sums + 4, 2, tokens, c);
    else clear(tokens, c);
    add_groups(type, tile, 4, 4, 32 * j, tokens, c);
    make_room(tile, sums, type == BLOCK_Q3_K ? 2 : -1, tokens, c);
    add_groups(type, tile, 0, 4, 32 * j, tokens, c);
    add_pairs(tile, scales, K_TWICE + 4 * j, c, tokens, i);
}

/* Sub j of Q4_K and Q5_K: one sum of up to 17 bits. */
UNPACK_INLINE void tile_sub(BlockType type, const Tile *tile, const uint8_t *pairs, uint32_t j,
                            uint32_t tokens, __m256i i[][2])
{
    Chains c;
    __m256i scale[2];
    UNROLL
    for (uint32_t half = 0; half < 2; half++)
        scale[half] = one_of(scales_of(type, pairs, j / 2, half), j % 2);
    clear(tokens, c);
    add_groups(type, tile, 0, GROUPS, 32 * j, tokens, c);
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        __m256i k = ymm_all32(tile->activation + t * tile->stride + K_TWICE + 4 * j);
        UNROLL
        for (uint32_t half = 0; half < 2;
             half++) /* scales are not negative: their upper halves are 0 and stay it */
            i[t][half] = _mm256_add_epi32(
                i[t][half], _mm256_mullo_epi32(c[t][half], _mm256_mullo_epi16(scale[half], k)));
    }
}

/* Sub j of Q6_K: k (sc0 S0 + sc1 S1), all of it in int32. */
UNPACK_INLINE void tile_q6_k(const Tile *tile, const uint8_t *pairs, uint32_t j, uint32_t tokens,
                             __m256i i[][2])
{
    const BlockType type = BLOCK_Q6_K;
    Chains c, e;
    __m256i scales[2] = {scales_of(type, pairs, j, 0), scales_of(type, pairs, j, 1)};
    start(tile, HALF_SUMS + 8 * j, 5, tokens, c);
    add_groups(type, tile, 0, 4, 32 * j, tokens, c);
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) UNROLL
    for (uint32_t half = 0; half < 2; half++)
        e[t][half] = _mm256_mullo_epi32(c[t][half], one_of(scales[half], 0));
    start(tile, HALF_SUMS + 8 * j + 4, 5, tokens, c);
    add_groups(type, tile, 4, 4, 32 * j, tokens, c);
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        __m256i k =
            _mm256_srli_epi32(ymm_all32(tile->activation + t * tile->stride + K_TWICE + 4 * j), 16);
        UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            __m256i sum = _mm256_add_epi32(e[t][half],
                                           _mm256_mullo_epi32(c[t][half], one_of(scales[half], 1)));
            i[t][half] = _mm256_add_epi32(i[t][half], _mm256_mullo_epi32(sum, k));
        }
    }
}

UNPACK_INLINE void add_minimum(const Tile *tile, __m256i m0, __m256i m1, size_t offset,
                               uint32_t tokens, Chains j)
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        __m256i a = ymm_all32(tile->activation + t * tile->stride + offset);
        j[t][0] = _mm256_dpwssd_avx_epi32(j[t][0], m0, a);
        j[t][1] = _mm256_dpwssd_avx_epi32(j[t][1], m1, a);
    }
}

/* sum of m k A. Sums of 32 fit int16 unless a token is wide; sums of 16 always do. */
UNPACK_INLINE void minimums(BlockType type, const Tile *tile, const uint8_t *pairs, bool narrow,
                            uint32_t tokens, Chains j)
{
    clear(tokens, j);
    for (uint32_t p = 0; p < (type == BLOCK_Q2_K ? 8 : 4); p++) {
        uint32_t at = type == BLOCK_Q2_K ? p : 4 + p;
        __m256i m0 = ymm_pair(type, pairs, at, 0), m1 = ymm_pair(type, pairs, at, 1);
        if (type == BLOCK_Q2_K) {
            add_minimum(tile, _mm256_srli_epi16(m0, 4), _mm256_srli_epi16(m1, 4),
                        K_HALF_SUMS + 4 * p, tokens, j);
        } else if (narrow) {
            add_minimum(tile, m0, m1, K_SUMS + 4 * p, tokens, j);
        } else {
            add_minimum(tile, ymm_twice(m0, 0), ymm_twice(m1, 0), K_HALF_SUMS + 8 * p, tokens, j);
            add_minimum(tile, ymm_twice(m0, 1), ymm_twice(m1, 1), K_HALF_SUMS + 8 * p + 4, tokens,
                        j);
        }
    }
}

UNPACK_INLINE void tile_finish(BlockType type, const uint8_t *block, const uint8_t *pairs,
                               const Tile *tile, bool narrow, uint32_t tokens, __m256i i[][2],
                               float *acc)
{
    Chains j;
    if (unpack_has_min(type)) minimums(type, tile, pairs, narrow, tokens, j);
    UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        __m256 d = ymm_halves(block + 2 * HALF_ROWS * half), dmin = _mm256_setzero_ps();
        if (unpack_has_min(type)) dmin = ymm_halves(block + HALVES_BYTES + 2 * HALF_ROWS * half);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            float *out = acc + t * PANEL_ROWS + HALF_ROWS * half;
            __m256 scale =
                ymm_all_f32(tile->activation + t * tile->stride + offsetof(Activation256, scale));
            __m256 step = _mm256_mul_ps(d, _mm256_cvtepi32_ps(i[t][half]));
            if (unpack_has_min(type))
                step = _mm256_sub_ps(step, _mm256_mul_ps(dmin, _mm256_cvtepi32_ps(j[t][half])));
            _mm256_storeu_ps(out, _mm256_add_ps(_mm256_loadu_ps(out), _mm256_mul_ps(scale, step)));
            i[t][half] = _mm256_setzero_si256();
        }
    }
}

/* ---- panels of blocks ---- */

UNPACK_INLINE void block_32(BlockType type, const uint8_t *block, const uint8_t *activations,
                            size_t stride, uint32_t tokens, bool direct, float *acc)
{
    _Alignas(HALF_LINE) uint8_t unpacked[GROUPS * LINE_BYTES];
    const uint8_t *lines = block + panel_head_bytes(type);
    ymm_prefetch(block, panel_block_bytes(type));
    if (!direct) ymm_unpack(type, lines, unpacked);
    YMM_EACH_TILE(tokens, Tile tile = ymm_tile(activations, stride, t, direct ? NULL : unpacked,
                                               direct ? lines : NULL);
                  tile_32(type, block, &tile, N, acc + t * PANEL_ROWS));
}

UNPACK_INLINE void tile_any(BlockType type, const Tile *tile, const uint8_t *pairs, uint32_t j,
                            uint32_t tokens, __m256i i[][2])
{
    if (type == BLOCK_Q6_K) tile_q6_k(tile, pairs, j, tokens, i);
    else if (type == BLOCK_Q2_K || type == BLOCK_Q3_K) tile_halves(type, tile, pairs, j, tokens, i);
    else tile_sub(type, tile, pairs, j, tokens, i);
}

/* `pairwise`: Q4_K without a wide token. */
UNPACK_INLINE void block_256(BlockType type, const uint8_t *block, const uint8_t *activations,
                             size_t stride, uint32_t tokens, bool direct, bool pairwise, Sums *i)
{
    _Alignas(HALF_LINE) uint8_t unpacked[GROUPS * LINE_BYTES];
    const uint8_t *pairs = block + HALVES_BYTES * (unpack_has_min(type) ? 2 : 1);
    const uint8_t *lines = block + panel_head_bytes(type);
    uint32_t sub_bytes = panel_lines_count(panel_lines(type)) * LINE_BYTES;
    for (uint32_t p = 0; p < 4; p++, lines += 2 * sub_bytes) {
        if (pairwise) {
            ymm_prefetch(lines, 2 * sub_bytes);
            YMM_EACH_TILE(tokens, Tile tile = ymm_tile(activations, stride, t, NULL, lines);
                          Tile next = ymm_tile(activations, stride, t, NULL, lines + sub_bytes);
                          tile_narrow(type, &tile, &next, pairs, p, N, i->of + t));
            continue;
        }
        UNROLL
        for (uint32_t s = 0; s < 2; s++) {
            const uint8_t *at = lines + s * sub_bytes;
            ymm_prefetch(at, sub_bytes);
            if (!direct) ymm_unpack(type, at, unpacked);
            YMM_EACH_TILE(tokens,
                          Tile tile = ymm_tile(activations, stride, t, direct ? NULL : unpacked,
                                               direct ? at : NULL);
                          tile_any(type, &tile, pairs, 2 * p + s, N, i->of + t));
        }
    }
}

UNPACK_INLINE void finish_256(BlockType type, const uint8_t *block, const uint8_t *activations,
                              size_t stride, uint32_t tokens, bool narrow, Sums *i, float *acc)
{
    const uint8_t *pairs = block + HALVES_BYTES * (unpack_has_min(type) ? 2 : 1);
    YMM_EACH_TILE(tokens, Tile tile = ymm_tile(activations, stride, t, NULL, NULL); tile_finish(
                      type, block, pairs, &tile, narrow, N, i->of + t, acc + t * PANEL_ROWS));
}

UNPACK_INLINE bool any_wide(const uint8_t *activations, size_t stride, uint32_t tokens)
{
    uint32_t wide = 0;
    for (uint32_t t = 0; t < tokens; t++)
        wide |= bytes_load32(activations + t * stride + offsetof(Activation256, wide));
    return wide != 0;
}

UNPACK_INLINE void blocks(BlockType type, const uint8_t *panel, uint32_t cols,
                          const uint8_t *activations, size_t stride, uint32_t tokens, bool direct,
                          float *acc)
{
    bool is_256 = unpack_scale_count(type) != 0,
         has_wide = type == BLOCK_Q4_K || type == BLOCK_Q5_K;
    size_t step = is_256 ? sizeof(Activation256) : sizeof(Activation32);
    Sums i = {0};
    for (uint32_t b = cols / (is_256 ? 256 : 32); b;
         b--, panel += panel_block_bytes(type), activations += step) {
        if (!is_256) {
            block_32(type, panel, activations, stride, tokens, direct, acc);
            continue;
        }
        bool narrow = !has_wide || !any_wide(activations, stride, tokens);
        ymm_prefetch(panel, panel_head_bytes(type));
        if (type == BLOCK_Q4_K && narrow)
            block_256(type, panel, activations, stride, tokens, direct, true, &i);
        else block_256(type, panel, activations, stride, tokens, direct, false, &i);
        finish_256(type, panel, activations, stride, tokens, narrow, &i, acc);
    }
}

UNPACK_INLINE void panel_blocks(BlockType type, const uint8_t *panel, uint32_t cols,
                                const uint8_t *activations, size_t stride, uint32_t tokens,
                                float *out, size_t out_stride)
{
    PanelLines k = panel_lines(type);
    float acc[KERNEL_TOKENS_MAX * PANEL_ROWS] = {0};
    if (k.bit_lines + k.crumb_lines == 0)
        blocks(type, panel, cols, activations, stride, tokens, true, acc);
    else if (tokens <= TILE_TOKENS)
        blocks(type, panel, cols, activations, stride, tokens, true, acc);
    else blocks(type, panel, cols, activations, stride, tokens, false, acc);
    for (uint32_t t = 0; t < tokens; t++)
        memcpy(out + t * out_stride, acc + t * PANEL_ROWS, PANEL_ROWS * sizeof *acc);
}

/* ---- the table ---- */

/* Floats have no use for VNNI. */
static void panel_avx2(BlockType type, const uint8_t *panel, uint32_t cols,
                       const uint8_t *activations, size_t stride, uint32_t tokens, float *out,
                       size_t out_stride)
{
    kernels_avx2.panel[type](panel, cols, activations, stride, tokens, out, out_stride);
}

KERNELS_PANEL(panel_f32, panel_avx2, BLOCK_F32)
KERNELS_PANEL(panel_f16, panel_avx2, BLOCK_F16)
KERNELS_PANEL(panel_bf16, panel_avx2, BLOCK_BF16)
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

const Kernels kernels_avxvnni = {
    ISA_AVXVNNI, KERNELS_PANELS, {activation_quantize_float, quantize_avx2_32, quantize_avx2_256}};
