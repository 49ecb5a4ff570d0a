/* SPDX-License-Identifier: Apache-2.0 */
/* cobord man: the manual page cobord.1 in roff, out of the tables that `--help` is made of.
 *
 * In roff a line that begins with a dot or a quote is a request, a backslash begins an escape, and a bare minus or
 * tilde is drawn as another character than the one to type: man_put takes care of all of them. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/options_help.h"
#include "cli/settings.h"
#include "cli/verbs.h"

static const OptionId man_options[] = {OPTION_END};
const OptionVerb man_verb = {
    .name = "man",
    .usage = "",
    .summary = "Prints the manual page, cobord.1, for `man`. A package installs it; without one, "
               "the first example shows it and the second keeps it.",
    .examples = "  cobord man | man -l -\n"
                "  cobord man > ~/.local/share/man/man1/cobord.1\n",
    .options = man_options,
};

/* ---- Roff */

static void man_put_char(char c)
{
    switch (c) {
    case '\\': fputs("\\e", stdout); break;
    case '-': fputs("\\-", stdout); break;
    case '~': fputs("\\(ti", stdout); break;
    case '^': fputs("\\(ha", stdout); break;
    case '`': fputs("\\(ga", stdout); break;
    case '\'': fputs("\\(aq", stdout); break;
    case '"': fputs("\\(dq", stdout); break;
    default: fputc(c, stdout);
    }
}

static void man_put(const char *text)
{
    if (*text == '.') fputs("\\&", stdout);
    for (; *text; text++) man_put_char(*text);
}

/* Filled text; an empty line begins a paragraph. */
static void man_text(const char *text)
{
    while (*text) {
        size_t length = strcspn(text, "\n");
        if (!length) puts(".PP");
        if (*text == '.') fputs("\\&", stdout);
        for (size_t i = 0; i < length; i++) man_put_char(text[i]);
        if (length) fputc('\n', stdout);
        text += length + (text[length] == '\n');
    }
}

static void man_section(const char *name) { printf(".SH %s\n", name); }

/* A name in bold and, indented below, what it is. */
static void man_entry(const char *name, const char *text)
{
    puts(".TP");
    fputs("\\fB", stdout);
    man_put(name);
    fputs("\\fR\n", stdout);
    man_text(text);
}

/* Lines as they are to be typed. */
static void man_lines(const char *lines)
{
    puts(".PP\n.RS 4\n.nf");
    while (*lines) {
        size_t length = strcspn(lines, "\n"), from = 0;
        while (from < length && lines[from] == ' ') from++;
        for (size_t i = from; i < length; i++) man_put_char(lines[i]);
        fputc('\n', stdout);
        lines += length + (lines[length] == '\n');
    }
    puts(".fi\n.RE");
}

/* ---- Sections */

static void man_synopsis(void)
{
    man_section("NAME");
    puts("cobord \\- serves a large language model from many small workers");
    man_section("SYNOPSIS");
    for (const Verb *v = verbs_table; v->name; v++) {
        printf("%s\\fBcobord %s\\fR ", v == verbs_table ? "" : ".br\n", v->name);
        man_put(v->options->usage);
        fputc('\n', stdout);
    }
}

static void man_description(void)
{
    man_section("DESCRIPTION");
    puts("Cobord serves a large language model from many small workers: stations own ranges of "
         "layers,\n"
         "shards own ranges of the vocabulary, and none holds more than its slice.\n"
         "The answers are the same, bit for bit, on one machine and on many.\n"
         ".PP\n"
         "A model is named as in the zoo (\\fBcobord list\\fR), by the path of a .knot or .gguf "
         "file,\n"
         "or by an address: hf:, https:, s3:, file:.");
}

static void man_verb_options(const OptionVerb *verb)
{
    bool first = true;
    for (const OptionId *o = verb->options; *o != OPTION_END; o++) {
        const OptionSpec *spec = &options_table[*o];
        if (spec->flags & OPTION_NO_FLAG) continue;
        fputs(first ? ".PP\nOptions: " : ",\n", stdout);
        first = false;
        fputs("\\fB\\-\\-", stdout);
        man_put(spec->name);
        fputs("\\fR", stdout);
    }
    if (!first) puts(".");
}

static void man_verb_exits(const OptionVerb *verb)
{
    if (!verb->exits) return;
    puts(".PP\nExit status:");
    man_lines(verb->exits);
}

