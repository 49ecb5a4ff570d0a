/* SPDX-License-Identifier: Apache-2.0 */
/* Which flag was probably meant by one that a verb does not take: a mistyped one, or another program's. `written` is
 * without its dashes in front, and has '-' where it had '_'. */
#ifndef COBORD_CLI_OPTIONS_NEAR_H
#define COBORD_CLI_OPTIONS_NEAR_H

#include "cli/options.h"

/* The flag's name; NULL: none comes near. */
const char *options_near_flag(const OptionVerb *verb, const char *written);

/* "MODEL" of --model, where `operands` ("MODEL [PROMPT]", or NULL) say that it stands without a flag; else NULL. */
const char *options_near_operand(const char *operands, const char *written);

#endif
