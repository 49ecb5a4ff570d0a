/* SPDX-License-Identifier: Apache-2.0 */
/* A sum of exponentials that does not depend on order or on how the vocabulary is cut: every exp(x) is rounded once to a
 * 32-bit mantissa at a binary exponent and added to one wide integer, exactly. Sums of shards add limb by limb. */
#ifndef COBORD_MODEL_LOGSUM_H
#define COBORD_MODEL_LOGSUM_H

#include <stdint.h>

enum { LOGSUM_LIMBS = 12 }; /* 32 bits of value in each 64-bit limb, so that carries wait; covers |x| < 128 in base e */

typedef struct LogSum {
    uint64_t limb[LOGSUM_LIMBS];
    float above; /* the largest x that was too large for the limbs' range, or -infinity */
} LogSum;

void logsum_start(LogSum *s);
void logsum_add(LogSum *s, const float *x, uint32_t n, float scale); /* adds exp(x[i] * scale) */
void logsum_merge(LogSum *s, const LogSum *other);
/* log of the sum, rounded to f64 the same way everywhere; -infinity when empty. */
double logsum_log(const LogSum *s);

#endif
