/* SPDX-License-Identifier: Apache-2.0 */
/* See jinja_value.h. Depth of values: what comes from JSON is bounded there, what a template nests by the
 * depth of its evaluation; VALUE_DEPTH_MAX stops both. */
#include "text/jinja_value.h"

#include <string.h>

enum { VALUE_DEPTH_MAX = 128 };

JinjaText jinja_value_words(const char *words)
{
    return (JinjaText){(const uint8_t *)words, NULL, strlen(words), JINJA_OWN};
}

JinjaValue jinja_value_bool(bool truth) { return (JinjaValue){.kind = JINJA_BOOL, .truth = truth}; }

JinjaValue jinja_value_int(int64_t integer)
{
    return (JinjaValue){.kind = JINJA_INT, .integer = integer};
}

JinjaValue jinja_value_float(double number)
{
    return (JinjaValue){.kind = JINJA_FLOAT, .number = number};
}

JinjaValue jinja_value_text(JinjaText text)
{
    return (JinjaValue){.kind = JINJA_TEXT, .text = text};
}

JinjaValue jinja_value_none(void) { return (JinjaValue){.kind = JINJA_NONE}; }

JinjaList *jinja_value_list(Arena *arena, size_t count)
{
    JinjaList *list = ARENA_NEW(arena, JinjaList, 1);
    if (!list) return NULL;
    list->items = ARENA_NEW(arena, JinjaValue, count);
    list->count = count;
    return list->items ? list : NULL;
}

JinjaDict *jinja_value_dict(Arena *arena, size_t room)
{
    JinjaDict *dict = ARENA_NEW(arena, JinjaDict, 1);
    if (!dict) return NULL;
    dict->pairs = ARENA_NEW(arena, JinjaPair, room);
    dict->room = room;
    return dict->pairs ? dict : NULL;
}

const JinjaValue *jinja_value_get(const JinjaDict *dict, JinjaValue key)
{
    for (size_t i = 0; i < dict->count; i++)
        if (jinja_value_same(&dict->pairs[i].key, &key)) return &dict->pairs[i].value;
    return NULL;
}

static bool grow(Arena *arena, JinjaDict *dict)
{
    size_t room = dict->room ? 2 * dict->room : 4;
    JinjaPair *pairs = ARENA_NEW(arena, JinjaPair, room);
    if (!pairs) return false;
    if (dict->count) memcpy(pairs, dict->pairs, dict->count * sizeof *pairs);
    dict->pairs = pairs;
    dict->room = room;
    return true;
}

bool jinja_value_put(Arena *arena, JinjaDict *dict, JinjaValue key, JinjaValue value)
{
    for (size_t i = 0; i < dict->count; i++)
        if (jinja_value_same(&dict->pairs[i].key, &key)) {
            dict->pairs[i].value = value;
            return true;
        }
    if (dict->count == dict->room && !grow(arena, dict)) return false;
    dict->pairs[dict->count++] = (JinjaPair){key, value};
    return true;
}

bool jinja_value_put_words(Arena *arena, JinjaDict *dict, const char *key, JinjaValue value)
{
    return jinja_value_put(arena, dict, jinja_value_text(jinja_value_words(key)), value);
}

bool jinja_value_is(JinjaText text, const char *words)
{
    return strlen(words) == text.count && memcmp(words, text.bytes, text.count) == 0;
}

bool jinja_value_is_list(const JinjaValue *v)
{
    return v->kind == JINJA_LIST || v->kind == JINJA_TUPLE;
}

bool jinja_value_is_number(const JinjaValue *v)
{
    return v->kind == JINJA_BOOL || v->kind == JINJA_INT || v->kind == JINJA_FLOAT;
}

double jinja_value_number(const JinjaValue *v)
{
    if (v->kind == JINJA_FLOAT) return v->number;
    return v->kind == JINJA_INT ? (double)v->integer : (double)v->truth;
}

bool jinja_value_true(const JinjaValue *v)
{
    switch (v->kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE: return false;
    case JINJA_BOOL: return v->truth;
    case JINJA_INT: return v->integer != 0;
    case JINJA_FLOAT: return v->number != 0;
    case JINJA_TEXT: return v->text.count != 0;
    case JINJA_LIST:
    case JINJA_TUPLE: return v->list->count != 0;
    case JINJA_DICT: return v->dict->count != 0;
    default: return true;
    }
}

