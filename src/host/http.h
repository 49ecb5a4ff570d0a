/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1.1 for every node, over libmicrohttpd: one thread moves bytes (epoll), and never computes;
 * whoever answers does it from a thread of its own, now or later.
 *
 *   head complete --head()--> (refused early: 404, 405, 413, 415)
 *   body complete --request()--> answered at once, or kept:  http_reply | http_stream_begin, _write ..., _end
 *                                client hangs up: gone(), from the watcher's or the server's thread
 *
 * A connection that waits for its answer is suspended, and libmicrohttpd does not look at it then. A second thread, the
 * watcher, does: a hang-up (also half-closed: the client will not say more) is known at once. It also ends connections
 * that take too long to send a request, and puts comments into streams that are silent.
 *
 * Limits: connections, bytes of a body, bytes of all bodies, bytes waiting in a stream, seconds for a
 * request to arrive. What libmicrohttpd itself refuses (no HTTP at all, headers too large) is answered
 * in its words, without JSON. */
#ifndef COBORD_HOST_HTTP_H
#define COBORD_HOST_HTTP_H

#include "base/error.h"
#include "serve/exchange.h"

typedef struct HttpServer HttpServer;

typedef struct HttpServerOptions {
    int listen_fd; /* becomes the server's */
    uint32_t connections_max;
    size_t connection_bytes; /* of headers, and read at once; 0: 64 KiB */
    /* Names of PEM files; both NULL: no TLS. Needed during http_server_open only. */
    const char *certificate_file, *certificate_key_file;
    size_t body_bytes_max, bodies_bytes_max;
    /* Waiting for a reader; drained() when it falls below low. */
    size_t stream_bytes_low, stream_bytes_max;
    const char *no_memory; /* JSON, a literal: the answer when there is no memory for the answer */
    void *context;
    void (*head)(void *context,
                 HttpExchange *x); /* may answer; the body is then read and dropped */
    /* In place of head() and request(): must answer, with 400; the connection then ends */
    void (*malformed)(void *context, HttpExchange *x, const char *fault);
    void (*request)(void *context, HttpExchange *x); /* must answer, or keep it and answer later */
    void (*gone)(void *context, HttpExchange *x);
    void (*drained)(void *context, HttpExchange *x);
    void (*tick)(void *context); /* once a second */
    /* Nobody has it any more. Thread  whose release was the last one; NULL: nobody asks */
    void (*over)(void *context, HttpExchange *x, const HttpOver *over);
} HttpServerOptions;

/* Whether two PEM files are a certificate and its key; fine when both are NULL. Before anything expensive starts.
 * Errors  ERR_USAGE: says which file, and why. */
MUST_CHECK Error http_tls_check(const char *certificate_file, const char *certificate_key_file,
                                Why *why);
/* Errors  ERR_USAGE (a certificate or its key), ERR_IO, ERR_MEMORY. */
MUST_CHECK Error http_server_open(const HttpServerOptions *options, HttpServer **out, Why *why);
/* Exchanges whose answer has not left yet. Thread  any. */
uint32_t http_server_busy(HttpServer *server);
uint32_t http_server_connections(HttpServer *server);
/* Connections that had to go because others came (http_crowd.c). Thread  any. */
uint64_t http_server_shed(HttpServer *server);
/* Other limits of one body and of all, from the next bytes on. Thread  any. */
void http_server_limit_bodies(HttpServer *server, size_t body_bytes_max, size_t bodies_bytes_max);
/* Ends every connection. Exchanges that were kept must have been released before. */
void http_server_close(HttpServer *server);

/* ---- Beside what serve/exchange.h has. Thread  any. */

/* What is behind '?', decoded, as "name=value&name=value". Result  false when it does not fit.
 * Thread  as the header. */
bool http_exchange_query(const HttpExchange *x, char *out, size_t room);
/* Something of the answerer's own. */
void http_exchange_set_tag(HttpExchange *x, void *tag);
void *http_exchange_tag(const HttpExchange *x);

#endif
