/* SPDX-License-Identifier: Apache-2.0 */
/* --log-format and --log-level, of verbs that serve. */
#ifndef COBORD_CLI_LOG_OPTIONS_H
#define COBORD_CLI_LOG_OPTIONS_H

#include "cli/options.h"

/* `node` is who speaks, and outlives the log. */
void log_options_open(const Options *o, const char *node);
/* As the flags have them. */
const char *log_options_format(const Options *o);
const char *log_options_level(const Options *o);

#endif
