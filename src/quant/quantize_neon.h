/* SPDX-License-Identifier: Apache-2.0 */
/* Activation quantizers for 64-bit ARM, the same bytes as activation.c. Private to this room. */
#ifndef COBORD_QUANT_QUANTIZE_NEON_H
#define COBORD_QUANT_QUANTIZE_NEON_H

#include <stdint.h>

void quantize_neon_32(const float *x, uint32_t cols, uint8_t *out);
void quantize_neon_256(const float *x, uint32_t cols, uint8_t *out);

#endif
