/* SPDX-License-Identifier: Apache-2.0 */
#include "api/cors.h"

#include <string.h>

/* ---- Origins: scheme://host or scheme://host:port, in lower case, nothing behind ---- */

static bool is_scheme(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        bool letter = c >= 'a' && c <= 'z', more = (c >= '0' && c <= '9') || c == '-' || c == '+';
        if (!letter && (!i || (!more && c != '.'))) return false;
    }
    return bytes > 0;
}

static bool is_host(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if ((c < 'a' || c > 'z') && (c < '0' || c > '9') && (!c || !strchr(".-_:[]", c)))
            return false;
    }
    return bytes > 0 && text[bytes - 1] != ':';
}

static bool is_origin(const char *text, size_t bytes)
{
    size_t scheme = 0;
    while (scheme < bytes && text[scheme] != ':') scheme++;
    if (bytes > CORS_ORIGIN_BYTES_MAX || bytes < scheme + 4) return false;
    return is_scheme(text, scheme) && memcmp(text + scheme, "://", 3) == 0 &&
           is_host(text + scheme + 3, bytes - scheme - 3);
}

/* Up to the comma or the end. */
static size_t first_of(const char *list)
{
    size_t bytes = 0;
    while (list[bytes] && list[bytes] != ',') bytes++;
    return bytes;
}

Error cors_check(const char *list, Why *why)
{
    if (strcmp(list, "*") == 0) return OK;
    if (strlen(list) > CORS_LIST_BYTES_MAX)
        return error_why(why, ERR_USAGE, "more than %d bytes of origins", CORS_LIST_BYTES_MAX);
    for (const char *at = list;; at++) {
        size_t bytes = first_of(at);
        if (!is_origin(at, bytes))
            return error_why(why, ERR_USAGE,
                             "\"%.*s\" is no origin: scheme://host[:port] in lower case, such as "
                             "https://app.example or http://localhost:3000; \"*\" alone is all",
                             (int)(bytes < 100 ? bytes : 100), at);
        at += bytes;
        if (!*at) return OK;
    }
}

/* ---- Requests ---- */

const char *cors_answer(const char *list, const char *origin)
{
    if (!list || !origin || !*origin) return NULL;
    if (strcmp(list, "*") == 0) return "*";
    size_t bytes = strlen(origin);
    for (const char *at = list; *at; at += *at == ',') {
        size_t listed = first_of(at);
        if (listed == bytes && memcmp(at, origin, bytes) == 0) return origin;
        at += listed;
    }
    return NULL;
}

const char *cors_names(const char *wanted)
{
    if (!wanted || strlen(wanted) > CORS_NAMES_BYTES_MAX) return NULL;
    for (const char *c = wanted; *c; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                     (*c >= '0' && *c <= '9') || strchr("-_, ", *c);
        if (!plain) return NULL;
    }
    return *wanted ? wanted : NULL;
}
