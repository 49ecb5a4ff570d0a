/* SPDX-License-Identifier: Apache-2.0 */
/* GBNF in, languages out: each grammar with texts that it allows and texts that it does not; and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "small_random.h"
#include "text/grammar_machine.h"
#include "text/grammar_state.h"
#include "text/utf8.h"

typedef struct Kit {
    void *scratch, *memory, *states;
    Grammar g;
    GrammarMachine *m;
    Why why;
} Kit;

static Kit kit;

static int open_kit(void **state)
{
    (void)state;
    kit.scratch = malloc(grammar_gbnf_scratch_bytes());
    kit.memory = malloc(grammar_bytes_max());
    return kit.scratch && kit.memory ? 0 : -1;
}

static int close_kit(void **state)
{
    (void)state;
    free(kit.scratch);
    free(kit.memory);
    free(kit.states);
    return 0;
}

static Error parse_bytes(const void *text, size_t bytes)
{
    Arena scratch = arena_make(kit.scratch, grammar_gbnf_scratch_bytes());
    Arena arena = arena_make(kit.memory, grammar_bytes_max());
    return grammar_gbnf(text, bytes, &scratch, &arena, &kit.g, &kit.why);
}

static Error parse(const char *text) { return parse_bytes(text, strlen(text)); }

static void run_with(const char *text, GrammarLimits limits)
{
    Error error = parse(text);
    if (error != OK) fail_msg("%s: %s", text, kit.why.text);
    size_t bytes = grammar_machine_bytes(&kit.g, &limits);
    free(kit.states);
    kit.states = malloc(bytes);
    Arena arena = arena_make(kit.states, bytes);
    assert_int_equal(grammar_machine_build(&kit.g, &limits, &arena, &kit.m, &kit.why), OK);
}

static void run(const char *text) { run_with(text, grammar_machine_limits()); }

static bool allows_bytes(const void *text, size_t bytes)
{
    grammar_machine_restart(kit.m);
    for (size_t i = 0; i < bytes; i++)
        if (!grammar_machine_take(kit.m, ((const uint8_t *)text)[i])) return false;
    return grammar_machine_may_end(kit.m, grammar_machine_state(kit.m));
}

static void expect(const char *text, bool want)
{
    if (allows_bytes(text, strlen(text)) != want)
        fail_msg("\"%s\" %s", text, want ? "is refused" : "is allowed");
}

static void expect_all(const char *const *texts, bool want)
{
    for (; *texts; texts++) expect(*texts, want);
}

#define YES(...) expect_all((const char *[]){__VA_ARGS__, NULL}, true)
#define NO(...) expect_all((const char *[]){__VA_ARGS__, NULL}, false)

static void allows_what_gbnf_says(void **state)
{
    (void)state;
    run("root ::= \"a\" \"b\"? | [x-z]+ # a comment\n");
    YES("a", "ab", "x", "zyx");
    NO("", "b", "abb", "ax", "w", "a ");
    run("# first\n\nroot ::=\n  item (\",\" item)*\nitem ::= [a-c]\n      | \"d\" # last\n      | "
        "(\n \"e\"\n \"f\" )\n");
    YES("a", "a,b", "d,ef,c");
    NO("a,", "e", "a b", "f", ",a");
    run("root ::= \"\\\"\" [^\"\\\\\\n] \"\\x41\\u00e9\\U0001F600\\t\\\\\" .");
    YES("\"xA\xC3\xA9\xF0\x9F\x98\x80\t\\.", "\"\xC3\xA9"
                                             "A\xC3\xA9\xF0\x9F\x98\x80\t\\\xF0\x9F\x98\x80");
    NO("\"\"A\xC3\xA9\xF0\x9F\x98\x80\t\\.", "\"\\A\xC3\xA9\xF0\x9F\x98\x80\t\\.");
    run("root ::= [a\\-z\\]^-] [-a] [0-9a-f-]");
    YES("a-0", "-a-", "]a9", "^-f", "z-e");
    NO("b-0", "ab0", "a-g");
    run("root ::= \"\" | a-b_C9\na-b_C9 ::= \"q\"");
    YES("", "q");
}

static void allows_what_llama_cpp_shows(void **state)
{
    (void)state;
    run("root ::= (expr \"=\" term \"\\n\")+\nexpr ::= term ([-+*/] term)*\nterm ::= num | \"(\" "
        "expr \")\" \nnum ::= [0-9]+");
    YES("1+2=3\n", "(1+2)*3=9\n4=4\n", "((((7))))=7\n");
    NO("1+2=3", "1+=3\n", "(1=1\n", "1)=1\n");
    run("root ::= \"1. \" move \" \" move \"\\n\" ([1-9] [0-9]? \". \" move \" \" move \"\\n\")+\n"
        "move ::= (pawn | nonpawn | castle) [+#]?\n"
        "nonpawn ::= [NBKQR] [a-h]? [1-8]? \"x\"? [a-h] [1-8]\n"
        "pawn ::= ([a-h] \"x\")? [a-h] [1-8] (\"=\" [NBKQR])?\ncastle ::= \"O-O\" \"-O\"?");
    YES("1. e4 e5\n2. Nf3 Nc6\n", "1. e4 d5\n2. exd5 Qxd5\n3. O-O-O O-O\n10. e8=Q+ Nbd7#\n");
    NO("1. e4 e5\n", "1. e9 e5\n2. Nf3 Nc6\n", "2. e4 e5\n2. Nf3 Nc6\n");
    run("root ::= object\nvalue ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
        "object ::= \"{\" ws ( string \":\" ws value (\",\" ws string \":\" ws value)* )? \"}\" ws\n"
        "array ::= \"[\" ws ( value (\",\" ws value)* )? \"]\" ws\n"
        "string ::= \"\\\"\" ( [^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" "
        "[0-9a-fA-F]{4}) )* \"\\\"\" ws\n"
        "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws\n"
        "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}");
    YES("{}", "{\"a\": [1, -2.5e3, \"\\u00e9\xC3\xA9\", true, null, {}]}", "{ \"k\":\"\" } ");
    NO("[]", "{\"a\":}", "{\"a\":1,}", "{\"a\": \"\x01\"}", "{\"a\":01}x");
}

