/* SPDX-License-Identifier: Apache-2.0 */
/* What `cobord VERB --help` prints, and its parts for those who explain elsewhere (settings.c, man.c). */
#ifndef COBORD_CLI_OPTIONS_HELP_H
#define COBORD_CLI_OPTIONS_HELP_H

#include <stddef.h>

#include "cli/options_table.h"
#include "cli/options_theme.h"

void options_help(const OptionVerb *verb);

/* Prints `text` broken at spaces before column 80, further lines indented to `column`, where the first begins. A single
 * line break is a space, an empty line ends a paragraph. */
void options_help_wrap(const char *text, unsigned column);

/* "-n, --max-tokens N" and "tokens to generate at most (default: 5)". */
void options_help_flag(const OptionSpec *spec, char *out, size_t bytes);
void options_help_text(const OptionSpec *spec, char *out, size_t bytes);
/* What the value is called: the choices, or "SIZE"; NULL for a switch. */
const char *options_help_argument(const OptionSpec *spec);

/* Lines "CODE  what it means", each with its '\n'. */
const char *options_help_exits(const OptionVerb *verb);

#endif
