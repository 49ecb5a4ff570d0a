/* SPDX-License-Identifier: Apache-2.0 */
#include "host/node_server.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "api/metrics.h"
#include "host/key.h"
#include "host/memory.h"
#include "wire/node_error.h"

/* All connections together take 4.3 MiB at most, bodies apart: part of what host/node_memory.c sets aside. */
enum {
    CONNECTIONS_MAX = 256,
    CONNECTION_BYTES = 16 << 10,
    TEXT_BYTES = 16 << 10,
    QUERY_BYTES_MAX = 512,
    THREADS_MAX = 64,
    FLUSH_S_MAX = 10
};

/* What a route may ask for after its request was queued. */
static const char *const header_names[] = {"X-Knot-Id",   "X-Knot-Key",    "X-Layer-Start",
                                           "X-Layer-End", "X-Vocab-Start", "X-Vocab-End"};
enum { HEADERS = sizeof header_names / sizeof header_names[0] };

/* A queued request, its texts behind it. */
typedef struct NodeJob {
    NodeRequest request; /* first: what routes get is the job */
    const NodeRoute *route;
    struct NodeJob *next;
    const char *headers[HEADERS];
    char texts[];
} NodeJob;

struct NodeServer {
    NodeServerOptions options;
    HttpServer *http;
    pthread_t threads[THREADS_MAX];
    uint32_t thread_count;
    atomic_size_t body_bytes_max;
    pthread_mutex_t lock;
    pthread_cond_t news, idle;
    NodeJob *first, *last; /* the queue */
    uint32_t waiting, running;
    bool closing;
    atomic_bool draining;
    atomic_ullong requests, refused, failed, abandoned, unauthorized;
};

/* ---- Answers ---- */

static void reply(HttpExchange *x, unsigned status, const char *type, const char *allow,
                  const void *bytes, size_t count)
{
    HttpReply r = {status, type, allow, status == 503 ? 1 : 0};
    http_reply(x, &r, bytes, count);
}

static void reply_error(NodeServer *s, HttpExchange *x, unsigned status, const char *allow,
                        Error error, const Why *why)
{
    char body[NODE_ERROR_BYTES_MAX];
    size_t bytes = node_error_write(error, why, body);
    atomic_fetch_add(status == 500 ? &s->failed : &s->refused, 1);
    reply(x, status, "application/json", allow, body, bytes);
}

static void refuse(NodeServer *s, HttpExchange *x, Error error, const char *what)
{
    Why why;
    error = error_why(&why, error, "%s", what);
    reply_error(s, x, node_error_status(error), NULL, error, &why);
}

static NodeServer *server_of(const NodeRequest *r) { return http_exchange_tag(r->x); }

const char *node_server_request_header(const NodeRequest *r, const char *name)
{
    const NodeJob *job = (const NodeJob *)(const void *)r;
    for (size_t i = 0; i < HEADERS; i++)
        if (strcasecmp(header_names[i], name) == 0) return job->headers[i];
    return NULL;
}

bool node_server_request_gone(const NodeRequest *r) { return http_exchange_gone(r->x); }

bool node_server_draining(const NodeServer *server) { return atomic_load(&server->draining); }

void node_server_reply(NodeRequest *r, unsigned status, const char *type, const void *bytes,
                       size_t count)
{
    ASSERT(!r->replied);
    r->replied = true;
    reply(r->x, status, type, NULL, bytes, count);
}

void node_server_reply_take(NodeRequest *r, unsigned status, const char *type, void *bytes,
                            size_t count)
{
    ASSERT(!r->replied);
    r->replied = true;
    HttpReply head = {status, type, NULL, status == 503 ? 1 : 0};
    http_reply_take(r->x, &head, bytes, count);
}

void node_server_reply_error(NodeRequest *r, Error error, const Why *why)
{
    ASSERT(!r->replied);
    r->replied = true;
    reply_error(server_of(r), r->x, node_error_status(error), NULL, error, why);
}

/* ---- What the HTTP thread answers itself ---- */

static void answer_health(NodeServer *s, HttpExchange *x)
{
    static const char body[] = "{\"status\":\"ok\"}";
    (void)s;
    reply(x, 200, "application/json", NULL, body, sizeof body - 1);
}

static void answer_ready(NodeServer *s, HttpExchange *x)
{
    char *text = malloc(TEXT_BYTES);
    if (!text) {
        refuse(s, x, ERR_MEMORY, "no memory for the answer");
        return;
    }
    text[0] = '\0';
    bool ready = s->options.ready(s->options.context, text, TEXT_BYTES);
    ready = ready && !node_server_draining(s);
    reply(x, ready ? 200 : 503, "application/json", NULL, text, strlen(text));
    free(text);
}

