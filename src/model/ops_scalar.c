/* SPDX-License-Identifier: Apache-2.0 */
/* The operators in plain C: what every other table is compared with. Four lanes, which a compiler without vector
 * instructions takes apart. */

#define OPS_ISA ISA_SCALAR
#define OPS_TABLE OPS_SCALAR
#define OPS_LANES 4
#define OPS_TILE 4
#define OPS_SCORE_VECTORS 4
#define OPS_VALUE_VECTORS 4

#include "model/ops_body.h"
