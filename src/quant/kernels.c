/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernels there are, and one matrix product cut into items for `parallel`.
 *
 *   panels of the tile:  | item 0: panels 0..7 | item 1: panels 8..15 | ..
 *   inside an item:      for every 8 tokens (their activations stay in L1)
 *                            for every panel of the item (its weights come from memory once, then from L2)
 *
 * What an output element is made of does not depend on the cut. */
#include "quant/kernels.h"

#include "base/bytes.h"
#include "quant/activation.h"
#include "quant/kernels_tables.h"

const char *kernels_isa_name(Isa isa)
{
    static const char *const names[ISAS] = {"scalar", "avx2",    "avxvnni", "avx512",
                                            "neon",   "simd128", "i8mm",    "relaxed"};
    return (unsigned)isa < ISAS ? names[isa] : "unknown";
}

const Kernels *kernels_for(Isa isa)
{
    switch (isa) {
    case ISA_SCALAR: return &kernels_scalar;
#if defined(__x86_64__)
    case ISA_AVX2: return &kernels_avx2;
    case ISA_AVXVNNI: return &kernels_avxvnni;
    case ISA_AVX512: return &kernels_avx512;
#elif defined(__aarch64__)
    case ISA_NEON: return &kernels_neon;
    case ISA_I8MM: return &kernels_i8mm;
#elif defined(__wasm_simd128__)
    case ISA_SIMD128: return &kernels_simd128;
#ifdef COBORD_RELAXED /* the second module: an engine that knows no relaxed SIMD refuses all of it */
    case ISA_RELAXED: return &kernels_relaxed;
#endif
#endif
    default: return NULL;
    }
}

ActivationForm kernels_activation_form(BlockType type)
{
    const BlockTraits *traits = block_traits((uint32_t)type);
    ASSERT(traits);
    if (traits->elements == 1) return ACTIVATION_FLOAT;
    return traits->elements == 32 ? ACTIVATION_32 : ACTIVATION_256;
}

size_t kernels_activation_row_bytes(ActivationForm form, uint32_t cols)
{
    size_t bytes = 0;
    if (form == ACTIVATION_FLOAT) bytes = cols * sizeof(float);
    if (form == ACTIVATION_32 && cols % 32 == 0) bytes = cols / 32 * sizeof(Activation32);
    if (form == ACTIVATION_256 && cols % 256 == 0) bytes = cols / 256 * sizeof(Activation256);
    return (bytes + 63) & ~(size_t)63;
}

static size_t panel_bytes_of(BlockType type, uint32_t cols)
{
    uint64_t bytes = 0;
    Error error = layout_panel_bytes(type, cols, &bytes, NULL);
    ASSERT(error == OK && bytes <= SIZE_MAX / 2); /* the caller's matrices were checked when they were found */
    return (size_t)bytes;
}

size_t kernels_matmul_scratch_bytes(BlockType type, Layout layout, uint32_t cols)
{
    return layout == LAYOUT_ROWS ? (panel_bytes_of(type, cols) + 63) & ~(size_t)63 : 0;
}

enum {
    ITEM_BYTES = 128 * 1024,   /* of weights: they fit L2 beside the activations */
    ITEMS_PER_WORKER = 4       /* enough to share, where there are that many panels */
};

typedef struct Matmul {
    const MatmulTile *tile;
    KernelPanel kernel;
    size_t panel_bytes, row_bytes;
    uint32_t skip; /* rows of the first panel that are before row_first */
    uint32_t panels, panels_per_item;
} Matmul;

static uint32_t tokens_from(const MatmulTile *tile, uint32_t first)
{
    uint32_t left = tile->tokens - first;
    return left < KERNEL_TOKENS_MAX ? left : KERNEL_TOKENS_MAX;
}

