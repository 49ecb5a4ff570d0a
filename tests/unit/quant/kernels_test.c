/* SPDX-License-Identifier: Apache-2.0 */
/* The reference kernels against the expanded rows, and kernels_matmul over every cut of rows and tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../kernel/random_blocks.h"
#include "quant/kernels.h"
#include "quant/numerics.h"

enum { ROWS = 53, COLS = 512, TOKENS = 19, OUT_STRIDE = 61 };

typedef struct Case {
    BlockType type;
    uint64_t row_bytes, panel_bytes;
    uint8_t *rows, *panels, *activations;
    size_t stride;
    float *x, *expected; /* [TOKENS][ROWS] */
} Case;

static double absolute(double v) { return v < 0 ? -v : v; }

static void *aligned(size_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }

static void case_make(Case *c, BlockType type, float amplitude)
{
    Random r = {type + 31u};
    c->type = type;
    assert_int_equal(block_row_bytes(type, COLS, &c->row_bytes, NULL), OK);
    assert_int_equal(layout_panel_bytes(type, COLS, &c->panel_bytes, NULL), OK);
    c->rows = malloc(ROWS * c->row_bytes);
    c->panels = malloc(4 * c->panel_bytes);
    for (uint32_t row = 0; row < ROWS; row++) random_row(&r, type, COLS, c->rows + row * c->row_bytes);
    for (uint32_t p = 0; p < 4; p++)
        assert_int_equal(layout_panel_from_rows(type, c->rows + 16 * p * c->row_bytes, p < 3 ? 16 : ROWS - 48, COLS,
                                                c->panels + p * c->panel_bytes, NULL), OK);
    c->x = malloc(sizeof(float) * TOKENS * COLS);
    for (int i = 0; i < TOKENS * COLS; i++) c->x[i] = random_normal(&r) * amplitude;
    c->stride = kernels_activation_row_bytes(kernels_activation_form(type), COLS);
    assert_int_equal(c->stride % 64, 0);
    c->activations = aligned(TOKENS * c->stride);
    memset(c->activations, 0xff, TOKENS * c->stride);
    for (uint32_t t = 0; t < TOKENS; t++)
        kernels_for(ISA_SCALAR)->quantize[kernels_activation_form(type)](c->x + t * COLS, COLS,
                                                                          c->activations + t * c->stride);
    c->expected = malloc(sizeof(float) * TOKENS * ROWS);
}

static void case_free(Case *c)
{
    free(c->rows), free(c->panels), free(c->x), free(c->activations), free(c->expected);
}

static void multiply(const Case *c, Layout layout, uint32_t row_first, uint32_t row_count, uint32_t tokens, float *out,
                     uint32_t workers)
{
    size_t scratch_bytes = kernels_matmul_scratch_bytes(c->type, layout, COLS);
    uint8_t *scratch = scratch_bytes ? aligned(scratch_bytes) : NULL;
    const uint8_t *tile = layout == LAYOUT_ROWS ? c->rows + row_first * c->row_bytes
                                                : c->panels + row_first / 16 * c->panel_bytes;
    MatmulTile m = {c->type, layout, COLS, tile, row_first, row_count, c->activations, c->stride, tokens, out,
                    OUT_STRIDE, scratch, scratch_bytes};
    Parallel parallel = parallel_serial; /* all on worker 0, but cut as for that many */
    parallel.workers = workers;
    kernels_matmul(kernels_for(ISA_SCALAR), &m, &parallel);
    free(scratch);
}

/* |dot(q, x) - dot(expanded q, x)| is bounded by what rounding the activations can do: per element half a step, where
 * a step is scale (32-wide) or D k (256-wide), both at most max|x| of the block / 127 * 16/15; plus float rounding. */
