/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP side of nodes without a node behind it: routes, tails, queries, headers, the key, the queue's bound, and a
 * client that leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "host/node_server.h"

enum { QUEUE_MAX = 2, BODY_BYTES_MAX = 4096 };

static NodeServer *server;
static uint16_t port;
static atomic_bool hold;          /* run_slow goes on when it is false, or its client has left */
static atomic_uint slow, left;    /* begun; ended because of that */
static atomic_bool written_after; /* by run_after, behind its answer */

static void run_echo(void *context, NodeRequest *r)
{
    (void)context;
    node_server_reply(r, 200, "application/octet-stream", r->body, r->body_bytes);
}

static void run_say(void *context, NodeRequest *r)
{
    char text[2048];
    const char *id = node_server_request_header(r, "x-knot-ID"),
               *none = node_server_request_header(r, "X-Vocab-End");
    (void)context;
    int n = snprintf(text, sizeof text, "[%s][%s][%s][%s]", r->tail, r->query, id ? id : "-",
                     none ? none : "-");
    node_server_reply(r, 200, "text/plain", text, (size_t)n);
}

static void run_slow(void *context, NodeRequest *r)
{
    (void)context;
    slow++;
    struct timespec pause = {0, 2000000};
    while (hold && !node_server_request_gone(r)) (void)nanosleep(&pause, NULL);
    if (node_server_request_gone(r)) left++;
    node_server_reply(r, 200, "text/plain", "slow", 4);
}

static void run_fail(void *context, NodeRequest *r)
{
    Why why;
    (void)context;
    Error error = error_why(&why, ERR_POSITION, "a \"quoted\" thing");
    node_server_reply_error(r, error, &why);
}

static void run_after(void *context, NodeRequest *r)
{
    (void)context;
    char *text = malloc(4);
    memcpy(text, "soon", 4);
    node_server_reply_take(r, 200, "text/plain", text, 4);
    struct timespec pause = {0, 20000000};
    (void)nanosleep(&pause, NULL);
    written_after = true;
}

static bool say_ready(void *context, char *json, size_t room)
{
    (void)context;
    (void)snprintf(json, room, "{\"x\":1}");
    return true;
}

static const NodeRoute routes[] = {
    {"POST", "/echo", run_echo}, {"GET", "/tensor/", run_say}, {"DELETE", "/tensor/", run_say},
    {"POST", "/slow", run_slow}, {"POST", "/fail", run_fail},  {"POST", "/after", run_after},
};

static int start(void **state)
{
    (void)state;
    Why why;
    NodeServerOptions options = {
        .key = "the key of tests",
        .routes = routes,
        .route_count = sizeof routes / sizeof routes[0],
        .threads = 1,
        .queue_max = QUEUE_MAX,
        .body_bytes_max = BODY_BYTES_MAX,
        .bodies_bytes_max = 4 * BODY_BYTES_MAX,
        .version = "0",
        .role = "tests",
        .ready = say_ready,
    };
    if (listen_open("127.0.0.1:0", &options.listen, &why) != OK) return 1;
    port = (uint16_t)strtoul(strrchr(options.listen.address, ':') + 1, NULL, 10);
    return node_server_open(&options, &server, &why) == OK ? 0 : 1;
}

static int stop(void **state)
{
    (void)state;
    node_server_close(server);
    return 0;
}

/* ---- A client ---- */

static int send_request(const char *head, const char *body, size_t bytes)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    char text[1024];
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval limit = {10, 0};
    assert_int_equal(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    assert_int_equal(connect(s, (struct sockaddr *)&to, sizeof to), 0);
    int n = snprintf(text, sizeof text,
                     "%sHost: x\r\nConnection: close\r\nAuthorization: Bearer the key of tests\r\n"
                     "Content-Length: %zu\r\n\r\n",
                     head, bytes);
    assert_int_equal(send(s, text, (size_t)n, 0), n);
    if (bytes) assert_int_equal(send(s, body, bytes, 0), bytes);
    return s;
}

static const char *read_answer(int s)
{
    static char answer[16384];
    size_t used = 0;
    for (ssize_t n; (n = recv(s, answer + used, sizeof answer - 1 - used, 0)) > 0;)
        used += (size_t)n;
    answer[used] = '\0';
    close(s);
    return answer;
}

static const char *ask(const char *head, const char *body)
{
    return read_answer(send_request(head, body, strlen(body)));
}

static void expect(const char *answer, const char *status, const char *part)
{
    char line[32];
    (void)snprintf(line, sizeof line, "HTTP/1.1 %s ", status);
    if (strncmp(answer, line, strlen(line)) != 0 || !strstr(answer, part))
        fail_msg("no '%s' with '%s': %s", line, part, answer);
}

static void wait_until(atomic_uint *counter, unsigned value)
{
    struct timespec pause = {0, 2000000};
    for (int i = 0; i < 2000 && *counter < value; i++) (void)nanosleep(&pause, NULL);
    assert_true(*counter >= value);
}

/* ---- Tests ---- */

