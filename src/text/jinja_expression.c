/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions, from what binds least to what binds most:
 *
 *   a if b else c    or    and    not    == != < <= > >= in, not in    + -    ~    * / // %    - +    **    .
 * [] () | is */
#include "text/jinja_parser.h"

typedef Error (*Reader)(JinjaParser *p, JinjaNode **out);

static Error read_unary(JinjaParser *p, bool filters, JinjaNode **out);

static Error enter(JinjaParser *p)
{
    if (p->depth == JINJA_NESTING_MAX) return jinja_parser_fail(p, "nested too deeply");
    p->depth++;
    return OK;
}

/* A node whose first child is *left takes its place. */
static Error wrap(JinjaParser *p, JinjaType type, JinjaNode **left)
{
    JinjaNode *node;
    TRY(jinja_parser_node(p, type, &node));
    node->a = *left;
    *left = node;
    return OK;
}

static JinjaOp sign_op(const JinjaParser *p, const char *const *signs, const JinjaOp *ops,
                       size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (jinja_parser_is_sign(p, signs[i])) return ops[i];
    return JINJA_OP_NONE;
}

/* ---- Powers, products, sums ---- */

/* A chain of one level hangs to the left, so it is as deep as it is long. */
static Error chained(JinjaParser *p, unsigned *length)
{
    return ++*length > JINJA_NESTING_MAX ? jinja_parser_fail(p, "too many operators in a row") : OK;
}

static Error read_power(JinjaParser *p, JinjaNode **out)
{
    unsigned length = 0;
    TRY(read_unary(p, true, out));
    while (jinja_parser_is_sign(p, "**")) {
        TRY(chained(p, &length));
        TRY(wrap(p, JINJA_NODE_MATH, out));
        (*out)->op = JINJA_OP_POW;
        TRY(jinja_parser_step(p));
        TRY(read_unary(p, true, &(*out)->b));
    }
    return OK;
}

static Error read_chain(JinjaParser *p, const char *const *signs, const JinjaOp *ops, size_t count,
                        Reader operand, JinjaNode **out)
{
    unsigned length = 0;
    TRY(operand(p, out));
    for (JinjaOp op; (op = sign_op(p, signs, ops, count)) != JINJA_OP_NONE;) {
        TRY(chained(p, &length));
        TRY(wrap(p, JINJA_NODE_MATH, out));
        (*out)->op = op;
        TRY(jinja_parser_step(p));
        TRY(operand(p, &(*out)->b));
    }
    return OK;
}

static Error read_product(JinjaParser *p, JinjaNode **out)
{
    static const char *const signs[] = {"*", "/", "//", "%"};
    static const JinjaOp ops[] = {JINJA_OP_MUL, JINJA_OP_DIV, JINJA_OP_FLOOR, JINJA_OP_MOD};
    return read_chain(p, signs, ops, 4, read_power, out);
}

static Error read_join(JinjaParser *p, JinjaNode **out)
{
    TRY(read_product(p, out));
    if (!jinja_parser_is_sign(p, "~")) return OK;
    JinjaNode *node, **end;
    TRY(jinja_parser_node(p, JINJA_NODE_JOIN, &node));
    node->list = *out;
    for (end = &node->list->next; jinja_parser_is_sign(p, "~"); end = &(*end)->next) {
        TRY(jinja_parser_step(p));
        TRY(read_product(p, end));
    }
    *out = node;
    return OK;
}

static Error read_sum(JinjaParser *p, JinjaNode **out)
{
    static const char *const signs[] = {"+", "-"};
    static const JinjaOp ops[] = {JINJA_OP_ADD, JINJA_OP_SUB};
    return read_chain(p, signs, ops, 2, read_join, out);
}

/* ---- Comparisons and logic ---- */

