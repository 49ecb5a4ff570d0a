/* SPDX-License-Identifier: Apache-2.0 */
/* A TCP proxy that misbehaves on demand, between two nodes of a cluster or a client and a server.
 *
 *   client --requests--> [ chunk | chunk | .. ] --> target      each chunk leaves delay_ms after it came
 *          <--answers--- [ chunk | .. ] <----------             at once
 *
 *     fault_proxy PORT HOST:PORT [--control PATH] [--NAME VALUE]..    PORT 0: any; prints "listening PORT"
 *
 *     delay-ms X       requests leave X ms later (0.1 ms matters); 0: off
 *     slow N           N bytes a second; 0: off
 *     drop-after N     connections are closed after N more bytes; off
 *     corrupt-at N     a bit of the byte N from now (or from the start) is turned, once per connection; off
 *     blackhole on     whatever comes is thrown away; connections stay open
 *     freeze on        nothing moves; when it is switched off everything comes, late
 *     reset on         connections end with a reset, those there are and those to come
 *     refuse on        nobody listens; connections there are go on
 *     side requests | answers     what slow, drop-after and corrupt-at are about; answers at first
 *     drop             closes the connections there are, once
 *     clear            no fault any more
 *     stats            {"connections":..,"open":..,"request_bytes":..,"answer_bytes":..}
 *
 * The same names are options (with --) and lines of control: on stdin, or to a Unix socket at PATH.
 * Each line is answered, with "ok" where there is nothing else to say. The end of stdin, when it is
 * a pipe, ends the program.
 *
 * One thread; a connection holds at most QUEUE_BYTES_MAX a side. Not for more than some hundred
 * connections: each turn of the loop looks at all of them. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { READ_BYTES = 65536, QUEUE_BYTES_MAX = 16 << 20, CONTROLS_MAX = 16, LINE_BYTES_MAX = 256 };
enum { REQUESTS, ANSWERS }; /* a direction is named by where its bytes come from: client, target */
#define NEVER UINT64_MAX
#define OFF UINT64_MAX

typedef struct Chunk {
    struct Chunk *next;
    uint64_t due_ns;
    size_t bytes, sent;
    uint8_t data[];
} Chunk;

typedef struct Lane {
    Chunk *first, *last;
    size_t queued;
    uint64_t read, sent;   /* since the connection's start */
    uint64_t corrupt_at;   /* of `read`; OFF: none, or done */
    uint64_t drop_at;      /* of `sent` */
    uint64_t next_send_ns; /* slow */
    bool blocked, ended,
        ended_out; /* the receiver's buffer is full; end of input seen; passed on */
} Lane;

typedef enum SourceKind {
    SOURCE_LISTEN,
    SOURCE_TIMER,
    SOURCE_CONTROL_LISTEN,
    SOURCE_CONTROL,
    SOURCE_LINK
} SourceKind;

/* What epoll gives back. */
typedef struct Source {
    SourceKind kind;
    void *owner;
    int side;
} Source;

typedef struct Link {
    struct Link *next;
    int fd[2]; /* client, target */
    Source source[2];
    uint32_t interest[2];
    Lane lane[2];                    /* lane[i]: from fd[i] to the other */
    bool connected, dead, silent[2]; /* silent: closed both ways, no longer watched */
} Link;

typedef struct Control {
    Source source;
    int in, out; /* in < 0: free */
    char line[LINE_BYTES_MAX];
    size_t bytes;
} Control;

typedef struct Faults {
    uint64_t delay_ns, bytes_per_s, drop_after, corrupt_at;
    bool blackhole, freeze, reset, refuse;
    int side;
} Faults;

static const Faults NO_FAULTS = {.drop_after = OFF, .corrupt_at = OFF, .side = ANSWERS};

typedef struct Proxy {
    int epoll, timer, listener, control_listener;
    uint16_t port;
    struct sockaddr_storage target;
    socklen_t target_bytes;
    Faults faults;
    Link *links;
    Control control[CONTROLS_MAX];
    uint64_t connections, bytes[2];
    bool stopped;
} Proxy;

static Source listen_source = {SOURCE_LISTEN, NULL, 0}, timer_source = {SOURCE_TIMER, NULL, 0},
              control_listen_source = {SOURCE_CONTROL_LISTEN, NULL, 0};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "fault_proxy: %s: %s\n", what, errno ? strerror(errno) : "wrong usage");
    exit(errno ? 1 : 2);
}

