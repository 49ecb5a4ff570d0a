/* SPDX-License-Identifier: Apache-2.0 */
/* `cobord VERB --help`: usage, what it is for, the flags from the table, examples. Plain text, at
 * most 100 columns. */
#include <stdio.h>
#include <string.h>

#include "cli/options_table.h"

enum { OPTIONS_HELP_COLUMN = 30, OPTIONS_HELP_WIDTH = 100 };

/* Breaks `text` at spaces, each further line indented to the column. */
static void options_help_wrap(const char *text, unsigned column)
{
    unsigned at = column;
    while (*text) {
        size_t word = strcspn(text, " ");
        if (at > column && at + 1 + word > OPTIONS_HELP_WIDTH) {
            printf("\n%*s", (int)column, "");
            at = column;
        } else if (at > column) {
            fputc(' ', stdout);
            at++;
        }
        printf("%.*s", (int)word, text);
        at += (unsigned)word;
        text += word;
        while (*text == ' ') text++;
    }
    fputc('\n', stdout);
}

static void options_help_option(const OptionSpec *spec)
{
    char head[96], help[320], letter[8] = "";
    const char *argument = spec->kind == OPTION_CHOICE ? spec->choices : spec->argument;
    if (spec->letter) (void)snprintf(letter, sizeof letter, "-%c, ", spec->letter);
    (void)snprintf(head, sizeof head, "  %s--%s%s%s", letter, spec->name, argument ? " " : "",
                   argument ? argument : "");
    if (spec->standard)
        (void)snprintf(help, sizeof help, "%s (default: %s)", spec->help, spec->standard);
    else (void)snprintf(help, sizeof help, "%s", spec->help);
    if (strlen(head) + 2 > OPTIONS_HELP_COLUMN) printf("%s\n%*s", head, OPTIONS_HELP_COLUMN, "");
    else printf("%-*s", OPTIONS_HELP_COLUMN, head);
    options_help_wrap(help, OPTIONS_HELP_COLUMN);
}

void options_help(const OptionVerb *verb)
{
    printf("usage: cobord %s %s\n\n", verb->name, verb->usage);
    for (const char *line = verb->summary; line && *line;) {
        char text[512];
        size_t length = strcspn(line, "\n");
        (void)snprintf(text, sizeof text, "%.*s", (int)length, line);
        options_help_wrap(text, 0);
        line += length + (line[length] == '\n');
    }
    bool settings = false;
    if (verb->options[0] != OPTION_END) printf("\n");
    for (const OptionId *o = verb->options; *o != OPTION_END; o++) {
        const OptionSpec *spec = &options_table[*o];
        if (!(spec->flags & OPTION_NO_FLAG)) options_help_option(spec);
        if (!(spec->flags & OPTION_FLAG_ONLY)) settings = true;
    }
    if (verb->examples) printf("\nExamples:\n%s", verb->examples);
    if (settings)
        printf("\nEach setting may also come from a variable (--cache-type: COBORD_CACHE_TYPE) or "
               "from\n"
               "~/.config/cobord/config (cache-type = q8_0). Flags win over variables, variables "
               "over the file.\n");
}
