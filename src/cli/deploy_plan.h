/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster plan for Cloudflare: who is which script, what it keeps, what it streams.
 *
 *   --stations, --shards given    as with `cobord plan`
 *   neither                       as few of each as keep every weight in memory; where no number does, 2 and 8
 *
 * A script has an isolate of its own, 128 MB for JavaScript and WebAssembly: --memory bounds the latter. */
#ifndef COBORD_CLI_DEPLOY_PLAN_H
#define COBORD_CLI_DEPLOY_PLAN_H

#include "cli/cluster_plan.h"
#include "cluster/isolate.h"

enum {
    DEPLOY_NAME_BYTES = 41, /* a script's name is at most 63: NAME-shard-warden-9999 */
    DEPLOY_SCRIPT_BYTES = DEPLOY_NAME_BYTES + CLUSTER_FILE_ID_BYTES,
    DEPLOY_BUCKET_BYTES = 64,
    DEPLOY_ACCOUNT_BYTES = 33,
    DEPLOY_HOST_BYTES = 192,
    DEPLOY_SCRIPTS_FREE = 100, /* of an account */
    DEPLOY_SCRIPTS_PAID = 500,
    DEPLOY_CALLS_FREE = 45, /* of an invocation: 50, and some left for the end of it */
    DEPLOY_CALLS_PAID = 9000
};

#define DEPLOY_MEMORY_DEFAULT ((uint64_t)96 << 20)
#define DEPLOY_MEMORY_MAX ((uint64_t)112 << 20)
#define DEPLOY_WARDEN_MEMORY_DEFAULT ((uint64_t)64 << 20)

/* What a role takes of its isolate, and asks the store for: computed as the node itself does. */
typedef struct DeployRole {
    Isolate isolate;
    uint64_t weight_bytes, cache_bytes;
    uint64_t rows_bytes; /* embedding rows, which it answers for */
    uint32_t reads;      /* of the store, a pass, each of at most a tile */
    /* with a warden: calls of it instead, and what it has to read itself since it does not keep it */
    uint32_t warden_calls;
    uint64_t warden_bytes;
    bool keeps_rows; /* its embedding rows stay in memory too, or it has none */
} DeployRole;

typedef struct Deploy {
    const Options *options;
    const OpenModel *model;
    ClusterPlan plan;
    DeployRole role[PLAN_ROLES_MAX]; /* as in the plan */
    char name[DEPLOY_NAME_BYTES], bucket[DEPLOY_BUCKET_BYTES], account[DEPLOY_ACCOUNT_BYTES];
    char subdomain[DEPLOY_BUCKET_BYTES]; /* "": nodes have no addresses of their own */
    char knot_key[PLACES_PATH_BYTES], store[DEPLOY_BUCKET_BYTES + 8];
    bool free_plan;
    char (*hosts)[DEPLOY_HOST_BYTES]; /* [place_count] */
} Deploy;

/* Reads and checks the names. Errors  ERR_USAGE (says which flag). */
MUST_CHECK Error deploy_plan_names(Deploy *d, Why *why);
/* Plans; fills plan.file too. Owner  options and model outlive it; deploy_plan_free, also after an error.
 * Errors  ERR_PLAN, ERR_RANGE, ERR_UNSUPPORTED (a knot of version 1), ERR_MEMORY. */
MUST_CHECK Error deploy_plan_make(Deploy *d, Why *why);
void deploy_plan_free(Deploy *d);

/* "NAME-station-0" */
void deploy_plan_script(const Deploy *d, const char *id, char out[DEPLOY_SCRIPT_BYTES]);
/* NULL of a warden and of the coordinator. */
const DeployRole *deploy_plan_role(const Deploy *d, const ClusterNode *node);
/* Calls of the coordinator for one token. */
uint32_t deploy_plan_calls(const Deploy *d);
uint32_t deploy_plan_calls_max(const Deploy *d);

#endif
