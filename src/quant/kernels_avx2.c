/* SPDX-License-Identifier: Apache-2.0 */
/* AVX2: 16 rows (a panel line, two registers) x up to 4 tokens at a time.
 *
 *   line (64 B):  | rows 0..7, 4 elements each | rows 8..15 |      one ymm each
 *
 * vpmaddubsw multiplies unsigned weight bytes by signed activation bytes and adds neighbours to int16; a chain of up
 * to 8 groups stays in int16 (bounds in docs/format/numerics.md, section 5), then one vpmaddwd applies the scale and
 * adds the two lanes of a row. Lanes are rows: nothing is ever summed across a register.
 *
 * Sixteen registers: 8 chains (4 tokens x 2), two for weights, one for the activation that both share. Sums of a block
 * are in memory. Nibbles are unpacked on the way, once per tile; types with more planes are unpacked into 512 bytes of
 * stack when more than one tile uses them. A panel is read once, in rising order. Functions named tile_ are
 * inlined with
 * a constant type and token count. */
#include "quant/kernels_tables.h"
#include "quant/panel_avx2.h"
#include "quant/quantize_avx2.h"

UNPACK_INLINE void add_group(__m256i w0, __m256i w1, const Tile *tile, size_t q_offset,
                             uint32_t tokens, Chains c)
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        __m256i a = ymm_all32(tile->activation + t * tile->stride + q_offset);
        c[t][0] = _mm256_add_epi16(c[t][0], _mm256_maddubs_epi16(w0, a));
        c[t][1] = _mm256_add_epi16(c[t][1], _mm256_maddubs_epi16(w1, a));
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
/* Starts every chain at the negated lane sums times 1 << shift_left, the zero point. */
UNPACK_INLINE void start(const Tile *tile, size_t lanes_offset, int shift_left, uint32_t tokens,
                         Chains v)
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++)
        v[t][0] = v[t][1] = _mm256_slli_epi16(
            ymm_all32(tile->activation + t * tile->stride + lanes_offset), shift_left);
}

/* ---- blocks of 32 ---- */

enum {
    LANES_32 = offsetof(Activation32, negative_lanes),
    LANES_256 = offsetof(Activation256, negative_half_lanes)
};

/* Integer sums with the zero point taken off. Sixteen products of Q5 wrap on the way unless they start at -16 times
 * the lane sums; Q5_1 has no zero point and gets that back. */
UNPACK_INLINE void sums_32(BlockType type, const Tile *tile, uint32_t tokens, Chains s)
{
    Chains c;
    if (type == BLOCK_Q4_1) clear(tokens, c);
    else start(tile, LANES_32, type == BLOCK_Q4_0 ? 3 : 4, tokens, c);
    add_groups(type, tile, 0, GROUPS, 0, tokens, c);
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        s[t][half] = _mm256_madd_epi16(c[t][half], _mm256_set1_epi16(1));
        if (type != BLOCK_Q5_1) continue;
        const uint8_t *sum =
            tile->activation + t * tile->stride + offsetof(Activation32, negative_sum);
        s[t][half] = _mm256_sub_epi32(s[t][half], _mm256_slli_epi32(ymm_all32(sum), 4));
    }
}

/* Bytes would saturate: a chain of low nibbles, then one of high nibbles with the zero point (8 * 16 = 128). */
UNPACK_INLINE void sums_q8_0(const Tile *tile, uint32_t tokens, Chains s)
{
    Chains c;
    clear(tokens, c);
    ROLLED
    for (uint32_t g = 0; g < GROUPS; g++)
        add_group(ymm_nibbles(ymm_line(tile->lines, g, 0)),
                  ymm_nibbles(ymm_line(tile->lines, g, 1)), tile, 4 * g, tokens, c);
    UNROLL
    for (uint32_t t = 0; t < tokens; t++)
        for (uint32_t half = 0; half < 2; half++)
            s[t][half] = _mm256_madd_epi16(c[t][half], _mm256_set1_epi16(1));
    start(tile, LANES_32, 3, tokens, c);
    ROLLED
    for (uint32_t g = 0; g < GROUPS; g++)
        add_group(ymm_nibbles(_mm256_srli_epi16(ymm_line(tile->lines, g, 0), 4)),
                  ymm_nibbles(_mm256_srli_epi16(ymm_line(tile->lines, g, 1), 4)), tile, 4 * g,
                  tokens, c);
    UNROLL
    for (uint32_t t = 0; t < tokens; t++)
        for (uint32_t half = 0; half < 2; half++)
            s[t][half] =
                _mm256_add_epi32(s[t][half], _mm256_madd_epi16(c[t][half], _mm256_set1_epi16(16)));
}

