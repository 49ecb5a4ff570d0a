/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation to ids, ids to the engine, tokens to the screen. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/paint.h"
#include "cli/progress.h"
#include "cli/run.h"
#include "cli/run_remote.h"

/* --- Turns --- */

Error run_answer_add(Run *r, const char *role, const void *text, size_t bytes, Why *why)
{
    if (r->turn_count == RUN_TURNS_MAX)
        return error_why(why, ERR_CAPACITY, "more than %d turns; /clear starts afresh.",
                         RUN_TURNS_MAX);
    uint8_t *copy = malloc(bytes + 1);
    if (!copy) return error_why(why, ERR_MEMORY, "no memory for a message");
    memcpy(copy, text, bytes);
    r->turns[r->turn_count++] = (Turn){.role = role, .text = copy, .bytes = bytes};
    return OK;
}

void run_answer_drop(Run *r, size_t keep)
{
    while (r->turn_count > keep) free((void *)r->turns[--r->turn_count].text);
}

/* The ids of the whole conversation, or of what was said last as it stands. The budget is a promise here as well.
 * Owner  the caller frees *ids. */
static Error encode(Run *r, uint32_t **ids, size_t *count, Why *why)
{
    const ChatTurns turns = {.turns = r->turns, .count = r->turn_count};
    const Turn *last = &r->turns[r->turn_count - 1];
    uint64_t left = engine_memory_left(r->session.engine), room = left ? left : 1;
    if (options_switch(r->options, OPTION_RAW))
        return solo_text_ids(&r->solo, last->text, last->bytes, TOKENIZE_SPECIALS | TOKENIZE_BOS,
                             room, ids, count, why);
    return solo_turns_ids(&r->solo, turns, room, ids, count, why);
}

/* The model's chat template, or the built-in turns. */
Error run_answer_open(Run *r, Why *why)
{
    TRY(solo_open(&r->solo, &r->session.model, r->session.engine, why));
    if (r->solo.chat.fault.text[0])
        fprintf(stderr, "cobord: the model's chat template is not used: %s\n",
                r->solo.chat.fault.text);
    return OK;
}

/* --- Tokens --- */

Error run_answer_show(Run *r, const uint8_t *text, size_t bytes, Why *why)
{
    if (r->answer_bytes + bytes > r->answer_room) {
        size_t room = 2 * (r->answer_room + bytes);
        char *grown = realloc(r->answer, room);
        if (!grown) return error_why(why, ERR_MEMORY, "no memory for the answer");
        r->answer = grown;
        r->answer_room = room;
    }
    if (bytes) memcpy(r->answer + r->answer_bytes, text, bytes);
    r->answer_bytes += bytes;
    if (!paint_show(stdout, text, bytes) || fflush(stdout))
        return error_why(why, ERR_IO, "standard output cannot be written");
    return OK;
}

/* A long prompt takes its time: how far it is, on a terminal. */
static void show_reading(void *context, uint32_t fed)
{
    const Run *r = context;
    if (engine_options_seconds() - r->timing.start < 0.5) return;
    progress_line("reading %u of %u tokens", fed, r->timing.told);
}

static Error stream(Run *r, Why *why)
{
    SoloPiece piece;
    do {
        TRY(solo_next(&r->solo, &piece, why));
        progress_end(false);
        if (!r->timing.generated) r->timing.first = engine_options_seconds();
        if (piece.id != SOLO_NO_ID) r->timing.generated++;
        TRY(run_answer_show(r, piece.text, piece.bytes, why));
    } while (piece.end == SOLO_GOES_ON);
    return OK;
}

static Error start(Run *r, const uint32_t *ids, size_t count, Why *why)
{
    uint32_t context = engine_plan(r->session.engine)->context, kept;
    if (count > context)
        return error_why(
            why, ERR_CAPACITY,
            "the prompt has %zu tokens and the context %u positions. Shorten it, or give "
            "more --context or --memory; in a chat, /clear forgets what was said.",
            count, context);
    SoloRequest request = {
        .ids = ids,
        .count = count,
        .tokens_max = options_given(r->options, OPTION_MAX_TOKENS)
                          ? (uint32_t)options_count(r->options, OPTION_MAX_TOKENS)
                          : UINT32_MAX,
        .params = &r->params,
        .stops = r->options->stops,
        .stop_count = r->options->stop_count,
        .reading = show_reading,
        .context = r,
    };
    r->timing = (RunTiming){.told = (uint32_t)count, .start = engine_options_seconds()};
    TRY(solo_start(&r->solo, &request, &kept, why));
    r->timing.prompt = (uint32_t)count - kept;
    return OK;
}

