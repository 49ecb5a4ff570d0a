/* SPDX-License-Identifier: Apache-2.0 */
/* The only file that includes xxHash. Built without SIMD flags for WebAssembly, where its header does not compile
 * with them. */
#define XXH_INLINE_ALL
#define XXH_NO_STDLIB
#include <xxhash.h>

#include "base/hash.h"

_Static_assert(sizeof(XXH64_state_t) <= sizeof(((HashStream64 *)0)->opaque), "XXH64 state grew");
_Static_assert(sizeof(XXH3_state_t) <= sizeof(((HashStream3 *)0)->opaque), "XXH3 state grew");

uint64_t hash_xxh64(const void *bytes, size_t length) { return XXH64(bytes, length, 0); }

void hash_stream64_start(HashStream64 *s) { XXH64_reset((XXH64_state_t *)s->opaque, 0); }
void hash_stream64_update(HashStream64 *s, const void *bytes, size_t length)
{
    if (length) XXH64_update((XXH64_state_t *)s->opaque, bytes, length);
}
uint64_t hash_stream64_end(const HashStream64 *s)
{
    return XXH64_digest((const XXH64_state_t *)s->opaque);
}

void hash_stream3_start(HashStream3 *s) { XXH3_64bits_reset((XXH3_state_t *)s->opaque); }
void hash_stream3_update(HashStream3 *s, const void *bytes, size_t length)
{
    if (length) XXH3_64bits_update((XXH3_state_t *)s->opaque, bytes, length);
}
uint64_t hash_stream3_end(const HashStream3 *s)
{
    return XXH3_64bits_digest((const XXH3_state_t *)s->opaque);
}
