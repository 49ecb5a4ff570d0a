/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that vary but are the same in every run. */
#ifndef COBORD_TESTS_SMALL_RANDOM_H
#define COBORD_TESTS_SMALL_RANDOM_H

#include <stdint.h>

/* 0..limit-1; a xorshift generator. */
static inline uint32_t small_random(uint32_t limit)
{
    static uint64_t state = 0x9E3779B97F4A7C15u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % limit;
}

#endif
