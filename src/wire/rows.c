/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/rows.h"

#include <stdbool.h>
#include <string.h>

#include "base/bytes.h"
#include "quant/block.h"
#include "quant/numerics.h"

static const char *const rows_names[] = {
    [ROWS_F32] = "f32", [ROWS_F16] = "f16", [ROWS_INT8] = "int8"};

const char *rows_element_name(RowsElement element)
{
    return element >= ROWS_F32 && element <= ROWS_INT8 ? rows_names[element] : "unknown";
}

Error rows_element_from_name(const char *name, size_t bytes, RowsElement *out, Why *why)
{
    for (int e = ROWS_F32; e <= ROWS_INT8; e++)
        if (strlen(rows_names[e]) == bytes && memcmp(rows_names[e], name, bytes) == 0) {
            *out = (RowsElement)e;
            return OK;
        }
    return error_why(why, ERR_TYPE, "\"%.*s\" is no element type; f32, f16 and int8 are",
                     bytes < 40 ? (int)bytes : 40, name);
}

Error rows_element_from_number(uint32_t number, RowsElement *out, Why *why)
{
    if (number < ROWS_F32 || number > ROWS_INT8)
        return error_why(why, ERR_TYPE, "element type %u; 1 to 3 are known", number);
    *out = (RowsElement)number;
    return OK;
}

/* The largest bits of |x|: as integers, magnitudes are ordered like numbers, and what is not finite
 * comes last. */
static uint32_t rows_magnitude(const uint8_t *bytes, uint32_t width)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < width; i++) {
        uint32_t bits = bytes_load32(bytes + 4 * (size_t)i) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    return most;
}

enum { ROWS_INFINITY_BITS = 0x7f800000, ROWS_HALF_INFINITY_BITS = 0x7c00 };

static Error rows_not_finite(uint32_t row, Why *why)
{
    return error_why(why, ERR_NOT_FINITE, "row %u has a number that is not finite", row);
}

static bool rows_put_half(const float *x, uint32_t width, uint8_t *out)
{
    bool fits = true;
    for (uint32_t i = 0; i < width; i++) {
        uint16_t half = block_f32_to_f16(x[i]);
        fits &= (half & 0x7fff) < ROWS_HALF_INFINITY_BITS;
        bytes_store16(out + 2 * (size_t)i, half);
    }
    return fits;
}

/* Round to nearest even for |v| < 2^22: the sum's last place is 1. */
static inline float rows_round(float v)
{
    const float shift = 0x1.8p23f;
    return (v + shift) - shift;
}

static bool rows_put_int8(const float *x, uint32_t width, float most, uint8_t *out)
{
    float scale = most < NUMERICS_TINY ? 0.0f : most / 127.0f;
    if (scale > ROWS_SCALE_MAX) return false;
    bytes_store_f32(out, scale);
    for (uint32_t i = 0; i < width; i++) {
        float v = scale > 0 ? rows_round(x[i] / scale) : 0.0f;
        v = v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v; /* the division may round up */
        out[4 + (size_t)i] = (uint8_t)(int8_t)v;
    }
    return true;
}

Error rows_write(RowsElement element, const float *x, uint32_t rows, uint32_t width, uint8_t *out,
                 Why *why)
{
    size_t row_bytes = (size_t)rows_row_bytes(element, width);
    for (uint32_t r = 0; r < rows; r++, x += width, out += row_bytes) {
        uint32_t bits = rows_magnitude((const uint8_t *)x, width);
        bool fits = true;
        if (bits >= ROWS_INFINITY_BITS) return rows_not_finite(r, why);
        if (element != ROWS_F32 && row_bytes >= 4) memset(out + row_bytes - 4, 0, 4);
        if (element == ROWS_F32) memcpy(out, x, row_bytes);
        else if (element == ROWS_F16) fits = rows_put_half(x, width, out);
        else fits = rows_put_int8(x, width, bytes_load_f32(&bits), out);
        if (!fits)
            return error_why(why, ERR_NOT_FINITE,
                             "row %u has a number too large for %s; f32 carries it", r,
                             rows_element_name(element));
    }
    return OK;
}