static void watch(Proxy *p, int fd, uint32_t events, Source *source)
{
    struct epoll_event e = {.events = events, .data.ptr = source};
    if (epoll_ctl(p->epoll, EPOLL_CTL_ADD, fd, &e) && errno != EEXIST && errno != EPERM)
        die("epoll_ctl");
}

/* --- Connections --- */

static void lane_arm(const Proxy *p, Lane *lane, int side)
{
    bool meant = p->faults.side == side;
    lane->corrupt_at =
        meant && p->faults.corrupt_at != OFF ? lane->read + p->faults.corrupt_at : OFF;
    lane->drop_at = meant && p->faults.drop_after != OFF
                        ? lane->sent + lane->queued + p->faults.drop_after
                        : OFF;
}

static void link_kill(Link *l, bool reset)
{
    if (l->dead) return;
    l->dead = true;
    for (int i = 0; i < 2; i++) {
        struct linger linger = {.l_onoff = 1, .l_linger = 0};
        if (reset) setsockopt(l->fd[i], SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
        close(l->fd[i]);
        for (Chunk *c = l->lane[i].first, *next; c; c = next) {
            next = c->next;
            free(c);
        }
    }
}

static void accept_one(Proxy *p)
{
    int client = accept4(p->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), one = 1;
    if (client < 0) return;
    p->connections++;
    int target = socket(p->target.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (target < 0) die("socket");
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(target, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    Link *l = calloc(1, sizeof *l);
    if (!l) die("calloc");
    *l = (Link){.next = p->links, .fd = {client, target}};
    p->links = l;
    int bad = connect(target, (struct sockaddr *)&p->target, p->target_bytes);
    for (int i = 0; i < 2; i++) {
        l->source[i] = (Source){SOURCE_LINK, l, i};
        lane_arm(p, &l->lane[i], i);
        watch(p, l->fd[i], l->interest[i] = i ? EPOLLOUT : 0, &l->source[i]);
    }
    if (p->faults.reset || (bad && errno != EINPROGRESS)) link_kill(l, true);
}

/* Takes what `side` has said. */
static void link_read(Proxy *p, Link *l, int side, uint64_t now)
{
    static uint8_t buffer[READ_BYTES];
    Lane *lane = &l->lane[side];
    ssize_t n = recv(l->fd[side], buffer, sizeof buffer, 0);
    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR) link_kill(l, true);
        return;
    }
    if (n == 0) {
        lane->ended = true;
        return;
    }
    if (p->faults.blackhole) return;
    Chunk *c = malloc(sizeof *c + (size_t)n);
    if (!c) die("malloc");
    *c = (Chunk){.due_ns = now + (side == REQUESTS ? p->faults.delay_ns : 0), .bytes = (size_t)n};
    memcpy(c->data, buffer, (size_t)n);
    if (lane->corrupt_at != OFF && lane->corrupt_at < lane->read + (uint64_t)n) {
        c->data[lane->corrupt_at - lane->read] ^= 0x10;
        lane->corrupt_at = OFF;
    }
    if (lane->last) lane->last->next = c;
    else lane->first = c;
    lane->last = c;
    lane->queued += c->bytes;
    lane->read += c->bytes;
    p->bytes[side] += c->bytes;
}

/* How many bytes of the first chunk may leave now; 0: none, and `wake` says when. */
static size_t lane_allowed(const Proxy *p, Lane *lane, int side, uint64_t now, uint64_t *wake)
{
    const Chunk *c = lane->first;
    size_t n = c->bytes - c->sent;
    uint64_t rate = p->faults.side == side ? p->faults.bytes_per_s : 0;
    uint64_t due = rate && lane->next_send_ns > c->due_ns ? lane->next_send_ns : c->due_ns;
    if (due > now) {
        if (due < *wake) *wake = due;
        return 0;
    }
    size_t piece = rate ? (size_t)(rate / 100 ? rate / 100 : 1) : n; /* a hundred pieces a second */
    if (piece < n) n = piece;
    if (lane->drop_at != OFF && n > lane->drop_at - lane->sent)
        n = (size_t)(lane->drop_at - lane->sent);
    if (rate) lane->next_send_ns = now + n * 1000000000u / rate;
    return n;
}

static void lane_sent(Lane *lane, size_t n)
{
    Chunk *c = lane->first;
    lane->sent += n;
    lane->queued -= n;
    c->sent += n;
    if (c->sent < c->bytes) return;
    lane->first = c->next;
    if (!lane->first) lane->last = NULL;
    free(c);
}

/* Passes on what is due from `side`. */
static void link_write(Proxy *p, Link *l, int side, uint64_t now, uint64_t *wake)
{
    Lane *lane = &l->lane[side];
    int to = l->fd[!side];
    while (lane->first && !lane->blocked && !l->dead) {
        if (lane->drop_at != OFF && lane->sent >= lane->drop_at) {
            link_kill(l, false);
            return;
        }
        size_t n = lane_allowed(p, lane, side, now, wake);
        if (!n) return;
        ssize_t sent = send(to, lane->first->data + lane->first->sent, n, MSG_NOSIGNAL);
        if (sent > 0) lane_sent(lane, (size_t)sent);
        else if (errno == EAGAIN) lane->blocked = true;
        else link_kill(l, true);
    }
    if (lane->drop_at != OFF && lane->sent >= lane->drop_at && lane->sent) link_kill(l, false);
    if (l->dead || lane->first || !lane->ended || lane->ended_out) return;
    lane->ended_out = true;
    shutdown(to, SHUT_WR);
    if (l->lane[!side].ended_out) link_kill(l, false);
}

static void link_interest(Proxy *p, Link *l, int side)
{
    const Lane *lane = &l->lane[side], *other = &l->lane[!side];
    uint32_t want = 0;
    if (l->silent[side]) return;
    if (!p->faults.freeze && l->connected && !lane->ended && lane->queued < QUEUE_BYTES_MAX)
        want |= EPOLLIN;
    if (other->blocked || (side == 1 && !l->connected)) want |= EPOLLOUT;
    if (want == l->interest[side]) return;
    struct epoll_event e = {.events = want, .data.ptr = &l->source[side]};
    if (epoll_ctl(p->epoll, EPOLL_CTL_MOD, l->fd[side], &e)) die("epoll_ctl");
    l->interest[side] = want;
}

static void link_event(Proxy *p, Link *l, int side, uint32_t events)
{
    if (l->dead) return;
    if (side == 1 && !l->connected && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))) {
        int error = 0;
        socklen_t bytes = sizeof error;
        getsockopt(l->fd[1], SOL_SOCKET, SO_ERROR, &error, &bytes);
        if (error) link_kill(l, true);
        else l->connected = true;
        return;
    }
    if (events & EPOLLOUT) l->lane[!side].blocked = false;
    if (events & EPOLLIN) link_read(p, l, side, now_ns());
    else if (events & EPOLLERR) link_kill(l, true);
    else if (events & EPOLLHUP) {
        if (!l->lane[side].ended) link_kill(l, true);
        else {
            l->silent[side] = true; /* what it said may still be on its way to the other */
            epoll_ctl(p->epoll, EPOLL_CTL_DEL, l->fd[side], NULL);
        }
    }
}

