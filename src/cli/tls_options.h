/* SPDX-License-Identifier: Apache-2.0 */
/* --tls-certificate and --tls-key of the verbs that serve the API. */
#ifndef COBORD_CLI_TLS_OPTIONS_H
#define COBORD_CLI_TLS_OPTIONS_H

#include "cli/options.h"

/* For a verb's list. */
#define OPTIONS_TLS OPTION_TLS_CERTIFICATE, OPTION_TLS_KEY

typedef struct TlsOptions {
    const char *certificate, *key; /* both NULL: no TLS */
} TlsOptions;

/* Tries the files, so that a bad one is known before anything expensive starts.
 * Result  0, or the exit code of a complaint. */
int tls_options_read(const Options *o, TlsOptions *out);

/* Says who can use an API that listens beyond this machine. `place` is "HOST:PORT". */
void tls_options_warn(const char *place, bool tls);

#endif
