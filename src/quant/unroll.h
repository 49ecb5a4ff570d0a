/* SPDX-License-Identifier: Apache-2.0 */
/* Full unrolling of short loops with constant bounds, so that arrays of vectors become registers; and its
 * opposite, where unrolled code would need more registers than there are. Private. */
#ifndef COBORD_QUANT_UNROLL_H
#define COBORD_QUANT_UNROLL_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define UNROLL_IS_CHECKED /* checks in each copy take half a minute to compile, and find what one finds */
#endif
#endif

#if defined(UNROLL_IS_CHECKED)
#define UNROLL _Pragma("nounroll")
#define ROLLED _Pragma("nounroll")
#elif defined(__clang__)
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("nounroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define ROLLED _Pragma("GCC unroll 1")
#endif

#endif
