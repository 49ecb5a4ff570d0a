/* SPDX-License-Identifier: Apache-2.0 */
/* What the tokenizers ask about characters: classes, combining order, canonical decomposition and composition.
 * The tables are generated (scripts/unicode_tables.py), so that every build of Cobord gives the same answers.
 * Source  Unicode Character Database; its version is named in unicode_tables.c. */
#ifndef COBORD_TEXT_UNICODE_H
#define COBORD_TEXT_UNICODE_H

#include <stdint.h>

enum {
    UNICODE_LETTER = 1, /* general category L */
    UNICODE_NUMBER = 2, /* general category N */
    UNICODE_SPACE = 4,  /* property White_Space */
    UNICODE_CHECK = 8,  /* text with this character may not be in NFC */
    UNICODE_JOINS = 16, /* may compose or reorder with what stands before it */
    UNICODE_LAST = 0x10FFFF,
    UNICODE_PARTS_MAX = 4 /* characters in a full canonical decomposition */
};

typedef struct UnicodeComposed {
    uint32_t first, second, composed;
} UnicodeComposed;

extern const uint8_t unicode_class_index[], unicode_class_rows[];
extern const uint8_t unicode_order_index[], unicode_order_rows[];
extern const uint32_t unicode_decomposed[], unicode_decomposed_parts[];
extern const uint16_t unicode_decomposed_start[];
extern const uint32_t unicode_decomposed_count, unicode_composed_count;
extern const UnicodeComposed unicode_composed[];

/* UNICODE_LETTER and so on; 0 for what is no character (UTF8_INVALID). */
static inline unsigned unicode_class(uint32_t c)
{
    if (c > UNICODE_LAST) return 0;
    return unicode_class_rows[(uint32_t)unicode_class_index[c >> 7] << 7 | (c & 127)];
}

/* Canonical combining class, 0 for starters and for what is no character. */
static inline unsigned unicode_order(uint32_t c)
{
    if (c > UNICODE_LAST) return 0;
    return unicode_order_rows[(uint32_t)unicode_order_index[c >> 7] << 7 | (c & 127)];
}

/* The full canonical decomposition of c, at least c itself; returns how many of parts[UNICODE_PARTS_MAX]
 * were written. */
uint32_t unicode_decompose(uint32_t c, uint32_t *parts);
/* The character that NFC puts in the place of the pair, 0 when it keeps them apart. */
uint32_t unicode_compose(uint32_t first, uint32_t second);

#endif
