/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of texts, dictionaries and rows, with Python's meaning. None changes its value. */
#include <string.h>

#include "text/jinja_run.h"
#include "text/utf8.h"

typedef Error (*Method)(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                        JinjaValue *out);

static Error text_argument(JinjaRun *r, const JinjaArguments *a, size_t index, const char *name,
                           JinjaText *out, bool *given)
{
    const JinjaValue *v = jinja_run_argument(a, index, name);
    *given = v && v->kind != JINJA_NONE;
    *out = (JinjaText){0};
    if (!*given) return OK;
    if (v->kind != JINJA_TEXT)
        return JINJA_FAIL(r, ERR_TYPE, "a text is needed, not %s", jinja_value_kind(v));
    *out = v->text;
    return OK;
}

static Error needed_text(JinjaRun *r, const JinjaArguments *a, size_t index, JinjaText *out)
{
    bool given;
    TRY(text_argument(r, a, index, NULL, out, &given));
    return given ? OK : jinja_run_fail(r, "a text is missing here");
}

static Error int_argument(JinjaRun *r, const JinjaArguments *a, size_t index, const char *name,
                          int64_t otherwise, int64_t *out)
{
    const JinjaValue *v = jinja_run_argument(a, index, name);
    *out = otherwise;
    return v ? jinja_run_int(r, v, out) : OK;
}

/* ---- Case ---- */

static bool is_letter(uint32_t c)
{
    return jinja_text_lower(c) != c || jinja_text_upper(c) != c || c == 0xDF;
}

static uint32_t turn(uint32_t c, int how, bool first)
{
    switch (how) {
    case JINJA_CASE_UPPER: return jinja_text_upper(c);
    case JINJA_CASE_LOWER: return jinja_text_lower(c);
    case JINJA_CASE_SWAP:
        return jinja_text_lower(c) != c ? jinja_text_lower(c) : jinja_text_upper(c);
    default: return first ? jinja_text_upper(c) : jinja_text_lower(c);
    }
}

static void add_turned(JinjaBuilder *b, uint32_t c, int how, bool first, JinjaMark mark)
{
    bool upper = how == JINJA_CASE_UPPER || how == JINJA_CASE_SWAP;
    if (c == 0xDF && (upper || first)) {
        jinja_text_add_bytes(b, upper ? "SS" : "Ss", 2, mark);
        return;
    }
    jinja_text_add_character(b, turn(c, how, first), mark);
}

Error jinja_method_case(JinjaRun *r, JinjaText t, int how, JinjaText *out)
{
    JinjaBuilder b = jinja_run_builder(r);
    bool begins = true;
    TRY(jinja_run_spend(r, t.count / 16));
    for (size_t at = 0; at < t.count;) {
        uint32_t length, c = utf8_read(t.bytes + at, t.count - at, &length);
        if (c == UTF8_INVALID) jinja_text_add(&b, jinja_text_cut(t, at, at + 1));
        else
            add_turned(&b, c, how, begins && how >= JINJA_CASE_CAPITAL && how != JINJA_CASE_SWAP,
                       jinja_text_mark(t, at));
        begins = how == JINJA_CASE_TITLE && (c == UTF8_INVALID || !is_letter(c));
        at += length;
    }
    return jinja_run_finish(r, &b, out);
}

static Error turned(JinjaRun *r, const JinjaValue *self, int how, JinjaValue *out)
{
    JinjaText text;
    TRY(jinja_method_case(r, self->text, how, &text));
    *out = jinja_value_text(text);
    return OK;
}

#define CASE_METHOD(name, how)                                                      \
    static Error name(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a, \
                      JinjaValue *out)                                              \
    {                                                                               \
        (void)a;                                                                    \
        return turned(r, self, how, out);                                           \
    }
CASE_METHOD(text_upper, JINJA_CASE_UPPER)
CASE_METHOD(text_lower, JINJA_CASE_LOWER)
CASE_METHOD(text_capitalize, JINJA_CASE_CAPITAL)
CASE_METHOD(text_title, JINJA_CASE_TITLE)
CASE_METHOD(text_swapcase, JINJA_CASE_SWAP)
#undef CASE_METHOD

/* ---- Strip, starts, ends, find, count ---- */

