/* SPDX-License-Identifier: Apache-2.0 */
/* cobord completion: what bash, zsh and fish need to complete verbs, options, choices, models and files. Printed out
 * of the tables of verbs and options; only the models are asked for when a key is pressed (cobord completion models).
 *
 *   argument of an option    FILE, FOLDER, DIR, MODEL, choices: offered; anything else: nothing to offer
 *   operands of a verb       the words of its operand_names: MODEL, FILE, IN.gguf, bash|zsh|fish, cloudflare */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "cli/complain.h"
#include "cli/options_help.h"
#include "cli/verbs.h"
#include "host/locate.h"
#include "host/places.h"
#include "host/zoo.h"

static const OptionId completion_options[] = {OPTION_CACHE, OPTION_END};
const OptionVerb completion_verb = {
    .name = "completion",
    .usage = "bash | zsh | fish | models",
    .summary =
        "Prints the script that makes a shell complete verbs, options, choices, names of models and "
        "files when Tab is pressed. A package installs it; without one, put the line of your shell "
        "where it reads its settings. `models` prints the names that the scripts complete.",
    .examples = "  source <(cobord completion bash)      # in ~/.bashrc\n"
                "  source <(cobord completion zsh)       # in ~/.zshrc, after compinit\n"
                "  cobord completion fish | source       # in ~/.config/fish/config.fish\n",
    .options = completion_options,
    .operands_min = 1,
    .operands_max = 1,
    .operand_names = "bash|zsh|fish|models",
};

/* ---- What is offered */

typedef enum Offer { OFFER_NOTHING, OFFER_FILES, OFFER_FOLDERS, OFFER_MODELS, OFFER_WORDS } Offer;

/* Of an option's argument, or a word of a verb's operand names. */
static Offer offer_of(const char *word, size_t bytes)
{
    char text[64];
    (void)snprintf(text, sizeof text, "%.*s", (int)bytes, word);
    if (strcmp(text, "MODEL") == 0) return OFFER_MODELS;
    if (strcmp(text, "DIR") == 0 || strcmp(text, "FOLDER") == 0) return OFFER_FOLDERS;
    if (strstr(text, "FILE") || strstr(text, ".gguf") || strstr(text, ".knot")) return OFFER_FILES;
    return text[0] >= 'a' && text[0] <= 'z' ? OFFER_WORDS : OFFER_NOTHING;
}

static Offer offer_of_option(const OptionSpec *spec)
{
    if (spec->kind == OPTION_CHOICE) return OFFER_WORDS;
    return spec->kind == OPTION_TEXT && spec->argument
               ? offer_of(spec->argument, strlen(spec->argument))
               : OFFER_NOTHING;
}

/* "a|b|c" as "a b c" */
static void put_words(const char *choices, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) fputc(choices[i] == '|' ? ' ' : choices[i], stdout);
}

/* The word of operand `at`, counted from 0; NULL when there is none. */
static const char *operand_word(const OptionVerb *verb, unsigned at, size_t *bytes)
{
    const char *p = verb->operand_names ? verb->operand_names : "";
    for (; at && *p; at--) {
        p += strcspn(p, " ");
        p += strspn(p, " ");
    }
    *bytes = strcspn(p, " ");
    return *bytes && verb->operands_max ? p : NULL;
}

/* Whether `id` is a flag of some verb that takes a value. */
static bool takes_value(const OptionSpec *spec)
{
    return spec->kind != OPTION_SWITCH && !(spec->flags & OPTION_NO_FLAG);
}

/* ---- bash */

static void bash_pattern(const OptionSpec *spec)
{
    if (spec->letter) printf("-%c | ", spec->letter);
    printf("--%s", spec->name);
}

