/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <yyjson.h>

#include "api/answer.h"

static char bytes[1 << 16];
static JsonWriter w;

static AnswerHead make_head(void)
{
    static const char echo[] = ",\"instructions\":\"be brief\",\"metadata\":{}";
    AnswerHead head = {.dialect = ANSWER_RESPONSES,
                       .created_s = 1700000000,
                       .model = "some-model",
                       .choices = 1,
                       .echo = echo,
                       .echo_bytes = sizeof echo - 1};
    answer_make_id(&head, (const uint64_t[2]){0x0123456789abcdefull, 0xfedcba9876543210});
    w = json_writer_make(bytes, sizeof bytes - 1);
    return head;
}

static AnswerPiece piece(const char *text)
{
    return (AnswerPiece){.text = (const uint8_t *)text, .bytes = strlen(text)};
}

static const char *at(yyjson_doc *doc, const char *pointer)
{
    return yyjson_get_str(yyjson_doc_ptr_get(doc, pointer));
}

static uint64_t number(yyjson_doc *doc, const char *pointer)
{
    return yyjson_get_uint(yyjson_doc_ptr_get(doc, pointer));
}

/* The next event from *from on; its type stands in the line `event` and in the data. */
static yyjson_doc *next_event(const char **from, const char *type)
{
    static const char name[] = "event: ", data[] = "\ndata: ";
    bytes[w.used] = '\0';
    assert_memory_equal(*from, name, strlen(name));
    const char *json = strstr(*from, data) + strlen(data), *end = strstr(json, "\n\n");
    assert_non_null(end);
    assert_memory_equal(*from + strlen(name), type, strlen(type));
    assert_ptr_equal(*from + strlen(name) + strlen(type) + strlen(data), json);
    yyjson_doc *doc = yyjson_read(json, (size_t)(end - json), 0);
    assert_non_null(doc);
    assert_string_equal(at(doc, "/type"), type);
    *from = end + 2;
    return doc;
}

static void whole_answer(void **state)
{
    (void)state;
    AnswerHead head = make_head();
    AnswerPiece text = piece("hello\n");
    assert_string_equal(head.id, "resp_0123456789abcdeffedcba9876543210");
    answer_begin(&head, &w);
    answer_choice(&head, &w, 0, &text, ANSWER_STOP);
    answer_end(&head, &w,
               &(AnswerUsage){.prompt = 7, .cached = 3, .completion = 2, .total_ns = 5000000000});
    yyjson_doc *doc = yyjson_read(bytes, w.used, 0);
    assert_non_null(doc);
    assert_string_equal(at(doc, "/object"), "response");
    assert_string_equal(at(doc, "/status"), "completed");
    assert_int_equal(number(doc, "/created_at"), 1700000000);
    assert_int_equal(number(doc, "/completed_at"), 1700000005);
    assert_string_equal(at(doc, "/instructions"), "be brief");
    assert_string_equal(at(doc, "/output/0/id"), "msg_0123456789abcdeffedcba9876543210");
    assert_string_equal(at(doc, "/output/0/role"), "assistant");
    assert_string_equal(at(doc, "/output/0/status"), "completed");
    assert_string_equal(at(doc, "/output/0/content/0/type"), "output_text");
    assert_string_equal(at(doc, "/output/0/content/0/text"), "hello\n");
    assert_int_equal(number(doc, "/usage/input_tokens"), 7);
    assert_int_equal(number(doc, "/usage/input_tokens_details/cached_tokens"), 3);
    assert_int_equal(number(doc, "/usage/output_tokens"), 2);
    assert_int_equal(number(doc, "/usage/total_tokens"), 9);
    assert_true(yyjson_is_false(yyjson_doc_ptr_get(doc, "/store")));
    assert_true(yyjson_is_null(yyjson_doc_ptr_get(doc, "/incomplete_details")));
    yyjson_doc_free(doc);
}

static void cut_answer(void **state)
{
    (void)state;
    AnswerHead head = make_head();
    AnswerPiece text = piece("hel");
    answer_begin(&head, &w);
    answer_choice(&head, &w, 0, &text, ANSWER_LENGTH);
    answer_end(&head, &w, &(AnswerUsage){.prompt = 7, .completion = 1});
    yyjson_doc *doc = yyjson_read(bytes, w.used, 0);
    assert_non_null(doc);
    assert_string_equal(at(doc, "/status"), "incomplete");
    assert_string_equal(at(doc, "/output/0/status"), "incomplete");
    assert_string_equal(at(doc, "/incomplete_details/reason"), "max_output_tokens");
    assert_true(yyjson_is_null(yyjson_doc_ptr_get(doc, "/completed_at")));
    yyjson_doc_free(doc);
}

