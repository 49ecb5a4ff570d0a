/* SPDX-License-Identifier: Apache-2.0 */
/* Whether bytes that come one after another are a JSON object, as strictly as RFC 8259 has it: known at the first byte
 * that cannot be. Memory is one bit a level. What parsers refuse is none here either, ours of requests among them, so
 * that what goes out can come back: half a surrogate pair, and a number that as a double is infinite. Numbers from
 * 1e308 on count as such, a few too many: where doubles end exactly would take all digits to say.
 *
 *   {"name": "f", "arguments": {}}     WHOLE at the last brace, FAULT at a byte that no object has there */
#ifndef COBORD_TEXT_JSON_CHECK_H
#define COBORD_TEXT_JSON_CHECK_H

#include <stdbool.h>
#include <stdint.h>

enum { JSON_CHECK_DEPTH_MAX = 32 }; /* of arguments 31: requests bring as many */

typedef enum JsonCheckPlace {
    JSON_CHECK_START, /* before the object */
    JSON_CHECK_KEY_OR_END,
    JSON_CHECK_KEY,
    JSON_CHECK_COLON,
    JSON_CHECK_VALUE,
    JSON_CHECK_VALUE_OR_END,
    JSON_CHECK_COMMA, /* or the end of what it is in */
    JSON_CHECK_STRING,
    JSON_CHECK_ESCAPE,
    JSON_CHECK_HEX,
    JSON_CHECK_WORD,
    JSON_CHECK_MINUS, /* of a number, what has been read: a minus, a zero, digits, a point, digits behind it, ... */
    JSON_CHECK_ZERO,
    JSON_CHECK_DIGITS,
    JSON_CHECK_POINT,
    JSON_CHECK_FRACTION,
    JSON_CHECK_E,
    JSON_CHECK_E_SIGN,
    JSON_CHECK_EXPONENT
} JsonCheckPlace;

typedef struct JsonCheck {
    JsonCheckPlace place;
    uint32_t depth;   /* 1: in the object itself */
    uint64_t objects; /* bit depth - 1: that level is an object, else an array */
    bool key;         /* the string is one */
    uint32_t digits;  /* of \u that are still to come */
    uint32_t unit;    /* of those that came, as a number */
    bool high;        /* the first half of a surrogate pair; the second must follow */
    const char *word; /* what is still to come of true, false, null */
    bool some;        /* of a number: a digit that is not 0 has been */
    bool small;       /* its exponent is negative */
    int64_t power;    /* without the exponent, it is below ten to this */
    int64_t exponent;
} JsonCheck;

typedef enum JsonCheckResult {
    JSON_CHECK_GOES_ON,
    JSON_CHECK_WHOLE,
    JSON_CHECK_FAULT
} JsonCheckResult;

/* Starts as {0}. Not to be called again after WHOLE or FAULT. */
JsonCheckResult json_check_push(JsonCheck *c, uint8_t byte);

#endif
