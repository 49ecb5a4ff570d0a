/* SPDX-License-Identifier: Apache-2.0 */
#include "api/json_tree.h"

#include "base/error.h"

static void write_number(JsonWriter *w, yyjson_val *value)
{
    uint64_t memory[128];
    yyjson_alc allocator;
    size_t length = 0;
    bool fine = yyjson_alc_pool_init(&allocator, memory, sizeof memory);
    ASSERT(fine);
    char *text = yyjson_val_write_opts(value, YYJSON_WRITE_NOFLAG, &allocator, &length, NULL);
    ASSERT(text);
    json_writer_bytes(w, text, length);
}

static void write_array(JsonWriter *w, yyjson_val *array)
{
    size_t at, count;
    yyjson_val *item;
    json_writer_raw(w, "[");
    yyjson_arr_foreach(array, at, count, item)
    {
        if (at) json_writer_raw(w, ",");
        json_tree_write(w, item);
    }
    json_writer_raw(w, "]");
}

static void write_object(JsonWriter *w, yyjson_val *object)
{
    size_t at, count;
    yyjson_val *key, *value;
    json_writer_raw(w, "{");
    yyjson_obj_foreach(object, at, count, key, value)
    {
        if (at) json_writer_raw(w, ",");
        json_writer_string(w, yyjson_get_str(key), yyjson_get_len(key));
        json_writer_raw(w, ":");
        json_tree_write(w, value);
    }
    json_writer_raw(w, "}");
}

void json_tree_write(JsonWriter *w, yyjson_val *value)
{
    if (yyjson_is_str(value)) json_writer_string(w, yyjson_get_str(value), yyjson_get_len(value));
    else if (yyjson_is_num(value)) write_number(w, value);
    else if (yyjson_is_bool(value)) json_writer_bool(w, yyjson_get_bool(value));
    else if (yyjson_is_arr(value)) write_array(w, value);
    else if (yyjson_is_obj(value)) write_object(w, value);
    else json_writer_raw(w, "null");
}
