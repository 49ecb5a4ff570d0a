/* SPDX-License-Identifier: Apache-2.0 */
/* The table of block types and their exact expansion to float32. Nothing here is fast on purpose: embedding rows and
 * tests read it; matrix products use the kernels. */
#include "quant/block.h"

#include "base/bytes.h"
#include "quant/unpack.h"

static const BlockTraits TRAITS[BLOCK_TYPES_END] = {
    [BLOCK_F32] = {"F32", 1, 4},      [BLOCK_F16] = {"F16", 1, 2},      [BLOCK_Q4_0] = {"Q4_0", 32, 18},
    [BLOCK_Q4_1] = {"Q4_1", 32, 20},  [BLOCK_Q5_0] = {"Q5_0", 32, 22},  [BLOCK_Q5_1] = {"Q5_1", 32, 24},
    [BLOCK_Q8_0] = {"Q8_0", 32, 34},  [BLOCK_Q2_K] = {"Q2_K", 256, 84}, [BLOCK_Q3_K] = {"Q3_K", 256, 110},
    [BLOCK_Q4_K] = {"Q4_K", 256, 144}, [BLOCK_Q5_K] = {"Q5_K", 256, 176}, [BLOCK_Q6_K] = {"Q6_K", 256, 210},
    [BLOCK_BF16] = {"BF16", 1, 2},
};

const BlockTraits *block_traits(uint32_t type)
{
    return type < BLOCK_TYPES_END && TRAITS[type].name ? &TRAITS[type] : NULL;
}

Error block_type_from_name(const char *name, size_t length, BlockType *out, Why *why)
{
    for (uint32_t type = 0; type < BLOCK_TYPES_END; type++)
        if (TRAITS[type].name && strlen(TRAITS[type].name) == length && !memcmp(TRAITS[type].name, name, length)) {
            *out = (BlockType)type;
            return OK;
        }
    int shown = length > 40 ? 40 : (int)length;
    return error_why(why, ERR_TYPE, "block type '%.*s' is unknown", shown, name);
}

Error block_type_from_number(uint64_t number, BlockType *out, Why *why)
{
    if (number >= BLOCK_TYPES_END || !TRAITS[number].name)
        return error_why(why, ERR_TYPE, "block type number %llu is unknown", (unsigned long long)number);
    *out = (BlockType)number;
    return OK;
}

Error block_row_bytes(BlockType type, uint64_t cols, uint64_t *out, Why *why)
{
    const BlockTraits *traits = block_traits((uint32_t)type);
    if (!traits) return error_why(why, ERR_TYPE, "block type number %u is unknown", (unsigned)type);
    if (cols == 0 || cols % traits->elements)
        return error_why(why, ERR_SHAPE, "a %s row of %llu elements is no multiple of its block of %u", traits->name,
                         (unsigned long long)cols, (unsigned)traits->elements);
    if (!bytes_mul(cols / traits->elements, traits->bytes, out))
        return error_why(why, ERR_TOO_LARGE, "a row of %llu elements", (unsigned long long)cols);
    return OK;
}

Error block_tensor_bytes(BlockType type, uint64_t rows, uint64_t cols, uint64_t *out, Why *why)
{
    uint64_t row_bytes = 0;
    TRY(block_row_bytes(type, cols, &row_bytes, why));
    if (!bytes_mul(rows, row_bytes, out))
        return error_why(why, ERR_TOO_LARGE, "%llu rows of %llu bytes", (unsigned long long)rows,
                         (unsigned long long)row_bytes);
    return OK;
}

/* ---- halves ---- */

static float float_from_bits(uint32_t bits) { return bytes_load_f32(&bits); }
static uint32_t bits_of_float(float value) { return bytes_load32(&value); }

/* half: sign 1, exponent 5 (bias 15), fraction 10      single: sign 1, exponent 8 (bias 127), fraction 23 */
float block_f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 31, fraction = half & 0x3ff;
    if (exponent == 31) return float_from_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent) return float_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float magnitude = (float)fraction * 0x1p-24f; /* subnormal or zero: exact */
    return float_from_bits(sign | bits_of_float(magnitude));
}

/* Shifts right, rounding to nearest, ties to even. */
static uint32_t shift_round_even(uint32_t value, uint32_t shift)
{
    uint32_t half = 1u << (shift - 1), rest = value & ((1u << shift) - 1), whole = value >> shift;
    return whole + (rest > half || (rest == half && (whole & 1)));
}

uint16_t block_f32_to_f16(float value)
{
    uint32_t bits = bits_of_float(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00); /* not a number */
    if (rest >= 0x47800000) return (uint16_t)(sign | 0x7c00); /* 65536 and above, and infinity */
    if (rest >= 0x38800000) /* normal; a carry out of the fraction raises the exponent, up to infinity */
        return (uint16_t)(sign | (shift_round_even(rest, 13) - (112u << 10)));
    if (rest < 0x33000000) return (uint16_t)sign; /* below half of the least subnormal */
    uint32_t exponent = rest >> 23, fraction = (rest & 0x7fffff) | 0x800000;
    return (uint16_t)(sign | shift_round_even(fraction, 126 - exponent));
}

/* ---- expansion ---- */

static void expand_floats(BlockType type, const uint8_t *in, uint32_t cols, float *out)
{
    for (uint32_t i = 0; i < cols; i++)
        if (type == BLOCK_F32) out[i] = bytes_load_f32(in + 4 * (size_t)i);
        else if (type == BLOCK_F16) out[i] = block_f16_to_f32(bytes_load16(in + 2 * (size_t)i));
        else out[i] = float_from_bits((uint32_t)bytes_load16(in + 2 * (size_t)i) << 16);
}