static Error answer_ids(Run *r, const uint32_t *ids, size_t count, Why *why)
{
    Coordinator *c = engine_coordinator(r->session.engine);
    uint64_t guessed, right;
    coordinator_count_drafts(c, &guessed, &right);
    TRY(start(r, ids, count, why));
    Error error = stream(r, why);
    solo_stop(&r->solo);
    RunTiming *timing = &r->timing;
    timing->end = engine_options_seconds();
    coordinator_count_drafts(c, &timing->guessed, &timing->right);
    timing->guessed -= guessed;
    timing->right -= right;
    return error;
}

bool run_answer_is_measured(const RunTiming *t)
{
    double decode = t->end - t->first;
    return t->generated > 1 && decode > 0 && decode >= t->coarse;
}

/* ", 54.5 tokens/s", or nothing of what was too short to be measured. */
static const char *speed_text(uint32_t tokens, double seconds, double coarse, char out[40])
{
    out[0] = '\0';
    if (tokens && seconds > 0 && seconds >= coarse)
        (void)snprintf(out, 40, ", %.1f tokens/s", tokens / seconds);
    return out;
}

static const char *decode_text(const RunTiming *t, char out[40])
{
    return speed_text(t->generated ? t->generated - 1 : 0, t->end - t->first, t->coarse, out);
}

static const char *prompt_text(const RunTiming *t, char out[40])
{
    return speed_text(t->prompt, t->first - t->start, t->coarse, out);
}

void run_answer_describe(const RunTiming *t, bool all, char *out, size_t out_bytes)
{
    char more[80] = "", guesses[64] = "", speed[40];
    if (all)
        (void)snprintf(more, sizeof more, ", prompt %" PRIu32 " tokens%s", t->prompt,
                       prompt_text(t, speed));
    if (all && t->guessed)
        (void)snprintf(guesses, sizeof guesses, ", %" PRIu64 " of %" PRIu64 " guesses right",
                       t->right, t->guessed);
    (void)snprintf(out, out_bytes, "%" PRIu32 " token%s%s, first after %.2f s%s%s", t->generated,
                   t->generated == 1 ? "" : "s", decode_text(t, speed), t->first - t->start, more,
                   guesses);
}

/* Scripts read this line. */
static void print_speed_plain(const RunTiming *t)
{
    char prompt[40], decode[40];
    fprintf(stderr, "\n[prompt %" PRIu32 " tokens%s; answer %" PRIu32 " tokens%s", t->prompt,
            prompt_text(t, prompt), t->generated, decode_text(t, decode));
    if (t->guessed)
        fprintf(stderr, ", %" PRIu64 " of %" PRIu64 " guesses right", t->right, t->guessed);
    fprintf(stderr, "]\n");
}

static void print_speed_on_terminal(const Run *r, bool stopped)
{
    char text[256];
    if (r->answer_bytes && r->answer[r->answer_bytes - 1] != '\n') fputc('\n', stderr);
    run_answer_describe(&r->timing, !r->chatting, text, sizeof text);
    paint_begin(stderr, PAINT_DIM);
    fprintf(stderr, "[%s%s]", stopped ? "stopped; " : "", text);
    paint_end(stderr);
    fputc('\n', stderr);
}

static bool context_is_full(const Run *r)
{
    uint32_t said;
    if (r->remote) return false;
    (void)coordinator_tokens(engine_coordinator(r->session.engine), 0, &said);
    return said > engine_plan(r->session.engine)->context;
}

static void print_end(const Run *r, bool stopped)
{
    if (context_is_full(r))
        fprintf(
            stderr,
            "\n[the context is full: give more --context or --memory; in a chat, /clear forgets]");
    if (paint_is_terminal(stderr)) print_speed_on_terminal(r, stopped);
    else print_speed_plain(&r->timing);
}

static Error answer_here(Run *r, Why *why)
{
    uint32_t *ids = NULL;
    size_t count = 0;
    Error error = encode(r, &ids, &count, why);
    if (error == OK) error = answer_ids(r, ids, count, why);
    free(ids);
    return error;
}

Error run_answer_make(Run *r, Why *why)
{
    r->timing = (RunTiming){0};
    r->answer_bytes = 0;
    Error error = r->remote ? run_remote_answer(r, why) : answer_here(r, why);
    progress_end(false);
    bool stopped = error == ERR_CANCELLED && r->answer_bytes;
    if (error == OK || (stopped && r->chatting)) print_end(r, stopped);
    return error;
}

void run_answer_close(Run *r)
{
    run_answer_drop(r, 0);
    free(r->answer);
    solo_close(&r->solo);
}
