/* SPDX-License-Identifier: Apache-2.0 */
/* See jinja_lexer.h. */
#include "text/jinja_lexer.h"

#include <string.h>

#include "text/jinja_number.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

void jinja_lexer_place(const uint8_t *source, size_t count, size_t offset, unsigned *line,
                       unsigned *column)
{
    *line = *column = 1;
    for (size_t i = 0; i < offset && i < count; i++) {
        bool ends = source[i] == '\n';
        *line += ends;
        *column = ends ? 1 : *column + 1;
    }
}

Error jinja_lexer_fail(const JinjaLexer *l, size_t offset, const char *text)
{
    unsigned line, column;
    jinja_lexer_place(l->source, l->count, offset, &line, &column);
    return error_why(l->why, ERR_FORMAT, "line %u, column %u: %s", line, column, text);
}

/* ---- Text between tags ---- */

static bool stands(const JinjaLexer *l, size_t at, const char *what)
{
    size_t n = strlen(what);
    return at <= l->count && l->count - at >= n && memcmp(l->source + at, what, n) == 0;
}

static JinjaText text_of(const JinjaLexer *l, size_t from, size_t to)
{
    return (JinjaText){l->source + from, NULL, to - from, JINJA_OWN};
}

static size_t skip_blanks(const JinjaLexer *l, size_t at)
{
    JinjaText rest = jinja_text_strip(text_of(l, at, l->count), JINJA_STRIP_LEFT);
    return l->count - rest.count;
}

/* Where the text before the tag at `tag` ends; lstrip is for tags that take the blanks of their line along. */
static size_t text_end(const JinjaLexer *l, size_t from, size_t tag, char sign, bool lstrip)
{
    if (sign == '-') return from + jinja_text_strip(text_of(l, from, tag), JINJA_STRIP_RIGHT).count;
    if (sign == '+' || !lstrip) return tag;
    size_t line = tag;
    while (line > from && l->source[line - 1] != '\n') line--;
    bool begins = line > from || from == 0 || l->source[from - 1] == '\n';
    bool blank = jinja_text_strip(text_of(l, line, tag), JINJA_STRIP_RIGHT).count == 0;
    return begins && blank ? line : tag;
}

static char sign_at(const JinjaLexer *l, size_t at)
{
    return at < l->count && (l->source[at] == '-' || l->source[at] == '+') ? (char)l->source[at]
                                                                           : '\0';
}

/* The end of a tag at `at`: `close` with a sign before it. Sets where the text goes on. */
static bool tag_end(const JinjaLexer *l, size_t at, const char *close, bool block, size_t *next)
{
    char sign = sign_at(l, at);
    if (sign == '+' && !block) return false;
    if (!stands(l, at + (sign != 0), close)) return false;
    *next = at + (sign != 0) + 2;
    if (sign == '-') *next = skip_blanks(l, *next);
    else if (sign == 0 && block && stands(l, *next, "\n")) ++*next;
    return true;
}

/* {% raw %} or {% endraw %} at `at`. */
static bool raw_tag(const JinjaLexer *l, size_t at, const char *word, bool ends, size_t *next)
{
    if (!stands(l, at, "{%")) return false;
    at += 2;
    if (sign_at(l, at)) at++;
    at = skip_blanks(l, at);
    if (!stands(l, at, word)) return false;
    at = skip_blanks(l, at + strlen(word));
    if (ends) return tag_end(l, at, "%}", true, next);
    if (stands(l, at, "%}")) {
        *next = at + 2;
        return true;
    }
    return stands(l, at, "-%}") && tag_end(l, at, "%}", true, next);
}

static Error raw_text(JinjaLexer *l, JinjaToken *out)
{
    size_t from = l->at, at = from, next = 0;
    while (at < l->count && !raw_tag(l, at, "endraw", true, &next)) at++;
    if (at == l->count) return jinja_lexer_fail(l, from, "raw has no endraw");
    *out = (JinjaToken){.type = JINJA_TOKEN_TEXT, .offset = from};
    out->text = text_of(l, from, text_end(l, from, at, sign_at(l, at + 2), true));
    l->at = next;
    return OK;
}

static Error skip_comment(JinjaLexer *l, size_t tag)
{
    size_t at = tag + 2, next;
    while (at < l->count && !tag_end(l, at, "#}", true, &next)) at++;
    if (at >= l->count) return jinja_lexer_fail(l, tag, "a comment has no end");
    l->at = next;
    return OK;
}

static size_t find_tag(const JinjaLexer *l)
{
    size_t at = l->at;
    while (at < l->count && !(l->source[at] == '{' && at + 1 < l->count &&
                              strchr("{%#", l->source[at + 1]) && l->source[at + 1]))
        at++;
    return at;
}

