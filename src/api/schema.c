/* SPDX-License-Identifier: Apache-2.0 */
#include "api/schema.h"

#include <string.h>

#include "api/schema_state.h"

/* ---- where we are ---- */

uint32_t schema_fault(Schema *s, Error error, const char *what, const char *word)
{
    Why why;
    const char *start = word ? "'" : "", *end = word ? "' " : "";
    return grammar_fault(s->b,
                         error_why(&why, error, "the schema at %s: %s%s%s%s", s->path, start,
                                   word ? word : "", end, what),
                         &why);
}

bool schema_count(Schema *s)
{
    if (++s->compared == SCHEMA_COMPARED_MAX)
        (void)schema_fault(s, ERR_TOO_LARGE, "too many values and names to compare", NULL);
    return !schema_failed(s);
}

static void append(Schema *s, const char *text, size_t bytes)
{
    size_t room = SCHEMA_PATH_MAX - 1 - s->path_bytes;
    if (bytes > room) bytes = room;
    memcpy(s->path + s->path_bytes, text, bytes);
    s->path_bytes += bytes;
    s->path[s->path_bytes] = '\0';
}

size_t schema_enter(Schema *s, const char *word, const char *name, size_t bytes)
{
    size_t mark = s->path_bytes;
    append(s, ".", 1);
    append(s, word, strlen(word));
    if (!name) return mark;
    append(s, ".", 1);
    append(s, name, bytes);
    return mark;
}

void schema_leave(Schema *s, size_t mark)
{
    s->path_bytes = mark;
    s->path[mark] = '\0';
}

/* ---- rules ---- */

static bool is_same(const SchemaView *a, const SchemaView *b)
{
    if (a->count != b->count || a->types != b->types || a->never != b->never) return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (a->items[i].value != b->items[i].value || a->items[i].chosen != b->items[i].chosen)
            return false;
    return true;
}

uint32_t schema_call(Schema *s, const SchemaView *view)
{
    for (const SchemaWaiting *w = s->first; w; w = w->next)
        if (is_same(&w->view, view)) return grammar_call(s->b, w->rule);
    SchemaWaiting *w = arena_take_raw(s->arena, sizeof *w);
    if (!w) return schema_fault(s, ERR_MEMORY, "no memory for so many parts", NULL);
    w->view = *view;
    w->next = NULL;
    memcpy(w->path, s->path, sizeof w->path);
    w->rule = grammar_rule(s->b, s->path, s->path_bytes);
    if (s->last) s->last->next = w;
    else s->first = w;
    s->last = w;
    return grammar_call(s->b, w->rule);
}

static const GrammarRange space_or_tab[] = {{' ', ' '}};

/* Nothing, a space, or a line end and an indentation. */
uint32_t schema_space(Schema *s)
{
    if (!s->space) {
        GrammarList line = {0}, any = {0};
        grammar_add(s->b, &line, grammar_text(s->b, "\n"));
        grammar_add(s->b, &line,
                    grammar_repeat(s->b, grammar_class(s->b, space_or_tab, 1, false), 0,
                                   SCHEMA_INDENT_MAX));
        grammar_add(s->b, &any, grammar_text(s->b, " "));
        grammar_add(s->b, &any, grammar_sequence(s->b, &line));
        s->space = grammar_rule(s->b, "space", 5);
        grammar_define(s->b, s->space, grammar_repeat(s->b, grammar_choice(s->b, &any), 0, 1));
    }
    return grammar_call(s->b, s->space);
}

