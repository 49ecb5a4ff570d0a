/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <yyjson.h>

#include "api/answer_ollama.h"

static char bytes[1 << 16];
static JsonWriter w;

static AnswerHead make_head(AnswerDialect dialect)
{
    AnswerHead head = {
        .dialect = dialect, .created_s = 1700000000, .model = "some-model", .choices = 1};
    answer_make_id(&head, (const uint64_t[2]){1, 1});
    w = json_writer_make(bytes, sizeof bytes);
    return head;
}

static AnswerPiece piece(const char *text)
{
    return (AnswerPiece){.text = (const uint8_t *)text, .bytes = strlen(text)};
}

static yyjson_val *value(yyjson_doc *doc, const char *pointer)
{
    yyjson_val *found = yyjson_doc_ptr_get(doc, pointer);
    assert_non_null(found);
    return found;
}

static const char *at(yyjson_doc *doc, const char *pointer)
{
    return yyjson_get_str(value(doc, pointer));
}

/* What was written, which is one line when `line`. */
static yyjson_doc *written(bool line)
{
    assert_false(w.full);
    if (line) assert_ptr_equal(memchr(bytes, '\n', w.used), bytes + w.used - 1);
    yyjson_doc *doc = yyjson_read(bytes, w.used, 0);
    assert_non_null(doc);
    return doc;
}

static const AnswerUsage usage = {.prompt = 7,
                                  .completion = 2,
                                  .total_ns = 60,
                                  .wait_ns = 10,
                                  .prompt_ns = 20,
                                  .completion_ns = 30};

static void has_counts(yyjson_doc *doc)
{
    assert_true(yyjson_is_true(value(doc, "/done")));
    assert_int_equal(yyjson_get_uint(value(doc, "/total_duration")), 60);
    assert_int_equal(yyjson_get_uint(value(doc, "/load_duration")), 10);
    assert_int_equal(yyjson_get_uint(value(doc, "/prompt_eval_count")), 7);
    assert_int_equal(yyjson_get_uint(value(doc, "/prompt_eval_duration")), 20);
    assert_int_equal(yyjson_get_uint(value(doc, "/eval_count")), 2);
    assert_int_equal(yyjson_get_uint(value(doc, "/eval_duration")), 30);
}

static void streams(void **state)
{
    (void)state;
    for (int dialect = ANSWER_OLLAMA_CHAT; dialect <= ANSWER_OLLAMA_GENERATE; dialect++) {
        const char *text = dialect == ANSWER_OLLAMA_CHAT ? "/message/content" : "/response";
        AnswerHead head = make_head((AnswerDialect)dialect);
        AnswerPiece one = piece("a\n\"b");
        assert_string_equal(answer_stream_type(head.dialect), "application/x-ndjson");
        assert_null(answer_comment(head.dialect));
        assert_false(answer_has_places(head.dialect));
        assert_int_equal(answer_repeats(head.dialect), dialect == ANSWER_OLLAMA_CHAT);
        answer_write_role(&head, &w, 0);
        assert_int_equal(w.used, 0);
        answer_write_piece(&head, &w, 0, &one);
        yyjson_doc *doc = written(true);
        assert_string_equal(at(doc, text), "a\n\"b");
        assert_string_equal(at(doc, "/model"), "some-model");
        assert_string_equal(at(doc, "/created_at"), "2023-11-14T22:13:20Z");
        assert_true(yyjson_is_false(value(doc, "/done")));
        yyjson_doc_free(doc);
        w.used = 0;
        answer_write_finish(&head, &w, 0, ANSWER_LENGTH);
        answer_write_end(&head, &w, NULL, &usage);
        doc = written(true);
        assert_string_equal(at(doc, text), "");
        assert_string_equal(at(doc, "/done_reason"), "length");
        has_counts(doc);
        yyjson_doc_free(doc);
    }
}

