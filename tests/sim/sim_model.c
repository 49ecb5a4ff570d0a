/* SPDX-License-Identifier: Apache-2.0 */
/* Weights at random, large enough that answers wander and depend on everything before them: a wrong row in
 * some attention cache shows within a few tokens. The embedding of SIM_POISON_ID is not finite, and its row of
 * the head is zero, so that it is hardly ever an answer. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

enum { JSON_BYTES_MAX = 16384 };

typedef struct Maker {
    char json[JSON_BYTES_MAX];
    size_t json_bytes;
    uint8_t *payload;
    uint64_t payload_bytes;
    SimRandom random;
} Maker;

static void block(Maker *m, BlockType type, uint8_t *out, float scale)
{
    const BlockTraits *traits = block_traits(type);
    for (uint32_t i = 0; i < traits->bytes; i++) out[i] = (uint8_t)sim_random_next(&m->random);
    float size = scale * (0.5f + (float)sim_random_below(&m->random, 1000) * 1e-3f);
    uint16_t d = block_f32_to_f16(size);
    memcpy(out, &d, 2);
}

/* `scale`: of a block's numbers, which are up to 127 (Q8_0) or 8 (Q4_0). */
static void tensor(Maker *m, const char *name, BlockType type, uint32_t rows, uint32_t cols,
                   float scale)
{
    uint64_t bytes;
    Why why = {{0}};
    ASSERT(block_tensor_bytes(type, rows, cols, &bytes, &why) == OK);
    m->json_bytes += (size_t)snprintf(
        m->json + m->json_bytes, sizeof m->json - m->json_bytes,
        "%s{\"name\":\"%s\",\"type\":\"%s\",\"shape\":[%u,%u],\"offset\":%llu,\"length\":%llu}",
        m->payload_bytes ? "," : "", name, block_traits(type)->name, rows, cols,
        (unsigned long long)m->payload_bytes, (unsigned long long)bytes);
    m->payload = realloc(m->payload, m->payload_bytes + bytes);
    ASSERT(m->payload);
    uint8_t *to = m->payload + m->payload_bytes;
    m->payload_bytes += bytes;
    if (type != BLOCK_F32) {
        for (uint64_t at = 0; at < bytes; at += block_traits(type)->bytes)
            block(m, type, to + at, scale);
        return;
    }
    for (uint32_t i = 0; i < rows * cols; i++) {
        float v = scale * (0.5f + (float)sim_random_below(&m->random, 1000) * 1e-3f);
        memcpy(to + 4 * i, &v, 4);
    }
}

static void layer(Maker *m, unsigned number)
{
    static const struct {
        const char *part;
        BlockType type;
        uint32_t rows, cols;
        float scale;
    } parts[] = {
        {"attn_norm_weight", BLOCK_F32, 1, SIM_HIDDEN, 1},
        {"attn_q_weight", BLOCK_Q8_0, SIM_HEADS * SIM_HEAD_DIM, SIM_HIDDEN, 0.004f},
        {"attn_q_bias", BLOCK_F32, 1, SIM_HEADS * SIM_HEAD_DIM, 0.1f},
        {"attn_k_weight", BLOCK_Q8_0, SIM_KV_HEADS * SIM_HEAD_DIM, SIM_HIDDEN, 0.004f},
        {"attn_k_bias", BLOCK_F32, 1, SIM_KV_HEADS * SIM_HEAD_DIM, 0.1f},
        {"attn_v_weight", BLOCK_Q8_0, SIM_KV_HEADS * SIM_HEAD_DIM, SIM_HIDDEN, 0.004f},
        {"attn_v_bias", BLOCK_F32, 1, SIM_KV_HEADS * SIM_HEAD_DIM, 0.1f},
        {"attn_output_weight", BLOCK_Q4_0, SIM_HIDDEN, SIM_HEADS * SIM_HEAD_DIM, 0.06f},
        {"ffn_norm_weight", BLOCK_F32, 1, SIM_HIDDEN, 1},
        {"ffn_gate_weight", BLOCK_Q8_0, SIM_FFN, SIM_HIDDEN, 0.002f},
        {"ffn_up_weight", BLOCK_Q4_0, SIM_FFN, SIM_HIDDEN, 0.03f},
        {"ffn_down_weight", BLOCK_Q8_0, SIM_HIDDEN, SIM_FFN, 0.002f},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk_%u_%s", number, parts[i].part);
        tensor(m, name, parts[i].type, parts[i].rows, parts[i].cols, parts[i].scale);
    }
}