/* \u with four digits that are no surrogate: one escape is one character. */
static uint32_t unicode_escape(GrammarBuilder *b)
{
    static const GrammarRange hex[] = {{'0', '9'}, {'a', 'f'}, {'A', 'F'}},
                              not_d[] = {{'0', '9'},
                                         {'a', 'c'},
                                         {'A', 'C'},
                                         {'e', 'f'},
                                         {'E', 'F'}},
                              d[] = {{'d', 'd'}, {'D', 'D'}}, low[] = {{'0', '7'}};
    GrammarList first = {0}, second = {0}, both = {0}, all = {0};
    uint32_t digit = grammar_class(b, hex, 3, false);
    grammar_add(b, &first, grammar_class(b, not_d, 5, false));
    grammar_add(b, &first, digit);
    grammar_add(b, &second, grammar_class(b, d, 2, false));
    grammar_add(b, &second, grammar_class(b, low, 1, false));
    grammar_add(b, &both, grammar_sequence(b, &first));
    grammar_add(b, &both, grammar_sequence(b, &second));
    grammar_add(b, &all, grammar_text(b, "u"));
    grammar_add(b, &all, grammar_choice(b, &both));
    grammar_add(b, &all, digit);
    grammar_add(b, &all, digit);
    return grammar_sequence(b, &all);
}

uint32_t schema_character(Schema *s)
{
    static const GrammarRange special[] = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}},
                              letters[] = {{'"', '"'}, {'/', '/'}, {'\\', '\\'}, {'b', 'b'},
                                           {'f', 'f'}, {'n', 'n'}, {'r', 'r'},   {'t', 't'}};
    if (!s->character) {
        GrammarBuilder *b = s->b;
        GrammarList after = {0}, escape = {0}, any = {0};
        grammar_add(b, &after, grammar_class(b, letters, 8, false));
        grammar_add(b, &after, unicode_escape(b));
        grammar_add(b, &escape, grammar_text(b, "\\"));
        grammar_add(b, &escape, grammar_choice(b, &after));
        grammar_add(b, &any, grammar_class(b, special, 3, true));
        grammar_add(b, &any, grammar_sequence(b, &escape));
        s->character = grammar_rule(b, "character", 9);
        grammar_define(b, s->character, grammar_choice(b, &any));
    }
    return grammar_call(s->b, s->character);
}

/* ---- what a view is ---- */

/* A branch is refused when it leads back to the schema whose choice it is. */
static SchemaView branch_of(Schema *s, const SchemaView *view, uint32_t item, uint32_t choice,
                            yyjson_val *branch)
{
    SchemaView v = *view;
    v.items[item].chosen |= choice;
    schema_view_add(s, &v, branch);
    return v;
}

static void check_apart(Schema *s, const SchemaView *view, uint32_t item, yyjson_val *branches)
{
    size_t i, k, count, most;
    yyjson_val *one, *other;
    yyjson_arr_foreach(branches, i, count, one)
    {
        SchemaView a = branch_of(s, view, item, SCHEMA_ONE_OF, one);
        yyjson_arr_foreach(branches, k, most, other)
        {
            if (k <= i || schema_failed(s)) continue;
            SchemaView b = branch_of(s, view, item, SCHEMA_ONE_OF, other);
            if (!schema_failed(s) && !schema_view_are_apart(s, &a, &b))
                (void)schema_fault(s, ERR_UNSUPPORTED,
                                   "has branches that may both hold; anyOf would do", "oneOf");
        }
    }
}

static uint32_t choice(Schema *s, const SchemaView *view, uint32_t item, bool one)
{
    const char *keyword = one ? "oneOf" : "anyOf";
    yyjson_val *branches = yyjson_obj_get(view->items[item].value, keyword), *branch;
    size_t at, count;
    GrammarList any = {0};
    if (!yyjson_is_arr(branches) || yyjson_arr_size(branches) == 0 ||
        yyjson_arr_size(branches) > SCHEMA_PROPERTIES_MAX)
        return schema_fault(s, ERR_FORMAT, "must be an array of 1 to 512 schemas", keyword);
    if (one) check_apart(s, view, item, branches);
    size_t mark = schema_enter(s, keyword, NULL, 0);
    yyjson_arr_foreach(branches, at, count, branch)
    {
        SchemaView v = branch_of(s, view, item, one ? SCHEMA_ONE_OF : SCHEMA_ANY_OF, branch);
        if (!schema_failed(s) && !schema_view_is_never(s, &v))
            grammar_add(s->b, &any, schema_call(s, &v));
    }
    if (!any.count) (void)schema_fault(s, ERR_RANGE, "no branch can be satisfied", NULL);
    schema_leave(s, mark);
    return schema_failed(s) ? 0 : grammar_choice(s->b, &any);
}

