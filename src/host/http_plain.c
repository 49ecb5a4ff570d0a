/* SPDX-License-Identifier: Apache-2.0 */
#include "host/http_plain.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "host/clock.h"
#include "host/key.h"

enum {
    HEAD_BYTES = HTTP_CLIENT_URL_BYTES_MAX + 1024, /* of a request */
    ANSWER_HEAD_BYTES = 8 << 10,                   /* of an answer; its body's beginning too */
    EVENTS_MAX = 32,
    IDLE_MAX = 512
};

typedef enum LineState { CONNECTING, SENDING, READING, IDLE } LineState;

/* One connection. */
typedef struct Line {
    struct Line *next, *before;
    int fd;
    LineState state;
    struct sockaddr_storage place;
    socklen_t place_bytes;
    HttpCall *call;
    bool kept;     /* has had an answer before this call */
    bool has_head; /* of the answer */
    bool closes;   /* behind the answer */
    size_t head_bytes, sent;
    size_t in_bytes;
    uint64_t body_left; /* UINT64_MAX: to the end of the connection */
    uint64_t begun_ns, connect_ns, deadline_ns;
    char head[HEAD_BYTES];
    char in[ANSWER_HEAD_BYTES];
} Line;

struct HttpPlain {
    int epoll, wake;
    uint32_t connect_ms;
    Line *busy, *idle;
    uint32_t idle_count;
    HttpCall *ended_first, *ended_last;
    char key_line[KEY_BYTES_MAX + 32]; /* with its end; "" */
};

/* ---- Opening and closing ---- */

HttpPlain *http_plain_open(const char *key, uint32_t connect_ms)
{
    HttpPlain *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->connect_ms = connect_ms;
    p->epoll = epoll_create1(EPOLL_CLOEXEC);
    p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (key)
        (void)snprintf(p->key_line, sizeof p->key_line, "Authorization: Bearer %.*s\r\n",
                       KEY_BYTES_MAX, key);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = NULL};
    if (p->epoll >= 0 && p->wake >= 0 && epoll_ctl(p->epoll, EPOLL_CTL_ADD, p->wake, &event) == 0)
        return p;
    http_plain_close(p);
    return NULL;
}

static void close_lines(Line *list)
{
    for (Line *l = list, *next; l; l = next) {
        next = l->next;
        if (l->fd >= 0) close(l->fd);
        free(l);
    }
}

void http_plain_close(HttpPlain *p)
{
    if (!p) return;
    close_lines(p->busy);
    close_lines(p->idle);
    if (p->epoll >= 0) close(p->epoll);
    if (p->wake >= 0) close(p->wake);
    free(p);
}

static void enlist(Line **list, Line *l)
{
    l->before = NULL;
    l->next = *list;
    if (l->next) l->next->before = l;
    *list = l;
}

static void delist(Line **list, Line *l)
{
    if (l->before) l->before->next = l->next;
    else *list = l->next;
    if (l->next) l->next->before = l->before;
}

/* ---- Ends of calls ---- */

/* The call leaves; the line is still where it was. */
static void end_call(HttpPlain *p, Line *l)
{
    HttpCall *call = l->call;
    uint64_t us = (clock_now_ns() - l->begun_ns) / 1000;
    call->microseconds = us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
    call->next = NULL;
    l->call = NULL;
    if (p->ended_last) p->ended_last->next = call;
    else p->ended_first = call;
    p->ended_last = call;
}

static void fail(HttpPlain *p, Line *l, Error error, const char *kind, const char *more)
{
    HttpCall *call = l->call;
    call->error =
        error_why(&call->why, error, "%s: %s%s%s", call->url, kind, *more ? ": " : "", more);
    end_call(p, l);
    delist(&p->busy, l);
    l->next = NULL;
    close_lines(l);
}

/* The answer is whole. */
static void finish(HttpPlain *p, Line *l)
{
    if (l->state == SENDING) l->closes = true; /* refused before all of it was sent */
    end_call(p, l);
    delist(&p->busy, l);
    l->state = IDLE;
    if (l->closes || p->idle_count == IDLE_MAX) {
        l->next = NULL;
        close_lines(l);
        return;
    }
    l->kept = true;
    enlist(&p->idle, l);
    p->idle_count++;
}

