/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/deploy_write.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yyjson.h>

#include "cli/json_text.h"
#include "host/file_writer.h"
#include "host/key.h"

/* Of the runtime that all tests run on. */
static const char compatibility_date[] = "2026-04-26";

/* What an invocation may compute; the paid plan's most. */
enum { CPU_MS = 300000 };

/* ---- Parts of a configuration. Each begins with what separates it from the one before. */

static void put_text(FILE *out, const char *name, const char *value)
{
    fprintf(out, ",\n    \"%s\": ", name);
    json_text_put(out, value);
}

/* Variables are texts. */
static void put_variable(FILE *out, const char *name, const char *value)
{
    fprintf(out, ",\n        \"%s\": ", name);
    json_text_put(out, value);
}

static void put_number(FILE *out, const char *name, uint64_t value)
{
    fprintf(out, ",\n        \"%s\": \"%" PRIu64 "\"", name, value);
}

static const char *class_of(ClusterRole role)
{
    static const char *const names[CLUSTER_ROLES] = {
        [CLUSTER_COORDINATOR] = "Coordinator",
        [CLUSTER_STATION] = "Station",
        [CLUSTER_SHARD] = "Shard",
        [CLUSTER_LAYER_WARDEN] = "LayerWarden",
        [CLUSTER_SHARD_WARDEN] = "ShardWarden",
    };
    return names[role];
}

static const char *script_of(ClusterRole role)
{
    static const char *const names[CLUSTER_ROLES] = {
        [CLUSTER_COORDINATOR] = "coordinator.mjs",
        [CLUSTER_STATION] = "station.mjs",
        [CLUSTER_SHARD] = "shard.mjs",
        [CLUSTER_LAYER_WARDEN] = "layer_warden.mjs",
        [CLUSTER_SHARD_WARDEN] = "shard_warden.mjs",
    };
    return names[role];
}

/* NAME_START and NAME_END: bounds such as "5.ffn_up" and "end". */
static void put_range(const Deploy *d, FILE *out, const char *name, PhaseRange range)
{
    char text[PHASE_RANGE_TEXT_MAX], variable[32];
    char *first = phase_range_text(range, d->model->hyper.layers, text);
    char *last = strchr(first, '-');
    *last++ = '\0';
    (void)snprintf(variable, sizeof variable, "%s_START", name);
    put_variable(out, variable, first);
    (void)snprintf(variable, sizeof variable, "%s_END", name);
    put_variable(out, variable, last);
}

static void put_ids(FILE *out, const ClusterNode *n)
{
    put_number(out, "VOCAB_START", n->id_first);
    put_number(out, "VOCAB_END", n->id_last);
}

static void put_model(const Deploy *d, FILE *out, uint64_t memory_bytes)
{
    const Knot *knot = &d->model->file.knot;
    char id[17];
    (void)snprintf(id, sizeof id, "%016" PRIx64, knot->id);
    put_variable(out, "VERSION", COBORD_VERSION);
    put_variable(out, "KNOT_KEY", d->knot_key);
    put_variable(out, "KNOT_ID", id);
    put_number(out, "KNOT_BYTES", knot->file_bytes);
    put_number(out, "MEMORY_BUDGET_BYTES", memory_bytes);
}

static void put_sizes(const Deploy *d, FILE *out, const ClusterNode *n)
{
    const ClusterFile *c = &d->plan.file;
    put_number(out, "CONTEXT", c->context);
    put_number(out, "CHUNK", c->chunk);
    put_number(out, "SESSIONS", c->sessions);
    put_variable(out, "CACHE_TYPE", c->cache == CACHE_Q8_0 ? "q8_0" : "f16");
    put_number(out, "PINNED_BYTES", deploy_plan_role(d, n)->isolate.pinned_bytes);
    if (n->role == CLUSTER_SHARD || n->head) put_number(out, "LOGIT_ROWS", d->plan.plan.logit_rows);
    if (n->warden == CLUSTER_FILE_NONE) return;
    const ClusterNode *w = &c->nodes[n->warden];
    if (n->role == CLUSTER_STATION) {
        put_range(d, out, "WARDEN", w->range);
        return;
    }
    put_number(out, "WARDEN_START", w->id_first);
    put_number(out, "WARDEN_END", w->id_last);
}

