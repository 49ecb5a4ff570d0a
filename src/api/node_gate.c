/* SPDX-License-Identifier: Apache-2.0 */
#include "api/node_gate.h"

#include <string.h>

#include "api/bearer.h"
#include "wire/node_error.h"

/* ---- Heads ---- */

/* Whether a route has the path; its tail begins at *tail. */
static bool route_has(const NodeGateRoute *route, const char *path, size_t *tail)
{
    *tail = strlen(route->path);
    if (route->path[*tail - 1] == '/') return strncmp(route->path, path, *tail) == 0;
    return strcmp(route->path, path) == 0;
}

/* Result  false: *other is a route of the path with another method, if any. */
static bool find_route(const NodeGate *gate, const NodeGateHead *head, NodeGatePass *out,
                       const NodeGateRoute **other)
{
    size_t tail;
    *other = NULL;
    for (uint32_t i = 0; i < gate->route_count; i++) {
        const NodeGateRoute *route = &gate->routes[i];
        if (!route_has(route, head->path, &tail)) continue;
        if (strcmp(route->method, head->method) == 0) {
            *out = (NodeGatePass){.kind = NODE_GATE_ROUTE, .route = i, .tail = head->path + tail};
            return true;
        }
        *other = route;
    }
    return false;
}

static void refuse_status(NodeGatePass *out, unsigned status, Error error, const char *allow)
{
    out->kind = NODE_GATE_REFUSED;
    out->status = status;
    out->error = error;
    out->allow = allow;
}

static void refuse(NodeGatePass *out, Error error)
{
    refuse_status(out, node_error_status(error), error, NULL);
}

static void refuse_method(const NodeGateHead *head, const char *allow, NodeGatePass *out)
{
    Error error =
        error_why(&out->why, ERR_USAGE, "%s takes %s, not %s", head->path, allow, head->method);
    refuse_status(out, 405, error, allow);
}

static NodeGateKind own_of(const char *path)
{
    if (strcmp(path, "/health") == 0) return NODE_GATE_HEALTH;
    if (strcmp(path, "/ready") == 0) return NODE_GATE_READY;
    if (strcmp(path, "/metrics") == 0) return NODE_GATE_METRICS;
    return NODE_GATE_ROUTE;
}

static bool is_reading(const char *method)
{
    return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
}

void node_gate_look(const NodeGate *gate, const NodeGateHead *head, NodeGatePass *out)
{
    const NodeGateRoute *other;
    NodeGateKind own = own_of(head->path);
    *out = (NodeGatePass){.kind = own};
    if (own != NODE_GATE_HEALTH && gate->key && !bearer_in_header(gate->key, head->authorization))
        refuse(out, error_why(&out->why, ERR_KEY,
                              "Authorization: Bearer KEY is missing, or has another key"));
    else if (own != NODE_GATE_ROUTE) {
        if (!is_reading(head->method)) refuse_method(head, "GET, HEAD", out);
    } else if (!find_route(gate, head, out, &other)) {
        if (other) refuse_method(head, other->method, out);
        else refuse(out, error_why(&out->why, ERR_NOT_FOUND, "no such path: %s", head->path));
    } else if (head->announced > gate->body_bytes_max)
        refuse(out, node_gate_body_too_large(gate->body_bytes_max, &out->why));
}

/* ---- Targets ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

typedef struct Decoded {
    char *out;
    size_t room, used;
    bool full;
} Decoded;

static void put(Decoded *d, char c)
{
    if (d->used + 1 >= d->room) d->full = true;
    else d->out[d->used++] = c;
}

/* %XX as its byte, another '%' as it is. What follows a NUL byte is lost, as in a C string. */
static void decode(const char *text, size_t bytes, bool plus, Decoded *d)
{
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        int high = i + 2 < bytes ? hex_digit(text[i + 1]) : -1,
            low = high < 0 ? -1 : hex_digit(text[i + 2]);
        if (c == '%' && low >= 0) {
            c = (char)(high * 16 + low);
            i += 2;
        } else if (c == '+' && plus) c = ' ';
        if (!c) return;
        put(d, c);
    }
}

/* Arguments are decoded one by one, so that an encoded '&' or '=' in one does not divide it. */
static void decode_query(const char *text, size_t bytes, Decoded *d)
{
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '&', bytes - at);
        size_t argument = end ? (size_t)(end - text) - at : bytes - at;
        const char *value = memchr(text + at, '=', argument);
        size_t name = value ? (size_t)(value - text) - at : argument;
        if (d->used) put(d, '&');
        decode(text + at, name, true, d);
        if (value) {
            put(d, '=');
            decode(value + 1, argument - name - 1, true, d);
        }
        at += argument + 1;
    }
}

bool node_gate_decode(const char *target, size_t bytes, char path[NODE_GATE_PATH_BYTES],
                      char query[NODE_GATE_QUERY_BYTES])
{
    Decoded p = {.out = path, .room = NODE_GATE_PATH_BYTES},
            q = {.out = query, .room = NODE_GATE_QUERY_BYTES};
    const char *mark = memchr(target, '?', bytes);
    size_t path_bytes = mark ? (size_t)(mark - target) : bytes;
    decode(target, path_bytes, false, &p);
    path[p.full ? 0 : p.used] = '\0';
    if (mark) decode_query(mark + 1, bytes - path_bytes - 1, &q);
    query[q.used] = '\0';
    return !q.full;
}

/* ---- Refusals that come later ---- */

Error node_gate_body_too_large(uint64_t body_bytes_max, Why *why)
{
    return error_why(why, ERR_TOO_LARGE, "the body has more than %llu bytes",
                     (unsigned long long)body_bytes_max);
}

Error node_gate_query_too_long(Why *why)
{
    return error_why(why, ERR_USAGE, "the query is too long");
}

Error node_gate_queue_full(Why *why) { return error_why(why, ERR_AGAIN, "the queue is full"); }

Error node_gate_loading(const char *id, Why *why)
{
    return error_why(why, ERR_AGAIN, "%s is loading", id);
}

Error node_gate_drained(const char *id, Why *why)
{
    return error_why(why, ERR_AGAIN, "%s is drained", id);
}

Error node_gate_no_part(const char *id, bool embedding, Why *why)
{
    return error_why(why, ERR_NOT_FOUND, "%s keeps no %s", id, embedding ? "embedding" : "head");
}

Error node_gate_session(const char *tail, uint64_t *out, Why *why)
{
    uint64_t value = 0;
    const char *at = tail;
    bool fits = true;
    for (; *at >= '0' && *at <= '9'; at++)
        fits = fits && !__builtin_mul_overflow(value, 10u, &value) &&
               !__builtin_add_overflow(value, (unsigned)(*at - '0'), &value);
    *out = value;
    if (fits && value && !*at) return OK;
    return error_why(why, ERR_USAGE, "session %s is no number from 1 to 2^64 - 1", tail);
}

Error node_gate_no_session(uint64_t session, Why *why)
{
    return error_why(why, ERR_NOT_FOUND, "session %llu", (unsigned long long)session);
}

unsigned node_gate_retry_s(unsigned status) { return status == 503 ? 1 : 0; }
