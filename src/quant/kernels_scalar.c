/* SPDX-License-Identifier: Apache-2.0 */
/* The reference kernels: docs/format/numerics.md, section 4, in plain C. Every other instruction set must give these
 * bits. Written to be read; the loops over 16 rows are what a compiler can make vectors of.
 *
 *   panel block -> 8 groups x 64 bytes (row r, element 4g + b at [g][4r + b]) -> integer sums [16] -> one float step */
#include "quant/activation.h"
#include "quant/kernels_tables.h"
#include "quant/panel.h"

typedef struct Sums {
    int32_t row[PANEL_ROWS];
} Sums;

typedef struct Accumulators {
    float row[KERNEL_TOKENS_MAX][PANEL_ROWS];
} Accumulators;

static void accumulators_store(const Accumulators *acc, uint32_t tokens, float *out, size_t out_stride)
{
    for (uint32_t t = 0; t < tokens; t++) memcpy(out + t * out_stride, acc->row[t], sizeof acc->row[t]);
}

/* Unsigned elements of 32 columns, before the zero point. */
UNPACK_INLINE void decode_lines(BlockType type, const uint8_t *lines, uint8_t q[8][LINE_BYTES])
{
    PanelLines k = panel_lines(type);
    const uint8_t *crumbs = lines + k.bit_lines * LINE_BYTES, *rest = crumbs + k.crumb_lines * LINE_BYTES;
    for (uint32_t g = 0; g < 8; g++)
        for (uint32_t i = 0; i < LINE_BYTES; i++) {
            uint32_t v = 0;
            if (k.nibble_lines) v = rest[g % 4 * LINE_BYTES + i] >> (g < 4 ? 0 : 4) & 15u;
            if (k.byte_lines) v = rest[g * LINE_BYTES + i];
            if (k.crumb_lines) v |= (crumbs[g / 4 * LINE_BYTES + i] >> (2 * (g % 4)) & 3u) << k.crumb_shift;
            if (k.bit_lines) v |= (lines[i] >> g & 1u) << k.bit_shift;
            q[g][i] = (uint8_t)v;
        }
}

/* sum of (q - zero) a over `groups` groups of four. */
UNPACK_INLINE void dot_groups(const uint8_t q[][LINE_BYTES], uint32_t groups, const int8_t *a, int32_t zero, Sums *out)
{
    int32_t start = 0;
    for (uint32_t i = 0; i < 4 * groups; i++) start -= zero * a[i];
    for (uint32_t r = 0; r < PANEL_ROWS; r++) out->row[r] = start;
    for (uint32_t g = 0; g < groups; g++)
        for (uint32_t r = 0; r < PANEL_ROWS; r++)
            for (uint32_t b = 0; b < 4; b++) out->row[r] += q[g][4 * r + b] * a[4 * g + b];
}

static void load_halves(const uint8_t *in, float out[PANEL_ROWS])
{
    for (uint32_t r = 0; r < PANEL_ROWS; r++) out[r] = block_f16_to_f32(bytes_load16(in + 2 * r));
}

/* ---- blocks of 32 ---- */

UNPACK_INLINE void panel_32(BlockType type, const uint8_t *panel, uint32_t cols, const uint8_t *activations,
                            size_t stride, uint32_t tokens, float *out, size_t out_stride)
{
    Accumulators acc = {{{0}}};
    for (uint32_t b = 0; b < cols / 32; b++, panel += panel_block_bytes(type)) {
        float d[PANEL_ROWS], m[PANEL_ROWS];
        uint8_t q[8][LINE_BYTES];
        load_halves(panel, d);
        load_halves(panel + HALVES_BYTES, m); /* read only where there are minimums */
        decode_lines(type, panel + panel_head_bytes(type), q);
        for (uint32_t t = 0; t < tokens; t++) {
            const Activation32 *a = (const Activation32 *)(const void *)(activations + t * stride) + b;
            Sums s;
            dot_groups(q, 8, a->q, unpack_zero_point(type), &s);
            for (uint32_t r = 0; r < PANEL_ROWS; r++) {
                float step = d[r] * (a->scale * (float)s.row[r]);
                if (unpack_has_min(type)) step = step + m[r] * a->scale_sum;
                acc.row[t][r] = acc.row[t][r] + step;
            }
        }
    }
    accumulators_store(&acc, tokens, out, out_stride);
}

/* ---- blocks of 256 ---- */

/* Scale n of row r, as stored; minimums of Q2_K are the upper nibbles, those of Q4_K and Q5_K follow 4 pairs later. */
UNPACK_INLINE int32_t scale_of(BlockType type, const uint8_t *pairs, uint32_t n, uint32_t r)
{
    uint8_t byte = pairs[PAIR_BYTES * (n / 2) + 2 * r + n % 2];
    if (type == BLOCK_Q2_K) return byte & 15;
    return type == BLOCK_Q3_K || type == BLOCK_Q6_K ? (int8_t)byte : byte;
}
UNPACK_INLINE int32_t minimum_of(BlockType type, const uint8_t *pairs, uint32_t n, uint32_t r)
{
    if (type == BLOCK_Q2_K) return pairs[PAIR_BYTES * (n / 2) + 2 * r + n % 2] >> 4;
    return pairs[PAIR_BYTES * (4 + n / 2) + 2 * r + n % 2];
}

