/* SPDX-License-Identifier: Apache-2.0 */
#include "host/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "host/clock.h"
#include "host/places.h"
#include "host/whole.h"

enum { DISK_READ_BYTES = 4 << 20, DISK_ALIGNMENT = 4096 };

static const struct {
    uint32_t magic;
    DiskKind kind;
    const char *name;
} disk_kinds[] = {
    {0xef53, DISK_LOCAL, "ext4"},          {0x58465342, DISK_LOCAL, "xfs"},
    {0x9123683e, DISK_LOCAL, "btrfs"},     {0xf2f52010, DISK_LOCAL, "f2fs"},
    {0x2fc12fc1, DISK_LOCAL, "zfs"},       {0xca451a4e, DISK_LOCAL, "bcachefs"},
    {0x4d44, DISK_LOCAL, "vfat"},          {0x2011bab0, DISK_LOCAL, "exfat"},
    {0x01021994, DISK_MEMORY, "tmpfs"},    {0x858458f6, DISK_MEMORY, "ramfs"},
    {0x6969, DISK_NETWORK, "nfs"},         {0xff534d42, DISK_NETWORK, "cifs"},
    {0xfe534d42, DISK_NETWORK, "smb2"},    {0x517b, DISK_NETWORK, "smb"},
    {0x00c36400, DISK_NETWORK, "ceph"},    {0x01021997, DISK_NETWORK, "9p"},
    {0x65735546, DISK_NETWORK, "fuse"},    {0x5346414f, DISK_NETWORK, "afs"},
    {0x794c7630, DISK_LAYERED, "overlay"}, {0x61756673, DISK_LAYERED, "aufs"},
};

Error disk_look(const char *folder, Disk *out, Why *why)
{
    struct statfs state;
    if (statfs(folder, &state) != 0) return places_system_error(errno, folder, why);
    *out = (Disk){.name = "another kind",
                  .free_bytes = (uint64_t)state.f_bavail * (uint64_t)state.f_bsize,
                  .total_bytes = (uint64_t)state.f_blocks * (uint64_t)state.f_bsize};
    for (size_t i = 0; i < sizeof disk_kinds / sizeof disk_kinds[0]; i++) {
        if (disk_kinds[i].magic != (uint32_t)state.f_type) continue;
        out->kind = disk_kinds[i].kind;
        out->name = disk_kinds[i].name;
    }
    return OK;
}

Error disk_try_write(const char *folder, Why *why)
{
    char path[PLACES_PATH_BYTES + 32];
    int n = snprintf(path, sizeof path, "%s/.cobord-doctor-XXXXXX", folder);
    if (n < 0 || (size_t)n >= sizeof path)
        return error_why(why, ERR_TOO_LARGE, "the path of the folder");
    int file = mkostemp(path, O_CLOEXEC);
    if (file < 0) return places_system_error(errno, folder, why);
    bool wrote = write(file, "cobord\n", 7) == 7;
    int fault = errno;
    (void)close(file);
    (void)unlink(path);
    return wrote ? OK : places_system_error(fault, folder, why);
}

/* The clock is looked at between reads; each is of DISK_READ_BYTES. */
static double disk_read_for(int file, uint8_t *buffer, uint32_t ms_max)
{
    uint64_t start = clock_now_ns(), bytes = 0, took = 0;
    while (took < (uint64_t)ms_max * 1000000) {
        ssize_t n = read(file, buffer, DISK_READ_BYTES);
        took = clock_now_ns() - start;
        if (n <= 0) break;
        bytes += (uint64_t)n;
    }
    return bytes && took ? 1e9 * (double)bytes / (double)took : 0;
}

double disk_read_rate(const char *path, uint32_t ms_max)
{
    struct stat state;
    void *buffer = NULL;
    double rate = 0;
    int file = whole_open(path, O_RDONLY | O_CLOEXEC | O_DIRECT, 0);
    if (file < 0) file = whole_open(path, O_RDONLY | O_CLOEXEC, 0); /* tmpfs knows no other way */
    if (file < 0) return 0;
    bool fit = fstat(file, &state) == 0 && S_ISREG(state.st_mode) &&
               state.st_size >= 2 * (off_t)DISK_READ_BYTES;
    if (fit && posix_memalign(&buffer, DISK_ALIGNMENT, DISK_READ_BYTES) == 0)
        rate = disk_read_for(file, buffer, ms_max);
    free(buffer);
    (void)close(file);
    return rate;
}
