/* SPDX-License-Identifier: Apache-2.0 */
/* What a file that is not the expected one looks like, from its first bytes: people save the web
 * page instead of the model, clone without git-lfs, or unpack too little. Never used to accept
 * anything, only to say what went wrong. */
#ifndef COBORD_KNOT_FOREIGN_H
#define COBORD_KNOT_FOREIGN_H

#include <stddef.h>
#include <stdint.h>

/* "an HTML page", "a git-lfs pointer", "a GGUF file", ... or NULL when the bytes say nothing. Empty
 * input: "an empty file". */
const char *foreign_kind(const uint8_t *bytes, size_t length);

/* What to do about that kind; NULL when foreign_kind is NULL. Ends with a full stop. */
const char *foreign_advice(const uint8_t *bytes, size_t length);

#endif
