/* SPDX-License-Identifier: Apache-2.0 */
/* Rows to panels of 16 and back (docs/format/layout.md, section 2). Works on words of four elements, so that one pass
 * over a matrix costs little more than copying it.
 *
 *   rows:  | row 0 block 0 | row 0 block 1 | ..         panel:  | block 0 of rows 0..15 | block 1 of rows 0..15 | ..
 */
#include "quant/layout.h"

#include "quant/panel.h"
#include "quant/unpack.h"

const char *layout_name(Layout layout)
{
    return layout == LAYOUT_X16 ? "x16.1" : "rows";
}

Error layout_from_name(const char *name, size_t length, Layout *out, Why *why)
{
    for (Layout layout = LAYOUT_ROWS; layout <= LAYOUT_X16; layout++)
        if (strlen(layout_name(layout)) == length && !memcmp(layout_name(layout), name, length)) {
            *out = layout;
            return OK;
        }
    int shown = length > 40 ? 40 : (int)length;
    return error_why(why, ERR_UNSUPPORTED, "layout '%.*s' is unknown", shown, name);
}

Error layout_panel_bytes(BlockType type, uint64_t cols, uint64_t *out, Why *why)
{
    uint64_t row_bytes = 0;
    TRY(block_row_bytes(type, cols, &row_bytes, why));
    if (!bytes_mul(cols / block_traits((uint32_t)type)->elements, panel_block_bytes(type), out))
        return error_why(why, ERR_TOO_LARGE, "a panel of %llu columns", (unsigned long long)cols);
    return OK;
}

Error layout_tensor_bytes(BlockType type, Layout layout, uint64_t rows, uint64_t cols, uint64_t *out, Why *why)
{
    if (layout == LAYOUT_ROWS) return block_tensor_bytes(type, rows, cols, out, why);
    if (layout != LAYOUT_X16) return error_why(why, ERR_UNSUPPORTED, "layout number %u is unknown", (unsigned)layout);
    uint64_t panel_bytes = 0, panels;
    TRY(layout_panel_bytes(type, cols, &panel_bytes, why));
    if (!bytes_add(rows, PANEL_ROWS - 1, &panels) || !bytes_mul(panels / PANEL_ROWS, panel_bytes, out))
        return error_why(why, ERR_TOO_LARGE, "%llu rows of %llu columns", (unsigned long long)rows,
                         (unsigned long long)cols);
    return OK;
}

/* ---- one row of one block, panel side ---- */

static uint8_t *line_word(uint8_t *lines, uint32_t line, uint32_t r) { return lines + line * LINE_BYTES + 4 * r; }
static uint32_t load_line(const uint8_t *lines, uint32_t line, uint32_t r)
{
    return bytes_load32(lines + line * LINE_BYTES + 4 * r);
}

UNPACK_INLINE void lines_store(PanelLines k, const uint32_t w[8], uint32_t r, uint8_t *lines)
{
    if (k.bit_lines) {
        uint32_t bits = 0;
        for (uint32_t g = 0; g < 8; g++) bits |= (w[g] >> k.bit_shift & UNPACK_BITS) << g;
        bytes_store32(line_word(lines, 0, r), bits);
        lines += LINE_BYTES;
    }
    for (uint32_t n = 0; n < k.crumb_lines; n++) {
        uint32_t bits = 0;
        for (uint32_t h = 0; h < 4; h++) bits |= (w[4 * n + h] >> k.crumb_shift & UNPACK_CRUMBS) << (2 * h);
        bytes_store32(line_word(lines, n, r), bits);
    }
    lines += k.crumb_lines * LINE_BYTES;
    for (uint32_t g = 0; g < k.nibble_lines; g++)
        bytes_store32(line_word(lines, g, r), (w[g] & UNPACK_NIBBLES) | (w[4 + g] & UNPACK_NIBBLES) << 4);
    for (uint32_t g = 0; g < k.byte_lines; g++) bytes_store32(line_word(lines, g, r), w[g]);
}

