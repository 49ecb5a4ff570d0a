/* SPDX-License-Identifier: Apache-2.0 */
/* cobord run: one answer to a prompt, or a chat at the terminal.
 *
 *   PROMPT on the command line, or standard input that is no terminal: one answer
 *   otherwise: a chat; Ctrl-C ends an answer, Ctrl-D (or /bye) the chat, /new forgets it
 *
 * The answer goes to standard output; what is about the answer (speed, errors) to standard error. */
#include <editline/readline.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/complain.h"
#include "cli/engine_options.h"
#include "cli/verbs.h"
#include "host/stop.h"
#include "text/detokenizer.h"
#include "text/chat.h"

static const OptionId run_options[] = {OPTION_SYSTEM,   OPTION_RAW,    OPTION_ESCAPES,
                                       OPTIONS_SAMPLER, OPTIONS_DRAFT, OPTIONS_ENGINE,
                                       OPTION_END};
const OptionVerb run_verb = {
    .name = "run",
    .usage = "MODEL [PROMPT]",
    .summary = "Answers PROMPT (or standard input), or starts a chat at the terminal.\n"
               "--temperature 0, or a --seed, gives the same text on every machine and topology.",
    .examples = "  cobord run qwen2.5-coder-1.5b \"Write a C function that reverses a string.\"\n"
                "  cobord run qwen2.5-coder-1.5b --memory 128M --max-tokens 200 < question.txt\n"
                "  cobord run smollm2-135m\n",
    .options = run_options,
    .operands_min = 1,
    .operands_max = 2,
    .operand_names = "MODEL",
};

/* Small enough for the slack of the plan. */
static const uint64_t TOKENIZING_BYTES_FREE = (uint64_t)1 << 20;

enum { RUN_TURNS_MAX = 256, RUN_PROMPT_BYTES_MAX = 16 << 20, RUN_BIAS_MAX = 300 };

typedef struct Run {
    const Options *options;
    EngineSession session;
    SamplerParams params;
    SamplerBias bias[RUN_BIAS_MAX];
    Turn turns[RUN_TURNS_MAX]; /* texts are owned */
    size_t turn_count;
    Chat chat;
    void *chat_memory;
    char *answer; /* text of the answer in progress */
    size_t answer_bytes, answer_room;
} Run;

/* --- Settings --- */

/* "5:-100,17:2.5" */
static Error read_bias(Run *r, const char *text, Why *why)
{
    while (*text) {
        char *end;
        unsigned long id = strtoul(text, &end, 10); /* which would take signs and spaces */
        if (*text < '0' || *text > '9' || *end != ':' || id > UINT32_MAX)
            return error_why(why, ERR_USAGE, "--logit-bias: expected ID:BIAS,ID:BIAS at \"%.*s\"",
                             40, text);
        const char *number = end + 1;
        float bias = strtof(number, &end);
        if (end == number || (*end && *end != ',') || !isfinite(bias))
            return error_why(why, ERR_USAGE, "--logit-bias: expected a number at \"%.*s\"", 40,
                             number);
        if (r->params.bias_count == RUN_BIAS_MAX)
            return error_why(why, ERR_USAGE, "--logit-bias: more than %d entries", RUN_BIAS_MAX);
        r->bias[r->params.bias_count++] = (SamplerBias){(uint32_t)id, bias};
        text = *end ? end + 1 : end;
    }
    return OK;
}

static Error read_params(Run *r, Why *why)
{
    const Options *o = r->options;
    r->params = sampler_defaults();
    r->params.temperature = (float)options_number(o, OPTION_TEMPERATURE);
    r->params.top_k = (uint32_t)options_count(o, OPTION_TOP_K);
    r->params.top_p = (float)options_number(o, OPTION_TOP_P);
    r->params.min_p = (float)options_number(o, OPTION_MIN_P);
    r->params.repetition_penalty = (float)options_number(o, OPTION_REPETITION_PENALTY);
    r->params.presence_penalty = (float)options_number(o, OPTION_PRESENCE_PENALTY);
    r->params.frequency_penalty = (float)options_number(o, OPTION_FREQUENCY_PENALTY);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    r->params.seed = options_given(o, OPTION_SEED)
                         ? options_count(o, OPTION_SEED)
                         : (uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec;
    r->params.bias = r->bias;
    if (options_text(o, OPTION_LOGIT_BIAS))
        TRY(read_bias(r, options_text(o, OPTION_LOGIT_BIAS), why));
    return sampler_check(&r->params, r->session.model.hyper.vocabulary, why);
}

/* \n, \t and \\ become the characters they name; anything else stays. Done once, in place. */
static void read_escapes(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++) {
        const char *what = *from == '\\' && from[1] ? strchr("n\nt\t\\\\", from[1]) : NULL;
        if (what && (what - "n\nt\t\\\\") % 2 == 0) {
            *to++ = what[1];
            from++;
        } else {
            *to++ = *from;
        }
    }
    *to = '\0';
}

