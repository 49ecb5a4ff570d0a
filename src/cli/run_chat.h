/* SPDX-License-Identifier: Apache-2.0 */
/* A chat: messages and /commands by turns, until the person has enough. */
#ifndef COBORD_CLI_RUN_CHAT_H
#define COBORD_CLI_RUN_CHAT_H

#include "cli/options_table.h"
#include "cli/run.h"

typedef struct RunChat {
    Run *run;
    char *attached; /* by /file, for the next message; NULL: nothing */
    uint64_t answers, tokens;
    uint64_t decoded; /* tokens after an answer's first, in `seconds` */
    double seconds;
    bool over;
    char *settings[OPTIONS_COUNT]; /* texts given by /set; owned */
} RunChat;

/* Sends a message with what is attached, and shows the answer. What the model did not answer at all
 * is forgotten. Errors  those after which there is no chat (ERR_IO); others are told. */
MUST_CHECK Error run_chat_say(RunChat *c, const char *message, Why *why);

/* Another answer to the last message. Errors  as above. */
MUST_CHECK Error run_chat_again(RunChat *c, Why *why);

/* A remark, dim, on standard error: in printf form, without line break. */
void run_chat_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A fault that the person can mend, in complain's form. */
void run_chat_fault(Error error, const Why *why, const char *thing);

/* run_commands.c: carries out a line that begins with '/'. Errors  as above. */
MUST_CHECK Error run_commands_do(RunChat *c, const char *line, Why *why);
/* Their names, ended by NULL. */
const char *const *run_commands_names(void);

#endif