UNPACK_INLINE void lines_load(PanelLines k, const uint8_t *lines, uint32_t r, uint32_t w[8])
{
    const uint8_t *crumbs = lines + k.bit_lines * LINE_BYTES, *rest = crumbs + k.crumb_lines * LINE_BYTES;
    for (uint32_t g = 0; g < 8; g++) {
        w[g] = 0;
        if (k.nibble_lines) w[g] = load_line(rest, g % 4, r) >> (4 * (g / 4)) & UNPACK_NIBBLES;
        if (k.byte_lines) w[g] = load_line(rest, g, r);
        if (k.crumb_lines) w[g] |= (load_line(crumbs, g / 4, r) >> (2 * (g % 4)) & UNPACK_CRUMBS) << k.crumb_shift;
        if (k.bit_lines) w[g] |= (load_line(lines, 0, r) >> g & UNPACK_BITS) << k.bit_shift;
    }
}

/* ---- scales, panel side ---- */

UNPACK_INLINE void head_store(BlockType type, const UnpackScales *s, uint32_t r, uint8_t *block)
{
    bytes_store16(block + 2 * r, s->d);
    block += HALVES_BYTES;
    if (unpack_has_min(type)) {
        bytes_store16(block + 2 * r, s->dmin);
        block += HALVES_BYTES;
    }
    uint32_t count = unpack_scale_count(type);
    for (uint32_t n = 0; n < count; n++) {
        uint8_t *at = block + PAIR_BYTES * (n / 2) + 2 * r + n % 2;
        at[0] = type == BLOCK_Q2_K ? (uint8_t)(s->sc[n] | s->min[n] << 4) : s->sc[n];
        if (count == 8) at[4 * PAIR_BYTES] = s->min[n];
    }
}

UNPACK_INLINE void head_load(BlockType type, const uint8_t *block, uint32_t r, UnpackScales *s)
{
    memset(s, 0, sizeof *s);
    s->d = bytes_load16(block + 2 * r);
    block += HALVES_BYTES;
    if (unpack_has_min(type)) {
        s->dmin = bytes_load16(block + 2 * r);
        block += HALVES_BYTES;
    }
    uint32_t count = unpack_scale_count(type);
    for (uint32_t n = 0; n < count; n++) {
        const uint8_t *at = block + PAIR_BYTES * (n / 2) + 2 * r + n % 2;
        s->sc[n] = type == BLOCK_Q2_K ? at[0] & 15 : at[0];
        if (type == BLOCK_Q2_K) s->min[n] = at[0] >> 4;
        if (count == 8) s->min[n] = at[4 * PAIR_BYTES];
    }
}

/* ---- whole panels ---- */

typedef struct Span {
    uint32_t rows, cols;
    size_t row_bytes;
} Span;

static const uint8_t ZERO_BLOCK[256] = {0};

UNPACK_INLINE void weave_quantized(BlockType type, const uint8_t *in, Span span, uint8_t *out)
{
    const BlockTraits *traits = block_traits((uint32_t)type);
    PanelLines k = panel_lines(type);
    uint32_t subs = traits->elements / 32u, blocks = span.cols / traits->elements;
    for (uint32_t b = 0; b < blocks; b++, out += panel_block_bytes(type))
        for (uint32_t r = 0; r < PANEL_ROWS; r++) {
            const uint8_t *block = in + r * span.row_bytes + (size_t)b * traits->bytes;
            if (r >= span.rows) block = ZERO_BLOCK;
            UnpackScales scales;
            unpack_scales(type, block, &scales);
            head_store(type, &scales, r, out);
            for (uint32_t j = 0; j < subs; j++) {
                uint32_t w[8];
                unpack_words(type, block, j, w);
                lines_store(k, w, r, out + panel_head_bytes(type) + j * panel_lines_count(k) * LINE_BYTES);
            }
        }
}

UNPACK_INLINE void unweave_quantized(BlockType type, const uint8_t *in, Span span, uint8_t *out)
{
    const BlockTraits *traits = block_traits((uint32_t)type);
    PanelLines k = panel_lines(type);
    uint32_t subs = traits->elements / 32u, blocks = span.cols / traits->elements;
    for (uint32_t b = 0; b < blocks; b++, in += panel_block_bytes(type))
        for (uint32_t r = 0; r < span.rows; r++) {
            uint8_t *block = out + r * span.row_bytes + (size_t)b * traits->bytes;
            UnpackScales scales;
            head_load(type, in, r, &scales);
            memset(block, 0, traits->bytes);
            unpack_pack_scales(type, &scales, block);
            for (uint32_t j = 0; j < subs; j++) {
                uint32_t w[8];
                lines_load(k, in + panel_head_bytes(type) + j * panel_lines_count(k) * LINE_BYTES, r, w);
                unpack_pack_words(type, w, j, block);
            }
        }
}

