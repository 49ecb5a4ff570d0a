/* SPDX-License-Identifier: Apache-2.0 */
/* Strings: of a length, of a format, of a pattern; of exactly one text; and keys that are none of a list. */
#include <string.h>

#include "api/schema_state.h"
#include "text/utf8.h"

static const GrammarRange special[] = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
enum { SPECIALS = 3, CLASS_RANGES_MAX = 600 };

static uint32_t quoted(Schema *s, uint32_t inside)
{
    GrammarList list = {0};
    grammar_add(s->b, &list, grammar_text(s->b, "\""));
    grammar_add(s->b, &list, inside);
    grammar_add(s->b, &list, grammar_text(s->b, "\""));
    return grammar_sequence(s->b, &list);
}

/* ---- characters ---- */

static bool is_special(uint32_t c) { return c < 0x20 || c == '"' || c == '\\'; }

/* The escape of a special character: two bytes where JSON has such, else \u00 and two digits. */
static uint32_t escape(uint32_t c, char *out)
{
    static const char letters[] = "btn\0fr", digits[] = "0123456789abcdef";
    memcpy(out, "\\u00", 4);
    if (c == '"' || c == '\\') return out[1] = (char)c, 2;
    if (c >= 8 && c <= 13 && letters[c - 8]) return out[1] = letters[c - 8], 2;
    out[4] = digits[c >> 4];
    out[5] = digits[c & 15];
    return 6;
}

static bool has(const GrammarRange *ranges, uint32_t count, bool negated, uint32_t c)
{
    bool in = false;
    for (uint32_t i = 0; i < count; i++) in |= c >= ranges[i].low && c <= ranges[i].high;
    return in != negated;
}

/* The ranges without special characters. Result  how many. */
static uint32_t without_specials(const GrammarRange *ranges, uint32_t count, GrammarRange *out)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        GrammarRange r = ranges[i];
        for (uint32_t k = 0; k < SPECIALS && r.low <= r.high; k++) {
            if (special[k].high < r.low || special[k].low > r.high) continue;
            if (r.low < special[k].low) out[kept++] = (GrammarRange){r.low, special[k].low - 1};
            r.low = special[k].high + 1;
        }
        if (r.low <= r.high) out[kept++] = r;
    }
    return kept;
}

static uint32_t plain_class(Schema *s, const GrammarRange *ranges, uint32_t count, bool negated)
{
    GrammarRange out[CLASS_RANGES_MAX + SPECIALS];
    if (!negated) {
        count = without_specials(ranges, count, out);
        return count ? grammar_class(s->b, out, count, false) : 0;
    }
    memcpy(out, ranges, count * sizeof *out);
    memcpy(out + count, special, sizeof special);
    return grammar_class(s->b, out, count + SPECIALS, true);
}

uint32_t schema_string_class(Schema *s, const GrammarRange *ranges, uint32_t count, bool negated)
{
    GrammarList any = {0};
    char text[6];
    if (count * (SPECIALS + 1) > CLASS_RANGES_MAX)
        return schema_fault(s, ERR_TOO_LARGE, "has a class of too many parts", "pattern");
    uint32_t plain = plain_class(s, ranges, count, negated);
    if (plain) grammar_add(s->b, &any, plain);
    for (uint32_t c = 0; c < 0x80; c++)
        if (is_special(c) && has(ranges, count, negated, c))
            grammar_add(s->b, &any, grammar_bytes(s->b, text, escape(c, text)));
    return grammar_choice(s->b, &any);
}

size_t schema_string_write(const char *text, size_t bytes, char *out)
{
    size_t used = 0;
    out[used++] = '"';
    for (size_t i = 0; i < bytes; i++) {
        if (is_special((uint8_t)text[i])) used += escape((uint8_t)text[i], out + used);
        else out[used++] = text[i];
    }
    out[used++] = '"';
    return used;
}

uint32_t schema_string_of(Schema *s, const char *text, size_t bytes)
{
    size_t mark = arena_mark(s->arena);
    char *out = arena_take_raw(s->arena, SCHEMA_ESCAPE_BYTES_MAX * bytes + 2);
    if (!out) return schema_fault(s, ERR_MEMORY, "no memory for a name", NULL);
    uint32_t node = grammar_bytes(s->b, out, schema_string_write(text, bytes, out));
    arena_reset(s->arena, mark);
    return node;
}

/* ---- keys that are none of a list ----
 *
 * Such keys are written without escapes. At each character: one that no listed key has here, then anything; or one
 * that some have, then the same for those; or the end, where none of them ends. Keys that agree in the first
 * EXCEPT_DEPTH_MAX characters are all kept away from. */

enum { EXCEPT_DEPTH_MAX = 64 };

typedef struct Except {
    Schema *s;
    yyjson_val *const *keys;
    uint32_t count;
    uint32_t any; /* of characters that need no escape, any number */
} Except;

/* The character of a key behind `at` bytes and its end; false when the key ends there or goes on with none that could
 * be written. */
static bool next_character(yyjson_val *key, size_t at, uint32_t *c, size_t *end)
{
    size_t bytes = yyjson_get_len(key);
    uint32_t length;
    if (at >= bytes) return false;
    *c = utf8_read((const uint8_t *)yyjson_get_str(key) + at, bytes - at, &length);
    *end = at + length;
    return *c != UTF8_INVALID && !is_special(*c);
}

static bool starts_like(yyjson_val *key, yyjson_val *other, size_t bytes)
{
    return yyjson_get_len(key) >= bytes && yyjson_get_len(other) >= bytes &&
           memcmp(yyjson_get_str(key), yyjson_get_str(other), bytes) == 0;
}

