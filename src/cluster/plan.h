/* SPDX-License-Identifier: Apache-2.0 */
/* Who owns what, and what it costs in memory before anything starts.
 *
 *   solo     every role in one process: the roles share one window and one scratch, the budget bounds their sum
 *   cluster  one process a role: the budget bounds each
 *
 *   process + floor + window + scratch (activations of a chunk) + frames (cluster) + logits
 *           + attention cache (+ pinned weights) <= budget
 *
 * Answers with a form (a grammar, a schema) take memory where the tokenizer is: up to a quarter of a solo process's
 * budget, up to half of what a coordinator's sum leaves. What is too little for the first of them is not taken.
 *
 * Weights that fit beside all that are pinned: a prefix of the payload in file order, which is
 * execution order in v2. Sizes that depend on the request are chosen in this order: context when it
 * is given, chunk, context when it is not, pinned weights. */
#ifndef COBORD_CLUSTER_PLAN_H
#define COBORD_CLUSTER_PLAN_H

#include "cluster/coordinator.h"
#include "cluster/shard.h"
#include "cluster/station.h"
#include "wire/cluster_file.h"

enum {
    PLAN_ROLES_MAX = 512,
    PLAN_STATIONS_DEFAULT = 2,
    PLAN_SHARDS_DEFAULT = 8,
    PLAN_CONTEXT_DEFAULT_MAX = 8192,
    PLAN_CONTEXT_USEFUL = 2048, /* cluster: not less for the sake of resident weights */
    PLAN_CHUNK_DEFAULT_MAX = 512,
    PLAN_DRAFTS_DEFAULT = 15,
    PLAN_DRAFT_ROWS = 32 /* of a frame */
};

/* What one process costs before any role: code, libraries, stacks (10 to 11 MiB measured on Linux), and
 * 4 MiB that come while it works. A node measures its own and must not find more. */
#define PLAN_PROCESS_BYTES ((uint64_t)16 << 20)

typedef struct PlanRequest {
    const Knot *knot;
    const Hyper *hyper;
    bool solo;
    uint64_t memory_bytes;  /* the budget of one process */
    uint64_t process_bytes; /* what the process has already */
    uint32_t stations, shards;
    /* Cluster: at the first, at the last station; shards may be 0 when both are. */
    bool embed, head;
    const PhaseRange *ranges; /* instead of an even cut, or NULL; `stations` of them */
    /* The same for the shards: where each ends, the last at the vocabulary's end. */
    const uint32_t *id_ends;
    uint32_t context;    /* 0: the largest that fits, at most 8192 and the model's */
    uint32_t chunk;      /* 0: the largest that fits well, at most 512 */
    uint32_t logit_rows; /* wanted at once; the plan may give fewer, at least 1 */
    /* Guesses of a slot in a frame, at most; the plan adds rows of logits for them. */
    uint32_t drafts;
    /* Cluster: of a shard, or of a station with the head; 0: the vocabulary's share. */
    uint32_t ids_most;
    uint32_t sessions; /* sequences at once, each with the whole context; 0: 1 */
    uint32_t workers;
    bool forms; /* solo: answers may have to have a form */
    /* cluster: */
    uint32_t frames; /* under way at once; 0: one a station */
    uint32_t replicas;
    bool wardens;
    /* Room for CLUSTER_FILE_NODES_MAX: the coordinator's frames are then counted exactly; NULL: about. */
    ClusterNode *nodes;
    CacheType cache;
    const Kernels *kernels;
    const Ops *ops;
} PlanRequest;

typedef struct PlanRole {
    bool is_shard;
    PhaseRange range;           /* station */
    bool embed, head;           /* station: keeps them for the whole vocabulary */
    uint32_t id_first, id_last; /* shard, and what a station keeps */
    uint64_t process_bytes, floor_bytes, window_bytes, scratch_bytes, logits_bytes, cache_bytes,
        pinned_bytes;
    uint64_t form_bytes;   /* of answers with a form */
    uint64_t frame_bytes;  /* cluster: bodies, answers, and the frames' rows */
    uint64_t weight_bytes; /* what it would be resident with */
    uint64_t total_bytes;
} PlanRole;

typedef struct Plan {
    PlanRequest request;
    uint32_t context, chunk, logit_rows;
    uint64_t tile_bytes_max; /* of one wish */
    uint64_t window_bytes;   /* weights in memory at once while streaming */
    uint64_t pinned_bytes;   /* solo: payload bytes 0.. that are never dropped */
    bool resident;           /* nothing is streamed */
    uint32_t role_count;     /* stations, then shards */
    PlanRole role[PLAN_ROLES_MAX];
    PlanRole sum; /* solo: the whole process */
    /* Cluster: its floor is the tokenizer, its window that of its own store. */
    PlanRole coordinator;
} Plan;

/* The range of station `index` of `count`: whole layers when there are enough, the remainder to the first.
 * Errors  ERR_RANGE when count is 0 or exceeds the number of phases. */
MUST_CHECK Error plan_station_range(uint32_t layers, uint32_t count, uint32_t index,
                                    PhaseRange *out, Why *why);

/* Rows of a frame whose logits are wanted, of who has `ids` of the vocabulary: `wanted`, and some for drafts: about as
 * many as cost little in one pass, as far as their logits (and over the network their answer, which may be all of them)
 * take no more than a 24th of the budget. At least 1. All nodes of a cluster get the same from the same file. */
uint32_t plan_logit_rows(uint32_t wanted, uint32_t drafts, uint32_t sessions, uint32_t ids,
                         bool solo, uint64_t memory_bytes);

/* Errors  ERR_PLAN (the Why is the sum), ERR_RANGE, ERR_MISSING_TENSOR, ERR_SHAPE. */
MUST_CHECK Error plan_make(const PlanRequest *request, Plan *out, Why *why);

/* Splits `workers` processes into stations and shards by the bytes each side has to hold. */
void plan_split_workers(const Knot *knot, const Hyper *hyper, uint32_t workers, uint32_t *stations,
                        uint32_t *shards);

/* What answers with a form take of `room` bytes: all that they can use, or nothing when it is too little for one. */
uint64_t plan_form_bytes(uint32_t vocabulary, uint32_t sessions, uint64_t room);

/* What a node takes beside its weights and attention cache when nothing is streamed. */
uint64_t plan_role_fixed_bytes(const PlanRole *role);

/* "coordinator-0", "station-1", "shard-7": of a role, or of the coordinator. */
enum { PLAN_ROLE_NAME_BYTES = 24 };
void plan_role_name(const Plan *plan, const PlanRole *role, char out[PLAN_ROLE_NAME_BYTES]);

/* The scratch that the roles of a solo process share. */
uint64_t plan_scratch_bytes(const Plan *plan);

StationConfig plan_station_config(const Plan *plan, uint32_t station);
CoordinatorConfig plan_coordinator_config(const Plan *plan);
ShardConfig plan_shard_config(const Plan *plan, uint32_t shard);

#endif
