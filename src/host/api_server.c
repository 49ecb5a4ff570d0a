/* SPDX-License-Identifier: Apache-2.0 */
#include "host/api_server.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "api/request.h"
#include "host/clock.h"
#include "host/hangup.h"
#include "host/http.h"
#include "host/log.h"
#include "host/web_files.h"

enum {
    INTAKE_THREADS = 2,
    FLUSH_S_MAX = 10,
    FLUSH_HURRIED_S_MAX = 1, /* of the flush, after a second signal */
    CONNECTIONS_MAX = 1024,
    BODIES_BYTES_MAX = 64 << 20
};

struct ApiServer {
    ApiServerOptions options;
    Serve *serve;
    HttpServer *http;
    int wake_fd;
    bool draining, given_up;
    uint64_t drain_end_ns;
    /* of the threads that read requests, under `lock` */
    pthread_mutex_t lock;
    pthread_cond_t news;
    size_t waiting; /* requests that nobody has begun to read */
    bool closing;
    pthread_t threads[INTAKE_THREADS];
    uint32_t thread_count;
};

/* ---- Signals: the first drains, the second reaches the engine through the handler that was there
 * before, which ends the process at the third. ---- */

static atomic_int signals, signal_fd = -1; /* a handler runs in any thread */
static const int signal_numbers[] = {SIGINT, SIGTERM, SIGHUP};
enum { SIGNALS = sizeof signal_numbers / sizeof signal_numbers[0] };
static struct sigaction signals_before[SIGNALS];

static void take_signal(int number)
{
    int saved = errno;
    uint64_t one = 1;
    if (signals++)
        for (size_t i = 0; i < SIGNALS; i++)
            if (signal_numbers[i] == number && signals_before[i].sa_handler != SIG_DFL)
                signals_before[i].sa_handler(number);
    if (write(signal_fd, &one, sizeof one) != sizeof one) errno = saved;
    errno = saved;
}

static void catch_signals(int fd)
{
    signal_fd = fd;
    struct sigaction action = {.sa_handler = take_signal};
    for (size_t i = 0; i < SIGNALS; i++) {
        (void)sigaction(signal_numbers[i], NULL, &signals_before[i]);
        if (signals_before[i].sa_handler != SIG_IGN)
            (void)sigaction(signal_numbers[i], &action, NULL);
    }
}

static void release_signals(void)
{
    for (size_t i = 0; i < SIGNALS; i++)
        (void)sigaction(signal_numbers[i], &signals_before[i], NULL);
    signal_fd = -1;
}

static void notice_signal(ApiServer *a)
{
    if (!signals || a->draining) return;
    a->draining = true;
    uint32_t left = serve_drain(a->serve);
    a->drain_end_ns = clock_now_ns() + a->options.drain_s * 1000000000ull;
    if (!left) log_say(LOG_INFO, "stopping");
    else
        log_say(LOG_INFO,
                "stopping when %u answer%s done, in %u s at the latest; once more to stop at once",
                left, left == 1 ? " is" : "s are", a->options.drain_s);
}

/* Answers that take too long end here, each with the reason; also who entered the queue a moment later. */
static void notice_late(ApiServer *a)
{
    if (!a->draining || clock_now_ns() < a->drain_end_ns) return;
    bool first = !a->given_up;
    uint32_t left = serve_give_up(a->serve);
    a->given_up = true;
    if (left && first)
        log_say(LOG_ERROR, "%u answer%s not done after %u s: ended", left, left == 1 ? "" : "s",
                a->options.drain_s);
}

/* ---- Keys ---- */

static Error load_keys(ApiServer *a, Why *why)
{
    Why warning;
    TRY(access_load(&a->options.access, a->serve, &warning, why));
    if (warning.text[0]) log_say(LOG_INFO, "%s", warning.text);
    return OK;
}

/* What is wrong with the new file is no reason to let nobody, or everybody, in. */
static void notice_hangup(ApiServer *a)
{
    Why why = {{0}};
    if (!a->options.access.keys_file || !hangup_take()) return;
    if (load_keys(a, &why) == OK)
        log_say(LOG_INFO, "%u API keys were read again", serve_count_keys(a->serve));
    else log_say(LOG_ERROR, "the API keys stay as they were: %s", why.text);
}

/* ---- The engine's thread ---- */

static void wake(void *host)
{
    uint64_t one = 1;
    if (write(((ApiServer *)host)->wake_fd, &one, sizeof one) != sizeof one)
        return; /* full: it is awake */
}

static void sleep_until_news(ApiServer *a, int timeout_ms)
{
    struct pollfd news = {.fd = a->wake_fd, .events = POLLIN};
    uint64_t count;
    if (poll(&news, 1, timeout_ms) == 1 && read(a->wake_fd, &count, sizeof count) != sizeof count)
        return;
}

/* What is finished, or was ended with a word about it, still has to reach its readers. */
static void flush(ApiServer *a)
{
    uint64_t begin_ns = clock_now_ns();
    for (;;) {
        uint64_t max_s = signals < 2 ? FLUSH_S_MAX : FLUSH_HURRIED_S_MAX;
        if (!http_server_busy(a->http) || clock_now_ns() - begin_ns >= max_s * 1000000000ull)
            return;
        sleep_until_news(a, 50);
    }
}

void api_server_run(ApiServer *a)
{
    for (;;) {
        notice_signal(a);
        notice_hangup(a);
        notice_late(a);
        ServeTurn turn = serve_turn(a->serve);
        if (turn == SERVE_OVER) break;
        if (turn == SERVE_IDLE) sleep_until_news(a, 1000);
    }
    flush(a);
}

/* ---- Threads that read requests ---- */