/* Everything that is due, and the time of what comes next. */
static uint64_t links_turn(Proxy *p)
{
    uint64_t wake = NEVER;
    for (Link **at = &p->links; *at;) {
        Link *l = *at;
        for (int side = 0; side < 2 && !l->dead; side++)
            if (l->connected && !p->faults.freeze) link_write(p, l, side, now_ns(), &wake);
        for (int side = 0; side < 2 && !l->dead; side++) link_interest(p, l, side);
        if (l->dead) {
            *at = l->next;
            free(l);
        } else at = &l->next;
    }
    return wake;
}

/* --- Listening --- */

static void listen_on(Proxy *p)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(p->port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof a;
    int one = 1;
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (p->listener < 0) die("socket");
    setsockopt(p->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(p->listener, (struct sockaddr *)&a, sizeof a)) die("bind");
    if (listen(p->listener, 512)) die("listen");
    if (getsockname(p->listener, (struct sockaddr *)&a, &bytes)) die("getsockname");
    p->port = ntohs(a.sin_port);
    watch(p, p->listener, EPOLLIN, &listen_source);
}

static void resolve(Proxy *p, const char *text)
{
    char host[256];
    const char *colon = strrchr(text, ':');
    errno = 0;
    if (!colon || (size_t)(colon - text) >= sizeof host) die(text);
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = 0;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(host, colon + 1, &hints, &found)) die(text);
    memcpy(&p->target, found->ai_addr, found->ai_addrlen);
    p->target_bytes = found->ai_addrlen;
    freeaddrinfo(found);
}

