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

#include "api/node_about.h"
#include "api/node_gate.h"
#include "host/clock.h"
#include "host/log.h"
#include "host/memory.h"
#include "host/process.h"
#include "host/spans.h"
#include "wire/node_error.h"

/* All connections together take 4.3 MiB at most, bodies apart: part of what host/node_memory.c sets aside. */
enum {
    CONNECTIONS_MAX = 256,
    CONNECTION_BYTES = 16 << 10,
    TEXT_BYTES = 16 << 10,
    OWN_BYTES = 48 << 10, /* of /metrics */
    ROUTES_MAX = 16,
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
    NodeGateRoute routes[ROUTES_MAX]; /* those of the options */
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
    MetricsTimes times[ROUTES_MAX]; /* of each route, from head to end */
    atomic_ullong requests, refused, failed, abandoned, unauthorized;
};

/* ---- Answers ---- */

static void reply(HttpExchange *x, unsigned status, const char *type, const char *allow,
                  const void *bytes, size_t count)
{
    HttpReply r = {status, type, allow, node_gate_retry_s(status)};
    http_reply(x, &r, bytes, count);
}

static void reply_error(NodeServer *s, HttpExchange *x, unsigned status, const char *allow,
                        Error error, const Why *why)
{
    char body[NODE_ERROR_BYTES_MAX];
    size_t bytes = node_error_write(error, why, body);
    atomic_fetch_add(status == 500 ? &s->failed : &s->refused, 1);
    reply(x, status, NODE_GATE_JSON, allow, body, bytes);
}

static void refuse_why(NodeServer *s, HttpExchange *x, Error error, const Why *why)
{
    reply_error(s, x, node_error_status(error), NULL, error, why);
}

static void refuse(NodeServer *s, HttpExchange *x, Error error, const char *what)
{
    Why why;
    error = error_why(&why, error, "%s", what);
    refuse_why(s, x, error, &why);
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
    HttpReply head = {status, type, NULL, node_gate_retry_s(status)};
    http_reply_take(r->x, &head, bytes, count);
}

void node_server_reply_error(NodeRequest *r, Error error, const Why *why)
{
    ASSERT(!r->replied);
    r->replied = true;
    reply_error(server_of(r), r->x, node_error_status(error), NULL, error, why);
}

/* ---- What the HTTP thread answers itself ---- */

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
    reply(x, ready ? 200 : 503, NODE_GATE_JSON, NULL, text, strlen(text));
    free(text);
}

static void write_times(NodeServer *s, JsonWriter *w)
{
    static const char name[] = "cobord_node_request_seconds";
    metrics_head(w, name, "From a call's head to the end of its answer.", METRICS_HISTOGRAM);
    for (uint32_t i = 0; i < s->options.route_count; i++)
        metrics_times_write(w, name,
                            &(MetricsLabels){"route", s->options.routes[i].path, "method",
                                             s->options.routes[i].method},
                            &s->times[i]);
}

static void write_own_metrics(NodeServer *s, JsonWriter *w)
{
    pthread_mutex_lock(&s->lock);
    uint32_t waiting = s->waiting, running = s->running;
    pthread_mutex_unlock(&s->lock);
    NodeFigures f = {
        .requests = s->requests,
        .refused = s->refused,
        .failed = s->failed,
        .unauthorized = s->unauthorized,
        .abandoned = s->abandoned,
        .queue = waiting,
        .running = running,
        .connections = http_server_connections(s->http),
        .shed = http_server_shed(s->http),
        .draining = node_server_draining(s),
        .memory_bytes = memory_resident(),
        .memory_peak_bytes = memory_peak(),
    };
    MetricsProcess process;
    process_figures(&process);
    process.budget_bytes = s->options.memory_bytes;
    node_about_figures(&f, w);
    metrics_process(w, &process, s->options.version, s->options.role);
    write_times(s, w);
}

