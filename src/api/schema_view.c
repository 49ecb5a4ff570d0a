/* SPDX-License-Identifier: Apache-2.0 */
/* Which schemas apply at a place, and what they say together. */
#include <string.h>

#include "api/schema_state.h"

typedef struct Keyword {
    const char *name;
    uint32_t types;
} Keyword;

static const Keyword keywords[] = {
    {"type", SCHEMA_ALL},
    {"enum", SCHEMA_ALL},
    {"const", SCHEMA_ALL},
    {"anyOf", SCHEMA_ALL},
    {"oneOf", SCHEMA_ALL},
    {"allOf", SCHEMA_ALL},
    {"$ref", SCHEMA_ALL},
    {"$defs", SCHEMA_ALL},
    {"definitions", SCHEMA_ALL},
    {"title", SCHEMA_ALL},
    {"description", SCHEMA_ALL},
    {"default", SCHEMA_ALL},
    {"examples", SCHEMA_ALL},
    {"deprecated", SCHEMA_ALL},
    {"readOnly", SCHEMA_ALL},
    {"writeOnly", SCHEMA_ALL},
    {"discriminator", SCHEMA_ALL},
    {"$schema", SCHEMA_ALL},
    {"$comment", SCHEMA_ALL},
    {"$id", SCHEMA_ALL},
    {"minLength", SCHEMA_STRING},
    {"maxLength", SCHEMA_STRING},
    {"pattern", SCHEMA_STRING},
    {"format", SCHEMA_STRING},
    {"minimum", SCHEMA_NUMBER},
    {"maximum", SCHEMA_NUMBER},
    {"exclusiveMinimum", SCHEMA_NUMBER},
    {"exclusiveMaximum", SCHEMA_NUMBER},
    {"items", SCHEMA_ARRAY},
    {"prefixItems", SCHEMA_ARRAY},
    {"minItems", SCHEMA_ARRAY},
    {"maxItems", SCHEMA_ARRAY},
    {"uniqueItems", SCHEMA_ARRAY},
    {"properties", SCHEMA_OBJECT},
    {"required", SCHEMA_OBJECT},
    {"additionalProperties", SCHEMA_OBJECT},
};

uint32_t schema_view_types_of_keyword(const char *keyword)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (strcmp(keywords[i].name, keyword) == 0) return keywords[i].types;
    return 0;
}

SchemaView schema_view(void) { return (SchemaView){.types = SCHEMA_ALL}; }

/* ---- adding ---- */

static void check_keywords(Schema *s, yyjson_val *schema)
{
    size_t at, count;
    yyjson_val *key, *value;
    yyjson_obj_foreach(schema, at, count, key, value)
    {
        const char *name = yyjson_get_str(key);
        bool known = strlen(name) == yyjson_get_len(key) && schema_view_types_of_keyword(name);
        if (strcmp(name, "uniqueItems") == 0) known = yyjson_is_false(value);
        if (strcmp(name, "$id") == 0) known = schema == s->root;
        if (!known) (void)schema_fault(s, ERR_UNSUPPORTED, "is not supported", name);
        if (yyjson_obj_getn(schema, name, yyjson_get_len(key)) != value)
            (void)schema_fault(s, ERR_FORMAT, "is given twice", name);
    }
}

static yyjson_val *resolve(Schema *s, yyjson_val *ref)
{
    const char *text = yyjson_get_str(ref);
    size_t bytes = yyjson_get_len(ref);
    if (!text || text[0] != '#' || memchr(text, '%', bytes)) {
        (void)schema_fault(s, ERR_UNSUPPORTED, "must be # or #/ and a plain path in this schema",
                           "$ref");
        return NULL;
    }
    yyjson_val *found = bytes == 1 ? s->root : yyjson_ptr_getn(s->root, text + 1, bytes - 1);
    if (!found) (void)schema_fault(s, ERR_NOT_FOUND, "leads nowhere", "$ref");
    return found;
}

static void add_parts(Schema *s, SchemaView *view, yyjson_val *schema)
{
    yyjson_val *ref = yyjson_obj_get(schema, "$ref"), *all = yyjson_obj_get(schema, "allOf"), *one;
    size_t at, count;
    if (ref) {
        yyjson_val *target = resolve(s, ref);
        if (target) schema_view_add(s, view, target);
    }
    if (!all) return;
    if (!yyjson_is_arr(all)) (void)schema_fault(s, ERR_FORMAT, "must be an array", "allOf");
    if (all) yyjson_arr_foreach(all, at, count, one) schema_view_add(s, view, one);
}