static void intake(void *host)
{
    ApiServer *a = host;
    pthread_mutex_lock(&a->lock);
    a->waiting++;
    pthread_cond_signal(&a->news);
    pthread_mutex_unlock(&a->lock);
}

/* Waits for a request. Result  false: there will be none. */
static bool take_one(ApiServer *a)
{
    pthread_mutex_lock(&a->lock);
    while (!a->waiting && !a->closing) pthread_cond_wait(&a->news, &a->lock);
    bool any = a->waiting > 0;
    if (any) a->waiting--;
    pthread_mutex_unlock(&a->lock);
    return any;
}

static void *work(void *server)
{
    ApiServer *a = server;
    while (take_one(a)) (void)serve_intake_take(a->serve);
    return NULL;
}

static Error start_threads(ApiServer *a, Why *why)
{
    for (; a->thread_count < INTAKE_THREADS; a->thread_count++)
        if (pthread_create(&a->threads[a->thread_count], NULL, work, a) != 0)
            return error_why(why, ERR_NOT_AVAILABLE, "no thread for requests");
    return OK;
}

static void stop_threads(ApiServer *a)
{
    pthread_mutex_lock(&a->lock);
    a->closing = true;
    pthread_cond_broadcast(&a->news);
    pthread_mutex_unlock(&a->lock);
    while (a->thread_count) pthread_join(a->threads[--a->thread_count], NULL);
}

/* ---- Opening and closing ---- */

static uint32_t connections(void *host)
{
    return http_server_connections(((ApiServer *)host)->http);
}

static uint64_t shed(void *host) { return http_server_shed(((ApiServer *)host)->http); }

static void take_head(void *server, HttpExchange *x)
{
    serve_routes_head(((ApiServer *)server)->serve, x);
}

static void take_malformed(void *server, HttpExchange *x, const char *fault)
{
    char body[512];
    int bytes = snprintf(body, sizeof body,
                         "{\"error\":{\"message\":\"%s\",\"type\":\"invalid_request_error\","
                         "\"param\":null,\"code\":\"invalid_http\",\"retryable\":false}}",
                         fault);
    (void)server;
    http_exchange_record(x)->error = "invalid_http";
    http_reply(x, &(HttpReply){.status = 400, .type = "application/json"}, body, (size_t)bytes);
}

static void take_request(void *server, HttpExchange *x)
{
    serve_routes_request(((ApiServer *)server)->serve, x);
}

static void wake_for(void *server, HttpExchange *x)
{
    (void)x;
    serve_wake(((ApiServer *)server)->serve);
}

static void take_over(void *server, HttpExchange *x, const HttpOver *over)
{
    serve_over(((ApiServer *)server)->serve, x, over);
}

/* As REFUSAL_MEMORY has it. */
static const char no_memory[] =
    "{\"error\":{\"message\":\"not enough memory for the answer\",\"type\":\"overloaded_error\","
    "\"param\":null,\"code\":\"out_of_memory\",\"retryable\":true}}";

static Error open_http(ApiServer *a, Why *why)
{
    ApiServerOptions *o = &a->options;
    HttpServerOptions http = {
        .listen_fd = o->listen.fd,
        .no_memory = no_memory,
        .connections_max = CONNECTIONS_MAX,
        .body_bytes_max = REQUEST_BODY_BYTES_MAX,
        .bodies_bytes_max = o->bodies_bytes_max ? o->bodies_bytes_max : BODIES_BYTES_MAX,
        .certificate_file = o->certificate_file,
        .certificate_key_file = o->certificate_key_file,
        .stream_bytes_low = SERVE_STREAM_RESUME_BYTES,
        .stream_bytes_max = SERVE_STREAM_BYTES_MAX,
        .context = a,
        .head = take_head,
        .malformed = take_malformed,
        .request = take_request,
        .gone = wake_for,
        .drained = wake_for,
        .over = take_over,
    };
    TRY(start_threads(a, why));
    o->listen.fd = -1;
    return http_server_open(&http, &a->http, why);
}

static Error open_serve(ApiServer *a, Why *why)
{
    a->options.serve.host = (ServeHost){
        .host = a, .wake = wake, .intake = intake, .connections = connections, .shed = shed};
    a->options.serve.page = &web_files;
    a->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (a->wake_fd < 0) return error_why(why, ERR_MEMORY, "no memory for the server");
    if (a->options.listen.loopback && !a->options.certificate_file)
        a->options.serve.name = a->options.listen.name;
    a->options.serve.cors = a->options.access.cors;
    TRY(serve_open(&a->options.serve, &a->serve, why));
    return a->options.access.keys_file ? load_keys(a, why) : OK;
}

Error api_server_open(const ApiServerOptions *options, ApiServer **out, Why *why)
{
    ApiServer *a = calloc(1, sizeof *a);
    if (!a) return error_why(why, ERR_MEMORY, "no memory for the server");
    a->options = *options;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->news, NULL);
    Error error = open_serve(a, why);
    if (error == OK) catch_signals(a->wake_fd); /* before anybody learns that it serves */
    if (error == OK && a->options.access.keys_file) hangup_watch();
    if (error == OK) error = open_http(a, why);
    if (error == OK) *out = a;
    else api_server_close(a);
    return error;
}

void api_server_close(ApiServer *a)
{
    if (!a) return;
    if (signal_fd >= 0) release_signals();
    if (a->serve) (void)serve_drain(a->serve);
    stop_threads(a);
    if (a->serve) serve_end(a->serve);
    http_server_close(a->http);
    if (a->options.listen.fd >= 0) close(a->options.listen.fd);
    if (a->wake_fd >= 0) close(a->wake_fd);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->news);
    serve_close(a->serve);
    free(a);
}
