/* SPDX-License-Identifier: Apache-2.0 */
/* cobord status: asks a coordinator, or one process with every role, how it is (GET /cluster) and draws it in 80
 * columns. What it says comes from another machine: every text is cut and cleaned, every number may be missing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yyjson.h>

#include "cli/complain.h"
#include "cli/options.h"
#include "cli/server_address.h"
#include "cli/verbs.h"
#include "host/http_client.h"
#include "host/node.h"
#include "host/ports.h"

static const OptionId status_options[] = {OPTION_JSON, OPTION_CLUSTER, OPTION_TLS_CA,
                                          OPTION_API_KEY, OPTION_END};
const OptionVerb status_verb = {
    .name = "status",
    .usage = "[URL | --cluster FILE] [--tls-ca FILE] [--json]",
    .summary =
        "Shows a running cluster: who owns what, who is missing, memory, weights in memory, queue,\n"
        "and how long calls take; of `cobord serve` the roles in its process. URL is the\n"
        "coordinator's; without one COBORD_URL, else where `cobord serve` listens with the same\n"
        "variables (COBORD_LISTEN), http://127.0.0.1:8080 by default. A cluster file says where it\n"
        "is, and which certificates to trust.",
    .examples = "  cobord status\n"
                "  cobord status http://10.0.0.7:8080 --json\n"
                "  cobord status https://10.0.0.7:8443 --tls-ca ca.pem\n",
    .options = status_options,
    .operands_max = 1,
    .operand_names = "[URL]",
};

enum { STATUS_ANSWER_BYTES_MAX = 4 << 20, STATUS_DEADLINE_MS = 5000, STATUS_TEXT_BYTES = 512 };

/* ---- Asking ---- */

static Error status_ask(const char *url, const char *ca_file, const char *key, HttpCall *call,
                        Why *why)
{
    HttpClient *client;
    HttpClientOptions options = {.key = key, .ca_file = ca_file};
    *call = (HttpCall){.method = "GET", .url = url, .deadline_ms = STATUS_DEADLINE_MS};
    call->answer_room = STATUS_ANSWER_BYTES_MAX;
    call->answer = malloc(call->answer_room);
    if (!call->answer) return error_why(why, ERR_MEMORY, "no memory for the answer");
    TRY(http_client_open(&options, &client, why));
    http_client_run(client, call);
    http_client_close(client);
    if (call->error != OK) *why = call->why;
    return call->error;
}

static const char *status_text(yyjson_val *object, const char *name)
{
    const char *text = yyjson_get_str(yyjson_obj_get(object, name));
    return text ? text : "";
}

static uint64_t status_number(yyjson_val *object, const char *name)
{
    return yyjson_get_uint(yyjson_obj_get(object, name));
}

/* Printable ASCII, at most `room - 1` of it. */
static const char *status_clean(const char *text, char *out, size_t room)
{
    size_t n = 0;
    for (; text[n] && n < room - 1; n++) out[n] = text[n] < ' ' || text[n] > '~' ? '?' : text[n];
    out[n] = '\0';
    return out;
}

/* Where the file's coordinator is, and its certificates; `ca` is "" for the system's. */
static Error status_read_cluster(const char *path, bool tls, char url[HTTP_CLIENT_URL_BYTES_MAX],
                                 char ca[NODE_PATH_BYTES], Why *why)
{
    char place[PORTS_TEXT_BYTES];
    ClusterFile cluster;
    void *memory;
    TRY(node_read_cluster(path, &cluster, &memory, why));
    const ClusterNode *n = &cluster.nodes[0];
    (void)snprintf(url, HTTP_CLIENT_URL_BYTES_MAX, "http%s://%s/cluster",
                   tls || cluster.tls_certificate[0] ? "s" : "",
                   ports_text(n->host, n->port, place));
    ca[0] = '\0';
    Error error = cluster.tls_ca[0] ? node_path(path, cluster.tls_ca, ca, why) : OK;
    free(memory);
    return error;
}

/* ---- Drawing ---- */

static void status_duration(uint64_t seconds)
{
    if (seconds < 120) printf("%u s", (unsigned)seconds);
    else if (seconds < 7200) printf("%u min", (unsigned)(seconds / 60));
    else if (seconds < 172800) printf("%u h", (unsigned)(seconds / 3600));
    else printf("%u days", (unsigned)(seconds / 86400));
}

/* Not a cluster: `cobord serve`. */
static bool status_is_process(yyjson_val *root)
{
    return strcmp(status_text(root, "kind"), "process") == 0;
}

