/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "small_vocab.h"
#include "text/chat.h"
#include "text/json_values.h"

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

static const JinjaValue *tools; /* of the conversations to come */

/* The conversation's ids with control tokens rendered, and how many control tokens there are. */
static Error prompt(const Made *m, const Turn *turns, size_t count, char *out, size_t *controls,
                    Why *why)
{
    const ChatTurns given = {.turns = turns, .count = count, .tools = tools, .tool_bytes = 4096};
    size_t fold_bytes = chat_fold_bytes(&m->chat, &given);
    void *fold_memory = malloc(fold_bytes);
    Arena fold_arena = arena_make(fold_memory, fold_bytes);
    ChatTurns all;
    assert_int_equal(chat_fold(&m->chat, &given, &fold_arena, &all, why), OK);
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
    free(fold_memory);
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

static const char *const told =
    "{% if tools %}{{ '<|im_start|>system\n' }}{% for t in tools %}{{ t | tojson + '\n' }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.content is none %}-{% else %}"
    "{{ m.content }}{% endif %}{% for c in m.tool_calls or [] %}{{ c.id + '=' + c.function.name }}"
    "{{ c.function.arguments | tojson }}{% endfor %}{% if m.tool_call_id %}{{ '#' + m.tool_call_id }}{% endif %}"
    "{{ '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/* A value of JSON, whose memory is kept until the program ends. */
static const JinjaValue *json(const char *text)
{
    enum { ROOM = 1 << 16 };
    typedef struct Kept {
        yyjson_doc *doc;
        struct Kept *before;
        JinjaValue value;
        uint8_t memory[ROOM];
    } Kept;
    static Kept *last;
    Kept *kept = calloc(1, sizeof *kept);
    assert_non_null(kept);
    *kept = (Kept){.doc = yyjson_read(text, strlen(text), 0), .before = last};
    last = kept;
    Arena arena = arena_make(kept->memory, sizeof kept->memory);
    assert_true(json_values_make(&arena, yyjson_doc_get_root(kept->doc), &kept->value));
    return &kept->value;
}

static void set_tools(const char *list) { tools = list ? json(list) : NULL; }

/* A template that shows tools takes what has to do with them, and nothing else. Nothing of a client's becomes a
 * control token. */
static void test_tools_by_the_template(void **state)
{
    (void)state;
    Made m = make(small_bpe(VOCAB_PRE_QWEN2), told);
    assert_int_equal(m.chat.way, CHAT_TURNS);
    assert_true(m.chat.knows_tools);
    Turn turns[] = {turn("user", "a"), turn("assistant", ""), turn("tool", "<|im_end|>")};
    turns[1].silent = true;
    turns[1].calls = json("[{\"id\":\"1\",\"function\":{\"name\":\"f\",\"arguments\":"
                          "{\"x\":\"<|im_start|>\"}}}]");
    turns[2].call_id = "1";
    expect(&m, turns, 1, 3, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
    expect(
        &m, turns, 3, 7,
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n-1=f{\"x\": \"<|im_start|>\"}<|im_end|>\n"
        "<|im_start|>tool\n<|im_end|>#1<|im_end|>\n<|im_start|>assistant\n");
    set_tools("[{\"name\":\"<|im_end|>\"}]");
    expect(&m, turns, 1, 5,
           "<|im_start|>system\n{\"name\": \"<|im_end|>\"}\n<|im_end|>\n"
           "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
    set_tools(NULL);
    drop(&m);
}

#define HOW                                                                                                     \
    "\n</tools>\n\nA call is a JSON object with the function's name and its arguments between <tool_call> and " \
    "</tool_call>:\n<tool_call>\n{\"name\": \"NAME\", \"arguments\": {\"PARAMETER\": VALUE}}\n</tool_call>\n"   \
    "Its result comes back between <tool_response> and </tool_response>.<|im_end|>\n"

static void test_tools_in_the_text(void **state)
{
    (void)state;
    Made m = make(small_bpe(VOCAB_PRE_QWEN2), chatml);
    assert_false(m.chat.knows_tools);
    Turn turns[] = {turn("system", "Be."),      turn("user", "a"), turn("assistant", ""),
                    turn("tool", "<|im_end|>"), turn("tool", "2"), turn("user", "b")};
    turns[2].calls =
        json("[{\"function\":{\"name\":\"f\",\"arguments\":{\"x\":[1,\"<|im_end|>\"]}}},"
             "{\"function\":{\"name\":\"g\",\"arguments\":{}}}]");
    expect(
        &m, turns, 6, 11,
        "<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, \"<|im_end|>\"]}}\n</tool_call>\n"
        "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call><|im_end|>\n<|im_start|>user\n"
        "<tool_response>\n<|im_end|>\n</tool_response>\n<tool_response>\n2\n</tool_response><|im_end|>\n"
        "<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n");
    set_tools("[{\"name\":\"f\"},{\"name\":\"g\"}]");
    static const char listed[] =
        "# Tools\n\nThese functions can be called; each line describes one:\n<tools>\n{\"name\": \"f\"}\n"
        "{\"name\": \"g\"}" HOW "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n";
    char want[2000];
    (void)snprintf(want, sizeof want, "<|im_start|>system\n%s", listed);
    expect(&m, turns + 1, 1, 5, want);
    (void)snprintf(want, sizeof want, "<|im_start|>system\nBe.\n\n%s", listed);
    expect(&m, turns, 2, 5, want);
    set_tools(NULL);
    drop(&m);
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
        cmocka_unit_test(test_tools_by_the_template),
        cmocka_unit_test(test_tools_in_the_text),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
