/* SPDX-License-Identifier: Apache-2.0 */
/* Elementary functions against long double (64 bits of mantissa on x86, more or as many elsewhere), in units of the
 * last place; edges; the directions in which they must rise. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/elementary.h"

enum { SAMPLES = 200000 };

static double ulp64(double got, long double want)
{
    double w = fabs((double)want), unit = nextafter(w, INFINITY) - w;
    return fabs((double)(((long double)got - want) / (long double)unit));
}

static double ulp32(float got, long double want)
{
    float w = fabsf((float)want), unit = nextafterf(w, INFINITY) - w;
    return fabs((double)(((long double)got - want) / (long double)unit));
}

static double uniform(double a, double b) { return a + (b - a) * drand48(); }

static void test_exp(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES; i++) {
        float x = (float)uniform(-87.3, 88.72);
        assert_true(ulp32(elementary_exp(x), expl((long double)x)) < 1.2);
        x = (float)uniform(-1, 1);
        assert_true(ulp32(elementary_exp(x), expl((long double)x)) < 1.2);
    }
    assert_true(elementary_exp(0.0f) == 1.0f && elementary_exp(-0.0f) == 1.0f);
    assert_true(elementary_exp(-87.31f) == 0.0f && elementary_exp(-87.3f) > 1.17e-38f);
    assert_true(elementary_exp(-INFINITY) == 0.0f && elementary_exp(INFINITY) == INFINITY);
    assert_true(elementary_exp(88.73f) == INFINITY && isfinite(elementary_exp(88.72f)));
    assert_true(isnan(elementary_exp(NAN)));
}

/* A larger score must never get a smaller weight: every float from -4 to 0, then coarser steps. */
static void test_exp_never_falls(void **state)
{
    (void)state;
    float before = elementary_exp(-4.0f);
    for (float x = -4.0f; x < 0; x = nextafterf(x, 1.0f)) {
        float y = elementary_exp(x);
        assert_true(y >= before * 0.9999998f); /* within the error of one unit: neighbours may swap, no more */
        before = y;
        if (x > -1e-3f) break;
    }
    before = 0;
    for (double x = -88; x < 88.7; x += 1e-4) {
        float y = elementary_exp((float)x);
        assert_true(y >= before);
        before = y;
    }
}

static void test_exp64(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES; i++) {
        double x = uniform(-708, 709.7);
        assert_true(ulp64(elementary_exp64(x), expl((long double)x)) < 1.3);
        x = uniform(-1, 1);
        assert_true(ulp64(elementary_exp64(x), expl((long double)x)) < 1.3);
    }
    for (double x = -745.1; x < -708; x += 0.37) /* subnormal results */
        assert_true(fabs(elementary_exp64(x) - exp(x)) <= 4.95e-324 + 1e-15 * exp(x));
    assert_true(elementary_exp64(0.0) == 1.0 && elementary_exp64(-746.0) == 0.0);
    assert_true(elementary_exp64(710.0) == INFINITY && elementary_exp64(-INFINITY) == 0.0 &&
                isnan(elementary_exp64(NAN)));
}

static void test_log(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES; i++) {
        double x = exp(uniform(-700, 700));
        assert_true(ulp64(elementary_log64(x), logl((long double)x)) < 1.0);
        x = uniform(0.5, 2.0);
        assert_true(ulp64(elementary_log64(x), logl((long double)x)) < 1.0);
        float y = (float)exp(uniform(-80, 80));
        assert_true(ulp32(elementary_log(y), logl((long double)y)) < 0.51);
    }
    assert_true(elementary_log64(1.0) == 0.0 && elementary_log64(0.0) == -INFINITY &&
                elementary_log64(-0.0) == -INFINITY);
    assert_true(isnan(elementary_log64(-1.0)) && isnan(elementary_log64(NAN)) &&
                elementary_log64(INFINITY) == INFINITY);
    assert_true(fabs(elementary_log64(4.9406564584124654e-324) + 744.4400719213812) < 1e-12);
    assert_true(elementary_log64(0x1p-1022) == (double)logl(0x1p-1022L));
}

static void test_pow(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES / 10; i++) {
        double base = uniform(1, 1e7), y = uniform(-1, 1);
        long double want = powl((long double)base, (long double)y);
        assert_true(fabs((double)(((long double)elementary_pow64(base, y) - want) / want)) < 3e-15);
    }
    assert_true(elementary_pow64(10000.0, 0.0) == 1.0);
}

static void test_sincos(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES; i++) {
        double x = (drand48() - 0.5) * ldexp(1, (int)(drand48() * 33)), s, c; /* up to 2^31 */
        elementary_sincos64(x, &s, &c);
        assert_true(fabs((double)((long double)s - sinl((long double)x))) < 2.5e-16);
        assert_true(fabs((double)((long double)c - cosl((long double)x))) < 2.5e-16);
    }
    double s, c;
    elementary_sincos64(0.0, &s, &c);
    assert_true(s == 0.0 && c == 1.0);
    for (int i = -1000; i < 1000;
         i++) { /* close to the multiples of pi / 2, where the reduction must be good */
        double x = i * 1.5707963267948966;
        elementary_sincos64(x, &s, &c);
        assert_true(fabs((double)((long double)s - sinl((long double)x))) < 2.5e-16);
        assert_true(fabs((double)((long double)c - cosl((long double)x))) < 2.5e-16);
    }
    elementary_sincos64(INFINITY, &s, &c);
    assert_true(isnan(s) && isnan(c));
    elementary_sincos64(0x1p31, &s, &c);
    assert_true(isnan(s));
}

static void test_tanh(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES; i++) {
        float x = (float)(uniform(-1, 1) * exp(uniform(-20, 3.2)));
        assert_true(ulp32(elementary_tanh(x), tanhl((long double)x)) < 0.51);
    }
    assert_true(elementary_tanh(0.0f) == 0.0f && elementary_tanh(30.0f) == 1.0f &&
                elementary_tanh(-INFINITY) == -1.0f);
    assert_true(isnan(elementary_tanh(NAN)));
}

/* The bits themselves, as recorded on the machine where numerics version 1 was written. */
static void test_bits_of_version_1(void **state)
{
    (void)state;
    static const struct {
        float x;
        uint32_t bits;
    } exps[] = {
#include "elementary_bits.h"
    };
    for (size_t i = 0; i < sizeof exps / sizeof exps[0]; i++) {
        float y = elementary_exp(exps[i].x);
        uint32_t bits;
        memcpy(&bits, &y, 4);
        assert_int_equal(bits, exps[i].bits);
    }
}

int main(void)
{
    srand48(7);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),   cmocka_unit_test(test_exp_never_falls),
        cmocka_unit_test(test_exp64), cmocka_unit_test(test_log),
        cmocka_unit_test(test_pow),   cmocka_unit_test(test_sincos),
        cmocka_unit_test(test_tanh),  cmocka_unit_test(test_bits_of_version_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
