/* SPDX-License-Identifier: Apache-2.0 */
/* What S3-compatible stores (R2, MinIO, versitygw, AWS) want beside plain HTTP: an address, and a signature over every
 * request. The secret never leaves this machine and is never part of a text.
 *
 *   COBORD_S3_ENDPOINT       http(s)://HOST[:PORT][/PATH]; default https://s3.REGION.amazonaws.com
 *   AWS_REGION               or AWS_DEFAULT_REGION; default us-east-1 ("auto" does for R2)
 *   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN     without the first two: requests are not signed
 *
 *   AWS_CA_BUNDLE            a file of certificates that the endpoint is checked against; default: the system's
 *
 * Addresses are path-style, ENDPOINT/BUCKET/KEY: they work with every store and need no names in the DNS.
 * Source  AWS Signature Version 4, "Authenticating Requests: Using the Authorization Header". */
#ifndef COBORD_HOST_S3_H
#define COBORD_HOST_S3_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { S3_TEXT_BYTES = 256, S3_TOKEN_BYTES = 2048, S3_PATH_BYTES = 1400, S3_FILE_BYTES = 1024 };

typedef struct S3Access {
    char endpoint[S3_TEXT_BYTES]; /* without a slash at the end */
    char region[S3_TEXT_BYTES], key_id[S3_TEXT_BYTES], secret[S3_TEXT_BYTES];
    char token[S3_TOKEN_BYTES];  /* "": none */
    char ca_file[S3_FILE_BYTES]; /* "": the system's */
} S3Access;

/* Errors  ERR_USAGE (a variable that is no use, named; never its value when it is secret). */
MUST_CHECK Error s3_access(S3Access *out, Why *why);
/* Overwrites the secrets. */
void s3_forget(S3Access *access);

/* From s3://BUCKET/KEY, or s3://BUCKET, to the address that requests go to. Errors  ERR_USAGE. */
MUST_CHECK Error s3_address(const S3Access *access, const char *where, char *url, size_t room,
                            Why *why);

/* Writes `text` as it stands in an address: all but letters, digits, "-._~" and "/" as %XX. Result  false: no room. */
bool s3_encode_path(const char *text, char *out, size_t room);
/* The same as it stands in a query's value: "/" as %2F too. */
bool s3_encode_value(const char *text, char *out, size_t room);

enum { S3_HASH_BYTES = 65 };
/* Lower-case hexadecimal digits of the SHA-256 of a body. */
void s3_hash(const void *bytes, size_t count, char out[S3_HASH_BYTES]);

/* One request as it is sent. */
typedef struct S3Request {
    const char *method;
    const char *url; /* without a query */
    /* Without '?': names in order, names and values encoded, each with its '='; NULL: none. */
    const char *query;
    const char *range;     /* the value of that header; NULL: none */
    const char *body_hash; /* of s3_hash; NULL: no body */
} S3Request;

/* The lines that sign one request; empty ones are not sent. */
typedef struct S3Lines {
    char date[40], hash[96], authorization[S3_TEXT_BYTES * 2 + 256], token[S3_TOKEN_BYTES + 32];
} S3Lines;

/* `now` in seconds since 1970. Errors  ERR_USAGE (no address), ERR_TOO_LARGE. Without a key: four empty lines. */
MUST_CHECK Error s3_sign(const S3Access *access, const S3Request *request, int64_t now,
                         S3Lines *out, Why *why);

#endif
