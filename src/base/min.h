/* SPDX-License-Identifier: Apache-2.0 */
/* The lesser of two sizes. */
#ifndef COBORD_BASE_MIN_H
#define COBORD_BASE_MIN_H

#include <stdint.h>

static inline uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

#endif
