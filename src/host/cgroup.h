/* SPDX-License-Identifier: Apache-2.0 */
/* Limits that the kernel's control groups (versions 1 and 2, mixed or alone, seen from inside a
 * container or not) put on this process: the strictest over its own group and all above it that are
 * visible. */
#ifndef COBORD_HOST_CGROUP_H
#define COBORD_HOST_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads one directory's limit; UINT64_MAX when it has none. `version` is 1 or 2. */
typedef uint64_t (*CgroupRead)(const char *directory, int version);

/* The least value over the directories of `controller` ("memory", "cpu"). UINT64_MAX when nothing
 * limits. */
uint64_t cgroup_least(const char *controller, CgroupRead read);

/* The first number in directory/name; UINT64_MAX when there is no such file, or it starts with a
 * word ("max"). */
uint64_t cgroup_number(const char *directory, const char *name);

/* The start of directory/name as text. false when it cannot be read. */
bool cgroup_text(const char *directory, const char *name, char *out, size_t out_bytes);

#endif
