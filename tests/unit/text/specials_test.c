/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "small_vocab.h"

static size_t match(const SmallVocab *s, const char *text, bool control, const char *want)
{
    uint32_t id = VOCAB_NO_TOKEN;
    size_t length = specials_match(s->tokenizer, (const uint8_t *)text, strlen(text), control, &id);
    assert_int_equal(length, strlen(want));
    if (length) assert_int_equal(id, small_find(s, want));
    return length;
}

static void test_the_longest_wins(void **state)
{
    (void)state;
    SmallVocab *s = small_bpe(VOCAB_PRE_GPT2);
    assert_int_equal(small_build(s, NULL), OK);
    match(s, "<tool> x", true, "<tool>");
    match(s, "<tool>> x", true, "<tool>>");
    match(s, "<tool", true, "");
    match(s, "<|im_start|>user", true, "<|im_start|>");
    match(s, "the", true, "");
    match(s, "[PAD]", true, ""); /* unused tokens are never matched */
    small_free(s);
}

static void test_control_only_where_allowed(void **state)
{
    (void)state;
    SmallVocab *s = small_bpe(VOCAB_PRE_GPT2), *g = small_sentencepiece(false);
    assert_int_equal(small_build(s, NULL), OK);
    assert_int_equal(small_build(g, NULL), OK);
    match(s, "<|im_start|>", false, "");
    match(s, "<tool>>", false, "<tool>>");
    match(g, "<unk>", false, "");
    match(g, "<unk>", true, "<unk>");
    match(g, "\n\n\n", false, "\n\n");
    match(g, "<start_of_turn>", false,
          ""); /* a marker of turns, although the file says user-defined */
    match(g, "<start_of_turn>", true, "<start_of_turn>");
    small_free(s);
    small_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_longest_wins),
                                       cmocka_unit_test(test_control_only_where_allowed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
