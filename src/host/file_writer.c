/* SPDX-License-Identifier: Apache-2.0 */
#include "host/file_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "host/stop.h"
#include "host/whole.h"

static Error file_writer_errno(const FileWriter *w, const char *what, Why *why)
{
    int number = errno;
    bool space = number == ENOSPC || number == EDQUOT || number == EFBIG;
    return error_why(why, space ? ERR_NO_SPACE : ERR_IO, "%s %s: %s", what, w->path,
                     strerror(number));
}

/* ".NAME.PID.part" beside the path. */
static char *file_writer_temporary(const char *path)
{
    const char *slash = strrchr(path, '/');
    int directory = slash ? (int)(slash - path) + 1 : 0;
    size_t room = strlen(path) + 32;
    char *out = malloc(room);
    if (out)
        (void)snprintf(out, room, "%.*s.%s.%ld.part", directory, path, path + directory,
                       (long)getpid());
    return out;
}

Error file_writer_check_space(int descriptor, const char *path, uint64_t bytes, Why *why)
{
    struct statvfs fs;
    if (bytes == 0 || fstatvfs(descriptor, &fs) != 0) return OK;
    uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (free_bytes >= bytes) return OK;
    bool small = bytes < 10000000;
    uint64_t unit = small ? 1000 : 1000000;
    return error_why(why, ERR_NO_SPACE, "%s needs %llu %s, the disk has %llu %s left", path,
                     (unsigned long long)((bytes + unit - 1) / unit), small ? "kB" : "MB",
                     (unsigned long long)(free_bytes / unit), small ? "kB" : "MB");
}

Error file_writer_open(FileWriter *w, const char *path, uint64_t bytes_expected, Why *why)
{
    struct stat st;
    *w = (FileWriter){.descriptor = -1,
                      .path = strdup(path),
                      .temporary = file_writer_temporary(path),
                      .buffer = malloc(FILE_WRITER_PIECE_BYTES)};
    if (!w->path || !w->temporary || !w->buffer) {
        file_writer_abandon(w);
        return error_why(why, ERR_MEMORY, "no memory to write %s", path);
    }
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        Error e = error_why(why, ERR_IO, "%s is there and is no regular file", path);
        file_writer_abandon(w);
        return e;
    }
    w->descriptor = whole_open(w->temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    Error e = w->descriptor < 0 ? file_writer_errno(w, "cannot write", why)
                                : file_writer_check_space(w->descriptor, path, bytes_expected, why);
    if (e) file_writer_abandon(w);
    return e;
}

static Error file_writer_put(FileWriter *w, uint64_t offset, const uint8_t *bytes, size_t count,
                             Why *why)
{
    while (count) {
        ssize_t n = pwrite(w->descriptor, bytes, count, (off_t)offset);
        if (n < 0 && errno == EINTR) {
            if (stop_asked()) return error_why(why, ERR_CANCELLED, "%s was not written", w->path);
            continue;
        }
        if (n <= 0) {
            if (n == 0) errno = ENOSPC;
            return file_writer_errno(w, "cannot write", why);
        }
        bytes += n;
        count -= (size_t)n;
        offset += (uint64_t)n;
    }
    return OK;
}

static Error file_writer_flush(FileWriter *w, Why *why)
{
    TRY(file_writer_put(w, w->bytes - w->buffered, w->buffer, w->buffered, why));
    w->buffered = 0;
    return OK;
}

Error file_writer_append(FileWriter *w, const void *bytes, size_t count, Why *why)
{
    for (const uint8_t *from = bytes; count;) {
        size_t to_piece = FILE_WRITER_PIECE_BYTES - w->bytes % FILE_WRITER_PIECE_BYTES;
        size_t now = count < to_piece ? count : to_piece;
        if (now ==
            FILE_WRITER_PIECE_BYTES) { /* whole pieces need no copy, and the buffer is empty here */
            now = count - count % FILE_WRITER_PIECE_BYTES;
            TRY(file_writer_put(w, w->bytes, from, now, why));
        } else {
            memcpy(w->buffer + w->buffered, from, now);
            w->buffered += now;
        }
        w->bytes += now;
        from += now;
        count -= now;
        if (w->buffered && w->bytes % FILE_WRITER_PIECE_BYTES == 0) TRY(file_writer_flush(w, why));
    }
    return OK;
}

Error file_writer_patch(FileWriter *w, uint64_t offset, const void *bytes, size_t count, Why *why)
{
    TRY(file_writer_flush(w, why));
    return file_writer_put(w, offset, bytes, count, why);
}

/* The rename itself must survive a power cut; file systems that cannot sync a directory are left
 * alone. */
static void file_writer_sync_directory(const char *path)
{
    char *directory = strdup(path);
    if (!directory) return;
    char *slash = strrchr(directory, '/');
    if (slash == directory) slash[1] = '\0';
    else if (slash) *slash = '\0';
    int fd = whole_open(slash ? directory : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    free(directory);
    if (fd < 0) return;
    (void)fsync(fd);
    (void)close(fd);
}

static Error file_writer_finish(FileWriter *w, Why *why)
{
    TRY(file_writer_flush(w, why));
    if (fsync(w->descriptor) != 0 && errno != EINVAL && errno != EINTR)
        return file_writer_errno(w, "cannot write", why);
    if (stop_asked()) return error_why(why, ERR_CANCELLED, "%s was not written", w->path);
    int closed = close(w->descriptor);
    w->descriptor = -1;
    if (closed != 0 && errno != EINTR) return file_writer_errno(w, "cannot write", why);
    if (rename(w->temporary, w->path) != 0) return file_writer_errno(w, "cannot rename to", why);
    file_writer_sync_directory(w->path);
    return OK;
}

Error file_writer_commit(FileWriter *w, Why *why)
{
    Error e = file_writer_finish(w, why);
    if (e == OK) {
        free(w->temporary);
        w->temporary = NULL;
    }
    file_writer_abandon(w);
    return e;
}

void file_writer_abandon(FileWriter *w)
{
    if (w->descriptor >= 0) (void)close(w->descriptor);
    if (w->temporary) (void)unlink(w->temporary);
    free(w->temporary);
    free(w->path);
    free(w->buffer);
    *w = (FileWriter){.descriptor = -1};
}
