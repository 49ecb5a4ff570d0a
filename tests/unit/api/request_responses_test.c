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
static char echo[REQUEST_ECHO_BYTES_MAX + 3];

static bool parse(const char *body)
{
    size_t bytes = strlen(body), room = request_bytes(bytes);
    free(memory);
    memory = malloc(room);
    Arena arena = arena_make(memory, room);
    return request_parse(REQUEST_RESPONSES, VOCABULARY, (const uint8_t *)body, bytes, &arena,
                         &request, &refusal);
}

static bool with(const char *field)
{
    char body[4000];
    (void)snprintf(body, sizeof body, "{\"input\":\"a\",%s}", field);
    return parse(body);
}

static void refuses(const char *field, RefusalKind why, const char *param)
{
    assert_false(with(field));
    if (refusal.kind != why || strcmp(refusal.param, param) != 0)
        fail_msg("%s: kind %d, param %s: %s", field, refusal.kind, refusal.param, refusal.why.text);
}

static void accepts(const char *field)
{
    if (!with(field)) fail_msg("%s: %s", field, refusal.why.text);
}

static void is_turn(size_t index, const char *role, const char *text)
{
    assert_true(index < request.turn_count);
    assert_string_equal(request.turns[index].role, role);
    assert_int_equal(request.turns[index].bytes, strlen(text));
    assert_memory_equal(request.turns[index].text, text, strlen(text));
}

/* The members that the answer repeats, as an object. */
static yyjson_doc *echoed(void)
{
    JsonWriter w = json_writer_make(echo + 1, REQUEST_ECHO_BYTES_MAX);
    assert_true(request_echo(&request, &w, &refusal));
    assert_int_equal(echo[1], ',');
    echo[1] = '{';
    echo[1 + w.used] = '}';
    yyjson_doc *doc = yyjson_read(echo + 1, w.used + 1, 0);
    assert_non_null(doc);
    return doc;
}

static void inputs(void **state)
{
    (void)state;
    assert_true(parse("{\"input\":\"hi\",\"model\":\"m\"}"));
    assert_int_equal(request.turn_count, 1);
    is_turn(0, "user", "hi");
    assert_false(request.stream);
    assert_int_equal(request.tokens_max, REQUEST_TOKENS_UNLIMITED);
    assert_true(parse(
        "{\"input\":[{\"role\":\"developer\",\"content\":\"d\"},"
        "{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"},"
        "{\"type\":\"input_text\",\"text\":\"b\"}]},"
        "{\"type\":\"message\",\"id\":\"msg_1\",\"status\":\"completed\",\"role\":\"assistant\","
        "\"phase\":null,\"content\":[{\"type\":\"output_text\",\"text\":\"c\",\"annotations\":[],"
        "\"logprobs\":[]}]}],\"instructions\":\"first\"}"));
    assert_int_equal(request.turn_count, 4);
    is_turn(0, "system", "first");
    is_turn(1, "system", "d");
    is_turn(2, "user", "ab");
    is_turn(3, "assistant", "c");
}

static void bad_inputs(void **state)
{
    (void)state;
    static const struct {
        const char *input, *param;
        RefusalKind kind;
    } cases[] = {
        {"5", "input", REFUSAL_TYPE},
        {"[]", "input", REFUSAL_VALUE},
        {"[1]", "input[0]", REFUSAL_TYPE},
        {"[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "input[0]", REFUSAL_TYPE},
        {"[{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"o\"}]",
         "input[0].type", REFUSAL_UNSUPPORTED},
        {"[{\"type\":\"item_reference\",\"id\":\"msg_1\"}]", "input[0].type", REFUSAL_UNSUPPORTED},
        {"[{\"content\":\"a\"}]", "input[0].role", REFUSAL_MISSING},
        {"[{\"role\":\"tool\",\"content\":\"a\"}]", "input[0].role", REFUSAL_VALUE},
        {"[{\"role\":\"user\"}]", "input[0].content", REFUSAL_MISSING},
        {"[{\"role\":\"user\",\"content\":5}]", "input[0].content", REFUSAL_TYPE},
        {"[{\"role\":\"user\",\"content\":[]}]", "input[0].content", REFUSAL_VALUE},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"image_url\":\"u\"}]}]",
         "input[0].content", REFUSAL_UNSUPPORTED},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\"}]}]", "input[0].content",
         REFUSAL_TYPE},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\",\"x\":1}]}]",
         "input[0].content.x", REFUSAL_UNKNOWN},
        {"[{\"role\":\"user\",\"content\":\"a\",\"name\":\"n\"}]", "input[0].name",
         REFUSAL_UNKNOWN},
        {"[{\"role\":\"user\",\"content\":\"a\",\"phase\":\"commentary\"}]", "input[0].phase",
         REFUSAL_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char body[1000];
        (void)snprintf(body, sizeof body, "{\"input\":%s}", cases[i].input);
        assert_false(parse(body));
        if (refusal.kind != cases[i].kind || strcmp(refusal.param, cases[i].param) != 0)
            fail_msg("%s: kind %d, param %s: %s", body, refusal.kind, refusal.param,
                     refusal.why.text);
    }
    assert_false(parse("{\"instructions\":\"a\"}"));
    assert_int_equal(refusal.kind, REFUSAL_MISSING);
    assert_string_equal(refusal.param, "input");
}

