/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic and comparison with Python's meaning: / gives a float, // and % go to minus infinity, texts and
 * lists add and repeat, an order exists only between values of one kind. Ints have 64 bits; beyond them is an
 * error, not a wrong number. */
#include "text/jinja_number.h"
#include "text/jinja_run.h"

static const char *op_sign(JinjaOp op)
{
    static const char *const signs[] = {"",   "+",  "-", "*",  "/", "//", "%",  "**",
                                        "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
    return signs[op];
}

static Error unsupported(JinjaRun *r, JinjaOp op, const JinjaValue *a, const JinjaValue *b)
{
    if (a->kind == JINJA_UNDEFINED || b->kind == JINJA_UNDEFINED) {
        const JinjaValue *v = a->kind == JINJA_UNDEFINED ? a : b;
        return JINJA_FAIL(r, ERR_TYPE, "\"%.*s\" is undefined", JINJA_SHOW(v->text));
    }
    return JINJA_FAIL(r, ERR_TYPE, "%s %s %s has no meaning", jinja_value_kind(a), op_sign(op),
                      jinja_value_kind(b));
}

static Error overflow(JinjaRun *r) { return jinja_run_fail(r, "a whole number beyond 64 bits"); }

static Error divide_ints(JinjaRun *r, JinjaOp op, int64_t x, int64_t y, JinjaValue *out)
{
    if (y == 0) return jinja_run_fail(r, "division by zero");
    if (x == INT64_MIN && y == -1) return overflow(r);
    int64_t quotient = x / y, rest = x % y;
    if (rest && (rest < 0) != (y < 0)) {
        quotient--;
        rest += y;
    }
    *out = jinja_value_int(op == JINJA_OP_FLOOR ? quotient : rest);
    return OK;
}

static Error power(JinjaRun *r, int64_t x, int64_t y, JinjaValue *out)
{
    int64_t result = 1;
    if (y < 0) return jinja_run_fail(r, "a power with a negative exponent is not supported");
    if (x >= -1 && x <= 1 && y > 2) y = 2 - (y & 1); /* all powers of these are there */
    for (int64_t i = 0; i < y; i++)
        if (__builtin_mul_overflow(result, x, &result)) return overflow(r);
    *out = jinja_value_int(result);
    return OK;
}

static Error math_ints(JinjaRun *r, JinjaOp op, int64_t x, int64_t y, JinjaValue *out)
{
    int64_t z = 0;
    bool over = false;
    switch (op) {
    case JINJA_OP_ADD: over = __builtin_add_overflow(x, y, &z); break;
    case JINJA_OP_SUB: over = __builtin_sub_overflow(x, y, &z); break;
    case JINJA_OP_MUL: over = __builtin_mul_overflow(x, y, &z); break;
    case JINJA_OP_POW: return power(r, x, y, out);
    case JINJA_OP_DIV:
        if (y == 0) return jinja_run_fail(r, "division by zero");
        *out = jinja_value_float((double)x / (double)y);
        return OK;
    default: return divide_ints(r, op, x, y, out);
    }
    *out = jinja_value_int(z);
    return over ? overflow(r) : OK;
}

static Error math_floats(JinjaRun *r, JinjaOp op, double x, double y, JinjaValue *out)
{
    double z = 0;
    if (y == 0 && op >= JINJA_OP_DIV && op <= JINJA_OP_MOD)
        return jinja_run_fail(r, "division by zero");
    switch (op) {
    case JINJA_OP_ADD: z = x + y; break;
    case JINJA_OP_SUB: z = x - y; break;
    case JINJA_OP_MUL: z = x * y; break;
    case JINJA_OP_DIV: z = x / y; break;
    case JINJA_OP_FLOOR: z = jinja_number_floor(x / y); break;
    case JINJA_OP_MOD: z = x - jinja_number_floor(x / y) * y; break;
    default: return jinja_run_fail(r, "powers of floats are not supported");
    }
    *out = jinja_value_float(z);
    return OK;
}

static bool is_int(const JinjaValue *v) { return v->kind == JINJA_INT || v->kind == JINJA_BOOL; }

static int64_t int_of(const JinjaValue *v) { return v->kind == JINJA_INT ? v->integer : v->truth; }

static Error add_lists(JinjaRun *r, const JinjaValue *a, const JinjaValue *b, JinjaValue *out)
{
    JinjaList *list;
    size_t first = a->list->count;
    TRY(jinja_run_list(r, first + b->list->count, &list));
    for (size_t i = 0; i < list->count; i++)
        list->items[i] = i < first ? a->list->items[i] : b->list->items[i - first];
    *out = (JinjaValue){.kind = a->kind, .list = list};
    return OK;
}

static Error repeat(JinjaRun *r, const JinjaValue *v, int64_t times, JinjaValue *out)
{
    if (v->kind == JINJA_TEXT) {
        JinjaBuilder b = jinja_run_builder(r);
        JinjaText text;
        for (int64_t i = 0; i < times && v->text.count; i++) {
            TRY(jinja_run_spend(r, 1));
            jinja_text_add(&b, v->text);
        }
        TRY(jinja_run_finish(r, &b, &text));
        *out = jinja_value_text(text);
        return OK;
    }
    JinjaList *list;
    size_t count = v->list->count, all;
    if (times < 0) times = 0;
    if (__builtin_mul_overflow(count, (size_t)times, &all)) return jinja_run_no_memory(r);
    TRY(jinja_run_list(r, all, &list));
    for (size_t i = 0; i < all; i++) list->items[i] = v->list->items[i % count];
    *out = (JinjaValue){.kind = v->kind, .list = list};
    return OK;
}

static bool repeats(const JinjaValue *v) { return v->kind == JINJA_TEXT || jinja_value_is_list(v); }

static Error add_texts(JinjaRun *r, const JinjaValue *a, const JinjaValue *b, JinjaValue *out)
{
    JinjaBuilder sum = jinja_run_builder(r);
    jinja_text_add(&sum, a->text);
    jinja_text_add(&sum, b->text);
    JinjaText text;
    TRY(jinja_run_finish(r, &sum, &text));
    *out = jinja_value_text(text);
    return OK;
}

static Error percent(JinjaRun *r, const JinjaValue *a, const JinjaValue *b, JinjaValue *out)
{
    bool many = b->kind == JINJA_TUPLE;
    JinjaText text;
    TRY(jinja_format_percent(r, a->text, many ? b->list->items : b, many ? b->list->count : 1,
                             &text));
    *out = jinja_value_text(text);
    return OK;
}

Error jinja_math(JinjaRun *r, JinjaOp op, const JinjaValue *a, const JinjaValue *b, JinjaValue *out)
{
    if (is_int(a) && is_int(b)) return math_ints(r, op, int_of(a), int_of(b), out);
    if (jinja_value_is_number(a) && jinja_value_is_number(b))
        return math_floats(r, op, jinja_value_number(a), jinja_value_number(b), out);
    if (op == JINJA_OP_ADD && a->kind == JINJA_TEXT && b->kind == JINJA_TEXT)
        return add_texts(r, a, b, out);
    if (op == JINJA_OP_ADD && jinja_value_is_list(a) && a->kind == b->kind)
        return add_lists(r, a, b, out);
    if (op == JINJA_OP_MUL && repeats(a) && is_int(b)) return repeat(r, a, int_of(b), out);
    if (op == JINJA_OP_MUL && is_int(a) && repeats(b)) return repeat(r, b, int_of(a), out);
    if (op == JINJA_OP_MOD && a->kind == JINJA_TEXT) return percent(r, a, b, out);
    return unsupported(r, op, a, b);
}

Error jinja_math_negate(JinjaRun *r, const JinjaValue *a, JinjaValue *out)
{
    if (a->kind == JINJA_FLOAT) {
        *out = jinja_value_float(-a->number);
        return OK;
    }
    if (!is_int(a)) return JINJA_FAIL(r, ERR_TYPE, "-%s has no meaning", jinja_value_kind(a));
    return math_ints(r, JINJA_OP_SUB, 0, int_of(a), out);
}

Error jinja_math_order(JinjaRun *r, const JinjaValue *a, const JinjaValue *b, int *out)
{
    *out = jinja_value_order(a, b);
    return *out == -2 ? unsupported(r, JINJA_OP_LT, a, b) : OK;
}

static Error contains(JinjaRun *r, const JinjaValue *item, const JinjaValue *in, bool *out)
{
    *out = false;
    if (in->kind == JINJA_TEXT) {
        if (item->kind != JINJA_TEXT) return unsupported(r, JINJA_OP_IN, item, in);
        TRY(jinja_run_spend(r, in->text.count / 64));
        *out = item->text.count == 0 || jinja_text_find(in->text, item->text, 0) < in->text.count;
    } else if (in->kind == JINJA_DICT) {
        TRY(jinja_run_spend(r, in->dict->count / 4));
        *out = jinja_value_get(in->dict, *item) != NULL;
    } else if (jinja_value_is_list(in)) {
        TRY(jinja_run_spend(r, in->list->count / 4));
        for (size_t i = 0; i < in->list->count && !*out; i++)
            *out = jinja_value_same(&in->list->items[i], item);
    } else if (in->kind != JINJA_UNDEFINED) {
        return unsupported(r, JINJA_OP_IN, item, in);
    }
    return OK;
}

Error jinja_math_compare(JinjaRun *r, JinjaOp op, const JinjaValue *a, const JinjaValue *b,
                         bool *out)
{
    int order;
    TRY(jinja_run_spend(r, a->kind == JINJA_TEXT ? a->text.count / 64 : 1));
    switch (op) {
    case JINJA_OP_EQ: *out = jinja_value_same(a, b); return OK;
    case JINJA_OP_NE: *out = !jinja_value_same(a, b); return OK;
    case JINJA_OP_IN: return contains(r, a, b, out);
    case JINJA_OP_NOT_IN:
        TRY(contains(r, a, b, out));
        *out = !*out;
        return OK;
    default: break;
    }
    order = jinja_value_order(a, b);
    if (order == -2) return unsupported(r, op, a, b);
    *out = op == JINJA_OP_LT   ? order < 0
           : op == JINJA_OP_LE ? order <= 0
           : op == JINJA_OP_GT ? order > 0
                               : order >= 0;
    return OK;
}