static Error strip(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a, unsigned sides,
                   JinjaValue *out)
{
    JinjaText set;
    bool given;
    TRY(text_argument(r, a, 0, "chars", &set, &given));
    *out = jinja_value_text(given ? jinja_text_strip_set(self->text, set, sides)
                                  : jinja_text_strip(self->text, sides));
    return OK;
}

static Error text_strip(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                        JinjaValue *out)
{
    return strip(r, self, a, JINJA_STRIP_LEFT | JINJA_STRIP_RIGHT, out);
}

static Error text_lstrip(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                         JinjaValue *out)
{
    return strip(r, self, a, JINJA_STRIP_LEFT, out);
}

static Error text_rstrip(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                         JinjaValue *out)
{
    return strip(r, self, a, JINJA_STRIP_RIGHT, out);
}

/* One text, or any of a tuple. */
static Error touches(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                     bool (*check)(JinjaText, JinjaText), JinjaValue *out)
{
    const JinjaValue *with = jinja_run_argument(a, 0, NULL);
    bool any = with && with->kind == JINJA_TUPLE, found = false;
    size_t count = any ? with->list->count : 1;
    for (size_t i = 0; i < count; i++) {
        const JinjaValue *one = any ? &with->list->items[i] : with;
        if (!one || one->kind != JINJA_TEXT) return jinja_run_fail(r, "a text is needed");
        found |= check(self->text, one->text);
    }
    *out = jinja_value_bool(found);
    return OK;
}

static Error text_startswith(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                             JinjaValue *out)
{
    return touches(r, self, a, jinja_text_starts, out);
}

static Error text_endswith(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                           JinjaValue *out)
{
    return touches(r, self, a, jinja_text_ends, out);
}

static Error find(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a, bool last,
                  JinjaValue *out)
{
    JinjaText what, t = self->text;
    TRY(needed_text(r, a, 0, &what));
    if (a->count > 1) return jinja_run_fail(r, "find with bounds is not supported");
    TRY(jinja_run_spend(r, t.count / 16));
    size_t at = last ? jinja_text_find_last(t, what) : jinja_text_find(t, what, 0);
    bool found = at < t.count || what.count == 0;
    *out = jinja_value_int(found ? (int64_t)jinja_text_characters(jinja_text_cut(t, 0, at)) : -1);
    return OK;
}

static Error text_find(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                       JinjaValue *out)
{
    return find(r, self, a, false, out);
}

static Error text_rfind(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                        JinjaValue *out)
{
    return find(r, self, a, true, out);
}

static Error text_index(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                        JinjaValue *out)
{
    TRY(find(r, self, a, false, out));
    return out->integer < 0 ? jinja_run_fail(r, "the text is not in the other") : OK;
}

static Error text_count(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                        JinjaValue *out)
{
    JinjaText what, t = self->text;
    int64_t count = 0;
    TRY(needed_text(r, a, 0, &what));
    TRY(jinja_run_spend(r, t.count / 16));
    if (what.count == 0) count = (int64_t)jinja_text_characters(t) + 1;
    else
        for (size_t at = 0; (at = jinja_text_find(t, what, at)) < t.count; at += what.count)
            count++;
    *out = jinja_value_int(count);
    return OK;
}

static Error cut_end(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a, bool front,
                     JinjaValue *out)
{
    JinjaText what, t = self->text;
    TRY(needed_text(r, a, 0, &what));
    if (front && jinja_text_starts(t, what)) t = jinja_text_cut(t, what.count, t.count);
    if (!front && jinja_text_ends(t, what)) t = jinja_text_cut(t, 0, t.count - what.count);
    *out = jinja_value_text(t);
    return OK;
}

static Error text_removeprefix(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                               JinjaValue *out)
{
    return cut_end(r, self, a, true, out);
}

static Error text_removesuffix(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                               JinjaValue *out)
{
    return cut_end(r, self, a, false, out);
}

/* ---- Replace ---- */

