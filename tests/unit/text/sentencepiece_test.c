/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "small_vocab.h"

static SmallVocab *build(bool space_prefix)
{
    SmallVocab *s = small_sentencepiece(space_prefix);
    assert_int_equal(small_build(s, NULL), OK);
    return s;
}

/* Pieces separated by spaces. */
static void expect(const SmallVocab *s, const char *text, unsigned flags, const char *want)
{
    size_t count;
    const uint32_t *ids = small_encode(s, text, strlen(text), flags, &count);
    for (size_t i = 0; i < count; i++) {
        uint32_t bytes;
        const uint8_t *piece = vocab_token(&s->vocab, ids[i], &bytes);
        if (strncmp(want, (const char *)piece, bytes) != 0 || (want[bytes] != ' ' && want[bytes]))
            fail_msg("\"%s\": piece %zu is \"%.*s\", want \"%s\"", text, i, (int)bytes,
                     (const char *)piece, want);
        want += bytes + (want[bytes] == ' ');
    }
    assert_string_equal(want, "");
}

static void test_scores_decide(void **state)
{
    (void)state;
    SmallVocab *s = build(false);
    expect(s, "the", 0, "t he");
    expect(s, " the", 0, "▁the");
    expect(s, "aaaaaaa", 0, "aaaa aa a");
    expect(s, "world", 0, "world");
    expect(s, "ahello", 0, "a he ll o"); /* ll scores higher than lo */
    expect(s, "erin", 0, "er in");
    expect(s, "hello  the", 0, "he ll o ▁ ▁the");
    expect(s, "o  o", 0, "o ▁▁ o");
    small_free(s);
}

static void test_space_prefix(void **state)
{
    (void)state;
    SmallVocab *s = build(true);
    expect(s, "the", 0, "▁the");
    expect(s, " the", 0, "▁ ▁the"); /* ▁t scores highest */
    expect(s, "", 0, "");
    expect(s, "the</s>the", TOKENIZE_SPECIALS, "▁the </s> ▁the");
    expect(s, "the\nthe", TOKENIZE_SPECIALS,
           "▁the \n t he"); /* no space after what is part of the text */
    small_free(s);
}

static void test_text_never_becomes_a_control_token(void **state)
{
    (void)state;
    SmallVocab *s = build(false);
    expect(s, "</s>", 0, "</ s>");
    expect(s, "</s>", TOKENIZE_SPECIALS, "</s>");
    expect(s, "<0x41>", 0, "< <0x30> <0x78> <0x34> <0x31> >");
    small_free(s);
}

static void test_byte_fallback(void **state)
{
    (void)state;
    SmallVocab *s = build(false);
    expect(s, "\u4E2D", 0, "<0xE4> <0xB8> <0xAD>");
    expect(s, "é\xFF", 0, "é <0xFF>");
    expect(s, "\xE6\xAD", 0, "<0xE6> <0xAD>");
    small_free(s);
    SmallVocab *none = small_empty(VOCAB_SENTENCEPIECE, VOCAB_PRE_NONE);
    none->vocab.unknown = small_word(none, "<unk>", VOCAB_UNKNOWN, 0);
    small_word(none, "a", VOCAB_NORMAL, 0);
    assert_int_equal(small_build(none, NULL), OK);
    expect(none, "ab", 0, "a <unk>");
    small_free(none);
}

static void test_bos(void **state)
{
    (void)state;
    SmallVocab *s = build(true);
    expect(s, "the", TOKENIZE_BOS, "<s> ▁the");
    expect(s, "<s>the", TOKENIZE_BOS | TOKENIZE_SPECIALS, "<s> ▁the");
    expect(s, "", TOKENIZE_BOS, "<s>");
    s->vocab.add_bos = false;
    expect(s, "the", TOKENIZE_BOS, "▁the");
    small_free(s);
}

static void test_bytes_of_pieces(void **state)
{
    (void)state;
    assert_int_equal(sentencepiece_byte((const uint8_t *)"<0x41>", 6), 'A');
    assert_int_equal(sentencepiece_byte((const uint8_t *)"<0xfF>", 6), 255);
    assert_int_equal(sentencepiece_byte((const uint8_t *)"<0xG1>", 6), -1);
    assert_int_equal(sentencepiece_byte((const uint8_t *)"<0x1>", 5), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scores_decide),
                                       cmocka_unit_test(test_space_prefix),
                                       cmocka_unit_test(test_text_never_becomes_a_control_token),
                                       cmocka_unit_test(test_byte_fallback),
                                       cmocka_unit_test(test_bos),
                                       cmocka_unit_test(test_bytes_of_pieces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
