/* SPDX-License-Identifier: Apache-2.0 */
/* Statements. Loops, macros, call, with and the bodies of set and filter blocks have a scope of their own; if
 * has none. */
#include "text/jinja_run.h"

/* ---- Setting names ---- */

static Error assign(JinjaRun *r, const JinjaNode *target, const JinjaValue *value);

static Error assign_row(JinjaRun *r, const JinjaNode *target, const JinjaValue *value)
{
    const JinjaList *items;
    size_t at = 0;
    TRY(jinja_eval_items(r, value, &items));
    for (const JinjaNode *n = target->list; n; n = n->next, at++) {
        if (at == items->count) return jinja_run_fail(r, "fewer values than names");
        TRY(assign(r, n, &items->items[at]));
    }
    return at == items->count ? OK : jinja_run_fail(r, "more values than names");
}

static Error assign_member(JinjaRun *r, const JinjaNode *target, const JinjaValue *value)
{
    JinjaValue space;
    TRY(jinja_eval(r, target->a, &space));
    r->at = target;
    if (space.kind != JINJA_NAMESPACE)
        return jinja_run_fail(r, "only members of a namespace can be set");
    TRY(jinja_run_spend(r, space.dict->count / 4));
    if (jinja_value_put(r->arena, space.dict, jinja_value_text(target->text), *value)) return OK;
    return jinja_run_no_memory(r);
}

static Error assign(JinjaRun *r, const JinjaNode *target, const JinjaValue *value)
{
    if (target->type == JINJA_NODE_TUPLE) return assign_row(r, target, value);
    if (target->type == JINJA_NODE_MEMBER) return assign_member(r, target, value);
    return jinja_run_set(r, r->scope, target->text, *value);
}

/* ---- Bodies ---- */

/* What the body writes, as one text. */
static Error capture(JinjaRun *r, const JinjaNode *list, JinjaText *out)
{
    JinjaBuilder text = jinja_run_builder(r), *before = r->out;
    r->out = &text;
    TRY(jinja_statement_body(r, list));
    r->out = before;
    return jinja_run_finish(r, &text, out);
}

static Error capture_scoped(JinjaRun *r, const JinjaNode *list, JinjaText *out)
{
    JinjaScope *outer = r->scope;
    TRY(jinja_run_scope(r, outer, &r->scope));
    TRY(capture(r, list, out));
    r->scope = outer;
    return OK;
}

/* ---- Macros ---- */

static Error check_arguments(JinjaRun *r, const JinjaNode *node, const JinjaArguments *a)
{
    size_t count = 0;
    for (const JinjaNode *n = node->other; n; n = n->next) count++;
    if (a->unnamed > count)
        return JINJA_FAIL(r, ERR_TYPE, "\"%.*s\" takes %zu arguments, not %zu",
                          JINJA_SHOW(node->text), count, a->unnamed);
    for (size_t i = a->unnamed; i < a->count; i++) {
        const JinjaNode *n = node->other;
        while (n &&
               !(n->text.count == a->names[i].count && jinja_text_starts(n->text, a->names[i])))
            n = n->next;
        if (!n)
            return JINJA_FAIL(r, ERR_TYPE, "\"%.*s\" has no parameter \"%.*s\"",
                              JINJA_SHOW(node->text), JINJA_SHOW(a->names[i]));
    }
    return OK;
}

static const JinjaValue *named(const JinjaArguments *a, JinjaText name)
{
    for (size_t i = a->unnamed; i < a->count; i++)
        if (a->names[i].count == name.count && jinja_text_starts(name, a->names[i]))
            return &a->values[i];
    return NULL;
}

static Error set_parameters(JinjaRun *r, const JinjaNode *node, const JinjaArguments *a)
{
    size_t at = 0;
    for (const JinjaNode *n = node->other; n; n = n->next, at++) {
        const JinjaValue *given = at < a->unnamed ? &a->values[at] : named(a, n->text);
        JinjaValue value = {.kind = JINJA_UNDEFINED, .text = n->text};
        if (given) value = *given;
        else if (n->a) TRY(jinja_eval(r, n->a, &value));
        TRY(jinja_run_set(r, r->scope, n->text, value));
    }
    return OK;
}

