/* SPDX-License-Identifier: Apache-2.0 */
/* A library to be loaded before the others (LD_PRELOAD): lets one call of the program fail, the n-th of its kind.
 *
 *     FAIL_KIND=write FAIL_AT=7 LD_PRELOAD=libfail_nth.so cobord encode ...
 *
 *     FAIL_KIND    memory | read | write | sync | open | net | wait | thread: the call fails
 *                  short: it moves half of its bytes;  one: a single byte;  again: it is interrupted (EINTR)
 *     FAIL_AT      which one, from 1; 0: none
 *     FAIL_LASTS   when set, all that follow fail as well, as on a full disk
 *     FAIL_COUNT   a file: how many calls of the kind there were is written to it at the end
 *     FAIL_CONTROL a folder, instead of all these: what fails stands in a file there, named after the node
 *                  (station-0) or "self", and may change while the program runs. Its words, of 64 bits each:
 *
 *                  kind | at | lasts | libraries | count | failed
 *
 * Only calls that the program itself makes count, not those of the libraries it uses: whose fault that would be is
 * another question, asked with `libraries`. */
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <dirent.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum Kind {
    NONE,
    MEMORY,
    READ,
    WRITE,
    SYNC,
    OPEN,
    NET,
    WAIT,
    THREAD,
    SHORT,
    ONE,
    AGAIN
} Kind;

static const char *const names[] = {"",    "memory", "read",   "write", "sync", "open",
                                    "net", "wait",   "thread", "short", "one",  "again"};

typedef struct Control {
    atomic_long kind, at, lasts, libraries, count, failed;
} Control;

static Control own, *control = &own;
static uintptr_t program_first, program_last;

/* The first object of the list is the program. */
static int find_program(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size, (void)argument;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
        uintptr_t first = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr,
                  last = first + info->dlpi_phdr[i].p_memsz;
        if (!program_first || first < program_first) program_first = first;
        if (last > program_last) program_last = last;
    }
    return 1;
}

/* The word behind --id, or "self". */
static void find_name(char *out, size_t room)
{
    char line[8192] = "";
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd >= 0 ? read(fd, line, sizeof line - 2) : 0;
    if (fd >= 0) (void)close(fd);
    const char *name = "self", *end = line + (bytes > 0 ? bytes : 0);
    for (const char *word = line; word < end; word += strlen(word) + 1)
        if (strcmp(word, "--id") == 0) name = word + 5;
    (void)snprintf(out, room, "%s", name);
}

static void take_control(const char *folder)
{
    char path[4096], name[64];
    find_name(name, sizeof name);
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof own) != 0) return;
    void *map = mmap(NULL, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED) control = map;
    (void)close(fd);
}

__attribute__((constructor)) static void begin(void)
{
    const char *kind = getenv("FAIL_KIND"), *number = getenv("FAIL_AT"),
               *folder = getenv("FAIL_CONTROL");
    (void)dl_iterate_phdr(find_program, NULL);
    if (folder) {
        take_control(folder);
        return;
    }
    own.at = number ? strtol(number, NULL, 10) : 0;
    own.lasts = getenv("FAIL_LASTS") != NULL;
    for (size_t i = 1; kind && i < sizeof names / sizeof names[0]; i++)
        if (strcmp(kind, names[i]) == 0) own.kind = (long)i;
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("FAIL_COUNT");
    long calls = atomic_load(&own.count);
    own.kind = NONE;
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f) return;
    (void)fprintf(f, "%ld\n", calls);
    (void)fclose(f);
}

static bool is_program(const void *caller)
{
    uintptr_t address = (uintptr_t)caller;
    return address >= program_first && address < program_last;
}

static bool is_due(Kind kind, const void *caller)
{
    if ((long)kind != atomic_load(&control->kind)) return false;
    if (!atomic_load(&control->libraries) && !is_program(caller)) return false;
    long number = atomic_fetch_add(&control->count, 1) + 1, at = atomic_load(&control->at);
    bool due = at && (number == at || (atomic_load(&control->lasts) && number > at));
    if (due) atomic_fetch_add(&control->failed, 1);
    return due;
}

