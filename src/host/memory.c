/* SPDX-License-Identifier: Apache-2.0 */
#include "host/memory.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "host/cgroup.h"
#include "host/whole.h"

/* The number behind `key` in a /proc file of "Key:  number kB" lines, in bytes; 0 when there is
 * none. */
static uint64_t memory_proc(const char *path, const char *key)
{
    char text[4096];
    int file = whole_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (file < 0) return 0;
    ssize_t length = whole_rest(file, text, sizeof text - 1);
    (void)close(file);
    text[length < 0 ? 0 : length] = 0;
    const char *line = strstr(text, key);
    return line ? strtoull(line + strlen(key), NULL, 10) * 1024 : 0;
}

static uint64_t memory_group_limit(const char *directory, int version)
{
    uint64_t limit =
        cgroup_number(directory, version == 1 ? "memory.limit_in_bytes" : "memory.max");
    return limit >= (uint64_t)1 << 60 ? UINT64_MAX
                                      : limit; /* version 1 writes "none" as a huge number */
}

uint64_t memory_limit(void) { return cgroup_least("memory", memory_group_limit); }

uint64_t memory_available(void) { return memory_proc("/proc/meminfo", "MemAvailable:"); }

/* A service may have a /proc of processes alone; the kernel says it to those, too. */
uint64_t memory_total(void)
{
    struct sysinfo system;
    uint64_t bytes = memory_proc("/proc/meminfo", "MemTotal:");
    if (bytes || sysinfo(&system) != 0) return bytes;
    return (uint64_t)system.totalram * system.mem_unit;
}

uint64_t memory_swap_total(void) { return memory_proc("/proc/meminfo", "SwapTotal:"); }

uint64_t memory_swap_free(void) { return memory_proc("/proc/meminfo", "SwapFree:"); }

uint64_t memory_allowed(void)
{
    uint64_t limit = memory_limit(), available = memory_available();
    available = available ? available + memory_resident() : memory_total();
    return available && available < limit ? available : limit;
}

uint64_t memory_peak(void) { return memory_proc("/proc/self/status", "VmHWM:"); }

/* What ThreadSanitizer takes for itself is no part of a plan. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SANITIZER_BYTES ((uint64_t)20 << 20)
#endif
#endif
#if !defined(SANITIZER_BYTES)
#define SANITIZER_BYTES ((uint64_t)0)
#endif

uint64_t memory_resident(void)
{
    uint64_t bytes = memory_proc("/proc/self/status", "VmRSS:");
    return bytes > SANITIZER_BYTES ? bytes - SANITIZER_BYTES : 0;
}

void memory_keep_heap_small(void)
{
#ifdef M_ARENA_MAX
    (void)mallopt(M_MMAP_THRESHOLD, 256 << 10);
    (void)mallopt(M_ARENA_MAX, 2);
#endif
}
