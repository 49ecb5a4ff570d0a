/* SPDX-License-Identifier: Apache-2.0 */
/* A node with the role of a shard. */
#include <stdlib.h>

#include "api/node_configure.h"
#include "host/node_roles.h"
#include "host/node_vocab.h"

typedef struct NodeShard {
    NodeWork work; /* first: what routes get is this */
    NodeVocab vocab;
} NodeShard;

static NodeShard *shard_of(NodeWork *w) { return (NodeShard *)(void *)w; }
static const NodeShard *shard_of_const(const NodeWork *w)
{
    return (const NodeShard *)(const void *)w;
}

/* ---- The role ---- */

static Error size_shard(NodeWork *w, NodeMemory *m, Why *why)
{
    return node_vocab_size(&shard_of(w)->vocab, w, m, why);
}

static Error build_shard(NodeWork *w, Arena *arena, void *scratch, Why *why)
{
    return node_vocab_build(&shard_of(w)->vocab, w, arena, scratch, why);
}

static void name_range(const NodeWork *w, char out[NODE_ABOUT_RANGE_BYTES])
{
    const NodeShard *s = shard_of_const(w);
    node_about_ids(s->vocab.id_first, s->vocab.id_last, out);
}

/* The range is written under the lock, by run_configure. */
static void describe(const NodeWork *w, const NodeAbout *a, JsonWriter *out)
{
    const NodeShard *s = shard_of_const(w);
    NodeAboutShard shard = {s->vocab.id_first, s->vocab.id_last, w->chunk, w->logit_rows};
    node_about_write(a, NULL, &shard, out);
}

static void write_metrics(const NodeWork *w, JsonWriter *out)
{
    node_vocab_write_metrics(&shard_of_const(w)->vocab, out);
}

/* ---- Routes ---- */

static void run_embed(void *work, NodeRequest *r)
{
    node_vocab_run(&shard_of(work)->vocab, work, SHARD_SERVICE_EMBED, r);
}

static void run_logits(void *work, NodeRequest *r)
{
    node_vocab_run(&shard_of(work)->vocab, work, SHARD_SERVICE_LOGITS, r);
}

static void set_ids(NodeShard *s, uint32_t first, uint32_t last)
{
    pthread_mutex_lock(&s->work.lock);
    s->vocab.id_first = first;
    s->vocab.id_last = last;
    pthread_mutex_unlock(&s->work.lock);
}

static void run_configure(void *work, NodeRequest *r)
{
    NodeShard *s = shard_of(work);
    NodeWork *w = &s->work;
    Why why = {{0}};
    NodeMemory sum;
    uint32_t first, last, first_before = s->vocab.id_first, last_before = s->vocab.id_last;
    if (node_work_refuses(w, r)) return;
    Error error = node_configure_read_ids(r->body, r->body_bytes, w->model.hyper.vocabulary, &first,
                                          &last, &why);
    if (error == OK) {
        set_ids(s, first, last);
        ClusterNode part = *w->node->self;
        part.id_first = first;
        part.id_last = last;
        error = node_work_fits(w, &sum, &why);
        if (error == OK) error = node_model_extend(&w->model, &part, &why);
        if (error != OK) set_ids(s, first_before, last_before);
        else error = node_work_rebuild(w, &sum, &why);
    }
    node_work_configured(w, r, error, &why);
}

static const NodeRoute routes[] = {
    {"POST", "/embed", run_embed},
    {"POST", "/logits", run_logits},
    {"POST", "/configure", run_configure},
    {"POST", "/drain", node_work_drain},
};

static const NodeWorkRole role = {
    .routes = routes,
    .route_count = sizeof routes / sizeof routes[0],
    .size = size_shard,
    .build = build_shard,
    .name_range = name_range,
    .describe = describe,
    .write_metrics = write_metrics,
};

Error node_shard_run(Node *node, Why *why)
{
    NodeShard *s = calloc(1, sizeof *s);
    if (!s) return error_why(why, ERR_MEMORY, "no memory for a shard");
    s->vocab.id_first = node->self->id_first;
    s->vocab.id_last = node->self->id_last;
    s->vocab.embed = s->vocab.head = true;
    Error error = node_work_run(&s->work, node, &role, 1, why);
    free(s);
    return error;
}
