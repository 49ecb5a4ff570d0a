/* SPDX-License-Identifier: Apache-2.0 */
/* The operators for WebAssembly SIMD: 4 lanes; the engine decides on registers, so the tile is small. */

#define OPS_ISA ISA_SIMD128
#define OPS_TABLE OPS_SIMD128
#define OPS_LANES 4
#define OPS_TILE 4
#define OPS_SCORE_VECTORS 4
#define OPS_VALUE_VECTORS 4

#include "model/ops_body.h"
