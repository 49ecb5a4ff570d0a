/* SPDX-License-Identifier: Apache-2.0 */
/* A listening TCP socket from HOST:PORT, bound before anything expensive starts, so that a port in
 * use is known at once. */
#ifndef COBORD_HOST_LISTEN_H
#define COBORD_HOST_LISTEN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/error.h"

typedef struct Listen {
    int fd;
    int fault; /* why there is none: errno of the socket; 0: another reason */
    bool loopback;
    char name[256];   /* of the host, when it was given by one; "": by its address */
    char address[80]; /* as bound: "127.0.0.1:8080", "[::1]:8080" */
} Listen;

/* "127.0.0.1:8080", "localhost:0" (any free port), "[::]:80", ":8080" (loopback), "8080" (loopback).
 * Errors  ERR_USAGE (no such form or host), ERR_IO (in use, not allowed). Owner  close the fd. */
MUST_CHECK Error listen_open(const char *where, Listen *out, Why *why);

bool listen_is_loopback(const struct sockaddr *address);

#endif
