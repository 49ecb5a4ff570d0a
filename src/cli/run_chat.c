/* SPDX-License-Identifier: Apache-2.0 */
/*   message --> [attached files] turns --> answer --> turns        a /command --> run_commands.c
 *
 * Ctrl-C ends an answer: what was shown of it stays in the conversation. */
#include "cli/run_chat.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/complain.h"
#include "cli/paint.h"
#include "cli/run_line.h"
#include "host/stop.h"

void run_chat_note(const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    paint_begin(stderr, PAINT_DIM);
    fputc('[', stderr);
    options_print_safely(stderr, text);
    fputc(']', stderr);
    paint_end(stderr);
    fputc('\n', stderr);
}

void run_chat_fault(Error error, const Why *why, const char *thing)
{
    (void)complain(error, why, thing, NULL);
}

/* --- Answers --- */

static void count(RunChat *c)
{
    const RunTiming *t = &c->run->timing;
    c->answers++;
    c->tokens += t->generated;
    if (!run_answer_is_measured(t)) return;
    c->decoded += t->generated - 1;
    c->seconds += t->end - t->first;
}

/* Answers what the turns say. Errors  ERR_CANCELLED when it was stopped before a word. */
static Error answer(RunChat *c, Why *why)
{
    Run *r = c->run;
    Error error = run_answer_make(r, why);
    if (error == ERR_CANCELLED && stop_signal() == SIGINT) {
        stop_clear();
        if (r->answer_bytes) error = OK;
        else run_chat_note("stopped");
    }
    if (error != OK) return error;
    count(c);
    return run_answer_add(r, "assistant", r->answer ? r->answer : "", r->answer_bytes, why);
}

/* Errors  those after which there is no chat. */
static Error settle(RunChat *c, Error error, const Why *why)
{
    bool stopped = error == ERR_CANCELLED && !stop_asked();
    if (error == OK || stopped) return OK;
    if (c->run->answer_bytes) fputc('\n', stderr);
    if (error == ERR_IO || error == ERR_CANCELLED) return error;
    run_chat_fault(error, why, run_thing(c->run));
    return OK;
}

Error run_chat_say(RunChat *c, const char *message, Why *why)
{
    Run *r = c->run;
    size_t before = r->turn_count, attached = c->attached ? strlen(c->attached) : 0;
    size_t bytes = attached + strlen(message);
    char *text = malloc(bytes + 1);
    if (!text) return error_why(why, ERR_MEMORY, "no memory for a message");
    (void)snprintf(text, bytes + 1, "%s%s", attached ? c->attached : "", message);
    Error error = run_answer_add(r, "user", text, bytes, why);
    free(text);
    if (error == OK) error = answer(c, why);
    if (error != OK) run_answer_drop(r, before);
    else {
        free(c->attached);
        c->attached = NULL;
    }
    return settle(c, error, why);
}

Error run_chat_again(RunChat *c, Why *why)
{
    Run *r = c->run;
    size_t last = r->turn_count;
    if (!last || strcmp(r->turns[last - 1].role, "assistant") != 0) {
        run_chat_note("there is no answer yet");
        return OK;
    }
    Turn old = r->turns[--r->turn_count];
    r->params.seed += UINT64_C(0x9e3779b97f4a7c15); /* else the same seed says the same */
    Error error = answer(c, why);
    if (error == OK) {
        free((void *)old.text);
    } else { /* the old answer stays */
        run_answer_drop(r, last - 1);
        r->turns[r->turn_count++] = old;
    }
    if (error == OK && r->params.temperature <= 0)
        run_chat_note("temperature 0 gives the same answer: /set temperature 0.8 gives others");
    return settle(c, error, why);
}

/* --- The loop --- */

static void greet(const Run *r)
{
    options_print_safely(stderr, r->options->operands[0]);
    if (r->remote) {
        fputs(" at ", stderr);
        options_print_safely(stderr, options_text(r->options, OPTION_URL));
    } else {
        fprintf(stderr, ", context %" PRIu32 " tokens", engine_plan(r->session.engine)->context);
    }
    fprintf(stderr, ". /help shows what there is, Ctrl-D ends the chat.\n\n");
}

static Error chat_line(RunChat *c, const char *line, Why *why)
{
    size_t start = strspn(line, " \t\n");
    Error error = OK;
    if (line[0] == '/') error = run_commands_do(c, line, why);
    else if (line[start]) error = run_chat_say(c, line, why);
    if (!c->over && (line[start] || line[0] == '/')) fputc('\n', stderr);
    return error;
}

static Error chat_loop(RunChat *c, Why *why)
{
    Error error = OK;
    while (error == OK && !c->over) {
        char *line = NULL;
        RunLineEnd end = run_line_read(&line);
        if (end == RUN_LINE_OVER) break;
        if (end == RUN_LINE_INTERRUPTED)
            run_chat_note("Ctrl-C once more, or Ctrl-D, ends the chat");
        if (end == RUN_LINE_MESSAGE) error = chat_line(c, line, why);
        free(line);
    }
    bool ended = stop_asked() && stop_signal() != SIGINT;
    return error == OK && ended ? error_why(why, ERR_CANCELLED, "the chat was ended") : error;
}

Error run_chat(Run *r, Why *why)
{
    static RunChat c;
    c = (RunChat){.run = r};
    r->chatting = true;
    greet(r);
    run_line_open(run_commands_names());
    Error error = chat_loop(&c, why);
    run_line_close();
    free(c.attached);
    for (unsigned id = 0; id < OPTIONS_COUNT; id++) free(c.settings[id]);
    return error;
}
