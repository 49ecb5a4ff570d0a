/* SPDX-License-Identifier: Apache-2.0 */
/* cobord run: one answer to a prompt, or a chat at the terminal.
 *
 *   PROMPT on the command line, or standard input that is no terminal: one answer
 *   otherwise: a chat (run_chat.c)
 *
 * The answer goes to standard output; what is about the answer (speed, errors) to standard error. */
#include "cli/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/complain.h"
#include "cli/server_address.h"
#include "cli/verbs.h"
#include "host/stop.h"

static const OptionId run_options[] = {
    OPTION_URL,     OPTION_API_KEY,  OPTION_TLS_CA, OPTION_SYSTEM,  OPTION_RAW,
    OPTION_ESCAPES, OPTIONS_SAMPLER, OPTIONS_DRAFT, OPTIONS_ENGINE, OPTION_END};
const OptionVerb run_verb = {
    .name = "run",
    .usage = "MODEL [PROMPT]",
    .summary = "Answers PROMPT (or standard input), or starts a chat at the terminal, where /help "
               "shows what there is. MODEL is a name of the zoo (cobord list), the path of a .gguf "
               "or .knot file, or an address; what is not here yet must be pulled first.\n\n"
               "--temperature 0, or a --seed, gives the same text on every machine and topology. "
               "--memory says what a process may take: weights beyond it are read from disk.",
    .examples = "  cobord run qwen2.5-coder-1.5b \"Write a C function that reverses a string.\"\n"
                "  cobord run qwen2.5-coder-1.5b --memory 128M --max-tokens 200 < question.txt\n"
                "  cobord run smollm2-135m\n"
                "  cobord run qwen2.5-coder-1.5b --url http://127.0.0.1:8080\n",
    .options = run_options,
    .operands_min = 1,
    .operands_max = 2,
    .operand_names = "MODEL",
};

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

static Error read_stdin(char **out, size_t *bytes, Why *why)
{
    size_t room = 1 << 16;
    char *text = malloc(room);
    *bytes = 0;
    while (text) {
        *bytes += fread(text + *bytes, 1, room - *bytes, stdin);
        if (*bytes < room) break;
        if (room >= RUN_TEXT_BYTES_MAX) {
            free(text);
            return error_why(why, ERR_TOO_LARGE, "more than %d bytes on standard input",
                             RUN_TEXT_BYTES_MAX);
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
    Error error = run_answer_add(r, "user", prompt, bytes, why);
    free(prompt);
    return error == OK ? run_answer_make(r, why) : error;
}

static Error add_system(Run *r, Why *why)
{
    const char *system = options_text(r->options, OPTION_SYSTEM);
    return system ? run_answer_add(r, "system", system, strlen(system), why) : OK;
}

static int run_all(Run *r)
{
    Why why = {{0}};
    bool one = r->options->operand_count > 1 || !isatty(STDIN_FILENO);
    Error error = run_params_read(r, &why);
    if (error == OK && !r->remote) error = run_answer_open(r, &why);
    if (error == OK) error = add_system(r, &why);
    if (error == OK) error = one ? one_answer(r, &why) : run_chat(r, &why);
    if (error == OK) return 0;
    if (ferror(stdout)) return complain_output();
    if (one && r->answer_bytes)
        fprintf(stderr, "\n"); /* the answer so far stands on its own line */
    return complain(error, &why, run_thing(r),
                    r->remote ? server_address_advice(&why, NULL) : NULL);
}

static int run_here(Run *r)
{
    const Options *o = r->options;
    const EngineNeeds needs = {.drafts = (uint32_t)options_count(o, OPTION_DRAFTS)};
    int code = engine_options_open(o, o->operands[0], MODEL_TOKENIZER | MODEL_WEIGHTS, &needs,
                                   &r->session);
    if (code) return code;
    code = run_all(r);
    run_answer_close(r);
    engine_options_close(&r->session);
    return code;
}

static int run_there(Run *r)
{
    if (options_switch(r->options, OPTION_RAW))
        return complain_usage("run: a server has no --raw; leave out --url or --raw");
    r->remote = true;
    stop_install();
    int code = run_all(r);
    run_answer_close(r);
    return code;
}

int cli_run(int argc, char **argv)
{
    static Run r;
    Options o;
    int code;
    if (!options_read(&o, &run_verb, argc, argv, &code)) return code;
    r.options = &o;
    return options_text(&o, OPTION_URL) ? run_there(&r) : run_here(&r);
}
