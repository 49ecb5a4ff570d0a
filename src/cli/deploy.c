/* SPDX-License-Identifier: Apache-2.0 */
/* cobord deploy cloudflare: a cluster of Workers and Durable Objects, one script a node.
 *
 *   plan --> DIR: a configuration a script --> wrangler reads each (--dry-run ends here)
 *        --> the knot to R2, unless it is there --> wardens, shards, stations, coordinator
 *
 * The knot's name in R2 has its content's hash in it: what runs keeps reading its own file while a newer one
 * arrives, and a file that is there need not be sent again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/complain.h"
#include "cli/deploy_modules.h"
#include "cli/deploy_print.h"
#include "cli/deploy_wrangler.h"
#include "cli/deploy_write.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "host/pull.h"
#include "host/s3_upload.h"
#include "host/stop.h"
#include "host/store.h"

enum { COMPARED_BYTES = 64 << 10, URL_BYTES = 256 };

static const OptionId deploy_options[] = {
    OPTION_STATIONS, OPTION_SHARDS,   OPTION_RANGES,   OPTION_WORKERS,       OPTION_MEMORY,
    OPTION_CONTEXT,  OPTION_SLOTS,    OPTION_CHUNK,    OPTION_CACHE_TYPE,    OPTION_ELEMENT,
    OPTION_PIPELINE, OPTION_REPLICAS, OPTION_WARDENS,  OPTION_WARDEN_MEMORY, OPTION_OUTPUT,
    OPTION_DRY_RUN,  OPTION_NAME,     OPTION_BUCKET,   OPTION_ACCOUNT,       OPTION_SUBDOMAIN,
    OPTION_FREE,     OPTION_MODULES,  OPTION_WRANGLER, OPTION_JSON,          OPTION_END};
const OptionVerb deploy_verb = {
    .name = "deploy",
    .usage = "cloudflare MODEL [--memory 96M] [-o DIR] [--dry-run]",
    .summary =
        "Puts a cluster on Cloudflare: every node a script of its own (a Worker and a Durable Object),\n"
        "the model in R2. Without --stations and --shards as many of each as keep all weights in memory.\n"
        "Writes the configurations into DIR (default: cloudflare), uploads the model with the keys of the\n"
        "environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), then runs wrangler for each script.\n"
        "--dry-run writes and validates only. docs/cloudflare.md is the guide.",
    .examples = "  cobord deploy cloudflare smollm2-135m --dry-run\n"
                "  cobord deploy cloudflare qwen2.5-coder-1.5b \\\n"
                "      --account 0123456789abcdef0123456789abcdef\n"
                "  cobord deploy cloudflare qwen2.5-coder-1.5b --stations 2 --shards 8 --wardens\n",
    .options = deploy_options,
    .operands_min = 2,
    .operands_max = 2,
    .operand_names = "cloudflare MODEL",
};

/* ---- The model in the store */

/* R2's address follows from the account. */
static void default_endpoint(const Deploy *d)
{
    char endpoint[S3_TEXT_BYTES];
    if (!d->account[0] || getenv("COBORD_S3_ENDPOINT")) return;
    (void)snprintf(endpoint, sizeof endpoint, "https://%s.r2.cloudflarestorage.com", d->account);
    (void)setenv("COBORD_S3_ENDPOINT", endpoint, 1);
    (void)setenv("AWS_REGION", "auto", 0);
}

static Error open_access(const Deploy *d, S3Access *access, Why *why)
{
    default_endpoint(d);
    if (!getenv("COBORD_S3_ENDPOINT"))
        return error_why(why, ERR_USAGE, "where is R2? Give --account ID, or COBORD_S3_ENDPOINT.");
    TRY(s3_access(access, why));
    if (access->key_id[0]) return OK;
    return error_why(
        why, ERR_KEY,
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set. Make a key for R2 at "
        "Cloudflare, with the permission Object Read & Write.");
}