static void counts_rounds_exactly(void **state)
{
    (void)state;
    char text[2000];
    static const struct {
        const char *grammar;
        uint32_t least, most;
    } cases[] = {{"root ::= \"a\"{3}", 3, 3},
                 {"root ::= \"a\"{2,5}", 2, 5},
                 {"root ::= \"a\"{,4}", 0, 4},
                 {"root ::= \"a\"{7,}", 7, 1999},
                 {"root ::= \"a\"{0,1000}", 0, 1000},
                 {"root ::= \"a\"{0}", 0, 0},
                 {"root ::= (\"a\"?){0,6}", 0, 6},
                 {"root ::= (\"a\"*){2,3}", 0, 1999},
                 {"root ::= (\"a\"{2,3}){2}", 4, 6},
                 {"root ::= (\"a\"?){3,}", 0, 1999},
                 {"root ::= \"a\"{1,2}{3}", 3, 6},
                 {"root ::= (\"a\" | \"aa\"){10,20}", 10, 40},
                 {"root ::= x{3,4}\nx ::= \"a\" x | \"a\"", 3, 1999}};
    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run(cases[i].grammar);
        for (uint32_t n = 0; n < sizeof text; n += n < 60 ? 1 : 47)
            if (allows_bytes(text, n) != (n >= cases[i].least && n <= cases[i].most))
                fail_msg("%s with %u", cases[i].grammar, n);
        assert_int_equal(allows_bytes(text, cases[i].most), true);
        if (cases[i].most < 1999) assert_false(allows_bytes(text, cases[i].most + 1));
    }
}

