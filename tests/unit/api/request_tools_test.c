/* SPDX-License-Identifier: Apache-2.0 */
/* Tools in requests: what is taken, what is refused and by which name, and the grammars of forced calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "api/request.h"
#include "text/grammar_machine.h"
#include "text/tool_calls.h"

static Request request;
static Refusal refusal;
static void *memory;

static bool parse(const char *body)
{
    free(memory);
    size_t room = request_bytes(strlen(body));
    memory = malloc(room);
    Arena arena = arena_make(memory, room);
    return request_parse(REQUEST_CHAT, 1000, (const uint8_t *)body, strlen(body), &arena, &request,
                         &refusal);
}

/* Appends to a text that has room; the result is how much. */
__attribute__((format(printf, 2, 3))) static int put(char *at, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(at, 2000, format, arguments);
    va_end(arguments);
    return bytes;
}

#define USER "{\"role\":\"user\",\"content\":\"a\"}"
#define F "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"
#define G                                                                                                       \
    "{\"type\":\"function\",\"function\":{\"name\":\"g\",\"description\":\"d\",\"strict\":null,\"parameters\":" \
    "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\"}},\"required\":[\"x\"]}}}"

static bool with(const char *fields)
{
    static char body[400000];
    (void)snprintf(body, sizeof body, "{\"messages\":[" USER "],%s}", fields);
    return parse(body);
}

static bool after_user(const char *messages)
{
    static char body[400000];
    int bytes = snprintf(body, sizeof body, "{\"messages\":[" USER ",%s]}", messages);
    assert_in_range(bytes, 1, sizeof body - 1);
    return parse(body);
}

static void is_refused(const char *what, RefusalKind kind, const char *param)
{
    if (refusal.kind != kind || strcmp(refusal.param, param) != 0)
        fail_msg("%s: kind %d, param %s: %s", what, refusal.kind, refusal.param, refusal.why.text);
}

static void tools(void **state)
{
    (void)state;
    assert_true(with("\"tools\":[" F "," G "]"));
    assert_int_equal(request.tool_count, 2);
    assert_true(request.reads_calls && request.form == REQUEST_FREE && !request.one_call);
    assert_non_null(request.tool_values);
    assert_int_equal(request.tool_values->list->count, 2);
    assert_memory_equal(request.tools[1].name, "g", 1);
    assert_null(request.tools[0].parameters);
    assert_true(with("\"parallel_tool_calls\":false,\"tools\":[" F "]") && request.one_call);
    assert_true(with("\"tools\":[]") && !request.reads_calls && !request.tool_values);
    assert_true(with("\"tools\":null,\"tool_choice\":null,\"parallel_tool_calls\":null"));
    assert_true(with("\"tools\":[" F "],\"tool_choice\":\"none\""));
    assert_true(!request.reads_calls && !request.tool_values);
    assert_true(with("\"tools\":[" F "],\"tool_choice\":\"required\"") &&
                request.form == REQUEST_TOOL_CALLS);
    assert_true(with("\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}},"
                     "\"tools\":[" F "," G "]"));
    assert_true(request.tool_choice == REQUEST_TOOLS_NAMED && request.tool_chosen == 1);
    assert_true(
        with("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true}}]"));
    assert_true(request.form == REQUEST_TOOL_CALLS && request.tool_choice == REQUEST_TOOLS_AUTO);
    assert_true(with("\"response_format\":{\"type\":\"json_object\"},\"tools\":[" F
                     "],\"tool_choice\":\"none\""));
}

