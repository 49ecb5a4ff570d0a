/* SPDX-License-Identifier: Apache-2.0 */
/* Filters of rows of values. Where Jinja gives a generator, here is a list. */
#include <string.h>

#include "text/jinja_run.h"

static Error give(JinjaValue *out, const JinjaList *list)
{
    *out = (JinjaValue){.kind = JINJA_LIST, .list = list};
    return OK;
}

/* For filters that take anything that is false as empty. */
static Error items_or_none(JinjaRun *r, const JinjaValue *v, const JinjaList **out)
{
    static const JinjaList none = {NULL, 0};
    *out = &none;
    return jinja_value_true(v) ? jinja_eval_items(r, v, out) : OK;
}

static Error new_list(JinjaRun *r, JinjaList **out)
{
    *out = ARENA_NEW(r->arena, JinjaList, 1);
    return *out ? OK : jinja_run_no_memory(r);
}

static JinjaValue nothing(const char *what)
{
    return (JinjaValue){.kind = JINJA_UNDEFINED, .text = jinja_value_words(what)};
}

/* ---- Counts and ends ---- */

static Error filter_length(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                           JinjaValue *out)
{
    (void)a;
    size_t count = 0;
    if (v->kind == JINJA_TEXT) count = jinja_text_characters(v->text);
    else if (v->kind == JINJA_DICT) count = v->dict->count;
    else if (jinja_value_is_list(v)) count = v->list->count;
    else if (v->kind == JINJA_LOOP) count = v->loop->list->count;
    else if (v->kind != JINJA_UNDEFINED)
        return JINJA_FAIL(r, ERR_TYPE, "%s has no length", jinja_value_kind(v));
    *out = jinja_value_int((int64_t)count);
    return jinja_run_spend(r, v->kind == JINJA_TEXT ? v->text.count / 32 : 1);
}

static Error filter_first(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                          JinjaValue *out)
{
    const JinjaList *items;
    (void)a;
    TRY(jinja_eval_items(r, v, &items));
    *out = items->count ? items->items[0] : nothing("first");
    return OK;
}

static Error filter_last(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a, JinjaValue *out)
{
    const JinjaList *items;
    (void)a;
    TRY(jinja_eval_items(r, v, &items));
    *out = items->count ? items->items[items->count - 1] : nothing("last");
    return OK;
}

static Error filter_list(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a, JinjaValue *out)
{
    const JinjaList *items;
    (void)a;
    TRY(jinja_eval_items(r, v, &items));
    return give(out, items);
}

static Error filter_reverse(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                            JinjaValue *out)
{
    JinjaValue bounds[3] = {jinja_value_none(), jinja_value_none(), jinja_value_int(-1)}, rows = *v;
    const JinjaList *items;
    (void)a;
    if (v->kind != JINJA_TEXT) {
        TRY(jinja_eval_items(r, v, &items));
        TRY(give(&rows, items));
    }
    return jinja_member_slice(r, &rows, bounds, out);
}

/* ---- Join, sum ---- */

static Error attribute_of(JinjaRun *r, const JinjaValue *item, const JinjaValue *path,
                          JinjaValue *out)
{
    *out = *item;
    return path && path->kind != JINJA_NONE ? jinja_member_path(r, item, path, out) : OK;
}

static Error filter_join(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a, JinjaValue *out)
{
    const JinjaValue *between = jinja_run_argument(a, 0, "d"),
                     *path = jinja_run_argument(a, 1, "attribute");
    const JinjaList *items;
    JinjaBuilder b = jinja_run_builder(r);
    JinjaText text, gap = {0};
    TRY(jinja_eval_items(r, v, &items));
    if (between) TRY(jinja_write_str(r, between, &gap));
    for (size_t i = 0; i < items->count; i++) {
        JinjaValue item;
        TRY(jinja_run_spend(r, 1));
        TRY(attribute_of(r, &items->items[i], path, &item));
        TRY(jinja_write_str(r, &item, &text));
        if (i) jinja_text_add(&b, gap);
        jinja_text_add(&b, text);
    }
    TRY(jinja_run_finish(r, &b, &text));
    *out = jinja_value_text(text);
    return OK;
}

