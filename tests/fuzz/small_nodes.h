/* SPDX-License-Identifier: Apache-2.0 */
/* A knot of two layers of 32, in memory, for nodes that are fuzzed: real tensors, so that a frame that is
 * let in runs through the whole of a station or shard. Every memory is a heap block of the size asked for. */
#ifndef COBORD_TESTS_SMALL_NODES_H
#define COBORD_TESTS_SMALL_NODES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "cluster/shard_service.h"
#include "cluster/station_service.h"
#include "quant/numerics.h"

enum {
    SMALL_LAYERS = 2,
    SMALL_HIDDEN = 32,
    SMALL_FFN = 64,
    SMALL_VOCABULARY = 40,
    SMALL_CONTEXT = 160,
    SMALL_ROWS = 8,
    SMALL_SESSIONS = 3
};
#define SMALL_KNOT_ID 0x1122334455667788u

typedef struct SmallModel {
    Knot knot;
    Hyper hyper;
    void *memory;
    uint8_t *payload;
} SmallModel;

typedef struct SmallText {
    char text[16384];
    size_t length;
    uint64_t payload_bytes;
} SmallText;

static inline void small_tensor(SmallText *t, const char *name, BlockType type, uint32_t rows,
                                uint32_t cols)
{
    uint64_t bytes;
    if (block_tensor_bytes(type, rows, cols, &bytes, NULL) != OK) abort();
    t->length += (size_t)snprintf(
        t->text + t->length, sizeof t->text - t->length,
        "%s{\"name\":\"%s\",\"type\":\"%s\",\"shape\":[%u,%u],\"offset\":%llu,\"length\":%llu}",
        t->payload_bytes ? "," : "", name, block_traits(type)->name, rows, cols,
        (unsigned long long)t->payload_bytes, (unsigned long long)bytes);
    t->payload_bytes += bytes;
}

static inline void small_layer(SmallText *t, unsigned layer)
{
    static const struct {
        const char *part;
        BlockType type;
        uint32_t rows, cols;
    } parts[] = {
        {"attn_norm_weight", BLOCK_F32, 1, SMALL_HIDDEN},
        {"attn_q_weight", BLOCK_Q4_0, SMALL_HIDDEN, SMALL_HIDDEN},
        {"attn_k_weight", BLOCK_Q4_0, SMALL_HIDDEN, SMALL_HIDDEN},
        {"attn_v_weight", BLOCK_Q4_0, SMALL_HIDDEN, SMALL_HIDDEN},
        {"attn_output_weight", BLOCK_Q4_0, SMALL_HIDDEN, SMALL_HIDDEN},
        {"ffn_norm_weight", BLOCK_F32, 1, SMALL_HIDDEN},
        {"ffn_gate_weight", BLOCK_Q4_0, SMALL_FFN, SMALL_HIDDEN},
        {"ffn_up_weight", BLOCK_Q4_0, SMALL_FFN, SMALL_HIDDEN},
        {"ffn_down_weight", BLOCK_Q4_0, SMALL_HIDDEN, SMALL_FFN},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk_%u_%s", layer, parts[i].part);
        small_tensor(t, name, parts[i].type, parts[i].rows, parts[i].cols);
    }
}

static inline void small_fill(SmallModel *m, uint64_t bytes)
{
    m->payload = malloc(bytes);
    for (uint64_t i = 0; i < bytes; i++) m->payload[i] = (uint8_t)(hash_mix64(i) >> 11);
    for (uint32_t i = 0; i < m->knot.tensor_count; i++) {
        const KnotTensor *t = &m->knot.tensors[i];
        uint8_t *at = m->payload + t->offset;
        for (uint32_t c = 0; t->type == BLOCK_F32 && c < t->cols; c++)
            bytes_store_f32(at + 4 * c, 0.75f);
        for (uint64_t b = 0; t->type == BLOCK_Q4_0 && b < t->bytes; b += 18)
            bytes_store16(at + b, 0x2c00); /* a scale of 1/16 */
    }
}

static inline void small_open(SmallModel *m)
{
    static SmallText t;
    t.payload_bytes = 0;
    t.length = (size_t)snprintf(
        t.text, sizeof t.text,
        "{\"model\":{\"architecture\":\"llama\",\"name\":\"small\",\"layers\":%d,\"hidden\":%d,"
        "\"ffn\":%d,\"heads\":1,\"kv_heads\":1,\"head_dim\":%d,\"vocabulary\":%d,\"context\":1024,"
        "\"norm_epsilon\":1e-6,\"rope_base\":10000.0,\"rope_dim\":%d},\"tensors\":[",
        SMALL_LAYERS, SMALL_HIDDEN, SMALL_FFN, SMALL_HIDDEN, SMALL_VOCABULARY, SMALL_HIDDEN);
    for (unsigned l = 0; l < SMALL_LAYERS; l++) small_layer(&t, l);
    small_tensor(&t, "output_norm_weight", BLOCK_F32, 1, SMALL_HIDDEN);
    small_tensor(&t, "token_embd_weight", BLOCK_Q4_0, SMALL_VOCABULARY, SMALL_HIDDEN);
    t.length += (size_t)snprintf(t.text + t.length, sizeof t.text - t.length, "]}");
    size_t header_bytes = ((10 + t.length + 3) & ~(size_t)3) + 1;
    uint8_t *header = calloc(1, header_bytes);
    memcpy(header, "KNOT\1\0", 6);
    bytes_store32(header + 6, (uint32_t)t.length);
    memcpy(header + 10, t.text, t.length);
    header[header_bytes - 1] = 0x40;
    size_t keep = knot_arena_bytes(header_bytes), lend = knot_scratch_bytes(header_bytes);
    void *lent = malloc(lend);
    m->memory = malloc(keep);
    Arena arena = arena_make(m->memory, keep), scratch = arena_make(lent, lend);
    Why why;
    if (knot_parse(header, header_bytes, header_bytes + t.payload_bytes, &arena, &scratch, &m->knot,
                   &why) != OK ||
        hyper_from_knot(&m->knot, &m->hyper, &why) != OK) {
        fprintf(stderr, "small model: %s\n", why.text);
        abort();
    }
    small_fill(m, t.payload_bytes);
    free(lent);
    free(header);
}

