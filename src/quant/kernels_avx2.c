/* SPDX-License-Identifier: Apache-2.0 */
/* AVX2: 8 rows (half a panel line) x up to 4 tokens at a time; 16 registers hold no more.
 *
 *   line (64 B):  | rows 0..7, 4 elements each | rows 8..15 |      half h of a line is one ymm
 *
 * vpmaddubsw multiplies unsigned weight bytes by signed activation bytes and adds neighbours to int16; a chain of up
 * to 8 groups stays in int16 (bounds in docs/format/numerics.md, section 5), then one vpmaddwd applies the scale and
 * adds the two lanes of a row. Lanes are rows: nothing is ever summed across a register.
 *
 * Both halves and all tokens of a block are done before the next block, so a panel is read once, in rising order.
 * Functions named tile_ are inlined with a constant type and token count. */
#include <immintrin.h>

#include "quant/activation.h"
#include "quant/kernels_tables.h"
#include "quant/panel.h"
#include "quant/quantize_avx2.h"
#include "quant/unroll.h"

enum { TILE_TOKENS = 4, HALF_LINE = 32, HALF_ROWS = 8 };

/* Where one tile reads and adds: half h of a block, activations of its first token at this block. */
typedef struct Tile {
    const uint8_t *block;
    uint32_t half;
    const uint8_t *activation;
    size_t stride;
    float *acc; /* [tokens][16], at row 8 h */
    bool ahead; /* the first tile that reads this block: it also fetches what comes 8 KB later */
} Tile;

enum { PREFETCH_BYTES = 8192 };
UNPACK_INLINE void prefetch(const Tile *tile, const uint8_t *p, uint32_t bytes)
{
    if (!tile->ahead) return;
    UNROLL
    for (uint32_t at = 0; at < bytes; at += LINE_BYTES)
        _mm_prefetch((const char *)(p + PREFETCH_BYTES + at), _MM_HINT_T0);
}

UNPACK_INLINE __m256i load_line(const uint8_t *lines, uint32_t line, uint32_t half)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)(lines + line * LINE_BYTES + half * HALF_LINE));
}
UNPACK_INLINE __m256i broadcast32(const void *p) { return _mm256_set1_epi32((int)bytes_load32(p)); }
UNPACK_INLINE __m256 broadcast_f32(const void *p) { return _mm256_set1_ps(bytes_load_f32(p)); }
UNPACK_INLINE __m256 load_halves(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
UNPACK_INLINE __m256i nibbles(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }

/* Shifts 16-bit lanes left by `from_to` (right when negative): callers mask what crosses a byte. */
UNPACK_INLINE __m256i shift(__m256i v, int left)
{
    return left >= 0 ? _mm256_slli_epi16(v, left) : _mm256_srli_epi16(v, -left);
}

/* Group g (0..7) of 32 elements as unsigned bytes. */
UNPACK_INLINE __m256i group(BlockType type, const uint8_t *lines, uint32_t half, uint32_t g)
{
    PanelLines k = panel_lines(type);
    uint32_t crumbs = k.bit_lines, rest = crumbs + k.crumb_lines;
    __m256i v = _mm256_setzero_si256();
    if (k.nibble_lines) {
        __m256i line = load_line(lines, rest + g % 4, half);
        v = nibbles(g < 4 ? line : _mm256_srli_epi16(line, 4));
    }
    if (k.crumb_lines) {
        __m256i line = shift(load_line(lines, crumbs + g / 4, half), (int)k.crumb_shift - 2 * (int)(g % 4));
        v = _mm256_or_si256(v, _mm256_and_si256(line, _mm256_set1_epi8((char)(3 << k.crumb_shift))));
    }
    if (k.bit_lines) {
        __m256i line = shift(load_line(lines, 0, half), (int)k.bit_shift - (int)g);
        v = _mm256_or_si256(v, _mm256_and_si256(line, _mm256_set1_epi8((char)(1 << k.bit_shift))));
    }
    return v;
}

UNPACK_INLINE void add_group(__m256i w, const Tile *tile, size_t q_offset, uint32_t tokens, __m256i c[TILE_TOKENS])
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++)
        c[t] = _mm256_add_epi16(
            c[t], _mm256_maddubs_epi16(w, broadcast32(tile->activation + t * tile->stride + q_offset)));
}

