/* SPDX-License-Identifier: Apache-2.0 */
/* cobord tokenize: text to ids. Specials in the text are recognised, no BOS is added, and nothing is
 * unescaped twice: what JSON says, or what standard input holds, is the text. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/complain.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/token_lines.h"
#include "cli/verbs.h"
#include "host/open_model.h"

static const OptionId tokenize_options[] = {OPTION_JSON_LINES, OPTION_END};
const OptionVerb tokenize_verb = {
    .name = "tokenize",
    .usage = "MODEL [--json-lines] < TEXT",
    .summary = "Prints the token ids of standard input as one line, separated by commas. With "
               "--json-lines\n"
               "every line {\"text\":...} gives a line {\"ids\":[...]}. Special tokens written in "
               "the text are\n"
               "recognised; no BOS is added.",
    .examples = "  printf 'Hello world' | cobord tokenize qwen2.5-coder-1.5b\n"
                "  cobord tokenize qwen2.5-coder-1.5b --json-lines < texts.jsonl\n",
    .options = tokenize_options,
    .operands_min = 1,
    .operands_max = 1,
    .operand_names = "MODEL",
};

static Error encode(const Tokenizer *t, const uint8_t *text, size_t bytes, Why *why, uint32_t **ids,
                    size_t *count)
{
    size_t ids_max = tokenizer_ids_max(t, bytes), scratch_bytes = tokenizer_scratch_bytes(t, bytes);
    void *memory = malloc(scratch_bytes);
    *ids = malloc(ids_max * sizeof **ids);
    Error error = OK;
    if (memory && *ids) {
        Arena scratch = arena_make(memory, scratch_bytes);
        error = tokenizer_encode(t, text, bytes, TOKENIZE_SPECIALS, &scratch, *ids, ids_max, count,
                                 why);
    } else {
        error =
            error_why(why, ERR_MEMORY, "%zu bytes to tokenize a text of %zu", scratch_bytes, bytes);
    }
    free(memory);
    return error;
}

static void print_ids(const uint32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) printf("%s%" PRIu32, i ? "," : "", ids[i]);
}

static Error tokenize_line(void *context, yyjson_val *line, Why *why)
{
    const Tokenizer *t = context;
    yyjson_val *text = yyjson_obj_get(line, "text");
    if (!yyjson_is_str(text))
        return error_why(why, ERR_FORMAT, "no member \"text\" that is a string");
    uint32_t *ids;
    size_t count;
    Error error =
        encode(t, (const uint8_t *)yyjson_get_str(text), yyjson_get_len(text), why, &ids, &count);
    if (error == OK) {
        printf("{\"ids\":[");
        print_ids(ids, count);
        printf("]}\n");
    }
    free(ids);
    return error;
}

static int tokenize_all(const Tokenizer *t)
{
    uint8_t *text = NULL;
    uint32_t *ids = NULL;
    size_t bytes, count;
    Why why = {{0}};
    Error error = token_lines_all(&text, &bytes, &why);
    if (error == OK) error = encode(t, text, bytes, &why, &ids, &count);
    if (error == OK) {
        print_ids(ids, count);
        printf("\n");
    }
    free(text);
    free(ids);
    return error == OK ? 0 : complain(error, &why, "standard input", NULL);
}

int cli_tokenize(int argc, char **argv)
{
    static OpenModel model;
    Options o;
    int code;
    if (!options_read(&o, &tokenize_verb, argc, argv, &code)) return code;
    Why why = {{0}};
    Error error = open_model_open(o.operands[0], MODEL_TOKENIZER, progress_tell(), &model, &why);
    progress_end(error == OK);
    if (error != OK) return complain(error, &why, o.operands[0], NULL);
    code = options_switch(&o, OPTION_JSON_LINES) ? token_lines_each(tokenize_line, model.tokenizer)
                                                 : tokenize_all(model.tokenizer);
    open_model_close(&model);
    return code;
}