static void write_own_metrics(NodeServer *s, JsonWriter *w)
{
    pthread_mutex_lock(&s->lock);
    uint32_t waiting = s->waiting, running = s->running;
    pthread_mutex_unlock(&s->lock);
    metrics_write_count(w, "cobord_node_requests_total", "Requests that reached the queue.",
                        s->requests);
    metrics_write_count(w, "cobord_node_refused_total",
                        "Requests answered with an error of the client, or with try again.",
                        s->refused);
    metrics_write_count(w, "cobord_node_failed_total", "Requests that failed here.", s->failed);
    metrics_write_count(w, "cobord_node_unauthorized_total", "Requests without the cluster key.",
                        s->unauthorized);
    metrics_write_count(w, "cobord_node_abandoned_total",
                        "Requests whose client left while they waited.", s->abandoned);
    metrics_write_gauge(w, "cobord_node_queue", "Requests that wait.", waiting);
    metrics_write_gauge(w, "cobord_node_running", "Requests being worked on.", running);
    metrics_write_gauge(w, "cobord_node_connections", "Open connections.",
                        http_server_connections(s->http));
    metrics_write_gauge(w, "cobord_node_draining", "1 while the node finishes before its end.",
                        node_server_draining(s));
    metrics_write_gauge(w, "cobord_node_memory_bytes", "Resident memory, file pages counted.",
                        memory_resident());
    metrics_write_gauge(w, "cobord_node_memory_peak_bytes", "Its highest value.", memory_peak());
}

static void answer_metrics(NodeServer *s, HttpExchange *x)
{
    char *text = malloc(2 * TEXT_BYTES);
    if (!text) {
        refuse(s, x, ERR_MEMORY, "no memory for the answer");
        return;
    }
    JsonWriter w = json_writer_make(text, TEXT_BYTES);
    write_own_metrics(s, &w);
    ASSERT(!w.full);
    text[w.used] = '\0';
    if (s->options.metrics) s->options.metrics(s->options.context, text + w.used, TEXT_BYTES);
    reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", NULL, text, strlen(text));
    free(text);
}

typedef struct OwnRoute {
    const char *path;
    void (*answer)(NodeServer *s, HttpExchange *x);
} OwnRoute;
static const OwnRoute own_routes[] = {
    {"/health", answer_health}, {"/ready", answer_ready}, {"/metrics", answer_metrics}};
enum { OWN_ROUTES = sizeof own_routes / sizeof own_routes[0] };

static const OwnRoute *find_own(const char *path)
{
    for (size_t i = 0; i < OWN_ROUTES; i++)
        if (strcmp(own_routes[i].path, path) == 0) return &own_routes[i];
    return NULL;
}

/* ---- Heads: who may, and what there is ---- */

/* Whether a route has the path; its tail begins at *tail. */
static bool route_has(const NodeRoute *route, const char *path, size_t *tail)
{
    *tail = strlen(route->path);
    if (route->path[*tail - 1] == '/') return strncmp(route->path, path, *tail) == 0;
    return strcmp(route->path, path) == 0;
}

/* The route of a request, or NULL; *other is then a route of the path with another method, if any. */
static const NodeRoute *find_route(const NodeServer *s, const HttpExchange *x, size_t *tail,
                                   const NodeRoute **other)
{
    *other = NULL;
    for (uint32_t i = 0; i < s->options.route_count; i++) {
        const NodeRoute *route = &s->options.routes[i];
        if (!route_has(route, http_exchange_path(x), tail)) continue;
        if (strcmp(route->method, http_exchange_method(x)) == 0) return route;
        *other = route;
    }
    return NULL;
}

static void refuse_method(NodeServer *s, HttpExchange *x, const char *allow)
{
    Why why;
    Error error = error_why(&why, ERR_USAGE, "%s takes %s, not %s", http_exchange_path(x), allow,
                            http_exchange_method(x));
    reply_error(s, x, 405, allow, error, &why);
}

static void refuse_path(NodeServer *s, HttpExchange *x)
{
    Why why;
    Error error = error_why(&why, ERR_NOT_FOUND, "no such path: %s", http_exchange_path(x));
    reply_error(s, x, 404, NULL, error, &why);
}

static void refuse_size(NodeServer *s, HttpExchange *x)
{
    Why why;
    Error error = error_why(&why, ERR_TOO_LARGE, "the body has more than %zu bytes",
                            (size_t)s->body_bytes_max);
    reply_error(s, x, 413, NULL, error, &why);
}

static bool has_key(const NodeServer *s, const HttpExchange *x)
{
    return !s->options.key ||
           key_in_header(s->options.key, http_exchange_header(x, "Authorization"));
}

static bool is_reading(const HttpExchange *x)
{
    const char *method = http_exchange_method(x);
    return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
}