static void routes_get_what_is_theirs(void **state)
{
    (void)state;
    expect(ask("POST /echo HTTP/1.1\r\n", "hello"), "200", "\r\n\r\nhello");
    expect(ask("POST /echo HTTP/1.1\r\n", ""), "200", "\r\n\r\n");
    expect(ask("GET /tensor/blk_0?rows=0-15&x=%26&y HTTP/1.1\r\nX-Knot-Id: 12ab\r\n", ""), "200",
           "[blk_0][rows=0-15&x=&&y][12ab][-]");
    expect(ask("DELETE /tensor/ HTTP/1.1\r\n", ""), "200", "[][][-][-]");
    expect(ask("GET /tensor/a%2fb/c HTTP/1.1\r\n", ""), "200", "[a/b/c][]");
    expect(ask("GET /tensor HTTP/1.1\r\n", ""), "404", "\"not_found\"");
    expect(ask("PUT /tensor/x HTTP/1.1\r\n", ""), "405", "\r\nAllow: ");
    expect(ask("POST /fail HTTP/1.1\r\n", ""), "409", "\"message\":\"a \\\"quoted\\\" thing\"");
    expect(ask("GET /ready HTTP/1.1\r\n", ""), "200", "{\"x\":1}");
    expect(ask("HEAD /health HTTP/1.1\r\n", ""), "200", "\r\n\r\n");
    expect(ask("GET /metrics HTTP/1.1\r\n", ""), "200", "\ncobord_node_requests_total ");
}

static void queries_have_a_limit(void **state)
{
    (void)state;
    char head[900] = "GET /tensor/x?";
    size_t at = strlen(head);
    memset(head + at, 'q', 600);
    (void)snprintf(head + at + 600, sizeof head - at - 600, " HTTP/1.1\r\n");
    expect(ask(head, ""), "400", "query");
}

static void bodies_have_a_limit(void **state)
{
    (void)state;
    char body[BODY_BYTES_MAX + 2];
    memset(body, 'b', sizeof body);
    body[BODY_BYTES_MAX] = '\0';
    expect(ask("POST /echo HTTP/1.1\r\n", body), "200", "bbbb");
    body[BODY_BYTES_MAX] = 'b';
    body[BODY_BYTES_MAX + 1] = '\0';
    expect(ask("POST /echo HTTP/1.1\r\n", body), "413", "\"too_large\"");
    node_server_limit_bodies(server, 8, 64);
    expect(ask("POST /echo HTTP/1.1\r\n", "123456789"), "413", "\"too_large\"");
    expect(ask("POST /echo HTTP/1.1\r\n", "12345678"), "200", "12345678");
    node_server_limit_bodies(server, BODY_BYTES_MAX, 4 * BODY_BYTES_MAX);
}

static void only_health_is_open(void **state)
{
    (void)state;
    /* A second Authorization: the first counts, and it is wrong. */
    expect(ask("GET /ready HTTP/1.1\r\nAuthorization: Bearer x\r\n", ""), "401",
           "WWW-Authenticate: Bearer");
    expect(ask("POST /nothing HTTP/1.1\r\nAuthorization: Bearer x\r\n", ""), "401", "\"key\"");
    expect(ask("GET /health HTTP/1.1\r\nAuthorization: Bearer x\r\n", ""), "200",
           "{\"status\":\"ok\"}");
}

static void the_queue_is_bounded(void **state)
{
    (void)state;
    int lines[1 + QUEUE_MAX];
    hold = true;
    slow = 0;
    lines[0] = send_request("POST /slow HTTP/1.1\r\n", "", 0);
    wait_until(&slow, 1);
    for (int i = 1; i <= QUEUE_MAX; i++) lines[i] = send_request("POST /slow HTTP/1.1\r\n", "", 0);
    struct timespec pause = {0, 100000000};
    (void)nanosleep(&pause, NULL);
    const char *answer = ask("POST /slow HTTP/1.1\r\n", "");
    expect(answer, "503", "\"again\"");
    assert_non_null(strstr(answer, "\r\nRetry-After: 1\r\n"));
    expect(ask("GET /health HTTP/1.1\r\n", ""), "200", "ok");
    hold = false;
    for (int i = 0; i <= QUEUE_MAX; i++) expect(read_answer(lines[i]), "200", "slow");
}

static void who_leaves_is_forgotten(void **state)
{
    (void)state;
    hold = true;
    slow = left = 0;
    int computing = send_request("POST /slow HTTP/1.1\r\n", "", 0);
    wait_until(&slow, 1);
    int waiting = send_request("POST /slow HTTP/1.1\r\n", "", 0);
    struct timespec pause = {0, 100000000};
    (void)nanosleep(&pause, NULL);
    close(waiting);
    (void)nanosleep(&pause, NULL);
    close(computing);
    wait_until(&left, 1);
    hold = false;
    expect(ask("POST /echo HTTP/1.1\r\n", "on"), "200", "on");
    assert_int_equal(slow, 1); /* the one that waited was never begun */
}

static void an_answer_does_not_wait_for_what_follows(void **state)
{
    (void)state;
    written_after = false;
    expect(ask("POST /after HTTP/1.1\r\n", ""), "200", "soon");
    assert_false(written_after);
    expect(ask("POST /echo HTTP/1.1\r\n", "x"), "200", "x");
    assert_true(written_after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_get_what_is_theirs),
        cmocka_unit_test(queries_have_a_limit),
        cmocka_unit_test(bodies_have_a_limit),
        cmocka_unit_test(only_health_is_open),
        cmocka_unit_test(the_queue_is_bounded),
        cmocka_unit_test(who_leaves_is_forgotten),
        cmocka_unit_test(an_answer_does_not_wait_for_what_follows),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
