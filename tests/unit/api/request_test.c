/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "api/request.h"

enum { VOCABULARY = 1000 };

static Request request;
static Refusal refusal;
static void *memory;

static bool parse_bytes(RequestKind kind, const char *body, size_t bytes)
{
    free(memory);
    size_t room = request_bytes(bytes);
    memory = malloc(room);
    Arena arena = arena_make(memory, room);
    return request_parse(kind, VOCABULARY, (const uint8_t *)body, bytes, &arena, &request,
                         &refusal);
}

static bool parse(RequestKind kind, const char *body)
{
    return parse_bytes(kind, body, strlen(body));
}

/* A chat or a completion with one more field. */
static bool with(RequestKind kind, const char *field)
{
    char body[40000];
    const char *start = kind == REQUEST_CHAT
                            ? "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]"
                            : "\"prompt\":\"a\"";
    (void)snprintf(body, sizeof body, "{%s,%s}", start, field);
    return parse(kind, body);
}

static void refuses(RequestKind kind, const char *field, RefusalKind why, const char *param)
{
    assert_false(with(kind, field));
    if (refusal.kind != why || strcmp(refusal.param, param) != 0)
        fail_msg("%s: kind %d, param %s: %s", field, refusal.kind, refusal.param, refusal.why.text);
}

static void accepts(RequestKind kind, const char *field)
{
    if (!with(kind, field)) fail_msg("%s: %s", field, refusal.why.text);
}

/* ---- whole bodies ---- */

static void no_json(void **state)
{
    (void)state;
    static const char *const bodies[] = {"",
                                         " ",
                                         "x",
                                         "[]",
                                         "5",
                                         "null",
                                         "{",
                                         "{\"prompt\":\"a\"}x",
                                         "{\"prompt\":\"a\",}",
                                         "{'prompt':1}",
                                         "\xEF\xBB\xBF{}",
                                         "{\"prompt\":\"\xFF\"}",
                                         "{\"prompt\":\"\\ud800\"}",
                                         "{\"prompt\":1e999}",
                                         "{\"prompt\":01}"};
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        assert_false(parse(REQUEST_COMPLETION, bodies[i]));
        assert_int_equal(refusal.kind, REFUSAL_BODY);
    }
    assert_false(parse_bytes(REQUEST_COMPLETION, "{\"prompt\":\"a\"\0}", 15));
    assert_false(parse(REQUEST_COMPLETION, "{}"));
    assert_int_equal(refusal.kind, REFUSAL_MISSING);
    assert_string_equal(refusal.param, "prompt");
    assert_false(parse(REQUEST_CHAT, "{\"messages\":null}"));
    assert_int_equal(refusal.kind, REFUSAL_MISSING);
}

static void depth(void **state)
{
    (void)state;
    static char body[300000];
    for (int levels = 62; levels <= 100000; levels = levels == 62   ? 64
                                                     : levels == 64 ? 100
                                                                    : levels * 10) {
        int n = snprintf(body, sizeof body, "{\"x\":");
        memset(body + n, '[', (size_t)levels);
        memset(body + n + levels, ']', (size_t)levels);
        memcpy(body + n + 2 * levels, "}", 2);
        assert_false(parse(REQUEST_CHAT, body));
        assert_int_equal(refusal.kind, levels == 62 ? REFUSAL_UNKNOWN : REFUSAL_BODY);
    }
    /* Brackets inside strings do not nest. */
    memset(body, '[', 1000);
    memcpy(body, "{\"prompt\":\"\\\"", 13);
    memcpy(body + 1000, "\"}", 3);
    assert_true(parse(REQUEST_COMPLETION, body));
}

static void too_many_values(void **state)
{
    (void)state;
    size_t bytes = 2 * (JSON_SCAN_VALUES_MAX + 10);
    char *body = malloc(bytes + 32);
    int n = snprintf(body, bytes, "{\"prompt\":[1");
    size_t at = (size_t)n;
    while (at < bytes) {
        body[at++] = ',';
        body[at++] = '1';
    }
    memcpy(body + at, "]}", 3);
    assert_false(parse_bytes(REQUEST_COMPLETION, body, at + 2));
    assert_int_equal(refusal.kind, REFUSAL_BODY);
    free(body);
}

