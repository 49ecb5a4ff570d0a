/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/tls_options.h"

#include "cli/complain.h"
#include "host/http.h"
#include "host/log.h"

int tls_options_read(const Options *o, TlsOptions *out)
{
    Why why = {{0}};
    *out = (TlsOptions){options_text(o, OPTION_TLS_CERTIFICATE), options_text(o, OPTION_TLS_KEY)};
    if (!out->certificate != !out->key)
        return complain_usage("%s needs --tls-%s too: TLS takes a certificate and its key.",
                              options_where(o, out->key ? OPTION_TLS_KEY : OPTION_TLS_CERTIFICATE),
                              out->key ? "certificate" : "key");
    Error error = http_tls_check(out->certificate, out->key, &why);
    if (error == OK) return 0;
    return complain(error, &why, NULL, "Give the PEM files of a certificate and of its key");
}

void tls_options_warn(const char *place, bool tls)
{
    log_say(LOG_INFO, "anyone who reaches %s can use this server: it has no keys%s", place,
            tls ? "" : ", and no TLS without --tls-certificate");
}