HttpCall *http_plain_take(HttpPlain *p)
{
    HttpCall *call = p->ended_first;
    if (!call) return NULL;
    p->ended_first = call->next;
    if (!call->next) p->ended_last = NULL;
    call->next = NULL;
    return call;
}

/* ---- Places ---- */

/* "http://127.0.0.1:80/path", "http://[::1]:80/path". *path is where the path begins. */
static bool read_url(const char *url, struct sockaddr_storage *place, socklen_t *bytes,
                     const char **path)
{
    static const char scheme[] = "http://";
    struct sockaddr_in *four = (void *)place;
    struct sockaddr_in6 *six = (void *)place;
    char host[INET6_ADDRSTRLEN + 1];
    if (strncmp(url, scheme, sizeof scheme - 1) != 0) return false;
    url += sizeof scheme - 1;
    bool brackets = *url == '[';
    url += brackets;
    size_t length = strcspn(url, brackets ? "]" : ":");
    if (length >= sizeof host || !url[length]) return false;
    memcpy(host, url, length);
    host[length] = '\0';
    url += length + brackets;
    if (*url++ != ':') return false;
    char *end;
    unsigned long port = strtoul(url, &end, 10);
    if (end == url || *end != '/' || port == 0 || port > UINT16_MAX) return false;
    *path = end;
    memset(place, 0, sizeof *place);
    *bytes = brackets ? sizeof *six : sizeof *four;
    if (brackets) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons((uint16_t)port);
        return inet_pton(AF_INET6, host, &six->sin6_addr) == 1;
    }
    four->sin_family = AF_INET;
    four->sin_port = htons((uint16_t)port);
    return inet_pton(AF_INET, host, &four->sin_addr) == 1;
}

/* An idle line to the place, or a new one without a connection. */
static Line *take_line(HttpPlain *p, const struct sockaddr_storage *place, socklen_t bytes)
{
    for (Line *l = p->idle; l; l = l->next) {
        if (l->place_bytes != bytes || memcmp(&l->place, place, bytes) != 0) continue;
        delist(&p->idle, l);
        p->idle_count--;
        return l;
    }
    Line *l = malloc(sizeof *l);
    if (!l) return NULL;
    l->fd = -1;
    l->kept = false;
    l->place = *place;
    l->place_bytes = bytes;
    return l;
}

/* ---- Moving bytes ---- */

static bool connect_line(HttpPlain *p, Line *l)
{
    int on = 1;
    l->fd = socket(l->place.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0) return false;
    (void)setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = l};
    if (epoll_ctl(p->epoll, EPOLL_CTL_ADD, l->fd, &event) != 0) return false;
    l->state = CONNECTING;
    l->connect_ns = clock_now_ns() + p->connect_ms * 1000000ull;
    return connect(l->fd, (const struct sockaddr *)&l->place, l->place_bytes) == 0 ||
           errno == EINPROGRESS;
}

static void begin(Line *l)
{
    l->sent = l->in_bytes = 0;
    l->has_head = l->closes = false;
    l->call->status = 0;
    l->call->answer_bytes = 0;
}

/* The connection broke. Once more on a new one when it was kept and nothing of an answer has come. */
static void break_off(HttpPlain *p, Line *l, int number)
{
    if (l->state == CONNECTING) {
        fail(p, l, ERR_UNREACHABLE, "no connection", strerror(number));
        return;
    }
    if (!l->kept || l->in_bytes || l->has_head) {
        fail(p, l, ERR_UNREACHABLE, "broken off", number ? strerror(number) : "");
        return;
    }
    close(l->fd);
    l->kept = false;
    begin(l);
    if (!connect_line(p, l)) fail(p, l, ERR_UNREACHABLE, "no connection", strerror(errno));
}

static size_t request_bytes(const Line *l)
{
    return l->head_bytes + l->call->part_bytes[0] + l->call->part_bytes[1];
}