static void defaults(void **state)
{
    (void)state;
    assert_true(parse(REQUEST_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}"));
    assert_int_equal(request.tokens_max, REQUEST_TOKENS_UNLIMITED);
    assert_true(request.params.temperature == 1 && request.params.top_p == 1 &&
                request.params.repetition_penalty == 1);
    assert_false(request.stream || request.include_usage || request.seed_given);
    assert_int_equal(request.n, 1);
    assert_true(parse(REQUEST_COMPLETION, "{\"prompt\":\"a\"}"));
    assert_int_equal(request.tokens_max, REQUEST_COMPLETION_TOKENS);
}

static void duplicates_and_unknown(void **state)
{
    (void)state;
    refuses(REQUEST_CHAT, "\"n\":1,\"n\":1", REFUSAL_VALUE, "n");
    refuses(REQUEST_CHAT, "\"frobnicate\":1", REFUSAL_UNKNOWN, "frobnicate");
    refuses(REQUEST_CHAT, "\"frobnicate\":null", REFUSAL_UNKNOWN, "frobnicate");
    refuses(REQUEST_CHAT, "\"\\u001b[31m\":1", REFUSAL_UNKNOWN, "");
    refuses(REQUEST_CHAT, "\"prompt\":\"x\"", REFUSAL_UNKNOWN, "prompt");
    refuses(REQUEST_COMPLETION, "\"messages\":[]", REFUSAL_UNKNOWN, "messages");
    refuses(REQUEST_COMPLETION, "\"max_completion_tokens\":1", REFUSAL_UNKNOWN,
            "max_completion_tokens");
}

/* ---- single fields ---- */

typedef struct Numbers {
    const char *name, *fine[4], *range[4];
} Numbers;

static void numbers(void **state)
{
    (void)state;
    static const Numbers fields[] = {
        {"temperature", {"0", "2", "0.7"}, {"-0.01", "2.01", "1e300"}},
        {"top_p", {"0", "1", "0.5"}, {"-1", "1.001"}},
        {"min_p", {"0", "1"}, {"-0.1", "2"}},
        {"repetition_penalty", {"1", "0.01", "10"}, {"0", "-1", "10.5"}},
        {"presence_penalty", {"-2", "2", "0"}, {"-2.1", "3"}},
        {"frequency_penalty", {"-2", "2", "0"}, {"-2.1", "3"}},
    };
    static const char *const others[] = {"\"1\"", "true", "[]", "{}"};
    char field[100];
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const Numbers *f = &fields[i];
        for (size_t n = 0; n < 4 && f->fine[n]; n++) {
            (void)snprintf(field, sizeof field, "\"%s\":%s", f->name, f->fine[n]);
            accepts(REQUEST_CHAT, field);
        }
        for (size_t n = 0; n < 4 && f->range[n]; n++) {
            (void)snprintf(field, sizeof field, "\"%s\":%s", f->name, f->range[n]);
            refuses(REQUEST_COMPLETION, field, REFUSAL_VALUE, f->name);
        }
        for (size_t n = 0; n < 4; n++) {
            (void)snprintf(field, sizeof field, "\"%s\":%s", f->name, others[n]);
            refuses(REQUEST_CHAT, field, REFUSAL_TYPE, f->name);
        }
    }
    accepts(
        REQUEST_CHAT,
        "\"temperature\":0.25,\"top_p\":0.5,\"min_p\":0.125,\"top_k\":7,\"presence_penalty\":-1.5");
    assert_true(request.params.temperature == 0.25f && request.params.top_p == 0.5f &&
                request.params.min_p == 0.125f);
    assert_true(request.params.top_k == 7 && request.params.presence_penalty == -1.5f);
}

