/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes a small model in memory: the encoder's loop without a host. */
#ifndef COBORD_TESTS_TINY_KNOT_H
#define COBORD_TESTS_TINY_KNOT_H

#include "base/hash.h"
#include "knot/encode.h"
#include "knot/gguf_model.h"
#include "knot/gguf_vocab.h"
#include "tiny_gguf.h"

enum { TINY_KNOT_ARENA = 40 << 20 };

typedef struct TinyKnot {
    uint8_t *bytes; /* malloc */
    size_t used;
} TinyKnot;

static inline Error tiny_encode_loop(Encoder *e, const Gguf *g, TinyKnot *out, Why *why)
{
    EncodeWish wish;
    out->bytes = malloc((size_t)encode_file_bytes(e));
    out->used = 0;
    for (;;) {
        TRY(encode_step(e, &wish, why));
        if (wish.kind == ENCODE_DONE) return OK;
        if (wish.kind == ENCODE_READ) {
            const GgufTensor *t = &g->tensors[wish.source];
            TRY(g->files[t->file].read(g->files[t->file].file, t->offset + wish.offset, wish.buffer,
                                       wish.bytes, why));
        } else if (wish.kind == ENCODE_WRITE) {
            if (wish.offset != out->used || wish.bytes > encode_file_bytes(e) - out->used) abort();
            memcpy(out->bytes + out->used, wish.buffer, wish.bytes);
            out->used += wish.bytes;
        } else memcpy(out->bytes + wish.offset, wish.buffer, wish.bytes);
    }
}

static inline Error tiny_encode(const uint8_t *gguf, size_t bytes, unsigned version, TinyKnot *out,
                                Why *why)
{
    void *memory = malloc(TINY_KNOT_ARENA);
    Arena arena = arena_make(memory, TINY_KNOT_ARENA);
    Gguf g;
    CursorPort port;
    TinyFile file;
    KnotModel model;
    Encoder *encoder = NULL;
    EncodeInput input = {.version = version};
    uint8_t *vocab = NULL;
    *out = (TinyKnot){NULL, 0};
    Error e = tiny_parse(gguf, bytes, &arena, &g, &port, &file, why);
    if (e == OK) e = gguf_model_read(&g, &model, why);
    if (e == OK) e = gguf_model_check_tensors(&g, &model, why);
    if (e == OK && version == 2) e = gguf_vocab_build(&g, &arena, &vocab, &input.vocab_bytes, why);
    if (e == OK) {
        input.tensors = g.tensors;
        input.tensor_count = g.tensor_count;
        input.model = &model;
        input.vocab = vocab;
        e = encode_start(&input, &parallel_serial, &arena, &encoder, why);
    }
    if (e == OK) e = tiny_encode_loop(encoder, &g, out, why);
    if (e == OK && out->used != encode_file_bytes(encoder)) abort();
    free(memory);
    return e;
}

/* A parsed knot with the memory behind it. */
typedef struct TinyParsed {
    Knot knot;
    void *memory, *scratch;
    Why why;
} TinyParsed;

static inline Error tiny_knot_parse(const uint8_t *bytes, size_t count, uint64_t file_bytes,
                                    TinyParsed *p)
{
    uint64_t header = 0;
    memset(p, 0, sizeof *p);
    TRY(knot_header_bytes(bytes, count < KNOT_PROBE_BYTES ? count : KNOT_PROBE_BYTES, file_bytes,
                          &header, &p->why));
    if (header > count) return ERR_TRUNCATED;
    size_t n = (size_t)header, memory = knot_arena_bytes(n), scratch = knot_scratch_bytes(n);
    uint8_t *exact = malloc(n);
    memcpy(exact, bytes, n);
    p->memory = malloc(memory);
    p->scratch = malloc(scratch);
    Arena a = arena_make(p->memory, memory), b = arena_make(p->scratch, scratch);
    Error e = knot_parse(exact, n, file_bytes, &a, &b, &p->knot, &p->why);
    free(exact);
    free(p->scratch);
    p->scratch = NULL;
    return e;
}
static inline void tiny_parsed_free(TinyParsed *p) { free(p->memory); }

/* What the early encoder wrote for a version 1 knot: JSON padded with spaces, padded length,
 * payload one byte early. */
static inline TinyKnot tiny_stale(const TinyKnot *v1)
{
    size_t meta = bytes_load32(v1->bytes + 6), payload = (size_t)knot_payload_start(1, meta),
           padded = meta;
    while ((11 + padded) % 4) padded++;
    TinyKnot out = {malloc(v1->used + 8), 0};
    memcpy(out.bytes, v1->bytes, 10 + meta);
    bytes_store32(out.bytes + 6, (uint32_t)padded);
    memset(out.bytes + 10 + meta, ' ', padded - meta);
    out.bytes[10 + padded] = 0x40;
    memcpy(out.bytes + 11 + padded, v1->bytes + payload, v1->used - payload);
    out.used = 11 + padded + v1->used - payload;
    return out;
}

/* A header around a JSON text, and a payload of `payload` bytes. */
static inline TinyKnot tiny_wrap(unsigned version, const char *json, size_t payload)
{
    size_t meta = strlen(json), start = (size_t)knot_payload_start((uint16_t)version, meta);
    TinyKnot k = {calloc(start + payload + 1, 1), start + payload};
    memcpy(k.bytes, "KNOT", 4);
    bytes_store16(k.bytes + 4, (uint16_t)version);
    bytes_store32(k.bytes + 6, (uint32_t)meta);
    memcpy(k.bytes + 10, json, meta);
    k.bytes[knot_header_end(meta) - 1] = 0x40;
    return k;
}

#endif
