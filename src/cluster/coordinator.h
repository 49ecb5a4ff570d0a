/* SPDX-License-Identifier: Apache-2.0 */
/* Many conversations' way through the cluster, in frames, several of which may be under way at
 * once. A slot is one conversation. A frame mixes one row of each answer in progress with a chunk
 * of prompts:
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
 *   2. A slot's tokens depend on its ids and parameters only, never on other slots, on drafts or on how frames
 *      were cut.
 *   3. A frame that fails is tried again slot by slot: only the slot that fails alone ends with the error.
 *   4. When a frame fails or is given up, all frames made after it are given up too.
 *
 * Drafts. An answer in progress may carry guesses of what follows (draft.h, or
 * coordinator_set_drafter), each in a row of its own with a pick of its own:
 *
 *   rows   [last][d0][d1][d2]     picks  t0 t1 t2 t3     t0 = d0, t1 = d1, t2 /= d2: t0 t1 t2 are the answer's next
 *                                                        tokens, d2 and t3 never were
 *
 * Every pick is what it would have been without drafts, so the text is the same; only the number of
 * passes changes. The stations cut off what was refused by themselves (station.h). A slot that goes
 * alone, has penalties, or follows a grammar carries none. */
#ifndef COBORD_CLUSTER_COORDINATOR_H
#define COBORD_CLUSTER_COORDINATOR_H

#include "base/arena.h"
#include "cluster/station.h"
#include "model/sampler.h"
#include "text/grammar_mask.h"

enum { COORDINATOR_FRAMES_MAX = 65, COORDINATOR_DRAFTS_MAX = 31, COORDINATOR_TOPS_MAX = 20 };

typedef struct CoordinatorConfig {
    uint32_t vocabulary, context;
    uint32_t chunk; /* rows of a frame */
    uint32_t slots;
    uint32_t logit_rows; /* picks of a frame */
    uint32_t frames;     /* under way at once, at most COORDINATOR_FRAMES_MAX; 0: 1 */
    uint32_t spread;     /* over how many of them answers and prompts are spread; 0: all */
    uint32_t drafts; /* a slot's in a frame, at most; 0: none. Their picks count in logit_rows */
    uint32_t hidden; /* floats of a row, for coordinator_pool; 0: it is not possible */
} CoordinatorConfig;

/* What a token was worth: of the logits after mask, bias and penalties, before the temperature. */
typedef struct CoordinatorScore {
    uint32_t token;
    float logprob;
    /* The likeliest ids, descending, ties by lower id; `logit` is their log-probability. */
    uint32_t top_count;
    SamplerCandidate top[COORDINATOR_TOPS_MAX];
} CoordinatorScore;

/* A row whose next token, or whose next token's score, is wanted. A slot may have several in a
 * frame, in the order of their rows. */
typedef struct CoordinatorPick {
    uint32_t slot, row; /* row of the frame; those of a frame's picks rise */
    uint32_t wanted;    /* its index in the frame's `wanted` */
    uint32_t position;  /* of the token that it picks */
    const SamplerParams *params;
    const SamplerSeen *seen;
    uint32_t seen_count;
    const uint32_t *mask; /* a bit an id of the vocabulary; NULL: all are allowed */
    uint32_t k;           /* candidates wanted */
    bool wants_sum;       /* false for a greedy pick */
    float sum_scale;      /* exponentials of logit * sum_scale */
    /* The adjusted logit of `id` is wanted besides: it is known already which token follows. */
    bool wants_id;
    uint32_t id;
    bool picked; /* done: nothing more is wanted */
    uint32_t token;
} CoordinatorPick;

/* Rows of a slot whose hidden states are added up: wanted[first .. first + count) of the frame. */
typedef struct CoordinatorPool {
    uint32_t slot, first, count;
} CoordinatorPool;

