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

static bool parse(RequestKind kind, const char *body)
{
    size_t bytes = strlen(body), room = request_bytes(bytes);
    free(memory);
    memory = malloc(room);
    Arena arena = arena_make(memory, room);
    return request_parse(kind, VOCABULARY, (const uint8_t *)body, bytes, &arena, &request,
                         &refusal);
}

static bool with(RequestKind kind, const char *field)
{
    char body[4000];
    const char *start = kind == REQUEST_OLLAMA_CHAT
                            ? "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]"
                            : "\"prompt\":\"a\"";
    (void)snprintf(body, sizeof body, "{\"model\":\"m\",%s,%s}", start, field);
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

static void is_turn(size_t index, const char *role, const char *text)
{
    assert_true(index < request.turn_count);
    assert_string_equal(request.turns[index].role, role);
    assert_int_equal(request.turns[index].bytes, strlen(text));
    assert_memory_equal(request.turns[index].text, text, strlen(text));
}

static void defaults(void **state)
{
    (void)state;
    for (int kind = REQUEST_OLLAMA_CHAT; kind <= REQUEST_OLLAMA_GENERATE; kind++) {
        accepts((RequestKind)kind, "\"options\":{}");
        const SamplerParams *p = &request.params;
        assert_true(request.stream && !request.loads && !request.seed_given);
        assert_true(p->temperature == 0.8f && p->top_p == 0.9f && p->min_p == 0);
        assert_true(p->repetition_penalty == 1.1f);
        assert_int_equal(p->top_k, 40);
        assert_int_equal(p->repeat_window, 64);
        assert_int_equal(request.tokens_max, REQUEST_TOKENS_UNLIMITED);
        assert_int_equal(request.context_max, 0);
        assert_int_equal(request.n, 1);
    }
}

static void options(void **state)
{
    (void)state;
    accepts(REQUEST_OLLAMA_CHAT,
            "\"stream\":false,\"options\":{\"temperature\":0.5,\"top_p\":0.25,\"top_k\":3,"
            "\"min_p\":0.125,\"repeat_penalty\":1.5,\"repeat_last_n\":10,\"presence_penalty\":0.5,"
            "\"frequency_penalty\":0.25,\"seed\":7,\"stop\":[\"x\",\"yz\"],\"num_predict\":9,"
            "\"num_ctx\":100,\"mirostat\":0,\"typical_p\":1.0,\"penalize_newline\":true}");
    const SamplerParams *p = &request.params;
    assert_false(request.stream);
    assert_true(p->temperature == 0.5f && p->top_p == 0.25f && p->min_p == 0.125f);
    assert_true(p->repetition_penalty == 1.5f && p->presence_penalty == 0.5f &&
                p->frequency_penalty == 0.25f);
    assert_int_equal(p->top_k, 3);
    assert_int_equal(p->repeat_window, 10);
    assert_int_equal(p->seed, 7);
    assert_true(request.seed_given);
    assert_int_equal(request.stop_count, 2);
    assert_int_equal(request.tokens_max, 9);
    assert_int_equal(request.context_max, 100);
}

static void special_numbers(void **state)
{
    (void)state;
    accepts(REQUEST_OLLAMA_CHAT, "\"options\":{\"seed\":-1,\"num_predict\":-1}");
    assert_false(request.seed_given);
    assert_int_equal(request.tokens_max, REQUEST_TOKENS_UNLIMITED);
    accepts(REQUEST_OLLAMA_CHAT, "\"options\":{\"num_predict\":-2,\"repeat_last_n\":-1}");
    assert_int_equal(request.params.repeat_window, 0);
    assert_true(request.params.repetition_penalty == 1.1f);
    accepts(REQUEST_OLLAMA_CHAT,
            "\"options\":{\"repeat_last_n\":0,\"presence_penalty\":1,\"repeat_penalty\":1.3}");
    assert_true(request.params.repetition_penalty == 1 && request.params.presence_penalty == 0);
    refuses(REQUEST_OLLAMA_CHAT, "\"options\":{\"num_predict\":0}", REFUSAL_VALUE,
            "options.num_predict");
    refuses(REQUEST_OLLAMA_CHAT, "\"options\":{\"num_predict\":-3}", REFUSAL_VALUE,
            "options.num_predict");
    refuses(REQUEST_OLLAMA_CHAT, "\"options\":{\"repeat_last_n\":5000}", REFUSAL_VALUE,
            "options.repeat_last_n");
    refuses(REQUEST_OLLAMA_CHAT, "\"options\":{\"repeat_last_n\":-2}", REFUSAL_VALUE,
            "options.repeat_last_n");
    refuses(REQUEST_OLLAMA_CHAT, "\"options\":{\"num_ctx\":0}", REFUSAL_VALUE, "options.num_ctx");
}

static void refused_options(void **state)
{
    (void)state;
    static const char *const names[] = {"num_gpu",  "num_thread",   "num_batch",    "main_gpu",
                                        "low_vram", "use_mmap",     "use_mlock",    "numa",
                                        "f16_kv",   "mirostat_tau", "mirostat_eta", "num_keep",
                                        "mirostat", "tfs_z",        "typical_p"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char field[100], param[100];
        (void)snprintf(field, sizeof field, "\"options\":{\"%s\":2}", names[i]);
        (void)snprintf(param, sizeof param, "options.%s", names[i]);
        refuses(REQUEST_OLLAMA_GENERATE, field, REFUSAL_UNSUPPORTED, param);
    }
    refuses(REQUEST_OLLAMA_CHAT, "\"options\":{\"max_tokens\":2}", REFUSAL_UNKNOWN,
            "options.max_tokens");
    refuses(REQUEST_OLLAMA_CHAT, "\"options\":{\"temperature\":9}", REFUSAL_VALUE,
            "options.temperature");
    refuses(REQUEST_OLLAMA_CHAT, "\"options\":{\"top_k\":1,\"top_k\":1}", REFUSAL_VALUE,
            "options.top_k");
    refuses(REQUEST_OLLAMA_CHAT, "\"options\":[]", REFUSAL_TYPE, "options");
    refuses(REQUEST_OLLAMA_CHAT, "\"temperature\":0", REFUSAL_UNKNOWN, "temperature");
}

static void prompts(void **state)
{
    (void)state;
    accepts(REQUEST_OLLAMA_GENERATE, "\"system\":\"s\"");
    assert_int_equal(request.turn_count, 2);
    is_turn(0, "system", "s");
    is_turn(1, "user", "a");
    assert_int_equal(request.prompt_count, 0);
    accepts(REQUEST_OLLAMA_GENERATE, "\"system\":\"\",\"raw\":true");
    assert_int_equal(request.turn_count, 0);
    assert_int_equal(request.prompt_count, 1);
    assert_memory_equal(request.prompts[0].text, "a", 1);
    refuses(REQUEST_OLLAMA_GENERATE, "\"system\":\"s\",\"raw\":true", REFUSAL_VALUE, "system");
    refuses(REQUEST_OLLAMA_GENERATE, "\"raw\":1", REFUSAL_TYPE, "raw");
    assert_false(parse(REQUEST_OLLAMA_GENERATE, "{\"prompt\":[1]}"));
    assert_int_equal(refusal.kind, REFUSAL_TYPE);
}

static void loading(void **state)
{
    (void)state;
    assert_true(parse(REQUEST_OLLAMA_GENERATE, "{\"model\":\"m\"}") && request.loads);
    assert_true(parse(REQUEST_OLLAMA_GENERATE, "{\"prompt\":\"\",\"system\":\"s\"}"));
    assert_true(request.loads);
    assert_true(parse(REQUEST_OLLAMA_CHAT, "{\"messages\":[]}") && request.loads);
    assert_true(parse(REQUEST_OLLAMA_CHAT, "{}") && request.loads);
}

static void forms(void **state)
{
    (void)state;
    accepts(REQUEST_OLLAMA_CHAT, "\"format\":\"\"");
    assert_int_equal(request.form, REQUEST_FREE);
    accepts(REQUEST_OLLAMA_CHAT, "\"format\":\"json\"");
    assert_int_equal(request.form, REQUEST_JSON_OBJECT);
    accepts(REQUEST_OLLAMA_GENERATE, "\"format\":{\"type\":\"integer\"}");
    assert_int_equal(request.form, REQUEST_JSON_SCHEMA);
    assert_non_null(request.schema);
    refuses(REQUEST_OLLAMA_CHAT, "\"format\":\"xml\"", REFUSAL_VALUE, "format");
    refuses(REQUEST_OLLAMA_CHAT, "\"format\":1", REFUSAL_TYPE, "format");
}

static void neutral_and_refused(void **state)
{
    (void)state;
    static const char *const neutral[] = {"\"keep_alive\":\"5m\"", "\"keep_alive\":-1",
                                          "\"keep_alive\":300",    "\"think\":false",
                                          "\"logprobs\":false",    "\"top_logprobs\":0"};
    static const char *const refused[][2] = {{"\"keep_alive\":0", "keep_alive"},
                                             {"\"keep_alive\":\"0s\"", "keep_alive"},
                                             {"\"think\":true", "think"},
                                             {"\"think\":\"low\"", "think"},
                                             {"\"logprobs\":true", "logprobs"}};
    static const char *const blank[] = {"suffix", "template", "context", "images"};
    for (size_t i = 0; i < sizeof neutral / sizeof neutral[0]; i++) {
        accepts(REQUEST_OLLAMA_CHAT, neutral[i]);
        accepts(REQUEST_OLLAMA_GENERATE, neutral[i]);
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        refuses(REQUEST_OLLAMA_CHAT, refused[i][0], REFUSAL_UNSUPPORTED, refused[i][1]);
    for (size_t i = 0; i < sizeof blank / sizeof blank[0]; i++) {
        char field[100];
        (void)snprintf(field, sizeof field, "\"%s\":[1]", blank[i]);
        refuses(REQUEST_OLLAMA_GENERATE, field, REFUSAL_UNSUPPORTED, blank[i]);
        (void)snprintf(field, sizeof field, "\"%s\":[]", blank[i]);
        accepts(REQUEST_OLLAMA_GENERATE, field);
        refuses(REQUEST_OLLAMA_CHAT, field, REFUSAL_UNKNOWN, blank[i]);
    }
    refuses(REQUEST_OLLAMA_CHAT, "\"keep_alive\":true", REFUSAL_TYPE, "keep_alive");
}

static void messages(void **state)
{
    (void)state;
    assert_true(parse(REQUEST_OLLAMA_CHAT,
                      "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"images\":[],"
                      "\"tool_calls\":null,\"thinking\":\"\"}]}"));
    is_turn(0, "assistant", "a");
    assert_false(
        parse(REQUEST_OLLAMA_CHAT,
              "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"images\":[\"x\"]}]}"));
    assert_int_equal(refusal.kind, REFUSAL_UNSUPPORTED);
    assert_string_equal(refusal.param, "messages[0].images");
}

static void tools(void **state)
{
    (void)state;
    static const char tool[] = "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
                               "\"description\":\"d\",\"parameters\":{\"type\":\"object\"}}}]";
    accepts(REQUEST_OLLAMA_CHAT, tool);
    assert_int_equal(request.tool_count, 1);
    assert_true(request.reads_calls && request.form == REQUEST_FREE && request.tool_values);
    accepts(REQUEST_OLLAMA_CHAT, "\"tools\":[]");
    assert_false(request.reads_calls);
    refuses(REQUEST_OLLAMA_CHAT, "\"tools\":[{\"type\":\"web\"}]", REFUSAL_UNSUPPORTED,
            "tools[0].type");
    refuses(REQUEST_OLLAMA_GENERATE, tool, REFUSAL_UNKNOWN, "tools");
    char both[400];
    (void)snprintf(both, sizeof both, "%s,\"format\":\"json\"", tool);
    refuses(REQUEST_OLLAMA_CHAT, both, REFUSAL_UNSUPPORTED, "format");
}

static void calls_and_answers(void **state)
{
    (void)state;
    assert_true(parse(REQUEST_OLLAMA_CHAT,
                      "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":"
                      "[{\"function\":{\"index\":0,\"name\":\"f\",\"arguments\":{\"a\":[1]}}}]},"
                      "{\"role\":\"tool\",\"tool_name\":\"f\",\"content\":\"5\"},"
                      "{\"role\":\"tool\",\"content\":\"6\"}]}"));
    assert_int_equal(request.turn_count, 3);
    assert_non_null(request.turns[0].calls);
    is_turn(1, "tool", "5");
    assert_string_equal(request.turns[1].name, "f");
    is_turn(2, "tool", "6");
    static const struct {
        const char *message, *param;
    } bad[] = {
        {"{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
         "\"arguments\":\"{}\"}}]}",
         "messages[0].tool_calls[0].function.arguments"},
        {"{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"arguments\":{}}}]}",
         "messages[0].tool_calls[0].function.name"},
        {"{\"role\":\"tool\",\"tool_name\":5,\"content\":\"\"}", "messages[0].tool_name"},
        {"{\"role\":\"tool\",\"tool_name\":\"a b\",\"content\":\"\"}", "messages[0].tool_name"},
        {"{\"role\":\"user\",\"tool_name\":\"f\",\"content\":\"\"}", "messages[0].tool_name"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char body[400];
        (void)snprintf(body, sizeof body, "{\"messages\":[%s]}", bad[i].message);
        assert_false(parse(REQUEST_OLLAMA_CHAT, body));
        assert_string_equal(refusal.param, bad[i].param);
    }
}

static void show(void **state)
{
    (void)state;
    assert_true(parse(REQUEST_OLLAMA_SHOW, "{\"model\":\"m\",\"verbose\":false}"));
    assert_true(parse(REQUEST_OLLAMA_SHOW, "{\"name\":\"m\"}"));
    assert_false(parse(REQUEST_OLLAMA_SHOW, "{\"verbose\":true}"));
    assert_string_equal(refusal.param, "verbose");
    assert_false(parse(REQUEST_OLLAMA_SHOW, "{\"prompt\":\"a\"}"));
    assert_int_equal(refusal.kind, REFUSAL_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),        cmocka_unit_test(options),
        cmocka_unit_test(special_numbers), cmocka_unit_test(refused_options),
        cmocka_unit_test(prompts),         cmocka_unit_test(loading),
        cmocka_unit_test(forms),           cmocka_unit_test(neutral_and_refused),
        cmocka_unit_test(messages),        cmocka_unit_test(show),
        cmocka_unit_test(tools),           cmocka_unit_test(calls_and_answers),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(memory);
    return failed;
}
