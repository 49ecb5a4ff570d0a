/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <time.h>

#include "small_vocab.h"

static void test_unknown_kinds_are_refused(void **state)
{
    (void)state;
    Why why = {{0}};
    SmallVocab *s = small_bpe(VOCAB_PRE_NONE);
    assert_int_equal(small_build(s, &why), ERR_UNSUPPORTED);
    small_free(s);
    s = small_bpe((VocabPre)9);
    assert_int_equal(small_build(s, &why), ERR_UNSUPPORTED);
    small_free(s);
    s = small_bpe(VOCAB_PRE_GPT2);
    s->vocab.model = (VocabModel)7;
    assert_int_equal(small_build(s, &why), ERR_UNSUPPORTED);
    small_free(s);
}

static void test_specials_only_when_asked(void **state)
{
    (void)state;
    SmallVocab *s = small_bpe(VOCAB_PRE_QWEN2);
    assert_int_equal(small_build(s, NULL), OK);
    const char *text = "the<|im_end|><tool>the";
    size_t count;
    const uint32_t *ids = small_encode(s, text, strlen(text), TOKENIZE_SPECIALS, &count);
    assert_int_equal(count, 4);
    assert_int_equal(ids[1], small_find(s, "<|im_end|>"));
    assert_int_equal(ids[2], small_find(s, "<tool>"));
    ids = small_encode(s, text, strlen(text), 0, &count);
    for (size_t i = 0; i < count; i++) assert_false(tokenizer_is_control(s->tokenizer, ids[i]));
    assert_int_equal(ids[count - 2], small_find(s, "<tool>"));
    small_free(s);
}

static void test_capacity_and_memory(void **state)
{
    (void)state;
    SmallVocab *s = small_bpe(VOCAB_PRE_QWEN2);
    assert_int_equal(small_build(s, NULL), OK);
    uint32_t ids[8];
    size_t count;
    uint8_t memory[8192];
    Arena scratch = arena_make(memory, sizeof memory), none = arena_make(memory, 0);
    const uint8_t *text = (const uint8_t *)"xyzwvu";
    for (size_t room = 0; room < 6; room++)
        assert_int_equal(
            tokenizer_encode(s->tokenizer, text, 6, 0, &scratch, ids, room, &count, NULL),
            ERR_CAPACITY);
    assert_int_equal(scratch.used, 0);
    assert_int_equal(tokenizer_encode(s->tokenizer, text, 6, 0, &scratch, ids, 6, &count, NULL),
                     OK);
    assert_int_equal(tokenizer_encode(s->tokenizer, text, 6, 0, &none, ids, 8, &count, NULL),
                     ERR_MEMORY);
    text = (const uint8_t *)"e\xCC\x81";
    assert_int_equal(tokenizer_encode(s->tokenizer, text, 3, 0, &none, ids, 8, &count, NULL),
                     ERR_MEMORY);
    small_free(s);
}

static void test_pieces(void **state)
{
    (void)state;
    SmallVocab *s = small_bpe(VOCAB_PRE_GPT2);
    assert_int_equal(small_build(s, NULL), OK);
    uint8_t out[TOKENIZER_PIECE_BYTES_MAX];
    size_t bytes;
    const Tokenizer *t = s->tokenizer;
    for (unsigned b = 0; b < 256; b++) {
        assert_int_equal(tokenizer_piece(t, b, false, out, sizeof out, &bytes, NULL), OK);
        assert_int_equal(bytes, 1);
        assert_int_equal(out[0], b);
    }
    assert_int_equal(
        tokenizer_piece(t, small_find(s, "Ġthe"), false, out, sizeof out, &bytes, NULL), OK);
    assert_int_equal(bytes, 4);
    assert_memory_equal(out, " the", 4);
    uint32_t control = small_find(s, "<|im_end|>");
    assert_int_equal(tokenizer_piece(t, control, false, out, sizeof out, &bytes, NULL), OK);
    assert_int_equal(bytes, 0);
    assert_int_equal(tokenizer_piece(t, control, true, out, sizeof out, &bytes, NULL), OK);
    assert_int_equal(bytes, 10);
    assert_int_equal(tokenizer_piece(t, control, true, out, 9, &bytes, NULL), ERR_CAPACITY);
    assert_int_equal(tokenizer_piece(t, s->vocab.tokens, true, out, sizeof out, &bytes, NULL),
                     ERR_RANGE);
    assert_int_equal(tokenizer_piece(t, UINT32_MAX, true, out, sizeof out, &bytes, NULL),
                     ERR_RANGE);
    small_free(s);
}

