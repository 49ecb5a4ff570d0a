/* SPDX-License-Identifier: Apache-2.0 */
/* a.b, a[b], a[b:c:d]. As in Jinja, a name behind a point is first a method or attribute, then a key; in
 * brackets the other way round; what is not there is undefined. Methods that would change a value are not
 * allowed (HF's environment is immutable): they are undefined, too. */
#include <string.h>

#include "text/jinja_number.h"
#include "text/jinja_run.h"

static JinjaValue undefined(JinjaText name)
{
    return (JinjaValue){.kind = JINJA_UNDEFINED, .text = name};
}

static size_t loop_left(const JinjaLoop *l) { return l->list->count - l->index; }

static JinjaValue loop_number(const JinjaLoop *l, JinjaText name, bool *found)
{
    *found = true;
    if (jinja_value_is(name, "index")) return jinja_value_int((int64_t)l->index + 1);
    if (jinja_value_is(name, "index0")) return jinja_value_int((int64_t)l->index);
    if (jinja_value_is(name, "revindex")) return jinja_value_int((int64_t)loop_left(l));
    if (jinja_value_is(name, "revindex0")) return jinja_value_int((int64_t)loop_left(l) - 1);
    if (jinja_value_is(name, "length")) return jinja_value_int((int64_t)l->list->count);
    if (jinja_value_is(name, "depth")) return jinja_value_int((int64_t)l->depth);
    if (jinja_value_is(name, "depth0")) return jinja_value_int((int64_t)l->depth - 1);
    if (jinja_value_is(name, "first")) return jinja_value_bool(l->index == 0);
    if (jinja_value_is(name, "last")) return jinja_value_bool(loop_left(l) == 1);
    *found = false;
    return jinja_value_none();
}

static JinjaValue loop_member(const JinjaLoop *l, JinjaText name, bool *found)
{
    JinjaValue value = loop_number(l, name, found);
    if (*found) return value;
    *found = true;
    if (jinja_value_is(name, "previtem"))
        return l->index ? l->list->items[l->index - 1] : undefined(name);
    if (jinja_value_is(name, "nextitem"))
        return loop_left(l) > 1 ? l->list->items[l->index + 1] : undefined(name);
    *found = false;
    return undefined(name);
}

/* A method, or a member of a loop or namespace. */
static Error attribute(JinjaRun *r, const JinjaValue *of, JinjaText name, JinjaValue *out,
                       bool *found)
{
    *found = true;
    if (of->kind == JINJA_NAMESPACE) {
        const JinjaValue *there = jinja_value_get(of->dict, jinja_value_text(name));
        *found = there != NULL;
        *out = there ? *there : undefined(name);
        return OK;
    }
    if (of->kind == JINJA_LOOP) {
        *out = loop_member(of->loop, name, found);
        if (*found) return OK;
    }
    if (of->kind == JINJA_MACRO && jinja_value_is(name, "name")) {
        *out = jinja_value_text(of->macro->node->text);
        return OK;
    }
    *found = jinja_method_exists(of, name);
    if (!*found) return OK;
    JinjaMethod *method = ARENA_NEW(r->arena, JinjaMethod, 1);
    if (!method) return jinja_run_no_memory(r);
    *method = (JinjaMethod){*of, name};
    *out = (JinjaValue){.kind = JINJA_METHOD, .method = method};
    return OK;
}

static Error fail_undefined(JinjaRun *r, const JinjaValue *of)
{
    return JINJA_FAIL(r, ERR_TYPE, "\"%.*s\" is undefined", JINJA_SHOW(of->text));
}

Error jinja_member_named(JinjaRun *r, const JinjaValue *of, JinjaText name, JinjaValue *out)
{
    bool found;
    if (of->kind == JINJA_UNDEFINED) return fail_undefined(r, of);
    TRY(attribute(r, of, name, out, &found));
    if (found) return OK;
    const JinjaValue *there = NULL;
    if (of->kind == JINJA_DICT) {
        TRY(jinja_run_spend(r, of->dict->count / 8));
        there = jinja_value_get(of->dict, jinja_value_text(name));
    }
    *out = there ? *there : undefined(name);
    return OK;
}

static JinjaText character(JinjaText t, int64_t index)
{
    if (index < 0) index += (int64_t)jinja_text_characters(t);
    if (index < 0) return (JinjaText){0};
    size_t from = jinja_text_byte(t, (size_t)index);
    return from < t.count ? jinja_text_cut(t, from, from + jinja_text_step(t, from))
                          : (JinjaText){0};
}

static Error at_index(JinjaRun *r, const JinjaValue *of, int64_t index, JinjaValue *out)
{
    *out = undefined(jinja_value_words("item"));
    if (of->kind == JINJA_TEXT) {
        TRY(jinja_run_spend(r, of->text.count / 64));
        JinjaText found = character(of->text, index);
        if (found.count) *out = jinja_value_text(found);
    } else if (jinja_value_is_list(of)) {
        int64_t count = (int64_t)of->list->count;
        if (index < 0) index += count;
        if (index >= 0 && index < count) *out = of->list->items[index];
    }
    return OK;
}

