/* SPDX-License-Identifier: Apache-2.0 */
#include "host/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "host/cgroup.h"
#include "host/memory.h"

static uint64_t limits_of(int resource)
{
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return LIMITS_NONE;
    return limit.rlim_cur;
}

/* The group that memory_limit found: the strictest. */
typedef struct LimitsGroup {
    uint64_t limit, used;
    unsigned version;
} LimitsGroup;

static _Thread_local LimitsGroup limits_strictest;

static uint64_t limits_group(const char *directory, int version)
{
    uint64_t limit =
        cgroup_number(directory, version == 1 ? "memory.limit_in_bytes" : "memory.max");
    if (limit < limits_strictest.limit) {
        uint64_t used =
            cgroup_number(directory, version == 1 ? "memory.usage_in_bytes" : "memory.current");
        limits_strictest = (LimitsGroup){limit, used, (unsigned)version};
    }
    return limit;
}

/* "always [madvise] never": the word in brackets. */
static void limits_chosen(const char *text, char *out, size_t room)
{
    const char *open = strchr(text, '['), *close = open ? strchr(open, ']') : NULL;
    out[0] = 0;
    if (close) (void)snprintf(out, room, "%.*s", (int)(close - open - 1), open + 1);
}

void limits_read(Limits *out)
{
    char text[128];
    *out = (Limits){.address_space_bytes = limits_of(RLIMIT_AS),
                    .files = limits_of(RLIMIT_NOFILE),
                    .locked_bytes = limits_of(RLIMIT_MEMLOCK)};
    if (memory_limit() != UINT64_MAX) {
        limits_strictest = (LimitsGroup){UINT64_MAX, 0, 0};
        (void)cgroup_least("memory", limits_group);
        out->group_version = limits_strictest.version;
        out->group_used_bytes = limits_strictest.used == UINT64_MAX ? 0 : limits_strictest.used;
    }
    if (cgroup_text("/proc/sys/vm", "overcommit_memory", text, sizeof text))
        out->overcommit = (unsigned)strtoul(text, NULL, 10);
    if (cgroup_text("/sys/kernel/mm/transparent_hugepage", "enabled", text, sizeof text))
        limits_chosen(text, out->huge_pages, sizeof out->huge_pages);
    if (getloadavg(&out->load, 1) != 1) out->load = -1;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    out->cores = cores > 0 ? (uint32_t)cores : 1;
}
