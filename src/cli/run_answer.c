/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation to ids, ids to the engine, tokens to the screen. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/paint.h"
#include "cli/progress.h"
#include "cli/run.h"
#include "text/detokenizer.h"

/* Small enough for the slack of the plan. */
static const uint64_t TOKENIZING_BYTES_FREE = (uint64_t)1 << 20;

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

/* Tokenizing takes many bytes for each of the text; the budget is a promise here as well. */
static Error check_tokenizing(const Run *r, uint64_t bytes, Why *why)
{
    if (bytes <= TOKENIZING_BYTES_FREE || bytes <= engine_memory_left(r->session.engine)) return OK;
    return error_why(
        why, ERR_MEMORY,
        "tokenizing the prompt takes %llu MiB, more than is left. Shorten it, or give more --memory.",
        (unsigned long long)(bytes >> 20));
}

/* The ids of what was said last, as it stands. Owner  the caller frees *ids. */
static Error encode_raw(Run *r, uint32_t **ids, size_t *count, Why *why)
{
    const Tokenizer *t = r->session.model.tokenizer;
    const Turn *last = &r->turns[r->turn_count - 1];
    size_t max = tokenizer_ids_max(t, last->bytes), bytes = tokenizer_scratch_bytes(t, last->bytes);
    TRY(check_tokenizing(r, bytes + max * sizeof **ids, why));
    void *memory = malloc(bytes);
    *ids = malloc(max * sizeof **ids);
    Error error =
        memory && *ids ? OK : error_why(why, ERR_MEMORY, "no memory to tokenize the prompt");
    if (error == OK) {
        Arena scratch = arena_make(memory, bytes);
        error = tokenizer_encode(t, last->text, last->bytes, TOKENIZE_SPECIALS | TOKENIZE_BOS,
                                 &scratch, *ids, max, count, why);
    }
    free(memory);
    return error;
}

static Error encode_text(Run *r, const ChatTurns *turns, JinjaText text, uint32_t **ids,
                         size_t *count, Why *why)
{
    size_t max = chat_ids_max(&r->chat, turns, text),
           bytes = chat_scratch_bytes(&r->chat, turns, text);
    TRY(check_tokenizing(r, bytes + max * sizeof **ids, why));
    void *memory = malloc(bytes);
    *ids = malloc(max * sizeof **ids);
    Error error =
        memory && *ids ? OK : error_why(why, ERR_MEMORY, "no memory to tokenize the prompt");
    if (error == OK) {
        Arena scratch = arena_make(memory, bytes);
        error = chat_encode(&r->chat, turns, text, &scratch, *ids, max, count, why);
    }
    free(memory);
    return error;
}

/* The ids of the whole conversation. Owner  the caller frees *ids. */
static Error encode(Run *r, uint32_t **ids, size_t *count, Why *why)
{
    if (options_switch(r->options, OPTION_RAW) || r->chat.way == CHAT_NONE)
        return encode_raw(r, ids, count, why);
    const ChatTurns turns = {
        .turns = r->turns, .count = r->turn_count, .now_s = (int64_t)time(NULL)};
    JinjaText text;
    size_t bytes = chat_text_bytes(&r->chat, &turns);
    void *memory = malloc(bytes);
    if (!memory) return error_why(why, ERR_MEMORY, "no memory for the conversation");
    Arena arena = arena_make(memory, bytes);
    Error error = chat_text(&r->chat, &turns, &arena, &text, why);
    if (error == OK) error = encode_text(r, &turns, text, ids, count, why);
    free(memory);
    return error;
}

/* The model's chat template, or the built-in turns. */
Error run_answer_open(Run *r, Why *why)
{
    const Tokenizer *t = r->session.model.tokenizer;
    size_t bytes = chat_bytes(t), probe_bytes = chat_probe_bytes(t);
    void *probe_memory = malloc(probe_bytes);
    r->chat_memory = malloc(bytes);
    if (r->chat_memory && probe_memory) {
        Arena arena = arena_make(r->chat_memory, bytes),
              probe = arena_make(probe_memory, probe_bytes);
        chat_make(t, &arena, &probe, &r->chat);
    }
    free(probe_memory);
    if (!r->chat.tokenizer) return error_why(why, ERR_MEMORY, "no memory for the chat template");
    if (r->chat.fault.text[0])
        fprintf(stderr, "cobord: the model's chat template is not used: %s\n", r->chat.fault.text);
    return OK;
}

/* --- Tokens --- */

/* Forgets what no longer agrees with `ids`; what agrees need not be computed again. */
static uint32_t keep_common(Run *r, const uint32_t *ids, size_t count)
{
    uint32_t said, same = 0;
    Coordinator *c = engine_coordinator(r->session.engine);
    const uint32_t *tokens = coordinator_tokens(c, 0, &said);
    while (same < said && same < count && tokens[same] == ids[same]) same++;
    coordinator_truncate(c, 0, same);
    return same;
}

static Error show(Run *r, const uint8_t *text, size_t bytes, Why *why)
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
static void show_reading(const Run *r, uint32_t total, double start)
{
    if (engine_options_seconds() - start < 0.5) return;
    progress_line("reading %u of %u tokens",
                  coordinator_fed(engine_coordinator(r->session.engine), 0), total);
}

/* Works until the conversation has its next tokens, or none is left: then *count is 0. `reading`
 * is the prompt's length while its first answer is awaited. */
static Error next_tokens(Run *r, uint32_t reading, double start, const uint32_t **ids,
                         uint32_t *count, Why *why)
{
    const CoordinatorEvent *event;
    uint32_t events;
    *count = 0;
    for (;;) {
        if (!engine_step(r->session.engine, &event, &events, why)) return OK;
        if (events) break;
        if (reading) show_reading(r, reading, start);
    }
    progress_end(false);
    *ids = event->tokens;
    *count = event->token_count;
    return event->error;
}

