/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of libmicrohttpd: requests in, answers out. The watcher: http_watch.c. One lock for all
 * of a server's state; it is held for copies of a few KiB at most, and never while a callback runs.
 * Suspending happens under it, so that who resumes always comes after. */
#include "host/http.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/clock.h"
#include "host/http_state.h"
#include "serve/machine.h"

enum {
    BLOCK_BYTES = 16 << 10,
    CONNECTION_BYTES = 64 << 10,
    BODY_AT_ONCE_BYTES = 64 << 10,
    DROPPED_BODY_BYTES_MAX = 64 << 20,
    IDLE_S = 60
};

/* ---- Exchanges ----------------------------------------------------------------------------------------------- */

static void lock(const HttpExchange *x) { pthread_mutex_lock(&x->server->lock); }
static void unlock(const HttpExchange *x) { pthread_mutex_unlock(&x->server->lock); }

const char *http_exchange_method(const HttpExchange *x) { return x->method; }
const char *http_exchange_path(const HttpExchange *x) { return x->path; }
uint64_t http_exchange_announced(const HttpExchange *x) { return x->announced; }
void http_exchange_set_tag(HttpExchange *x, void *tag) { x->tag = tag; }
void *http_exchange_tag(const HttpExchange *x) { return x->tag; }
HttpRecord *http_exchange_record(HttpExchange *x) { return &x->record; }