static void put_station(const Deploy *d, FILE *out, const ClusterNode *n)
{
    uint32_t last = d->plan.plan.request.stations - 1;
    const char *role = last == 0         ? "solo"
                       : n->part == 0    ? "entry"
                       : n->part == last ? "exit"
                                         : "middle";
    put_variable(out, "SPECIALIZATION_ROLE", role);
    put_range(d, out, "SPECIALIZATION", n->range);
    if (n->embed) put_variable(out, "EMBED", "1");
    if (n->head) put_variable(out, "HEAD", "1");
    put_sizes(d, out, n);
}

/* A variable may have 5 KB: the cluster file goes on in CLUSTER_1, CLUSTER_2, .. */
static Error put_cluster(const Deploy *d, FILE *out, Why *why)
{
    ClusterFile file = d->plan.file;
    size_t bytes, piece = DEPLOY_VARIABLE_BYTES_MAX;
    char name[24], part[DEPLOY_VARIABLE_BYTES_MAX + 1];
    char *text = malloc(CLUSTER_FILE_BYTES_MAX);
    if (!text) return error_why(why, ERR_MEMORY, "the text of the cluster file");
    file.key_file = ""; /* the key is a secret of each script */
    Error error = cluster_file_write(&file, text, CLUSTER_FILE_BYTES_MAX, &bytes, why);
    yyjson_doc *doc = error == OK ? yyjson_read(text, bytes, 0) : NULL;
    /* ASCII, so that no character is cut in two */
    char *compact = doc ? yyjson_write(doc, YYJSON_WRITE_ESCAPE_UNICODE, &bytes) : NULL;
    if (error == OK && !compact) error = error_why(why, ERR_MEMORY, "the cluster file");
    for (size_t at = 0, i = 0; error == OK && at < bytes; at += piece, i++) {
        (void)snprintf(name, sizeof name, i ? "CLUSTER_%zu" : "CLUSTER", i);
        (void)snprintf(part, sizeof part, "%.*s", (int)(bytes - at < piece ? bytes - at : piece),
                       compact + at);
        put_variable(out, name, part);
    }
    free(compact);
    yyjson_doc_free(doc);
    free(text);
    return error;
}

static Error put_variables(const Deploy *d, FILE *out, const ClusterNode *n, Why *why)
{
    const ClusterFile *c = &d->plan.file;
    bool warden = cluster_file_is_warden(n->role);
    fprintf(out, ",\n    \"vars\": {\n        \"NODE_ID\": \"%s\"", n->id);
    put_model(d, out, warden ? c->warden_memory_bytes : c->memory_bytes);
    switch (n->role) {
    case CLUSTER_STATION: put_station(d, out, n); break;
    case CLUSTER_SHARD:
        put_ids(out, n);
        put_sizes(d, out, n);
        break;
    case CLUSTER_LAYER_WARDEN: put_range(d, out, "SPECIALIZATION", n->range); break;
    case CLUSTER_SHARD_WARDEN: put_ids(out, n); break;
    default:
        put_number(out, "SUBREQUESTS_MAX", deploy_plan_calls_max(d));
        TRY(put_cluster(d, out, why));
    }
    fputs("\n    }", out);
    return OK;
}

/* ---- Bindings */

static void put_service(const Deploy *d, FILE *out, const char *binding, const ClusterNode *n,
                        bool *any)
{
    char script[DEPLOY_SCRIPT_BYTES];
    deploy_plan_script(d, n->id, script);
    fprintf(out, "%s\n        {\"binding\": \"%s\", \"service\": \"%s\"}", *any ? "," : "", binding,
            script);
    *any = true;
}

/* STATION_0, SHARD_12: the id in capitals. */
static void binding_of(const ClusterNode *n, char out[CLUSTER_FILE_ID_BYTES])
{
    size_t i = 0;
    for (; n->id[i]; i++)
        out[i] = n->id[i] == '-' ? '_' : (char)(n->id[i] >= 'a' ? n->id[i] - 'a' + 'A' : n->id[i]);
    out[i] = '\0';
}

