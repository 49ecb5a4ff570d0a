/* SPDX-License-Identifier: Apache-2.0 */
/* Object stores: where knots are when they are not on this machine's disk in the model folder.
 *
 *   /srv/models, file:/srv/models   a local directory; an object is a file in it
 *   s3://BUCKET/PREFIX              S3-compatible (R2, MinIO, versitygw): ranged GETs over kept-alive connections;
 *                                   endpoint, region and keys from the environment, see host/s3.h
 *   https://HOST/PATH, http:        plain ranged GETs
 *
 * A read gets exactly the bytes it asked for or an error: status, Content-Range and length are checked; a server
 * that answers 200 with everything, a byte short, or another range is found out. Transient failures are tried again,
 * 5 times with backoff. Whether the bytes are the right ones is for the caller's hashes to say.
 * Stores use no proxy and follow no redirects, as links between nodes: a store is what its address names. */
#ifndef COBORD_HOST_STORE_H
#define COBORD_HOST_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "cluster/warden_counters.h"

typedef struct Store Store;

/* Asks nobody. Errors  ERR_USAGE (what is wrong with the address or the environment), ERR_UNSUPPORTED, ERR_MEMORY.
 * Thread  a store may be used by several threads at once. */
MUST_CHECK Error store_open(const char *where, Store **out, Why *why);
void store_close(Store *store);

/* Object names are relative paths; one with an empty part, "." or ".." is ERR_USAGE, so a name may come from elsewhere.
 * Errors  ERR_NOT_FOUND, ERR_UNREACHABLE (no answer, or only 5xx), ERR_KEY (refused), ERR_TRUNCATED (beyond the end),
 * ERR_IO; the Why names store and object. */
MUST_CHECK Error store_size(Store *store, const char *object, uint64_t *bytes, Why *why);
MUST_CHECK Error store_read(Store *store, const char *object, uint64_t offset, uint64_t bytes,
                            uint8_t *out, Why *why);
/* The path of an object of a local directory; NULL for the others. */
const char *store_local_path(Store *store, const char *object, char *path, size_t room);
StoreCounters store_counters(const Store *store);

#endif
