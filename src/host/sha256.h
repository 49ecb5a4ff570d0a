/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256, over GnuTLS: what model publishers use to name a file's content. */
#ifndef COBORD_HOST_SHA256_H
#define COBORD_HOST_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "host/tell.h"

enum { SHA256_HEX_BYTES = 65 };

typedef struct Sha256 {
    void *state;
} Sha256;

/* Errors  ERR_MEMORY. Owner  sha256_end frees the state; call it also when the result is not
 * wanted. */
MUST_CHECK Error sha256_start(Sha256 *hash, Why *why);
void sha256_add(Sha256 *hash, const void *bytes, size_t length);
/* Lower-case hexadecimal digits and a NUL; `hex` may be NULL. */
void sha256_end(Sha256 *hash, char *hex);

/* Hashes the first `bytes` of a file (UINT64_MAX: all). `tell` gets `stage`.
 * Errors  ERR_IO, ERR_TRUNCATED (shorter than `bytes`), ERR_CANCELLED. */
MUST_CHECK Error sha256_file(const char *path, uint64_t bytes, Sha256 *into, const char *stage,
                             const Tell *tell, Why *why);

/* Whether both are 64 hexadecimal digits and equal, upper or lower case. */
bool sha256_equal(const char *a, const char *b);
bool sha256_is_hex(const char *text);

#endif