static void refuses_with_place_and_name(void **state)
{
    (void)state;
    static const struct {
        const char *grammar, *why;
    } cases[] = {
        {"", "rule root is not defined"},
        {"x ::= \"a\"", "rule root is not defined"},
        {"root ::= x", "rule x is not defined"},
        {"root ::= root \"a\" | \"b\"", "rule root calls itself before"},
        {"root ::= a\na ::= \"\" b? c\nb ::= \"b\"\nc ::= a \"x\" | \"y\"", "left recursion"},
        {"root ::= \"x\"\nb ::= b", "rule b can never end"},
        {"root ::= \"a\" root", "rule root can never end"},
        {"root ::= \"a\" x\nx ::= \"b\" y\ny ::= \"c\" x", "can never end"},
        {"root ::= \"a\nb", "line 2, column 2"},
        {"root ::= [a", "line 1, column 12"},
        {"root ::= (\"a\"", "a ) is missing"},
        {"root ::= \"a\")", "belongs to no rule"},
        {"root = \"a\"", "::= is expected"},
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2"},
        {"root ::= \"\\q\"", "escape"},
        {"root ::= \"\\x4\"", "hexadecimal"},
        {"root ::= \"\\ud800\"", "no character"},
        {"root ::= \"\\U00110000\"", "no character"},
        {"root ::= [z-a]", "upside down"},
        {"root ::= []", "without a character"},
        {"root ::= [^\\x00-\\U0010FFFF]", "without a character"},
        {"root ::= \"a\"{3,2}", "a repetition from 3 to 2"},
        {"root ::= \"a\"{9999999}", "larger than"},
        {"root ::= \"a\"{}", "a count is expected"},
        {"root ::= \"a\"{1", "a } is missing"},
        {"root ::= *", "belongs to no rule"},
        {"root ::= \"\xff\"", "no UTF-8"},
        {"::= \"a\"", "a name is expected"},
        {"root ::= \"a\" ; x", "belongs to no rule"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (parse(cases[i].grammar) == OK) fail_msg("%s is let through", cases[i].grammar);
        if (!strstr(kit.why.text, cases[i].why))
            fail_msg("%s: %s, not %s", cases[i].grammar, kit.why.text, cases[i].why);
    }
}

static void keeps_its_limits(void **state)
{
    (void)state;
    size_t room = 3 << 20, used = 0;
    char *text = malloc(room);
    used += (size_t)snprintf(text, room, "root ::= ");
    for (int i = 0; i < 200; i++) used += (size_t)snprintf(text + used, room - used, "(");
    assert_int_equal(parse_bytes(text, used), ERR_FORMAT);
    assert_non_null(strstr(kit.why.text, "40 levels"));
    used = 0;
    for (int i = 0; i < 5000; i++)
        used += (size_t)snprintf(text + used, room - used, "r%d ::= \"x\"\n", i);
    assert_int_equal(parse_bytes(text, used), ERR_TOO_LARGE);
    used = (size_t)snprintf(text, room, "root ::= ");
    for (int i = 0; i < 70000; i++) used += (size_t)snprintf(text + used, room - used, "\"x\"? ");
    assert_int_equal(parse_bytes(text, used), ERR_TOO_LARGE);
    used = (size_t)snprintf(text, room, "root ::= \"x\"");
    for (int i = 0; i < 120; i++) used += (size_t)snprintf(text + used, room - used, "?");
    assert_int_equal(parse_bytes(text, used), ERR_TOO_LARGE);
    used = (size_t)snprintf(text, room,
                            "root ::= r0\n"); /* a long chain in either direction is no trouble */
    for (int i = 0; i < 4000; i++)
        used += (size_t)snprintf(text + used, room - used, "r%d ::= \"x\" r%d?\n", i, i + 1);
    used += (size_t)snprintf(text + used, room - used, "r4000 ::= \"y\"\n");
    assert_int_equal(parse_bytes(text, used), OK);
    free(text);
}

/* Deeper than the stack may be, that way is closed; up to there all is as it should be. */
static void closes_what_nests_too_deep(void **state)
{
    (void)state;
    run("root ::= \"(\" root \")\" | \"x\"");
    uint32_t depth = 0;
    while (grammar_machine_take(kit.m, '(')) depth++;
    assert_true(depth >= GRAMMAR_STACK_MAX && depth < GRAMMAR_STACK_MAX + 3);
    assert_true(grammar_machine_take(kit.m, 'x'));
    for (uint32_t i = 0; i < depth; i++) assert_true(grammar_machine_take(kit.m, ')'));
    assert_true(grammar_machine_must_end(kit.m, grammar_machine_state(kit.m)));
    assert_false(grammar_machine_take(kit.m, ')'));
    run("root ::= \"x\" root | \"y\""); /* calls at the end take no room */
    for (int i = 0; i < 100000; i++) assert_true(grammar_machine_take(kit.m, 'x'));
}

static void forgets_and_goes_on(void **state)
{
    (void)state;
    const char *grammar = "root ::= \"(\" (root | \"x\"{1,50})* \")\"";
    run_with(grammar, (GrammarLimits){.nodes = 200, .states = 20, .places = 200});
    uint32_t epoch = grammar_machine_epoch(kit.m);
    YES("()", "((x)(xx(xxx)))", "(((((((((((((x)x)x)x)x)x)x)x)x)x)x)x)x)",
        "(xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx)");
    NO("(", "((x)", "())", "(y)");
    assert_true(grammar_machine_epoch(kit.m) > epoch + 8 + 5);
}

static void cuts_characters_into_bytes(void **state)
{
    (void)state;
    for (int round = 0; round < 300; round++) {
        static const uint32_t edges[] = {0,      0x7F,   0x80,   0x7FF,   0x800,
                                         0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF};
        uint32_t low = small_random(0x110000), high = small_random(0x110000);
        if (round & 1) low = edges[small_random(10)];
        if (round & 2) high = edges[small_random(10)];
        if (low > high) {
            uint32_t t = low;
            low = high;
            high = t;
        }
        GrammarUtf8 rows[GRAMMAR_UTF8_ROWS_MAX];
        uint32_t count = grammar_utf8_split(low, high, rows), size = 0, want = 0;
        for (uint32_t c = low; c <= high; c++) want += c < 0xD800 || c > 0xDFFF;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t product = 1;
            for (uint32_t k = 0; k < rows[i].length; k++)
                product *= rows[i].high[k] - rows[i].low[k] + 1u;
            size += product;
        }
        assert_int_equal(size, want); /* rows do not overlap and have as many as they should */
        for (int probe = 0; probe < 50; probe++) {
            uint32_t c = probe < 20 ? low + small_random(high - low + 1) : small_random(0x110000);
            uint8_t bytes[4];
            uint32_t length = utf8_write(c, bytes);
            bool in = false;
            for (uint32_t i = 0; i < count; i++) {
                bool fits = rows[i].length == length;
                for (uint32_t k = 0; fits && k < length; k++)
                    fits = bytes[k] >= rows[i].low[k] && bytes[k] <= rows[i].high[k];
                in |= fits;
            }
            assert_int_equal(in, c >= low && c <= high && (c < 0xD800 || c > 0xDFFF));
        }
    }
}

