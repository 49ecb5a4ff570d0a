/* SPDX-License-Identifier: Apache-2.0 */
#include "host/warden_role.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/json_writer.h"
#include "host/memory.h"
#include "host/share.h"
#include "host/warden_state.h"
#include "wire/frame.h"

enum {
    THREADS = 2,
    ANSWERS_MAX = 4, /* on their way out */
    QUEUE_MAX = 64,
    BODY_BYTES_MAX = FRAME_HEADER_BYTES_MAX,
    SLACK_BYTES = 6 << 20 /* tables, heap and stacks that come after the process was measured */
};

/* --- memory --- */

/* What is not a cache: buffers of slabs, and answers. */
static uint64_t fixed_bytes(const WardenRole *w)
{
    uint64_t answer =
        (w->self.identity.is_shard ? WARDEN_ROWS_BYTES_MAX : WARDEN_ANSWER_BYTES_MAX) +
        FRAME_HEADER_BYTES_MAX;
    return memory_resident() + SLACK_BYTES +
           (uint64_t)w->threads * (1 + WARDEN_LATER_MAX) * WARDEN_SLAB_BYTES +
           ANSWERS_MAX * answer / (w->threads == 1 ? 2 : 1);
}

/* Small budgets have one thread. The embedding rows of a shard warden get at most half of what is left. */
static Error choose_budgets(WardenRole *w, Why *why)
{
    uint64_t budget = w->node->cluster->warden_memory_bytes;
    w->threads = THREADS;
    if (fixed_bytes(w) > budget / 2) w->threads = 1;
    uint64_t fixed = fixed_bytes(w);
    if (fixed > budget)
        return error_why(
            why, ERR_PLAN,
            "%s: process, buffers and answers need %llu MiB, warden_memory is %llu MiB",
            w->node->self->id, (unsigned long long)((fixed >> 20) + 1),
            (unsigned long long)(budget >> 20));
    w->row_budget_bytes = w->self.identity.is_shard ? (budget - fixed) / 2 : 0;
    w->slab_budget_bytes = budget - fixed - w->row_budget_bytes;
    return OK;
}

/* --- opening --- */

static WardenIdentity identity_of(const Node *node)
{
    const ClusterNode *n = node->self;
    WardenIdentity id = {.knot_id = node->cluster->knot_id,
                         .is_shard = n->role == CLUSTER_SHARD_WARDEN,
                         .first = n->range.first,
                         .last = n->range.last};
    if (id.is_shard) {
        id.first = n->id_first;
        id.last = n->id_last;
    }
    return id;
}

/* "dir:PATH" or "sqlite:PATH" beside the cluster file; other addresses as they are. */
static Error cache_path(const Node *node, const char *prefix, char out[NODE_PATH_BYTES], Why *why)
{
    char path[NODE_PATH_BYTES];
    size_t bytes = strlen(prefix);
    out[0] = '\0';
    if (strncmp(node->self->cache, prefix, bytes) != 0) return OK;
    TRY(node_path(node->cluster_path, node->self->cache + bytes, path, why));
    (void)snprintf(out, NODE_PATH_BYTES, "%s", path);
    return OK;
}

static Error check_cache(const WardenRole *w, Why *why)
{
    const char *cache = w->node->self->cache;
    bool rows = strncmp(cache, "sqlite:", 7) == 0 || strncmp(cache, "redis://", 8) == 0;
    bool slabs = strncmp(cache, "dir:", 4) == 0;
    if (!cache[0] || (w->self.identity.is_shard ? rows : slabs)) return OK;
    return error_why(why, ERR_USAGE, "%s: cache \"%s\"; %s", w->node->self->id, cache,
                     w->self.identity.is_shard ? "sqlite:PATH or redis://HOST:PORT is possible"
                                               : "dir:PATH is possible");
}

static Error open_levels(WardenRole *w, Why *why)
{
    char directory[NODE_PATH_BYTES];
    TRY(cache_path(w->node, "dir:", directory, why));
    WardenLevelsOptions options = {.identity = w->self.identity,
                                   .store = w->store.store,
                                   .object = w->store.object,
                                   .budget_bytes = w->slab_budget_bytes,
                                   .tables_bytes_max = w->node->cluster->warden_memory_bytes / 2,
                                   .directory = directory,
                                   .directory_bytes = w->node->self->cache_bytes,
                                   .tell = w->node->options->tell};
    return warden_levels_open(&options, &w->levels, why);
}