static void take_head(void *context, HttpExchange *x)
{
    NodeServer *s = context;
    size_t tail;
    const NodeRoute *other;
    const OwnRoute *own = find_own(http_exchange_path(x));
    http_exchange_set_tag(x, s);
    if (!(own && own->answer == answer_health) && !has_key(s, x)) {
        atomic_fetch_add(&s->unauthorized, 1);
        refuse(s, x, ERR_KEY, "Authorization: Bearer KEY is missing, or has another key");
    } else if (own) {
        if (is_reading(x)) own->answer(s, x);
        else refuse_method(s, x, "GET, HEAD");
    } else if (!find_route(s, x, &tail, &other)) {
        if (other) refuse_method(s, x, other->method);
        else refuse_path(s, x);
    } else if (http_exchange_announced(x) > s->body_bytes_max) {
        refuse_size(s, x);
    }
}

/* ---- Requests: into the queue ---- */

static NodeJob *make_job(NodeServer *s, HttpExchange *x)
{
    const NodeRoute *other;
    const char *values[HEADERS];
    size_t bytes = QUERY_BYTES_MAX, tail;
    for (size_t i = 0; i < HEADERS; i++) {
        values[i] = http_exchange_header(x, header_names[i]);
        if (values[i]) bytes += strlen(values[i]) + 1;
    }
    NodeJob *job = calloc(1, sizeof *job + bytes);
    if (!job) return NULL;
    job->route = find_route(s, x, &tail, &other);
    job->request = (NodeRequest){.x = x, .tail = http_exchange_path(x) + tail, .query = job->texts};
    char *to = job->texts + QUERY_BYTES_MAX;
    for (size_t i = 0; i < HEADERS; i++) {
        if (!values[i]) continue;
        size_t length = strlen(values[i]) + 1;
        job->headers[i] = memcpy(to, values[i], length);
        to += length;
    }
    return job;
}

static bool enqueue(NodeServer *s, NodeJob *job)
{
    pthread_mutex_lock(&s->lock);
    bool room = s->waiting < s->options.queue_max && !s->closing;
    if (room) {
        http_exchange_keep(job->request.x);
        if (s->last) s->last->next = job;
        else s->first = job;
        s->last = job;
        s->waiting++;
    }
    pthread_mutex_unlock(&s->lock);
    if (room) pthread_cond_signal(&s->news);
    return room;
}

static void take_request(void *context, HttpExchange *x)
{
    NodeServer *s = context;
    const uint8_t *body;
    size_t bytes;
    bool memory;
    if (!http_exchange_body(x, &body, &bytes, &memory)) {
        if (memory) refuse(s, x, ERR_AGAIN, "no room for the body now");
        else refuse_size(s, x);
        return;
    }
    if (node_server_draining(s)) {
        refuse(s, x, ERR_AGAIN, "the node is about to stop");
        return;
    }
    NodeJob *job = make_job(s, x);
    if (!job) {
        refuse(s, x, ERR_MEMORY, "no memory for the request");
        return;
    }
    job->request.body = body;
    job->request.body_bytes = bytes;
    bool fits = http_exchange_query(x, job->texts, QUERY_BYTES_MAX);
    if (fits && enqueue(s, job)) return;
    free(job);
    if (fits) refuse(s, x, ERR_AGAIN, "the queue is full");
    else refuse(s, x, ERR_USAGE, "the query is too long");
}

/* A client left: if its request still waits, it is forgotten. */
static void forget(void *context, HttpExchange *x)
{
    NodeServer *s = context;
    NodeJob *before = NULL;
    pthread_mutex_lock(&s->lock);
    NodeJob *job = s->first;
    while (job && job->request.x != x) before = job, job = job->next;
    if (job) {
        if (before) before->next = job->next;
        else s->first = job->next;
        if (s->last == job) s->last = before;
        s->waiting--;
    }
    pthread_mutex_unlock(&s->lock);
    if (!job) return;
    atomic_fetch_add(&s->abandoned, 1);
    http_exchange_release(x);
    free(job);
}

/* ---- Work ---- */

static void run_job(NodeServer *s, NodeJob *job)
{
    HttpExchange *x = job->request.x;
    if (http_exchange_gone(x)) {
        atomic_fetch_add(&s->abandoned, 1);
    } else {
        atomic_fetch_add(&s->requests, 1);
        job->route->run(s->options.context, &job->request);
        ASSERT(job->request.replied);
    }
    http_exchange_release(x);
    free(job);
}

