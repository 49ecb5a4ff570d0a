/* SPDX-License-Identifier: Apache-2.0 */
/* Builds small GGUF files in memory, byte by byte, and remembers where each field went, so that a
 * test can spoil exactly one.
 *
 *   tiny_start, tiny_key_*.., tiny_tensor.., tiny_data      or  tiny_model for a complete one */
#ifndef COBORD_TESTS_TINY_GGUF_H
#define COBORD_TESTS_TINY_GGUF_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "knot/gguf.h"

enum { TINY_ROOM = 1 << 20, TINY_MARKS = 512, TINY_TENSORS = 128, TINY_ARENA = 8 << 20 };

typedef struct TinyMark {
    char name[80];
    size_t at;
} TinyMark;

typedef struct Tiny {
    uint8_t *bytes;
    size_t used;
    TinyMark marks[TINY_MARKS];
    uint32_t mark_count;
    uint64_t keys, tensors;
    uint64_t data_bytes; /* promised so far */
    uint64_t data_at;    /* in the file */
    uint32_t alignment;
} Tiny;

static inline void tiny_put(Tiny *t, const void *bytes, size_t count)
{
    if (count > TINY_ROOM - t->used) abort();
    if (count) memcpy(t->bytes + t->used, bytes, count);
    t->used += count;
}
static inline void tiny_u32(Tiny *t, uint32_t v) { tiny_put(t, &v, 4); }
static inline void tiny_u64(Tiny *t, uint64_t v) { tiny_put(t, &v, 8); }
static inline void tiny_string(Tiny *t, const char *text)
{
    tiny_u64(t, strlen(text));
    tiny_put(t, text, strlen(text));
}

static inline void tiny_mark(Tiny *t, const char *what, const char *name)
{
    if (t->mark_count == TINY_MARKS) abort();
    TinyMark *m = &t->marks[t->mark_count++];
    (void)snprintf(m->name, sizeof m->name, "%s %s", what, name);
    m->at = t->used;
}

/* Where a field is: "value KEY", "type KEY", "dim0 TENSOR", "dims TENSOR", "ttype TENSOR", "offset
 * TENSOR". */
static inline uint8_t *tiny_at(Tiny *t, const char *what, const char *name)
{
    char wanted[80];
    (void)snprintf(wanted, sizeof wanted, "%s %s", what, name);
    for (uint32_t i = 0; i < t->mark_count; i++)
        if (strcmp(t->marks[i].name, wanted) == 0) return t->bytes + t->marks[i].at;
    abort();
}

static inline void tiny_start(Tiny *t, uint32_t version)
{
    memset(t, 0, sizeof *t);
    t->bytes = malloc(TINY_ROOM);
    t->alignment = 32;
    tiny_put(t, "GGUF", 4);
    tiny_u32(t, version);
    tiny_u64(t, 0);
    tiny_u64(t, 0);
}
static inline void tiny_free(Tiny *t) { free(t->bytes); }

static inline void tiny_key(Tiny *t, const char *name, uint32_t type)
{
    tiny_mark(t, "key", name);
    tiny_string(t, name);
    tiny_mark(t, "type", name);
    tiny_u32(t, type);
    tiny_mark(t, "value", name);
    t->keys++;
    bytes_store64(t->bytes + 16, t->keys);
}
static inline void tiny_key_u32(Tiny *t, const char *name, uint32_t v)
{
    tiny_key(t, name, GGUF_U32);
    tiny_u32(t, v);
}
static inline void tiny_key_f32(Tiny *t, const char *name, float v)
{
    tiny_key(t, name, GGUF_F32);
    tiny_put(t, &v, 4);
}
static inline void tiny_key_bool(Tiny *t, const char *name, bool v)
{
    uint8_t byte = v;
    tiny_key(t, name, GGUF_BOOL);
    tiny_put(t, &byte, 1);
}
static inline void tiny_key_text(Tiny *t, const char *name, const char *v)
{
    tiny_key(t, name, GGUF_STRING);
    tiny_string(t, v);
}
static inline void tiny_key_array(Tiny *t, const char *name, uint32_t element, uint64_t count)
{
    tiny_key(t, name, GGUF_ARRAY);
    tiny_u32(t, element);
    tiny_mark(t, "count", name);
    tiny_u64(t, count);
}
static inline void tiny_key_texts(Tiny *t, const char *name, const char *const *texts,
                                  uint64_t count)
{
    tiny_key_array(t, name, GGUF_STRING, count);
    for (uint64_t i = 0; i < count; i++) tiny_string(t, texts[i]);
}

/* rows 0: a vector. The data follows the tensor before it. */
static inline void tiny_tensor(Tiny *t, const char *name, BlockType type, uint64_t rows,
                               uint64_t cols)
{
    const BlockTraits *traits = block_traits(type);
    uint64_t bytes = cols / traits->elements * traits->bytes * (rows ? rows : 1);
    tiny_mark(t, "name", name);
    tiny_string(t, name);
    tiny_mark(t, "dims", name);
    tiny_u32(t, rows ? 2 : 1);
    tiny_mark(t, "dim0", name);
    tiny_u64(t, cols);
    tiny_mark(t, "dim1", name);
    if (rows) tiny_u64(t, rows);
    tiny_mark(t, "ttype", name);
    tiny_u32(t, type);
    tiny_mark(t, "offset", name);
    tiny_u64(t, t->data_bytes);
    t->data_bytes += (bytes + t->alignment - 1) / t->alignment * t->alignment;
    t->tensors++;
    bytes_store64(t->bytes + 8, t->tensors);
}

