/* SPDX-License-Identifier: Apache-2.0 */
/* Calls in texts: each text gives the same however it is cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tool_calls_log.h"

#define CALL(object) "<tool_call>\n" object "\n</tool_call>"
#define F "{\"name\": \"f\", \"arguments\": {}}"

typedef struct Case {
    const char *text, *held, *eager; /* eager NULL: the same */
} Case;

static const Case cases[] = {
    {"", "", NULL},
    {"Hello there, <b>you</b>!\n", "|THello there, <b>you</b>!\n", NULL},
    {"a < b <tool", "|Ta < b <tool", NULL},
    {CALL(F), "|Nf|A{}|E", NULL},
    {"<tool_call>" F, "|Nf|A{}|E", NULL},
    {"<tool_call>" F "</tool_call>\n\n", "|Nf|A{}|E", NULL},
    {"I look.\n\n" CALL(F) "\n", "|TI look.|Nf|A{}|E", NULL},
    {CALL(F) "\n" CALL("{\"name\":\"g-2_X\",\"arguments\":{\"a\":[1,{\"b\":\"}\"}]}}"),
     "|Nf|A{}|E|Ng-2_X|A{\"a\":[1,{\"b\":\"}\"}]}|E", NULL},
    {CALL(F) CALL(F), "|Nf|A{}|E|Nf|A{}|E", NULL},
    {"<tool_call>" F "\n<tool_call>" F, "|Nf|A{}|E|Nf|A{}|E", NULL},
    {CALL(F) "\nand more", "|Nf|A{}|E|T\nand more", NULL},
    {CALL(F) " </tool_calls>", "|Nf|A{}|E|T </tool_calls>", NULL},
    {"<tool_call>" F "}\n</tool_call>", "|Nf|A{}|E|T}\n</tool_call>", NULL},
    {"<tool_call>" F "</tool", "|Nf|A{}|E|T</tool", "|Nf|A{}|E"},
    {"<tool_call>" F "</x", "|Nf|A{}|E|T</x", NULL},
    /* order and company of the members */
    {CALL("{\"arguments\": {\"x\": 1}, \"name\": \"f\"}"), "|Nf|A{\"x\": 1}|E", NULL},
    {CALL("{\"id\": [{\"name\": 5}], \"name\": \"f\", \"arguments\": { }, \"n\": null}"),
     "|Nf|A{ }|E", NULL},
    {CALL("{\"name\": \"f\"}"), "|Nf|A{}|E", NULL},
    {CALL("{\"name\" :\t\"f\" ,\r\n\"arguments\":\n{\"name\": \"g\", \"arguments\": 3} }"),
     "|Nf|A{\"name\": \"g\", \"arguments\": 3}|E", NULL},
    {CALL("{\"name\": \"f\", \"arguments\": {\"t\": \"\\\"</tool_call>\\u00e9\xC3\xA9\"}}"),
     "|Nf|A{\"t\": \"\\\"</tool_call>\\u00e9\xC3\xA9\"}|E", NULL},
    {CALL("{\"name\": \"f\", \"arguments\": {\"n\": [-0.5e+3, 10, 0, true, false, null]}}"),
     "|Nf|A{\"n\": [-0.5e+3, 10, 0, true, false, null]}|E", NULL},
    {"<tool_call>\n{" F "}\n</tool_call>", "|Nf|A{}|E", "|T<tool_call>\n{" F "}\n</tool_call>"},
    {"<tool_call>{" F "}}", "|Nf|A{}|E|T}", "|T<tool_call>{" F "}}"},
    {"<tool_call>{{{}}}", "|T<tool_call>{{{}}}", NULL},
    {"<tool_call>{\"a\": {{}}, \"name\": \"f\"}", "|T<tool_call>{\"a\": {{}}, \"name\": \"f\"}",
     NULL},
    /* no calls */
    {"<tool_call>\nnothing\n</tool_call>", "|T<tool_call>\nnothing\n</tool_call>", NULL},
    {" <tool_call> {\"name\": f} x", "|T <tool_call> {\"name\": f} x", NULL},
    {"<tool_call>{}</tool_call>", "|T<tool_call>{}</tool_call>", NULL},
    {"<tool_call>[1]</tool_call>", "|T<tool_call>[1]</tool_call>", NULL},
    {"<tool_call>{\"name\": \"\", \"arguments\": {}}",
     "|T<tool_call>{\"name\": \"\", \"arguments\": {}}", NULL},
    {"<tool_call>{\"name\": \"a b\"}", "|T<tool_call>{\"name\": \"a b\"}", NULL},
    {"<tool_call>{\"name\": \"f\", \"name\": \"g\"}",
     "|T<tool_call>{\"name\": \"f\", \"name\": \"g\"}", NULL},
    {"<tool_call>{\"name\": \"f\", \"arguments\": \"{}\"}",
     "|T<tool_call>{\"name\": \"f\", \"arguments\": \"{}\"}", NULL},
    {"<tool_call>{'name': 'f'}", "|T<tool_call>{'name': 'f'}", NULL},
    {"<tool_call>{\"arguments\": {}}", "|T<tool_call>{\"arguments\": {}}", NULL},
    {"<<tool_call>" F, "|T<|Nf|A{}|E", NULL},
    {"<tool_<tool_call>" F, "|T<tool_|Nf|A{}|E", NULL},
    {"<tool_call><tool_call>" F, "|T<tool_call>|Nf|A{}|E", NULL},
    {"<tool_call>{\"a\": 01<tool_call>" F, "|T<tool_call>{\"a\": 01|Nf|A{}|E", NULL},
    /* cut, or broken inside the arguments */
    {CALL("{\"name\": \"f\", \"arguments\": {\"a\": 1e999}}"),
     "|T<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1e999}}\n</tool_call>",
     "|Nf|A{\"a\": 1e999|T}}\n</tool_call>"},
    {"so <tool_call>{\"name\": \"f\", \"argu", "|Tso <tool_call>{\"name\": \"f\", \"argu", "|Tso"},
    {CALL(F) "\n<tool", "|Nf|A{}|E|T\n<tool", "|Nf|A{}|E"},
    {CALL(F) "\n<tool_call>", "|Nf|A{}|E|T\n<tool_call>", "|Nf|A{}|E"},
    {CALL(F) "\n<tool_call>\n{\"na", "|Nf|A{}|E|T\n<tool_call>\n{\"na", "|Nf|A{}|E"},
    {"so\n" CALL(F) "\n<to", "|Tso|Nf|A{}|E|T\n<to", "|Tso|Nf|A{}|E"},
    {"<tool", "|T<tool", ""},
    {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b",
     "|T<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b", "|Nf|A{\"a\": \"b"},
    {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": b} and",
     "|T<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": b} and", "|Nf|A{\"a\": |Tb} and"},
};