static void status_head(yyjson_val *root)
{
    char text[STATUS_TEXT_BYTES];
    yyjson_val *queue = yyjson_obj_get(root, "queue");
    printf("%s", status_clean(status_text(root, "model"), text, 64));
    printf(", knot %s, ", status_clean(status_text(root, "knot_id"), text, 20));
    printf("%s, up ", status_is_process(root)                             ? "one process"
                      : yyjson_get_bool(yyjson_obj_get(root, "complete")) ? "complete"
                                                                          : "INCOMPLETE");
    status_duration(status_number(root, "uptime_seconds"));
    printf("\n%u of %u slots at work, %u of %u answers waiting; %llu answers, %llu tokens\n",
           (unsigned)status_number(queue, "active"), (unsigned)status_number(queue, "slots"),
           (unsigned)status_number(queue, "waiting"), (unsigned)status_number(queue, "limit"),
           (unsigned long long)status_number(queue, "answers"),
           (unsigned long long)status_number(queue, "generated_tokens"));
    if (status_is_process(root)) return;
    printf("%llu failed, %llu replays, %llu calls from the own store, %llu degraded\n",
           (unsigned long long)status_number(queue, "failed"),
           (unsigned long long)status_number(root, "replays"),
           (unsigned long long)status_number(root, "own_store_calls"),
           (unsigned long long)status_number(root, "degraded"));
    if (status_text(root, "missing")[0])
        printf("missing: %s\n", status_clean(status_text(root, "missing"), text, sizeof text));
}

/* "  61/128" MiB */
static void status_memory(yyjson_val *node)
{
    yyjson_val *memory = yyjson_obj_get(node, "memory");
    uint64_t peak = status_number(memory, "peak_bytes"),
             budget = status_number(memory, "budget_bytes");
    char text[32] = "";
    if (budget)
        (void)snprintf(text, sizeof text, "%llu/%llu", (unsigned long long)peak >> 20,
                       (unsigned long long)budget >> 20);
    printf(" %9s", text);
}

/* The share of its weights that a node keeps; of a warden's lookups, those that hit. */
static void status_share(yyjson_val *node)
{
    yyjson_val *weights = yyjson_obj_get(node, "weights"), *cache = yyjson_obj_get(node, "cache");
    uint64_t hits = status_number(cache, "hits"), all = hits + status_number(cache, "misses"),
             bytes = status_number(weights, "bytes"),
             pinned = status_number(weights, "pinned_bytes");
    char text[16] = "";
    if (cache && all)
        (void)snprintf(text, sizeof text, "%.0f%%", 100.0 * (double)hits / (double)all);
    else if (yyjson_get_bool(yyjson_obj_get(weights, "resident")))
        (void)snprintf(text, sizeof text, "all");
    else if (bytes)
        (void)snprintf(text, sizeof text, "%.0f%%", 100.0 * (double)pinned / (double)bytes);
    printf(" %5s", text);
}

static void status_ms(uint64_t us, int width)
{
    double ms = (double)us / 1000;
    if (!us) printf(" %*s", width, "");
    else printf(" %*.*f", width, ms < 10 ? 2 : ms < 100 ? 1 : 0, ms);
}

static void status_owns(yyjson_val *node, char *out, size_t room)
{
    yyjson_val *ids = yyjson_obj_get(node, "ids");
    if (ids)
        (void)snprintf(out, room, "%llu-%llu",
                       (unsigned long long)yyjson_get_uint(yyjson_arr_get(ids, 0)),
                       (unsigned long long)yyjson_get_uint(yyjson_arr_get(ids, 1)));
    else (void)status_clean(status_text(node, "range"), out, room);
}

static void status_node(yyjson_val *node)
{
    char id[20], owns[24], state[12], text[160];
    uint64_t p50 = status_number(node, "p50_us"), compute = status_number(node, "compute_p50_us");
    status_owns(node, owns, sizeof owns);
    printf("%-15s %-15s %-11s", status_clean(status_text(node, "id"), id, sizeof id), owns,
           status_clean(status_text(node, "state"), state, sizeof state));
    status_memory(node);
    status_share(node);
    status_ms(p50, 6);
    status_ms(status_number(node, "p95_us"), 6);
    status_ms(compute && compute < p50 ? p50 - compute : 0, 5);
    printf("\n");
    if (yyjson_get_bool(yyjson_obj_get(node, "ready")) || !status_text(node, "last_error")[0])
        return;
    printf("    %.76s\n", status_clean(status_text(node, "last_error"), text, sizeof text));
}

static void status_draw(yyjson_val *root)
{
    size_t i, count;
    yyjson_val *node, *coordinator = yyjson_obj_get(root, "coordinator");
    char id[20];
    status_head(root);
    printf("\n%-15s %-15s %-11s %9s %5s %6s %6s %5s\n", "NODE", "OWNS", "STATE", "MiB PEAK", "KEPT",
           "P50 ms", "P95 ms", "HOP");
    printf("%-15s %-15s %-11s", status_clean(status_text(coordinator, "id"), id, sizeof id), "",
           "ready");
    status_memory(coordinator);
    printf("\n");
    yyjson_arr_foreach(yyjson_obj_get(root, "nodes"), i, count, node) status_node(node);
    printf("\nKEPT: weights that stay in memory; of wardens, lookups that hit.\n"
           "HOP: P50 without the station's computing. --json has everything.\n");
}

