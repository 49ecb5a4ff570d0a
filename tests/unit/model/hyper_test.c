/* SPDX-License-Identifier: Apache-2.0 */
/* Hyper-parameters: what each architecture means, and a refusal for every number and tensor that does not fit. */
#include "small_knot.h"

#include <math.h>

static Hyper hyper_of(SmallKnot s)
{
    Hyper h;
    Why why = {""};
    if (small_hyper(&s, &h, &why) != OK) fail_msg("%s", why.text);
    small_free(&s);
    return h;
}

static void refused(SmallKnot s, Error error, const char *words)
{
    Hyper h;
    Why why = {""};
    assert_int_equal(small_hyper(&s, &h, &why), error);
    small_free(&s);
    if (!strstr(why.text, words)) fail_msg("\"%s\" does not say \"%s\"", why.text, words);
}

static void test_llama(void **state)
{
    (void)state;
    Hyper h = hyper_of((SmallKnot){.architecture = "llama"});
    assert_int_equal(h.arch, ARCH_LLAMA);
    assert_int_equal(h.rope_kind, ROPE_PAIRS);
    assert_int_equal(h.gate, GATE_SILU);
    assert_int_equal(h.layers, 2);
    assert_int_equal(h.vocabulary, 37);
    assert_int_equal(h.vocabulary_rows, SMALL_ROWS);
    assert_true(h.tied_head && !h.qk_norm && !h.post_norms);
    assert_true(h.attention_scale == 0.25f && h.embedding_scale == 1.0f && h.rope_scale_factor == 1.0f);
    assert_false(hyper_layer_is_local(&h, 0));
}

static void test_families(void **state)
{
    (void)state;
    Hyper h = hyper_of((SmallKnot){.architecture = "qwen2"});
    assert_true(h.arch == ARCH_QWEN2 && h.rope_kind == ROPE_HALVES && !h.qk_norm);
    h = hyper_of((SmallKnot){.architecture = "qwen3"});
    assert_true(h.arch == ARCH_QWEN3 && h.rope_kind == ROPE_HALVES && h.qk_norm && !h.post_norms);
    h = hyper_of((SmallKnot){.architecture = "gemma3", .extra_model = "\"sliding_window\":32,"});
    assert_true(h.arch == ARCH_GEMMA3 && h.gate == GATE_GELU_TANH && h.qk_norm && h.post_norms);
    assert_true(h.embedding_scale == 8.0f && h.window == 32 && h.window_pattern == 6 &&
                h.rope_base_local == 10000.0f);
    for (uint32_t l = 0; l < 12; l++) assert_int_equal(hyper_layer_is_local(&h, l), l != 5 && l != 11);
}

static void test_silent_file(void **state)
{
    (void)state;
    Hyper h = hyper_of((SmallKnot){
        .architecture = "llama",
        .extra_model =
            "\"kv_heads\":2,\"head_dim\":0,\"vocabulary\":0,\"context\":0,\"rope_base\":0,\"rope_dim\":0,"});
    assert_int_equal(h.head_dim, 16);
    assert_int_equal(h.vocabulary, SMALL_ROWS);
    assert_int_equal(h.rope_dim, 16);
    assert_true(h.rope_base == 10000.0f && h.context > 0);
}

static void test_scaling(void **state)
{
    (void)state;
    Hyper h = hyper_of((SmallKnot){
        .architecture = "qwen2",
        .extra_model = "\"rope_scaling\":\"yarn\",\"rope_scale_factor\":4,\"rope_original_context\":128,"});
    assert_true(h.rope_scaling == ROPE_SCALE_YARN && h.rope_scale_factor == 4.0f &&
                h.rope_original_context == 128);
    h = hyper_of((SmallKnot){.architecture = "llama",
                             .extra_model = "\"rope_scaling\":\"linear\",\"rope_scale_factor\":8,"});
    assert_true(h.rope_scaling == ROPE_SCALE_LINEAR && h.rope_scale_factor == 8.0f);
    h = hyper_of((SmallKnot){.architecture = "llama",
                             .extra_model = "\"rope_scaling\":\"llama3\",",
                             .added = {"rope_freqs_weight"}});
    assert_int_equal(h.rope_scaling, ROPE_SCALE_LLAMA3);
    refused((SmallKnot){.architecture = "llama", .extra_model = "\"rope_scaling\":\"llama3\","},
            ERR_MISSING_TENSOR, "rope_freqs_weight");
    refused((SmallKnot){.architecture = "llama",
                        .added = {"rope_freqs_weight"},
                        .changed = "rope_freqs_weight",
                        .changed_rows = 1,
                        .changed_cols = 7},
            ERR_SHAPE, "rope_freqs_weight");
    refused((SmallKnot){.architecture = "llama", .extra_model = "\"rope_scaling\":\"longrope\","},
            ERR_UNSUPPORTED, "longrope");
}

