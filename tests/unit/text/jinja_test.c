/* SPDX-License-Identifier: Apache-2.0 */
/* The interpreter alone; that its results are Python's is tests/system/template_test.py's to show. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "text/jinja.h"
#include "text/json_values.h"
#include "text/jinja_number.h"

enum { ARENA_BYTES = 64 << 20 };

typedef struct Result {
    Error error;
    Why why;
    char text[4096], marks[4096]; /* . own, x foreign */
} Result;

static Result render_within(const char *source, const char *json, JinjaLimits limits,
                            size_t arena_size)
{
    static Result result;
    memset(&result, 0, sizeof result);
    size_t room = jinja_bytes(strlen(source));
    void *memory = malloc(room), *values_memory = malloc(ARENA_BYTES), *work = malloc(arena_size);
    Arena parsed = arena_make(memory, room), values = arena_make(values_memory, ARENA_BYTES),
          used = arena_make(work, arena_size);
    Jinja jinja;
    JinjaText text = {0};
    yyjson_doc *doc = yyjson_read(json, strlen(json), 0);
    assert_non_null(doc);
    result.error =
        jinja_parse((const uint8_t *)source, strlen(source), &parsed, &jinja, &result.why);
    if (result.error == OK) {
        JinjaValue v;
        assert_true(json_values_make(&values, yyjson_doc_get_root(doc), &v));
        result.error = jinja_render(&jinja, v.dict, &limits, &used, &text, &result.why);
    }
    if (result.error == OK) {
        assert_true(text.count < sizeof result.text);
        for (size_t i = 0; i < text.count; i++) {
            JinjaMark mark = text.mark == JINJA_MIXED ? (JinjaMark)text.marks[i] : text.mark;
            result.text[i] = (char)text.bytes[i];
            result.marks[i] = mark == JINJA_FOREIGN ? 'x' : '.';
        }
    }
    yyjson_doc_free(doc);
    free(memory);
    free(values_memory);
    free(work);
    return result;
}

static Result render(const char *source, const char *json)
{
    return render_within(source, json, (JinjaLimits){1000000, 1 << 20, 1764464523}, ARENA_BYTES);
}

static void expect(const char *source, const char *json, const char *want)
{
    Result r = render(source, json);
    if (r.error != OK) print_error("%s: %s\n", source, r.why.text);
    assert_int_equal(r.error, OK);
    assert_string_equal(r.text, want);
}

static void expect_marks(const char *source, const char *json, const char *want, const char *marks)
{
    Result r = render(source, json);
    assert_int_equal(r.error, OK);
    assert_string_equal(r.text, want);
    assert_string_equal(r.marks, marks);
}

static void expect_error(const char *source, Error error, const char *why)
{
    Result r = render(source, "{\"s\":\"abc\",\"n\":3}");
    assert_int_equal(r.error, error);
    assert_string_equal(r.why.text, why);
}

static void test_blanks(void **state)
{
    (void)state;
    expect("a\n  {% if true %}\nb\n  {% endif %}\nc\n", "{}", "a\nb\nc");
    expect("a {%- if true -%} b {%- endif %} c", "{}", "ab c");
    expect("a\n  {%+ if true %}\nb{% endif +%}\nc", "{}", "a\n  b\nc");
    expect("x {# note #}\ny{#- other -#}\n z", "{}", "x yz");
    expect("{% raw %}{{ x }}{% endraw %}", "{}", "{{ x }}");
    expect("a\r\nb\rc\n\n", "{}", "a\nb\nc\n");
}

static void test_marks(void **state)
{
    (void)state;
    expect_marks("<{{ s }}>", "{\"s\":\"abc\"}", "<abc>", ".xxx.");
    expect_marks("{{ ('[' + s + ']')[1:3] ~ '!' }}", "{\"s\":\"abc\"}", "ab!", "xx.");
    expect_marks("{{ s|replace('b', '<b>') }}", "{\"s\":\"abc\"}", "a<b>c", "x...x");
    expect_marks("{{ 'a-b'|replace('-', s) }}", "{\"s\":\"xyz\"}", "axyzb", ".xxx.");
    expect_marks("{{ s|upper }}{{ s|tojson }}", "{\"s\":\"a\\n\"}", "A\n\"a\\n\"", "xx.xxx.");
    expect_marks("{{ [s] }}", "{\"s\":\"a'\"}", "[\"a'\"]", "..xx..");
    expect_marks("{{ s.split(',')|join('|') }}", "{\"s\":\"a,b\"}", "a|b", "x.x");
    expect_marks("{% set t %}<{{ s }}>{% endset %}{{ t[::-1] }}", "{\"s\":\"ab\"}", ">ba<", ".xx.");
    expect_marks("{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m(s)|trim('[') }}", "{\"s\":\"a\"}",
                 "a]", "x.");
    expect_marks("{% for c in s %}{{ c|title }}{% endfor %}", "{\"s\":\"ab\"}", "AB", "xx");
    expect_marks("{{ '%s-{}'.format(s) % s }}", "{\"s\":\"a\"}", "a-a", "x.x");
    expect_marks("{{ s * 2 ~ s|indent(1, true) ~ s|string }}", "{\"s\":\"a\"}", "aa aa", "xx.xx");
    expect_marks("{% for k, v in d|dictsort %}{{ k }}={{ v }}{% endfor %}", "{\"d\":{\"k\":\"v\"}}",
                 "k=v", "x.x");
}

