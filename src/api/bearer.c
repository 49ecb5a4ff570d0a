/* SPDX-License-Identifier: Apache-2.0 */
#include "api/bearer.h"

#include <string.h>

#include "base/ascii.h"

static bool equals(const char *key, const char *given, size_t given_bytes)
{
    size_t bytes = strlen(key);
    volatile unsigned char differs = bytes != given_bytes;
    for (size_t i = 0; i < given_bytes; i++)
        differs |= (unsigned char)(given[i] ^ key[i < bytes ? i : 0]);
    return !differs;
}

bool bearer_equals(const char *key, const char *given) { return equals(key, given, strlen(given)); }

const char *bearer_key(const char *header, size_t *bytes)
{
    if (!header) return NULL;
    for (const char *scheme = "bearer "; *scheme; scheme++, header++)
        if (ascii_lower(*header) != *scheme) return NULL;
    while (*header == ' ') header++;
    *bytes = strlen(header);
    while (*bytes && (header[*bytes - 1] == ' ' || header[*bytes - 1] == '\t')) --*bytes;
    return header;
}

bool bearer_in_header(const char *key, const char *header)
{
    size_t bytes;
    const char *given = bearer_key(header, &bytes);
    return given && equals(key, given, bytes);
}