static Error filter_sum(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a, JinjaValue *out)
{
    const JinjaValue *path = jinja_run_argument(a, 0, "attribute"),
                     *start = jinja_run_argument(a, 1, "start");
    const JinjaList *items;
    TRY(jinja_eval_items(r, v, &items));
    *out = start ? *start : jinja_value_int(0);
    for (size_t i = 0; i < items->count; i++) {
        JinjaValue item, before = *out;
        TRY(jinja_run_spend(r, 1));
        TRY(attribute_of(r, &items->items[i], path, &item));
        TRY(jinja_math(r, JINJA_OP_ADD, &before, &item, out));
    }
    return OK;
}

/* ---- Map, select, reject ---- */

/* The arguments behind the first `skip`. */
static JinjaArguments *rest_of(JinjaRun *r, const JinjaArguments *a, size_t skip)
{
    JinjaArguments *rest = arena_take_raw(r->arena, sizeof *rest);
    if (!rest) return NULL;
    rest->count = a->count - skip;
    rest->unnamed = a->unnamed - skip;
    memcpy(rest->values, a->values + skip, rest->count * sizeof *rest->values);
    memcpy(rest->names, a->names + skip, rest->count * sizeof *rest->names);
    return rest;
}

static Error map_one(JinjaRun *r, const JinjaValue *item, const JinjaArguments *a,
                     const JinjaArguments *rest, JinjaValue *out)
{
    const JinjaValue *path = jinja_run_argument(a, JINJA_ARGUMENTS_MAX, "attribute"),
                     *otherwise = jinja_run_argument(a, JINJA_ARGUMENTS_MAX, "default");
    if (a->unnamed) return jinja_filter(r, a->values[0].text, item, rest, out);
    TRY(jinja_member_path(r, item, path, out));
    if (out->kind == JINJA_UNDEFINED && otherwise) *out = *otherwise;
    return OK;
}

static Error filter_map(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a, JinjaValue *out)
{
    const JinjaList *items;
    JinjaList *mapped;
    JinjaArguments *rest = a->unnamed ? rest_of(r, a, 1) : NULL;
    if (a->unnamed ? a->values[0].kind != JINJA_TEXT
                   : !jinja_run_argument(a, JINJA_ARGUMENTS_MAX, "attribute"))
        return jinja_run_fail(r, "map needs a filter's name or an attribute");
    if (a->unnamed && !rest) return jinja_run_no_memory(r);
    TRY(items_or_none(r, v, &items));
    TRY(jinja_run_list(r, items->count, &mapped));
    for (size_t i = 0; i < items->count; i++)
        TRY(map_one(r, &items->items[i], a, rest, &mapped->items[i]));
    return give(out, mapped);
}

/* selectattr("a", "test", ...) and select("test", ...): without a test, what is true. */
static Error choose(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a, bool attribute,
                    bool wanted, JinjaValue *out)
{
    const JinjaList *items;
    JinjaList *chosen;
    size_t room = 0, test = attribute;
    if (a->unnamed < test) return jinja_run_fail(r, "an attribute is missing");
    bool tested = a->unnamed > test;
    JinjaArguments *rest = rest_of(r, a, test + tested);
    if (!rest) return jinja_run_no_memory(r);
    if (tested && a->values[test].kind != JINJA_TEXT)
        return jinja_run_fail(r, "a test's name is needed");
    TRY(items_or_none(r, v, &items));
    TRY(new_list(r, &chosen));
    for (size_t i = 0; i < items->count; i++) {
        JinjaValue item;
        TRY(attribute_of(r, &items->items[i], attribute ? &a->values[0] : NULL, &item));
        bool fits = jinja_value_true(&item);
        if (tested) TRY(jinja_is(r, a->values[test].text, &item, rest, &fits));
        TRY(jinja_run_spend(r, 1));
        if (fits == wanted) TRY(jinja_run_push(r, chosen, &room, items->items[i]));
    }
    return give(out, chosen);
}

static Error filter_select(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                           JinjaValue *out)
{
    return choose(r, v, a, false, true, out);
}

static Error filter_reject(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                           JinjaValue *out)
{
    return choose(r, v, a, false, false, out);
}

static Error filter_selectattr(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                               JinjaValue *out)
{
    return choose(r, v, a, true, true, out);
}

static Error filter_rejectattr(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                               JinjaValue *out)
{
    return choose(r, v, a, true, false, out);
}

/* ---- Order ---- */

