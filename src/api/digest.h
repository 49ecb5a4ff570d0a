/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 of a few bytes, without a library: what a table of API keys keeps in place of the keys (api/keys.h).
 * Files are hashed by host/sha256.h. Source  FIPS 180-4. */
#ifndef COBORD_API_DIGEST_H
#define COBORD_API_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DIGEST_BYTES = 32, DIGEST_HEX_BYTES = 2 * DIGEST_BYTES + 1 };

/* The time depends on `count` only. */
void digest_sha256(const void *bytes, size_t count, uint8_t out[DIGEST_BYTES]);
/* Compares in constant time. */
bool digest_equals(const uint8_t a[DIGEST_BYTES], const uint8_t b[DIGEST_BYTES]);
/* Lower-case digits and a NUL. */
void digest_to_hex(const uint8_t digest[DIGEST_BYTES], char out[DIGEST_HEX_BYTES]);
/* 64 digits of either case. Result  false when it is anything else. */
bool digest_from_hex(const char *text, size_t bytes, uint8_t out[DIGEST_BYTES]);

#endif
