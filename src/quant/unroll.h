/* SPDX-License-Identifier: Apache-2.0 */
/* Full unrolling of short loops with constant bounds, so that arrays of vectors become registers. Private. */
#ifndef COBORD_QUANT_UNROLL_H
#define COBORD_QUANT_UNROLL_H

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
