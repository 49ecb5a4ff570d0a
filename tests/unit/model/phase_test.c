/* SPDX-License-Identifier: Apache-2.0 */
/* Phases: matrices and norms found and checked, missing ones named; bounds and ranges read and written. */
#include "small_knot.h"

static void small_open(SmallKnot *s, Hyper *h)
{
    Why why = {""};
    if (small_hyper(s, h, &why) != OK) fail_msg("%s", why.text);
}

static void test_matrices(void **state)
{
    (void)state;
    SmallKnot s = {.architecture = "qwen2"};
    Hyper h;
    Why why;
    PhaseMatrix m[PHASE_MATRICES_MAX];
    uint32_t count;
    small_open(&s, &h);
    assert_int_equal(phase_matrices(&s.knot, &h, 1, PHASE_ATTN, m, &count, &why), OK);
    assert_int_equal(count, 4);
    static const char *const names[] = {"blk_1_attn_q_weight", "blk_1_attn_k_weight", "blk_1_attn_v_weight",
                                        "blk_1_attn_output_weight"};
    for (int i = 0; i < 4; i++) assert_string_equal(m[i].weight->name, names[i]);
    assert_string_equal(m[1].bias->name, "blk_1_attn_k_bias");
    assert_null(m[3].bias);
    assert_true(m[0].rows == 64 && m[1].rows == 32 && m[3].rows == 64 && m[3].cols == 64);
    static const char *const ffn[] = {"ffn_gate", "ffn_up", "ffn_down"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(phase_matrices(&s.knot, &h, 0, (Phase)(PHASE_FFN_GATE + i), m, &count, &why), OK);
        assert_int_equal(count, 1);
        assert_non_null(strstr(m[0].weight->name, ffn[i]));
        assert_int_equal(m[0].rows, i == 2 ? SMALL_HIDDEN : SMALL_FFN);
        assert_int_equal(m[0].cols, i == 2 ? SMALL_FFN : SMALL_HIDDEN);
        assert_string_equal(phase_name((Phase)(PHASE_FFN_GATE + i)), ffn[i]);
    }
    assert_int_equal(phase_matrices(&s.knot, &h, 2, PHASE_ATTN, m, &count, &why), ERR_RANGE);
    small_free(&s);
}

static void missing(const char *architecture, const char *name, Phase phase, const char *words)
{
    SmallKnot s = {.architecture = architecture, .left_out = name};
    Hyper h;
    Why why = {""};
    PhaseMatrix m[PHASE_MATRICES_MAX];
    uint32_t count;
    small_open(&s, &h);
    assert_int_equal(phase_matrices(&s.knot, &h, 1, phase, m, &count, &why), ERR_MISSING_TENSOR);
    assert_string_equal(why.text, words);
    small_free(&s);
}

static void test_missing_matrices(void **state)
{
    (void)state;
    missing("llama", "blk_1_ffn_up_weight", PHASE_FFN_UP,
            "layer 1, phase ffn_up: blk_1_ffn_up_weight is missing");
    missing("llama", "blk_1_attn_v_weight", PHASE_ATTN, "layer 1, phase attn: blk_1_attn_v_weight is missing");
    missing("gemma3", "blk_1_ffn_down_weight", PHASE_FFN_DOWN,
            "layer 1, phase ffn_down: blk_1_ffn_down_weight is missing");
    missing("qwen2", "blk_1_attn_k_bias", PHASE_ATTN, "layer 1, phase attn: blk_1_attn_k_bias is missing");
}

static void test_shapes(void **state)
{
    (void)state;
    static const char *const names[] = {"blk_0_attn_q_weight", "blk_0_attn_output_weight", "blk_0_attn_v_bias"};
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 2; j++) {
            SmallKnot s = {.architecture = "qwen2",
                           .changed = names[i],
                           .changed_rows = j ? 63 : 64,
                           .changed_cols = j ? 64 : 63};
            Hyper h;
            Why why = {""};
            PhaseMatrix m[PHASE_MATRICES_MAX];
            uint32_t count;
            small_open(&s, &h);
            assert_int_equal(phase_matrices(&s.knot, &h, 0, PHASE_ATTN, m, &count, &why), ERR_SHAPE);
            assert_non_null(strstr(why.text, names[i]));
            small_free(&s);
        }
}