static void send_more(HttpPlain *p, Line *l)
{
    const HttpCall *call = l->call;
    l->state = SENDING;
    while (l->sent < request_bytes(l)) {
        struct iovec parts[3] = {{l->head, l->head_bytes},
                                 {(void *)(uintptr_t)call->parts[0], call->part_bytes[0]},
                                 {(void *)(uintptr_t)call->parts[1], call->part_bytes[1]}};
        size_t skip = l->sent;
        for (int i = 0; i < 3; i++) {
            size_t less = skip < parts[i].iov_len ? skip : parts[i].iov_len;
            if (less) parts[i].iov_base = (char *)parts[i].iov_base + less;
            parts[i].iov_len -= less;
            skip -= less;
        }
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
        ssize_t n = sendmsg(l->fd, &message, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n < 0) {
            break_off(p, l, errno);
            return;
        }
        l->sent += (size_t)n;
    }
    l->state = READING;
}

/* ---- Answers ---- */

static bool read_digits(const char *at, const char *end, uint64_t *out)
{
    const char *first = at;
    uint64_t n = 0;
    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        if (n > (UINT64_MAX - 10) / 10) return false;
        n = n * 10 + (uint64_t)(*at - '0');
    }
    *out = n;
    return at > first && (at == end || *at == ' ' || *at == '\r');
}

/* The value of the line when it is of the header `name`; else NULL. */
static const char *value_of(const char *line, const char *end, const char *name)
{
    size_t n = strlen(name);
    if ((size_t)(end - line) <= n || line[n] != ':' || strncasecmp(line, name, n) != 0) return NULL;
    for (line += n + 1; line < end && (*line == ' ' || *line == '\t'); line++) {
    }
    return line;
}

/* Status and headers of l->in[0 .. bytes). Result  false: not to be understood. */
static bool parse_head(Line *l, size_t bytes)
{
    const char *at = l->in, *end = l->in + bytes, *value;
    uint64_t status;
    if (bytes < 12 || memcmp(at, "HTTP/1.", 7) != 0 || at[8] != ' ') return false;
    if (!read_digits(at + 9, end, &status) || status < 100 || status > 999) return false;
    l->call->status = (unsigned)status;
    l->closes = at[7] == '0';
    l->body_left = status == 204 || status == 304 ? 0 : UINT64_MAX;
    for (const char *line; (line = memchr(at, '\n', (size_t)(end - at))) != NULL;) {
        at = line + 1;
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) break;
        if ((value = value_of(at, stop, "content-length")) != NULL &&
            !read_digits(value, stop, &l->body_left))
            return false;
        if (value_of(at, stop, "transfer-encoding")) return false;
        if ((value = value_of(at, stop, "connection")) != NULL &&
            strncasecmp(value, "close", 5) == 0)
            l->closes = true;
    }
    l->closes = l->closes || l->body_left == UINT64_MAX;
    return true;
}

/* Result  false: the answer is too large, and the call has ended. */
static bool take_body(HttpPlain *p, Line *l, const char *bytes, size_t count)
{
    HttpCall *call = l->call;
    if (l->body_left != UINT64_MAX) {
        if (count > l->body_left) l->closes = true; /* what follows was not asked for */
        if (count > l->body_left) count = (size_t)l->body_left;
        l->body_left -= count;
    }
    if (!call->answer) return true;
    if (count > call->answer_room - call->answer_bytes) {
        char more[64];
        (void)snprintf(more, sizeof more, "larger than %zu bytes", call->answer_room);
        fail(p, l, ERR_TOO_LARGE, "the answer", more);
        return false;
    }
    if (count && bytes != (const char *)call->answer + call->answer_bytes)
        memcpy(call->answer + call->answer_bytes, bytes, count);
    call->answer_bytes += count;
    return true;
}

