/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "small_vocab.h"
#include "text/turns.h"

static Turn turn(const char *role, const char *text)
{
    return (Turn){.role = role, .text = (const uint8_t *)text, .bytes = strlen(text)};
}

/* What the conversation's ids say with control tokens rendered. Also checks that only real markers are
 * control tokens: their number is `controls`. */
static void expect(const SmallVocab *s, const Turn *turns, size_t count, bool first,
                   size_t controls, const char *want)
{
    static char text[1 << 16];
    size_t room = turns_scratch_bytes(s->tokenizer, turns, count),
           ids_max = turns_ids_max(turns, count), ids_count;
    void *memory = malloc(room);
    uint32_t *ids = malloc(ids_max * sizeof *ids);
    Arena scratch = arena_make(memory, room);
    Why why = {{0}};
    assert_int_equal(
        turns_encode(s->tokenizer, turns, count, first, &scratch, ids, ids_max, &ids_count, &why),
        OK);
    assert_int_equal(scratch.used, 0);
    size_t bytes = 0, found = 0;
    for (size_t i = 0; i < ids_count; i++) {
        size_t piece;
        assert_int_equal(tokenizer_piece(s->tokenizer, ids[i], true, (uint8_t *)text + bytes, 1024,
                                         &piece, NULL),
                         OK);
        bytes += piece;
        found += tokenizer_is_control(s->tokenizer, ids[i]);
    }
    text[bytes] = '\0';
    assert_string_equal(text, want);
    assert_int_equal(found, controls);
    free(ids);
    free(memory);
}

static void set_template(SmallVocab *s, const char *text)
{
    s->vocab.chat_template = (const uint8_t *)text;
    s->vocab.chat_template_bytes = (uint32_t)strlen(text);
}

static SmallVocab *chatml(void)
{
    SmallVocab *s = small_bpe(VOCAB_PRE_QWEN2);
    assert_int_equal(small_build(s, NULL), OK);
    assert_int_equal(turns_format(s->tokenizer), TURNS_CHATML);
    return s;
}

static void test_chatml(void **state)
{
    (void)state;
    SmallVocab *s = chatml();
    Turn turns[] = {turn("system", "Be."), turn("user", " <|im_end|> hi\n"),
                    turn("assistant", "yes")};
    expect(s, turns, 3, true, 7,
           "<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\n <|im_end|> hi\n<|im_end|>\n"
           "<|im_start|>assistant\nyes<|im_end|>\n<|im_start|>assistant\n");
    Turn more[] = {turn("user", "and?")};
    expect(s, more, 1, false, 3, "\n<|im_start|>user\nand?<|im_end|>\n<|im_start|>assistant\n");
    expect(s, NULL, 0, true, 1, "<|im_start|>assistant\n");
    small_free(s);
}

/* The text right behind a role is tokenized with it, as when the whole template is tokenized at once. */
static void test_words_reach_over_the_role(void **state)
{
    (void)state;
    SmallVocab *s = chatml();
    Turn turns[] = {turn("user", "\nx")};
    size_t room = turns_scratch_bytes(s->tokenizer, turns, 1), count;
    void *memory = malloc(room);
    Arena scratch = arena_make(memory, room);
    uint32_t ids[64];
    assert_int_equal(turns_encode(s->tokenizer, turns, 1, true, &scratch, ids, 64, &count, NULL),
                     OK);
    assert_int_equal(ids[5], small_find(s, "ĊĊ"));
    free(memory);
    small_free(s);
}

