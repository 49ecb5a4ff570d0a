/* SPDX-License-Identifier: Apache-2.0 */
/* The client against a server of this file: threads, one a connection, that do what the path says.
 *
 *   /echo    the body back           /head    the request's head back
 *   /slow    answers after 2 s       /half    100 bytes announced, 10 sent, closed
 *   /close   no answer, closed       /stale   an answer, and closed without saying so
 *   /big     70,000 bytes, announced /chunks  the same, in chunks
 *   /range   206 with Content-Range  /503     status 503 with a body */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/http_client.h"

enum { HEAD_MAX = 8192, BIG = 70000 };

static atomic_int connections;
static uint16_t port;

/* ---- The server ---- */

static void send_all(int fd, const void *bytes, size_t count)
{
    for (size_t sent = 0; sent < count;) {
        ssize_t n = send(fd, (const char *)bytes + sent, count - sent, MSG_NOSIGNAL);
        if (n <= 0) return;
        sent += (size_t)n;
    }
}

static void reply(int fd, const char *status, const char *headers, const void *body, size_t bytes)
{
    char head[512];
    int n = snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n%s\r\n", status,
                     bytes, headers);
    send_all(fd, head, (size_t)n);
    send_all(fd, body, bytes);
}

static void send_chunks(int fd)
{
    static char piece[7000];
    static const char head[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    send_all(fd, head, sizeof head - 1);
    for (int i = 0; i < 10; i++) {
        send_all(fd, "1b58\r\n", 6);
        send_all(fd, piece, sizeof piece);
        send_all(fd, "\r\n", 2);
    }
    send_all(fd, "0\r\n\r\n", 5);
}

/* Result  false when the connection ends. */
static bool answer(int fd, const char *head, const char *body, size_t bytes)
{
    static char big[BIG];
    const char *path = strchr(head, ' ') + 1;
    bool is_head = strncmp(head, "HEAD ", 5) == 0;
    if (strncmp(path, "/echo", 5) == 0) {
        reply(fd, "200 OK", "", body, bytes);
    } else if (strncmp(path, "/head", 5) == 0) {
        reply(fd, "200 OK", "", head, strlen(head));
    } else if (strncmp(path, "/slow", 5) == 0) {
        usleep(2000000);
        reply(fd, "200 OK", "", "late", 4);
    } else if (strncmp(path, "/half", 5) == 0) {
        send_all(fd, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789", 50);
        return false;
    } else if (strncmp(path, "/stale", 6) == 0) {
        reply(fd, "200 OK", "", "bye", 3);
        return false;
    } else if (strncmp(path, "/big", 4) == 0) {
        reply(fd, "200 OK", "", big, is_head ? 0 : BIG);
    } else if (strncmp(path, "/chunks", 7) == 0) {
        send_chunks(fd);
    } else if (strncmp(path, "/range", 6) == 0) {
        reply(fd, "206 Partial Content", "content-RANGE: bytes 10-14/70000\r\n", "01234", 5);
    } else if (strncmp(path, "/size", 5) == 0) {
        send_all(fd, "HTTP/1.1 200 OK\r\nContent-Length: 123456789\r\n\r\n", 46);
    } else if (strncmp(path, "/503", 4) == 0) {
        reply(fd, "503 Service Unavailable", "Retry-After: 1\r\n", "busy", 4);
    } else {
        return false;
    }
    return true;
}

static size_t body_bytes_of(const char *head)
{
    const char *length = strstr(head, "Content-Length: ");
    return length ? strtoul(length + 16, NULL, 10) : 0;
}

/* One connection, request after request. */
static void *serve(void *context)
{
    int fd = (int)(intptr_t)context, one = 1;
    char *head = malloc(HEAD_MAX), *body = malloc(1 << 20);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (;;) {
        size_t used = 0, got = 0;
        char *end = NULL;
        while (!end && used < HEAD_MAX - 1) {
            ssize_t n = recv(fd, head + used, HEAD_MAX - 1 - used, 0);
            if (n <= 0) goto out;
            used += (size_t)n;
            head[used] = 0;
            end = strstr(head, "\r\n\r\n");
        }
        if (!end) break;
        got = used - (size_t)(end + 4 - head);
        memcpy(body, end + 4, got);
        end[4] = 0;
        size_t bytes = body_bytes_of(head);
        while (got < bytes) {
            ssize_t n = recv(fd, body + got, bytes - got, 0);
            if (n <= 0) goto out;
            got += (size_t)n;
        }
        if (!answer(fd, head, body, bytes)) break;
    }
out:
    close(fd);
    free(head);
    free(body);
    return NULL;
}

static void *take_connections(void *context)
{
    int listener = (int)(intptr_t)context;
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0;) {
        pthread_t thread;
        connections++;
        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd) == 0) pthread_detach(thread);
    }
    return NULL;
}

