/* SPDX-License-Identifier: Apache-2.0 */
/* Objects and arrays. Both are lists with commas, and both are written from the end:
 *
 *   rest(i)    what may follow when something stands before it: (, property i)? rest(i + 1)
 *   first(i)   the same with nothing before it: property i rest(i + 1) | first(i + 1)
 *
 * Each rest is a rule of its own: the grammar grows with the number of properties, not with that of their subsets. */
#include <string.h>

#include "api/schema_state.h"

typedef struct Object {
    SchemaProperty *properties;
    yyjson_val **keys; /* of all properties named, also those that can never be there */
    uint32_t count, key_count;
    uint32_t more; /* a property that is not named; 0: none may be */
} Object;

static uint32_t sequence(Schema *s, const uint32_t *parts, uint32_t count)
{
    GrammarList list = {0};
    for (uint32_t i = 0; i < count; i++) grammar_add(s->b, &list, parts[i]);
    return grammar_sequence(s->b, &list);
}

static uint32_t either(Schema *s, uint32_t a, uint32_t b)
{
    GrammarList list = {0};
    grammar_add(s->b, &list, a);
    grammar_add(s->b, &list, b);
    return grammar_choice(s->b, &list);
}

/* , item */
static uint32_t next_item(Schema *s, uint32_t item)
{
    return sequence(s, (uint32_t[]){grammar_text(s->b, ","), schema_space(s), item}, 3);
}

/* open space inside space close, or open close. */
static uint32_t enclose(Schema *s, const char *open, uint32_t inside, const char *close,
                        bool may_be_empty)
{
    uint32_t full = sequence(s,
                             (uint32_t[]){grammar_text(s->b, open), schema_space(s), inside,
                                          schema_space(s), grammar_text(s->b, close)},
                             5);
    if (!may_be_empty) return full;
    return either(
        s, full, sequence(s, (uint32_t[]){grammar_text(s->b, open), grammar_text(s->b, close)}, 2));
}

/* ---- which properties ---- */

static bool is_listed(const Object *o, yyjson_val *key)
{
    for (uint32_t i = 0; i < o->key_count; i++)
        if (yyjson_equals(o->keys[i], key)) return true;
    return false;
}

/* All that is said about a property of this name; NULL: one that is not named anywhere. */
static SchemaView property_view(Schema *s, const SchemaView *view, yyjson_val *key)
{
    SchemaView v = schema_view();
    for (uint32_t i = 0; i < view->count; i++) {
        yyjson_val *schema = view->items[i].value;
        yyjson_val *own = NULL, *others = yyjson_obj_get(schema, "additionalProperties");
        if (key)
            own = yyjson_obj_getn(yyjson_obj_get(schema, "properties"), yyjson_get_str(key),
                                  yyjson_get_len(key));
        if (own) schema_view_add(s, &v, own);
        else if (others) schema_view_add(s, &v, others);
    }
    return v;
}

static uint32_t member(Schema *s, uint32_t key, const SchemaView *value)
{
    return sequence(
        s, (uint32_t[]){key, grammar_text(s->b, ":"), schema_space(s), schema_call(s, value)}, 4);
}

static void add_property(Schema *s, const SchemaView *view, Object *o, yyjson_val *key)
{
    const char *name = yyjson_get_str(key);
    size_t bytes = yyjson_get_len(key);
    if (schema_failed(s) || is_listed(o, key)) return;
    if (!name) {
        (void)schema_fault(s, ERR_FORMAT, "must be an array of names", "required");
        return;
    }
    if (o->key_count == SCHEMA_PROPERTIES_MAX) {
        (void)schema_fault(s, ERR_TOO_LARGE, "more than 512 properties", NULL);
        return;
    }
    size_t mark = schema_enter(s, "properties", name, bytes);
    SchemaView v = property_view(s, view, key);
    bool required = schema_view_requires(s, view, key), never = schema_view_is_never(s, &v);
    o->keys[o->key_count++] = key;
    if (never && required)
        (void)schema_fault(s, ERR_RANGE, "required, but nothing satisfies it", NULL);
    if (!never)
        o->properties[o->count++] =
            (SchemaProperty){key, required, member(s, schema_string_of(s, name, bytes), &v)};
    schema_leave(s, mark);
}