static void counts(void **state)
{
    (void)state;
    refuses(REQUEST_CHAT, "\"max_tokens\":-1", REFUSAL_VALUE, "max_tokens");
    refuses(REQUEST_CHAT, "\"max_tokens\":1.5", REFUSAL_TYPE, "max_tokens");
    refuses(REQUEST_CHAT, "\"max_tokens\":\"5\"", REFUSAL_TYPE, "max_tokens");
    refuses(REQUEST_CHAT, "\"max_tokens\":true", REFUSAL_TYPE, "max_tokens");
    refuses(REQUEST_CHAT, "\"max_completion_tokens\":-2", REFUSAL_VALUE, "max_completion_tokens");
    refuses(REQUEST_CHAT, "\"max_tokens\":1,\"max_completion_tokens\":2", REFUSAL_VALUE,
            "max_completion_tokens");
    accepts(REQUEST_CHAT, "\"max_tokens\":2,\"max_completion_tokens\":2");
    accepts(REQUEST_CHAT, "\"max_tokens\":0");
    assert_int_equal(request.tokens_max, 0);
    accepts(REQUEST_CHAT, "\"max_tokens\":2147483647");
    assert_int_equal(request.tokens_max, REQUEST_TOKENS_UNLIMITED);
    refuses(REQUEST_CHAT, "\"max_tokens\":2147483648", REFUSAL_VALUE, "max_tokens");
    refuses(REQUEST_CHAT, "\"max_tokens\":9223372036854775808", REFUSAL_VALUE, "max_tokens");
    refuses(REQUEST_COMPLETION, "\"max_tokens\":18446744073709551615", REFUSAL_VALUE, "max_tokens");
    refuses(REQUEST_CHAT, "\"max_tokens\":18446744073709551616", REFUSAL_TYPE, "max_tokens");
    refuses(REQUEST_CHAT, "\"top_k\":4294967296", REFUSAL_VALUE, "top_k");
    accepts(REQUEST_CHAT, "\"max_tokens\":null");
    for (int n = 0; n <= 9; n += 9) {
        char field[20];
        (void)snprintf(field, sizeof field, "\"n\":%d", n);
        refuses(REQUEST_CHAT, field, REFUSAL_VALUE, "n");
    }
    accepts(REQUEST_CHAT, "\"n\":8");
    refuses(REQUEST_CHAT, "\"top_k\":-1", REFUSAL_VALUE, "top_k");
    accepts(REQUEST_COMPLETION, "\"best_of\":2,\"n\":2");
    refuses(REQUEST_COMPLETION, "\"best_of\":3,\"n\":2", REFUSAL_UNSUPPORTED, "best_of");
    accepts(REQUEST_CHAT, "\"seed\":-1");
    assert_true(request.seed_given && request.params.seed == UINT64_MAX);
    refuses(REQUEST_CHAT, "\"seed\":1.5", REFUSAL_TYPE, "seed");
}

static void streams(void **state)
{
    (void)state;
    accepts(
        REQUEST_CHAT,
        "\"stream\":true,\"stream_options\":{\"include_usage\":true,\"include_obfuscation\":false}");
    assert_true(request.stream && request.include_usage);
    accepts(REQUEST_CHAT, "\"stream_options\":{\"include_usage\":null},\"stream\":true");
    assert_false(request.include_usage);
    refuses(REQUEST_CHAT, "\"stream\":1", REFUSAL_TYPE, "stream");
    refuses(REQUEST_CHAT, "\"stream_options\":{}", REFUSAL_VALUE, "stream_options");
    refuses(REQUEST_CHAT, "\"stream\":true,\"stream_options\":5", REFUSAL_TYPE, "stream_options");
    refuses(REQUEST_CHAT, "\"stream\":true,\"stream_options\":{\"x\":1}", REFUSAL_UNKNOWN,
            "stream_options.x");
    refuses(REQUEST_CHAT, "\"stream\":true,\"stream_options\":{\"include_usage\":1}", REFUSAL_TYPE,
            "stream_options.include_usage");
}