static Error open_vocab(WardenRole *w, Why *why)
{
    char path[NODE_PATH_BYTES], where[NODE_PATH_BYTES + 8];
    const char *cache = w->node->self->cache;
    if (!w->self.identity.is_shard) return OK;
    TRY(cache_path(w->node, "sqlite:", path, why));
    if (path[0]) (void)snprintf(where, sizeof where, "sqlite:%s", path);
    else (void)snprintf(where, sizeof where, "%s", cache);
    WardenVocabOptions options = {w->self.identity.first, w->self.identity.last,
                                  w->row_budget_bytes, where};
    TRY(warden_vocab_open(&options, w->levels, &w->vocab, why));
    w->serving.vocab = warden_vocab_tensor(w->vocab);
    return OK;
}

/* The knot must be the one that the cluster file describes. */
static Error check_model(const WardenRole *w, Why *why)
{
    const ClusterFile *c = w->node->cluster;
    const KnotModel *m = &warden_levels_index(w->levels)->knot.model;
    if (m->layers == c->layers && m->vocabulary == c->vocabulary) return OK;
    return error_why(why, ERR_UNSUPPORTED,
                     "%s: the cluster file has %u layers and a vocabulary of %u, %s has %u and %u",
                     w->node->self->id, c->layers, c->vocabulary, w->store.object, m->layers,
                     m->vocabulary);
}

static Error open_parts(WardenRole *w, Why *why)
{
    w->self =
        (WardenSelf){identity_of(w->node), w->node->cluster->layers, w->node->cluster->knot_key};
    w->serving.identity = w->self.identity;
    warden_identity_text(&w->self.identity, w->self.layers, w->identity_text);
    TRY(check_cache(w, why));
    TRY(choose_budgets(w, why));
    TRY(knot_store_open(w->node, &w->store, why));
    TRY(open_levels(w, why));
    w->serving.index = warden_levels_index(w->levels);
    TRY(check_model(w, why));
    return open_vocab(w, why);
}

/* --- serving --- */

static bool say_ready(void *context, char *json, size_t room)
{
    WardenRole *w = context;
    warden_state_write(w, json, room);
    return true;
}

static void say_metrics(void *context, char *text, size_t room)
{
    warden_state_metrics(context, text, room);
}

static Error open_server(WardenRole *w, Why *why)
{
    NodeServerOptions options = {.listen = w->node->listen,
                                 .key = w->node->key,
                                 .certificate_file = w->node->certificate_file,
                                 .certificate_key_file = w->node->certificate_key_file,
                                 .routes = warden_routes,
                                 .route_count = warden_routes_count,
                                 .threads = w->threads,
                                 .queue_max = QUEUE_MAX,
                                 .version = w->node->options->version,
                                 .role = cluster_file_role_name(w->node->self->role),
                                 .memory_bytes = w->node->cluster->warden_memory_bytes,
                                 .drain_s = w->node->options->drain_s,
                                 .body_bytes_max = BODY_BYTES_MAX,
                                 .bodies_bytes_max = (size_t)8 * BODY_BYTES_MAX,
                                 .context = w,
                                 .ready = say_ready,
                                 .metrics = say_metrics};
    w->node->listen.fd = -1;
    return node_server_open(&options, &w->server, why);
}

static Error serve(WardenRole *w, Why *why)
{
    char what[NODE_LINE_BYTES], path[NODE_PATH_BYTES];
    Share *share = NULL;
    TRY(open_parts(w, why));
    TRY(open_server(w, why));
    if (w->node->self->socket[0]) {
        TRY(node_path(w->node->cluster_path, w->node->self->socket, path, why));
        ShareOptions options = {path,      w->node->key, w->self.identity.knot_id,
                                w->levels, &w->store,    w->node->options->tell};
        TRY(share_open(&options, &share, why));
    }
    (void)snprintf(what, sizeof what, "warden of %s", w->identity_text);
    node_server_begin();
    node_announce(w->node, what);
    node_server_run(w->server);
    share_close(share);
    return OK;
}

Error warden_role_run(Node *node, Why *why)
{
    WardenRole w = {.node = node};
    Error error = serve(&w, why);
    if (w.server) node_server_close(w.server);
    warden_vocab_close(w.vocab);
    warden_levels_close(w.levels);
    knot_store_close(&w.store);
    return error;
}
