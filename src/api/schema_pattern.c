/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions of `pattern`: what ECMA-262 and Python's re read alike.
 *
 *   kept      characters, . [classes] \d \w \s \D \W \S, groups ( ) (?: ), |, * + ? {m} {m,} {m,n} and their lazy
 *             forms, ^ at the start, $ at the end; escapes \n \r \t \f \v \xHH \uHHHH and of punctuation
 *   refused   look-around, back references, \b, \p, named groups, anchors elsewhere
 *
 * A pattern without ^ or $ may be found anywhere in the string: any characters stand before or after it. Where the
 * two languages differ on characters beyond ASCII (\D, \W, \S, and negated classes with such a part), those are left
 * out. */
#include <string.h>

#include "api/schema_state.h"
#include "text/utf8.h"

/* Without ^ every count is under way at once. */
enum { DEPTH_MAX = 24, RANGES_MAX = 128, FLOATING_COUNT_MAX = 16 };

typedef struct Pattern {
    Schema *s;
    const uint8_t *text;
    size_t bytes, at;
    uint32_t depth;
    bool floats; /* no ^: it may begin at any character */
} Pattern;

typedef struct Class {
    GrammarRange ranges[RANGES_MAX];
    uint32_t count;
    bool negated, ascii_only;
} Class;

static uint32_t fault(Pattern *p, const char *what)
{
    return schema_fault(p->s, ERR_UNSUPPORTED, what, "pattern");
}
static bool failed(const Pattern *p) { return schema_failed(p->s); }
static bool at_end(const Pattern *p) { return p->at >= p->bytes; }
static uint8_t look(const Pattern *p) { return at_end(p) ? 0 : p->text[p->at]; }

static bool eat(Pattern *p, const char *what)
{
    size_t n = strlen(what);
    if (p->bytes - p->at < n || memcmp(p->text + p->at, what, n) != 0) return false;
    p->at += n;
    return true;
}

static uint32_t read_character(Pattern *p)
{
    uint32_t length, c;
    if (at_end(p)) return fault(p, "ends too early");
    c = utf8_read(p->text + p->at, p->bytes - p->at, &length);
    p->at += length;
    return c == UTF8_INVALID ? fault(p, "is not UTF-8") : c;
}

/* ---- classes ---- */

static void add_range(Pattern *p, Class *c, uint32_t low, uint32_t high)
{
    if (low > high) (void)fault(p, "has a range that is upside down");
    else if (c->count == RANGES_MAX) (void)fault(p, "has a class of more than 128 parts");
    else c->ranges[c->count++] = (GrammarRange){low, high};
}

static void add_ranges(Pattern *p, Class *c, const GrammarRange *r, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) add_range(p, c, r[i].low, r[i].high);
}

