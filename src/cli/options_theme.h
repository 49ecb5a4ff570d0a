/* SPDX-License-Identifier: Apache-2.0 */
/* Which options belong together, in help and in the manual. */
#ifndef COBORD_CLI_OPTIONS_THEME_H
#define COBORD_CLI_OPTIONS_THEME_H

#include "cli/options.h"

typedef enum OptionTheme {
    THEME_OWN, /* of this verb: whatever options_theme does not name */
    THEME_SPREAD,
    THEME_MEMORY,
    THEME_SAMPLING,
    THEME_SERVING,
    THEME_KEYS,
    THEME_CLOUDFLARE,
    THEME_PLACES,
    THEMES
} OptionTheme;

OptionTheme options_theme(OptionId id);
const char *options_theme_name(OptionTheme theme);

#endif
