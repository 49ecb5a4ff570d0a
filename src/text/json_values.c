/* SPDX-License-Identifier: Apache-2.0 */
/* See json_values.h. A value costs its place in a list or dictionary (up to 80 bytes), and what a container
 * rounds up. */
#include "text/json_values.h"

_Static_assert(sizeof(JinjaPair) + sizeof(JinjaDict) + 2 * ARENA_ALIGN <= JSON_VALUES_BYTES,
               "one value in an object of its own");

static JinjaText text_of(yyjson_val *string)
{
    return (JinjaText){(const uint8_t *)yyjson_get_str(string), NULL, yyjson_get_len(string),
                       JINJA_FOREIGN};
}

static bool make_list(Arena *arena, yyjson_val *json, JinjaValue *out)
{
    size_t at, count;
    yyjson_val *item;
    JinjaList *list = jinja_value_list(arena, yyjson_arr_size(json));
    if (!list) return false;
    yyjson_arr_foreach(json, at, count, item)
    {
        if (!json_values_make(arena, item, &list->items[at])) return false;
    }
    *out = (JinjaValue){.kind = JINJA_LIST, .list = list};
    return true;
}

static bool make_dict(Arena *arena, yyjson_val *json, JinjaValue *out)
{
    size_t at, count;
    yyjson_val *key, *item;
    JinjaDict *dict = jinja_value_dict(arena, yyjson_obj_size(json));
    if (!dict) return false;
    yyjson_obj_foreach(json, at, count, key, item)
    {
        JinjaValue value;
        if (!json_values_make(arena, item, &value) ||
            !jinja_value_put(arena, dict, jinja_value_text(text_of(key)), value))
            return false;
    }
    *out = (JinjaValue){.kind = JINJA_DICT, .dict = dict};
    return true;
}

bool json_values_make(Arena *arena, yyjson_val *json, JinjaValue *out)
{
    if (yyjson_is_arr(json)) return make_list(arena, json, out);
    if (yyjson_is_obj(json)) return make_dict(arena, json, out);
    bool large = yyjson_is_uint(json) && yyjson_get_uint(json) > INT64_MAX;
    if (yyjson_is_bool(json)) *out = jinja_value_bool(yyjson_get_bool(json));
    else if (yyjson_is_str(json)) *out = jinja_value_text(text_of(json));
    else if (yyjson_is_real(json) || large) *out = jinja_value_float(yyjson_get_num(json));
    else if (yyjson_is_int(json)) *out = jinja_value_int(yyjson_get_sint(json));
    else *out = jinja_value_none();
    return true;
}
