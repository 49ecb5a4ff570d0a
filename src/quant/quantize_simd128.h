/* SPDX-License-Identifier: Apache-2.0 */
/* Activation quantizers for WebAssembly SIMD, the same bytes as activation.c. Private to this room. */
#ifndef COBORD_QUANT_QUANTIZE_SIMD128_H
#define COBORD_QUANT_QUANTIZE_SIMD128_H

#include <stdint.h>

void quantize_simd128_32(const float *x, uint32_t cols, uint8_t *out);
void quantize_simd128_256(const float *x, uint32_t cols, uint8_t *out);

#endif
