/* SPDX-License-Identifier: Apache-2.0 */
/* --api-keys and --cors of the verbs that serve the API. */
#ifndef COBORD_CLI_ACCESS_OPTIONS_H
#define COBORD_CLI_ACCESS_OPTIONS_H

#include "cli/options.h"
#include "host/access.h"

/* For a verb's list. */
#define OPTIONS_ACCESS OPTION_API_KEYS, OPTION_CORS

/* Tries them, so that a bad one is known before anything expensive starts; with keys a hang-up ends the program no
 * more. Result  0, or the exit code of a complaint. */
int access_options_read(const Options *o, Access *out);

#endif