typedef struct CoordinatorFrame {
    uint32_t number; /* 0 .. frames - 1: its place while it is under way */
    const uint32_t *ids;
    uint32_t rows;
    const StationSequence *sequences; /* their sessions are slots; each once in a frame */
    uint32_t sequence_count;
    CoordinatorPick *picks;
    uint32_t pick_count;
    /* Rows whose hidden states are wanted, rising: of picks, and of pools. */
    const uint32_t *wanted;
    uint32_t wanted_count;
    const CoordinatorPool *pools;
    uint32_t pool_count;
} CoordinatorFrame;

typedef struct CoordinatorEvent {
    uint32_t slot;
    /* New ones of the answer, in order; valid until the slot is truncated or started. */
    const uint32_t *tokens;
    uint32_t token_count;
    bool scored; /* there is something for coordinator_take_scores */
    bool ended;
    Error error; /* of an end */
} CoordinatorEvent;

typedef struct Coordinator Coordinator;

uint64_t coordinator_bytes(const CoordinatorConfig *config);
MUST_CHECK Error coordinator_build(const CoordinatorConfig *config, Arena *arena, Coordinator **out,
                                   Why *why);

/* Appends `ids` to what was said in a free slot, and asks for at most `tokens_max` more (0: prefill
 * only).
 * Owner  copies ids, params and bias.
 * Errors  ERR_RANGE (an id, a parameter, the slot), ERR_CAPACITY (longer than the context),
 *         ERR_USAGE (nothing said at all, or the slot is active or under way). */
MUST_CHECK Error coordinator_start(Coordinator *c, uint32_t slot, const uint32_t *ids,
                                   uint32_t count, uint32_t tokens_max, const SamplerParams *params,
                                   Why *why);

/* The answer of an active slot follows a grammar: only tokens of `mask`, which covers the whole
 * vocabulary and has taken what was answered before, and each token is given to it. To be called
 * after each coordinator_start, before the next frame is made; coordinator_start and
 * coordinator_truncate end it.
 * Owner  it stays while the slot is active. Errors  ERR_USAGE, ERR_RANGE (another vocabulary). */
MUST_CHECK Error coordinator_constrain(Coordinator *c, uint32_t slot, GrammarMask *mask, Why *why);

/* Each token of the answer is scored, with the `tops` likeliest beside it, and so are the tokens of
 * the slot from index `prompt_from` on (1 or more; UINT32_MAX: none), those of logits as they are,
 * without bias and penalties, for which nothing at or beyond prompt_from - 1 may have been
 * forwarded: coordinator_truncate first. To be called as coordinator_constrain is, and ended by the
 * same. Errors  ERR_USAGE, ERR_RANGE. */
MUST_CHECK Error coordinator_score(Coordinator *c, uint32_t slot, uint32_t tops,
                                   uint32_t prompt_from, Why *why);
/* The scores since the last call, in order; the slot goes on only when they have been taken. Valid
 * until the next frame is made. */
const CoordinatorScore *coordinator_take_scores(Coordinator *c, uint32_t slot, uint32_t *count);

/* The hidden states (after the output norm) of all tokens of the slot are added up; it was started
 * with tokens_max 0 and nothing of it has been forwarded. To be called as coordinator_constrain is,
 * and ended by the same. Errors  ERR_USAGE. */
MUST_CHECK Error coordinator_pool(Coordinator *c, uint32_t slot, Why *why);
/* One hidden state of a pool, in order of rows, right before coordinator_end_frame: what a frame
 * gave that did not end would count twice. Shapes  hidden[config.hidden]. */
void coordinator_give_hidden(Coordinator *c, uint32_t slot, const float *hidden);
/* The sums and how many rows are in them, each addition in order of positions, so the same for any
 * chunk. Shapes [config.hidden]. Valid until the slot's next start or truncate. */
const double *coordinator_pooled(const Coordinator *c, uint32_t slot, uint32_t *rows);

/* Guesses that do not come from the text itself: a draft model. Called while a frame is made, when
 * the text suggests nothing, for one answer in progress; returns how many of out[max] it guesses.
 * `context` is the host's. Drafts that are wrong cost time, never text. */