/* case ... in: what may stand behind each option. */
static void bash_values(void)
{
    static const char *const does[] = {"", "_cobord_files", "_cobord_folders", "_cobord_models"};
    puts("# What may stand behind an option. Result 1: it takes no value.\n"
         "_cobord_value() {\n    case $1 in");
    for (unsigned id = 1; id < OPTIONS_COUNT; id++) {
        const OptionSpec *spec = &options_table[id];
        Offer offer = offer_of_option(spec);
        if (!takes_value(spec) || offer == OFFER_NOTHING) continue;
        fputs("    ", stdout);
        bash_pattern(spec);
        if (offer == OFFER_WORDS) {
            fputs(") _cobord_words \"", stdout);
            put_words(spec->choices, strlen(spec->choices));
            puts("\" ;;");
        } else printf(") %s ;;\n", does[offer]);
    }
    fputs("    --none", stdout); /* so that each of the others begins with a bar */
    for (unsigned id = 1; id < OPTIONS_COUNT; id++) {
        const OptionSpec *spec = &options_table[id];
        if (!takes_value(spec) || offer_of_option(spec) != OFFER_NOTHING) continue;
        fputs(" | ", stdout);
        bash_pattern(spec);
    }
    puts(") ;;\n    *) return 1 ;;\n    esac\n}");
}

static void bash_operands(const OptionVerb *verb)
{
    static const char *const does[] = {":", "_cobord_files", "_cobord_folders", "_cobord_models"};
    size_t bytes;
    const char *word;
    puts("        case $operands in");
    for (unsigned at = 0; (word = operand_word(verb, at, &bytes)) != NULL; at++) {
        Offer offer = offer_of(word, bytes);
        if (offer == OFFER_WORDS) {
            printf("        %u) _cobord_words \"", at);
            put_words(word, bytes);
            puts("\" ;;");
        } else printf("        %u) %s ;;\n", at, does[offer]);
    }
    puts("        esac ;;");
}

static void bash_verb(const Verb *v)
{
    printf("    %s)\n        flags=\"", v->name);
    for (const OptionId *o = v->options->options; *o != OPTION_END; o++)
        if (!(options_table[*o].flags & OPTION_NO_FLAG)) printf("--%s ", options_table[*o].name);
    puts("--help\"\n        [[ $cur == -* ]] && _cobord_words \"$flags\" && return");
    bash_operands(v->options);
}

static void put_verbs(void)
{
    for (const Verb *v = verbs_table; v->name; v++) printf("%s ", v->name);
}

static void bash_script(void)
{
    puts("# Completion of cobord for bash. Made by `cobord completion bash`.\n"
         "_cobord_words() { COMPREPLY=($(compgen -W \"$1\" -- \"$cur\")); }\n"
         "_cobord_files() { compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); }\n"
         "_cobord_folders() { compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$cur\"); }\n"
         "_cobord_models() {\n"
         "    _cobord_words \"$(\"${COMP_WORDS[0]}\" completion models 2>/dev/null)\"\n"
         "    [[ ${#COMPREPLY[@]} -gt 0 ]] || _cobord_files\n"
         "}");
    bash_values();
    puts("_cobord() {\n"
         "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
         "    local flags i operands=0\n"
         "    COMPREPLY=()\n"
         "    if [[ $cur == \"=\" ]]; then cur=\"\"\n"
         "    elif [[ $prev == \"=\" ]]; then prev=${COMP_WORDS[COMP_CWORD - 2]}; fi\n"
         "    if [[ $COMP_CWORD -eq 1 ]]; then");
    fputs("        _cobord_words \"", stdout);
    put_verbs();
    puts("help --help --version\"\n"
         "        return\n"
         "    fi\n"
         "    _cobord_value \"$prev\" && return\n"
         "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
         "        if [[ ${COMP_WORDS[i]} == -* ]]; then\n"
         "            if [[ ${COMP_WORDS[i + 1]} == \"=\" ]]; then ((i += 2))\n"
         "            elif cur=/ _cobord_value \"${COMP_WORDS[i]}\"; then ((i++)); fi\n"
         "        else ((operands++)); fi\n"
         "    done\n"
         "    COMPREPLY=()\n"
         "    case ${COMP_WORDS[1]} in");
    for (const Verb *v = verbs_table; v->name; v++) bash_verb(v);
    fputs("    help) [[ $operands -eq 0 ]] && _cobord_words \"", stdout);
    put_verbs();
    puts("settings\" ;;\n    esac\n    return 0\n}\ncomplete -F _cobord cobord");
}