/* Shows one token. */
static Error show_token(Run *r, Detokenizer *d, uint32_t id, bool *ended, bool *stopped, Why *why)
{
    uint8_t text[DETOKENIZER_OUT_BYTES_MAX];
    size_t bytes;
    *ended = tokenizer_is_end(r->session.model.tokenizer, id);
    if (*ended) return OK;
    TRY(detokenizer_push(d, id, text, sizeof text, &bytes, stopped, why));
    return show(r, text, bytes, why);
}

static Error stream(Run *r, Detokenizer *d, uint32_t prompt, RunTiming *timing, Why *why)
{
    uint8_t text[DETOKENIZER_OUT_BYTES_MAX];
    size_t bytes;
    bool ended = false, stopped = false;
    while (!ended && !stopped) {
        const uint32_t *ids;
        uint32_t count;
        TRY(next_tokens(r, timing->generated ? 0 : prompt, timing->start, &ids, &count, why));
        if (!timing->generated) timing->first = engine_options_seconds();
        if (!count) break;
        for (uint32_t i = 0; i < count && !ended && !stopped; i++) {
            timing->generated++;
            TRY(show_token(r, d, ids[i], &ended, &stopped, why));
        }
    }
    coordinator_stop(engine_coordinator(r->session.engine), 0);
    if (stopped) return OK;
    TRY(detokenizer_end(d, text, sizeof text, &bytes, why));
    return show(r, text, bytes, why);
}

static Error answer_ids(Run *r, const uint32_t *ids, size_t count, RunTiming *timing, Why *why)
{
    uint32_t context = engine_plan(r->session.engine)->context;
    if (count > context)
        return error_why(
            why, ERR_CAPACITY,
            "the prompt has %zu tokens and the context %u positions. Shorten it, or give "
            "more --context or --memory; in a chat, /clear forgets what was said.",
            count, context);
    uint32_t same = keep_common(r, ids, count);
    uint32_t most = options_given(r->options, OPTION_MAX_TOKENS)
                        ? (uint32_t)options_count(r->options, OPTION_MAX_TOKENS)
                        : UINT32_MAX;
    Coordinator *c = engine_coordinator(r->session.engine);
    uint64_t guessed, right;
    coordinator_count_drafts(c, &guessed, &right);
    *timing = (RunTiming){.prompt = (uint32_t)count - same, .start = engine_options_seconds()};
    TRY(coordinator_start(c, 0, ids + same, (uint32_t)count - same, most, &r->params, why));
    Detokenizer d;
    detokenizer_start(&d, r->session.model.tokenizer, false);
    for (unsigned i = 0; i < r->options->stop_count; i++)
        TRY(detokenizer_add_stop(&d, r->options->stops[i], strlen(r->options->stops[i]), why));
    r->answer_bytes = 0;
    Error error = stream(r, &d, (uint32_t)count, timing, why);
    timing->end = engine_options_seconds();
    coordinator_count_drafts(c, &timing->guessed, &timing->right);
    timing->guessed -= guessed;
    timing->right -= right;
    return error;
}

void run_answer_describe(const RunTiming *t, bool all, char *out, size_t out_bytes)
{
    double prompt = t->first - t->start, decode = t->end - t->first;
    char more[80] = "", guesses[64] = "";
    if (all)
        (void)snprintf(more, sizeof more, ", prompt %" PRIu32 " tokens, %.1f tokens/s", t->prompt,
                       prompt > 0 ? t->prompt / prompt : 0.0);
    if (all && t->guessed)
        (void)snprintf(guesses, sizeof guesses, ", %" PRIu64 " of %" PRIu64 " guesses right",
                       t->right, t->guessed);
    (void)snprintf(out, out_bytes, "%" PRIu32 " token%s, %.1f tokens/s, first after %.2f s%s%s",
                   t->generated, t->generated == 1 ? "" : "s",
                   decode > 0 && t->generated > 1 ? (t->generated - 1) / decode : 0.0, prompt, more,
                   guesses);
}

/* Scripts read this line. */
static void print_speed_plain(const RunTiming *t)
{
    double prompt = t->first - t->start, decode = t->end - t->first;
    fprintf(stderr,
            "\n[prompt %" PRIu32 " tokens, %.1f tokens/s; answer %" PRIu32 " tokens, %.1f tokens/s",
            t->prompt, prompt > 0 ? t->prompt / prompt : 0.0, t->generated,
            decode > 0 && t->generated > 1 ? (t->generated - 1) / decode : 0.0);
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

static void print_end(const Run *r, bool stopped)
{
    uint32_t said;
    (void)coordinator_tokens(engine_coordinator(r->session.engine), 0, &said);
    if (said > engine_plan(r->session.engine)->context)
        fprintf(
            stderr,
            "\n[the context is full: give more --context or --memory; in a chat, /clear forgets]");
    if (paint_is_terminal(stderr)) print_speed_on_terminal(r, stopped);
    else print_speed_plain(&r->timing);
}

Error run_answer_make(Run *r, Why *why)
{
    uint32_t *ids = NULL;
    size_t count = 0;
    r->timing = (RunTiming){0};
    r->answer_bytes = 0;
    Error error = encode(r, &ids, &count, why);
    if (error == OK) error = answer_ids(r, ids, count, &r->timing, why);
    progress_end(false);
    free(ids);
    bool stopped = error == ERR_CANCELLED && r->answer_bytes;
    if (error == OK || (stopped && r->chatting)) print_end(r, stopped);
    return error;
}

void run_answer_close(Run *r)
{
    run_answer_drop(r, 0);
    free(r->answer);
    free(r->chat_memory);
}