static int start_server(void **state)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof a;
    pthread_t thread;
    (void)state;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(listener, 64), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &bytes), 0);
    port = ntohs(a.sin_port);
    int started = pthread_create(&thread, NULL, take_connections, (void *)(intptr_t)listener);
    assert_int_equal(started, 0);
    pthread_detach(thread);
    return 0;
}

/* ---- The client's side ---- */

typedef struct Asked {
    HttpCall call;
    char url[128];
    uint8_t answer[80000];
} Asked;

static Asked *ask(const char *method, const char *path)
{
    Asked *a = calloc(1, sizeof *a);
    snprintf(a->url, sizeof a->url, "http://127.0.0.1:%u%s", port, path);
    a->call = (HttpCall){.method = method,
                         .url = a->url,
                         .deadline_ms = 10000,
                         .answer = a->answer,
                         .answer_room = sizeof a->answer};
    return a;
}

static bool direct; /* all of it is asked of both ways */

static HttpClient *open_client(const char *key)
{
    HttpClient *c = NULL;
    Why why = {{0}};
    HttpClientOptions options = {.key = key, .direct = direct};
    assert_int_equal(http_client_open(&options, &c, &why), OK);
    return c;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void keeps_connections(void **state)
{
    (void)state;
    HttpClient *c = open_client(NULL);
    Asked *a = ask("POST", "/echo");
    int before = connections;
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t parts[2] = {i, i * 7};
        a->call.parts[0] = &parts[0];
        a->call.parts[1] = &parts[1];
        a->call.part_bytes[0] = a->call.part_bytes[1] = 4;
        http_client_run(c, &a->call);
        assert_int_equal(a->call.error, OK);
        assert_int_equal(a->call.status, 200);
        assert_int_equal(a->call.answer_bytes, 8);
        assert_memory_equal(a->answer, parts, 8);
    }
    assert_int_equal(connections - before, 1);
    http_client_close(c);
    free(a);
}

/* Gathered, from one part, and read from both by turns. */
static void sends_bodies_of_every_size(void **state)
{
    (void)state;
    static const size_t sizes[][2] = {{0, 0},         {1, 0},
                                      {0, 1},         {100, 6144},
                                      {49152, 0},     {1, 49151},
                                      {1, 49152},     {49153, 0},
                                      {65536, 1},     {1, 65536},
                                      {70000, 0},     {0, 70000},
                                      {30000, 40000}, {65535, 65537 - 60000}};
    HttpClient *c = open_client(NULL);
    Asked *a = ask("POST", "/echo");
    uint8_t *bytes = malloc(200000);
    for (size_t i = 0; i < 200000; i++) bytes[i] = (uint8_t)(i * 31 + i / 251);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t first = sizes[i][0], second = sizes[i][1];
        a->call.parts[0] = bytes;
        a->call.parts[1] = bytes + 100000;
        a->call.part_bytes[0] = first;
        a->call.part_bytes[1] = second;
        http_client_run(c, &a->call);
        assert_int_equal(a->call.error, OK);
        assert_int_equal(a->call.answer_bytes, first + second);
        assert_memory_equal(a->answer, bytes, first);
        assert_memory_equal(a->answer + first, bytes + 100000, second);
    }
    http_client_close(c);
    free(bytes);
    free(a);
}

