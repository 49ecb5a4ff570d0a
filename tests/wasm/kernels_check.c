/* SPDX-License-Identifier: Apache-2.0 */
/* The WebAssembly kernels and quantizers against the reference, inside a module that kernels_check.mjs calls. Random
 * and extreme rows, activations that vary, blocks of zeros, infinities; panels at any address; guard floats. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "../kernel/random_blocks.h"
#include "quant/activation.h"
#include "quant/measure.h"

#define EXPORT(name) __attribute__((export_name(#name)))
#pragma clang diagnostic ignored "-Wmissing-prototypes" /* nothing in C calls these */

enum {
    COLS_MAX = 2048,
    ROW_BYTES_MAX = COLS_MAX * 4,
    GUARD = 5,
    OUT_STRIDE = PANEL_ROWS + GUARD,
    POISON = 0x7fc12345
};

static uint8_t rows[PANEL_ROWS * ROW_BYTES_MAX], panel[PANEL_ROWS * ROW_BYTES_MAX + 64];
static float x[KERNEL_TOKENS_MAX][COLS_MAX];
static _Alignas(64) uint8_t activations[KERNEL_TOKENS_MAX * COLS_MAX * 4];
static _Alignas(64) uint8_t expected_activations[KERNEL_TOKENS_MAX * COLS_MAX * 4];
static uint32_t expected[KERNEL_TOKENS_MAX * OUT_STRIDE], got[KERNEL_TOKENS_MAX * OUT_STRIDE];

EXPORT(types) uint32_t check_types(void) { return ALL_TYPES_COUNT; }
EXPORT(has) uint32_t check_has(uint32_t isa) { return kernels_for((Isa)isa) != NULL; }
EXPORT(isas) uint32_t check_isas(void) { return ISAS; }
EXPORT(isa_name) const char *check_isa_name(uint32_t isa) { return kernels_isa_name((Isa)isa); }
EXPORT(type_name) const char *check_type_name(uint32_t type)
{
    return block_traits(ALL_TYPES[type])->name;
}
EXPORT(block) uint32_t check_block(uint32_t type)
{
    return block_traits(ALL_TYPES[type])->elements;
}

/* How activations are made: 0 normal, 1 all the largest (sums at their bounds), 2 with zero and tiny blocks, 3 with
 * infinity and NaN, 4 flat: every number of a block nearly the same, so that k reaches 15 everywhere, 5 of one sign
 * with sums on both sides of the bound that makes a block wide. */
static void make_x(Random *r, uint32_t cols, uint32_t kind)
{
    float least = (float)(random_next(r) % 5) * 0.1f;
    for (uint32_t t = 0; t < KERNEL_TOKENS_MAX; t++)
        for (uint32_t c = 0; c < cols; c++) {
            float v = random_normal(r);
            if (kind == 1) v = t & 1 ? -3.0f : 3.0f;
            if (kind == 2 && (c / 32 + t) % 3 == 0) v = c / 32 % 2 ? 0.0f : v * 0x1p-120f;
            if (kind == 4) v = (random_next(r) & 7 ? 1.0f : 0.98f) * (t & 1 ? -1.0f : 1.0f);
            if (kind == 5)
                v = (least + (1.0f - least) * (random_unit(r) * 0.5f + 0.5f)) *
                    (t & 1 ? -1.0f : 1.0f);
            x[t][c] = v;
        }
    if (kind != 3) return;
    x[1][cols / 2] = __builtin_inff();
    x[2][0] = __builtin_nanf("");
}

/* Infinities, NaN, subnormals and the least normal number among the scales of a row. */
static void special_scales(Random *r, BlockType type, uint32_t cols, uint8_t *row)
{
    static const uint16_t halves[] = {0x7c00, 0xfc00, 0x7e01, 0x0001,
                                      0x83ff, 0x0400, 0x8000, 0x7bff};
    const BlockTraits *traits = block_traits(type);
    for (uint32_t b = 0; b < cols / traits->elements; b++, row += traits->bytes) {
        uint16_t half = halves[random_next(r) % 8];
        if (random_next(r) % 4 == 0) bytes_store16(row + unpack_d_offset(type), half);
        if (unpack_has_min(type) && random_next(r) % 4 == 0)
            bytes_store16(row + unpack_d_offset(type) + 2, half);
    }
}

/* What rows are made of: 0 and 1 all bits clear or set, 2 random, 3 with scales that are not ordinary numbers. */
static bool make_panel(Random *r, BlockType type, uint32_t cols, uint32_t fill, uint32_t shift)
{
    uint64_t row_bytes;
    if (block_row_bytes(type, cols, &row_bytes, NULL) != OK || row_bytes > ROW_BYTES_MAX)
        return false;
    for (uint32_t row = 0; row < PANEL_ROWS; row++) {
        uint8_t *to = rows + row * row_bytes;
        if (fill > 1) random_row(r, type, cols, to);
        else extreme_row(type, cols, fill ? 0xff : 0, to);
        if (fill == 3 && row % 2) special_scales(r, type, cols, to);
    }
    return layout_panel_from_rows(type, rows, PANEL_ROWS, cols, panel + shift, NULL) == OK;
}

