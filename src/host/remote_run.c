/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator as a node of a cluster file: the knot's header and tokenizer, the engine over the other
 * nodes, and OpenAI's API on the node's address. */
#include <stdio.h>
#include <string.h>

#include "api/request.h"
#include "host/api_server.h"
#include "host/cpu.h"
#include "host/draft_model.h"
#include "host/journal.h"
#include "host/log.h"
#include "host/memory.h"
#include "host/node_model.h"
#include "host/open_model.h"
#include "host/remote.h"

enum { CA_PATH_BYTES = NODE_PATH_BYTES };

/* Bodies of requests may take what the sum leaves of the budget, within reason. */
static size_t bodies_bytes(const ClusterFile *c, uint64_t draft_bytes)
{
    uint64_t taken = memory_resident() + draft_bytes,
             left = c->memory_bytes > taken ? c->memory_bytes - taken : 0;
    uint64_t bytes = left / 4, least = 2u * REQUEST_BODY_BYTES_MAX, most = (uint64_t)64 << 20;
    return (size_t)(bytes < least ? least : bytes > most ? most : bytes);
}

static void announce(const Node *node, const ClusterFile *c)
{
    char what[CLUSTER_FILE_TEXT_BYTES_MAX + 64];
    (void)snprintf(what, sizeof what, "%s, %u slots of %u tokens", c->model_name, c->sessions,
                   c->context);
    if (!node->listen.loopback && !node->options->access.keys_file)
        log_say(LOG_INFO, "anyone who reaches %s can use this server: its API has %s",
                node->listen.address, node->certificate_file ? "no keys" : "neither keys nor TLS");
    node_announce(node, what);
}

/* A journal that cannot be had costs resuming, not serving. */
static Journal *open_journal(const Node *node)
{
    char beside[NODE_PATH_BYTES];
    const char *given = node->options->journal, *path = given ? given : beside;
    Journal *journal = NULL;
    Why why = {{0}};
    if (given && strcmp(given, "none") == 0) return NULL;
    Error error = OK;
    if (!given) error = node_path(node->cluster_path, "journal.db", beside, &why);
    if (error == OK) error = journal_open(path, node->cluster->knot_id, &journal, &why);
    if (error == OK) return journal;
    log_say(LOG_ERROR, "%s: streams cannot be resumed after a restart: %s", node->self->id,
            why.text);
    return NULL;
}

/* Within the budget: of what the coordinator's own sum and answers with a form leave. */
static Error open_draft(const Node *node, const OpenModel *model, Remote *remote, DraftModel **out,
                        Why *why)
{
    const ClusterFile *c = node->cluster;
    uint64_t taken = remote_need_bytes(remote) + remote_form_bytes(remote),
             left = c->memory_bytes > taken ? c->memory_bytes - taken : 0;
    char line[160];
    DraftModelOptions options = {
        .model = node->options->draft,
        .guesses_for = &model->file,
        .slots = c->sessions,
        .context = c->context,
        .memory_bytes =
            node->options->draft_memory_bytes ? node->options->draft_memory_bytes : left / 4 * 3,
        .threads = node->options->threads,
        .cache = c->cache,
        .isa = node->options->isa_given ? node->options->isa : cpu_best(),
        .tell = node->options->tell,
    };
    *out = NULL;
    if (!options.model) return OK;
    if (options.memory_bytes > left)
        return error_why(
            why, ERR_PLAN,
            "%s: a draft model of %llu MiB, where %llu MiB of the %llu allowed are left",
            node->self->id, (unsigned long long)(options.memory_bytes >> 20),
            (unsigned long long)(left >> 20), (unsigned long long)(c->memory_bytes >> 20));
    TRY(draft_model_open(&options, out, why));
    draft_model_attach(*out, remote_engine(remote).coordinator);
    draft_model_describe(*out, line, sizeof line);
    log_say(LOG_INFO, "%s", line);
    return OK;
}

static Error serve(Node *node, const OpenModel *model, Remote *remote, uint64_t draft_bytes,
                   Journal *journal, Why *why)
{
    const ClusterFile *c = node->cluster;
    ApiServerOptions options = {
        .listen = node->listen,
        .certificate_file = node->certificate_file,
        .certificate_key_file = node->certificate_key_file,
        .access = node->options->access,
        .drain_s = node->options->drain_s,
        .bodies_bytes_max = bodies_bytes(c, draft_bytes),
        .serve = {.form_bytes_max = remote_form_bytes(remote),
                  .model = c->model_name,
                  .slots = c->sessions,
                  .queue_max = node->options->queue_max,
                  .vocabulary = model->hyper.vocabulary,
                  .hidden = model->hyper.hidden,
                  .context = c->context,
                  .tokenizer = model->tokenizer,
                  .knot = &model->file.knot,
                  .version = node->options->version,
                  .role = "coordinator",
                  .memory_bytes = c->memory_bytes,
                  .engine = remote_engine(remote),
                  .journal = journal},
    };
    ApiServer *server;
    node->listen.fd = -1;
    TRY(api_server_open(&options, &server, why));
    announce(node, c);
    api_server_run(server);
    api_server_close(server);
    return OK;
}

static Error run(Node *node, const NodeModel *local, const OpenModel *model, Why *why)
{
    char ca[CA_PATH_BYTES];
    bool has_ca = node->cluster->tls_ca[0];
    if (has_ca) TRY(node_path(node->cluster_path, node->cluster->tls_ca, ca, why));
    Isa isa = node->options->isa_given ? node->options->isa : cpu_best();
    RemoteOptions options = {
        .node = node,
        .cluster = node->cluster,
        .self = node->self,
        .key = node->key,
        .ca_file = has_ca ? ca : NULL,
        .version = node->options->version,
        .file = &model->file,
        .path = local->path[0] ? local->path : NULL,
        .hyper = &model->hyper,
        .threads = node->options->threads,
        .drafts = node->options->drafts,
        .kernels = kernels_for(isa),
    };
    Remote *remote;
    TRY(remote_open(&options, &remote, why));
    DraftModel *draft;
    Error error = open_draft(node, model, remote, &draft, why);
    if (error == OK) {
        Journal *journal = open_journal(node);
        error = serve(node, model, remote, draft ? draft_model_bytes(draft) : 0, journal, why);
        journal_close(journal);
    }
    remote_close(remote);
    draft_model_close(draft);
    return error;
}

Error remote_run(Node *node, Why *why)
{
    NodeModel local;
    OpenModel model;
    TRY(node_model_open(node, &local, why));
    Error error = open_model_borrow(&local.file, MODEL_TOKENIZER, &model, why);
    if (error == OK) {
        error = run(node, &local, &model, why);
        open_model_close(&model);
    }
    node_model_close(&local);
    return error;
}
