/* SPDX-License-Identifier: Apache-2.0 */
/* Where the server is that `status` and `ready` ask. */
#ifndef COBORD_CLI_SERVER_ADDRESS_H
#define COBORD_CLI_SERVER_ADDRESS_H

#include <stdbool.h>

#include "host/http_client.h"

enum { SERVER_ADDRESS_GIVEN_MAX = 512 };

/* "10.0.0.7:8080/" and "/ready" become "http://10.0.0.7:8080/ready", with `tls` "https://10.0.0.7:8080/ready". False: it
 * is empty or too long. */
bool server_address_make(const char *given, bool tls, const char *path,
                         char out[HTTP_CLIENT_URL_BYTES_MAX]);

/* Of who gave none: COBORD_URL, else where `cobord serve` listens by the same settings (COBORD_LISTEN, with TLS when
 * COBORD_TLS_CERTIFICATE is set; `own` then, since only this machine can be meant), else 127.0.0.1:8080. Errors
 * ERR_USAGE (a setting that is no address). */
MUST_CHECK Error server_address_default(bool tls, const char *path,
                                        char out[HTTP_CLIENT_URL_BYTES_MAX], bool *own, Why *why);

/* What to do about a call that failed; `other` where nothing better is known. */
const char *server_address_advice(const Why *why, const char *other);

/* A server that listens on all addresses is asked on this machine's own. */
const char *server_address_host(const char *host);

#endif
