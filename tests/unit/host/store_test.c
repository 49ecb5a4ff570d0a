/* SPDX-License-Identifier: Apache-2.0 */
/* A read of a store gets what it asked for or an error, whatever the server does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host/store.h"

/* ---- a server that does what the test says ---- */

enum { CONTENT_BYTES = 300000, BIG_BYTES = (8 << 20) + 4321 };

typedef enum Deed {
    GOOD,
    EVERYTHING,  /* 200 with the whole object */
    SHORT,       /* 206, a byte short, and says so */
    BROKEN,      /* 206, promises all, hangs up a byte early */
    SHIFTED,     /* another range, 4 bytes on, and says so */
    NO_RANGE,    /* 206 without Content-Range */
    WRONG_TOTAL, /* as if the object ended within the range, with all bytes */
    TOO_MANY,    /* 206 with one byte more, no length */
    ERROR_500,
    ERROR_503_LONG, /* with a text larger than what was asked for */
    ERROR_429,
    ERROR_403,
    ERROR_404,
    ERROR_400,
    REDIRECT,
    SILENT_CLOSE, /* takes the request, hangs up */
    GARBAGE,
    SLOW, /* a byte at a time, in time */
} Deed;

typedef struct Server {
    int listener, port;
    const Deed *deeds; /* one for each request, the last one for ever */
    size_t deed_count;
    size_t total; /* bytes of the object */
    atomic_uint requests, connections;
    char last[2048]; /* the last request's head, under the lock */
    pthread_mutex_t lock;
    pthread_t thread;
} Server;

static uint8_t *content;

static void make_content(void)
{
    content = malloc(BIG_BYTES);
    assert_non_null(content);
    uint32_t x = 12345;
    for (size_t i = 0; i < BIG_BYTES; i++) {
        x = x * 1664525 + 1013904223;
        content[i] = (uint8_t)(x >> 24);
    }
}

static bool say(int c, const void *bytes, size_t count)
{
    for (const uint8_t *at = bytes; count;) {
        ssize_t n = send(c, at, count, MSG_NOSIGNAL);
        if (n <= 0) return false;
        at += n;
        count -= (size_t)n;
    }
    return true;
}

static bool say_head(int c, const char *status, long long length, const char *more)
{
    char head[512];
    if (length >= 0)
        (void)snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Length: %lld\r\n%s\r\n", status,
                       length, more);
    else
        (void)snprintf(head, sizeof head, "HTTP/1.1 %s\r\nConnection: close\r\n%s\r\n", status,
                       more);
    return say(c, head, strlen(head));
}

static bool say_error(int c, const char *status, const char *code, const char *more)
{
    char text[3000];
    size_t n =
        (size_t)snprintf(text, sizeof text, "<?xml version=\"1.0\"?><Error><Code>%s</Code>", code);
    if (strcmp(status, "503 x") == 0) {
        memset(text + n, ' ', 2900 - n);
        n = 2900;
    }
    return say_head(c, status, (long long)n, more) && say(c, text, n);
}

