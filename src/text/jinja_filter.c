/* SPDX-License-Identifier: Apache-2.0 */
/* Filters of one value: texts, numbers, JSON. Those of rows of values are in jinja_sequence.c. */
#include <string.h>

#include "text/jinja_number.h"
#include "text/jinja_run.h"
#include "text/utf8.h"

static bool is_on(const JinjaArguments *a, size_t index, const char *name)
{
    const JinjaValue *v = jinja_run_argument(a, index, name);
    return v && jinja_value_true(v);
}

static Error give(JinjaValue *out, JinjaText text)
{
    *out = jinja_value_text(text);
    return OK;
}

/* ---- Case, blanks, replace ---- */

static Error turned(JinjaRun *r, const JinjaValue *v, int how, JinjaValue *out)
{
    JinjaText text;
    TRY(jinja_write_str(r, v, &text));
    TRY(jinja_method_case(r, text, how, &text));
    return give(out, text);
}

static Error filter_upper(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                          JinjaValue *out)
{
    (void)a;
    return turned(r, v, JINJA_CASE_UPPER, out);
}

static Error filter_lower(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                          JinjaValue *out)
{
    (void)a;
    return turned(r, v, JINJA_CASE_LOWER, out);
}

static Error filter_capitalize(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                               JinjaValue *out)
{
    (void)a;
    return turned(r, v, JINJA_CASE_CAPITAL, out);
}

static bool ends_word(uint32_t c)
{
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || jinja_text_is_space(c);
}

/* Not str.title: words end at blanks, - and opening brackets only. */
static Error filter_title(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                          JinjaValue *out)
{
    JinjaText t, text;
    JinjaBuilder b = jinja_run_builder(r);
    (void)a;
    TRY(jinja_write_str(r, v, &t));
    for (size_t from = 0, at = 0; from < t.count; from = at) {
        uint32_t length, c;
        while (at < t.count && !ends_word(c = utf8_read(t.bytes + at, t.count - at, &length)))
            at += length;
        TRY(jinja_method_case(r, jinja_text_cut(t, from, at), JINJA_CASE_CAPITAL, &text));
        jinja_text_add(&b, text);
        from = at;
        while (at < t.count && ends_word(utf8_read(t.bytes + at, t.count - at, &length)))
            at += length;
        jinja_text_add(&b, jinja_text_cut(t, from, at));
    }
    TRY(jinja_run_finish(r, &b, &text));
    return give(out, text);
}

static Error filter_trim(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a, JinjaValue *out)
{
    const JinjaValue *set = jinja_run_argument(a, 0, "chars");
    unsigned both = JINJA_STRIP_LEFT | JINJA_STRIP_RIGHT;
    JinjaText text;
    TRY(jinja_write_str(r, v, &text));
    bool given = set && set->kind == JINJA_TEXT;
    return give(out,
                given ? jinja_text_strip_set(text, set->text, both) : jinja_text_strip(text, both));
}

static Error filter_replace(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                            JinjaValue *out)
{
    const JinjaValue *old = jinja_run_argument(a, 0, "old"),
                     *with = jinja_run_argument(a, 1, "new"),
                     *count = jinja_run_argument(a, 2, "count");
    JinjaText t, old_text, with_text;
    int64_t most = -1;
    if (!old || !with) return jinja_run_fail(r, "replace needs two texts");
    TRY(jinja_write_str(r, v, &t));
    TRY(jinja_write_str(r, old, &old_text));
    TRY(jinja_write_str(r, with, &with_text));
    if (count && count->kind != JINJA_NONE) TRY(jinja_run_int(r, count, &most));
    TRY(jinja_method_replace(r, t, old_text, with_text, most, &t));
    return give(out, t);
}

static Error filter_string(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                           JinjaValue *out)
{
    JinjaText text;
    (void)a;
    TRY(jinja_write_str(r, v, &text));
    return give(out, text);
}

static Error filter_format(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                           JinjaValue *out)
{
    JinjaText text;
    TRY(jinja_write_str(r, v, &text));
    if (a->count != a->unnamed) return jinja_run_fail(r, "format takes values without names here");
    TRY(jinja_format_percent(r, text, a->values, a->count, &text));
    return give(out, text);
}

