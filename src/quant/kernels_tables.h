/* SPDX-License-Identifier: Apache-2.0 */
/* One table per instruction set that this build may have. Private to this room; everyone else asks kernels_for(). */
#ifndef COBORD_QUANT_KERNELS_TABLES_H
#define COBORD_QUANT_KERNELS_TABLES_H

#include "quant/kernels.h"

extern const Kernels kernels_scalar, kernels_avx2, kernels_avxvnni, kernels_avx512, kernels_neon, kernels_i8mm,
    kernels_simd128,
    kernels_relaxed;

/* Defines a KernelPanel that calls `body`, an inlined function, with a constant type. */
#define KERNELS_PANEL(name, body, type)                                                                               \
    static void name(const uint8_t *panel, uint32_t cols, const uint8_t *activations, size_t stride, uint32_t tokens, \
                     float *out, size_t out_stride)                                                                   \
    {                                                                                                                 \
        body(type, panel, cols, activations, stride, tokens, out, out_stride);                                        \
    }

/* The table's list of panels, from functions named panel_ and the type. */
#define KERNELS_PANELS                                                                                        \
    {                                                                                                         \
        [BLOCK_F32] = panel_f32, [BLOCK_F16] = panel_f16, [BLOCK_BF16] = panel_bf16, [BLOCK_Q4_0] = panel_q4_0, \
        [BLOCK_Q4_1] = panel_q4_1, [BLOCK_Q5_0] = panel_q5_0, [BLOCK_Q5_1] = panel_q5_1,                      \
        [BLOCK_Q8_0] = panel_q8_0, [BLOCK_Q2_K] = panel_q2_k, [BLOCK_Q3_K] = panel_q3_k,                      \
        [BLOCK_Q4_K] = panel_q4_k, [BLOCK_Q5_K] = panel_q5_k, [BLOCK_Q6_K] = panel_q6_k,                      \
    }

#endif
