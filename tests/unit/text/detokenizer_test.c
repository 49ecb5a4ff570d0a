/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "small_vocab.h"
#include "text/detokenizer.h"

/* Byte tokens have their byte as id: any bytes can be pushed one by one. */
static SmallVocab *vocab;

static int open_vocab(void **state)
{
    (void)state;
    vocab = small_bpe(VOCAB_PRE_GPT2);
    return small_build(vocab, NULL) == OK ? 0 : -1;
}

static int close_vocab(void **state)
{
    (void)state;
    small_free(vocab);
    return 0;
}

typedef struct Answer {
    Detokenizer d;
    char text[1 << 16];
    size_t bytes;
    bool stopped;
} Answer;

static Answer answer;

static void begin(const char *stop, const char *other)
{
    detokenizer_start(&answer.d, vocab->tokenizer, false);
    answer.bytes = 0;
    answer.stopped = false;
    if (stop) assert_int_equal(detokenizer_add_stop(&answer.d, stop, strlen(stop), NULL), OK);
    if (other) assert_int_equal(detokenizer_add_stop(&answer.d, other, strlen(other), NULL), OK);
}

static void push(uint32_t id)
{
    size_t bytes;
    assert_int_equal(detokenizer_push(&answer.d, id, (uint8_t *)answer.text + answer.bytes,
                                      DETOKENIZER_OUT_BYTES_MAX, &bytes, &answer.stopped, NULL),
                     OK);
    answer.bytes += bytes;
}

static void push_bytes(const char *bytes)
{
    for (const char *b = bytes; *b; b++) push((uint8_t)*b);
}

static void expect_so_far(const char *want)
{
    answer.text[answer.bytes] = '\0';
    assert_string_equal(answer.text, want);
}

static void expect_end(const char *want, bool stopped)
{
    size_t bytes;
    assert_int_equal(detokenizer_end(&answer.d, (uint8_t *)answer.text + answer.bytes,
                                     DETOKENIZER_OUT_BYTES_MAX, &bytes, NULL),
                     OK);
    answer.bytes += bytes;
    expect_so_far(want);
    assert_int_equal(answer.stopped, stopped);
}

static void test_characters_are_never_split(void **state)
{
    (void)state;
    begin(NULL, NULL);
    push(0xF0), push(0x9F), push(0x98);
    expect_so_far("");
    push(0x80);
    expect_so_far("😀");
    push_bytes("é");
    expect_end("😀é", false);
}

/* As browsers decode: one U+FFFD per maximal subpart. Source  WHATWG Encoding, "UTF-8 decoder". */
static void test_invalid_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *text;
    } facts[] = {{"\xE2\x9C\x85\x85", "✅\uFFFD"},
                 {"\xC0\x80", "\uFFFD\uFFFD"},
                 {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
                 {"\xF5\x80\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
                 {"\xF0\x9F\x98x", "\uFFFDx"},
                 {"\xE6\xAD", "\uFFFD"},
                 {"\xF0\x9F", "\uFFFD"},
                 {"\xE2\xE2\x9C\x85", "\uFFFD✅"},
                 {"a\xFF"
                  "b",
                  "a\uFFFDb"},
                 {"\xF0\x80\x80\x41", "\uFFFD\uFFFD\uFFFDA"}};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        begin(NULL, NULL);
        push_bytes(facts[i].bytes);
        expect_end(facts[i].text, false);
    }
}

static void test_stops_over_token_borders(void **state)
{
    (void)state;
    begin("own fox", NULL);
    push_bytes("brown f");
    expect_so_far("br");
    push_bytes("ox jumps");
    expect_end("br", true);
    begin("\nUser:", NULL);
    push_bytes("yes\nUsual\nUser: no");
    expect_end("yes\nUsual", true);
    begin("lot", NULL); /* begins inside one token and ends in a later one */
    push(small_find(vocab, "hello")), push_bytes("!lo");
    expect_so_far("hello!");
    push('t'), push('x');
    expect_end("hello!", true);
    begin("ello", NULL); /* inside one token */
    push(small_find(vocab, "hello"));
    expect_end("h", true);
}

static void test_held_text_is_released(void **state)
{
    (void)state;
    begin("abc", NULL);
    push_bytes("ab");
    expect_so_far("");
    expect_end("ab", false);
    begin("abc", NULL);
    push_bytes("abab");
    expect_so_far("ab");
    push_bytes("x");
    expect_so_far("ababx");
    expect_end("ababx", false);
    begin("aab", NULL);
    push_bytes("aaaab");
    expect_end("aa", true);
    begin("x\uFFFD", NULL); /* the end repairs, and the repaired text may complete a stop */
    push_bytes("ax\xE6");
    expect_so_far("a");
    expect_end("a", false);
    assert_true(answer.d.stopped);
}

static void test_overlapping_stops(void **state)
{
    (void)state;
    begin("abc", "ab");
    push_bytes("xabc");
    expect_end("x", true);
    begin("bcde", "cd"); /* complete first counts */
    push_bytes("abcde");
    expect_end("ab", true);
    begin("cd", "abcd"); /* complete at the same byte: the one that begins first */
    push_bytes("xabcd");
    expect_end("x", true);
    begin("é", NULL);
    push(0xC3);
    expect_so_far("");
    push(0xA9);
    expect_end("", true);
}

