/* SPDX-License-Identifier: Apache-2.0 */
/* Block types: names, sizes, and exact expansion to float32.
 *
 * A row of n elements is n / elements blocks of `bytes` bytes, nothing between them; n is a multiple of `elements`.
 * The numbers are GGML's own type numbers, so that a GGUF tensor's type is looked up directly.
 * Source  the block structures of the GGUF format as published with ggml; docs/format/layout.md has the byte tables. */
#ifndef COBORD_QUANT_BLOCK_H
#define COBORD_QUANT_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef enum BlockType {
    BLOCK_F32 = 0,
    BLOCK_F16 = 1,
    BLOCK_Q4_0 = 2,
    BLOCK_Q4_1 = 3,
    BLOCK_Q5_0 = 6,
    BLOCK_Q5_1 = 7,
    BLOCK_Q8_0 = 8,
    BLOCK_Q2_K = 10,
    BLOCK_Q3_K = 11,
    BLOCK_Q4_K = 12,
    BLOCK_Q5_K = 13,
    BLOCK_Q6_K = 14,
    BLOCK_BF16 = 30,
    BLOCK_TYPES_END = 31
} BlockType;

typedef struct BlockTraits {
    const char *name;   /* GGML's spelling, as in a knot's JSON: "Q4_K" */
    uint16_t elements;  /* per block: 1, 32 or 256 */
    uint16_t bytes;     /* per block */
} BlockTraits;

/* NULL for a number outside the list above. */
const BlockTraits *block_traits(uint32_t type);

/* Errors  ERR_TYPE (names the number or the name): an unknown type is never taken for another. */
MUST_CHECK Error block_type_from_name(const char *name, size_t length, BlockType *out, Why *why);
MUST_CHECK Error block_type_from_number(uint64_t number, BlockType *out, Why *why);

/* Bytes of one row of `cols` elements. Errors  ERR_TYPE, ERR_SHAPE when cols is 0 or no multiple of the block. */
MUST_CHECK Error block_row_bytes(BlockType type, uint64_t cols, uint64_t *out, Why *why);
/* Bytes of rows x cols, every product checked. Errors  as above, ERR_TOO_LARGE. */
MUST_CHECK Error block_tensor_bytes(BlockType type, uint64_t rows, uint64_t cols, uint64_t *out, Why *why);

/* Expands one row to float32, exactly as ggml defines each type (products and sums in f32, no FMA).
 * Shapes  row of `cols` elements at `bytes` (any alignment) to out[cols]. Errors  ERR_TYPE, ERR_SHAPE. */
MUST_CHECK Error block_dequantize_row(BlockType type, const void *bytes, uint32_t cols, float *out, Why *why);

/* From the numbers back to the row that they were expanded from, in block_restore.c. What encoders write comes back bit
 * for bit; of other rows, and of numbers that are no expansion, any bytes may come: the caller has a hash to compare.
 * Shapes  values[cols], any alignment, to out[row bytes], which may begin where the values do. Result  false: not for
 * this type (Q2_K, Q3_K, Q6_K) or width. */
bool block_restore_row(BlockType type, const void *values, uint32_t cols, void *out);

/* True when every scale of the row (and every element, for float types) is finite. */
bool block_row_finite(BlockType type, const void *bytes, uint32_t cols);

float block_f16_to_f32(uint16_t half);
uint16_t block_f32_to_f16(float value); /* round to nearest even; overflow gives infinity */

#endif
