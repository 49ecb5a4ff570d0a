/* SPDX-License-Identifier: Apache-2.0 */
/* A library to be loaded before the others (LD_PRELOAD): kills the process at its n-th change of files below a
 * folder, before the change or in the middle of it, and writes down which changes there were.
 *
 *     CRASH_UNDER=/tmp/x CRASH_AT=7 LD_PRELOAD=libcrash_nth.so cobord encode ...
 *
 *     CRASH_UNDER  the folder; what happens to files elsewhere, to pipes and sockets, is none of ours
 *     CRASH_AT     which one, from 1; 0: none
 *     CRASH_HALF   when set: of a write half of the bytes go out first; at other calls as without
 *     CRASH_TRACE  a file, a line each in the order in which they were begun:
 *                      open PATH | make PATH | write PATH BYTES | cut PATH | sync PATH | rename PATH TO |
 *                      link PATH TO | remove PATH
 *
 * Those of libraries count as well: SQLite's writes are ours. A killed process has lost nothing that it wrote: the
 * page cache is the kernel's. What a power cut would lose is read from the trace instead. */
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, LINE_BYTES = 3 * PATH_BYTES };

static char under[PATH_BYTES];
static long at;
static bool half_first;
static int trace = -1;
static pid_t own; /* what it forks is not meant */
static long count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* `static` lives as long as the program; two threads that look it up find the same. */
#define REAL(name, result, ...)                                                         \
    static _Atomic(uintptr_t) found;                                                    \
    if (!atomic_load(&found)) atomic_store(&found, (uintptr_t)dlsym(RTLD_NEXT, #name)); \
    result (*real)(__VA_ARGS__) = (result(*)(__VA_ARGS__))atomic_load(&found)

__attribute__((constructor)) static void begin(void)
{
    const char *folder = getenv("CRASH_UNDER"), *number = getenv("CRASH_AT"),
               *path = getenv("CRASH_TRACE");
    if (folder && !realpath(folder, under)) under[0] = '\0';
    own = getpid();
    at = number ? strtol(number, NULL, 10) : 0;
    half_first = getenv("CRASH_HALF") != NULL;
    (void)unsetenv("LD_PRELOAD"); /* programs that this one starts are others */
    /* By its system call: the functions below are this library's own. */
    if (path)
        trace = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                             0666);
}

/* --- where --- */

static bool is_ours(const char *path)
{
    size_t bytes = strlen(under);
    return bytes && getpid() == own && strncmp(path, under, bytes) == 0 &&
           (path[bytes] == '/' || !path[bytes]);
}

static bool path_of_descriptor(int fd, char out[PATH_BYTES])
{
    char link[64];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, PATH_BYTES - 1);
    if (n <= 0) return false;
    out[n] = '\0';
    return is_ours(out);
}

/* Absolute, as far as folders go; the last name may be a link or not be there. */
static bool path_of_name(int directory, const char *name, char out[PATH_BYTES])
{
    char folder[PATH_BYTES] = ".", real[PATH_BYTES];
    const char *slash = strrchr(name, '/');
    if (slash) (void)snprintf(folder, sizeof folder, "%.*s", (int)(slash - name) + 1, name);
    if (name[0] != '/' && directory != AT_FDCWD) {
        char base[PATH_BYTES / 2], joined[PATH_BYTES];
        (void)snprintf(base, sizeof base, "/proc/self/fd/%d", directory);
        (void)snprintf(joined, sizeof joined, "%s/%.2000s", base, folder);
        if (!realpath(joined, real)) return false;
    } else if (!realpath(folder, real)) return false;
    (void)snprintf(out, PATH_BYTES, "%.2000s/%.2000s", real, slash ? slash + 1 : name);
    return is_ours(out);
}

/* --- what happens --- */

static _Noreturn void die(void)
{
    for (;;) (void)syscall(SYS_kill, getpid(), SIGKILL);
}

static void note(const char *what, const char *path, const char *more)
{
    char line[LINE_BYTES];
    int bytes = snprintf(line, sizeof line, "%s %s%s%s\n", what, path, more[0] ? " " : "", more);
    if (trace >= 0 && bytes > 0) (void)syscall(SYS_write, trace, line, (size_t)bytes);
}

/* Result  whether it is the one in whose middle the process dies: the caller does half of it. */
static bool change(const char *what, const char *path, const char *more, bool divisible)
{
    (void)pthread_mutex_lock(&lock);
    note(what, path, more);
    bool due = ++count == at;
    if (due && !(half_first && divisible)) die();
    if (!due) (void)pthread_mutex_unlock(&lock); /* else nobody else may go on */
    return due;
}

static bool write_change(int fd, size_t bytes)
{
    char path[PATH_BYTES], number[32];
    if (!path_of_descriptor(fd, path)) return false;
    (void)snprintf(number, sizeof number, "%zu", bytes);
    return change("write", path, number, true);
}

static void descriptor_change(const char *what, int fd)
{
    char path[PATH_BYTES];
    if (path_of_descriptor(fd, path)) (void)change(what, path, "", false);
}

/* Making what is there or removing what is not changes nothing. */
static void name_change(const char *what, int directory, const char *name)
{
    char path[PATH_BYTES];
    struct stat about;
    if (!path_of_name(directory, name, path)) return;
    bool there = lstat(path, &about) == 0, makes = what[0] == 'm';
    if (there != makes) (void)change(what, path, "", false);
}

