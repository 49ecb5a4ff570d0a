/* SPDX-License-Identifier: Apache-2.0 */
/* SIGHUP as the wish to read files again, in programs that have some: a terminal that closes then ends nothing. */
#ifndef COBORD_HOST_HANGUP_H
#define COBORD_HOST_HANGUP_H

#include <stdbool.h>

/* Whether this process has a terminal, which could hang up: a service has none, and its SIGHUP is never the end. */
bool hangup_is_possible(void);
/* From the start, until there is something to read again. */
void hangup_ignore(void);
/* From here on it is noted. After others that catch signals. */
void hangup_watch(void);
/* Whether there was one since the last call. Thread  one. */
bool hangup_take(void);

#endif