static uint32_t plain(Schema *s, const SchemaView *view, uint32_t types)
{
    GrammarBuilder *b = s->b;
    GrammarList any = {0};
    if (types & SCHEMA_NULL) grammar_add(b, &any, grammar_text(b, "null"));
    if (types & SCHEMA_BOOLEAN) {
        grammar_add(b, &any, grammar_text(b, "true"));
        grammar_add(b, &any, grammar_text(b, "false"));
    }
    if (types & SCHEMA_NUMBER)
        grammar_add(b, &any, schema_number(s, view, !(types & SCHEMA_FRACTION)));
    if (types & SCHEMA_STRING) grammar_add(b, &any, schema_string(s, view));
    if (types & SCHEMA_ARRAY) grammar_add(b, &any, schema_object_array(s, view));
    if (types & SCHEMA_OBJECT) grammar_add(b, &any, schema_object(s, view));
    return schema_failed(s) ? 0 : grammar_choice(b, &any);
}

static uint32_t content(Schema *s, const SchemaView *view)
{
    for (uint32_t i = 0; i < view->count; i++) {
        const SchemaItem *item = &view->items[i];
        if (!(item->chosen & SCHEMA_ANY_OF) && yyjson_obj_get(item->value, "anyOf"))
            return choice(s, view, i, false);
        if (!(item->chosen & SCHEMA_ONE_OF) && yyjson_obj_get(item->value, "oneOf"))
            return choice(s, view, i, true);
    }
    uint32_t types = schema_view_types(s, view);
    if (schema_failed(s)) return 0;
    if (view->never || !types) return schema_fault(s, ERR_RANGE, "nothing satisfies it", NULL);
    if (schema_view_get(view, "enum") || schema_view_get(view, "const"))
        return schema_value_listed(s, view, types);
    return plain(s, view, types);
}

/* ---- the whole ---- */

size_t schema_scratch_bytes(void)
{
    return grammar_builder_bytes() + grammar_finish_scratch_bytes() + (4u << 20);
}

Error schema_start(Schema *s, GrammarBuilder *b, Arena *scratch, Why *why)
{
    *s = (Schema){.b = b,
                  .arena = scratch,
                  .properties = ARENA_NEW(scratch, SchemaProperty, SCHEMA_PROPERTIES_MAX),
                  .keys = ARENA_NEW(scratch, yyjson_val *, SCHEMA_PROPERTIES_MAX)};
    if (s->properties && s->keys) return OK;
    return error_why(why, ERR_MEMORY, "no memory for a schema");
}

uint32_t schema_part(Schema *s, yyjson_val *root, uint32_t types)
{
    SchemaView view = schema_view();
    memcpy(s->path, "$", 2);
    s->path_bytes = 1;
    s->root = root;
    s->first = s->last = NULL;
    view.types = types;
    if (root) schema_view_add(s, &view, root);
    uint32_t node = schema_call(s, &view);
    for (s->turn = s->first; s->turn && !schema_failed(s); s->turn = s->turn->next) {
        memcpy(s->path, s->turn->path, sizeof s->path);
        s->path_bytes = strlen(s->path);
        grammar_define(s->b, s->turn->rule, content(s, &s->turn->view));
    }
    return node;
}

Error schema_grammar(yyjson_val *root, Arena *scratch, Arena *arena, Grammar *out, Why *why)
{
    GrammarBuilder b;
    Schema s;
    size_t mark = arena_mark(scratch);
    TRY(grammar_builder_start(&b, scratch, why));
    size_t places = arena_mark(scratch);
    TRY(schema_start(&s, &b, scratch, why));
    uint32_t whole = grammar_rule(&b, "root", 4);
    grammar_define(&b, whole, schema_part(&s, root, root ? SCHEMA_ALL : SCHEMA_OBJECT));
    arena_reset(scratch, places);
    Error error = grammar_finish(&b, scratch, arena, out, why);
    arena_reset(scratch, mark);
    return error;
}