/* ---- Nodes ----------------------------------------------------------------------------------- */

typedef struct SmallNode {
    void *memory[3]; /* node, its scratch, its service */
    Station *station;
    ForwardTerms forward_terms;
    StationService *station_service;
    Shard *shard;
    ShardServiceConfig shard_config;
    ShardService *shard_service;
} SmallNode;

static inline Arena small_memory(SmallNode *n, int which, uint64_t bytes)
{
    n->memory[which] = malloc(bytes);
    memset(n->memory[which], 0xa5, bytes);
    return arena_make(n->memory[which], bytes);
}

static inline void small_must(Error error)
{
    if (error != OK) abort();
}

/* `blocks`: of the attention cache. */
static inline void small_station(SmallNode *n, const SmallModel *m, PhaseRange range,
                                 uint32_t blocks)
{
    StationSizes sizes;
    StationConfig config = {.knot = &m->knot,
                            .hyper = &m->hyper,
                            .range = range,
                            .cache = CACHE_F16,
                            .rows_max = SMALL_ROWS,
                            .sessions_max = SMALL_SESSIONS,
                            .context = SMALL_CONTEXT,
                            .blocks = blocks,
                            .workers = 1,
                            .kernels = kernels_for(ISA_SCALAR),
                            .ops = ops_for(ISA_SCALAR)};
    small_must(station_sizes(&config, &sizes, NULL));
    Arena arena = small_memory(n, 0, sizes.floor_bytes + sizes.cache_bytes);
    small_memory(n, 1, sizes.scratch_bytes);
    small_must(station_build(&config, &arena, n->memory[1], &n->station, NULL));
    for (uint32_t f = 0; f < station_floor_count(n->station); f++) {
        float *to;
        const KnotTensor *v = station_floor_tensor(n->station, f, &to);
        memcpy(to, m->payload + v->offset, v->cols * sizeof(float));
    }
    n->forward_terms =
        (ForwardTerms){.identity = {SMALL_KNOT_ID, NUMERICS_VERSION, FRAME_CACHE_F16},
                       .hyper = &m->hyper,
                       .range = range,
                       .rows_max = SMALL_ROWS,
                       .sequences_max = SMALL_SESSIONS,
                       .context = SMALL_CONTEXT};
    arena = small_memory(n, 2, station_service_bytes(&n->forward_terms));
    small_must(
        station_service_build(&n->forward_terms, n->station, &arena, &n->station_service, NULL));
}

static inline void small_shard(SmallNode *n, const SmallModel *m, uint32_t first, uint32_t last)
{
    ShardSizes sizes;
    ShardConfig config = {.knot = &m->knot,
                          .hyper = &m->hyper,
                          .id_first = first,
                          .id_last = last,
                          .rows_max = SMALL_ROWS / 2,
                          .workers = 1,
                          .kernels = kernels_for(ISA_SCALAR)};
    small_must(shard_sizes(&config, &sizes, NULL));
    Arena arena = small_memory(n, 0, sizes.floor_bytes + sizes.logits_bytes);
    small_memory(n, 1, sizes.scratch_bytes);
    small_must(shard_build(&config, &arena, n->memory[1], &n->shard, NULL));
    n->shard_config = (ShardServiceConfig){
        .terms = {.identity = {SMALL_KNOT_ID, NUMERICS_VERSION, FRAME_CACHE_NONE},
                  .hyper = &m->hyper,
                  .id_first = first,
                  .id_last = last,
                  .rows_max = SMALL_ROWS},
        .logit_rows_max = SMALL_ROWS / 2};
    n->shard_config.terms.payload_bytes_max = shard_service_payload_bytes_max(&n->shard_config);
    arena = small_memory(n, 2, shard_service_bytes(&n->shard_config));
    small_must(shard_service_build(&n->shard_config, n->shard, &arena, &n->shard_service, NULL));
}

static inline void small_close(SmallNode *n)
{
    for (int i = 0; i < 3; i++) free(n->memory[i]);
}

/* Makes CRC and payload hash right, where the header's size allows it. */
static inline void small_seal(uint8_t *body, size_t bytes)
{
    if (bytes < FRAME_HEADER_BYTES_MIN) return;
    uint32_t stated = bytes_load32(body + 8);
    if (stated < FRAME_HEADER_BYTES_MIN || stated > bytes || stated > FRAME_HEADER_BYTES_MAX)
        return;
    frame_put_payload_hash(body, hash_xxh64(body + stated, bytes - stated));
    frame_seal(body);
}

/* An input is a list of messages: u8 control, u16 length, then as many bytes as there are. */
typedef struct SmallMessage {
    uint8_t control;
    uint8_t *body; /* malloc'd, of exactly its size */
    size_t bytes;
} SmallMessage;

static inline bool small_next(const uint8_t **data, size_t *size, SmallMessage *out)
{
    if (*size < 3) return false;
    size_t wanted = bytes_load16(*data + 1), there = *size - 3;
    out->control = **data;
    out->bytes = wanted < there ? wanted : there;
    out->body = malloc(out->bytes ? out->bytes : 1);
    memcpy(out->body, *data + 3, out->bytes);
    *data += 3 + out->bytes;
    *size -= 3 + out->bytes;
    return true;
}

#endif