static void says_what_it_was_told(void **state)
{
    (void)state;
    HttpClient *c = open_client("s3cret");
    static const char *const methods[] = {"GET", "DELETE", "PUT", "POST", "GET"};
    Asked *a = ask("GET", "/head/a/../b?x=%20y");
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        bool body = methods[i][0] == 'P';
        char line[64];
        a->call.method = methods[i];
        a->call.headers[0] = "X-Knot-Id: 17";
        a->call.headers[1] = i == 3 ? "Content-Type: application/json" : NULL;
        http_client_run(c, &a->call);
        assert_int_equal(a->call.status, 200);
        a->answer[a->call.answer_bytes] = 0;
        const char *head = (const char *)a->answer;
        snprintf(line, sizeof line, "%s /head/a/../b?x=%%20y HTTP/1.1\r\n", methods[i]);
        assert_ptr_equal(strstr(head, line), head);
        assert_non_null(strstr(head, "\r\nX-Knot-Id: 17\r\n"));
        assert_non_null(strstr(head, "\r\nAuthorization: Bearer s3cret\r\n"));
        assert_null(strstr(head, "Expect"));
        assert_int_equal(strstr(head, "application/octet-stream") != NULL, body && i != 3);
        assert_int_equal(strstr(head, "application/json") != NULL, i == 3);
        assert_int_equal(strstr(head, "Content-Length: 0\r\n") != NULL, body);
    }
    http_client_close(c);
    free(a);
}

static void reads_ranges(void **state)
{
    (void)state;
    if (direct) return; /* stores answer with ranges, nodes do not */
    HttpClient *c = open_client(NULL);
    Asked *a = ask("GET", "/range"), *b = ask("HEAD", "/size"), *e = ask("GET", "/echo");
    http_client_run(c, &a->call);
    assert_int_equal(a->call.status, 206);
    assert_int_equal(a->call.range_first, 10);
    assert_int_equal(a->call.range_bytes_total, 70000);
    http_client_run(c, &b->call);
    assert_int_equal(b->call.error, OK);
    assert_int_equal(b->call.range_bytes_total, 123456789);
    assert_int_equal(b->call.answer_bytes, 0);
    http_client_run(c, &e->call);
    assert_int_equal(e->call.range_bytes_total, 0);
    http_client_close(c);
    free(a);
    free(b);
    free(e);
}

static void any_status_is_an_answer(void **state)
{
    (void)state;
    HttpClient *c = open_client(NULL);
    Asked *a = ask("POST", "/503");
    http_client_run(c, &a->call);
    assert_int_equal(a->call.error, OK);
    assert_int_equal(a->call.status, 503);
    assert_int_equal(a->call.answer_bytes, 4);
    http_client_close(c);
    free(a);
}

static void keeps_deadlines(void **state)
{
    (void)state;
    HttpClient *c = open_client(NULL);
    Asked *slow = ask("POST", "/slow"), *fast = ask("GET", "/echo");
    slow->call.deadline_ms = 200;
    double start = seconds();
    http_client_start(c, &slow->call);
    http_client_start(c, &fast->call);
    assert_ptr_equal(http_client_wait(c, 5000), &fast->call);
    assert_ptr_equal(http_client_wait(c, 5000), &slow->call);
    double took = seconds() - start;
    assert_true(took >= 0.19 && took < 1.5);
    assert_int_equal(slow->call.error, ERR_UNREACHABLE);
    assert_non_null(strstr(slow->call.why.text, "too late"));
    assert_non_null(strstr(slow->call.why.text, slow->url));
    http_client_close(c);
    free(slow);
    free(fast);
}

