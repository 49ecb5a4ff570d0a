/* SPDX-License-Identifier: Apache-2.0 */
/* The folder that describes a deployment:
 *
 *   DIR/cluster.json           the cluster file; native nodes can use it as it is
 *   DIR/key, secrets.json      the cluster key, for nodes here and for wrangler; only the owner may read them
 *   DIR/module/                scripts and cobord.wasm
 *   DIR/station-0/wrangler.json ..     one script each: names, bindings, variables
 *
 * Everything but the key is written anew each time; folders of nodes that are not in the plan go. */
#ifndef COBORD_CLI_DEPLOY_WRITE_H
#define COBORD_CLI_DEPLOY_WRITE_H

#include "cli/deploy_modules.h"
#include "cli/deploy_plan.h"

enum { DEPLOY_KV_BYTES = 33, DEPLOY_VARIABLE_BYTES_MAX = 4800 };

typedef struct DeployFolder {
    char path[PLACES_PATH_BYTES / 2]; /* absolute */
    char kv[DEPLOY_KV_BYTES];         /* id of the namespace for rows; zeros when it is not known */
} DeployFolder;

/* Makes the folder, and the key when there is none. Errors  ERR_IO, ERR_FORMAT (a key that is none), .. */
MUST_CHECK Error deploy_write_open(const char *path, DeployFolder *f, Why *why);
/* All files. Errors  ERR_IO, ERR_NO_SPACE, ERR_TOO_LARGE, ERR_MEMORY. */
MUST_CHECK Error deploy_write(const Deploy *d, const DeployModules *m, const DeployFolder *f,
                              Why *why);
/* "DIR/ID/NAME" */
MUST_CHECK Error deploy_write_path(const DeployFolder *f, const char *id, const char *name,
                                   char out[PLACES_PATH_BYTES], Why *why);
/* One configuration, as text. Owner  free it. Errors  ERR_MEMORY. */
MUST_CHECK Error deploy_write_text(const Deploy *d, const DeployFolder *f, const ClusterNode *n,
                                   char **text, size_t *bytes, Why *why);

#endif