UNPACK_INLINE void clear(uint32_t tokens, __m256i v[TILE_TOKENS])
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) v[t] = _mm256_setzero_si256();
}
/* Starts every chain at the negated lane sums times 1 << shift_left, the zero point. */
UNPACK_INLINE void start(const Tile *tile, size_t lanes_offset, int shift_left, uint32_t tokens, __m256i v[TILE_TOKENS])
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++)
        v[t] = _mm256_slli_epi16(broadcast32(tile->activation + t * tile->stride + lanes_offset), shift_left);
}

/* ---- blocks of 32 ---- */

enum { LANES_32 = offsetof(Activation32, negative_lanes), LANES_256 = offsetof(Activation256, negative_half_lanes) };

/* Integer sums with the zero point taken off. Sixteen products of Q5 wrap on the way unless they start at -16 times
 * the lane sums; Q5_1 has no zero point and gets that back. */
UNPACK_INLINE void sums_32(BlockType type, const Tile *tile, uint32_t tokens, __m256i s[TILE_TOKENS])
{
    const uint8_t *lines = tile->block + panel_head_bytes(type);
    __m256i c[TILE_TOKENS];
    if (type == BLOCK_Q4_1) clear(tokens, c);
    else start(tile, LANES_32, type == BLOCK_Q4_0 ? 3 : 4, tokens, c);
    UNROLL
    for (uint32_t n = 0; n < 8; n++) { /* 0 4 1 5 .., so that both nibbles of a line come from one load */
        uint32_t g = n / 2 + 4 * (n % 2);
        add_group(group(type, lines, tile->half, g), tile, 4 * g, tokens, c);
    }
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        s[t] = _mm256_madd_epi16(c[t], _mm256_set1_epi16(1));
        if (type != BLOCK_Q5_1) continue;
        const uint8_t *sum = tile->activation + t * tile->stride + offsetof(Activation32, negative_sum);
        s[t] = _mm256_sub_epi32(s[t], _mm256_slli_epi32(broadcast32(sum), 4));
    }
}

/* Bytes would saturate: two chains of nibbles, the upper one with the zero point (8 * 16 = 128). */
UNPACK_INLINE void sums_q8_0(const Tile *tile, uint32_t tokens, __m256i s[TILE_TOKENS])
{
    const uint8_t *lines = tile->block + panel_head_bytes(BLOCK_Q8_0);
    __m256i low[TILE_TOKENS], high[TILE_TOKENS];
    clear(tokens, low);
    start(tile, LANES_32, 3, tokens, high);
    ROLLED /* unrolled, broadcasts would be kept for the other chain and spilled: 44 GMAC/s instead of 77 */
    for (uint32_t g = 0; g < 8; g++) {
        __m256i line = load_line(lines, g, tile->half);
        add_group(nibbles(line), tile, 4 * g, tokens, low);
        add_group(nibbles(_mm256_srli_epi16(line, 4)), tile, 4 * g, tokens, high);
    }
    UNROLL
    for (uint32_t t = 0; t < tokens; t++)
        s[t] = _mm256_add_epi32(_mm256_madd_epi16(low[t], _mm256_set1_epi16(1)),
                                _mm256_madd_epi16(high[t], _mm256_set1_epi16(16)));
}