static void *work(void *server)
{
    NodeServer *s = server;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->first && !s->closing) pthread_cond_wait(&s->news, &s->lock);
        if (s->closing) break;
        NodeJob *job = s->first;
        s->first = job->next;
        if (!s->first) s->last = NULL;
        s->waiting--;
        s->running++;
        pthread_mutex_unlock(&s->lock);
        run_job(s, job);
        pthread_mutex_lock(&s->lock);
        s->running--;
        if (!s->running && !s->first) pthread_cond_signal(&s->idle);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- Signals: the first drains, the second ends the process, as does one that comes before there was anything to
 * serve. ---- */

static volatile sig_atomic_t signals, serving;
static int signal_fd = -1;
static const int signal_numbers[] = {SIGINT, SIGTERM, SIGHUP};
enum { SIGNALS = sizeof signal_numbers / sizeof signal_numbers[0] };

static void take_signal(int number)
{
    int saved = errno;
    uint64_t one = 1;
    if (signals || !serving) _exit(128 + number);
    signals = 1;
    if (write(signal_fd, &one, sizeof one) != sizeof one) errno = saved;
    errno = saved;
}

static Error catch_signals(Why *why)
{
    if (signal_fd < 0) signal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (signal_fd < 0) return error_why(why, ERR_IO, "eventfd: %s", strerror(errno));
    struct sigaction action = {.sa_handler = take_signal}, before;
    for (size_t i = 0; i < SIGNALS; i++) {
        if (sigaction(signal_numbers[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN)
            continue; /* nohup and background shells mean it */
        (void)sigaction(signal_numbers[i], &action, NULL);
    }
    (void)signal(SIGPIPE, SIG_IGN);
    return OK;
}

static void drain(NodeServer *s)
{
    atomic_store(&s->draining, true);
    pthread_mutex_lock(&s->lock);
    while (s->first || s->running) pthread_cond_wait(&s->idle, &s->lock);
    pthread_mutex_unlock(&s->lock);
    /* What is finished still has to reach its readers. */
    struct timespec pause = {0, 20000000};
    for (int i = 0; i < FLUSH_S_MAX * 50 && http_server_busy(s->http); i++)
        (void)nanosleep(&pause, NULL);
}

void node_server_run(NodeServer *s)
{
    struct pollfd poll_for = {.fd = signal_fd, .events = POLLIN};
    serving = 1;
    while (!signals) (void)poll(&poll_for, 1, -1);
    drain(s);
}

void node_server_limit_bodies(NodeServer *s, size_t body_bytes_max, size_t bodies_bytes_max)
{
    s->body_bytes_max = body_bytes_max;
    http_server_limit_bodies(s->http, body_bytes_max, bodies_bytes_max);
}

/* ---- Opening and closing ---- */

static Error start(NodeServer *s, Why *why)
{
    const NodeServerOptions *o = &s->options;
    HttpServerOptions http = {
        .listen_fd = o->listen.fd,
        .connections_max = CONNECTIONS_MAX,
        .connection_bytes = CONNECTION_BYTES,
        .certificate_file = o->certificate_file,
        .certificate_key_file = o->certificate_key_file,
        .body_bytes_max = o->body_bytes_max,
        .bodies_bytes_max = o->bodies_bytes_max,
        .context = s,
        .head = take_head,
        .request = take_request,
        .gone = forget,
    };
    TRY(catch_signals(why));
    for (; s->thread_count < o->threads && s->thread_count < THREADS_MAX; s->thread_count++)
        if (pthread_create(&s->threads[s->thread_count], NULL, work, s) != 0)
            return error_why(why, ERR_MEMORY, "no thread for the node");
    s->options.listen.fd = -1;
    return http_server_open(&http, &s->http, why);
}

Error node_server_open(const NodeServerOptions *options, NodeServer **out, Why *why)
{
    NodeServer *s = calloc(1, sizeof *s);
    if (!s) {
        close(options->listen.fd);
        return error_why(why, ERR_MEMORY, "no memory for the node's server");
    }
    s->options = *options;
    s->body_bytes_max = options->body_bytes_max;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->news, NULL);
    pthread_cond_init(&s->idle, NULL);
    *out = s; /* requests may arrive before this function is left */
    Error error = start(s, why);
    if (error == OK) return OK;
    *out = NULL;
    node_server_close(s);
    return error;
}

void node_server_close(NodeServer *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_mutex_unlock(&s->lock);
    pthread_cond_broadcast(&s->news);
    for (uint32_t i = 0; i < s->thread_count; i++) (void)pthread_join(s->threads[i], NULL);
    while (s->first) {
        NodeJob *job = s->first;
        s->first = job->next;
        http_exchange_release(job->request.x);
        free(job);
    }
    http_server_close(s->http);
    if (s->options.listen.fd >= 0) close(s->options.listen.fd);
    pthread_cond_destroy(&s->news);
    pthread_cond_destroy(&s->idle);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
