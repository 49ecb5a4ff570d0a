/* SPDX-License-Identifier: Apache-2.0 */
/* `cobord VERB --help`: usage, what it is for, examples, the flags by theme, exit codes. Plain text of at most 80
 * columns. */
#include "cli/options_help.h"

#include <stdio.h>
#include <string.h>

enum { OPTIONS_HELP_COLUMN = 26, OPTIONS_HELP_WIDTH = 80 };

/* ---- Parts */

void options_help_wrap(const char *text, unsigned column)
{
    unsigned at = column;
    while (*text) {
        size_t word = strcspn(text, " \n");
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
        if (text[0] == '\n' && text[1] == '\n') {
            printf("\n\n%*s", (int)column, "");
            at = column;
        }
        text += strspn(text, " \n");
    }
    fputc('\n', stdout);
}

const char *options_help_argument(const OptionSpec *spec)
{
    return spec->kind == OPTION_CHOICE ? spec->choices : spec->argument;
}

void options_help_flag(const OptionSpec *spec, char *out, size_t bytes)
{
    char letter[8] = "";
    const char *argument = options_help_argument(spec);
    if (spec->letter) (void)snprintf(letter, sizeof letter, "-%c, ", spec->letter);
    (void)snprintf(out, bytes, "%s--%s%s%s", letter, spec->name, argument ? " " : "",
                   argument ? argument : "");
}

void options_help_text(const OptionSpec *spec, char *out, size_t bytes)
{
    if (spec->standard) (void)snprintf(out, bytes, "%s (default: %s)", spec->help, spec->standard);
    else (void)snprintf(out, bytes, "%s", spec->help);
}

const char *options_help_exits(const OptionVerb *verb)
{
    return verb && verb->exits ? verb->exits
                               : "0    all went well\n"
                                 "1    the work failed; standard error says why, and what to do\n"
                                 "2    wrong usage, or not possible on this machine\n"
                                 "130  ended by Ctrl-C (128 + the signal's number)\n";
}

/* ---- The page */

static void options_help_option(const OptionSpec *spec)
{
    char flag[96], head[100], text[400];
    options_help_flag(spec, flag, sizeof flag);
    options_help_text(spec, text, sizeof text);
    (void)snprintf(head, sizeof head, "  %s", flag);
    if (strlen(head) + 2 > OPTIONS_HELP_COLUMN) printf("%s\n%*s", head, OPTIONS_HELP_COLUMN, "");
    else printf("%-*s", OPTIONS_HELP_COLUMN, head);
    options_help_wrap(text, OPTIONS_HELP_COLUMN);
}

static bool options_help_shows(OptionId id, OptionTheme theme)
{
    return options_theme(id) == theme && !(options_table[id].flags & OPTION_NO_FLAG);
}

static void options_help_theme(const OptionVerb *verb, OptionTheme theme)
{
    bool head = false;
    for (const OptionId *o = verb->options; *o != OPTION_END; o++) {
        if (!options_help_shows(*o, theme)) continue;
        if (!head) printf("\n%s:\n", options_theme_name(theme));
        head = true;
        options_help_option(&options_table[*o]);
    }
}

static bool options_help_has_settings(const OptionVerb *verb)
{
    for (const OptionId *o = verb->options; *o != OPTION_END; o++)
        if (!(options_table[*o].flags & OPTION_FLAG_ONLY)) return true;
    return false;
}

static void options_help_lines(const char *lines)
{
    while (*lines) {
        size_t length = strcspn(lines, "\n");
        printf("  %.*s\n", (int)length, lines);
        lines += length + (lines[length] == '\n');
    }
}

void options_help(const OptionVerb *verb)
{
    unsigned column = (unsigned)(sizeof "usage: cobord " + strlen(verb->name));
    printf("usage: cobord %s%s", verb->name, verb->usage[0] ? " " : "");
    options_help_wrap(verb->usage, column);
    fputc('\n', stdout);
    options_help_wrap(verb->summary, 0);
    printf("\nExamples:\n%s", verb->examples);
    for (unsigned theme = 0; theme < THEMES; theme++) options_help_theme(verb, (OptionTheme)theme);
    printf("\nExit codes:\n");
    options_help_lines(options_help_exits(verb));
    if (options_help_has_settings(verb))
        printf("\nMany of these may also come from a variable (COBORD_CACHE_TYPE=q8_0) or from\n"
               "~/.config/cobord/config (cache-type = q8_0): see `cobord help settings`.\n");
}
