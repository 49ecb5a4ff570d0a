/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <string.h>

Arena arena_make(void *memory, size_t bytes)
{
    size_t skip = (size_t)(-(uintptr_t)memory & (ARENA_ALIGN - 1));
    if (!memory) return (Arena){NULL, 0, 0};
    if (skip > bytes) skip = bytes;
    return (Arena){(uint8_t *)memory + skip, bytes - skip, 0};
}

void *arena_take_raw(Arena *arena, size_t bytes)
{
    size_t room = arena->size - arena->used;
    if (bytes > room) return NULL;
    size_t rounded = arena_bytes(bytes);
    if (rounded > room) rounded = room; /* the last piece may end inside an alignment unit */
    void *p = arena->base + arena->used;
    arena->used += rounded;
    return p;
}

void *arena_take(Arena *arena, size_t bytes)
{
    void *p = arena_take_raw(arena, bytes);
    if (p && bytes) memset(p, 0, bytes);
    return p;
}

void *arena_take_array(Arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
    return arena_take(arena, bytes);
}
