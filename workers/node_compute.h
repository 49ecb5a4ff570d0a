/* SPDX-License-Identifier: Apache-2.0 */
/* What stations and shards share as nodes of WebAssembly: settings, the sum, memory, weights in
 * whole blocks.
 *
 *   open:  settings --> sizes, isolate_choose --> memory, roles built --> resident vectors --> pinned weights
 *          --> embedding rows that stay --> sessions come back --> node_opened
 *
 * One of these an instance (node_compute). A station may have a part of the vocabulary too; a
 * shard has nothing else. */
#ifndef COBORD_WORKERS_NODE_COMPUTE_H
#define COBORD_WORKERS_NODE_COMPUTE_H

#include "api/node_about.h"
#include "api/node_configure.h"
#include "cluster/blocks.h"
#include "cluster/isolate.h"
#include "cluster/station_keeper.h"
#include "node.h"

typedef struct NodeCompute {
    /* Settings. */
    bool is_station;
    PhaseRange range; /* a station */
    bool embed, head; /* parts of the vocabulary that it answers for */
    uint32_t id_first, id_last;
    uint32_t context, sessions, chunk, logit_rows;
    CacheType cache;
    uint64_t pinned_bytes;
    const Kernels *kernels;
    const Ops *ops;

    Isolate isolate;
    ForwardTerms terms;
    Station *station;
    StationService *service;
    StationKeeper *keeper; /* NULL: sessions are not kept */
    Shard *shard;
    ShardService *shard_service;
    Blocks weights, rows; /* rows: embedding rows that stay; pinned only */
    uint8_t *answer;
    uint64_t answer_room, weight_bytes;
    uint8_t *mark; /* what is taken behind it is the roles' */
    bool loaded;
    char owns[NODE_ABOUT_RANGE_BYTES];

    NodeWorkCounts counts;
    uint64_t rows_done, embeds, logits;

    /* Under way. */
    uint64_t begun_ms;
    BlocksRead read;
    Error error;
    Why why;
    NodeThen *then;   /* of the opening, of a run over the weights */
    uint32_t at;      /* a vector of the floor */
    uint64_t at_byte; /* a pinned byte */
    PhaseBound until; /* a station stops there for its next phase */
} NodeCompute;

extern NodeCompute node_compute;

/* ---- node_setup.c: settings and sums ---- */

StationConfig node_compute_station_config(const Node *n);
ForwardTerms node_compute_terms(const Node *n);
ShardConfig node_compute_shard_config(const Node *n);
ShardServiceConfig node_compute_shard_service(const Node *n);
StationKeeperTerms node_compute_keeper_terms(const Node *n);
MUST_CHECK Error node_compute_read_settings(Node *n, Why *why);
/* What it takes with its present range. Errors  ERR_PLAN. */
MUST_CHECK Error node_compute_size(const Node *n, Isolate *out, NodeSizes *sizes, Why *why);

/* ---- node_compute.c: building ---- */

/* Builds for the present range and brings what stays; then `then`, with error and why. */
void node_compute_build(Node *n, NodeThen *then);
/* Of both roles. */
void node_compute_open(Node *n);
/* The row of a range that was configured: the body of that request. */
#define NODE_COMPUTE_RANGE_KEY "range"
MUST_CHECK Error node_compute_read_range(Node *n, const uint8_t *body, size_t bytes, Why *why);
/* POST /configure, /drain. */
void node_compute_configure(Node *n);
void node_compute_drain(Node *n);
/* What both say of themselves. */
NodeAbout node_compute_about(const Node *n);

/* Blocks around [offset, offset + bytes) of the payload, ahead to `until`: then. Sets error and
 * why. */
void node_compute_bring(Node *n, uint64_t offset, uint64_t bytes, uint64_t until, NodeThen *then);

/* ---- Requests ---- */

/* Refuses a request that comes too early or too late. true: it has its answer. */
bool node_compute_refuses(Node *n);
void node_compute_begin(Node *n);
/* Result  microseconds. */
uint32_t node_compute_end(Node *n);
void node_compute_fail(Node *n, const char *what, Error error, const Why *why, NodeThen *then);

/* ---- node_ids.c: a part of the vocabulary ---- */

void node_ids_run(Node *n, ShardServiceKind kind);

/* ---- node_sessions.c: sessions in rows ---- */

/* Deletes rows that are too long, then `then`; writes new rows, then node_end. */
void node_sessions_cut(Node *n, NodeThen *then);
void node_sessions_put(Node *n);
/* Reads all rows back, then `then`. */
void node_sessions_restore(Node *n, NodeThen *then);

#endif
