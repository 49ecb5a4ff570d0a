/* SPDX-License-Identifier: Apache-2.0 */
/* Secrets within addresses that people are shown: what stands before the @ of user:password@host and //token@host, and
 * a query that carries a key or a signature. Whoever shows a text shows MASK_SHOWN in the place of such a span. */
#ifndef COBORD_BASE_MASK_H
#define COBORD_BASE_MASK_H

#include <stddef.h>

#define MASK_SHOWN "***"

/* How many bytes from text[at] on are not to be shown; 0: this one is. `bytes` is the length of the text. */
size_t mask_bytes(const char *text, size_t bytes, size_t at);
/* Copies `text` without them, cut at room - 1 bytes. */
void mask_copy(char *out, size_t room, const char *text);

#endif
