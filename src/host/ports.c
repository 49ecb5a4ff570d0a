/* SPDX-License-Identifier: Apache-2.0 */
#include "host/ports.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

Error ports_parse(const char *where, char host[PORTS_HOST_BYTES], uint16_t *number, Why *why)
{
    const char *colon = strrchr(where, ':'), *digits = colon ? colon + 1 : where;
    size_t bytes = colon ? (size_t)(colon - where) : 0;
    bool brackets = bytes >= 2 && where[0] == '[' && where[bytes - 1] == ']';
    const char *from = brackets ? where + 1 : where;
    if (brackets) bytes -= 2;
    size_t count = strspn(digits, "0123456789");
    unsigned long value = count && count <= 5 && !digits[count] ? strtoul(digits, NULL, 10) : 65536;
    if (value > 65535 || bytes >= PORTS_HOST_BYTES || (!brackets && memchr(from, ':', bytes)))
        return error_why(why, ERR_USAGE,
                         "'%s' is no HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080", where);
    if (bytes) (void)snprintf(host, PORTS_HOST_BYTES, "%.*s", (int)bytes, from);
    else (void)snprintf(host, PORTS_HOST_BYTES, "127.0.0.1");
    *number = (uint16_t)value;
    return OK;
}

char *ports_text(const char *host, uint16_t number, char out[PORTS_TEXT_BYTES])
{
    bool six = strchr(host, ':') != NULL;
    (void)snprintf(out, PORTS_TEXT_BYTES, six ? "[%s]:%u" : "%s:%u", host, (unsigned)number);
    return out;
}

static uint16_t ports_bound(int fd)
{
    struct sockaddr_storage a;
    socklen_t bytes = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &bytes) != 0) return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&a)->sin6_port
                                         : ((struct sockaddr_in *)(void *)&a)->sin_port);
}

static Error ports_bind(const struct addrinfo *a, const char *host, uint16_t number, Port *out,
                        Why *why)
{
    int on = 1;
    out->fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (out->fd >= 0) {
        /* Set after a free port was found, so that nobody else's reservation is shared. */
        if (number) (void)setsockopt(out->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (bind(out->fd, a->ai_addr, a->ai_addrlen) == 0) {
            (void)setsockopt(out->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
            out->number = ports_bound(out->fd);
            return OK;
        }
    }
    Error error = error_why(why, ERR_IO, "%s port %u: %s", host, (unsigned)number, strerror(errno));
    ports_release(out);
    return error;
}

/* Errors  ERR_IO: somebody has claimed it. */
static Error ports_claim(Port *p, Why *why)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    char text[PORTS_TEXT_BYTES];
    p->claim = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int bytes = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "cobord/%s",
                         ports_text(p->host, p->number, text));
    if ((size_t)bytes >= sizeof name.sun_path - 1) bytes = (int)sizeof name.sun_path - 2;
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)bytes);
    if (p->claim >= 0 && bind(p->claim, (struct sockaddr *)&name, length) == 0) return OK;
    Error error =
        error_why(why, ERR_IO, "%s port %u: %s", p->host, (unsigned)p->number, strerror(errno));
    ports_release(p);
    return error;
}

Error ports_reserve(const char *host, uint16_t number, Port *out, Why *why)
{
    char digits[8];
    struct addrinfo *found = NULL, hints = {.ai_family = AF_UNSPEC,
                                            .ai_socktype = SOCK_STREAM,
                                            .ai_flags = AI_PASSIVE};
    *out = (Port){.fd = -1, .claim = -1};
    (void)snprintf(out->host, sizeof out->host, "%s", host);
    (void)snprintf(digits, sizeof digits, "%u", (unsigned)number);
    int fault = getaddrinfo(host, digits, &hints, &found);
    if (fault) return error_why(why, ERR_USAGE, "%s: %s", host, gai_strerror(fault));
    Error error = ports_bind(found, host, number, out, why);
    freeaddrinfo(found);
    if (error == OK && number) error = ports_claim(out, why);
    return error;
}

void ports_release(Port *port)
{
    if (port->fd >= 0) close(port->fd);
    if (port->claim >= 0) close(port->claim);
    port->fd = port->claim = -1;
}