/* The coordinator calls all others, stations and shards their warden. */
static void put_services(const Deploy *d, FILE *out, const ClusterNode *n)
{
    const ClusterFile *c = &d->plan.file;
    bool any = false;
    fputs(",\n    \"services\": [", out);
    for (uint32_t i = 0; n->role == CLUSTER_COORDINATOR && i < c->node_count; i++) {
        char binding[CLUSTER_FILE_ID_BYTES];
        const ClusterNode *other = &c->nodes[i];
        if (other->role == CLUSTER_COORDINATOR) continue;
        binding_of(other, binding);
        put_service(d, out, binding, other, &any);
    }
    if (n->warden != CLUSTER_FILE_NONE)
        put_service(d, out, n->role == CLUSTER_STATION ? "LAYER_WARDEN" : "VOCAB_WARDEN",
                    &c->nodes[n->warden], &any);
    fputs(any ? "\n    ]" : "]", out);
}

static void put_bindings(const Deploy *d, const DeployFolder *f, FILE *out, const ClusterNode *n)
{
    const char *class = class_of(n->role);
    fprintf(
        out,
        ",\n    \"durable_objects\": {\"bindings\": [{\"name\": \"NODE\", \"class_name\": \"%s\"}]},\n"
        "    \"migrations\": [{\"tag\": \"v1\", \"new_sqlite_classes\": [\"%s\"]}],\n"
        "    \"r2_buckets\": [{\"binding\": \"KNOT_BUCKET\", \"bucket_name\": \"%s\"}]",
        class, class, d->bucket);
    if (n->role == CLUSTER_SHARD_WARDEN)
        fprintf(out, ",\n    \"kv_namespaces\": [{\"binding\": \"EMBED_CACHE\", \"id\": \"%s\"}]",
                f->kv);
    put_services(d, out, n);
}

/* ---- A configuration */

static Error put_configuration(const Deploy *d, const DeployFolder *f, FILE *out,
                               const ClusterNode *n, Why *why)
{
    char script[DEPLOY_SCRIPT_BYTES], path[64];
    bool reachable = n->role == CLUSTER_COORDINATOR || d->subdomain[0];
    deploy_plan_script(d, n->id, script);
    (void)snprintf(path, sizeof path, "../module/%s", script_of(n->role));
    fprintf(out, "{\n    \"name\": \"%s\"", script);
    put_text(out, "main", path);
    put_text(out, "compatibility_date", compatibility_date);
    /* a client that hangs up is noticed */
    fputs(",\n    \"compatibility_flags\": [\"enable_request_signal\"]", out);
    if (d->account[0]) put_text(out, "account_id", d->account);
    fprintf(out, ",\n    \"workers_dev\": %s,\n    \"preview_urls\": false",
            reachable ? "true" : "false");
    fputs(",\n    \"observability\": {\"enabled\": true}", out);
    if (!d->free_plan) fprintf(out, ",\n    \"limits\": {\"cpu_ms\": %d}", CPU_MS);
    put_bindings(d, f, out, n);
    TRY(put_variables(d, out, n, why));
    fputs("\n}\n", out);
    return OK;
}

Error deploy_write_text(const Deploy *d, const DeployFolder *f, const ClusterNode *n, char **text,
                        size_t *bytes, Why *why)
{
    FILE *out = open_memstream(text, bytes);
    if (!out) return error_why(why, ERR_MEMORY, "a configuration");
    Error error = put_configuration(d, f, out, n, why);
    bool written = !ferror(out);
    if (fclose(out) != 0 || !written) error = error_why(why, ERR_MEMORY, "a configuration");
    return error;
}

/* ---- The folder */

Error deploy_write_path(const DeployFolder *f, const char *id, const char *name,
                        char out[PLACES_PATH_BYTES], Why *why)
{
    int n = snprintf(out, PLACES_PATH_BYTES, "%s/%s%s%s", f->path, id, id[0] ? "/" : "", name);
    return n > 0 && n < PLACES_PATH_BYTES
               ? OK
               : error_why(why, ERR_TOO_LARGE, "the path of the folder: %s", f->path);
}