/* Looks for the end of the head in what has come. Result  false: the call has ended. */
static bool take_head(HttpPlain *p, Line *l)
{
    for (;;) {
        const char *blank = memmem(l->in, l->in_bytes, "\r\n\r\n", 4);
        if (!blank && l->in_bytes < sizeof l->in) return true;
        size_t bytes = blank ? (size_t)(blank - l->in) + 4 : 0;
        if (!blank || !parse_head(l, bytes)) {
            fail(p, l, ERR_UNREACHABLE, "failed", "an answer that is no HTTP of nodes");
            return false;
        }
        if (l->call->status >= 200) {
            l->has_head = true;
            const HttpCall *call = l->call;
            if (call->answer && l->body_left != UINT64_MAX && l->body_left > call->answer_room) {
                char more[80];
                (void)snprintf(more, sizeof more, "an answer of %llu bytes, room for %zu",
                               (unsigned long long)l->body_left, call->answer_room);
                fail(p, l, ERR_TOO_LARGE, more, "");
                return false;
            }
            return take_body(p, l, l->in + bytes, l->in_bytes - bytes);
        }
        l->in_bytes -= bytes; /* 100: the answer is still to come */
        memmove(l->in, l->in + bytes, l->in_bytes);
    }
}

/* Where the next bytes go: the head, the caller's room, or nowhere. */
static ssize_t receive(Line *l, char **to)
{
    HttpCall *call = l->call;
    size_t room = sizeof l->in - l->in_bytes;
    *to = l->in + l->in_bytes;
    if (l->has_head) {
        *to = l->in; /* dropped, or seen to be too large */
        room = sizeof l->in;
        if (call->answer && call->answer_room > call->answer_bytes) {
            *to = (char *)call->answer + call->answer_bytes;
            room = call->answer_room - call->answer_bytes;
        }
        if (l->body_left < room) room = (size_t)l->body_left;
    }
    return recv(l->fd, *to, room, 0);
}

static void read_more(HttpPlain *p, Line *l)
{
    for (;;) {
        char *at;
        ssize_t n = receive(l, &at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n == 0 && l->has_head && l->body_left == UINT64_MAX) {
            finish(p, l);
            return;
        }
        if (n <= 0) {
            break_off(p, l, n ? errno : 0);
            return;
        }
        if (l->has_head) {
            if (!take_body(p, l, at, (size_t)n)) return;
        } else {
            l->in_bytes += (size_t)n;
            if (!take_head(p, l)) return;
        }
        if (l->has_head && l->body_left == 0) {
            finish(p, l);
            return;
        }
    }
}

/* ---- Calls ---- */

static bool write_head(const HttpPlain *p, Line *l, const char *path)
{
    const HttpCall *call = l->call;
    const char *place = call->url + strlen("http://");
    bool body =
        call->part_bytes[0] || call->part_bytes[1] || call->method[0] == 'P'; /* POST, PUT */
    char length[96] = "";
    if (body)
        (void)snprintf(length, sizeof length,
                       "Content-Type: application/octet-stream\r\nContent-Length: %zu\r\n",
                       call->part_bytes[0] + call->part_bytes[1]);
    int n = snprintf(l->head, sizeof l->head, "%s %s HTTP/1.1\r\nHost: %.*s\r\n%s%s", call->method,
                     path, (int)(path - place), place, p->key_line, length);
    size_t used = n > 0 ? (size_t)n : sizeof l->head;
    for (const char *const *line = call->headers; *line; line++) {
        size_t bytes = strlen(*line);
        if (used + bytes + 4 >= sizeof l->head) return false;
        memcpy(l->head + used, *line, bytes);
        memcpy(l->head + used + bytes, "\r\n", 2);
        used += bytes + 2;
    }
    if (used + 2 >= sizeof l->head) return false;
    memcpy(l->head + used, "\r\n", 2);
    l->head_bytes = used + 2;
    return true;
}

/* A Content-Type of its own, which ours would contradict. */
static bool says_kind(const HttpCall *call)
{
    for (const char *const *line = call->headers; *line; line++)
        if (strncasecmp(*line, "Content-Type:", 13) == 0) return true;
    return false;
}

