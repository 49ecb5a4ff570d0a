/* SPDX-License-Identifier: Apache-2.0 */
/* A template of any bytes over a small conversation: parsed and rendered within the limits, or refused. Memory for
 * parsing is exactly what jinja_bytes promises. */
#include <stdlib.h>
#include <string.h>

#include "lend.h"
#include "text/jinja.h"
#include "text/json_values.h"

#define CHECK(condition) ((condition) ? (void)0 : abort())

enum { ARENA_BYTES = 8 << 20, BYTES_MAX = 100000, STEPS = 200000 };

static const char values[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"be\"},"
    "{\"role\":\"user\",\"content\":\"h\\u00e9 <x>\\n\",\"n\":1},"
    "{\"role\":\"assistant\",\"content\":null,"
    "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":[1,2.5,true]}}}]},"
    "{\"role\":\"tool\",\"content\":[{\"type\":\"text\",\"text\":\"t\"}]}],"
    "\"tools\":[{\"function\":{\"name\":\"f\","
    "\"parameters\":{\"properties\":{\"a\":{\"type\":\"array\"}}}}}],"
    "\"bos_token\":\"<s>\",\"add_generation_prompt\":true}";

static void check_text(JinjaText text)
{
    CHECK(text.count <= BYTES_MAX);
    uint8_t *copy = malloc(text.count + 1); /* every byte and mark is there to be read */
    CHECK(copy);
    if (text.count) memcpy(copy, text.bytes, text.count);
    for (size_t i = 0; text.mark == JINJA_MIXED && i < text.count; i++)
        CHECK(text.marks[i] == JINJA_OWN || text.marks[i] == JINJA_FOREIGN);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void *memory;
    static Lend lent;
    if (!memory) memory = malloc(ARENA_BYTES);
    size_t room = jinja_bytes(size);
    void *parse_memory = lend(&lent, room);
    CHECK(memory);
    Arena parsed = arena_make(parse_memory, room), used = arena_make(memory, ARENA_BYTES);
    Jinja jinja;
    JinjaText text;
    JinjaLimits limits = {STEPS, BYTES_MAX, 0};
    Why why;
    Error error = jinja_parse(data, size, &parsed, &jinja, &why);
    CHECK(error == OK || error == ERR_FORMAT || error == ERR_TOO_LARGE);
    if (error == OK) {
        yyjson_doc *doc = yyjson_read(values, sizeof values - 1, 0);
        JinjaValue names;
        CHECK(json_values_make(&used, yyjson_doc_get_root(doc), &names));
        error = jinja_render(&jinja, names.dict, &limits, &used, &text, &why);
        if (error == OK) check_text(text);
        yyjson_doc_free(doc);
    }
    return 0;
}