static void stops(void **state)
{
    (void)state;
    char field[4000] = "\"stop\":\"";
    accepts(REQUEST_CHAT, "\"stop\":\"a\\u0000b\"");
    assert_int_equal(request.stop_count, 1);
    assert_int_equal(request.stop_bytes[0], 3);
    accepts(REQUEST_CHAT, "\"stop\":[]");
    accepts(
        REQUEST_CHAT,
        "\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\",\"j\",\"k\",\"l\",\"m\",\"n\",\"o\",\"p\"]");
    assert_int_equal(request.stop_count, 16);
    refuses(REQUEST_CHAT,
            "\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\",\"j\",\"k\",\"l\","
            "\"m\",\"n\",\"o\",\"p\",\"q\"]",
            REFUSAL_VALUE, "stop");
    refuses(REQUEST_CHAT, "\"stop\":\"\"", REFUSAL_VALUE, "stop");
    refuses(REQUEST_CHAT, "\"stop\":[\"a\",\"\"]", REFUSAL_VALUE, "stop[1]");
    refuses(REQUEST_CHAT, "\"stop\":[null]", REFUSAL_TYPE, "stop[0]");
    refuses(REQUEST_CHAT, "\"stop\":5", REFUSAL_TYPE, "stop");
    for (size_t bytes = DETOKENIZER_STOP_BYTES_MAX; bytes <= DETOKENIZER_STOP_BYTES_MAX + 1;
         bytes++) {
        memset(field + 8, 's', bytes);
        memcpy(field + 8 + bytes, "\"", 2);
        assert_int_equal(with(REQUEST_CHAT, field), bytes == DETOKENIZER_STOP_BYTES_MAX);
    }
}

static void bias(void **state)
{
    (void)state;
    accepts(REQUEST_CHAT, "\"logit_bias\":{\"0\":-100,\"999\":1.5}");
    assert_int_equal(request.params.bias_count, 2);
    assert_true(request.params.bias[1].id == 999 && request.params.bias[1].bias == 1.5f);
    static const char *const bad[] = {
        "\"1000\":1", "\"-1\":1",       "\"abc\":1",  "\"05\":1",
        "\"\":1",     "\"5\":101",      "\"5\":-101", "\"99999999999999999999\":1",
        "\"1e2\":1",  "\"5\":1,\"5\":2"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char field[100];
        (void)snprintf(field, sizeof field, "\"logit_bias\":{%s}", bad[i]);
        assert_false(with(REQUEST_CHAT, field));
        assert_int_equal(refusal.kind, REFUSAL_VALUE);
        assert_memory_equal(refusal.param, "logit_bias", 10);
    }
    refuses(REQUEST_CHAT, "\"logit_bias\":{\"5\":\"x\"}", REFUSAL_TYPE, "logit_bias.5");
    refuses(REQUEST_CHAT, "\"logit_bias\":[]", REFUSAL_TYPE, "logit_bias");
    char many[30000] = "\"logit_bias\":{\"0\":0", *end = many + strlen(many);
    for (int i = 1; i <= SAMPLER_BIAS_MAX; i++) end += snprintf(end, 12, ",\"%d\":0", i);
    memcpy(end, "}", 2);
    refuses(REQUEST_CHAT, many, REFUSAL_VALUE, "logit_bias");
}

