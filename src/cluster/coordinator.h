/* SPDX-License-Identifier: Apache-2.0 */
/* One conversation's way through the cluster, as wishes that the host carries out.
 *
 *   start(prompt)
 *      |
 *      v
 *   EMBED ids --> FORWARD rows --+--> (more prompt: next chunk)
 *      ^                         |
 *      |                         v the chunk holds the last id
 *      |                      LOGITS of its last row, adjusted
 *      |                         |
 *      |                         v
 *      |            +---------> TOP k candidates of every shard
 *      |            | larger k   |
 *      |            +------------+
 *      |                         v
 *      +---- coordinator_next -- TOKEN id        the host shows it, or ends the answer with coordinator_stop
 *
 *   DONE  the answer has its tokens, the context is full, or the host stopped it
 *
 * Invariants
 *   1. tokens[0 .. fed) have been forwarded: the stations' sessions are `fed` positions long.
 *   2. What comes out depends on tokens and parameters only, never on how wishes were carried out. */
#ifndef COBORD_CLUSTER_COORDINATOR_H
#define COBORD_CLUSTER_COORDINATOR_H

#include "base/arena.h"
#include "model/sampler.h"

typedef enum CoordinatorWishKind {
    COORDINATOR_EMBED,   /* partials of ids[0..rows) from every shard, merged */
    COORDINATOR_FORWARD, /* those rows through every station, at `position` */
    COORDINATOR_LOGITS,  /* row `logits_row` of the chunk: output norm, head on every shard, then adjust with `seen` */
    COORDINATOR_TOP,     /* k best of every shard, merged, and their sum of exponentials (NULL when not wanted):
                            coordinator_give_top */
    COORDINATOR_TOKEN,
    COORDINATOR_DONE
} CoordinatorWishKind;

typedef struct CoordinatorWish {
    CoordinatorWishKind kind;
    const uint32_t *ids; /* EMBED, FORWARD */
    uint32_t rows, position;
    uint32_t logits_row;
    const SamplerSeen *seen;
    uint32_t seen_count;
    const SamplerParams *params; /* LOGITS */
    uint32_t k;
    bool wants_sum;  /* TOP: false for a greedy pick */
    float sum_scale; /* TOP: exponentials of logit * sum_scale */
    uint32_t token;
} CoordinatorWish;

typedef struct CoordinatorConfig {
    uint32_t vocabulary, context, chunk;
} CoordinatorConfig;

typedef struct Coordinator Coordinator;

size_t coordinator_bytes(const CoordinatorConfig *config);
MUST_CHECK Error coordinator_build(const CoordinatorConfig *config, Arena *arena, Coordinator **out, Why *why);

/* Appends `ids` to what has been said, and asks for at most `tokens_max` more. A new conversation starts with
 * coordinator_truncate(c, 0). Owner  copies ids, borrows params until DONE.
 * Errors  ERR_RANGE (an id, a parameter), ERR_CAPACITY (longer than the context), ERR_USAGE (nothing said at all). */
MUST_CHECK Error coordinator_start(Coordinator *c, const uint32_t *ids, uint32_t count, uint32_t tokens_max,
                                   const SamplerParams *params, Why *why);
/* The next wish; asking for it means that the one before was carried out. */
void coordinator_next(Coordinator *c, CoordinatorWish *wish);
/* Answers TOP. `complete`: the candidates are the whole vocabulary. Errors  ERR_NOT_FINITE. */
MUST_CHECK Error coordinator_give_top(Coordinator *c, const SamplerCandidate *candidates, uint32_t count, bool complete,
                                      const LogSum *sum, Why *why);
/* Ends the answer after the TOKEN just shown: the next wish is DONE. */
void coordinator_stop(Coordinator *c);
/* A wish failed: forgets the answer in progress; the stations are at coordinator_fed or before. */
void coordinator_fail(Coordinator *c, uint32_t stations_length);

/* All that was said, ids emitted included; the last one emitted may not have been forwarded. */
const uint32_t *coordinator_tokens(const Coordinator *c, uint32_t *count);
void coordinator_truncate(Coordinator *c, uint32_t count);

#endif