UNPACK_INLINE void weave_floats(uint32_t bytes, const uint8_t *in, Span span, uint8_t *out)
{
    for (uint32_t c = 0; c < span.cols; c++)
        for (uint32_t r = 0; r < PANEL_ROWS; r++, out += bytes)
            if (r < span.rows) memcpy(out, in + r * span.row_bytes + (size_t)c * bytes, bytes);
            else memset(out, 0, bytes);
}

UNPACK_INLINE void unweave_floats(uint32_t bytes, const uint8_t *in, Span span, uint8_t *out)
{
    for (uint32_t c = 0; c < span.cols; c++)
        for (uint32_t r = 0; r < span.rows; r++)
            memcpy(out + r * span.row_bytes + (size_t)c * bytes, in + ((size_t)c * PANEL_ROWS + r) * bytes, bytes);
}

static Error span_check(BlockType type, uint32_t rows, uint32_t cols, Span *out, Why *why)
{
    uint64_t row_bytes = 0;
    TRY(block_row_bytes(type, cols, &row_bytes, why));
    if (rows == 0 || rows > PANEL_ROWS) return error_why(why, ERR_SHAPE, "a panel of %u rows", (unsigned)rows);
    if (row_bytes > SIZE_MAX / PANEL_ROWS) return error_why(why, ERR_TOO_LARGE, "a row of %u columns", (unsigned)cols);
    *out = (Span){rows, cols, (size_t)row_bytes};
    return OK;
}

/* Calls BODY_quantized(type, ...) or BODY_floats(bytes, ...) with a constant first argument. */
#define DISPATCH(BODY, type, ...)                                                  \
    switch (type) {                                                                \
    case BLOCK_F32: BODY##_floats(4, __VA_ARGS__); return OK;                      \
    case BLOCK_F16:                                                                \
    case BLOCK_BF16: BODY##_floats(2, __VA_ARGS__); return OK;                     \
    case BLOCK_Q4_0: BODY##_quantized(BLOCK_Q4_0, __VA_ARGS__); return OK;         \
    case BLOCK_Q4_1: BODY##_quantized(BLOCK_Q4_1, __VA_ARGS__); return OK;         \
    case BLOCK_Q5_0: BODY##_quantized(BLOCK_Q5_0, __VA_ARGS__); return OK;         \
    case BLOCK_Q5_1: BODY##_quantized(BLOCK_Q5_1, __VA_ARGS__); return OK;         \
    case BLOCK_Q8_0: BODY##_quantized(BLOCK_Q8_0, __VA_ARGS__); return OK;         \
    case BLOCK_Q2_K: BODY##_quantized(BLOCK_Q2_K, __VA_ARGS__); return OK;         \
    case BLOCK_Q3_K: BODY##_quantized(BLOCK_Q3_K, __VA_ARGS__); return OK;         \
    case BLOCK_Q4_K: BODY##_quantized(BLOCK_Q4_K, __VA_ARGS__); return OK;         \
    case BLOCK_Q5_K: BODY##_quantized(BLOCK_Q5_K, __VA_ARGS__); return OK;         \
    case BLOCK_Q6_K: BODY##_quantized(BLOCK_Q6_K, __VA_ARGS__); return OK;         \
    case BLOCK_TYPES_END: break;                                                   \
    }

Error layout_panel_from_rows(BlockType type, const void *in, uint32_t rows, uint32_t cols, void *out, Why *why)
{
    Span span = {0};
    TRY(span_check(type, rows, cols, &span, why));
    DISPATCH(weave, type, in, span, out)
    return error_why(why, ERR_TYPE, "block type number %u is unknown", (unsigned)type);
}

Error layout_rows_from_panel(BlockType type, const void *panel, uint32_t rows, uint32_t cols, void *out, Why *why)
{
    Span span = {0};
    TRY(span_check(type, rows, cols, &span, why));
    DISPATCH(unweave, type, panel, span, out)
    return error_why(why, ERR_TYPE, "block type number %u is unknown", (unsigned)type);
}