/* Random grammars without recursion against a matcher that tries everything. */
typedef struct Tree {
    char text[4000];
    size_t used;
} Tree;

static void grow(Tree *t, int depth)
{
    uint32_t pick = small_random(depth > 3 ? 2 : 6);
    if (pick == 0)
        t->used += (size_t)snprintf(t->text + t->used, sizeof t->text - t->used, "\"%c\" ",
                                    'a' + small_random(2));
    else if (pick == 1)
        t->used += (size_t)snprintf(t->text + t->used, sizeof t->text - t->used, "[ab] ");
    else {
        uint32_t parts = 1 + small_random(3);
        t->used += (size_t)snprintf(t->text + t->used, sizeof t->text - t->used, "(");
        for (uint32_t i = 0; i < parts; i++) {
            if (i && pick < 4)
                t->used += (size_t)snprintf(t->text + t->used, sizeof t->text - t->used, "| ");
            grow(t, depth + 1);
        }
        static const char *const ends[] = {")",      ")?",   ")*",    ")+",
                                           "){0,2}", "){2}", "){2,}", "){1,3}"};
        t->used += (size_t)snprintf(t->text + t->used, sizeof t->text - t->used, "%s ",
                                    ends[small_random(8)]);
    }
}

/* Ends that `text` from each of the starts (bits) can be matched to. */
static uint32_t match_choice(const char **at, uint32_t starts, const char *text, uint32_t n);