static void pair_change(const char *what, int from_directory, const char *from, int to_directory,
                        const char *to)
{
    char path[PATH_BYTES], other[PATH_BYTES];
    bool one = path_of_name(from_directory, from, path),
         two = path_of_name(to_directory, to, other);
    if (one || two) (void)change(what, path, other, false);
}

/* Files that are made or emptied; others are not changed by being opened. */
static void open_change(int directory, const char *name, int flags)
{
    char path[PATH_BYTES];
    struct stat about;
    if (!(flags & (O_CREAT | O_TRUNC)) || (flags & O_TMPFILE) == O_TMPFILE ||
        !path_of_name(directory, name, path))
        return;
    bool there = stat(path, &about) == 0;
    if (!there || (flags & O_TRUNC && about.st_size)) (void)change("open", path, "", false);
}

/* --- bytes --- */

ssize_t write(int fd, const void *from, size_t bytes)
{
    REAL(write, ssize_t, int, const void *, size_t);
    if (!write_change(fd, bytes)) return real(fd, from, bytes);
    (void)real(fd, from, bytes / 2);
    die();
}

ssize_t pwrite(int fd, const void *from, size_t bytes, off_t offset)
{
    REAL(pwrite, ssize_t, int, const void *, size_t, off_t);
    if (!write_change(fd, bytes)) return real(fd, from, bytes, offset);
    (void)real(fd, from, bytes / 2, offset);
    die();
}

ssize_t writev(int fd, const struct iovec *parts, int part_count)
{
    REAL(writev, ssize_t, int, const struct iovec *, int);
    size_t bytes = 0;
    for (int i = 0; i < part_count; i++) bytes += parts[i].iov_len;
    if (!write_change(fd, bytes)) return real(fd, parts, part_count);
    (void)real(fd, parts, part_count / 2);
    die();
}

/* What a stream keeps back is written by the C library itself, which asks nobody. */
int fflush(FILE *file)
{
    REAL(fflush, int, FILE *);
    if (file && __fpending(file) && write_change(fileno(file), __fpending(file))) die();
    return real(file);
}

int fclose(FILE *file)
{
    REAL(fclose, int, FILE *);
    if (__fpending(file) && write_change(fileno(file), __fpending(file))) die();
    return real(file);
}

int ftruncate(int fd, off_t bytes)
{
    REAL(ftruncate, int, int, off_t);
    descriptor_change("cut", fd);
    return real(fd, bytes);
}

int fsync(int fd)
{
    REAL(fsync, int, int);
    descriptor_change("sync", fd);
    return real(fd);
}

int fdatasync(int fd)
{
    REAL(fdatasync, int, int);
    descriptor_change("sync", fd);
    return real(fd);
}

/* --- names --- */

int rename(const char *from, const char *to)
{
    REAL(rename, int, const char *, const char *);
    pair_change("rename", AT_FDCWD, from, AT_FDCWD, to);
    return real(from, to);
}

int renameat(int from_directory, const char *from, int to_directory, const char *to)
{
    REAL(renameat, int, int, const char *, int, const char *);
    pair_change("rename", from_directory, from, to_directory, to);
    return real(from_directory, from, to_directory, to);
}

int renameat2(int from_directory, const char *from, int to_directory, const char *to,
              unsigned flags)
{
    REAL(renameat2, int, int, const char *, int, const char *, unsigned);
    pair_change("rename", from_directory, from, to_directory, to);
    return real(from_directory, from, to_directory, to, flags);
}

int link(const char *from, const char *to)
{
    REAL(link, int, const char *, const char *);
    pair_change("link", AT_FDCWD, from, AT_FDCWD, to);
    return real(from, to);
}

int unlink(const char *path)
{
    REAL(unlink, int, const char *);
    name_change("remove", AT_FDCWD, path);
    return real(path);
}

int unlinkat(int directory, const char *path, int flags)
{
    REAL(unlinkat, int, int, const char *, int);
    name_change("remove", directory, path);
    return real(directory, path, flags);
}

int rmdir(const char *path)
{
    REAL(rmdir, int, const char *);
    name_change("remove", AT_FDCWD, path);
    return real(path);
}

int mkdir(const char *path, mode_t mode)
{
    REAL(mkdir, int, const char *, mode_t);
    name_change("make", AT_FDCWD, path);
    return real(path, mode);
}

int mkdirat(int directory, const char *path, mode_t mode)
{
    REAL(mkdirat, int, int, const char *, mode_t);
    name_change("make", directory, path);
    return real(directory, path, mode);
}

/* --- files --- */

int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    REAL(open, int, const char *, int, ...);
    open_change(AT_FDCWD, path, flags);
    return real(path, flags, mode);
}

int openat(int directory, const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    REAL(openat, int, int, const char *, int, ...);
    open_change(directory, path, flags);
    return real(directory, path, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    REAL(fopen, FILE *, const char *, const char *);
    if (mode[0] == 'w') open_change(AT_FDCWD, path, O_CREAT | O_TRUNC);
    return real(path, mode);
}

/* Files of any size: the same functions on 64-bit machines. */
#define SAME_AS(name) __attribute__((alias(#name)))
ssize_t pwrite64(int, const void *, size_t, off_t) SAME_AS(pwrite);
int ftruncate64(int, off_t) SAME_AS(ftruncate);
int open64(const char *, int, ...) SAME_AS(open);
int openat64(int, const char *, int, ...) SAME_AS(openat);
FILE *fopen64(const char *, const char *) SAME_AS(fopen);
