/* SPDX-License-Identifier: Apache-2.0 */
#include "host/share.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "api/bearer.h"
#include "base/bytes.h"
#include "host/clock.h"
#include "host/key.h"
#include "host/places.h"
#include "host/stop.h"
#include "host/whole.h"

enum { VERSION = 1, ASK_BYTES = 16, ANSWER_BYTES = 8, WAIT_MS = 5000 };
static const char magic[4] = {'C', 'O', 'B', 'S'};

struct Share {
    ShareOptions options;
    struct sockaddr_un address;
    int listener, end; /* an eventfd that ends the thread */
    pthread_t thread;
    bool running;
};

static Error share_address(const char *path, struct sockaddr_un *out, Why *why)
{
    memset(out, 0, sizeof *out);
    out->sun_family = AF_UNIX;
    if (strlen(path) >= sizeof out->sun_path)
        return error_why(why, ERR_TOO_LARGE, "the path of a Unix socket has at most %zu bytes: %s",
                         sizeof out->sun_path - 1, path);
    memcpy(out->sun_path, path, strlen(path) + 1);
    return OK;
}

static bool same_user(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

/* All of it, before the deadline. */
static bool receive(int fd, uint8_t *out, size_t bytes, int timeout_ms)
{
    while (bytes) {
        struct pollfd p = {fd, POLLIN, 0};
        if (poll(&p, 1, timeout_ms) <= 0) return false;
        ssize_t n = recv(fd, out, bytes, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        out += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* --- the warden's side --- */

static bool may_have(const Share *s, int fd)
{
    uint8_t ask[ASK_BYTES];
    char key[KEY_BYTES_MAX + 1];
    if (!same_user(fd) || !receive(fd, ask, sizeof ask, WAIT_MS)) return false;
    size_t key_bytes = bytes_load16(ask + 6);
    if (memcmp(ask, magic, 4) != 0 || bytes_load16(ask + 4) != VERSION ||
        key_bytes > KEY_BYTES_MAX || bytes_load64(ask + 8) != s->options.knot_id)
        return false;
    if (!receive(fd, (uint8_t *)key, key_bytes, WAIT_MS)) return false;
    key[key_bytes] = '\0';
    bool right = !s->options.key || bearer_equals(s->options.key, key);
    explicit_bzero(key, sizeof key);
    return right;
}

/* The store's own file when it is on this machine. */
static int open_file(const Share *s)
{
    char path[PLACES_PATH_BYTES];
    const KnotStore *k = s->options.store;
    const char *local = store_local_path(k->store, k->object, path, sizeof path);
    return local ? whole_open(local, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0) : -1;
}

typedef struct Beat {
    int fd;
    uint64_t last_s;
} Beat;

static void send_answer(int fd, ShareWhat what, int descriptor)
{
    uint8_t answer[ANSWER_BYTES];
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {answer, sizeof answer};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    memcpy(answer, magic, 4);
    bytes_store16(answer + 4, VERSION);
    bytes_store16(answer + 6, (uint16_t)what);
    if (descriptor >= 0) {
        memset(&control, 0, sizeof control);
        m.msg_control = control.room;
        m.msg_controllen = sizeof control.room;
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.head), &descriptor, sizeof(int));
    }
    (void)!sendmsg(fd, &m, MSG_NOSIGNAL);
}

/* Tells the station that there is still somebody. */
static void beat(void *context)
{
    Beat *b = context;
    uint64_t now_s = clock_now_s();
    if (now_s == b->last_s) return;
    b->last_s = now_s;
    send_answer(b->fd, SHARE_WAIT, -1);
}

/* A descriptor that can only be read, whatever the seals. */
static int open_memory(const Share *s, int station, Why *why)
{
    char path[64];
    int fd;
    Beat b = {station, 0};
    if (warden_levels_share(s->options.levels, beat, &b, &fd, why) != OK) return -1;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return whole_open(path, O_RDONLY | O_CLOEXEC, 0);
}

static void answer(const Share *s, int fd)
{
    Why why = {{0}};
    char line[WHY_MAX + 64];
    if (!may_have(s, fd)) {
        send_answer(fd, SHARE_NOTHING, -1);
        return;
    }
    int descriptor = open_file(s);
    ShareWhat what = SHARE_FILE;
    if (descriptor < 0) {
        what = SHARE_MEMORY;
        descriptor = open_memory(s, fd, &why);
    }
    if (descriptor < 0) {
        (void)snprintf(line, sizeof line, "memory is not shared: %s", why.text);
        tell_note(s->options.tell, line);
        what = SHARE_NOTHING;
    }
    send_answer(fd, what, descriptor);
    if (descriptor >= 0) (void)close(descriptor);
}

static void *serve(void *context)
{
    const Share *s = context;
    for (;;) {
        struct pollfd p[2] = {{s->listener, POLLIN, 0}, {s->end, POLLIN, 0}};
        if (poll(p, 2, -1) < 0 && errno != EINTR) return NULL;
        if (p[1].revents) return NULL;
        if (!p[0].revents) continue;
        int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) continue;
        answer(s, fd);
        (void)close(fd);
    }
}

/* A socket that nobody listens on any more is in the way. */
static bool is_dead(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool dead = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 &&
                errno == ECONNREFUSED;
    if (fd >= 0) (void)close(fd);
    return dead;
}

static Error share_listen(Share *s, Why *why)
{
    const struct sockaddr *address = (const struct sockaddr *)&s->address;
    s->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->listener < 0) return places_system_error(errno, s->address.sun_path, why);
    if (is_dead(&s->address)) (void)unlink(s->address.sun_path);
    mode_t before = umask(0177);
    int bound = bind(s->listener, address, sizeof s->address);
    int number = errno;
    (void)umask(before);
    if (bound != 0 || listen(s->listener, 16) != 0)
        return places_system_error(bound ? number : errno, s->address.sun_path, why);
    return OK;
}

