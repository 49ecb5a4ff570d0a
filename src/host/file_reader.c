/* SPDX-License-Identifier: Apache-2.0 */
#include "host/file_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "host/stop.h"
#include "host/whole.h"

static Error file_reader_check(int descriptor, const char *path, const char *kind,
                               struct stat *state, Why *why)
{
    if (fstat(descriptor, state) != 0)
        return error_why(why, ERR_IO, "cannot read %s: %s", path, strerror(errno));
    if (S_ISREG(state->st_mode)) return OK;
    return error_why(why, ERR_FORMAT, "%s is %s, not %s", path,
                     S_ISDIR(state->st_mode) ? "a directory" : "a pipe or device", kind);
}

Error file_reader_open(const char *path, const char *kind, int *descriptor, struct stat *state,
                       Why *why)
{
    /* A FIFO must not make the open wait for a writer. */
    *descriptor = whole_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (*descriptor < 0)
        return error_why(why, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "cannot open %s: %s", path,
                         strerror(errno));
    Error error = file_reader_check(*descriptor, path, kind, state, why);
    if (error == OK) return OK;
    (void)close(*descriptor);
    *descriptor = -1;
    return error;
}

Error file_reader_read(int descriptor, const char *path, uint64_t offset, void *out, size_t bytes,
                       Why *why)
{
    for (uint8_t *to = out; bytes;) {
        ssize_t n = pread(descriptor, to, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR) {
            if (stop_asked()) return error_why(why, ERR_CANCELLED, "reading %s", path);
            continue;
        }
        if (n < 0) return error_why(why, ERR_IO, "cannot read %s: %s", path, strerror(errno));
        if (n == 0)
            return error_why(why, ERR_TRUNCATED, "%s became shorter while it was read", path);
        to += n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return OK;
}
