/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8, strict: no overlong forms, no surrogates, nothing above U+10FFFF. Bytes that are no character are never an
 * error here; they come back one by one as UTF8_INVALID. */
#ifndef COBORD_TEXT_UTF8_H
#define COBORD_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_INVALID UINT32_MAX

/* Looks at the front of text[0..bytes), bytes >= 1.
 * 1..4   a whole character of that length
 * 0      the beginning of a character, and the text ends before it does
 * -1..-3 no character: that many bytes are the longest prefix that could have become one ("maximal subpart"), which
 *        a decoder replaces by one U+FFFD. Source  The Unicode Standard, section 3.9, table 3-7; WHATWG Encoding. */
int utf8_look(const uint8_t *text, size_t bytes);

/* The character at text[0..bytes), bytes >= 1, and its length; a byte that begins none is UTF8_INVALID of
 * length 1. */
uint32_t utf8_read(const uint8_t *text, size_t bytes, uint32_t *length);

/* Whether all of it is whole characters. */
bool utf8_is_text(const uint8_t *text, size_t bytes);

/* Writes c (at most U+10FFFF) to out[4]; returns the length. */
uint32_t utf8_write(uint32_t c, uint8_t *out);

#endif