static Error compare_op(JinjaParser *p, JinjaOp *op)
{
    static const char *const signs[] = {"==", "!=", "<", "<=", ">", ">="};
    static const JinjaOp ops[] = {JINJA_OP_EQ, JINJA_OP_NE, JINJA_OP_LT,
                                  JINJA_OP_LE, JINJA_OP_GT, JINJA_OP_GE};
    *op = sign_op(p, signs, ops, 6);
    if (jinja_parser_is_word(p, "in")) *op = JINJA_OP_IN;
    if (*op != JINJA_OP_NONE) return jinja_parser_step(p);
    if (!jinja_parser_is_word(p, "not")) return OK;
    JinjaParser ahead = *p;
    TRY(jinja_parser_step(&ahead));
    if (!jinja_parser_is_word(&ahead, "in")) return OK;
    *op = JINJA_OP_NOT_IN;
    *p = ahead;
    return jinja_parser_step(p);
}

static Error read_compare(JinjaParser *p, JinjaNode **out)
{
    JinjaNode **end = NULL;
    TRY(read_sum(p, out));
    for (JinjaOp op;;) {
        TRY(compare_op(p, &op));
        if (op == JINJA_OP_NONE) return OK;
        if (!end) {
            TRY(wrap(p, JINJA_NODE_COMPARE, out));
            end = &(*out)->list;
        }
        JinjaNode *operand; /* carries the comparison; what it holds may have an op of its own */
        TRY(jinja_parser_node(p, JINJA_NODE_KEYWORD, &operand));
        operand->op = op;
        TRY(read_sum(p, &operand->a));
        *end = operand;
        end = &operand->next;
    }
}

static Error read_not(JinjaParser *p, JinjaNode **out)
{
    if (!jinja_parser_is_word(p, "not")) return read_compare(p, out);
    TRY(enter(p));
    TRY(jinja_parser_node(p, JINJA_NODE_NOT, out));
    TRY(jinja_parser_step(p));
    TRY(read_not(p, &(*out)->a));
    p->depth--;
    return OK;
}

static Error read_words(JinjaParser *p, const char *word, JinjaType type, Reader operand,
                        JinjaNode **out)
{
    unsigned length = 0;
    TRY(operand(p, out));
    while (jinja_parser_is_word(p, word)) {
        TRY(chained(p, &length));
        TRY(wrap(p, type, out));
        TRY(jinja_parser_step(p));
        TRY(operand(p, &(*out)->b));
    }
    return OK;
}

static Error read_and(JinjaParser *p, JinjaNode **out)
{
    return read_words(p, "and", JINJA_NODE_AND, read_not, out);
}

static Error read_or(JinjaParser *p, JinjaNode **out)
{
    return read_words(p, "or", JINJA_NODE_OR, read_and, out);
}

static Error read_choice(JinjaParser *p, JinjaNode **out)
{
    unsigned length = 0;
    bool more;
    TRY(read_or(p, out));
    while (jinja_parser_is_word(p, "if")) {
        TRY(chained(p, &length));
        TRY(wrap(p, JINJA_NODE_CHOICE, out));
        TRY(jinja_parser_step(p));
        TRY(read_or(p, &(*out)->b));
        TRY(jinja_parser_skip_word(p, "else", &more));
        if (more) TRY(jinja_expression_read(p, true, &(*out)->c));
    }
    return OK;
}

Error jinja_expression_read(JinjaParser *p, bool choice, JinjaNode **out)
{
    TRY(enter(p));
    TRY(choice ? read_choice(p, out) : read_or(p, out));
    p->depth--;
    return OK;
}

/* ---- Rows ---- */

static bool ends_tuple(const JinjaParser *p)
{
    return p->token.type == JINJA_TOKEN_BLOCK_END || p->token.type == JINJA_TOKEN_PRINT_END ||
           jinja_parser_is_sign(p, ")") || jinja_parser_is_sign(p, "=") ||
           jinja_parser_is_word(p, "in");
}