/* What an item is sorted by: texts in lower case unless case counts. */
static Error sort_key(JinjaRun *r, const JinjaValue *item, const JinjaValue *path, bool exact,
                      JinjaValue *out)
{
    TRY(attribute_of(r, item, path, out));
    if (exact || out->kind != JINJA_TEXT) return OK;
    JinjaText lower;
    TRY(jinja_method_case(r, out->text, JINJA_CASE_LOWER, &lower));
    *out = jinja_value_text(lower);
    return OK;
}

static Error merge(JinjaRun *r, JinjaPair *from, JinjaPair *to, size_t left, size_t middle,
                   size_t right, bool reverse)
{
    size_t a = left, b = middle;
    for (size_t i = left; i < right; i++) {
        int order = 0;
        if (a < middle && b < right) TRY(jinja_math_order(r, &from[b].key, &from[a].key, &order));
        bool second = a == middle || (b < right && (reverse ? order > 0 : order < 0));
        to[i] = from[second ? b++ : a++];
    }
    return jinja_run_spend(r, right - left);
}

/* Stable, also in reverse; pairs of a key and what it stands for. */
static Error sort(JinjaRun *r, JinjaPair *pairs, size_t count, bool reverse)
{
    JinjaPair *from = pairs, *to = ARENA_NEW(r->arena, JinjaPair, count);
    if (!to) return jinja_run_no_memory(r);
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t left = 0; left < count; left += 2 * width) {
            size_t middle = left + width < count ? left + width : count,
                   right = middle + width < count ? middle + width : count;
            TRY(merge(r, from, to, left, middle, right, reverse));
        }
        JinjaPair *swapped = from;
        from = to;
        to = swapped;
    }
    if (from != pairs) memcpy(pairs, from, count * sizeof *pairs);
    return OK;
}

static Error sorted_list(JinjaRun *r, JinjaPair *pairs, size_t count, bool reverse, JinjaValue *out)
{
    JinjaList *list;
    TRY(sort(r, pairs, count, reverse));
    TRY(jinja_run_list(r, count, &list));
    for (size_t i = 0; i < count; i++) list->items[i] = pairs[i].value;
    return give(out, list);
}

static bool is_on(const JinjaArguments *a, size_t index, const char *name)
{
    const JinjaValue *v = jinja_run_argument(a, index, name);
    return v && jinja_value_true(v);
}

static Error filter_sort(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a, JinjaValue *out)
{
    const JinjaValue *path = jinja_run_argument(a, 2, "attribute");
    const JinjaList *items;
    TRY(jinja_eval_items(r, v, &items));
    JinjaPair *pairs = ARENA_NEW(r->arena, JinjaPair, items->count);
    if (!pairs) return jinja_run_no_memory(r);
    for (size_t i = 0; i < items->count; i++) {
        TRY(sort_key(r, &items->items[i], path, is_on(a, 1, "case_sensitive"), &pairs[i].key));
        pairs[i].value = items->items[i];
    }
    return sorted_list(r, pairs, items->count, is_on(a, 0, "reverse"), out);
}

static Error items_of(JinjaRun *r, const JinjaValue *v, JinjaValue *out)
{
    JinjaMethod items = {*v, jinja_value_words("items")};
    JinjaArguments none = {.count = 0};
    if (v->kind == JINJA_DICT) return jinja_method_call(r, &items, &none, out);
    if (v->kind != JINJA_UNDEFINED) return jinja_run_fail(r, "a dictionary is needed");
    JinjaList *list;
    TRY(jinja_run_list(r, 0, &list));
    return give(out, list);
}

static Error filter_items(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                          JinjaValue *out)
{
    (void)a;
    return items_of(r, v, out);
}

static Error filter_dictsort(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                             JinjaValue *out)
{
    const JinjaValue *by = jinja_run_argument(a, 1, "by");
    JinjaValue rows,
        column = jinja_value_int(by && by->kind == JINJA_TEXT && jinja_value_is(by->text, "value"));
    if (v->kind != JINJA_DICT) return jinja_run_fail(r, "a dictionary is needed");
    TRY(items_of(r, v, &rows));
    JinjaPair *pairs = ARENA_NEW(r->arena, JinjaPair, rows.list->count);
    if (!pairs) return jinja_run_no_memory(r);
    for (size_t i = 0; i < rows.list->count; i++) {
        TRY(sort_key(r, &rows.list->items[i], &column, is_on(a, 0, "case_sensitive"),
                     &pairs[i].key));
        pairs[i].value = rows.list->items[i];
    }
    return sorted_list(r, pairs, rows.list->count, is_on(a, 2, "reverse"), out);
}