const char *http_exchange_header(const HttpExchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

typedef struct QueryText {
    char *out;
    size_t room, used;
    bool full;
} QueryText;

static enum MHD_Result add_argument(void *context, enum MHD_ValueKind kind, const char *name,
                                    const char *value)
{
    QueryText *q = context;
    (void)kind;
    int n = snprintf(q->out + q->used, q->room - q->used, "%s%s%s%s", q->used ? "&" : "", name,
                     value ? "=" : "", value ? value : "");
    q->full = n < 0 || (size_t)n >= q->room - q->used;
    if (!q->full) q->used += (size_t)n;
    return q->full ? MHD_NO : MHD_YES;
}

bool http_exchange_query(const HttpExchange *x, char *out, size_t room)
{
    QueryText q = {.out = out, .room = room};
    *out = '\0';
    (void)MHD_get_connection_values(x->connection, MHD_GET_ARGUMENT_KIND, add_argument, &q);
    return !q.full;
}

bool http_exchange_body(const HttpExchange *x, const uint8_t **bytes, size_t *count, bool *memory)
{
    *bytes = (const uint8_t *)x->body;
    *count = x->body_bytes;
    *memory = x->body_no_memory;
    return !x->body_too_large && !x->body_no_memory;
}

static void drop_body(HttpExchange *x)
{
    x->server->bodies_bytes -= x->body_room;
    free(x->body);
    x->body = NULL;
    x->body_bytes = x->body_room = 0;
}

void http_exchange_drop_body(HttpExchange *x)
{
    lock(x);
    drop_body(x);
    unlock(x);
}

bool http_exchange_gone(HttpExchange *x)
{
    lock(x);
    bool gone = x->gone;
    unlock(x);
    return gone;
}

void http_exchange_keep(HttpExchange *x)
{
    lock(x);
    x->references++;
    unlock(x);
}

/* Of what was asked whole, or refused by its head. */
static void tell_over(HttpExchange *x)
{
    HttpOver over = {.status = x->answered ? x->reply.status : 0,
                     .gone = x->lost,
                     .begin_ns = x->begin_ns,
                     .end_ns = x->end_ns};
    x->server->options.over(x->server->options.context, x, &over);
}

void http_exchange_release(HttpExchange *x)
{
    lock(x);
    bool last = --x->references == 0;
    if (last) drop_body(x);
    unlock(x);
    if (!last) return;
    if ((x->complete || x->answered) && x->server->options.over) tell_over(x);
    free(x->reply_body);
    answer_headers_free(&x->headers);
    free(x->out);
    free(x);
}

void http_wake_locked(HttpExchange *x)
{
    if (!x->suspended) return;
    x->suspended = false;
    MHD_resume_connection(x->connection);
}

/* ---- Answers ------------------------------------------------------------------------------------------------- */

bool http_answer_header(HttpExchange *x, const char *line)
{
    return answer_headers_add(&x->headers, line);
}

void http_reply_take(HttpExchange *x, const HttpReply *reply, char *body, size_t bytes)
{
    lock(x);
    ASSERT(!x->answered);
    x->answered = true;
    x->reply = *reply;
    x->reply_body = body;
    x->reply_bytes = bytes;
    http_wake_locked(x);
    unlock(x);
}

/* Words that need none. */
static void reply_no_memory(HttpExchange *x)
{
    http_reply_take(x, &(HttpReply){503, "application/json", NULL, 1}, NULL,
                    strlen(x->server->options.no_memory));
}

void http_reply(HttpExchange *x, const HttpReply *reply, const char *body, size_t bytes)
{
    char *copy = bytes ? malloc(bytes) : NULL;
    if (copy) memcpy(copy, body, bytes);
    if (copy || !bytes) http_reply_take(x, reply, copy, bytes);
    else reply_no_memory(x);
}

void http_stream_begin(HttpExchange *x, const char *type, const char *idle, unsigned idle_s)
{
    lock(x);
    ASSERT(!x->answered);
    x->answered = x->streams = true;
    x->reply = (HttpReply){.status = 200, .type = type};
    x->idle = idle;
    x->idle_ns = idle_s * 1000000000ull;
    x->written_ns = clock_now_ns();
    http_wake_locked(x);
    unlock(x);
}

/* Room for `count` more bytes behind what waits. */
static bool make_room(HttpExchange *x, size_t count)
{
    size_t waiting = x->out_end - x->out_at;
    if (count > x->server->options.stream_bytes_max - waiting) return false;
    if (x->out_at && (x->out_room - x->out_end < count || !waiting)) {
        memmove(x->out, x->out + x->out_at, waiting);
        x->out_at = 0;
        x->out_end = waiting;
    }
    if (x->out_room - x->out_end >= count) return true;
    size_t room = 2 * (waiting + count) + 4096;
    char *grown = realloc(x->out, room);
    if (!grown) return false;
    x->out = grown;
    x->out_room = room;
    return true;
}

bool http_stream_write_locked(HttpExchange *x, const void *bytes, size_t count)
{
    if (x->gone || x->out_ended || !make_room(x, count)) return false;
    if (count) memcpy(x->out + x->out_end, bytes, count);
    x->out_end += count;
    x->written_ns = clock_now_ns();
    http_wake_locked(x);
    return true;
}

bool http_stream_write(HttpExchange *x, const void *bytes, size_t count)
{
    lock(x);
    bool fine = http_stream_write_locked(x, bytes, count);
    unlock(x);
    return fine;
}

size_t http_stream_pending(HttpExchange *x)
{
    lock(x);
    size_t waiting = x->out_end - x->out_at;
    unlock(x);
    return waiting;
}

void http_stream_end(HttpExchange *x)
{
    lock(x);
    x->out_ended = true;
    http_wake_locked(x);
    unlock(x);
}

/* Of a stream whose client left. After END_WITH_ERROR libmicrohttpd 0.9.75 keeps the connection until all older ones
 * have ended or timed out; after a write that fails it lets go at once. Nobody takes this for a whole answer. */
static ssize_t end_line(const HttpExchange *x)
{
    if (!x->line) return MHD_CONTENT_READER_END_WITH_ERROR;
    (void)shutdown(x->line->fd, SHUT_RDWR);
    return MHD_CONTENT_READER_END_OF_STREAM;
}

/* libmicrohttpd wants more of a stream. */
static ssize_t read_stream(void *context, uint64_t position, char *to, size_t max)
{
    HttpExchange *x = context;
    (void)position;
    lock(x);
    size_t waiting = x->out_end - x->out_at, low = x->server->options.stream_bytes_low;
    size_t count = waiting < max ? waiting : max;
    bool drained = waiting >= low && waiting - count < low;
    ssize_t result = (ssize_t)count;
    if (count) {
        memcpy(to, x->out + x->out_at, count);
        x->out_at += count;
    } else if (x->out_ended) {
        result = MHD_CONTENT_READER_END_OF_STREAM;
    } else if (x->gone) {
        result = end_line(x);
    } else {
        MHD_suspend_connection(x->connection);
        x->suspended = true;
    }
    unlock(x);
    if (drained && x->server->options.drained)
        x->server->options.drained(x->server->options.context, x);
    return result;
}

static struct MHD_Response *make_response(HttpExchange *x)
{
    if (x->streams)
        return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, x,
                                                 NULL);
    struct MHD_Response *r = MHD_create_response_from_buffer(
        x->reply_bytes,
        x->reply_body ? x->reply_body : (char *)(uintptr_t)x->server->options.no_memory,
        x->reply_body ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (r) x->reply_body = NULL;
    return r;
}

/* The lines become names and values where they stand; libmicrohttpd copies them. */
static void add_headers(struct MHD_Response *r, AnswerHeaders *headers)
{
    for (char *at = headers->text, *end; at && *at; at = end + 1) {
        char *colon = strchr(at, ':');
        end = strchr(at, '\n');
        *colon = *end = '\0';
        MHD_add_response_header(r, at, colon + 2);
    }
}

static void begin_replying(HttpExchange *x)
{
    lock(x);
    x->line->replying = true;
    x->line->since_ns = x->line->sent_ns = clock_now_ns();
    unlock(x);
}

static enum MHD_Result queue_answer(HttpExchange *x)
{
    char digits[12];
    struct MHD_Response *r = make_response(x);
    if (!r) return MHD_NO;
    if (x->reply.type) MHD_add_response_header(r, "Content-Type", x->reply.type);
    add_headers(r, &x->headers);
    if (x->streams) MHD_add_response_header(r, "Cache-Control", "no-store");
    if (x->reply.status == 401) MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    if (x->reply.allow) MHD_add_response_header(r, "Allow", x->reply.allow);
    if (x->reply.retry_s) {
        (void)snprintf(digits, sizeof digits, "%u", x->reply.retry_s);
        MHD_add_response_header(r, "Retry-After", digits);
    }
    enum MHD_Result result = MHD_queue_response(x->connection, x->reply.status, r);
    MHD_destroy_response(r);
    if (x->line && !x->streams) begin_replying(x);
    return result;
}

/* ---- Requests ------------------------------------------------------------------------------------------------ */

static uint64_t read_length(const char *text)
{
    if (!text || *text < '0' || *text > '9') return 0;
    errno = 0;
    return strtoull(text, NULL, 10); /* too large reads as the largest */
}

static HttpExchange *make_exchange(HttpServer *server, struct MHD_Connection *connection,
                                   const char *path, const char *method)
{
    HttpExchange *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    *x = (HttpExchange){
        .server = server, .connection = connection, .references = 1, .begin_ns = clock_now_ns()};
    if (strlen(path) < sizeof x->path) (void)snprintf(x->path, sizeof x->path, "%s", path);
    (void)snprintf(x->method, sizeof x->method, "%s", method);
    x->announced = read_length(http_exchange_header(x, "Content-Length"));
    x->line =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    pthread_mutex_lock(&server->lock);
    x->serial = ++server->serial;
    x->next = server->exchanges;
    if (x->next) x->next->before = x;
    server->exchanges = x;
    if (x->line) x->line->since_ns = clock_now_ns(), x->line->in_body = true;
    bool closing = server->closing;
    pthread_mutex_unlock(&server->lock);
    x->gone = closing;
    return x;
}

/* An answer before the body ends the connection: nothing behind this head is taken for a request. */
static enum MHD_Result refuse_framing(HttpExchange *x, const char *fault)
{
    (void)answer_headers_add(&x->headers, "Connection: close");
    x->server->options.malformed(x->server->options.context, x, fault);
    return queue_answer(x);
}

static enum MHD_Result begin_request(HttpServer *server, struct MHD_Connection *connection,
                                     const char *path, const char *method, const char *version,
                                     void **context)
{
    HttpExchange *x = make_exchange(server, connection, path, method);
    if (!x) return MHD_NO;
    *context = x;
    if (x->gone) return MHD_NO;
    const char *fault = http_framing_fault(connection, version);
    if (fault) return refuse_framing(x, fault);
    server->options.head(server->options.context, x);
    /* A client that asks first, or brings too much, hears the refusal now; others when their body has been read. */
    bool now = http_exchange_header(x, "Expect") || x->announced > DROPPED_BODY_BYTES_MAX;
    return x->answered && now ? queue_answer(x) : MHD_YES;
}

/* Twice what has come, but no more than was announced. Not all of that at once: who sends one byte of eight megabytes
 * would hold the room of everybody else. A small body has its place at the first byte. */
static size_t body_room(const HttpExchange *x, size_t needed)
{
    size_t room = 2 * needed;
    if (needed > x->announced) return room; /* in chunks */
    if (room < BODY_AT_ONCE_BYTES) room = BODY_AT_ONCE_BYTES;
    return x->announced < room ? (size_t)x->announced : room;
}

static bool grow_body(HttpExchange *x, size_t count)
{
    const HttpServerOptions *o = &x->server->options;
    size_t needed = x->body_bytes + count;
    if (needed <= x->body_room) return true;
    size_t room = body_room(x, needed);
    size_t others = x->server->bodies_bytes - x->body_room;
    char *grown = others + room <= o->bodies_bytes_max ? realloc(x->body, room) : NULL;
    if (!grown) return false;
    x->server->bodies_bytes = others + room;
    x->body = grown;
    x->body_room = room;
    return true;
}

static enum MHD_Result take_body(HttpExchange *x, const char *bytes, size_t *count)
{
    size_t n = *count;
    *count = 0;
    x->body_read += n;
    if (x->body_read > DROPPED_BODY_BYTES_MAX) return MHD_NO;
    if (x->answered || x->body_too_large || x->body_no_memory) return MHD_YES;
    lock(x);
    if (x->body_bytes + n > x->server->options.body_bytes_max) {
        x->body_too_large = true;
        drop_body(x);
    } else if (!grow_body(x, n)) {
        x->body_no_memory = true;
        drop_body(x);
    } else {
        memcpy(x->body + x->body_bytes, bytes, n);
        x->body_bytes += n;
    }
    unlock(x);
    return MHD_YES;
}

/* Called when the request is whole, and again after each resume until there is an answer. */
static enum MHD_Result end_request(HttpExchange *x)
{
    if (!x->complete) {
        lock(x);
        x->complete = true;
        if (x->line) x->line->busy = true;
        http_watch_locked(x);
        unlock(x);
        if (!x->answered) x->server->options.request(x->server->options.context, x);
    }
    lock(x);
    bool gone = x->gone, answered = x->answered;
    if (!gone && !answered) {
        MHD_suspend_connection(x->connection);
        x->suspended = true;
    }
    unlock(x);
    if (gone) return MHD_NO;
    return answered ? queue_answer(x) : MHD_YES;
}

static enum MHD_Result access_request(void *context, struct MHD_Connection *connection,
                                      const char *path, const char *method, const char *version,
                                      const char *upload, size_t *upload_bytes, void **exchange)
{
    if (!*exchange) return begin_request(context, connection, path, method, version, exchange);
    return *upload_bytes ? take_body(*exchange, upload, upload_bytes) : end_request(*exchange);
}

/* The answer has left, or the connection ended. */
static void completed(void *context, struct MHD_Connection *connection, void **exchange,
                      enum MHD_RequestTerminationCode code)
{
    HttpServer *server = context;
    HttpExchange *x = *exchange;
    (void)connection;
    if (!x) return;
    pthread_mutex_lock(&server->lock);
    http_watch_end_locked(x);
    if (x->next) x->next->before = x->before;
    if (x->before) x->before->next = x->next;
    else server->exchanges = x->next;
    if (x->line) {
        x->line->busy = x->line->in_body = x->line->replying = false;
        x->line->served |= x->body_read && x->answered && x->reply.status / 100 == 2;
        x->line->since_ns = clock_now_ns();
    }
    bool lost = !x->gone && x->complete && code != MHD_REQUEST_TERMINATED_COMPLETED_OK;
    x->lost = code != MHD_REQUEST_TERMINATED_COMPLETED_OK || !x->answered ||
              (x->streams && (!x->out_ended || x->out_at < x->out_end));
    x->end_ns = clock_now_ns();
    x->gone = true;
    x->suspended = false;
    pthread_mutex_unlock(&server->lock);
    if (lost) server->options.gone(server->options.context, x);
    http_exchange_release(x);
    *exchange = NULL;
}

/* ---- Connections --------------------------------------------------------------------------------------------- */

/* A peer that is no more, without a word: probes find out in a minute, unread bytes too. */
static void set_patience(int fd)
{
    int on = 1, idle_s = 30, between_s = 10, probes = 3, unread_ms = IDLE_S * 1000;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof between_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unread_ms, sizeof unread_ms);
}

