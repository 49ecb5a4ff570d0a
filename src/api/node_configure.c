/* SPDX-License-Identifier: Apache-2.0 */
#include "api/node_configure.h"

#include <string.h>

#include <yyjson.h>

/* The room takes every body of that size that is what it should be: its text, and a reader's guess of its values. */
enum { ROOM_BYTES = 6 * NODE_CONFIGURE_BYTES_MAX };

typedef struct Room {
    uint64_t words[ROOM_BYTES / sizeof(uint64_t)];
} Room;

/* The only member of the object, which has this name. Owner  *value lies in the room. */
static Error read_member(const uint8_t *body, size_t bytes, const char *name, Room *room,
                         yyjson_val **value, Why *why)
{
    yyjson_alc allocator;
    yyjson_doc *doc = NULL;
    if (bytes <= NODE_CONFIGURE_BYTES_MAX && yyjson_alc_pool_init(&allocator, room, sizeof *room))
        doc = yyjson_read_opts((char *)(uintptr_t)body, bytes, 0, &allocator, NULL);
    yyjson_val *root = yyjson_doc_get_root(doc);
    *value = yyjson_obj_get(root, name);
    if (*value && yyjson_obj_size(root) == 1) return OK;
    return error_why(why, ERR_FORMAT, "the body is not an object with the one member \"%s\"", name);
}

static Error read_range(const char *text, size_t bytes, uint32_t layers, PhaseRange *out, Why *why)
{
    const char *dash = memchr(text, '-', bytes);
    if (!dash) return error_why(why, ERR_USAGE, "range \"%s\" has no '-'", text);
    size_t first = (size_t)(dash - text);
    TRY(phase_parse_bound(text, first, layers, &out->first, why));
    TRY(phase_parse_bound(dash + 1, bytes - first - 1, layers, &out->last, why));
    if (out->first < out->last) return OK;
    return error_why(why, ERR_RANGE, "range \"%s\" is empty", text);
}

Error node_configure_read_range(const uint8_t *body, size_t bytes, uint32_t layers, PhaseRange *out,
                                Why *why)
{
    Room room;
    yyjson_val *value;
    TRY(read_member(body, bytes, "range", &room, &value, why));
    if (!yyjson_is_str(value)) return error_why(why, ERR_FORMAT, "range is no text");
    return read_range(yyjson_get_str(value), yyjson_get_len(value), layers, out, why);
}

static Error read_ids(yyjson_val *value, uint32_t vocabulary, uint32_t *first, uint32_t *last,
                      Why *why)
{
    yyjson_val *a = yyjson_arr_get(value, 0), *b = yyjson_arr_get(value, 1);
    if (yyjson_arr_size(value) != 2 || !yyjson_is_uint(a) || !yyjson_is_uint(b))
        return error_why(why, ERR_FORMAT, "ids is not [first, behind_last]");
    uint64_t low = yyjson_get_uint(a), high = yyjson_get_uint(b);
    if (low >= high || high > vocabulary)
        return error_why(why, ERR_RANGE, "ids %llu to %llu of a vocabulary of %u",
                         (unsigned long long)low, (unsigned long long)high, vocabulary);
    *first = (uint32_t)low;
    *last = (uint32_t)high;
    return OK;
}

Error node_configure_read_ids(const uint8_t *body, size_t bytes, uint32_t vocabulary,
                              uint32_t *first, uint32_t *last, Why *why)
{
    Room room;
    yyjson_val *value;
    TRY(read_member(body, bytes, "ids", &room, &value, why));
    return read_ids(value, vocabulary, first, last, why);
}
