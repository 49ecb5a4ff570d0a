/* SPDX-License-Identifier: Apache-2.0 */
#include "host/process.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "host/log.h"
#include "host/memory.h"

static uint64_t open_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    uint64_t count = 0;
    if (!folder) return 0;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    (void)closedir(folder);
    return count - 1; /* the folder's own */
}

static uint64_t now_us(clockid_t clock)
{
    struct timespec t;
    if (clock_gettime(clock, &t) != 0) return 0;
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Field 22 of /proc/self/stat, in ticks since the machine began; the name before it may have blanks. */
static uint64_t started_us(void)
{
    char text[1024];
    FILE *f = fopen("/proc/self/stat", "re");
    size_t bytes = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) (void)fclose(f);
    text[bytes] = '\0';
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    long per_second = sysconf(_SC_CLK_TCK);
    if (!at || per_second <= 0) return 0;
    uint64_t since_boot = strtoull(at, NULL, 10) * 1000000 / (uint64_t)per_second;
    return now_us(CLOCK_REALTIME) - now_us(CLOCK_BOOTTIME) + since_boot;
}

void process_figures(MetricsProcess *out)
{
    static _Atomic uint64_t start_us; /* read once: the time of day may be set */
    struct rlimit limit;
    if (!start_us) start_us = started_us();
    *out = (MetricsProcess){.start_us = start_us,
                            .cpu_us = now_us(CLOCK_PROCESS_CPUTIME_ID),
                            .open_fds = open_descriptors(),
                            .resident_bytes = memory_resident(),
                            .peak_bytes = memory_peak(),
                            .log_dropped = log_dropped()};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        out->max_fds = limit.rlim_cur;
}

void process_leave_no_core(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_CORE, &limit) != 0) return;
    limit.rlim_cur = 0;
    (void)setrlimit(RLIMIT_CORE, &limit);
}
