/* SPDX-License-Identifier: Apache-2.0 */
/* Full unrolling of short loops with constant bounds, so that arrays of vectors become registers; and its
 * opposite, where unrolled code would need more registers than there are. Private. */
#ifndef COBORD_QUANT_UNROLL_H
#define COBORD_QUANT_UNROLL_H

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("nounroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define ROLLED _Pragma("GCC unroll 1")
#endif

#endif
