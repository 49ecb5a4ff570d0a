/* SPDX-License-Identifier: Apache-2.0 */
/* See jinja_number.h. The shortest digits of a float, and the float nearest to digits, are yyjson's. */
#include "text/jinja_number.h"

#include <string.h>
#include <yyjson.h>

enum { POOL_BYTES = 1024, DIGITS_MAX = 40, PLAIN_BYTES_MAX = 80 };

size_t jinja_number_write_int(int64_t integer, char *out)
{
    char digits[24];
    size_t count = 0, at = 0;
    uint64_t rest = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer;
    do digits[count++] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (integer < 0) out[at++] = '-';
    while (count) out[at++] = digits[--count];
    return at;
}

/* "-12.5e3" to digits "125" and the place of the point behind them: value = 0.DIGITS * 10^point. */
static size_t split_digits(const char *json, char *digits, int *point)
{
    size_t count = 0;
    int exponent = 0, sign = 1;
    bool dot = false;
    *point = 0;
    for (; *json && *json != 'e' && *json != 'E'; json++) {
        if (*json == '.') dot = true;
        if (*json < '0' || *json > '9') continue;
        if (count == 0 && *json == '0') {
            *point -= dot;
            continue;
        }
        if (count < DIGITS_MAX) digits[count++] = *json;
        *point += !dot;
    }
    if (*json) json++;
    if (*json == '-' || *json == '+') sign = *json++ == '-' ? -1 : 1;
    for (; *json; json++) exponent = exponent * 10 + (*json - '0');
    *point += sign * exponent;
    while (count && digits[count - 1] == '0') count--;
    return count;
}

static size_t put(char *out, size_t at, const char *bytes, size_t count)
{
    memcpy(out + at, bytes, count);
    return at + count;
}

static size_t put_zeros(char *out, size_t at, int count)
{
    for (; count > 0; count--) out[at++] = '0';
    return at;
}

static size_t write_plain(const char *digits, size_t count, int point, char *out, size_t at)
{
    if (point <= 0) {
        at = put(out, at, "0.", 2);
        return put(out, put_zeros(out, at, -point), digits, count);
    }
    size_t whole = (size_t)point < count ? (size_t)point : count;
    at = put_zeros(out, put(out, at, digits, whole), point - (int)whole);
    out[at++] = '.';
    return whole < count ? put(out, at, digits + whole, count - whole) : put(out, at, "0", 1);
}

static size_t write_exponent(const char *digits, size_t count, int exponent, char *out, size_t at)
{
    out[at++] = digits[0];
    if (count > 1) out[at++] = '.';
    at = put(out, at, digits + 1, count - 1);
    out[at++] = 'e';
    out[at++] = exponent < 0 ? '-' : '+';
    unsigned size = (unsigned)(exponent < 0 ? -exponent : exponent);
    if (size < 10) out[at++] = '0';
    return at + jinja_number_write_int(size, out + at);
}

size_t jinja_number_write_float(double number, char *out)
{
    char pool[POOL_BYTES], digits[DIGITS_MAX];
    if (number != number) return put(out, 0, "nan", 3);
    if (number - number != 0) return number > 0 ? put(out, 0, "inf", 3) : put(out, 0, "-inf", 4);
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    size_t at = 0;
    if (bits >> 63) out[at++] = '-';
    if (number == 0) return put(out, at, "0.0", 3);
    yyjson_alc alc;
    yyjson_val val;
    memset(&val, 0, sizeof val);
    val.tag = YYJSON_TYPE_NUM | YYJSON_SUBTYPE_REAL;
    val.uni.f64 = number;
    ASSERT(yyjson_alc_pool_init(&alc, pool, sizeof pool));
    size_t length;
    char *json = yyjson_val_write_opts(&val, 0, &alc, &length, NULL);
    ASSERT(json);
    int point;
    size_t count = split_digits(json, digits, &point);
    if (point > -4 && point <= 16) return write_plain(digits, count, point, out, at);
    return write_exponent(digits, count, point - 1, out, at);
}

/* JSON knows no _, no leading zeros and no "1." or ".5": what is left is read by yyjson. */
static bool read_float(const char *text, size_t bytes, JinjaValue *out)
{
    char pool[POOL_BYTES];
    yyjson_alc alc;
    yyjson_val val;
    yyjson_read_err error;
    if (!yyjson_alc_pool_init(&alc, pool, sizeof pool)) return false;
    const char *end = yyjson_read_number(text, &val, YYJSON_READ_ALLOW_INF_AND_NAN, &alc, &error);
    if (end != text + bytes) return false;
    *out = jinja_value_float(yyjson_get_num(&val));
    return true;
}

static bool read_int(const char *text, size_t bytes, JinjaValue *out)
{
    bool negative = *text == '-';
    int64_t value = 0;
    for (size_t i = negative; i < bytes; i++) {
        int digit = text[i] - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, negative ? -digit : digit, &value))
            return false;
    }
    *out = jinja_value_int(value);
    return true;
}

bool jinja_number_read(const uint8_t *text, size_t bytes, JinjaValue *out)
{
    char plain[PLAIN_BYTES_MAX];
    size_t count = 0, digits = 0;
    bool real = false;
    for (size_t i = 0; i < bytes; i++) {
        uint8_t c = text[i];
        bool digit = c >= '0' && c <= '9', dot = c == '.', e = c == 'e' || c == 'E';
        if (c == '_' && i && i + 1 < bytes) continue;
        if (!(digit || dot || e || c == '-' || c == '+') || count + 3 > PLAIN_BYTES_MAX)
            return false;
        if (i == 0 && c == '+') continue;
        if (digit && digits == 1 && !real && plain[count - 1] == '0') count--, digits--;
        if ((dot || (e && !real)) && !digits) plain[count++] = '0', digits++;
        real |= dot || e;
        digits += digit;
        if (e && plain[count - 1] == '.') plain[count++] = '0';
        plain[count++] = (char)c;
    }
    if (!digits) return false;
    if (plain[count - 1] == '.') plain[count++] = '0';
    plain[count] = '\0';
    for (size_t i = 1; !real && i < count; i++)
        if (plain[i] < '0') return false;
    return real ? read_float(plain, count, out) : read_int(plain, count, out);
}

double jinja_number_floor(double number)
{
    if (!(number > -4503599627370496.0 && number < 4503599627370496.0)) return number;
    double whole = (double)(int64_t)number;
    return whole > number ? whole - 1 : whole;
}

/* number = m * 2^-shift. Rounds m * 10^digits / 2^shift in integers, then divides: both exact but the last step. */
double jinja_number_round(double number, unsigned digits)
{
    __extension__ typedef unsigned __int128 Wide;
    uint64_t bits, power = 1;
    memcpy(&bits, &number, sizeof bits);
    int shift = 1075 - (int)(bits >> 52 & 2047);
    if (shift <= 0 || digits > 15) return number; /* whole already, or no number */
    Wide mantissa = (bits & ((1ull << 52) - 1)) | 1ull << 52;
    for (unsigned i = 0; i < digits; i++) power *= 10;
    mantissa *= power;
    Wide whole = shift < 127 ? mantissa >> shift : 0,
         half = shift < 127 ? (Wide)1 << (shift - 1) : 0;
    Wide rest = shift < 127 ? mantissa & (2 * half - 1) : 0;
    if (rest > half || (rest == half && half && (whole & 1))) whole++;
    if (whole >> 53) return number; /* finer than its own digits */
    double rounded = (double)(uint64_t)whole / (double)power;
    return bits >> 63 ? -rounded : rounded;
}