Error jinja_method_replace(JinjaRun *r, JinjaText t, JinjaText old, JinjaText with, int64_t most,
                           JinjaText *out)
{
    JinjaBuilder b = jinja_run_builder(r);
    size_t from = 0, at = 0;
    TRY(jinja_run_spend(r, t.count / 16));
    for (; most != 0 && at <= t.count; most -= most > 0) {
        at = jinja_text_find(t, old, at);
        if (at == t.count && (old.count || from > t.count)) break;
        jinja_text_add(&b, jinja_text_cut(t, from, at));
        jinja_text_add(&b, with);
        TRY(jinja_run_spend(r, 1));
        from = at + old.count;
        if (old.count) at = from;
        else at = at == t.count ? t.count + 1 : at + jinja_text_step(t, at);
    }
    jinja_text_add(&b, jinja_text_cut(t, from, t.count));
    return jinja_run_finish(r, &b, out);
}

static Error text_replace(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                          JinjaValue *out)
{
    JinjaText old, with, text;
    int64_t most;
    TRY(needed_text(r, a, 0, &old));
    TRY(needed_text(r, a, 1, &with));
    TRY(int_argument(r, a, 2, "count", -1, &most));
    TRY(jinja_method_replace(r, self->text, old, with, most, &text));
    *out = jinja_value_text(text);
    return OK;
}

/* ---- Split and join ---- */

static Error push_cut(JinjaRun *r, JinjaList *list, size_t *room, JinjaText t, size_t from,
                      size_t to)
{
    return jinja_run_push(r, list, room, jinja_value_text(jinja_text_cut(t, from, to)));
}

static Error split_blanks(JinjaRun *r, JinjaText t, int64_t most, JinjaList *list)
{
    size_t room = 0;
    for (;; most -= most > 0) {
        t = jinja_text_strip(t, JINJA_STRIP_LEFT);
        if (!t.count) return OK;
        size_t at = 0;
        uint32_t length;
        while (at < t.count && most != 0 &&
               !jinja_text_is_space(utf8_read(t.bytes + at, t.count - at, &length)))
            at += length;
        if (most == 0) return jinja_run_push(r, list, &room, jinja_value_text(t));
        TRY(push_cut(r, list, &room, t, 0, at));
        t = jinja_text_cut(t, at, t.count);
    }
}

static Error split_at(JinjaRun *r, JinjaText t, JinjaText by, int64_t most, JinjaList *list)
{
    size_t room = 0, from = 0, at;
    for (; most != 0 && (at = jinja_text_find(t, by, from)) < t.count; most -= most > 0) {
        TRY(push_cut(r, list, &room, t, from, at));
        from = at + by.count;
    }
    return push_cut(r, list, &room, t, from, t.count);
}

/* From the right: found backwards, then turned round. */
static Error split_back(JinjaRun *r, JinjaText t, JinjaText by, int64_t most, JinjaList *list)
{
    size_t room = 0, at;
    for (; most != 0 && (at = jinja_text_find_last(t, by)) < t.count; most -= most > 0) {
        TRY(jinja_run_spend(r, t.count / 64));
        TRY(push_cut(r, list, &room, t, at + by.count, t.count));
        t = jinja_text_cut(t, 0, at);
    }
    TRY(jinja_run_push(r, list, &room, jinja_value_text(t)));
    for (size_t i = 0; i < list->count / 2; i++) {
        JinjaValue kept = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = kept;
    }
    return OK;
}

static Error split(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a, bool back,
                   JinjaValue *out)
{
    JinjaText by;
    bool given;
    int64_t most;
    TRY(text_argument(r, a, 0, "sep", &by, &given));
    TRY(int_argument(r, a, 1, "maxsplit", -1, &most));
    TRY(jinja_run_spend(r, self->text.count / 16));
    if (given && by.count == 0) return jinja_run_fail(r, "an empty separator");
    JinjaList *list = ARENA_NEW(r->arena, JinjaList, 1);
    if (!list) return jinja_run_no_memory(r);
    if (!given && back && most >= 0) return jinja_run_fail(r, "rsplit needs a separator here");
    if (!given) TRY(split_blanks(r, self->text, most, list));
    else TRY((back ? split_back : split_at)(r, self->text, by, most, list));
    *out = (JinjaValue){.kind = JINJA_LIST, .list = list};
    return OK;
}

static Error text_split(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                        JinjaValue *out)
{
    return split(r, self, a, false, out);
}

static Error text_rsplit(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                         JinjaValue *out)
{
    return split(r, self, a, true, out);
}