/* \d \w \s and their opposites, within ASCII. */
static bool add_shorthand(Pattern *p, Class *c, uint8_t letter)
{
    static const GrammarRange d[] = {{'0', '9'}},
                              w[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                              s[] = {{9, 13}, {' ', ' '}, {28, 31}},
                              not_d[] = {{0, '/'}, {':', 127}},
                              not_w[] = {{0, '/'}, {':', '@'}, {'[', '^'}, {'`', '`'}, {'{', 127}},
                              not_s[] = {{0, 8}, {14, 27}, {'!', 127}};
    switch (letter) {
    case 'd': add_ranges(p, c, d, 1); break;
    case 'w': add_ranges(p, c, w, 4); break;
    case 's': add_ranges(p, c, s, c->negated ? 3 : 2); break; /* Python has four more */
    case 'D': add_ranges(p, c, not_d, 2); break;
    case 'W': add_ranges(p, c, not_w, 5); break;
    case 'S': add_ranges(p, c, not_s, 3); break;
    default: return false;
    }
    c->ascii_only = true;
    return true;
}

static uint32_t read_hex(Pattern *p, uint32_t digits)
{
    uint32_t value = 0;
    for (uint32_t i = 0; i < digits; i++) {
        uint8_t c = look(p), low = c | 0x20;
        bool digit = c >= '0' && c <= '9', letter = low >= 'a' && low <= 'f';
        if (!digit && !letter) return fault(p, "has an escape without its digits");
        value = value << 4 | (uint32_t)(digit ? c - '0' : low - 'a' + 10);
        p->at++;
    }
    return value >= 0xD800 && value <= 0xDFFF ? fault(p, "has half a character") : value;
}

/* Behind the backslash of one character. */
static uint32_t read_escape(Pattern *p)
{
    uint8_t c = look(p);
    bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z', digit = c >= '0' && c <= '9';
    p->at += !at_end(p);
    switch (c) {
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'f': return '\f';
    case 'v': return '\v';
    case 'x': return read_hex(p, 2);
    case 'u': return read_hex(p, 4);
    default:
        if (letter || digit || c <= ' ' || c >= 0x7F)
            return fault(p, "has an escape that is not supported");
        return c;
    }
}

static uint32_t class_node(Pattern *p, const Class *c)
{
    static const GrammarRange beyond = {0x80, GRAMMAR_CHARACTER_MAX};
    Class all = *c;
    if (c->negated && c->ascii_only) add_ranges(p, &all, &beyond, 1);
    return failed(p) ? 0 : schema_string_class(p->s, all.ranges, all.count, all.negated);
}

static void add_part(Pattern *p, Class *c)
{
    uint32_t low, high;
    bool escaped = eat(p, "\\");
    if (escaped && add_shorthand(p, c, look(p))) {
        p->at++;
        if (look(p) == '-' && p->at + 1 < p->bytes && p->text[p->at + 1] != ']')
            (void)fault(p, "has a range that starts with a class");
        return;
    }
    high = low = escaped ? read_escape(p) : read_character(p);
    if (look(p) == '-' && p->at + 1 < p->bytes && p->text[p->at + 1] != ']') {
        p->at++;
        high = eat(p, "\\") ? read_escape(p) : read_character(p);
    }
    if (!failed(p)) add_range(p, c, low, high);
}

static uint32_t parse_class(Pattern *p)
{
    Class c = {.negated = eat(p, "^")};
    if (look(p) == ']') return fault(p, "has an empty class, or one that starts with ]");
    while (!failed(p) && !eat(p, "]")) {
        if (at_end(p)) return fault(p, "has a class without its ]");
        add_part(p, &c);
    }
    return class_node(p, &c);
}

/* ---- the rest ---- */

static uint32_t parse_choice(Pattern *p);

static uint32_t parse_group(Pattern *p)
{
    if (look(p) == '?' && !eat(p, "?:")) return fault(p, "has a group that is not supported");
    if (p->depth == DEPTH_MAX) return fault(p, "nests deeper than 24 groups");
    p->depth++;
    uint32_t node = parse_choice(p);
    p->depth--;
    if (!failed(p) && !eat(p, ")")) return fault(p, "has a group without its )");
    return node;
}

static uint32_t parse_atom(Pattern *p)
{
    static const GrammarRange line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
    Class c = {0};
    if (eat(p, "(")) return parse_group(p);
    if (eat(p, "[")) return parse_class(p);
    if (eat(p, ".")) return schema_string_class(p->s, line_ends, 3, true);
    uint8_t next = look(p);
    if (next && strchr("*+?{}^$]", next)) return fault(p, "has a sign where none is supported");
    uint32_t character;
    if (eat(p, "\\")) {
        if (add_shorthand(p, &c, look(p))) {
            p->at++;
            return class_node(p, &c);
        }
        character = read_escape(p);
    } else {
        character = read_character(p);
    }
    if (failed(p)) return 0;
    add_range(p, &c, character, character);
    return class_node(p, &c);
}

static uint32_t read_number(Pattern *p)
{
    uint32_t value = 0;
    size_t start = p->at;
    for (; look(p) >= '0' && look(p) <= '9'; p->at++) {
        value = 10 * value + (uint32_t)(look(p) - '0');
        if (value > 10000) return fault(p, "has a count above 10000");
    }
    return p->at == start ? fault(p, "has a { without a count") : value;
}

static uint32_t parse_counts(Pattern *p, uint32_t node)
{
    uint32_t least = read_number(p), most = least;
    if (eat(p, ",")) most = look(p) == '}' ? GRAMMAR_UNBOUNDED : read_number(p);
    if (!failed(p) && !eat(p, "}")) return fault(p, "has a { without its }");
    if (p->floats &&
        (least > FLOATING_COUNT_MAX || (most > FLOATING_COUNT_MAX && most != GRAMMAR_UNBOUNDED)))
        return fault(p, "has a count above 16 and does not begin with ^");
    return grammar_repeat(p->s->b, node, least, most);
}

static uint32_t parse_repeated(Pattern *p)
{
    GrammarBuilder *b = p->s->b;
    uint32_t node = parse_atom(p);
    if (failed(p)) return 0;
    if (eat(p, "*")) node = grammar_repeat(b, node, 0, GRAMMAR_UNBOUNDED);
    else if (eat(p, "+")) node = grammar_repeat(b, node, 1, GRAMMAR_UNBOUNDED);
    else if (eat(p, "?")) node = grammar_repeat(b, node, 0, 1);
    else if (eat(p, "{")) node = parse_counts(p, node);
    else return node;
    (void)eat(p, "?"); /* lazy: the same strings */
    return node;
}

static bool is_end_anchor(const Pattern *p)
{
    return p->depth == 0 && look(p) == '$' && p->at + 1 == p->bytes;
}

static uint32_t parse_sequence(Pattern *p)
{
    GrammarList list = {0};
    while (!failed(p) && !at_end(p) && look(p) != '|' && look(p) != ')' && !is_end_anchor(p))
        grammar_add(p->s->b, &list, parse_repeated(p));
    return grammar_sequence(p->s->b, &list);
}

static uint32_t parse_choice(Pattern *p)
{
    GrammarList list = {0};
    do grammar_add(p->s->b, &list, parse_sequence(p));
    while (!failed(p) && eat(p, "|"));
    if (p->depth == 0 && list.count > 1 && (p->text[0] == '^' || look(p) == '$'))
        return fault(p, "has | beside an anchor; put it in a group");
    return grammar_choice(p->s->b, &list);
}

uint32_t schema_pattern(Schema *s, const char *pattern, size_t bytes)
{
    Pattern p = {.s = s, .text = (const uint8_t *)pattern, .bytes = bytes};
    GrammarBuilder *b = s->b;
    GrammarList list = {0};
    p.floats = !eat(&p, "^");
    if (p.floats)
        grammar_add(b, &list, grammar_repeat(b, schema_character(s), 0, GRAMMAR_UNBOUNDED));
    grammar_add(b, &list, parse_choice(&p));
    if (!eat(&p, "$"))
        grammar_add(b, &list, grammar_repeat(b, schema_character(s), 0, GRAMMAR_UNBOUNDED));
    if (!failed(&p) && !at_end(&p)) return fault(&p, "has a ) too many");
    return grammar_sequence(b, &list);
}
