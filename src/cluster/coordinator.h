/* SPDX-License-Identifier: Apache-2.0 */
/* Many conversations' way through the cluster, one frame after the other. A slot is one
 * conversation; its number is its session on every station. A frame mixes one row of each answer in
 * progress with a chunk of prompts:
 *
 *   slot 0  decode   [id]                  one row            -> pick
 *   slot 2  decode   [id]                  one row            -> pick
 *   slot 1  prefill  [id id id id ...]     what is left       -> pick when the prompt ends here
 *
 *   coordinator_frame --> host: embed, forward, head of the picks' rows, adjust
 *                         for each pick: TOP k of every shard, merged --> coordinator_give_top,
 *                         again while it wants more
 *   coordinator_end_frame --> events: one token of each pick, ends
 *
 *   slot:  FREE --start--> ACTIVE --> FREE, its tokens kept
 *                                 (tokens spent, context full, coordinator_stop, failure)
 *
 * Invariants
 *   1. tokens[0 .. fed) of a slot have been forwarded: the stations' session is `fed` positions long.
 *   2. A slot's tokens depend on its ids and parameters only, never on other slots or on how frames were cut.
 *   3. A frame that fails is tried again slot by slot: only the slot that fails alone ends with the error. */
#ifndef COBORD_CLUSTER_COORDINATOR_H
#define COBORD_CLUSTER_COORDINATOR_H

#include "base/arena.h"
#include "cluster/station.h"
#include "model/sampler.h"

typedef struct CoordinatorConfig {
    uint32_t vocabulary, context;
    uint32_t chunk; /* rows of a frame */
    uint32_t slots;
    uint32_t logit_rows; /* picks of a frame */
} CoordinatorConfig;

/* A row whose next token is wanted. */
typedef struct CoordinatorPick {
    uint32_t slot, row; /* row of the frame */
    const SamplerParams *params;
    const SamplerSeen *seen;
    uint32_t seen_count;
    uint32_t k;      /* candidates wanted */
    bool wants_sum;  /* false for a greedy pick */
    float sum_scale; /* exponentials of logit * sum_scale */
    bool picked;
    uint32_t token;
} CoordinatorPick;

typedef struct CoordinatorFrame {
    const uint32_t *ids;
    uint32_t rows;
    const StationSequence *sequences;
    uint32_t sequence_count;
    CoordinatorPick *picks;
    uint32_t pick_count;
} CoordinatorFrame;

typedef struct CoordinatorEvent {
    uint32_t slot;
    bool has_token, ended;
    uint32_t token;
    Error error; /* of an end */
} CoordinatorEvent;

typedef struct Coordinator Coordinator;

uint64_t coordinator_bytes(const CoordinatorConfig *config);
MUST_CHECK Error coordinator_build(const CoordinatorConfig *config, Arena *arena, Coordinator **out,
                                   Why *why);

/* Appends `ids` to what was said in a free slot, and asks for at most `tokens_max` more (0: prefill only).
 * Owner  copies ids and params, borrows params->bias until the end.
 * Errors  ERR_RANGE (an id, a parameter, the slot), ERR_CAPACITY (longer than the context),
 *         ERR_USAGE (nothing said at all, or the slot is active). */
MUST_CHECK Error coordinator_start(Coordinator *c, uint32_t slot, const uint32_t *ids,
                                   uint32_t count, uint32_t tokens_max, const SamplerParams *params,
                                   Why *why);

/* The next frame; false when no slot is active. Valid until coordinator_end_frame or coordinator_fail_frame. */
bool coordinator_frame(Coordinator *c, CoordinatorFrame *frame);
/* Rows of the frame in progress or last carried out. */
uint32_t coordinator_rows(const Coordinator *c);
/* Frames of fewer rows than the chunk from here on (1 .. chunk): how long a host wants to be without a word. */
void coordinator_limit_rows(Coordinator *c, uint32_t rows);
/* Candidates for a pick: sets `picked` and `token`, or a larger `k`. `complete`: they are the
 * whole vocabulary; `sum` may be NULL when it was not wanted. Errors  ERR_NOT_FINITE. */
MUST_CHECK Error coordinator_give_top(Coordinator *c, CoordinatorPick *pick,
                                      const SamplerCandidate *candidates, uint32_t count,
                                      bool complete, const LogSum *sum, Why *why);
/* The frame was carried out. Result  events, one a slot at most; valid until the next frame. */
const CoordinatorEvent *coordinator_end_frame(Coordinator *c, uint32_t *count);
/* The frame failed. Result  the end of its slot when it had only one; else none, and its slots go
 * on one by one. */
const CoordinatorEvent *coordinator_fail_frame(Coordinator *c, Error error, uint32_t *count);

/* Ends a slot's answer between frames; nothing when it is free. */
void coordinator_stop(Coordinator *c, uint32_t slot);
bool coordinator_is_active(const Coordinator *c, uint32_t slot);

/* All that was said in a slot, ids emitted included; the last one emitted may not have been forwarded. */
const uint32_t *coordinator_tokens(const Coordinator *c, uint32_t slot, uint32_t *count);
/* How many of them the stations hold. */
uint32_t coordinator_fed(const Coordinator *c, uint32_t slot);
/* Forgets what a free slot said after the first `count` tokens. */
void coordinator_truncate(Coordinator *c, uint32_t slot, uint32_t count);

#endif