Error jinja_expression_tuple(JinjaParser *p, bool choice, JinjaNode **out)
{
    JinjaNode *first;
    TRY(jinja_expression_read(p, choice, &first));
    *out = first;
    if (!jinja_parser_is_sign(p, ",")) return OK;
    TRY(jinja_parser_node(p, JINJA_NODE_TUPLE, out));
    (*out)->list = first;
    for (JinjaNode **end = &first->next; jinja_parser_is_sign(p, ",");) {
        TRY(jinja_parser_step(p));
        if (ends_tuple(p)) break;
        TRY(jinja_expression_read(p, choice, end));
        end = &(*end)->next;
    }
    return OK;
}

/* Items up to `close`, which is taken; in a dictionary keys and values take turns. */
static Error read_items(JinjaParser *p, const char *close, bool pairs, JinjaNode **list)
{
    TRY(jinja_parser_step(p));
    for (bool more = true; !jinja_parser_is_sign(p, close);) {
        if (!more) return jinja_parser_fail(p, "a comma is missing");
        TRY(jinja_expression_read(p, true, list));
        list = &(*list)->next;
        if (pairs) {
            TRY(jinja_parser_expect_sign(p, ":"));
            TRY(jinja_expression_read(p, true, list));
            list = &(*list)->next;
        }
        TRY(jinja_parser_skip_sign(p, ",", &more));
    }
    return jinja_parser_step(p);
}

static Error read_parentheses(JinjaParser *p, JinjaNode **out)
{
    TRY(jinja_parser_step(p));
    if (jinja_parser_is_sign(p, ")")) TRY(jinja_parser_node(p, JINJA_NODE_TUPLE, out));
    else TRY(jinja_expression_tuple(p, true, out));
    return jinja_parser_expect_sign(p, ")");
}

/* (a, b, key=c): the opening one is the token. */
static Error read_arguments(JinjaParser *p, JinjaNode **list)
{
    TRY(jinja_parser_step(p));
    for (bool more = true, named = false; !jinja_parser_is_sign(p, ")");) {
        if (!more) return jinja_parser_fail(p, "a comma is missing");
        if (jinja_parser_is_sign(p, "*") || jinja_parser_is_sign(p, "**"))
            return jinja_parser_fail(p, "arguments with * are not supported");
        JinjaParser ahead = *p;
        TRY(jinja_parser_step(&ahead));
        if (p->token.type == JINJA_TOKEN_NAME && jinja_parser_is_sign(&ahead, "=")) {
            TRY(jinja_parser_node(p, JINJA_NODE_KEYWORD, list));
            (*list)->text = p->token.text;
            *p = ahead;
            TRY(jinja_parser_step(p));
            TRY(jinja_expression_read(p, true, &(*list)->a));
            named = true;
        } else {
            if (named) return jinja_parser_fail(p, "an argument without name behind one with");
            TRY(jinja_expression_read(p, true, list));
        }
        list = &(*list)->next;
        TRY(jinja_parser_skip_sign(p, ",", &more));
    }
    return jinja_parser_step(p);
}

/* ---- Primaries ---- */

static Error read_strings(JinjaParser *p, JinjaNode **out)
{
    TRY(jinja_parser_node(p, JINJA_NODE_CONSTANT, out));
    (*out)->value = jinja_value_text(p->token.text);
    TRY(jinja_parser_step(p));
    if (p->token.type != JINJA_TOKEN_STRING) return OK;
    JinjaNode *join, **end = &(*out)->next; /* 'a' 'b' */
    TRY(jinja_parser_node(p, JINJA_NODE_JOIN, &join));
    join->list = *out;
    for (; p->token.type == JINJA_TOKEN_STRING; end = &(*end)->next) {
        TRY(jinja_parser_node(p, JINJA_NODE_CONSTANT, end));
        (*end)->value = jinja_value_text(p->token.text);
        TRY(jinja_parser_step(p));
    }
    *out = join;
    return OK;
}