static Error share_start(Share *s, Why *why)
{
    TRY(share_address(s->options.path, &s->address, why));
    s->end = eventfd(0, EFD_CLOEXEC);
    if (s->end < 0) return places_system_error(errno, "eventfd", why);
    TRY(share_listen(s, why));
    s->running = pthread_create(&s->thread, NULL, serve, s) == 0;
    return s->running ? OK : error_why(why, ERR_MEMORY, "no thread for the socket");
}

Error share_open(const ShareOptions *options, Share **out, Why *why)
{
    Share *s = calloc(1, sizeof *s);
    if (!s) return error_why(why, ERR_MEMORY, "no memory for a socket");
    s->options = *options;
    s->listener = s->end = -1;
    Error e = share_start(s, why);
    if (e) share_close(s);
    else *out = s;
    return e;
}

void share_close(Share *s)
{
    uint64_t one = 1;
    if (!s) return;
    if (s->running) {
        (void)!write(s->end, &one, sizeof one);
        (void)pthread_join(s->thread, NULL);
        (void)unlink(s->address.sun_path);
    }
    if (s->listener >= 0) (void)close(s->listener);
    if (s->end >= 0) (void)close(s->end);
    free(s);
}

/* --- the station's side --- */

/* One message with at most one descriptor. */
static Error take_answer(int fd, ShareWhat *what, int *descriptor, Why *why)
{
    uint8_t bytes[ANSWER_BYTES];
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control.room,
                       .msg_controllen = sizeof control.room};
    ssize_t n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
    struct cmsghdr *head = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
        head->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(descriptor, CMSG_DATA(head), sizeof(int));
    if (n <= 0) return error_why(why, ERR_UNREACHABLE, "the warden's socket gave no answer");
    if (n != ANSWER_BYTES || memcmp(bytes, magic, 4) != 0 || bytes_load16(bytes + 4) != VERSION)
        return error_why(why, ERR_FORMAT, "the warden's socket speaks another protocol");
    uint16_t kind = bytes_load16(bytes + 6);
    *what = SHARE_WAIT;
    if (kind == SHARE_WAIT && *descriptor < 0) return OK;
    if (kind != SHARE_FILE && kind != SHARE_MEMORY)
        return error_why(why, ERR_NOT_AVAILABLE, "the warden does not share its memory");
    if (*descriptor < 0) return error_why(why, ERR_FORMAT, "the warden sent no descriptor");
    *what = (ShareWhat)kind;
    return OK;
}

static Error send_ask(int fd, const char *key, uint64_t knot_id, Why *why)
{
    uint8_t ask[ASK_BYTES + KEY_BYTES_MAX];
    size_t key_bytes = key ? strlen(key) : 0;
    ASSERT(key_bytes <= KEY_BYTES_MAX);
    memcpy(ask, magic, 4);
    bytes_store16(ask + 4, VERSION);
    bytes_store16(ask + 6, (uint16_t)key_bytes);
    bytes_store64(ask + 8, knot_id);
    if (key) memcpy(ask + ASK_BYTES, key, key_bytes);
    ssize_t sent = send(fd, ask, ASK_BYTES + key_bytes, MSG_NOSIGNAL);
    explicit_bzero(ask, sizeof ask);
    if (sent == (ssize_t)(ASK_BYTES + key_bytes)) return OK;
    return error_why(why, ERR_UNREACHABLE, "the warden's socket closed");
}

/* In short waits, to look at the wish to stop. */
static Error await(int fd, unsigned silence_s, Why *why)
{
    for (unsigned tenths = 0; tenths < 10 * silence_s; tenths++) {
        struct pollfd p = {fd, POLLIN, 0};
        int n = poll(&p, 1, 100);
        if (stop_asked()) return error_why(why, ERR_CANCELLED, "stopped");
        if (n > 0) return OK;
    }
    return error_why(why, ERR_UNREACHABLE, "the warden's socket gave no answer in %u s", silence_s);
}

static Error share_talk(int fd, const char *key, uint64_t knot_id, unsigned silence_s,
                        ShareWhat *what, int *descriptor, Why *why)
{
    if (!same_user(fd))
        return error_why(why, ERR_KEY, "the warden's socket belongs to another user");
    TRY(send_ask(fd, key, knot_id, why));
    do {
        TRY(await(fd, silence_s, why));
        TRY(take_answer(fd, what, descriptor, why));
    } while (*what == SHARE_WAIT);
    return OK;
}

Error share_ask(const char *path, const char *key, uint64_t knot_id, unsigned silence_s,
                ShareWhat *what, int *descriptor, Why *why)
{
    struct sockaddr_un address;
    *descriptor = -1;
    TRY(share_address(path, &address, why));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return places_system_error(errno, path, why);
    Error e = connect(fd, (const struct sockaddr *)&address, sizeof address) == 0
                  ? share_talk(fd, key, knot_id, silence_s, what, descriptor, why)
                  : error_why(why, ERR_UNREACHABLE, "%s: %s", path, strerror(errno));
    (void)close(fd);
    if (e && *descriptor >= 0) {
        (void)close(*descriptor);
        *descriptor = -1;
    }
    return e;
}
