/* SPDX-License-Identifier: Apache-2.0 */
/* A stretch of characters is cut where the length of their UTF-8 form changes, and then until the bytes vary freely
 * below the first one that does:
 *
 *   U+0900..U+10FF   E0 A4..BF 80..BF  |  E1 80..83 80..BF
 *
 * Source  The Unicode Standard, section 3.9, table 3-6. */
#include "text/grammar_state.h"
#include "text/utf8.h"

typedef struct Splitter {
    GrammarUtf8 *out;
    uint32_t count;
} Splitter;

static void take(Splitter *s, uint32_t low, uint32_t high)
{
    uint8_t a[4], b[4];
    ASSERT(s->count < GRAMMAR_UTF8_ROWS_MAX);
    GrammarUtf8 *row = &s->out[s->count++];
    row->length = utf8_write(low, a);
    ASSERT(utf8_write(high, b) == row->length);
    for (uint32_t i = 0; i < row->length; i++) {
        row->low[i] = a[i];
        row->high[i] = b[i];
    }
}

/* low and high have forms of `length` bytes. Peels off the ends until the last bytes are whole blocks. */
static void split_length(Splitter *s, uint32_t low, uint32_t high, uint32_t length)
{
    for (uint32_t i = 1; i < length; i++) {
        uint32_t block = (1u << 6 * i) - 1;
        if ((low & ~block) == (high & ~block)) break;
        if (low & block) {
            uint32_t end = low | block;
            split_length(s, low, end, length);
            split_length(s, end + 1, high, length);
            return;
        }
        if ((high & block) != block) {
            uint32_t start = high & ~block;
            split_length(s, low, start - 1, length);
            split_length(s, start, high, length);
            return;
        }
    }
    take(s, low, high);
}

static void split_stretch(Splitter *s, uint32_t low, uint32_t high)
{
    static const uint32_t ends[4] = {0x7F, 0x7FF, 0xFFFF, GRAMMAR_CHARACTER_MAX};
    for (uint32_t i = 0; i < 4; i++) {
        if (low > ends[i]) continue;
        uint32_t end = high < ends[i] ? high : ends[i];
        split_length(s, low, end, i + 1);
        if (high <= ends[i]) return;
        low = ends[i] + 1;
    }
}

uint32_t grammar_utf8_split(uint32_t low, uint32_t high, GrammarUtf8 *out)
{
    Splitter s = {.out = out};
    if (low < 0xD800) split_stretch(&s, low, high < 0xD800 ? high : 0xD7FF);
    if (high > 0xDFFF) split_stretch(&s, low > 0xDFFF ? low : 0xE000, high);
    return s.count;
}
