/* SPDX-License-Identifier: Apache-2.0 */
#include "reserve.h"

enum { RESERVE_PAGE_BYTES = 65536 };

static uint64_t reserve_end; /* of what is ours; libc's malloc may have grown the memory behind it */

uint64_t reserve_bytes(void) { return (uint64_t)__builtin_wasm_memory_size(0) * RESERVE_PAGE_BYTES; }

uint8_t *reserve_start(void)
{
    reserve_end = reserve_bytes();
    return (uint8_t *)(uintptr_t)reserve_end;
}

bool reserve_until(const uint8_t *at, uint64_t bytes)
{
    uint64_t end;
    if (__builtin_add_overflow((uint64_t)(uintptr_t)at, bytes, &end) || end > UINT32_MAX) return false;
    if (end <= reserve_end) return true;
    size_t pages = (size_t)((end - reserve_end + RESERVE_PAGE_BYTES - 1) / RESERVE_PAGE_BYTES);
    if (reserve_bytes() != reserve_end || __builtin_wasm_memory_grow(0, pages) == (size_t)-1) return false;
    reserve_end = reserve_bytes();
    return true;
}