typedef struct CoordinatorDrafter {
    void *context;
    uint32_t (*draft)(void *context, uint32_t slot, const uint32_t *tokens, uint32_t count,
                      const SamplerParams *params, uint32_t *out, uint32_t max);
} CoordinatorDrafter;
void coordinator_set_drafter(Coordinator *c, const CoordinatorDrafter *drafter);
/* Since the start: tokens guessed, and how many of them were right. */
void coordinator_count_drafts(const Coordinator *c, uint64_t *guessed, uint64_t *right);

/* The next frame; false when there is none to be made now. Valid until it has ended, failed or been
 * given up. */
bool coordinator_frame(Coordinator *c, CoordinatorFrame **frame);
/* Frames of fewer rows than the chunk from here on (1 .. chunk): how long a host wants to be
 * without a word. */
void coordinator_limit_rows(Coordinator *c, uint32_t rows);
/* Candidates for a pick: sets `picked` and `token`, or wants another round: a larger `k`, or
 * another sum. Picks of one slot are given in their order; one behind a draft that was wrong is
 * `picked` without being looked at. `complete`: they are the whole vocabulary; `sum` may be NULL
 * when it was not wanted, `id_logit` is of wants_id.
 * Errors  ERR_NOT_FINITE (also: the mask allows nothing), ERR_RANGE (a token that the mask
 * forbids). */
MUST_CHECK Error coordinator_give_top(Coordinator *c, CoordinatorPick *pick,
                                      const SamplerCandidate *candidates, uint32_t count,
                                      bool complete, const LogSum *sum, float id_logit, Why *why);

/* ---- How a frame ends. Results are events, one a slot at most, valid until the next call of
 * these. */

/* The oldest frame was carried out: every pick of a slot that is still active has its token. */
const CoordinatorEvent *coordinator_end_frame(Coordinator *c, CoordinatorFrame *frame,
                                              uint32_t *count);
/* The frame failed by its own fault. Result  the end of its slot when it had only one; else none,
 * and its slots go on one by one. */
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

/* Ends a slot's answer between frames; nothing when it is free. What frames under way bring for it
 * is ignored. */
void coordinator_stop(Coordinator *c, uint32_t slot);
bool coordinator_is_active(const Coordinator *c, uint32_t slot);
/* How often it was started: two events of one slot with the same number are of one answer. */
uint32_t coordinator_starts(const Coordinator *c, uint32_t slot);
/* Whether frames under way have rows of it, active or not: it can be neither started nor truncated
 * then. */
bool coordinator_is_under_way(const Coordinator *c, uint32_t slot);

/* All that was said in a slot, ids emitted included; the last one emitted may not have been
 * forwarded. */
const uint32_t *coordinator_tokens(const Coordinator *c, uint32_t slot, uint32_t *count);
/* How many of them the stations hold. */
uint32_t coordinator_fed(const Coordinator *c, uint32_t slot);
/* Forgets what a free slot said after the first `count` tokens. */
void coordinator_truncate(Coordinator *c, uint32_t slot, uint32_t count);
/* Makes free slot `to` say the first `count` tokens of slot `from`, which may be active and of
 * which at least that many are fed and kept; the stations copy its session with the first frame
 * (StationSequence.forks), and until then a truncate or start of `from` that goes below `count`
 * shortens what is copied. Not of a degraded slot. Errors  ERR_USAGE, ERR_RANGE. */
MUST_CHECK Error coordinator_fork(Coordinator *c, uint32_t from, uint32_t to, uint32_t count,
                                  Why *why);
/* The stations no longer hold anything of any slot: all start again from the first token. No frame
 * is under way. */
void coordinator_forget_sessions(Coordinator *c);

/* ---- Zero rows in place of a shard's. What the stations hold of such a slot is never used for
 * another answer: the next truncate, or start with ids of its own, makes it start again from the
 * first token. */
void coordinator_mark_degraded(Coordinator *c, uint32_t slot);
bool coordinator_is_degraded(const Coordinator *c, uint32_t slot);

#endif