/* Pads, then fills the data with small finite numbers: a repeating f16 pattern that is fine as f32,
 * too. */
static inline void tiny_data(Tiny *t)
{
    while (t->used % t->alignment) tiny_put(t, "", 1);
    t->data_at = t->used;
    for (uint64_t i = 0; i < t->data_bytes; i++) {
        uint8_t byte = (uint8_t)((i * 37 + i / 251) &
                                 0x3f); /* upper byte 00..3f: halves and singles below 2 */
        tiny_put(t, &byte, 1);
    }
}

static inline void tiny_layer(Tiny *t, uint32_t layer, BlockType type, uint32_t hidden,
                              uint32_t ffn, uint32_t kv)
{
    static const char *const vectors[] = {"attn_norm.weight", "ffn_norm.weight", "attn_q.bias",
                                          "attn_k.bias", "attn_v.bias"};
    static const char *const matrices[] = {"attn_q.weight",      "attn_k.weight",   "attn_v.weight",
                                           "attn_output.weight", "ffn_gate.weight", "ffn_up.weight",
                                           "ffn_down.weight"};
    const uint32_t widths[] = {hidden, hidden, hidden, kv, kv};
    const uint32_t rows[] = {hidden, kv, kv, hidden, ffn, ffn, hidden},
                   cols[] = {hidden, hidden, hidden, hidden, hidden, hidden, ffn};
    char name[64];
    /* not in execution order, on purpose */
    for (int i = 6; i >= 0; i--) {
        (void)snprintf(name, sizeof name, "blk.%u.%s", layer, matrices[i]);
        tiny_tensor(t, name, type, rows[i], cols[i]);
    }
    for (int i = 0; i < 5; i++) {
        (void)snprintf(name, sizeof name, "blk.%u.%s", layer, vectors[i]);
        tiny_tensor(t, name, BLOCK_F32, 0, widths[i]);
    }
}

static inline void tiny_hyper(Tiny *t)
{
    tiny_key_text(t, "general.architecture", "qwen2");
    tiny_key_text(t, "general.name", "tiny");
    tiny_key_u32(t, "qwen2.block_count", 2);
    tiny_key_u32(t, "qwen2.embedding_length", 32);
    tiny_key_u32(t, "qwen2.feed_forward_length", 64);
    tiny_key_u32(t, "qwen2.attention.head_count", 2);
    tiny_key_u32(t, "qwen2.attention.head_count_kv", 1);
    tiny_key_u32(t, "qwen2.context_length", 128);
    tiny_key_f32(t, "qwen2.attention.layer_norm_rms_epsilon", 1e-6f);
    tiny_key_f32(t, "qwen2.rope.freq_base", 1e6f);
}

static inline void tiny_tokens(Tiny *t)
{
    static const char *const tokens[] = {"a",        "b",         "c",       "ab",          "abc",
                                         "\xc4\xa0", "\304\240a", "<|end|>", "\x01\x1b[31m"};
    static const char *const merges[] = {"a b", "ab c", "\304\240 a"};
    static const uint32_t types[] = {1, 1, 1, 1, 1, 1, 1, 3, 1};
    tiny_key_text(t, "tokenizer.ggml.model", "gpt2");
    tiny_key_text(t, "tokenizer.ggml.pre", "qwen2");
    tiny_key_texts(t, "tokenizer.ggml.tokens", tokens, 9);
    tiny_key_array(t, "tokenizer.ggml.token_type", GGUF_I32, 9);
    tiny_put(t, types, sizeof types);
    tiny_key_texts(t, "tokenizer.ggml.merges", merges, 3);
    tiny_key_u32(t, "tokenizer.ggml.eos_token_id", 7);
    tiny_key_bool(t, "tokenizer.ggml.add_bos_token", false);
    tiny_key_text(t, "tokenizer.chat_template", "{{ messages }}");
}

/* A complete qwen2 model of 2 layers, 32 wide, 9 tokens and 11 embedding rows, tied head when
 * asked. */
static inline void tiny_model(Tiny *t, BlockType type, bool tied)
{
    tiny_start(t, 3);
    tiny_hyper(t);
    tiny_tokens(t);
    if (!tied) tiny_tensor(t, "output.weight", type, 11, 32);
    tiny_tensor(t, "token_embd.weight", type, 11, 32);
    for (uint32_t layer = 0; layer < 2; layer++) tiny_layer(t, layer, type, 32, 64, 16);
    tiny_tensor(t, "output_norm.weight", BLOCK_F32, 0, 32);
    tiny_data(t);
}

/* --- a port over memory --- */

typedef struct TinyFile {
    const uint8_t *bytes;
    uint64_t reads, read_bytes;
} TinyFile;

static inline Error tiny_read(void *file, uint64_t offset, void *out, size_t bytes, Why *why)
{
    (void)why;
    TinyFile *f = file;
    f->reads++;
    f->read_bytes += bytes;
    memcpy(out, f->bytes + offset, bytes);
    return OK;
}

/* Reads bytes[0..count) as one file, from memory of exactly that size, so that a sanitizer sees
 * every byte too far. */
static inline Error tiny_parse(const uint8_t *bytes, size_t count, Arena *arena, Gguf *out,
                               CursorPort *port, TinyFile *file, Why *why)
{
    *file = (TinyFile){bytes, 0, 0};
    *port = (CursorPort){tiny_read, file, count};
    return gguf_read(port, 1, arena, out, why);
}

#endif
