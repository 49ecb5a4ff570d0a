/* SPDX-License-Identifier: Apache-2.0 */
#include "api/json_scan.h"

/* The index behind the string that begins at text[at]. */
static size_t skip_string(const uint8_t *text, size_t bytes, size_t at)
{
    for (at++; at < bytes && text[at] != '"'; at++)
        if (text[at] == '\\') at++;
    return at;
}

JsonScan json_scan(const uint8_t *text, size_t bytes)
{
    JsonScan scan = {.values = 1};
    size_t depth = 0;
    for (size_t at = 0; at < bytes; at++) {
        switch (text[at]) {
        case '"': at = skip_string(text, bytes, at); break;
        case '{':
        case '[':
            scan.values++;
            if (++depth > scan.depth) scan.depth = depth;
            break;
        case '}':
        case ']': depth -= depth > 0; break;
        case ',':
        case ':': scan.values++; break;
        default: break;
        }
    }
    return scan;
}

size_t json_scan_bytes(size_t body_bytes)
{
    return arena_bytes(yyjson_read_max_memory_usage(body_bytes, YYJSON_READ_NOFLAG)) + 16384;
}

yyjson_val *json_scan_object(const uint8_t *body, size_t bytes, Arena *arena, Refusal *refusal)
{
    JsonScan scan = json_scan(body, bytes);
    if (!bytes) {
        (void)refusal_make(refusal, REFUSAL_BODY, NULL,
                           "the body is empty; it must be a JSON object");
        return NULL;
    }
    if (scan.depth > JSON_SCAN_DEPTH_MAX || scan.values > JSON_SCAN_VALUES_MAX) {
        bool deep = scan.depth > JSON_SCAN_DEPTH_MAX;
        (void)refusal_make(refusal, REFUSAL_BODY, NULL, "the body %s %d %s",
                           deep ? "nests deeper than" : "has more than",
                           deep ? JSON_SCAN_DEPTH_MAX : JSON_SCAN_VALUES_MAX,
                           deep ? "levels" : "values");
        return NULL;
    }
    size_t room = json_scan_bytes(bytes);
    void *memory = arena_take_raw(arena, room);
    yyjson_alc allocator;
    yyjson_read_err fault = {0};
    if (!memory || !yyjson_alc_pool_init(&allocator, memory, room)) {
        (void)refusal_make(refusal, REFUSAL_MEMORY, NULL, "no memory to read the body");
        return NULL;
    }
    yyjson_doc *doc =
        yyjson_read_opts((char *)(uintptr_t)body, bytes, YYJSON_READ_NOFLAG, &allocator, &fault);
    yyjson_val *root = yyjson_doc_get_root(doc);
    if (!doc)
        (void)refusal_make(refusal, REFUSAL_BODY, NULL, "the body is no JSON: %s at byte %zu",
                           fault.msg, fault.pos);
    else if (!yyjson_is_obj(root))
        (void)refusal_make(refusal, REFUSAL_BODY, NULL, "the body must be a JSON object");
    return yyjson_is_obj(root) ? root : NULL;
}