/* A tag's beginning, when the lexer stands at it: its token, or nothing for comments and raw. */
static Error begin_tag(JinjaLexer *l, JinjaToken *out, bool *found)
{
    size_t tag = l->at, next;
    if (stands(l, tag, "{#")) return skip_comment(l, tag);
    if (raw_tag(l, tag, "raw", false, &next)) {
        l->at = next;
        *found = true;
        return raw_text(l, out);
    }
    l->inside = stands(l, tag, "{{") ? JINJA_TOKEN_PRINT : JINJA_TOKEN_BLOCK;
    l->bracket_count = 0;
    l->at = tag + 2 + (sign_at(l, tag + 2) != 0);
    *out = (JinjaToken){.type = l->inside, .offset = tag};
    *found = true;
    return OK;
}

static Error next_text(JinjaLexer *l, JinjaToken *out)
{
    for (bool found = false; !found;) {
        size_t from = l->at, tag = find_tag(l);
        bool print = stands(l, tag, "{{");
        size_t to = tag == l->count ? tag : text_end(l, from, tag, sign_at(l, tag + 2), !print);
        l->at = tag;
        *out = (JinjaToken){.type = JINJA_TOKEN_END, .offset = tag};
        if (to > from) {
            *out = (JinjaToken){
                .type = JINJA_TOKEN_TEXT, .offset = from, .text = text_of(l, from, to)};
            return OK;
        }
        if (tag == l->count) return OK;
        TRY(begin_tag(l, out, &found));
    }
    return OK;
}

/* ---- Inside of tags ---- */

static bool is_name(uint8_t c, bool first)
{
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c >= 0x80;
    return letter || (!first && c >= '0' && c <= '9');
}

static uint32_t hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9') return c - (uint32_t)'0';
    if ((c | 32) >= 'a' && (c | 32) <= 'f') return (c | 32u) - 'a' + 10u;
    return 16;
}

/* \xhh, \uhhhh, \Uhhhhhhhh: the character, or UTF8_INVALID. */
static uint32_t hex_escape(const uint8_t *at, const uint8_t *end, unsigned digits)
{
    uint32_t c = 0;
    if (end - at < (ptrdiff_t)digits) return UTF8_INVALID;
    for (unsigned i = 0; i < digits; i++) {
        if (hex_digit(at[i]) == 16) return UTF8_INVALID;
        c = c << 4 | hex_digit(at[i]);
    }
    return c > 0x10FFFF || (c >= 0xD800 && c < 0xE000) ? UTF8_INVALID : c;
}

/* One known escape behind its backslash: returns how many bytes it takes, 0 for a broken one. */
static size_t escape(const uint8_t *at, const uint8_t *end, uint8_t *out, size_t *written)
{
    static const char names[] = "ntr\\'\"abfv", values[] = "\n\t\r\\'\"\a\b\f\v";
    const char *name = *at ? strchr(names, *at) : NULL;
    *written = 1;
    if (name) {
        out[0] = (uint8_t)values[name - names];
        return 1;
    }
    unsigned digits = *at == 'x' ? 2 : *at == 'u' ? 4 : *at == 'U' ? 8 : 0;
    if (digits) {
        uint32_t c = hex_escape(at + 1, end, digits);
        if (c == UTF8_INVALID) return 0;
        *written = utf8_write(c, out);
        return 1 + digits;
    }
    if (*at >= '0' && *at <= '7') {
        uint32_t c = 0;
        size_t n = 0;
        for (; n < 3 && at + n < end && at[n] >= '0' && at[n] <= '7'; n++) c = c * 8 + at[n] - '0';
        *written = utf8_write(c, out);
        return n;
    }
    *written = 0; /* a line break: the line goes on */
    return 1;
}

static bool is_known_escape(uint8_t c) { return c && strchr("ntr\\'\"abfvxuU01234567\n", c); }

static Error decode(JinjaLexer *l, size_t from, size_t to, JinjaText *out)
{
    *out = text_of(l, from, to);
    if (!out->count || !memchr(out->bytes, '\\', out->count)) return OK;
    uint8_t *text = arena_take_raw(l->arena, out->count);
    if (!text) return error_why(l->why, ERR_MEMORY, "no memory for the template");
    const uint8_t *at = out->bytes, *end = at + out->count;
    size_t count = 0, written;
    while (at < end) {
        if (*at != '\\' || !is_known_escape(at[1])) {
            text[count++] = *at++;
            continue;
        }
        size_t taken = escape(at + 1, end, text + count, &written);
        if (!taken) return jinja_lexer_fail(l, (size_t)(at - l->source), "a broken escape");
        count += written;
        at += 1 + taken;
    }
    *out = (JinjaText){text, NULL, count, JINJA_OWN};
    return OK;
}

