/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of activations as bytes (docs/format/frame.md, section 1). F32 keeps every bit; F16 and int8
 * are approximate, and the same everywhere.
 *
 *   F32   [f32 x width]
 *   F16   [f16 x width | 0.. to 4]
 *   int8  [f32 scale | i8 x width | 0.. to 4]       value = q * scale
 *
 * Nothing that is not finite gets in or out. */
#ifndef COBORD_WIRE_ROWS_H
#define COBORD_WIRE_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef enum RowsElement { ROWS_F32 = 1, ROWS_F16, ROWS_INT8 } RowsElement;

#define ROWS_SCALE_MAX 0x1p120f

const char *rows_element_name(RowsElement element); /* "f32", "f16", "int8" */
/* Errors  ERR_TYPE (shows the name). */
MUST_CHECK Error rows_element_from_name(const char *name, size_t bytes, RowsElement *out, Why *why);
/* Errors  ERR_TYPE. */
MUST_CHECK Error rows_element_from_number(uint32_t number, RowsElement *out, Why *why);

/* A multiple of 4. */
static inline uint64_t rows_row_bytes(RowsElement element, uint32_t width)
{
    uint64_t w = width;
    uint64_t bytes = element == ROWS_F32 ? 4 * w : element == ROWS_F16 ? 2 * w : 4 + w;
    return (bytes + 3) & ~(uint64_t)3;
}
static inline uint64_t rows_bytes(RowsElement element, uint32_t rows, uint32_t width)
{
    return rows * rows_row_bytes(element, width);
}

/* Shapes  x[rows][width] to out[rows_bytes]. Errors  ERR_NOT_FINITE: names the row; also a value too
 * large for the element. `out` is then undefined. */
MUST_CHECK Error rows_write(RowsElement element, const float *x, uint32_t rows, uint32_t width,
                            uint8_t *out, Why *why);
/* Shapes  in[rows_bytes], any alignment, to x[rows][width]. Errors  ERR_NOT_FINITE, ERR_FORMAT
 * (padding, a scale or quotient that no writer makes). */
MUST_CHECK Error rows_read(RowsElement element, const uint8_t *in, uint32_t rows, uint32_t width,
                           float *x, Why *why);
/* Whether rows_read would take them, of rows that are passed on as they are. Reads each once. */
MUST_CHECK Error rows_check(RowsElement element, const uint8_t *in, uint32_t rows, uint32_t width,
                            Why *why);

#endif
