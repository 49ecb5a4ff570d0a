/* SPDX-License-Identifier: Apache-2.0 */
/* Heads that say in two ways where their request ends. A proxy in front may believe the other one: what it takes for a
 * body is then a request of somebody else's here ("request smuggling"). Such a head is refused and its connection
 * closed; so is what no client of today sends. libmicrohttpd takes the first of two lengths, and chunks before a length.
 * Source  RFC 9112, 6.1 to 6.3; RFC 9110, 7.2 (Host). */
#include <string.h>
#include <strings.h>

#include "host/http_state.h"

typedef struct Framing {
    unsigned lengths, encodings, hosts;
    bool chunked, strange_name;
} Framing;

static bool is_token(const char *name)
{
    for (const char *c = name; *c; c++)
        if (*c <= ' ' || *c >= 127 || strchr("\"(),/:;<=>?@[\\]{}", *c)) return false;
    return *name != '\0';
}

static enum MHD_Result look_at(void *context, enum MHD_ValueKind kind, const char *name,
                               const char *value)
{
    Framing *f = context;
    (void)kind;
    f->strange_name |= !is_token(name);
    f->lengths += strcasecmp(name, "Content-Length") == 0;
    f->hosts += strcasecmp(name, "Host") == 0;
    if (strcasecmp(name, "Transfer-Encoding") != 0) return MHD_YES;
    f->encodings++;
    f->chunked = value && strcasecmp(value, "chunked") == 0;
    return MHD_YES;
}

const char *http_framing_fault(struct MHD_Connection *connection, const char *version)
{
    Framing f = {0};
    (void)MHD_get_connection_values(connection, MHD_HEADER_KIND, look_at, &f);
    if (f.strange_name) return "the name of a header has characters that none may have";
    if (f.lengths > 1) return "Content-Length is there more than once";
    if (f.hosts > 1) return "Host is there more than once";
    if (f.encodings > 1) return "Transfer-Encoding is there more than once";
    if (f.encodings && f.lengths)
        return "Transfer-Encoding and Content-Length are both there; either says where the body ends";
    if (f.encodings && !f.chunked) return "the Transfer-Encoding must be chunked";
    if (f.encodings && strcmp(version, "HTTP/1.1") != 0) return "Transfer-Encoding is of HTTP/1.1";
    return NULL;
}