static void sampling(void **state)
{
    (void)state;
    accepts("\"max_output_tokens\":7,\"temperature\":0.5,\"top_p\":0.25,\"stream\":true,\"seed\":3,"
            "\"stop\":\"x\",\"top_k\":4");
    assert_int_equal(request.tokens_max, 7);
    assert_true(request.params.temperature == 0.5f && request.params.top_p == 0.25f);
    assert_true(request.stream && request.seed_given);
    assert_int_equal(request.params.top_k, 4);
    assert_int_equal(request.stop_count, 1);
    assert_true(with("\"user\":\"u\""));
    assert_true(request.params.temperature == 1);
    refuses("\"temperature\":3", REFUSAL_VALUE, "temperature");
    refuses("\"max_tokens\":3", REFUSAL_UNKNOWN, "max_tokens");
    refuses("\"max_output_tokens\":-1", REFUSAL_VALUE, "max_output_tokens");
    refuses("\"n\":2", REFUSAL_UNKNOWN, "n");
    refuses("\"messages\":[]", REFUSAL_UNKNOWN, "messages");
    refuses("\"instructions\":[]", REFUSAL_TYPE, "instructions");
}

static void forms(void **state)
{
    (void)state;
    accepts("\"text\":{}");
    assert_int_equal(request.form, REQUEST_FREE);
    accepts("\"text\":{\"format\":{\"type\":\"text\"},\"verbosity\":\"medium\"}");
    assert_int_equal(request.form, REQUEST_FREE);
    accepts("\"text\":{\"format\":{\"type\":\"json_object\"}}");
    assert_int_equal(request.form, REQUEST_JSON_OBJECT);
    accepts("\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\",\"strict\":true,"
            "\"schema\":{\"type\":\"integer\"}}}");
    assert_int_equal(request.form, REQUEST_JSON_SCHEMA);
    assert_non_null(request.schema);
    refuses("\"text\":1", REFUSAL_TYPE, "text");
    refuses("\"text\":{\"x\":1}", REFUSAL_UNKNOWN, "text.x");
    refuses("\"text\":{\"verbosity\":\"low\"}", REFUSAL_UNSUPPORTED, "text.verbosity");
    refuses("\"text\":{\"format\":1}", REFUSAL_TYPE, "text.format");
    refuses("\"text\":{\"format\":{\"type\":\"xml\"}}", REFUSAL_VALUE, "text.format.type");
    refuses("\"text\":{\"format\":{\"type\":\"json_schema\"}}", REFUSAL_MISSING,
            "text.format.schema");
    refuses("\"text\":{\"format\":{\"type\":\"json_schema\",\"schema\":{},\"strict\":1}}",
            REFUSAL_TYPE, "text.format.strict");
    refuses("\"text\":{\"format\":{\"type\":\"json_object\",\"schema\":{}}}", REFUSAL_UNKNOWN,
            "text.format.schema");
    refuses("\"text\":{\"format\":{\"type\":\"json_object\"}},\"grammar\":\"root ::= \\\"a\\\"\"",
            REFUSAL_VALUE, "grammar");
}