static Error rows_take_half(const uint8_t *in, uint32_t row, uint32_t width, float *x, Why *why)
{
    bool finite = true;
    for (uint32_t i = 0; i < width; i++) {
        uint16_t half = bytes_load16(in + 2 * (size_t)i);
        finite &= (half & 0x7fff) < ROWS_HALF_INFINITY_BITS;
        x[i] = block_f16_to_f32(half);
    }
    return finite ? OK : rows_not_finite(row, why);
}

static Error rows_not_int8(uint32_t row, Why *why)
{
    return error_why(why, ERR_FORMAT, "row %u is not what int8 rows look like (scale or -128)",
                     row);
}

static Error rows_take_int8(const uint8_t *in, uint32_t row, uint32_t width, float *x, Why *why)
{
    float scale = bytes_load_f32(in);
    bool valid = bytes_load32(in) >> 31 == 0 && scale <= ROWS_SCALE_MAX; /* false for NaN */
    for (uint32_t i = 0; valid && i < width; i++) {
        int8_t q = (int8_t)in[4 + (size_t)i];
        valid = q != -128;
        x[i] = (float)q * scale;
    }
    return valid ? OK : rows_not_int8(row, why);
}

static Error rows_check_half(const uint8_t *in, uint32_t row, uint32_t width, Why *why)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < width; i++) {
        uint32_t half = bytes_load16(in + 2 * (size_t)i) & 0x7fffu;
        most = half > most ? half : most;
    }
    return most < ROWS_HALF_INFINITY_BITS ? OK : rows_not_finite(row, why);
}

static Error rows_check_int8(const uint8_t *in, uint32_t row, uint32_t width, Why *why)
{
    float scale = bytes_load_f32(in);
    bool valid = bytes_load32(in) >> 31 == 0 && scale <= ROWS_SCALE_MAX; /* false for NaN */
    for (uint32_t i = 0; i < width; i++) valid &= in[4 + (size_t)i] != 0x80;
    return valid ? OK : rows_not_int8(row, why);
}

static size_t rows_used(RowsElement element, uint32_t width)
{
    return element == ROWS_F32   ? 4 * (size_t)width
           : element == ROWS_F16 ? 2 * (size_t)width
                                 : 4 + (size_t)width;
}

static Error rows_check_padding(RowsElement element, const uint8_t *in, uint32_t row,
                                uint32_t width, Why *why)
{
    for (size_t i = rows_used(element, width); i < rows_row_bytes(element, width); i++)
        if (in[i]) return error_why(why, ERR_FORMAT, "row %u has padding that is not 0", row);
    return OK;
}

Error rows_check(RowsElement element, const uint8_t *in, uint32_t rows, uint32_t width, Why *why)
{
    size_t row_bytes = (size_t)rows_row_bytes(element, width);
    for (uint32_t r = 0; r < rows; r++, in += row_bytes) {
        TRY(rows_check_padding(element, in, r, width, why));
        if (element == ROWS_F16) TRY(rows_check_half(in, r, width, why));
        else if (element == ROWS_INT8) TRY(rows_check_int8(in, r, width, why));
        else if (rows_magnitude(in, width) >= ROWS_INFINITY_BITS) return rows_not_finite(r, why);
    }
    return OK;
}

Error rows_read(RowsElement element, const uint8_t *in, uint32_t rows, uint32_t width, float *x,
                Why *why)
{
    size_t row_bytes = (size_t)rows_row_bytes(element, width);
    for (uint32_t r = 0; r < rows; r++, x += width, in += row_bytes) {
        TRY(rows_check_padding(element, in, r, width, why));
        if (element == ROWS_F16) TRY(rows_take_half(in, r, width, x, why));
        else if (element == ROWS_INT8) TRY(rows_take_int8(in, r, width, x, why));
        else if (rows_magnitude(in, width) >= ROWS_INFINITY_BITS) return rows_not_finite(r, why);
        else memcpy(x, in, row_bytes);
    }
    return OK;
}
