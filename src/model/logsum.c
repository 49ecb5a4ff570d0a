/* SPDX-License-Identifier: Apache-2.0 */
/* exp(t) = mantissa * 2^(n - 32), mantissa an integer of 33 bits at most, lands in two neighbouring limbs:
 *
 *   limb     ...   |  L + 1   |    L     |   ...        L = floor((n - 32) / 32)
 *   mantissa << s      [ high 32 | low 32 ]              s = (n - 32) mod 32
 *
 * L + 1 is the addend's top. The window ends at the highest top seen; moving it up drops low limbs whole, with the
 * carries that wait in them, so that what is kept is the sum of what each addend has above the window's end. */
#include "model/logsum.h"

#include <string.h>

#include "model/elementary.h"

enum { LOGSUM_DIGIT_BITS = 32 };

void logsum_start(LogSum *s)
{
    memset(s, 0, sizeof *s);
    s->top = INT32_MIN;
}

/* Moves the window so that it ends at `top`, which is above its present end. */
static void logsum_raise(LogSum *s, int32_t top)
{
    int64_t by = (int64_t)top - s->top;
    for (int64_t i = 0; i < LOGSUM_LIMBS; i++) s->limb[i] = i + by < LOGSUM_LIMBS ? s->limb[i + by] : 0;
    s->top = top;
}

/* Adds `digit` at the absolute limb `at`, if the window reaches so far down. */
static inline void logsum_put(LogSum *s, int32_t at, uint64_t digit)
{
    int64_t i = (int64_t)at - s->top + LOGSUM_LIMBS - 1;
    if (i >= 0) s->limb[i] += digit;
}

/* exp(r) for |r| <= ln(2) / 2, to 2^-34: Horner with 1 / k! from k = 9. */
static inline double logsum_exp_reduced(double r)
{
    double y = 0x1.71de3a556c734p-19;
    y = y * r + 0x1.a01a01a01a01ap-16;
    y = y * r + 0x1.a01a01a01a01ap-13;
    y = y * r + 0x1.6c16c16c16c17p-10;
    y = y * r + 0x1.1111111111111p-7;
    y = y * r + 0x1.5555555555555p-5;
    y = y * r + 0x1.5555555555555p-3;
    y = y * r + 0.5;
    y = y * r + 1.0;
    return y * r + 1.0;
}

static inline void logsum_add_one(LogSum *s, double t)
{
    const double round = 0x1.8p+52, limit = 0x1p34;
    t = t > limit ? limit : t < -limit ? -limit : t;
    double n = (t * 0x1.71547652b82fep+0 + round) - round;
    double r = (t - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
    uint64_t mantissa = (uint64_t)(logsum_exp_reduced(r) * 0x1p32 + 0.5);
    int64_t bit = (int64_t)n - LOGSUM_DIGIT_BITS;
    int32_t limb = (int32_t)(bit >> 5);
    uint64_t shifted = mantissa << (bit & 31);
    if (limb + 1 > s->top) logsum_raise(s, limb + 1);
    logsum_put(s, limb, shifted & 0xffffffffu);
    logsum_put(s, limb + 1, shifted >> LOGSUM_DIGIT_BITS);
}

void logsum_add(LogSum *s, const float *x, uint32_t n, float scale)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        if (bits == 0xff800000u) continue; /* -infinity: forbidden */
        if ((bits & 0x7f800000u) == 0x7f800000u) {
            s->broken = 1;
            continue;
        }
        logsum_add_one(s, (double)x[i] * (double)scale);
    }
}

void logsum_merge(LogSum *s, const LogSum *other)
{
    s->broken |= other->broken;
    if (other->top == INT32_MIN) return;
    if (other->top > s->top) logsum_raise(s, other->top);
    for (int32_t i = 0; i < LOGSUM_LIMBS; i++)
        logsum_put(s, other->top - (LOGSUM_LIMBS - 1) + i, other->limb[i]);
}

double logsum_log(const LogSum *s)
{
    /* Carries first: six digits of 32 bits, the lowest weighs 2^(32 * (top - 3)). */
    uint32_t digit[LOGSUM_LIMBS + 2] = {0};
    uint64_t carry = 0;
    if (s->broken) return __builtin_nan("");
    for (int i = 0; i < LOGSUM_LIMBS + 2; i++) {
        uint64_t low = i < LOGSUM_LIMBS ? s->limb[i] & 0xffffffffu : 0;
        uint64_t sum = low + carry;
        digit[i] = (uint32_t)sum;
        carry = (sum >> LOGSUM_DIGIT_BITS) + (i < LOGSUM_LIMBS ? s->limb[i] >> LOGSUM_DIGIT_BITS : 0);
    }
    int high = LOGSUM_LIMBS + 1;
    while (high > 1 && digit[high] == 0) high--;
    /* The three highest digits, rounded to f64 in this order; the rest lies 2^-64 below. */
    double sum = (double)digit[high] * 0x1p32 + (double)digit[high - 1];
    if (high > 1) sum = sum + (double)digit[high - 2] * 0x1p-32;
    if (sum == 0) return -__builtin_inf();
    double weight = (double)(((int64_t)s->top - (LOGSUM_LIMBS - 1) + high - 1) * LOGSUM_DIGIT_BITS);
    return (weight * 0x1.62e42feep-1 + elementary_log64(sum)) + weight * 0x1.a39ef35793c76p-33;
}
