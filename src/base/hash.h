/* SPDX-License-Identifier: Apache-2.0 */
/* The two hashes of the formats, over xxHash: XXH64 for files (fast in WebAssembly too), XXH3-64
 * for long streams of logits. Both with seed 0. Source  xxHash specification. */
#ifndef COBORD_BASE_HASH_H
#define COBORD_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t hash_xxh64(const void *bytes, size_t length);

/* XXH64 over pieces: start, any number of updates, end (which leaves the state usable for more updates). */
typedef struct HashStream64 {
    _Alignas(8) uint8_t opaque[96];
} HashStream64;
void hash_stream64_start(HashStream64 *s);
void hash_stream64_update(HashStream64 *s, const void *bytes, size_t length);
uint64_t hash_stream64_end(const HashStream64 *s);

/* XXH3-64 over pieces. */
typedef struct HashStream3 {
    _Alignas(64) uint8_t opaque[640];
} HashStream3;
void hash_stream3_start(HashStream3 *s);
void hash_stream3_update(HashStream3 *s, const void *bytes, size_t length);
uint64_t hash_stream3_end(const HashStream3 *s);

/* A fast 64-bit mix for in-memory tables; not part of any format. */
static inline uint64_t hash_mix64(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

#endif
