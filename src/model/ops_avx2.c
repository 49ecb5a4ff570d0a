/* SPDX-License-Identifier: Apache-2.0 */
/* The operators for AVX2 and F16C: 8 lanes, 16 registers. */
#include <immintrin.h>

#define OPS_VEC_FROM_F16(p) ((Vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p))))
#define OPS_VEC_FROM_BYTES(p) \
    ((Vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p)))))

#define OPS_ISA ISA_AVX2
#define OPS_TABLE OPS_AVX2
#define OPS_LANES 8
#define OPS_TILE 6
#define OPS_SCORE_VECTORS 2
#define OPS_VALUE_VECTORS 2

#include "model/ops_body.h"
