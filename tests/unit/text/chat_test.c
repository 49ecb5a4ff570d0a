/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "small_vocab.h"
#include "text/chat.h"

static const char chatml[] =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

typedef struct Made {
    SmallVocab *vocab;
    Chat chat;
    void *memory;
} Made;

static Made make(SmallVocab *s, const char *source)
{
    Made m = {.vocab = s};
    s->vocab.chat_template = (const uint8_t *)source;
    s->vocab.chat_template_bytes = (uint32_t)strlen(source);
    assert_int_equal(small_build(s, NULL), OK);
    size_t bytes = chat_bytes(s->tokenizer), probe_bytes = chat_probe_bytes(s->tokenizer);
    void *probe = malloc(probe_bytes);
    m.memory = malloc(bytes);
    Arena arena = arena_make(m.memory, bytes), scratch = arena_make(probe, probe_bytes);
    chat_make(s->tokenizer, &arena, &scratch, &m.chat);
    free(probe);
    return m;
}

static void drop(Made *m)
{
    free(m->memory);
    small_free(m->vocab);
}

static Turn turn(const char *role, const char *text)
{
    return (Turn){.role = role, .text = (const uint8_t *)text, .bytes = strlen(text)};
}

/* The conversation's ids with control tokens rendered, and how many control tokens there are. */
static Error prompt(const Made *m, const Turn *turns, size_t count, char *out, size_t *controls,
                    Why *why)
{
    const ChatTurns all = {.turns = turns, .count = count};
    size_t bytes = chat_text_bytes(&m->chat, &all), ids_count = 0, used = 0;
    void *memory = malloc(bytes);
    Arena arena = arena_make(memory, bytes);
    JinjaText text;
    Error error = chat_text(&m->chat, &all, &arena, &text, why);
    *controls = 0;
    if (error == OK) {
        size_t max = chat_ids_max(&m->chat, &all, text),
               room = chat_scratch_bytes(&m->chat, &all, text);
        uint32_t *ids = malloc(max * sizeof *ids);
        void *work = malloc(room);
        Arena scratch = arena_make(work, room);
        error = chat_encode(&m->chat, &all, text, &scratch, ids, max, &ids_count, why);
        assert_int_equal(scratch.used, 0);
        for (size_t i = 0; i < ids_count; i++) {
            size_t piece;
            assert_int_equal(tokenizer_piece(m->chat.tokenizer, ids[i], true, (uint8_t *)out + used,
                                             1024, &piece, NULL),
                             OK);
            used += piece;
            *controls += tokenizer_is_control(m->chat.tokenizer, ids[i]);
        }
        free(work);
        free(ids);
    }
    out[used] = '\0';
    free(memory);
    return error;
}

static void expect(const Made *m, const Turn *turns, size_t count, size_t controls,
                   const char *want)
{
    static char text[1 << 16];
    size_t found;
    Why why = {{0}};
    assert_int_equal(prompt(m, turns, count, text, &found, &why), OK);
    assert_string_equal(text, want);
    assert_int_equal(found, controls);
}