static void add_line(HttpServer *server, struct MHD_Connection *connection, void **slot)
{
    HttpLine *line = calloc(1, sizeof *line);
    *slot = line;
    if (!line) return;
    line->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    line->address = http_crowd_address(
        server->crowd_seed,
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr);
    line->since_ns = clock_now_ns();
    set_patience(line->fd);
    pthread_mutex_lock(&server->lock);
    line->next = server->lines;
    if (line->next) line->next->before = line;
    server->lines = line;
    server->line_count++;
    http_crowd_shed_locked(server, line);
    pthread_mutex_unlock(&server->lock);
}

static void remove_line(HttpServer *server, HttpLine *line)
{
    if (!line) return;
    pthread_mutex_lock(&server->lock);
    if (line->next) line->next->before = line->before;
    if (line->before) line->before->next = line->next;
    else server->lines = line->next;
    server->line_count--;
    server->shed_count -= line->shed;
    pthread_mutex_unlock(&server->lock);
    free(line);
}

static void notify_connection(void *context, struct MHD_Connection *connection, void **slot,
                              enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED) add_line(context, connection, slot);
    else remove_line(context, *slot);
}

/* ---- Opening and closing ------------------------------------------------------------------------------------- */

static void ignore_log(void *context, const char *format, va_list arguments)
{
    (void)context, (void)format,
        (void)arguments; /* what clients do wrong is their answer's matter */
}

