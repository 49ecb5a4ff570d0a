/* SPDX-License-Identifier: Apache-2.0 */
/* A node's part of the vocabulary: embedding rows, rows of the output head, or both. A shard is nothing else; a
 * station of a small model may have all of one or both beside its layers (`embed`, `head` of the cluster file).
 *
 *   POST /embed, /logits --> shard_service_begin --> the worker's tiles --> shard_service_write
 *
 * Thread  the role's. */
#ifndef COBORD_HOST_NODE_VOCAB_H
#define COBORD_HOST_NODE_VOCAB_H

#include "cluster/shard_service.h"
#include "host/node_work.h"

typedef struct NodeVocab {
    uint32_t id_first, id_last;
    bool embed, head; /* what it answers; neither: there is no such part */
    Shard *shard;
    ShardService *service;
    atomic_ullong embeds, logits;
} NodeVocab;

/* Adds its part to a sum: activations are shared, head rows lengthen the stretch of weights. */
MUST_CHECK Error node_vocab_size(const NodeVocab *v, const NodeWork *w, NodeMemory *m, Why *why);
/* Owner  memory of the arena; the scratch may be shared with a station of the same thread. */
MUST_CHECK Error node_vocab_build(NodeVocab *v, const NodeWork *w, Arena *arena, void *scratch,
                                  Why *why);
/* Answers a request. */
void node_vocab_run(NodeVocab *v, NodeWork *w, ShardServiceKind kind, NodeRequest *r);
void node_vocab_write_metrics(const NodeVocab *v, JsonWriter *out);

#endif