static void man_verbs(void)
{
    man_section("VERBS");
    for (unsigned group = 0; group < VERB_GROUPS; group++)
        for (const Verb *v = verbs_table; v->name; v++) {
            if (v->group != group) continue;
            printf(".SS %s\n", v->name);
            man_text(v->options->summary);
            man_verb_options(v->options);
            man_verb_exits(v->options);
            man_lines(v->options->examples);
        }
}

static void man_options_theme(OptionTheme theme)
{
    char flag[96], text[400];
    printf(".SS %s\n", theme == THEME_OWN ? "Of single verbs" : options_theme_name(theme));
    for (unsigned id = 1; id < OPTIONS_COUNT; id++) {
        const OptionSpec *spec = &options_table[id];
        if (options_theme((OptionId)id) != theme || spec->flags & OPTION_NO_FLAG) continue;
        options_help_flag(spec, flag, sizeof flag);
        options_help_text(spec, text, sizeof text);
        man_entry(flag, text);
    }
}

static void man_all_options(void)
{
    man_section("OPTIONS");
    puts("Every verb takes those that are listed with it, and \\fB\\-\\-help\\fR.");
    for (unsigned theme = 1; theme < THEMES; theme++) man_options_theme((OptionTheme)theme);
    man_options_theme(THEME_OWN);
}

static void man_environment(void)
{
    char name[64], text[500];
    man_section("ENVIRONMENT");
    puts("Flags win over variables, variables over the config file. A flag \\fB\\-\\-name\\fR that "
         "is listed\n"
         "here as a variable may also stand in the config file, as a line \\fIname = value\\fR.");
    for (unsigned id = 1; id < OPTIONS_COUNT; id++) {
        const OptionSpec *spec = &options_table[id];
        if (spec->flags & OPTION_FLAG_ONLY) continue;
        options_variable(name, sizeof name, spec);
        if (spec->flags & OPTION_NO_FLAG)
            (void)snprintf(text, sizeof text, "%s (no flag)", spec->help);
        else (void)snprintf(text, sizeof text, "as --%s", spec->name);
        man_entry(name, text);
    }
    for (const SettingsNote *n = settings_variables; n->name; n++) man_entry(n->name, n->text);
}

static void man_exits(void)
{
    const char *line = options_help_exits(NULL);
    man_section("EXIT STATUS");
    while (*line) {
        char code[8], text[160];
        size_t length = strcspn(line, "\n"), word = strcspn(line, " "),
               gap = strspn(line + word, " ");
        (void)snprintf(code, sizeof code, "%.*s", (int)word, line);
        (void)snprintf(text, sizeof text, "%.*s", (int)(length - word - gap), line + word + gap);
        man_entry(code, text);
        line += length + (line[length] == '\n');
    }
}

static void man_rest(void)
{
    man_section("FILES");
    for (const SettingsNote *n = settings_files; n->name; n++) man_entry(n->name, n->text);
    man_exits();
    man_section("EXAMPLES");
    puts("A first answer:");
    man_lines("cobord pull qwen2.5-coder-1.5b\n"
              "cobord run qwen2.5-coder-1.5b \"Write a function that reverses a list.\"\n");
    puts(".PP\nA cluster of processes of 128 MiB on this machine, and how it is:");
    man_lines("cobord up qwen2.5-coder-1.5b --memory 128M\ncobord status\n");
    puts(".PP\nThe plan for several machines, and one node of it:");
    man_lines("cobord plan qwen2.5-coder-1.5b --hosts hosts.json -o cluster.json\n"
              "cobord node --cluster cluster.json --id station-0\n");
    man_section("SEE ALSO");
    puts("\\fBcobord help\\fR \\fIVERB\\fR explains one verb, \\fBcobord help settings\\fR all "
         "settings.\n"
         ".PP\n"
         "\\fBcurl\\fR(1), \\fBsystemd\\fR(1)");
}

int cli_man(int argc, char **argv)
{
    Options o;
    int code;
    if (!options_read(&o, &man_verb, argc, argv, &code)) return code;
    printf(".TH COBORD 1 \"\" \"cobord %s\" \"Cobord\"\n.nh\n.ad l\n", COBORD_VERSION);
    man_synopsis();
    man_description();
    man_verbs();
    man_all_options();
    man_environment();
    man_rest();
    return 0;
}
