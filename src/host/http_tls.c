/* SPDX-License-Identifier: Apache-2.0 */
/* The certificate of an HTTP server and its key: two PEM files, read and tried before the server starts, since
 * libmicrohttpd only says that something was wrong. */
#include <errno.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/http_state.h"
#include "host/whole.h"

enum { PEM_BYTES_MAX = 1 << 20 };

static Error read_text(const char *path, char **out, Why *why)
{
    size_t used = 0;
    int fd = whole_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return error_why(why, ERR_USAGE, "%s: %s", path, strerror(errno));
    char *text = malloc(PEM_BYTES_MAX + 1);
    ssize_t n = text ? 1 : -1;
    while (n > 0 && used <= PEM_BYTES_MAX) {
        n = read(fd, text + used, PEM_BYTES_MAX + 1 - used);
        if (n > 0) used += (size_t)n;
    }
    int fault = errno;
    close(fd);
    *out = text;
    if (!text) return error_why(why, ERR_MEMORY, "no memory for %s", path);
    if (n < 0) return error_why(why, ERR_USAGE, "%s: %s", path, strerror(fault));
    if (used > PEM_BYTES_MAX)
        return error_why(why, ERR_USAGE, "%s: larger than 1 MiB, no PEM file", path);
    text[used] = '\0';
    return OK;
}

/* Whether GnuTLS takes the pair. */
static Error try_pair(const HttpTls *tls, const HttpServerOptions *o, Why *why)
{
    gnutls_certificate_credentials_t both;
    gnutls_datum_t certificate = {(unsigned char *)tls->certificate,
                                  (unsigned)strlen(tls->certificate)};
    gnutls_datum_t key = {(unsigned char *)tls->key, (unsigned)strlen(tls->key)};
    if (gnutls_certificate_allocate_credentials(&both) != GNUTLS_E_SUCCESS)
        return error_why(why, ERR_MEMORY, "no memory for TLS");
    int fault = gnutls_certificate_set_x509_key_mem(both, &certificate, &key, GNUTLS_X509_FMT_PEM);
    gnutls_certificate_free_credentials(both);
    if (fault >= 0) return OK;
    return error_why(why, ERR_USAGE, "%s with %s: %s", o->certificate_file, o->certificate_key_file,
                     gnutls_strerror(fault));
}

Error http_tls_read(HttpTls *tls, const HttpServerOptions *o, Why *why)
{
    if (!o->certificate_file && !o->certificate_key_file) return OK;
    if (!o->certificate_file || !o->certificate_key_file)
        return error_why(why, ERR_USAGE, "TLS needs a certificate and its key; %s is missing",
                         o->certificate_file ? "the key" : "the certificate");
    TRY(read_text(o->certificate_file, &tls->certificate, why));
    TRY(read_text(o->certificate_key_file, &tls->key, why));
    return try_pair(tls, o, why);
}

Error http_tls_check(const char *certificate_file, const char *certificate_key_file, Why *why)
{
    HttpTls tls = {0};
    HttpServerOptions options = {.certificate_file = certificate_file,
                                 .certificate_key_file = certificate_key_file};
    Error error = http_tls_read(&tls, &options, why);
    http_tls_forget(&tls);
    return error;
}

void http_tls_forget(HttpTls *tls)
{
    if (tls->key) explicit_bzero(tls->key, strlen(tls->key));
    free(tls->certificate);
    free(tls->key);
    *tls = (HttpTls){0};
}