/* All events of a stream, by type and number. */
static void stream_in_order(void **state)
{
    (void)state;
    static const char *const types[] = {"response.created",           "response.in_progress",
                                        "response.output_item.added", "response.content_part.added",
                                        "response.output_text.delta", "response.output_text.delta",
                                        "response.output_text.done",  "response.content_part.done",
                                        "response.output_item.done",  "response.completed"};
    static const char *const where[] = {"/response/status",
                                        "/response/status",
                                        "/item/status",
                                        "/part/type",
                                        "/delta",
                                        "/delta",
                                        "/text",
                                        "/part/text",
                                        "/item/content/0/text",
                                        "/response/output/0/content/0/text"};
    static const char *const what[] = {"in_progress", "in_progress", "in_progress", "output_text",
                                       "hel",         "lo",          "hello",       "hello",
                                       "hello",       "hello"};
    AnswerHead head = make_head();
    AnswerPiece one = piece("hel"), two = piece("lo"), whole = piece("hello");
    answer_write_role(&head, &w, 0);
    assert_true(w.used <= answer_bytes(&head, 0));
    answer_write_piece(&head, &w, 0, &one);
    answer_write_piece(&head, &w, 0, &two);
    answer_write_finish(&head, &w, 0, ANSWER_STOP);
    assert_true(answer_repeats(head.dialect));
    answer_write_end(&head, &w, &whole, &(AnswerUsage){.prompt = 7, .completion = 2});
    assert_false(w.full);
    const char *from = bytes;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        yyjson_doc *doc = next_event(&from, types[i]);
        assert_int_equal(number(doc, "/sequence_number"), i);
        assert_string_equal(at(doc, where[i]), what[i]);
        if (i == 0) assert_true(yyjson_is_null(yyjson_doc_ptr_get(doc, "/response/usage")));
        if (i == 9) assert_int_equal(number(doc, "/response/usage/total_tokens"), 9);
        yyjson_doc_free(doc);
    }
    assert_string_equal(from, "");
}

static void cut_stream(void **state)
{
    (void)state;
    AnswerHead head = make_head();
    AnswerPiece whole = piece("hel");
    answer_write_finish(&head, &w, 0, ANSWER_LENGTH);
    answer_write_end(&head, &w, &whole, &(AnswerUsage){.prompt = 7, .completion = 2});
    const char *from = bytes;
    yyjson_doc_free(next_event(&from, "response.output_text.done"));
    yyjson_doc_free(next_event(&from, "response.content_part.done"));
    yyjson_doc_free(next_event(&from, "response.output_item.done"));
    yyjson_doc *doc = next_event(&from, "response.incomplete");
    assert_string_equal(at(doc, "/response/incomplete_details/reason"), "max_output_tokens");
    yyjson_doc_free(doc);
}

/* Only what can be gone on from has an id. */
static void places(void **state)
{
    (void)state;
    AnswerHead head = make_head();
    AnswerPiece text = piece("x");
    head.resumable = true;
    answer_write_role(&head, &w, 0);
    bytes[w.used] = '\0';
    const char *id = strstr(bytes, "id: resp_0123456789abcdeffedcba9876543210:0\n");
    assert_non_null(id);
    assert_null(strstr(id + 1, "\nid: "));
    assert_non_null(strstr(id, "content_part.added"));
    assert_null(strstr(id, "output_item.added"));
    w.used = 0;
    head.places[0] = 5;
    answer_write_piece(&head, &w, 0, &text);
    bytes[w.used] = '\0';
    assert_ptr_equal(strstr(bytes, "id: resp_0123456789abcdeffedcba9876543210:5\nevent: "), bytes);
}

static void fault(void **state)
{
    (void)state;
    AnswerHead head = make_head();
    Refusal refusal;
    char words[WHY_MAX];
    memset(words, '"', sizeof words - 1);
    words[sizeof words - 1] = '\0';
    assert_false(refusal_make(&refusal, REFUSAL_SERVER, NULL, "%s", words));
    answer_write_fault(&head, &w, &refusal);
    const char *from = bytes;
    yyjson_doc *doc = next_event(&from, "error");
    assert_string_equal(at(doc, "/code"), "internal_error");
    assert_string_equal(at(doc, "/message"), at(doc, "/error/message"));
    assert_true(yyjson_get_bool(yyjson_doc_ptr_get(doc, "/error/retryable")));
    yyjson_doc_free(doc);
}

/* The longest beginning and end fit into what answer_bytes says. */
static void bounds(void **state)
{
    (void)state;
    static char echo[2000], text[3000], room[1 << 17];
    AnswerHead head = make_head();
    memset(echo, ' ', sizeof echo);
    memset(text, 1, sizeof text);
    head.echo = echo;
    head.echo_bytes = sizeof echo;
    head.resumable = true;
    head.places[0] = UINT32_MAX;
    head.sequence = UINT64_MAX - 8;
    head.model =
        "a-model-whose-name-is-rather-long-since-somebody-wrote-all-about-it-into-the-name";
    w = json_writer_make(room, answer_bytes(&head, 0));
    answer_write_role(&head, &w, 0);
    assert_false(w.full);
    AnswerPiece whole = {.text = (const uint8_t *)text, .bytes = sizeof text};
    assert_true(answer_bytes(&head, sizeof text) <= sizeof room);
    w = json_writer_make(room, answer_bytes(&head, sizeof text));
    answer_write_end(&head, &w, &whole, &(AnswerUsage){.prompt = UINT64_MAX});
    assert_false(w.full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_answer),    cmocka_unit_test(cut_answer),
        cmocka_unit_test(stream_in_order), cmocka_unit_test(cut_stream),
        cmocka_unit_test(places),          cmocka_unit_test(fault),
        cmocka_unit_test(bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
