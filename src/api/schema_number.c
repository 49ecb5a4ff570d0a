/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers. Whole ones within bounds are exact, to the last digit, up to 2^53 - 1. Fractions within bounds are written
 * without an exponent, with up to FRACTION_DIGITS digits, and bounds themselves must be whole:
 *
 *   2 <= x <= 5   2 3 4 5, 2.x 3.x 4.x        -1 < x < 1   0, 0.x, -0.x (not all zeros beside a bound left out)
 */
#include <string.h>

#include "api/schema_state.h"

#define WHOLE_MAX 9007199254740991 /* 2^53 - 1 */
#define LARGE_MAX 1000000000000000 /* of fractions without a bound */
enum { FRACTION_DIGITS = 12, EXACT_MAX = 1000 };

typedef struct Bounds {
    int64_t low, high;
    bool low_open, high_open; /* the bound itself is left out */
    bool given;
} Bounds;

static const GrammarRange digit[] = {{'0', '9'}};

static uint32_t digits(Schema *s, uint32_t least, uint32_t most)
{
    return grammar_repeat(s->b, grammar_class(s->b, digit, 1, false), least, most);
}

static uint32_t pair(Schema *s, uint32_t a, uint32_t b)
{
    GrammarList list = {0};
    grammar_add(s->b, &list, a);
    grammar_add(s->b, &list, b);
    return grammar_sequence(s->b, &list);
}

/* ---- whole numbers: strings of digits between two of the same length ---- */

static bool is_all(const char *text, uint32_t count, char c)
{
    for (uint32_t i = 0; i < count; i++)
        if (text[i] != c) return false;
    return true;
}

static uint32_t between(Schema *s, const char *low, const char *high, uint32_t count)
{
    static const char zeros[] = "0000000000000000", nines[] = "9999999999999999";
    GrammarList any = {0};
    if (!count) return grammar_empty(s->b);
    if (is_all(low, count, '0') && is_all(high, count, '9')) return digits(s, count, count);
    if (low[0] == high[0])
        return pair(s, grammar_bytes(s->b, low, 1), between(s, low + 1, high + 1, count - 1));
    bool whole_low = is_all(low + 1, count - 1, '0'), whole_high = is_all(high + 1, count - 1, '9');
    GrammarRange middle = {(uint32_t)low[0] + !whole_low, (uint32_t)high[0] - !whole_high};
    if (!whole_low)
        grammar_add(s->b, &any,
                    pair(s, grammar_bytes(s->b, low, 1), between(s, low + 1, nines, count - 1)));
    if (middle.low <= middle.high)
        grammar_add(
            s->b, &any,
            pair(s, grammar_class(s->b, &middle, 1, false), digits(s, count - 1, count - 1)));
    if (!whole_high)
        grammar_add(s->b, &any,
                    pair(s, grammar_bytes(s->b, high, 1), between(s, zeros, high + 1, count - 1)));
    return grammar_choice(s->b, &any);
}

static uint32_t digits_of(int64_t value, char *out)
{
    char turned[20];
    uint32_t count = 0;
    do turned[count++] = (char)('0' + value % 10);
    while (value /= 10);
    for (uint32_t i = 0; i < count; i++) out[i] = turned[count - 1 - i];
    return count;
}

