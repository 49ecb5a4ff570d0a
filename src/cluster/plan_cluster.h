/* SPDX-License-Identifier: Apache-2.0 */
/* From a plan to a cluster file: ids, ranges, addresses, replicas and wardens.
 *
 *   places   coordinator-0 | station-0 its replicas station-1 .. | shard-0 its replicas .. |
 *            layer-warden-0 .. | shard-warden-0 ..
 *
 * Replica r (from 1) of station-K of S is station-(S * r + K), and shards likewise. Every station has a layer
 * warden of its number and range; a shard warden serves as many neighbouring shards as its memory holds. */
#ifndef COBORD_CLUSTER_PLAN_CLUSTER_H
#define COBORD_CLUSTER_PLAN_CLUSTER_H

#include "cluster/plan.h"
#include "wire/cluster_file.h"

enum { PLAN_CLUSTER_REPLICAS_MAX = 8 };

typedef struct PlanClusterRequest {
    const Plan *plan; /* not solo */
    uint32_t replicas;
    bool wardens;
    uint64_t warden_memory_bytes;
    /* Which machine each shard is on, [shards], or NULL: a shard warden serves one machine only. */
    const uint32_t *shard_machine;
    const char *model_name, *knot_key, *store, *key_file; /* "" where there is none */
    RowsElement element;
    /* wardens: where their sockets and caches are on this machine, ended by '/'; "": none */
    const char *directory;
} PlanClusterRequest;

/* What a warden of the file costs: a warden keeps of its weights what its memory holds. */
typedef struct PlanWarden {
    PhaseRange range;           /* of a layer warden */
    uint32_t id_first, id_last; /* of a shard warden */
    uint64_t process_bytes, weight_bytes, held_bytes, total_bytes;
} PlanWarden;

typedef struct PlanPlace {
    ClusterRole role;
    uint32_t part, replica; /* replica 0: the first */
    char id[CLUSTER_FILE_ID_BYTES];
} PlanPlace;

/* The places of a request, in order. Shapes  out[room]; NULL to count them.
 * Errors  ERR_RANGE (more than CLUSTER_FILE_NODES_MAX, an id above 9999), ERR_PLAN (wardens with too little memory). */
MUST_CHECK Error plan_cluster_places(const PlanClusterRequest *request, PlanPlace *out,
                                     uint32_t room, uint32_t *count, Why *why);

typedef struct PlanAddress {
    const char *host;
    uint16_t port;
} PlanAddress;

size_t plan_cluster_arena_bytes(uint32_t places);
/* The file, checked. Shapes  address[places], in their order. Owner  texts of the request and hosts are borrowed, the
 * rest is in `arena`. Errors  those of plan_cluster_places and cluster_file_check, ERR_MEMORY. */
MUST_CHECK Error plan_cluster(const PlanClusterRequest *request, const PlanAddress *address,
                              Arena *arena, ClusterFile *out, Why *why);

/* Ids of the widest shard, or of the station that has the head. */
uint32_t plan_cluster_ids_most(const ClusterFile *c, uint32_t vocabulary);

/* The first shard of a shard warden's group. */
uint32_t plan_cluster_warden_shard(const PlanClusterRequest *request, uint32_t warden);

/* A warden's range, and the sum of its memory. `place` is a warden's. */
PlanWarden plan_cluster_warden(const PlanClusterRequest *request, const PlanPlace *place);

#endif
