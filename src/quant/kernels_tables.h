/* SPDX-License-Identifier: Apache-2.0 */
/* One table per instruction set that this build may have. Private to this room; everyone else asks kernels_for(). */
#ifndef COBORD_QUANT_KERNELS_TABLES_H
#define COBORD_QUANT_KERNELS_TABLES_H

#include "quant/kernels.h"

extern const Kernels kernels_scalar, kernels_avx2, kernels_avx512;

#endif