static void check(const char *text, size_t bytes, size_t room, bool eager, bool known,
                  const char *expected)
{
    for (size_t cut = 0; cut <= bytes; cut++) {
        for (size_t step = 1; step <= 8; step += step < 3 ? 1 : 5) {
            ToolCallsLog log =
                tool_calls_log((const uint8_t *)text, bytes, room, eager, known, cut, step);
            if (strcmp(log.text, expected) != 0)
                fail_msg("%s\ncut at %zu, then every %zu, eager %d: %s\nexpected: %s", text, cut,
                         step, eager, log.text, expected);
            free(log.text);
        }
    }
}

static void gives_the_same_however_it_is_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i];
        check(c->text, strlen(c->text), TOOL_CALLS_ROOM_MIN, false, false, c->held);
        check(c->text, strlen(c->text), TOOL_CALLS_ROOM_MIN, false, true, c->held);
        check(c->text, strlen(c->text), TOOL_CALLS_ROOM_MIN, true, false,
              c->eager ? c->eager : c->held);
    }
}

/* What is a call only where the names are known: in a fence, or alone before any text. */
static const Case loose[] = {
    {"```json\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n```", "|Nf|A{\"a\": 1}|E", NULL},
    {"Look:\n```json\n{\"name\": \"get-2\", \"arguments\": {}}\n```\n", "|TLook:|Nget-2|A{}|E",
     NULL},
    {"```json\n" F "\n```\n```json\n" F "\n```", "|Nf|A{}|E|Nf|A{}|E", NULL},
    {"```json\n" F "\n```\nSo.", "|Nf|A{}|E|T\nSo.", NULL},
    {"```json\n" F "\n`` x", "|Nf|A{}|E|T\n`` x", NULL},
    {"```json\n" F " ` x", "|Nf|A{}|E|T ` x", NULL},
    {" \n" F "\n", "|Nf|A{}|E", NULL},
    {F "\n" F, "|Nf|A{}|E|Nf|A{}|E", NULL},
    {"{" F "}\n", "|Nf|A{}|E", NULL},
    {F " done", "|Nf|A{}|E|T done", NULL},
    {F "\n<tool_call>" F, "|Nf|A{}|E|Nf|A{}|E", NULL},
    {"<tool_call>{\"name\": \"other\"}", "|Nother|A{}|E", NULL},
    /* text */
    {"So " F, "|TSo " F, NULL},
    {"{\"name\": \"other\", \"arguments\": {}}", "|T{\"name\": \"other\", \"arguments\": {}}",
     NULL},
    {"{\"name\": \"f\"}", "|T{\"name\": \"f\"}", NULL},
    {"{\"x\": " F "}", "|T{\"x\": " F "}", NULL},
    {"{\"name\": \"f\", \"id\": 1, \"arguments\": {}}",
     "|T{\"name\": \"f\", \"id\": 1, \"arguments\": {}}", NULL},
    {"```json\n[1]\n```", "|T```json\n[1]\n```", NULL},
    {"```c\nint f;\n``` `x` ``json", "|T```c\nint f;\n``` `x` ``json", NULL},
    {"```json {\"a\": 1}```", "|T```json {\"a\": 1}```", NULL},
    {"```js", "|T```js", NULL},
    {"```json\n{\"name\": \"f\"", "|T```json\n{\"name\": \"f\"", NULL},
};

