/* SPDX-License-Identifier: Apache-2.0 */
/* What another node, or anybody at its address, answers to our plain HTTP client. The client is compiled in with
 * sockets of ours: an input is one connection after another, each a row of pieces that arrive one by one.
 *
 *   choices | kind, length, bytes | kind, length, bytes ..     kind  0 a piece, 1 as a whole answer's head with a right
 *                                                                    Content-Length, 2 a new piece behind a pause,
 *                                                                    3 the peer closes
 *   choices  bit 0 with a key, 1-2 calls, 3 answers are dropped, 4 the peer reads slowly, 5 refuses, 6 reads it all
 *
 * Every call ends once, an answer never leaves its room, and after whatever came an honest answer is taken. */
#include "small_sockets.h"

#define socket small_socket
#define connect small_connect
#define setsockopt small_setsockopt
#define getsockopt small_getsockopt
#define sendmsg small_sendmsg
#define recv small_recv
#define close small_close_end
#define epoll_create1 small_epoll_create
#define epoll_ctl small_epoll_ctl
#define epoll_wait small_epoll_wait
#define eventfd small_eventfd
#include "../../src/host/http_plain.c"

enum { ROOM = 300, DEADLINE_MS = 60000 };

/* The bytes in as many pieces as the input says. */
static void say_pieces(HttpPlain *p, Feed *f, size_t most)
{
    size_t bytes;
    const uint8_t *text = feed_span(f, most, &bytes);
    small_say(text, bytes);
    http_plain_work(p, 0);
}

static void say_answer(HttpPlain *p, Feed *f)
{
    static const char *const more[] = {"", "Connection: close\r\n", "Content-Type: text/plain\r\n",
                                       "Transfer-Encoding: chunked\r\n"};
    char head[200];
    size_t bytes;
    uint32_t which = feed_u8(f);
    const uint8_t *body = feed_span(f, 400, &bytes);
    size_t said = which & 16 ? bytes + which % 7 : bytes;
    int length =
        snprintf(head, sizeof head, "HTTP/1.%u %u Fine\r\n%sContent-Length: %zu\r\n\r\n",
                 which >> 2 & 1, which & 8 ? 100 : 200 + (which >> 5), more[which & 3], said);
    small_say(head, (size_t)length);
    if (which & 64) http_plain_work(p, 0);
    small_say(body, bytes);
    http_plain_work(p, 0);
}

static void say_something(HttpPlain *p, Feed *f)
{
    uint32_t kind = feed_below(f, 4);
    if (kind == 0) say_pieces(p, f, 9000);
    else if (kind == 1) say_answer(p, f);
    else if (kind == 2) http_plain_work(p, 0);
    else {
        small_hang_up();
        http_plain_work(p, 0);
    }
}

/* Until the call ends, by the input or else by an end of the connection. */
static HttpCall *end_call_of(HttpPlain *p, Feed *f)
{
    HttpCall *ended = NULL;
    while (!ended) {
        if (f->left) say_something(p, f);
        else small_hang_up();
        http_plain_work(p, 0);
        ended = http_plain_take(p);
    }
    return ended;
}

static void check_call(const HttpCall *call, const uint8_t *room)
{
    CHECK(call->answer_bytes <= ROOM);
    for (size_t i = 0; i < 16; i++) CHECK(room[ROOM + i] == 0x5a);
    if (call->error == OK) CHECK(call->status >= 200 && call->status <= 999);
    else CHECK(call->why.text[0]);
}

static void one_call(HttpPlain *p, Feed *f, bool drops)
{
    static uint8_t room[ROOM + 16];
    memset(room, 0x5a, sizeof room);
    HttpCall call = {.method = "POST",
                     .url = "http://127.0.0.1:80/forward",
                     .parts = {"body", "of two"},
                     .part_bytes = {4, 6},
                     .deadline_ms = DEADLINE_MS,
                     .answer = drops ? NULL : room,
                     .answer_room = drops ? 0 : ROOM};
    bool cancel = f->left && f->at[0] == 0xee;
    CHECK(http_plain_start(p, &call));
    HttpCall *ended = NULL;
    if (cancel) {
        say_something(p, f);
        if (http_plain_cancel(p, &call)) ended = http_plain_take(p);
    }
    if (!ended) ended = end_call_of(p, f);
    CHECK(ended == &call && !http_plain_take(p));
    check_call(&call, room);
}

/* A peer that does what it should, on a new connection. */
static void honest_call(HttpPlain *p)
{
    static uint8_t room[ROOM + 16];
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    HttpCall call = {.method = "GET",
                     .url = "http://127.0.0.2:80/health",
                     .deadline_ms = DEADLINE_MS,
                     .answer = room,
                     .answer_room = ROOM};
    small_hang_up();
    CHECK(http_plain_start(p, &call));
    http_plain_work(p, 0);
    small_say(answer, sizeof answer - 1);
    http_plain_work(p, 0);
    CHECK(http_plain_take(p) == &call && call.error == OK && call.status == 200);
    CHECK(call.answer_bytes == 5 && memcmp(room, "hello", 5) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Feed f = {data, size};
    uint32_t choices = feed_u8(&f);
    small_net.slow = choices & 16;
    small_net.refuses = choices & 32;
    small_net.hears = choices & 64;
    HttpPlain *p = http_plain_open(choices & 1 ? "key" : NULL, 1000);
    CHECK(p);
    for (uint32_t i = 0; i <= (choices >> 1 & 3); i++) one_call(p, &f, choices >> 3 & 1);
    small_net.slow = false;
    honest_call(p);
    http_plain_close(p);
    small_hang_up();
    CHECK(small_all_closed());
    return 0;
}
