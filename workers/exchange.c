/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange.h"

#include <stdlib.h>
#include <string.h>

#include "api/node_gate.h"
#include "api/request.h"
#include "base/error.h"
#include "serve/answer_headers.h"
#include "serve/machine.h"
#include "serve/serve.h"

enum { WRITE_BYTES_MAX = 64 << 10, METHOD_BYTES = 16 };

struct HttpExchange {
    uint32_t number, references;
    HttpExchange *next;
    /* of the request */
    char method[METHOD_BYTES], path[NODE_GATE_PATH_BYTES];
    char *head; /* malloc'd: "name: value" lines, each ended by NUL, and an empty one */
    uint64_t announced;
    uint8_t *body;
    size_t body_bytes, body_room;
    bool too_large, no_memory;
    /* of the answer */
    bool answered, streams, begun, gone, over;
    HttpReply reply;
    HttpRecord record;
    uint64_t begin_ns, end_ns;
    AnswerHeaders headers;
    char *reply_body;
    size_t reply_bytes;
    uint8_t *out; /* of a stream: out[out_at .. out_end) waits for its reader */
    size_t out_at, out_end, out_room, writing; /* bytes that JavaScript writes now */
    bool ended;
    const char *idle;
    uint64_t idle_ns, written_ns;
};

static struct {
    ExchangeOver *over;
    void *context;
    HttpExchange *first;
    uint32_t count, numbers;
    size_t bodies_bytes;
} exchanges;

/* ---- The request ---- */

static const char *find_header(const HttpExchange *x, const char *name)
{
    size_t bytes = strlen(name);
    for (const char *line = x->head; *line; line += strlen(line) + 1)
        if (strncasecmp(line, name, bytes) == 0 && line[bytes] == ':') return line + bytes + 2;
    return NULL;
}

/* Too large reads as the largest; what is no number as none. */
static uint64_t read_length(const char *text)
{
    uint64_t value = 0;
    for (; text && *text >= '0' && *text <= '9'; text++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *text - '0', &value))
            return UINT64_MAX;
    return value;
}

/* Lines become strings. Result  false when it is no head. */
static bool read_head(HttpExchange *x, const char *head, size_t bytes)
{
    char query[NODE_GATE_QUERY_BYTES];
    const char *line = memchr(head, '\n', bytes),
               *space = line ? memchr(head, ' ', (size_t)(line - head)) : NULL;
    if (!space || space - head >= METHOD_BYTES || memchr(head, 0, bytes)) return false;
    memcpy(x->method, head, (size_t)(space - head));
    (void)node_gate_decode(space + 1, (size_t)(line - space - 1), x->path, query);
    size_t rest = bytes - (size_t)(line + 1 - head);
    x->head = malloc(rest + 2);
    if (!x->head) return false;
    memcpy(x->head, line + 1, rest);
    x->head[rest] = x->head[rest + 1] = '\0';
    for (size_t i = 0; i < rest; i++)
        if (x->head[i] == '\n') x->head[i] = '\0';
    x->announced = read_length(find_header(x, "content-length"));
    return true;
}

static void drop_body(HttpExchange *x)
{
    exchanges.bodies_bytes -= x->body_room;
    free(x->body);
    x->body = NULL;
    x->body_bytes = x->body_room = 0;
}

static void free_exchange(HttpExchange *x)
{
    drop_body(x);
    free(x->head);
    free(x->reply_body);
    answer_headers_free(&x->headers);
    free(x->out);
    free(x);
}

void exchange_tell(ExchangeOver *over, void *context)
{
    exchanges.over = over;
    exchanges.context = context;
}

HttpRecord *http_exchange_record(HttpExchange *x) { return &x->record; }

HttpExchange *exchange_open(const char *head, size_t bytes)
{
    HttpExchange *x = exchanges.count < EXCHANGES_MAX ? calloc(1, sizeof *x) : NULL;
    if (!x) return NULL;
    if (!read_head(x, head, bytes)) {
        free_exchange(x);
        return NULL;
    }
    x->number = ++exchanges.numbers;
    x->begin_ns = machine_now_ns();
    x->references = 1;
    x->next = exchanges.first;
    exchanges.first = x;
    exchanges.count++;
    return x;
}