UNPACK_INLINE void tile_32(BlockType type, const uint8_t *block, const Tile *tile, uint32_t tokens,
                           float *acc)
{
    Chains s;
    if (type == BLOCK_Q8_0) sums_q8_0(tile, tokens, s);
    else sums_32(type, tile, tokens, s);
    UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        __m256 d = ymm_halves(block + 2 * HALF_ROWS * half), m = _mm256_setzero_ps();
        if (unpack_has_min(type)) m = ymm_halves(block + HALVES_BYTES + 2 * HALF_ROWS * half);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            const uint8_t *a = tile->activation + t * tile->stride;
            float *out = acc + t * PANEL_ROWS + HALF_ROWS * half;
            __m256 scale = ymm_all_f32(a + offsetof(Activation32, scale));
            __m256 step = _mm256_mul_ps(d, _mm256_mul_ps(scale, _mm256_cvtepi32_ps(s[t][half])));
            if (unpack_has_min(type))
                step = _mm256_add_ps(
                    step, _mm256_mul_ps(m, ymm_all_f32(a + offsetof(Activation32, scale_sum))));
            _mm256_storeu_ps(out, _mm256_add_ps(_mm256_loadu_ps(out), step));
        }
    }
}

/* ---- blocks of 256 ---- */

/* i += (scale k) c for one chain; scale[half] is (s, s) per row. */
UNPACK_INLINE void add_chain(const Tile *tile, const __m256i scale[2], uint32_t j, Chains c,
                             uint32_t tokens, __m256i i[][2])
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        __m256i k = ymm_all32(tile->activation + t * tile->stride +
                              offsetof(Activation256, k_twice) + 4 * j);
        UNROLL
        for (uint32_t half = 0; half < 2; half++)
            i[t][half] = _mm256_add_epi32(
                i[t][half], _mm256_madd_epi16(c[t][half], _mm256_mullo_epi16(scale[half], k)));
    }
}

/* Sub j. Q4_K: one chain of 16 products a lane, at most 15 * 127 * 16 = 30480. Others: two chains of 8 products, each
 * with its scale (the same one in Q5_K). */
UNPACK_INLINE void tile_sub(BlockType type, const Tile *tile, const uint8_t *pairs, uint32_t j,
                            uint32_t tokens, __m256i i[][2])
{
    bool per_sub = type == BLOCK_Q4_K || type == BLOCK_Q5_K;
    __m256i scales[2];
    UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        scales[half] = ymm_pair(type, pairs, per_sub ? j / 2 : j, half);
        if (type == BLOCK_Q2_K) scales[half] = ymm_nibbles(scales[half]);
    }
    uint32_t chains = type == BLOCK_Q4_K ? 1 : 2, groups = GROUPS / chains;
    UNROLL
    for (uint32_t n = 0; n < chains; n++) {
        Chains c;
        bool has_zero = type == BLOCK_Q3_K || type == BLOCK_Q6_K;
        if (has_zero)
            start(tile, LANES_256 + 4 * (2 * j + n), type == BLOCK_Q3_K ? 2 : 5, tokens, c);
        else clear(tokens, c);
        add_groups(type, tile, groups * n, groups, 32 * j, tokens, c);
        uint32_t which = per_sub ? j % 2 : n;
        __m256i scale[2] = {ymm_twice(scales[0], which), ymm_twice(scales[1], which)};
        add_chain(tile, scale, j, c, tokens, i);
    }
}

UNPACK_INLINE void add_minimum(const Tile *tile, __m256i m0, __m256i m1, size_t offset,
                               uint32_t tokens, Chains j)
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        __m256i a = ymm_all32(tile->activation + t * tile->stride + offset);
        j[t][0] = _mm256_add_epi32(j[t][0], _mm256_madd_epi16(m0, a));
        j[t][1] = _mm256_add_epi32(j[t][1], _mm256_madd_epi16(m1, a));
    }
}

/* sum of m k A. Sums of 32 fit int16 unless a token is wide; sums of 16 always do. */
UNPACK_INLINE void minimums(BlockType type, const Tile *tile, const uint8_t *pairs, uint32_t tokens,
                            Chains j)
{
    enum {
        SUMS = offsetof(Activation256, k_sums),
        HALF_SUMS = offsetof(Activation256, k_half_sums)
    };
    bool wide = type != BLOCK_Q2_K && ymm_is_wide(tile, tokens);
    clear(tokens, j);
    for (uint32_t p = 0; p < (type == BLOCK_Q2_K ? 8 : 4); p++) {
        uint32_t at = type == BLOCK_Q2_K ? p : 4 + p;
        __m256i m0 = ymm_pair(type, pairs, at, 0), m1 = ymm_pair(type, pairs, at, 1);
        if (type == BLOCK_Q2_K) {
            add_minimum(tile, _mm256_srli_epi16(m0, 4), _mm256_srli_epi16(m1, 4), HALF_SUMS + 4 * p,
                        tokens, j);
        } else if (!wide) {
            add_minimum(tile, m0, m1, SUMS + 4 * p, tokens, j);
        } else {
            add_minimum(tile, ymm_twice(m0, 0), ymm_twice(m1, 0), HALF_SUMS + 8 * p, tokens, j);
            add_minimum(tile, ymm_twice(m0, 1), ymm_twice(m1, 1), HALF_SUMS + 8 * p + 4, tokens, j);
        }
    }
}

