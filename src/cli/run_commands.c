/* SPDX-License-Identifier: Apache-2.0 */
/* The chat's /commands: one table, from which /help, completion and the hint at a mistyped name
 * are made. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/paint.h"
#include "cli/progress.h"
#include "cli/run_chat.h"
#include "cli/run_save.h"
#include "host/memory.h"
#include "host/near.h"
#include "host/places.h"

typedef Error Command(RunChat *c, const char *argument, Why *why);

typedef struct CommandRow {
    const char *name, *alias, *argument, *help; /* alias NULL: none; help NULL: not in the list */
    Command *command;
} CommandRow;

static Command do_help, do_system, do_set, do_clear, do_again, do_save, do_load, do_file, do_stats,
    do_quit;

static const CommandRow commands[] = {
    {"/help", "/?", "", "this list", do_help},
    {"/system", NULL, "TEXT", "sets the system message; alone shows it, - removes it", do_system},
    {"/set", NULL, "NAME VALUE", "sets temperature, top-p, seed and others; alone shows them",
     do_set},
    {"/clear", "/new", "", "forgets the conversation, but not the system message", do_clear},
    {"/regenerate", "/retry", "", "another answer to the last message", do_again},
    {"/file", NULL, "PATH [MESSAGE]", "includes a text file in this or the next message", do_file},
    {"/save", NULL, "FILE", "writes the conversation as JSON", do_save},
    {"/load", NULL, "FILE", "goes on with a saved conversation", do_load},
    {"/stats", NULL, "", "tokens, speed, memory", do_stats},
    {"/quit", "/bye", "", "ends the chat; so do /exit and Ctrl-D", do_quit},
    {"/exit", NULL, "", NULL, do_quit},
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

const char *const *run_commands_names(void)
{
    static const char *names[2 * COMMANDS + 1];
    size_t count = 0;
    for (size_t i = 0; i < COMMANDS; i++) names[count++] = commands[i].name;
    for (size_t i = 0; i < COMMANDS; i++)
        if (commands[i].alias) names[count++] = commands[i].alias;
    return names;
}

/* --- Help, end, forgetting --- */

static Error do_help(RunChat *c, const char *argument, Why *why)
{
    (void)c;
    (void)argument;
    (void)why;
    for (size_t i = 0; i < COMMANDS; i++) {
        char head[48];
        if (!commands[i].help) continue;
        (void)snprintf(head, sizeof head, "%s %s", commands[i].name, commands[i].argument);
        fprintf(stderr, "  %-23s %s%s%s%s\n", head, commands[i].help,
                commands[i].alias ? " (also " : "", commands[i].alias ? commands[i].alias : "",
                commands[i].alias ? ")" : "");
    }
    fputs(
        "\n"
        "  A line that ends in \\ goes on in the next one; \"\"\" begins and ends a message of\n"
        "  several lines; Alt-Enter breaks the line. Up and Down bring back what was typed, Ctrl-R\n"
        "  searches it. Ctrl-C stops an answer. A space in front makes a message of \"/...\".\n",
        stderr);
    return OK;
}

static Error do_quit(RunChat *c, const char *argument, Why *why)
{
    (void)argument;
    (void)why;
    c->over = true;
    return OK;
}

static bool has_system(const Run *r)
{
    return r->turn_count && strcmp(r->turns[0].role, "system") == 0;
}

static Error do_clear(RunChat *c, const char *argument, Why *why)
{
    (void)argument;
    (void)why;
    run_answer_drop(c->run, has_system(c->run));
    free(c->attached);
    c->attached = NULL;
    run_chat_note("forgotten");
    return OK;
}

static Error do_again(RunChat *c, const char *argument, Why *why)
{
    (void)argument;
    return run_chat_again(c, why);
}

/* --- The system message --- */

static void remove_system(Run *r)
{
    if (!has_system(r)) return;
    free((void *)(uintptr_t)r->turns[0].text);
    memmove(r->turns, r->turns + 1, --r->turn_count * sizeof r->turns[0]);
}

static void show_system(const Run *r)
{
    if (!has_system(r)) {
        run_chat_note("no system message is set; the model's own applies, if it has one");
        return;
    }
    (void)paint_show(stderr, r->turns[0].text, r->turns[0].bytes);
    fputc('\n', stderr);
}

static Error do_system(RunChat *c, const char *argument, Why *why)
{
    Run *r = c->run;
    if (!argument[0]) {
        show_system(r);
        return OK;
    }
    remove_system(r);
    if (strcmp(argument, "-") == 0) {
        run_chat_note("the system message is removed");
        return OK;
    }
    TRY(run_answer_add(r, "system", argument, strlen(argument), why));
    Turn system = r->turns[r->turn_count - 1];
    memmove(r->turns + 1, r->turns, (r->turn_count - 1) * sizeof r->turns[0]);
    r->turns[0] = system;
    run_chat_note("the system message is set");
    return OK;
}

/* --- Settings --- */

static const OptionId settable[] = {OPTION_TEMPERATURE,
                                    OPTION_TOP_K,
                                    OPTION_TOP_P,
                                    OPTION_MIN_P,
                                    OPTION_SEED,
                                    OPTION_MAX_TOKENS,
                                    OPTION_REPETITION_PENALTY,
                                    OPTION_PRESENCE_PENALTY,
                                    OPTION_FREQUENCY_PENALTY,
                                    OPTION_END};

static const char *value_of(const RunChat *c, OptionId id)
{
    const char *text = options_text(c->run->options, id);
    if (text) return text;
    return id == OPTION_SEED ? "random" : "none";
}

static void show_settings(const RunChat *c)
{
    for (const OptionId *id = settable; *id != OPTION_END; id++) {
        fprintf(stderr, "  %-19s ", options_table[*id].name);
        options_print_safely(stderr, value_of(c, *id));
        paint_begin(stderr, PAINT_DIM);
        fprintf(stderr, "%*s  %s", (int)(6 - (int)strlen(value_of(c, *id))), "",
                options_table[*id].help);
        paint_end(stderr);
        fputc('\n', stderr);
    }
    run_chat_note("/set NAME VALUE changes one, /set NAME default takes it back");
}

/* "top_p" is top-p; OPTION_END: none. */
static OptionId find_setting(char *name, const char **near)
{
    unsigned least = NEAR_FAR;
    *near = NULL;
    for (char *p = name; *p; p++)
        if (*p == '_') *p = '-';
    for (const OptionId *id = settable; *id != OPTION_END; id++) {
        if (strcmp(options_table[*id].name, name) == 0) return *id;
        unsigned distance = near_distance(name, options_table[*id].name);
        if (distance >= least) continue;
        least = distance;
        *near = options_table[*id].name;
    }
    return OPTION_END;
}

static Error unknown_setting(const char *name, const char *near, Why *why)
{
    if (near)
        return error_why(why, ERR_USAGE, "/set: there is no '%s'. Did you mean %s?", name, near);
    return error_why(why, ERR_USAGE, "/set: there is no '%s'. /set alone shows what there is.",
                     name);
}

/* `value` is owned by the chat from here on; NULL: the table's default. */
static Error change(RunChat *c, OptionId id, char *value, Why *why)
{
    Options *o = c->run->options;
    OptionValue before = o->values[id];
    const char *standard = options_table[id].standard;
    Error error = OK;
    if (value || standard) error = options_change(o, id, value ? value : standard, why);
    if (!value && error == OK) o->values[id].given = false;
    if (!value && !standard) o->values[id] = (OptionValue){0};
    if (error == OK) error = run_params_read(c->run, why);
    if (error != OK) {
        Why none;
        o->values[id] = before;
        if (run_params_read(c->run, &none) != OK) abort(); /* they were read before */
        free(value);
        return error;
    }
    free(c->settings[id]);
    c->settings[id] = value;
    return OK;
}

static Error do_set(RunChat *c, const char *argument, Why *why)
{
    char name[64];
    const char *near;
    size_t length = strcspn(argument, " \t=");
    if (!length) {
        show_settings(c);
        return OK;
    }
    (void)snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), argument);
    OptionId id = find_setting(name, &near);
    if (id == OPTION_END) return unknown_setting(name, near, why);
    const char *said = argument + length + strspn(argument + length, " \t=");
    if (!said[0]) {
        fprintf(stderr, "  %s %s\n", name, value_of(c, id));
        return OK;
    }
    char *value = strcmp(said, "default") == 0 ? NULL : strdup(said);
    TRY(change(c, id, value, why));
    run_chat_note("%s is %s", name, value_of(c, id));
    return OK;
}