/* One panel for up to 8 tokens; rows outside the range are computed aside and dropped. */
static void multiply_panel(const Matmul *m, const uint8_t *panel, uint32_t index, uint32_t token, uint32_t tokens)
{
    const MatmulTile *tile = m->tile;
    const uint8_t *activations = tile->activations + token * tile->activation_stride;
    float *out = tile->out + token * tile->out_stride;
    uint32_t begin = index * PANEL_ROWS, end = begin + PANEL_ROWS; /* in rows of the first panel */
    if (begin >= m->skip && end - m->skip <= tile->row_count) {
        m->kernel(panel, tile->cols, activations, tile->activation_stride, tokens, out + (begin - m->skip),
                  tile->out_stride);
        return;
    }
    float aside[KERNEL_TOKENS_MAX][PANEL_ROWS];
    m->kernel(panel, tile->cols, activations, tile->activation_stride, tokens, &aside[0][0], PANEL_ROWS);
    uint32_t first = begin < m->skip ? m->skip : begin;
    uint32_t last = end - m->skip > tile->row_count && end > m->skip ? tile->row_count + m->skip : end;
    for (uint32_t t = 0; t < tokens; t++)
        memcpy(out + t * tile->out_stride + (first - m->skip), &aside[t][first - begin],
               (last - first) * sizeof(float));
}

static void run_panels(const Matmul *m, uint32_t first, uint32_t last)
{
    for (uint32_t token = 0; token < m->tile->tokens; token += KERNEL_TOKENS_MAX)
        for (uint32_t p = first; p < last; p++)
            multiply_panel(m, m->tile->tile + p * m->panel_bytes, p, token, tokens_from(m->tile, token));
}

/* Layout `rows`: each panel is laid into scratch memory once, then serves all tokens. */
static void run_rows(const Matmul *m, uint32_t first, uint32_t last, uint8_t *panel)
{
    const MatmulTile *tile = m->tile;
    for (uint32_t p = first; p < last; p++) {
        uint32_t row = p * PANEL_ROWS, left = tile->row_count - row;
        Error error = layout_panel_from_rows(tile->type, tile->tile + row * m->row_bytes,
                                             left < PANEL_ROWS ? left : PANEL_ROWS, tile->cols, panel, NULL);
        ASSERT(error == OK);
        for (uint32_t token = 0; token < tile->tokens; token += KERNEL_TOKENS_MAX)
            multiply_panel(m, panel, p, token, tokens_from(tile, token));
    }
}

static void run_item(void *argument, uint32_t item, uint32_t worker)
{
    const Matmul *m = argument;
    uint32_t first = item * m->panels_per_item, last = first + m->panels_per_item;
    if (last > m->panels) last = m->panels;
    if (m->tile->layout == LAYOUT_X16) run_panels(m, first, last);
    else run_rows(m, first, last, m->tile->scratch + worker * m->tile->scratch_bytes_per_worker);
}

static uint32_t panels_per_item(size_t panel_bytes, uint32_t panels, uint32_t workers)
{
    uint32_t by_bytes = (uint32_t)(ITEM_BYTES / panel_bytes);
    uint32_t by_share = panels / (workers * ITEMS_PER_WORKER);
    if (by_bytes > by_share) by_bytes = by_share;
    return by_bytes ? by_bytes : 1;
}

void kernels_matmul(const Kernels *kernels, const MatmulTile *tile, const Parallel *parallel)
{
    if (tile->tokens == 0 || tile->row_count == 0) return;
    uint64_t row_bytes = 0;
    Error error = block_row_bytes(tile->type, tile->cols, &row_bytes, NULL);
    ASSERT(error == OK && kernels->panel[tile->type]);
    Matmul m = {tile, kernels->panel[tile->type], panel_bytes_of(tile->type, tile->cols), (size_t)row_bytes, 0, 0, 0};
    if (tile->layout == LAYOUT_X16) m.skip = tile->row_first % PANEL_ROWS;
    else ASSERT(tile->scratch && tile->scratch_bytes_per_worker >= m.panel_bytes);
    m.panels = (m.skip + tile->row_count + PANEL_ROWS - 1) / PANEL_ROWS;
    m.panels_per_item = panels_per_item(m.panel_bytes, m.panels, parallel->workers);
    parallel_run(parallel, run_item, &m, (m.panels + m.panels_per_item - 1) / m.panels_per_item);
}
