/* SPDX-License-Identifier: Apache-2.0 */
/* What a station or shard says of itself: the object of GET /ready, the lines of GET /metrics.
 * Native nodes and those in WebAssembly fill in the same structures; who has no figure for
 * something leaves it 0. */
#ifndef COBORD_API_NODE_ABOUT_H
#define COBORD_API_NODE_ABOUT_H

#include "api/memory_about.h"
#include "model/ops.h"
#include "model/phase.h"

enum { NODE_ABOUT_RANGE_BYTES = 96 };

/* "layers 0-14 and head"; "ids 0 to 6144". */
void node_about_layers(PhaseRange range, uint32_t layers, bool embed, bool head,
                       char out[NODE_ABOUT_RANGE_BYTES]);
void node_about_ids(uint32_t id_first, uint32_t id_last, char out[NODE_ABOUT_RANGE_BYTES]);

typedef struct NodeAbout {
    const char *state; /* "loading", "ready", "draining" */
    const char *id, *role, *version;
    uint64_t knot_id;
    const char *isa;
    uint32_t threads;
    const char *owns; /* node_about_layers, node_about_ids */
    MemoryAbout memory;
    bool resident; /* nothing is streamed */
    uint64_t weight_bytes, pinned_bytes;
} NodeAbout;

typedef struct NodeAboutStation {
    PhaseRange range;
    uint32_t layers; /* of the model */
    bool embed, head;
    uint32_t chunk, context;
    CacheType cache;
    uint32_t sessions_known, sessions_max;
} NodeAboutStation;

typedef struct NodeAboutShard {
    uint32_t id_first, id_last;
    uint32_t chunk, logit_rows;
} NodeAboutShard;

bool node_about_is_ready(const NodeAbout *a);
/* The object, with one of the two; the other is NULL. */
void node_about_write(const NodeAbout *a, const NodeAboutStation *station,
                      const NodeAboutShard *shard, JsonWriter *w);

/* Of the server in front of a role. */
typedef struct NodeFigures {
    uint64_t requests, refused, failed, unauthorized, abandoned;
    uint64_t queue, running, connections, shed;
    bool draining;
    uint64_t memory_bytes, memory_peak_bytes;
} NodeFigures;
void node_about_figures(const NodeFigures *f, JsonWriter *w);

/* Of the work. */
typedef struct NodeWorkCounts {
    uint64_t calls, failures, compute_us;
    uint64_t weight_bytes, tiles, phase_loads, dropped_bytes;
} NodeWorkCounts;
void node_about_work(const NodeAbout *a, const NodeWorkCounts *c, JsonWriter *w);
void node_about_station(uint64_t rows, uint64_t sessions, uint64_t evictions, JsonWriter *w);
void node_about_ids_counts(uint64_t embeds, uint64_t logits, JsonWriter *w);

#endif
