/* SPDX-License-Identifier: Apache-2.0 */
/* The greater of two sizes. */
#ifndef COBORD_BASE_MAX_H
#define COBORD_BASE_MAX_H

#include <stdint.h>

static inline uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }
static inline uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

#endif
