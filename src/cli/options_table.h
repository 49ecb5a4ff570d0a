/* SPDX-License-Identifier: Apache-2.0 */
/* One row of the table of settings; shared by its readers (options.c) and its explainers
 * (options_help.c, settings.c, man.c, completion.c). */
#ifndef COBORD_CLI_OPTIONS_TABLE_H
#define COBORD_CLI_OPTIONS_TABLE_H

#include "cli/options.h"

typedef enum OptionKind {
    OPTION_SWITCH, /* no value, or yes/no */
    OPTION_SIZE,
    OPTION_COUNT,
    OPTION_NUMBER,
    OPTION_TEXT,
    OPTION_CHOICE,
    OPTION_LIST
} OptionKind;

enum {
    OPTION_FLAG_ONLY = 1, /* belongs to one call: neither variable nor config file */
    OPTION_NO_FLAG = 2,   /* a secret: argument lists are public */
    OPTION_EMPTY = 4      /* a text that may be empty */
};

typedef struct OptionSpec {
    const char *name; /* without dashes */
    char letter;      /* of the short flag, 0: none */
    OptionKind kind;
    const char *argument; /* how help calls the value; NULL for switches, and choices show theirs */
    const char *help;
    const char *standard; /* the default, read like a given value; NULL: none */
    double low, high;
    const char *choices; /* "a|b|c" */
    unsigned flags;
} OptionSpec;

extern const OptionSpec options_table[OPTIONS_COUNT];

/* The name of its variable: COBORD_CACHE_TYPE. */
void options_variable(char *out, size_t bytes, const OptionSpec *spec);

#endif
