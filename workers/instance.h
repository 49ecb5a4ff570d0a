/* SPDX-License-Identifier: Apache-2.0 */
/* One WebAssembly instance: a knot's header, a plan, and the roles that were built here, all or one of them.
 *
 * The host outside (JavaScript) has the bytes of the file; the instance has all decisions. Everything that needs
 * bytes is an operation that the host drives with one loop, whatever the operation is:
 *
 *   begin (open, build, embed, forward, logits)
 *      |
 *      v
 *   next ----> LOAD, EVICT     a phase starts, ends: nothing to copy
 *      ^  ---> TILE            the host copies `bytes` bytes at file offset `offset` to `address`; 0 bytes when they
 *      |         |             are here already
 *      +---------+
 *      |  ---> DONE            the results are in the frame's buffers
 *      +-----> FAILED          instance_error, instance_why; the operation is over
 *
 * Memory, in this order and never given back; it grows in `open` and `build` only:
 *
 *   | C stack | data, this struct | header's tables | roles, caches, frames | one tile | pinned weights |
 *                                  \_ the header and its JSON reader's memory are where the roles come later
 *
 * Weights that fit the budget beside everything else are pinned: a prefix of the payload, read once by `build`. */
#ifndef COBORD_WORKERS_INSTANCE_H
#define COBORD_WORKERS_INSTANCE_H

#include "base/hash.h"
#include "cluster/plan.h"

typedef enum WishKind { WISH_DONE, WISH_LOAD, WISH_TILE, WISH_EVICT, WISH_FAILED } WishKind;

typedef struct Wish {
    uint64_t offset; /* in the file */
    uint32_t bytes;
    uint8_t *address;
} Wish;

typedef enum Operation {
    OPERATION_NONE,
    OPERATION_PROBE,  /* the file's first bytes */
    OPERATION_HEADER, /* the whole header, when the probe was too short */
    OPERATION_PIN,    /* the pinned prefix */
    OPERATION_FLOOR,  /* the stations' resident vectors */
    OPERATION_STATION,
    OPERATION_SHARD
} Operation;

/* The buffers of one chunk, and of the rows whose logits are wanted at once. */
typedef struct Frame {
    uint32_t *ids;             /* [chunk] */
    float *x, *partial;        /* [chunk][hidden] */
    float *g;                  /* [chunk][ffn] */
    float *hidden;             /* [logit_rows][hidden], after the output norm */
    SamplerCandidate *best, *shard_best, *merged; /* [vocabulary] each */
} Frame;

typedef struct Instance {
    uint64_t file_bytes;
    uint8_t *kept_end; /* memory below is in use for good */
    uint8_t *header;
    uint64_t header_bytes;
    Knot knot;
    Hyper hyper;
    Plan plan;
    bool opened, planned, built;
    uint32_t role_first, role_last; /* built here */
    Station *station[PLAN_ROLES_MAX];
    Shard *shard[PLAN_ROLES_MAX];
    Frame frame;
    uint8_t *tile, *pinned;
    uint64_t tile_bytes, pinned_bytes;

    Operation operation;
    uint32_t at_role, at_tensor; /* FLOOR, STATION, SHARD */
    uint64_t at_byte;            /* PIN */
    bool asked;                  /* wish has been handed out: what it asks for is there at the next step */
    StationSequence sequence;    /* of the frame that a station is working on */
    Wish wish;

    uint32_t best_count;
    LogSum sum;
    HashStream3 hash;
    Error error;
    Why why;
} Instance;

/* Errors  those of the rooms; ERR_USAGE when calls come in the wrong order; ERR_MEMORY beyond the module's limit. */
MUST_CHECK Error instance_open(Instance *in, uint64_t file_bytes);
/* `request` without knot, hyper, solo, process_bytes. Solo when all roles share this instance's budget. */
MUST_CHECK Error instance_plan(Instance *in, const PlanRequest *request, bool solo);
/* Builds roles role_first..role_last - 1 of the plan (stations, then shards). */
MUST_CHECK Error instance_build(Instance *in, uint32_t role_first, uint32_t role_last);
/* For step.c: the bytes that `open` wished for have come. */
MUST_CHECK Error instance_header_came(Instance *in);

/* NULL when that role was not built here. */
Station *instance_station(const Instance *in, uint32_t station);
Shard *instance_shard(const Instance *in, uint32_t shard);

#endif
