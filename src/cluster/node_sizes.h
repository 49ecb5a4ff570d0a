/* SPDX-License-Identifier: Apache-2.0 */
/* What a station or shard has to have room for, wherever it runs: its role's own, and its frames.
 * A native node adds what a process takes (host/node_memory.h), one in WebAssembly what an
 * instance takes (cluster/isolate.h). */
#ifndef COBORD_CLUSTER_NODE_SIZES_H
#define COBORD_CLUSTER_NODE_SIZES_H

#include "cluster/shard_service.h"
#include "cluster/station_service.h"

typedef struct NodeSizes {
    uint64_t floor_bytes, scratch_bytes, logits_bytes, cache_bytes;
    uint64_t service_bytes, body_bytes_max, answer_bytes_max;
    uint64_t widest_panel_bytes;
    uint64_t weights_first, weights_last; /* of the payload: where the role's weights lie */
} NodeSizes;

/* Sets all of it. Errors  those of station_sizes. */
MUST_CHECK Error node_sizes_station(const StationConfig *config, const ForwardTerms *terms,
                                    NodeSizes *out, Why *why);
/* Adds a part of the vocabulary: activations are shared with a station of the same thread, head
 * rows lengthen the stretch of weights. `out` is zero, or a station's. Errors  those of
 * shard_sizes. */
MUST_CHECK Error node_sizes_ids(const ShardConfig *config, const ShardServiceConfig *service,
                                bool embed, bool head, NodeSizes *out, Why *why);

#endif