/* Its name says its content and an upload appears whole: size, first and last bytes decide. */
static Error is_there(const Deploy *d, bool *yes, Why *why)
{
    Store *store;
    uint64_t bytes = 0;
    const KnotFile *file = &d->model->file;
    *yes = false;
    TRY(store_open(d->store, &store, why));
    Error error = store_size(store, d->knot_key, &bytes, why);
    if (error == OK && bytes == file->knot.file_bytes) {
        uint64_t count = bytes < COMPARED_BYTES ? bytes : COMPARED_BYTES;
        uint8_t *theirs = malloc(count);
        *yes = theirs != NULL;
        for (int end = 0; error == OK && *yes && end < 2; end++) {
            uint64_t offset = end ? bytes - count : 0;
            error = store_read(store, d->knot_key, offset, count, theirs, why);
            *yes = error == OK && memcmp(theirs, file->map + offset, count) == 0;
        }
        free(theirs);
    }
    store_close(store);
    return error == ERR_NOT_FOUND ? OK : error;
}

static Error upload(const Deploy *d, const DeployWrangler *w, const S3Access *access, Why *why)
{
    char where[PLACES_PATH_BYTES + 80];
    const char *path = d->model->path;
    bool there;
    (void)snprintf(where, sizeof where, "%s/%s", d->store, d->knot_key);
    TRY(is_there(d, &there, why));
    if (!there) {
        Error error = s3_upload(access, where, path, progress_tell(), NULL, why);
        if (error == ERR_NOT_FOUND && strstr(why->text, "NoSuchBucket")) {
            TRY(deploy_wrangler_bucket(w, d->bucket, why));
            error = s3_upload(access, where, path, progress_tell(), NULL, why);
        }
        progress_end(error == OK);
        TRY(error);
    }
    fprintf(stderr, "cobord: %s %s\n", where, there ? "is there already" : "is complete");
    return OK;
}

/* ---- The scripts */

/* Who is called comes before who calls: a binding names a script that exists. */
static const ClusterRole order[] = {CLUSTER_LAYER_WARDEN, CLUSTER_SHARD_WARDEN, CLUSTER_SHARD,
                                    CLUSTER_STATION, CLUSTER_COORDINATOR};

typedef Error Step(const DeployWrangler *w, const ClusterNode *n, char *url, Why *why);

static Error check_script(const DeployWrangler *w, const ClusterNode *n, char *url, Why *why)
{
    (void)url;
    return deploy_wrangler_check(w, n, why);
}

static Error deploy_script(const DeployWrangler *w, const ClusterNode *n, char *url, Why *why)
{
    return deploy_wrangler_deploy(w, n, url, URL_BYTES, why);
}

static Error each_script(const Deploy *d, const DeployWrangler *w, const char *stage, Step *step,
                         char *url, Why *why)
{
    const ClusterFile *c = &d->plan.file;
    uint32_t done = 0;
    for (size_t role = 0; role < sizeof order / sizeof order[0]; role++)
        for (uint32_t i = 0; i < c->node_count; i++) {
            if (c->nodes[i].role != order[role]) continue;
            progress_line("%s %u of %u: %s", stage, ++done, c->node_count, c->nodes[i].id);
            Error error = step(w, &c->nodes[i], url, why);
            progress_end(false);
            if (error != OK) return error;
        }
    fprintf(stderr, "cobord: %s: %u scripts\n", stage, c->node_count);
    return OK;
}

/* ---- The verb */

static Error name_rows(const Deploy *d, const DeployWrangler *w, DeployFolder *folder, Why *why)
{
    char title[DEPLOY_SCRIPT_BYTES];
    if (!d->plan.request.wardens) return OK;
    deploy_plan_script(d, "rows", title);
    return deploy_wrangler_namespace(w, title, folder->kv, why);
}