static void test_dot_against_expanded(void **state)
{
    (void)state;
    for (int i = 0; i < ALL_TYPES_COUNT; i++) {
        Case c;
        case_make(&c, ALL_TYPES[i], 3.0f);
        float out[TOKENS * OUT_STRIDE], w[COLS];
        memset(out, 0xff, sizeof out);
        multiply(&c, LAYOUT_X16, 0, ROWS, TOKENS, out, 2);
        bool is_float = kernels_activation_form(c.type) == ACTIVATION_FLOAT;
        double total_error = 0, total_bound = 0;
        for (uint32_t row = 0; row < ROWS; row++) {
            assert_int_equal(block_dequantize_row(c.type, c.rows + row * c.row_bytes, COLS, w, NULL), OK);
            for (uint32_t t = 0; t < TOKENS; t++) {
                double exact = 0, bound = 0, size = 0;
                for (uint32_t k = 0; k < COLS; k++) {
                    float max = 0;
                    for (uint32_t e = k / 32 * 32; e < k / 32 * 32 + 32; e++)
                        if (absolute(c.x[t * COLS + e]) > max) max = (float)absolute(c.x[t * COLS + e]);
                    float whole = 0;
                    for (uint32_t e = k / 256 * 256; e < k / 256 * 256 + 256; e++)
                        if (absolute(c.x[t * COLS + e]) > whole) whole = (float)absolute(c.x[t * COLS + e]);
                    double step = max / 127;
                    if (kernels_activation_form(c.type) == ACTIVATION_256) step += whole / 1905;
                    exact += (double)w[k] * c.x[t * COLS + k];
                    size += absolute((double)w[k] * c.x[t * COLS + k]);
                    bound += is_float ? 0 : absolute(w[k]) * step * 0.5001;
                }
                /* zero points and minimums cancel inside the integers and between I and J: allow for their size */
                bound += size * 1e-5 + (is_float ? 0 : 1e-4 * size + 1e-3 * bound + 1e-4);
                double error = absolute(out[t * OUT_STRIDE + row] - exact);
                if (!(error <= bound))
                    fail_msg("%s row %u token %u: error %g, bound %g", block_traits(c.type)->name, row, t, error,
                             bound);
                total_error += error, total_bound += bound;
            }
        }
        if (!is_float) assert_true(total_error < 0.2 * total_bound); /* errors are random, bounds add up */
        for (uint32_t t = 0; t < TOKENS; t++)
            for (uint32_t at = ROWS; at < OUT_STRIDE; at++)
                assert_true(out[t * OUT_STRIDE + at] != out[t * OUT_STRIDE + at]); /* still poison */
        case_free(&c);
    }
}

static void test_every_cut_gives_the_same_bits(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 2, 15, 16, 17, 33};
    static float whole[TOKENS * OUT_STRIDE], part[TOKENS * OUT_STRIDE];
    for (int i = 0; i < ALL_TYPES_COUNT; i++) {
        Case c;
        case_make(&c, ALL_TYPES[i], 1.0f);
        multiply(&c, LAYOUT_X16, 0, ROWS, TOKENS, whole, 1);
        for (Layout layout = LAYOUT_ROWS; layout <= LAYOUT_X16; layout++)
            for (uint32_t first = 0; first < ROWS; first += 5)
                for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
                    uint32_t count = counts[n], tokens = 1 + (first + count) % TOKENS;
                    if (first + count > ROWS) continue;
                    memset(part, 0xff, sizeof part);
                    multiply(&c, layout, first, count, tokens, part, 1 + first % 5);
                    for (uint32_t t = 0; t < TOKENS; t++)
                        for (uint32_t at = 0; at < OUT_STRIDE; at++) {
                            uint32_t got = bytes_load32(part + t * OUT_STRIDE + at), want = UINT32_MAX;
                            if (t < tokens && at < count) want = bytes_load32(whole + t * OUT_STRIDE + first + at);
                            assert_int_equal(got, want);
                        }
                }
        case_free(&c);
    }
}