/* The width of an indent: a number of blanks, or the text itself. */
static Error indent_text(JinjaRun *r, const JinjaValue *width, int64_t otherwise, JinjaText *out)
{
    JinjaValue blank = jinja_value_text(jinja_value_words(" ")), all,
               count = width && width->kind != JINJA_TEXT ? *width : jinja_value_int(otherwise);
    if (width && width->kind == JINJA_TEXT) {
        *out = width->text;
        return OK;
    }
    TRY(jinja_math(r, JINJA_OP_MUL, &blank, &count, &all));
    *out = all.text;
    if (!out->bytes) out->bytes = blank.text.bytes;
    return OK;
}

static Error filter_indent(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                           JinjaValue *out)
{
    bool first = is_on(a, 1, "first"), blank = is_on(a, 2, "blank");
    JinjaText t, indent;
    JinjaList *lines;
    JinjaBuilder b = jinja_run_builder(r);
    TRY(jinja_write_str(r, v, &t));
    TRY(indent_text(r, jinja_run_argument(a, 0, "width"), 4, &indent));
    TRY(jinja_method_lines(r, t, &lines));
    for (size_t i = 0; i < lines->count; i++) {
        if (i) jinja_text_add_words(&b, "\n");
        if (i ? blank || lines->items[i].text.count : first) jinja_text_add(&b, indent);
        jinja_text_add(&b, lines->items[i].text);
    }
    bool open = !t.count || t.bytes[t.count - 1] == '\n'; /* an empty last line */
    if (open && t.count) jinja_text_add_words(&b, "\n");
    if (open && (t.count ? blank : first)) jinja_text_add(&b, indent);
    TRY(jinja_run_finish(r, &b, &t));
    return give(out, t);
}

/* ---- Numbers ---- */

static JinjaText number_text(const JinjaValue *v)
{
    return jinja_text_strip(v->text, JINJA_STRIP_LEFT | JINJA_STRIP_RIGHT);
}

static bool read_number(const JinjaValue *v, JinjaValue *out)
{
    if (jinja_value_is_number(v)) {
        *out = v->kind == JINJA_BOOL ? jinja_value_int(v->truth) : *v;
        return true;
    }
    if (v->kind != JINJA_TEXT) return false;
    JinjaText text = number_text(v);
    return jinja_number_read(text.bytes, text.count, out);
}

static Error filter_int(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a, JinjaValue *out)
{
    const JinjaValue *otherwise = jinja_run_argument(a, 0, "default");
    JinjaValue number;
    if (jinja_run_argument(a, 1, "base"))
        return jinja_run_fail(r, "int with a base is not supported");
    if (v->kind == JINJA_UNDEFINED)
        return JINJA_FAIL(r, ERR_TYPE, "\"%.*s\" is undefined", JINJA_SHOW(v->text));
    *out = otherwise ? *otherwise : jinja_value_int(0);
    if (!read_number(v, &number)) return OK;
    if (number.kind == JINJA_INT) *out = number;
    else if (number.number > -9.2e18 && number.number < 9.2e18)
        *out = jinja_value_int((int64_t)number.number);
    return OK;
}

static Error filter_float(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                          JinjaValue *out)
{
    const JinjaValue *otherwise = jinja_run_argument(a, 0, "default");
    JinjaValue number;
    if (v->kind == JINJA_UNDEFINED)
        return JINJA_FAIL(r, ERR_TYPE, "\"%.*s\" is undefined", JINJA_SHOW(v->text));
    *out = otherwise ? *otherwise : jinja_value_float(0);
    if (read_number(v, &number)) *out = jinja_value_float(jinja_value_number(&number));
    return OK;
}

static Error filter_round(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                          JinjaValue *out)
{
    const JinjaValue *precision = jinja_run_argument(a, 0, "precision");
    int64_t digits = 0;
    if (precision) TRY(jinja_run_int(r, precision, &digits));
    if (!jinja_value_is_number(v)) return jinja_run_fail(r, "round needs a number");
    if (jinja_run_argument(a, 1, "method") || digits < 0 || digits > 15)
        return jinja_run_fail(r, "only common rounding to 0 to 15 digits is supported");
    *out = *v;
    if (v->kind == JINJA_BOOL) *out = jinja_value_int(v->truth);
    if (v->kind == JINJA_FLOAT)
        *out = jinja_value_float(jinja_number_round(v->number, (unsigned)digits));
    return OK;
}

