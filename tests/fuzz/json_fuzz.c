/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of anybody through all that looks at it: the scan before the parser (a true bound of depth and values), the
 * check byte by byte (the same verdict as the parser's), and the tree written again (the same tree). */
#include "api/json_scan.h"
#include "api/json_tree.h"
#include "feed.h"
#include "lend.h"
#include "text/json_check.h"

typedef struct Shape {
    size_t depth, values;
} Shape;

static Shape shape_of(yyjson_val *value)
{
    Shape all = {0, 1};
    size_t at, count;
    yyjson_val *key, *item;
    if (yyjson_is_arr(value)) {
        yyjson_arr_foreach(value, at, count, item)
        {
            Shape one = shape_of(item);
            all.values += one.values;
            if (one.depth > all.depth) all.depth = one.depth;
        }
    }
    if (yyjson_is_obj(value)) {
        yyjson_obj_foreach(value, at, count, key, item)
        {
            Shape one = shape_of(item);
            all.values += one.values + 1;
            if (one.depth > all.depth) all.depth = one.depth;
        }
    }
    all.depth += yyjson_is_ctn(value);
    return all;
}

static void check_tree(yyjson_val *root, size_t bytes)
{
    size_t room = bytes * JSON_WRITER_GROWTH + 64 * (bytes + 1);
    char *text = malloc(room), *twice = malloc(room);
    CHECK(text && twice);
    JsonWriter w = json_writer_make(text, room), second = json_writer_make(twice, room);
    json_tree_write(&w, root);
    CHECK(!w.full);
    yyjson_doc *again = yyjson_read(text, w.used, YYJSON_READ_NOFLAG);
    CHECK(again);
    json_tree_write(&second, yyjson_doc_get_root(again));
    CHECK(!second.full && second.used == w.used && memcmp(text, twice, w.used) == 0);
    yyjson_doc_free(again);
    JsonWriter small = json_writer_make(text, w.used / 2);
    json_tree_write(&small, root);
    CHECK(small.used <= w.used / 2);
    free(text);
    free(twice);
}

/* Whether a number is 1e308 or more: the check refuses the last doubles with all that are larger. */
static bool has_last(yyjson_val *value)
{
    size_t at, count;
    yyjson_val *key, *item;
    bool any = yyjson_is_real(value) &&
               (yyjson_get_real(value) >= 1e308 || yyjson_get_real(value) <= -1e308);
    yyjson_arr_foreach(value, at, count, item) any |= has_last(item);
    yyjson_obj_foreach(value, at, count, key, item) any |= has_last(item);
    return any;
}

/* What the check says of an object is what the parser says of it, where it keeps to objects of so many levels. */
static void check_bytes(const uint8_t *text, size_t bytes, yyjson_doc *doc, size_t depth)
{
    JsonCheck c = {0};
    JsonCheckResult result = JSON_CHECK_GOES_ON;
    size_t at = 0;
    while (at < bytes && result == JSON_CHECK_GOES_ON) result = json_check_push(&c, text[at++]);
    bool blank = true;
    for (size_t i = at; i < bytes; i++) blank = blank && text[i] && strchr(" \t\r\n", text[i]);
    bool object = doc && yyjson_is_obj(yyjson_doc_get_root(doc));
    if (object && depth <= JSON_CHECK_DEPTH_MAX && !has_last(yyjson_doc_get_root(doc)))
        CHECK(result == JSON_CHECK_WHOLE && blank);
    if (result == JSON_CHECK_WHOLE && blank) { /* UTF-8 is not its business */
        yyjson_doc *lax = yyjson_read((const char *)text, bytes, YYJSON_READ_ALLOW_INVALID_UNICODE);
        CHECK(yyjson_is_obj(yyjson_doc_get_root(lax)));
        yyjson_doc_free(lax);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static Refusal refusal;
    static Lend lent;
    Feed f = {data, size};
    size_t bytes;
    uint8_t *text = feed_rest(&f, &bytes);
    JsonScan scan = json_scan(text, bytes);
    size_t room = json_scan_bytes(bytes) + ARENA_ALIGN; /* the block itself need not be aligned */
    void *memory = lend(&lent, room);
    Arena arena = arena_make(memory, room);
    yyjson_val *root = json_scan_object(text, bytes, &arena, &refusal);
    CHECK(root || refusal.why.text[0]);
    CHECK(root || refusal.kind != REFUSAL_MEMORY);
    if (scan.depth <= JSON_SCAN_DEPTH_MAX) {
        yyjson_doc *doc = yyjson_read((const char *)text, bytes, YYJSON_READ_NOFLAG);
        Shape shape = {0, 0};
        if (doc) shape = shape_of(yyjson_doc_get_root(doc));
        CHECK(!doc || (shape.depth == scan.depth && shape.values <= scan.values));
        if (doc) check_tree(yyjson_doc_get_root(doc), bytes);
        check_bytes(text, bytes, doc, scan.depth);
        yyjson_doc_free(doc);
    }
    free(text);
    return 0;
}
