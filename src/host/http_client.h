/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP calls over kept-alive connections, any number at once, each with its own deadline. Calls between
 * nodes use no proxy, whatever the environment says: a link between nodes is what the cluster file names.
 *
 *   http_client_start(call) ..  http_client_wait --> the call that has ended, or NULL
 *
 * Nothing is followed (redirects) and nothing is tried twice, but for a kept connection that the peer had
 * closed before the request left.
 * Thread  a client belongs to one thread, but for http_client_wake. */
#ifndef COBORD_HOST_HTTP_CLIENT_H
#define COBORD_HOST_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    HTTP_CLIENT_URL_BYTES_MAX = 1536,
    HTTP_CLIENT_HEADERS_MAX = 12,
    HTTP_CLIENT_DEADLINE_MS = 30000
};

typedef struct HttpClientOptions {
    const char *key;     /* sent as "Authorization: Bearer KEY"; NULL: none */
    const char *ca_file; /* certificates that peers are checked against; NULL: the system's */
    /* Any certificate will do: for calls without secrets to processes of our own. */
    bool unverified;
    bool certificates; /* keep the peer's, see HttpCall */
    uint32_t connect_ms; /* 0: 2,000 */
    bool direct; /* calls without TLS to numeric addresses take the short way (http_plain.h) */
} HttpClientOptions;

typedef struct HttpCall {
    /* asked; borrowed until the call has ended */
    const char *method; /* "POST", "GET", "HEAD", "DELETE", "PUT" */
    const char *url;
    /* "Name: value", ends at NULL. A body is application/octet-stream unless one says otherwise. */
    const char *headers[HTTP_CLIENT_HEADERS_MAX];
    const void *parts[2]; /* the body */
    size_t part_bytes[2];
    uint32_t deadline_ms; /* 0: HTTP_CLIENT_DEADLINE_MS */
    /* Room of the caller; an answer that is larger fails the call. NULL: dropped. */
    uint8_t *answer;
    size_t answer_room;
    void *tag; /* the caller's */
    /* answered */
    /* OK whatever the status; ERR_UNREACHABLE (no connection, broken off, too late: the Why says which),
     * ERR_TOO_LARGE, ERR_CANCELLED, ERR_MEMORY */
    Error error;
    Why why;
    unsigned status;
    size_t answer_bytes;
    /* Of Content-Range, or of a HEAD's Content-Length; range_bytes_total 0: there was none. */
    uint64_t range_first, range_bytes_total;
    /* Seconds since 1970: of the Date header, and until when the peer's certificate is good, on the connection's first
     * call of a client that keeps them. 0: there was none. libcurl's way alone. */
    int64_t date_s, certificate_until_s;
    uint32_t microseconds;
    size_t sent_bytes; /* of a large body, while it is under way too */
    /* the client's */
    void *handle;
    struct HttpCall *next;
} HttpCall;

typedef struct HttpClient HttpClient;

/* Owner  http_client_close; options are copied. Errors  ERR_MEMORY, ERR_IO (the certificates). */
MUST_CHECK Error http_client_open(const HttpClientOptions *options, HttpClient **out, Why *why);
/* Calls that have not ended are forgotten. */
void http_client_close(HttpClient *client);

/* Owner  the call stays where it is until http_client_wait returned it. A call that cannot even begin ends at once, with its error. */
void http_client_start(HttpClient *client, HttpCall *call);
/* Ends the call with ERR_CANCELLED, unless it has ended; http_client_wait returns it next. */
void http_client_cancel(HttpClient *client, HttpCall *call);
/* A call that has ended; NULL after timeout_ms (0: looks only; negative: waits), or when somebody called
 * http_client_wake, before or during the wait. */
HttpCall *http_client_wait(HttpClient *client, int timeout_ms);
/* Ends a wait. Thread  any. */
void http_client_wake(HttpClient *client);
/* One call from beginning to end; nothing else may be under way. */
void http_client_run(HttpClient *client, HttpCall *call);

#endif
