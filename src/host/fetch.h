/* SPDX-License-Identifier: Apache-2.0 */
/* Downloads one file over HTTP(S) into a partial file, going on where an earlier try stopped.
 *
 *   PATH        what has arrived; only ever a prefix of the file
 *   PATH.tag    "IDENTITY\nVALIDATOR\nSTATE\n": whose prefix it is. A server whose file has changed sends it
 *               whole, and it starts over. Without a hash that tells later, a prefix is gone on with when it was
 *               synced at its end, or in the boot in which it was written: a power cut may have left zeros.
 *
 * Retries what may pass (no answer, 5xx, 429, broken connection), each time from where it stands.
 * Redirects are followed, to http and https only. The caller checks the hash of the whole. */
#ifndef COBORD_HOST_FETCH_H
#define COBORD_HOST_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "host/s3.h"
#include "host/tell.h"

typedef struct FetchResult {
    uint64_t bytes;   /* of the whole file, which is now at PATH */
    uint64_t resumed; /* of them were there before */
    char sha256[65];  /* as announced by the hub's headers; "" when it did not */
} FetchResult;

typedef struct FetchRequest {
    const char *url;
    const char *token;       /* bearer token for the URL's own host, or NULL */
    const S3Access *s3;      /* what signs the requests to an S3 store, or NULL */
    const char *path;        /* of the partial file */
    const char *identity;    /* NULL: the URL. Else what the file is, such as its hash, wherever it
                                comes from: a prefix from elsewhere is then gone on with, and only
                                the caller's check tells */
    uint64_t expected_bytes; /* 0: not known */
} FetchRequest;

/* Errors  ERR_UNREACHABLE (no connection was ever made, or it broke too often), ERR_NOT_FOUND (404,
 * 410), ERR_USAGE (no URL), ERR_KEY (of an S3 store), ERR_IO (other answers; names the status),
 * ERR_FORMAT (neither GGUF nor knot: says what it looks like), ERR_TRUNCATED (another length than
 * expected), ERR_NO_SPACE, ERR_CANCELLED. What has arrived stays, except after ERR_FORMAT,
 * ERR_TRUNCATED and, without an identity, ERR_NOT_FOUND. */
MUST_CHECK Error fetch_file(const FetchRequest *request, const Tell *tell, FetchResult *out,
                            Why *why);

/* Writes the tag for a partial file that something else fills. */
void fetch_tag(const char *path, const char *identity);

/* Removes the partial file and its tag. */
void fetch_forget(const char *path);

#endif
