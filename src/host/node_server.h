/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP side that stations, shards and wardens share: routes, the cluster key, a bounded queue, and one or more
 * threads that work. /health answers from the HTTP thread, so it answers in the midst of a long computation.
 *
 *   HTTP thread --(key, route)--> queue --work thread--> route's run(): reads the body, replies, may then
 *     |  /health /ready /metrics                                    go on working (writes after the response)
 *     '-- 401 404 405 413, 503 + Retry-After when the queue is full
 *
 * A client that leaves while its request waits is forgotten without any work; one that leaves later is seen by
 * node_server_request_gone. Errors are those of wire/node_error.h. */
#ifndef COBORD_HOST_NODE_SERVER_H
#define COBORD_HOST_NODE_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "host/http.h"
#include "host/listen.h"

typedef struct NodeServer NodeServer;

/* One request; lives as long as run(). Thread  the one that runs it. */
typedef struct NodeRequest {
    HttpExchange *x;
    const char *tail;  /* of the path, behind the route's: "blk_0_attn_q_weight", "" */
    const char *query; /* behind '?': "rows=0-15"; "" */
    const uint8_t *body;
    size_t body_bytes;
    bool replied;
} NodeRequest;

typedef struct NodeRoute {
    const char *method, *path; /* "/tensor/" with its last slash: the tail may be anything */
    void (*run)(void *context, NodeRequest *r); /* must reply */
} NodeRoute;

typedef struct NodeServerOptions {
    Listen listen;                                       /* the socket becomes the server's */
    const char *key;                                     /* NULL: none; compared in constant time */
    const char *certificate_file, *certificate_key_file; /* TLS when given */
    const NodeRoute *routes;
    uint32_t route_count;
    uint32_t threads; /* that run routes: 1 for stations and shards */
    uint32_t queue_max;
    size_t body_bytes_max, bodies_bytes_max;
    const char *version, *role; /* for /metrics */
    uint64_t memory_bytes;      /* what the process may take */
    uint32_t drain_s;           /* after a signal, how long what is queued may take */
    void *context;
    /* Thread  HTTP; must not wait. Whether the node can work, and JSON of what it is (/ready); its own lines of
     * /metrics. */
    bool (*ready)(void *context, char *json, size_t room);
    void (*metrics)(void *context, char *text, size_t room);
} NodeServerOptions;

/* Errors  ERR_USAGE (the certificate), ERR_IO, ERR_MEMORY; the socket is then closed. */
MUST_CHECK Error node_server_open(const NodeServerOptions *options, NodeServer **out, Why *why);
/* Serves until SIGINT, SIGTERM or SIGHUP; then refuses new requests with 503 and finishes what is queued. A second
 * signal ends the process, as does one between node_server_open and node_server_begin, which comes before anybody is
 * told that the node serves. */
void node_server_begin(void);
void node_server_run(NodeServer *server);
void node_server_close(NodeServer *server);
/* Other limits of one body and of all, from the next request on. Thread  any. */
void node_server_limit_bodies(NodeServer *server, size_t body_bytes_max, size_t bodies_bytes_max);

/* The header of a request; NULL: none. Copied when the request was queued: Authorization apart, X-Knot-Id, X-Knot-Key,
 * X-Layer-Start, X-Layer-End, X-Vocab-Start, X-Vocab-End. */
const char *node_server_request_header(const NodeRequest *r, const char *name);
/* The client has left: nobody will read the answer. Thread  any. */
bool node_server_request_gone(const NodeRequest *r);
/* Whether SIGINT or SIGTERM has come. Thread  any. */
/* As if a first SIGTERM had come. Thread  any, and signal handlers. */
void node_server_stop(void);
bool node_server_draining(const NodeServer *server);

void node_server_reply(NodeRequest *r, unsigned status, const char *type, const void *bytes,
                       size_t count);
/* Owner  `bytes` is malloc'd and becomes the server's. */
void node_server_reply_take(NodeRequest *r, unsigned status, const char *type, void *bytes,
                            size_t count);
void node_server_reply_error(NodeRequest *r, Error error, const Why *why);

#endif