static const struct {
    const char *fields, *param;
    RefusalKind kind;
} bad_tools[] = {
    {"\"tools\":{}", "tools", REFUSAL_TYPE},
    {"\"tools\":[5]", "tools[0]", REFUSAL_TYPE},
    {"\"tools\":[" F ",{}]", "tools[1].type", REFUSAL_MISSING},
    {"\"tools\":[{\"type\":\"web_search\"}]", "tools[0].type", REFUSAL_UNSUPPORTED},
    {"\"tools\":[{\"type\":\"function\"}]", "tools[0].function", REFUSAL_MISSING},
    {"\"tools\":[{\"type\":\"function\",\"function\":[]}]", "tools[0].function", REFUSAL_TYPE},
    {"\"tools\":[{\"type\":\"function\",\"function\":{}}]", "tools[0].function.name",
     REFUSAL_MISSING},
    {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]",
     "tools[0].function.name", REFUSAL_VALUE},
    {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":[]}}]",
     "tools[0].function.parameters", REFUSAL_TYPE},
    {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":5}}]",
     "tools[0].function.description", REFUSAL_TYPE},
    {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":5}}]",
     "tools[0].function.strict", REFUSAL_TYPE},
    {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"odd\":5}}]",
     "tools[0].function.odd", REFUSAL_UNKNOWN},
    {"\"tools\":[{\"type\":\"function\",\"type\":\"function\",\"function\":{\"name\":\"f\"}}]",
     "tools[0].type", REFUSAL_VALUE},
    {"\"tools\":[" F "," F "]", "tools[1].function", REFUSAL_VALUE},
    {"\"tool_choice\":\"required\"", "tool_choice", REFUSAL_VALUE},
    {"\"tools\":[" F "],\"tool_choice\":\"always\"", "tool_choice", REFUSAL_VALUE},
    {"\"tools\":[" F "],\"tool_choice\":5", "tool_choice", REFUSAL_TYPE},
    {"\"tools\":[" F "],\"tool_choice\":{\"type\":\"allowed_tools\"}", "tool_choice.type",
     REFUSAL_UNSUPPORTED},
    {"\"tools\":[" F "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}",
     "tool_choice.function.name", REFUSAL_VALUE},
    {"\"tools\":[" F "],\"parallel_tool_calls\":1", "parallel_tool_calls", REFUSAL_TYPE},
    {"\"tools\":[" F "],\"response_format\":{\"type\":\"json_object\"}", "response_format",
     REFUSAL_UNSUPPORTED},
    {"\"tools\":[" F "],\"grammar\":\"root ::= [a-z]\"", "grammar", REFUSAL_UNSUPPORTED},
    {"\"functions\":[{}]", "functions", REFUSAL_UNSUPPORTED},
    {"\"function_call\":\"auto\"", "function_call", REFUSAL_UNSUPPORTED},
};

static void refuses_tools(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_tools / sizeof *bad_tools; i++) {
        assert_false(with(bad_tools[i].fields));
        is_refused(bad_tools[i].fields, bad_tools[i].kind, bad_tools[i].param);
    }
}

/* One more than each limit. */
static void limits(void **state)
{
    (void)state;
    static char fields[300000];
    for (int count = REQUEST_TOOLS_MAX; count < REQUEST_TOOLS_MAX + 2; count++) {
        char *at = fields + put(fields, "\"tools\":[");
        for (int i = 0; i < count; i++)
            at += put(at, "%s{\"type\":\"function\",\"function\":{\"name\":\"f%d\"}}", i ? "," : "",
                      i);
        (void)put(at, "]");
        assert_int_equal(with(fields), count == REQUEST_TOOLS_MAX);
    }
    is_refused("129 tools", REFUSAL_VALUE, "tools");
    for (int depth = 26; depth < 36; depth++) { /* three levels are around it */
        char *at = fields + put(fields, "\"tools\":[{\"type\":\"function\",\"function\":"
                                        "{\"name\":\"f\",\"parameters\":{\"x\":");
        for (int i = 0; i < depth; i++) at += put(at, "[");
        for (int i = 0; i < depth; i++) at += put(at, "]");
        (void)put(at, "}}}]");
        assert_int_equal(with(fields), depth <= REQUEST_TOOL_DEPTH_MAX - 3);
    }
    is_refused("deep", REFUSAL_VALUE, "tools[0]");
    for (int members = REQUEST_TOOL_MEMBERS_MAX; members < REQUEST_TOOL_MEMBERS_MAX + 2;
         members++) {
        char *at = fields + put(fields, "\"tools\":[{\"type\":\"function\",\"function\":"
                                        "{\"name\":\"f\",\"parameters\":{");
        for (int i = 0; i < members; i++) at += put(at, "%s\"k%d\":0", i ? "," : "", i);
        (void)put(at, "}}}]");
        assert_int_equal(with(fields), members == REQUEST_TOOL_MEMBERS_MAX);
    }
    is_refused("members", REFUSAL_VALUE, "tools[0]");
    char *at = fields + put(fields, "\"tools\":[{\"type\":\"function\",\"function\":"
                                    "{\"name\":\"f\",\"parameters\":{\"enum\":[0");
    for (int i = 0; i < REQUEST_TOOL_VALUES_MAX; i++) at += put(at, ",0");
    (void)put(at, "]}}}]");
    assert_false(with(fields));
    is_refused("values", REFUSAL_VALUE, "tools[0]");
}

#define CALL(id, name, arguments)                                             \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name \
    "\",\"arguments\":\"" arguments "\"}}"
#define CALLS(calls) "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" calls "]}"
#define ANSWER(id) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"x\"}"

