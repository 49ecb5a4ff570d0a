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

static AnswerHead make_head(bool chat, bool stream_usage)
{
    AnswerHead head = {.dialect = chat ? ANSWER_CHAT : ANSWER_COMPLETION,
                       .created_s = 1700000000,
                       .model = "some-model",
                       .stream_usage = stream_usage,
                       .choices = 1};
    answer_make_id(&head, (const uint64_t[2]){0x0123456789abcdefull, 0xfedcba9876543210});
    w = json_writer_make(bytes, sizeof bytes - 1);
    return head;
}

static const char *written(void)
{
    assert_false(w.full);
    bytes[w.used] = '\0';
    return bytes;
}

/* The JSON of the one event that was written. */
static yyjson_doc *event(void)
{
    const char *text = written();
    size_t length = strlen(text);
    assert_memory_equal(text, "data: ", 6);
    assert_string_equal(text + length - 2, "\n\n");
    yyjson_doc *doc = yyjson_read(text + 6, length - 8, 0);
    assert_non_null(doc);
    return doc;
}

static AnswerPiece piece(const char *text)
{
    return (AnswerPiece){.text = (const uint8_t *)text, .bytes = strlen(text)};
}

static const char *at(yyjson_doc *doc, const char *pointer)
{
    return yyjson_get_str(yyjson_doc_ptr_get(doc, pointer));
}

static void ids(void **state)
{
    (void)state;
    assert_string_equal(make_head(true, false).id, "chatcmpl-0123456789abcdeffedcba9876543210");
    assert_string_equal(make_head(false, false).id, "cmpl-0123456789abcdeffedcba9876543210");
}

static void events_of_a_chat(void **state)
{
    (void)state;
    AnswerHead head = make_head(true, false);
    answer_write_role(&head, &w, 3);
    yyjson_doc *doc = event();
    assert_string_equal(at(doc, "/object"), "chat.completion.chunk");
    assert_string_equal(at(doc, "/model"), "some-model");
    assert_string_equal(at(doc, "/choices/0/delta/role"), "assistant");
    assert_true(yyjson_is_null(yyjson_doc_ptr_get(doc, "/choices/0/finish_reason")));
    assert_int_equal(yyjson_get_uint(yyjson_doc_ptr_get(doc, "/choices/0/index")), 3);
    assert_null(yyjson_doc_ptr_get(doc, "/usage"));
    yyjson_doc_free(doc);
    head = make_head(true, true);
    AnswerPiece text = piece("a\n\n\"b");
    answer_write_piece(&head, &w, 0, &text);
    doc = event(); /* an event ends at the first empty line: text has none */
    assert_ptr_equal(strstr(bytes, "\n\n"), bytes + strlen(bytes) - 2);
    assert_string_equal(at(doc, "/choices/0/delta/content"), "a\n\n\"b");
    assert_true(yyjson_is_null(yyjson_doc_ptr_get(doc, "/usage")));
    yyjson_doc_free(doc);
    head = make_head(true, false);
    answer_write_finish(&head, &w, 0, ANSWER_LENGTH);
    doc = event();
    assert_string_equal(at(doc, "/choices/0/finish_reason"), "length");
    assert_int_equal(yyjson_obj_size(yyjson_doc_ptr_get(doc, "/choices/0/delta")), 0);
    yyjson_doc_free(doc);
}

static void events_of_a_completion(void **state)
{
    (void)state;
    AnswerHead head = make_head(false, false);
    answer_write_role(&head, &w, 0);
    assert_string_equal(written(), "");
    AnswerPiece text = piece("hi");
    answer_write_piece(&head, &w, 1, &text);
    yyjson_doc *doc = event();
    assert_string_equal(at(doc, "/object"), "text_completion");
    assert_string_equal(at(doc, "/choices/0/text"), "hi");
    yyjson_doc_free(doc);
}

static void ends_of_a_stream(void **state)
{
    (void)state;
    AnswerHead head = make_head(true, true);
    answer_write_end(&head, &w, NULL, &(AnswerUsage){.prompt = 10, .cached = 4, .completion = 5});
    static const char done[] = "data: [DONE]\n\n";
    size_t last = w.used - strlen(done);
    assert_string_equal(written() + last, done);
    w.used = last;
    yyjson_doc *doc = event();
    assert_int_equal(yyjson_arr_size(yyjson_doc_ptr_get(doc, "/choices")), 0);
    assert_true(yyjson_is_arr(yyjson_doc_ptr_get(doc, "/choices")));
    assert_int_equal(yyjson_get_uint(yyjson_doc_ptr_get(doc, "/usage/total_tokens")), 15);
    assert_int_equal(
        yyjson_get_uint(yyjson_doc_ptr_get(doc, "/usage/prompt_tokens_details/cached_tokens")), 4);
    yyjson_doc_free(doc);
    head = make_head(true, false);
    answer_write_end(&head, &w, NULL, &(AnswerUsage){.prompt = 10, .cached = 4, .completion = 5});
    assert_string_equal(written(), done);
    head = make_head(true, true);
    Refusal refusal;
    assert_false(refusal_make(&refusal, REFUSAL_SERVER, NULL, "it broke at %u", 7u));
    answer_write_fault(&head, &w, &refusal);
    doc = event();
    assert_string_equal(at(doc, "/error/message"), "it broke at 7");
    assert_true(yyjson_is_null(yyjson_doc_ptr_get(doc, "/error/param")));
    yyjson_doc_free(doc);
}

