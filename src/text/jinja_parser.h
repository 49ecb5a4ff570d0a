/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens to a tree. jinja_parser.c has the statements, jinja_expression.c what stands in {{ }}. */
#ifndef COBORD_TEXT_JINJA_PARSER_H
#define COBORD_TEXT_JINJA_PARSER_H

#include "text/jinja_lexer.h"
#include "text/jinja_tree.h"

enum { JINJA_NESTING_MAX = 100 };

typedef struct JinjaParser {
    JinjaLexer lexer;
    JinjaToken token; /* the one to look at */
    unsigned depth, loops;
} JinjaParser;

/* Errors  ERR_FORMAT with line and column, ERR_MEMORY. */
MUST_CHECK Error jinja_parser_run(JinjaParser *p, JinjaNode **out);

MUST_CHECK Error jinja_parser_step(JinjaParser *p);
MUST_CHECK Error jinja_parser_fail(const JinjaParser *p, const char *text);
MUST_CHECK Error jinja_parser_node(JinjaParser *p, JinjaType type, JinjaNode **out);
bool jinja_parser_is_sign(const JinjaParser *p, const char *sign);
bool jinja_parser_is_word(const JinjaParser *p, const char *word);
/* Takes the token if it is that. */
MUST_CHECK Error jinja_parser_skip_sign(JinjaParser *p, const char *sign, bool *skipped);
MUST_CHECK Error jinja_parser_skip_word(JinjaParser *p, const char *word, bool *skipped);
MUST_CHECK Error jinja_parser_expect_sign(JinjaParser *p, const char *sign);
MUST_CHECK Error jinja_parser_name(JinjaParser *p, JinjaText *out);

/* Expressions. `choice` allows "a if b else c" at the top. */
MUST_CHECK Error jinja_expression_read(JinjaParser *p, bool choice, JinjaNode **out);
/* One, or several with commas as a tuple. */
MUST_CHECK Error jinja_expression_tuple(JinjaParser *p, bool choice, JinjaNode **out);
/* a, (b, c): names only. */
MUST_CHECK Error jinja_expression_target(JinjaParser *p, bool member, JinjaNode **out);
MUST_CHECK Error jinja_expression_filters(JinjaParser *p, JinjaNode **node, bool first);
MUST_CHECK Error jinja_expression_primary(JinjaParser *p, JinjaNode **out);
MUST_CHECK Error jinja_expression_postfix(JinjaParser *p, JinjaNode **node);

#endif