static void test_limits(void **state)
{
    (void)state;
    static char text[DETOKENIZER_STOP_BYTES_MAX + 1];
    Why why = {{0}};
    memset(text, 'a', sizeof text);
    begin(NULL, NULL);
    assert_int_equal(detokenizer_add_stop(&answer.d, "", 0, &why), ERR_RANGE);
    assert_int_equal(detokenizer_add_stop(&answer.d, text, sizeof text, &why), ERR_RANGE);
    for (int i = 0; i < DETOKENIZER_STOPS_MAX; i++)
        assert_int_equal(detokenizer_add_stop(&answer.d, text, sizeof text - 1, &why), OK);
    assert_int_equal(detokenizer_add_stop(&answer.d, "x", 1, &why), ERR_RANGE);
    for (size_t i = 0; i + 2 < sizeof text; i++) push('a');
    expect_so_far("");
    push('b');
    assert_int_equal(answer.bytes, sizeof text - 1);
    for (size_t i = 0; i + 1 < sizeof text; i++) push('a');
    assert_true(answer.stopped);
    assert_int_equal(answer.bytes, sizeof text - 1);
    size_t bytes;
    bool stopped;
    begin(NULL, NULL);
    assert_int_equal(
        detokenizer_push(&answer.d, 'a', (uint8_t *)answer.text, 2, &bytes, &stopped, &why),
        ERR_CAPACITY);
    assert_int_equal(detokenizer_push(&answer.d, vocab->vocab.tokens, (uint8_t *)answer.text,
                                      DETOKENIZER_OUT_BYTES_MAX, &bytes, &stopped, &why),
                     ERR_RANGE);
    assert_int_equal(detokenizer_end(&answer.d, (uint8_t *)answer.text, 2, &bytes, &why),
                     ERR_CAPACITY);
}

static void test_specials(void **state)
{
    (void)state;
    begin(NULL, NULL);
    push('a'), push(small_find(vocab, "<|im_end|>")), push(small_find(vocab, "<tool>"));
    expect_end("a<tool>", false);
    begin(NULL, NULL);
    answer.d.specials = true;
    push('a'), push(small_find(vocab, "<|im_end|>"));
    expect_end("a<|im_end|>", false);
}

static void test_sentencepiece_space(void **state)
{
    (void)state;
    SmallVocab *mine = vocab, *s = vocab = small_sentencepiece(true);
    assert_int_equal(small_build(s, NULL), OK);
    begin(NULL, NULL);
    push(small_find(s, "▁the")), push(small_find(s, "▁a")), push(small_find(s, "</s>")),
        push(small_find(s, "▁a"));
    expect_end("the aa", false);
    begin(NULL, NULL);
    push(small_find(s, "<0x20>")), push(small_find(s, "▁a"));
    expect_end("  a", false); /* a byte token is no space that was put in front */
    s->vocab.add_space_prefix = false;
    begin(NULL, NULL);
    push(small_find(s, "▁the"));
    expect_end(" the", false);
    small_free(s);
    vocab = mine;
}

/* A tag of calls that is a control token is text where calls are read. */
static void test_tags(void **state)
{
    (void)state;
    SmallVocab *s = small_bpe(VOCAB_PRE_GPT2);
    uint32_t open = small_word(s, "<tool_call>", VOCAB_CONTROL, 0),
             close = small_word(s, "</tool_call>", VOCAB_CONTROL, 0),
             other = small_word(s, "<tool_calls>", VOCAB_CONTROL, 0);
    assert_int_equal(small_build(s, NULL), OK);
    for (int tags = 0; tags < 2; tags++) {
        Detokenizer d;
        uint8_t text[DETOKENIZER_OUT_BYTES_MAX * 3];
        size_t used = 0, bytes;
        bool stopped;
        detokenizer_start(&d, s->tokenizer, false);
        d.tags = tags;
        const uint32_t ids[] = {open, other, close};
        for (size_t i = 0; i < 3; i++, used += bytes)
            assert_int_equal(detokenizer_push(&d, ids[i], text + used, DETOKENIZER_OUT_BYTES_MAX,
                                              &bytes, &stopped, NULL),
                             OK);
        assert_int_equal(used, tags ? 23 : 0);
        if (tags) assert_memory_equal(text, "<tool_call></tool_call>", 23);
    }
    small_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tags),
                                       cmocka_unit_test(test_characters_are_never_split),
                                       cmocka_unit_test(test_invalid_bytes),
                                       cmocka_unit_test(test_stops_over_token_borders),
                                       cmocka_unit_test(test_held_text_is_released),
                                       cmocka_unit_test(test_overlapping_stops),
                                       cmocka_unit_test(test_limits),
                                       cmocka_unit_test(test_specials),
                                       cmocka_unit_test(test_sentencepiece_space)};
    return cmocka_run_group_tests(tests, open_vocab, close_vocab);
}
