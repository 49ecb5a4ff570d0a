/* SPDX-License-Identifier: Apache-2.0 */
/* The person's wish to stop: Ctrl-C, SIGTERM or a hang-up sets a flag, long work looks at it
 * between steps, cleans up after itself and returns ERR_CANCELLED. A second signal ends the process
 * at once; what is then left is only temporary names. */
#ifndef COBORD_HOST_STOP_H
#define COBORD_HOST_STOP_H

#include <stdbool.h>

/* From here on SIGINT, SIGTERM and SIGHUP set the flag. Safe to call more than once.
 * A blocked system call returns with EINTR. SIGPIPE is ignored: a closed pipe is a write error like
 * any other. */
void stop_install(void);

/* What a handler does: sets the flag. Result  the number before, 0 when there was none. */
int stop_note(int number);

/* Thread  any. Cheap enough for an inner loop over tiles. */
bool stop_asked(void);

/* The signal's number, 0 when there was none: the exit code of a stopped program is 128 + it. */
int stop_signal(void);

/* Takes the wish back: a chat survives the Ctrl-C that ended one answer. */
void stop_clear(void);

#endif