static void test_ends(void **state)
{
    (void)state;
    SmallVocab *s = small_bpe(VOCAB_PRE_GPT2), *g = small_sentencepiece(false);
    assert_int_equal(small_build(s, NULL), OK);
    assert_int_equal(small_build(g, NULL), OK);
    assert_true(tokenizer_is_end(s->tokenizer, small_find(s, "<|im_end|>")));
    assert_true(tokenizer_is_end(s->tokenizer, small_find(s, "<|endoftext|>")));
    assert_false(tokenizer_is_end(s->tokenizer, small_find(s, "<|im_start|>")));
    assert_false(tokenizer_is_end(s->tokenizer, VOCAB_NO_TOKEN));
    assert_true(tokenizer_is_end(g->tokenizer, small_find(g, "<end_of_turn>")));
    assert_true(tokenizer_is_end(g->tokenizer, small_find(g, "</s>")));
    small_free(s);
    small_free(g);
}

/* A megabyte of one thing, over and over, in a thread of 256 KiB of stack. The limit is far above what it
 * takes (0.4 s at most on two slow cores) and far below what quadratic work would. */
typedef struct Long {
    const SmallVocab *vocab;
    const char *unit;
    double seconds;
    Error error;
} Long;

static void *encode_long(void *argument)
{
    enum { BYTES = 1 << 20 };
    Long *l = argument;
    const Tokenizer *t = l->vocab->tokenizer;
    uint8_t *text = malloc(BYTES);
    for (size_t i = 0, unit = strlen(l->unit); i < BYTES; i++) text[i] = (uint8_t)l->unit[i % unit];
    size_t room = tokenizer_scratch_bytes(t, BYTES), ids_max = tokenizer_ids_max(t, BYTES), count;
    void *memory = malloc(room);
    uint32_t *ids = malloc(ids_max * sizeof *ids);
    Arena scratch = arena_make(memory, room);
    struct timespec start, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    l->error =
        tokenizer_encode(t, text, BYTES, TOKENIZE_SPECIALS, &scratch, ids, ids_max, &count, NULL);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    l->seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    free(ids);
    free(memory);
    free(text);
    return NULL;
}

static void test_a_megabyte_of_one_thing(void **state)
{
    (void)state;
    static const char *const units[] = {
        "Z", "a", "\n",      " ", "あ",    "\xCC\x81", "a\xCC\xA3\xCC\x81", "\xFF",
        "1", "'", "\r\n \t", "<", "<tool", "the ",     "\xF0\x9D\x85\xA0"};
    SmallVocab *vocabs[] = {small_bpe(VOCAB_PRE_QWEN2), small_bpe(VOCAB_PRE_SMOLLM),
                            small_bpe(VOCAB_PRE_LLAMA_BPE), small_sentencepiece(true)};
    pthread_attr_t small_stack;
    pthread_attr_init(&small_stack);
    assert_int_equal(pthread_attr_setstacksize(&small_stack, 256 << 10), 0);
    for (size_t v = 0; v < sizeof vocabs / sizeof *vocabs; v++) {
        assert_int_equal(small_build(vocabs[v], NULL), OK);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            Long work = {vocabs[v], units[u], 0, ERR_INTERNAL};
            pthread_t thread;
            assert_int_equal(pthread_create(&thread, &small_stack, encode_long, &work), 0);
            pthread_join(thread, NULL);
            assert_int_equal(work.error, OK);
            if (work.seconds > 5)
                fail_msg("vocabulary %zu, \"%s\": %.1f s", v, units[u], work.seconds);
        }
        small_free(vocabs[v]);
    }
    pthread_attr_destroy(&small_stack);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_unknown_kinds_are_refused),
                                       cmocka_unit_test(test_specials_only_when_asked),
                                       cmocka_unit_test(test_capacity_and_memory),
                                       cmocka_unit_test(test_pieces),
                                       cmocka_unit_test(test_ends),
                                       cmocka_unit_test(test_a_megabyte_of_one_thing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