/* Named before any tensor is looked at: this one has none of the tensors that are asked for first. */
static void test_architecture_is_named_first(void **state)
{
    (void)state;
    refused((SmallKnot){.architecture = "qwen3moe", .left_out = "token_embd_weight"}, ERR_UNSUPPORTED,
            "qwen3moe");
    refused((SmallKnot){.architecture = "", .left_out = "token_embd_weight"}, ERR_UNSUPPORTED, "architecture");
    refused((SmallKnot){.architecture = "llam", .extra_model = "\"layers\":0,"}, ERR_UNSUPPORTED, "llam");
}

static void test_numbers_out_of_range(void **state)
{
    (void)state;
    static const char *const bad[][2] = {{"\"layers\":0,", "layers"},
                                         {"\"layers\":513,", "layers"},
                                         {"\"hidden\":0,", "hidden"},
                                         {"\"hidden\":65537,", "hidden"},
                                         {"\"ffn\":0,", "feed-forward"},
                                         {"\"ffn\":262145,", "feed-forward"},
                                         {"\"heads\":0,", "heads"},
                                         {"\"heads\":1025,", "heads"},
                                         {"\"heads\":3,", "share"},
                                         {"\"kv_heads\":5,", "key/value"},
                                         {"\"kv_heads\":3,", "share"},
                                         {"\"head_dim\":528,", "head"},
                                         {"\"norm_epsilon\":0,", "epsilon"},
                                         {"\"norm_epsilon\":-1e-6,", "epsilon"},
                                         {"\"norm_epsilon\":2,", "epsilon"},
                                         {"\"rope_base\":0.5,", "rope base"},
                                         {"\"rope_base\":-1,", "rope base"},
                                         {"\"rope_dim\":15,", "rotated"},
                                         {"\"rope_dim\":18,", "rotated"},
                                         {"\"rope_scaling\":\"linear\",\"rope_scale_factor\":-4,", "factor"},
                                         {"\"context\":2000000000,", "context"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        refused((SmallKnot){.architecture = "llama", .extra_model = bad[i][0]}, ERR_RANGE, bad[i][1]);
    refused((SmallKnot){.architecture = "llama", .extra_model = "\"head_dim\":20,\"rope_dim\":20,"},
            ERR_UNSUPPORTED, "multiple of 16");
}

static void test_tensors(void **state)
{
    (void)state;
    refused((SmallKnot){.architecture = "llama", .left_out = "token_embd_weight"}, ERR_MISSING_TENSOR,
            "token_embd_weight");
    refused((SmallKnot){.architecture = "llama", .left_out = "output_norm_weight"}, ERR_MISSING_TENSOR,
            "output_norm_weight");
    refused(
        (SmallKnot){
            .architecture = "llama", .changed = "token_embd_weight", .changed_rows = 40, .changed_cols = 60},
        ERR_SHAPE, "token_embd_weight");
    /* fewer rows than tokens, in the embedding and in the head */
    refused(
        (SmallKnot){
            .architecture = "llama", .changed = "token_embd_weight", .changed_rows = 36, .changed_cols = 64},
        ERR_SHAPE, "37 tokens");
    refused((SmallKnot){.architecture = "llama",
                        .added = {"output_weight"},
                        .changed = "output_weight",
                        .changed_rows = 36,
                        .changed_cols = 64},
            ERR_SHAPE, "output_weight");
    Hyper h = hyper_of((SmallKnot){.architecture = "llama",
                                   .added = {"output_weight"},
                                   .changed = "output_weight",
                                   .changed_rows = 37,
                                   .changed_cols = 64});
    assert_false(h.tied_head);
}

/* A tensor that would be left out of the computation is not passed over in silence. */
static void test_unknown_tensors(void **state)
{
    (void)state;
    static const char *const names[] = {"blk_0_ffn_gate_exps_weight",
                                        "blk_1_attn_sinks_weight",
                                        "blk_0_attn_q_norm_weight",
                                        "blk_2_attn_norm_weight",
                                        "blk_x_attn_norm_weight",
                                        "blk_00000001_attn_weight",
                                        "cls_weight",
                                        "blk_99999999999_attn_q_weight",
                                        "blk_"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        refused((SmallKnot){.architecture = "llama", .added = {names[i]}}, ERR_UNSUPPORTED, names[i]);
    hyper_of((SmallKnot){.architecture = "llama", .added = {"blk_1_attn_output_bias"}});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_silent_file),
        cmocka_unit_test(test_scaling),
        cmocka_unit_test(test_architecture_is_named_first),
        cmocka_unit_test(test_numbers_out_of_range),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_unknown_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
