/* SPDX-License-Identifier: Apache-2.0 */
/* A model of three small layers in memory, with random weights: enough for every path of a station
 * and a shard. Weights are
 * made in the layout `rows` (version 1) and can be re-laid to x16.1. */
#ifndef COBORD_TESTS_TINY_MODEL_H
#define COBORD_TESTS_TINY_MODEL_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "knot/knot.h"
#include "model/hyper.h"
#include "model/ops.h"
#include "quant/kernels.h"

enum {
    TINY_LAYERS = 3,
    TINY_HIDDEN = 256,
    TINY_FFN = 512,
    TINY_HEADS = 4,
    TINY_KV = 2,
    TINY_DIM = 64,
    TINY_VOCABULARY = 301,
    TINY_ROWS = 320,
    TINY_TENSORS_MAX = 64
};

typedef struct TinyModel {
    Knot knot;
    Hyper hyper;
    uint8_t *payload;
    void *memory;
} TinyModel;

typedef struct TinyMaker {
    char json[32768];
    size_t json_bytes;
    uint8_t *payload;
    uint64_t payload_bytes;
    uint32_t random;
    const char *left_out; /* name of a tensor that is not written */
} TinyMaker;

static uint32_t tiny_random(TinyMaker *m)
{
    m->random = m->random * 1664525u + 1013904223u;
    return m->random >> 8;
}

/* Valid random blocks: bytes at random, then every f16 scale replaced by a small one. */
static void tiny_block(TinyMaker *m, BlockType type, uint8_t *block)
{
    const BlockTraits *traits = block_traits(type);
    for (uint32_t i = 0; i < traits->bytes; i++) block[i] = (uint8_t)tiny_random(m);
    uint16_t d = block_f32_to_f16((float)(tiny_random(m) % 1000 + 200) * 1e-6f),
             small = block_f32_to_f16(1e-4f);
    switch (type) {
    case BLOCK_Q4_K: memcpy(block, &d, 2), memcpy(block + 2, &d, 2); break;
    case BLOCK_Q6_K: memcpy(block + 208, &small, 2); break;
    case BLOCK_Q4_0: memcpy(block, &d, 2), block[1] = (uint8_t)(block[1] + 8); break;
    default: abort();
    }
}

static void tiny_tensor(TinyMaker *m, const char *name, BlockType type, uint32_t rows,
                        uint32_t cols)
{
    if (m->left_out && strcmp(m->left_out, name) == 0) return;
    uint64_t bytes;
    assert_int_equal(block_tensor_bytes(type, rows, cols, &bytes, NULL), OK);
    m->json_bytes += (size_t)snprintf(
        m->json + m->json_bytes, sizeof m->json - m->json_bytes,
        "%s{\"name\":\"%s\",\"type\":\"%s\",\"shape\":[%u,%u],\"offset\":%llu,\"length\":%llu}",
        m->payload_bytes ? "," : "", name, block_traits(type)->name, rows, cols,
        (unsigned long long)m->payload_bytes, (unsigned long long)bytes);
    m->payload = realloc(m->payload, m->payload_bytes + bytes);
    uint8_t *to = m->payload + m->payload_bytes;
    if (type == BLOCK_F32)
        for (uint32_t i = 0; i < rows * cols; i++) {
            float v = 0.5f + (float)(tiny_random(m) % 1000) * 1e-3f;
            memcpy(to + 4 * i, &v, 4);
        }
    else
        for (uint64_t at = 0; at < bytes; at += block_traits(type)->bytes)
            tiny_block(m, type, to + at);
    m->payload_bytes += bytes;
}

static void tiny_layer(TinyMaker *m, unsigned layer)
{
    char name[64];
#define TINY(part, type, rows, cols) \
    snprintf(name, sizeof name, "blk_%u_" part, layer), tiny_tensor(m, name, type, rows, cols)
    TINY("attn_norm_weight", BLOCK_F32, 1, TINY_HIDDEN);
    TINY("attn_q_weight", BLOCK_Q4_K, TINY_HEADS * TINY_DIM, TINY_HIDDEN);
    TINY("attn_q_bias", BLOCK_F32, 1, TINY_HEADS * TINY_DIM);
    TINY("attn_k_weight", BLOCK_Q4_K, TINY_KV * TINY_DIM, TINY_HIDDEN);
    TINY("attn_k_bias", BLOCK_F32, 1, TINY_KV * TINY_DIM);
    TINY("attn_v_weight", BLOCK_Q6_K, TINY_KV * TINY_DIM, TINY_HIDDEN);
    TINY("attn_v_bias", BLOCK_F32, 1, TINY_KV * TINY_DIM);
    TINY("attn_output_weight", BLOCK_Q4_0, TINY_HIDDEN, TINY_HEADS * TINY_DIM);
    TINY("ffn_norm_weight", BLOCK_F32, 1, TINY_HIDDEN);
    TINY("ffn_gate_weight", BLOCK_Q4_K, TINY_FFN, TINY_HIDDEN);
    TINY("ffn_up_weight", BLOCK_Q4_0, TINY_FFN, TINY_HIDDEN);
    TINY("ffn_down_weight", BLOCK_Q6_K, TINY_HIDDEN, TINY_FFN);
#undef TINY
}

