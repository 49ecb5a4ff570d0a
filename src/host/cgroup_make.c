/* SPDX-License-Identifier: Apache-2.0 */
#include "host/cgroup_make.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/cgroup.h"
#include "host/whole.h"

/* The walk starts at the group we are in. */
static struct {
    char directory[4000];
    int version;
} own;

static uint64_t remember_own(const char *directory, int version)
{
    if (!own.directory[0] && strlen(directory) < sizeof own.directory) {
        (void)snprintf(own.directory, sizeof own.directory, "%s", directory);
        own.version = version;
    }
    return UINT64_MAX;
}

static Error write_text(const char *path, const char *text, Why *why)
{
    int fd = whole_open(path, O_WRONLY | O_CLOEXEC, 0);
    ssize_t bytes = fd < 0 ? -1 : write(fd, text, strlen(text));
    int number = errno;
    if (fd >= 0) close(fd);
    if (bytes == (ssize_t)strlen(text)) return OK;
    return error_why(why, ERR_NOT_AVAILABLE, "%s: %s", path, strerror(number));
}

static Error make_directory(const char *path, Why *why)
{
    if (mkdir(path, 0755) == 0 || errno == EEXIST) return OK;
    return error_why(why, ERR_NOT_AVAILABLE, "%s: %s", path, strerror(errno));
}

Error cgroup_make_open(CgroupMake *c, Why *why)
{
    char path[4200];
    own.directory[0] = '\0';
    (void)cgroup_least("memory", remember_own);
    if (!own.directory[0])
        return error_why(why, ERR_NOT_AVAILABLE, "this system has no memory control groups");
    c->version = own.version;
    if (c->version == 2) {
        (void)snprintf(path, sizeof path, "%s/cgroup.subtree_control", own.directory);
        TRY(write_text(path, "+memory", why));
    }
    (void)snprintf(c->directory, sizeof c->directory, "%s/cobord-%d", own.directory, (int)getpid());
    TRY(make_directory(c->directory, why));
    if (c->version != 2) return OK;
    (void)snprintf(path, sizeof path, "%s/cgroup.subtree_control", c->directory);
    Error error = write_text(path, "+memory", why);
    if (error != OK) (void)rmdir(c->directory);
    return error;
}

Error cgroup_make_group(const CgroupMake *c, const char *name, uint64_t memory_bytes,
                        char entry[CGROUP_MAKE_PATH_BYTES], Why *why)
{
    char path[CGROUP_MAKE_PATH_BYTES], limit[32];
    (void)snprintf(path, sizeof path, "%s/%s", c->directory, name);
    TRY(make_directory(path, why));
    (void)snprintf(path, sizeof path, "%s/%s/%s", c->directory, name,
                   c->version == 2 ? "memory.max" : "memory.limit_in_bytes");
    (void)snprintf(limit, sizeof limit, "%llu", (unsigned long long)memory_bytes);
    TRY(write_text(path, limit, why));
    (void)snprintf(entry, CGROUP_MAKE_PATH_BYTES, "%s/%s/cgroup.procs", c->directory, name);
    return OK;
}

void cgroup_make_remove_group(const CgroupMake *c, const char *name)
{
    char path[CGROUP_MAKE_PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s", c->directory, name);
    (void)rmdir(path);
}

void cgroup_make_remove(const CgroupMake *c) { (void)rmdir(c->directory); }
