/* SPDX-License-Identifier: Apache-2.0 */
/* What the two threads of an HTTP server share; everything under `lock` unless it says otherwise. */
#ifndef COBORD_HOST_HTTP_STATE_H
#define COBORD_HOST_HTTP_STATE_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>

#include "host/http.h"
#include "serve/answer_headers.h"

/* A connection, from accept to close. */
typedef struct HttpLine {
    int fd;
    bool busy, in_body; /* busy: its request is being answered */
    bool replying;      /* busy, and the whole answer is there for the client to read */
    bool served;        /* has brought a body before, and was answered 2xx */
    bool shed;          /* it had to go */
    uint32_t address;   /* http_crowd_address */
    uint64_t since_ns;  /* of the wait for a request, for its body, or for its answer to be read */
    uint64_t sent_ns;   /* replying: when some of it last went out, as far as is known */
    struct HttpLine *next, *before;
} HttpLine;

struct HttpExchange {
    HttpServer *server;
    struct MHD_Connection *connection;
    HttpLine *line;
    HttpExchange *next, *before;
    uint64_t serial; /* how the watcher knows it */
    uint32_t references;
    /* of the request; written by the server's thread before request() */
    char method[16], path[256];
    uint64_t announced, body_read;
    char *body;
    size_t body_bytes, body_room;
    bool body_too_large, body_no_memory, complete;
    void *tag;
    /* of the answer */
    bool answered, streams, suspended, watched, gone;
    HttpReply reply;
    HttpRecord record;
    bool lost;
    uint64_t begin_ns, end_ns;
    AnswerHeaders headers;
    char *reply_body;
    size_t reply_bytes;
    char *out; /* of a stream: out[out_at .. out_end) waits */
    size_t out_at, out_end, out_room;
    bool out_ended;
    const char *idle;
    uint64_t idle_ns, written_ns;
};

/* Texts of two PEM files, or NULL; while the server starts. */
typedef struct HttpTls {
    char *certificate, *key;
} HttpTls;

struct HttpServer {
    HttpServerOptions options;
    HttpTls tls;
    struct MHD_Daemon *daemon;
    pthread_mutex_t lock;
    pthread_t watcher;
    bool watcher_runs, closing;
    int epoll_fd, stop_fd;
    HttpExchange *exchanges;
    HttpLine *lines;
    uint32_t line_count, shed_count; /* those that are to go are counted in both */
    uint64_t shed_total, shed_told, shed_told_ns;
    uint64_t crowd_seed; /* nobody knows it */
    uint64_t serial;
    size_t bodies_bytes;
};

/* Lets libmicrohttpd look at a suspended connection again. */
void http_wake_locked(HttpExchange *x);
bool http_stream_write_locked(HttpExchange *x, const void *bytes, size_t count);

/* Reads and checks the files that `options` names. Errors  ERR_USAGE: says which file, and why. */
MUST_CHECK Error http_tls_read(HttpTls *tls, const HttpServerOptions *options, Why *why);
void http_tls_forget(HttpTls *tls);

/* What is wrong with where a request ends; NULL: nothing. Thread  the server's, with the head. */
const char *http_framing_fault(struct MHD_Connection *connection, const char *version);

/* How many connections there may be: `wanted`, or fewer when the process may not have so many files. */
uint32_t http_crowd_room(uint32_t wanted);
/* A small number of the address, alike for those of one network's host; which of them are alike besides is the seed's.
 * NULL: not known. */
uint32_t http_crowd_address(uint64_t seed, const struct sockaddr *address);
/* Ends a line when there are nearly as many as may be; not `newest`, which has had no time to say anything. */
void http_crowd_shed_locked(HttpServer *s, const HttpLine *newest);
/* Once a second: those that have got on meanwhile to what lets them go, when nobody can come because of them. */
void http_crowd_tick_locked(HttpServer *s);

void http_watch_locked(HttpExchange *x);
void http_watch_end_locked(HttpExchange *x);
/* The watcher's thread; its argument is the server. */
void *http_watch(void *server);

#endif