static void whole_answers(void **state)
{
    (void)state;
    for (int dialect = ANSWER_OLLAMA_CHAT; dialect <= ANSWER_OLLAMA_GENERATE; dialect++) {
        bool chat = dialect == ANSWER_OLLAMA_CHAT;
        AnswerHead head = make_head((AnswerDialect)dialect);
        AnswerPiece text = piece("hello");
        answer_begin(&head, &w);
        answer_choice(&head, &w, 0, &text, ANSWER_STOP);
        answer_end(&head, &w, &usage);
        yyjson_doc *doc = written(false);
        assert_string_equal(at(doc, chat ? "/message/content" : "/response"), "hello");
        if (chat) assert_string_equal(at(doc, "/message/role"), "assistant");
        assert_string_equal(at(doc, "/done_reason"), "stop");
        has_counts(doc);
        yyjson_doc_free(doc);
        head = make_head((AnswerDialect)dialect);
        answer_ollama_loaded(&head, &w);
        doc = written(true);
        assert_string_equal(at(doc, "/done_reason"), "load");
        yyjson_doc_free(doc);
    }
}

static AnswerTool tool(uint32_t index, const char *name, const char *arguments)
{
    return (AnswerTool){.index = index,
                        .name = (const uint8_t *)name,
                        .name_bytes = strlen(name),
                        .arguments = (const uint8_t *)arguments,
                        .bytes = strlen(arguments)};
}

/* Calls go out whole, in one line, those that are no object not at all. */
static void calls(void **state)
{
    (void)state;
    AnswerTool tools[] = {tool(0, "f", "{\"a\":\n[1,\"\\n\"]\r\n}\n"), tool(1, "cut", "{\"a\":"),
                          tool(2, "g", "{}"), tool(3, "bytes", "{\"\xFF\":1}"),
                          tool(4, "list", "[]")};
    AnswerPiece whole = {
        .text = (const uint8_t *)"so", .bytes = 2, .tools = tools, .tool_count = 5};
    AnswerHead head = make_head(ANSWER_OLLAMA_CHAT);
    answer_begin(&head, &w);
    answer_choice(&head, &w, 0, &whole, ANSWER_TOOLS);
    answer_end(&head, &w, &usage);
    yyjson_doc *doc = written(false);
    assert_string_equal(at(doc, "/message/content"), "so");
    assert_string_equal(at(doc, "/done_reason"), "stop");
    assert_int_equal(yyjson_arr_size(value(doc, "/message/tool_calls")), 2);
    assert_string_equal(at(doc, "/message/tool_calls/0/function/name"), "f");
    assert_string_equal(at(doc, "/message/tool_calls/0/function/arguments/a/1"), "\n");
    assert_string_equal(at(doc, "/message/tool_calls/1/function/name"), "g");
    yyjson_doc_free(doc);
    head = make_head(ANSWER_OLLAMA_CHAT);
    answer_write_piece(&head, &w, 0, &(AnswerPiece){.tools = tools, .tool_count = 1});
    assert_int_equal(w.used, 0);
    answer_write_finish(&head, &w, 0, ANSWER_TOOLS);
    answer_write_end(&head, &w, &whole, &usage);
    assert_false(w.full);
    char *second = (char *)memchr(bytes, '\n', w.used) + 1;
    assert_ptr_equal(memchr(second, '\n', (size_t)(bytes + w.used - second)), bytes + w.used - 1);
    doc = yyjson_read(bytes, (size_t)(second - bytes), 0);
    assert_non_null(doc);
    assert_int_equal(yyjson_arr_size(value(doc, "/message/tool_calls")), 2);
    assert_true(yyjson_is_false(value(doc, "/done")));
    yyjson_doc_free(doc);
}

