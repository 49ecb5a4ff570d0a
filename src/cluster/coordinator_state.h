/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the coordinator share.
 *
 *   coordinator.c          memory, starting and stopping, what a slot has said
 *   coordinator_forks.c    slots that begin as copies of others
 *   coordinator_frames.c   which rows go into the next frame
 *   coordinator_scores.c   what tokens were worth, sums of hidden states
 *   coordinator_ends.c     candidates of a pick, and how frames end */
#ifndef COBORD_CLUSTER_COORDINATOR_STATE_H
#define COBORD_CLUSTER_COORDINATOR_STATE_H

#include "cluster/coordinator.h"
#include "cluster/draft.h"

enum { SCORED_ROWS_MAX = 256 }; /* of a slot in a frame */

typedef struct Slot {
    uint32_t *tokens; /* [context + 1]: the last one emitted needs no position */
    uint32_t count, fed, sent;
    uint32_t frames; /* under way with rows of it */
    uint32_t tokens_left, starts;
    uint32_t cut;       /* rows of one chunk of its prompt */
    bool active, alone; /* alone: in frames of its own, after a frame with others failed */
    bool degraded;
    bool forks; /* its first `fed` positions are to be copied from the parent's session */
    uint32_t parent;
    SamplerParams params;
    SamplerBias *bias; /* [SAMPLER_BIAS_MAX] of params */
    SamplerSeen *seen; /* of its pick: one at most is under way when penalties are on */
    GrammarMask *mask; /* what its answer must follow, NULL: nothing */
    /* [mask_words] of its pick: frames under way have them longer than there is a mask. */
    uint32_t *bits;
    bool scores, pools;
    uint32_t tops, score_next; /* the first token that has no score and is to get one */
    CoordinatorScore *score; /* [scored_rows]: of the frame under way, then until they are taken */
    uint32_t asked, scored;  /* of the frame; whole and not taken */
    double *sum;             /* [hidden] */
    uint32_t pooled;
    Draft draft; /* of the slot's own text; not built without drafts */
    bool learns; /* the frame under way has its guess */
} Slot;

/* What the public pick does not tell. */
typedef struct Choice {
    CoordinatorScore *score; /* where it goes; NULL: it has none */
    bool summed;             /* the token is known, only the sum of the score is missing */
    float logit;             /* of the token */
} Choice;

typedef struct Frame {
    CoordinatorFrame public;
    bool alone;
    uint32_t share, share_rows; /* picks and rows that a slot with several may take */
    uint32_t guess_rows;        /* rows that an answer in progress may take with its guesses */
    uint32_t *ids;              /* [chunk] */
    StationSequence *sequences; /* [slots] */
    CoordinatorPick *picks;     /* [picks_max], a part of all frames' */
    Choice *choices;            /* the same */
    uint32_t *wanted;           /* [chunk] */
    CoordinatorPool *pools;     /* [slots] */
} Frame;

struct Coordinator {
    CoordinatorConfig config;
    uint32_t rows_max;   /* of a frame; the chunk unless limited */
    uint32_t picks_max;  /* of a frame */
    SamplerParams plain; /* of prompts' scores */
    Slot *slots;
    uint32_t turn; /* the slot that is looked at first, so that none waits for ever */
    Frame *frames; /* a ring: under_way of them from `oldest` on */
    uint32_t oldest, under_way;
    CoordinatorPick *picks; /* [frames][picks_max] */
    CoordinatorEvent *events;
    CoordinatorDrafter drafter;
    uint64_t guessed, right; /* drafts */
};

static inline Frame *coordinator_frame_at(const Coordinator *c, uint32_t index)
{
    return &c->frames[(c->oldest + index) % c->config.frames];
}

/* Scores of a slot that nobody has taken yet, at most. */
static inline uint32_t coordinator_scored_rows(const CoordinatorConfig *c)
{
    return c->logit_rows < SCORED_ROWS_MAX ? c->logit_rows : SCORED_ROWS_MAX;
}

static inline size_t coordinator_mask_words(const CoordinatorConfig *c)
{
    return ((size_t)c->vocabulary + 31) / 32;
}

static inline uint32_t coordinator_seen_max(const CoordinatorConfig *c)
{
    return c->context + 1 < SAMPLER_REPEAT_WINDOW_MAX ? c->context + 1 : SAMPLER_REPEAT_WINDOW_MAX;
}

/* What frames under way have of it counts no longer; `fed` positions stay. Slots that were to be
 * copied from it are copied as far as it still goes. */
void coordinator_rewind(Coordinator *c, Slot *s, uint32_t fed);

/* Errors  ERR_USAGE: not active, or rows of it are under way. */
MUST_CHECK Error coordinator_check_started(const Coordinator *c, uint32_t slot, Why *why);

/* coordinator_forks.c: what the sequence of a slot says of a copy; frame: what else is in it. */
void coordinator_forks_send(Coordinator *c, const CoordinatorFrame *frame, uint32_t slot,
                            StationSequence *sequence);
/* The frame with that sequence is given up. */
void coordinator_forks_return(Coordinator *c, const StationSequence *sequence);

/* coordinator_scores.c: candidates beside those that the choice needs, and the sum, for a score. */
void coordinator_scores_ask(const Coordinator *c, CoordinatorPick *pick);
/* The token is known: notes it. Result  whether the score is whole; else the pick asks for a
 * sum. */
bool coordinator_scores_note(Coordinator *c, CoordinatorPick *pick, Choice *choice,
                             const SamplerCandidate *candidates, uint32_t count);
MUST_CHECK Error coordinator_scores_finish(const CoordinatorPick *pick, const Choice *choice,
                                           const LogSum *sum, Why *why);

#endif
