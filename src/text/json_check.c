/* SPDX-License-Identifier: Apache-2.0 */
/* See json_check.h. A number ends with the byte behind it, which is looked at again. */
#include "text/json_check.h"

#include <stddef.h>

/* No text has so many zeros that a larger exponent would make another number. */
#define EXPONENT_MAX 1000000000000
enum { POWER_MAX = 308 }; /* the largest double is 1.8e308 */

static bool is_space(uint8_t c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
static bool is_digit(uint8_t c) { return c >= '0' && c <= '9'; }

static JsonCheckResult go(JsonCheck *c, JsonCheckPlace place)
{
    c->place = place;
    return JSON_CHECK_GOES_ON;
}

static JsonCheckResult open_level(JsonCheck *c, bool object)
{
    if (c->depth == JSON_CHECK_DEPTH_MAX) return JSON_CHECK_FAULT;
    uint64_t bit = 1ull << c->depth++;
    c->objects = object ? c->objects | bit : c->objects & ~bit;
    return go(c, object ? JSON_CHECK_KEY_OR_END : JSON_CHECK_VALUE_OR_END);
}

static bool in_object(const JsonCheck *c) { return c->objects >> (c->depth - 1) & 1; }

static JsonCheckResult close_level(JsonCheck *c, uint8_t byte)
{
    if (byte != (in_object(c) ? '}' : ']')) return JSON_CHECK_FAULT;
    c->depth--;
    c->place = JSON_CHECK_COMMA;
    return c->depth ? JSON_CHECK_GOES_ON : JSON_CHECK_WHOLE;
}

static JsonCheckResult open_string(JsonCheck *c, bool key)
{
    c->key = key;
    return go(c, JSON_CHECK_STRING);
}

static JsonCheckResult open_word(JsonCheck *c, const char *rest)
{
    c->word = rest;
    return go(c, JSON_CHECK_WORD);
}

/* Its first digit, perhaps behind the minus. */
static JsonCheckResult open_number(JsonCheck *c, uint8_t byte)
{
    c->some = byte != '0';
    c->power = c->some;
    c->exponent = 0;
    c->small = false;
    return go(c, c->some ? JSON_CHECK_DIGITS : JSON_CHECK_ZERO);
}

static JsonCheckResult value(JsonCheck *c, uint8_t byte)
{
    switch (byte) {
    case '{': return open_level(c, true);
    case '[': return open_level(c, false);
    case '"': return open_string(c, false);
    case 't': return open_word(c, "rue");
    case 'f': return open_word(c, "alse");
    case 'n': return open_word(c, "ull");
    case '-': return go(c, JSON_CHECK_MINUS);
    default: return is_digit(byte) ? open_number(c, byte) : JSON_CHECK_FAULT;
    }
}

static JsonCheckResult comma(JsonCheck *c, uint8_t byte)
{
    if (byte != ',') return close_level(c, byte);
    return go(c, in_object(c) ? JSON_CHECK_KEY : JSON_CHECK_VALUE);
}

/* Between the parts. */
static JsonCheckResult between(JsonCheck *c, uint8_t byte)
{
    if (is_space(byte)) return JSON_CHECK_GOES_ON;
    switch (c->place) {
    case JSON_CHECK_START: return byte == '{' ? open_level(c, true) : JSON_CHECK_FAULT;
    case JSON_CHECK_KEY: return byte == '"' ? open_string(c, true) : JSON_CHECK_FAULT;
    case JSON_CHECK_KEY_OR_END: return byte == '"' ? open_string(c, true) : close_level(c, byte);
    case JSON_CHECK_COLON: return byte == ':' ? go(c, JSON_CHECK_VALUE) : JSON_CHECK_FAULT;
    case JSON_CHECK_VALUE_OR_END: return byte == ']' ? close_level(c, byte) : value(c, byte);
    case JSON_CHECK_COMMA: return comma(c, byte);
    default: return value(c, byte);
    }
}

static JsonCheckResult string(JsonCheck *c, uint8_t byte)
{
    if (c->high && byte != '\\') return JSON_CHECK_FAULT;
    if (byte == '"') return go(c, c->key ? JSON_CHECK_COLON : JSON_CHECK_COMMA);
    if (byte == '\\') return go(c, JSON_CHECK_ESCAPE);
    return byte < 0x20 ? JSON_CHECK_FAULT : JSON_CHECK_GOES_ON;
}

static JsonCheckResult escape(JsonCheck *c, uint8_t byte)
{
    static const char letters[] = "\"\\/bfnrt";
    if (byte == 'u') {
        c->digits = 4;
        c->unit = 0;
        return go(c, JSON_CHECK_HEX);
    }
    for (size_t i = 0; letters[i] && !c->high; i++)
        if (byte == (uint8_t)letters[i]) return go(c, JSON_CHECK_STRING);
    return JSON_CHECK_FAULT;
}

/* Half a pair is no character: parsers refuse it, ours of the next request too. */
static JsonCheckResult end_unit(JsonCheck *c)
{
    bool low = c->unit >= 0xdc00 && c->unit <= 0xdfff;
    if (low != c->high) return JSON_CHECK_FAULT;
    c->high = c->unit >= 0xd800 && c->unit <= 0xdbff;
    return go(c, JSON_CHECK_STRING);
}

static JsonCheckResult hex(JsonCheck *c, uint8_t byte)
{
    uint8_t lower = byte | 0x20;
    if (!is_digit(byte) && !(lower >= 'a' && lower <= 'f')) return JSON_CHECK_FAULT;
    c->unit = c->unit << 4 | (uint32_t)(is_digit(byte) ? byte - '0' : lower - 'a' + 10);
    return --c->digits ? JSON_CHECK_GOES_ON : end_unit(c);
}

static JsonCheckResult word(JsonCheck *c, uint8_t byte)
{
    if (byte != (uint8_t)*c->word) return JSON_CHECK_FAULT;
    return *++c->word ? JSON_CHECK_GOES_ON : go(c, JSON_CHECK_COMMA);
}

static JsonCheckResult fraction(JsonCheck *c, uint8_t byte)
{
    c->some |= byte != '0';
    c->power -= !c->some;
    return go(c, JSON_CHECK_FRACTION);
}

static JsonCheckResult exponent(JsonCheck *c, uint8_t byte)
{
    if (c->exponent < EXPONENT_MAX) c->exponent = 10 * c->exponent + byte - '0';
    return go(c, JSON_CHECK_EXPONENT);
}

static JsonCheckResult end_number(JsonCheck *c, uint8_t byte)
{
    int64_t power = c->power + (c->small ? -c->exponent : c->exponent);
    if (c->some && power > POWER_MAX) return JSON_CHECK_FAULT;
    c->place = JSON_CHECK_COMMA;
    return between(c, byte);
}

/* The number may end where a digit has just been; then `byte` is what comes behind it. */
static JsonCheckResult number(JsonCheck *c, uint8_t byte)
{
    bool digit = is_digit(byte), e = byte == 'e' || byte == 'E', point = byte == '.';
    switch (c->place) {
    case JSON_CHECK_MINUS: return digit ? open_number(c, byte) : JSON_CHECK_FAULT;
    case JSON_CHECK_ZERO:
    case JSON_CHECK_DIGITS:
        if (digit && c->place == JSON_CHECK_DIGITS) {
            c->power++;
            return JSON_CHECK_GOES_ON;
        }
        if (point) return go(c, JSON_CHECK_POINT);
        if (e) return go(c, JSON_CHECK_E);
        break;
    case JSON_CHECK_POINT: return digit ? fraction(c, byte) : JSON_CHECK_FAULT;
    case JSON_CHECK_FRACTION:
        if (digit) return fraction(c, byte);
        if (e) return go(c, JSON_CHECK_E);
        break;
    case JSON_CHECK_E:
        c->small = byte == '-';
        if (c->small || byte == '+') return go(c, JSON_CHECK_E_SIGN);
        return digit ? exponent(c, byte) : JSON_CHECK_FAULT;
    case JSON_CHECK_E_SIGN: return digit ? exponent(c, byte) : JSON_CHECK_FAULT;
    default:
        if (digit) return exponent(c, byte);
    }
    return end_number(c, byte);
}

JsonCheckResult json_check_push(JsonCheck *c, uint8_t byte)
{
    switch (c->place) {
    case JSON_CHECK_STRING: return string(c, byte);
    case JSON_CHECK_ESCAPE: return escape(c, byte);
    case JSON_CHECK_HEX: return hex(c, byte);
    case JSON_CHECK_WORD: return word(c, byte);
    case JSON_CHECK_MINUS:
    case JSON_CHECK_ZERO:
    case JSON_CHECK_DIGITS:
    case JSON_CHECK_POINT:
    case JSON_CHECK_FRACTION:
    case JSON_CHECK_E:
    case JSON_CHECK_E_SIGN:
    case JSON_CHECK_EXPONENT: return number(c, byte);
    default: return between(c, byte);
    }
}