static void tells_failures_apart(void **state)
{
    (void)state;
    HttpClient *c = open_client(NULL);
    Asked *refused = ask("POST", "/echo"), *half = ask("GET", "/half"),
          *none = ask("GET", "/close"), *url = ask("GET", "/echo");
    snprintf(refused->url, sizeof refused->url, "http://127.0.0.1:1/echo");
    http_client_run(c, &refused->call);
    assert_int_equal(refused->call.error, ERR_UNREACHABLE);
    assert_non_null(strstr(refused->call.why.text, "no connection"));
    http_client_run(c, &half->call);
    assert_int_equal(half->call.error, ERR_UNREACHABLE);
    assert_non_null(strstr(half->call.why.text, "broken off"));
    http_client_run(c, &none->call);
    assert_int_equal(none->call.error, ERR_UNREACHABLE);
    snprintf(url->url, sizeof url->url, "file:///etc/hostname");
    http_client_run(c, &url->call);
    assert_int_equal(url->call.error, ERR_UNREACHABLE);
    assert_int_equal(url->call.answer_bytes, 0);
    http_client_close(c);
    free(refused);
    free(half);
    free(none);
    free(url);
}

/* A kept connection that the server closed is replaced without a word, large bodies too. */
static void replaces_a_stale_connection(void **state)
{
    (void)state;
    HttpClient *c = open_client(NULL);
    Asked *a = ask("POST", "/stale");
    static uint8_t bytes[2][70000];
    a->call.parts[0] = bytes[0];
    a->call.parts[1] = bytes[1];
    for (int i = 0; i < 50; i++) {
        a->call.part_bytes[0] = a->call.part_bytes[1] = i % 2 ? 70000 : 100;
        http_client_run(c, &a->call);
        assert_int_equal(a->call.error, OK);
        assert_int_equal(a->call.answer_bytes, 3);
    }
    http_client_close(c);
    free(a);
}

static void bounds_answers(void **state)
{
    (void)state;
    HttpClient *c = open_client(NULL);
    static const char *const paths[] = {"/big", "/chunks"};
    for (int i = 0; i < (direct ? 1 : 2); i++) { /* nodes' answers have a length */
        Asked *a = ask("GET", paths[i]);
        a->call.answer_room = BIG - 1;
        http_client_run(c, &a->call);
        assert_int_equal(a->call.error, ERR_TOO_LARGE);
        a->call.answer_room = BIG;
        http_client_run(c, &a->call);
        assert_int_equal(a->call.error, OK);
        assert_int_equal(a->call.answer_bytes, BIG);
        a->call.answer_room = 0;
        http_client_run(c, &a->call);
        assert_int_equal(a->call.error, ERR_TOO_LARGE);
        a->call.answer = NULL;
        http_client_run(c, &a->call);
        assert_int_equal(a->call.error, OK);
        assert_int_equal(a->call.answer_bytes, 0);
        free(a);
    }
    http_client_close(c);
}

static void cancels(void **state)
{
    (void)state;
    HttpClient *c = open_client(NULL);
    Asked *slow = ask("POST", "/slow"), *done = ask("GET", "/echo");
    double start = seconds();
    http_client_start(c, &slow->call);
    assert_null(http_client_wait(c, 50));
    http_client_cancel(c, &slow->call);
    http_client_cancel(c, &slow->call);
    assert_ptr_equal(http_client_wait(c, 5000), &slow->call);
    assert_int_equal(slow->call.error, ERR_CANCELLED);
    assert_null(http_client_wait(c, 0));
    http_client_run(c, &done->call);
    http_client_cancel(c, &done->call);
    assert_int_equal(done->call.error, OK);
    assert_null(http_client_wait(c, 0));
    assert_true(seconds() - start < 1.5);
    /* what is under way at the end is forgotten */
    http_client_start(c, &slow->call);
    assert_null(http_client_wait(c, 20));
    http_client_close(c);
    free(slow);
    free(done);
}

