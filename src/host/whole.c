/* SPDX-License-Identifier: Apache-2.0 */
#include "host/whole.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int whole_open_at(int directory, const char *path, int flags, mode_t mode)
{
    int descriptor;
    do descriptor = openat(directory, path, flags, mode);
    while (descriptor < 0 && errno == EINTR);
    return descriptor;
}

int whole_open(const char *path, int flags, mode_t mode)
{
    return whole_open_at(AT_FDCWD, path, flags, mode);
}

bool whole_read(int descriptor, uint64_t offset, void *out, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n =
            pread(descriptor, (char *)out + done, (size_t)(bytes - done), (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = 0;
        if (n <= 0) return false;
        done += (uint64_t)n;
    }
    return true;
}

bool whole_write(int descriptor, uint64_t offset, const void *data, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pwrite(descriptor, (const char *)data + done, (size_t)(bytes - done),
                           (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = ENOSPC;
        if (n <= 0) return false;
        done += (uint64_t)n;
    }
    return true;
}

ssize_t whole_rest(int descriptor, void *out, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = read(descriptor, (char *)out + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        if (n == 0) break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}
