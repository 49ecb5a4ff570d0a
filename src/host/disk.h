/* SPDX-License-Identifier: Apache-2.0 */
/* The disk below a folder: which kind, how much room, whether it may be written, how fast it is read. */
#ifndef COBORD_HOST_DISK_H
#define COBORD_HOST_DISK_H

#include <stdint.h>

#include "base/error.h"

typedef enum DiskKind {
    DISK_LOCAL,
    DISK_MEMORY,  /* tmpfs, ramfs: its files take memory */
    DISK_NETWORK, /* NFS, SMB, FUSE, ...: as fast as what is behind it */
    DISK_LAYERED  /* overlayfs: of a container, and gone with it */
} DiskKind;

typedef struct Disk {
    DiskKind kind;
    const char *name; /* "ext4", "tmpfs"; "another kind" */
    uint64_t free_bytes, total_bytes;
} Disk;

/* Errors  ERR_IO, ERR_NOT_FOUND. */
MUST_CHECK Error disk_look(const char *folder, Disk *out, Why *why);

/* Makes a small file there and removes it. Errors  ERR_IO, ERR_NO_SPACE, ERR_NOT_FOUND. */
MUST_CHECK Error disk_try_write(const char *folder, Why *why);

/* Bytes a second from the disk itself, past the system's cache where it lets us; for `ms_max` milliseconds and one
 * read more. 0: the file cannot be read, or is smaller than 8 MiB. */
double disk_read_rate(const char *file, uint32_t ms_max);

#endif