uint32_t exchange_number(const HttpExchange *x) { return x->number; }
uint32_t exchange_count(void) { return exchanges.count; }
bool exchange_is_answered(const HttpExchange *x) { return x->answered; }

HttpExchange *exchange_find(uint32_t number)
{
    HttpExchange *x = exchanges.first;
    while (x && x->number != number) x = x->next;
    return x && !x->over ? x : NULL;
}

uint8_t *exchange_body(HttpExchange *x, size_t bytes)
{
    if (x->answered || x->too_large || x->no_memory) return NULL;
    x->too_large = bytes > REQUEST_BODY_BYTES_MAX - x->body_bytes;
    size_t room = x->body_bytes + bytes, others = exchanges.bodies_bytes - x->body_room;
    if (room < x->announced && x->announced <= REQUEST_BODY_BYTES_MAX) room = (size_t)x->announced;
    if (!x->too_large && room > x->body_room) {
        uint8_t *grown = others + room <= EXCHANGE_BODIES_BYTES_MAX ? realloc(x->body, room) : NULL;
        x->no_memory = !grown;
        if (grown) {
            x->body = grown;
            x->body_room = room;
            exchanges.bodies_bytes = others + room;
        }
    }
    if (x->too_large || x->no_memory) {
        drop_body(x);
        return NULL;
    }
    x->body_bytes += bytes;
    return x->body + x->body_bytes - bytes;
}

const char *http_exchange_method(const HttpExchange *x) { return x->method; }
const char *http_exchange_path(const HttpExchange *x) { return x->path; }
const char *http_exchange_header(const HttpExchange *x, const char *name)
{
    return find_header(x, name);
}
uint64_t http_exchange_announced(const HttpExchange *x) { return x->announced; }
void http_exchange_drop_body(HttpExchange *x) { drop_body(x); }
bool http_exchange_gone(HttpExchange *x) { return x->gone; }
void http_exchange_keep(HttpExchange *x) { x->references++; }

bool http_exchange_body(const HttpExchange *x, const uint8_t **bytes, size_t *count, bool *memory)
{
    *bytes = x->body;
    *count = x->body_bytes;
    *memory = x->no_memory;
    return !x->too_large && !x->no_memory;
}

/* JavaScript's is one of the references, until the exchange is over; exchange_next lets go of it. */
void http_exchange_release(HttpExchange *x)
{
    ASSERT(x->references > 0);
    x->references--;
}

/* ---- The answer ---- */

bool http_answer_header(HttpExchange *x, const char *line)
{
    return answer_headers_add(&x->headers, line);
}

void http_reply_take(HttpExchange *x, const HttpReply *reply, char *body, size_t bytes)
{
    ASSERT(!x->answered);
    x->answered = true;
    x->reply = *reply;
    x->reply_body = body;
    x->reply_bytes = bytes;
}

void http_reply(HttpExchange *x, const HttpReply *reply, const char *body, size_t bytes)
{
    char *copy = malloc(bytes + 1);
    if (copy) memcpy(copy, body, bytes);
    http_reply_take(x, reply, copy, copy ? bytes : 0);
}

void http_stream_begin(HttpExchange *x, const char *type, const char *idle, unsigned idle_s)
{
    ASSERT(!x->answered);
    x->answered = x->streams = true;
    x->reply = (HttpReply){.status = 200, .type = type};
    x->idle = idle;
    x->idle_ns = idle_s * 1000000000ull;
    x->written_ns = machine_now_ns();
}

