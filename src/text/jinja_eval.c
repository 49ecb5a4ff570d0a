/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions: one function for each kind of node, which evaluates its children and asks the file that knows. */
#include <string.h>

#include "text/jinja_run.h"

static Error eval_constant(JinjaRun *r, const JinjaNode *node, JinjaValue *out)
{
    (void)r;
    *out = node->value;
    return OK;
}

static Error eval_name(JinjaRun *r, const JinjaNode *node, JinjaValue *out)
{
    for (const JinjaScope *s = r->scope; s; s = s->parent)
        for (const JinjaVariable *v = s->first; v; v = v->next) {
            TRY(jinja_run_spend(r, 1));
            if (v->name.count != node->text.count ||
                memcmp(v->name.bytes, node->text.bytes, v->name.count) != 0)
                continue;
            *out = v->value;
            return OK;
        }
    *out = (JinjaValue){.kind = JINJA_UNDEFINED, .text = node->text};
    if (jinja_function_exists(node->text)) out->kind = JINJA_FUNCTION;
    return OK;
}

static Error eval_row(JinjaRun *r, const JinjaNode *node, JinjaValue *out)
{
    JinjaList *list;
    size_t count = 0;
    for (const JinjaNode *n = node->list; n; n = n->next) count++;
    TRY(jinja_run_list(r, count, &list));
    count = 0;
    for (const JinjaNode *n = node->list; n; n = n->next)
        TRY(jinja_eval(r, n, &list->items[count++]));
    *out = (JinjaValue){.kind = node->type == JINJA_NODE_LIST ? JINJA_LIST : JINJA_TUPLE,
                        .list = list};
    return OK;
}

static Error eval_dict(JinjaRun *r, const JinjaNode *node, JinjaValue *out)
{
    JinjaDict *dict = jinja_value_dict(r->arena, 4);
    if (!dict) return jinja_run_no_memory(r);
    for (const JinjaNode *n = node->list; n; n = n->next->next) {
        JinjaValue key, value;
        TRY(jinja_eval(r, n, &key));
        TRY(jinja_eval(r, n->next, &value));
        if (key.kind == JINJA_LIST || key.kind == JINJA_DICT)
            return JINJA_FAIL(r, ERR_TYPE, "%s cannot be a key", jinja_value_kind(&key));
        TRY(jinja_run_spend(r, dict->count / 8));
        if (!jinja_value_put(r->arena, dict, key, value)) return jinja_run_no_memory(r);
    }
    *out = (JinjaValue){.kind = JINJA_DICT, .dict = dict};
    return OK;
}

static Error eval_member(JinjaRun *r, const JinjaNode *node, JinjaValue *out)
{
    JinjaValue of;
    TRY(jinja_eval(r, node->a, &of));
    r->at = node;
    return jinja_member_named(r, &of, node->text, out);
}

static Error eval_item(JinjaRun *r, const JinjaNode *node, JinjaValue *out)
{
    JinjaValue of, key;
    TRY(jinja_eval(r, node->a, &of));
    TRY(jinja_eval(r, node->b, &key));
    r->at = node;
    return jinja_member_item(r, &of, &key, out);
}

static Error eval_slice(JinjaRun *r, const JinjaNode *node, JinjaValue *out)
{
    JinjaValue of, bounds[3];
    const JinjaNode *bound = node->list;
    TRY(jinja_eval(r, node->a, &of));
    for (int i = 0; i < 3; i++, bound = bound->next) TRY(jinja_eval(r, bound, &bounds[i]));
    r->at = node;
    return jinja_member_slice(r, &of, bounds, out);
}

Error jinja_eval_arguments(JinjaRun *r, const JinjaNode *list, JinjaArguments *out)
{
    out->count = out->unnamed = 0;
    for (const JinjaNode *n = list; n; n = n->next) {
        bool named = n->type == JINJA_NODE_KEYWORD;
        if (out->count == JINJA_ARGUMENTS_MAX)
            return JINJA_FAIL(r, ERR_TOO_LARGE, "more than %d arguments", JINJA_ARGUMENTS_MAX);
        TRY(jinja_eval(r, named ? n->a : n, &out->values[out->count]));
        if (named) out->names[out->count] = n->text;
        else out->unnamed++;
        out->count++;
    }
    return OK;
}