static void status_role(yyjson_val *role)
{
    char id[20], owns[24];
    yyjson_val *hops = yyjson_obj_get(role, "hops"), *hop = yyjson_obj_get(hops, "forward");
    status_owns(role, owns, sizeof owns);
    printf("%-15s %-15s", status_clean(status_text(role, "id"), id, sizeof id), owns);
    status_ms(status_number(hop ? hop : yyjson_obj_get(hops, "logits"), "us"), 8);
    printf("\n");
}

static void status_draw_process(yyjson_val *root)
{
    size_t i, count;
    yyjson_val *role, *self = yyjson_obj_get(root, "coordinator"),
                      *step = yyjson_obj_get(root, "step");
    status_head(root);
    printf("MiB peak");
    status_memory(self);
    printf(", weights kept");
    status_share(self);
    printf("\n\n%-15s %-15s %8s\n", "ROLE", "OWNS", "STEP ms");
    yyjson_arr_foreach(yyjson_obj_get(root, "nodes"), i, count, role) status_role(role);
    printf("%-15s %-15s", "embedding", "");
    status_ms(status_number(step, "embed_us"), 8);
    printf("\n%-15s %-15s", "sampling", "");
    status_ms(status_number(step, "own_us"), 8);
    printf("\n\nSTEP: of %llu rows, about: one token of an answer, or many of a prompt.\n"
           "--json has everything.\n",
           (unsigned long long)status_number(step, "rows"));
}

/* ---- The verb ---- */

static int status_show(const HttpCall *call, const char *url, bool json)
{
    Why why = {{0}};
    Error error = OK;
    yyjson_doc *doc = yyjson_read((const char *)call->answer, call->answer_bytes, 0);
    yyjson_val *root = yyjson_doc_get_root(doc);
    char text[200];
    if (call->status == 404)
        error =
            error_why(&why, ERR_NOT_FOUND, "it answers, but it is no Cobord that serves a model");
    else if (call->status != 200)
        error = error_why(
            &why, ERR_UNREACHABLE, "status %u: %s", call->status,
            status_clean(status_text(yyjson_obj_get(root, "error"), "message"), text, sizeof text));
    else if (!yyjson_is_arr(yyjson_obj_get(root, "nodes")))
        error = error_why(&why, ERR_UNREACHABLE, "its answer is not that of a coordinator");
    if (error == OK && json) {
        (void)fwrite(call->answer, 1, call->answer_bytes, stdout);
        printf("\n");
    } else if (error == OK) {
        (status_is_process(root) ? status_draw_process : status_draw)(root);
    }
    yyjson_doc_free(doc);
    if (error == OK) return 0;
    return complain(error, &why, url,
                    call->status == 401 || call->status == 403
                        ? "Give an API key with \"admin\" as COBORD_API_KEY"
                        : "Give the address of a coordinator: cobord status URL");
}

static const char *status_advice(Error error, const Why *why)
{
    if (error != ERR_UNREACHABLE) return NULL;
    return server_address_advice(why, "Is a cluster running there? Start one: cobord up MODEL");
}

int cli_status(int argc, char **argv)
{
    Options o;
    Why why = {{0}};
    HttpCall call;
    char url[HTTP_CLIENT_URL_BYTES_MAX], ca[NODE_PATH_BYTES] = "";
    int code;
    if (!options_read(&o, &status_verb, argc, argv, &code)) return code;
    const char *cluster = options_text(&o, OPTION_CLUSTER),
               *trusted = options_text(&o, OPTION_TLS_CA);
    if (cluster && o.operand_count)
        return complain_usage("status: a URL or --cluster FILE, not both");
    Error error = cluster ? status_read_cluster(cluster, trusted != NULL, url, ca, &why) : OK;
    if (error != OK) return complain(error, &why, cluster, complain_cluster_file(error));
    if (!cluster && !o.operand_count) {
        bool own;
        error = server_address_default(trusted != NULL, "/cluster", url, &own, &why);
        if (error != OK) return complain(error, &why, NULL, NULL);
    } else if (!cluster && !server_address_make(o.operands[0], trusted != NULL, "/cluster", url)) {
        return complain_usage("status: the URL must have 1 to %d bytes", SERVER_ADDRESS_GIVEN_MAX);
    }
    error = status_ask(url,
                       trusted ? trusted
                       : ca[0] ? ca
                               : NULL,
                       options_text(&o, OPTION_API_KEY), &call, &why);
    code = error == OK ? status_show(&call, url, options_switch(&o, OPTION_JSON))
                       : complain(error, &why, NULL, status_advice(error, &why));
    free(call.answer);
    return code;
}