static Error partition(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a, bool last,
                       JinjaValue *out)
{
    JinjaText by, t = self->text;
    JinjaList *list;
    TRY(needed_text(r, a, 0, &by));
    if (by.count == 0) return jinja_run_fail(r, "an empty separator");
    TRY(jinja_run_spend(r, t.count / 16));
    TRY(jinja_run_list(r, 3, &list));
    size_t at = last ? jinja_text_find_last(t, by) : jinja_text_find(t, by, 0),
           none = last ? 0 : at;
    bool found = at < t.count;
    list->items[0] = jinja_value_text(jinja_text_cut(t, 0, found ? at : none));
    list->items[1] = jinja_value_text(jinja_text_cut(t, at, found ? at + by.count : at));
    list->items[2] = jinja_value_text(jinja_text_cut(t, found ? at + by.count : none, t.count));
    *out = (JinjaValue){.kind = JINJA_TUPLE, .list = list};
    return OK;
}

static Error text_partition(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                            JinjaValue *out)
{
    return partition(r, self, a, false, out);
}

static Error text_rpartition(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                             JinjaValue *out)
{
    return partition(r, self, a, true, out);
}

static bool ends_line(uint32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

Error jinja_method_lines(JinjaRun *r, JinjaText t, JinjaList **out)
{
    size_t room = 0, from = 0;
    *out = ARENA_NEW(r->arena, JinjaList, 1);
    if (!*out) return jinja_run_no_memory(r);
    TRY(jinja_run_spend(r, t.count / 16));
    for (size_t at = 0; at < t.count;) {
        uint32_t length, c = utf8_read(t.bytes + at, t.count - at, &length);
        if (!ends_line(c)) {
            at += length;
            continue;
        }
        TRY(push_cut(r, *out, &room, t, from, at));
        at += length + (c == '\r' && at + 1 < t.count && t.bytes[at + 1] == '\n');
        from = at;
    }
    return from < t.count ? push_cut(r, *out, &room, t, from, t.count) : OK;
}

static Error text_splitlines(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                             JinjaValue *out)
{
    JinjaList *list;
    if (a->count) return jinja_run_fail(r, "splitlines takes no arguments here");
    TRY(jinja_method_lines(r, self->text, &list));
    *out = (JinjaValue){.kind = JINJA_LIST, .list = list};
    return OK;
}

static Error text_join(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                       JinjaValue *out)
{
    const JinjaList *items;
    const JinjaValue *rows = jinja_run_argument(a, 0, NULL);
    JinjaBuilder b = jinja_run_builder(r);
    JinjaText text;
    if (!rows) return jinja_run_fail(r, "a row of texts is missing");
    TRY(jinja_eval_items(r, rows, &items));
    TRY(jinja_run_spend(r, items->count));
    for (size_t i = 0; i < items->count; i++) {
        if (items->items[i].kind != JINJA_TEXT) return jinja_run_fail(r, "join takes texts");
        if (i) jinja_text_add(&b, self->text);
        jinja_text_add(&b, items->items[i].text);
    }
    TRY(jinja_run_finish(r, &b, &text));
    *out = jinja_value_text(text);
    return OK;
}

/* ---- What a text is ---- */

typedef bool (*Kind)(uint32_t c);

static bool is_digit(uint32_t c) { return c >= '0' && c <= '9'; }
static bool is_alpha(uint32_t c) { return is_letter(c); }
static bool is_alnum(uint32_t c) { return is_digit(c) || is_alpha(c); }

static Error all_are(const JinjaValue *self, Kind kind, JinjaValue *out)
{
    JinjaText t = self->text;
    bool all = t.count > 0;
    for (size_t at = 0; at < t.count && all;) {
        uint32_t length;
        all = kind(utf8_read(t.bytes + at, t.count - at, &length));
        at += length;
    }
    *out = jinja_value_bool(all);
    return OK;
}

#define KIND_METHOD(name, kind)                                                     \
    static Error name(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a, \
                      JinjaValue *out)                                              \
    {                                                                               \
        (void)a;                                                                    \
        TRY(jinja_run_spend(r, self->text.count / 16));                             \
        return all_are(self, kind, out);                                            \
    }
KIND_METHOD(text_isdigit, is_digit)
KIND_METHOD(text_isalpha, is_alpha)
KIND_METHOD(text_isalnum, is_alnum)
KIND_METHOD(text_isspace, jinja_text_is_space)
#undef KIND_METHOD

static Error has_case(JinjaRun *r, const JinjaValue *self, bool upper, JinjaValue *out)
{
    JinjaText t = self->text, turned_text;
    TRY(jinja_method_case(r, t, upper ? JINJA_CASE_UPPER : JINJA_CASE_LOWER, &turned_text));
    JinjaValue same = jinja_value_text(turned_text);
    bool letters = false;
    for (size_t at = 0; at < t.count && !letters;) {
        uint32_t length;
        letters = is_letter(utf8_read(t.bytes + at, t.count - at, &length));
        at += length;
    }
    *out = jinja_value_bool(letters && jinja_value_same(self, &same));
    return OK;
}

static Error text_isupper(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                          JinjaValue *out)
{
    (void)a;
    return has_case(r, self, true, out);
}

static Error text_islower(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                          JinjaValue *out)
{
    (void)a;
    return has_case(r, self, false, out);
}

static Error text_format(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                         JinjaValue *out)
{
    JinjaText text;
    TRY(jinja_format_braces(r, self->text, a, &text));
    *out = jinja_value_text(text);
    return OK;
}

/* ---- Dictionaries and rows ---- */

static Error dict_get(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a, JinjaValue *out)
{
    const JinjaValue *key = jinja_run_argument(a, 0, NULL),
                     *otherwise = jinja_run_argument(a, 1, NULL);
    if (!key) return jinja_run_fail(r, "get needs a key");
    TRY(jinja_run_spend(r, self->dict->count / 8));
    const JinjaValue *there = jinja_value_get(self->dict, *key);
    *out = there ? *there : otherwise ? *otherwise : jinja_value_none();
    return OK;
}

/* Keys, values, or tuples of both. */
static Error columns(JinjaRun *r, const JinjaDict *dict, bool keys, bool values, JinjaValue *out)
{
    JinjaList *list, *pair;
    TRY(jinja_run_list(r, dict->count, &list));
    for (size_t i = 0; i < dict->count; i++) {
        list->items[i] = keys ? dict->pairs[i].key : dict->pairs[i].value;
        if (!keys || !values) continue;
        TRY(jinja_run_list(r, 2, &pair));
        pair->items[0] = dict->pairs[i].key;
        pair->items[1] = dict->pairs[i].value;
        list->items[i] = (JinjaValue){.kind = JINJA_TUPLE, .list = pair};
    }
    *out = (JinjaValue){.kind = JINJA_LIST, .list = list};
    return OK;
}

static Error dict_items(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                        JinjaValue *out)
{
    (void)a;
    return columns(r, self->dict, true, true, out);
}

static Error dict_keys(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                       JinjaValue *out)
{
    (void)a;
    return columns(r, self->dict, true, false, out);
}

static Error dict_values(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                         JinjaValue *out)
{
    (void)a;
    return columns(r, self->dict, false, true, out);
}

/* Values are never changed: a copy is the value. */
static Error copy(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a, JinjaValue *out)
{
    (void)r;
    (void)a;
    *out = *self;
    return OK;
}

static Error list_index(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                        JinjaValue *out)
{
    const JinjaValue *what = jinja_run_argument(a, 0, NULL);
    TRY(jinja_run_spend(r, self->list->count));
    for (size_t i = 0; what && i < self->list->count; i++)
        if (jinja_value_same(&self->list->items[i], what)) {
            *out = jinja_value_int((int64_t)i);
            return OK;
        }
    return jinja_run_fail(r, "the value is not in the list");
}

static Error list_count(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                        JinjaValue *out)
{
    const JinjaValue *what = jinja_run_argument(a, 0, NULL);
    int64_t count = 0;
    TRY(jinja_run_spend(r, self->list->count));
    for (size_t i = 0; what && i < self->list->count; i++)
        count += jinja_value_same(&self->list->items[i], what);
    *out = jinja_value_int(count);
    return OK;
}

/* ---- Loops ---- */

static Error loop_cycle(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                        JinjaValue *out)
{
    if (!a->unnamed) return jinja_run_fail(r, "cycle needs values");
    *out = a->values[self->loop->index % a->unnamed];
    return OK;
}

static Error loop_changed(JinjaRun *r, const JinjaValue *self, const JinjaArguments *a,
                          JinjaValue *out)
{
    JinjaLoop *loop = (JinjaLoop *)(uintptr_t)self->loop;
    JinjaList *list;
    TRY(jinja_run_list(r, a->unnamed, &list));
    for (size_t i = 0; i < a->unnamed; i++) list->items[i] = a->values[i];
    JinjaValue now = {.kind = JINJA_TUPLE, .list = list};
    *out = jinja_value_bool(!loop->changed || !jinja_value_same(loop->changed, &now));
    if (!loop->changed) loop->changed = ARENA_NEW(r->arena, JinjaValue, 1);
    if (!loop->changed) return jinja_run_no_memory(r);
    *loop->changed = now;
    return OK;
}

/* ---- The table ---- */

typedef struct Named {
    JinjaKind kind;
    const char *name;
    Method call;
} Named;

static const Named methods[] = {
    {JINJA_TEXT, "strip", text_strip},
    {JINJA_TEXT, "lstrip", text_lstrip},
    {JINJA_TEXT, "rstrip", text_rstrip},
    {JINJA_TEXT, "split", text_split},
    {JINJA_TEXT, "rsplit", text_rsplit},
    {JINJA_TEXT, "splitlines", text_splitlines},
    {JINJA_TEXT, "partition", text_partition},
    {JINJA_TEXT, "rpartition", text_rpartition},
    {JINJA_TEXT, "join", text_join},
    {JINJA_TEXT, "startswith", text_startswith},
    {JINJA_TEXT, "endswith", text_endswith},
    {JINJA_TEXT, "find", text_find},
    {JINJA_TEXT, "rfind", text_rfind},
    {JINJA_TEXT, "index", text_index},
    {JINJA_TEXT, "count", text_count},
    {JINJA_TEXT, "replace", text_replace},
    {JINJA_TEXT, "removeprefix", text_removeprefix},
    {JINJA_TEXT, "removesuffix", text_removesuffix},
    {JINJA_TEXT, "upper", text_upper},
    {JINJA_TEXT, "lower", text_lower},
    {JINJA_TEXT, "capitalize", text_capitalize},
    {JINJA_TEXT, "title", text_title},
    {JINJA_TEXT, "swapcase", text_swapcase},
    {JINJA_TEXT, "isdigit", text_isdigit},
    {JINJA_TEXT, "isnumeric", text_isdigit},
    {JINJA_TEXT, "isdecimal", text_isdigit},
    {JINJA_TEXT, "isalpha", text_isalpha},
    {JINJA_TEXT, "isalnum", text_isalnum},
    {JINJA_TEXT, "isspace", text_isspace},
    {JINJA_TEXT, "isupper", text_isupper},
    {JINJA_TEXT, "islower", text_islower},
    {JINJA_TEXT, "format", text_format},
    {JINJA_DICT, "get", dict_get},
    {JINJA_DICT, "items", dict_items},
    {JINJA_DICT, "keys", dict_keys},
    {JINJA_DICT, "values", dict_values},
    {JINJA_DICT, "copy", copy},
    {JINJA_LIST, "copy", copy},
    {JINJA_LIST, "index", list_index},
    {JINJA_LIST, "count", list_count},
    {JINJA_TUPLE, "index", list_index},
    {JINJA_TUPLE, "count", list_count},
    {JINJA_LOOP, "cycle", loop_cycle},
    {JINJA_LOOP, "changed", loop_changed},
};

static const Named *find_method(const JinjaValue *self, JinjaText name)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (methods[i].kind == self->kind && jinja_value_is(name, methods[i].name))
            return &methods[i];
    return NULL;
}

bool jinja_method_exists(const JinjaValue *self, JinjaText name)
{
    return find_method(self, name) != NULL;
}

Error jinja_method_call(JinjaRun *r, const JinjaMethod *m, const JinjaArguments *a, JinjaValue *out)
{
    const Named *named = find_method(&m->self, m->name);
    ASSERT(named);
    return named->call(r, &m->self, a, out);
}