static void test_places(void **state)
{
    (void)state;
    expect_error("a\n{{ s.nope.more }}", ERR_TYPE, "line 2, column 11: \"nope\" is undefined");
    expect_error("\n\n {% bogus %}", ERR_FORMAT,
                 "line 3, column 5: the tag \"bogus\" is not supported");
    expect_error("{% if x %}", ERR_FORMAT,
                 "line 1, column 11: the template ends inside of a block");
    expect_error("{{ x", ERR_FORMAT, "line 1, column 5: the template ends inside of a tag");
    expect_error("{{ s|nope }}", ERR_UNSUPPORTED,
                 "line 1, column 6: the filter \"nope\" is not supported");
    expect_error("{{ raise_exception('Roles must ' + 'alternate') }}", ERR_USAGE,
                 "Roles must alternate");
    expect_error("{{ 1 + s }}", ERR_TYPE, "line 1, column 6: int + str has no meaning");
    expect_error("{{ [].append(1) }}", ERR_TYPE,
                 "line 1, column 13: \"append\" is undefined, or not allowed");
    expect_error("{{ 9223372036854775807 + 1 }}", ERR_TYPE,
                 "line 1, column 24: a whole number beyond 64 bits");
    expect_error("{% break %}", ERR_FORMAT,
                 "line 1, column 10: break and continue belong in a loop");
    expect_error("{{ 1 / 0 }}", ERR_TYPE, "line 1, column 6: division by zero");
}

static void expect_limit(const char *source)
{
    Result r = render_within(source, "{\"s\":\"abc\"}", (JinjaLimits){200000, 100000, 0}, 4 << 20);
    assert_int_equal(r.error, ERR_TOO_LARGE);
    assert_int_equal(strncmp(r.why.text, "line ", 5), 0);
}

static void test_limits(void **state)
{
    (void)state;
    expect_limit(
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}");
    expect_limit("{{ range(1000000) }}");
    expect_limit("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
    expect_limit("{{ 'abcdefgh' * 100000 }}");
    expect_limit("{{ [1] * 1000000000 }}");
    expect_limit("{{ 'a' * 1000000000000 }}");
    expect_limit("{% for i in range(90000) %}abc{% endfor %}");
    expect_limit(
        "{% set n = namespace(s='ab') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}");
    expect_limit(
        "{% set n = namespace(l=[]) %}{% for i in range(2000) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}");
    expect_limit(
        "{{ (' ' * 90000).split(' ')|map('length')|sum }}{{ range(99999)|list|unique|list }}");
}

static void expect_too_deep(const char *front, const char *part, size_t times)
{
    char source[8192];
    size_t at = strlen(front), bytes = strlen(part);
    assert_true(at + bytes * times < sizeof source);
    memcpy(source, front, at);
    for (; times; times--, at += bytes) memcpy(source + at, part, bytes);
    source[at] = '\0';
    Result r = render(source, "{}");
    assert_int_equal(r.error, ERR_FORMAT);
    assert_non_null(strstr(r.why.text, "too "));
}

static void test_nesting(void **state)
{
    (void)state;
    expect_too_deep("{{ ", "(", 1000);
    expect_too_deep("{{ ", "-", 1000);
    expect_too_deep("{{ ", "1+", 1000);
    expect_too_deep("{{ x", ".x", 1000);
    expect_too_deep("{{ x", "|list", 1000);
    expect_too_deep("{{ ", "not ", 1000);
    expect_too_deep("", "{% if x %}", 500);
}

/* Every size of memory that is too small is an error, never a crash. */
static void test_memory(void **state)
{
    static const char source[] =
        "{% macro m(x) %}{{ x|upper }}{% endmacro %}{% for c in s %}{{ m(c) ~ [c] }}{% endfor %}";
    (void)state;
    size_t fine = 0;
    for (size_t bytes = 0; bytes < 1 << 16; bytes += 64) {
        Result r = render_within(source, "{\"s\":\"abc\"}", (JinjaLimits){100000, 1000, 0}, bytes);
        assert_true(r.error == OK || r.error == ERR_TOO_LARGE);
        fine += r.error == OK;
    }
    assert_true(fine > 0);
    uint8_t nothing[1];
    Arena small = arena_make(nothing, sizeof nothing);
    Jinja jinja;
    assert_int_equal(jinja_parse((const uint8_t *)source, sizeof source - 1, &small, &jinja, NULL),
                     ERR_MEMORY);
    assert_int_equal(
        jinja_parse((const uint8_t *)source, JINJA_SOURCE_MAX + 1, &small, &jinja, NULL),
        ERR_TOO_LARGE);
}

static void test_time(void **state)
{
    (void)state;
    expect("{{ strftime_now('%d %b %Y %H:%M:%S %A %j %p %I') }}", "{}",
           "30 Nov 2025 01:02:03 Sunday 334 AM 01");
}

static void expect_float(double number, const char *want)
{
    char text[JINJA_NUMBER_BYTES + 1];
    text[jinja_number_write_float(number, text)] = '\0';
    assert_string_equal(text, want);
}

static void test_numbers(void **state)
{
    (void)state;
    expect_float(0.1, "0.1");
    expect_float(1e16, "1e+16");
    expect_float(123456789012345680.0, "1.2345678901234568e+17");
    expect_float(1e15, "1000000000000000.0");
    expect_float(-0.0001, "-0.0001");
    expect_float(0.00001, "1e-05");
    expect_float(5e-324, "5e-324");
    expect(
        "{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2.5|round }} {{ 2.675|round(2) }}",
        "{}", "-4 2 3.5 1024 2.0 2.67");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blanks),  cmocka_unit_test(test_marks),
        cmocka_unit_test(test_places),  cmocka_unit_test(test_limits),
        cmocka_unit_test(test_nesting), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_time),    cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
