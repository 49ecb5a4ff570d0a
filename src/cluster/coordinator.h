/* SPDX-License-Identifier: Apache-2.0 */
/* Many conversations' way through the cluster, in frames, several of which may be under way at
 * once. A slot is one conversation. A frame mixes one row of each answer in progress with a chunk of
 * prompts:
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
 * Frames under way: a prompt's next chunk need not wait for the one before; a slot whose token is
 * being picked must. With `spread` of them the answers in progress are spread evenly over as many
 * frames, and a prompt is cut into about as many chunks. Frames end in the order they were made.
 *
 *   slot:  FREE --start--> ACTIVE --> FREE, its tokens kept
 *                                 (tokens spent, context full, coordinator_stop, failure)
 *
 *   a slot's tokens   [ forwarded | in frames under way | waiting ]
 *                     0          fed                    sent      count
 *
 * Invariants
 *   1. tokens[0 .. fed) of a slot have been forwarded: the stations' session holds at least that;
 *      tokens[fed .. sent) are in frames under way.
 *   2. A slot's tokens depend on its ids and parameters only, never on other slots or on how frames were cut.
 *   3. A frame that fails is tried again slot by slot: only the slot that fails alone ends with the error.
 *   4. When a frame fails or is given up, all frames made after it are given up too. */
#ifndef COBORD_CLUSTER_COORDINATOR_H
#define COBORD_CLUSTER_COORDINATOR_H

#include "base/arena.h"
#include "cluster/station.h"
#include "model/sampler.h"
#include "text/grammar_mask.h"

enum { COORDINATOR_FRAMES_MAX = 65 };

typedef struct CoordinatorConfig {
    uint32_t vocabulary, context;
    uint32_t chunk; /* rows of a frame */
    uint32_t slots;
    uint32_t logit_rows; /* picks of a frame */
    uint32_t frames;     /* under way at once, at most COORDINATOR_FRAMES_MAX; 0: 1 */
    uint32_t spread;     /* over how many of them answers and prompts are spread; 0: all */
} CoordinatorConfig;

/* A row whose next token is wanted. */
typedef struct CoordinatorPick {
    uint32_t slot, row; /* row of the frame; those of a frame's picks rise */
    const SamplerParams *params;
    const SamplerSeen *seen;
    uint32_t seen_count;
    const uint32_t *mask; /* a bit an id of the vocabulary; NULL: all are allowed */
    uint32_t k;           /* candidates wanted */
    bool wants_sum;       /* false for a greedy pick */
    float sum_scale;      /* exponentials of logit * sum_scale */
    bool picked;
    uint32_t token;
} CoordinatorPick;

typedef struct CoordinatorFrame {
    uint32_t number; /* 0 .. frames - 1: its place while it is under way */
    const uint32_t *ids;
    uint32_t rows;
    const StationSequence *sequences; /* their sessions are slots; each once in a frame */
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
 * Owner  copies ids, params and bias.
 * Errors  ERR_RANGE (an id, a parameter, the slot), ERR_CAPACITY (longer than the context),
 *         ERR_USAGE (nothing said at all, or the slot is active or under way). */
MUST_CHECK Error coordinator_start(Coordinator *c, uint32_t slot, const uint32_t *ids,
                                   uint32_t count, uint32_t tokens_max, const SamplerParams *params,
                                   Why *why);

/* The answer of an active slot follows a grammar: only tokens of `mask`, which covers the whole vocabulary and has
 * taken what was answered before, and each token is given to it. To be called after each coordinator_start, before the
 * next frame is made; coordinator_start and coordinator_truncate end it.
 * Owner  it stays while the slot is active. Errors  ERR_USAGE, ERR_RANGE (another vocabulary). */
MUST_CHECK Error coordinator_constrain(Coordinator *c, uint32_t slot, GrammarMask *mask, Why *why);

/* The next frame; false when there is none to be made now. Valid until it has ended, failed or been given up. */
bool coordinator_frame(Coordinator *c, CoordinatorFrame **frame);
/* Frames of fewer rows than the chunk from here on (1 .. chunk): how long a host wants to be without a word. */
void coordinator_limit_rows(Coordinator *c, uint32_t rows);
/* Candidates for a pick: sets `picked` and `token`, or a larger `k`. `complete`: they are the
 * whole vocabulary; `sum` may be NULL when it was not wanted.
 * Errors  ERR_NOT_FINITE (also: the mask allows nothing), ERR_RANGE (a token that the mask forbids). */
MUST_CHECK Error coordinator_give_top(Coordinator *c, CoordinatorPick *pick,
                                      const SamplerCandidate *candidates, uint32_t count,
                                      bool complete, const LogSum *sum, Why *why);

/* ---- How a frame ends. Results are events, one a slot at most, valid until the next call of these. */

/* The oldest frame was carried out: every pick of a slot that is still active has its token. */
const CoordinatorEvent *coordinator_end_frame(Coordinator *c, CoordinatorFrame *frame,
                                              uint32_t *count);
/* The frame failed by its own fault. Result  the end of its slot when it had only one; else none, and its slots go
 * on one by one. */
const CoordinatorEvent *coordinator_fail_frame(Coordinator *c, CoordinatorFrame *frame, Error error,
                                               uint32_t *count);
/* The frame cannot be carried out whatever is in it. Result  the end of each of its slots. */
const CoordinatorEvent *coordinator_refuse_frame(Coordinator *c, CoordinatorFrame *frame,
                                                 Error error, uint32_t *count);
/* Gives up every frame under way: slots of `lost` start again from the first token, the others from
 * `fed`. NULL: none of them is lost. */
void coordinator_give_up_frames(Coordinator *c, const CoordinatorFrame *lost);
/* Gives up the frame and those made after it; their slots go back to what was sent before. */
void coordinator_give_up_from(Coordinator *c, const CoordinatorFrame *frame);
/* Whether any slot of the frame still waits for it: false when all were stopped. */
bool coordinator_frame_is_wanted(const Coordinator *c, const CoordinatorFrame *frame);

/* Ends a slot's answer between frames; nothing when it is free. What frames under way bring for it is ignored. */
void coordinator_stop(Coordinator *c, uint32_t slot);
bool coordinator_is_active(const Coordinator *c, uint32_t slot);
/* How often it was started: two events of one slot with the same number are of one answer. */
uint32_t coordinator_starts(const Coordinator *c, uint32_t slot);
/* Whether frames under way have rows of it, active or not: it can be neither started nor truncated then. */
bool coordinator_is_under_way(const Coordinator *c, uint32_t slot);

/* All that was said in a slot, ids emitted included; the last one emitted may not have been forwarded. */
const uint32_t *coordinator_tokens(const Coordinator *c, uint32_t slot, uint32_t *count);
/* How many of them the stations hold. */
uint32_t coordinator_fed(const Coordinator *c, uint32_t slot);
/* Forgets what a free slot said after the first `count` tokens. */
void coordinator_truncate(Coordinator *c, uint32_t slot, uint32_t count);
/* The stations no longer hold anything of any slot: all start again from the first token. No frame is under way. */
void coordinator_forget_sessions(Coordinator *c);

/* ---- Zero rows in place of a shard's. What the stations hold of such a slot is never used for another answer: the
 * next truncate, or start with ids of its own, makes it start again from the first token. */
void coordinator_mark_degraded(Coordinator *c, uint32_t slot);
bool coordinator_is_degraded(const Coordinator *c, uint32_t slot);

#endif
