/* SPDX-License-Identifier: Apache-2.0 */
/* The key in a request, a cluster's or an API's: `Authorization: Bearer KEY`. */
#ifndef COBORD_API_BEARER_H
#define COBORD_API_BEARER_H

#include <stdbool.h>
#include <stddef.h>

/* Compares in a time that depends on the length of `given` only. */
bool bearer_equals(const char *key, const char *given);
/* The KEY of a header's value, blanks around it not counted. Result  NULL: it is none. `header` may be
 * NULL. */
const char *bearer_key(const char *header, size_t *bytes);
/* Whether a header's value is "Bearer KEY", blanks behind it not counted. `header` may be NULL. */
bool bearer_in_header(const char *key, const char *header);

#endif
