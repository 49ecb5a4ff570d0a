/* SPDX-License-Identifier: Apache-2.0 */
/* From settings to an open model and a running engine: what run, bench and logits have in common. */
#ifndef COBORD_CLI_ENGINE_OPTIONS_H
#define COBORD_CLI_ENGINE_OPTIONS_H

#include "cli/options.h"
#include "host/draft_model.h"
#include "host/engine.h"

/* What --isa says: AUTO gives the best this machine runs. Errors  ERR_NOT_AVAILABLE. */
MUST_CHECK Error engine_options_isa(const Options *options, Isa *out, Why *why);

typedef struct EngineSession {
    OpenModel model;
    Engine *engine;
    DraftModel *draft; /* NULL: none */
} EngineSession;

/* What a verb asks for itself: zeros leave the choice to the plan. */
typedef struct EngineNeeds {
    uint32_t context; /* when --context is not given */
    uint32_t logit_rows, sessions;
    uint32_t drafts; /* guesses of an answer in a frame; the verb has OPTION_DRAFTS, or 0 */
    bool forms; /* answers may have to have a form */
} EngineNeeds;

/* Opens model and engine, and the draft model when --draft names one;
 * complains on standard error when it cannot. Result  0, or the exit code. */
int engine_options_open(const Options *options, const char *model, unsigned what,
                        const EngineNeeds *needs, EngineSession *out);
void engine_options_close(EngineSession *session);

/* A clock for tokens per second. */
double engine_options_seconds(void);

#endif