static void what_is_not_supported(void **state)
{
    (void)state;
    static const char *const refused[][2] = {{"functions", "[{}]"},
                                             {"function_call", "\"auto\""},
                                             {"modalities", "[\"audio\"]"},
                                             {"store", "true"},
                                             {"audio", "{}"},
                                             {"prediction", "{}"},
                                             {"reasoning_effort", "\"low\""},
                                             {"stop_token_ids", "[1]"}};
    static const char *const taken[] = {"\"logprobs\":false",
                                        "\"top_logprobs\":0",
                                        "\"tools\":[]",
                                        "\"tool_choice\":\"none\"",
                                        "\"tool_choice\":\"auto\"",
                                        "\"response_format\":{\"type\":\"text\"}",
                                        "\"modalities\":[\"text\"]",
                                        "\"store\":false",
                                        "\"audio\":null",
                                        "\"user\":\"u\"",
                                        "\"stop_token_ids\":[]",
                                        "\"model\":\"any\""};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char field[100];
        (void)snprintf(field, sizeof field, "\"%s\":%s", refused[i][0], refused[i][1]);
        refuses(REQUEST_CHAT, field, REFUSAL_UNSUPPORTED, refused[i][0]);
    }
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) accepts(REQUEST_CHAT, taken[i]);
    refuses(REQUEST_COMPLETION, "\"suffix\":\"x\"", REFUSAL_UNSUPPORTED, "suffix");
    refuses(REQUEST_CHAT, "\"model\":5", REFUSAL_TYPE, "model");
    refuses(REQUEST_CHAT, "\"user\":5", REFUSAL_TYPE, "user");
}

/* ---- forms ---- */

/* The request's grammar: the refusal's param, or NULL when it is made. */
static const char *form_fault(RequestKind kind, const char *field)
{
    Grammar g;
    accepts(kind, field);
    size_t scratch_bytes = request_form_scratch_bytes(), bytes = grammar_bytes_max();
    void *scratch_memory = malloc(scratch_bytes), *place = malloc(bytes);
    Arena scratch = arena_make(scratch_memory, scratch_bytes), arena = arena_make(place, bytes);
    bool fine = request_form_build(&request, &scratch, &arena, &g, &refusal);
    if (fine) assert_true(g.code_count > 1);
    else assert_true(refusal.why.text[0]);
    free(scratch_memory);
    free(place);
    return fine ? NULL : refusal.param;
}

#define SCHEMA(text) \
    "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":" text "}}"

static void forms(void **state)
{
    (void)state;
    accepts(REQUEST_CHAT, "\"response_format\":{\"type\":\"text\"}");
    assert_int_equal(request.form, REQUEST_FREE);
    assert_null(form_fault(REQUEST_CHAT, "\"response_format\":{\"type\":\"json_object\"}"));
    assert_int_equal(request.form, REQUEST_JSON_OBJECT);
    assert_null(
        form_fault(REQUEST_CHAT, SCHEMA("{\"type\":\"integer\"},\"name\":\"n\",\"strict\":true")));
    assert_int_equal(request.form, REQUEST_JSON_SCHEMA);
    assert_null(form_fault(REQUEST_COMPLETION, "\"grammar\":\"root ::= [a-z]+\""));
    assert_int_equal(request.form, REQUEST_GRAMMAR);
    assert_string_equal(form_fault(REQUEST_CHAT, SCHEMA("{\"not\":{}}")), "response_format");
    assert_string_equal(form_fault(REQUEST_CHAT, SCHEMA("5")), "response_format");
    assert_string_equal(form_fault(REQUEST_CHAT, "\"grammar\":\"root ::= x\""), "grammar");
    static const struct {
        const char *field, *param;
        RefusalKind kind;
    } refused[] = {
        {"\"response_format\":5", "response_format", REFUSAL_TYPE},
        {"\"response_format\":{}", "response_format.type", REFUSAL_VALUE},
        {"\"response_format\":{\"type\":\"xml\"}", "response_format.type", REFUSAL_VALUE},
        {"\"response_format\":{\"type\":\"text\",\"x\":1}", "response_format.x", REFUSAL_UNKNOWN},
        {"\"response_format\":{\"type\":\"json_object\",\"json_schema\":{}}",
         "response_format.json_schema", REFUSAL_VALUE},
        {"\"response_format\":{\"type\":\"json_schema\"}", "response_format.json_schema",
         REFUSAL_MISSING},
        {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{}}",
         "response_format.json_schema.schema", REFUSAL_MISSING},
        {SCHEMA("{},\"strict\":1"), "response_format.json_schema.strict", REFUSAL_TYPE},
        {SCHEMA("{},\"x\":1"), "response_format.json_schema.x", REFUSAL_UNKNOWN},
        {"\"grammar\":5", "grammar", REFUSAL_TYPE},
        {"\"grammar\":\"x\",\"response_format\":{\"type\":\"json_object\"}", "response_format",
         REFUSAL_VALUE},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        refuses(REQUEST_CHAT, refused[i].field, refused[i].kind, refused[i].param);
}