UNPACK_INLINE void tile_32(BlockType type, const Tile *tile, uint32_t tokens)
{
    __m256i s[TILE_TOKENS];
    prefetch(tile, tile->block, panel_block_bytes(type));
    if (type == BLOCK_Q8_0) sums_q8_0(tile, tokens, s);
    else sums_32(type, tile, tokens, s);
    __m256 d = load_halves(tile->block + 2 * HALF_ROWS * tile->half);
    __m256 m = _mm256_setzero_ps();
    if (unpack_has_min(type)) m = load_halves(tile->block + HALVES_BYTES + 2 * HALF_ROWS * tile->half);
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        const uint8_t *a = tile->activation + t * tile->stride;
        float *acc = tile->acc + t * PANEL_ROWS;
        __m256 scale = broadcast_f32(a + offsetof(Activation32, scale));
        __m256 step = _mm256_mul_ps(d, _mm256_mul_ps(scale, _mm256_cvtepi32_ps(s[t])));
        if (unpack_has_min(type))
            step = _mm256_add_ps(step, _mm256_mul_ps(m, broadcast_f32(a + offsetof(Activation32, scale_sum))));
        _mm256_storeu_ps(acc, _mm256_add_ps(_mm256_loadu_ps(acc), step));
    }
}

/* ---- blocks of 256 ---- */

/* (first, second) int16 per row -> (first, first) or (second, second) */
UNPACK_INLINE __m256i twice(__m256i pairs, uint32_t which)
{
    __m256i pattern = which ? _mm256_setr_epi8(2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15, 2, 3, 2, 3, 6, 7,
                                               6, 7, 10, 11, 10, 11, 14, 15, 14, 15)
                            : _mm256_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13, 0, 1, 0, 1, 4, 5, 4,
                                               5, 8, 9, 8, 9, 12, 13, 12, 13);
    return _mm256_shuffle_epi8(pairs, pattern);
}

/* Pair p of scales of this half's rows, as int16. */
UNPACK_INLINE __m256i pair_of(const uint8_t *pairs, uint32_t p, uint32_t half, bool is_signed)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(pairs + PAIR_BYTES * p + 16 * half));
    return is_signed ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes);
}

/* i += (scale k) c for one chain; `scale` is (s, s) per row. */
UNPACK_INLINE void add_chain(const Tile *tile, __m256i scale, uint32_t j, const __m256i c[TILE_TOKENS], uint32_t tokens,
                             __m256i i[TILE_TOKENS])
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        const uint8_t *k = tile->activation + t * tile->stride + offsetof(Activation256, k_twice) + 4 * j;
        __m256i scale_k = _mm256_mullo_epi16(scale, broadcast32(k));
        i[t] = _mm256_add_epi32(i[t], _mm256_madd_epi16(c[t], scale_k));
    }
}

/* Sub j of Q4_K: one chain of 16 products a lane, at most 15 * 127 * 16 = 30480. */
UNPACK_INLINE void sub_q4_k(const Tile *tile, const uint8_t *lines, __m256i pairs, uint32_t j, uint32_t tokens,
                            __m256i i[TILE_TOKENS])
{
    __m256i c[TILE_TOKENS];
    clear(tokens, c);
    UNROLL
    for (uint32_t g = 0; g < 4; g++) {
        __m256i line = load_line(lines, g, tile->half);
        add_group(nibbles(line), tile, 32 * j + 4 * g, tokens, c);
        add_group(nibbles(_mm256_srli_epi16(line, 4)), tile, 32 * j + 16 + 4 * g, tokens, c);
    }
    add_chain(tile, twice(pairs, j % 2), j, c, tokens, i);
}

/* Sub j of the other types: two chains of 8 products, each with its scale (the same one in Q5_K). */
UNPACK_INLINE void sub_halves(BlockType type, const Tile *tile, const uint8_t *lines, __m256i pairs, uint32_t j,
                              uint32_t tokens, __m256i i[TILE_TOKENS])
{
    UNROLL
    for (uint32_t n = 0; n < 2; n++) {
        __m256i c[TILE_TOKENS];
        bool has_zero = type == BLOCK_Q3_K || type == BLOCK_Q6_K;
        if (has_zero) start(tile, LANES_256 + 4 * (2 * j + n), type == BLOCK_Q3_K ? 2 : 5, tokens, c);
        else clear(tokens, c);
        UNROLL
        for (uint32_t g = 4 * n; g < 4 * n + 4; g++)
            add_group(group(type, lines, tile->half, g), tile, 32 * j + 4 * g, tokens, c);
        add_chain(tile, twice(pairs, type == BLOCK_Q5_K ? j % 2 : n), j, c, tokens, i);
    }
}