static void control_listen(Proxy *p, const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    errno = 0;
    if (strlen(path) >= sizeof a.sun_path) die(path);
    memcpy(a.sun_path, path, strlen(path) + 1);
    unlink(path);
    p->control_listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (p->control_listener < 0 || bind(p->control_listener, (struct sockaddr *)&a, sizeof a) ||
        listen(p->control_listener, CONTROLS_MAX))
        die(path);
    watch(p, p->control_listener, EPOLLIN, &control_listen_source);
}

/* --- Control --- */

static bool read_switch(const char *value, bool *out)
{
    *out = strcmp(value, "off") != 0 && strcmp(value, "0") != 0;
    return !*out || strcmp(value, "on") == 0 || strcmp(value, "1") == 0 || !*value;
}

static bool read_number(const char *value, double scale, uint64_t off, uint64_t *out)
{
    char *end;
    double v = strtod(value, &end);
    if (strcmp(value, "off") == 0) return *out = off, true;
    if (end == value || *end || !(v >= 0) || v * scale > 1e18) return false;
    *out = (uint64_t)(v * scale);
    return true;
}

static void obey_all(Proxy *p)
{
    for (Link *l = p->links; l; l = l->next) {
        for (int i = 0; i < 2; i++) lane_arm(p, &l->lane[i], i);
        if (p->faults.reset) link_kill(l, true);
    }
    if (p->faults.refuse && p->listener >= 0) close(p->listener), p->listener = -1;
    if (!p->faults.refuse && p->listener < 0 && p->port) listen_on(p);
}

static bool set_fault(Proxy *p, const char *name, const char *value)
{
    Faults *f = &p->faults;
    if (strcmp(name, "delay-ms") == 0) return read_number(value, 1e6, 0, &f->delay_ns);
    if (strcmp(name, "slow") == 0) return read_number(value, 1, 0, &f->bytes_per_s);
    if (strcmp(name, "drop-after") == 0) return read_number(value, 1, OFF, &f->drop_after);
    if (strcmp(name, "corrupt-at") == 0) return read_number(value, 1, OFF, &f->corrupt_at);
    if (strcmp(name, "blackhole") == 0) return read_switch(value, &f->blackhole);
    if (strcmp(name, "freeze") == 0) return read_switch(value, &f->freeze);
    if (strcmp(name, "reset") == 0) return read_switch(value, &f->reset);
    if (strcmp(name, "refuse") == 0) return read_switch(value, &f->refuse);
    if (strcmp(name, "side") == 0 &&
        (strcmp(value, "requests") == 0 || strcmp(value, "answers") == 0))
        return f->side = value[0] == 'r' ? REQUESTS : ANSWERS, true;
    if (strcmp(name, "clear") == 0) return *f = NO_FAULTS, true;
    if (strcmp(name, "drop") == 0) {
        for (Link *l = p->links; l; l = l->next) link_kill(l, false);
        return true;
    }
    return false;
}

static void control_line(Proxy *p, Control *c)
{
    char answer[256], *value = strchr(c->line, ' ');
    if (value) *value++ = 0;
    unsigned open = 0;
    for (Link *l = p->links; l; l = l->next) open += !l->dead;
    if (strcmp(c->line, "stats") == 0)
        snprintf(
            answer, sizeof answer,
            "{\"connections\":%llu,\"open\":%u,\"request_bytes\":%llu,\"answer_bytes\":%llu}\n",
            (unsigned long long)p->connections, open, (unsigned long long)p->bytes[REQUESTS],
            (unsigned long long)p->bytes[ANSWERS]);
    else if (set_fault(p, c->line, value ? value : "")) {
        obey_all(p);
        snprintf(answer, sizeof answer, "ok\n");
    } else snprintf(answer, sizeof answer, "error: %.100s %.100s\n", c->line, value ? value : "");
    if (write(c->out, answer, strlen(answer)) < 0 && errno == EPIPE)
        p->stopped |= c->in == STDIN_FILENO;
}

