/* SPDX-License-Identifier: Apache-2.0 */
/* Stored layouts of a matrix.
 *
 *   rows     as in GGUF: one row after the other
 *   x16.1    panels of 16 rows, interleaved in 4-byte groups so that SIMD lanes are rows. The last panel of a matrix
 *            whose row count is no multiple of 16 is filled up with rows of zero bytes.
 *
 * Byte tables per type in docs/format/layout.md. A panel is the unit that kernels read. */
#ifndef COBORD_QUANT_LAYOUT_H
#define COBORD_QUANT_LAYOUT_H

#include "quant/block.h"

typedef enum Layout { LAYOUT_ROWS = 0, LAYOUT_X16 = 1 } Layout;

enum { PANEL_ROWS = 16 };

const char *layout_name(Layout layout);
MUST_CHECK Error layout_from_name(const char *name, size_t length, Layout *out, Why *why);

/* Bytes of one panel of 16 rows x cols in x16.1. Errors  ERR_TYPE, ERR_SHAPE. */
MUST_CHECK Error layout_panel_bytes(BlockType type, uint64_t cols, uint64_t *out, Why *why);
/* Bytes of a whole matrix in a layout. Errors  ERR_TYPE, ERR_SHAPE, ERR_TOO_LARGE. */
MUST_CHECK Error layout_tensor_bytes(BlockType type, Layout layout, uint64_t rows, uint64_t cols, uint64_t *out,
                                     Why *why);

/* Interleaves `rows` (1..16) rows of `row_bytes` bytes at `in` into one panel at `out`; missing rows become zeros.
 * No value changes: this is a permutation of bits and, for the K types, a widening of packed scales.
 * Errors  ERR_TYPE, ERR_SHAPE. */
MUST_CHECK Error layout_panel_from_rows(BlockType type, const void *in, uint32_t rows, uint32_t cols, void *out,
                                        Why *why);
/* The inverse: the panel's first `rows` rows in GGUF order. */
MUST_CHECK Error layout_rows_from_panel(BlockType type, const void *panel, uint32_t rows, uint32_t cols, void *out,
                                        Why *why);

#endif