static void messages(void **state)
{
    (void)state;
    assert_true(after_user(CALLS(CALL("a", "f", "{\\\"x\\\": [1]}") "," CALL(
        "b", "g", "")) "," ANSWER("b") "," ANSWER("a")));
    const Turn *turn = &request.turns[1];
    assert_true(turn->silent && turn->calls && turn->calls->list->count == 2);
    const JinjaDict *call = turn->calls->list->items[0].dict;
    assert_int_equal(call->count, 3);
    const JinjaDict *function = call->pairs[2].value.dict;
    assert_int_equal(function->pairs[1].value.kind, JINJA_DICT);
    assert_int_equal(function->pairs[1].value.dict->pairs[0].value.kind, JINJA_LIST);
    assert_string_equal(request.turns[2].role, "tool");
    assert_string_equal(request.turns[2].call_id, "b");
    assert_true(after_user(
        "{\"role\":\"assistant\",\"content\":\"so\",\"refusal\":null,"
        "\"tool_calls\":[" CALL(
            "a", "f", "{}") "]},"
                            "{\"role\":\"tool\",\"tool_call_id\":\"a\",\"name\":\"f\",\"content\":"
                            "[{\"type\":\"text\",\"text\":\"y\"}]}"));
    assert_false(request.turns[1].silent);
    assert_string_equal(request.turns[2].name, "f");
}

static const struct {
    const char *messages, *param;
    RefusalKind kind;
} bad_messages[] = {
    {CALLS("5"), "messages[1].tool_calls[0]", REFUSAL_TYPE},
    {CALLS("{}"), "messages[1].tool_calls[0].id", REFUSAL_MISSING},
    {CALLS(CALL("", "f", "{}")), "messages[1].tool_calls[0].id", REFUSAL_VALUE},
    {CALLS(CALL("a\\u0000", "f", "{}")), "messages[1].tool_calls[0].id", REFUSAL_VALUE},
    {CALLS("{\"id\":\"a\"}"), "messages[1].tool_calls[0].type", REFUSAL_MISSING},
    {CALLS("{\"id\":\"a\",\"type\":\"function\"}"), "messages[1].tool_calls[0].function",
     REFUSAL_MISSING},
    {CALLS(CALL("a", "", "{}")), "messages[1].tool_calls[0].function.name", REFUSAL_VALUE},
    {CALLS(CALL("a", "f", "[]")), "messages[1].tool_calls[0].function.arguments", REFUSAL_VALUE},
    {CALLS(CALL("a", "f", "{")), "messages[1].tool_calls[0].function.arguments", REFUSAL_VALUE},
    {CALLS("{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{}}}"),
     "messages[1].tool_calls[0].function.arguments", REFUSAL_TYPE},
    {CALLS("{\"id\":\"a\",\"type\":\"function\",\"odd\":1}"), "messages[1].tool_calls[0].odd",
     REFUSAL_UNKNOWN},
    {"{\"role\":\"assistant\",\"content\":null}", "messages[1].content", REFUSAL_TYPE},
    {"{\"role\":\"tool\",\"content\":\"x\"}", "messages[1].tool_call_id", REFUSAL_MISSING},
    {ANSWER("a"), "messages[1].tool_call_id", REFUSAL_VALUE},
    {CALLS(CALL("a", "f", "{}")) "," ANSWER("b"), "messages[2].tool_call_id", REFUSAL_VALUE},
    {CALLS(CALL("a", "f", "{}")) "," USER "," ANSWER("a"), "messages[3].tool_call_id",
     REFUSAL_VALUE},
    {CALLS(CALL("a", "f", "{}")) ",{\"role\":\"tool\",\"tool_call_id\":\"a\"}",
     "messages[2].content", REFUSAL_MISSING},
    {CALLS(CALL("a", "f", "{}")) ",{\"role\":\"tool\",\"tool_call_id\":\"a\",\"name\":\"a b\"}",
     "messages[2].name", REFUSAL_VALUE},
    {"{\"role\":\"assistant\",\"tool_calls\":[" CALL("a", "f", "{}") "],\"tool_calls\":[]}",
     "messages[1].tool_calls", REFUSAL_VALUE},
};

static void refuses_messages(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_messages / sizeof *bad_messages; i++) {
        assert_false(after_user(bad_messages[i].messages));
        is_refused(bad_messages[i].messages, bad_messages[i].kind, bad_messages[i].param);
    }
}