static void parse(Maker *m, SimModel *t)
{
    size_t header_bytes = ((10 + m->json_bytes + 3) & ~(size_t)3) + 1;
    uint8_t *header = calloc(1, header_bytes);
    uint32_t meta = (uint32_t)m->json_bytes;
    memcpy(header, "KNOT\1\0", 6);
    memcpy(header + 6, &meta, 4);
    memcpy(header + 10, m->json, m->json_bytes);
    header[header_bytes - 1] = 0x40;
    size_t keep = knot_arena_bytes(header_bytes), scratch_bytes = knot_scratch_bytes(header_bytes);
    t->memory = malloc(keep);
    void *scratch_memory = malloc(scratch_bytes);
    Arena arena = arena_make(t->memory, keep), scratch = arena_make(scratch_memory, scratch_bytes);
    Why why = {{0}};
    Error error = knot_parse(header, header_bytes, header_bytes + m->payload_bytes, &arena,
                             &scratch, &t->knot, &why);
    if (error == OK) error = hyper_from_knot(&t->knot, &t->hyper, &why);
    if (error != OK) fprintf(stderr, "sim: the model: %s\n", why.text);
    ASSERT(error == OK);
    free(scratch_memory);
    free(header);
}

static void poison(SimModel *t)
{
    const KnotTensor *table = knot_find(&t->knot, "token_embd_weight");
    const KnotTensor *head = knot_find(&t->knot, "output_weight");
    uint8_t *row = t->payload + table->offset + SIM_POISON_ID * (table->bytes / SIM_ROWS);
    uint16_t infinity = 0x7c00;
    memcpy(row, &infinity, 2);
    memset(t->payload + head->offset + SIM_POISON_ID * (head->bytes / SIM_ROWS), 0,
           (size_t)(head->bytes / SIM_ROWS));
}

void sim_model_make(SimModel *t)
{
    Maker *m = calloc(1, sizeof *m);
    m->random.state = 5;
    m->json_bytes = (size_t)snprintf(
        m->json, sizeof m->json,
        "{\"model\":{\"architecture\":\"qwen2\",\"name\":\"sim\",\"layers\":%d,\"hidden\":%d,"
        "\"ffn\":%d,\"heads\":%d,\"kv_heads\":%d,\"head_dim\":%d,\"vocabulary\":%d,"
        "\"context\":1024,\"norm_epsilon\":1e-6,\"rope_base\":10000.0,\"rope_dim\":%d},"
        "\"tensors\":[",
        SIM_LAYERS, SIM_HIDDEN, SIM_FFN, SIM_HEADS, SIM_KV_HEADS, SIM_HEAD_DIM, SIM_VOCABULARY,
        SIM_HEAD_DIM);
    for (unsigned l = 0; l < SIM_LAYERS; l++) layer(m, l);
    tensor(m, "output_norm_weight", BLOCK_F32, 1, SIM_HIDDEN, 1);
    tensor(m, "output_weight", BLOCK_Q8_0, SIM_ROWS, SIM_HIDDEN, 0.006f);
    tensor(m, "token_embd_weight", BLOCK_Q4_0, SIM_ROWS, SIM_HIDDEN, 0.25f);
    m->json_bytes +=
        (size_t)snprintf(m->json + m->json_bytes, sizeof m->json - m->json_bytes, "]}");
    parse(m, t);
    t->payload = m->payload;
    poison(t);
    free(m);
}

void sim_model_free(SimModel *t)
{
    free(t->payload);
    free(t->memory);
}