static void control_read(Proxy *p, Control *c)
{
    ssize_t n = read(c->in, c->line + c->bytes, sizeof c->line - 1 - c->bytes);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0 || c->bytes + (size_t)n >= sizeof c->line - 1) {
        if (c->in == STDIN_FILENO) {
            struct stat s;
            p->stopped |= fstat(STDIN_FILENO, &s) == 0 && !S_ISCHR(s.st_mode);
            epoll_ctl(p->epoll, EPOLL_CTL_DEL, STDIN_FILENO, NULL);
        } else close(c->in);
        c->in = -1;
        return;
    }
    c->bytes += (size_t)n;
    for (char *end; (end = memchr(c->line, '\n', c->bytes)) != NULL;) {
        size_t length = (size_t)(end + 1 - c->line);
        *end = 0;
        control_line(p, c);
        c->bytes -= length;
        memmove(c->line, c->line + length, c->bytes);
    }
}

static void control_add(Proxy *p, int in, int out)
{
    for (int i = 0; i < CONTROLS_MAX; i++) {
        Control *c = &p->control[i];
        if (c->in >= 0) continue;
        *c = (Control){.source = {SOURCE_CONTROL, c, 0}, .in = in, .out = out};
        watch(p, in, EPOLLIN, &c->source);
        return;
    }
    close(in);
}

/* --- The loop --- */

static void event(Proxy *p, const struct epoll_event *e)
{
    const Source *source = e->data.ptr;
    uint64_t ticks;
    int fd;
    switch (source->kind) {
    case SOURCE_LISTEN: accept_one(p); break;
    case SOURCE_TIMER: (void)!read(p->timer, &ticks, sizeof ticks); break;
    case SOURCE_CONTROL_LISTEN:
        fd = accept4(p->control_listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) control_add(p, fd, fd);
        break;
    case SOURCE_CONTROL:
        if (((Control *)source->owner)->in >= 0) control_read(p, source->owner);
        break;
    case SOURCE_LINK: link_event(p, source->owner, source->side, e->events); break;
    }
}

static void loop(Proxy *p)
{
    while (!p->stopped) {
        struct epoll_event events[64];
        uint64_t wake = links_turn(p);
        struct itimerspec at = {{0, 0}, {0, 0}};
        if (wake != NEVER) {
            at.it_value.tv_sec = (time_t)(wake / 1000000000u);
            at.it_value.tv_nsec = (long)(wake % 1000000000u);
        }
        timerfd_settime(p->timer, TFD_TIMER_ABSTIME, &at, NULL);
        int n = epoll_wait(p->epoll, events, 64, -1);
        if (n < 0 && errno != EINTR) die("epoll_wait");
        for (int i = 0; i < n; i++) event(p, &events[i]);
    }
}

int main(int argc, char **argv)
{
    static Proxy p = {.listener = -1, .control_listener = -1};
    char *end;
    const char *control = NULL;
    errno = 0;
    if (argc < 3) die("fault_proxy PORT HOST:PORT [--control PATH] [--NAME VALUE]..");
    unsigned long port = strtoul(argv[1], &end, 10);
    if (*end || port > 65535) die(argv[1]);
    p.port = (uint16_t)port;
    p.faults = NO_FAULTS;
    for (int i = 3; i < argc; i++) {
        const char *name = argv[i],
                   *value = i + 1 < argc && strncmp(argv[i + 1], "--", 2) ? argv[i + 1] : "";
        errno = 0;
        if (strncmp(name, "--", 2)) die(name);
        if (strcmp(name, "--control") == 0 && *value) control = value;
        else if (!set_fault(&p, name + 2, value)) die(name);
        if (*value) i++;
    }
    signal(SIGPIPE, SIG_IGN);
    p.epoll = epoll_create1(EPOLL_CLOEXEC);
    p.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (p.epoll < 0 || p.timer < 0) die("epoll");
    watch(&p, p.timer, EPOLLIN, &timer_source);
    resolve(&p, argv[2]);
    listen_on(&p);
    for (int i = 0; i < CONTROLS_MAX; i++) p.control[i].in = -1;
    if (control) control_listen(&p, control);
    struct stat s;
    if (fstat(STDIN_FILENO, &s) == 0 && !S_ISREG(s.st_mode))
        control_add(&p, STDIN_FILENO, STDOUT_FILENO);
    printf("listening %u\n", p.port);
    fflush(stdout);
    obey_all(&p);
    loop(&p);
    return 0;
}