void schema_view_add(Schema *s, SchemaView *view, yyjson_val *schema)
{
    if (schema_failed(s)) return;
    if (yyjson_is_bool(schema)) {
        view->never |= yyjson_is_false(schema);
        return;
    }
    if (!yyjson_is_obj(schema)) {
        (void)schema_fault(s, ERR_FORMAT, "a schema is an object, true or false", NULL);
        return;
    }
    for (uint32_t i = 0; i < view->count; i++) {
        if (view->items[i].value != schema) continue;
        if (view->items[i].chosen)
            (void)schema_fault(s, ERR_UNSUPPORTED, "a choice leads back to itself", NULL);
        return;
    }
    if (view->count == SCHEMA_VIEW_MAX) {
        (void)schema_fault(s, ERR_TOO_LARGE, "more than 24 schemas apply at once", NULL);
        return;
    }
    view->items[view->count++] = (SchemaItem){schema, 0};
    check_keywords(s, schema);
    add_parts(s, view, schema);
}

/* ---- asking ---- */

yyjson_val *schema_view_get(const SchemaView *view, const char *keyword)
{
    for (uint32_t i = 0; i < view->count; i++) {
        yyjson_val *value = yyjson_obj_get(view->items[i].value, keyword);
        if (value) return value;
    }
    return NULL;
}

uint32_t schema_view_count(const SchemaView *view, const char *keyword)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < view->count; i++)
        count += yyjson_obj_get(view->items[i].value, keyword) != NULL;
    return count;
}

/* A whole number, also when it is written 3.0. */
static uint32_t count_of(Schema *s, yyjson_val *value, const char *keyword)
{
    double number = yyjson_get_num(value);
    if (!yyjson_is_num(value) || !(number >= 0 && number <= (double)(int)GRAMMAR_COUNT_MAX) ||
        (double)(uint32_t)number != number)
        return schema_fault(s, ERR_FORMAT, "must be a whole number from 0 to 1048576", keyword);
    return (uint32_t)number;
}

static uint32_t combine(Schema *s, const SchemaView *view, const char *keyword, uint32_t none,
                        bool most)
{
    bool any = false;
    uint32_t found = none;
    for (uint32_t i = 0; i < view->count; i++) {
        yyjson_val *value = yyjson_obj_get(view->items[i].value, keyword);
        if (!value) continue;
        uint32_t count = count_of(s, value, keyword);
        if (!any || (most ? count > found : count < found)) found = count;
        any = true;
    }
    return found;
}

uint32_t schema_view_most(Schema *s, const SchemaView *view, const char *keyword, uint32_t none)
{
    return combine(s, view, keyword, none, true);
}

uint32_t schema_view_least(Schema *s, const SchemaView *view, const char *keyword, uint32_t none)
{
    return combine(s, view, keyword, none, false);
}

/* ---- types ---- */

uint32_t schema_view_type_of(yyjson_val *value)
{
    switch (yyjson_get_type(value)) {
    case YYJSON_TYPE_NULL: return SCHEMA_NULL;
    case YYJSON_TYPE_BOOL: return SCHEMA_BOOLEAN;
    case YYJSON_TYPE_NUM: return yyjson_is_int(value) ? SCHEMA_INTEGER : SCHEMA_FRACTION;
    case YYJSON_TYPE_STR: return SCHEMA_STRING;
    case YYJSON_TYPE_ARR: return SCHEMA_ARRAY;
    case YYJSON_TYPE_OBJ: return SCHEMA_OBJECT;
    default: return 0;
    }
}

