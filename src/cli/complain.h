/* SPDX-License-Identifier: Apache-2.0 */
/* The one place where an error becomes what a person reads and what a script gets as exit code.
 *
 *   cobord: WHAT: WHICH THING: DETAILS. WHAT TO DO.
 *
 * One line, printable, on standard error. */
#ifndef COBORD_CLI_COMPLAIN_H
#define COBORD_CLI_COMPLAIN_H

#include "base/error.h"

/* `thing` is the file, model or flag concerned, `advice` what to do; either may be NULL. Advice
 * falls back to the error's own; details that end in '.' or '`' already say what to do, and stand
 * alone. Result  1 the work failed, 2 wrong usage or not available on this machine, 128 + signal
 * when it was stopped by one. */
int complain(Error error, const Why *why, const char *thing, const char *advice);

/* Standard output could not be written. Whoever reads no further (`| head -1`) has what was wanted: nothing is said,
 * and the exit code is that of a program which the signal ended, 128 + SIGPIPE. Result  that, or 1. */
int complain_output(void);

/* What to do about a cluster file that cannot be read. */
const char *complain_cluster_file(Error error);

/* For faults that have no Error behind them: a line in printf form, exit code 2. */
int complain_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The exit code alone. */
int complain_exit_code(Error error);

#endif
