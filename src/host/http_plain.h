/* SPDX-License-Identifier: Apache-2.0 */
/* The short way of an HTTP client: calls without TLS to numeric addresses, as those between nodes are. A call that
 * finds its connection open costs two system calls, and little code that the weights have driven out of the
 * caches since the last one. Everything else goes through libcurl (http_client.c), which is also what this belongs to.
 *
 *   line:  CONNECTING --> SENDING --> READING --> IDLE --> the next call to that place
 *              '-------------'-----------'--> closed: no connection, too late, broken off, cancelled
 *
 * A kept line that breaks before a byte of the answer came is replaced by a new one, once a call.
 * Does not do: HEAD, a body of another type (then it is not its kind), chunked answers, ranges.
 * Thread  one, but for http_plain_wake. */
#ifndef COBORD_HOST_HTTP_PLAIN_H
#define COBORD_HOST_HTTP_PLAIN_H

#include "host/http_client.h"

typedef struct HttpPlain HttpPlain;

/* `key` as in HttpClientOptions. Result  NULL: no memory, no descriptors. Owner  http_plain_close. */
HttpPlain *http_plain_open(const char *key, uint32_t connect_ms);
void http_plain_close(HttpPlain *p);

/* Begins a call. Result  false: not its kind, or no memory; nothing has happened then. */
bool http_plain_start(HttpPlain *p, HttpCall *call);
/* Ends it with ERR_CANCELLED. Result  false: it is not under way here. */
bool http_plain_cancel(HttpPlain *p, HttpCall *call);
/* A call that has ended; NULL: none. */
HttpCall *http_plain_take(HttpPlain *p);

/* Waits until something moves, a deadline passes or somebody wakes it, and does what can be done. */
void http_plain_work(HttpPlain *p, int timeout_ms);
/* Readable when http_plain_work has something to do; and when a deadline passes, in ms, -1: never. */
int http_plain_descriptor(const HttpPlain *p);
int http_plain_left_ms(const HttpPlain *p);
void http_plain_wake(HttpPlain *p);

#endif