static void test_nothing_to_do(void **state)
{
    (void)state;
    Case c;
    case_make(&c, BLOCK_Q4_K, 1.0f);
    float out[1] = {42};
    multiply(&c, LAYOUT_X16, 0, ROWS, 0, out, 1);
    multiply(&c, LAYOUT_X16, 7, 0, 1, out, 1);
    assert_true(out[0] == 42);
    case_free(&c);
}

/* Sums beyond the range of f16: 4096 products of 300 * 300. */
static void test_large_sums(void **state)
{
    (void)state;
    enum { WIDE = 4096 };
    static const BlockType types[] = {BLOCK_F16, BLOCK_BF16, BLOCK_F32};
    static float x[WIDE];
    for (int i = 0; i < WIDE; i++) x[i] = 300;
    for (int i = 0; i < 3; i++) {
        uint8_t *row = malloc(4 * WIDE), *panel = malloc(64 * WIDE);
        float out[16];
        extreme_row(types[i], WIDE, 1, row);
        assert_int_equal(layout_panel_from_rows(types[i], row, 1, WIDE, panel, NULL), OK);
        kernels_for(ISA_SCALAR)->panel[types[i]](panel, WIDE, (const uint8_t *)x, sizeof x, 1, out, 16);
        float expected = 0;
        for (int k = 0; k < WIDE; k++) expected = expected + 300.0f * 300.0f;
        assert_true(out[0] == expected && expected > 3.6e8f);
        assert_true(out[1] == 0);
        free(row), free(panel);
    }
}

static void test_not_finite_activation_shows(void **state)
{
    (void)state;
    static const uint32_t bad[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff};
    for (int i = 0; i < ALL_TYPES_COUNT; i++)
        for (int b = 0; b < 4; b++) {
            Case c;
            case_make(&c, ALL_TYPES[i], 1.0f);
            memcpy(c.x + COLS + 300, &bad[b], 4); /* token 1 */
            kernels_for(ISA_SCALAR)->quantize[kernels_activation_form(c.type)](c.x + COLS, COLS,
                                                                                c.activations + c.stride);
            static float out[TOKENS * OUT_STRIDE];
            multiply(&c, LAYOUT_X16, 0, ROWS, 3, out, 1);
            for (uint32_t row = 0; row < ROWS; row++) {
                assert_true(out[row] - out[row] == 0);
                assert_false(out[OUT_STRIDE + row] - out[OUT_STRIDE + row] == 0);
                assert_true(out[2 * OUT_STRIDE + row] - out[2 * OUT_STRIDE + row] == 0);
            }
            case_free(&c);
        }
}

static void test_forms(void **state)
{
    (void)state;
    assert_int_equal(NUMERICS_VERSION, 1);
    assert_int_equal(kernels_activation_form(BLOCK_BF16), ACTIVATION_FLOAT);
    assert_int_equal(kernels_activation_form(BLOCK_Q5_1), ACTIVATION_32);
    assert_int_equal(kernels_activation_form(BLOCK_Q2_K), ACTIVATION_256);
    assert_int_equal(kernels_activation_row_bytes(ACTIVATION_256, 896), 0);
    assert_int_equal(kernels_activation_row_bytes(ACTIVATION_32, 33), 0);
    assert_int_equal(kernels_activation_row_bytes(ACTIVATION_32, 96), 192);
    assert_int_equal(kernels_activation_row_bytes(ACTIVATION_FLOAT, 17), 128);
    assert_string_equal(kernels_isa_name(ISA_AVXVNNI), "avxvnni");
    assert_string_equal(kernels_isa_name(ISA_AVX512), "avx512");
    assert_null(kernels_for(ISAS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dot_against_expanded), cmocka_unit_test(test_every_cut_gives_the_same_bits),
        cmocka_unit_test(test_nothing_to_do), cmocka_unit_test(test_large_sums),
        cmocka_unit_test(test_not_finite_activation_shows), cmocka_unit_test(test_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
