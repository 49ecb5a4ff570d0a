/* SPDX-License-Identifier: Apache-2.0 */
/* GBNF, by hand and by recursion over groups only (PARSER_DEPTH_MAX of them). A rule ends at a line end outside of
 * groups, unless the next line goes on with `|`; a rule may begin on the line after its `::=`.
 *
 *   root  ::= item ("," item)*      # a comment
 *   item  ::= [a-z]+ | "\"" [^"]{1,8} "\""
 *
 * A rule that is defined twice is refused: which one was meant cannot be known. */
#include <string.h>

#include "text/grammar.h"
#include "text/utf8.h"

enum { PARSER_DEPTH_MAX = 40, CLASS_RANGES_MAX = 512, LITERAL_BYTES_MAX = 4096 };

typedef struct Parser {
    GrammarBuilder *b;
    const uint8_t *text;
    size_t bytes, at;
    uint32_t depth;
} Parser;

static uint32_t fault(Parser *p, const char *what)
{
    Why why;
    unsigned line = 1, column = 1;
    for (size_t i = 0; i < p->at && i < p->bytes; i++) {
        column = p->text[i] == '\n' ? 1 : column + 1;
        line += p->text[i] == '\n';
    }
    return grammar_fault(
        p->b, error_why(&why, ERR_FORMAT, "line %u, column %u: %s", line, column, what), &why);
}

static bool failed(const Parser *p) { return p->b->error != OK; }
static uint8_t look(const Parser *p) { return p->at < p->bytes ? p->text[p->at] : 0; }
static bool at_end(const Parser *p) { return p->at == p->bytes; }

static bool eat(Parser *p, const char *what)
{
    size_t n = strlen(what);
    if (p->bytes - p->at < n || memcmp(p->text + p->at, what, n) != 0) return false;
    p->at += n;
    return true;
}

/* Spaces and comments; with `lines`, line ends too. */
static void skip(Parser *p, bool lines)
{
    while (!at_end(p)) {
        uint8_t c = look(p);
        if (c == '#') {
            while (!at_end(p) && look(p) != '\n' && look(p) != '\r') p->at++;
        } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
            p->at++;
        } else {
            return;
        }
    }
}

