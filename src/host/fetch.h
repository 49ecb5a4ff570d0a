/* SPDX-License-Identifier: Apache-2.0 */
/* Downloads one file over HTTP(S) into a partial file, going on where an earlier try stopped.
 *
 *   PATH        what has arrived; only ever a prefix of the file
 *   PATH.tag    "URL\nVALIDATOR\n": whose prefix it is. A server whose file has changed sends it
 * whole, and it starts over.
 *
 * Retries what may pass (no answer, 5xx, 429, broken connection), each time from where it stands.
 * Redirects are followed, to http and https only. The caller checks the hash of the whole. */
#ifndef COBORD_HOST_FETCH_H
#define COBORD_HOST_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "host/tell.h"

typedef struct FetchResult {
    uint64_t bytes;   /* of the whole file, which is now at PATH */
    uint64_t resumed; /* of them were there before */
    char sha256[65];  /* as announced by the hub's headers; "" when it did not */
} FetchResult;

/* `token` (may be NULL) goes as bearer token to the URL's own host only. `expected_bytes` 0: not
 * known. Errors  ERR_UNREACHABLE (no connection was ever made, or it broke too often),
 * ERR_NOT_FOUND (404, 410), ERR_USAGE (no URL), ERR_IO (other answers; names the status),
 * ERR_FORMAT (neither GGUF nor knot: says what it looks like), ERR_TRUNCATED (another length than
 * expected), ERR_NO_SPACE, ERR_CANCELLED. What has arrived stays, except after ERR_FORMAT,
 * ERR_TRUNCATED and ERR_NOT_FOUND. */
MUST_CHECK Error fetch_file(const char *url, const char *token, const char *path,
                            uint64_t expected_bytes, const Tell *tell, FetchResult *out, Why *why);

#endif
