/* SPDX-License-Identifier: Apache-2.0 */
/* See schema_calls.h. Text without the marker is a row of rules, one for each beginning of it:
 *
 *   text-0   nothing, or < text-1, or another character text-0
 *   text-3   nothing, or "o" text-4, or < text-1, or another character text-0      after <to
 *   ...      and behind the whole marker the call
 *
 * The marker's first character does not occur in it again, so a beginning that goes wrong leads to text-0 or
 * text-1. */
#include "api/schema_calls.h"

#include <string.h>

#include "api/schema_state.h"
#include "text/tool_calls.h"

static const char OPEN[] = TOOL_CALLS_OPEN;
enum { OPEN_BYTES = sizeof OPEN - 1 };

static bool takes_nothing(const SchemaTool *tool)
{
    yyjson_val *properties = yyjson_obj_get(tool->parameters, "properties");
    bool empty = yyjson_is_obj(properties) && yyjson_obj_size(properties) == 0 &&
                 !yyjson_obj_get(tool->parameters, "additionalProperties") &&
                 !yyjson_obj_get(tool->parameters, "required");
    return !tool->parameters ||
           (empty && yyjson_obj_size(tool->parameters) == 2 &&
            yyjson_equals_str(yyjson_obj_get(tool->parameters, "type"), "object"));
}

/* NAME", "arguments": ARGUMENTS */
static uint32_t tool_node(Schema *s, const SchemaTool *tool)
{
    GrammarBuilder *b = s->b;
    GrammarList all = {0};
    grammar_add(b, &all, grammar_bytes(b, tool->name, tool->name_bytes));
    grammar_add(b, &all, grammar_text(b, "\", \"arguments\": "));
    grammar_add(b, &all,
                takes_nothing(tool) && !tool->any
                    ? grammar_text(b, "{}")
                    : schema_part(s, tool->any ? NULL : tool->parameters, SCHEMA_OBJECT));
    return schema_failed(s) ? 0 : grammar_sequence(b, &all);
}

/* What stands behind the marker, to the closing marker. */
static uint32_t rest_node(Schema *s, const SchemaCalls *calls, uint32_t *fault)
{
    GrammarBuilder *b = s->b;
    GrammarList any = {0}, all = {0};
    for (uint32_t i = 0; i < calls->count && !schema_failed(s); i++) {
        grammar_add(b, &any, tool_node(s, &calls->tools[i]));
        if (schema_failed(s)) *fault = i;
    }
    grammar_add(b, &all, grammar_text(b, "\n{\"name\": \""));
    grammar_add(b, &all, grammar_choice(b, &any));
    grammar_add(b, &all, grammar_text(b, "}\n" TOOL_CALLS_CLOSE));
    return schema_failed(s) ? 0 : grammar_sequence(b, &all);
}

static uint32_t more_node(GrammarBuilder *b, uint32_t rest)
{
    GrammarList all = {0};
    grammar_add(b, &all, grammar_text(b, "\n" TOOL_CALLS_OPEN));
    grammar_add(b, &all, grammar_call(b, rest));
    return grammar_repeat(b, grammar_sequence(b, &all), 0, GRAMMAR_UNBOUNDED);
}

static void add_pair(GrammarBuilder *b, GrammarList *choice, uint32_t first, uint32_t then)
{
    GrammarList both = {0};
    grammar_add(b, &both, first);
    grammar_add(b, &both, then);
    grammar_add(b, choice, grammar_sequence(b, &both));
}

/* The text that goes on after `at` bytes of the marker. */
static uint32_t text_node(GrammarBuilder *b, uint32_t first_rule, uint32_t at, uint32_t after)
{
    GrammarList choice = {0};
    uint8_t next = (uint8_t)OPEN[at], first = (uint8_t)OPEN[0];
    const GrammarRange known[] = {{next, next}, {first, first}};
    bool last = at + 1 == OPEN_BYTES;
    grammar_add(b, &choice, grammar_empty(b));
    add_pair(b, &choice, grammar_class(b, known, 1, false),
             last ? after : grammar_call(b, first_rule + at + 1));
    if (at)
        add_pair(b, &choice, grammar_class(b, known + 1, 1, false),
                 grammar_call(b, first_rule + 1));
    add_pair(b, &choice, grammar_class(b, known, at ? 2 : 1, true), grammar_call(b, first_rule));
    return grammar_choice(b, &choice);
}

static uint32_t free_text(GrammarBuilder *b, uint32_t after)
{
    uint32_t first_rule = 0;
    for (uint32_t at = 0; at < OPEN_BYTES; at++) {
        uint32_t rule = grammar_rule(b, "text", 4);
        if (at == 0) first_rule = rule;
    }
    if (b->error != OK) return 0;
    for (uint32_t at = 0; at < OPEN_BYTES; at++)
        grammar_define(b, first_rule + at, text_node(b, first_rule, at, after));
    return grammar_call(b, first_rule);
}

static void build(Schema *s, const SchemaCalls *calls, uint32_t *fault)
{
    GrammarBuilder *b = s->b;
    uint32_t root = grammar_rule(b, "root", 4), rest = grammar_rule(b, "call", 4);
    GrammarList after = {0}, all = {0};
    grammar_define(b, rest, rest_node(s, calls, fault));
    if (schema_failed(s)) return;
    grammar_add(b, &after, grammar_call(b, rest));
    if (calls->many) grammar_add(b, &after, more_node(b, rest));
    uint32_t end = grammar_sequence(b, &after);
    if (calls->must) {
        grammar_add(b, &all, grammar_text(b, OPEN));
        grammar_add(b, &all, end);
    } else {
        grammar_add(b, &all, free_text(b, end));
    }
    if (!schema_failed(s)) grammar_define(b, root, grammar_sequence(b, &all));
}

Error schema_calls_grammar(const SchemaCalls *calls, Arena *scratch, Arena *arena, Grammar *out,
                           uint32_t *fault, Why *why)
{
    GrammarBuilder b;
    Schema s;
    size_t mark = arena_mark(scratch);
    *fault = calls->count;
    TRY(grammar_builder_start(&b, scratch, why));
    size_t places = arena_mark(scratch);
    TRY(schema_start(&s, &b, scratch, why));
    build(&s, calls, fault);
    arena_reset(scratch, places);
    Error error = grammar_finish(&b, scratch, arena, out, why);
    arena_reset(scratch, mark);
    return error;
}
