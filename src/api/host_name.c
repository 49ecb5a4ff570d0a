/* SPDX-License-Identifier: Apache-2.0 */
#include "api/host_name.h"

#include <stddef.h>
#include <string.h>

#include "base/ascii.h"

typedef struct Name {
    const char *text;
    size_t bytes;
} Name;

/* Without port, and without the dot that ends a whole name. */
static Name name_in(const char *text, size_t bytes)
{
    Name name = {text, 0};
    bool brackets = bytes && *text == '[';
    const char *end = memchr(text, brackets ? ']' : ':', bytes);
    name.bytes = end ? (size_t)(end - text) + brackets : bytes;
    if (name.bytes > 1 && text[name.bytes - 1] == '.') name.bytes--;
    return name;
}

static bool ends_with(Name name, const char *end, size_t bytes)
{
    if (name.bytes < bytes) return false;
    for (size_t i = 0; i < bytes; i++)
        if (ascii_lower(name.text[name.bytes - bytes + i]) != ascii_lower(end[i])) return false;
    return true;
}

static bool is_same(Name name, Name other)
{
    return name.bytes == other.bytes && ends_with(name, other.text, other.bytes);
}

/* Four numbers of up to three digits. Which ones does not matter: it is no name. */
static bool is_ipv4(Name name)
{
    size_t numbers = 1, digits = 0;
    for (size_t i = 0; i < name.bytes; i++) {
        char c = name.text[i];
        if (c >= '0' && c <= '9' && ++digits <= 3) continue;
        if (c != '.' || !digits || digits > 3) return false;
        numbers++;
        digits = 0;
    }
    return numbers == 4 && digits;
}

static bool is_ipv6(Name name)
{
    if (name.bytes < 4 || name.text[0] != '[' || name.text[name.bytes - 1] != ']') return false;
    for (size_t i = 1; i < name.bytes - 1; i++)
        if (!name.text[i] || !strchr("0123456789abcdefABCDEF:.", name.text[i])) return false;
    return true;
}

static bool is_localhost(Name name)
{
    static const char local[] = ".localhost";
    size_t bytes = sizeof local - 1;
    if (name.bytes + 1 == bytes) return ends_with(name, local + 1, bytes - 1);
    return ends_with(name, local, bytes);
}

/* Of an origin scheme://host[:port]: what is behind its second stroke. */
static Name host_of(const char *origin, size_t bytes)
{
    size_t strokes = 0, at = 0;
    while (at < bytes && strokes < 2) strokes += origin[at++] == '/';
    return name_in(origin + at, bytes - at);
}

/* Of one of the origins, which have commas between them. */
static bool is_listed(Name name, const char *list)
{
    for (const char *at = list; at && *at;) {
        const char *comma = strchr(at, ',');
        size_t bytes = comma ? (size_t)(comma - at) : strlen(at);
        Name host = host_of(at, bytes);
        if (host.bytes && is_same(name, host)) return true;
        at += bytes + (comma != NULL);
    }
    return false;
}

bool host_name_is_known(const char *header, const char *own, const char *cors)
{
    if (!header || !*header || (cors && strcmp(cors, "*") == 0)) return true;
    Name name = name_in(header, strlen(header));
    if (is_ipv4(name) || is_ipv6(name) || is_localhost(name)) return true;
    return (*own && is_same(name, name_in(own, strlen(own)))) || is_listed(name, cors);
}
