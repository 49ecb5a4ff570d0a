/* SPDX-License-Identifier: Apache-2.0 */
/* The operators for AVX-512: 16 lanes, 32 registers. */
#include <immintrin.h>

#define OPS_VEC_FROM_F16(p) ((Vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p))))
#define OPS_VEC_FROM_BYTES(p) \
    ((Vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p)))))

#define OPS_ISA ISA_AVX512
#define OPS_TABLE OPS_AVX512
#define OPS_LANES 16
#define OPS_TILE 6
#define OPS_SCORE_VECTORS 4
#define OPS_VALUE_VECTORS 4
#define OPS_READS_BYTES

#include "model/ops_body.h"