static void tiny_relay(TinyModel *t)
{
    uint8_t *out = NULL;
    uint64_t at = 0;
    for (uint32_t i = 0; i < t->knot.tensor_count; i++) {
        KnotTensor *x = &t->knot.tensors[i];
        bool relay = x->rows > 1 && strcmp(x->name, "token_embd_weight") != 0;
        uint64_t bytes, row, panel;
        assert_int_equal(layout_tensor_bytes(x->type, relay ? LAYOUT_X16 : LAYOUT_ROWS, x->rows,
                                             x->cols, &bytes, NULL),
                         OK);
        assert_int_equal(block_row_bytes(x->type, x->cols, &row, NULL), OK);
        assert_int_equal(layout_panel_bytes(x->type, x->cols, &panel, NULL), OK);
        out = realloc(out, at + bytes);
        const uint8_t *from = t->payload + x->offset;
        if (!relay) memcpy(out + at, from, bytes);
        for (uint32_t r = 0; relay && r < x->rows; r += PANEL_ROWS)
            assert_int_equal(
                layout_panel_from_rows(x->type, from + r * row,
                                       x->rows - r < PANEL_ROWS ? x->rows - r : PANEL_ROWS, x->cols,
                                       out + at + r / PANEL_ROWS * panel, NULL),
                OK);
        x->layout = relay ? LAYOUT_X16 : LAYOUT_ROWS;
        x->offset = at;
        x->bytes = bytes;
        at += bytes;
    }
    free(t->payload);
    t->payload = out;
}

static Error tiny_parse(TinyMaker *m, TinyModel *t, Why *why)
{
    size_t header_bytes = ((10 + m->json_bytes + 3) & ~(size_t)3) + 1;
    uint8_t *header = calloc(1, header_bytes);
    memcpy(header, "KNOT\1\0", 6);
    uint32_t meta = (uint32_t)m->json_bytes;
    memcpy(header + 6, &meta, 4);
    memcpy(header + 10, m->json, m->json_bytes);
    header[header_bytes - 1] = 0x40;
    size_t keep = knot_arena_bytes(header_bytes), scratch_bytes = knot_scratch_bytes(header_bytes);
    t->memory = malloc(keep);
    void *scratch_memory = malloc(scratch_bytes);
    Arena arena = arena_make(t->memory, keep), scratch = arena_make(scratch_memory, scratch_bytes);
    Error error = knot_parse(header, header_bytes, header_bytes + m->payload_bytes, &arena,
                             &scratch, &t->knot, why);
    free(scratch_memory);
    free(header);
    return error == OK ? hyper_from_knot(&t->knot, &t->hyper, why) : error;
}

/* `left_out`: a tensor to leave away, or NULL. */
static void tiny_make(TinyModel *t, bool x16, const char *left_out)
{
    TinyMaker *m = calloc(1, sizeof *m);
    m->random = 7;
    m->left_out = left_out;
    m->json_bytes = (size_t)snprintf(
        m->json, sizeof m->json,
        "{\"model\":{\"architecture\":\"qwen2\",\"name\":\"tiny\",\"layers\":%d,\"hidden\":%d,\"ffn\":%d,\"heads\":%d,"
        "\"kv_heads\":%d,\"head_dim\":%d,\"vocabulary\":%d,\"context\":1024,"
        "\"norm_epsilon\":1e-6,\"rope_base\":10000.0,"
        "\"rope_dim\":%d},\"tensors\":[",
        TINY_LAYERS, TINY_HIDDEN, TINY_FFN, TINY_HEADS, TINY_KV, TINY_DIM, TINY_VOCABULARY,
        TINY_DIM);
    for (unsigned l = 0; l < TINY_LAYERS; l++) tiny_layer(m, l);
    tiny_tensor(m, "output_norm_weight", BLOCK_F32, 1, TINY_HIDDEN);
    tiny_tensor(m, "output_weight", BLOCK_Q6_K, TINY_ROWS, TINY_HIDDEN);
    tiny_tensor(m, "token_embd_weight", BLOCK_Q4_0, TINY_ROWS, TINY_HIDDEN);
    m->json_bytes +=
        (size_t)snprintf(m->json + m->json_bytes, sizeof m->json - m->json_bytes, "]}");
    Why why = {{0}};
    Error error = tiny_parse(m, t, &why);
    if (error != OK) fail_msg("tiny model: %s", why.text);
    t->payload = m->payload;
    if (x16) tiny_relay(t);
    free(m);
}

static void tiny_free(TinyModel *t)
{
    free(t->payload);
    free(t->memory);
}

#endif