static Error read_name(JinjaParser *p, JinjaNode **out)
{
    static const char *const words[] = {"true", "True", "false", "False", "none", "None"};
    TRY(jinja_parser_node(p, JINJA_NODE_NAME, out));
    (*out)->text = p->token.text;
    for (unsigned i = 0; i < 6; i++)
        if (jinja_parser_is_word(p, words[i])) {
            (*out)->type = JINJA_NODE_CONSTANT;
            (*out)->value = i < 4 ? jinja_value_bool(i < 2) : jinja_value_none();
        }
    return jinja_parser_step(p);
}

Error jinja_expression_primary(JinjaParser *p, JinjaNode **out)
{
    switch (p->token.type) {
    case JINJA_TOKEN_NAME: return read_name(p, out);
    case JINJA_TOKEN_STRING: return read_strings(p, out);
    case JINJA_TOKEN_NUMBER:
        TRY(jinja_parser_node(p, JINJA_NODE_CONSTANT, out));
        (*out)->value = p->token.number;
        return jinja_parser_step(p);
    default: break;
    }
    if (jinja_parser_is_sign(p, "(")) return read_parentheses(p, out);
    bool list = jinja_parser_is_sign(p, "[");
    if (!list && !jinja_parser_is_sign(p, "{"))
        return jinja_parser_fail(p, "an expression is missing");
    TRY(jinja_parser_node(p, list ? JINJA_NODE_LIST : JINJA_NODE_DICT, out));
    return read_items(p, list ? "]" : "}", !list, &(*out)->list);
}

/* ---- What follows a primary ---- */

static Error read_bound(JinjaParser *p, JinjaNode **out)
{
    if (!jinja_parser_is_sign(p, ":") && !jinja_parser_is_sign(p, "]"))
        return jinja_expression_read(p, true, out);
    TRY(jinja_parser_node(p, JINJA_NODE_CONSTANT, out));
    (*out)->value = jinja_value_none();
    return OK;
}

static Error read_item(JinjaParser *p, JinjaNode **node)
{
    JinjaNode *first, **end;
    TRY(wrap(p, JINJA_NODE_ITEM, node));
    TRY(jinja_parser_step(p));
    TRY(read_bound(p, &first));
    if (!jinja_parser_is_sign(p, ":")) {
        (*node)->b = first;
        return jinja_parser_expect_sign(p, "]");
    }
    (*node)->type = JINJA_NODE_SLICE;
    (*node)->list = first;
    end = &first->next;
    for (int part = 1; part < 3; part++) {
        bool more;
        TRY(jinja_parser_skip_sign(p, ":", &more));
        TRY(read_bound(p, end));
        end = &(*end)->next;
    }
    return jinja_parser_expect_sign(p, "]");
}

static Error read_member(JinjaParser *p, JinjaNode **node)
{
    TRY(jinja_parser_step(p));
    if (p->token.type == JINJA_TOKEN_NUMBER && p->token.number.kind == JINJA_INT) {
        TRY(wrap(p, JINJA_NODE_ITEM, node));
        TRY(jinja_parser_node(p, JINJA_NODE_CONSTANT, &(*node)->b));
        (*node)->b->value = p->token.number;
        return jinja_parser_step(p);
    }
    TRY(wrap(p, JINJA_NODE_MEMBER, node));
    return jinja_parser_name(p, &(*node)->text);
}

static Error read_call(JinjaParser *p, JinjaNode **node)
{
    TRY(wrap(p, JINJA_NODE_CALL, node));
    return read_arguments(p, &(*node)->list);
}

Error jinja_expression_postfix(JinjaParser *p, JinjaNode **node)
{
    unsigned length = 0;
    for (;;) {
        TRY(chained(p, &length));
        if (jinja_parser_is_sign(p, ".")) TRY(read_member(p, node));
        else if (jinja_parser_is_sign(p, "[")) TRY(read_item(p, node));
        else if (jinja_parser_is_sign(p, "(")) TRY(read_call(p, node));
        else return OK;
    }
}

