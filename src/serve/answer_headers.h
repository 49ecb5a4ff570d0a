/* SPDX-License-Identifier: Apache-2.0 */
/* Lines that an answer's head gets beside those that it always has; who implements exchange.h keeps them so. */
#ifndef COBORD_SERVE_ANSWER_HEADERS_H
#define COBORD_SERVE_ANSWER_HEADERS_H

#include <stdbool.h>
#include <stddef.h>

enum { ANSWER_HEADERS_BYTES_MAX = 4 << 10 };

/* "Name: value\nName: value\n", ended by NUL; {NULL, 0}: none. */
typedef struct AnswerHeaders {
    char *text; /* malloc'd */
    size_t bytes;
} AnswerHeaders;

/* Result  false: no memory, more than the limit, or no "Name: value" of printable characters. */
bool answer_headers_add(AnswerHeaders *h, const char *line);
void answer_headers_free(AnswerHeaders *h);

#endif