/* ---- messages and prompts ---- */

static void messages(void **state)
{
    (void)state;
    assert_true(parse(
        REQUEST_CHAT,
        "{\"messages\":[{\"content\":\"a\",\"role\":\"developer\"},{\"role\":\"assistant\",\"content\":"
        "[{\"type\":\"text\",\"text\":\"b\"},{\"text\":\"\\u0000c\",\"type\":\"text\"}],\"tool_calls\":[],"
        "\"refusal\":null},{\"role\":\"user\",\"content\":\"\"}]}"));
    assert_int_equal(request.turn_count, 3);
    assert_string_equal(request.turns[0].role, "system");
    assert_int_equal(request.turns[1].bytes, 3);
    assert_memory_equal(request.turns[1].text, "b\0c", 3);
    assert_int_equal(request.turns[2].bytes, 0);
}

static void bad_messages(void **state)
{
    (void)state;
    static const struct {
        const char *message, *param;
        RefusalKind kind;
    } bad[] = {
        {"5", "messages[1]", REFUSAL_TYPE},
        {"{}", "messages[1].role", REFUSAL_MISSING},
        {"{\"role\":1,\"content\":\"x\"}", "messages[1].role", REFUSAL_VALUE},
        {"{\"role\":\"user\"}", "messages[1].content", REFUSAL_MISSING},
        {"{\"role\":\"user\",\"content\":null}", "messages[1].content", REFUSAL_TYPE},
        {"{\"role\":\"user\",\"content\":5}", "messages[1].content", REFUSAL_TYPE},
        {"{\"role\":\"user\",\"content\":[]}", "messages[1].content", REFUSAL_VALUE},
        {"{\"role\":\"user\",\"content\":[5]}", "messages[1].content", REFUSAL_UNSUPPORTED},
        {"{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}", "messages[1].content",
         REFUSAL_UNSUPPORTED},
        {"{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":1}]}", "messages[1].content",
         REFUSAL_TYPE},
        {"{\"role\":\"user\",\"content\":\"x\",\"content\":\"y\"}", "messages[1].content",
         REFUSAL_VALUE},
        {"{\"role\":\"user\",\"content\":\"x\",\"name\":\"me\"}", "messages[1].name",
         REFUSAL_UNSUPPORTED},
        {"{\"role\":\"user\",\"content\":\"x\",\"tool_calls\":[{}]}", "messages[1].tool_calls",
         REFUSAL_UNSUPPORTED},
        {"{\"role\":\"user\",\"content\":\"x\",\"odd\":null}", "messages[1].odd", REFUSAL_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char body[400];
        (void)snprintf(body, sizeof body,
                       "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},%s]}", bad[i].message);
        assert_false(parse(REQUEST_CHAT, body));
        if (refusal.kind != bad[i].kind || strcmp(refusal.param, bad[i].param) != 0)
            fail_msg("%s: kind %d, param %s: %s", bad[i].message, refusal.kind, refusal.param,
                     refusal.why.text);
    }
    assert_false(parse(REQUEST_CHAT, "{\"messages\":[]}"));
    assert_false(parse(REQUEST_CHAT, "{\"messages\":{}}"));
    /* More items than their bytes could hold messages. */
    char body[5000] = "{\"messages\":[1";
    for (size_t at = strlen(body); at < 4900; at += 2) memcpy(body + at, ",1", 3);
    memcpy(body + strlen(body), "]}", 3);
    assert_false(parse(REQUEST_CHAT, body));
    assert_int_equal(refusal.kind, REFUSAL_TYPE);
}