/* Arguments nest no deeper than tools; the most calls that a message may have; many messages of them. */
static void many_calls(void **state)
{
    (void)state;
    static char text[400000];
    for (int count = REQUEST_TOOLS_MAX; count < REQUEST_TOOLS_MAX + 2; count++) {
        char *at = text + put(text, "{\"role\":\"assistant\",\"tool_calls\":[");
        for (int i = 0; i < count; i++) at += put(at, "%s" CALL("a%d", "f", "{}"), i ? "," : "", i);
        (void)put(at, "]}");
        assert_int_equal(after_user(text), count == REQUEST_TOOLS_MAX);
    }
    is_refused("129 calls", REFUSAL_VALUE, "messages[1].tool_calls");
    char *at = text;
    for (int i = 0; i < 3000; i++) at += put(at, "%s" CALLS(CALL("a", "f", "{}")), i ? "," : "");
    assert_true(after_user(text));
}

/* ---- back and forth ---- */

static void note_kind(void *to, ToolCallsKind kind, const uint8_t *bytes, size_t count)
{
    (void)bytes;
    (void)count;
    *(bool *)to |= kind == TOOL_CALLS_END;
}

static bool goes_out(const char *arguments)
{
    static uint8_t held[4096];
    static char text[4096];
    ToolCalls calls;
    bool is_call = false;
    int bytes =
        snprintf(text, sizeof text, "<tool_call>{\"name\":\"f\",\"arguments\":%s}", arguments);
    tool_calls_start(&calls, held, sizeof held, false, (ToolCallsTake){note_kind, &is_call});
    tool_calls_push(&calls, (const uint8_t *)text, (size_t)bytes);
    tool_calls_end(&calls);
    return is_call;
}

static bool comes_back(const char *arguments)
{
    static char quoted[4096], message[8192];
    char *to = quoted;
    for (const char *from = arguments; *from; *to++ = *from++)
        if (*from == '"' || *from == '\\') *to++ = '\\';
    *to = '\0';
    (void)snprintf(message, sizeof message, CALLS(CALL("a", "f", "%s")), quoted);
    return after_user(message);
}

