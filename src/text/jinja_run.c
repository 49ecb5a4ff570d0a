/* SPDX-License-Identifier: Apache-2.0 */
/* See jinja_run.h: limits, errors, memory, names and arguments of a rendering. */
#include "text/jinja_run.h"

#include <string.h>

#include "text/jinja_lexer.h"

unsigned jinja_run_line(const JinjaRun *r, bool line)
{
    unsigned at_line, column;
    jinja_lexer_place(r->source, r->source_bytes, r->at ? r->at->offset : 0, &at_line, &column);
    return line ? at_line : column;
}

Error jinja_run_fail(const JinjaRun *r, const char *text)
{
    return JINJA_FAIL(r, ERR_TYPE, "%s", text);
}

Error jinja_run_no_memory(const JinjaRun *r)
{
    return JINJA_FAIL(r, ERR_TOO_LARGE, "%s", "the template needs more memory than it may have");
}

Error jinja_run_spend(JinjaRun *r, uint64_t steps)
{
    if (steps > r->steps_left) {
        r->steps_left = 0;
        return JINJA_FAIL(r, ERR_TOO_LARGE, "%s", "the template takes more steps than it may");
    }
    r->steps_left -= steps;
    return OK;
}

JinjaBuilder jinja_run_builder(const JinjaRun *r)
{
    return jinja_text_builder(r->arena, r->bytes_max);
}

Error jinja_run_finish(JinjaRun *r, JinjaBuilder *b, JinjaText *out)
{
    switch (jinja_text_finish(b, out)) {
    case OK: return jinja_run_spend(r, out->count / 64);
    case ERR_MEMORY: return jinja_run_no_memory(r);
    default:
        return JINJA_FAIL(r, ERR_TOO_LARGE, "the template writes more than %zu bytes",
                          r->bytes_max);
    }
}

Error jinja_run_list(JinjaRun *r, size_t count, JinjaList **out)
{
    TRY(jinja_run_spend(r, count));
    *out = jinja_value_list(r->arena, count);
    return *out ? OK : jinja_run_no_memory(r);
}

Error jinja_run_push(JinjaRun *r, JinjaList *list, size_t *room, JinjaValue value)
{
    TRY(jinja_run_spend(r, 1));
    if (list->count == *room) {
        size_t more = *room ? 2 * *room : 8;
        JinjaValue *items = ARENA_NEW(r->arena, JinjaValue, more);
        if (!items) return jinja_run_no_memory(r);
        if (list->count) memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
        *room = more;
    }
    list->items[list->count++] = value;
    return OK;
}

Error jinja_run_scope(JinjaRun *r, JinjaScope *parent, JinjaScope **out)
{
    *out = ARENA_NEW(r->arena, JinjaScope, 1);
    if (!*out) return jinja_run_no_memory(r);
    (*out)->parent = parent;
    return OK;
}

Error jinja_run_set(JinjaRun *r, JinjaScope *scope, JinjaText name, JinjaValue value)
{
    for (JinjaVariable *v = scope->first; v; v = v->next)
        if (v->name.count == name.count && memcmp(v->name.bytes, name.bytes, name.count) == 0) {
            v->value = value;
            return OK;
        }
    JinjaVariable *v = ARENA_NEW(r->arena, JinjaVariable, 1);
    if (!v) return jinja_run_no_memory(r);
    *v = (JinjaVariable){name, value, scope->first};
    scope->first = v;
    return OK;
}

const JinjaValue *jinja_run_argument(const JinjaArguments *a, size_t index, const char *name)
{
    if (index < a->unnamed) return &a->values[index];
    for (size_t i = a->unnamed; name && i < a->count; i++)
        if (jinja_value_is(a->names[i], name)) return &a->values[i];
    return NULL;
}

Error jinja_run_int(JinjaRun *r, const JinjaValue *v, int64_t *out)
{
    if (v->kind != JINJA_INT && v->kind != JINJA_BOOL)
        return JINJA_FAIL(r, ERR_TYPE, "a whole number is needed, not %s", jinja_value_kind(v));
    *out = v->kind == JINJA_INT ? v->integer : v->truth;
    return OK;
}
