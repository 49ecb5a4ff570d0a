/* SPDX-License-Identifier: Apache-2.0 */
#include "host/file_guard.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { PAGE_BYTES = 4096 };

/* `first` is 0 for a free place and TAKEN while it is being filled: a handler looks at nothing else then. */
static const uintptr_t TAKEN = 1;

typedef struct GuardedRange {
    _Atomic uintptr_t first, last;
    atomic_int descriptor;
    atomic_bool lost;
} GuardedRange;

static GuardedRange ranges[FILE_GUARD_RANGES_MAX];

static GuardedRange *find(uintptr_t address)
{
    for (int i = 0; i < FILE_GUARD_RANGES_MAX; i++) {
        uintptr_t first = atomic_load(&ranges[i].first);
        if (first > TAKEN && address >= first && address < atomic_load(&ranges[i].last))
            return &ranges[i];
    }
    return NULL;
}

/* From the page on when the file ends before it, else this page alone: a disk that fails there. */
static bool put_zeros(GuardedRange *range, uintptr_t page)
{
    struct stat st;
    uintptr_t first = atomic_load(&range->first), last = atomic_load(&range->last);
    bool ended = fstat(atomic_load(&range->descriptor), &st) != 0 ||
                 (uint64_t)(page - first) >= (uint64_t)st.st_size;
    size_t bytes = ended ? (size_t)(last - page) : PAGE_BYTES;
    return mmap((void *)page, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
           MAP_FAILED;
}

bool file_guard_take(const void *where)
{
    uintptr_t address = (uintptr_t)where;
    GuardedRange *range = find(address);
    if (range) atomic_store(&range->lost, true);
    return range && put_zeros(range, address / PAGE_BYTES * PAGE_BYTES);
}

int file_guard_add(const void *map, size_t bytes, int descriptor)
{
    for (int i = 0; i < FILE_GUARD_RANGES_MAX; i++) {
        uintptr_t none = 0;
        GuardedRange *range = &ranges[i];
        if (!atomic_compare_exchange_strong(&range->first, &none, TAKEN)) continue;
        atomic_store(&range->last, (uintptr_t)map + bytes);
        atomic_store(&range->descriptor, descriptor);
        atomic_store(&range->lost, false);
        atomic_store(&range->first, (uintptr_t)map);
        return i;
    }
    return FILE_GUARD_NONE;
}

void file_guard_remove(int guard)
{
    if (guard != FILE_GUARD_NONE) atomic_store(&ranges[guard].first, 0);
}

bool file_guard_lost(int guard)
{
    return guard != FILE_GUARD_NONE && atomic_load(&ranges[guard].lost);
}
