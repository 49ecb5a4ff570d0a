/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets, epoll and a peer without the kernel, for a client that is compiled into a target: what is tried is
 * the client, and forty system calls for each input would be most of the time. Edges and ends are Linux's:
 *
 *   the peer says, closes, or takes a part of what is sent  ->  the next epoll_wait reports it, once
 *   it closes, and had read all (`hears`)                   ->  recv gives what is there, then 0
 *   it closes, and had not                                  ->  recv gives what is there, then ECONNRESET once, then 0
 *   it was never there (`refuses`)                          ->  SO_ERROR of the connection
 *
 * The newest connection is the peer's; those before it have been closed by it. Every end must be closed once. */
#ifndef COBORD_TESTS_SMALL_SOCKETS_H
#define COBORD_TESTS_SMALL_SOCKETS_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "feed.h"

enum {
    SMALL_ENDS = 8,
    SMALL_FIRST = 1 << 20,
    SMALL_EPOLL = SMALL_FIRST - 2,
    SMALL_WAKE = SMALL_FIRST - 1
};
enum { SMALL_ROOM = 1 << 15, SMALL_WINDOW = 40 };

typedef struct SmallEnd {
    bool open, closed, stalled, edge; /* closed: by the peer */
    int error;                        /* that the next call gives, once */
    size_t sent, window, from, to;
    void *data;
    uint8_t bytes[SMALL_ROOM]; /* on their way to the client */
} SmallEnd;

static struct {
    SmallEnd ends[SMALL_ENDS];
    int peer; /* an end + 1; 0: none */
    bool slow, hears, refuses;
} small_net;

static SmallEnd *small_end(int fd)
{
    CHECK(fd >= SMALL_FIRST && fd < SMALL_FIRST + SMALL_ENDS &&
          small_net.ends[fd - SMALL_FIRST].open);
    return &small_net.ends[fd - SMALL_FIRST];
}

/* ---- The peer ---- */

static void small_say(const void *bytes, size_t count)
{
    SmallEnd *e = small_net.peer ? &small_net.ends[small_net.peer - 1] : NULL;
    if (!e || !e->open || count > SMALL_ROOM - e->to) return;
    if (count) memcpy(e->bytes + e->to, bytes, count);
    e->to += count;
    e->edge = e->edge || count;
}

static void small_hang_up(void)
{
    SmallEnd *e = small_net.peer ? &small_net.ends[small_net.peer - 1] : NULL;
    small_net.peer = 0;
    if (!e || !e->open) return;
    e->closed = e->edge = true;
    if (e->sent && !small_net.hears) e->error = ECONNRESET;
    if (!e->sent && small_net.refuses) e->error = ECONNREFUSED;
}

static bool small_all_closed(void)
{
    for (int i = 0; i < SMALL_ENDS; i++)
        if (small_net.ends[i].open) return false;
    return true;
}

/* ---- What the client calls ---- */

static int small_socket(int family, int type, int protocol)
{
    (void)family, (void)type, (void)protocol;
    small_hang_up();
    for (int i = 0; i < SMALL_ENDS; i++) {
        SmallEnd *e = &small_net.ends[i];
        if (e->open) continue;
        memset(e, 0, offsetof(SmallEnd, bytes));
        e->open = true;
        e->window = SMALL_WINDOW;
        small_net.peer = i + 1;
        return SMALL_FIRST + i;
    }
    abort(); /* the client keeps more lines than it was asked for */
}

static int small_connect(int fd, const struct sockaddr *place, socklen_t bytes)
{
    (void)place, (void)bytes;
    small_end(fd)->edge = true;
    return 0;
}

static int small_setsockopt(int fd, int level, int name, const void *value, socklen_t bytes)
{
    (void)level, (void)name, (void)value, (void)bytes;
    (void)small_end(fd);
    return 0;
}

static int small_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes)
{
    SmallEnd *e = small_end(fd);
    CHECK(level == SOL_SOCKET && name == SO_ERROR && *bytes == sizeof e->error);
    memcpy(value, &e->error, sizeof e->error);
    e->error = 0;
    return 0;
}

static ssize_t small_fail(int number)
{
    errno = number;
    return -1;
}

static ssize_t small_sendmsg(int fd, const struct msghdr *message, int flags)
{
    SmallEnd *e = small_end(fd);
    size_t bytes = 0;
    CHECK(flags & MSG_NOSIGNAL);
    for (size_t i = 0; i < (size_t)message->msg_iovlen; i++) bytes += message->msg_iov[i].iov_len;
    int error = e->error;
    e->error = 0;
    if (error) return small_fail(error);
    if (e->closed) return small_fail(EPIPE);
    if (small_net.slow && bytes > e->window) bytes = e->window;
    e->stalled = !bytes;
    if (!bytes) return small_fail(EAGAIN);
    e->window -= small_net.slow ? bytes : 0;
    e->sent += bytes;
    return (ssize_t)bytes;
}

static ssize_t small_recv(int fd, void *to, size_t room, int flags)
{
    SmallEnd *e = small_end(fd);
    size_t bytes = e->to - e->from < room ? e->to - e->from : room;
    (void)flags;
    if (bytes) memcpy(to, e->bytes + e->from, bytes);
    e->from += bytes;
    if (bytes || !room) return (ssize_t)bytes;
    int error = e->error;
    e->error = 0;
    if (error) return small_fail(error);
    return e->closed ? 0 : small_fail(EAGAIN);
}

static int small_close_end(int fd)
{
    if (fd != SMALL_EPOLL && fd != SMALL_WAKE) small_end(fd)->open = false;
    return 0;
}

static int small_epoll_create(int flags)
{
    (void)flags;
    return SMALL_EPOLL;
}

static int small_eventfd(unsigned count, int flags)
{
    (void)count, (void)flags;
    return SMALL_WAKE;
}

static int small_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
    CHECK(epoll == SMALL_EPOLL && operation == EPOLL_CTL_ADD && event->events & EPOLLET);
    if (fd != SMALL_WAKE) small_end(fd)->data = event->data.ptr;
    return 0;
}

static int small_epoll_wait(int epoll, struct epoll_event *events, int most, int timeout_ms)
{
    int count = 0;
    CHECK(epoll == SMALL_EPOLL && most >= SMALL_ENDS);
    (void)timeout_ms;
    for (int i = 0; i < SMALL_ENDS; i++) {
        SmallEnd *e = &small_net.ends[i];
        if (!e->open) continue;
        e->window = SMALL_WINDOW; /* a slow peer took what was sent */
        if (!e->edge && !e->stalled) continue;
        e->edge = e->stalled = false;
        events[count].events = EPOLLOUT | (e->to > e->from || e->closed ? EPOLLIN : 0u) |
                               (e->closed ? EPOLLRDHUP | EPOLLHUP : 0u) |
                               (e->error ? EPOLLERR : 0u);
        events[count++].data.ptr = e->data;
    }
    return count;
}

#endif
