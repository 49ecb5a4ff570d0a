/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/settings.h"

#include <stdio.h>
#include <string.h>

#include "cli/options_help.h"

enum {
    SETTINGS_INDENT = 6,
    SETTINGS_NAME_WIDTH = 22,
    SETTINGS_ARGUMENT_MAX = 26,
    SETTINGS_VARIABLE_BYTES = 64
};

const SettingsNote settings_variables[] = {
    {"COBORD_S3_ENDPOINT", "address of the S3-compatible store of s3:// names: "
                           "http(s)://HOST[:PORT] (default: Amazon's of the region)"},
    {"AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY",
     "keys of that store; without them requests are not signed"},
    {"AWS_SESSION_TOKEN", "the token that temporary keys come with"},
    {"AWS_REGION, AWS_DEFAULT_REGION", "region that requests are signed for (default: us-east-1)"},
    {"AWS_CA_BUNDLE", "PEM file of the certificates that the store's is checked against (default: "
                      "the system's)"},
    {"CLOUDFLARE_ACCOUNT_ID, CLOUDFLARE_API_TOKEN",
     "the account to deploy to, and the token that wrangler uses"},
    {"COBORD_REDIS_PASSWORD", "password of a Redis that wardens keep rows in"},
    {"XDG_CACHE_HOME, XDG_CONFIG_HOME, XDG_STATE_HOME",
     "in place of ~/.cache, ~/.config and ~/.local/state"},
    {"NO_COLOR", "not empty: no colours, whatever the output is"},
    {"CLICOLOR_FORCE", "not empty and not 0: colours in files and pipes too"},
    {NULL, NULL}};

const SettingsNote settings_files[] = {
    {"~/.config/cobord/config", "the config file: lines `name = value`, and # comments"},
    {"~/.cache/cobord/models/NAME.knot", "a model that is ready (see: cobord list)"},
    {"~/.cache/cobord/models/.NAME.pull/", "a download that is under way or was stopped: cobord "
                                           "pull NAME goes on with it, cobord rm NAME removes it"},
    {"~/.local/state/cobord/history", "what was typed in chats; removed, it starts anew"},
    {"~/.local/state/cobord/journal.db", "answers under way, to be resumed after a restart"},
    {"~/.local/state/cobord/up-XXXXXX/", "cluster file, key and logs of a cobord up without --dir"},
    {NULL, NULL}};

static void settings_note(const char *head, const char *text)
{
    printf("  %s\n%*s", head, SETTINGS_INDENT, "");
    options_help_wrap(text, SETTINGS_INDENT);
}

/* "  cache-type            COBORD_CACHE_TYPE    f16|q8_0", and below what it is. */
static void settings_option(const OptionSpec *spec)
{
    char variable[SETTINGS_VARIABLE_BYTES], text[400], head[160];
    const char *argument = options_help_argument(spec);
    bool hidden = spec->flags & OPTION_NO_FLAG;
    options_variable(variable, sizeof variable, spec);
    options_help_text(spec, text, sizeof text);
    if (!argument) argument = "yes|no";
    bool below = strlen(argument) > SETTINGS_ARGUMENT_MAX;
    (void)snprintf(head, sizeof head, "%-*s %-27s %s", SETTINGS_NAME_WIDTH, spec->name, variable,
                   below ? "" : argument);
    if (below) {
        printf("  %s\n", head);
        (void)snprintf(head, sizeof head, "    %s", argument);
    }
    settings_note(head, text);
    if (hidden)
        printf("%*sno flag: others could read it in the list of processes\n", SETTINGS_INDENT, "");
}

static void settings_theme(OptionTheme theme)
{
    bool head = false;
    for (unsigned id = 1; id < OPTIONS_COUNT; id++) {
        const OptionSpec *spec = &options_table[id];
        if (spec->flags & OPTION_FLAG_ONLY || options_theme((OptionId)id) != theme) continue;
        if (!head) printf("\n%s\n", options_theme_name(theme));
        head = true;
        settings_option(spec);
    }
}

static void settings_list(const char *head, const SettingsNote *list)
{
    printf("\n%s\n", head);
    for (; list->name; list++) settings_note(list->name, list->text);
}

void settings_help(void)
{
    printf("A setting is looked for in three places; the first that has it counts:\n"
           "  a flag                     --cache-type q8_0\n"
           "  a variable                 COBORD_CACHE_TYPE=q8_0\n"
           "  ~/.config/cobord/config    cache-type = q8_0\n"
           "Flags that are not listed here belong to one call, and stand nowhere else.\n"
           "Sizes are powers of 1024 (128M, 1.5G); a switch is yes or no.\n");
    for (unsigned theme = 0; theme < THEMES; theme++) settings_theme((OptionTheme)theme);
    settings_list("Other variables", settings_variables);
    settings_list("Files", settings_files);
}