static bool is_nan(uint32_t bits) { return (bits & 0x7fffffff) > 0x7f800000; }

/* Which NaN is not specified. */
static bool same(uint32_t tokens)
{
    for (uint32_t i = 0; i < KERNEL_TOKENS_MAX * OUT_STRIDE; i++) {
        bool outside = i / OUT_STRIDE >= tokens || i % OUT_STRIDE >= PANEL_ROWS;
        bool equal = got[i] == expected[i] || (is_nan(got[i]) && is_nan(expected[i]));
        if (outside ? got[i] != POISON : !equal) return false;
    }
    return true;
}

/* 0: the same bits; 1: activations differ; 2: products differ; 3: the case cannot be made. */
EXPORT(check)
uint32_t check(uint32_t isa, uint32_t type_index, uint32_t cols, uint32_t tokens, uint32_t kind,
               uint32_t fill, uint32_t shift, uint32_t seed)
{
    BlockType type = ALL_TYPES[type_index];
    ActivationForm form = kernels_activation_form(type);
    const Kernels *scalar = kernels_for(ISA_SCALAR), *simd = kernels_for((Isa)isa);
    size_t stride = kernels_activation_row_bytes(form, cols);
    Random r = {seed + type};
    if (!simd || !stride || cols > COLS_MAX || tokens > KERNEL_TOKENS_MAX) return 3;
    if (!make_panel(&r, type, cols, fill, shift)) return 3;
    make_x(&r, cols, kind);
    memset(expected_activations, 0x55, sizeof activations);
    memset(activations, 0x55, sizeof activations);
    for (uint32_t t = 0; t < tokens; t++) {
        scalar->quantize[form](x[t], cols, expected_activations + t * stride);
        simd->quantize[form](x[t], cols, activations + t * stride);
    }
    if (memcmp(activations, expected_activations, sizeof activations) != 0) return 1;
    for (uint32_t i = 0; i < KERNEL_TOKENS_MAX * OUT_STRIDE; i++) expected[i] = got[i] = POISON;
    scalar->panel[type](panel + shift, cols, activations, stride, tokens, (float *)(void *)expected,
                        OUT_STRIDE);
    simd->panel[type](panel + shift, cols, activations, stride, tokens, (float *)(void *)got,
                      OUT_STRIDE);
    return same(tokens) ? 0 : 2;
}

/* ---- rates, of the shapes that `cobord bench --kernels` measures ---- */

static MatmulTile product;

/* Memory behind everything else, grown when it is not there yet; NULL when there is no more. */
static uint8_t *memory_of(size_t bytes)
{
    static uint8_t *start;
    static size_t have;
    enum { PAGE_BYTES = 65536 };
    if (bytes <= have) return start;
    size_t pages = (bytes + PAGE_BYTES - 1) / PAGE_BYTES, at = __builtin_wasm_memory_grow(0, pages);
    if (at == (size_t)-1) return NULL;
    start = (uint8_t *)(at * PAGE_BYTES);
    have = pages * PAGE_BYTES;
    return start;
}

/* Makes a product of about so many bytes of weights for multiply(); returns their number, 0 when there is none. */
EXPORT(prepare)
uint32_t check_prepare(uint32_t isa, uint32_t type_index, uint32_t cols, uint32_t tokens,
                       uint32_t weights_bytes)
{
    BlockType type = ALL_TYPES[type_index];
    uint64_t panel_bytes;
    size_t bytes;
    const Kernels *kernels = kernels_for((Isa)isa);
    if (!kernels || layout_panel_bytes(type, cols, &panel_bytes, NULL) != OK) return 0;
    MeasureShape shape = {type, (uint32_t)(weights_bytes / panel_bytes) * PANEL_ROWS, cols, tokens};
    if (measure_bytes(&shape, &bytes, NULL) != OK) return 0;
    uint8_t *memory = memory_of(bytes);
    if (!memory || measure_prepare(kernels, &shape, memory, &product, NULL) != OK) return 0;
    return (uint32_t)(panel_bytes * (shape.rows / PANEL_ROWS));
}

EXPORT(multiply) void check_multiply(uint32_t isa)
{
    kernels_matmul(kernels_for((Isa)isa), &product, &parallel_serial);
}

EXPORT(products) double check_products(void)
{
    return (double)product.row_count * product.cols * product.tokens;
}
