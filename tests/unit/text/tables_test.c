/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "small_vocab.h"

static void test_every_token_is_found(void **state)
{
    (void)state;
    SmallVocab *s = small_bpe(VOCAB_PRE_GPT2);
    assert_int_equal(small_build(s, NULL), OK);
    for (uint32_t id = 0; id < s->vocab.tokens; id++) {
        uint32_t bytes;
        const uint8_t *text = vocab_token(&s->vocab, id, &bytes);
        assert_int_equal(tables_find(s->tokenizer, text, bytes), id);
        assert_int_equal(tables_find(s->tokenizer, text, bytes - 1) == id, 0);
    }
    assert_int_equal(tokenizer_find(s->tokenizer, "nothing of the kind"), VOCAB_NO_TOKEN);
    assert_int_equal(tokenizer_find(s->tokenizer, ""), VOCAB_NO_TOKEN);
    small_free(s);
}

static void test_the_first_of_equal_texts_and_merges_counts(void **state)
{
    (void)state;
    SmallVocab *s = small_bpe(VOCAB_PRE_GPT2);
    uint32_t first = small_find(s, "the"), rank = 0;
    small_word(s, "the", VOCAB_NORMAL, 0);
    s->merges[s->vocab.merges++] = s->merges[rank];
    assert_int_equal(small_build(s, NULL), OK);
    assert_int_equal(tokenizer_find(s->tokenizer, "the"), first);
    assert_int_equal(tables_merge(s->tokenizer, s->merges[rank].left, s->merges[rank].right), rank);
    assert_int_equal(tables_merge(s->tokenizer, first, first), VOCAB_NO_TOKEN);
    small_free(s);
}

/* Source  the byte-to-character table that GPT-2's vocabulary was written with. */
static void test_printable_bytes(void **state)
{
    (void)state;
    static const struct {
        uint8_t byte;
        const char *text;
    } facts[] = {{' ', "Ġ"},  {'\n', "Ċ"}, {'\t', "ĉ"}, {'!', "!"},  {'~', "~"},
                 {0x7F, "ġ"}, {0x80, "Ģ"}, {0xA0, "ł"}, {0xA1, "¡"}, {0xAD, "Ń"},
                 {0xAE, "®"}, {0xFF, "ÿ"}, {0, "Ā"}};
    uint8_t out[2];
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        assert_int_equal(tables_printable(facts[i].byte, out), strlen(facts[i].text));
        assert_memory_equal(out, facts[i].text, strlen(facts[i].text));
    }
}

static void test_a_piece_of_1025_bytes_is_refused(void **state)
{
    (void)state;
    static uint8_t text[TOKENIZER_PIECE_BYTES_MAX + 1];
    memset(text, 'x', sizeof text);
    Why why = {{0}};
    SmallVocab *fits = small_bpe(VOCAB_PRE_GPT2), *large = small_bpe(VOCAB_PRE_GPT2);
    small_add(fits, text, sizeof text - 1, VOCAB_NORMAL, 0);
    small_add(large, text, sizeof text, VOCAB_NORMAL, 0);
    assert_int_equal(small_build(fits, &why), OK);
    assert_int_equal(small_build(large, &why), ERR_TOO_LARGE);
    small_free(fits);
    small_free(large);
}

/* Every smaller arena gives ERR_MEMORY, never a crash. */
static void test_every_shortage_of_memory(void **state)
{
    (void)state;
    SmallVocab *s = small_sentencepiece(true);
    assert_int_equal(small_build(s, NULL), OK);
    size_t bytes = tokenizer_bytes(&s->vocab);
    for (size_t room = 0; room < bytes; room += 97) {
        void *memory = malloc(room + 1);
        Arena arena = arena_make(memory, room);
        Tokenizer *t = NULL;
        Error error = tokenizer_build(&s->vocab, &arena, &t, NULL);
        assert_true(error == ERR_MEMORY || (error == OK && room + ARENA_ALIGN >= bytes));
        free(memory);
    }
    small_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_token_is_found),
        cmocka_unit_test(test_the_first_of_equal_texts_and_merges_counts),
        cmocka_unit_test(test_printable_bytes),
        cmocka_unit_test(test_a_piece_of_1025_bytes_is_refused),
        cmocka_unit_test(test_every_shortage_of_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
