/* SPDX-License-Identifier: Apache-2.0 */
/* What stands behind `is`. */
#include "text/jinja_run.h"

typedef struct Is {
    const char *name;
    unsigned kinds; /* bits of JinjaKind */
} Is;

#define BIT(kind) (1u << (kind))

static const Is kinds[] = {
    {"undefined", BIT(JINJA_UNDEFINED)},
    {"none", BIT(JINJA_NONE)},
    {"boolean", BIT(JINJA_BOOL)},
    {"integer", BIT(JINJA_INT)},
    {"float", BIT(JINJA_FLOAT)},
    {"number", BIT(JINJA_BOOL) | BIT(JINJA_INT) | BIT(JINJA_FLOAT)},
    {"string", BIT(JINJA_TEXT)},
    {"mapping", BIT(JINJA_DICT)},
    {"iterable", BIT(JINJA_UNDEFINED) | BIT(JINJA_TEXT) | BIT(JINJA_LIST) | BIT(JINJA_TUPLE) |
                     BIT(JINJA_DICT) | BIT(JINJA_LOOP)},
    {"sequence",
     BIT(JINJA_UNDEFINED) | BIT(JINJA_TEXT) | BIT(JINJA_LIST) | BIT(JINJA_TUPLE) | BIT(JINJA_DICT)},
    {"callable", BIT(JINJA_UNDEFINED) | BIT(JINJA_MACRO) | BIT(JINJA_FUNCTION) | BIT(JINJA_METHOD) |
                     BIT(JINJA_LOOP)},
    {"escaped", 0},
};

typedef struct Compared {
    const char *name;
    JinjaOp op;
} Compared;

static const Compared compared[] = {
    {"eq", JINJA_OP_EQ},       {"equalto", JINJA_OP_EQ}, {"==", JINJA_OP_EQ},
    {"ne", JINJA_OP_NE},       {"!=", JINJA_OP_NE},      {"lt", JINJA_OP_LT},
    {"lessthan", JINJA_OP_LT}, {"<", JINJA_OP_LT},       {"le", JINJA_OP_LE},
    {"<=", JINJA_OP_LE},       {"gt", JINJA_OP_GT},      {"greaterthan", JINJA_OP_GT},
    {">", JINJA_OP_GT},        {"ge", JINJA_OP_GE},      {">=", JINJA_OP_GE},
    {"in", JINJA_OP_IN},
};

static Error is_divided(JinjaRun *r, const JinjaValue *v, const JinjaValue *by, bool *out)
{
    JinjaValue rest;
    TRY(jinja_math(r, JINJA_OP_MOD, v, by, &rest));
    *out = !jinja_value_true(&rest);
    return OK;
}

/* Identity: of None, truth values and small things it is equality of one kind. */
static bool is_same(const JinjaValue *v, const JinjaValue *as)
{
    if (v->kind != as->kind) return false;
    if (jinja_value_is_list(v)) return v->list == as->list;
    return v->kind == JINJA_DICT ? v->dict == as->dict : jinja_value_same(v, as);
}

static Error has_case(JinjaRun *r, const JinjaValue *v, bool upper, bool *out)
{
    JinjaText text, turned;
    TRY(jinja_write_str(r, v, &text));
    TRY(jinja_method_case(r, text, upper ? JINJA_CASE_UPPER : JINJA_CASE_LOWER, &turned));
    JinjaValue a = jinja_value_text(text), b = jinja_value_text(turned);
    /* no letter at all is neither */
    TRY(jinja_method_case(r, text, upper ? JINJA_CASE_LOWER : JINJA_CASE_UPPER, &turned));
    JinjaValue c = jinja_value_text(turned);
    *out = jinja_value_same(&a, &b) && !jinja_value_same(&a, &c);
    return OK;
}

static Error other_tests(JinjaRun *r, JinjaText name, const JinjaValue *v, const JinjaValue *with,
                         bool *out)
{
    JinjaValue two = jinja_value_int(2);
    *out = false;
    if (jinja_value_is(name, "defined")) *out = v->kind != JINJA_UNDEFINED;
    else if (jinja_value_is(name, "true")) *out = v->kind == JINJA_BOOL && v->truth;
    else if (jinja_value_is(name, "false")) *out = v->kind == JINJA_BOOL && !v->truth;
    else if (jinja_value_is(name, "even")) return is_divided(r, v, &two, out);
    else if (jinja_value_is(name, "upper")) return has_case(r, v, true, out);
    else if (jinja_value_is(name, "lower")) return has_case(r, v, false, out);
    else if (jinja_value_is(name, "odd")) {
        TRY(is_divided(r, v, &two, out));
        *out = !*out;
    } else if (with && jinja_value_is(name, "divisibleby")) return is_divided(r, v, with, out);
    else if (with && jinja_value_is(name, "sameas")) *out = is_same(v, with);
    else
        return JINJA_FAIL(r, ERR_UNSUPPORTED,
                          "the test \"%.*s\" is not supported, or lacks its argument",
                          JINJA_SHOW(name));
    return OK;
}

Error jinja_is(JinjaRun *r, JinjaText name, const JinjaValue *v, const JinjaArguments *a, bool *out)
{
    const JinjaValue *with = jinja_run_argument(a, 0, NULL);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (jinja_value_is(name, kinds[i].name)) {
            *out = kinds[i].kinds & BIT(v->kind);
            return OK;
        }
    for (size_t i = 0; with && i < sizeof compared / sizeof *compared; i++)
        if (jinja_value_is(name, compared[i].name))
            return jinja_math_compare(r, compared[i].op, v, with, out);
    return other_tests(r, name, v, with, out);
}
