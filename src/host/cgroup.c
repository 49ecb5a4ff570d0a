/* SPDX-License-Identifier: Apache-2.0 */
/*   /proc/self/cgroup      "0::/a/b" (v2)  "5:memory:/a/b" (v1)          which group
 *   /proc/self/mountinfo   ... ROOT MOUNTPOINT ... - cgroup2 ...         where it can be read
 *   MOUNTPOINT + (group without ROOT), then its parents up to MOUNTPOINT */
#include "host/cgroup.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct CgroupPlace {
    char group[PATH_MAX], root[PATH_MAX], mount[PATH_MAX];
} CgroupPlace;

bool cgroup_text(const char *directory, const char *name, char *out, size_t out_bytes)
{
    char path[PATH_MAX + 64];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    size_t length = fread(out, 1, out_bytes - 1, file);
    (void)fclose(file);
    out[length] = 0;
    return length > 0;
}

uint64_t cgroup_number(const char *directory, const char *name)
{
    char text[64];
    if (!cgroup_text(directory, name, text, sizeof text) || !isdigit((unsigned char)text[0]))
        return UINT64_MAX;
    return strtoull(text, NULL, 10);
}

/* Whether `word` is one of the words of a list with commas. */
static bool cgroup_listed(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",");
        if (n == length && memcmp(p, word, n) == 0) return true;
        p += n + (p[n] == ',');
    }
    return false;
}

/* The group of this process: version 1's for the controller when `controller` is set, else version
 * 2's. */
static bool cgroup_find_group(const char *controller, char *out)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file) return false;
    char line[PATH_MAX + 256];
    bool found = false;
    while (!found && fgets(line, sizeof line, file)) {
        char *names = strchr(line, ':');
        char *path = names ? strchr(names + 1, ':') : NULL;
        if (!path) continue;
        *path++ = 0;
        names++;
        path[strcspn(path, "\n")] = 0;
        if (controller ? !cgroup_listed(names, controller) : names[0] != 0) continue;
        (void)snprintf(out, PATH_MAX, "%s", path);
        found = true;
    }
    (void)fclose(file);
    return found;
}

static bool cgroup_find_mount(const char *controller, char *root, char *mount)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    if (!file) return false;
    char line[3 * PATH_MAX], type[32], options[512];
    bool found = false;
    while (!found && fgets(line, sizeof line, file)) {
        char *rest = strstr(line, " - ");
        if (!rest || sscanf(line, "%*s %*s %*s %4095s %4095s", root, mount) != 2) continue;
        if (sscanf(rest + 3, "%31s %*s %511s", type, options) != 2) continue;
        found = controller ? strcmp(type, "cgroup") == 0 && cgroup_listed(options, controller)
                           : strcmp(type, "cgroup2") == 0;
    }
    (void)fclose(file);
    return found;
}

static uint64_t cgroup_walk(CgroupPlace *p, int version, CgroupRead read)
{
    const char *group = p->group;
    size_t root = strcmp(p->root, "/") == 0 ? 0 : strlen(p->root);
    if (strncmp(group, p->root, root) == 0) group += root;
    if (strstr(group, "..")) group = ""; /* a group outside of what this container sees */
    char path[2 * PATH_MAX];
    (void)snprintf(path, sizeof path, "%s%s", p->mount, strcmp(group, "/") == 0 ? "" : group);
    uint64_t least = UINT64_MAX;
    for (;;) {
        uint64_t value = read(path, version);
        if (value < least) least = value;
        char *slash = strrchr(path, '/');
        if (!slash || strlen(path) <= strlen(p->mount)) return least;
        *slash = 0;
    }
}

uint64_t cgroup_least(const char *controller, CgroupRead read)
{
    CgroupPlace *p = malloc(sizeof *p);
    if (!p) return UINT64_MAX;
    uint64_t least = UINT64_MAX;
    for (int version = 1; version <= 2; version++) {
        const char *wanted = version == 1 ? controller : NULL;
        if (!cgroup_find_group(wanted, p->group) || !cgroup_find_mount(wanted, p->root, p->mount))
            continue;
        uint64_t value = cgroup_walk(p, version, read);
        if (value < least) least = value;
    }
    free(p);
    return least;
}
