/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/info_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "cli/json_text.h"
#include "host/gguf_file.h"

/* Bytes that are no UTF-8 become U+FFFD, one per invalid byte. */
static void info_json_text(const char *name, const char *value)
{
    printf(",\"%s\":", name);
    json_text_print(value);
}

static void info_json_u32(const char *name, uint32_t value)
{
    printf(",\"%s\":%" PRIu32, name, value);
}

static void info_json_float(const char *name, float value)
{
    printf(",\"%s\":%.9g", name, (double)value);
}

static void info_json_model(const KnotModel *m)
{
    printf("\"model\":{\"architecture\":");
    json_text_print(m->architecture);
    info_json_text("name", m->name);
    info_json_u32("layers", m->layers);
    info_json_u32("hidden", m->hidden);
    info_json_u32("ffn", m->ffn);
    info_json_u32("heads", m->heads);
    info_json_u32("kv_heads", m->kv_heads);
    info_json_u32("head_dim", m->head_dim);
    info_json_u32("vocabulary", m->vocabulary);
    info_json_u32("context", m->context);
    info_json_float("norm_epsilon", m->norm_epsilon);
    info_json_float("rope_base", m->rope_base);
    info_json_float("rope_base_local", m->rope_base_local);
    info_json_u32("rope_dim", m->rope_dim);
    info_json_text("rope_scaling", m->rope_scaling);
    info_json_float("rope_scale_factor", m->rope_scale_factor);
    info_json_u32("rope_original_context", m->rope_original_context);
    info_json_u32("sliding_window", m->sliding_window);
    info_json_u32("sliding_window_pattern", m->sliding_window_pattern);
    putchar('}');
}

static void info_json_tensor(const char *name, BlockType type, const char *layout, uint32_t rows,
                             uint32_t cols, uint64_t offset, uint64_t bytes)
{
    printf("{\"name\":");
    json_text_print(name);
    printf(",\"type\":\"%s\",\"layout\":\"%s\",\"shape\":[%" PRIu32 ",%" PRIu32
           "],\"offset\":%" PRIu64 ",\"length\":%" PRIu64 "}",
           block_traits(type)->name, layout, rows, cols, offset, bytes);
}

static void info_json_vocab(const Vocab *v)
{
    printf(",\"tokenizer\":{\"kind\":\"%s\",\"pre\":%d,\"tokens\":%" PRIu32 ",\"merges\":%" PRIu32
           ",\"chat_template_bytes\":%" PRIu32 "}",
           v->model == VOCAB_BPE ? "bpe" : "sentencepiece", (int)v->pre, v->tokens, v->merges,
           v->chat_template_bytes);
}

void info_json_knot(const Knot *k, const Vocab *vocab)
{
    printf("{\"format\":\"knot\",\"version\":%u,\"id\":\"%016" PRIx64 "\",\"file_bytes\":%" PRIu64
           ",\"payload_offset\":%" PRIu64 ",\"payload_bytes\":%" PRIu64 ",\"tied_head\":%s,",
           k->version, k->id, k->file_bytes, k->payload_offset, k->payload_bytes,
           k->tied_head ? "true" : "false");
    info_json_model(&k->model);
    if (vocab) info_json_vocab(vocab);
    printf(",\"tensors\":[");
    for (uint32_t i = 0; i < k->tensor_count; i++) {
        const KnotTensor *t = &k->tensors[i];
        if (i) putchar(',');
        info_json_tensor(t->name, t->type, layout_name(t->layout), t->rows, t->cols, t->offset,
                         t->bytes);
    }
    printf("]}\n");
}

static void info_json_real(double value)
{
    if (isfinite(value)) printf("%.17g", value);
    else printf("null");
}

void info_json_number(const GgufKey *key)
{
    uint64_t v = key->bits;
    double d;
    switch (key->type) {
    case GGUF_I8: printf("%d", (int8_t)v); break;
    case GGUF_I16: printf("%d", (int16_t)v); break;
    case GGUF_I32: printf("%" PRId32, (int32_t)v); break;
    case GGUF_I64: printf("%" PRId64, (int64_t)v); break;
    case GGUF_F32: info_json_real((double)bytes_load_f32(&v)); break;
    case GGUF_F64:
        memcpy(&d, &v, sizeof d);
        info_json_real(d);
        break;
    case GGUF_BOOL: printf(v ? "true" : "false"); break;
    default: printf("%" PRIu64, v); break;
    }
}

/* Strings are cut at 64 KiB, which no sensible key reaches but a chat template may. */
static void info_json_key(const Gguf *g, const GgufKey *key)
{
    enum { TEXT_BYTES = 65536 };
    json_text_print(key->name);
    putchar(':');
    if (key->type == GGUF_ARRAY) {
        printf("{\"array\":\"%s\",\"count\":%" PRIu64 "}", gguf_value_type_name(key->element),
               key->count);
        return;
    }
    if (key->type != GGUF_STRING) {
        info_json_number(key);
        return;
    }
    char *text = malloc(TEXT_BYTES);
    json_text_print_bytes(text ? text : "", text ? gguf_file_text(g, key, text, TEXT_BYTES) : 0);
    free(text);
}

void info_json_gguf(const Gguf *g)
{
    printf("{\"format\":\"gguf\",\"version\":%" PRIu32 ",\"files\":%" PRIu32 ",\"keys\":{",
           g->version, g->file_count);
    for (uint32_t i = 0; i < g->key_count; i++) {
        if (i) putchar(',');
        info_json_key(g, &g->keys[i]);
    }
    printf("},\"tensors\":[");
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        const GgufTensor *t = &g->tensors[i];
        if (i) putchar(',');
        info_json_tensor(t->name, t->type, "rows", t->rows, t->cols, t->offset, t->bytes);
    }
    printf("]}\n");
}
