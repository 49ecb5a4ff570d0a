/* SPDX-License-Identifier: Apache-2.0 */
/* Canonical decomposition and composition of single characters and pairs. Hangul goes by arithmetic (11,172
 * syllables would swamp the tables), the rest by binary search in the generated tables.
 * Source  The Unicode Standard, section 3.12 (Hangul) and 3.11 (normalization forms). */
#include "text/unicode.h"

enum {
    SYLLABLE = 0xAC00,
    LEAD = 0x1100,
    VOWEL = 0x1161,
    TAIL = 0x11A7,
    LEADS = 19,
    VOWELS = 21,
    TAILS = 28,
    SYLLABLES = LEADS * VOWELS * TAILS
};

static uint32_t hangul_decompose(uint32_t index, uint32_t *parts)
{
    parts[0] = LEAD + index / (VOWELS * TAILS);
    parts[1] = VOWEL + index / TAILS % VOWELS;
    if (index % TAILS == 0) return 2;
    parts[2] = TAIL + index % TAILS;
    return 3;
}

uint32_t unicode_decompose(uint32_t c, uint32_t *parts)
{
    parts[0] = c;
    if (c < 0xC0) return 1;
    if (c - SYLLABLE < SYLLABLES) return hangul_decompose(c - SYLLABLE, parts);
    uint32_t low = 0, high = unicode_decomposed_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (unicode_decomposed[middle] < c) low = middle + 1;
        else high = middle;
    }
    if (low == unicode_decomposed_count || unicode_decomposed[low] != c) return 1;
    uint32_t start = unicode_decomposed_start[low],
             count = unicode_decomposed_start[low + 1] - start;
    for (uint32_t i = 0; i < count; i++) parts[i] = unicode_decomposed_parts[start + i];
    return count;
}

static uint32_t hangul_compose(uint32_t first, uint32_t second)
{
    if (first - LEAD < LEADS && second - VOWEL < VOWELS)
        return SYLLABLE + ((first - LEAD) * VOWELS + (second - VOWEL)) * TAILS;
    if (first - SYLLABLE < SYLLABLES && (first - SYLLABLE) % TAILS == 0 &&
        second - TAIL - 1 < TAILS - 1)
        return first + (second - TAIL);
    return 0;
}

uint32_t unicode_compose(uint32_t first, uint32_t second)
{
    uint32_t hangul = hangul_compose(first, second);
    if (hangul) return hangul;
    uint64_t want = (uint64_t)first << 32 | second;
    uint32_t low = 0, high = unicode_composed_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        const UnicodeComposed *p = &unicode_composed[middle];
        if (((uint64_t)p->first << 32 | p->second) < want) low = middle + 1;
        else high = middle;
    }
    if (low == unicode_composed_count) return 0;
    const UnicodeComposed *p = &unicode_composed[low];
    return p->first == first && p->second == second ? p->composed : 0;
}