UNPACK_INLINE bool is_wide(const Tile *tile, uint32_t tokens)
{
    uint32_t wide = 0;
    UNROLL
    for (uint32_t t = 0; t < tokens; t++)
        wide |= bytes_load32(tile->activation + t * tile->stride + offsetof(Activation256, wide));
    return wide != 0;
}

UNPACK_INLINE void add_minimum(const Tile *tile, __m256i minimum, size_t offset, uint32_t tokens,
                               __m256i j[TILE_TOKENS])
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++)
        j[t] = _mm256_add_epi32(
            j[t], _mm256_madd_epi16(minimum, broadcast32(tile->activation + t * tile->stride + offset)));
}

/* sum of m k A. Sums of 32 fit int16 unless a token is wide; sums of 16 always do. */
UNPACK_INLINE void minimums(BlockType type, const Tile *tile, const uint8_t *pairs, uint32_t tokens,
                            __m256i j[TILE_TOKENS])
{
    enum { SUMS = offsetof(Activation256, k_sums), HALF_SUMS = offsetof(Activation256, k_half_sums) };
    clear(tokens, j);
    if (type == BLOCK_Q2_K) {
        for (uint32_t p = 0; p < 8; p++) {
            __m256i m = _mm256_srli_epi16(pair_of(pairs, p, tile->half, false), 4);
            add_minimum(tile, m, HALF_SUMS + 4 * p, tokens, j);
        }
    } else if (!is_wide(tile, tokens)) {
        for (uint32_t p = 0; p < 4; p++)
            add_minimum(tile, pair_of(pairs, 4 + p, tile->half, false), SUMS + 4 * p, tokens, j);
    } else {
        for (uint32_t p = 0; p < 4; p++) {
            __m256i m = pair_of(pairs, 4 + p, tile->half, false);
            add_minimum(tile, twice(m, 0), HALF_SUMS + 8 * p, tokens, j);
            add_minimum(tile, twice(m, 1), HALF_SUMS + 8 * p + 4, tokens, j);
        }
    }
}

UNPACK_INLINE void integers_256(BlockType type, const Tile *tile, const uint8_t *pairs, uint32_t tokens,
                                __m256i i[TILE_TOKENS])
{
    const uint8_t *lines = tile->block + panel_head_bytes(type);
    uint32_t sub_bytes = panel_lines_count(panel_lines(type)) * LINE_BYTES;
    bool per_sub = type == BLOCK_Q4_K || type == BLOCK_Q5_K, is_signed = type == BLOCK_Q3_K || type == BLOCK_Q6_K;
    clear(tokens, i);
    for (uint32_t p = 0; p < 4; p++) /* two subs a step */
        UNROLL
        for (uint32_t s = 0; s < 2; s++) {
            uint32_t j = 2 * p + s;
            __m256i scales = pair_of(pairs, per_sub ? p : j, tile->half, is_signed);
            if (type == BLOCK_Q2_K) scales = nibbles(scales);
            prefetch(tile, lines + j * sub_bytes, sub_bytes);
            if (type == BLOCK_Q4_K) sub_q4_k(tile, lines + j * sub_bytes, scales, j, tokens, i);
            else sub_halves(type, tile, lines + j * sub_bytes, scales, j, tokens, i);
        }
}

