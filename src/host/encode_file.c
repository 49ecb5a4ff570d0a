/* SPDX-License-Identifier: Apache-2.0 */
#include "host/encode_file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "host/encode_loop.h"
#include "host/gguf_file.h"
#include "host/pool.h"
#include "knot/gguf_model.h"
#include "knot/gguf_vocab.h"
#include "model/phase.h"

enum { ARENA_BYTES = 56 << 20 };

/* --- before anything is written --- */

/* The knot would replace the download it is made from. */
static Error encode_file_apart(const GgufFiles *files, const char *path, Why *why)
{
    struct stat out, in;
    if (stat(path, &out) != 0) return OK;
    for (uint32_t i = 0; i < files->count; i++)
        if (fstat(files->files[i].descriptor, &in) == 0 && in.st_dev == out.st_dev &&
            in.st_ino == out.st_ino)
            return error_why(why, ERR_USAGE, "%s is a file that is read; write to another name",
                             path);
    return OK;
}

static Error encode_file_check_layers(const Knot *knot, Why *why)
{
    Hyper hyper;
    PhaseMatrix matrices[PHASE_MATRICES_MAX];
    LayerNorms norms;
    uint32_t count;
    TRY(hyper_from_knot(knot, &hyper, why));
    for (uint32_t layer = 0; layer < hyper.layers; layer++) {
        TRY(phase_layer_norms(knot, &hyper, layer, &norms, why));
        for (unsigned phase = 0; phase < PHASES; phase++)
            TRY(phase_matrices(knot, &hyper, layer, (Phase)phase, matrices, &count, why));
    }
    return OK;
}

/* What no verb could use is refused here, not after minutes of writing. */
static Error encode_file_usable(const Gguf *gguf, const KnotModel *model, Arena *arena, Why *why)
{
    size_t mark = arena_mark(arena);
    Knot knot = {.version = 1, .model = *model, .tensor_count = gguf->tensor_count};
    knot.tensors = ARENA_NEW(arena, KnotTensor, gguf->tensor_count);
    if (!knot.tensors) return error_why(why, ERR_MEMORY, "%u tensors", gguf->tensor_count);
    TRY(names_make(&knot.names, gguf->tensor_count, arena, why));
    for (uint32_t i = 0; i < gguf->tensor_count; i++) {
        const GgufTensor *t = &gguf->tensors[i];
        knot.tensors[i] =
            (KnotTensor){t->knot_name, t->type, LAYOUT_ROWS, t->rows, t->cols, 0, t->bytes};
        (void)names_put(&knot.names, t->knot_name, strlen(t->knot_name), i);
    }
    Error error = encode_file_check_layers(&knot, why);
    arena_reset(arena, mark);
    return error;
}

/* --- the whole --- */

static Error encode_file_source(void *context, uint32_t source, uint64_t offset, uint8_t *out,
                                size_t bytes, Why *why)
{
    const Gguf *gguf = context;
    const GgufTensor *t = &gguf->tensors[source];
    const CursorPort *port = &gguf->files[t->file];
    return port->read(port->file, t->offset + offset, out, bytes, why);
}

static Error encode_file_files(const GgufFiles *files, const char *path, unsigned version,
                               const Parallel *parallel, Arena *arena, const Tell *tell, Why *why)
{
    Gguf gguf;
    KnotModel model;
    EncodeInput input = {0};
    uint8_t *vocab = NULL;
    TRY(gguf_read(files->ports, files->count, arena, &gguf, why));
    TRY(gguf_model_read(&gguf, &model, why));
    TRY(gguf_model_check_tensors(&gguf, &model, why));
    TRY(encode_file_usable(&gguf, &model, arena, why));
    if (version == 2) TRY(gguf_vocab_build(&gguf, arena, &vocab, &input.vocab_bytes, why));
    input.tensors = gguf.tensors;
    input.tensor_count = gguf.tensor_count;
    input.model = &model;
    input.vocab = vocab;
    input.version = version;
    EncodeReader reader = {encode_file_source, &gguf};
    return encode_loop_run(&input, &reader, path, parallel, arena, tell, why);
}

Error encode_file(const char *gguf_path, const char *knot_path, unsigned version, const Tell *tell,
                  Why *why)
{
    if (version != 1 && version != 2)
        return error_why(why, ERR_USAGE, "knot version %u; 1 and 2 can be written", version);
    GgufFiles files = {NULL, NULL, 0};
    Pool *pool = NULL;
    void *memory = malloc(ARENA_BYTES); /* touched as far as it is used */
    Error e = memory ? gguf_file_open(gguf_path, &files, why)
                     : error_why(why, ERR_MEMORY, "the encoder's tables");
    if (e == OK) e = encode_file_apart(&files, knot_path, why);
    if (e == OK) e = pool_start(encode_loop_workers(), &pool, why);
    if (e == OK) {
        Arena arena = arena_make(memory, ARENA_BYTES);
        Parallel parallel = pool_parallel(pool);
        e = encode_file_files(&files, knot_path, version, &parallel, &arena, tell, why);
    }
    pool_stop(pool);
    free(memory);
    gguf_file_close(&files);
    return e;
}