static void knows_loose_forms(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof loose / sizeof *loose; i++)
        check(loose[i].text, strlen(loose[i].text), TOOL_CALLS_ROOM_MIN, false, true,
              loose[i].held);
}

static void takes_loose_forms_for_text(void **state)
{
    (void)state;
    check(F, sizeof F - 1, TOOL_CALLS_ROOM_MIN, false, false, "|T" F);
    check("```json\n" F, sizeof "```json\n" F - 1, TOOL_CALLS_ROOM_MIN, false, false,
          "|T```json\n" F);
}

static void lets_eager_bytes_go_at_once(void **state)
{
    (void)state;
    static const char text[] = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1";
    uint8_t held[TOOL_CALLS_ROOM_MIN];
    ToolCallsLog log = {.last = -1};
    ToolCalls p;
    tool_calls_start(&p, held, sizeof held, true, (ToolCallsTake){tool_calls_log_take, &log});
    tool_calls_push(&p, (const uint8_t *)text, sizeof text - 1);
    assert_string_equal(log.text, "|Nf|A{\"a\": 1");
    assert_int_equal(p.begun, 1);
    assert_int_equal(p.whole, 0);
    free(log.text);
}

/* As much as fits is held; one byte more, and it is text. A call whose bytes flow needs no room. */
static void holds_what_fits(void **state)
{
    (void)state;
    static const char head[] = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"",
                      tail[] = "\"}}";
    for (size_t more = 0; more < 2; more++) {
        char text[TOOL_CALLS_ROOM_MIN + 2] = "";
        size_t bytes = TOOL_CALLS_ROOM_MIN + more;
        memset(text, 'x', bytes);
        memcpy(text, head, sizeof head - 1);
        memcpy(text + bytes - 3, tail, 3);
        for (int eager = 0; eager < 2; eager++) {
            ToolCallsLog log =
                tool_calls_log((uint8_t *)text, bytes, TOOL_CALLS_ROOM_MIN, eager, false, 0, 7);
            assert_int_equal(log.text[1], more && !eager ? 'T' : 'N');
            if (more && !eager) assert_string_equal(log.text + 2, text);
            free(log.text);
        }
    }
}

static void keeps_long_white_space(void **state)
{
    (void)state;
    char text[1000], expected[1000];
    for (size_t spaces = TOOL_CALLS_SPACE_MAX - 1; spaces < TOOL_CALLS_SPACE_MAX + 2; spaces++) {
        memset(text, ' ', spaces);
        memcpy(text + spaces, "<tool_call>" F, sizeof "<tool_call>" F);
        bool dropped = spaces <= TOOL_CALLS_SPACE_MAX;
        snprintf(expected, sizeof expected, "%s%.*s%s", dropped ? "" : "|T",
                 dropped ? 0 : TOOL_CALLS_SPACE_MAX, text, "|Nf|A{}|E");
        check(text, strlen(text), TOOL_CALLS_ROOM_MIN, false, false, expected);
        memset(text, ' ', spaces);
        text[spaces] = '\0';
        snprintf(expected, sizeof expected, "|T%s", text);
        check(text, spaces, TOOL_CALLS_ROOM_MIN, false, false, expected);
    }
}

static void knows_names(void **state)
{
    (void)state;
    char name[TOOL_CALLS_NAME_MAX + 2];
    memset(name, 'a', sizeof name);
    const uint8_t *bytes = (const uint8_t *)name;
    assert_true(tool_calls_is_name(bytes, TOOL_CALLS_NAME_MAX));
    assert_false(tool_calls_is_name(bytes, TOOL_CALLS_NAME_MAX + 1));
    assert_false(tool_calls_is_name(bytes, 0));
    for (int c = 0; c < 256; c++) {
        uint8_t one = (uint8_t)c;
        bool expected =
            c && strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", c);
        assert_int_equal(tool_calls_is_name(&one, 1), expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_same_however_it_is_cut),
        cmocka_unit_test(knows_loose_forms),
        cmocka_unit_test(takes_loose_forms_for_text),
        cmocka_unit_test(lets_eager_bytes_go_at_once),
        cmocka_unit_test(holds_what_fits),
        cmocka_unit_test(keeps_long_white_space),
        cmocka_unit_test(knows_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