static Error filter_abs(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a, JinjaValue *out)
{
    (void)a;
    *out = *v;
    if (!jinja_value_is_number(v)) return jinja_run_fail(r, "abs needs a number");
    if (v->kind == JINJA_BOOL) *out = jinja_value_int(v->truth);
    return jinja_value_number(v) < 0 ? jinja_math_negate(r, v, out) : OK;
}

/* ---- JSON, default ---- */

static Error json_separators(JinjaRun *r, const JinjaValue *given, JinjaJson *style)
{
    if (!given || given->kind == JINJA_NONE) return OK;
    if (!jinja_value_is_list(given) || given->list->count != 2 ||
        given->list->items[0].kind != JINJA_TEXT || given->list->items[1].kind != JINJA_TEXT)
        return jinja_run_fail(r, "separators are two texts");
    style->item = given->list->items[0].text;
    style->key = given->list->items[1].text;
    return OK;
}

/* The arguments in the order of HF's tojson. */
static Error filter_tojson(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                           JinjaValue *out)
{
    const JinjaValue *indent = jinja_run_argument(a, 1, "indent");
    JinjaJson style = {.item = jinja_value_words(", "), .key = jinja_value_words(": ")};
    JinjaText text;
    style.ascii = is_on(a, 0, "ensure_ascii");
    style.sorted = is_on(a, 3, "sort_keys");
    if (indent && indent->kind != JINJA_NONE) {
        TRY(indent_text(r, indent, 0, &style.indent));
        style.item = jinja_value_words(",");
    }
    TRY(json_separators(r, jinja_run_argument(a, 2, "separators"), &style));
    TRY(jinja_write_json(r, v, &style, &text));
    return give(out, text);
}

static Error filter_default(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                            JinjaValue *out)
{
    const JinjaValue *otherwise = jinja_run_argument(a, 0, "default_value");
    bool use = v->kind == JINJA_UNDEFINED || (is_on(a, 1, "boolean") && !jinja_value_true(v));
    (void)r;
    *out = !use ? *v : otherwise ? *otherwise : jinja_value_text((JinjaText){0});
    return OK;
}

static Error filter_attr(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a, JinjaValue *out)
{
    const JinjaValue *name = jinja_run_argument(a, 0, "name");
    if (!name || name->kind != JINJA_TEXT) return jinja_run_fail(r, "attr needs a name");
    if (v->kind == JINJA_DICT && !jinja_method_exists(v, name->text)) {
        *out = (JinjaValue){.kind = JINJA_UNDEFINED, .text = name->text};
        return OK;
    }
    return jinja_member_named(r, v, name->text, out);
}

typedef struct Named {
    const char *name;
    JinjaFilter call;
} Named;

static const Named filters[] = {
    {"tojson", filter_tojson}, {"trim", filter_trim},       {"string", filter_string},
    {"safe", filter_string},   {"default", filter_default}, {"d", filter_default},
    {"upper", filter_upper},   {"lower", filter_lower},     {"capitalize", filter_capitalize},
    {"title", filter_title},   {"replace", filter_replace}, {"indent", filter_indent},
    {"int", filter_int},       {"float", filter_float},     {"round", filter_round},
    {"abs", filter_abs},       {"format", filter_format},   {"attr", filter_attr},
};

Error jinja_filter(JinjaRun *r, JinjaText name, const JinjaValue *v, const JinjaArguments *a,
                   JinjaValue *out)
{
    JinjaFilter call = jinja_sequence_find(name);
    for (size_t i = 0; i < sizeof filters / sizeof *filters && !call; i++)
        if (jinja_value_is(name, filters[i].name)) call = filters[i].call;
    if (call) return call(r, v, a, out);
    return JINJA_FAIL(r, ERR_UNSUPPORTED, "the filter \"%.*s\" is not supported", JINJA_SHOW(name));
}