static void add_properties(Schema *s, const SchemaView *view, Object *o)
{
    size_t at, count;
    yyjson_val *key, *value;
    for (uint32_t i = 0; i < view->count; i++) {
        yyjson_val *properties = yyjson_obj_get(view->items[i].value, "properties");
        if (properties && !yyjson_is_obj(properties))
            (void)schema_fault(s, ERR_FORMAT, "must be an object", "properties");
        if (properties)
            yyjson_obj_foreach(properties, at, count, key, value) add_property(s, view, o, key);
    }
    for (uint32_t i = 0; i < view->count; i++) {
        yyjson_val *required = yyjson_obj_get(view->items[i].value, "required");
        if (required && !yyjson_is_arr(required))
            (void)schema_fault(s, ERR_FORMAT, "must be an array of names", "required");
        if (required) yyjson_arr_foreach(required, at, count, key) add_property(s, view, o, key);
    }
}

/* Others are written when additionalProperties says so, or when no property is named. */
static void add_more(Schema *s, const SchemaView *view, Object *o)
{
    if (schema_failed(s)) return;
    if (!schema_view_get(view, "additionalProperties") && o->key_count) return;
    size_t mark = schema_enter(s, "additionalProperties", NULL, 0);
    SchemaView v = property_view(s, view, NULL);
    if (!schema_view_is_never(s, &v))
        o->more = member(s, schema_string_except(s, o->keys, o->key_count), &v);
    schema_leave(s, mark);
}

/* ---- objects ---- */

/* A call of: what follows property `index` and those after it. `rest` is that for the one after. */
static uint32_t rest_of(Schema *s, const SchemaProperty *p, uint32_t rest)
{
    uint32_t next = next_item(s, p->node), rule = grammar_rule(s->b, s->path, s->path_bytes);
    if (!p->required) next = grammar_repeat(s->b, next, 0, 1);
    grammar_define(s->b, rule, sequence(s, (uint32_t[]){next, rest}, 2));
    return grammar_call(s->b, rule);
}

static uint32_t members(Schema *s, const Object *o, bool *may_be_empty)
{
    GrammarList any = {0};
    uint32_t rest = grammar_empty(s->b);
    *may_be_empty = true;
    if (o->more) {
        rest = grammar_repeat(s->b, next_item(s, o->more), 0, GRAMMAR_UNBOUNDED);
        grammar_add(s->b, &any, sequence(s, (uint32_t[]){o->more, rest}, 2));
    }
    for (uint32_t i = o->count; i-- > 0 && !schema_failed(s);) {
        const SchemaProperty *p = &o->properties[i];
        uint32_t first = sequence(s, (uint32_t[]){p->node, rest}, 2);
        if (p->required) {
            any = (GrammarList){0};
            *may_be_empty = false;
        }
        grammar_add(s->b, &any, first);
        if (i) rest = rest_of(s, p, rest);
    }
    return any.count ? grammar_choice(s->b, &any) : 0;
}

uint32_t schema_object(Schema *s, const SchemaView *view)
{
    Object o = {.properties = s->properties, .keys = s->keys};
    bool may_be_empty;
    add_properties(s, view, &o);
    add_more(s, view, &o);
    uint32_t inside = schema_failed(s) ? 0 : members(s, &o, &may_be_empty);
    if (schema_failed(s)) return 0;
    return inside ? enclose(s, "{", inside, "}", may_be_empty) : grammar_text(s->b, "{}");
}

/* ---- arrays ---- */

typedef struct Array {
    uint32_t least, most; /* items */
    uint32_t places;      /* with a schema of their own */
    bool more;            /* items behind those */
} Array;

