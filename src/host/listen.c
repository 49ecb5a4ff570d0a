/* SPDX-License-Identifier: Apache-2.0 */
#include "host/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Connections that nobody has accepted yet; beyond them a client tries again a second later. The system's own limit
 * (net.core.somaxconn) may be lower. */
enum { WAITING_MAX = 4096 };

typedef struct Place {
    char host[256], port[8];
} Place;

static bool is_port(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    unsigned value = 0;
    if (digits == 0 || digits > 5 || text[digits]) return false;
    for (const char *c = text; *c; c++) value = 10 * value + (unsigned)(*c - '0');
    return value <= 65535;
}

static Error split(const char *where, Place *out, Why *why)
{
    const char *colon = strrchr(where, ':'), *port = colon ? colon + 1 : where;
    size_t host = colon ? (size_t)(colon - where) : 0;
    bool brackets = host >= 2 && where[0] == '[' && where[host - 1] == ']';
    if (!is_port(port) || host >= sizeof out->host || (!brackets && memchr(where, ':', host)))
        return error_why(why, ERR_USAGE,
                         "'%s' is no HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080", where);
    const char *from = brackets ? where + 1 : where;
    size_t bytes = brackets ? host - 2 : host;
    (void)snprintf(out->host, sizeof out->host, "%.*s", (int)bytes, from);
    if (!bytes) (void)snprintf(out->host, sizeof out->host, "127.0.0.1");
    (void)snprintf(out->port, sizeof out->port, "%s", port);
    return OK;
}

bool listen_is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

/* What is no address of either kind. */
static bool is_name(const char *host)
{
    struct in6_addr address;
    return inet_pton(AF_INET, host, &address) != 1 && inet_pton(AF_INET6, host, &address) != 1;
}

static void describe(Listen *out)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    char host[64] = "?", port[8] = "?";
    if (getsockname(out->fd, (struct sockaddr *)&address, &bytes) != 0) return;
    out->loopback = listen_is_loopback((struct sockaddr *)&address);
    (void)getnameinfo((struct sockaddr *)&address, bytes, host, sizeof host, port, sizeof port,
                      NI_NUMERICHOST | NI_NUMERICSERV);
    bool six = address.ss_family == AF_INET6;
    (void)snprintf(out->address, sizeof out->address, six ? "[%s]:%s" : "%s:%s", host, port);
}

static Error bind_to(const struct addrinfo *a, const char *where, Listen *out, Why *why)
{
    int on = 1;
    out->fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (out->fd < 0) {
        out->fault = errno;
        return error_why(why, ERR_IO, "%s: %s", where, strerror(errno));
    }
    (void)setsockopt(out->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(out->fd, a->ai_addr, a->ai_addrlen) == 0 && listen(out->fd, WAITING_MAX) == 0) {
        describe(out);
        return OK;
    }
    out->fault = errno;
    Error error = error_why(why, ERR_IO, "%s: %s", where, strerror(errno));
    close(out->fd);
    out->fd = -1;
    return error;
}

Error listen_open(const char *where, Listen *out, Why *why)
{
    Place place;
    struct addrinfo *found = NULL, hints = {.ai_family = AF_UNSPEC,
                                            .ai_socktype = SOCK_STREAM,
                                            .ai_flags = AI_PASSIVE};
    *out = (Listen){.fd = -1};
    TRY(split(where, &place, why));
    int fault = getaddrinfo(place.host, place.port, &hints, &found);
    if (fault) return error_why(why, ERR_USAGE, "%s: %s", where, gai_strerror(fault));
    if (is_name(place.host)) (void)snprintf(out->name, sizeof out->name, "%s", place.host);
    Error error = bind_to(found, where, out, why);
    freeaddrinfo(found);
    return error;
}
