/* SPDX-License-Identifier: Apache-2.0 */
/* cobord detokenize: ids to text, through the same streaming detokenizer that answers go through. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/complain.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/token_lines.h"
#include "cli/verbs.h"
#include "host/open_model.h"
#include "text/detokenizer.h"

static const OptionId detokenize_options[] = {OPTION_END};
const OptionVerb detokenize_verb = {
    .name = "detokenize",
    .usage = "MODEL < IDS.jsonl",
    .summary = "Reads lines {\"ids\":[...]} and prints a line {\"text\":...} for each. Special "
               "tokens are\n"
               "rendered; bytes that are no UTF-8 become U+FFFD.",
    .examples = "  echo '{\"ids\":[9707,1879]}' | cobord detokenize qwen2.5-coder-1.5b\n"
                "  cobord detokenize qwen2.5-coder-1.5b < ids.jsonl > texts.jsonl\n",
    .options = detokenize_options,
    .operands_min = 1,
    .operands_max = 1,
    .operand_names = "MODEL",
};

typedef struct Text {
    uint8_t *bytes;
    size_t count, room;
} Text;

static Error make_room(Text *text, Why *why)
{
    if (text->room - text->count >= DETOKENIZER_OUT_BYTES_MAX) return OK;
    size_t room = 2 * text->room + DETOKENIZER_OUT_BYTES_MAX;
    uint8_t *bytes = realloc(text->bytes, room);
    if (!bytes) return error_why(why, ERR_MEMORY, "%zu bytes of text", room);
    text->bytes = bytes;
    text->room = room;
    return OK;
}

static Error decode(const Tokenizer *t, yyjson_val *ids, Text *text, Why *why)
{
    Detokenizer d;
    size_t index, max, bytes;
    bool stopped;
    yyjson_val *id;
    detokenizer_start(&d, t, true);
    yyjson_arr_foreach(ids, index, max, id)
    {
        TRY(make_room(text, why));
        if (!yyjson_is_uint(id) || yyjson_get_uint(id) >= tokenizer_vocab(t)->tokens)
            return error_why(why, ERR_RANGE, "ids[%zu] is no id of the vocabulary (0 to %u)", index,
                             tokenizer_vocab(t)->tokens - 1);
        TRY(detokenizer_push(&d, (uint32_t)yyjson_get_uint(id), text->bytes + text->count,
                             text->room - text->count, &bytes, &stopped, why));
        text->count += bytes;
    }
    TRY(make_room(text, why));
    TRY(detokenizer_end(&d, text->bytes + text->count, text->room - text->count, &bytes, why));
    text->count += bytes;
    return OK;
}

static Error print_text(const Text *text, Why *why)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *line = yyjson_mut_obj(doc);
    yyjson_mut_obj_add_strn(doc, line, "text", (const char *)text->bytes, text->count);
    yyjson_mut_doc_set_root(doc, line);
    char *json = yyjson_mut_write(doc, 0, NULL);
    if (json) printf("%s\n", json);
    free(json);
    yyjson_mut_doc_free(doc);
    return json ? OK : error_why(why, ERR_MEMORY, "%zu bytes of text", text->count);
}

static Error detokenize_line(void *context, yyjson_val *line, Why *why)
{
    yyjson_val *ids = yyjson_obj_get(line, "ids");
    if (!yyjson_is_arr(ids)) return error_why(why, ERR_FORMAT, "no member \"ids\" that is a list");
    Text text = {0};
    Error error = decode(context, ids, &text, why);
    if (error == OK) error = print_text(&text, why);
    free(text.bytes);
    return error;
}

int cli_detokenize(int argc, char **argv)
{
    static OpenModel model;
    Options o;
    int code;
    if (!options_read(&o, &detokenize_verb, argc, argv, &code)) return code;
    Why why = {{0}};
    Error error = open_model_open(o.operands[0], MODEL_TOKENIZER, progress_tell(), &model, &why);
    progress_end(error == OK);
    if (error != OK) return complain(error, &why, o.operands[0], NULL);
    code = token_lines_each(detokenize_line, model.tokenizer);
    open_model_close(&model);
    return code;
}
