/* SPDX-License-Identifier: Apache-2.0 */
/* Cloudflare's own program does what needs the account: scripts, secrets, namespaces, buckets. We run it,
 * one call after the other, without a terminal; all that it said is kept beside the configuration it was about.
 *
 *   DIR/ID/wrangler.log, DIR/wrangler.log
 *
 * It sees our environment: CLOUDFLARE_API_TOKEN, or what `wrangler login` left. */
#ifndef COBORD_CLI_DEPLOY_WRANGLER_H
#define COBORD_CLI_DEPLOY_WRANGLER_H

#include "cli/deploy_write.h"

typedef struct DeployWrangler {
    const char *program;
    const DeployFolder *folder;
} DeployWrangler;

/* That it is there and runs; quiet from here on. Errors  ERR_NOT_FOUND (says how to get it). */
MUST_CHECK Error deploy_wrangler_open(const char *program, const char *account,
                                      const DeployFolder *folder, DeployWrangler *out, Why *why);

/* That it knows an account. Errors  ERR_KEY. */
MUST_CHECK Error deploy_wrangler_login(const DeployWrangler *w, Why *why);

/* Reads a configuration with all it names, and sends nothing. Errors  ERR_FORMAT (its own words). */
MUST_CHECK Error deploy_wrangler_check(const DeployWrangler *w, const ClusterNode *n, Why *why);
/* The script with its secrets. `url` gets the address it has now, "" when it has none.
 * Errors  ERR_IO (its own words), ERR_CANCELLED. */
MUST_CHECK Error deploy_wrangler_deploy(const DeployWrangler *w, const ClusterNode *n, char *url,
                                        size_t room, Why *why);
/* The namespace of that title, made when there is none; its id. Errors  ERR_IO. */
MUST_CHECK Error deploy_wrangler_namespace(const DeployWrangler *w, const char *title,
                                           char id[DEPLOY_KV_BYTES], Why *why);
/* Makes a bucket. Errors  ERR_IO. */
MUST_CHECK Error deploy_wrangler_bucket(const DeployWrangler *w, const char *bucket, Why *why);

/* The line of `text` that says what went wrong, without colours. */
void deploy_wrangler_fault(const char *text, char *out, size_t room);

#endif
