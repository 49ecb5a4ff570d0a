/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of objects over HTTP, signed for S3 or plain: asked for in pieces, checked, and tried again.
 *
 *   piece --> GET Range --> 206, Content-Range and length as asked --> the caller's bytes
 *     ^                       | 5xx 408 429, broken, late, or not what was asked
 *     '--- pause, doubling ---'    5 times; then the last error
 *
 * No proxy and no redirects: a store is what its address names. */
#ifndef COBORD_HOST_STORE_HTTP_H
#define COBORD_HOST_STORE_HTTP_H

#include "host/s3.h"
#include "host/store.h"

typedef struct StoreHttp StoreHttp;

/* `name` is how errors call the store; `base` the address before the objects, without a slash at the end; `access`
 * is copied, NULL: not signed. Errors  ERR_MEMORY, ERR_USAGE (too long). */
MUST_CHECK Error store_http_open(const char *name, const char *base, const S3Access *access,
                                 StoreHttp **out, Why *why);
void store_http_close(StoreHttp *s);
/* As store_size and store_read. Thread  any number at once. */
MUST_CHECK Error store_http_size(StoreHttp *s, const char *object, uint64_t *bytes, Why *why);
MUST_CHECK Error store_http_read(StoreHttp *s, const char *object, uint64_t offset, uint64_t bytes,
                                 uint8_t *out, Why *why);
/* Tries that were not the first of a piece. */
uint64_t store_http_retries(const StoreHttp *s);

#endif