/* loop.cycle(...) and loop.changed(...) come as methods of the loop. */
Error jinja_eval_call(JinjaRun *r, const JinjaValue *callee, JinjaArguments *a, JinjaValue *out)
{
    switch (callee->kind) {
    case JINJA_MACRO: return jinja_statement_macro(r, callee->macro, a, NULL, out);
    case JINJA_FUNCTION: return jinja_function_call(r, callee->text, a, out);
    case JINJA_METHOD: return jinja_method_call(r, callee->method, a, out);
    case JINJA_UNDEFINED:
        return JINJA_FAIL(r, ERR_TYPE, "\"%.*s\" is undefined, or not allowed",
                          JINJA_SHOW(callee->text));
    default: return JINJA_FAIL(r, ERR_TYPE, "%s cannot be called", jinja_value_kind(callee));
    }
}

/* Arguments are large: they live in the arena, not on the stack. */
static Error new_arguments(JinjaRun *r, const JinjaNode *list, JinjaArguments **out)
{
    *out = arena_take_raw(r->arena, sizeof **out);
    if (!*out) return jinja_run_no_memory(r);
    return jinja_eval_arguments(r, list, *out);
}

static Error eval_call(JinjaRun *r, const JinjaNode *node, JinjaValue *out)
{
    JinjaValue callee;
    JinjaArguments *a;
    TRY(jinja_eval(r, node->a, &callee));
    TRY(new_arguments(r, node->list, &a));
    r->at = node;
    return jinja_eval_call(r, &callee, a, out);
}

static Error apply_filter(JinjaRun *r, const JinjaNode *node, const JinjaValue *value,
                          JinjaValue *out)
{
    JinjaArguments *a;
    TRY(new_arguments(r, node->list, &a));
    r->at = node;
    return jinja_filter(r, node->text, value, a, out);
}

static Error eval_filter(JinjaRun *r, const JinjaNode *node, JinjaValue *out)
{
    JinjaValue value;
    TRY(jinja_eval(r, node->a, &value));
    return apply_filter(r, node, &value, out);
}

/* The chain of a filter or set block: its innermost node has no operand, which is *value. */
Error jinja_eval_filters(JinjaRun *r, const JinjaNode *filters, JinjaValue *value)
{
    if (!filters) return OK;
    if (filters->type != JINJA_NODE_FILTER) return jinja_run_fail(r, "only filters may stand here");
    TRY(jinja_eval_filters(r, filters->a, value));
    JinjaValue before = *value;
    return apply_filter(r, filters, &before, value);
}

static Error eval_test(JinjaRun *r, const JinjaNode *node, JinjaValue *out)
{
    JinjaValue value;
    JinjaArguments *a;
    bool truth;
    TRY(jinja_eval(r, node->a, &value));
    TRY(new_arguments(r, node->list, &a));
    r->at = node;
    TRY(jinja_is(r, node->text, &value, a, &truth));
    *out = jinja_value_bool(truth);
    return OK;
}

static Error eval_sign(JinjaRun *r, const JinjaNode *node, JinjaValue *out)
{
    JinjaValue value;
    TRY(jinja_eval(r, node->a, &value));
    r->at = node;
    *out = value;
    if (node->type == JINJA_NODE_NOT) *out = jinja_value_bool(!jinja_value_true(&value));
    else if (node->type == JINJA_NODE_MINUS) return jinja_math_negate(r, &value, out);
    else if (!jinja_value_is_number(&value)) return jinja_run_fail(r, "a number is needed");
    return OK;
}

static Error eval_logic(JinjaRun *r, const JinjaNode *node, JinjaValue *out)
{
    TRY(jinja_eval(r, node->a, out));
    bool decided = jinja_value_true(out) == (node->type == JINJA_NODE_OR);
    return decided ? OK : jinja_eval(r, node->b, out);
}

static Error eval_choice(JinjaRun *r, const JinjaNode *node, JinjaValue *out)
{
    TRY(jinja_eval(r, node->b, out));
    if (jinja_value_true(out)) return jinja_eval(r, node->a, out);
    if (node->c) return jinja_eval(r, node->c, out);
    *out = (JinjaValue){.kind = JINJA_UNDEFINED, .text = jinja_value_words("else")};
    return OK;
}