/* A client repeats in its next request what was a call in an answer: that must not be refused. */
static void what_goes_out_comes_back(void **state)
{
    (void)state;
    static const struct {
        const char *arguments;
        bool fine;
    } cases[] = {
        {"{}", true},
        {"{\"a\":[1e307,-9.99e307,1e-999,18446744073709551616]}", true},
        {"{\"a\":\"\\ud83d\\ude00\"}", true},
        {"{\"a\":\"\\ud83d\"}", false},
        {"{\"a\":1e999}", false},
        {"{\"a\":[0,-1e309]}", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(goes_out(cases[i].arguments), cases[i].fine);
        assert_int_equal(comes_back(cases[i].arguments), cases[i].fine);
    }
    for (int depth = 1; depth < 70; depth++) {
        char text[256] = "{\"a\":";
        char *at = text + 5;
        for (int i = 1; i < depth; i++) *at++ = '[';
        *at++ = '0';
        for (int i = 1; i < depth; i++) *at++ = ']';
        *at++ = '}';
        assert_int_equal(goes_out(text), depth < REQUEST_TOOL_DEPTH_MAX);
        assert_int_equal(comes_back(text), depth < REQUEST_TOOL_DEPTH_MAX);
    }
}

/* ---- grammars ---- */

static Grammar grammar;
static void *place;

static bool make_grammar(const char *fields)
{
    if (!with(fields)) fail_msg("%s: %s", fields, refusal.why.text);
    size_t scratch_bytes = request_form_scratch_bytes(), bytes = grammar_bytes_max();
    void *scratch_memory = malloc(scratch_bytes);
    free(place);
    place = malloc(bytes);
    Arena scratch = arena_make(scratch_memory, scratch_bytes), arena = arena_make(place, bytes);
    bool fine = request_form_build(&request, &scratch, &arena, &grammar, &refusal);
    free(scratch_memory);
    return fine;
}

static bool lets_through(const char *text)
{
    GrammarLimits most = grammar_machine_limits();
    size_t bytes = grammar_machine_bytes(&grammar, &most);
    void *work = malloc(bytes);
    Arena arena = arena_make(work, bytes);
    GrammarMachine *m;
    assert_int_equal(grammar_machine_build(&grammar, &most, &arena, &m, NULL), OK);
    bool fine = true;
    for (; fine && *text; text++) fine = grammar_machine_take(m, (uint8_t)*text);
    fine = fine && grammar_machine_may_end(m, grammar_machine_state(m));
    free(work);
    return fine;
}

#define SAYS(name, arguments) \
    "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"

static void forced_calls(void **state)
{
    (void)state;
    assert_true(make_grammar("\"tools\":[" F "," G "],\"tool_choice\":\"required\""));
    assert_true(lets_through(SAYS("f", "{}")));
    assert_true(lets_through(SAYS("g", "{\"x\": -5}")));
    assert_true(lets_through(SAYS("g", "{\"x\": 1}") "\n" SAYS("f", "{}")));
    static const char *const no[] = {"",
                                     "Hello",
                                     SAYS("h", "{}"),
                                     SAYS("f", "{\"a\": 1}"),
                                     SAYS("g", "{}"),
                                     SAYS("g", "{\"x\": \"1\"}"),
                                     " " SAYS("f", "{}"),
                                     SAYS("f", "{}") " and"};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (lets_through(no[i])) fail_msg("%s", no[i]);
    assert_true(make_grammar("\"tools\":[" F "," G "],\"tool_choice\":\"required\","
                             "\"parallel_tool_calls\":false"));
    assert_true(lets_through(SAYS("f", "{}")));
    assert_false(lets_through(SAYS("f", "{}") "\n" SAYS("f", "{}")));
    assert_true(make_grammar("\"tools\":[" F "," G "],\"tool_choice\":"
                             "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}"));
    assert_false(lets_through(SAYS("f", "{}")));
    assert_true(lets_through(SAYS("g", "{\"x\": 0}")));
}

static void strict_calls(void **state)
{
    (void)state;
    assert_true(make_grammar("\"tools\":[" G ",{\"type\":\"function\",\"function\":{\"name\":\"s\","
                             "\"strict\":true,\"parameters\":{\"type\":\"object\",\"properties\":"
                             "{\"b\":{\"type\":\"boolean\"}},\"required\":[\"b\"],"
                             "\"additionalProperties\":false}}}]"));
    static const char *const yes[] = {
        "",
        "Hello <b>",
        "<tool_",
        "a <<tool_call \xC3\xA9 <tool<tool",
        SAYS("s", "{\"b\": true}"),
        "So: " SAYS("s", "{\"b\": true}"),
        "<<tool_" SAYS("g", "{\"anything\": []}") "\n" SAYS("s", "{\"b\":false}")};
    static const char *const no[] = {"<tool_call>", SAYS("s", "{\"b\": 1}"), SAYS("h", "{}"),
                                     "<tool_<tool_call> x", SAYS("s", "{\"b\": true}") "."};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        if (!lets_through(yes[i])) fail_msg("%s", yes[i]);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (lets_through(no[i])) fail_msg("%s", no[i]);
}

static void refuses_schemas(void **state)
{
    (void)state;
#define WITH(schema)                                        \
    "\"tool_choice\":\"required\",\"tools\":[" F            \
    ",{\"type\":\"function\",\"function\":{\"name\":\"g\"," \
    "\"parameters\":" schema "}}]"
    static const struct {
        const char *schema;
        RefusalKind kind;
    } bad[] = {
        {WITH("{\"type\":\"object\",\"properties\":{\"x\":{\"not\":{}}}}"), REFUSAL_UNSUPPORTED},
        {WITH("{\"type\":\"string\"}"), REFUSAL_VALUE},
        {WITH("{\"type\":\"object\",\"properties\":{\"x\":{\"$ref\":\"#/$defs/a\"}}}"),
         REFUSAL_VALUE}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(make_grammar(bad[i].schema));
        is_refused(bad[i].schema, bad[i].kind, "tools[1].function.parameters");
    }
    /* References are to the tool's own schema. */
    assert_true(
        make_grammar(WITH("{\"type\":\"object\",\"properties\":{\"x\":{\"$ref\":\"#/$defs/a\"}},"
                          "\"required\":[\"x\"],\"$defs\":{\"a\":{\"const\":7}}}")));
    assert_true(lets_through(SAYS("g", "{\"x\": 7}")));
    assert_false(lets_through(SAYS("g", "{\"x\": 8}")));
    /* Where nothing is forced, a schema is only shown to the model. */
    assert_true(
        with("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":"
             "{\"not\":{}}}}]"));
}

int main(void)
{
    const struct CMUnitTest all[] = {cmocka_unit_test(tools),
                                     cmocka_unit_test(refuses_tools),
                                     cmocka_unit_test(limits),
                                     cmocka_unit_test(messages),
                                     cmocka_unit_test(refuses_messages),
                                     cmocka_unit_test(many_calls),
                                     cmocka_unit_test(what_goes_out_comes_back),
                                     cmocka_unit_test(forced_calls),
                                     cmocka_unit_test(strict_calls),
                                     cmocka_unit_test(refuses_schemas)};
    return cmocka_run_group_tests(all, NULL, NULL);
}
