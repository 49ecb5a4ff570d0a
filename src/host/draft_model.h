/* SPDX-License-Identifier: Apache-2.0 */
/* A small model that guesses what a large one of the same vocabulary will say. It has an engine of its own and a slot
 * for each of the large one's; it says the same conversation there, with the same parameters and seed at the same
 * positions, so that the random numbers coincide and sampled text is guessed as well as greedy text.
 *
 *   the large one's slot   [.................. said ..................]
 *   the small one's slot   [........ the same ........][wrong guesses]
 *                                cut off at the next call, and what it lacks is forwarded: one row, most of the time
 *
 * A guess costs a pass of the small model while the large one waits, so there are only as many as pay
 * (cluster/draft_length.h), none when more than DRAFT_MODEL_ANSWERS_MAX answers are in progress, and a long prompt is
 * taken in pieces, one a pass of the large model, before anything is guessed.
 *
 * Its context may be shorter than the large one's; beyond it nothing is guessed. An error of it ends guessing, never an
 * answer. */
#ifndef COBORD_HOST_DRAFT_MODEL_H
#define COBORD_HOST_DRAFT_MODEL_H

#include "host/engine.h"
#include "host/tell.h"

enum { DRAFT_MODEL_ANSWERS_MAX = 2 };

typedef struct DraftModelOptions {
    const char *model;           /* a zoo name, a knot, a GGUF file */
    const KnotFile *guesses_for; /* its tokenizer at least */
    uint32_t slots;
    uint32_t context;      /* at most; 0: any */
    uint64_t memory_bytes; /* that it may take beyond what the process holds now */
    uint32_t threads;      /* 0: all */
    CacheType cache;
    Isa isa;
    const Tell *tell;
} DraftModelOptions;

typedef struct DraftModel DraftModel;

/* Whether a model may guess for another. `path` is of a knot. Errors  ERR_USAGE (another vocabulary), those of
 * knot_file_open. */
MUST_CHECK Error draft_model_check(const char *path, const KnotFile *guesses_for, Why *why);

/* Owner  guesses_for is looked at here alone; draft_model_close.
 * Errors  ERR_USAGE (another vocabulary), those of open_model_open and engine_open. */
MUST_CHECK Error draft_model_open(const DraftModelOptions *options, DraftModel **out, Why *why);
/* Guesses for the coordinator's answers from here on. Owner  the draft model outlives its use. */
void draft_model_attach(DraftModel *d, Coordinator *coordinator);
/* What it takes at most, beyond what the process held before. */
uint64_t draft_model_bytes(const DraftModel *d);
/* "qwen2.5-coder-0.5b: 412.3 MiB, resident", for a line at the start. */
void draft_model_describe(const DraftModel *d, char *out, size_t room);
void draft_model_close(DraftModel *d);

#endif
