/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <yyjson.h>

#include "../text/small_vocab.h"
#include "api/answer.h"

static SmallVocab *small;
static char bytes[1 << 16];
static JsonWriter w;

static AnswerHead make_head(AnswerDialect dialect)
{
    AnswerHead head = {
        .dialect = dialect, .model = "some-model", .choices = 1, .tokenizer = small->tokenizer};
    answer_make_id(&head, (const uint64_t[2]){7, 1});
    w = json_writer_make(bytes, sizeof bytes - 1);
    return head;
}

/* "hello", then the first of two halves of a character, each with two beside it. */
static void make_scores(AnswerScore *scores)
{
    uint32_t hello = small_find(small, "hello");
    scores[0] = (AnswerScore){.token = hello, .unscored = true};
    scores[1] = (AnswerScore){.token = hello,
                              .logprob = -0.5f,
                              .offset = 5,
                              .top_count = 2,
                              .top = {{0xC3, -0.25f}, {hello, -0.5f}}};
    scores[2] = (AnswerScore){.token = 0xC3,
                              .logprob = -1.0f / 0.0f,
                              .offset = 10,
                              .top_count = 1,
                              .top = {{small->vocab.eos, -0.125f}}};
}

static yyjson_doc *read_written(const char *prefix)
{
    assert_false(w.full);
    bytes[w.used] = '\0';
    assert_memory_equal(bytes, prefix, strlen(prefix));
    yyjson_read_err error;
    yyjson_doc *doc = yyjson_read_opts(bytes + strlen(prefix), w.used - strlen(prefix),
                                       YYJSON_READ_STOP_WHEN_DONE, NULL, &error);
    if (!doc) fail_msg("%s: %s", error.msg, bytes);
    return doc;
}

static double number(yyjson_doc *doc, const char *pointer)
{
    yyjson_val *value = yyjson_doc_ptr_get(doc, pointer);
    if (!yyjson_is_num(value)) fail_msg("no number at %s: %s", pointer, bytes);
    return yyjson_get_num(value);
}

static void same_text(yyjson_doc *doc, const char *pointer, const char *text)
{
    const char *found = yyjson_get_str(yyjson_doc_ptr_get(doc, pointer));
    if (!found || strcmp(found, text) != 0) fail_msg("%s at %s: %s", found, pointer, bytes);
}

static void chat(void **state)
{
    (void)state;
    AnswerScore scores[3];
    AnswerHead head = make_head(ANSWER_CHAT);
    make_scores(scores);
    AnswerPiece piece = {
        .text = (const uint8_t *)"hello", .bytes = 5, .scores = scores + 1, .score_count = 2};
    answer_write_piece(&head, &w, 0, &piece);
    yyjson_doc *doc = read_written("data: ");
#define CONTENT "/choices/0/logprobs/content"
    same_text(doc, CONTENT "/0/token", "hello");
    assert_true(number(doc, CONTENT "/0/logprob") == -0.5);
    assert_int_equal(yyjson_arr_size(yyjson_doc_ptr_get(doc, CONTENT "/0/bytes")), 5);
    assert_true(number(doc, CONTENT "/0/bytes/1") == 'e');
    same_text(doc, CONTENT "/0/top_logprobs/0/token", "\xEF\xBF\xBD");
    assert_true(number(doc, CONTENT "/0/top_logprobs/0/bytes/0") == 0xC3);
    same_text(doc, CONTENT "/0/top_logprobs/1/token", "hello");
    assert_true(number(doc, CONTENT "/1/logprob") == -9999);
    same_text(doc, CONTENT "/1/top_logprobs/0/token", "<|im_end|>");
    assert_true(yyjson_is_null(yyjson_doc_ptr_get(doc, "/choices/0/logprobs/refusal")));
    assert_true(w.used < ANSWER_EVENT_BYTES + JSON_WRITER_GROWTH * 5 +
                             answer_scores_bytes(&head, scores + 1, 2));
    yyjson_doc_free(doc);
}

static void completion(void **state)
{
    (void)state;
    AnswerScore scores[3];
    AnswerHead head = make_head(ANSWER_COMPLETION);
    make_scores(scores);
    AnswerPiece piece = {
        .text = (const uint8_t *)"hellohello", .bytes = 10, .scores = scores, .score_count = 3};
    AnswerUsage usage = {0};
    answer_begin(&head, &w);
    answer_choice(&head, &w, 0, &piece, ANSWER_LENGTH);
    answer_end(&head, &w, &usage);
    yyjson_doc *doc = read_written("");
#define LISTS "/choices/0/logprobs"
    same_text(doc, LISTS "/tokens/1", "hello");
    same_text(doc, LISTS "/tokens/2", "bytes:\\xc3");
    assert_true(number(doc, LISTS "/text_offset/0") == 0);
    assert_true(number(doc, LISTS "/text_offset/2") == 10);
    assert_true(yyjson_is_null(yyjson_doc_ptr_get(doc, LISTS "/token_logprobs/0")));
    assert_true(yyjson_is_null(yyjson_doc_ptr_get(doc, LISTS "/top_logprobs/0")));
    assert_true(number(doc, LISTS "/token_logprobs/1") == -0.5);
    yyjson_val *top = yyjson_doc_ptr_get(doc, LISTS "/top_logprobs/1");
    assert_int_equal(yyjson_obj_size(top), 2);
    assert_true(yyjson_get_num(yyjson_obj_get(top, "bytes:\\xc3")) == -0.25);
    top = yyjson_doc_ptr_get(doc, LISTS "/top_logprobs/2"); /* the token itself comes on top */
    assert_int_equal(yyjson_obj_size(top), 2);
    assert_true(yyjson_get_num(yyjson_obj_get(top, "bytes:\\xc3")) == -9999);
    yyjson_doc_free(doc);
}