/* `access` NULL: a dry run. */
static Error run(Deploy *d, const DeployModules *modules, const S3Access *access,
                 DeployFolder *folder, char *url, Why *why)
{
    const Options *o = d->options;
    const char *path = options_text(o, OPTION_OUTPUT);
    DeployWrangler wrangler;
    TRY(deploy_write_open(path ? path : "cloudflare", folder, why));
    TRY(deploy_wrangler_open(options_text(o, OPTION_WRANGLER), d->account, folder, &wrangler, why));
    if (access) TRY(deploy_wrangler_login(&wrangler, why));
    if (access) TRY(name_rows(d, &wrangler, folder, why));
    TRY(deploy_write(d, modules, folder, why));
    if (!access) return each_script(d, &wrangler, "validated", check_script, url, why);
    TRY(upload(d, &wrangler, access, why));
    return each_script(d, &wrangler, "deployed", deploy_script, url, why);
}

static void print(const Deploy *d, const DeployFolder *folder, const char *url)
{
    DeployCost cost = deploy_cost_of(d);
    if (options_switch(d->options, OPTION_JSON)) {
        deploy_print_json(d, &cost, folder->path, url);
        return;
    }
    deploy_print_table(d, &cost);
    deploy_print_cost(&cost);
    if (options_switch(d->options, OPTION_DRY_RUN))
        printf("Wrote %s. Without --dry-run the same command uploads the model and deploys.\n",
               folder->path);
    else
        printf("%s is on %s\nAnyone who knows the address can use it, unless its coordinator has "
               "keys: docs/cloudflare.md, section 3.\n",
               d->plan.name, url[0] ? url : "Cloudflare");
}

static const char *advice_of(Error error)
{
    switch (error) {
    case ERR_PLAN:
        return "Give more --memory (at most 112M), a smaller --context, or more --stations and --shards";
    case ERR_UNREACHABLE:
    case ERR_CANCELLED: return "What has arrived is kept: the same command goes on from there";
    default: return NULL;
    }
}

static int deploy(const Options *o, OpenModel *model)
{
    static Deploy d;
    static S3Access access;
    bool dry = options_switch(o, OPTION_DRY_RUN);
    DeployModules modules;
    DeployFolder folder;
    Why why = {{0}};
    char url[URL_BYTES] = "";
    d = (Deploy){.options = o, .model = model};
    Error error = deploy_plan_names(&d, &why);
    if (error == OK) error = deploy_plan_make(&d, &why);
    const char *thing = error == OK ? NULL : o->operands[1];
    if (error == OK) error = deploy_modules_find(options_text(o, OPTION_MODULES), &modules, &why);
    if (error == OK && !dry) error = open_access(&d, &access, &why);
    if (error == OK) error = run(&d, &modules, dry ? NULL : &access, &folder, url, &why);
    s3_forget(&access);
    if (error == OK) print(&d, &folder, url);
    deploy_plan_free(&d);
    return error == OK ? 0 : complain(error, &why, thing, advice_of(error));
}

int cli_deploy(int argc, char **argv)
{
    static OpenModel model;
    char path[PLACES_PATH_BYTES];
    Options o;
    Why why = {{0}};
    int code;
    if (!options_read(&o, &deploy_verb, argc, argv, &code)) return code;
    if (strcmp(o.operands[0], "cloudflare") != 0)
        return complain_usage(
            "deploy: '%.40s' is not a place to deploy to. The one that is: cloudflare",
            o.operands[0]);
    if (options_given(&o, OPTION_MEMORY) && options_count(&o, OPTION_MEMORY) > DEPLOY_MEMORY_MAX)
        return complain_usage(
            "deploy: %s: at most 112M: an isolate has 128 MB, JavaScript's included",
            options_where(&o, OPTION_MEMORY));
    stop_install();
    Error error = pull_locate(o.operands[1], progress_tell(), path, sizeof path, &why);
    if (error == OK) error = open_model_open(path, MODEL_WEIGHTS, progress_tell(), &model, &why);
    progress_end(error == OK);
    if (error != OK) return complain(error, &why, o.operands[1], NULL);
    code = deploy(&o, &model);
    open_model_close(&model);
    return code;
}
