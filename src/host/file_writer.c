/* SPDX-License-Identifier: Apache-2.0 */
#include "host/file_writer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "host/stop.h"
#include "host/whole.h"

enum { FILE_WRITER_LOCK_TRIES = 100 }; /* 10 ms each: whoever sweeps holds it for moments */

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

/* --- what killed writers left --- */

/* "." and ".PID.part" around the name. */
static bool file_writer_is_temporary(const char *entry, const char *name)
{
    size_t bytes = strlen(name);
    if (entry[0] != '.' || strncmp(entry + 1, name, bytes) != 0 || entry[bytes + 1] != '.')
        return false;
    const char *number = entry + bytes + 2;
    size_t digits = strspn(number, "0123456789");
    return digits > 0 && strcmp(number + digits, ".part") == 0;
}

/* Who writes holds a lock, whichever machine, container or process it is; what is not locked is nobody's any more.
 * (Mounts of NFS whose locks are local see this machine's only: there two machines must not write one file at once.)
 * Where a file system has no locks, only what has our own number goes. */
static bool file_writer_is_left(int fd, bool own)
{
    return flock(fd, LOCK_EX | LOCK_NB) == 0 || (own && errno != EWOULDBLOCK);
}

static void file_writer_sweep_one(int directory, const char *entry, bool own)
{
    struct stat ours, now;
    int fd = whole_open_at(directory, entry, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd < 0) return;
    if (fstat(fd, &ours) == 0 && S_ISREG(ours.st_mode) && file_writer_is_left(fd, own) &&
        fstatat(directory, entry, &now, AT_SYMLINK_NOFOLLOW) == 0 && ours.st_ino == now.st_ino)
        (void)unlinkat(directory, entry, 0);
    (void)close(fd);
}

static int file_writer_open_directory(const char *path)
{
    char *directory = strdup(path);
    if (!directory) return -1;
    char *slash = strrchr(directory, '/');
    if (slash == directory) slash[1] = '\0';
    else if (slash) *slash = '\0';
    int fd = whole_open(slash ? directory : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    free(directory);
    return fd;
}

static void file_writer_sweep(const char *path)
{
    const char *slash = strrchr(path, '/');
    int directory = file_writer_open_directory(path);
    DIR *d = directory < 0 ? NULL : fdopendir(directory);
    if (!d && directory >= 0) (void)close(directory);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (file_writer_is_temporary(e->d_name, slash ? slash + 1 : path))
            file_writer_sweep_one(dirfd(d), e->d_name, false);
    if (d) (void)closedir(d);
}

/* --- opening --- */

/* 0: the temporary file is ours alone; 1: somebody has it just now; -1: errno. It is always a new one: who made a file
 * of this name before us could read along. */
static int file_writer_take(FileWriter *w, mode_t mode)
{
    struct stat state;
    int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
    file_writer_sweep_one(AT_FDCWD, w->temporary, true);
    w->descriptor = whole_open(w->temporary, flags, mode);
    if (w->descriptor < 0) return errno == EEXIST ? 1 : -1;
    int taken = flock(w->descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fstat(w->descriptor, &state) != 0) return -1;
    if (!taken && state.st_nlink == 0) taken = 1; /* swept between our open and our lock */
    if (taken) {
        (void)close(w->descriptor);
        w->descriptor = -1;
    }
    return taken;
}

static Error file_writer_make(FileWriter *w, mode_t mode, Why *why)
{
    int taken = 1;
    for (int tries = 0; taken > 0 && tries < FILE_WRITER_LOCK_TRIES; tries++) {
        struct timespec pause = {0, 10000000};
        if (tries) (void)nanosleep(&pause, NULL);
        taken = file_writer_take(w, mode);
    }
    if (taken < 0) return file_writer_errno(w, "cannot write", why);
    if (taken == 0) return OK;
    return error_why(why, ERR_IO, "%s is being written by another cobord. If none runs, remove %s.",
                     w->path, w->temporary);
}

static Error file_writer_open_as(FileWriter *w, const char *path, mode_t mode,
                                 uint64_t bytes_expected, Why *why)
{
    struct stat st;
    *w = (FileWriter){.descriptor = -1,
                      .path = strdup(path),
                      .temporary = file_writer_temporary(path),
                      .buffer = malloc(FILE_WRITER_PIECE_BYTES)};
    Error e = OK;
    if (!w->path || !w->temporary || !w->buffer)
        e = error_why(why, ERR_MEMORY, "no memory to write %s", path);
    else if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        e = error_why(why, ERR_IO, "%s is there and is no regular file", path);
    if (e == OK) file_writer_sweep(path);
    if (e == OK) e = file_writer_make(w, mode, why);
    if (e == OK) e = file_writer_check_space(w->descriptor, path, bytes_expected, why);
    if (e) file_writer_abandon(w);
    return e;
}

Error file_writer_open(FileWriter *w, const char *path, uint64_t bytes_expected, Why *why)
{
    return file_writer_open_as(w, path, 0666, bytes_expected, why);
}

Error file_writer_open_private(FileWriter *w, const char *path, Why *why)
{
    return file_writer_open_as(w, path, 0600, 0, why);
}

/* --- writing --- */

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

/* --- the end --- */

void file_writer_sync_directory(const char *path)
{
    int fd = file_writer_open_directory(path);
    if (fd < 0) return;
    (void)fsync(fd);
    (void)close(fd);
}

/* The lock is held until the file has its name, so that nobody takes it for one that was left. */
static Error file_writer_sync(FileWriter *w, Why *why)
{
    TRY(file_writer_flush(w, why));
    if (fsync(w->descriptor) != 0 && errno != EINVAL && errno != EINTR)
        return file_writer_errno(w, "cannot write", why);
    if (stop_asked()) return error_why(why, ERR_CANCELLED, "%s was not written", w->path);
    return OK;
}

static Error file_writer_name(FileWriter *w, Why *why)
{
    TRY(file_writer_sync(w, why));
    if (rename(w->temporary, w->path) != 0) return file_writer_errno(w, "cannot rename to", why);
    free(w->temporary);
    w->temporary = NULL;
    return OK;
}

/* Only where nothing has the name. A link, where a file system cannot rename so: the first name goes with
 * file_writer_abandon. */
static Error file_writer_name_new(FileWriter *w, Why *why)
{
    TRY(file_writer_sync(w, why));
    if (renameat2(AT_FDCWD, w->temporary, AT_FDCWD, w->path, RENAME_NOREPLACE) == 0) {
        free(w->temporary);
        w->temporary = NULL;
        return OK;
    }
    if (errno != EEXIST && link(w->temporary, w->path) == 0) return OK;
    if (errno == EEXIST) return error_why(why, ERR_DUPLICATE, "%s is there already", w->path);
    return file_writer_errno(w, "cannot rename to", why);
}

static Error file_writer_end(FileWriter *w, Error e)
{
    if (e == OK) file_writer_sync_directory(w->path);
    file_writer_abandon(w);
    return e;
}

Error file_writer_commit(FileWriter *w, Why *why)
{
    return file_writer_end(w, file_writer_name(w, why));
}

Error file_writer_commit_new(FileWriter *w, Why *why)
{
    return file_writer_end(w, file_writer_name_new(w, why));
}

void file_writer_abandon(FileWriter *w)
{
    if (w->temporary && w->descriptor >= 0) (void)unlink(w->temporary);
    if (w->descriptor >= 0) (void)close(w->descriptor);
    free(w->temporary);
    free(w->path);
    free(w->buffer);
    *w = (FileWriter){.descriptor = -1};
}
