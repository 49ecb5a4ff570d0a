/* SPDX-License-Identifier: Apache-2.0 */
/* Activation quantizers for AVX2, the same bytes as activation.c. AVX-512 tables use them too: they take a few percent
 * of a product's time. Private to this room. */
#ifndef COBORD_QUANT_QUANTIZE_AVX2_H
#define COBORD_QUANT_QUANTIZE_AVX2_H

#include <stdint.h>

void quantize_avx2_32(const float *x, uint32_t cols, uint8_t *out);
void quantize_avx2_256(const float *x, uint32_t cols, uint8_t *out);

#endif