/* Sums over groups that share one scale: adds sc k S to `i` and m k A to `j`. Unsigned: a crafted scale may wrap. */
UNPACK_INLINE void add_scaled(BlockType type, const uint8_t *pairs, uint32_t n, int32_t k, const Sums *s, int32_t sum_a,
                              uint32_t i[PANEL_ROWS], uint32_t j[PANEL_ROWS])
{
    for (uint32_t r = 0; r < PANEL_ROWS; r++) {
        i[r] += (uint32_t)(scale_of(type, pairs, n, r) * k) * (uint32_t)s->row[r];
        if (unpack_has_min(type)) j[r] += (uint32_t)(minimum_of(type, pairs, n, r) * k * sum_a);
    }
}

/* The integer part of one block and token. */
UNPACK_INLINE void integers_256(BlockType type, const uint8_t *pairs, const uint8_t q[64][LINE_BYTES],
                                const Activation256 *a, uint32_t i[PANEL_ROWS], uint32_t j[PANEL_ROWS])
{
    uint32_t count = unpack_scale_count(type), groups = 64 / count;
    memset(i, 0, PANEL_ROWS * sizeof *i);
    memset(j, 0, PANEL_ROWS * sizeof *j);
    for (uint32_t n = 0; n < count; n++) {
        Sums s;
        const int8_t *part = a->q + 4 * groups * n;
        int32_t sum_a = 0;
        for (uint32_t e = 0; e < 4 * groups; e++) sum_a += part[e];
        dot_groups(q + groups * n, groups, part, unpack_zero_point(type), &s);
        add_scaled(type, pairs, n, a->k[8 * n / count], &s, sum_a, i, j);
    }
}

UNPACK_INLINE void panel_256(BlockType type, const uint8_t *panel, uint32_t cols, const uint8_t *activations,
                             size_t stride, uint32_t tokens, float *out, size_t out_stride)
{
    Accumulators acc = {{{0}}};
    uint32_t sub_bytes = panel_lines_count(panel_lines(type)) * LINE_BYTES;
    for (uint32_t b = 0; b < cols / 256; b++, panel += panel_block_bytes(type)) {
        float d[PANEL_ROWS], dmin[PANEL_ROWS];
        uint8_t q[64][LINE_BYTES];
        load_halves(panel, d);
        load_halves(panel + HALVES_BYTES, dmin);
        for (uint32_t j = 0; j < 8; j++) decode_lines(type, panel + panel_head_bytes(type) + j * sub_bytes, q + 8 * j);
        const uint8_t *pairs = panel + HALVES_BYTES * (unpack_has_min(type) ? 2 : 1);
        for (uint32_t t = 0; t < tokens; t++) {
            const Activation256 *a = (const Activation256 *)(const void *)(activations + t * stride) + b;
            uint32_t i[PANEL_ROWS], j[PANEL_ROWS];
            integers_256(type, pairs, (const uint8_t(*)[LINE_BYTES])q, a, i, j);
            for (uint32_t r = 0; r < PANEL_ROWS; r++) {
                float step = d[r] * (float)(int32_t)i[r];
                if (unpack_has_min(type)) step = step - dmin[r] * (float)(int32_t)j[r];
                acc.row[t][r] = acc.row[t][r] + a->scale * step;
            }
        }
    }
    accumulators_store(&acc, tokens, out, out_stride);
}

/* ---- floats ---- */

UNPACK_INLINE float float_at(BlockType type, const uint8_t *panel, size_t i)
{
    if (type == BLOCK_F32) return bytes_load_f32(panel + 4 * i);
    uint16_t half = bytes_load16(panel + 2 * i);
    if (type == BLOCK_F16) return block_f16_to_f32(half);
    uint32_t bits = (uint32_t)half << 16;
    return bytes_load_f32(&bits);
}

UNPACK_INLINE void panel_float(BlockType type, const uint8_t *panel, uint32_t cols, const uint8_t *activations,
                               size_t stride, uint32_t tokens, float *out, size_t out_stride)
{
    Accumulators acc = {{{0}}};
    for (uint32_t c = 0; c < cols; c++) {
        float w[PANEL_ROWS];
        for (uint32_t r = 0; r < PANEL_ROWS; r++) w[r] = float_at(type, panel, (size_t)c * PANEL_ROWS + r);
        for (uint32_t t = 0; t < tokens; t++) {
            float x = bytes_load_f32(activations + t * stride + 4 * (size_t)c);
            for (uint32_t r = 0; r < PANEL_ROWS; r++) acc.row[t][r] = acc.row[t][r] + w[r] * x;
        }
    }
    accumulators_store(&acc, tokens, out, out_stride);
}

/* ---- the table ---- */

KERNELS_PANEL(panel_f32, panel_float, BLOCK_F32)
KERNELS_PANEL(panel_f16, panel_float, BLOCK_F16)
KERNELS_PANEL(panel_bf16, panel_float, BLOCK_BF16)
KERNELS_PANEL(panel_q4_0, panel_32, BLOCK_Q4_0)
KERNELS_PANEL(panel_q4_1, panel_32, BLOCK_Q4_1)
KERNELS_PANEL(panel_q5_0, panel_32, BLOCK_Q5_0)
KERNELS_PANEL(panel_q5_1, panel_32, BLOCK_Q5_1)
KERNELS_PANEL(panel_q8_0, panel_32, BLOCK_Q8_0)
KERNELS_PANEL(panel_q2_k, panel_256, BLOCK_Q2_K)
KERNELS_PANEL(panel_q3_k, panel_256, BLOCK_Q3_K)
KERNELS_PANEL(panel_q4_k, panel_256, BLOCK_Q4_K)
KERNELS_PANEL(panel_q5_k, panel_256, BLOCK_Q5_K)
KERNELS_PANEL(panel_q6_k, panel_256, BLOCK_Q6_K)

const Kernels kernels_scalar = {
    ISA_SCALAR, KERNELS_PANELS, {activation_quantize_float, activation_quantize_32, activation_quantize_256}};