/* ---- zsh */

/* Inside '...': quotes are closed around; brackets and colons mean something to _arguments. */
static void zsh_put(const char *text)
{
    for (; *text; text++) {
        if (*text == '\'') fputs("'\\''", stdout);
        else if (strchr("[]:\\", *text)) printf("\\%c", *text);
        else fputc(*text, stdout);
    }
}

static void zsh_action(Offer offer, const char *words, size_t bytes)
{
    static const char *const does[] = {" ", "_files", "_files -/", "_cobord_models"};
    if (offer != OFFER_WORDS) fputs(does[offer], stdout);
    else {
        fputc('(', stdout);
        put_words(words, bytes);
        fputc(')', stdout);
    }
}

static void zsh_option(const OptionSpec *spec)
{
    if (spec->letter)
        printf("            '(-%c --%s)'{-%c,--%s}'[", spec->letter, spec->name, spec->letter,
               spec->name);
    else printf("            '%s--%s[", strcmp(spec->name, "stop") == 0 ? "*" : "", spec->name);
    zsh_put(spec->help);
    fputc(']', stdout);
    if (spec->kind != OPTION_SWITCH) {
        fputc(':', stdout);
        zsh_put(spec->argument ? spec->argument : "choice");
        fputc(':', stdout);
        zsh_action(offer_of_option(spec), spec->choices, spec->choices ? strlen(spec->choices) : 0);
    }
    puts("' \\");
}

static void zsh_verb(const Verb *v)
{
    size_t bytes;
    const char *word;
    printf("        %s)\n        _arguments \\\n", v->name);
    for (const OptionId *o = v->options->options; *o != OPTION_END; o++)
        if (!(options_table[*o].flags & OPTION_NO_FLAG)) zsh_option(&options_table[*o]);
    for (unsigned at = 0; (word = operand_word(v->options, at, &bytes)) != NULL; at++) {
        printf("            '%u:%.*s:", at + 1, (int)bytes, word);
        zsh_action(offer_of(word, bytes), word, bytes);
        puts("' \\");
    }
    puts("            '--help[explain this verb]' ;;");
}

static void zsh_script(void)
{
    puts("#compdef cobord\n"
         "# Completion of cobord for zsh. Made by `cobord completion zsh`.\n"
         "_cobord_models() {\n"
         "    local -a models\n"
         "    models=(${(f)\"$(cobord completion models 2>/dev/null)\"})\n"
         "    compadd -a models || _files\n"
         "}\n"
         "_cobord() {\n"
         "    local curcontext=$curcontext state line\n"
         "    local -a verbs\n"
         "    verbs=(");
    for (const Verb *v = verbs_table; v->name; v++) {
        printf("        '%s:", v->name);
        zsh_put(v->help);
        puts("'");
    }
    puts("        'help:explain a verb'\n"
         "    )\n"
         "    _arguments -C '1:verb:->verb' '*::argument:->argument'\n"
         "    case $state in\n"
         "    verb) _describe verb verbs ;;\n"
         "    argument)\n"
         "        case $line[1] in");
    for (const Verb *v = verbs_table; v->name; v++) zsh_verb(v);
    fputs("        help) _values verb ", stdout);
    put_verbs();
    puts("settings ;;\n"
         "        esac ;;\n"
         "    esac\n"
         "}\n"
         "if [[ $funcstack[1] == _cobord ]]; then _cobord \"$@\"; else compdef _cobord cobord; fi");
}

/* ---- fish */

static void fish_put(const char *text)
{
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\') fputc('\\', stdout);
        fputc(*text, stdout);
    }
}

