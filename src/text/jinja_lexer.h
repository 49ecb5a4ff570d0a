/* SPDX-License-Identifier: Apache-2.0 */
/* The source of a template to tokens, one at a time. Outside of tags it is text; blanks around tags go as HF's
 * loaders ask Jinja to (trim_blocks, lstrip_blocks): the line break right behind a block tag or comment, and
 * the blanks before one that begins its line. `-` strips more, `+` keeps. One line break at the end of the
 * source is dropped.
 *
 *   text {%- if x %}\n text {{ y }} {# ... #} {% raw %} {{ text }} {% endraw %} */
#ifndef COBORD_TEXT_JINJA_LEXER_H
#define COBORD_TEXT_JINJA_LEXER_H

#include "text/jinja_value.h"

enum { JINJA_BRACKETS_MAX = 64 };

typedef enum JinjaTokenType {
    JINJA_TOKEN_END,
    JINJA_TOKEN_TEXT,
    JINJA_TOKEN_BLOCK,     /* {% */
    JINJA_TOKEN_BLOCK_END, /* %} */
    JINJA_TOKEN_PRINT,     /* {{ */
    JINJA_TOKEN_PRINT_END, /* }} */
    JINJA_TOKEN_NAME,
    JINJA_TOKEN_STRING, /* text: the decoded value */
    JINJA_TOKEN_NUMBER, /* number: int or float */
    JINJA_TOKEN_SIGN    /* text: an operator or bracket */
} JinjaTokenType;

typedef struct JinjaToken {
    JinjaTokenType type;
    size_t offset;
    JinjaText text;
    JinjaValue number;
} JinjaToken;

/* May be copied to look ahead. */
typedef struct JinjaLexer {
    const uint8_t *source;
    size_t count, at;
    JinjaTokenType inside; /* END: in text; PRINT or BLOCK: in such a tag */
    char brackets[JINJA_BRACKETS_MAX];
    unsigned bracket_count;
    Arena *arena;
    Why *why;
} JinjaLexer;

MUST_CHECK Error jinja_lexer_next(JinjaLexer *l, JinjaToken *out);
/* "line N, column M: " in front of `text`. Columns count bytes from 1. */
MUST_CHECK Error jinja_lexer_fail(const JinjaLexer *l, size_t offset, const char *text);
void jinja_lexer_place(const uint8_t *source, size_t count, size_t offset, unsigned *line,
                       unsigned *column);

#endif
