/* SPDX-License-Identifier: Apache-2.0 */
/* What an S3-compatible store answers: XML of which single elements are wanted, and refusals.
 *
 * No XML parser: elements are found by their names, without attributes and namespaces, as every store
 * writes them. What is not found, or too long, is as if it were not there. */
#ifndef COBORD_HOST_S3_ANSWER_H
#define COBORD_HOST_S3_ANSWER_H

#include "host/http_client.h"
#include "host/s3.h"

typedef struct S3Span {
    const char *at, *end;
} S3Span;

/* The inside of the next <name>..</name> in `rest`, which then begins behind it. False when there is none. */
bool s3_answer_next(S3Span *rest, const char *name, S3Span *inside);
/* The text of the first <name> in `span`, with quotes around it and entities undone. False: none, or no
 * room. */
bool s3_answer_text(S3Span span, const char *name, char *out, size_t room);
/* The same of a number. */
bool s3_answer_number(S3Span span, const char *name, uint64_t *out);

/* What a status of 300 and more means: ERR_KEY, ERR_NOT_FOUND, ERR_IO, or ERR_UNREACHABLE for what may
 * pass. `store` and `object` for the Why; `access` NULL: requests are not signed. */
MUST_CHECK Error s3_answer_refused(const char *store, const char *object, const S3Access *access,
                                   const HttpCall *call, Why *why);

#endif
