/* SPDX-License-Identifier: Apache-2.0 */
/* Random rows of any block type for tests and benchmarks: every bit varies, scales stay finite. */
#ifndef COBORD_TESTS_KERNEL_RANDOM_BLOCKS_H
#define COBORD_TESTS_KERNEL_RANDOM_BLOCKS_H

#include <stdint.h>
#include <string.h>

#include "base/bytes.h"
#include "quant/block.h"
#include "quant/unpack.h"

static const BlockType ALL_TYPES[] = {BLOCK_F32,  BLOCK_F16,  BLOCK_BF16, BLOCK_Q4_0, BLOCK_Q4_1, BLOCK_Q5_0,
                                      BLOCK_Q5_1, BLOCK_Q8_0, BLOCK_Q2_K, BLOCK_Q3_K, BLOCK_Q4_K, BLOCK_Q5_K,
                                      BLOCK_Q6_K};
enum { ALL_TYPES_COUNT = sizeof ALL_TYPES / sizeof ALL_TYPES[0] };

typedef struct Random {
    uint64_t state;
} Random;

static inline uint32_t random_next(Random *r)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = r->state ^ (r->state >> 29);
    return (uint32_t)((x * 0xbf58476d1ce4e5b9u) >> 32);
}
static inline float random_unit(Random *r) /* -1..1 */
{
    return (float)(int32_t)random_next(r) * 0x1p-31f;
}
/* Nearly Gaussian, sigma 1. */
static inline float random_normal(Random *r)
{
    float sum = 0;
    for (int i = 0; i < 6; i++) sum += random_unit(r);
    return sum * 0.70710678f;
}
static inline void random_bytes(Random *r, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = (uint8_t)random_next(r);
}

static inline void random_row(Random *r, BlockType type, uint32_t cols, uint8_t *row)
{
    const BlockTraits *traits = block_traits(type);
    for (uint32_t b = 0; b < cols / traits->elements; b++, row += traits->bytes) {
        if (traits->elements == 1) {
            float v = random_normal(r);
            if (type == BLOCK_F32) bytes_store_f32(row, v);
            else if (type == BLOCK_F16) bytes_store16(row, block_f32_to_f16(v));
            else {
                uint32_t bits;
                memcpy(&bits, &v, 4);
                bytes_store16(row, (uint16_t)(bits >> 16));
            }
            continue;
        }
        random_bytes(r, row, traits->bytes);
        uint8_t *d = row + unpack_d_offset(type);
        bytes_store16(d, block_f32_to_f16(random_normal(r) * 0.02f));
        if (unpack_has_min(type)) bytes_store16(d + 2, block_f32_to_f16(random_normal(r) * 0.02f));
    }
}

/* Every element and scale bit set or clear, d and the minimum +-1: the largest integer sums there are. */
static inline void extreme_row(BlockType type, uint32_t cols, uint8_t fill, uint8_t *row)
{
    const BlockTraits *traits = block_traits(type);
    for (uint32_t b = 0; b < cols / traits->elements; b++, row += traits->bytes) {
        if (traits->elements == 1) {
            float v = fill & 1 ? 300.0f : -300.0f;
            uint32_t bits;
            memcpy(&bits, &v, 4);
            if (type == BLOCK_F32) bytes_store32(row, bits);
            else bytes_store16(row, type == BLOCK_F16 ? block_f32_to_f16(v) : (uint16_t)(bits >> 16));
            continue;
        }
        memset(row, fill, traits->bytes);
        if (type == BLOCK_Q6_K) memset(row + 192, fill & 1 ? 0x7f : 0x80, 16);
        uint8_t *d = row + unpack_d_offset(type);
        bytes_store16(d, 0x3c00);
        if (unpack_has_min(type)) bytes_store16(d + 2, 0xbc00);
    }
}

#endif
