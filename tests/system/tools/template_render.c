/* SPDX-License-Identifier: Apache-2.0 */
/* Renders templates for tests that compare with others. One JSON object a line in, one a line out:
 *
 *   {"template": "...", "values": {...}, "now": 0}  ->  {"text": "...", "foreign": N}  or  {"error": "..."}
 *
 * `foreign` counts the bytes of the text that came from values. A line {"template": ...} replaces the template;
 * a line without goes on with the one before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja.h"
#include "text/json_values.h"

enum { ARENA_BYTES = 256 << 20, STEPS = 20000000, TEXT_BYTES = 64 << 20 };

typedef struct Tool {
    Arena parsed, used;
    Jinja jinja;
    Error error;
    Why why;
    char *source;
} Tool;

static void print(const char *key, yyjson_mut_val *value, yyjson_mut_doc *doc, size_t foreign)
{
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    yyjson_mut_obj_add_val(doc, root, key, value);
    yyjson_mut_obj_add_uint(doc, root, "foreign", foreign);
    char *line = yyjson_mut_write(doc, YYJSON_WRITE_ALLOW_INVALID_UNICODE, NULL);
    if (!line) abort();
    puts(line);
    fflush(stdout);
    free(line);
    yyjson_mut_doc_free(doc);
}

static void print_text(JinjaText text)
{
    size_t foreign = 0;
    for (size_t i = 0; i < text.count; i++)
        foreign +=
            (text.mark == JINJA_MIXED ? (JinjaMark)text.marks[i] : text.mark) == JINJA_FOREIGN;
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    print("text", yyjson_mut_strn(doc, text.bytes ? (const char *)text.bytes : "", text.count), doc,
          foreign);
}

static void render(Tool *t, yyjson_val *line)
{
    JinjaText text = {0};
    JinjaLimits limits = {STEPS, TEXT_BYTES, yyjson_get_sint(yyjson_obj_get(line, "now"))};
    t->used.used = 0;
    Why why = t->why;
    Error error = t->error;
    if (error == OK) {
        JinjaValue values;
        if (!json_values_make(&t->used, yyjson_obj_get(line, "values"), &values)) abort();
        error = jinja_render(&t->jinja, values.dict, &limits, &t->used, &text, &why);
    }
    if (error == OK) {
        print_text(text);
        return;
    }
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    print("error", yyjson_mut_str(doc, why.text), doc, (size_t)error);
}

static void parse(Tool *t, yyjson_val *source)
{
    if (!source) return;
    free(t->source);
    t->source = malloc(yyjson_get_len(source) + 1);
    if (!t->source) abort();
    memcpy(t->source, yyjson_get_str(source), yyjson_get_len(source));
    t->parsed.used = 0;
    memset(&t->why, 0, sizeof t->why);
    t->error = jinja_parse((const uint8_t *)t->source, yyjson_get_len(source), &t->parsed,
                           &t->jinja, &t->why);
}

int main(void)
{
    static Tool t;
    void *parsed = malloc(ARENA_BYTES), *used = malloc(ARENA_BYTES);
    if (!parsed || !used) return 2;
    t.parsed = arena_make(parsed, ARENA_BYTES);
    t.used = arena_make(used, ARENA_BYTES);
    char *text = NULL;
    size_t room = 0;
    for (ssize_t bytes; (bytes = getline(&text, &room, stdin)) > 0;) {
        yyjson_doc *doc = yyjson_read(text, (size_t)bytes, YYJSON_READ_ALLOW_INF_AND_NAN);
        yyjson_val *line = yyjson_doc_get_root(doc);
        if (!yyjson_is_obj(yyjson_obj_get(line, "values"))) return 2;
        parse(&t, yyjson_obj_get(line, "template"));
        render(&t, line);
        yyjson_doc_free(doc);
    }
    free(text);
    free(t.source);
    free(parsed);
    free(used);
    return 0;
}
