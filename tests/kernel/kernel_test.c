/* SPDX-License-Identifier: Apache-2.0 */
/* Every instruction set that this CPU runs against the reference, bit for bit: all types, all token counts, odd block
 * counts, unaligned panels that end at a forbidden page, poisoned outputs, the largest sums there are, and panels of
 * arbitrary bytes. Not-a-number matches any not-a-number.
 *
 *   kernel_kernel_test [ISA]     only that one */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "host/cpu.h"
#include "quant/activation.h"
#include "quant/kernels.h"
#include "random_blocks.h"

enum { TOKENS = KERNEL_TOKENS_MAX, OUT_STRIDE = 21, PAGE = 4096, ROOM_BYTES = 1 << 18, EDGE = 1 << 16 };

static const char *only_isa;

static bool cpu_runs(Isa isa)
{
    if (only_isa && strcmp(only_isa, kernels_isa_name(isa))) return false;
#if defined(__x86_64__)
    if (isa == ISA_AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    if (isa == ISA_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vnni");
#endif
    return cpu_has(isa); /* elsewhere the host's own answer is the only one */
}

/* Memory whose last byte is followed by a page that nobody may touch. */
typedef struct Room {
    uint8_t *base, *end;
} Room;

static Room room_make(void)
{
    uint8_t *base = mmap(NULL, ROOM_BYTES + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(base != MAP_FAILED);
    assert_int_equal(mprotect(base + ROOM_BYTES, PAGE, PROT_NONE), 0);
    return (Room){base, base + ROOM_BYTES};
}

typedef struct Bench {
    Room panel, activations;
    size_t stride;
    float got[TOKENS * OUT_STRIDE], want[TOKENS * OUT_STRIDE];
} Bench;

static Bench bench;

/* Runs both kernels on the panel of `panel_bytes` bytes that ends `gap` bytes before the forbidden page. */
static void compare(const Kernels *kernels, BlockType type, uint32_t cols, size_t panel_bytes, size_t gap,
                    const char *what)
{
    const uint8_t *panel = bench.panel.end - panel_bytes - gap;
    for (uint32_t tokens = 1; tokens <= TOKENS; tokens++) {
        const uint8_t *activations = bench.activations.end - tokens * bench.stride; /* the last ones */
        memset(bench.got, 0xff, sizeof bench.got);
        memset(bench.want, 0xff, sizeof bench.want);
        kernels_for(ISA_SCALAR)->panel[type](panel, cols, activations, bench.stride, tokens, bench.want, OUT_STRIDE);
        kernels->panel[type](panel, cols, activations, bench.stride, tokens, bench.got, OUT_STRIDE);
        for (uint32_t i = 0; i < TOKENS * OUT_STRIDE; i++) {
            uint32_t got = bytes_load32(bench.got + i), want = bytes_load32(bench.want + i);
            bool inside = i / OUT_STRIDE < tokens && i % OUT_STRIDE < PANEL_ROWS;
            if (!inside && got != UINT32_MAX) fail_msg("%s: wrote outside, token %u", what, i / OUT_STRIDE);
            if (inside && got == UINT32_MAX) fail_msg("%s: poison left, token %u", what, i / OUT_STRIDE);
            bool both_nan = bench.got[i] != bench.got[i] && bench.want[i] != bench.want[i];
            if (got != want && !both_nan)
                fail_msg("%s %s, %s, %u columns, %u tokens, row %u of token %u: %a, reference %a",
                         kernels_isa_name(kernels->isa), block_traits(type)->name, what, cols, tokens, i % OUT_STRIDE,
                         i / OUT_STRIDE, bench.got[i], bench.want[i]);
        }
    }
}

/* Fills x[cols] for token t. */
typedef void (*FillActivations)(Random *r, uint32_t t, uint32_t cols, float *x);

static void fill_normal(Random *r, uint32_t t, uint32_t cols, float *x)
{
    for (uint32_t i = 0; i < cols; i++) x[i] = random_normal(r) * (float)(1 + t);
}
static void fill_outliers(Random *r, uint32_t t, uint32_t cols, float *x)
{
    fill_normal(r, t, cols, x);
    for (uint32_t i = 0; i < cols; i += 1 + random_next(r) % 97) x[i] *= 40;
}
static void fill_zero_blocks(Random *r, uint32_t t, uint32_t cols, float *x)
{
    fill_normal(r, t, cols, x);
    for (uint32_t i = 0; i < cols; i++)
        if ((i / 32 + t) % 3 == 0 || (t == 2 && i < 256)) x[i] = i & 1 ? -0.0f : 0.0f;
}
static void fill_plus(Random *r, uint32_t t, uint32_t cols, float *x)
{
    (void)r;
    for (uint32_t i = 0; i < cols; i++) x[i] = (float)(t + 1);
}
static void fill_minus(Random *r, uint32_t t, uint32_t cols, float *x)
{
    (void)r;
    for (uint32_t i = 0; i < cols; i++) x[i] = -(float)(t + 1);
}
static void fill_alternating(Random *r, uint32_t t, uint32_t cols, float *x)
{
    (void)r;
    for (uint32_t i = 0; i < cols; i++) x[i] = (i >> (t % 5)) & 1 ? 1 : -1;
}
static void fill_huge(Random *r, uint32_t t, uint32_t cols, float *x)
{
    for (uint32_t i = 0; i < cols; i++) x[i] = random_unit(r) * (t & 1 ? 3e38f : 1e-28f);
}
static void fill_not_finite(Random *r, uint32_t t, uint32_t cols, float *x)
{
    fill_normal(r, t, cols, x);
    if (t % 2) x[random_next(r) % cols] = t % 4 == 1 ? __builtin_inff() : __builtin_nanf("");
}
/* Sums of the positive (or negative) q of every sub of exactly 2184 or 2185, mixed by token. */
static void fill_edge(Random *r, uint32_t t, uint32_t cols, float *x)
{
    (void)r;
    for (uint32_t i = 0; i < cols; i++) {
        uint32_t e = i % 32;
        int q = e < 17 ? 127 : e == 17 ? 25 + (int)((t + i / 32) % 2) : 0; /* 17 * 127 + 25 = 2184 */
        x[i] = (float)(t % 3 == 2 ? -q : q) / 127.0f;
    }
}

static const struct {
    FillActivations fill;
    const char *name;
} FILLS[] = {{fill_normal, "normal"},       {fill_outliers, "outliers"}, {fill_zero_blocks, "zero blocks"},
             {fill_plus, "all 127"},        {fill_minus, "all -127"},    {fill_alternating, "alternating"},
             {fill_huge, "huge and tiny"},  {fill_not_finite, "not finite"}, {fill_edge, "2184 and 2185"}};
enum { FILLS_COUNT = sizeof FILLS / sizeof *FILLS };

static void quantize_all(Random *r, BlockType type, uint32_t cols, FillActivations fill)
{
    static float x[EDGE];
    ActivationForm form = kernels_activation_form(type);
    bench.stride = kernels_activation_row_bytes(form, cols);
    for (uint32_t t = 0; t < TOKENS; t++) {
        uint8_t *row = bench.activations.end - (t + 1) * bench.stride;
        fill(r, t, cols, x);
        kernels_for(ISA_SCALAR)->quantize[form](x, cols, row);
    }
}

static size_t place_panel(BlockType type, uint32_t cols, size_t gap, Random *r, int fill /* -1: random rows */)
{
    static uint8_t rows[ROOM_BYTES];
    uint64_t row_bytes = 0, panel_bytes = 0;
    assert_int_equal(block_row_bytes(type, cols, &row_bytes, NULL), OK);
    assert_int_equal(layout_panel_bytes(type, cols, &panel_bytes, NULL), OK);
    assert_true(16 * row_bytes <= sizeof rows && panel_bytes + gap <= ROOM_BYTES);
    for (uint32_t row = 0; row < 16; row++)
        if (fill < 0) random_row(r, type, cols, rows + row * row_bytes);
        else extreme_row(type, cols, (uint8_t)(row & 1 ? ~fill : fill), rows + row * row_bytes);
    assert_int_equal(layout_panel_from_rows(type, rows, 16, cols, bench.panel.end - panel_bytes - gap, NULL), OK);
    return (size_t)panel_bytes;
}

typedef void (*EachCase)(const Kernels *kernels, BlockType type, uint32_t block);

static void each_type(EachCase run)
{
    for (Isa isa = ISA_AVX2; isa < ISAS; isa++) {
        const Kernels *kernels = kernels_for(isa);
        if (!kernels || !cpu_runs(isa)) continue;
        assert_int_equal(kernels->isa, isa);
        for (int i = 0; i < ALL_TYPES_COUNT; i++) {
            assert_non_null(kernels->panel[ALL_TYPES[i]]);
            uint32_t elements = block_traits(ALL_TYPES[i])->elements;
            run(kernels, ALL_TYPES[i], elements == 1 ? 37 : elements);
        }
    }
}

static void random_case(const Kernels *kernels, BlockType type, uint32_t block)
{
    Random r = {type * 7u + 1};
    static const uint32_t blocks[] = {1, 2, 3, 5, 8, 13};
    for (size_t n = 0; n < sizeof blocks / sizeof *blocks; n++)
        for (int f = 0; f < FILLS_COUNT; f++) {
            uint32_t cols = blocks[n] * block;
            size_t gap = random_next(&r) % 65; /* 0 ends at the forbidden page; most are unaligned */
            if (f == 0) gap = 0;
            size_t bytes = place_panel(type, cols, gap, &r, -1);
            quantize_all(&r, type, cols, FILLS[f].fill);
            compare(kernels, type, cols, bytes, gap, FILLS[f].name);
        }
}
static void test_random_rows(void **state)
{
    (void)state;
    each_type(random_case);
}

static void extreme_case(const Kernels *kernels, BlockType type, uint32_t block)
{
    static const uint8_t fills[] = {0x00, 0xff, 0x0f, 0x55, 0x88, 0x7f};
    Random r = {type * 5u + 3};
    for (size_t w = 0; w < sizeof fills; w++)
        for (int f = 0; f < FILLS_COUNT; f++) {
            size_t bytes = place_panel(type, 3 * block, 0, &r, fills[w]);
            quantize_all(&r, type, 3 * block, FILLS[f].fill);
            compare(kernels, type, 3 * block, bytes, 0, FILLS[f].name);
        }
}
static void test_extreme_rows(void **state)
{
    (void)state;
    each_type(extreme_case);
}

/* Whatever bytes a panel has: scales no encoder writes, infinities, not-a-numbers. */
static void hostile_case(const Kernels *kernels, BlockType type, uint32_t block)
{
    Random r = {type * 11u + 5};
    for (int round = 0; round < 20; round++) {
        uint64_t bytes = 0;
        assert_int_equal(layout_panel_bytes(type, 2 * block, &bytes, NULL), OK);
        random_bytes(&r, bench.panel.end - bytes, (size_t)bytes);
        if (round & 1 && block > 37) { /* tame the halves so that the integers show */
            for (int i = 0; i < 2; i++)
                for (int h = 0; h < 16; h++) bytes_store16(bench.panel.end - bytes + i * bytes / 2 + 2 * h, 0x3c00);
        }
        quantize_all(&r, type, 2 * block, FILLS[round % FILLS_COUNT].fill);
        compare(kernels, type, 2 * block, (size_t)bytes, 0, "arbitrary bytes");
    }
}
static void test_arbitrary_bytes(void **state)
{
    (void)state;
    each_type(hostile_case);
}

/* ---- quantizers ---- */

static void fill_ties(Random *r, uint32_t t, uint32_t cols, float *x)
{
    for (uint32_t i = 0; i < cols; i++) x[i] = (float)((int)(random_next(r) % 255) - 127) + (i & 1 ? 0.5f : 0);
    for (uint32_t i = 0; i < cols; i += 32) x[i + t % 32] = t & 1 ? -127 : 127; /* inverse is 1 */
    if (t > 4)
        for (uint32_t i = 0; i < cols; i++) x[i] *= 15;
}
static void fill_near_tiny(Random *r, uint32_t t, uint32_t cols, float *x)
{
    for (uint32_t i = 0; i < cols; i++) {
        uint32_t bits = 0x0f800000u - 3 + random_next(r) % 6; /* around 2^-96 */
        memcpy(x + i, &bits, 4);
        if ((i / 32 + t) % 2) x[i] = random_unit(r) * 1e-40f; /* subnormal */
    }
}
/* Maxima whose 15ths are the edges of k. */
static void fill_k_edges(Random *r, uint32_t t, uint32_t cols, float *x)
{
    for (uint32_t i = 0; i < cols; i++) {
        float m = (float)(i / 32 % 8 * 2 + t % 2) / 15.0f;
        if (i / 32 % 8 == 7) m = 1;
        x[i] = i % 32 == 5 ? m : random_unit(r) * m;
        uint32_t bits = bytes_load32(x + i) + random_next(r) % 3;
        memcpy(x + i, &bits, 4);
    }
}

static void compare_quantizers(const Kernels *kernels, FillActivations fill, const char *name)
{
    static float x[1024];
    static _Alignas(64) uint8_t got[8192], want[8192];
    Random r = {99};
    for (ActivationForm form = 0; form < ACTIVATION_FORMS; form++)
        for (uint32_t cols = 256; cols <= 1024; cols += form == ACTIVATION_32 ? 32 : 256)
            for (uint32_t t = 0; t < 32; t++) {
                fill(&r, t, cols, x);
                memset(got, 0xa5, sizeof got);
                memset(want, 0xa5, sizeof want);
                kernels_for(ISA_SCALAR)->quantize[form](x, cols, want);
                kernels->quantize[form](x, cols, got);
                if (memcmp(got, want, sizeof got))
                    fail_msg("%s form %d, %s, %u columns differ", kernels_isa_name(kernels->isa), form, name, cols);
                size_t row = kernels_activation_row_bytes(form, cols);
                for (size_t i = row; i < sizeof got; i++) assert_int_equal(got[i], 0xa5);
                if (form != ACTIVATION_256) continue;
                for (const Activation256 *a = (void *)got; (uint8_t *)(a + 1) <= got + row; a++)
                    for (int i = 0; i < 256; i++) assert_true(a->q[i] >= -127);
            }
}

static void test_quantizers(void **state)
{
    (void)state;
    for (Isa isa = ISA_AVX2; isa < ISAS; isa++) {
        if (!kernels_for(isa) || !cpu_runs(isa)) continue;
        for (int f = 0; f < FILLS_COUNT; f++) compare_quantizers(kernels_for(isa), FILLS[f].fill, FILLS[f].name);
        compare_quantizers(kernels_for(isa), fill_ties, "ties");
        compare_quantizers(kernels_for(isa), fill_near_tiny, "near tiny");
        compare_quantizers(kernels_for(isa), fill_k_edges, "edges of k");
    }
}

/* The edge is where it is said to be, so that the cases above reach both sides. */
static void test_wide_flag(void **state)
{
    (void)state;
    static float x[256];
    static Activation256 a;
    for (int sign = -1; sign <= 1; sign += 2)
        for (int extra = 0; extra < 2; extra++) {
            for (int i = 0; i < 256; i++) x[i] = 0;
            for (int i = 0; i < 17; i++) x[32 + i] = (float)(sign * 127);
            x[49] = (float)(sign * (25 + extra));
            activation_quantize_256(x, 256, (uint8_t *)&a);
            assert_int_equal(a.q[32], sign * 127);
            assert_int_equal(a.q[49], sign * (25 + extra));
            assert_int_equal(a.wide, extra);
            assert_int_equal(a.k[1], 15);
            if (!extra) assert_int_equal(a.k_sums[1], sign * 15 * 2184);
        }
}

int main(int argc, char **argv)
{
    if (argc > 1) only_isa = argv[1];
    bench.panel = room_make();
    bench.activations = room_make();
    int tested = 0;
    for (Isa isa = ISA_AVX2; isa < ISAS; isa++)
        if (kernels_for(isa) && cpu_runs(isa))
            tested += printf("compares %s with the reference\n", kernels_isa_name(isa)) > 0;
    if (!tested) printf("this CPU runs none but the reference kernels\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_rows),     cmocka_unit_test(test_extreme_rows),
        cmocka_unit_test(test_arbitrary_bytes), cmocka_unit_test(test_quantizers),
        cmocka_unit_test(test_wide_flag),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