/* What follows a condition; options want a value (-r), operands are arguments (-a). */
static void fish_offer(Offer offer, const char *words, size_t bytes)
{
    switch (offer) {
    case OFFER_NOTHING: fputs(" -f", stdout); break;
    case OFFER_FILES: fputs(" -F", stdout); break;
    case OFFER_FOLDERS: fputs(" -f -a '(__fish_complete_directories)'", stdout); break;
    case OFFER_MODELS: fputs(" -F -a '(cobord completion models 2>/dev/null)'", stdout); break;
    case OFFER_WORDS:
        fputs(" -f -a '", stdout);
        put_words(words, bytes);
        fputc('\'', stdout);
    }
}

static void fish_option(const Verb *v, const OptionSpec *spec)
{
    printf("complete -c cobord -n '__fish_seen_subcommand_from %s' -l %s", v->name, spec->name);
    if (spec->letter) printf(" -s %c", spec->letter);
    if (spec->kind != OPTION_SWITCH) {
        fputs(" -r", stdout);
        fish_offer(offer_of_option(spec), spec->choices, spec->choices ? strlen(spec->choices) : 0);
    }
    fputs(" -d '", stdout);
    fish_put(spec->help);
    puts("'");
}

static void fish_verb(const Verb *v)
{
    size_t bytes;
    const char *word;
    printf("complete -c cobord -n __fish_use_subcommand -a %s -d '", v->name);
    fish_put(v->help);
    puts("'");
    for (const OptionId *o = v->options->options; *o != OPTION_END; o++)
        if (!(options_table[*o].flags & OPTION_NO_FLAG)) fish_option(v, &options_table[*o]);
    for (unsigned at = 0; (word = operand_word(v->options, at, &bytes)) != NULL; at++) {
        printf("complete -c cobord -n '__fish_seen_subcommand_from %s'", v->name);
        fish_offer(offer_of(word, bytes), word, bytes);
        fputc('\n', stdout);
    }
}

static void fish_script(void)
{
    puts("# Completion of cobord for fish. Made by `cobord completion fish`.\n"
         "complete -c cobord -f\n"
         "complete -c cobord -n __fish_use_subcommand -l version -d 'which program this is'\n"
         "complete -c cobord -l help -d 'explain'\n"
         "complete -c cobord -n __fish_use_subcommand -a help -d 'explain a verb'");
    fputs("complete -c cobord -n '__fish_seen_subcommand_from help' -a '", stdout);
    put_verbs();
    puts("settings'");
    for (const Verb *v = verbs_table; v->name; v++) fish_verb(v);
}

/* ---- Models: those of the zoo, and those that are here under another name. */

/* Only what can be a name: bash carries out what stands in a word that it is offered, $(..) in that of a file, say. */
static int print_models(void)
{
    char directory[PLACES_PATH_BYTES], name[PLACES_NAME_BYTES];
    Why why = {{0}};
    for (size_t i = 0; i < zoo_count; i++) puts(zoo_models[i].name);
    Error error = places_models_path(directory, sizeof directory, &why);
    if (error != OK) return complain(error, &why, NULL, NULL);
    DIR *d = opendir(directory);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (places_model_name(e->d_name, name) && locate_is_name(name) && !zoo_find(name)) puts(name);
    if (d) (void)closedir(d);
    return 0;
}

int cli_completion(int argc, char **argv)
{
    Options o;
    int code;
    if (!options_read(&o, &completion_verb, argc, argv, &code)) return code;
    const char *shell = o.operands[0];
    if (strcmp(shell, "models") == 0) return print_models();
    if (strcmp(shell, "bash") == 0) bash_script();
    else if (strcmp(shell, "zsh") == 0) zsh_script();
    else if (strcmp(shell, "fish") == 0) fish_script();
    else
        return complain_usage(
            "completion: '%s' is none of bash, zsh, fish. See: cobord help completion", shell);
    return 0;
}
