/* SPDX-License-Identifier: Apache-2.0 */
/* A GGUF file from outside, all the way: header, keys, tensors, tokenizer, and the encoder when the
 * file is accepted. */
#include <stdlib.h>
#include <string.h>

#include "knot/encode.h"
#include "knot/gguf_model.h"
#include "knot/gguf_vocab.h"

enum { FUZZ_ARENA_BYTES = 24 << 20, FUZZ_INPUT_MAX = 1 << 20 };

typedef struct FuzzFile {
    const uint8_t *bytes;
    size_t count;
} FuzzFile;

static Error fuzz_read(void *file, uint64_t offset, void *out, size_t bytes, Why *why)
{
    (void)why;
    const FuzzFile *f = file;
    if (offset > f->count || bytes > f->count - offset) abort(); /* the reader promised not to */
    memcpy(out, f->bytes + offset, bytes);
    return OK;
}

static void fuzz_encode(const Gguf *g, const KnotModel *model, unsigned version,
                        const uint8_t *vocab, size_t vocab_bytes, Arena *arena)
{
    Why why;
    Encoder *e = NULL;
    EncodeWish wish = {ENCODE_DONE, 0, 0, 0, NULL};
    EncodeInput input = {g->tensors, g->tensor_count, model, vocab, vocab_bytes, version};
    if (encode_start(&input, &parallel_serial, arena, &e, &why) != OK) return;
    uint64_t end = 0;
    while (encode_step(e, &wish, &why) == OK && wish.kind != ENCODE_DONE) {
        const GgufTensor *t = &g->tensors[wish.source];
        if (wish.kind == ENCODE_READ && fuzz_read(g->files[t->file].file, t->offset + wish.offset,
                                                  wish.buffer, wish.bytes, &why) != OK)
            return;
        if (wish.kind == ENCODE_WRITE && wish.offset != end) abort();
        if (wish.kind == ENCODE_WRITE) end += wish.bytes;
    }
    if (wish.kind == ENCODE_DONE && end != encode_file_bytes(e)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t memory[FUZZ_ARENA_BYTES];
    FuzzFile file = {data, size};
    CursorPort port = {fuzz_read, &file, size};
    Arena arena = arena_make(memory, sizeof memory);
    Gguf g;
    KnotModel model;
    Why why;
    uint8_t *vocab = NULL;
    size_t vocab_bytes = 0;
    if (size > FUZZ_INPUT_MAX || gguf_read(&port, 1, &arena, &g, &why) != OK) return 0;
    if (gguf_model_read(&g, &model, &why) != OK) return 0;
    Error tensors = gguf_model_check_tensors(&g, &model, &why);
    Error tokens = gguf_vocab_build(&g, &arena, &vocab, &vocab_bytes, &why);
    if (tensors != OK) return 0;
    size_t mark = arena_mark(&arena);
    fuzz_encode(&g, &model, 1, NULL, 0, &arena);
    arena_reset(&arena, mark);
    if (tokens == OK) fuzz_encode(&g, &model, 2, vocab, vocab_bytes, &arena);
    return 0;
}
