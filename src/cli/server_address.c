/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/server_address.h"

#include <stdio.h>
#include <string.h>

#include "cli/options.h"
#include "host/ports.h"

bool server_address_make(const char *given, bool tls, const char *path,
                         char out[HTTP_CLIENT_URL_BYTES_MAX])
{
    size_t bytes = strlen(given);
    while (bytes && given[bytes - 1] == '/') bytes--;
    bool has_scheme = strncmp(given, "http://", 7) == 0 || strncmp(given, "https://", 8) == 0;
    if (!bytes || bytes > SERVER_ADDRESS_GIVEN_MAX) return false;
    (void)snprintf(out, HTTP_CLIENT_URL_BYTES_MAX, "%s%.*s%s",
                   has_scheme ? ""
                   : tls      ? "https://"
                              : "http://",
                   (int)bytes, given, path);
    return true;
}

const char *server_address_advice(const Why *why, const char *other)
{
    if (strstr(why->text, "not trusted")) return "Say which certificates to trust: --tls-ca FILE";
    if (strstr(why->text, "no TLS connection"))
        return "Without TLS its address begins with http://";
    if (strstr(why->text, "broken off")) return "With TLS its address begins with https://";
    return other;
}

const char *server_address_host(const char *host)
{
    if (strcmp(host, "0.0.0.0") == 0) return "127.0.0.1";
    return strcmp(host, "::") == 0 ? "::1" : host;
}

Error server_address_default(bool tls, const char *path, char out[HTTP_CLIENT_URL_BYTES_MAX],
                             bool *own, Why *why)
{
    char host[PORTS_HOST_BYTES], place[PORTS_TEXT_BYTES];
    const char *url = options_setting(OPTION_URL);
    uint16_t port;
    *own = !url;
    if (url)
        return server_address_make(url, tls, path, out)
                   ? OK
                   : error_why(why, ERR_USAGE, "COBORD_URL must have 1 to %d bytes",
                               SERVER_ADDRESS_GIVEN_MAX);
    TRY(ports_parse(options_setting(OPTION_LISTEN), host, &port, why));
    tls = tls || options_setting(OPTION_TLS_CERTIFICATE);
    (void)ports_text(server_address_host(host), port, place);
    return server_address_make(place, tls, path, out)
               ? OK
               : error_why(why, ERR_USAGE, "COBORD_LISTEN is no address");
}
