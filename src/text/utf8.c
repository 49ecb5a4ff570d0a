/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes may follow depends on the lead byte only for the second byte:
 *
 *   C2..DF  80..BF               E0 A0..BF 80..BF   E1..EC, EE, EF 80..BF 80..BF   ED 80..9F 80..BF
 *   F0 90..BF 80..BF 80..BF      F1..F3 80..BF 80..BF 80..BF                       F4 80..8F 80..BF 80..BF */
#include "text/utf8.h"

/* The whole length that a lead byte announces, 0 for a byte that leads nothing. */
static int lead_length(uint8_t lead)
{
    if (lead < 0x80) return 1;
    if (lead < 0xC2) return 0;
    if (lead < 0xE0) return 2;
    if (lead < 0xF0) return 3;
    return lead < 0xF5 ? 4 : 0;
}

static int second_fits(uint8_t lead, uint8_t second)
{
    uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    return second >= low && second <= high;
}

int utf8_look(const uint8_t *text, size_t bytes)
{
    int length = lead_length(text[0]);
    if (length == 0) return -1;
    for (int i = 1; i < length; i++) {
        if ((size_t)i == bytes) return 0;
        if (i == 1 ? !second_fits(text[0], text[1]) : (text[i] & 0xC0) != 0x80) return -i;
    }
    return length;
}

uint32_t utf8_read(const uint8_t *text, size_t bytes, uint32_t *length)
{
    int found = utf8_look(text, bytes);
    *length = found > 0 ? (uint32_t)found : 1;
    switch (found) {
    case 1: return text[0];
    case 2: return (text[0] & 0x1Fu) << 6 | (text[1] & 0x3Fu);
    case 3: return (text[0] & 0x0Fu) << 12 | (text[1] & 0x3Fu) << 6 | (text[2] & 0x3Fu);
    case 4:
        return (text[0] & 0x07u) << 18 | (text[1] & 0x3Fu) << 12 | (text[2] & 0x3Fu) << 6 |
               (text[3] & 0x3Fu);
    default: return UTF8_INVALID;
    }
}

bool utf8_is_text(const uint8_t *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        int length = utf8_look(text + at, bytes - at);
        if (length <= 0) return false;
        at += (size_t)length;
    }
    return true;
}

uint32_t utf8_write(uint32_t c, uint8_t *out)
{
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    uint32_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (uint32_t i = length; i-- > 1; c >>= 6) out[i] = (uint8_t)(0x80 | (c & 0x3F));
    out[0] = (uint8_t)(lead[length] | c);
    return length;
}
