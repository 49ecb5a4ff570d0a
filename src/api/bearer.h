/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster key in a request: `Authorization: Bearer KEY`. */
#ifndef COBORD_API_BEARER_H
#define COBORD_API_BEARER_H

#include <stdbool.h>

/* Compares in a time that depends on the length of `given` only. */
bool bearer_equals(const char *key, const char *given);
/* Whether a header's value is "Bearer KEY", blanks behind it not counted. `header` may be NULL. */
bool bearer_in_header(const char *key, const char *header);

#endif
