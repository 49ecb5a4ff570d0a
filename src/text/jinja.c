/* SPDX-License-Identifier: Apache-2.0 */
/* See jinja.h. */
#include "text/jinja.h"

#include "text/jinja_parser.h"
#include "text/jinja_run.h"

/* A node needs at least one byte of source; a comparison and a default one more node without any. */
enum { NODES_PER_BYTE = 2 };

size_t jinja_bytes(size_t source_bytes)
{
    if (source_bytes > JINJA_SOURCE_MAX) source_bytes = 0;
    return (source_bytes + 4) * NODES_PER_BYTE * arena_bytes(sizeof(JinjaNode)) +
           2 * arena_bytes(source_bytes) + ARENA_ALIGN;
}

/* Line breaks become \n, and the last one goes. */
static Error normalize(const uint8_t *source, size_t bytes, Arena *arena, Jinja *out, Why *why)
{
    uint8_t *text = arena_take_raw(arena, bytes);
    if (!text) return error_why(why, ERR_MEMORY, "no memory for the template");
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        bool pair = source[i] == '\r' && i + 1 < bytes && source[i + 1] == '\n';
        if (!pair) text[count++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (count && text[count - 1] == '\n') count--;
    out->source = text;
    out->source_bytes = count;
    return OK;
}

Error jinja_parse(const uint8_t *source, size_t bytes, Arena *arena, Jinja *out, Why *why)
{
    *out = (Jinja){0};
    if (bytes > JINJA_SOURCE_MAX)
        return error_why(why, ERR_TOO_LARGE, "a template of %zu bytes; %d are taken", bytes,
                         JINJA_SOURCE_MAX);
    TRY(normalize(source, bytes, arena, out, why));
    JinjaParser parser = {
        .lexer = {.source = out->source, .count = out->source_bytes, .arena = arena, .why = why}};
    return jinja_parser_run(&parser, &out->body);
}

Error jinja_render(const Jinja *j, const JinjaDict *globals, const JinjaLimits *limits,
                   Arena *arena, JinjaText *out, Why *why)
{
    JinjaBuilder text = jinja_text_builder(arena, limits->bytes);
    JinjaScope names = {0}, *scope = NULL;
    JinjaRun run = {.arena = arena,
                    .why = why,
                    .source = j->source,
                    .source_bytes = j->source_bytes,
                    .out = &text,
                    .steps_left = limits->steps,
                    .bytes_max = limits->bytes,
                    .now_s = limits->now_s};
    for (size_t i = 0; i < globals->count; i++)
        TRY(jinja_run_set(&run, &names, globals->pairs[i].key.text, globals->pairs[i].value));
    TRY(jinja_run_scope(&run, &names, &scope));
    run.scope = scope;
    TRY(jinja_statement_body(&run, j->body));
    return jinja_run_finish(&run, &text, out);
}