/* --- Files --- */

static Error do_save(RunChat *c, const char *argument, Why *why)
{
    char path[PLACES_PATH_BYTES];
    TRY(run_save_path(argument, path, sizeof path, why));
    TRY(run_save_write(c->run, path, why));
    run_chat_note("%zu messages are in %s", c->run->turn_count, path);
    return OK;
}

static Error do_load(RunChat *c, const char *argument, Why *why)
{
    char path[PLACES_PATH_BYTES];
    Run *r = c->run;
    TRY(run_save_path(argument, path, sizeof path, why));
    TRY(run_save_read(r, path, why));
    if (r->turn_count && strcmp(r->turns[r->turn_count - 1].role, "assistant") == 0) {
        const Turn *last = &r->turns[r->turn_count - 1];
        (void)paint_show(stderr, last->text, last->bytes);
        fputc('\n', stderr);
    }
    run_chat_note("%zu messages of %s", r->turn_count, path);
    return OK;
}

/* Where the path ends: at its closing quote, or at the first blank. */
static size_t path_length(const char *argument)
{
    char quote = argument[0];
    const char *end = quote == '"' || quote == '\'' ? strchr(argument + 1, quote) : NULL;
    return end ? (size_t)(end + 1 - argument) : strcspn(argument, " \t\n");
}

