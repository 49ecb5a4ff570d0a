/* SPDX-License-Identifier: Apache-2.0 */
/* cobord ready: whether a server or a node is ready, as an exit code: for the probes of containers and for scripts that
 * wait. Asks GET /ready, of a node with the cluster's key. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/complain.h"
#include "cli/options.h"
#include "cli/server_address.h"
#include "cli/verbs.h"
#include "host/http_client.h"
#include "host/key.h"
#include "host/node.h"
#include "host/ports.h"

static const OptionId ready_options[] = {OPTION_CLUSTER, OPTION_ID, OPTION_TLS_CA, OPTION_END};
const OptionVerb ready_verb = {
    .name = "ready",
    .usage = "[URL | --cluster FILE --id ID] [--tls-ca FILE]",
    .summary =
        "Exits with 0 when a server is ready, with 1 when it is not or does not answer: for\n"
        "probes and scripts that wait. URL is a server's; without one COBORD_URL, else where\n"
        "`cobord serve` listens with the same variables (COBORD_LISTEN, COBORD_TLS_CERTIFICATE),\n"
        "http://127.0.0.1:8080 by default. A cluster file says where a node is, its key, and which\n"
        "certificates to trust.",
    .examples = "  cobord ready\n"
                "  cobord ready http://10.0.0.7:8080\n"
                "  cobord ready --cluster cluster.json --id station-0\n",
    .options = ready_options,
    .operands_max = 1,
    .operand_names = "[URL]",
};

enum { READY_DEADLINE_MS = 4000, READY_ANSWER_BYTES_MAX = 4096 };

typedef struct Ready {
    char url[HTTP_CLIENT_URL_BYTES_MAX], ca[NODE_PATH_BYTES], key[KEY_BYTES_MAX + 1];
    bool own; /* this machine's server, by the settings it was started with */
} Ready;

static Error ready_of_node(const char *path, const ClusterFile *c, const char *id, Ready *r,
                           Why *why)
{
    char place[PORTS_TEXT_BYTES], key_path[NODE_PATH_BYTES];
    Why warning;
    const ClusterNode *node = cluster_file_find(c, id);
    if (!node) return error_why(why, ERR_NOT_FOUND, "node %.40s in the cluster file", id);
    (void)snprintf(r->url, sizeof r->url, "http%s://%s/ready", c->tls_certificate[0] ? "s" : "",
                   ports_text(server_address_host(node->host), node->port, place));
    if (c->tls_ca[0]) TRY(node_path(path, c->tls_ca, r->ca, why));
    if (!c->key_file[0] || node->role == CLUSTER_COORDINATOR) return OK;
    TRY(node_path(path, c->key_file, key_path, why));
    return key_read(key_path, r->key, &warning, why);
}

static Error ready_ask(const Ready *r, const char *ca, Why *why)
{
    static uint8_t answer[READY_ANSWER_BYTES_MAX];
    HttpClient *client;
    /* Its own certificate is for the names that others call it by; nothing secret is sent. */
    HttpClientOptions options = {
        .ca_file = ca, .key = r->key[0] ? r->key : NULL, .unverified = r->own && !ca && !r->key[0]};
    HttpCall call = {.method = "GET", .url = r->url, .deadline_ms = READY_DEADLINE_MS};
    call.answer = answer;
    call.answer_room = sizeof answer;
    TRY(http_client_open(&options, &client, why));
    http_client_run(client, &call);
    http_client_close(client);
    if (call.error == ERR_TOO_LARGE)
        return error_why(why, ERR_UNREACHABLE, "%s: its answer is not Cobord's", r->url);
    if (call.error != OK) *why = call.why;
    if (call.error != OK || call.status == 200) return call.error;
    return error_why(why, ERR_UNREACHABLE, "%s: it answers, and is not ready (status %u)", r->url,
                     call.status);
}

int cli_ready(int argc, char **argv)
{
    static Ready ready;
    Options o;
    Why why = {{0}};
    ClusterFile cluster;
    void *memory;
    int code;
    if (!options_read(&o, &ready_verb, argc, argv, &code)) return code;
    const char *path = options_text(&o, OPTION_CLUSTER), *id = options_text(&o, OPTION_ID),
               *trusted = options_text(&o, OPTION_TLS_CA);
    if (!path != !id || (path && o.operand_count))
        return complain_usage("ready: a URL, or --cluster FILE and --id ID");
    if (path) {
        Error error = node_read_cluster(path, &cluster, &memory, &why);
        if (error != OK) return complain(error, &why, path, complain_cluster_file(error));
        error = ready_of_node(path, &cluster, id, &ready, &why);
        free(memory);
        if (error != OK) return complain(error, &why, path, NULL);
    } else if (!o.operand_count) {
        Error error =
            server_address_default(trusted != NULL, "/ready", ready.url, &ready.own, &why);
        if (error != OK) return complain(error, &why, NULL, NULL);
    } else if (!server_address_make(o.operands[0], trusted != NULL, "/ready", ready.url)) {
        return complain_usage("ready: the URL must have 1 to %d bytes", SERVER_ADDRESS_GIVEN_MAX);
    }
    Error error = ready_ask(&ready, trusted ? trusted : ready.ca[0] ? ready.ca : NULL, &why);
    explicit_bzero(ready.key, sizeof ready.key);
    return error == OK
               ? 0
               : complain(error, &why, NULL,
                          server_address_advice(&why, "Wait a little, or see: cobord status"));
}