/* One answer. Result  whether the connection stays. */
static bool act(Server *s, int c, Deed deed, size_t first, size_t last)
{
    char range[128];
    size_t bytes = last - first + 1, shift = deed == SHIFTED ? 4 : 0;
    size_t total = deed == WRONG_TOTAL ? first + bytes / 2 : s->total;
    (void)snprintf(range, sizeof range, "Content-Range: bytes %zu-%zu/%zu\r\n", first + shift,
                   last + shift - (deed == SHORT), total);
    switch (deed) {
    case GOOD:
    case WRONG_TOTAL:
    case SHIFTED:
        return say_head(c, "206 Partial Content", (long long)bytes, range) &&
               say(c, content + first + shift, bytes);
    case EVERYTHING:
        (void)(say_head(c, "200 OK", (long long)s->total, "") && say(c, content, s->total));
        return false;
    case SHORT:
        return say_head(c, "206 x", (long long)bytes - 1, range) &&
               say(c, content + first, bytes - 1);
    case BROKEN:
        (void)(say_head(c, "206 x", (long long)bytes, range) && say(c, content + first, bytes - 1));
        return false;
    case NO_RANGE:
        return say_head(c, "206 x", (long long)bytes, "") && say(c, content + first, bytes);
    case TOO_MANY:
        (void)(say_head(c, "206 x", -1, range) && say(c, content + first, bytes + 1));
        return false;
    case ERROR_500: return say_error(c, "500 x", "InternalError", "");
    case ERROR_503_LONG: return say_error(c, "503 x", "SlowDown", "");
    case ERROR_429: return say_error(c, "429 x", "TooMany", "Retry-After: 1\r\n");
    case ERROR_403: return say_error(c, "403 x", "SignatureDoesNotMatch", "");
    case ERROR_404: return say_error(c, "404 x", "NoSuchKey", "");
    case ERROR_400: return say_error(c, "400 x", "ExpiredToken", "");
    case REDIRECT:
        return say_error(c, "301 x", "PermanentRedirect", "Location: http://127.0.0.1:1/\r\n");
    case SILENT_CLOSE: return false;
    case GARBAGE: (void)say(c, "220 mail ready\r\n\r\n", 18); return false;
    case SLOW:
        if (!say_head(c, "206 x", (long long)bytes, range)) return false;
        for (size_t i = 0; i < bytes; i++) {
            if (!say(c, content + first + i, 1)) return false;
            (void)nanosleep(&(struct timespec){0, 1000000}, NULL);
        }
        return true;
    }
    return false;
}

static bool read_request(Server *s, int c, char *text)
{
    size_t used = 0;
    while (used < sizeof s->last - 1) {
        ssize_t n = recv(c, text + used, sizeof s->last - 1 - used, 0);
        if (n <= 0) return false;
        used += (size_t)n;
        text[used] = 0;
        if (!strstr(text, "\r\n\r\n")) continue;
        pthread_mutex_lock(&s->lock);
        memcpy(s->last, text, used + 1);
        pthread_mutex_unlock(&s->lock);
        return true;
    }
    return false;
}

static bool answer(Server *s, int c, const char *request)
{
    unsigned number = atomic_fetch_add(&s->requests, 1);
    Deed deed = s->deeds[number < s->deed_count ? number : s->deed_count - 1];
    size_t first = 0, last = 0;
    const char *range = strcasestr(request, "\r\nRange: bytes=");
    char *end = NULL;
    if (range) first = strtoul(range + 15, &end, 10);
    if (!range || *end != '-') return say_error(c, "400 x", "None", "");
    last = strtoul(end + 1, NULL, 10);
    if (first >= s->total) {
        char more[64];
        (void)snprintf(more, sizeof more, "Content-Range: bytes */%zu\r\n", s->total);
        return say_error(c, "416 x", "InvalidRange", more);
    }
    if (last >= s->total) last = s->total - 1;
    return act(s, c, deed, first, last);
}

typedef struct Connection {
    Server *server;
    int socket;
} Connection;

static void *serve_one(void *context)
{
    Connection *k = context;
    char text[sizeof k->server->last];
    while (read_request(k->server, k->socket, text) && answer(k->server, k->socket, text)) continue;
    close(k->socket);
    free(k);
    return NULL;
}

static void *serve(void *context)
{
    Server *s = context;
    for (int c; (c = accept(s->listener, NULL, NULL)) >= 0;) {
        Connection *k = malloc(sizeof *k);
        pthread_t thread;
        *k = (Connection){s, c};
        atomic_fetch_add(&s->connections, 1);
        (void)setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        if (pthread_create(&thread, NULL, serve_one, k) == 0) (void)pthread_detach(thread);
    }
    return NULL;
}

