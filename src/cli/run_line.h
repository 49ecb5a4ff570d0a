/* SPDX-License-Identifier: Apache-2.0 */
/* Messages typed at a terminal, one at a time: a line editor with a history that is kept.
 *
 *   > one line                      Enter sends
 *   > a line that ends in \         the next line belongs to it
 *   > """ lines """                 a block; Enter breaks lines in it
 *   pasted text                     bracketed paste: its line breaks stand in the line as U+23CE
 *   Alt-Enter                       a line break, likewise
 *
 *   Ctrl-C    clears what is typed; twice with nothing typed is the end    Ctrl-D  on an empty line: the end
 *   Tab       completes a command    Ctrl-R  searches the history        ~/.editrc is read
 *
 * The history is ${XDG_STATE_HOME:-~/.local/state}/cobord/history, readable by its owner alone: one
 * message a line, with \n and \\ as escapes, the last RUN_LINE_HISTORY_MAX of them. Several chats
 * may append to it. What cannot be read or written there is left alone without a word: the chat
 * matters more.
 *
 * Without a terminal for prompts lines are read as they come. */
#ifndef COBORD_CLI_RUN_LINE_H
#define COBORD_CLI_RUN_LINE_H

#include "base/error.h"

enum {
    RUN_LINE_HISTORY_MAX = 1000,          /* messages */
    RUN_LINE_HISTORY_ENTRY_BYTES = 16384, /* longer ones are not kept */
    RUN_LINE_MESSAGE_BYTES_MAX = 4 << 20
};

typedef enum RunLineEnd {
    RUN_LINE_MESSAGE,
    RUN_LINE_CLEARED,     /* by Ctrl-C: nothing to send */
    RUN_LINE_INTERRUPTED, /* Ctrl-C, and there was nothing to clear; once more is the end */
    RUN_LINE_OVER         /* no more will come */
} RunLineEnd;

/* `words` are completed by Tab at the start of a line; ended by NULL, they stay. */
void run_line_open(const char *const *words);
void run_line_close(void);

/* Owner  the caller frees *out, which is set with RUN_LINE_MESSAGE only: UTF-8. */
RunLineEnd run_line_read(char **out);

#endif