Error jinja_member_item(JinjaRun *r, const JinjaValue *of, const JinjaValue *key, JinjaValue *out)
{
    bool found = false;
    if (of->kind == JINJA_UNDEFINED) return fail_undefined(r, of);
    *out = undefined(key->kind == JINJA_TEXT ? key->text : jinja_value_words("item"));
    if (of->kind == JINJA_DICT) {
        TRY(jinja_run_spend(r, of->dict->count / 8));
        const JinjaValue *there = jinja_value_get(of->dict, *key);
        if (there) {
            *out = *there;
            return OK;
        }
    }
    if (key->kind == JINJA_INT || key->kind == JINJA_BOOL)
        return at_index(r, of, key->kind == JINJA_INT ? key->integer : key->truth, out);
    return key->kind == JINJA_TEXT ? attribute(r, of, key->text, out, &found) : OK;
}

/* ---- Slices ---- */

static Error read_bounds(JinjaRun *r, const JinjaValue bounds[3], int64_t count, int64_t out[3])
{
    out[2] = 1;
    if (bounds[2].kind != JINJA_NONE) TRY(jinja_run_int(r, &bounds[2], &out[2]));
    if (out[2] == 0) return jinja_run_fail(r, "a slice with step 0");
    bool back = out[2] < 0;
    int64_t least = back ? -1 : 0, most = back ? count - 1 : count;
    for (int i = 0; i < 2; i++) {
        out[i] = (i == 0) == back ? most : least;
        if (bounds[i].kind == JINJA_NONE) continue;
        TRY(jinja_run_int(r, &bounds[i], &out[i]));
        if (out[i] < 0) out[i] = out[i] < -count ? least : out[i] + count;
        if (out[i] < least) out[i] = least;
        if (out[i] > most) out[i] = most;
    }
    return OK;
}

static int64_t slice_count(const int64_t b[3])
{
    if (b[2] > 0) return b[1] > b[0] ? (b[1] - b[0] - 1) / b[2] + 1 : 0;
    if (b[1] >= b[0]) return 0;
    return b[2] == INT64_MIN ? 1 : (b[0] - b[1] - 1) / -b[2] + 1;
}

static Error slice_list(JinjaRun *r, const JinjaValue *of, const JinjaValue bounds[3],
                        JinjaValue *out)
{
    int64_t b[3];
    JinjaList *list;
    TRY(read_bounds(r, bounds, (int64_t)of->list->count, b));
    TRY(jinja_run_list(r, (size_t)slice_count(b), &list));
    int64_t at = b[0];
    for (size_t i = 0; i < list->count; i++) {
        list->items[i] = of->list->items[at];
        if (i + 1 < list->count) at += b[2];
    }
    *out = (JinjaValue){.kind = of->kind, .list = list};
    return OK;
}

static Error slice_text(JinjaRun *r, JinjaText t, const JinjaValue bounds[3], JinjaValue *out)
{
    int64_t b[3];
    TRY(jinja_run_spend(r, t.count / 32));
    TRY(read_bounds(r, bounds, (int64_t)jinja_text_characters(t), b));
    int64_t count = slice_count(b), at = b[0];
    if (b[2] == 1 || count == 0) {
        size_t from = jinja_text_byte(t, (size_t)(count ? b[0] : 0));
        JinjaText rest = jinja_text_cut(t, from, t.count);
        *out = jinja_value_text(jinja_text_cut(rest, 0, jinja_text_byte(rest, (size_t)count)));
        return OK;
    }
    JinjaBuilder text = jinja_run_builder(r);
    for (int64_t i = 0; i < count; i++) {
        TRY(jinja_run_spend(r, t.count / 64 + 1));
        jinja_text_add(&text, character(t, at));
        if (i + 1 < count) at += b[2];
    }
    JinjaText whole;
    TRY(jinja_run_finish(r, &text, &whole));
    *out = jinja_value_text(whole);
    return OK;
}

Error jinja_member_slice(JinjaRun *r, const JinjaValue *of, const JinjaValue bounds[3],
                         JinjaValue *out)
{
    if (of->kind == JINJA_UNDEFINED) return fail_undefined(r, of);
    if (of->kind == JINJA_TEXT) return slice_text(r, of->text, bounds, out);
    if (jinja_value_is_list(of)) return slice_list(r, of, bounds, out);
    *out = undefined(jinja_value_words("slice"));
    return OK;
}

Error jinja_member_path(JinjaRun *r, const JinjaValue *of, const JinjaValue *path, JinjaValue *out)
{
    static const JinjaText dot = {(const uint8_t *)".", NULL, 1, JINJA_OWN};
    if (path->kind != JINJA_TEXT) return jinja_member_item(r, of, path, out);
    JinjaText rest = path->text;
    *out = *of;
    for (bool more = true; more;) {
        size_t at = jinja_text_find(rest, dot, 0);
        JinjaValue from = *out, key = jinja_value_text(jinja_text_cut(rest, 0, at)), index;
        more = at < rest.count;
        rest = jinja_text_cut(rest, at + more, rest.count);
        uint8_t first = key.text.count ? key.text.bytes[0] : 0;
        if (first >= '0' && first <= '9' &&
            jinja_number_read(key.text.bytes, key.text.count, &index))
            key = index;
        TRY(jinja_member_item(r, &from, &key, out));
    }
    return OK;
}
