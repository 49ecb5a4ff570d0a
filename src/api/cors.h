/* SPDX-License-Identifier: Apache-2.0 */
/* Which pages of other origins may read answers (CORS): a list of origins as browsers write them, or "*" for all.
 * There are no cookies here, so "*" gives a page nothing that its server could not fetch itself; with keys it needs
 * one. The origin "null" (files, sandboxed frames) is nobody's in particular, and is let in by "*" only.
 * Source  WHATWG Fetch, CORS protocol. */
#ifndef COBORD_API_CORS_H
#define COBORD_API_CORS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { CORS_LIST_BYTES_MAX = 4096, CORS_ORIGIN_BYTES_MAX = 300, CORS_NAMES_BYTES_MAX = 1024 };

/* Checks "*" or "https://app.example,http://localhost:3000". Errors  ERR_USAGE: says which, and why. */
MUST_CHECK Error cors_check(const char *list, Why *why);

/* What Access-Control-Allow-Origin says to this origin: "*", or `origin`; NULL: nothing. Both may be NULL. */
const char *cors_answer(const char *list, const char *origin);

/* The names of headers that a page wants to send, as they may be repeated to it: NULL when they are no such list. */
const char *cors_names(const char *wanted);

#define CORS_METHODS "GET, HEAD, POST, OPTIONS"
/* Of an answer, beside those that every page may read. */
#define CORS_EXPOSED                                                                         \
    "X-Request-Id, Retry-After, WWW-Authenticate, X-RateLimit-Limit-Requests, "              \
    "X-RateLimit-Remaining-Requests, X-RateLimit-Reset-Requests, X-RateLimit-Limit-Tokens, " \
    "X-RateLimit-Remaining-Tokens, X-RateLimit-Reset-Tokens"

#endif