static void prompts(void **state)
{
    (void)state;
    assert_true(parse(REQUEST_COMPLETION, "{\"prompt\":[5,999,0]}"));
    assert_true(request.prompt_count == 1 && request.prompts[0].is_ids &&
                request.prompts[0].count == 3);
    assert_int_equal(request.prompts[0].ids[1], 999);
    assert_true(parse(REQUEST_COMPLETION, "{\"prompt\":[\"a\",\"\"]}"));
    assert_true(request.prompt_count == 2 && !request.prompts[1].is_ids &&
                request.prompts[1].bytes == 0);
    assert_true(parse(REQUEST_COMPLETION, "{\"prompt\":[[1,2],[3]]}"));
    assert_true(request.prompt_count == 2 && request.prompts[1].count == 1);
    static const char *const bad[][2] = {
        {"[]", "prompt"},
        {"[[]]", "prompt[0]"},
        {"[-1]", "prompt[0]"},
        {"[[-1]]", "prompt[0][0]"},
        {"[1,1000]", "prompt[1]"},
        {"[2147483648]", "prompt[0]"},
        {"[5279552648203111001]", "prompt[0]"},
        {"[18446744073709551615]", "prompt[0]"},
        {"[1.5]", "prompt[0]"},
        {"[true]", "prompt[0]"},
        {"[null]", "prompt[0]"},
        {"[{}]", "prompt[0]"},
        {"5", "prompt"},
        {"{}", "prompt"},
        {"[\"a\",5]", "prompt[1]"},
        {"[[1],\"a\",null]", "prompt[2]"},
        {"[\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\"]", "prompt"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char body[100];
        (void)snprintf(body, sizeof body, "{\"prompt\":%s}", bad[i][0]);
        assert_false(parse(REQUEST_COMPLETION, body));
        if (strcmp(refusal.param, bad[i][1]) != 0)
            fail_msg("%s: param %s", bad[i][0], refusal.param);
    }
    assert_false(parse(REQUEST_COMPLETION, "{\"prompt\":[\"a\",\"b\",\"c\"],\"n\":3}"));
    assert_string_equal(refusal.param, "n");
}

static void tokens(void **state)
{
    (void)state;
    assert_true(
        parse(REQUEST_TOKENIZE, "{\"text\":\"a\",\"add_special\":true,\"parse_special\":false}"));
    assert_true(request.add_bos && request.plain_specials);
    assert_true(parse(REQUEST_TOKENIZE, "{\"content\":\"\"}"));
    assert_false(request.add_bos || request.plain_specials);
    assert_false(parse(REQUEST_TOKENIZE, "{\"content\":\"a\",\"text\":\"a\"}"));
    assert_false(parse(REQUEST_TOKENIZE, "{\"text\":5}"));
    assert_false(parse(REQUEST_TOKENIZE, "{}"));
    assert_true(parse(REQUEST_DETOKENIZE, "{\"ids\":[]}"));
    assert_true(parse(REQUEST_DETOKENIZE, "{\"tokens\":[1]}"));
    assert_false(parse(REQUEST_DETOKENIZE, "{\"ids\":[1000]}"));
    assert_string_equal(refusal.param, "ids[0]");
    assert_false(parse(REQUEST_DETOKENIZE, "{\"ids\":\"1\"}"));
    assert_false(parse(REQUEST_DETOKENIZE, "{}"));
    assert_string_equal(refusal.param, "ids");
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
        cmocka_unit_test(no_json),
        cmocka_unit_test(depth),
        cmocka_unit_test(too_many_values),
        cmocka_unit_test(defaults),
        cmocka_unit_test(duplicates_and_unknown),
        cmocka_unit_test(numbers),
        cmocka_unit_test(counts),
        cmocka_unit_test(streams),
        cmocka_unit_test(stops),
        cmocka_unit_test(bias),
        cmocka_unit_test(what_is_not_supported),
        cmocka_unit_test(forms),
        cmocka_unit_test(messages),
        cmocka_unit_test(bad_messages),
        cmocka_unit_test(prompts),
        cmocka_unit_test(tokens),
    };
    return cmocka_run_group_tests(tests, NULL, forget);
}
