/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "small_random.h"
#include "small_vocab.h"

static SmallVocab *build(VocabPre pre)
{
    SmallVocab *s = small_bpe(pre);
    assert_int_equal(small_build(s, NULL), OK);
    return s;
}

/* Pieces in printable form, separated by spaces. */
static void expect(const SmallVocab *s, const char *text, const char *want)
{
    size_t count;
    const uint32_t *ids = small_encode(s, text, strlen(text), 0, &count);
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

static void test_ranks_decide(void **state)
{
    (void)state;
    SmallVocab *s = build(VOCAB_PRE_GPT2);
    expect(s, "the", "the");
    expect(s, "hello", "hello");
    expect(s, "then the thing", "the n Ġthe Ġ th ing");
    expect(s, "aaaaa", "aaaa a");
    expect(s, "aaaaaaaaaaa", "aaaaaaaa aa a");
    expect(s, "abc", "abc");
    expect(s, "abca", "abc a");
    expect(s, "bcab", "bc ab"); /* b c ranks before a b */
    expect(s, "aabc", "aa bc"); /* a a ranks before all of them */
    small_free(s);
}

static void test_whole_words_first(void **state)
{
    (void)state;
    SmallVocab *gpt = small_bpe(VOCAB_PRE_GPT2), *llama = small_bpe(VOCAB_PRE_LLAMA_BPE);
    small_word(gpt, "zebra", VOCAB_NORMAL, 0); /* no merge leads there */
    small_word(llama, "zebra", VOCAB_NORMAL, 0);
    small_word(llama, "quagga", VOCAB_CONTROL, 0);
    assert_int_equal(small_build(gpt, NULL), OK);
    assert_int_equal(small_build(llama, NULL), OK);
    expect(gpt, "zebra", "z e b r a");
    expect(llama, "zebra", "zebra");
    expect(llama, "zebras", "z e b r a s");
    expect(llama, "quagga", "q u a g g a");
    small_free(gpt);
    small_free(llama);
}

static void test_nfc_for_qwen2_only(void **state)
{
    (void)state;
    SmallVocab *qwen = build(VOCAB_PRE_QWEN2), *gpt = build(VOCAB_PRE_GPT2);
    expect(qwen, "e\u0301", "Ã©");
    expect(gpt, "e\u0301", "e Ì ģ");
    small_free(qwen);
    small_free(gpt);
}

static void test_bytes_without_a_token_are_dropped(void **state)
{
    (void)state;
    SmallVocab *s = small_bpe(VOCAB_PRE_GPT2);
    s->text[s->ends['h' - 1] + 0] =
        1; /* the token of h becomes something that stands for no byte */
    assert_int_equal(small_build(s, NULL), OK);
    size_t count;
    const uint32_t *ids = small_encode(s, "xhy", 3, 0, &count);
    assert_int_equal(count, 2);
    assert_int_equal(ids[0], 'x');
    assert_int_equal(ids[1], 'y');
    small_free(s);
}

/* detokenize(tokenize(x)) == x for random bytes, byte by byte and as text. */
static void test_any_bytes_round_trip(void **state)
{
    (void)state;
    SmallVocab *s[] = {build(VOCAB_PRE_GPT2), build(VOCAB_PRE_SMOLLM), build(VOCAB_PRE_LLAMA_BPE)};
    for (int round = 0; round < 3000; round++) {
        uint8_t text[200], back[2000];
        size_t bytes = small_random(sizeof text), count, length = 0;
        for (size_t i = 0; i < bytes; i++)
            text[i] = (uint8_t)(round % 2 ? small_random(256)
                                          : (uint8_t)" the'\n1a\xC3\xA9\xFF"[small_random(11)]);
        const SmallVocab *v = s[round % 3];
        const uint32_t *ids = small_encode(v, text, bytes, TOKENIZE_SPECIALS, &count);
        for (size_t i = 0; i < count; i++) {
            size_t piece;
            assert_int_equal(
                tokenizer_piece(v->tokenizer, ids[i], true, back + length, 1024, &piece, NULL), OK);
            length += piece;
        }
        assert_int_equal(length, bytes);
        assert_memory_equal(back, text, bytes);
    }
    for (int i = 0; i < 3; i++) small_free(s[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks_decide),
                                       cmocka_unit_test(test_whole_words_first),
                                       cmocka_unit_test(test_nfc_for_qwen2_only),
                                       cmocka_unit_test(test_bytes_without_a_token_are_dropped),
                                       cmocka_unit_test(test_any_bytes_round_trip)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