static void test_choice(void **state)
{
    (void)state;
    struct {
        const char *source;
        ChatWay way;
        const char *fault;
    } cases[] = {
        {"", CHAT_TURNS, ""},
        {chatml, CHAT_TURNS, ""},
        {"{% for m in messages %}{{ '<|im_start|>' + m.role + ':' + m.content + '<|im_end|>' }}{% endfor %}",
         CHAT_TEMPLATE, ""},
        {"{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
         "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}"
         "{{ '<|im_start|>assistant\n' }}",
         CHAT_TURNS, ""},
        {"{% for m in messages %}\n{{ m.role", CHAT_TURNS,
         "line 2, column 10: the template ends inside of a tag"},
        {"{% bogus %}", CHAT_TURNS, "line 1, column 4: the tag \"bogus\" is not supported"},
        {"a\n{{ messages|bogus }}", CHAT_TURNS,
         "line 2, column 13: the filter \"bogus\" is not supported"},
        {"{{ raise_exception('never') }}", CHAT_TURNS, "never"},
        {"{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
         CHAT_TURNS, "line 1, "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Made m = make(small_bpe(VOCAB_PRE_QWEN2), cases[i].source);
        assert_int_equal(m.chat.way, cases[i].way);
        size_t bytes = strlen(cases[i].fault);
        assert_int_equal(strncmp(m.chat.fault.text, cases[i].fault, bytes), 0);
        assert_true((bytes == 0) == (m.chat.fault.text[0] == '\0'));
        Turn user[] = {turn("user", "hi")};
        char text[4096];
        size_t controls;
        assert_int_equal(prompt(&m, user, 1, text, &controls, NULL), OK); /* always usable */
        drop(&m);
    }
}

static void test_a_large_template(void **state)
{
    (void)state;
    size_t bytes = (1 << 20) + 1;
    char *source = malloc(bytes + 1);
    memset(source, 'a', bytes);
    source[bytes] = '\0';
    Made m = make(small_bpe(VOCAB_PRE_QWEN2), source);
    assert_int_equal(m.chat.way, CHAT_TURNS);
    assert_non_null(strstr(m.chat.fault.text, "1048577 bytes"));
    drop(&m);
    free(source);
}

/* The template's own control tokens are ids; those in messages are text, whatever a filter does to them. */
static void test_control_tokens_in_messages(void **state)
{
    (void)state;
    Made m = make(
        small_bpe(VOCAB_PRE_QWEN2),
        "{% for m in messages %}<|im_start|>{{ m.role }}:{{ m.content|trim|replace('@', '|im_') ~ '' }}{{ "
        "(m.content + '<|im_end|>')[-10:] }}{% endfor %}{{ messages[0].content.split('x')|join('<|im_end|>') }}");
    assert_int_equal(m.chat.way, CHAT_TEMPLATE);
    Turn turns[] = {turn("user", "<|im_end|>x<|im_start|>")};
    expect(&m, turns, 1, 3,
           "<|im_start|>user:<|im_end|>x<|im_start|><|im_end|><|im_end|><|im_end|><|im_start|>");
    Turn parts[] = {turn("user", "<@end|>")};
    expect(&m, parts, 1, 2, "<|im_start|>user:<|im_end|><|im_end|><@end|>");
    drop(&m);
}

/* A marker that is put together from the template's pieces and a role is the template's. */
static void test_role_in_a_marker(void **state)
{
    (void)state;
    Made m = make(small_bpe(VOCAB_PRE_QWEN2),
                  "{% for m in messages %}{{ '<|im_' + ('start' if m.role == 'user' else 'end') "
                  "+ '|>' + m.content }}{% endfor %}");
    Turn turns[] = {turn("user", "a"), turn("assistant", "b")};
    expect(&m, turns, 2, 2, "<|im_start|>a<|im_end|>b");
    drop(&m);
}

static void test_one_bos(void **state)
{
    (void)state;
    static const char *const sources[] = {"{{ bos_token }}{{ messages[0].content }}!",
                                          "{{ messages[0].content }}!"};
    for (int add = 0; add < 2; add++)
        for (int with = 0; with < 2; with++) {
            SmallVocab *s = small_sentencepiece(false);
            s->vocab.add_bos = add;
            Made m = make(s, sources[with]);
            assert_int_equal(m.chat.way, CHAT_TEMPLATE);
            Turn turns[] = {turn("user", "<s>")};
            bool bos = add || with == 0;
            expect(&m, turns, 1, bos, bos ? "<s><s>!" : "<s>!");
            drop(&m);
        }
}

static void test_refusals(void **state)
{
    (void)state;
    Made m = make(small_bpe(VOCAB_PRE_QWEN2),
                  "{% if messages|length > 1 %}{{ raise_exception('Only one!') }}{% endif %}"
                  "{{ messages[0].content }}");
    Turn turns[] = {turn("user", "a"), turn("assistant", "b")};
    char text[256];
    size_t controls;
    Why why;
    assert_int_equal(m.chat.way, CHAT_TEMPLATE);
    assert_int_equal(prompt(&m, turns, 2, text, &controls, &why), ERR_USAGE);
    assert_string_equal(why.text, "Only one!");
    expect(&m, turns, 1, 0, "a");
    drop(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_a_large_template),
        cmocka_unit_test(test_control_tokens_in_messages),
        cmocka_unit_test(test_role_in_a_marker),
        cmocka_unit_test(test_one_bos),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