static uint32_t places_of(Schema *s, const SchemaView *view)
{
    uint32_t places = 0;
    for (uint32_t i = 0; i < view->count; i++) {
        yyjson_val *list = yyjson_obj_get(view->items[i].value, "prefixItems");
        if (list && !yyjson_is_arr(list))
            (void)schema_fault(s, ERR_FORMAT, "must be an array", "prefixItems");
        if (yyjson_arr_size(list) > places) places = (uint32_t)yyjson_arr_size(list);
    }
    if (places > SCHEMA_PROPERTIES_MAX)
        (void)schema_fault(s, ERR_TOO_LARGE, "has more than 512 places", "prefixItems");
    return places;
}

/* All that is said about the item at a place. */
static SchemaView item_view(Schema *s, const SchemaView *view, uint32_t place)
{
    SchemaView v = schema_view();
    for (uint32_t i = 0; i < view->count; i++) {
        yyjson_val *schema = view->items[i].value;
        yyjson_val *own = yyjson_arr_get(yyjson_obj_get(schema, "prefixItems"), place),
                   *others = yyjson_obj_get(schema, "items");
        if (own) schema_view_add(s, &v, own);
        else if (others) schema_view_add(s, &v, others);
    }
    return v;
}

static uint32_t item(Schema *s, const SchemaView *view, uint32_t place, bool *never)
{
    size_t mark = schema_enter(s, "items", NULL, 0);
    SchemaView v = item_view(s, view, place);
    *never = !schema_failed(s) && schema_view_is_never(s, &v);
    uint32_t node = *never ? 0 : schema_call(s, &v);
    schema_leave(s, mark);
    return node;
}

/* What follows `before` items: the places left, then any number of others. */
static uint32_t items_after(Schema *s, const uint32_t *nodes, const Array *a, uint32_t before,
                            uint32_t more)
{
    uint32_t rest = grammar_empty(s->b);
    if (more && a->most > a->places) {
        uint32_t least = a->least > a->places ? a->least - a->places : 0, most = a->most;
        if (before > a->places) least -= least > 0;
        if (most != GRAMMAR_UNBOUNDED) most -= before > a->places ? before : a->places;
        rest = grammar_repeat(s->b, next_item(s, more), least, most);
    }
    for (uint32_t i = a->places < a->most ? a->places : a->most;
         i-- > before && !schema_failed(s);) {
        uint32_t rule = grammar_rule(s->b, s->path, s->path_bytes);
        uint32_t one = sequence(s, (uint32_t[]){next_item(s, nodes[i]), rest}, 2);
        grammar_define(s->b, rule, i < a->least ? one : grammar_repeat(s->b, one, 0, 1));
        rest = grammar_call(s->b, rule);
    }
    return rest;
}

static uint32_t items(Schema *s, const SchemaView *view, Array *a)
{
    bool never = false;
    uint32_t *nodes = arena_take_raw(s->arena, (a->places + 1) * sizeof *nodes), more = 0;
    if (!nodes) return schema_fault(s, ERR_MEMORY, "no memory", "items");
    for (uint32_t i = 0; i < a->places && i < a->most; i++) {
        nodes[i] = item(s, view, i, &never);
        if (never) a->most = i;
    }
    if (a->more && a->most > a->places) more = item(s, view, UINT32_MAX, &never);
    if (!more && a->most > a->places) a->most = a->places;
    if (schema_failed(s)) return 0;
    if (a->least > a->most)
        return schema_fault(s, ERR_RANGE, "is more than there can be", "minItems");
    if (!a->most) return 0;
    uint32_t first = a->places ? nodes[0] : more;
    return sequence(s, (uint32_t[]){first, items_after(s, nodes, a, 1, more)}, 2);
}

uint32_t schema_object_array(Schema *s, const SchemaView *view)
{
    Array a = {.least = schema_view_most(s, view, "minItems", 0),
               .most = schema_view_least(s, view, "maxItems", GRAMMAR_UNBOUNDED),
               .places = places_of(s, view)};
    a.more = !a.places || schema_view_get(view, "items") || a.least > a.places;
    if (schema_failed(s)) return 0;
    uint32_t inside = items(s, view, &a);
    if (schema_failed(s)) return 0;
    return inside ? enclose(s, "[", inside, "]", a.least == 0) : grammar_text(s->b, "[]");
}