static Error start(HttpServer *s, Why *why)
{
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME |
                     MHD_USE_ERROR_LOG;
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->stop_fd = eventfd(0, EFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 0};
    if (s->epoll_fd < 0 || s->stop_fd < 0 ||
        epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->stop_fd, &event) != 0)
        return error_why(why, ERR_IO, "epoll: %s", strerror(errno));
    TRY(http_tls_read(&s->tls, &s->options, why));
    if (s->tls.certificate) flags |= MHD_USE_TLS;
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, s->tls.certificate},
                                   {MHD_OPTION_HTTPS_MEM_KEY, 0, s->tls.key},
                                   {MHD_OPTION_END, 0, NULL}};
    if (!s->tls.certificate) tls[0] = tls[2];
    size_t connection_bytes = s->options.connection_bytes;
    s->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, access_request, s, MHD_OPTION_EXTERNAL_LOGGER, ignore_log, NULL,
        MHD_OPTION_LISTEN_SOCKET, s->options.listen_fd, MHD_OPTION_NOTIFY_COMPLETED, completed, s,
        MHD_OPTION_NOTIFY_CONNECTION, notify_connection, s, MHD_OPTION_CONNECTION_LIMIT,
        s->options.connections_max, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        connection_bytes ? connection_bytes : (size_t)CONNECTION_BYTES, MHD_OPTION_ARRAY, tls,
        MHD_OPTION_END);
    http_tls_forget(&s->tls);
    if (!s->daemon)
        return error_why(why, ERR_IO, "the HTTP server cannot start: %s", strerror(errno));
    if (pthread_create(&s->watcher, NULL, http_watch, s) != 0)
        return error_why(why, ERR_IO, "no thread for the HTTP server");
    s->watcher_runs = true;
    return OK;
}

