/* SPDX-License-Identifier: Apache-2.0 */
/* From settings to an open model and a running engine: what run, bench and logits have in common. */
#ifndef COBORD_CLI_ENGINE_OPTIONS_H
#define COBORD_CLI_ENGINE_OPTIONS_H

#include "cli/options.h"
#include "host/engine.h"

/* Errors  ERR_NOT_AVAILABLE, ERR_RANGE (more threads than a pool takes). */
MUST_CHECK Error engine_options_read(const Options *options, EngineOptions *out, Why *why);

/* What --isa says: AUTO gives the best this machine runs. Errors  ERR_NOT_AVAILABLE. */
MUST_CHECK Error engine_options_isa(const Options *options, Isa *out, Why *why);

/* Opens model and engine, complains on standard error when it cannot. `extra` changes the options before the plan is made;
 * it may be NULL. Result  0, or the exit code. Both are closed with engine_options_close. */
typedef struct EngineSession {
    OpenModel model;
    Engine *engine;
} EngineSession;
int engine_options_open(const Options *options, const char *model, unsigned what, uint32_t context_if_none,
                        uint32_t logit_rows, EngineSession *out);
void engine_options_close(EngineSession *session);

/* A clock for tokens per second. */
double engine_options_seconds(void);

#endif
