/* SPDX-License-Identifier: Apache-2.0 */
/* The operators for 64-bit ARM: 4 lanes, 32 registers. */
#include <arm_neon.h>

#define OPS_VEC_FROM_F16(p) ((Vec)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))))

#define OPS_ISA ISA_NEON
#define OPS_TABLE OPS_NEON
#define OPS_LANES 4
#define OPS_TILE 6
#define OPS_SCORE_VECTORS 4
#define OPS_VALUE_VECTORS 4

#include "model/ops_body.h"