Error jinja_statement_macro(JinjaRun *r, const JinjaMacro *m, const JinjaArguments *a,
                            const JinjaValue *caller, JinjaValue *out)
{
    JinjaScope *outer = r->scope;
    unsigned loops = r->loops;
    JinjaText text;
    TRY(check_arguments(r, m->node, a));
    TRY(jinja_run_scope(r, m->scope, &r->scope));
    TRY(set_parameters(r, m->node, a));
    if (caller) TRY(jinja_run_set(r, r->scope, jinja_value_words("caller"), *caller));
    r->loops = 0;
    TRY(capture(r, m->node->list, &text));
    r->loops = loops;
    r->scope = outer;
    *out = jinja_value_text(text);
    return OK;
}

static Error new_macro(JinjaRun *r, const JinjaNode *node, JinjaValue *out)
{
    JinjaMacro *macro = ARENA_NEW(r->arena, JinjaMacro, 1);
    if (!macro) return jinja_run_no_memory(r);
    *macro = (JinjaMacro){node, r->scope};
    *out = (JinjaValue){.kind = JINJA_MACRO, .macro = macro};
    return OK;
}

static Error run_macro(JinjaRun *r, const JinjaNode *node)
{
    JinjaValue macro;
    TRY(new_macro(r, node, &macro));
    return jinja_run_set(r, r->scope, node->text, macro);
}

static Error run_call_block(JinjaRun *r, const JinjaNode *node)
{
    JinjaValue callee, caller, out;
    JinjaArguments *a = arena_take_raw(r->arena, sizeof *a);
    if (!a) return jinja_run_no_memory(r);
    TRY(jinja_eval(r, node->a->a, &callee));
    TRY(jinja_eval_arguments(r, node->a->list, a));
    r->at = node;
    if (callee.kind != JINJA_MACRO) return jinja_run_fail(r, "call takes a macro");
    TRY(new_macro(r, node, &caller));
    TRY(jinja_statement_macro(r, callee.macro, a, &caller, &out));
    jinja_text_add(r->out, out.text);
    return OK;
}

/* ---- Loops ---- */

static Error chosen_items(JinjaRun *r, const JinjaNode *node, const JinjaList **items)
{
    JinjaList *chosen = ARENA_NEW(r->arena, JinjaList, 1);
    size_t room = 0;
    if (!chosen) return jinja_run_no_memory(r);
    JinjaScope *outer = r->scope;
    for (size_t i = 0; i < (*items)->count; i++) {
        JinjaValue truth;
        TRY(jinja_run_scope(r, outer, &r->scope));
        TRY(assign(r, node->a, &(*items)->items[i]));
        TRY(jinja_eval(r, node->c, &truth));
        if (jinja_value_true(&truth)) TRY(jinja_run_push(r, chosen, &room, (*items)->items[i]));
    }
    r->scope = outer;
    *items = chosen;
    return OK;
}

/* As compiled by Jinja: a loop whose every round was left early counts as one without items. */
static Error run_rounds(JinjaRun *r, const JinjaNode *node, JinjaLoop *loop, bool *completed)
{
    JinjaScope *outer = r->scope;
    JinjaValue value = {.kind = JINJA_LOOP, .loop = loop};
    for (; loop->index < loop->list->count && r->jump != JINJA_BREAK; loop->index++) {
        TRY(jinja_run_spend(r, 1));
        TRY(jinja_run_scope(r, outer, &r->scope));
        TRY(jinja_run_set(r, r->scope, jinja_value_words("loop"), value));
        TRY(assign(r, node->a, &loop->list->items[loop->index]));
        TRY(jinja_statement_body(r, node->list));
        *completed |= r->jump == JINJA_GO_ON;
        if (r->jump == JINJA_CONTINUE) r->jump = JINJA_GO_ON;
    }
    r->jump = JINJA_GO_ON;
    r->scope = outer;
    return OK;
}

static Error run_for(JinjaRun *r, const JinjaNode *node)
{
    JinjaValue rows;
    const JinjaList *items;
    TRY(jinja_eval(r, node->b, &rows));
    r->at = node;
    TRY(jinja_eval_items(r, &rows, &items));
    if (node->c) TRY(chosen_items(r, node, &items));
    bool completed = false;
    JinjaLoop *loop = ARENA_NEW(r->arena, JinjaLoop, 1);
    if (!loop) return jinja_run_no_memory(r);
    loop->list = items;
    loop->depth = ++r->loops;
    TRY(run_rounds(r, node, loop, &completed));
    r->loops--;
    return completed ? OK : jinja_statement_body(r, node->other);
}

/* ---- The other statements ---- */

