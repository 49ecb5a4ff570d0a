/* SPDX-License-Identifier: Apache-2.0 */
/* A sum of exponentials that does not depend on order or on how the vocabulary is cut: every exp(x) is rounded once to
 * a 33-bit mantissa at a binary exponent and added to one wide integer, exactly. Sums of shards add limb by limb.
 *
 * The integer is a window of four 32-bit limbs over an endless one: limb[3] weighs 2^(32 * top), limb[0] 96 bits less.
 * `top` is the largest limb that any single addend touched, so it does not depend on order either; what lies below the
 * window is dropped addend by addend. Carries wait in the upper half of each 64-bit limb (up to 2^31 addends), because
 * a carry out of a limb that is dropped later would depend on order. */
#ifndef COBORD_MODEL_LOGSUM_H
#define COBORD_MODEL_LOGSUM_H

#include <stdint.h>

enum { LOGSUM_LIMBS = 4 };

typedef struct LogSum {
    uint64_t limb[LOGSUM_LIMBS];
    int32_t top;     /* INT32_MIN while empty */
    uint32_t broken; /* 1 when any x was NaN or +infinity */
} LogSum;

void logsum_start(LogSum *s);
/* Adds exp(x[i] * scale), the product exact in f64 and cut to +-2^34. -infinity adds nothing.
 * Limits  2^31 addends in all, merges included; scale finite. */
void logsum_add(LogSum *s, const float *x, uint32_t n, float scale);
void logsum_merge(LogSum *s, const LogSum *other);
/* log of the sum, the same bits everywhere; -infinity when empty, NaN when broken. Error below 1e-9 + 1e-15 |x|. */
double logsum_log(const LogSum *s);

#endif
