/* SPDX-License-Identifier: Apache-2.0 */
/* Little-endian loads and stores at any alignment, and arithmetic that reports overflow instead of wrapping. */
#ifndef COBORD_BASE_BYTES_H
#define COBORD_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the formats and kernels are little-endian");

static inline uint16_t bytes_load16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint32_t bytes_load32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint64_t bytes_load64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline float bytes_load_f32(const void *p)
{
    float v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void bytes_store16(void *p, uint16_t v) { memcpy(p, &v, sizeof v); }
static inline void bytes_store32(void *p, uint32_t v) { memcpy(p, &v, sizeof v); }
static inline void bytes_store64(void *p, uint64_t v) { memcpy(p, &v, sizeof v); }
static inline void bytes_store_f32(void *p, float v) { memcpy(p, &v, sizeof v); }

/* false when the exact result does not fit; *out is then not to be used. */
static inline bool bytes_add(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}
static inline bool bytes_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
/* Rounds up to a multiple of `unit`, a power of two. */
static inline bool bytes_round_up(uint64_t a, uint64_t unit, uint64_t *out)
{
    if (__builtin_add_overflow(a, unit - 1, out)) return false;
    *out &= ~(unit - 1);
    return true;
}

#endif