Error http_server_open(const HttpServerOptions *options, HttpServer **out, Why *why)
{
    HttpServer *s = calloc(1, sizeof *s);
    if (!s) {
        close(options->listen_fd);
        return error_why(why, ERR_MEMORY, "no memory for the HTTP server");
    }
    s->options = *options;
    s->options.connections_max = http_crowd_room(options->connections_max);
    s->crowd_seed = machine_random();
    s->epoll_fd = s->stop_fd = -1;
    pthread_mutex_init(&s->lock, NULL);
    *out = s; /* requests may arrive before this function is left */
    Error error = start(s, why);
    if (error == OK) return OK;
    *out = NULL;
    http_server_close(s);
    return error;
}

uint32_t http_server_busy(HttpServer *s)
{
    uint32_t count = 0;
    pthread_mutex_lock(&s->lock);
    for (const HttpExchange *x = s->exchanges; x; x = x->next) count += x->complete;
    pthread_mutex_unlock(&s->lock);
    return count;
}

uint64_t http_server_shed(HttpServer *s)
{
    pthread_mutex_lock(&s->lock);
    uint64_t count = s->shed_total;
    pthread_mutex_unlock(&s->lock);
    return count;
}

uint32_t http_server_connections(HttpServer *s)
{
    pthread_mutex_lock(&s->lock);
    uint32_t count = s->line_count;
    pthread_mutex_unlock(&s->lock);
    return count;
}

void http_server_limit_bodies(HttpServer *s, size_t body_bytes_max, size_t bodies_bytes_max)
{
    pthread_mutex_lock(&s->lock);
    s->options.body_bytes_max = body_bytes_max;
    s->options.bodies_bytes_max = bodies_bytes_max;
    pthread_mutex_unlock(&s->lock);
}

void http_server_close(HttpServer *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    for (HttpExchange *x = s->exchanges; x; x = x->next) {
        x->gone = true;
        http_wake_locked(x);
    }
    pthread_mutex_unlock(&s->lock);
    uint64_t one = 1;
    (void)!write(s->stop_fd, &one, sizeof one); /* when this fails, the watcher sees `closing` */
    if (s->watcher_runs) pthread_join(s->watcher, NULL);
    if (s->daemon) MHD_stop_daemon(s->daemon);
    else close(s->options.listen_fd);
    if (s->epoll_fd >= 0) close(s->epoll_fd);
    if (s->stop_fd >= 0) close(s->stop_fd);
    pthread_mutex_destroy(&s->lock);
    http_tls_forget(&s->tls);
    free(s);
}