static void whole_answers(void **state)
{
    (void)state;
    for (int chat = 0; chat < 2; chat++) {
        AnswerHead head = make_head(chat, false);
        answer_begin(&head, &w);
        AnswerPiece one = piece("one"), none = piece("");
        answer_choice(&head, &w, 0, &one, ANSWER_STOP);
        answer_choice(&head, &w, 1, &none, ANSWER_LENGTH);
        answer_end(&head, &w, &(AnswerUsage){.prompt = 3, .completion = 2});
        yyjson_doc *doc = yyjson_read(written(), w.used, 0);
        assert_non_null(doc);
        assert_string_equal(at(doc, "/object"), chat ? "chat.completion" : "text_completion");
        assert_string_equal(at(doc, chat ? "/choices/0/message/content" : "/choices/0/text"),
                            "one");
        assert_string_equal(at(doc, "/choices/0/finish_reason"), "stop");
        assert_string_equal(at(doc, chat ? "/choices/1/message/content" : "/choices/1/text"), "");
        assert_string_equal(at(doc, "/choices/1/finish_reason"), "length");
        assert_int_equal(yyjson_get_uint(yyjson_doc_ptr_get(doc, "/usage/completion_tokens")), 2);
        yyjson_doc_free(doc);
    }
}

static void places(void **state)
{
    (void)state;
    AnswerHead head = {.dialect = ANSWER_CHAT,
                       .model = "m",
                       .resumable = true,
                       .choices = 3,
                       .places = {12, 0, UINT32_MAX}};
    AnswerPlace place;
    AnswerPiece text = piece("x");
    static const char id[] =
        "id: chatcmpl-fedcba98765432100000000000000001:12,0,4294967295\ndata: {";
    answer_make_id(&head, (const uint64_t[2]){0xfedcba9876543210, 1});
    w = json_writer_make(bytes, sizeof bytes);
    answer_write_piece(&head, &w, 1, &text);
    assert_memory_equal(written(), id, strlen(id));
    assert_true(
        answer_read_place("chatcmpl-fedcba98765432100000000000000001:12,0,4294967295", &place));
    assert_string_equal(place.id, head.id);
    assert_int_equal(place.count, 3);
    assert_memory_equal(place.tokens, head.places, 3 * sizeof place.tokens[0]);
    static const char *const bad[] = {
        "",
        ":",
        ":1",
        "a",
        "a:",
        "a:,1",
        "a:1,",
        "a:1,,",
        "a:-1",
        "a:1 ",
        "a:x",
        "a:4294967296",
        "a:1:2",
        "a: 1",
        "a:+1",
        "a:1.0",
        "a:1,2b",
        "a:1,2,3,4,5,6,7,8,9",
        "a-name-that-is-longer-than-any-id-that-was-ever-written-here:1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(answer_read_place(bad[i], &place));
    assert_true(answer_read_place("a:1,2,3,4,5,6,7,8", &place));
}

static void other_bodies(void **state)
{
    (void)state;
    (void)make_head(true, false);
    answer_ids(&w, (const uint32_t[]){1, UINT32_MAX}, 2);
    assert_string_equal(written(),
                        "{\"ids\":[1,4294967295],\"tokens\":[1,4294967295],\"count\":2}");
    assert_true(w.used <= 2 * ANSWER_ID_DIGITS + ANSWER_EVENT_BYTES);
    (void)make_head(true, false);
    answer_models(&w, "m", 5, 100, 64);
    assert_string_equal(
        written(),
        "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\",\"created\":5,"
        "\"owned_by\":\"cobord\",\"context_length\":100,\"embedding_length\":64,"
        "\"embedding_pooling\":\"mean\"}]}");
}

/* Every kind of refusal, with all that can be long at its longest. */
static void refusals(void **state)
{
    (void)state;
    char name[200], text[400];
    memset(name, '"', sizeof name - 1);
    memset(text, '\\', sizeof text - 1);
    name[sizeof name - 1] = text[sizeof text - 1] = '\0';
    for (int kind = REFUSAL_BODY; kind <= REFUSAL_SERVER; kind++) {
        Refusal refusal;
        assert_false(refusal_make(&refusal, (RefusalKind)kind, name, "%s", text));
        w = json_writer_make(bytes, REFUSAL_JSON_MAX);
        refusal_write(&refusal, &w);
        yyjson_doc *doc = yyjson_read(written(), w.used, 0);
        assert_non_null(doc);
        assert_non_null(at(doc, "/error/type"));
        assert_non_null(at(doc, "/error/code"));
        bool retryable = yyjson_get_bool(yyjson_doc_ptr_get(doc, "/error/retryable"));
        unsigned refused = refusal_status(&refusal);
        assert_int_equal(retryable, refused >= 500 || refused == 429);
        assert_int_equal(refusal_retry_s(&refusal) > 0, refused == 503 || refused == 429);
        yyjson_doc_free(doc);
    }
}

static void errors_become_refusals(void **state)
{
    (void)state;
    Refusal refusal;
    static const struct {
        Error error;
        unsigned status;
    } cases[] = {{ERR_RANGE, 400},      {ERR_USAGE, 400},      {ERR_MEMORY, 503},
                 {ERR_INTERNAL, 500},   {ERR_NOT_FINITE, 500}, {ERR_IO, 500},
                 {ERR_UNREACHABLE, 503}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_false(refusal_of_error(&refusal, cases[i].error, NULL));
        assert_int_equal(refusal_status(&refusal), cases[i].status);
        assert_true(refusal.why.text[0] != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids),
        cmocka_unit_test(events_of_a_chat),
        cmocka_unit_test(events_of_a_completion),
        cmocka_unit_test(ends_of_a_stream),
        cmocka_unit_test(whole_answers),
        cmocka_unit_test(places),
        cmocka_unit_test(other_bodies),
        cmocka_unit_test(refusals),
        cmocka_unit_test(errors_become_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