static Error read_filter(JinjaParser *p, JinjaNode **node)
{
    TRY(wrap(p, JINJA_NODE_FILTER, node));
    TRY(jinja_parser_name(p, &(*node)->text));
    return jinja_parser_is_sign(p, "(") ? read_arguments(p, &(*node)->list) : OK;
}

static bool begins_argument(const JinjaParser *p)
{
    if (p->token.type == JINJA_TOKEN_NAME)
        return !jinja_parser_is_word(p, "else") && !jinja_parser_is_word(p, "or") &&
               !jinja_parser_is_word(p, "and") && !jinja_parser_is_word(p, "is");
    return p->token.type == JINJA_TOKEN_STRING || p->token.type == JINJA_TOKEN_NUMBER ||
           jinja_parser_is_sign(p, "[") || jinja_parser_is_sign(p, "{");
}

static Error read_test(JinjaParser *p, JinjaNode **node)
{
    bool negated;
    TRY(jinja_parser_step(p));
    TRY(jinja_parser_skip_word(p, "not", &negated));
    TRY(wrap(p, JINJA_NODE_TEST, node));
    JinjaNode *test = *node;
    TRY(jinja_parser_name(p, &test->text));
    if (jinja_parser_is_sign(p, "(")) {
        TRY(read_arguments(p, &test->list));
    } else if (begins_argument(p)) {
        TRY(jinja_expression_primary(p, &test->list));
        TRY(jinja_expression_postfix(p, &test->list));
    }
    return negated ? wrap(p, JINJA_NODE_NOT, node) : OK;
}

Error jinja_expression_filters(JinjaParser *p, JinjaNode **node, bool first)
{
    unsigned length = 0;
    for (;; first = false) {
        TRY(chained(p, &length));
        bool pipe = first;
        if (!first) TRY(jinja_parser_skip_sign(p, "|", &pipe));
        if (pipe) TRY(read_filter(p, node));
        else if (jinja_parser_is_word(p, "is")) TRY(read_test(p, node));
        else if (jinja_parser_is_sign(p, "(")) TRY(read_call(p, node));
        else return OK;
    }
}

static Error read_unary(JinjaParser *p, bool filters, JinjaNode **out)
{
    TRY(enter(p));
    bool minus = jinja_parser_is_sign(p, "-"), plus = jinja_parser_is_sign(p, "+");
    if (minus || plus) {
        TRY(jinja_parser_node(p, minus ? JINJA_NODE_MINUS : JINJA_NODE_PLUS, out));
        TRY(jinja_parser_step(p));
        TRY(read_unary(p, false, &(*out)->a));
    } else {
        TRY(jinja_expression_primary(p, out));
    }
    TRY(jinja_expression_postfix(p, out));
    if (filters) TRY(jinja_expression_filters(p, out, false));
    p->depth--;
    return OK;
}

/* ---- Targets ---- */

static Error read_target(JinjaParser *p, bool member, JinjaNode **out)
{
    bool group;
    TRY(jinja_parser_skip_sign(p, "(", &group));
    if (group) {
        TRY(enter(p));
        TRY(jinja_expression_target(p, false, out));
        p->depth--;
        return jinja_parser_expect_sign(p, ")");
    }
    TRY(jinja_parser_node(p, JINJA_NODE_NAME, out));
    TRY(jinja_parser_name(p, &(*out)->text));
    return member && jinja_parser_is_sign(p, ".") ? read_member(p, out) : OK;
}

Error jinja_expression_target(JinjaParser *p, bool member, JinjaNode **out)
{
    JinjaNode *first;
    TRY(read_target(p, member, &first));
    *out = first;
    if (!jinja_parser_is_sign(p, ",")) return OK;
    TRY(jinja_parser_node(p, JINJA_NODE_TUPLE, out));
    (*out)->list = first;
    for (JinjaNode **end = &first->next; jinja_parser_is_sign(p, ",");) {
        TRY(jinja_parser_step(p));
        if (ends_tuple(p)) break;
        TRY(read_target(p, false, end));
        end = &(*end)->next;
    }
    return OK;
}
