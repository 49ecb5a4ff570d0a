/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "host/near.h"
#include "host/zoo.h"

static void distances(void **state)
{
    (void)state;
    assert_int_equal(near_distance("bench", "bench"), 0);
    assert_int_equal(near_distance("tok", "tokenize"), 1);
    assert_int_equal(near_distance("bnech", "bench"), 2); /* neighbours swapped: one edit */
    assert_int_equal(near_distance("benhc", "bench"), 2);
    assert_int_equal(near_distance("max-tokns", "max-tokens"), 2);
    assert_int_equal(near_distance("mxa-tokns", "max-tokens"), 3);
    assert_int_equal(near_distance("serve", "bench"), NEAR_FAR);
    assert_int_equal(near_distance("go", "rm"), NEAR_FAR);
    assert_int_equal(near_distance("x", "rm"), NEAR_FAR);
    assert_int_equal(near_distance("", "rm"), NEAR_FAR);
}

static void long_names(void **state)
{
    char longest[64], longer[65];
    (void)state;
    memset(longest, 'a', 63);
    memset(longer, 'a', 64);
    longest[63] = longer[64] = 0;
    assert_int_equal(near_distance(longest, longest), 0);
    assert_int_equal(near_distance(longer, longer), NEAR_FAR);
    assert_int_equal(near_distance(longest, longer), NEAR_FAR);
    assert_null(near_model(longer));
}

static void models(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"qwen2.5-coder:1.5b", "qwen2.5-coder-1.5b"},
                                           {"qwen2.5-coder:0.5b", "qwen2.5-coder-0.5b"},
                                           {"qwen2.5-coder:7b", "qwen2.5-coder-7b"},
                                           {"qwen2.5-coder", "qwen2.5-coder-1.5b"},
                                           {"qwen2.5-coder:latest", "qwen2.5-coder-1.5b"},
                                           {"Qwen2.5-Coder-0.5B-Instruct", "qwen2.5-coder-0.5b"},
                                           {"smollm2:135m", "smollm2-135m"},
                                           {"smollm2", "smollm2-135m"},
                                           {"smolllm2-135m", "smollm2-135m"},
                                           {"gemma3:270m", "gemma3-270m"},
                                           {"gemma-3-270m", "gemma3-270m"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        assert_string_equal(near_model(pairs[i][0]), pairs[i][1]);
    for (size_t i = 0; i < zoo_count; i++)
        assert_string_equal(near_model(zoo_models[i].name), zoo_models[i].name);
    assert_null(near_model("llama3.2:1b"));
    assert_null(near_model("no-such-model"));
    assert_null(near_model("::"));
    assert_null(near_model(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(distances), cmocka_unit_test(long_names),
                                       cmocka_unit_test(models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
