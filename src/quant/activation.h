/* SPDX-License-Identifier: Apache-2.0 */
/* Quantized activation rows as kernels read them (docs/format/numerics.md, sections 3 and 6). Private to this room.
 *
 * Everything that is a function of the activations alone is computed here once, so that a kernel only broadcasts
 * four bytes at a time: four q, one scale, or a pair of 16-bit numbers. */
#ifndef COBORD_QUANT_ACTIVATION_H
#define COBORD_QUANT_ACTIVATION_H

#include <stddef.h>
#include <stdint.h>

enum {
    ACTIVATION_MAX = 127,   /* of |q| */
    ACTIVATION_K_MAX = 15,
    ACTIVATION_NARROW = 2184 /* 15 * 2184 is the largest multiple of 15 that fits int16 */
};

typedef struct Activation32 {
    int8_t q[32];
    float scale, scale_sum;
    int32_t negative_sum;
    int16_t negative_lanes[2];
} Activation32;

typedef struct Activation256 {
    int8_t q[256];
    float scale;
    uint32_t wide;                  /* not 0: k_sums and int16 sums of Q4_K do not hold */
    int16_t k[8];
    int16_t k_sums[8];              /* k times the sum of 32 */
    int16_t k_twice[16];            /* k0 k0 k1 k1 .. */
    int16_t k_half_sums[16];        /* k times the sum of 16 */
    int32_t negative_half_sums[16];
    int16_t negative_half_lanes[32]; /* two per half */
} Activation256;

_Static_assert(sizeof(Activation32) == 48 && sizeof(Activation256) == 488, "kernels address these by bytes");

/* The reference quantizers; other instruction sets give the same bytes. */
void activation_quantize_float(const float *x, uint32_t cols, uint8_t *out);
void activation_quantize_32(const float *x, uint32_t cols, uint8_t *out);
void activation_quantize_256(const float *x, uint32_t cols, uint8_t *out);

/* Parts that the vector quantizers share: all fields but q, from q and the scales. */
void activation_finish_32(Activation32 *a, float scale);
void activation_finish_256(Activation256 *a, float scale, const uint8_t k[8]);
/* Zeroed q and `scale` (0 or NaN). */
void activation_flat_32(Activation32 *a, float scale);
void activation_flat_256(Activation256 *a, float scale);

/* Bits of the largest |x|: integer order is float order, and infinity and NaN come out on top. */
enum { ACTIVATION_NOT_FINITE = 0x7f800000 };

/* ceil(m * u) held between 1 and 15. */
static inline uint8_t activation_k(float m, float u)
{
    float t = m * u;
    int32_t k = (int32_t)t; /* t is at most a little above 15 */
    if ((float)k < t) k++;
    return (uint8_t)(k < 1 ? 1 : k > ACTIVATION_K_MAX ? ACTIVATION_K_MAX : k);
}

#endif
