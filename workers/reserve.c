/* SPDX-License-Identifier: Apache-2.0 */
#include "reserve.h"

#include "base/arena.h"

enum { RESERVE_PAGE_BYTES = 65536 };

extern uint8_t __heap_base; /* set by the linker: the end of stack and data */

uint8_t *reserve_start(void)
{
    return (uint8_t *)(((uintptr_t)&__heap_base + ARENA_ALIGN - 1) & ~(uintptr_t)(ARENA_ALIGN - 1));
}

uint64_t reserve_bytes(void) { return (uint64_t)__builtin_wasm_memory_size(0) * RESERVE_PAGE_BYTES; }

bool reserve_until(const uint8_t *at, uint64_t bytes)
{
    uint64_t end, have = reserve_bytes();
    if (__builtin_add_overflow((uint64_t)(uintptr_t)at, bytes, &end) || end > UINT32_MAX) return false;
    if (end <= have) return true;
    size_t pages = (size_t)((end - have + RESERVE_PAGE_BYTES - 1) / RESERVE_PAGE_BYTES);
    return __builtin_wasm_memory_grow(0, pages) != (size_t)-1;
}
