/* SPDX-License-Identifier: Apache-2.0 */
/* Statements. A body is read up to one of the words that end it; whoever asked for the body takes the word. */
#include "text/jinja_parser.h"

#include <string.h>

static Error read_body(JinjaParser *p, const char *const *ends, JinjaNode **out);

/* ---- Tokens ---- */

Error jinja_parser_step(JinjaParser *p) { return jinja_lexer_next(&p->lexer, &p->token); }

Error jinja_parser_fail(const JinjaParser *p, const char *text)
{
    return jinja_lexer_fail(&p->lexer, p->token.offset, text);
}

Error jinja_parser_node(JinjaParser *p, JinjaType type, JinjaNode **out)
{
    *out = ARENA_NEW(p->lexer.arena, JinjaNode, 1);
    if (!*out) return error_why(p->lexer.why, ERR_MEMORY, "no memory for the template");
    (*out)->type = type;
    (*out)->offset = (uint32_t)p->token.offset;
    return OK;
}

bool jinja_parser_is_sign(const JinjaParser *p, const char *sign)
{
    return p->token.type == JINJA_TOKEN_SIGN && jinja_value_is(p->token.text, sign);
}

bool jinja_parser_is_word(const JinjaParser *p, const char *word)
{
    return p->token.type == JINJA_TOKEN_NAME && jinja_value_is(p->token.text, word);
}

Error jinja_parser_skip_sign(JinjaParser *p, const char *sign, bool *skipped)
{
    *skipped = jinja_parser_is_sign(p, sign);
    return *skipped ? jinja_parser_step(p) : OK;
}

Error jinja_parser_skip_word(JinjaParser *p, const char *word, bool *skipped)
{
    *skipped = jinja_parser_is_word(p, word);
    return *skipped ? jinja_parser_step(p) : OK;
}

Error jinja_parser_expect_sign(JinjaParser *p, const char *sign)
{
    if (jinja_parser_is_sign(p, sign)) return jinja_parser_step(p);
    unsigned line, column;
    jinja_lexer_place(p->lexer.source, p->lexer.count, p->token.offset, &line, &column);
    return error_why(p->lexer.why, ERR_FORMAT, "line %u, column %u: \"%s\" is missing", line,
                     column, sign);
}

Error jinja_parser_name(JinjaParser *p, JinjaText *out)
{
    if (p->token.type != JINJA_TOKEN_NAME) return jinja_parser_fail(p, "a name is missing");
    *out = p->token.text;
    return jinja_parser_step(p);
}

static Error expect_word(JinjaParser *p, const char *word)
{
    bool there;
    TRY(jinja_parser_skip_word(p, word, &there));
    return there ? OK : jinja_parser_fail(p, "a word is missing here");
}

static Error end_tag(JinjaParser *p)
{
    if (p->token.type != JINJA_TOKEN_BLOCK_END)
        return jinja_parser_fail(p, "the tag does not end where it should");
    return jinja_parser_step(p);
}

/* ---- Bodies that end with one word ---- */

static Error read_to(JinjaParser *p, const char *end, JinjaNode **list)
{
    const char *const ends[] = {end, NULL};
    TRY(end_tag(p));
    TRY(read_body(p, ends, list));
    TRY(jinja_parser_step(p));
    return end_tag(p);
}

/* ---- Statements ---- */

static Error read_if(JinjaParser *p, JinjaNode *node)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif",
                                                                                        NULL};
    JinjaNode **branch = &node->list;
    bool otherwise = false;
    do {
        TRY(jinja_parser_node(p, JINJA_NODE_BRANCH, branch));
        if (!otherwise) TRY(jinja_expression_tuple(p, false, &(*branch)->a));
        TRY(end_tag(p));
        TRY(read_body(p, otherwise ? last : ends, &(*branch)->list));
        branch = &(*branch)->next;
        otherwise = jinja_parser_is_word(p, "else");
        if (jinja_parser_is_word(p, "endif")) break;
        TRY(jinja_parser_step(p));
    } while (true);
    TRY(jinja_parser_step(p));
    return end_tag(p);
}