static Error run_text(JinjaRun *r, const JinjaNode *node)
{
    jinja_text_add(r->out, node->text);
    return OK;
}

static Error run_print(JinjaRun *r, const JinjaNode *node)
{
    JinjaValue value;
    JinjaText text;
    TRY(jinja_eval(r, node->a, &value));
    TRY(jinja_write_str(r, &value, &text));
    jinja_text_add(r->out, text);
    return OK;
}

static Error run_if(JinjaRun *r, const JinjaNode *node)
{
    for (const JinjaNode *branch = node->list; branch; branch = branch->next) {
        JinjaValue truth = jinja_value_bool(true);
        if (branch->a) TRY(jinja_eval(r, branch->a, &truth));
        if (jinja_value_true(&truth)) return jinja_statement_body(r, branch->list);
    }
    return OK;
}

static Error run_set(JinjaRun *r, const JinjaNode *node)
{
    JinjaValue value;
    TRY(jinja_eval(r, node->b, &value));
    r->at = node;
    return assign(r, node->a, &value);
}

static Error run_set_block(JinjaRun *r, const JinjaNode *node)
{
    JinjaText text;
    TRY(capture_scoped(r, node->list, &text));
    JinjaValue value = jinja_value_text(text);
    TRY(jinja_eval_filters(r, node->b, &value));
    return assign(r, node->a, &value);
}

static Error run_filter_block(JinjaRun *r, const JinjaNode *node)
{
    JinjaText text;
    TRY(capture_scoped(r, node->list, &text));
    JinjaValue value = jinja_value_text(text);
    TRY(jinja_eval_filters(r, node->b, &value));
    TRY(jinja_write_str(r, &value, &text));
    jinja_text_add(r->out, text);
    return OK;
}

static Error run_with(JinjaRun *r, const JinjaNode *node)
{
    JinjaScope *outer = r->scope, *inner;
    TRY(jinja_run_scope(r, outer, &inner));
    for (const JinjaNode *n = node->other; n; n = n->next) {
        JinjaValue value;
        r->scope = outer;
        TRY(jinja_eval(r, n->b, &value));
        r->scope = inner;
        TRY(assign(r, n->a, &value));
    }
    r->scope = inner;
    TRY(jinja_statement_body(r, node->list));
    r->scope = outer;
    return OK;
}

static Error run_generation(JinjaRun *r, const JinjaNode *node)
{
    JinjaText text;
    TRY(capture_scoped(r, node->list, &text));
    jinja_text_add(r->out, text);
    return OK;
}

static Error run_jump(JinjaRun *r, const JinjaNode *node)
{
    r->jump = node->type == JINJA_NODE_BREAK ? JINJA_BREAK : JINJA_CONTINUE;
    return OK;
}

typedef Error (*Run)(JinjaRun *r, const JinjaNode *node);

static const Run runs[] = {
    [JINJA_NODE_TEXT] = run_text,
    [JINJA_NODE_PRINT] = run_print,
    [JINJA_NODE_IF] = run_if,
    [JINJA_NODE_FOR] = run_for,
    [JINJA_NODE_SET] = run_set,
    [JINJA_NODE_SET_BLOCK] = run_set_block,
    [JINJA_NODE_MACRO] = run_macro,
    [JINJA_NODE_CALL_BLOCK] = run_call_block,
    [JINJA_NODE_FILTER_BLOCK] = run_filter_block,
    [JINJA_NODE_WITH] = run_with,
    [JINJA_NODE_GENERATION] = run_generation,
    [JINJA_NODE_BREAK] = run_jump,
    [JINJA_NODE_CONTINUE] = run_jump,
};

/* Ends early when the output is full: no template writes for ever. */
Error jinja_statement_body(JinjaRun *r, const JinjaNode *list)
{
    if (!list) return OK;
    r->at = list;
    if (r->depth == JINJA_DEPTH_MAX)
        return JINJA_FAIL(r, ERR_TOO_LARGE, "deeper than %d levels", JINJA_DEPTH_MAX);
    r->depth++;
    for (const JinjaNode *node = list; node && r->jump == JINJA_GO_ON; node = node->next) {
        r->at = node;
        TRY(jinja_run_spend(r, 1));
        TRY(runs[node->type](r, node));
        if (!r->out->no_memory && !r->out->too_long) continue;
        JinjaText none;
        return jinja_run_finish(r, r->out, &none);
    }
    r->depth--;
    return OK;
}
