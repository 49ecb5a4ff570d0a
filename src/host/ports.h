/* SPDX-License-Identifier: Apache-2.0 */
/* Ports for processes that are yet to start: bound here, listened on there.
 *
 *   reserve   socket, SO_REUSEADDR, bind, and never listen: nobody gets the port by chance
 *   start     the child binds the same address with SO_REUSEADDR and listens: the system lets it,
 *             since nobody else listens
 *   restart   the child is gone, the port is still ours
 *
 * An address that was asked for by number is also claimed by name (a Unix socket without a file), since two
 * that reserve the same one before anybody listens would both be let.
 * While no child listens, a connection is refused at once, as it should be. */
#ifndef COBORD_HOST_PORTS_H
#define COBORD_HOST_PORTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { PORTS_HOST_BYTES = 256, PORTS_TEXT_BYTES = PORTS_HOST_BYTES + 16 };

typedef struct Port {
    int fd;    /* -1: none */
    int claim; /* of an address that was asked for: whoever else asks is told; -1: none */
    uint16_t number;
    char host[PORTS_HOST_BYTES]; /* as it was given, without brackets */
} Port;

/* "HOST:PORT", "[IPv6]:PORT", ":PORT", "PORT" (both loopback). Errors  ERR_USAGE. */
MUST_CHECK Error ports_parse(const char *where, char host[PORTS_HOST_BYTES], uint16_t *number,
                             Why *why);

/* As an address is written: "127.0.0.1:8080", "[::1]:8080". Result  out. */
char *ports_text(const char *host, uint16_t number, char out[PORTS_TEXT_BYTES]);

/* Number 0: any free one. Errors  ERR_USAGE (no such host), ERR_IO (in use, not allowed). Owner  ports_release. */
MUST_CHECK Error ports_reserve(const char *host, uint16_t number, Port *out, Why *why);
void ports_release(Port *port);

#endif
