/* SPDX-License-Identifier: Apache-2.0 */
/* cobord info: what a knot or a GGUF file holds. Texts of the file are printed with control
 * characters escaped: a file must not be able to write to the terminal. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/complain.h"
#include "cli/info_json.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "host/gguf_file.h"
#include "host/knot_file.h"
#include "host/locate.h"
#include "host/places.h"
#include "host/whole.h"

enum { INFO_ARENA_BYTES = 40 << 20 };

static const OptionId info_options[] = {OPTION_JSON, OPTION_END};
const OptionVerb info_verb = {
    .name = "info",
    .usage = "FILE",
    .summary =
        "Shows the hyper-parameters and tensors of a .knot or .gguf file. Reads only its header.",
    .examples = "  cobord info model.knot\n"
                "  cobord info model.gguf --json\n",
    .options = info_options,
    .operands_min = 1,
    .operands_max = 1,
    .operand_names = "FILE",
};

static void info_line(const char *name, const char *value)
{
    if (!value[0]) return;
    printf("  %-24s", name);
    options_print_safely(stdout, value);
    putchar('\n');
}

static void info_number(const char *name, uint64_t value)
{
    if (value) printf("  %-24s%" PRIu64 "\n", name, value);
}

static void info_float(const char *name, float value)
{
    if (value != 0.0f) printf("  %-24s%.9g\n", name, (double)value);
}

static void info_model(const KnotModel *m)
{
    puts("model");
    info_line("architecture", m->architecture);
    info_line("name", m->name);
    info_number("layers", m->layers);
    info_number("hidden", m->hidden);
    info_number("ffn", m->ffn);
    info_number("heads", m->heads);
    info_number("kv heads", m->kv_heads);
    info_number("head dim", m->head_dim);
    info_number("vocabulary", m->vocabulary);
    info_number("context", m->context);
    info_float("norm epsilon", m->norm_epsilon);
    info_float("rope base", m->rope_base);
    info_float("rope base local", m->rope_base_local);
    info_number("rope dim", m->rope_dim);
    info_line("rope scaling", m->rope_scaling);
    info_float("rope scale factor", m->rope_scale_factor);
    info_number("rope original context", m->rope_original_context);
    info_number("sliding window", m->sliding_window);
    info_number("sliding window pattern", m->sliding_window_pattern);
}

static void info_tensor(const char *name, BlockType type, const char *layout, uint32_t rows,
                        uint32_t cols, uint64_t offset, uint64_t bytes)
{
    char shape[32];
    if (rows == 1) (void)snprintf(shape, sizeof shape, "%" PRIu32, cols);
    else (void)snprintf(shape, sizeof shape, "%" PRIu32 " x %" PRIu32, rows, cols);
    printf("  ");
    options_print_safely(stdout, name);
    printf("%*s %-5s %-6s %17s %14" PRIu64 " %12" PRIu64 "\n",
           (int)(strlen(name) < 34 ? 34 - strlen(name) : 0), "", block_traits(type)->name, layout,
           shape, offset, bytes);
}

static const char *info_pre_name(VocabPre pre)
{
    switch (pre) {
    case VOCAB_PRE_QWEN2: return "qwen2";
    case VOCAB_PRE_GPT2: return "gpt-2";
    case VOCAB_PRE_LLAMA_BPE: return "llama-bpe";
    case VOCAB_PRE_SMOLLM: return "smollm";
    default: return "none";
    }
}

static void info_print_knot(const char *path, const KnotFile *f, const Vocab *vocab)
{
    const Knot *k = &f->knot;
    options_print_safely(stdout, path);
    printf(": knot, version %u\n", k->version);
    printf("  %-24s%016" PRIx64 "\n", "id", k->id);
    info_number("file bytes", k->file_bytes);
    info_number("payload at", k->payload_offset);
    info_model(&k->model);
    if (vocab) {
        puts("tokenizer");
        info_line("kind", vocab->model == VOCAB_BPE ? "byte-level BPE" : "SentencePiece");
        info_line("pre-tokenizer", info_pre_name(vocab->pre));
        info_number("tokens", vocab->tokens);
        info_number("merges", vocab->merges);
        info_number("chat template bytes", vocab->chat_template_bytes);
    }
    printf("%" PRIu32 " tensors%s\n", k->tensor_count,
           k->tied_head ? " (output_weight repeats token_embd_weight)" : "");
    for (uint32_t i = 0; i < k->tensor_count; i++) {
        const KnotTensor *t = &k->tensors[i];
        info_tensor(t->name, t->type, layout_name(t->layout), t->rows, t->cols, t->offset,
                    t->bytes);
    }
}

static Error info_knot(const char *path, bool json, Why *why)
{
    KnotFile file;
    Vocab vocab;
    TRY(knot_file_open(path, &file, why));
    bool tokens = file.knot.tokenizer.bytes != 0;
    Error e = tokens ? knot_file_vocab(&file, &vocab, why) : OK;
    if (e == OK && json) info_json_knot(&file.knot, tokens ? &vocab : NULL);
    else if (e == OK) info_print_knot(path, &file, tokens ? &vocab : NULL);
    knot_file_close(&file);
    return e;
}

static void info_print_key(const Gguf *g, const GgufKey *key)
{
    char text[80];
    printf("  %-40s ", key->name);
    if (key->type == GGUF_ARRAY)
        printf("%" PRIu64 " of %s", key->count, gguf_value_type_name(key->element));
    else if (key->type == GGUF_STRING) {
        size_t bytes = gguf_file_text(g, key, text, sizeof text);
        options_print_safely(stdout, text);
        if (bytes < key->bytes) printf(".. (%" PRIu64 " bytes)", key->bytes);
    } else {
        info_json_number(key);
    }
    putchar('\n');
}

static void info_print_gguf(const char *path, const Gguf *g)
{
    options_print_safely(stdout, path);
    printf(": GGUF, version %" PRIu32 "%s\n%" PRIu32 " keys\n", g->version,
           g->file_count > 1 ? ", in parts" : "", g->key_count);
    for (uint32_t i = 0; i < g->key_count; i++) info_print_key(g, &g->keys[i]);
    printf("%" PRIu32 " tensors\n", g->tensor_count);
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        const GgufTensor *t = &g->tensors[i];
        info_tensor(t->name, t->type, "rows", t->rows, t->cols, t->offset, t->bytes);
    }
}

static Error info_gguf(const char *path, bool json, Why *why)
{
    GgufFiles files = {0};
    Gguf gguf;
    void *memory = malloc(INFO_ARENA_BYTES);
    if (!memory) return error_why(why, ERR_MEMORY, "the file's tables");
    Arena arena = arena_make(memory, INFO_ARENA_BYTES);
    Error e = gguf_file_open(path, &files, why);
    if (e == OK) e = gguf_read(files.ports, files.count, &arena, &gguf, why);
    if (e == OK && json) info_json_gguf(&gguf);
    else if (e == OK) info_print_gguf(path, &gguf);
    gguf_file_close(&files);
    free(memory);
    return e;
}

/* Only a file that says so itself is read as GGUF; all else gets the knot reader's words. */
static bool info_is_gguf(const char *path)
{
    char magic[4];
    int fd = whole_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return false;
    bool is =
        read(fd, magic, sizeof magic) == (ssize_t)sizeof magic && memcmp(magic, "GGUF", 4) == 0;
    (void)close(fd);
    return is;
}

int cli_info(int argc, char **argv)
{
    Options o;
    int code;
    if (!options_read(&o, &info_verb, argc, argv, &code)) return code;
    Why why = {{0}};
    char path[PLACES_PATH_BYTES];
    bool json = options_switch(&o, OPTION_JSON);
    Error error = locate_file(o.operands[0], path, sizeof path, &why);
    if (error == OK)
        error = info_is_gguf(path) ? info_gguf(path, json, &why) : info_knot(path, json, &why);
    return error == OK ? 0 : complain(error, &why, o.operands[0], NULL);
}