static uint32_t except_at(const Except *e, yyjson_val *like, size_t at, uint32_t depth);

/* Adds the way through character c unless it was added for a key before. */
static void add_way(const Except *e, uint32_t key, size_t at, uint32_t depth, GrammarRange *taken,
                    uint32_t *count, GrammarList *any)
{
    uint32_t c;
    size_t end;
    GrammarBuilder *b = e->s->b;
    if (!next_character(e->keys[key], at, &c, &end)) return;
    for (uint32_t i = 0; i < *count; i++)
        if (taken[i].low == c) return;
    taken[(*count)++] = (GrammarRange){c, c};
    if (depth == EXCEPT_DEPTH_MAX) return;
    GrammarList way = {0};
    grammar_add(b, &way, grammar_bytes(b, yyjson_get_str(e->keys[key]) + at, end - at));
    grammar_add(b, &way, except_at(e, e->keys[key], end, depth + 1));
    grammar_add(b, any, grammar_sequence(b, &way));
}

/* Behind the first `at` bytes of the key `like`. */
static uint32_t except_at(const Except *e, yyjson_val *like, size_t at, uint32_t depth)
{
    Schema *s = e->s;
    GrammarBuilder *b = s->b;
    bool ends = false;
    uint32_t count = 0, rule = grammar_rule(b, "key", 3);
    size_t mark = arena_mark(s->arena);
    GrammarRange *taken =
        arena_take_raw(s->arena, (SCHEMA_PROPERTIES_MAX + SPECIALS) * sizeof *taken);
    if (!taken) return schema_fault(s, ERR_MEMORY, "no memory", "additionalProperties");
    GrammarList any = {0}, other = {0};
    for (uint32_t i = 0; i < e->count && !schema_failed(s); i++) {
        if (like && !starts_like(e->keys[i], like, at)) continue;
        ends |= yyjson_get_len(e->keys[i]) == at;
        add_way(e, i, at, depth, taken, &count, &any);
    }
    memcpy(taken + count, special, sizeof special);
    grammar_add(b, &other, grammar_class(b, taken, count + SPECIALS, true));
    grammar_add(b, &other, e->any);
    grammar_add(b, &any, grammar_sequence(b, &other));
    if (!ends) grammar_add(b, &any, grammar_empty(b));
    arena_reset(s->arena, mark);
    if (schema_failed(s)) return 0;
    grammar_define(b, rule, grammar_choice(b, &any));
    return grammar_call(b, rule);
}

uint32_t schema_string_except(Schema *s, yyjson_val *const *keys, uint32_t count)
{
    uint32_t one = grammar_class(s->b, special, SPECIALS, true);
    Except e = {s, keys, count, grammar_repeat(s->b, one, 0, GRAMMAR_UNBOUNDED)};
    return quoted(s, except_at(&e, NULL, 0, 0));
}

/* ---- strings ---- */

#define SHORT_DAY "(0[1-9]|1[0-9]|2[0-8])"
#define DATE                                                                  \
    "([1-9][0-9]{3}-((0[1-9]|1[0-2])-" SHORT_DAY "|(0[13-9]|1[0-2])-(29|30)|" \
    "(0[13578]|1[02])-31)|"                                                   \
    "([1-9][0-9](0[48]|[2468][048]|[13579][26])|([2468][048]|[13579][26])00)-02-29)"
#define TIME                                                   \
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?" \
    "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,40}[A-Za-z0-9])?"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
    {"ipv4", "^" OCTET "(\\." OCTET "){3}$"},
    {"email", "^[A-Za-z0-9_+-]{1,32}(\\.[A-Za-z0-9_+-]{1,32}){0,3}@" LABEL "(\\." LABEL "){1,4}$"},
    {"hostname", "^" LABEL "(\\." LABEL "){0,4}$"},
};

static uint32_t of_format(Schema *s, yyjson_val *format)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (yyjson_equals_str(format, formats[i].name))
            return schema_pattern(s, formats[i].pattern, strlen(formats[i].pattern));
    return schema_fault(s, ERR_UNSUPPORTED,
                        "must be date, time, date-time, uuid, ipv4, email or hostname", "format");
}

static uint32_t of_pattern(Schema *s, yyjson_val *pattern)
{
    if (!yyjson_is_str(pattern)) return schema_fault(s, ERR_FORMAT, "must be a string", "pattern");
    return schema_pattern(s, yyjson_get_str(pattern), yyjson_get_len(pattern));
}

uint32_t schema_string(Schema *s, const SchemaView *view)
{
    uint32_t least = schema_view_most(s, view, "minLength", 0),
             most = schema_view_least(s, view, "maxLength", GRAMMAR_UNBOUNDED),
             formed = schema_view_count(view, "format") + schema_view_count(view, "pattern");
    if (schema_failed(s)) return 0;
    if (least > most) return schema_fault(s, ERR_RANGE, "is larger than maxLength", "minLength");
    if (formed && (formed > 1 || least || most != GRAMMAR_UNBOUNDED))
        return schema_fault(s, ERR_UNSUPPORTED,
                            "only one of pattern, format and a length is supported", NULL);
    if (schema_view_get(view, "format"))
        return quoted(s, of_format(s, schema_view_get(view, "format")));
    if (formed) return quoted(s, of_pattern(s, schema_view_get(view, "pattern")));
    return quoted(s, grammar_repeat(s->b, schema_character(s), least, most));
}