static Error eval_join(JinjaRun *r, const JinjaNode *node, JinjaValue *out)
{
    JinjaBuilder b = jinja_run_builder(r);
    JinjaText text;
    for (const JinjaNode *n = node->list; n; n = n->next) {
        TRY(jinja_eval(r, n, out));
        TRY(jinja_write_str(r, out, &text));
        jinja_text_add(&b, text);
    }
    r->at = node;
    TRY(jinja_run_finish(r, &b, &text));
    *out = jinja_value_text(text);
    return OK;
}

static Error eval_math(JinjaRun *r, const JinjaNode *node, JinjaValue *out)
{
    JinjaValue a, b;
    TRY(jinja_eval(r, node->a, &a));
    TRY(jinja_eval(r, node->b, &b));
    r->at = node;
    return jinja_math(r, node->op, &a, &b, out);
}

static Error eval_compare(JinjaRun *r, const JinjaNode *node, JinjaValue *out)
{
    JinjaValue left, right;
    bool truth = true;
    TRY(jinja_eval(r, node->a, &left));
    for (const JinjaNode *n = node->list; n && truth; n = n->next) {
        TRY(jinja_eval(r, n->a, &right));
        r->at = node;
        TRY(jinja_math_compare(r, n->op, &left, &right, &truth));
        left = right;
    }
    *out = jinja_value_bool(truth);
    return OK;
}

typedef Error (*Eval)(JinjaRun *r, const JinjaNode *node, JinjaValue *out);

static const Eval evals[] = {
    [JINJA_NODE_CONSTANT] = eval_constant, [JINJA_NODE_NAME] = eval_name,
    [JINJA_NODE_LIST] = eval_row,          [JINJA_NODE_TUPLE] = eval_row,
    [JINJA_NODE_DICT] = eval_dict,         [JINJA_NODE_MEMBER] = eval_member,
    [JINJA_NODE_ITEM] = eval_item,         [JINJA_NODE_SLICE] = eval_slice,
    [JINJA_NODE_CALL] = eval_call,         [JINJA_NODE_FILTER] = eval_filter,
    [JINJA_NODE_TEST] = eval_test,         [JINJA_NODE_NOT] = eval_sign,
    [JINJA_NODE_MINUS] = eval_sign,        [JINJA_NODE_PLUS] = eval_sign,
    [JINJA_NODE_AND] = eval_logic,         [JINJA_NODE_OR] = eval_logic,
    [JINJA_NODE_CHOICE] = eval_choice,     [JINJA_NODE_JOIN] = eval_join,
    [JINJA_NODE_MATH] = eval_math,         [JINJA_NODE_COMPARE] = eval_compare,
};

Error jinja_eval(JinjaRun *r, const JinjaNode *node, JinjaValue *out)
{
    JinjaValue value;
    r->at = node;
    TRY(jinja_run_spend(r, 1));
    if (r->depth == JINJA_DEPTH_MAX)
        return JINJA_FAIL(r, ERR_TOO_LARGE, "deeper than %d levels", JINJA_DEPTH_MAX);
    r->depth++;
    ASSERT(node->type < sizeof evals / sizeof *evals && evals[node->type]);
    TRY(evals[node->type](r, node, &value));
    r->depth--;
    *out = value;
    return OK;
}

/* ---- What a loop sees ---- */

static Error characters(JinjaRun *r, JinjaText t, const JinjaList **out)
{
    JinjaList *list;
    TRY(jinja_run_list(r, jinja_text_characters(t), &list));
    size_t at = 0;
    for (size_t i = 0; i < list->count; i++) {
        size_t length = jinja_text_step(t, at);
        list->items[i] = jinja_value_text(jinja_text_cut(t, at, at + length));
        at += length;
    }
    *out = list;
    return OK;
}

Error jinja_eval_items(JinjaRun *r, const JinjaValue *v, const JinjaList **out)
{
    static const JinjaList none = {NULL, 0};
    JinjaList *list;
    switch (v->kind) {
    case JINJA_UNDEFINED: *out = &none; return OK;
    case JINJA_LIST:
    case JINJA_TUPLE: *out = v->list; return OK;
    case JINJA_TEXT: return characters(r, v->text, out);
    case JINJA_DICT:
        TRY(jinja_run_list(r, v->dict->count, &list));
        for (size_t i = 0; i < list->count; i++) list->items[i] = v->dict->pairs[i].key;
        *out = list;
        return OK;
    default: return JINJA_FAIL(r, ERR_TYPE, "%s is no row of items", jinja_value_kind(v));
    }
}
