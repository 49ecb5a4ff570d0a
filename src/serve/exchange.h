/* SPDX-License-Identifier: Apache-2.0 */
/* A request and its answer, whatever brings them: host/http.c does, and workers/exchange.c. Whoever answers does it at
 * once, or keeps the exchange and answers later: http_reply, or http_stream_begin, _write ..., _end, once. */
#ifndef COBORD_SERVE_EXCHANGE_H
#define COBORD_SERVE_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/keys.h"
#include "api/trace.h"

typedef struct HttpExchange HttpExchange;

/* ---- The request. Thread  any, except the header: only while the request is given to its answerer. */

const char *http_exchange_method(const HttpExchange *x);
const char *http_exchange_path(const HttpExchange *x); /* "" when it is longer than a path may be */
const char *http_exchange_header(const HttpExchange *x, const char *name); /* NULL: none */
uint64_t http_exchange_announced(const HttpExchange *x); /* Content-Length, 0 when there is none */
/* false: larger than the limit, or no memory for it (*memory): answer 413 or 503. */
bool http_exchange_body(const HttpExchange *x, const uint8_t **bytes, size_t *count, bool *memory);
void http_exchange_drop_body(HttpExchange *x);
bool http_exchange_gone(HttpExchange *x);
/* An exchange that is kept beyond its request's call must be released. */
void http_exchange_keep(HttpExchange *x);
void http_exchange_release(HttpExchange *x);

/* What the log says of it; all zero at first, written by whoever has the request. */
typedef struct HttpRecord {
    char request_id[TRACE_REQUEST_BYTES];
    Trace trace;
    uint64_t first_ns; /* when the answer's first token was there; 0: there was none */
    uint64_t prompt_tokens, completion_tokens, cached_tokens;
    char key_name[KEYS_NAME_BYTES]; /* "": none */
    const char *error;              /* a code, a literal; NULL: none */
} HttpRecord;
HttpRecord *http_exchange_record(HttpExchange *x);

/* How it ended, once nobody has it any more. Method and path can still be read then; headers can not. */
typedef struct HttpOver {
    unsigned status; /* 0: there was no answer */
    bool gone;       /* the client left before it had all of it */
    uint64_t begin_ns, end_ns;
} HttpOver;

/* ---- The answer, once. Thread  any. Nothing happens when the client is gone. */

/* One more line "Name: value" of the answer's head, whatever answer it becomes: copied, and before it is given.
 * Result  false: no memory, or it is no such line (answer_headers.h). */
bool http_answer_header(HttpExchange *x, const char *line);

typedef struct HttpReply {
    unsigned status;
    const char *type;  /* a literal; NULL: there is no body */
    const char *allow; /* a literal, of 405 */
    unsigned retry_s;  /* 0: none */
} HttpReply;

/* Owner  `body` is malloc'd and becomes the exchange's. */
void http_reply_take(HttpExchange *x, const HttpReply *reply, char *body, size_t bytes);
void http_reply(HttpExchange *x, const HttpReply *reply, const char *body, size_t bytes);

/* `idle` is written whenever nothing was for idle_s seconds; a literal. */
void http_stream_begin(HttpExchange *x, const char *type, const char *idle, unsigned idle_s);
/* false: the client is gone, or the bytes do not fit; none of them is then sent. */
bool http_stream_write(HttpExchange *x, const void *bytes, size_t count);
size_t http_stream_pending(HttpExchange *x);
void http_stream_end(HttpExchange *x);

#endif
