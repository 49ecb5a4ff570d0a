/* SPDX-License-Identifier: Apache-2.0 */
/* JSON as a template's values, every text foreign, as if it came from messages. */
#ifndef COBORD_TESTS_JSON_VALUES_H
#define COBORD_TESTS_JSON_VALUES_H

#include <stdlib.h>
#include <yyjson.h>

#include "text/jinja_value.h"

static inline JinjaText json_values_text(yyjson_val *v)
{
    return (JinjaText){(const uint8_t *)yyjson_get_str(v), NULL, yyjson_get_len(v), JINJA_FOREIGN};
}

static inline JinjaValue json_values(Arena *arena, yyjson_val *v)
{
    size_t at, count;
    yyjson_val *key, *item;
    if (yyjson_is_bool(v)) return jinja_value_bool(yyjson_get_bool(v));
    if (yyjson_is_str(v)) return jinja_value_text(json_values_text(v));
    if (yyjson_is_int(v)) return jinja_value_int(yyjson_get_sint(v));
    if (yyjson_is_real(v)) return jinja_value_float(yyjson_get_real(v));
    if (yyjson_is_arr(v)) {
        JinjaList *list = jinja_value_list(arena, yyjson_arr_size(v));
        if (!list) abort();
        yyjson_arr_foreach(v, at, count, item) list->items[at] = json_values(arena, item);
        return (JinjaValue){.kind = JINJA_LIST, .list = list};
    }
    if (!yyjson_is_obj(v)) return jinja_value_none();
    JinjaDict *dict = jinja_value_dict(arena, yyjson_obj_size(v));
    if (!dict) abort();
    yyjson_obj_foreach(v, at, count, key, item)
    {
        JinjaValue name = jinja_value_text(json_values_text(key));
        if (!jinja_value_put(arena, dict, name, json_values(arena, item))) abort();
    }
    return (JinjaValue){.kind = JINJA_DICT, .dict = dict};
}

#endif