static void dates(void **state)
{
    (void)state;
    static const struct {
        uint64_t seconds;
        const char *text;
    } cases[] = {{0, "1970-01-01T00:00:00Z"},          {951782399, "2000-02-28T23:59:59Z"},
                 {951782400, "2000-02-29T00:00:00Z"},  {951868800, "2000-03-01T00:00:00Z"},
                 {1735689599, "2024-12-31T23:59:59Z"}, {4107542400, "2100-03-01T00:00:00Z"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        AnswerHead head = make_head(ANSWER_OLLAMA_CHAT);
        head.created_s = cases[i].seconds;
        answer_ollama_loaded(&head, &w);
        yyjson_doc *doc = written(true);
        assert_string_equal(at(doc, "/created_at"), cases[i].text);
        yyjson_doc_free(doc);
    }
    AnswerHead head = make_head(ANSWER_OLLAMA_CHAT);
    head.created_s = UINT64_MAX;
    answer_ollama_loaded(&head, &w);
    yyjson_doc_free(written(true));
}

static void faults(void **state)
{
    (void)state;
    Refusal refusal;
    AnswerHead head = make_head(ANSWER_OLLAMA_CHAT);
    assert_false(refusal_make(&refusal, REFUSAL_UNREACHABLE, NULL, "lost \"%s\"", "x"));
    answer_write_fault(&head, &w, &refusal);
    yyjson_doc *doc = written(true);
    assert_string_equal(at(doc, "/error"), "lost \"x\"");
    assert_string_equal(at(doc, "/code"), "unreachable");
    assert_true(yyjson_is_true(value(doc, "/retryable")));
    yyjson_doc_free(doc);
}

/* ---- the model ---- */

static KnotTensor tensors[] = {
    {.name = "token_embd_weight", .type = BLOCK_Q4_K, .rows = 1000, .cols = 256, .bytes = 144000},
    {.name = "blk_0_attn_q_weight", .type = BLOCK_Q8_0, .rows = 256, .cols = 256, .bytes = 69632},
    {.name = "output_norm_weight", .type = BLOCK_F32, .rows = 1, .cols = 256, .bytes = 1024},
};

static AnswerOllamaModel make_model(Knot *knot, Vocab *vocab)
{
    static const char template[] = "{% \"x\" %}";
    *knot =
        (Knot){.id = 0x0123456789abcdefull,
               .file_bytes = 300000,
               .tensors = tensors,
               .tensor_count = sizeof tensors / sizeof tensors[0],
               .model = {.architecture = "qu\"en", .name = "A name", .layers = 1, .context = 99}};
    *vocab = (Vocab){.chat_template = (const uint8_t *)template,
                     .chat_template_bytes = sizeof template - 1};
    return (AnswerOllamaModel){
        .name = "served", .knot = knot, .vocab = vocab, .created_s = 1700000000, .context = 50};
}

static void models(void **state)
{
    (void)state;
    Knot knot;
    Vocab vocab;
    AnswerOllamaModel model = make_model(&knot, &vocab);
    for (int running = 0; running < 2; running++) {
        w = json_writer_make(bytes, answer_ollama_bytes(&model));
        (running ? answer_ollama_processes : answer_ollama_tags)(&model, &w);
        yyjson_doc *doc = written(false);
        assert_string_equal(at(doc, "/models/0/name"), "served");
        assert_string_equal(at(doc, "/models/0/digest"), "0123456789abcdef");
        assert_string_equal(at(doc, "/models/0/details/quantization_level"), "Q4_K");
        assert_string_equal(at(doc, "/models/0/details/parameter_size"), "0.3M");
        assert_int_equal(yyjson_get_uint(value(doc, "/models/0/size")), 300000);
        if (running) assert_int_equal(yyjson_get_uint(value(doc, "/models/0/context_length")), 50);
        else assert_string_equal(at(doc, "/models/0/modified_at"), "2023-11-14T22:13:20Z");
        yyjson_doc_free(doc);
    }
}

static void shown(void **state)
{
    (void)state;
    Knot knot;
    Vocab vocab;
    AnswerOllamaModel model = make_model(&knot, &vocab);
    w = json_writer_make(bytes, answer_ollama_bytes(&model));
    answer_ollama_show(&model, &w);
    yyjson_doc *doc = written(false);
    assert_string_equal(at(doc, "/template"), "{% \"x\" %}");
    assert_string_equal(at(doc, "/details/family"), "qu\"en");
    assert_string_equal(at(doc, "/capabilities/0"), "completion");
    yyjson_val *info = value(doc, "/model_info");
    assert_int_equal(yyjson_get_uint(yyjson_obj_get(info, "qu\"en.context_length")), 99);
    assert_int_equal(yyjson_get_uint(yyjson_obj_get(info, "general.parameter_count")),
                     1000 * 256 + 256 * 256 + 256);
    yyjson_doc_free(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams), cmocka_unit_test(calls),  cmocka_unit_test(whole_answers),
        cmocka_unit_test(dates),   cmocka_unit_test(faults), cmocka_unit_test(models),
        cmocka_unit_test(shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