static uint32_t match_item(const char **at, uint32_t starts, const char *text, uint32_t n)
{
    uint32_t ends = 0;
    char first = *(*at)++, second = **at;
    if (first == '"') {
        *at += 2;
        for (uint32_t i = 0; i < n; i++)
            ends |= (starts >> i & 1 && text[i] == second) ? 2u << i : 0;
        return ends;
    }
    *at += 3; /* [ab] */
    for (uint32_t i = 0; i < n; i++) ends |= (starts >> i & 1) ? 2u << i : 0;
    return ends;
}

static void read_ends(const char **at, uint32_t *least, uint32_t *most)
{
    *least = *most = 1;
    if (**at == '?') *least = 0, (*at)++;
    else if (**at == '*') *least = 0, *most = 99, (*at)++;
    else if (**at == '+') *most = 99, (*at)++;
    else if (**at == '{') {
        *least = *most = (uint32_t)((*at)[1] - '0');
        *at += 2;
        if (**at == ',') {
            *most = (*at)[1] == '}' ? 99 : (uint32_t)((*at)[1] - '0');
            *at += (*at)[1] == '}' ? 1 : 2;
        }
        (*at)++;
    }
}

static uint32_t match_group(const char **at, uint32_t starts, const char *text, uint32_t n)
{
    const char *body = *at;
    uint32_t least, most, now = starts, found = 0;
    (void)match_choice(at, 0, text, n);
    (*at)++;
    read_ends(at, &least, &most);
    for (uint32_t round = 0; round <= most; round++) {
        const char *again = body;
        if (round >= least) found |= now;
        if (round > n + least + 1) break;
        now = match_choice(&again, now, text, n);
    }
    return found;
}

static uint32_t match_choice(const char **at, uint32_t starts, const char *text, uint32_t n)
{
    uint32_t found = 0, now = starts;
    while (**at && **at != ')') {
        if (**at == ' ') (*at)++;
        else if (**at == '|') found |= now, now = starts, (*at)++;
        else if (**at == '(') (*at)++, now = match_group(at, now, text, n);
        else now = match_item(at, now, text, n);
    }
    return found | now;
}

static void agrees_with_a_matcher_that_tries_everything(void **state)
{
    (void)state;
    for (int round = 0; round < 600; round++) {
        Tree t = {.used = 9};
        memcpy(t.text, "root ::= ", 9);
        grow(&t, 0);
        if (t.used > sizeof t.text - 100) continue;
        run(t.text);
        for (uint32_t n = 0; n <= 7; n++)
            for (uint32_t bits = 0; bits < 1u << n; bits++) {
                char text[8];
                for (uint32_t i = 0; i < n; i++) text[i] = bits >> i & 1 ? 'b' : 'a';
                const char *at = t.text + 9;
                bool want = match_choice(&at, 1, text, n) >> n & 1;
                if (allows_bytes(text, n) != want)
                    fail_msg("%s: %.*s, want %d", t.text, (int)n, text, want);
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allows_what_gbnf_says),
        cmocka_unit_test(allows_what_llama_cpp_shows),
        cmocka_unit_test(counts_rounds_exactly),
        cmocka_unit_test(refuses_with_place_and_name),
        cmocka_unit_test(keeps_its_limits),
        cmocka_unit_test(closes_what_nests_too_deep),
        cmocka_unit_test(forgets_and_goes_on),
        cmocka_unit_test(cuts_characters_into_bytes),
        cmocka_unit_test(agrees_with_a_matcher_that_tries_everything),
    };
    return cmocka_run_group_tests(tests, open_kit, close_kit);
}
