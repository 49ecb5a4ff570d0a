/* SPDX-License-Identifier: Apache-2.0 */
/* Log-probabilities, the prompt again, hops; embeddings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "api/request.h"

static Request request;
static Refusal refusal;
static void *memory;

/* A request of the kind with more fields. */
static bool with(RequestKind kind, const char *fields)
{
    static char body[40000];
    const char *start = kind == REQUEST_CHAT
                            ? "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
                        : kind == REQUEST_COMPLETION ? "\"prompt\":\"a\","
                                                     : "";
    (void)snprintf(body, sizeof body, "{%s%s}", start, fields);
    free(memory);
    size_t room = request_bytes(strlen(body));
    memory = malloc(room);
    Arena arena = arena_make(memory, room);
    return request_parse(kind, 1000, (const uint8_t *)body, strlen(body), &arena, &request,
                         &refusal);
}

static void accepts(RequestKind kind, const char *fields)
{
    if (!with(kind, fields)) fail_msg("%s: %s", fields, refusal.why.text);
}

static void refuses(RequestKind kind, const char *fields, RefusalKind why, const char *param)
{
    if (with(kind, fields) || refusal.kind != why || strcmp(refusal.param, param) != 0)
        fail_msg("%s: kind %d, param %s: %s", fields, refusal.kind, refusal.param,
                 refusal.why.text);
}

static void scores_of_a_chat(void **state)
{
    (void)state;
    accepts(REQUEST_CHAT, "\"n\":1");
    assert_false(request.scores);
    accepts(REQUEST_CHAT, "\"logprobs\":true");
    assert_true(request.scores);
    assert_int_equal(request.tops, 0);
    accepts(REQUEST_CHAT, "\"top_logprobs\":20,\"logprobs\":true");
    assert_int_equal(request.tops, 20);
    accepts(REQUEST_CHAT, "\"top_logprobs\":0");
    assert_false(request.scores);
    refuses(REQUEST_CHAT, "\"top_logprobs\":1", REFUSAL_VALUE, "top_logprobs");
    refuses(REQUEST_CHAT, "\"top_logprobs\":1,\"logprobs\":false", REFUSAL_VALUE, "top_logprobs");
    refuses(REQUEST_CHAT, "\"top_logprobs\":21,\"logprobs\":true", REFUSAL_VALUE, "top_logprobs");
    refuses(REQUEST_CHAT, "\"top_logprobs\":-1,\"logprobs\":true", REFUSAL_VALUE, "top_logprobs");
    refuses(REQUEST_CHAT, "\"top_logprobs\":true", REFUSAL_TYPE, "top_logprobs");
    refuses(REQUEST_CHAT, "\"logprobs\":1", REFUSAL_TYPE, "logprobs");
    refuses(REQUEST_CHAT, "\"echo\":true", REFUSAL_UNKNOWN, "echo");
}

static void scores_of_a_completion(void **state)
{
    (void)state;
    accepts(REQUEST_COMPLETION, "\"logprobs\":0");
    assert_true(request.scores);
    accepts(REQUEST_COMPLETION, "\"logprobs\":20,\"echo\":true");
    assert_int_equal(request.tops, 20);
    assert_true(request.says_prompt);
    accepts(REQUEST_COMPLETION, "\"logprobs\":null,\"echo\":false");
    assert_false(request.scores || request.says_prompt);
    refuses(REQUEST_COMPLETION, "\"logprobs\":21", REFUSAL_VALUE, "logprobs");
    refuses(REQUEST_COMPLETION, "\"logprobs\":1.5", REFUSAL_TYPE, "logprobs");
    refuses(REQUEST_COMPLETION, "\"logprobs\":true", REFUSAL_TYPE, "logprobs");
    refuses(REQUEST_COMPLETION, "\"echo\":1", REFUSAL_TYPE, "echo");
    refuses(REQUEST_COMPLETION, "\"top_logprobs\":1", REFUSAL_UNKNOWN, "top_logprobs");
}

static void hops(void **state)
{
    (void)state;
    accepts(REQUEST_CHAT, "\"hops\":true");
    assert_true(request.hops);
    accepts(REQUEST_CHAT,
            "\"hops\":true,\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    refuses(REQUEST_CHAT, "\"hops\":true,\"stream\":true", REFUSAL_VALUE, "hops");
    refuses(REQUEST_COMPLETION, "\"hops\":1", REFUSAL_TYPE, "hops");
}

static void embeddings(void **state)
{
    (void)state;
    accepts(REQUEST_EMBEDDINGS, "\"input\":\"a\",\"model\":\"m\"");
    assert_int_equal(request.prompt_count, 1);
    assert_int_equal(request.tokens_max, 0);
    assert_false(request.base64);
    accepts(REQUEST_EMBEDDINGS, "\"input\":[\"a\",\"b\"],\"encoding_format\":\"base64\"");
    assert_int_equal(request.prompt_count, 2);
    assert_true(request.base64);
    accepts(REQUEST_EMBEDDINGS,
            "\"input\":[1,2,3],\"dimensions\":576,\"encoding_format\":\"float\"");
    assert_int_equal(request.prompts[0].count, 3);
    assert_int_equal(request.dimensions, 576);
    accepts(REQUEST_EMBEDDINGS, "\"input\":[[1],[2,3]]");
    assert_int_equal(request.prompts[1].count, 2);
    refuses(REQUEST_EMBEDDINGS, "\"model\":\"m\"", REFUSAL_MISSING, "input");
    refuses(REQUEST_EMBEDDINGS, "\"input\":\"\"", REFUSAL_VALUE, "input");
    refuses(REQUEST_EMBEDDINGS, "\"input\":[\"a\",\"\"]", REFUSAL_VALUE, "input");
    refuses(REQUEST_EMBEDDINGS, "\"input\":[]", REFUSAL_VALUE, "input");
    refuses(REQUEST_EMBEDDINGS, "\"input\":[[1],[]]", REFUSAL_VALUE, "input[1]");
    refuses(REQUEST_EMBEDDINGS, "\"input\":[1000]", REFUSAL_VALUE, "input[0]");
    refuses(REQUEST_EMBEDDINGS, "\"input\":\"a\",\"encoding_format\":\"int8\"", REFUSAL_VALUE,
            "encoding_format");
    refuses(REQUEST_EMBEDDINGS, "\"input\":\"a\",\"dimensions\":0", REFUSAL_VALUE, "dimensions");
    refuses(REQUEST_EMBEDDINGS, "\"input\":\"a\",\"stream\":true", REFUSAL_UNKNOWN, "stream");
}

static void many_inputs(void **state)
{
    (void)state;
    for (int count = REQUEST_INPUTS_MAX; count <= REQUEST_INPUTS_MAX + 1; count++) {
        static char fields[8000];
        size_t used = (size_t)snprintf(fields, sizeof fields, "\"input\":[");
        for (int i = 0; i < count; i++)
            used += (size_t)snprintf(fields + used, sizeof fields - used, "%s[1]", i ? "," : "");
        (void)snprintf(fields + used, sizeof fields - used, "]");
        if (count <= REQUEST_INPUTS_MAX) accepts(REQUEST_EMBEDDINGS, fields);
        else refuses(REQUEST_EMBEDDINGS, fields, REFUSAL_VALUE, "input");
    }
}

static int forget(void **state)
{
    (void)state;
    free(memory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_of_a_chat),
        cmocka_unit_test(scores_of_a_completion),
        cmocka_unit_test(hops),
        cmocka_unit_test(embeddings),
        cmocka_unit_test(many_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, forget);
}