static bool same(const JinjaValue *a, const JinjaValue *b, int depth);

static bool same_items(const JinjaList *a, const JinjaList *b, int depth)
{
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++)
        if (!same(&a->items[i], &b->items[i], depth)) return false;
    return true;
}

static bool same_pairs(const JinjaDict *a, const JinjaDict *b, int depth)
{
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++) {
        const JinjaValue *other = jinja_value_get(b, a->pairs[i].key);
        if (!other || !same(&a->pairs[i].value, other, depth)) return false;
    }
    return true;
}

static bool same(const JinjaValue *a, const JinjaValue *b, int depth)
{
    if (depth == VALUE_DEPTH_MAX) return false;
    if (jinja_value_is_number(a) && jinja_value_is_number(b)) {
        if (a->kind == JINJA_INT && b->kind == JINJA_INT) return a->integer == b->integer;
        return jinja_value_number(a) == jinja_value_number(b);
    }
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case JINJA_TEXT:
        return a->text.count == b->text.count &&
               (a->text.count == 0 || memcmp(a->text.bytes, b->text.bytes, a->text.count) == 0);
    case JINJA_LIST:
    case JINJA_TUPLE: return same_items(a->list, b->list, depth + 1);
    case JINJA_DICT: return same_pairs(a->dict, b->dict, depth + 1);
    case JINJA_NAMESPACE: return a->dict == b->dict;
    case JINJA_LOOP: return a->loop == b->loop;
    case JINJA_MACRO: return a->macro == b->macro;
    case JINJA_FUNCTION: return a->text.bytes == b->text.bytes;
    case JINJA_METHOD: return a->method == b->method;
    default: return true; /* undefined, none */
    }
}

bool jinja_value_same(const JinjaValue *a, const JinjaValue *b) { return same(a, b, 0); }

static int order_numbers(const JinjaValue *a, const JinjaValue *b)
{
    if (a->kind == JINJA_INT && b->kind == JINJA_INT)
        return a->integer < b->integer ? -1 : a->integer > b->integer;
    double x = jinja_value_number(a), y = jinja_value_number(b);
    return x < y ? -1 : x > y;
}

/* UTF-8 sorts as its characters do. */
static int order_texts(JinjaText a, JinjaText b)
{
    size_t least = a.count < b.count ? a.count : b.count;
    int order = least ? memcmp(a.bytes, b.bytes, least) : 0;
    if (order) return order < 0 ? -1 : 1;
    return a.count < b.count ? -1 : a.count > b.count;
}

static int order_values(const JinjaValue *a, const JinjaValue *b, int depth)
{
    if (jinja_value_is_number(a) && jinja_value_is_number(b)) return order_numbers(a, b);
    if (a->kind != b->kind || depth == VALUE_DEPTH_MAX) return -2;
    if (a->kind == JINJA_TEXT) return order_texts(a->text, b->text);
    if (!jinja_value_is_list(a)) return -2;
    size_t least = a->list->count < b->list->count ? a->list->count : b->list->count;
    for (size_t i = 0; i < least; i++)
        if (!same(&a->list->items[i], &b->list->items[i], depth))
            return order_values(&a->list->items[i], &b->list->items[i], depth + 1);
    return a->list->count < b->list->count ? -1 : a->list->count > b->list->count;
}

int jinja_value_order(const JinjaValue *a, const JinjaValue *b) { return order_values(a, b, 0); }

const char *jinja_value_kind(const JinjaValue *v)
{
    static const char *const names[] = {
        [JINJA_UNDEFINED] = "Undefined", [JINJA_NONE] = "NoneType",
        [JINJA_BOOL] = "bool",           [JINJA_INT] = "int",
        [JINJA_FLOAT] = "float",         [JINJA_TEXT] = "str",
        [JINJA_LIST] = "list",           [JINJA_TUPLE] = "tuple",
        [JINJA_DICT] = "dict",           [JINJA_NAMESPACE] = "Namespace",
        [JINJA_LOOP] = "LoopContext",    [JINJA_MACRO] = "Macro",
        [JINJA_FUNCTION] = "function",   [JINJA_METHOD] = "method"};
    return names[v->kind];
}
