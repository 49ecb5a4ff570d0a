/* SPDX-License-Identifier: Apache-2.0 */
/* Who may ask a node what: from the head of a request to its route, or to the refusal that says
 * why not. Natively and in WebAssembly a node says the same, since both ask here.
 *
 *   GET /health --> anyone          /ready /metrics --> with the key           the role's routes --> with the key,
 *                                                                               and a body that fits
 *   401 no key    405 another method (Allow)    404 no such path    413 the announced length */
#ifndef COBORD_API_NODE_GATE_H
#define COBORD_API_NODE_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { NODE_GATE_PATH_BYTES = 256, NODE_GATE_QUERY_BYTES = 512 };

typedef struct NodeGateRoute {
    const char *method, *path; /* "/tensor/" with its last slash: the tail may be anything */
} NodeGateRoute;

typedef struct NodeGate {
    const NodeGateRoute *routes;
    uint32_t route_count;
    const char *key; /* NULL: none */
    uint64_t body_bytes_max;
} NodeGate;

typedef struct NodeGateHead {
    const char *method, *path; /* decoded */
    const char *authorization; /* the header, or NULL */
    uint64_t announced;        /* bytes of the body; 0 when it does not say */
} NodeGateHead;

typedef enum NodeGateKind {
    NODE_GATE_ROUTE,
    NODE_GATE_HEALTH,
    NODE_GATE_READY,
    NODE_GATE_METRICS,
    NODE_GATE_REFUSED
} NodeGateKind;

typedef struct NodeGatePass {
    NodeGateKind kind;
    uint32_t route;   /* ROUTE */
    const char *tail; /* ROUTE: of the path, behind the route's */
    /* REFUSED: */
    unsigned status;
    const char *allow; /* 405, else NULL */
    Error error;
    Why why;
} NodeGatePass;

void node_gate_look(const NodeGate *gate, const NodeGateHead *head, NodeGatePass *out);

/* What an HTTP server makes of a request's target: %XX in the path; '+' and %XX in each argument
 * behind '?'. A path that is too long is "", which no route has. Result  false: the query is too
 * long. */
bool node_gate_decode(const char *target, size_t bytes, char path[NODE_GATE_PATH_BYTES],
                      char query[NODE_GATE_QUERY_BYTES]);

/* ---- Refusals that come later ---- */

MUST_CHECK Error node_gate_body_too_large(uint64_t body_bytes_max, Why *why);
MUST_CHECK Error node_gate_query_too_long(Why *why);
MUST_CHECK Error node_gate_queue_full(Why *why);
MUST_CHECK Error node_gate_loading(const char *id, Why *why);
MUST_CHECK Error node_gate_drained(const char *id, Why *why);
/* Of an embedding, or of the head. */
MUST_CHECK Error node_gate_no_part(const char *id, bool embedding, Why *why);
/* "/sessions/NUMBER": its tail. Errors  ERR_USAGE. */
MUST_CHECK Error node_gate_session(const char *tail, uint64_t *out, Why *why);
MUST_CHECK Error node_gate_no_session(uint64_t session, Why *why);

/* Retry-After of a status, 0: none. */
unsigned node_gate_retry_s(unsigned status);

#define NODE_GATE_JSON "application/json"
#define NODE_GATE_OCTETS "application/octet-stream"
#define NODE_GATE_METRICS_TEXT "text/plain; version=0.0.4; charset=utf-8"
#define NODE_GATE_HEALTH_BODY "{\"status\":\"ok\"}"
#define NODE_GATE_CONFIGURED_BODY "{\"configured\":true}"
#define NODE_GATE_DRAINING_BODY "{\"state\":\"draining\"}"
#define NODE_GATE_DROPPED_BODY "{\"dropped\":true}"

#endif
