/* SPDX-License-Identifier: Apache-2.0 */
/* The watcher of an HTTP server: hang-ups of clients that wait, requests that never come, streams that are silent. */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "host/clock.h"
#include "host/http_state.h"
#include "host/log.h"

enum { EVENTS_MAX = 64, REQUEST_S = 60, BODY_S = 120, TOLD_AGAIN_S = 10 };
static const uint64_t SECOND_NS = 1000000000;

void http_watch_locked(HttpExchange *x)
{
    if (!x->line) return;
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = x->serial};
    x->watched = epoll_ctl(x->server->epoll_fd, EPOLL_CTL_ADD, x->line->fd, &event) == 0;
}

void http_watch_end_locked(HttpExchange *x)
{
    if (x->watched) (void)epoll_ctl(x->server->epoll_fd, EPOLL_CTL_DEL, x->line->fd, NULL);
    x->watched = false;
}

/* The client of an exchange hung up. */
static void lose(HttpServer *s, uint64_t serial)
{
    pthread_mutex_lock(&s->lock);
    HttpExchange *x = s->exchanges;
    while (x && x->serial != serial) x = x->next;
    bool news = x && !x->gone;
    if (news) {
        x->gone = true;
        x->references++;
        http_wake_locked(x);
    }
    pthread_mutex_unlock(&s->lock);
    if (!news) return;
    s->options.gone(s->options.context, x);
    http_exchange_release(x);
}

/* `then` may be after `now`: the other thread has looked at the clock meanwhile. */
static bool is_past(uint64_t now, uint64_t then, uint64_t limit)
{
    return now > then && now - then >= limit;
}

/* libmicrohttpd, which hears of changes only, does not see the end of a line that came together with half a request. */
static bool has_left(const HttpLine *line)
{
    char byte;
    return recv(line->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void end_lines(HttpServer *s, uint64_t now)
{
    for (const HttpLine *line = s->lines; line; line = line->next) {
        uint64_t limit = (line->in_body ? BODY_S : REQUEST_S) * SECOND_NS;
        if (!line->busy && (is_past(now, line->since_ns, limit) || has_left(line)))
            (void)shutdown(line->fd, SHUT_RDWR);
    }
}

static void comment_silent_streams(HttpServer *s, uint64_t now)
{
    for (HttpExchange *x = s->exchanges; x; x = x->next)
        if (x->streams && x->idle_ns && x->suspended && is_past(now, x->written_ns, x->idle_ns))
            (void)http_stream_write_locked(x, x->idle, strlen(x->idle));
}

/* A line in the log at times, of those that had to go. */
static void tell_shed(HttpServer *s, uint64_t now)
{
    if (s->shed_total == s->shed_told || !is_past(now, s->shed_told_ns, TOLD_AGAIN_S * SECOND_NS))
        return;
    log_say(LOG_INFO,
            "%llu connections made room for others: they had sent no request, or did not read",
            (unsigned long long)(s->shed_total - s->shed_told));
    s->shed_told = s->shed_total;
    s->shed_told_ns = now;
}

/* Result  false: the server closes. */
static bool tick(HttpServer *s, uint64_t now)
{
    pthread_mutex_lock(&s->lock);
    bool closing = s->closing;
    end_lines(s, now);
    http_crowd_tick_locked(s);
    comment_silent_streams(s, now);
    tell_shed(s, now);
    pthread_mutex_unlock(&s->lock);
    if (!closing && s->options.tick) s->options.tick(s->options.context);
    return !closing;
}

void *http_watch(void *server)
{
    HttpServer *s = server;
    struct epoll_event events[EVENTS_MAX];
    uint64_t last = clock_now_ns();
    for (;;) {
        int count = epoll_wait(s->epoll_fd, events, EVENTS_MAX, 1000);
        for (int i = 0; i < count; i++) {
            if (events[i].data.u64 == 0) return NULL;
            lose(s, events[i].data.u64);
        }
        uint64_t now = clock_now_ns();
        if (now - last >= SECOND_NS && !tick(s, last = now)) return NULL;
    }
}
