/* SPDX-License-Identifier: Apache-2.0 */
/* enum and const: each value as compact JSON, the ones that all of them allow. */
#include <string.h>

#include "api/schema_state.h"

enum { VALUE_BYTES_MAX = 1 << 16, FORKS_MAX = 30 };

typedef struct Text {
    const char *bytes;
    size_t count;
} Text;

/* Numbers, words, arrays and objects; their text is made in a room of fixed size. */
static Text written(Schema *s, yyjson_val *value)
{
    Text text = {NULL, 0};
    void *memory = arena_take_raw(s->arena, VALUE_BYTES_MAX);
    yyjson_alc room;
    if (!memory || !yyjson_alc_pool_init(&room, memory, VALUE_BYTES_MAX)) {
        (void)schema_fault(s, ERR_MEMORY, "no memory for a value", "enum");
        return text;
    }
    text.bytes = yyjson_val_write_opts(value, YYJSON_WRITE_NOFLAG, &room, &text.count, NULL);
    if (!text.bytes) (void)schema_fault(s, ERR_TOO_LARGE, "has a value that is too large", "enum");
    return text;
}

/* The value as compact JSON, in the arena. */
static Text text_of(Schema *s, yyjson_val *value)
{
    size_t mark = arena_mark(s->arena), bytes = yyjson_get_len(value);
    Text text = {NULL, 0};
    if (yyjson_is_str(value)) {
        char *room = arena_take_raw(s->arena, SCHEMA_ESCAPE_BYTES_MAX * bytes + 2);
        if (room) text.count = schema_string_write(yyjson_get_str(value), bytes, room);
        else (void)schema_fault(s, ERR_MEMORY, "no memory for so many values", "enum");
        text.bytes = room;
        return text;
    }
    text = written(s, value);
    if (schema_failed(s)) return text;
    arena_reset(s->arena, mark); /* kept at its start, cut to its length */
    char *kept = arena_take_raw(s->arena, text.count);
    memmove(kept, text.bytes, text.count);
    text.bytes = kept;
    return text;
}

/* ---- many texts as a tree, so that no state has a place for each of them ---- */

static int compare(Text a, Text b)
{
    int order = memcmp(a.bytes, b.bytes, a.count < b.count ? a.count : b.count);
    if (order) return order;
    return a.count < b.count ? -1 : a.count > b.count;
}

static void sift(Text *list, size_t at, size_t count)
{
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && compare(list[child + 1], list[child]) > 0) child++;
        if (compare(list[at], list[child]) >= 0) return;
        Text t = list[at];
        list[at] = list[child], list[child] = t;
    }
}

static void sort(Text *list, size_t count)
{
    for (size_t i = count / 2; i-- > 0;) sift(list, i, count);
    for (size_t last = count; last-- > 1;) {
        Text t = list[0];
        list[0] = list[last], list[last] = t;
        sift(list, 0, last);
    }
}

static size_t common(Text a, Text b, size_t from)
{
    while (from < a.count && from < b.count && a.bytes[from] == b.bytes[from]) from++;
    return from;
}

/* The ends, from byte `at` on, of sorted texts that agree before it. */
static uint32_t tree(Schema *s, const Text *list, size_t count, size_t at, uint32_t forks)
{
    size_t same = common(list[0], list[count - 1], at);
    GrammarList all = {0}, any = {0};
    if (forks == FORKS_MAX) same = at;
    grammar_add(s->b, &all, grammar_bytes(s->b, list[0].bytes + at, same - at));
    for (size_t i = 0, end; i < count && !schema_failed(s); i = end) {
        end = i + 1;
        if (list[i].count == same || forks == FORKS_MAX) {
            grammar_add(s->b, &any,
                        grammar_bytes(s->b, list[i].bytes + same, list[i].count - same));
            continue;
        }
        while (end < count && list[end].bytes[same] == list[i].bytes[same]) end++;
        grammar_add(s->b, &any, tree(s, list + i, end - i, same, forks + 1));
    }
    grammar_add(s->b, &all, grammar_choice(s->b, &any));
    return grammar_sequence(s->b, &all);
}

/* ---- which values ---- */

static bool allows(Schema *s, yyjson_val *schema, yyjson_val *value)
{
    yyjson_val *list = yyjson_obj_get(schema, "enum"), *one = yyjson_obj_get(schema, "const"),
               *item;
    size_t at, count;
    if (one && !yyjson_equals(one, value)) return false;
    if (!list) return true;
    yyjson_arr_foreach(list, at, count, item)
    {
        if (!schema_count(s)) return false;
        if (yyjson_equals(item, value)) return true;
    }
    return false;
}

/* `from` has the value: it is not asked. */
static bool all_allow(Schema *s, const SchemaView *view, yyjson_val *from, yyjson_val *value,
                      uint32_t types)
{
    if (!(schema_view_type_of(value) & types)) return false;
    for (uint32_t i = 0; i < view->count; i++)
        if ((!from || yyjson_obj_get(view->items[i].value, "enum") != from) &&
            !allows(s, view->items[i].value, value))
            return false;
    return true;
}

/* Whether the value would have to be checked against more than lists and types. */
static void refuse_more(Schema *s, const SchemaView *view, uint32_t type)
{
    for (uint32_t i = 0; i < view->count; i++) {
        size_t at, count;
        yyjson_val *key, *value;
        yyjson_obj_foreach(view->items[i].value, at, count, key, value)
        {
            uint32_t about = schema_view_types_of_keyword(yyjson_get_str(key));
            if (about != SCHEMA_ALL && (about & type))
                (void)schema_fault(s, ERR_UNSUPPORTED, "beside enum or const is not supported",
                                   yyjson_get_str(key));
        }
    }
}

typedef struct Texts {
    Text *list;
    size_t count;
} Texts;

static void add_value(Schema *s, const SchemaView *view, uint32_t types, yyjson_val *from,
                      yyjson_val *value, Texts *t)
{
    if (schema_failed(s) || !all_allow(s, view, from, value, types)) return;
    refuse_more(s, view, schema_view_type_of(value));
    t->list[t->count++] = text_of(s, value);
}

static void add_values(Schema *s, const SchemaView *view, uint32_t types, Texts *t)
{
    yyjson_val *one = schema_view_get(view, "const"), *list = schema_view_get(view, "enum"), *value;
    size_t at, count;
    for (uint32_t i = 0; i < view->count; i++) {
        yyjson_val *other = yyjson_obj_get(view->items[i].value, "enum");
        if (other && !yyjson_is_arr(other))
            (void)schema_fault(s, ERR_FORMAT, "must be an array", "enum");
    }
    t->list = arena_take_raw(s->arena, (yyjson_arr_size(list) + 1) * sizeof *t->list);
    if (!t->list) (void)schema_fault(s, ERR_MEMORY, "no memory for so many values", "enum");
    if (one) add_value(s, view, types, NULL, one, t);
    else if (list)
        yyjson_arr_foreach(list, at, count, value) add_value(s, view, types, list, value, t);
    if (!schema_failed(s) && !t->count)
        (void)schema_fault(s, ERR_RANGE, "has no value that satisfies the rest",
                           one ? "const" : "enum");
}

uint32_t schema_value_listed(Schema *s, const SchemaView *view, uint32_t types)
{
    size_t mark = arena_mark(s->arena);
    Texts t = {0};
    uint32_t node = 0;
    add_values(s, view, types, &t);
    if (!schema_failed(s)) {
        sort(t.list, t.count);
        node = tree(s, t.list, t.count, 0, 0);
    }
    arena_reset(s->arena, mark);
    return node;
}