static bool make_room(HttpExchange *x, size_t count)
{
    size_t waiting = x->out_end - x->out_at;
    if (count > SERVE_STREAM_BYTES_MAX - waiting) return false;
    if (waiting) memmove(x->out, x->out + x->out_at, waiting);
    x->out_at = 0;
    x->out_end = waiting;
    if (x->out_room - waiting >= count) return true;
    size_t room = 2 * (waiting + count) + 4096;
    uint8_t *grown = realloc(x->out, room);
    if (!grown) return false;
    x->out = grown;
    x->out_room = room;
    return true;
}

bool http_stream_write(HttpExchange *x, const void *bytes, size_t count)
{
    if (x->gone || x->ended || !make_room(x, count)) return false;
    if (count) memcpy(x->out + x->out_end, bytes, count);
    x->out_end += count;
    x->written_ns = machine_now_ns();
    return true;
}

size_t http_stream_pending(HttpExchange *x) { return x->out_end - x->out_at; }
void http_stream_end(HttpExchange *x) { x->ended = true; }

/* ---- JavaScript's side ---- */

static void end(HttpExchange *x)
{
    x->over = true;
    x->end_ns = machine_now_ns();
}

void exchange_gone(HttpExchange *x)
{
    x->gone = true;
    end(x);
}

void exchange_written(HttpExchange *x)
{
    x->out_at += x->writing;
    x->writing = 0;
}

static bool wants_comment(const HttpExchange *x, uint64_t now_ns)
{
    return x->begun && x->streams && x->idle_ns && !x->ended &&
           now_ns - x->written_ns >= x->idle_ns;
}

static void wish_for_answer(HttpExchange *x, ExchangeWish *out)
{
    *out = (ExchangeWish){.kind = x->streams ? EXCHANGE_STREAM : EXCHANGE_REPLY,
                          .number = x->number,
                          .status = x->reply.status,
                          .retry_s = x->reply.retry_s,
                          .type = x->reply.type,
                          .headers = x->headers.text,
                          .allow = x->reply.allow,
                          .bytes = (const uint8_t *)x->reply_body,
                          .count = x->reply_bytes};
    x->begun = true;
    if (!x->streams) end(x);
}

/* Result  false: nothing of this one. */
static bool next_of(HttpExchange *x, uint64_t now_ns, ExchangeWish *out)
{
    if (x->over || !x->answered) return false;
    if (!x->begun) {
        wish_for_answer(x, out);
        return true;
    }
    if (x->writing) return false;
    if (wants_comment(x, now_ns)) (void)http_stream_write(x, x->idle, strlen(x->idle));
    size_t waiting = x->out_end - x->out_at;
    if (!waiting && !x->ended) return false;
    x->writing = waiting < WRITE_BYTES_MAX ? waiting : WRITE_BYTES_MAX;
    *out = (ExchangeWish){.kind = waiting ? EXCHANGE_WRITE : EXCHANGE_END,
                          .number = x->number,
                          .bytes = x->out + x->out_at,
                          .count = x->writing};
    if (!waiting) end(x);
    return true;
}

/* Those that are over, and that nobody else has: what they said has been carried out by now. */
static void sweep(void)
{
    for (HttpExchange **at = &exchanges.first; *at;) {
        HttpExchange *x = *at;
        if (!x->over || x->references > 1) {
            at = &x->next;
            continue;
        }
        HttpOver over = {x->answered ? x->reply.status : 0, x->gone, x->begin_ns, x->end_ns};
        if (exchanges.over) exchanges.over(exchanges.context, x, &over);
        *at = x->next;
        exchanges.count--;
        free_exchange(x);
    }
}

bool exchange_next(uint64_t now_ns, ExchangeWish *out)
{
    sweep();
    for (HttpExchange *x = exchanges.first; x; x = x->next)
        if (next_of(x, now_ns, out)) return true;
    return false;
}

uint64_t exchange_wake_ns(void)
{
    uint64_t wake = UINT64_MAX;
    for (const HttpExchange *x = exchanges.first; x; x = x->next)
        if (x->begun && x->streams && x->idle_ns && !x->ended && x->written_ns + x->idle_ns < wake)
            wake = x->written_ns + x->idle_ns;
    return wake;
}
