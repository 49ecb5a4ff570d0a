/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that can be set without a flag, and the files that are read and written: `cobord help settings`, and
 * the manual page. */
#ifndef COBORD_CLI_SETTINGS_H
#define COBORD_CLI_SETTINGS_H

typedef struct SettingsNote {
    const char *name, *text; /* name NULL ends a list */
} SettingsNote;

/* Variables that are not of the table of options, and files. */
extern const SettingsNote settings_variables[];
extern const SettingsNote settings_files[];

void settings_help(void);

#endif
