/* SPDX-License-Identifier: Apache-2.0 */
/* Elementary functions in a written order of IEEE operations: docs/format/numerics-ops.md has the same lines as a
 * specification. Table-free: a reduction, a polynomial, a scaling. The f32 exponential has a twin over vectors in
 * ops_body.h, bit for bit the same (tests/kernel/ops_test.c). Nothing here is fast on purpose except elementary_exp. */
#include "model/elementary.h"

#include <string.h>

static const double LN2_HIGH = 0x1.62e42feep-1; /* 32 bits: n * LN2_HIGH is exact for |n| < 2^21 */
static const double LN2_LOW = 0x1.a39ef35793c76p-33;
static const double LOG2_E = 0x1.71547652b82fep+0;
static const double ROUND_52 = 0x1.8p+52; /* adding it rounds to an integer, to nearest even */

static uint32_t elementary_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint64_t elementary_bits64(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float elementary_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double elementary_double(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

float elementary_exp(float x)
{
    const float round = 12582912.0f; /* 1.5 * 2^23 */
    if (x != x) return x;
    if (x < -87.3f) return 0.0f;
    if (x > 88.72283f) return elementary_float(0x7f800000u);
    float t = x * 1.44269504f + round;
    float n = t - round;
    float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 0x1.6d11fep-10f;
    p = p * r + 0x1.120c62p-7f;
    p = p * r + 0x1.555518p-5f;
    p = p * r + 0x1.5554dcp-3f;
    p = p * r + 0.5f;
    float y = (p * (r * r) + r) + 1.0f;
    return elementary_float(elementary_bits(y) + ((elementary_bits(t) - elementary_bits(round)) << 23));
}

/* 2^n for -1022 <= n <= 1023. */
static double elementary_power_of_two(int32_t n) { return elementary_double((uint64_t)(n + 1023) << 52); }

double elementary_exp64(double x)
{
    /* 1/k!, k = 13 .. 0 */
    static const double term[14] = {
        0x1.6124613a86d09p-33,
        0x1.1eed8eff8d898p-29,
        0x1.ae64567f544e4p-26,
        0x1.27e4fb7789f5cp-22,
        0x1.71de3a556c734p-19,
        0x1.a01a01a01a01ap-16,
        0x1.a01a01a01a01ap-13,
        0x1.6c16c16c16c17p-10,
        0x1.1111111111111p-7,
        0x1.5555555555555p-5,
        0x1.5555555555555p-3,
        0.5,
        1.0,
        1.0,
    };
    if (x != x) return x;
    if (x < -745.2) return 0.0;
    if (x > 709.79) return elementary_double(0x7ff0000000000000u);
    double n = (x * LOG2_E + ROUND_52) - ROUND_52;
    double r = (x - n * LN2_HIGH) - n * LN2_LOW;
    double y = term[0];
    for (int k = 1; k < 14; k++) y = y * r + term[k];
    int32_t power = (int32_t)n, half = power / 2;
    return (y * elementary_power_of_two(half)) * elementary_power_of_two(power - half);
}

double elementary_log64(double x)
{
    uint64_t bits = elementary_bits64(x);
    if (x != x) return x;
    if (x == 0) return elementary_double(0xfff0000000000000u);
    if (bits >> 63) return elementary_double(0x7ff8000000000000u);
    if (bits >= 0x7ff0000000000000u) return x;
    int32_t e = 0;
    if (bits < 0x0010000000000000u) { /* subnormal */
        bits = elementary_bits64(x * 0x1p54);
        e = -54;
    }
    /* m in [sqrt(1/2), sqrt 2): the exponent steps at the mantissa of sqrt 2 */
    uint64_t shifted = bits - 0x3fe6a09e667f3bcdu;
    e += (int32_t)((int64_t)shifted >> 52);
    double m = elementary_double(0x3fe6a09e667f3bcdu + (shifted & 0x000fffffffffffffu));
    double f = m - 1.0, s = f / (2.0 + f), z = s * s, q = 2.0 / 23;
    for (int k = 21; k >= 3; k -= 2) q = q * z + 2.0 / k;
    double t = s * (f - q * z);
    return (double)e * LN2_HIGH + (f - (t - (double)e * LN2_LOW));
}

double elementary_pow64(double base, double exponent)
{
    if (exponent == 0.0) return 1.0;
    return elementary_exp64(exponent * elementary_log64(base));
}

/* Sine and cosine of |r| <= pi / 4 and a little more. */
static void elementary_sincos_reduced(double r, double *sine, double *cosine)
{
    static const double s[8] = {
        0x1.952c77030ad4ap-49, -0x1.ae7f3e733b81fp-41, 0x1.6124613a86d09p-33, -0x1.ae64567f544e4p-26,
        0x1.71de3a556c734p-19, -0x1.a01a01a01a01ap-13, 0x1.1111111111111p-7,  -0x1.5555555555555p-3,
    };
    static const double c[9] = {
        0x1.ae7f3e733b81fp-45,
        -0x1.93974a8c07c9dp-37,
        0x1.1eed8eff8d898p-29,
        -0x1.27e4fb7789f5cp-22,
        0x1.a01a01a01a01ap-16,
        -0x1.6c16c16c16c17p-10,
        0x1.5555555555555p-5,
        -0.5,
        1.0,
    };
    double z = r * r, a = s[0], b = c[0];
    for (int k = 1; k < 8; k++) a = a * z + s[k];
    for (int k = 1; k < 9; k++) b = b * z + c[k];
    *sine = (a * z) * r + r;
    *cosine = b;
}

void elementary_sincos64(double x, double *sine, double *cosine)
{
    if (!(x < 0x1p31 && x > -0x1p31)) {
        *sine = *cosine = elementary_double(0x7ff8000000000000u);
        return;
    }
    double n = (x * 0x1.45f306dc9c883p-1 + ROUND_52) - ROUND_52;
    /* pi / 2 in three parts of 22 bits, whose products with n are exact, and the rest */
    double r = ((x - n * 0x1.921fbp+0) - n * 0x1.5110bp-22) - n * 0x1.184698p-44;
    r = r - n * 0x1.3198a2e037073p-69;
    double a, b;
    elementary_sincos_reduced(r, &a, &b);
    switch ((int64_t)n & 3) {
    case 0: *sine = a, *cosine = b; break;
    case 1: *sine = b, *cosine = -a; break;
    case 2: *sine = -a, *cosine = -b; break;
    default: *sine = -b, *cosine = a; break;
    }
}

float elementary_log(float x) { return (float)elementary_log64((double)x); }

float elementary_tanh(float x)
{
    double d = (double)x;
    if (x != x) return x;
    if (d > 20.0) return 1.0f;
    if (d < -20.0) return -1.0f;
    if (d < 1e-4 && d > -1e-4) return (float)(d - d * d * d / 3.0);
    double e = elementary_exp64(2.0 * d);
    return (float)((e - 1.0) / (e + 1.0));
}