UNPACK_INLINE void tile_256(BlockType type, const Tile *tile, uint32_t tokens)
{
    const uint8_t *pairs = tile->block + HALVES_BYTES * (unpack_has_min(type) ? 2 : 1);
    __m256i i[TILE_TOKENS], j[TILE_TOKENS];
    prefetch(tile, tile->block, panel_head_bytes(type));
    if (unpack_has_min(type)) minimums(type, tile, pairs, tokens, j);
    integers_256(type, tile, pairs, tokens, i);
    __m256 d = load_halves(tile->block + 2 * HALF_ROWS * tile->half), dmin = _mm256_setzero_ps();
    if (unpack_has_min(type)) {
        dmin = load_halves(tile->block + HALVES_BYTES + 2 * HALF_ROWS * tile->half);
    }
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        float *acc = tile->acc + t * PANEL_ROWS;
        __m256 scale = broadcast_f32(tile->activation + t * tile->stride + offsetof(Activation256, scale));
        __m256 step = _mm256_mul_ps(d, _mm256_cvtepi32_ps(i[t]));
        if (unpack_has_min(type)) step = _mm256_sub_ps(step, _mm256_mul_ps(dmin, _mm256_cvtepi32_ps(j[t])));
        _mm256_storeu_ps(acc, _mm256_add_ps(_mm256_loadu_ps(acc), _mm256_mul_ps(scale, step)));
    }
}

/* ---- panels of blocks ---- */

UNPACK_INLINE void tile_any(BlockType type, const Tile *tile, uint32_t tokens)
{
    if (unpack_scale_count(type)) tile_256(type, tile, tokens);
    else tile_32(type, tile, tokens);
}

UNPACK_INLINE void panel_blocks(BlockType type, const uint8_t *panel, uint32_t cols, const uint8_t *activations,
                                size_t stride, uint32_t tokens, float *out, size_t out_stride)
{
    bool is_256 = unpack_scale_count(type) != 0;
    size_t step = is_256 ? sizeof(Activation256) : sizeof(Activation32);
    float acc[KERNEL_TOKENS_MAX * PANEL_ROWS] = {0};
    for (uint32_t b = 0; b < cols / (is_256 ? 256 : 32); b++, panel += panel_block_bytes(type), activations += step)
        for (uint32_t half = 0; half < 2; half++) {
            Tile tile = {panel, half, activations, stride, acc + HALF_ROWS * half, half == 0};
            uint32_t left = tokens;
            for (; left >= TILE_TOKENS; left -= TILE_TOKENS) {
                tile_any(type, &tile, TILE_TOKENS);
                tile.activation += TILE_TOKENS * stride;
                tile.acc += TILE_TOKENS * PANEL_ROWS;
                tile.ahead = false;
            }
            if (left == 1) tile_any(type, &tile, 1);
            if (left == 2) tile_any(type, &tile, 2);
            if (left == 3) tile_any(type, &tile, 3);
        }
    for (uint32_t t = 0; t < tokens; t++) memcpy(out + t * out_stride, acc + t * PANEL_ROWS, PANEL_ROWS * sizeof *acc);
}

/* ---- floats ---- */

UNPACK_INLINE __m256 load_floats(BlockType type, const uint8_t *panel, size_t at)
{
    if (type == BLOCK_F32) return _mm256_loadu_ps((const float *)(const void *)(panel + 4 * at));
    if (type == BLOCK_F16) return load_halves(panel + 2 * at);
    __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)(panel + 2 * at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

UNPACK_INLINE void tile_float(BlockType type, const uint8_t *panel, uint32_t cols, const uint8_t *x, size_t stride,
                              uint32_t tokens, float *out, size_t out_stride)
{
    __m256 low[TILE_TOKENS], high[TILE_TOKENS];
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) low[t] = high[t] = _mm256_setzero_ps();
    for (size_t c = 0; c < cols; c++) {
        __m256 w0 = load_floats(type, panel, 16 * c), w1 = load_floats(type, panel, 16 * c + 8);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            __m256 v = broadcast_f32(x + t * stride + 4 * c);
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

UNPACK_INLINE void panel_floats(BlockType type, const uint8_t *panel, uint32_t cols, const uint8_t *x, size_t stride,
                                uint32_t tokens, float *out, size_t out_stride)
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
