/* SPDX-License-Identifier: Apache-2.0 */
/* Log sums: accuracy against long double, and the promise that neither order nor cuts matter, bit for bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/logsum.h"

enum { N = 20011 };
static float x[N];

static double log_of(const float *values, uint32_t n, float scale)
{
    LogSum s;
    logsum_start(&s);
    logsum_add(&s, values, n, scale);
    return logsum_log(&s);
}

static long double reference(const float *values, uint32_t n, float scale)
{
    long double most = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++) most = fmaxl(most, (long double)values[i] * scale);
    for (uint32_t i = 0; i < n; i++) sum += expl((long double)values[i] * scale - most);
    return most + logl(sum);
}

static void fill(double spread)
{
    for (int i = 0; i < N; i++) x[i] = (float)((drand48() - 0.5) * spread);
}

static void test_accuracy(void **state)
{
    (void)state;
    static const float scales[] = {1.0f, 0.5f, 1.4285715f, 10.0f, 1000.0f, 1e5f, 1e-3f};
    for (int spread = 1; spread < 200; spread += 33)
        for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
            fill(spread);
            long double want = reference(x, N, scales[i]);
            assert_true(fabsl((long double)log_of(x, N, scales[i]) - want) < 1e-9L + 1e-15L * fabsl(want));
        }
    for (double one = -3e4; one < 3e4; one += 777.7) { /* a single addend gives itself */
        float v = (float)one;
        assert_true(fabs(log_of(&v, 1, 1.0f) - (double)v) < 1e-9);
    }
}

static void check_cuts(float scale)
{
    double whole = log_of(x, N, scale);
    for (uint32_t parts = 1; parts <= 11; parts += 2) {
        LogSum total;
        logsum_start(&total);
        for (uint32_t i = parts; i-- > 0;) { /* the last part first */
            LogSum part;
            uint32_t a = (uint32_t)((uint64_t)N * i / parts), b = (uint32_t)((uint64_t)N * (i + 1) / parts);
            logsum_start(&part);
            logsum_add(&part, x + a, b - a, scale);
            logsum_merge(&total, &part);
        }
        double got = logsum_log(&total);
        assert_memory_equal(&whole, &got, sizeof got);
    }
}

static void test_order_and_cuts(void **state)
{
    (void)state;
    static const float scales[] = {1.0f, 3.0f, 1e4f, -2.0f};
    for (size_t k = 0; k < 4; k++)
        for (int spread = 1; spread < 400; spread += 57) {
            fill(spread);
            x[5] = (float)spread * 3; /* one that drops most of the others' low digits */
            double before = log_of(x, N, scales[k]);
            check_cuts(scales[k]);
            for (int i = N - 1; i > 0; i--) {
                int j = (int)(drand48() * (i + 1));
                float t = x[i];
                x[i] = x[j], x[j] = t;
            }
            double after = log_of(x, N, scales[k]);
            assert_memory_equal(&before, &after, sizeof after);
            check_cuts(scales[k]);
        }
}

/* Growing values: the window moves at every addend. Falling ones: never. Same sum. */
static void test_window_moves(void **state)
{
    (void)state;
    enum { M = 4000 };
    static float up[M], down[M];
    for (int i = 0; i < M; i++) up[i] = down[M - 1 - i] = (float)i * 0.9f - 2000.0f;
    double a = log_of(up, M, 1.0f), b = log_of(down, M, 1.0f);
    assert_memory_equal(&a, &b, sizeof a);
    assert_true(fabsl((long double)a - reference(up, M, 1.0f)) < 1e-9L);
}

static void test_many_equal(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) x[i] = 12.5f;
    LogSum s, sum;
    logsum_start(&s);
    logsum_start(&sum);
    logsum_add(&s, x, N, 1.0f);
    for (int i = 0; i < 1000; i++) logsum_merge(&sum, &s); /* carries pile up in the limbs */
    assert_true(fabs(logsum_log(&sum) - (12.5 + log((double)N) + log(1000.0))) < 1e-9);
}

static void test_edges(void **state)
{
    (void)state;
    LogSum s;
    logsum_start(&s);
    assert_true(logsum_log(&s) == -INFINITY);
    float minus = -INFINITY, plus = INFINITY, nan = NAN, zero = 0, huge = 3e38f;
    logsum_add(&s, &minus, 1, 1.0f);
    assert_true(logsum_log(&s) == -INFINITY);
    logsum_add(&s, &zero, 1, 1.0f);
    assert_true(fabs(logsum_log(&s)) < 1e-9);
    LogSum empty;
    logsum_start(&empty);
    logsum_merge(&empty, &s);
    assert_true(logsum_log(&empty) == logsum_log(&s));
    assert_true(isfinite(log_of(&huge, 1, 1e5f)) && log_of(&huge, 1, 1e5f) > 1e10); /* cut, not wrapped */
    huge = -huge;
    assert_true(log_of(&huge, 1, 1e5f) < -1e10);
    LogSum broken = s;
    logsum_add(&broken, &nan, 1, 1.0f);
    assert_true(isnan(logsum_log(&broken)));
    logsum_merge(&s, &broken);
    assert_true(isnan(logsum_log(&s)));
    assert_true(isnan(log_of(&plus, 1, 1.0f)));
}

int main(void)
{
    srand48(11);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accuracy),     cmocka_unit_test(test_order_and_cuts),
        cmocka_unit_test(test_window_moves), cmocka_unit_test(test_many_equal),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
