/* SPDX-License-Identifier: Apache-2.0 */
/* Colours, and text from outside, as a terminal may have them.
 *
 *   a stream is painted    it is a terminal, TERM is not "dumb", NO_COLOR is unset or empty;
 *                          CLICOLOR_FORCE (not empty, not 0) paints files and pipes too
 *   text is shown          as it is in files and pipes; on a terminal control characters become
 *                          what they are called: ESC \x1b, U+009B \x9b. Only \n and \t stay
 *
 * NO_COLOR wins over CLICOLOR_FORCE. */
#ifndef COBORD_CLI_PAINT_H
#define COBORD_CLI_PAINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum Paint { PAINT_NONE, PAINT_DIM, PAINT_BOLD, PAINT_RED, PAINT_GREEN, PAINT_CYAN } Paint;

/* Whether the stream is a terminal at all, painted or not. */
bool paint_is_terminal(FILE *out);
bool paint_is_on(FILE *out);

/* From here on the stream is painted so, until PAINT_NONE; nothing where it is not painted. */
void paint_begin(FILE *out, Paint paint);
void paint_end(FILE *out);

/* "cobord: " in front of an error, in red. */
void paint_error_head(void);

/* Shows text of a model or a file. `bytes` of UTF-8 in whole characters.
 * Result  false when it could not be written. */
bool paint_show(FILE *out, const void *text, size_t bytes);

#endif