static Error do_file(RunChat *c, const char *argument, Why *why)
{
    char said[PLACES_PATH_BYTES], path[PLACES_PATH_BYTES];
    size_t length = path_length(argument), lines;
    if (length >= sizeof said) return error_why(why, ERR_TOO_LARGE, "a path of %zu bytes", length);
    (void)snprintf(said, sizeof said, "%.*s", (int)length, argument);
    Error error = run_save_path(said, path, sizeof path, why);
    if (error == OK) error = run_save_attach(path, &c->attached, &lines, why);
    if (error != OK) return error == ERR_IO ? ERR_FORMAT : error; /* no reason to end the chat */
    const char *message = argument + length + strspn(argument + length, " \t\n");
    run_chat_note("%s: %zu line%s%s", path, lines, lines == 1 ? "" : "s",
                  message[0] ? "" : ", sent with your next message");
    return message[0] ? run_chat_say(c, message, why) : OK;
}

/* --- Figures --- */

static void show_model(const Run *r)
{
    fputs("  model         ", stderr);
    options_print_safely(stderr, r->options->operands[0]);
    if (r->remote) {
        fputs(" at ", stderr);
        options_print_safely(stderr, options_text(r->options, OPTION_URL));
        fprintf(stderr, "\n  conversation  %zu messages\n", r->turn_count);
        return;
    }
    const Plan *plan = engine_plan(r->session.engine);
    uint32_t said, shards = 0;
    (void)coordinator_tokens(engine_coordinator(r->session.engine), 0, &said);
    for (uint32_t i = 0; i < plan->role_count; i++) shards += plan->role[i].is_shard;
    fprintf(stderr, ", %u stations, %u shards, weights %s\n", plan->role_count - shards, shards,
            plan->resident ? "in memory" : "streamed");
    fprintf(stderr, "  conversation  %zu messages, %u of %u tokens of context\n", r->turn_count,
            said, plan->context);
}

static Error do_stats(RunChat *c, const char *argument, Why *why)
{
    const Run *r = c->run;
    char now[16], peak[16], last[256];
    (void)argument;
    (void)why;
    progress_print_bytes(now, sizeof now, memory_resident());
    progress_print_bytes(peak, sizeof peak, memory_peak());
    run_answer_describe(&r->timing, true, last, sizeof last);
    show_model(r);
    fprintf(stderr, "  last answer   %s\n", c->answers ? last : "none yet");
    fprintf(stderr, "  this chat     %" PRIu64 " answers, %" PRIu64 " tokens", c->answers,
            c->tokens);
    if (c->seconds > 0) fprintf(stderr, ", %.1f tokens/s", (double)c->decoded / c->seconds);
    fputc('\n', stderr);
    fprintf(stderr, "  memory        %s, at its peak %s\n", now, peak);
    return OK;
}

/* --- Finding them --- */

static Error unknown(const char *name)
{
    const char *near = NULL;
    unsigned least = NEAR_FAR;
    for (const char *const *n = run_commands_names(); *n; n++) {
        unsigned distance = near_distance(name + 1, *n + 1);
        if (distance >= least) continue;
        least = distance;
        near = *n;
    }
    if (near) run_chat_note("there is no %s. Did you mean %s?", name, near);
    else run_chat_note("there is no %s. /help shows what there is", name);
    return OK;
}

Error run_commands_do(RunChat *c, const char *line, Why *why)
{
    char name[64];
    size_t length = strcspn(line, " \t\n");
    const char *argument = line + length + strspn(line + length, " \t\n");
    (void)snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), line);
    for (size_t i = 0; i < COMMANDS; i++) {
        const CommandRow *row = &commands[i];
        if (strcmp(row->name, name) != 0 && (!row->alias || strcmp(row->alias, name) != 0))
            continue;
        Error error = row->command(c, argument, why);
        bool sends = row->command == do_again || row->command == do_file;
        if (error == OK || (sends && (error == ERR_IO || error == ERR_CANCELLED))) return error;
        run_chat_fault(error, why, NULL);
        *why = (Why){{0}};
        return OK;
    }
    return unknown(name);
}