static void answer_metrics(NodeServer *s, HttpExchange *x)
{
    char *text = malloc(OWN_BYTES + TEXT_BYTES);
    if (!text) {
        refuse(s, x, ERR_MEMORY, "no memory for the answer");
        return;
    }
    JsonWriter w = json_writer_make(text, OWN_BYTES);
    write_own_metrics(s, &w);
    ASSERT(!w.full);
    text[w.used] = '\0';
    if (s->options.metrics) s->options.metrics(s->options.context, text + w.used, TEXT_BYTES);
    reply(x, 200, NODE_GATE_METRICS_TEXT, NULL, text, strlen(text));
    free(text);
}

/* ---- Heads: who may, and what there is ---- */

static void look(const NodeServer *s, const HttpExchange *x, const char *key,
                 uint64_t body_bytes_max, NodeGatePass *out)
{
    NodeGate gate = {s->routes, s->options.route_count, key, body_bytes_max};
    NodeGateHead head = {http_exchange_method(x), http_exchange_path(x),
                         http_exchange_header(x, "Authorization"), http_exchange_announced(x)};
    node_gate_look(&gate, &head, out);
}

static void take_head(void *context, HttpExchange *x)
{
    NodeServer *s = context;
    NodeGatePass pass;
    http_exchange_set_tag(x, s);
    (void)trace_continue(http_exchange_header(x, "traceparent"), spans_number(),
                         &http_exchange_record(x)->trace);
    look(s, x, s->options.key, s->body_bytes_max, &pass);
    switch (pass.kind) {
    case NODE_GATE_ROUTE: return;
    case NODE_GATE_HEALTH:
        reply(x, 200, NODE_GATE_JSON, NULL, NODE_GATE_HEALTH_BODY,
              sizeof NODE_GATE_HEALTH_BODY - 1);
        return;
    case NODE_GATE_READY: answer_ready(s, x); return;
    case NODE_GATE_METRICS: answer_metrics(s, x); return;
    case NODE_GATE_REFUSED:
        if (pass.error == ERR_KEY) atomic_fetch_add(&s->unauthorized, 1);
        reply_error(s, x, pass.status, pass.allow, pass.error, &pass.why);
        return;
    }
}

static void take_malformed(void *context, HttpExchange *x, const char *fault)
{
    refuse(context, x, ERR_FORMAT, fault);
}

/* ---- Requests: into the queue ---- */