static uint32_t type_named(Schema *s, yyjson_val *name)
{
    static const struct {
        const char *name;
        uint32_t type;
    } types[] = {{"null", SCHEMA_NULL},       {"boolean", SCHEMA_BOOLEAN},
                 {"integer", SCHEMA_INTEGER}, {"number", SCHEMA_NUMBER},
                 {"string", SCHEMA_STRING},   {"array", SCHEMA_ARRAY},
                 {"object", SCHEMA_OBJECT}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (yyjson_equals_str(name, types[i].name)) return types[i].type;
    return schema_fault(s, ERR_FORMAT, "is none that is known", "type");
}

static uint32_t types_named(Schema *s, yyjson_val *type)
{
    size_t at, count;
    yyjson_val *name;
    uint32_t types = 0;
    if (!yyjson_is_arr(type)) return type_named(s, type);
    if (type) yyjson_arr_foreach(type, at, count, name) types |= type_named(s, name);
    return types;
}

/* Of a schema without `type`: those that its keywords are about, when they are about some only. */
static uint32_t types_meant(const SchemaView *view)
{
    uint32_t types = 0;
    for (uint32_t i = 0; i < view->count; i++) {
        size_t at, count;
        yyjson_val *key, *value;
        yyjson_obj_foreach(view->items[i].value, at, count, key, value)
        {
            uint32_t about = schema_view_types_of_keyword(yyjson_get_str(key));
            if (about != SCHEMA_ALL) types |= about;
        }
    }
    return types ? types : SCHEMA_ALL;
}

uint32_t schema_view_types(Schema *s, const SchemaView *view)
{
    uint32_t types = view->types;
    bool named = false;
    for (uint32_t i = 0; i < view->count; i++) {
        yyjson_val *type = yyjson_obj_get(view->items[i].value, "type");
        if (!type) continue;
        types &= types_named(s, type);
        named = true;
    }
    if (named || schema_view_get(view, "enum") || schema_view_get(view, "const")) return types;
    return types & types_meant(view);
}

bool schema_view_is_never(Schema *s, const SchemaView *view)
{
    return view->never || schema_view_types(s, view) == 0;
}

bool schema_view_requires(Schema *s, const SchemaView *view, yyjson_val *key)
{
    for (uint32_t i = 0; i < view->count; i++) {
        yyjson_val *list = yyjson_obj_get(view->items[i].value, "required"), *name;
        size_t at, count;
        if (!list) continue;
        yyjson_arr_foreach(list, at, count, name)
        {
            if (!schema_count(s)) return false;
            if (yyjson_equals(name, key)) return true;
        }
    }
    return false;
}

/* ---- branches that exclude each other ---- */

/* The values that a schema allows at most: its enum, or an array of its const in `one`. NULL: not limited. */
static bool values_of(yyjson_val *schema, yyjson_val **list, yyjson_val **one)
{
    *list = yyjson_obj_get(schema, "enum");
    *one = yyjson_obj_get(schema, "const");
    return yyjson_is_arr(*list) || *one;
}

static bool has_value(Schema *s, yyjson_val *list, yyjson_val *one, yyjson_val *value)
{
    if (one) return yyjson_equals(one, value);
    size_t at, count;
    yyjson_val *item;
    if (!list) return false;
    yyjson_arr_foreach(list, at, count, item)
    {
        if (!schema_count(s) || yyjson_equals(item, value)) return true;
    }
    return false;
}

/* Numbers are left out: 1 and 1.0 are one value in two spellings. */
static bool are_apart_by_value(Schema *s, yyjson_val *a, yyjson_val *b)
{
    yyjson_val *a_list, *a_one, *b_list, *b_one, *value;
    size_t at, count;
    if (!values_of(a, &a_list, &a_one) || !values_of(b, &b_list, &b_one)) return false;
    if (a_one)
        return !yyjson_is_ctn(a_one) && !yyjson_is_num(a_one) &&
               !has_value(s, b_list, b_one, a_one);
    yyjson_arr_foreach(a_list, at, count, value)
    {
        bool plain = !yyjson_is_ctn(value) && !yyjson_is_num(value);
        if (!plain || has_value(s, b_list, b_one, value)) return false;
    }
    return true;
}

/* Whether a property that both require has values that exclude each other. */
static bool are_apart_by_property(Schema *s, const SchemaView *a, const SchemaView *b,
                                  yyjson_val *properties)
{
    size_t at, count;
    yyjson_val *key, *schema;
    if (!properties) return false;
    yyjson_obj_foreach(properties, at, count, key, schema)
    {
        if (!schema_view_requires(s, a, key) || !schema_view_requires(s, b, key)) continue;
        for (uint32_t i = 0; i < b->count; i++) {
            yyjson_val *others = yyjson_obj_get(b->items[i].value, "properties");
            yyjson_val *other = yyjson_obj_getn(others, yyjson_get_str(key), yyjson_get_len(key));
            if (other && are_apart_by_value(s, schema, other)) return true;
        }
    }
    return false;
}

/* Types that the values of enum and const leave. */
static uint32_t types_left(Schema *s, const SchemaView *view)
{
    uint32_t types = schema_view_types(s, view);
    for (uint32_t i = 0; i < view->count; i++) {
        yyjson_val *list, *one, *value;
        size_t at, count;
        uint32_t found = 0;
        if (!values_of(view->items[i].value, &list, &one)) continue;
        if (one) found = schema_view_type_of(one);
        if (list) yyjson_arr_foreach(list, at, count, value) found |= schema_view_type_of(value);
        types &= found;
    }
    return types;
}

bool schema_view_are_apart(Schema *s, const SchemaView *a, const SchemaView *b)
{
    uint32_t both = types_left(s, a), other = types_left(s, b);
    if ((both & SCHEMA_NUMBER) && (other & SCHEMA_NUMBER)) both |= SCHEMA_NUMBER;
    both &= other | ((other & SCHEMA_NUMBER) ? SCHEMA_NUMBER : 0);
    if (!both) return true;
    for (uint32_t i = 0; i < a->count; i++)
        for (uint32_t k = 0; k < b->count; k++)
            if (a->items[i].value != b->items[k].value &&
                are_apart_by_value(s, a->items[i].value, b->items[k].value))
                return true;
    if (both != SCHEMA_OBJECT) return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (are_apart_by_property(s, a, b, yyjson_obj_get(a->items[i].value, "properties")))
            return true;
    return false;
}
