/* SPDX-License-Identifier: Apache-2.0 */
/* A bump allocator over memory that the caller owns. Nothing is ever freed singly: an arena is
 * filled once at start (its size known from a plan), or marked and reset around a step. The pure
 * rooms have no other way to get memory.
 *
 *   base [ used ........ | free ........ ] base + size        every allocation starts at a multiple of 64 */
#ifndef COBORD_BASE_ARENA_H
#define COBORD_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

enum { ARENA_ALIGN = 64 };

typedef struct Arena {
    uint8_t *base;
    size_t size, used;
} Arena;

/* Owner  `memory` stays the caller's. It need not be aligned; up to 63 bytes are lost when it is not. */
Arena arena_make(void *memory, size_t bytes);

/* `bytes` of zeroed memory, or NULL when they do not fit; the arena is then unchanged. 0 bytes
 * give a valid pointer. */
void *arena_take(Arena *arena, size_t bytes);

/* The same without zeroing: memory that is written before it is read, and whose pages should not
 * be touched early. */
void *arena_take_raw(Arena *arena, size_t bytes);

/* count * size, zeroed, with the product checked. */
void *arena_take_array(Arena *arena, size_t count, size_t size);

static inline size_t arena_mark(const Arena *arena) { return arena->used; }
static inline void arena_reset(Arena *arena, size_t mark) { arena->used = mark; }

/* What arena_take(bytes) uses up: for summing sizes before there is an arena. */
static inline size_t arena_bytes(size_t bytes)
{
    return (bytes + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
}

#define ARENA_NEW(arena, type, count) ((type *)arena_take_array((arena), (count), sizeof(type)))

#endif