static NodeJob *make_job(NodeServer *s, HttpExchange *x)
{
    NodeGatePass pass;
    const char *values[HEADERS];
    size_t bytes = NODE_GATE_QUERY_BYTES;
    look(s, x, NULL, UINT64_MAX, &pass); /* it was let in when its head came */
    ASSERT(pass.kind == NODE_GATE_ROUTE);
    for (size_t i = 0; i < HEADERS; i++) {
        values[i] = http_exchange_header(x, header_names[i]);
        if (values[i]) bytes += strlen(values[i]) + 1;
    }
    NodeJob *job = calloc(1, sizeof *job + bytes);
    if (!job) return NULL;
    job->route = &s->options.routes[pass.route];
    job->request = (NodeRequest){.x = x, .tail = pass.tail, .query = job->texts};
    char *to = job->texts + NODE_GATE_QUERY_BYTES;
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
    Why why;
    if (!http_exchange_body(x, &body, &bytes, &memory)) {
        if (memory) refuse(s, x, ERR_AGAIN, "no room for the body now");
        else refuse_why(s, x, node_gate_body_too_large(s->body_bytes_max, &why), &why);
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
    bool fits = http_exchange_query(x, job->texts, NODE_GATE_QUERY_BYTES);
    if (fits && enqueue(s, job)) return;
    free(job);
    Error error = fits ? node_gate_queue_full(&why) : node_gate_query_too_long(&why);
    refuse_why(s, x, error, &why);
}

/* Nobody has it any more. */
static void take_over(void *context, HttpExchange *x, const HttpOver *over)
{
    NodeServer *s = context;
    const char *path = http_exchange_path(x);
    uint64_t took_ns = over->end_ns - over->begin_ns;
    for (uint32_t i = 0; i < s->options.route_count; i++) {
        const char *route = s->options.routes[i].path;
        size_t bytes = strlen(route);
        if (strncmp(path, route, bytes) == 0 && (!path[bytes] || route[bytes - 1] == '/'))
            metrics_times_add(&s->times[i], took_ns);
    }
    if (!log_wants(LOG_DEBUG)) return;
    log_entry(&(LogEntry){.level = LOG_DEBUG,
                          .event = "call",
                          .method = http_exchange_method(x),
                          .path = path,
                          .status = over->status,
                          .us = took_ns / 1000,
                          .trace = &http_exchange_record(x)->trace,
                          .error = over->gone ? "client_left" : NULL});
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
        if (s->options.threads == 1) spans_enter(&http_exchange_record(x)->trace);
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

static atomic_int signals, serving, signal_fd = -1; /* a handler runs in any thread */
static const int signal_numbers[] = {SIGINT, SIGTERM, SIGHUP};
enum { SIGNALS = sizeof signal_numbers / sizeof signal_numbers[0] };

void node_server_stop(void)
{
    uint64_t one = 1;
    signals = 1;
    if (write(signal_fd, &one, sizeof one) < 0) return; /* it is full of news already */
}

static void take_signal(int number)
{
    int saved = errno;
    if (signals || !serving) _exit(128 + number);
    node_server_stop();
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
    uint64_t until_ns = clock_now_ns() + s->options.drain_s * UINT64_C(1000000000);
    bool late = false;
    while ((s->first || s->running) && !late)
        late = !clock_wait_until(&s->idle, &s->lock, until_ns);
    pthread_mutex_unlock(&s->lock);
    if (late) log_say(LOG_ERROR, "what was begun is not done after %u s", s->options.drain_s);
    /* What is finished still has to reach its readers. */
    struct timespec pause = {0, 20000000};
    for (int i = 0; i < FLUSH_S_MAX * 50 && http_server_busy(s->http); i++)
        (void)nanosleep(&pause, NULL);
}

void node_server_begin(void) { serving = 1; }

void node_server_run(NodeServer *s)
{
    struct pollfd poll_for = {.fd = signal_fd, .events = POLLIN};
    while (!signals) (void)poll(&poll_for, 1, -1);
    drain(s);
}

void node_server_limit_bodies(NodeServer *s, size_t body_bytes_max, size_t bodies_bytes_max)
{
    s->body_bytes_max = body_bytes_max;
    http_server_limit_bodies(s->http, body_bytes_max, bodies_bytes_max);
}

/* ---- Opening and closing ---- */

/* As node_error_write has it. */
static const char no_memory[] =
    "{\"error\":{\"message\":\"not enough memory for the answer\",\"type\":\"node_error\","
    "\"param\":null,\"code\":\"memory\",\"retryable\":true}}";

static Error start(NodeServer *s, Why *why)
{
    const NodeServerOptions *o = &s->options;
    HttpServerOptions http = {
        .listen_fd = o->listen.fd,
        .no_memory = no_memory,
        .connections_max = CONNECTIONS_MAX,
        .connection_bytes = CONNECTION_BYTES,
        .certificate_file = o->certificate_file,
        .certificate_key_file = o->certificate_key_file,
        .body_bytes_max = o->body_bytes_max,
        .bodies_bytes_max = o->bodies_bytes_max,
        .context = s,
        .head = take_head,
        .malformed = take_malformed,
        .request = take_request,
        .gone = forget,
        .over = take_over,
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
    ASSERT(options->route_count <= ROUTES_MAX);
    for (uint32_t i = 0; i < options->route_count; i++)
        s->routes[i] = (NodeGateRoute){options->routes[i].method, options->routes[i].path};
    s->body_bytes_max = options->body_bytes_max;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->news, NULL);
    clock_condition(&s->idle);
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