static void *wake_soon(void *client)
{
    usleep(100000);
    http_client_wake(client);
    return NULL;
}

static void wakes(void **state)
{
    (void)state;
    HttpClient *c = open_client(NULL);
    Asked *slow = ask("POST", "/slow");
    for (int busy = 0; busy < 2; busy++) {
        pthread_t thread;
        double start = seconds();
        if (busy) http_client_start(c, &slow->call);
        assert_int_equal(pthread_create(&thread, NULL, wake_soon, c), 0);
        assert_null(http_client_wait(c, 5000));
        pthread_join(thread, NULL);
        double took = seconds() - start;
        assert_true(took > 0.09 && took < 1.5);
    }
    http_client_wake(c); /* before the wait */
    double start = seconds();
    assert_null(http_client_wait(c, 5000));
    assert_true(seconds() - start < 1.5);
    start = seconds();
    assert_null(http_client_wait(c, 100)); /* and only once */
    assert_true(seconds() - start > 0.09);
    http_client_close(c);
    free(slow);
}

static void many_at_once(void **state)
{
    (void)state;
    enum { MANY = 100 };
    HttpClient *c = open_client(NULL);
    static Asked *a[MANY];
    uint32_t ended = 0;
    for (int i = 0; i < MANY; i++) {
        a[i] = ask(i % 3 ? "POST" : "GET", i % 7 ? "/echo" : "/half");
        a[i]->call.tag = a[i];
        http_client_start(c, &a[i]->call);
    }
    for (HttpCall *call; ended < MANY && (call = http_client_wait(c, 10000)) != NULL; ended++)
        call->tag = NULL;
    assert_int_equal(ended, MANY);
    for (int i = 0; i < MANY; i++) {
        assert_null(a[i]->call.tag);
        assert_int_equal(a[i]->call.error, i % 7 ? OK : ERR_UNREACHABLE);
        free(a[i]);
    }
    http_client_close(c);
}

static void uses_no_proxy(void **state)
{
    (void)state;
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
    HttpClient *c = open_client(NULL);
    Asked *a = ask("GET", "/echo");
    http_client_run(c, &a->call);
    assert_int_equal(a->call.error, OK);
    http_client_close(c);
    unsetenv("http_proxy");
    unsetenv("ALL_PROXY");
    free(a);
}

static void refuses_options(void **state)
{
    (void)state;
    HttpClient *c = NULL;
    Why why = {{0}};
    static char key[1000];
    memset(key, 'k', sizeof key - 1);
    HttpClientOptions no_file = {.ca_file = "/no/such/file"}, long_key = {.key = key};
    assert_int_equal(http_client_open(&no_file, &c, &why), ERR_IO);
    assert_non_null(strstr(why.text, "/no/such/file"));
    assert_int_equal(http_client_open(&long_key, &c, &why), ERR_TOO_LARGE);
    http_client_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_connections),
        cmocka_unit_test(sends_bodies_of_every_size),
        cmocka_unit_test(says_what_it_was_told),
        cmocka_unit_test(reads_ranges),
        cmocka_unit_test(any_status_is_an_answer),
        cmocka_unit_test(keeps_deadlines),
        cmocka_unit_test(tells_failures_apart),
        cmocka_unit_test(replaces_a_stale_connection),
        cmocka_unit_test(bounds_answers),
        cmocka_unit_test(cancels),
        cmocka_unit_test(wakes),
        cmocka_unit_test(many_at_once),
        cmocka_unit_test(uses_no_proxy),
        cmocka_unit_test(refuses_options),
    };
    int failed = cmocka_run_group_tests(tests, start_server, NULL);
    direct = true;
    return failed + cmocka_run_group_tests(tests, start_server, NULL);
}
