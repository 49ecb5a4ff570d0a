/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix kernels: one table per instruction set, all with the same bits (docs/format/numerics.md).
 *
 * Activations are quantized once per row into a form that the weight's type asks for; a kernel multiplies one panel of
 * 16 weight rows by 1..8 activation rows. */
#ifndef COBORD_QUANT_KERNELS_H
#define COBORD_QUANT_KERNELS_H

#include "base/parallel.h"
#include "quant/block.h"
#include "quant/layout.h"

typedef enum Isa {
    ISA_SCALAR,
    ISA_AVX2,
    ISA_AVXVNNI,
    ISA_AVX512,
    ISA_NEON,
    ISA_SIMD128,
    ISA_I8MM,
    ISA_RELAXED,
    ISAS
} Isa;

/* "scalar", "avx2", "avxvnni", "avx512", "neon", "simd128", "i8mm", "relaxed" */
const char *kernels_isa_name(Isa isa);

/* How activation rows are stored for a weight type. */
typedef enum ActivationForm {
    ACTIVATION_FLOAT, /* F32 F16 BF16: float32 as they are */
    ACTIVATION_32,    /* Q4_0 Q4_1 Q5_0 Q5_1 Q8_0: int8 and one f32 scale per 32 */
    ACTIVATION_256,   /* K types: int8, one f32 scale per 256 and a 4-bit integer per 32 */
    ACTIVATION_FORMS
} ActivationForm;

enum { KERNEL_TOKENS_MAX = 8 };

/* Shapes  panel: 16 rows x cols in x16.1; activations: `tokens` (1..8) rows of kernels_activation_row_bytes(),
 *         `stride` bytes apart; out[t * out_stride + r] for r = 0..15 is set, never added to. */
typedef void (*KernelPanel)(const uint8_t *panel, uint32_t cols, const uint8_t *activations, size_t stride,
                            uint32_t tokens, float *out, size_t out_stride);
/* Quantizes one row. Shapes  x[cols]; out: kernels_activation_row_bytes(form, cols), 64-byte aligned.
 * A number that is not finite gives a row whose products are not finite; the caller looks for it there. */
typedef void (*KernelQuantize)(const float *x, uint32_t cols, uint8_t *out);

typedef struct Kernels {
    Isa isa;
    KernelPanel panel[BLOCK_TYPES_END];        /* NULL where there is no such type */
    KernelQuantize quantize[ACTIVATION_FORMS];
} Kernels;

/* NULL when this build has no kernels for `isa`. Whether the CPU can run them is the host's question. */
const Kernels *kernels_for(Isa isa);

ActivationForm kernels_activation_form(BlockType type);
/* A multiple of 64; 0 when cols does not fit the form (32 or 256 wide). */
size_t kernels_activation_row_bytes(ActivationForm form, uint32_t cols);

/* What a quantized row stands for: out[i] = scale * q[i]. The difference to x, quantized once more, doubles the bits
 * of an input whose errors matter most (docs/format/numerics.md, section 3). */
void kernels_activation_restore(ActivationForm form, const uint8_t *row, uint32_t cols, float *out);

/* One matrix product over a tile of rows, fanned out over `parallel`.
 *
 *   out[t * out_stride + r] = sum over k of W[row_first + r][k] * x[t][k]       0 <= r < row_count, 0 <= t < tokens
 *
 * `tile` holds the rows row_first.. of the matrix: in x16.1 it starts with the panel that holds row_first and covers
 * every panel touched; in `rows` it starts with row_first itself. Rows of a panel outside the range are dropped. */
typedef struct MatmulTile {
    BlockType type;
    Layout layout;
    uint32_t cols;
    const uint8_t *tile;
    uint32_t row_first, row_count;
    const uint8_t *activations; /* tokens rows, activation_stride bytes apart */
    size_t activation_stride;
    uint32_t tokens; /* any number; 0 does nothing */
    float *out;      /* &out[0] is row row_first of token 0 */
    size_t out_stride;
    uint8_t *scratch; /* kernels_matmul_scratch_bytes() per worker: panels re-laid from `rows`; NULL for 0 bytes */
    size_t scratch_bytes_per_worker;
} MatmulTile;

size_t kernels_matmul_scratch_bytes(BlockType type, Layout layout, uint32_t cols); /* per worker */
void kernels_matmul(const Kernels *kernels, const MatmulTile *tile, const Parallel *parallel);

#endif