UNPACK_INLINE void tile_finish(BlockType type, const uint8_t *block, const uint8_t *pairs,
                               const Tile *tile, uint32_t tokens, __m256i i[][2], float *acc)
{
    Chains j;
    if (unpack_has_min(type)) minimums(type, tile, pairs, tokens, j);
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

UNPACK_INLINE void block_256(BlockType type, const uint8_t *block, const uint8_t *activations,
                             size_t stride, uint32_t tokens, bool direct, Sums *i, float *acc)
{
    _Alignas(HALF_LINE) uint8_t unpacked[GROUPS * LINE_BYTES];
    const uint8_t *pairs = block + HALVES_BYTES * (unpack_has_min(type) ? 2 : 1);
    const uint8_t *lines = block + panel_head_bytes(type);
    uint32_t sub_bytes = panel_lines_count(panel_lines(type)) * LINE_BYTES;
    ymm_prefetch(block, panel_head_bytes(type));
    for (uint32_t p = 0; p < 4; p++) UNROLL
    for (uint32_t s = 0; s < 2; s++, lines += sub_bytes) {
        ymm_prefetch(lines, sub_bytes);
        if (!direct) ymm_unpack(type, lines, unpacked);
        YMM_EACH_TILE(tokens, Tile tile = ymm_tile(activations, stride, t, direct ? NULL : unpacked,
                                                   direct ? lines : NULL);
                      tile_sub(type, &tile, pairs, 2 * p + s, N, i->of + t));
    }
    YMM_EACH_TILE(tokens, Tile tile = ymm_tile(activations, stride, t, NULL, NULL);
                  tile_finish(type, block, pairs, &tile, N, i->of + t, acc + t * PANEL_ROWS));
}

UNPACK_INLINE void blocks(BlockType type, const uint8_t *panel, uint32_t cols,
                          const uint8_t *activations, size_t stride, uint32_t tokens, bool direct,
                          float *acc)
{
    bool is_256 = unpack_scale_count(type) != 0;
    size_t step = is_256 ? sizeof(Activation256) : sizeof(Activation32);
    Sums i = {0};
    for (uint32_t b = cols / (is_256 ? 256 : 32); b;
         b--, panel += panel_block_bytes(type), activations += step)
        if (is_256) block_256(type, panel, activations, stride, tokens, direct, &i, acc);
        else block_32(type, panel, activations, stride, tokens, direct, acc);
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

/* ---- floats ---- */

UNPACK_INLINE __m256 load_floats(BlockType type, const uint8_t *panel, size_t at)
{
    if (type == BLOCK_F32) return _mm256_loadu_ps((const float *)(const void *)(panel + 4 * at));
    if (type == BLOCK_F16) return ymm_halves(panel + 2 * at);
    __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)(panel + 2 * at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

UNPACK_INLINE void tile_float(BlockType type, const uint8_t *panel, uint32_t cols, const uint8_t *x,
                              size_t stride, uint32_t tokens, float *out, size_t out_stride)
{
    __m256 low[TILE_TOKENS], high[TILE_TOKENS];
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) low[t] = high[t] = _mm256_setzero_ps();
    for (size_t c = 0; c < cols; c++) {
        __m256 w0 = load_floats(type, panel, 16 * c), w1 = load_floats(type, panel, 16 * c + 8);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            __m256 v = ymm_all_f32(x + t * stride + 4 * c);
            low[t] = _mm256_add_ps(low[t], _mm256_mul_ps(w0, v));
            high[t] = _mm256_add_ps(high[t], _mm256_mul_ps(w1, v));
        }
    }
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        _mm256_storeu_ps(out + t * out_stride, low[t]);
        _mm256_storeu_ps(out + t * out_stride + 8, high[t]);
    }
}

UNPACK_INLINE void panel_floats(BlockType type, const uint8_t *panel, uint32_t cols,
                                const uint8_t *x, size_t stride, uint32_t tokens, float *out,
                                size_t out_stride)
{
    for (; tokens >= TILE_TOKENS; tokens -= TILE_TOKENS) {
        tile_float(type, panel, cols, x, stride, TILE_TOKENS, out, out_stride);
        x += TILE_TOKENS * stride;
        out += TILE_TOKENS * out_stride;
    }
    if (tokens == 1) tile_float(type, panel, cols, x, stride, 1, out, out_stride);
    if (tokens == 2) tile_float(type, panel, cols, x, stride, 2, out, out_stride);
    if (tokens == 3) tile_float(type, panel, cols, x, stride, 3, out, out_stride);
}

/* ---- the table ---- */

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

const Kernels kernels_avx2 = {
    ISA_AVX2, KERNELS_PANELS, {activation_quantize_float, quantize_avx2_32, quantize_avx2_256}};
