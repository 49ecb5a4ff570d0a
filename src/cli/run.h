/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `cobord run` share: the model, the conversation, the answer under way.
 *
 *   run.c          the verb, one answer           run_chat.c      the chat
 *   run_answer.c   a conversation's next answer   run_commands.c  its /commands
 *   run_params.c   the sampler's settings         run_line.c      its line editor
 *   run_remote.c   the answer of a server         run_save.c      /save, /load, /file */
#ifndef COBORD_CLI_RUN_H
#define COBORD_CLI_RUN_H

#include "cli/engine_options.h"
#include "host/solo.h"

enum { RUN_TURNS_MAX = 256, RUN_TEXT_BYTES_MAX = 16 << 20, RUN_BIAS_MAX = 300 };

/* Of one answer; seconds on the engine's clock. */
typedef struct RunTiming {
    uint32_t told, prompt,
        generated; /* tokens of the conversation; of those that were read; of the answer */
    double start, first, end;
    double coarse; /* shorter times are not measured: they give no speed */
    uint64_t guessed, right;
} RunTiming;

typedef struct Run {
    Options *options;
    bool remote; /* the answers are a server's: `session` and `solo` are empty */
    EngineSession session;
    SamplerParams params;
    SamplerBias bias[RUN_BIAS_MAX];
    uint64_t first_seed;       /* of this run, where none is given */
    Turn turns[RUN_TURNS_MAX]; /* texts are owned */
    size_t turn_count;
    Solo solo;
    char *answer; /* text of the answer in progress */
    size_t answer_bytes, answer_room;
    RunTiming timing; /* of the last answer */
    bool chatting;
} Run;

/* What complaints name: the server or the model. */
static inline const char *run_thing(const Run *r)
{
    return r->remote ? options_text(r->options, OPTION_URL) : r->options->operands[0];
}

/* The sampler's parameters as the options stand. Errors  ERR_USAGE, ERR_RANGE. */
MUST_CHECK Error run_params_read(Run *r, Why *why);

/* The turns that the conversation is told in. Errors  ERR_MEMORY. */
MUST_CHECK Error run_answer_open(Run *r, Why *why);
void run_answer_close(Run *r);

/* One more turn; the text is copied, `role` stays. Errors  ERR_CAPACITY, ERR_MEMORY. */
MUST_CHECK Error run_answer_add(Run *r, const char *role, const void *text, size_t bytes, Why *why);
void run_answer_drop(Run *r, size_t keep);

/* The answer to the conversation, on standard output as it comes, and in `answer`; the speed after
 * it on standard error. Errors  ERR_CAPACITY (longer than the context), ERR_CANCELLED, ERR_IO,
 * ERR_MEMORY, and the engine's. */
MUST_CHECK Error run_answer_make(Run *r, Why *why);
/* Shows more of the answer, and keeps it. Whole characters. Errors  ERR_IO, ERR_MEMORY. */
MUST_CHECK Error run_answer_show(Run *r, const uint8_t *text, size_t bytes, Why *why);
/* Whether the answer's speed is known: of one token it is not. */
bool run_answer_is_measured(const RunTiming *timing);
/* "12 tokens, 40.3 tokens/s, first after 0.21 s", and with `all` the prompt's figures; without a speed that is not
 * known. */
void run_answer_describe(const RunTiming *timing, bool all, char *out, size_t out_bytes);

/* Talks until the person has enough. Result  the error that ended it, or OK. */
MUST_CHECK Error run_chat(Run *r, Why *why);

#endif
