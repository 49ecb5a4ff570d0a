/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "small_random.h"
#include "text/pretokenize.h"

/* The words of `text` must be those of `want`, where words are separated by "|". */
static void expect(VocabPre pre, const char *text, const char *want)
{
    size_t at = 0, bytes = strlen(text);
    while (at < bytes) {
        size_t end = pretokenize_word(pre, (const uint8_t *)text, bytes, at),
               length = strcspn(want, "|");
        if (end - at != length || memcmp(text + at, want, length) != 0)
            fail_msg("pre %d, \"%s\": got \"%.*s\", want \"%.*s\"", (int)pre, text, (int)(end - at),
                     text + at, (int)length, want);
        at = end;
        want += length;
        if (*want) want++;
    }
    assert_string_equal(want, "");
}

/* Source  the expressions of the models' tokenizer.json, evaluated with a regular-expression library. */
static void test_gpt2(void **state)
{
    (void)state;
    expect(VOCAB_PRE_GPT2, "Hello world", "Hello| world");
    expect(VOCAB_PRE_GPT2, "a  b   c", "a| | b|  | c");
    expect(VOCAB_PRE_GPT2, "don't DON'T", "don|'t| DON|'|T");
    expect(VOCAB_PRE_GPT2, "I'll 'll  ", "I|'ll| '|ll|  ");
    expect(VOCAB_PRE_GPT2, "x 1234567", "x| 1234567");
    expect(VOCAB_PRE_GPT2, "\r\n\r\nx", "\r\n\r|\n|x");
    expect(VOCAB_PRE_GPT2, "a!?  \n", "a|!?|  \n");
    expect(VOCAB_PRE_GPT2, "x\u00A0y", "x|\u00A0|y");
}

static void test_smollm(void **state)
{
    (void)state;
    expect(VOCAB_PRE_SMOLLM, "x 123", "x| |1|2|3");
    expect(VOCAB_PRE_SMOLLM, "x  1", "x|  |1");
    expect(VOCAB_PRE_SMOLLM, "1'2's", "1|'|2|'s");
    expect(VOCAB_PRE_SMOLLM, "a\u0664\u00BD b", "a|\u0664|\u00BD| b");
    expect(VOCAB_PRE_SMOLLM, "v1.5!", "v|1|.|5|!");
}

static void test_qwen2(void **state)
{
    (void)state;
    expect(VOCAB_PRE_QWEN2, "don't DON'T", "don|'t| DON|'T");
    expect(VOCAB_PRE_QWEN2, "1234", "1|2|3|4");
    expect(VOCAB_PRE_QWEN2, "a  b   c", "a| | b|  | c");
    expect(VOCAB_PRE_QWEN2, "\r\n\r\n", "\r\n\r\n");
    expect(VOCAB_PRE_QWEN2, " \n  \n  x", " \n  \n| | x");
    expect(VOCAB_PRE_QWEN2, "(foo)\n\nbar", "(foo|)\n\n|bar");
    expect(VOCAB_PRE_QWEN2, "\tx\nx", "\tx|\n|x");
    expect(VOCAB_PRE_QWEN2, "x\u00A0y", "x|\u00A0y");
    expect(VOCAB_PRE_QWEN2, "a\u3000\u3000b", "a|\u3000|\u3000b");
    expect(VOCAB_PRE_QWEN2, " !!\r\nx", " !!\r\n|x");
    expect(VOCAB_PRE_QWEN2, "'\u017Fo", "'\u017F|o"); /* long s equals s in any case */
    expect(VOCAB_PRE_QWEN2, "'ring 'RExx", "'ring| '|RExx");
    expect(VOCAB_PRE_QWEN2, "e\u0301x", "e|\u0301x");
    expect(VOCAB_PRE_QWEN2, " 5", " |5");
}

static void test_llama(void **state)
{
    (void)state;
    expect(VOCAB_PRE_LLAMA_BPE, "1234567", "123|456|7");
    expect(VOCAB_PRE_LLAMA_BPE, "x 12", "x| |12");
    expect(VOCAB_PRE_LLAMA_BPE, "I'M", "I|'M");
}

static void test_bytes_that_are_no_character_are_symbols(void **state)
{
    (void)state;
    for (VocabPre pre = VOCAB_PRE_QWEN2; pre <= VOCAB_PRE_SMOLLM; pre++) {
        expect(pre, "a \xFF\xC0 b", "a| \xFF\xC0| b");
        expect(pre, "1\xED\xA0\x80", "1|\xED\xA0\x80");
    }
}

/* Words end to end, each at least a byte, whatever the bytes. */
static void test_any_bytes_come_to_an_end(void **state)
{
    (void)state;
    static const char alphabet[] = " \n\r\t'sStTrReElLvVdDmM19a.\xC3\xA9\xE2\x80\xA8\xFF\xCC\x81";
    uint8_t text[64];
    for (int round = 0; round < 20000; round++) {
        size_t bytes = small_random(64);
        for (size_t i = 0; i < bytes; i++)
            text[i] = (uint8_t)alphabet[small_random(sizeof alphabet - 1)];
        for (VocabPre pre = VOCAB_PRE_QWEN2; pre <= VOCAB_PRE_SMOLLM; pre++)
            for (size_t at = 0, end; at < bytes; at = end) {
                end = pretokenize_word(pre, text, bytes, at);
                assert_true(end > at && end <= bytes);
            }
    }
}

static void test_known(void **state)
{
    (void)state;
    assert_true(pretokenize_knows(VOCAB_PRE_SMOLLM));
    assert_false(pretokenize_knows(VOCAB_PRE_NONE));
    assert_false(pretokenize_knows((VocabPre)77));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_smollm),
        cmocka_unit_test(test_qwen2),
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_bytes_that_are_no_character_are_symbols),
        cmocka_unit_test(test_any_bytes_come_to_an_end),
        cmocka_unit_test(test_known)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
