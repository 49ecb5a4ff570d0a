/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/up_run.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/complain.h"
#include "cli/options.h"
#include "host/cgroup_make.h"
#include "host/listen.h"
#include "host/log.h"
#include "host/node.h"
#include "host/ports.h"
#include "host/supervise.h"

enum { ARGUMENTS_MAX = 36, URL_BYTES = 320, LOG_BYTES = 4200 };

typedef struct UpNode {
    char *arguments[ARGUMENTS_MAX];
    char url[URL_BYTES], log[LOG_BYTES], cgroup[CGROUP_MAKE_PATH_BYTES];
} UpNode;

typedef struct UpState {
    const UpRun *request;
    ClusterFile cluster;
    void *cluster_memory;
    char threads[16];
    UpNode *nodes;
    SuperviseNode *supervised;
    CgroupMake cgroups;
    bool has_cgroups;
} UpState;

/* A node that listens everywhere is reached at loopback. */
static const char *host_to_reach(const ClusterNode *n)
{
    if (strcmp(n->host, "0.0.0.0") == 0) return "127.0.0.1";
    return strcmp(n->host, "::") == 0 ? "::1" : n->host;
}

/* The API may have TLS where the nodes among themselves have none. */
static bool has_tls(const UpState *s, const ClusterNode *n)
{
    return s->cluster.tls_certificate[0] ||
           (n->role == CLUSTER_COORDINATOR && s->request->tls.certificate);
}

static void node_url(const UpState *s, const ClusterNode *n, char out[URL_BYTES])
{
    char place[PORTS_TEXT_BYTES];
    (void)snprintf(out, URL_BYTES, "http%s://%s", has_tls(s, n) ? "s" : "",
                   ports_text(host_to_reach(n), n->port, place));
}

static size_t add_pair(char **out, const char *flag, const char *value)
{
    out[0] = (char *)(uintptr_t)flag;
    out[1] = (char *)(uintptr_t)value;
    return 2;
}

static void node_arguments(UpState *s, const ClusterNode *n, char **out)
{
    const UpRun *r = s->request;
    size_t i = 0;
    out[i++] = (char *)(uintptr_t)"cobord";
    out[i++] = (char *)(uintptr_t)"node";
    out[i++] = (char *)(uintptr_t)"--cluster";
    out[i++] = (char *)(uintptr_t)r->cluster;
    out[i++] = (char *)(uintptr_t)"--id";
    out[i++] = (char *)(uintptr_t)n->id;
    i += add_pair(out + i, "--log-format", r->log_format);
    i += add_pair(out + i, "--log-level", r->log_level);
    i += add_pair(out + i, "--drain-seconds", r->drain_seconds);
    if (r->threads && n->role == CLUSTER_STATION) {
        out[i++] = (char *)(uintptr_t)"--threads";
        out[i++] = s->threads;
    }
    if (r->isa) {
        out[i++] = (char *)(uintptr_t)"--isa";
        out[i++] = (char *)(uintptr_t)r->isa;
    }
    if (r->tls.certificate && n->role == CLUSTER_COORDINATOR) {
        out[i++] = (char *)(uintptr_t)"--tls-certificate";
        out[i++] = (char *)(uintptr_t)r->tls.certificate;
        out[i++] = (char *)(uintptr_t)"--tls-key";
        out[i++] = (char *)(uintptr_t)r->tls.key;
    }
    if (r->access.keys_file && n->role == CLUSTER_COORDINATOR) {
        out[i++] = (char *)(uintptr_t)"--api-keys";
        out[i++] = (char *)(uintptr_t)r->access.keys_file;
    }
    if (r->access.cors && n->role == CLUSTER_COORDINATOR) {
        out[i++] = (char *)(uintptr_t)"--cors";
        out[i++] = (char *)(uintptr_t)r->access.cors;
    }
    if (r->queue && n->role == CLUSTER_COORDINATOR) i += add_pair(out + i, "--queue", r->queue);
    if (r->drafts && n->role == CLUSTER_COORDINATOR) {
        out[i++] = (char *)(uintptr_t)"--drafts";
        out[i++] = (char *)(uintptr_t)r->drafts;
    }
    if (r->draft && n->role == CLUSTER_COORDINATOR) {
        out[i++] = (char *)(uintptr_t)"--draft";
        out[i++] = (char *)(uintptr_t)r->draft;
        if (r->draft_memory) {
            out[i++] = (char *)(uintptr_t)"--draft-memory";
            out[i++] = (char *)(uintptr_t)r->draft_memory;
        }
    }
    out[i] = NULL;
}