static void what_is_not_there(void **state)
{
    (void)state;
    static const char *const neutral[] = {
        "\"store\":false",
        "\"truncation\":\"disabled\"",
        "\"service_tier\":\"auto\"",
        "\"tools\":[]",
        "\"tool_choice\":\"auto\"",
        "\"parallel_tool_calls\":true",
        "\"include\":[]",
        "\"background\":false",
        "\"reasoning\":{\"effort\":null}",
        "\"top_logprobs\":0",
        "\"previous_response_id\":null",
        "\"prompt_cache_key\":\"k\"",
        "\"safety_identifier\":\"s\"",
        "\"stream\":true,\"stream_options\":{\"include_obfuscation\":false}"};
    static const char *const refused[][2] = {
        {"\"store\":true", "store"},
        {"\"truncation\":\"auto\"", "truncation"},
        {"\"service_tier\":\"flex\"", "service_tier"},
        {"\"include\":[\"message.output_text.logprobs\"]", "include"},
        {"\"background\":true", "background"},
        {"\"reasoning\":{\"effort\":\"low\"}", "reasoning"},
        {"\"top_logprobs\":2", "top_logprobs"},
        {"\"previous_response_id\":\"resp_1\"", "previous_response_id"},
        {"\"conversation\":\"conv_1\"", "conversation"},
        {"\"prompt\":{\"id\":\"p\"}", "prompt"},
        {"\"max_tool_calls\":1", "max_tool_calls"},
        {"\"prompt_cache_retention\":\"24h\"", "prompt_cache_retention"}};
    for (size_t i = 0; i < sizeof neutral / sizeof neutral[0]; i++) accepts(neutral[i]);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        refuses(refused[i][0], REFUSAL_UNSUPPORTED, refused[i][1]);
    refuses("\"stream_options\":{}", REFUSAL_VALUE, "stream_options");
    refuses("\"stream\":true,\"stream_options\":{\"include_usage\":true}", REFUSAL_UNKNOWN,
            "stream_options.include_usage");
}

static void metadata(void **state)
{
    (void)state;
    accepts("\"metadata\":{\"a\":\"b\"}");
    refuses("\"metadata\":[]", REFUSAL_TYPE, "metadata");
    refuses("\"metadata\":{\"a\":1}", REFUSAL_TYPE, "metadata.a");
    char many[1000] = "\"metadata\":{\"k\":\"v\"", longer[1000];
    for (int i = 0; i < 16; i++)
        (void)snprintf(many + strlen(many), sizeof many - strlen(many), ",\"k%d\":\"v\"%s", i,
                       i == 15 ? "}" : "");
    refuses(many, REFUSAL_VALUE, "metadata");
    (void)snprintf(longer, sizeof longer, "\"metadata\":{\"a\":\"%0513d\"}", 1);
    refuses(longer, REFUSAL_VALUE, "metadata.a");
}

static void echoes(void **state)
{
    (void)state;
    accepts("\"user\":\"u\"");
    yyjson_doc *doc = echoed();
    assert_true(yyjson_is_null(yyjson_doc_ptr_get(doc, "/instructions")));
    assert_true(yyjson_is_obj(yyjson_doc_ptr_get(doc, "/metadata")));
    assert_true(yyjson_get_num(yyjson_doc_ptr_get(doc, "/temperature")) == 1);
    assert_string_equal(yyjson_get_str(yyjson_doc_ptr_get(doc, "/text/format/type")), "text");
    yyjson_doc_free(doc);
    accepts("\"instructions\":\"a\\\"b\",\"metadata\":{\"k\":\"v\"},\"temperature\":0.3,"
            "\"max_output_tokens\":9,\"text\":{\"format\":{\"type\":\"json_object\"}}");
    doc = echoed();
    assert_string_equal(yyjson_get_str(yyjson_doc_ptr_get(doc, "/instructions")), "a\"b");
    assert_string_equal(yyjson_get_str(yyjson_doc_ptr_get(doc, "/metadata/k")), "v");
    assert_true(yyjson_get_num(yyjson_doc_ptr_get(doc, "/temperature")) == 0.3);
    assert_int_equal(yyjson_get_uint(yyjson_doc_ptr_get(doc, "/max_output_tokens")), 9);
    assert_string_equal(yyjson_get_str(yyjson_doc_ptr_get(doc, "/text/format/type")),
                        "json_object");
    yyjson_doc_free(doc);
}

static void long_echoes_are_refused(void **state)
{
    (void)state;
    static char body[REQUEST_ECHO_BYTES_MAX + 100];
    (void)snprintf(body, sizeof body, "{\"input\":\"a\",\"instructions\":\"%0*d\"}",
                   REQUEST_ECHO_BYTES_MAX, 1);
    assert_true(parse(body));
    JsonWriter w = json_writer_make(echo, REQUEST_ECHO_BYTES_MAX);
    assert_false(request_echo(&request, &w, &refusal));
    assert_int_equal(refusal.kind, REFUSAL_VALUE);
    assert_string_equal(refusal.param, "instructions");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs),   cmocka_unit_test(bad_inputs),
        cmocka_unit_test(sampling), cmocka_unit_test(forms),
        cmocka_unit_test(metadata), cmocka_unit_test(what_is_not_there),
        cmocka_unit_test(echoes),   cmocka_unit_test(long_echoes_are_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(memory);
    return failed;
}