static Error read_for(JinjaParser *p, JinjaNode *node)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    bool filtered;
    TRY(jinja_expression_target(p, false, &node->a));
    TRY(expect_word(p, "in"));
    TRY(jinja_expression_tuple(p, false, &node->b));
    TRY(jinja_parser_skip_word(p, "if", &filtered));
    if (filtered) TRY(jinja_expression_read(p, true, &node->c));
    if (jinja_parser_is_word(p, "recursive"))
        return jinja_parser_fail(p, "recursive loops are not supported");
    TRY(end_tag(p));
    p->loops++;
    TRY(read_body(p, ends, &node->list));
    p->loops--;
    bool otherwise = jinja_parser_is_word(p, "else");
    TRY(jinja_parser_step(p));
    if (otherwise) return read_to(p, "endfor", &node->other);
    return end_tag(p);
}

static Error read_set(JinjaParser *p, JinjaNode *node)
{
    bool given;
    TRY(jinja_expression_target(p, true, &node->a));
    TRY(jinja_parser_skip_sign(p, "=", &given));
    if (given) {
        TRY(jinja_expression_tuple(p, true, &node->b));
        return end_tag(p);
    }
    node->type = JINJA_NODE_SET_BLOCK;
    TRY(jinja_expression_filters(p, &node->b, false));
    return read_to(p, "endset", &node->list);
}

/* (a, b=1) */
static Error read_parameters(JinjaParser *p, JinjaNode **list)
{
    TRY(jinja_parser_expect_sign(p, "("));
    for (bool more = true, defaults = false; !jinja_parser_is_sign(p, ")");) {
        if (!more) return jinja_parser_fail(p, "a comma is missing");
        TRY(jinja_parser_node(p, JINJA_NODE_PARAMETER, list));
        TRY(jinja_parser_name(p, &(*list)->text));
        bool given;
        TRY(jinja_parser_skip_sign(p, "=", &given));
        if (defaults && !given)
            return jinja_parser_fail(p, "a parameter without default behind one with");
        defaults |= given;
        if (given) TRY(jinja_expression_read(p, true, &(*list)->a));
        list = &(*list)->next;
        TRY(jinja_parser_skip_sign(p, ",", &more));
    }
    return jinja_parser_step(p);
}

/* A macro's body is no part of the loop that it stands in. */
static Error read_macro_body(JinjaParser *p, const char *end, JinjaNode **list)
{
    unsigned loops = p->loops;
    p->loops = 0;
    TRY(read_to(p, end, list));
    p->loops = loops;
    return OK;
}

static Error read_macro(JinjaParser *p, JinjaNode *node)
{
    TRY(jinja_parser_name(p, &node->text));
    TRY(read_parameters(p, &node->other));
    return read_macro_body(p, "endmacro", &node->list);
}

static Error read_call_block(JinjaParser *p, JinjaNode *node)
{
    if (jinja_parser_is_sign(p, "(")) TRY(read_parameters(p, &node->other));
    TRY(jinja_expression_read(p, true, &node->a));
    if (node->a->type != JINJA_NODE_CALL) return jinja_parser_fail(p, "a call is missing");
    return read_macro_body(p, "endcall", &node->list);
}

static Error read_filter_block(JinjaParser *p, JinjaNode *node)
{
    TRY(jinja_expression_filters(p, &node->b, true));
    return read_to(p, "endfilter", &node->list);
}

static Error read_with(JinjaParser *p, JinjaNode *node)
{
    JinjaNode **end = &node->other;
    while (p->token.type != JINJA_TOKEN_BLOCK_END) {
        if (node->other) TRY(jinja_parser_expect_sign(p, ","));
        TRY(jinja_parser_node(p, JINJA_NODE_SET, end));
        TRY(jinja_expression_target(p, false, &(*end)->a));
        TRY(jinja_parser_expect_sign(p, "="));
        TRY(jinja_expression_read(p, true, &(*end)->b));
        end = &(*end)->next;
    }
    return read_to(p, "endwith", &node->list);
}