static Store *start(Server *s, const Deed *deeds, size_t count)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof a;
    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    s->deeds = deeds;
    s->deed_count = count;
    s->total = CONTENT_BYTES;
    s->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(s->listener, (void *)&a, sizeof a), 0);
    assert_int_equal(listen(s->listener, 64), 0);
    assert_int_equal(getsockname(s->listener, (void *)&a, &length), 0);
    s->port = ntohs(a.sin_port);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
    char where[64];
    Store *store;
    (void)snprintf(where, sizeof where, "http://127.0.0.1:%d/models/", s->port);
    assert_int_equal(store_open(where, &store, NULL), OK);
    return store;
}

/* The store first: its connections end with it. */
static void stop(Server *s, Store *store)
{
    store_close(store);
    (void)shutdown(s->listener, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->listener);
    (void)nanosleep(&(struct timespec){0, 20000000}, NULL);
}

/* ---- over HTTP ---- */

static void ranges_are_read(void **state)
{
    (void)state;
    static const Deed good[] = {GOOD};
    static const uint64_t ranges[][2] = {{0, 1},        {0, 100},      {CONTENT_BYTES - 1, 1},
                                         {12345, 2047}, {12345, 2048}, {0, CONTENT_BYTES},
                                         {7, 0}};
    Server s;
    Store *store = start(&s, good, 1);
    static uint8_t out[CONTENT_BYTES + 1];
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        memset(out, 0xa5, sizeof out);
        assert_int_equal(store_read(store, "a/b.knot", ranges[i][0], ranges[i][1], out, NULL), OK);
        assert_memory_equal(out, content + ranges[i][0], ranges[i][1]);
        assert_int_equal(out[ranges[i][1]], 0xa5);
    }
    assert_non_null(strstr(s.last, "GET /models/a/b.knot HTTP/1.1\r\n"));
    assert_null(strcasestr(s.last, "authorization"));
    assert_int_equal(atomic_load(&s.connections), 1); /* kept alive */
    uint64_t bytes = 0;
    assert_int_equal(store_size(store, "a b%c.knot", &bytes, NULL), OK);
    assert_int_equal(bytes, CONTENT_BYTES);
    assert_non_null(strstr(s.last, "GET /models/a%20b%25c.knot HTTP"));
    StoreCounters c = store_counters(store);
    assert_int_equal(c.reads, 6);
    assert_int_equal(c.bytes, 1 + 100 + 1 + 2047 + 2048 + CONTENT_BYTES);
    assert_int_equal(c.retries + c.failures, 0);
    assert_null(store_local_path(store, "x", (char *)out, sizeof out));
    stop(&s, store);
}

static void big_reads_go_in_pieces(void **state)
{
    (void)state;
    static const Deed deeds[] = {GOOD, BROKEN,
                                 GOOD}; /* the second piece comes twice, the first once */
    Server s;
    Store *store = start(&s, deeds, 3);
    s.total = BIG_BYTES;
    uint8_t *out = malloc(BIG_BYTES);
    assert_non_null(out);
    assert_int_equal(store_read(store, "big", 0, BIG_BYTES, out, NULL), OK);
    assert_memory_equal(out, content, BIG_BYTES);
    assert_int_equal(atomic_load(&s.requests), 3);
    free(out);
    stop(&s, store);
}

static void beyond_the_end(void **state)
{
    (void)state;
    static const Deed good[] = {GOOD};
    Server s;
    Store *store = start(&s, good, 1);
    uint8_t out[200];
    Why why;
    assert_int_equal(store_read(store, "x", CONTENT_BYTES, 1, out, &why), ERR_TRUNCATED);
    assert_non_null(strstr(why.text, "it has 300000"));
    assert_int_equal(store_read(store, "x", CONTENT_BYTES - 10, 100, out, &why), ERR_TRUNCATED);
    assert_int_equal(store_read(store, "x", CONTENT_BYTES + 50, 100, out, NULL), ERR_TRUNCATED);
    assert_int_equal(store_read(store, "x", UINT64_MAX - 5, 100, out, &why), ERR_RANGE);
    assert_int_equal(store_read(store, "x", INT64_MAX, 1, out, &why), ERR_RANGE);
    assert_int_equal(store_counters(store).retries, 0);
    s.total = 0; /* an empty object */
    uint64_t bytes = 9;
    assert_int_equal(store_size(store, "x", &bytes, &why), OK);
    assert_int_equal(bytes, 0);
    stop(&s, store);
}