bool http_plain_start(HttpPlain *p, HttpCall *call)
{
    struct sockaddr_storage place;
    socklen_t bytes;
    const char *path;
    if (says_kind(call) || strcmp(call->method, "HEAD") == 0 ||
        !read_url(call->url, &place, &bytes, &path))
        return false;
    Line *l = take_line(p, &place, bytes);
    if (!l) return false;
    l->call = call;
    begin(l);
    enlist(&p->busy, l);
    if (!write_head(p, l, path)) {
        delist(&p->busy, l);
        l->next = NULL;
        close_lines(l);
        return false;
    }
    uint32_t ms = call->deadline_ms ? call->deadline_ms : HTTP_CLIENT_DEADLINE_MS;
    l->begun_ns = clock_now_ns();
    l->deadline_ns = l->begun_ns + ms * 1000000ull;
    if (l->fd >= 0) send_more(p, l);
    else if (!connect_line(p, l)) fail(p, l, ERR_UNREACHABLE, "no connection", strerror(errno));
    return true;
}

bool http_plain_cancel(HttpPlain *p, HttpCall *call)
{
    for (Line *l = p->busy; l; l = l->next) {
        if (l->call != call) continue;
        fail(p, l, ERR_CANCELLED, "cancelled", "");
        return true;
    }
    return false;
}

/* ---- Waiting ---- */

static uint64_t due_ns(const Line *l)
{
    return l->state == CONNECTING && l->connect_ns < l->deadline_ns ? l->connect_ns
                                                                    : l->deadline_ns;
}

int http_plain_left_ms(const HttpPlain *p)
{
    uint64_t first = UINT64_MAX;
    for (const Line *l = p->busy; l; l = l->next)
        if (due_ns(l) < first) first = due_ns(l);
    if (first == UINT64_MAX) return -1;
    uint64_t now = clock_now_ns(), ms = first > now ? (first - now) / 1000000 + 1 : 0;
    return ms < INT_MAX ? (int)ms : INT_MAX;
}

static void end_late(HttpPlain *p)
{
    uint64_t now = clock_now_ns();
    for (Line *l = p->busy, *next; l; l = next) {
        next = l->next;
        if (now < due_ns(l)) continue;
        fail(p, l, ERR_UNREACHABLE, l->state == CONNECTING ? "no connection in time" : "too late",
             "");
    }
}

/* An event, or what was done about it, may have ended the line meanwhile. */
static bool is_line(const Line *list, const Line *l)
{
    while (list && list != l) list = list->next;
    return list != NULL;
}

static void move(HttpPlain *p, Line *l, uint32_t events)
{
    int number = 0;
    socklen_t bytes = sizeof number;
    if (l->state == IDLE) {
        if (!(events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))) return;
        delist(&p->idle, l); /* nothing is expected: the peer has closed it */
        p->idle_count--;
        l->next = NULL;
        close_lines(l);
        return;
    }
    if (l->state == CONNECTING) {
        if (!(events & (EPOLLOUT | EPOLLHUP | EPOLLERR))) return;
        (void)getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &number, &bytes);
        if (number) {
            break_off(p, l, number);
            return;
        }
        send_more(p, l);
        return;
    }
    if (l->state == SENDING && (events & EPOLLOUT)) send_more(p, l);
    /* also while it sends: who refuses a body does so early */
    if (is_line(p->busy, l) && l->state != CONNECTING) read_more(p, l);
}

void http_plain_work(HttpPlain *p, int timeout_ms)
{
    struct epoll_event events[EVENTS_MAX];
    int left = http_plain_left_ms(p);
    if (left >= 0 && (timeout_ms < 0 || left < timeout_ms)) timeout_ms = left;
    if (p->ended_first) timeout_ms = 0;
    int count = epoll_wait(p->epoll, events, EVENTS_MAX, timeout_ms);
    for (int i = 0; i < count; i++) {
        Line *l = events[i].data.ptr;
        uint64_t wakes;
        if (!l) (void)!read(p->wake, &wakes, sizeof wakes);
        else if (is_line(p->busy, l) || is_line(p->idle, l)) move(p, l, events[i].events);
    }
    end_late(p);
}

int http_plain_descriptor(const HttpPlain *p) { return p->epoll; }

void http_plain_wake(HttpPlain *p)
{
    uint64_t one = 1;
    (void)!write(p->wake, &one, sizeof one);
}