/* One block of 32: q d, or q d + m. */
UNPACK_INLINE void expand_32(BlockType type, const uint8_t *block, float out[32])
{
    UnpackScales scales;
    uint32_t w[8];
    unpack_scales(type, block, &scales);
    unpack_words(type, block, 0, w);
    float d = block_f16_to_f32(scales.d), m = block_f16_to_f32(scales.dmin);
    for (uint32_t i = 0; i < 32; i++) {
        int32_t q = (int32_t)(w[i / 4] >> (8 * (i % 4)) & 255) - unpack_zero_point(type);
        float value = (float)q * d;
        out[i] = unpack_has_min(type) ? value + m : value;
    }
}

/* Sub j of a block of 256: (d sc) q, or (d sc) q - (dmin m). */
UNPACK_INLINE void expand_sub(BlockType type, const uint8_t *block, const UnpackScales *scales, uint32_t j,
                              float out[32])
{
    uint32_t w[8];
    unpack_words(type, block, j, w);
    float d = block_f16_to_f32(scales->d), dmin = block_f16_to_f32(scales->dmin);
    bool is_signed = type == BLOCK_Q3_K || type == BLOCK_Q6_K;
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t n = unpack_scale_count(type) == 8 ? j : 2 * j + i / 16;
        int32_t sc = is_signed ? (int8_t)scales->sc[n] : scales->sc[n];
        int32_t q = (int32_t)(w[i / 4] >> (8 * (i % 4)) & 255) - unpack_zero_point(type);
        float value = d * (float)sc * (float)q;
        out[i] = unpack_has_min(type) ? value - dmin * (float)scales->min[n] : value;
    }
}

UNPACK_INLINE void expand_row(BlockType type, const uint8_t *in, uint32_t cols, float *out)
{
    uint32_t elements = TRAITS[type].elements, bytes = TRAITS[type].bytes;
    for (uint32_t at = 0; at < cols; at += elements, in += bytes) {
        if (!unpack_scale_count(type)) {
            expand_32(type, in, out + at);
            continue;
        }
        UnpackScales scales;
        unpack_scales(type, in, &scales);
        for (uint32_t j = 0; j < 8; j++) expand_sub(type, in, &scales, j, out + at + 32 * j);
    }
}

Error block_dequantize_row(BlockType type, const void *bytes, uint32_t cols, float *out, Why *why)
{
    uint64_t row_bytes = 0;
    TRY(block_row_bytes(type, cols, &row_bytes, why));
    const uint8_t *in = bytes;
    switch (type) {
    case BLOCK_F32: expand_floats(BLOCK_F32, in, cols, out); return OK;
    case BLOCK_F16: expand_floats(BLOCK_F16, in, cols, out); return OK;
    case BLOCK_BF16: expand_floats(BLOCK_BF16, in, cols, out); return OK;
    case BLOCK_Q4_0: expand_row(BLOCK_Q4_0, in, cols, out); return OK;
    case BLOCK_Q4_1: expand_row(BLOCK_Q4_1, in, cols, out); return OK;
    case BLOCK_Q5_0: expand_row(BLOCK_Q5_0, in, cols, out); return OK;
    case BLOCK_Q5_1: expand_row(BLOCK_Q5_1, in, cols, out); return OK;
    case BLOCK_Q8_0: expand_row(BLOCK_Q8_0, in, cols, out); return OK;
    case BLOCK_Q2_K: expand_row(BLOCK_Q2_K, in, cols, out); return OK;
    case BLOCK_Q3_K: expand_row(BLOCK_Q3_K, in, cols, out); return OK;
    case BLOCK_Q4_K: expand_row(BLOCK_Q4_K, in, cols, out); return OK;
    case BLOCK_Q5_K: expand_row(BLOCK_Q5_K, in, cols, out); return OK;
    case BLOCK_Q6_K: expand_row(BLOCK_Q6_K, in, cols, out); return OK;
    case BLOCK_TYPES_END: break;
    }
    return error_why(why, ERR_TYPE, "block type number %u is unknown", (unsigned)type);
}

static bool half_finite(const uint8_t *p) { return (bytes_load16(p) & 0x7c00) != 0x7c00; }

static bool floats_finite(BlockType type, const uint8_t *in, uint32_t cols)
{
    for (uint32_t i = 0; i < cols; i++) {
        if (type == BLOCK_F16 && !half_finite(in + 2 * (size_t)i)) return false;
        if (type == BLOCK_BF16 && (bytes_load16(in + 2 * (size_t)i) & 0x7f80) == 0x7f80) return false;
        if (type == BLOCK_F32 && (bytes_load32(in + 4 * (size_t)i) & 0x7f800000) == 0x7f800000) return false;
    }
    return true;
}

bool block_row_finite(BlockType type, const void *bytes, uint32_t cols)
{
    const BlockTraits *traits = block_traits((uint32_t)type);
    if (!traits || cols % traits->elements) return false;
    if (traits->elements == 1) return floats_finite(type, bytes, cols);
    const uint8_t *d = (const uint8_t *)bytes + unpack_d_offset(type);
    for (uint32_t n = cols / traits->elements; n; n--, d += traits->bytes)
        if (!half_finite(d) || (unpack_has_min(type) && !half_finite(d + 2))) return false;
    return true;
}
