/* SPDX-License-Identifier: Apache-2.0 */
/* "%s and %d" % (a, b), and "{} and {name}".format(a, name=b): what templates need of Python's two ways to
 * fill a text. Widths and precisions are refused. */
#include "text/jinja_number.h"
#include "text/jinja_run.h"

Error jinja_format_percent(JinjaRun *r, JinjaText t, const JinjaValue *values, size_t count,
                           JinjaText *out)
{
    JinjaBuilder b = jinja_run_builder(r);
    size_t used = 0;
    for (size_t i = 0; i < t.count; i++) {
        TRY(jinja_run_spend(r, 1));
        if (t.bytes[i] != '%') {
            jinja_text_add(&b, jinja_text_cut(t, i, i + 1));
            continue;
        }
        uint8_t letter = ++i < t.count ? t.bytes[i] : 0;
        if (letter == '%') {
            jinja_text_add(&b, jinja_text_cut(t, i, i + 1));
            continue;
        }
        if (letter != 's' && letter != 'd')
            return jinja_run_fail(r, "only %s and %d are supported");
        if (used == count) return jinja_run_fail(r, "fewer values than the format has places");
        if (letter == 'd' && values[used].kind != JINJA_INT)
            return jinja_run_fail(r, "%d needs a whole number");
        JinjaText text;
        TRY(jinja_write_str(r, &values[used++], &text));
        jinja_text_add(&b, text);
    }
    /* A value that can be indexed might be for names in the format: Python does not count it. */
    bool indexed = count == 1 && (values->kind == JINJA_LIST || values->kind == JINJA_DICT ||
                                  values->kind == JINJA_UNDEFINED);
    if (used < count && !indexed) return jinja_run_fail(r, "more values than the format has places");
    return jinja_run_finish(r, &b, out);
}

/* {} {0} {name} {0.x}: the value for what stands between the braces. */
static Error find_field(JinjaRun *r, JinjaText field, const JinjaArguments *a, size_t *next,
                        JinjaValue *out)
{
    static const JinjaText dot = {(const uint8_t *)".", NULL, 1, JINJA_OWN};
    JinjaText name = jinja_text_cut(field, 0, jinja_text_find(field, dot, 0));
    JinjaValue index;
    const JinjaValue *found = NULL;
    if (name.count == 0) {
        found = jinja_run_argument(a, (*next)++, NULL);
    } else if (name.bytes[0] >= '0' && name.bytes[0] <= '9' &&
               jinja_number_read(name.bytes, name.count, &index) && index.kind == JINJA_INT) {
        found = jinja_run_argument(a, (size_t)index.integer, NULL);
    } else {
        for (size_t i = a->unnamed; i < a->count && !found; i++)
            if (a->names[i].count == name.count && jinja_text_starts(a->names[i], name))
                found = &a->values[i];
    }
    if (!found) return jinja_run_fail(r, "the format names a value that is not given");
    *out = *found;
    if (name.count == field.count) return OK;
    JinjaValue path = jinja_value_text(jinja_text_cut(field, name.count + 1, field.count));
    return jinja_member_path(r, found, &path, out);
}

static Error put_field(JinjaRun *r, JinjaBuilder *b, JinjaText field, const JinjaArguments *a,
                       size_t *next)
{
    JinjaValue value;
    JinjaText text;
    for (size_t i = 0; i < field.count; i++)
        if (field.bytes[i] == ':' || field.bytes[i] == '!' || field.bytes[i] == '[')
            return jinja_run_fail(r,
                                  "a format with widths, conversions or indices is not supported");
    TRY(find_field(r, field, a, next, &value));
    TRY(jinja_write_str(r, &value, &text));
    jinja_text_add(b, text);
    return OK;
}

Error jinja_format_braces(JinjaRun *r, JinjaText t, const JinjaArguments *a, JinjaText *out)
{
    static const JinjaText close = {(const uint8_t *)"}", NULL, 1, JINJA_OWN};
    JinjaBuilder b = jinja_run_builder(r);
    size_t next = 0;
    for (size_t i = 0; i < t.count; i++) {
        uint8_t c = t.bytes[i];
        TRY(jinja_run_spend(r, 1));
        bool brace = c == '{' || c == '}', twice = brace && i + 1 < t.count && t.bytes[i + 1] == c;
        if (!brace || twice) {
            jinja_text_add(&b, jinja_text_cut(t, i, i + 1));
            i += twice;
            continue;
        }
        size_t end = jinja_text_find(t, close, i);
        if (c == '}' || end == t.count) return jinja_run_fail(r, "a brace alone in a format");
        TRY(put_field(r, &b, jinja_text_cut(t, i + 1, end), a, &next));
        i = end;
    }
    return jinja_run_finish(r, &b, out);
}