static Error read_generation(JinjaParser *p, JinjaNode *node)
{
    return read_to(p, "endgeneration", &node->list);
}

static Error read_jump(JinjaParser *p, JinjaNode *node)
{
    (void)node;
    if (!p->loops) return jinja_parser_fail(p, "break and continue belong in a loop");
    return end_tag(p);
}

typedef struct Statement {
    const char *word;
    JinjaType type;
    Error (*read)(JinjaParser *p, JinjaNode *node);
} Statement;

static const Statement statements[] = {
    {"if", JINJA_NODE_IF, read_if},
    {"for", JINJA_NODE_FOR, read_for},
    {"set", JINJA_NODE_SET, read_set},
    {"macro", JINJA_NODE_MACRO, read_macro},
    {"call", JINJA_NODE_CALL_BLOCK, read_call_block},
    {"filter", JINJA_NODE_FILTER_BLOCK, read_filter_block},
    {"with", JINJA_NODE_WITH, read_with},
    {"generation", JINJA_NODE_GENERATION, read_generation},
    {"break", JINJA_NODE_BREAK, read_jump},
    {"continue", JINJA_NODE_CONTINUE, read_jump},
};

static Error unknown_tag(const JinjaParser *p)
{
    unsigned line, column;
    jinja_lexer_place(p->lexer.source, p->lexer.count, p->token.offset, &line, &column);
    return error_why(p->lexer.why, ERR_FORMAT,
                     "line %u, column %u: the tag \"%.*s\" is not supported", line, column,
                     (int)(p->token.text.count < 40 ? p->token.text.count : 40),
                     (const char *)p->token.text.bytes);
}

static Error read_statement(JinjaParser *p, JinjaNode **out)
{
    if (p->token.type != JINJA_TOKEN_NAME) return jinja_parser_fail(p, "a tag without a name");
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        const Statement *s = &statements[i];
        if (!jinja_parser_is_word(p, s->word)) continue;
        if (p->depth == JINJA_NESTING_MAX) return jinja_parser_fail(p, "nested too deeply");
        p->depth++;
        TRY(jinja_parser_node(p, s->type, out));
        TRY(jinja_parser_step(p));
        TRY(s->read(p, *out));
        p->depth--;
        return OK;
    }
    return unknown_tag(p);
}

static Error read_print(JinjaParser *p, JinjaNode **out)
{
    TRY(jinja_parser_node(p, JINJA_NODE_PRINT, out));
    TRY(jinja_parser_step(p));
    TRY(jinja_expression_tuple(p, true, &(*out)->a));
    if (p->token.type != JINJA_TOKEN_PRINT_END)
        return jinja_parser_fail(p, "the expression does not end where it should");
    return jinja_parser_step(p);
}

static bool is_end(const JinjaParser *p, const char *const *ends)
{
    for (; *ends; ends++)
        if (jinja_parser_is_word(p, *ends)) return true;
    return false;
}

/* Afterwards the token is the word that ended the body, or the template's end where ends is empty. */
static Error read_body(JinjaParser *p, const char *const *ends, JinjaNode **out)
{
    while (p->token.type != JINJA_TOKEN_END) {
        if (p->token.type == JINJA_TOKEN_TEXT) {
            TRY(jinja_parser_node(p, JINJA_NODE_TEXT, out));
            (*out)->text = p->token.text;
            TRY(jinja_parser_step(p));
        } else if (p->token.type == JINJA_TOKEN_PRINT) {
            TRY(read_print(p, out));
        } else {
            TRY(jinja_parser_step(p));
            if (is_end(p, ends)) return OK;
            TRY(read_statement(p, out));
        }
        out = &(*out)->next;
    }
    return *ends ? jinja_parser_fail(p, "the template ends inside of a block") : OK;
}

Error jinja_parser_run(JinjaParser *p, JinjaNode **out)
{
    static const char *const none[] = {NULL};
    *out = NULL;
    TRY(jinja_parser_step(p));
    return read_body(p, none, out);
}
