/* SPDX-License-Identifier: Apache-2.0 */
/* Memory control groups of our own, below the one this process is in: one for each process that is
 * to have a limit of its own. Version 1 needs write access to the group; version 2 also that no
 * process is in it, or that it is the root.
 *
 *   OWN/cobord-PID/station-0      memory.limit_in_bytes, or memory.max */
#ifndef COBORD_HOST_CGROUP_MAKE_H
#define COBORD_HOST_CGROUP_MAKE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { CGROUP_MAKE_PATH_BYTES = 4400 };

typedef struct CgroupMake {
    char directory[4096]; /* OWN/cobord-PID */
    int version;
} CgroupMake;

/* Errors  ERR_NOT_AVAILABLE: says what is missing. Owner  cgroup_make_remove. */
MUST_CHECK Error cgroup_make_open(CgroupMake *c, Why *why);
/* Makes a group; `entry` is the file to enter it by. Errors  ERR_NOT_AVAILABLE. */
MUST_CHECK Error cgroup_make_group(const CgroupMake *c, const char *name, uint64_t memory_bytes,
                                   char entry[CGROUP_MAKE_PATH_BYTES], Why *why);
/* Its processes have ended. */
void cgroup_make_remove_group(const CgroupMake *c, const char *name);
void cgroup_make_remove(const CgroupMake *c);

#endif