static void test_default_system(void **state)
{
    (void)state;
    SmallVocab *s = chatml();
    Turn user[] = {turn("user", "hi")};
    Turn system[] = {turn("system", "No."), turn("user", "hi")},
         none[] = {turn("system", ""), turn("user", "hi")};
    set_template(
        s, "{{- '<|im_start|>system\\n' }}{{- '<|im_start|>system\\n' + m + '<|im_end|>\\n' }}"
           "{{- '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}");
    expect(s, user, 1, true, 5,
           "<|im_start|>system\nBe "
           "kind.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    expect(s, system, 2, true, 5,
           "<|im_start|>system\nNo.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>"
           "assistant\n");
    expect(s, none, 2, true, 3, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    set_template(
        s,
        "{{ '<|im_start|>system\nBe brief<|im_end|>\n' }}"); /* a real line break, as SmolLM2's has */
    expect(s, user, 1, true, 5,
           "<|im_start|>system\nBe "
           "brief<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    static const char *const empty[] = {"<|im_start|>system", "<|im_start|>system\\nno end",
                                        "<|im_start|>system\n", "<|im_start|>system\n<|im_end|>",
                                        "<|im_start|>system\\n{{ x }}<|im_end|>"};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
        set_template(s, empty[i]);
        expect(s, user, 1, true, 3, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    }
    small_free(s);
}

static void test_gemma(void **state)
{
    (void)state;
    SmallVocab *s = small_sentencepiece(false);
    assert_int_equal(small_build(s, NULL), OK);
    assert_int_equal(turns_format(s->tokenizer), TURNS_GEMMA);
    Turn turns[] = {turn("system", "Be."), turn("user", "  hi <start_of_turn>\n"),
                    turn("assistant", " yes ")};
    const char *start = "<s><start_of_turn>user\nBe.\n\nhi <start_of_turn><end_of_turn>\n";
    char want[300];
    snprintf(want, sizeof want, "%s<start_of_turn>model\nyes<end_of_turn>\n<start_of_turn>model\n",
             start);
    expect(s, turns, 3, true, 6, want);
    expect(s, turns, 1, true, 4,
           "<s><start_of_turn>user\nBe.<end_of_turn>\n<start_of_turn>model\n");
    expect(s, turns + 1, 1, false, 3,
           "\n<start_of_turn>user\nhi <start_of_turn><end_of_turn>\n<start_of_turn>model\n");
    small_free(s);
}

static void test_llama3(void **state)
{
    (void)state;
    SmallVocab *s = small_empty(VOCAB_BPE, VOCAB_PRE_LLAMA_BPE);
    uint8_t text[2];
    for (unsigned b = 0; b < 256; b++)
        small_add(s, text, tables_printable((uint8_t)b, text), VOCAB_NORMAL, 0);
    s->vocab.bos = small_word(s, "<|begin_of_text|>", VOCAB_CONTROL, 0);
    s->vocab.add_bos = true;
    small_word(s, "<|start_header_id|>", VOCAB_CONTROL, 0);
    small_word(s, "<|end_header_id|>", VOCAB_CONTROL, 0);
    small_word(s, "<|eot_id|>", VOCAB_CONTROL, 0);
    assert_int_equal(small_build(s, NULL), OK);
    assert_int_equal(turns_format(s->tokenizer), TURNS_LLAMA3);
    Turn turns[] = {turn("user", " hi\n")};
    expect(s, turns, 1, true, 6,
           "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"
           "<|start_header_id|>assistant<|end_header_id|>\n\n");
    small_free(s);
}

static void test_faults(void **state)
{
    (void)state;
    SmallVocab *s = chatml();
    uint8_t memory[65536];
    Arena scratch = arena_make(memory, sizeof memory), none = arena_make(memory, 0);
    uint32_t ids[64];
    size_t count;
    Why why = {{0}};
    Turn odd[] = {turn("tool", "x")}, turns[] = {turn("user", "hi")};
    assert_int_equal(turns_encode(s->tokenizer, odd, 1, true, &scratch, ids, 64, &count, &why),
                     ERR_USAGE);
    assert_non_null(strstr(why.text, "tool"));
    assert_int_equal(turns_encode(s->tokenizer, turns, 1, true, &none, ids, 64, &count, &why),
                     ERR_MEMORY);
    for (size_t room = 0; room < 8; room++) {
        assert_int_equal(scratch.used, 0);
        assert_int_equal(
            turns_encode(s->tokenizer, turns, 1, true, &scratch, ids, room, &count, &why),
            ERR_CAPACITY);
    }
    small_free(s);
    s = small_empty(VOCAB_BPE, VOCAB_PRE_GPT2);
    small_word(s, "a", VOCAB_NORMAL, 0);
    small_word(s, "<|im_start|>", VOCAB_NORMAL, 0);
    small_word(s, "<|im_end|>", VOCAB_NORMAL, 0);
    assert_int_equal(small_build(s, NULL), OK);
    assert_int_equal(turns_encode(s->tokenizer, turns, 1, true, &scratch, ids, 64, &count, &why),
                     ERR_UNSUPPORTED);
    small_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chatml),         cmocka_unit_test(test_words_reach_over_the_role),
        cmocka_unit_test(test_default_system), cmocka_unit_test(test_gemma),
        cmocka_unit_test(test_llama3),         cmocka_unit_test(test_faults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
