/* SPDX-License-Identifier: Apache-2.0 */
/* Everything a layer does besides matrix products, one table per instruction set, all with the same bits
 * (docs/format/numerics.md): each is one source, ops_body.h, over vectors of 16 lanes, compiled once per set. */
#ifndef COBORD_MODEL_OPS_H
#define COBORD_MODEL_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/hyper.h"
#include "quant/kernels.h"

typedef enum CacheType { CACHE_F16, CACHE_Q8_0 } CacheType;

/* Attention cache of one layer and one session is a list of blocks of 64 absolute positions. One block and layer:
 *
 *   f16:   K [kv_head][dim][64 positions] f16         V [kv_head][64 positions][dim] f16
 *   q8_0:  the same with int8, then f32 scales per position and 32 dims: K's [kv_head][dim/32][64 positions],
 *          V's [kv_head][64 positions][dim/32]
 *
 * In this order: K, V, K's scales, V's scales. K is stored with positions innermost, so that SIMD lanes are positions
 * and every score is one accumulator in dim order. */
enum { CACHE_BLOCK_POSITIONS = 64 };
/* One layer; a multiple of 64. 0 when the type cannot hold the head: q8_0 needs head_dim to be a multiple of 32. */
size_t ops_cache_block_bytes(CacheType type, uint32_t kv_heads, uint32_t head_dim);

typedef struct AttentionJob {
    const float *q;       /* [head_dim] of each query head of the group, group_heads x head_dim, contiguous */
    uint32_t group_heads; /* query heads that share the kv head */
    uint32_t kv_head, kv_heads, head_dim;
    const uint8_t *const *blocks; /* blocks[i] holds positions 64 i .. 64 i + 63 of this layer */
    uint32_t position_first;      /* oldest visible position (sliding window), 0 else */
    uint32_t position;            /* the query's own position, visible */
    float scale;
    CacheType cache;
    float *out;     /* group_heads x head_dim */
    float *scratch; /* ops_attention_rows_scratch_floats(1, ..) */
} AttentionJob;

/* Several consecutive positions of one sequence against the same blocks: each block is expanded once for all of them.
 * Row r is exactly what attention() gives for position + r; its bits do not depend on the other rows. The keys and
 * values of every row are in the blocks already. */
enum { OPS_ATTENTION_ROWS_MAX = 16 };
typedef struct AttentionRows {
    AttentionJob row;            /* row 0: its q, position, position_first, out; scratch for all rows */
    uint32_t rows;               /* 1..OPS_ATTENTION_ROWS_MAX */
    uint32_t window;             /* 0, or row r sees `window` positions at most, its own included */
    size_t q_stride, out_stride; /* floats from row to row */
} AttentionRows;

size_t ops_attention_rows_scratch_floats(uint32_t rows, uint32_t group_heads, uint32_t head_dim);

typedef struct Ops {
    Isa isa;
    /* out = x / sqrt(mean(x^2) + epsilon) * weight. out may be x. */
    void (*rms_norm)(const float *x, const float *weight, uint32_t n, float epsilon, float *out);
    /* x += y */
    void (*add)(float *x, const float *y, uint32_t n);
    /* g = act(g) * u */
    void (*gate)(Gate gate, float *g, const float *u, uint32_t n);
    /* Rotates one head in place: cosine and sine of the position, rope_dim / 2 each. */
    void (*rope)(RopeKind kind, float *head, const float *cosine, const float *sine, uint32_t rope_dim);
    /* Writes one position's k and v (kv_heads x head_dim floats each) into the block that holds it. False when a value
     * is not finite or too large for the type (f16: 65504): the position is then not to be used. */
    bool (*cache_store)(CacheType type, uint8_t *block, uint32_t position_in_block, uint32_t kv_heads,
                        uint32_t head_dim, const float *k, const float *v);
    /* Online softmax over blocks at absolute positions; positions outside [position_first, position] add nothing,
     * whatever the memory holds. */
    void (*attention)(const AttentionJob *job);
    void (*attention_rows)(const AttentionRows *job);
    /* False when any is infinite or not a number. */
    bool (*all_finite)(const float *x, uint32_t n);
} Ops;

/* NULL when this build has none for `isa`. */
const Ops *ops_for(Isa isa);

/* Rope tables: frequencies once per model (one for global, one for local layers), then cosine and sine per position.
 * Computed in f64 with our own functions, rounded to f32. `factors` are rope_freqs_weight (llama3) or NULL. */
void ops_rope_frequencies(const Hyper *h, bool local, const float *factors, double *out /* [rope_dim / 2] */,
                          float *magnitude /* yarn's, 1 else */);
void ops_rope_position(const double *frequencies, uint32_t half_dim, float magnitude, uint32_t position,
                       float *cosine, float *sine);

#endif
