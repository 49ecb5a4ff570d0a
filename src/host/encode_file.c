/* SPDX-License-Identifier: Apache-2.0 */
#include "host/encode_file.h"

#include <stdlib.h>

#include "host/encode_loop.h"
#include "host/gguf_file.h"
#include "host/pool.h"
#include "knot/gguf_model.h"
#include "knot/gguf_vocab.h"

enum { ARENA_BYTES = 56 << 20 };

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
