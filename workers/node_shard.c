/* SPDX-License-Identifier: Apache-2.0 */
/* A shard: nothing but a part of the vocabulary. */
#include "node_compute.h"

enum { EMBED, LOGITS, CONFIGURE };

static void run(Node *n, uint32_t route)
{
    switch (route) {
    case EMBED: node_ids_run(n, SHARD_SERVICE_EMBED); return;
    case LOGITS: node_ids_run(n, SHARD_SERVICE_LOGITS); return;
    case CONFIGURE: node_compute_configure(n); return;
    default: node_compute_drain(n);
    }
}

static bool ready(Node *n, char *json, size_t room)
{
    const NodeCompute *c = &node_compute;
    NodeAbout a = node_compute_about(n);
    NodeAboutShard s = {c->id_first, c->id_last, c->chunk, c->logit_rows};
    JsonWriter w = json_writer_make(json, room - 1);
    node_about_write(&a, NULL, &s, &w);
    ASSERT(!w.full);
    json[w.used] = '\0';
    return node_about_is_ready(&a);
}

static void metrics(Node *n, char *text, size_t room)
{
    const NodeCompute *c = &node_compute;
    NodeAbout a = node_compute_about(n);
    JsonWriter w = json_writer_make(text, room - 1);
    node_about_work(&a, &c->counts, &w);
    node_about_ids_counts(c->embeds, c->logits, &w);
    ASSERT(!w.full);
    text[w.used] = '\0';
}

static const NodeGateRoute routes[] = {
    {"POST", "/embed"}, {"POST", "/logits"}, {"POST", "/configure"}, {"POST", "/drain"}};

const NodeRole node_shard_role = {.routes = routes,
                                  .route_count = sizeof routes / sizeof routes[0],
                                  .open = node_compute_open,
                                  .run = run,
                                  .ready = ready,
                                  .metrics = metrics};