/* Adds the numbers from low to high, both at least 0. */
static void add_whole(Schema *s, const char *sign, int64_t low, int64_t high, uint32_t after,
                      GrammarList *any)
{
    char a[20], b[20];
    while (low <= high) {
        uint32_t count = digits_of(low, a);
        int64_t end = 9;
        for (uint32_t i = 1; i < count; i++) end = 10 * end + 9;
        if (end > high) end = high;
        (void)digits_of(end, b);
        uint32_t number = pair(s, grammar_text(s->b, sign), between(s, a, b, count));
        grammar_add(s->b, any, after ? pair(s, number, after) : number);
        low = end + 1;
    }
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static void add_integers(Schema *s, int64_t low, int64_t high, GrammarList *any)
{
    add_whole(s, "-", larger(1, -high), -low, 0, any);
    add_whole(s, "", larger(low, 0), high, 0, any);
}

/* ---- fractions ---- */

/* A point and digits, not all of them 0 with `some`. */
static uint32_t fraction(Schema *s, bool some)
{
    static const GrammarRange not_zero[] = {{'1', '9'}};
    uint32_t point = grammar_text(s->b, ".");
    if (!some) return pair(s, point, digits(s, 1, FRACTION_DIGITS));
    uint32_t last = grammar_class(s->b, not_zero, 1, false);
    return pair(s, point, pair(s, digits(s, 0, FRACTION_DIGITS - 1), last));
}

/* sign n . x for n from low to high; at n = `edge` the fraction must not be 0. */
static void add_fractions(Schema *s, const char *sign, int64_t low, int64_t high, int64_t edge,
                          bool open, GrammarList *any)
{
    if (open && edge == low && low <= high) {
        add_whole(s, sign, low, low, fraction(s, true), any);
        low++;
    }
    add_whole(s, sign, low, high, fraction(s, false), any);
}

/* Beside a bound that is left out and large, a fraction could be rounded to it by who reads it. */
static bool unit_left_out(int64_t bound, bool open)
{
    return open && (bound > EXACT_MAX || bound < -EXACT_MAX);
}

static void add_between(Schema *s, const Bounds *k, GrammarList *any)
{
    int64_t low = k->low + unit_left_out(k->low, k->low_open),
            high = k->high - unit_left_out(k->high, k->high_open);
    add_integers(s, k->low + k->low_open, k->high - k->high_open, any);
    add_fractions(s, "", larger(low, 0), high - 1, k->low, k->low_open, any);
    add_fractions(s, "-", larger(0, -high), -low - 1, -k->high, k->high_open, any);
}

static uint32_t any_number(Schema *s)
{
    static const GrammarRange first[] = {{'1', '9'}}, sign[] = {{'+', '+'}, {'-', '-'}},
                              e[] = {{'e', 'e'}, {'E', 'E'}};
    GrammarBuilder *b = s->b;
    GrammarList all = {0}, whole = {0}, power = {0};
    grammar_add(b, &whole, grammar_text(b, "0"));
    grammar_add(b, &whole, pair(s, grammar_class(b, first, 1, false), digits(s, 0, 15)));
    grammar_add(b, &power, grammar_class(b, e, 2, false));
    grammar_add(b, &power, grammar_repeat(b, grammar_class(b, sign, 2, false), 0, 1));
    grammar_add(b, &power, digits(s, 1, 2));
    grammar_add(b, &all, grammar_repeat(b, grammar_text(b, "-"), 0, 1));
    grammar_add(b, &all, grammar_choice(b, &whole));
    grammar_add(b, &all, grammar_repeat(b, pair(s, grammar_text(b, "."), digits(s, 1, 16)), 0, 1));
    grammar_add(b, &all, grammar_repeat(b, grammar_sequence(b, &power), 0, 1));
    return grammar_sequence(b, &all);
}

/* ---- bounds ---- */

/* The whole number at or, rounded `up` or down, beside a bound. */
static bool read_bound(Schema *s, yyjson_val *value, const char *keyword, bool whole, bool up,
                       int64_t *out, bool *inexact)
{
    double number = yyjson_get_num(value);
    if (!yyjson_is_num(value)) return schema_fault(s, ERR_FORMAT, "must be a number", keyword);
    if (!(number >= -(double)WHOLE_MAX && number <= (double)WHOLE_MAX))
        return schema_fault(s, ERR_UNSUPPORTED, "must lie within 2^53", keyword);
    int64_t below = (int64_t)number;
    if ((double)below > number) below--;
    *inexact = (double)below != number;
    *out = below + (*inexact && up);
    if (*inexact && !whole)
        return schema_fault(s, ERR_UNSUPPORTED, "of a number must be whole", keyword);
    return true;
}

static void narrow_low(Schema *s, yyjson_val *value, const char *keyword, bool whole, bool open,
                       Bounds *k)
{
    int64_t bound;
    bool inexact;
    if (!value || !read_bound(s, value, keyword, whole, true, &bound, &inexact)) return;
    open = open && !inexact;
    if (bound > k->low) k->low_open = open;
    else if (bound == k->low) k->low_open |= open;
    k->low = larger(k->low, bound);
}

static void narrow_high(Schema *s, yyjson_val *value, const char *keyword, bool whole, bool open,
                        Bounds *k)
{
    int64_t bound;
    bool inexact;
    if (!value || !read_bound(s, value, keyword, whole, false, &bound, &inexact)) return;
    open = open && !inexact;
    if (bound < k->high) k->high_open = open;
    else if (bound == k->high) k->high_open |= open;
    k->high = smaller(k->high, bound);
}

static Bounds bounds_of(Schema *s, const SchemaView *view, bool whole)
{
    int64_t most = whole ? WHOLE_MAX : LARGE_MAX;
    Bounds k = {.low = -most, .high = most};
    for (uint32_t i = 0; i < view->count; i++) {
        yyjson_val *schema = view->items[i].value;
        yyjson_val *low = yyjson_obj_get(schema, "minimum"),
                   *high = yyjson_obj_get(schema, "maximum"),
                   *above = yyjson_obj_get(schema, "exclusiveMinimum"),
                   *under = yyjson_obj_get(schema, "exclusiveMaximum");
        k.given |= low || high || above || under;
        narrow_low(s, low, "minimum", whole, false, &k);
        narrow_low(s, above, "exclusiveMinimum", whole, true, &k);
        narrow_high(s, high, "maximum", whole, false, &k);
        narrow_high(s, under, "exclusiveMaximum", whole, true, &k);
    }
    return k;
}

uint32_t schema_number(Schema *s, const SchemaView *view, bool whole)
{
    GrammarList any = {0};
    Bounds k = bounds_of(s, view, whole);
    if (schema_failed(s)) return 0;
    if (!k.given && !whole) return any_number(s);
    if (whole) add_integers(s, k.low + k.low_open, k.high - k.high_open, &any);
    else add_between(s, &k, &any);
    if (schema_failed(s)) return 0;
    if (!any.count) return schema_fault(s, ERR_RANGE, "no number lies between the bounds", NULL);
    return grammar_choice(s->b, &any);
}