/* One read against one server; many at once, since retries take seconds. */
typedef struct Lie {
    Deed deeds[3];
    size_t deed_count, bytes;
    Server server;
    Store *store;
    pthread_t thread;
    uint8_t out[4000];
    Error error;
    Why why;
} Lie;

static void *read_lie(void *context)
{
    Lie *l = context;
    l->error = store_read(l->store, "x", 1000, l->bytes, l->out, &l->why);
    return NULL;
}

static void start_lie(Lie *l)
{
    l->store = start(&l->server, l->deeds, l->deed_count);
    assert_int_equal(pthread_create(&l->thread, NULL, read_lie, l), 0);
}

static const struct {
    Deed deed;
    Error error; /* when it never ends */
    const char *says;
} lies[] = {
    {EVERYTHING, ERR_IO, "everything"},
    {SHORT, ERR_IO, "got 3999"},
    {BROKEN, ERR_UNREACHABLE, "broken"},
    {SHIFTED, ERR_IO, "from 1004 on"},
    {NO_RANGE, ERR_IO, "Content-Range"},
    {WRONG_TOTAL, ERR_IO, "got 4000"},
    {TOO_MANY, ERR_IO, "got more"},
    {ERROR_500, ERR_UNREACHABLE, "500, InternalError"},
    {ERROR_503_LONG, ERR_UNREACHABLE, "HTTP 503"},
    {ERROR_429, ERR_UNREACHABLE, "429"},
    {SILENT_CLOSE, ERR_UNREACHABLE, "broken"},
    {GARBAGE, ERR_UNREACHABLE, ""},
};
enum { LIES = sizeof lies / sizeof lies[0] };

/* Twice, then a good answer; through the small buffer, and past it. */
static void lies_are_found_out(void **state)
{
    (void)state;
    static Lie all[2 * LIES];
    for (size_t i = 0; i < 2 * LIES; i++) {
        Deed deed = lies[i / 2].deed;
        all[i] = (Lie){.deeds = {deed, deed, GOOD}, .deed_count = 3, .bytes = i % 2 ? 40 : 4000};
        start_lie(&all[i]);
    }
    for (size_t i = 0; i < 2 * LIES; i++) {
        Lie *l = &all[i];
        pthread_join(l->thread, NULL);
        if (l->error != OK) print_error("lie %d: %s\n", l->deeds[0], l->why.text);
        assert_int_equal(l->error, OK);
        assert_memory_equal(l->out, content + 1000, l->bytes);
        assert_int_equal(store_counters(l->store).retries, 2);
        stop(&l->server, l->store);
    }
}

static void lies_without_end_are_errors(void **state)
{
    (void)state;
    static Lie all[LIES];
    for (size_t i = 0; i < LIES; i++) {
        all[i] = (Lie){.deeds = {lies[i].deed}, .deed_count = 1, .bytes = 4000};
        start_lie(&all[i]);
    }
    for (size_t i = 0; i < LIES; i++) {
        Lie *l = &all[i];
        pthread_join(l->thread, NULL);
        assert_int_equal(l->error, lies[i].error);
        if (!strstr(l->why.text, lies[i].says)) print_error("%s\n", l->why.text);
        assert_true(strstr(l->why.text, lies[i].says) != NULL);
        assert_int_equal(store_counters(l->store).retries, 5);
        assert_int_equal(store_counters(l->store).failures, 1);
        assert_int_equal(atomic_load(&l->server.requests), 6);
        stop(&l->server, l->store);
    }
}

