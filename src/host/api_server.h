/* SPDX-License-Identifier: Apache-2.0 */
/* src/serve on this machine: the HTTP server in front of it, threads that read requests, the engine's thread, which is
 * the caller's, and the signals that end it. The engine's thread sleeps while no slot is active; whoever has news
 * writes to an eventfd. */
#ifndef COBORD_HOST_API_SERVER_H
#define COBORD_HOST_API_SERVER_H

#include "host/access.h"
#include "host/listen.h"
#include "serve/serve.h"

typedef struct ApiServer ApiServer;

typedef struct ApiServerOptions {
    Listen listen;                                       /* the socket becomes the server's */
    const char *certificate_file, *certificate_key_file; /* PEM; NULL: no TLS */
    size_t bodies_bytes_max; /* of all requests that are read at once; 0: 64 MiB */
    Access access;           /* its file of keys is read again on SIGHUP */
    uint32_t drain_s;        /* answers that are under way at the signal may take so long */
    ServeOptions serve;      /* but for `host`, `page`, `name` and `cors` */
} ApiServerOptions;

/* Accepts requests from here on. Owner  what the options point to must outlive it. */
MUST_CHECK Error api_server_open(const ApiServerOptions *options, ApiServer **out, Why *why);
/* Answers until SIGINT or SIGTERM, then finishes what was begun within drain_s; a second signal gives that up
 * (what is written by then has another second to reach its readers), a third ends the process. */
void api_server_run(ApiServer *server);
void api_server_close(ApiServer *server);

#endif