static Error read_string(JinjaLexer *l, JinjaToken *out)
{
    uint8_t quote = l->source[l->at];
    size_t from = l->at + 1, to = from;
    while (to < l->count && l->source[to] != quote) to += l->source[to] == '\\' ? 2 : 1;
    if (to >= l->count) return jinja_lexer_fail(l, l->at, "a string has no end");
    out->type = JINJA_TOKEN_STRING;
    l->at = to + 1;
    return decode(l, from, to, &out->text);
}

static size_t digits_end(const JinjaLexer *l, size_t at)
{
    while (at < l->count && ((l->source[at] >= '0' && l->source[at] <= '9') ||
                             (l->source[at] == '_' && at + 1 < l->count &&
                              l->source[at + 1] >= '0' && l->source[at + 1] <= '9')))
        at++;
    return at;
}

static bool is_digit(const JinjaLexer *l, size_t at)
{
    return at < l->count && l->source[at] >= '0' && l->source[at] <= '9';
}

static Error read_number(JinjaLexer *l, JinjaToken *out)
{
    size_t from = l->at, to = digits_end(l, from);
    bool after_dot = from > 0 && l->source[from - 1] == '.'; /* x.0.1 */
    if (!after_dot && stands(l, to, ".") && is_digit(l, to + 1)) to = digits_end(l, to + 1);
    if (!after_dot && to < l->count && (l->source[to] | 32) == 'e') {
        size_t digits = to + 1 + (sign_at(l, to + 1) != 0);
        if (is_digit(l, digits)) to = digits_end(l, digits);
    }
    out->type = JINJA_TOKEN_NUMBER;
    l->at = to;
    if (jinja_number_read(l->source + from, to - from, &out->number)) return OK;
    return jinja_lexer_fail(l, from, "a number that is not supported");
}

static Error read_bracket(JinjaLexer *l, char c)
{
    if (strchr("([{", c)) {
        if (l->bracket_count == JINJA_BRACKETS_MAX)
            return jinja_lexer_fail(l, l->at, "too many open brackets");
        l->brackets[l->bracket_count++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (!l->bracket_count || l->brackets[--l->bracket_count] != c) {
        return jinja_lexer_fail(l, l->at, "a closing bracket that was not opened");
    }
    return OK;
}

static Error read_sign(JinjaLexer *l, JinjaToken *out)
{
    static const char *const pairs[] = {"//", "**", "==", "!=", "<=", ">="};
    size_t length = 0;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (stands(l, l->at, pairs[i])) length = 2;
    uint8_t c = l->source[l->at];
    if (!length && c && strchr("+-*/%~[](){}><=.:|,", c)) length = 1;
    if (!length) return jinja_lexer_fail(l, l->at, "an unexpected character");
    if (strchr("()[]{}", c)) TRY(read_bracket(l, (char)c));
    out->type = JINJA_TOKEN_SIGN;
    out->text = text_of(l, l->at, l->at + length);
    l->at += length;
    return OK;
}

static bool read_end(JinjaLexer *l, JinjaToken *out)
{
    bool block = l->inside == JINJA_TOKEN_BLOCK;
    size_t next;
    if (l->bracket_count || !tag_end(l, l->at, block ? "%}" : "}}", block, &next)) return false;
    out->type = block ? JINJA_TOKEN_BLOCK_END : JINJA_TOKEN_PRINT_END;
    l->inside = JINJA_TOKEN_END;
    l->at = next;
    return true;
}

Error jinja_lexer_next(JinjaLexer *l, JinjaToken *out)
{
    if (l->inside == JINJA_TOKEN_END) return next_text(l, out);
    l->at = skip_blanks(l, l->at);
    *out = (JinjaToken){.type = JINJA_TOKEN_END, .offset = l->at};
    if (l->at == l->count) return jinja_lexer_fail(l, l->at, "the template ends inside of a tag");
    if (read_end(l, out)) return OK;
    uint8_t c = l->source[l->at];
    if (c == '\'' || c == '"') return read_string(l, out);
    if (c >= '0' && c <= '9') return read_number(l, out);
    if (!is_name(c, true)) return read_sign(l, out);
    size_t from = l->at;
    while (l->at < l->count && is_name(l->source[l->at], false)) l->at++;
    out->type = JINJA_TOKEN_NAME;
    out->text = text_of(l, from, l->at);
    return OK;
}