/* Answers that will be the same a second later are not asked for again. */
static void refusals_are_final(void **state)
{
    (void)state;
    static const struct {
        Deed deed;
        Error error;
    } cases[] = {
        {ERROR_403, ERR_KEY}, {ERROR_404, ERR_NOT_FOUND}, {ERROR_400, ERR_KEY}, {REDIRECT, ERR_IO}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Server s;
        Store *store = start(&s, &cases[i].deed, 1);
        uint8_t out[8];
        uint64_t bytes;
        Why why = {{0}};
        assert_int_equal(store_read(store, "some.knot", 0, 8, out, &why), cases[i].error);
        assert_non_null(strstr(why.text, "/models/some.knot"));
        assert_int_equal(store_size(store, "some.knot", &bytes, NULL), cases[i].error);
        assert_int_equal(atomic_load(&s.requests), 2);
        stop(&s, store);
    }
}

static void slow_is_not_dead(void **state)
{
    (void)state;
    static const Deed slow[] = {SLOW};
    Server s;
    Store *store = start(&s, slow, 1);
    uint8_t out[300];
    assert_int_equal(store_read(store, "x", 5, 300, out, NULL), OK);
    assert_memory_equal(out, content + 5, 300);
    assert_int_equal(store_counters(store).retries, 0);
    stop(&s, store);
}

/* Without ranges, what is wanted whole can still be had. */
static void everything_when_everything_is_wanted(void **state)
{
    (void)state;
    static const Deed deeds[] = {EVERYTHING};
    Server s;
    Store *store = start(&s, deeds, 1);
    static uint8_t out[CONTENT_BYTES];
    assert_int_equal(store_read(store, "x", 0, CONTENT_BYTES, out, NULL), OK);
    assert_memory_equal(out, content, CONTENT_BYTES);
    stop(&s, store);
}

static void proxies_are_not_used(void **state)
{
    (void)state;
    static const Deed good[] = {GOOD};
    Server s;
    assert_int_equal(setenv("http_proxy", "http://127.0.0.1:1", 1), 0);
    assert_int_equal(setenv("ALL_PROXY", "http://127.0.0.1:1", 1), 0);
    Store *store = start(&s, good, 1);
    uint8_t out[8];
    assert_int_equal(store_read(store, "x", 0, 8, out, NULL), OK);
    stop(&s, store);
    unsetenv("http_proxy");
    unsetenv("ALL_PROXY");
}

typedef struct Reader {
    Store *store;
    pthread_t thread;
    unsigned seed;
    Error error;
} Reader;

static void *read_much(void *context)
{
    Reader *r = context;
    uint8_t out[5000];
    for (int i = 0; i < 60 && r->error == OK; i++) {
        uint64_t offset = (r->seed = r->seed * 1103515245 + 12345) % 290000,
                 bytes = 1 + offset % 5000;
        r->error = store_read(r->store, "x", offset, bytes, out, NULL);
        if (r->error == OK && memcmp(out, content + offset, bytes) != 0) r->error = ERR_CHECKSUM;
    }
    return NULL;
}

static void many_threads(void **state)
{
    (void)state;
    static const Deed deeds[] = {GOOD, GOOD,      SHIFTED,    GOOD, BROKEN,
                                 GOOD, ERROR_500, EVERYTHING, GOOD};
    Server s;
    Store *store = start(&s, deeds, sizeof deeds / sizeof deeds[0]);
    Reader readers[24];
    for (unsigned i = 0; i < 24; i++) {
        readers[i] = (Reader){.store = store, .seed = i * 977};
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_much, &readers[i]), 0);
    }
    for (unsigned i = 0; i < 24; i++) {
        pthread_join(readers[i].thread, NULL);
        assert_int_equal(readers[i].error, OK);
    }
    assert_int_equal(store_counters(store).reads, 24 * 60);
    assert_int_equal(store_counters(store).retries, 4);
    stop(&s, store);
}