static void none(void **state)
{
    (void)state;
    AnswerHead head = make_head(ANSWER_CHAT);
    AnswerPiece piece = {.text = (const uint8_t *)"a", .bytes = 1};
    answer_write_piece(&head, &w, 0, &piece);
    yyjson_doc *doc = read_written("data: ");
    assert_true(yyjson_is_null(yyjson_doc_ptr_get(doc, "/choices/0/logprobs")));
    yyjson_doc_free(doc);
}

static void usage_of_hops(void **state)
{
    (void)state;
    AnswerHop hops[] = {{"station-0", 3, 1500, 10, 20}, {"self", 1, 2, 0, 0}};
    AnswerUsage usage = {.prompt = 1, .hops = hops, .hop_count = 2};
    AnswerHead head = make_head(ANSWER_CHAT);
    head.stream_usage = true;
    answer_write_end(&head, &w, NULL, &usage);
    yyjson_doc *doc = read_written("data: ");
    same_text(doc, "/usage/hops/0/node", "station-0");
    assert_true(number(doc, "/usage/hops/0/calls") == 3);
    assert_true(number(doc, "/usage/hops/0/ms") == 1.5);
    assert_true(number(doc, "/usage/hops/0/bytes_sent") == 10);
    assert_true(number(doc, "/usage/hops/0/bytes_received") == 20);
    same_text(doc, "/usage/hops/1/node", "self");
    yyjson_doc_free(doc);
}

static void embedding(AnswerHead *head, const uint8_t *vector, size_t count)
{
    AnswerPiece piece = {.text = vector, .bytes = count};
    AnswerUsage usage = {.prompt = 4};
    answer_begin(head, &w);
    answer_choice(head, &w, 0, &piece, ANSWER_STOP);
    answer_end(head, &w, &usage);
}

static void embeddings(void **state)
{
    (void)state;
    uint8_t vector[12];
    AnswerHead head = make_head(ANSWER_EMBEDDINGS);
    assert_true(answer_embed((const double[]){3, 0, -4}, 3, vector));
    embedding(&head, vector, sizeof vector);
    yyjson_doc *doc = read_written("");
    assert_true((float)number(doc, "/data/0/embedding/0") == 0.6f);
    assert_true((float)number(doc, "/data/0/embedding/2") == -0.8f);
    same_text(doc, "/pooling", "mean");
    same_text(doc, "/object", "list");
    assert_true(number(doc, "/usage/prompt_tokens") == 4);
    yyjson_doc_free(doc);
    head = make_head(ANSWER_EMBEDDINGS);
    head.base64 = true;
    embedding(&head, vector, 4); /* 0.6 is 9a 99 19 3f */
    doc = read_written("");
    same_text(doc, "/data/0/embedding", "mpkZPw==");
    yyjson_doc_free(doc);
    head = make_head(ANSWER_EMBEDDINGS);
    head.base64 = true;
    embedding(&head, vector, 12);
    doc = read_written("");
    same_text(doc, "/data/0/embedding", "mpkZPwAAAADNzEy/");
    yyjson_doc_free(doc);
    assert_false(answer_embed((const double[]){1.0 / 0.0}, 1, vector));
    assert_false(answer_embed((const double[]){0.0 / 0.0}, 1, vector));
    assert_true(answer_embed((const double[]){0}, 1, vector));
}

/* Every float has room: sign, 17 digits, point and exponent. */
static void long_numbers(void **state)
{
    (void)state;
    static const double values[] = {-1.2345678901234567e-308, 5e-324, -1.7976931348623157e308, 0.1,
                                    -0.0};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        w = json_writer_make(bytes, sizeof bytes - 1);
        json_writer_float(&w, values[i]);
        assert_true(w.used <= JSON_WRITER_FLOAT);
        bytes[w.used] = '\0';
        assert_true(strtod(bytes, NULL) == values[i]);
    }
}

static int make(void **state)
{
    (void)state;
    Why why;
    small = small_bpe(VOCAB_PRE_GPT2);
    return small_build(small, &why) == OK ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chat),       cmocka_unit_test(completion),
        cmocka_unit_test(none),       cmocka_unit_test(usage_of_hops),
        cmocka_unit_test(embeddings), cmocka_unit_test(long_numbers),
    };
    return cmocka_run_group_tests(tests, make, NULL);
}