static Error filter_unique(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                           JinjaValue *out)
{
    const JinjaValue *path = jinja_run_argument(a, 1, "attribute");
    const JinjaList *items;
    JinjaList *kept, seen = {NULL, 0};
    size_t room = 0, seen_room = 0;
    TRY(jinja_eval_items(r, v, &items));
    TRY(new_list(r, &kept));
    for (size_t i = 0; i < items->count; i++) {
        JinjaValue key, rows = {.kind = JINJA_LIST, .list = &seen};
        bool known;
        TRY(sort_key(r, &items->items[i], path, is_on(a, 0, "case_sensitive"), &key));
        TRY(jinja_math_compare(r, JINJA_OP_IN, &key, &rows, &known));
        if (known) continue;
        TRY(jinja_run_push(r, &seen, &seen_room, key));
        TRY(jinja_run_push(r, kept, &room, items->items[i]));
    }
    return give(out, kept);
}

static Error extreme(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a, int sign,
                     JinjaValue *out)
{
    const JinjaValue *path = jinja_run_argument(a, 1, "attribute");
    const JinjaList *items;
    JinjaValue best, key;
    TRY(jinja_eval_items(r, v, &items));
    *out = nothing("extreme");
    for (size_t i = 0; i < items->count; i++) {
        int order = -sign;
        TRY(sort_key(r, &items->items[i], path, is_on(a, 0, "case_sensitive"), &key));
        if (i) TRY(jinja_math_order(r, &key, &best, &order));
        else order = sign;
        if (order != sign) continue;
        best = key;
        *out = items->items[i];
    }
    return OK;
}

static Error filter_min(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a, JinjaValue *out)
{
    return extreme(r, v, a, -1, out);
}

static Error filter_max(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a, JinjaValue *out)
{
    return extreme(r, v, a, 1, out);
}

/* ---- Batch ---- */

static Error filter_batch(JinjaRun *r, const JinjaValue *v, const JinjaArguments *a,
                          JinjaValue *out)
{
    const JinjaValue *size = jinja_run_argument(a, 0, "linecount"),
                     *fill = jinja_run_argument(a, 1, "fill_with");
    const JinjaList *items;
    JinjaList *rows, *row;
    int64_t count;
    if (!size) return jinja_run_fail(r, "batch needs a size");
    TRY(jinja_run_int(r, size, &count));
    if (count < 1 || count > JINJA_RANGE_MAX)
        return jinja_run_fail(r, "batch needs a size above 0");
    TRY(jinja_eval_items(r, v, &items));
    size_t width = (size_t)count, all = (items->count + width - 1) / width;
    bool filled = fill && fill->kind != JINJA_NONE;
    TRY(jinja_run_list(r, all, &rows));
    for (size_t i = 0; i < all; i++) {
        size_t left = items->count - i * width, have = left < width ? left : width;
        TRY(jinja_run_list(r, filled ? width : have, &row));
        for (size_t k = 0; k < row->count; k++)
            row->items[k] = k < have ? items->items[i * width + k] : *fill;
        TRY(give(&rows->items[i], row));
    }
    return give(out, rows);
}

typedef struct Named {
    const char *name;
    JinjaFilter call;
} Named;

static const Named filters[] = {
    {"length", filter_length},
    {"count", filter_length},
    {"first", filter_first},
    {"last", filter_last},
    {"list", filter_list},
    {"reverse", filter_reverse},
    {"join", filter_join},
    {"sum", filter_sum},
    {"map", filter_map},
    {"select", filter_select},
    {"reject", filter_reject},
    {"selectattr", filter_selectattr},
    {"rejectattr", filter_rejectattr},
    {"sort", filter_sort},
    {"items", filter_items},
    {"dictsort", filter_dictsort},
    {"unique", filter_unique},
    {"min", filter_min},
    {"max", filter_max},
    {"batch", filter_batch},
};

JinjaFilter jinja_sequence_find(JinjaText name)
{
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (jinja_value_is(name, filters[i].name)) return filters[i].call;
    return NULL;
}