static void test_norms(void **state)
{
    (void)state;
    SmallKnot s = {.architecture = "gemma3"};
    Hyper h;
    Why why = {""};
    LayerNorms n;
    small_open(&s, &h);
    assert_int_equal(phase_layer_norms(&s.knot, &h, 1, &n, &why), OK);
    assert_string_equal(n.attn->name, "blk_1_attn_norm_weight");
    assert_string_equal(n.post_ffn->name, "blk_1_post_ffw_norm_weight");
    assert_string_equal(n.k->name, "blk_1_attn_k_norm_weight");
    assert_int_equal(phase_layer_norms(&s.knot, &h, 2, &n, &why), ERR_RANGE);
    small_free(&s);
    s = (SmallKnot){.architecture = "llama"};
    small_open(&s, &h);
    assert_int_equal(phase_layer_norms(&s.knot, &h, 0, &n, &why), OK);
    assert_true(n.attn && n.ffn && !n.q && !n.k && !n.post_attn && !n.post_ffn);
    small_free(&s);
    s = (SmallKnot){.architecture = "qwen3", .left_out = "blk_0_attn_k_norm_weight"};
    small_open(&s, &h);
    assert_int_equal(phase_layer_norms(&s.knot, &h, 0, &n, &why), ERR_MISSING_TENSOR);
    assert_non_null(strstr(why.text, "blk_0_attn_k_norm_weight"));
    small_free(&s);
    s = (SmallKnot){
        .architecture = "qwen3", .changed = "blk_0_attn_q_norm_weight", .changed_rows = 1, .changed_cols = 64};
    small_open(&s, &h);
    assert_int_equal(phase_layer_norms(&s.knot, &h, 0, &n, &why), ERR_SHAPE);
    small_free(&s);
}

static void test_bounds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        PhaseBound bound;
    } good[] = {{"0", 0},           {"5", 20},   {"5.attn", 20},   {"5.ffn_gate", 21}, {"5.ffn_up", 22},
                {"5.ffn_down", 23}, {"28", 112}, {"28.attn", 112}, {"end", 112},       {"27.ffn_down", 111},
                {"007", 28}};
    static const char *const bad[] = {
        "",        ".",       "x",       "-1",          "5.",         "5.x",
        "5.attn.", "5.attnx", "29",      "28.ffn_gate", "5 ",         " 5",
        "+5",      "ende",    "en",      "4294967296",  "4294967295", "99999999999999999999",
        "5,6",     "0x5",     "5..attn", "5.ATTN"};
    PhaseBound b;
    Why why;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(phase_parse_bound(good[i].text, strlen(good[i].text), 28, &b, &why), OK);
        assert_int_equal(b, good[i].bound);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(phase_parse_bound(bad[i], strlen(bad[i]), 28, &b, &why), ERR_USAGE);
    assert_int_equal(phase_parse_bound("5.attn-6", 1, 28, &b, &why), OK); /* only as far as told */
}

static void ranges_fail(const char *text, const char *words)
{
    PhaseRange r[4];
    uint32_t count;
    Why why = {""};
    assert_int_equal(phase_parse_ranges(text, 28, r, 4, &count, &why), ERR_USAGE);
    if (!strstr(why.text, words)) fail_msg("\"%s\" does not say \"%s\"", why.text, words);
}

static void test_ranges(void **state)
{
    (void)state;
    PhaseRange r[4];
    uint32_t count;
    Why why = {""};
    char text[PHASE_RANGE_TEXT_MAX];
    assert_int_equal(phase_parse_ranges("0-14,14-end", 28, r, 4, &count, &why), OK);
    assert_true(count == 2 && r[0].first == 0 && r[0].last == 56 && r[1].first == 56 && r[1].last == 112);
    assert_int_equal(
        phase_parse_ranges("0-2.ffn_up,2.ffn_up-5.attn,5-5.ffn_down,5.ffn_down-28", 28, r, 4, &count, &why),
        OK);
    assert_int_equal(count, 4);
    assert_string_equal(phase_range_text(r[0], 28, text), "0-2.ffn_up");
    assert_string_equal(phase_range_text(r[1], 28, text), "2.ffn_up-5");
    assert_string_equal(phase_range_text(r[3], 28, text), "5.ffn_down-end");
    ranges_fail("", "no range");
    ranges_fail("0", "no range");
    ranges_fail("0-14", "stop at layer 14");
    ranges_fail("0-14,15-end", "gap");
    ranges_fail("0-14,13-end", "overlap");
    ranges_fail("1-end", "gap");
    ranges_fail("0-0,0-end", "empty");
    ranges_fail("14-0", "empty");
    ranges_fail("0-end,", "no range");
    ranges_fail(",0-end", "no range");
    ranges_fail("0-14-end", "14-end");
    ranges_fail("0-end,end-end", "empty");
    ranges_fail("0-1,1-2,2-3,3-4,4-end", "more than 4");
    ranges_fail("0-99", "beyond");
    char longest[PHASE_RANGE_TEXT_MAX];
    PhaseRange far = {phase_bound(511, PHASE_FFN_DOWN), phase_bound(512, PHASE_FFN_DOWN)};
    assert_true(strlen(phase_range_text(far, 600, longest)) < PHASE_RANGE_TEXT_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrices), cmocka_unit_test(test_missing_matrices), cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_norms),    cmocka_unit_test(test_bounds),           cmocka_unit_test(test_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