static Error describe_node(UpState *s, uint32_t i, Why *why)
{
    const ClusterFile *c = &s->cluster;
    const ClusterNode *n = &c->nodes[i];
    UpNode *node = &s->nodes[i];
    node_arguments(s, n, node->arguments);
    node_url(s, n, node->url);
    (void)snprintf(node->log, sizeof node->log, "%s/%s.log", s->request->directory, n->id);
    s->supervised[i] = (SuperviseNode){
        .id = n->id, .arguments = node->arguments, .url = node->url, .log = node->log};
    if (!s->has_cgroups) return OK;
    TRY(cgroup_make_group(&s->cgroups, n->id,
                          cluster_file_is_warden(n->role) ? c->warden_memory_bytes
                                                          : c->memory_bytes,
                          node->cgroup, why));
    s->supervised[i].cgroup = node->cgroup;
    return OK;
}

/* Asked for and not allowed is worth a word, not the end. */
static void open_cgroups(UpState *s)
{
    Why why = {{0}};
    if (!s->request->cgroups) return;
    s->has_cgroups = cgroup_make_open(&s->cgroups, &why) == OK;
    if (!s->has_cgroups)
        log_say(LOG_INFO, "no memory control groups: %s; going on without", why.text);
}

static Error prepare(UpState *s, Why *why)
{
    const UpRun *r = s->request;
    TRY(node_read_cluster(r->cluster, &s->cluster, &s->cluster_memory, why));
    s->nodes = calloc(s->cluster.node_count, sizeof *s->nodes);
    s->supervised = calloc(s->cluster.node_count, sizeof *s->supervised);
    if (!s->nodes || !s->supervised) return error_why(why, ERR_MEMORY, "the list of nodes");
    (void)snprintf(s->threads, sizeof s->threads, "%u", r->threads);
    open_cgroups(s);
    for (uint32_t i = 0; i < s->cluster.node_count; i++) TRY(describe_node(s, i, why));
    return OK;
}

static void release(UpState *s)
{
    for (uint32_t i = 0; s->has_cgroups && i < s->cluster.node_count; i++)
        cgroup_make_remove_group(&s->cgroups, s->cluster.nodes[i].id);
    if (s->has_cgroups) cgroup_make_remove(&s->cgroups);
    free(s->nodes);
    free(s->supervised);
    free(s->cluster_memory);
}

/* ---- What is said when it is ready */

static bool is_loopback(const char *host)
{
    struct addrinfo *found = NULL;
    if (getaddrinfo(host, NULL, NULL, &found) != 0 || !found) return false;
    bool yes = listen_is_loopback(found->ai_addr);
    freeaddrinfo(found);
    return yes;
}

static void say_ready(void *context)
{
    const UpState *s = context;
    const ClusterFile *c = &s->cluster;
    const ClusterNode *first = &c->nodes[0];
    char place[PORTS_TEXT_BYTES];
    log_say(LOG_INFO, "%u processes of at most %.0f MiB; their files are in %s", c->node_count,
            (double)c->memory_bytes / (1 << 20), s->request->directory);
    printf("%s: %u slots of %u tokens, on http%s://%s\n", c->model_name, c->sessions, c->context,
           has_tls(s, first) ? "s" : "", ports_text(first->host, first->port, place));
    (void)fflush(stdout);
    if (s->request->access.keys_file || is_loopback(first->host)) return;
    (void)snprintf(place, sizeof place, "%s port %u", first->host, (unsigned)first->port);
    tls_options_warn(place, has_tls(s, first));
}

/* Nodes inherit what their stores want, and nothing else that is secret. */
static void forget_secrets(void)
{
    static const char *const names[] = {"COBORD_API_KEY", "COBORD_HUB_TOKEN",
                                        "CLOUDFLARE_API_TOKEN"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) (void)unsetenv(names[i]);
}

static int supervise(UpState *s)
{
    Why why = {{0}};
    forget_secrets();
    SuperviseOptions options = {
        .nodes = s->supervised,
        .node_count = s->cluster.node_count,
        /* Their ports are ours, the calls say nothing, and no certificate is made out to them. */
        .http = {.unverified = true},
        .drain_s = s->request->drain_s,
        .context = s,
        .passes_hangups = s->request->access.keys_file != NULL,
        .ready = say_ready};
    Error error = supervise_run(&options, &why);
    if (error == ERR_CANCELLED) return 0;
    if (error != ERR_IO) return complain(error, &why, NULL, NULL);
    fprintf(stderr, "cobord: ");
    options_print_safely(stderr, why.text);
    fprintf(stderr, "\ncobord: all processes were ended; what they said is in %s\n",
            s->request->directory);
    return 1;
}

int up_run(const UpRun *request)
{
    Why why = {{0}};
    UpState s = {.request = request};
    Error error = prepare(&s, &why);
    int code = error == OK ? supervise(&s)
                           : complain(error, &why, request->cluster, complain_cluster_file(error));
    release(&s);
    return code;
}