static void nobody_there(void **state)
{
    (void)state;
    Store *store;
    uint8_t out[8];
    Why why;
    assert_int_equal(store_open("http://127.0.0.1:1/x", &store, NULL), OK); /* asks nobody */
    assert_int_equal(store_read(store, "x", 0, 8, out, &why), ERR_UNREACHABLE);
    assert_int_equal(store_counters(store).retries, 5);
    store_close(store);
}

/* ---- a local directory ---- */

static void write_file(const char *path, size_t bytes)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(content, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static void local_directory(void **state)
{
    (void)state;
    char folder[] = "/tmp/cobord-store-XXXXXX", path[128], where[128], found[256];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/m.knot", folder);
    (void)snprintf(where, sizeof where, "file://%s", folder);
    write_file(path, 5000);
    Store *store, *other;
    Why why;
    uint8_t out[5000];
    uint64_t bytes = 0;
    assert_int_equal(store_open(folder, &store, NULL), OK);
    assert_int_equal(store_open(where, &other, NULL), OK);
    assert_int_equal(store_size(other, "m.knot", &bytes, NULL), OK);
    assert_int_equal(bytes, 5000);
    store_close(other);
    assert_int_equal(store_read(store, "m.knot", 0, 5000, out, NULL), OK);
    assert_memory_equal(out, content, 5000);
    assert_int_equal(store_read(store, "m.knot", 4999, 1, out, NULL), OK);
    assert_int_equal(out[0], content[4999]);
    assert_int_equal(store_read(store, "m.knot", 4999, 2, out, &why), ERR_TRUNCATED);
    assert_int_equal(store_read(store, "m.knot", 6000, 1, out, &why), ERR_TRUNCATED);
    assert_int_equal(store_read(store, "m.knot", UINT64_MAX, 2, out, &why), ERR_RANGE);
    assert_int_equal(store_read(store, "n.knot", 0, 1, out, &why), ERR_NOT_FOUND);
    assert_non_null(strstr(why.text, "n.knot"));
    assert_int_equal(store_read(store, "m.knot/x", 0, 1, out, &why), ERR_NOT_FOUND);
    assert_non_null(store_local_path(store, "m.knot", found, sizeof found));
    assert_string_equal(found, path);
    assert_null(store_local_path(store, "../m.knot", found, sizeof found));
    assert_null(store_local_path(store, "m.knot", found, 8));
    (void)unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody writes: must not hang */
    assert_int_equal(store_read(store, "m.knot", 0, 1, out, &why), ERR_NOT_FOUND);
    (void)unlink(path);
    StoreCounters c = store_counters(store);
    assert_int_equal(c.reads, 7);
    assert_int_equal(c.failures, 5);
    assert_int_equal(c.bytes, 5001);
    store_close(store);
    assert_int_equal(rmdir(folder), 0);
}

static void object_names(void **state)
{
    (void)state;
    static const char *const bad[] = {"",    "/etc/passwd", "..", "../x", "a/../../x", "a/..",
                                      "./x", "a//b",        "a/", "a\nb", "a\x7f",     "a\\b"};
    Store *store;
    uint8_t out[1];
    uint64_t bytes;
    char name[600], path[4096];
    assert_int_equal(store_open("/", &store, NULL), OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(store_read(store, bad[i], 0, 1, out, NULL), ERR_USAGE);
        assert_int_equal(store_size(store, bad[i], &bytes, NULL), ERR_USAGE);
        assert_null(store_local_path(store, bad[i], path, sizeof path));
    }
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = 0;
    assert_int_equal(store_read(store, name, 0, 1, out, NULL), ERR_USAGE);
    store_close(store);
}

static void addresses(void **state)
{
    (void)state;
    static const struct {
        const char *where;
        Error error;
    } cases[] = {
        {"", ERR_USAGE},
        {"/nonexistent", ERR_USAGE},
        {"/dev/null", ERR_USAGE},
        {"s3:", ERR_USAGE},
        {"s3://", ERR_USAGE},
        {"s3:///x", ERR_USAGE},
        {"s3://no/x", ERR_USAGE},
        {"s3://buck et/x", ERR_USAGE},
        {"s3://bucket", OK},
        {"s3://bucket/a/b/", OK},
        {"https://", ERR_USAGE},
        {"https:///x", ERR_USAGE},
        {"https://user:secret@host/x", ERR_USAGE},
        {"https://host/x?token=secret", ERR_USAGE},
        {"https://host", OK},
        {"gs://bucket/x", ERR_UNSUPPORTED},
        {"ftp://host/x", ERR_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Store *store = NULL;
        Why why = {{0}};
        assert_int_equal(store_open(cases[i].where, &store, &why), cases[i].error);
        assert_null(strstr(why.text, "secret"));
        if (cases[i].error == OK) store_close(store);
        else assert_true(why.text[0] != 0);
    }
}

/* ---- S3 ---- */

static void clean_environment(void)
{
    static const char *const names[] = {"COBORD_S3_ENDPOINT",    "AWS_REGION",
                                        "AWS_DEFAULT_REGION",    "AWS_ACCESS_KEY_ID",
                                        "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unsetenv(names[i]);
}

static void requests_are_signed(void **state)
{
    (void)state;
    static const Deed deeds[] = {GOOD, ERROR_403};
    Server s;
    Store *plain = start(&s, deeds, 2), *store;
    char endpoint[64];
    (void)snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", s.port);
    setenv("COBORD_S3_ENDPOINT", endpoint, 1);
    setenv("AWS_ACCESS_KEY_ID", "me", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "hush", 1);
    setenv("AWS_SESSION_TOKEN", "passing", 1);
    assert_int_equal(store_open("s3://bucket/pre fix/", &store, NULL), OK);
    clean_environment();
    uint8_t out[8];
    Why why = {{0}};
    assert_int_equal(store_read(store, "a.knot", 16, 8, out, NULL), OK);
    assert_memory_equal(out, content + 16, 8);
    assert_non_null(strstr(s.last, "GET /bucket/pre%20fix/a.knot HTTP"));
    assert_non_null(strstr(s.last, "\r\nAuthorization: AWS4-HMAC-SHA256 Credential=me/"));
    assert_non_null(strstr(s.last, "\r\nx-amz-security-token: passing\r\n"));
    assert_null(strstr(s.last, "hush"));
    assert_int_equal(store_read(store, "a.knot", 16, 8, out, &why), ERR_KEY);
    assert_non_null(strstr(why.text, "s3://bucket/pre fix/a.knot"));
    assert_non_null(strstr(why.text, "SignatureDoesNotMatch"));
    assert_null(strstr(why.text, "hush"));
    assert_null(strstr(why.text, "passing"));
    store_close(store);
    stop(&s, plain);
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    make_content();
    clean_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_read),
        cmocka_unit_test(big_reads_go_in_pieces),
        cmocka_unit_test(beyond_the_end),
        cmocka_unit_test(lies_are_found_out),
        cmocka_unit_test(lies_without_end_are_errors),
        cmocka_unit_test(refusals_are_final),
        cmocka_unit_test(slow_is_not_dead),
        cmocka_unit_test(everything_when_everything_is_wanted),
        cmocka_unit_test(proxies_are_not_used),
        cmocka_unit_test(many_threads),
        cmocka_unit_test(nobody_there),
        cmocka_unit_test(local_directory),
        cmocka_unit_test(object_names),
        cmocka_unit_test(addresses),
        cmocka_unit_test(requests_are_signed),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(content);
    return failed;
}