static bool is_name(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static size_t read_name(Parser *p)
{
    size_t start = p->at;
    while (!at_end(p) && is_name(look(p))) p->at++;
    size_t bytes = p->at - start;
    if (!bytes) (void)fault(p, "a name is expected here");
    if (bytes >= GRAMMAR_NAME_BYTES_MAX) (void)fault(p, "the name is longer than 63 bytes");
    return bytes;
}

static uint32_t rule_named(Parser *p, const uint8_t *name, size_t bytes)
{
    uint32_t rule = grammar_find(p->b, (const char *)name, bytes);
    return rule != UINT32_MAX ? rule : grammar_rule(p->b, (const char *)name, bytes);
}

/* ---- characters ---- */

static int hex_value(uint8_t c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static uint32_t read_hex(Parser *p, uint32_t digits)
{
    uint32_t value = 0;
    for (uint32_t i = 0; i < digits; i++) {
        int digit = hex_value(look(p));
        if (digit < 0) return fault(p, "hexadecimal digits are missing");
        value = value << 4 | (uint32_t)digit;
        p->at++;
    }
    if (value > GRAMMAR_CHARACTER_MAX || (value >= 0xD800 && value <= 0xDFFF))
        return fault(p, "no character has this number");
    return value;
}

static uint32_t read_escape(Parser *p)
{
    uint8_t c = look(p);
    p->at += !at_end(p);
    switch (c) {
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'x': return read_hex(p, 2);
    case 'u': return read_hex(p, 4);
    case 'U': return read_hex(p, 8);
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^': return c;
    default: return fault(p, "an escape that is not known");
    }
}

/* One character of a literal or class. */
static uint32_t read_character(Parser *p)
{
    uint32_t length;
    if (at_end(p)) return fault(p, "the text ends inside a literal or class");
    if (eat(p, "\\")) return read_escape(p);
    uint32_t c = utf8_read(p->text + p->at, p->bytes - p->at, &length);
    if (c == UTF8_INVALID) return fault(p, "bytes that are no UTF-8");
    p->at += length;
    return c;
}

static uint32_t parse_literal(Parser *p)
{
    uint8_t out[LITERAL_BYTES_MAX + 4];
    uint32_t bytes = 0;
    while (!failed(p) && look(p) != '"') {
        if (bytes >= LITERAL_BYTES_MAX) return fault(p, "the literal is longer than 4096 bytes");
        bytes += utf8_write(read_character(p), out + bytes);
    }
    p->at += !at_end(p);
    return grammar_bytes(p->b, out, bytes);
}

static uint32_t parse_class(Parser *p)
{
    GrammarRange ranges[CLASS_RANGES_MAX];
    uint32_t count = 0;
    bool negated = eat(p, "^");
    while (!failed(p) && !eat(p, "]")) {
        if (count == CLASS_RANGES_MAX) return fault(p, "the class has more than 512 parts");
        uint32_t low = read_character(p), high = low;
        if (look(p) == '-' && p->at + 1 < p->bytes && p->text[p->at + 1] != ']') {
            p->at++;
            high = read_character(p);
        }
        if (!failed(p) && high < low) return fault(p, "the range is upside down");
        ranges[count++] = (GrammarRange){low, high};
    }
    return grammar_class(p->b, ranges, count, negated);
}

/* ---- rules ---- */

static uint32_t parse_choice(Parser *p);

static uint32_t parse_group(Parser *p)
{
    if (p->depth == PARSER_DEPTH_MAX) return fault(p, "groups nest deeper than 40 levels");
    p->depth++;
    uint32_t node = parse_choice(p);
    p->depth--;
    skip(p, true);
    if (!failed(p) && !eat(p, ")")) return fault(p, "a ) is missing");
    return node;
}

/* One item without its repetition; 0 without a fault: there is none here. */
static uint32_t parse_item(Parser *p)
{
    if (eat(p, "\"")) return parse_literal(p);
    if (eat(p, "[")) return parse_class(p);
    if (eat(p, "(")) return parse_group(p);
    if (eat(p, ".")) return grammar_class(p->b, NULL, 0, true);
    if (at_end(p) || !is_name(look(p))) return 0;
    const uint8_t *name = p->text + p->at;
    size_t start = p->at, bytes = read_name(p);
    skip(p, false);
    if (p->bytes - p->at >= 3 && memcmp(p->text + p->at, "::=", 3) == 0) {
        p->at = start; /* the next rule begins here */
        return 0;
    }
    return failed(p) ? 0 : grammar_call(p->b, rule_named(p, name, bytes));
}

static uint32_t read_number(Parser *p)
{
    uint32_t value = 0;
    size_t start = p->at;
    for (; look(p) >= '0' && look(p) <= '9'; p->at++) {
        value = 10 * value + (uint32_t)(look(p) - '0');
        if (value > GRAMMAR_COUNT_MAX) return fault(p, "the count is larger than 1048576");
    }
    return p->at == start ? fault(p, "a count is expected here") : value;
}

static uint32_t parse_counts(Parser *p, uint32_t node)
{
    skip(p, false);
    uint32_t least = look(p) == ',' ? 0 : read_number(p), most = least;
    skip(p, false);
    if (eat(p, ",")) {
        skip(p, false);
        most = look(p) == '}' ? GRAMMAR_UNBOUNDED : read_number(p);
        skip(p, false);
    }
    if (!failed(p) && !eat(p, "}")) return fault(p, "a } is missing");
    return grammar_repeat(p->b, node, least, most);
}

static uint32_t parse_repeated(Parser *p)
{
    uint32_t node = parse_item(p);
    while (node && !failed(p)) {
        skip(p, p->depth > 0);
        if (eat(p, "*")) node = grammar_repeat(p->b, node, 0, GRAMMAR_UNBOUNDED);
        else if (eat(p, "+")) node = grammar_repeat(p->b, node, 1, GRAMMAR_UNBOUNDED);
        else if (eat(p, "?")) node = grammar_repeat(p->b, node, 0, 1);
        else if (eat(p, "{")) node = parse_counts(p, node);
        else break;
    }
    return node;
}

static uint32_t parse_sequence(Parser *p)
{
    GrammarList parts = {0};
    for (;;) {
        skip(p, p->depth > 0);
        uint32_t node = parse_repeated(p);
        if (!node || failed(p)) break;
        grammar_add(p->b, &parts, node);
    }
    return grammar_sequence(p->b, &parts);
}

/* Whether the next line that is not empty goes on with `|`; then moves there. */
static bool goes_on(Parser *p)
{
    size_t start = p->at;
    skip(p, true);
    if (look(p) == '|') return true;
    if (!p->depth) p->at = start;
    return false;
}

static uint32_t parse_choice(Parser *p)
{
    GrammarList parts = {0};
    do {
        skip(p, true);
        grammar_add(p->b, &parts, parse_sequence(p));
    } while (!failed(p) && goes_on(p) && eat(p, "|"));
    return grammar_choice(p->b, &parts);
}

static void parse_rule(Parser *p)
{
    const uint8_t *name = p->text + p->at;
    size_t bytes = read_name(p);
    skip(p, false);
    if (!failed(p) && !eat(p, "::=")) (void)fault(p, "::= is expected here");
    if (failed(p)) return;
    uint32_t rule = rule_named(p, name, bytes);
    if (!failed(p) && grammar_is_defined(p->b, rule)) (void)fault(p, "the rule is defined twice");
    grammar_define(p->b, rule, parse_choice(p));
    skip(p, false);
    if (failed(p) || at_end(p)) return;
    if (look(p) != '\n' && look(p) != '\r') (void)fault(p, "something that belongs to no rule");
}

size_t grammar_gbnf_scratch_bytes(void)
{
    return grammar_builder_bytes() + grammar_finish_scratch_bytes();
}

Error grammar_gbnf(const uint8_t *text, size_t bytes, Arena *scratch, Arena *arena, Grammar *out,
                   Why *why)
{
    GrammarBuilder b;
    size_t mark = arena_mark(scratch);
    TRY(grammar_builder_start(&b, scratch, why));
    Parser p = {.b = &b, .text = text, .bytes = bytes};
    (void)grammar_rule(&b, "root", 4);
    skip(&p, true);
    while (!failed(&p) && !at_end(&p)) {
        parse_rule(&p);
        skip(&p, true);
    }
    Error error = grammar_finish(&b, scratch, arena, out, why);
    arena_reset(scratch, mark);
    return error;
}
