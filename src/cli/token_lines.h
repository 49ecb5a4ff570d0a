/* SPDX-License-Identifier: Apache-2.0 */
/* JSON lines from standard input, one object each, handed to a verb one by one. */
#ifndef COBORD_CLI_TOKEN_LINES_H
#define COBORD_CLI_TOKEN_LINES_H

#include <stddef.h>
#include <stdint.h>
#include <yyjson.h>

#include "base/error.h"

enum { TOKEN_LINES_BYTES_MAX = 256 << 20 }; /* of one line, or of a plain text */

/* One line's object. An error ends the reading. */
typedef Error (*TokenLine)(void *context, yyjson_val *line, Why *why);

/* Complains with the line's number when a line is no JSON object, is too long, or `each` fails. Result  0,
 * or the exit code. */
int token_lines_each(TokenLine each, void *context);

/* All of standard input. Owner  the caller frees *text, also after an error. Errors  ERR_IO, ERR_MEMORY,
 * ERR_TOO_LARGE. */
MUST_CHECK Error token_lines_all(uint8_t **text, size_t *bytes, Why *why);

#endif