static Error write_file(const char *path, const char *text, size_t bytes, Why *why)
{
    FileWriter writer;
    TRY(file_writer_open(&writer, path, bytes, why));
    Error error = file_writer_append(&writer, text, bytes, why);
    if (error == OK) return file_writer_commit(&writer, why);
    file_writer_abandon(&writer);
    return error;
}

/* What others must not read is made so before there is anything in it. */
static Error write_secrets(const char *path, const char *key, Why *why)
{
    char text[KEY_BYTES_MAX + 64];
    int n = snprintf(text, sizeof text, "{\"CLUSTER_KEY\": \"%s\"}\n", key);
    mode_t before = umask(077);
    Error error = write_file(path, text, (size_t)n, why);
    (void)umask(before);
    return error;
}

static bool is_json_plain(const char *key) { return !strpbrk(key, "\"\\"); }

Error deploy_write_open(const char *path, DeployFolder *f, Why *why)
{
    char file[PLACES_PATH_BYTES], key[KEY_BYTES_MAX + 1];
    Why warning = {{0}};
    memset(f->kv, '0', sizeof f->kv - 1);
    f->kv[sizeof f->kv - 1] = '\0';
    TRY(places_make_directory(path, 0755, why));
    char *real = realpath(path, NULL);
    if (!real) return places_system_error(errno, path, why);
    int n = snprintf(f->path, sizeof f->path, "%s", real);
    free(real);
    if (n < 0 || (size_t)n >= sizeof f->path)
        return error_why(why, ERR_TOO_LARGE, "the path of the folder");
    TRY(deploy_write_path(f, "", "key", file, why));
    if (access(file, F_OK) == 0) TRY(key_read(file, key, &warning, why));
    else TRY(key_make(file, key, why));
    if (!is_json_plain(key))
        return error_why(why, ERR_FORMAT, "%s has a quote or a backslash in it", file);
    TRY(deploy_write_path(f, "", "secrets.json", file, why));
    return write_secrets(file, key, why);
}

static Error write_node(const Deploy *d, const DeployFolder *f, const ClusterNode *n, Why *why)
{
    char path[PLACES_PATH_BYTES], *text = NULL;
    size_t bytes;
    TRY(deploy_write_path(f, n->id, "", path, why));
    TRY(places_make_directory(path, 0755, why));
    TRY(deploy_write_path(f, n->id, "wrangler.json", path, why));
    Error error = deploy_write_text(d, f, n, &text, &bytes, why);
    if (error == OK) error = write_file(path, text, bytes, why);
    free(text);
    return error;
}

static bool has_configuration(const DeployFolder *f, const char *id)
{
    char path[PLACES_PATH_BYTES];
    Why why;
    return deploy_write_path(f, id, "wrangler.json", path, &why) == OK && access(path, F_OK) == 0;
}

/* Folders of nodes that a larger plan had: whoever takes all configurations of the folder would start them. */
static Error remove_others(const Deploy *d, const DeployFolder *f, Why *why)
{
    char path[PLACES_PATH_BYTES];
    DIR *directory = opendir(f->path);
    if (!directory) return places_system_error(errno, f->path, why);
    Error error = OK;
    for (struct dirent *e; error == OK && (e = readdir(directory)) != NULL;) {
        ClusterRole role;
        uint32_t number;
        if (cluster_file_parse_id(e->d_name, strlen(e->d_name), &role, &number, NULL) != OK ||
            cluster_file_find(&d->plan.file, e->d_name) || !has_configuration(f, e->d_name))
            continue;
        error = deploy_write_path(f, "", e->d_name, path, why);
        if (error == OK) places_remove(path);
    }
    (void)closedir(directory);
    return error;
}

Error deploy_write(const Deploy *d, const DeployModules *m, const DeployFolder *f, Why *why)
{
    char path[PLACES_PATH_BYTES];
    TRY(remove_others(d, f, why));
    TRY(deploy_write_path(f, "", "module", path, why));
    TRY(deploy_modules_copy(m, path, why));
    TRY(deploy_write_path(f, "", "cluster.json", path, why));
    TRY(cluster_plan_write(&d->plan, path, why));
    for (uint32_t i = 0; i < d->plan.file.node_count; i++)
        TRY(write_node(d, f, &d->plan.file.nodes[i], why));
    return OK;
}