#define CALLER __builtin_return_address(0)
#define FAILS(kind, error) (is_due(kind, CALLER) && (errno = (error), true))
/* `static` lives as long as the program; two threads that look it up find the same. */
#define REAL(name, result, ...)                                                         \
    static _Atomic(uintptr_t) found;                                                    \
    if (!atomic_load(&found)) atomic_store(&found, (uintptr_t)dlsym(RTLD_NEXT, #name)); \
    result (*real)(__VA_ARGS__) = (result(*)(__VA_ARGS__))atomic_load(&found)

/* --- memory: the C library's own names, since dlsym itself may allocate --- */

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);

void *malloc(size_t bytes) { return FAILS(MEMORY, ENOMEM) ? NULL : __libc_malloc(bytes); }

void *calloc(size_t items, size_t bytes)
{
    return FAILS(MEMORY, ENOMEM) ? NULL : __libc_calloc(items, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    return FAILS(MEMORY, ENOMEM) ? NULL : __libc_realloc(memory, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    REAL(posix_memalign, int, void **, size_t, size_t);
    return is_due(MEMORY, CALLER) ? ENOMEM : real(memory, alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    REAL(aligned_alloc, void *, size_t, size_t);
    return FAILS(MEMORY, ENOMEM) ? NULL : real(alignment, bytes);
}

char *strdup(const char *text)
{
    REAL(strdup, char *, const char *);
    return FAILS(MEMORY, ENOMEM) ? NULL : real(text);
}

int memfd_create(const char *name, unsigned flags)
{
    REAL(memfd_create, int, const char *, unsigned);
    return FAILS(MEMORY, ENOMEM) ? -1 : real(name, flags);
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    REAL(mmap, void *, void *, size_t, int, int, int, off_t);
    if (FAILS(MEMORY, ENOMEM)) return MAP_FAILED;
    return real(address, bytes, protection, flags, fd, offset);
}

/* --- bytes --- */

/* Of a file, a pipe or a socket. Calls on an eventfd, by which threads wake each other, cannot fail. */
static bool can_fail(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) != 0;
}

static size_t some(size_t bytes, const void *caller)
{
    if (bytes > 1 && is_due(SHORT, caller)) return bytes / 2;
    return bytes > 1 && is_due(ONE, caller) ? 1 : bytes;
}

ssize_t read(int fd, void *to, size_t bytes)
{
    REAL(read, ssize_t, int, void *, size_t);
    if (can_fail(fd) && (FAILS(READ, EIO) || FAILS(AGAIN, EINTR))) return -1;
    return real(fd, to, can_fail(fd) ? some(bytes, CALLER) : bytes);
}

ssize_t pread(int fd, void *to, size_t bytes, off_t offset)
{
    REAL(pread, ssize_t, int, void *, size_t, off_t);
    if (can_fail(fd) && (FAILS(READ, EIO) || FAILS(AGAIN, EINTR))) return -1;
    return real(fd, to, some(bytes, CALLER), offset);
}

ssize_t recv(int fd, void *to, size_t bytes, int flags)
{
    REAL(recv, ssize_t, int, void *, size_t, int);
    if (FAILS(READ, ECONNRESET) || FAILS(AGAIN, EINTR)) return -1;
    /* What an edge-triggered socket moves less is a sign: there is no more. Libraries rely on it. */
    return real(fd, to, is_program(CALLER) ? some(bytes, CALLER) : bytes, flags);
}

ssize_t write(int fd, const void *from, size_t bytes)
{
    REAL(write, ssize_t, int, const void *, size_t);
    if (can_fail(fd) && (FAILS(WRITE, ENOSPC) || FAILS(AGAIN, EINTR))) return -1;
    return real(fd, from, can_fail(fd) ? some(bytes, CALLER) : bytes);
}

ssize_t pwrite(int fd, const void *from, size_t bytes, off_t offset)
{
    REAL(pwrite, ssize_t, int, const void *, size_t, off_t);
    if (can_fail(fd) && (FAILS(WRITE, ENOSPC) || FAILS(AGAIN, EINTR))) return -1;
    return real(fd, from, some(bytes, CALLER), offset);
}

ssize_t send(int fd, const void *from, size_t bytes, int flags)
{
    REAL(send, ssize_t, int, const void *, size_t, int);
    if (FAILS(WRITE, EPIPE) || FAILS(AGAIN, EINTR)) return -1;
    return real(fd, from, is_program(CALLER) ? some(bytes, CALLER) : bytes, flags);
}

/* Only the first part that has bytes, and of it only some. */
static void shorten(struct msghdr *message, struct iovec *part, const void *caller)
{
    size_t i = 0;
    while (i + 1 < message->msg_iovlen && !message->msg_iov[i].iov_len) i++;
    *part = message->msg_iov[i];
    size_t bytes = some(part->iov_len, caller);
    if (bytes == part->iov_len) return;
    part->iov_len = bytes;
    message->msg_iov = part;
    message->msg_iovlen = 1;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    REAL(sendmsg, ssize_t, int, const struct msghdr *, int);
    struct msghdr less = *message;
    struct iovec part;
    if (FAILS(WRITE, EPIPE) || FAILS(AGAIN, EINTR)) return -1;
    if (less.msg_iovlen && is_program(CALLER)) shorten(&less, &part, CALLER);
    return real(fd, &less, flags);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    REAL(recvmsg, ssize_t, int, struct msghdr *, int);
    if (FAILS(READ, ECONNRESET) || FAILS(AGAIN, EINTR)) return -1;
    return real(fd, message, flags);
}

int poll(struct pollfd *fds, nfds_t fd_count, int timeout_ms)
{
    REAL(poll, int, struct pollfd *, nfds_t, int);
    return FAILS(AGAIN, EINTR) || FAILS(WAIT, ENOMEM) ? -1 : real(fds, fd_count, timeout_ms);
}

int epoll_wait(int fd, struct epoll_event *events, int room, int timeout_ms)
{
    REAL(epoll_wait, int, int, struct epoll_event *, int, int);
    return FAILS(AGAIN, EINTR) ? -1 : real(fd, events, room, timeout_ms);
}

int ppoll(struct pollfd *fds, nfds_t fd_count, const struct timespec *timeout, const sigset_t *mask)
{
    REAL(ppoll, int, struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
    return FAILS(AGAIN, EINTR) || FAILS(WAIT, ENOMEM) ? -1 : real(fds, fd_count, timeout, mask);
}

int nanosleep(const struct timespec *wanted, struct timespec *left)
{
    REAL(nanosleep, int, const struct timespec *, struct timespec *);
    if (!FAILS(AGAIN, EINTR)) return real(wanted, left);
    if (left) *left = *wanted;
    return -1;
}

pid_t waitpid(pid_t pid, int *status, int options)
{
    REAL(waitpid, pid_t, pid_t, int *, int);
    return FAILS(AGAIN, EINTR) ? -1 : real(pid, status, options);
}

/* --- files --- */

int fsync(int fd)
{
    REAL(fsync, int, int);
    return FAILS(SYNC, EIO) ? -1 : real(fd);
}

int fdatasync(int fd)
{
    REAL(fdatasync, int, int);
    return FAILS(SYNC, EIO) ? -1 : real(fd);
}

int rename(const char *from, const char *to)
{
    REAL(rename, int, const char *, const char *);
    return FAILS(SYNC, EIO) ? -1 : real(from, to);
}

int ftruncate(int fd, off_t bytes)
{
    REAL(ftruncate, int, int, off_t);
    return FAILS(SYNC, ENOSPC) ? -1 : real(fd, bytes);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    REAL(renameat, int, int, const char *, int, const char *);
    return FAILS(SYNC, EIO) ? -1 : real(from_folder, from, to_folder, to);
}

int mkdirat(int folder, const char *path, mode_t mode)
{
    REAL(mkdirat, int, int, const char *, mode_t);
    return FAILS(OPEN, EACCES) ? -1 : real(folder, path, mode);
}

DIR *opendir(const char *path)
{
    REAL(opendir, DIR *, const char *);
    return FAILS(OPEN, EMFILE) ? NULL : real(path);
}

DIR *fdopendir(int fd)
{
    REAL(fdopendir, DIR *, int);
    return FAILS(OPEN, ENOMEM) ? NULL : real(fd);
}

int mkostemp(char *path, int flags)
{
    REAL(mkostemp, int, char *, int);
    return FAILS(OPEN, EMFILE) ? -1 : real(path, flags);
}

int mkdir(const char *path, mode_t mode)
{
    REAL(mkdir, int, const char *, mode_t);
    return FAILS(OPEN, EACCES) ? -1 : real(path, mode);
}

int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    REAL(open, int, const char *, int, ...);
    return FAILS(OPEN, EMFILE) || FAILS(AGAIN, EINTR) ? -1 : real(path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    REAL(openat, int, int, const char *, int, ...);
    return FAILS(OPEN, EMFILE) || FAILS(AGAIN, EINTR) ? -1 : real(folder, path, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    REAL(fopen, FILE *, const char *, const char *);
    return FAILS(OPEN, EMFILE) ? NULL : real(path, mode);
}

/* --- sockets and threads --- */

int socket(int domain, int type, int protocol)
{
    REAL(socket, int, int, int, int);
    return FAILS(NET, EMFILE) ? -1 : real(domain, type, protocol);
}

int bind(int fd, const struct sockaddr *address, socklen_t bytes)
{
    REAL(bind, int, int, const struct sockaddr *, socklen_t);
    return FAILS(NET, EADDRNOTAVAIL) ? -1 : real(fd, address, bytes);
}

int listen(int fd, int backlog)
{
    REAL(listen, int, int, int);
    return FAILS(NET, EADDRINUSE) ? -1 : real(fd, backlog);
}

int connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
    REAL(connect, int, int, const struct sockaddr *, socklen_t);
    return FAILS(NET, ECONNREFUSED) ? -1 : real(fd, address, bytes);
}

int accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
    REAL(accept4, int, int, struct sockaddr *, socklen_t *, int);
    return FAILS(NET, EMFILE) || FAILS(AGAIN, EINTR) ? -1 : real(fd, address, bytes, flags);
}

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **answers)
{
    REAL(getaddrinfo, int, const char *, const char *, const struct addrinfo *, struct addrinfo **);
    return is_due(NET, CALLER) ? EAI_AGAIN : real(host, port, hints, answers);
}

int epoll_create1(int flags)
{
    REAL(epoll_create1, int, int);
    return FAILS(WAIT, EMFILE) ? -1 : real(flags);
}

int epoll_ctl(int epoll, int what, int fd, struct epoll_event *event)
{
    REAL(epoll_ctl, int, int, int, int, struct epoll_event *);
    return what == EPOLL_CTL_ADD && FAILS(WAIT, ENOMEM) ? -1 : real(epoll, what, fd, event);
}

int pipe2(int pipes[2], int flags)
{
    REAL(pipe2, int, int[2], int);
    return FAILS(THREAD, EMFILE) ? -1 : real(pipes, flags);
}

pid_t fork(void)
{
    REAL(fork, pid_t, void);
    return FAILS(THREAD, EAGAIN) ? -1 : real();
}

int eventfd(unsigned value, int flags)
{
    REAL(eventfd, int, unsigned, int);
    return FAILS(THREAD, EMFILE) ? -1 : real(value, flags);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                   void *argument)
{
    REAL(pthread_create, int, pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    return is_due(THREAD, CALLER) ? EAGAIN : real(thread, attributes, start, argument);
}

/* Files of any size: the same functions on 64-bit machines. */
#define SAME_AS(name) __attribute__((alias(#name)))
void *mmap64(void *, size_t, int, int, int, off_t) SAME_AS(mmap);
ssize_t pread64(int, void *, size_t, off_t) SAME_AS(pread);
ssize_t pwrite64(int, const void *, size_t, off_t) SAME_AS(pwrite);
int ftruncate64(int, off_t) SAME_AS(ftruncate);
int open64(const char *, int, ...) SAME_AS(open);
int openat64(int, const char *, int, ...) SAME_AS(openat);
int mkostemp64(char *, int) SAME_AS(mkostemp);
FILE *fopen64(const char *, const char *) SAME_AS(fopen);
