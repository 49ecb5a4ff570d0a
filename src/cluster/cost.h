/* SPDX-License-Identifier: Apache-2.0 */
/* What a token costs in a planned cluster, and on one machine alone: for one conversation, whose token
 * waits for every station in turn.
 *
 *   token = embed | station 0 | station 1 | .. | head on all shards at once
 *
 *   a step  = weights / bandwidth + streamed weights / rate of the disk or page cache + a hop + bytes / network
 *   machines work at the same time, roles of one machine share its bandwidth
 *
 * The attention cache and arithmetic that is slower than memory are left out: it is a bound to plan
 * with, not a promise. */
#ifndef COBORD_CLUSTER_COST_H
#define COBORD_CLUSTER_COST_H

#include "cluster/plan.h"
#include "wire/rows.h"

enum {
    COST_MACHINES_MAX = 256,
    COST_CANDIDATES = 64,   /* that a shard sends for a pick */
    COST_HEADER_BYTES = 256 /* HTTP and frame, each way */
};

/* In use where nothing was measured. */
#define COST_BANDWIDTH_GBS 20.0
#define COST_STREAM_GBS 1.0
#define COST_HOP_US 150.0
#define COST_NETWORK_GBS 1.0

typedef struct CostMachine {
    double bandwidth_gbs; /* resident weights that all its cores go through, 10^9 bytes/s */
    double stream_gbs;    /* weights that are not resident */
    double hop_us;        /* a small call to it and back, computing left out */
    double network_gbs;
    uint64_t memory_bytes; /* what it can keep in all; 0: not known, any */
} CostMachine;

typedef struct CostRequest {
    const Plan *plan; /* not solo */
    RowsElement element;
    const CostMachine *machine;
    uint32_t machines;
    const uint32_t *role_machine; /* [role_count], or NULL: all on the first */
} CostRequest;

typedef struct Cost {
    uint64_t weight_bytes;   /* read for a token, in all */
    uint64_t streamed_bytes; /* of them, not resident */
    uint64_t moved_bytes;    /* between nodes, both ways */
    uint32_t calls;          /* between nodes */
    uint32_t hops;           /* of them one after the other */
    double seconds, tokens_per_s;
    double busy_tokens_per_s; /* with enough conversations that the busiest machine never waits */
    uint32_t alone_machine;   /* the best one for everything */
    double alone_seconds, alone_tokens_per_s;
    uint64_t alone_streamed_bytes;
    bool alone_is_faster;
} Cost;

/* Errors  ERR_RANGE (no machine, too many, a figure that is not above 0). */
MUST_CHECK Error cost_of(const CostRequest *request, Cost *out, Why *why);

#endif
