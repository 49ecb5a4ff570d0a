/* SPDX-License-Identifier: Apache-2.0 */
/* Every role in one process: stations, shards and the coordinator over one mapped knot, one pool and one window.
 *
 *   coordinator -- frame --> shards: embed, merge --> station 0 .. S-1 --> output norm
 *   coordinator <--------------------------------------- shards: head, top <--'
 *
 * The engine carries out the wishes of these objects, gives them tiles, and counts. */
#ifndef COBORD_HOST_ENGINE_H
#define COBORD_HOST_ENGINE_H

#include "cluster/coordinator.h"
#include "cluster/plan.h"
#include "host/open_model.h"
#include "host/weights.h"

typedef struct EngineOptions {
    uint32_t stations, shards; /* 0: 2 and 8 */
    const char *ranges;        /* NULL, or a list of ranges instead of `stations` */
    uint32_t threads;          /* 0: the processors this process may use */
    uint32_t chunk, context;   /* 0: chosen by the plan */
    uint64_t memory_bytes;     /* 0: what the control group and the machine allow */
    uint32_t logit_rows;       /* positions whose logits are wanted at once; 0: 1 */
    uint32_t drafts;           /* guesses of an answer in a frame, at most; 0: none */
    uint32_t sessions;         /* conversations at once, each with the whole context; 0: 1 */
    CacheType cache;
    bool forms; /* answers may have to have a form */
    bool isa_given;
    Isa isa;
} EngineOptions;

typedef struct Engine Engine;

/* Plans, takes the memory, starts threads, reads the resident vectors.
 * Owner  the model outlives it; engine_close.
 * Errors  ERR_NOT_AVAILABLE (the CPU lacks the instruction set), ERR_PLAN, ERR_USAGE (ranges),
 * ERR_RANGE, ERR_MEMORY. */
MUST_CHECK Error engine_open(const OpenModel *model, const EngineOptions *options, Engine **out,
                             Why *why);
void engine_close(Engine *e);

const Plan *engine_plan(const Engine *e);
const WeightsCounters *engine_counters(const Engine *e);
Isa engine_isa(const Engine *e);
/* What the budget has left beyond what the process holds now; the rest of the plan is not touched yet. */
uint64_t engine_memory_left(const Engine *e);
/* How often all stations were run since the engine was opened. */
uint32_t engine_passes(const Engine *e);
/* Streamed weights only: the share of the file that the page cache holds in pages of 2 MiB, probed
 * when the engine was opened; negative when unknown or resident. */
double engine_large_pages(const Engine *e);

/* ---- Answers: the coordinator's frames, carried out. A slot is one conversation, 0 .. slots - 1. */

Coordinator *engine_coordinator(Engine *e);
/* Errors  those of knot_file_intact: nothing can be answered any more. Thread  any. */
MUST_CHECK Error engine_ready(const Engine *e, Why *why);
/* Carries out one frame; *events are valid until the next step. `why` explains an event with an error.
 * Result  false when no slot is active. Thread  the engine's. */
bool engine_step(Engine *e, const CoordinatorEvent **events, uint32_t *count, Why *why);
/* Frames that had rows of the slot, and their time, since they were forgotten. */
typedef struct EngineCost {
    uint64_t frames, ns;
} EngineCost;
EngineCost *engine_cost(Engine *e, uint32_t slot);
/* About what a step takes at each of the plan's roles, with as many rows as the last. Thread  any. */
typedef struct EngineTimes {
    uint64_t steps;
    uint32_t rows, embed_us, own_us;
    uint32_t role_us[PLAN_ROLES_MAX];
} EngineTimes;
void engine_times(const Engine *e, EngineTimes *out);
/* Asked between two tiles, from the thread that steps: true ends the step with ERR_CANCELLED. NULL: stop_asked. */
void engine_set_cancel(Engine *e, bool (*cancelled)(void *context), void *context);
/* From here on no step takes much longer than cluster/pace.h says. */
void engine_keep_pace(Engine *e);

/* ---- Scores: the logits of every position of a fresh sequence. */

typedef struct EnginePosition {
    uint32_t position;
    const SamplerCandidate *top; /* descending */
    uint32_t top_count;
    double log_sum; /* log of the sum of exponentials of all logits */
    /* Shard i has slices[i], slice_lengths[i] logits: ids 0.. in order. */
    const float *const *slices;
    const uint32_t *slice_lengths;
    uint32_t slice_count;
} EnginePosition;

typedef void (*EngineVisit)(void *context, const EnginePosition *position);
MUST_CHECK Error engine_score(Engine *e, const uint32_t *ids, uint32_t count, uint32_t top,
                              EngineVisit visit, void *context, Why *why);

/* --- Measurements --- */

/* Prefill of `count` tokens of session 0 from `position` on: as for a prompt, the last row alone
 * goes through the whole last layer; no logits. */
MUST_CHECK Error engine_forward(Engine *e, const uint32_t *ids, uint32_t count, uint32_t position,
                                Why *why);
/* One step of `count` sequences (sessions 0.., all at `position`): ids[i] in, the best next id of
 * each out, in place. `count` is at most the engine's sessions, chunk and logit rows. */
MUST_CHECK Error engine_batch(Engine *e, uint32_t *ids, uint32_t count, uint32_t position,
                              Why *why);
/* Reads all weights once with every thread, through the window, and adds them up; returns the bytes read. */
uint64_t engine_read_weights(Engine *e, uint64_t *sum);

#endif
