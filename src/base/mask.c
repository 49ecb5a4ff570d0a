/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mask.h"

#include <stdbool.h>
#include <string.h>

#include "base/ascii.h"

static bool is_one_of(char c, const char *set) { return c && strchr(set, c) != NULL; }

/* user:password@ from here to the last @ before the host ends; behind // a token@ alone, too. 0: none. */
static size_t mask_user(const char *text, size_t bytes, bool in_address)
{
    size_t at_sign = 0;
    bool colon = in_address;
    for (size_t i = 0; i < bytes && text[i] && !is_one_of(text[i], " \t\r\n/'\"`<>"); i++) {
        colon |= text[i] == ':' && !at_sign;
        if (text[i] == '@' && colon) at_sign = i;
    }
    return at_sign;
}

static bool mask_has(const char *text, size_t bytes, const char *word)
{
    size_t length = strlen(word);
    for (size_t i = 0; i + length <= bytes; i++) {
        size_t n = 0;
        while (n < length && ascii_lower(text[i + n]) == word[n]) n++;
        if (n == length) return true;
    }
    return false;
}

/* A query of an address, to its end, when a name or value in it speaks of a secret; 0: none. */
static size_t mask_query(const char *text, size_t bytes)
{
    static const char *const words[] = {
        "key=", "token=", "secret=", "sig=", "signature=", "password="};
    size_t length = 0;
    while (length < bytes && text[length] && !is_one_of(text[length], " \t\r\n'\"`<>")) length++;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (mask_has(text, length, words[i])) return length;
    return 0;
}

size_t mask_bytes(const char *text, size_t bytes, size_t at)
{
    char before = at ? text[at - 1] : ' ';
    if (before == '?') return mask_query(text + at, bytes - at);
    if (!is_one_of(before, " \t\r\n/'\"`<>(,=")) return 0;
    return mask_user(text + at, bytes - at, at > 1 && before == '/' && text[at - 2] == '/');
}

void mask_copy(char *out, size_t room, const char *text)
{
    size_t bytes = strlen(text), n = 0;
    for (size_t i = 0; i < bytes;) {
        size_t hidden = mask_bytes(text, bytes, i);
        const char *from = hidden ? MASK_SHOWN : text + i;
        for (size_t left = hidden ? sizeof MASK_SHOWN - 1 : 1; left && n + 1 < room; left--)
            out[n++] = *from++;
        i += hidden ? hidden : 1;
    }
    if (room) out[n] = '\0';
}
