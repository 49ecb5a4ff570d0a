/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of a server (`cobord serve`, `up`, a deployment) in place of a model here.
 *
 *   turns --> POST URL/v1/chat/completions, "stream": true --> data: {...} lines --> the screen
 *
 * What comes from there is not trusted: it is cut, and shown as run_answer_show does. The key is
 * COBORD_API_KEY. */
#ifndef COBORD_CLI_RUN_REMOTE_H
#define COBORD_CLI_RUN_REMOTE_H

#include "cli/run.h"

/* As run_answer_make, without the figures on standard error; sets r->timing.
 * Errors  ERR_UNREACHABLE (also: what the server says of a status other than 200), ERR_CANCELLED,
 * ERR_TOO_LARGE, ERR_USAGE (a text that is no UTF-8, an address that is none), ERR_IO, ERR_MEMORY. */
MUST_CHECK Error run_remote_answer(Run *r, Why *why);

#endif