/* --- One answer --- */

static Error add_turn(Run *r, const char *role, const char *text, size_t bytes, Why *why)
{
    if (r->turn_count == RUN_TURNS_MAX)
        return error_why(why, ERR_CAPACITY, "more than %d turns; /new starts afresh.",
                         RUN_TURNS_MAX);
    uint8_t *copy = malloc(bytes + 1);
    if (!copy) return error_why(why, ERR_MEMORY, "no memory for a message");
    memcpy(copy, text, bytes);
    r->turns[r->turn_count++] = (Turn){.role = role, .text = copy, .bytes = bytes};
    return OK;
}

static void drop_turns(Run *r, size_t keep)
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
static Error make_chat(Run *r, Why *why)
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
    if (fwrite(text, 1, bytes, stdout) != bytes || fflush(stdout))
        return error_why(why, ERR_IO, "standard output cannot be written");
    return OK;
}

typedef struct Timing {
    uint32_t prompt, generated;
    double start, first, end;
    uint64_t guessed, right;
} Timing;

/* Works until the conversation has its next tokens, or none is left: then *count is 0. */
static Error next_tokens(Run *r, const uint32_t **ids, uint32_t *count, Why *why)
{
    const CoordinatorEvent *event;
    uint32_t events;
    *count = 0;
    do
        if (!engine_step(r->session.engine, &event, &events, why)) return OK;
    while (!events);
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

static Error stream(Run *r, Detokenizer *d, Timing *timing, Why *why)
{
    uint8_t text[DETOKENIZER_OUT_BYTES_MAX];
    size_t bytes;
    bool ended = false, stopped = false;
    while (!ended && !stopped) {
        const uint32_t *ids;
        uint32_t count;
        TRY(next_tokens(r, &ids, &count, why));
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

static Error answer_ids(Run *r, const uint32_t *ids, size_t count, Timing *timing, Why *why)
{
    uint32_t context = engine_plan(r->session.engine)->context;
    if (count > context)
        return error_why(
            why, ERR_CAPACITY,
            "the prompt has %zu tokens and the context %u positions. Shorten it, or give "
            "more --context or --memory; in a chat, /new forgets what was said.",
            count, context);
    uint32_t same = keep_common(r, ids, count);
    uint32_t most = options_given(r->options, OPTION_MAX_TOKENS)
                        ? (uint32_t)options_count(r->options, OPTION_MAX_TOKENS)
                        : UINT32_MAX;
    Coordinator *c = engine_coordinator(r->session.engine);
    uint64_t guessed, right;
    coordinator_count_drafts(c, &guessed, &right);
    *timing = (Timing){.prompt = (uint32_t)count - same, .start = engine_options_seconds()};
    TRY(coordinator_start(c, 0, ids + same, (uint32_t)count - same, most, &r->params, why));
    Detokenizer d;
    detokenizer_start(&d, r->session.model.tokenizer, false);
    for (unsigned i = 0; i < r->options->stop_count; i++)
        TRY(detokenizer_add_stop(&d, r->options->stops[i], strlen(r->options->stops[i]), why));
    r->answer_bytes = 0;
    Error error = stream(r, &d, timing, why);
    timing->end = engine_options_seconds();
    coordinator_count_drafts(c, &timing->guessed, &timing->right);
    timing->guessed -= guessed;
    timing->right -= right;
    return error;
}

static void print_speed(const Run *r, const Timing *t)
{
    uint32_t said;
    (void)coordinator_tokens(engine_coordinator(r->session.engine), 0, &said);
    if (said > engine_plan(r->session.engine)->context)
        fprintf(
            stderr,
            "\n[the context is full: give more --context or --memory; in a chat, /new forgets]");
    double prompt = t->first - t->start, decode = t->end - t->first;
    fprintf(stderr,
            "\n[prompt %" PRIu32 " tokens, %.1f tokens/s; answer %" PRIu32 " tokens, %.1f tokens/s",
            t->prompt, prompt > 0 ? t->prompt / prompt : 0.0, t->generated,
            decode > 0 && t->generated > 1 ? (t->generated - 1) / decode : 0.0);
    if (t->guessed)
        fprintf(stderr, ", %" PRIu64 " of %" PRIu64 " guesses right", t->right, t->guessed);
    fprintf(stderr, "]\n");
}

static Error answer(Run *r, Why *why)
{
    uint32_t *ids = NULL;
    size_t count = 0;
    Timing timing = {0};
    Error error = encode(r, &ids, &count, why);
    if (error == OK) error = answer_ids(r, ids, count, &timing, why);
    free(ids);
    if (error == OK) print_speed(r, &timing);
    return error;
}

/* --- Where prompts come from --- */

static Error read_stdin(char **out, size_t *bytes, Why *why)
{
    size_t room = 1 << 16;
    char *text = malloc(room);
    *bytes = 0;
    while (text) {
        *bytes += fread(text + *bytes, 1, room - *bytes, stdin);
        if (*bytes < room) break;
        if (room >= RUN_PROMPT_BYTES_MAX) {
            free(text);
            return error_why(why, ERR_TOO_LARGE, "more than %d bytes on standard input",
                             RUN_PROMPT_BYTES_MAX);
        }
        room *= 2;
        char *grown = realloc(text, room);
        if (!grown) free(text);
        text = grown;
    }
    if (!text) return error_why(why, ERR_MEMORY, "no memory for standard input");
    *out = text;
    if (ferror(stdin)) return error_why(why, ERR_IO, "standard input cannot be read");
    return OK;
}

static Error one_answer(Run *r, Why *why)
{
    char *prompt = NULL;
    size_t bytes;
    if (r->options->operand_count > 1) {
        prompt = strdup(r->options->operands[1]);
        if (!prompt) return error_why(why, ERR_MEMORY, "no memory for the prompt");
        if (options_switch(r->options, OPTION_ESCAPES)) read_escapes(prompt);
        bytes = strlen(prompt);
    } else {
        Error error = read_stdin(&prompt, &bytes, why);
        if (error != OK) {
            free(prompt);
            return error;
        }
    }
    Error error = add_turn(r, "user", prompt, bytes, why);
    free(prompt);
    return error == OK ? answer(r, why) : error;
}

static bool add_system(Run *r, Why *why, Error *error)
{
    const char *system = options_text(r->options, OPTION_SYSTEM);
    *error = system ? add_turn(r, "system", system, strlen(system), why) : OK;
    return *error == OK;
}

/* One round of the chat. Result  false when the person is done. */
static bool chat_turn(Run *r, char *line, size_t system_turns)
{
    if (strcmp(line, "/bye") == 0) return false;
    if (strcmp(line, "/new") == 0) {
        drop_turns(r, system_turns);
        fprintf(stderr, "[forgotten]\n");
        return true;
    }
    if (line[0] == '/') {
        fprintf(stderr, "/new forgets the conversation, /bye ends it\n");
        return true;
    }
    if (!line[strspn(line, " \t")]) return true;
    add_history(line);
    Why why = {{0}};
    size_t before = r->turn_count;
    Error error = add_turn(r, "user", line, strlen(line), &why);
    if (error == OK) error = answer(r, &why);
    if (error == ERR_CANCELLED) {
        stop_clear();
        fprintf(stderr, "\n[stopped]\n");
        error = OK;
    }
    if (error == OK)
        error = add_turn(r, "assistant", r->answer ? r->answer : "", r->answer_bytes, &why);
    if (error == OK) return true;
    drop_turns(r, before);
    complain(error, &why, r->options->operands[0], NULL);
    return error != ERR_IO;
}

static void chat(Run *r)
{
    size_t system_turns = r->turn_count;
    fprintf(stderr,
            "%s: context %" PRIu32
            " tokens. /new forgets the conversation, /bye or Ctrl-D ends it.\n",
            r->options->operands[0], engine_plan(r->session.engine)->context);
    for (bool more = true; more;) {
        char *line = readline("> ");
        bool interrupted = stop_asked();
        if (interrupted) stop_clear();
        if (!line && interrupted) {
            fputc('\n', stderr);
            continue;
        }
        if (!line) break;
        more = chat_turn(r, line, system_turns);
        free(line);
    }
    fputc('\n', stderr);
}

static int run_all(Run *r)
{
    Why why = {{0}};
    Error error = read_params(r, &why);
    if (error == OK) error = make_chat(r, &why);
    if (error == OK && add_system(r, &why, &error)) {
        if (r->options->operand_count > 1 || !isatty(STDIN_FILENO)) error = one_answer(r, &why);
        else chat(r);
    }
    if (error == OK) return 0;
    if (r->answer_bytes) fprintf(stderr, "\n"); /* the answer so far stands on a line of its own */
    return complain(error, &why, r->options->operands[0], NULL);
}

int cli_run(int argc, char **argv)
{
    static Run r;
    Options o;
    int code;
    if (!options_read(&o, &run_verb, argc, argv, &code)) return code;
    r.options = &o;
    code = engine_options_open(&o, o.operands[0], MODEL_TOKENIZER | MODEL_WEIGHTS,
                               &(EngineNeeds){.drafts = (uint32_t)options_count(&o, OPTION_DRAFTS)},
                               &r.session);
    if (code) return code;
    code = run_all(&r);
    drop_turns(&r, 0);
    free(r.answer);
    free(r.chat_memory);
    engine_options_close(&r.session);
    return code;
}
