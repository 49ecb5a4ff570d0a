/* SPDX-License-Identifier: Apache-2.0 */
/* What this system allows a process beside memory and processors as such (memory.h, cpu.h). */
#ifndef COBORD_HOST_LIMITS_H
#define COBORD_HOST_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#define LIMITS_NONE UINT64_MAX

typedef struct Limits {
    uint64_t address_space_bytes, files, locked_bytes; /* LIMITS_NONE: no limit */
    unsigned
        group_version; /* of the control group whose memory limit is the strictest; 0: there is no limit */
    uint64_t group_used_bytes; /* of it; 0: not known */
    unsigned overcommit;       /* 0 heuristic, 1 always, 2 strict */
    char huge_pages[16];       /* "always", "madvise", "never"; "": not known */
    double load;               /* processes that want to run, over a minute; negative: not known */
    uint32_t cores;            /* of the machine, those that we may not use too */
} Limits;

void limits_read(Limits *out);

#endif
