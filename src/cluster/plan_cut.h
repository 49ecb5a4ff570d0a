/* SPDX-License-Identifier: Apache-2.0 */
/* Uneven cuts: more for whoever is faster, and no more than each can hold.
 *
 *   speed   1        2                 1
 *         |-----|-----------|-----------------|    by speed alone: 1/4, 2/4, 1/4 of the bytes
 *   room    all    1/3 of it      all
 *         |--------|--------|-----------------|    what the second cannot hold goes to the others, by speed
 *
 * Stations are cut between phases, at a whole layer where one is near; shards at any id. When all room
 * together is too small, the rest is spread by speed as well: it is streamed then. */
#ifndef COBORD_CLUSTER_PLAN_CUT_H
#define COBORD_CLUSTER_PLAN_CUT_H

#include "model/phase.h"

enum { PLAN_CUT_MAX = 512 };

typedef struct PlanCutShare {
    double speed;        /* above 0; only ratios count */
    uint64_t bytes_room; /* of weights and attention cache that it can keep; UINT64_MAX: any */
} PlanCutShare;

/* `cache_bytes`: of a layer's attention cache, which goes where its attn phase goes.
 * Shapes  share[count], out[count]. Each gets at least one phase.
 * Errors  ERR_RANGE (count 0, above PLAN_CUT_MAX or above the number of phases; a speed that is not above 0),
 * ERR_MISSING_TENSOR, ERR_SHAPE. */
MUST_CHECK Error plan_cut_phases(const Knot *knot, const Hyper *hyper, uint64_t cache_bytes,
                                 const PlanCutShare *share, uint32_t count, PhaseRange *out,
                                 Why *why);

/* The same for ids, each of `id_bytes` of the head. Shapes  id_ends[count]: where each shard ends.
 * Errors  ERR_RANGE. */
MUST_CHECK Error plan_cut_ids(uint32_t vocabulary, uint64_t id_bytes, const PlanCutShare *share,
                              uint32_t count, uint32_t *id_ends, Why *why);

#endif
