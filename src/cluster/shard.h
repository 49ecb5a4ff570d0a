/* SPDX-License-Identifier: Apache-2.0 */
/* A shard owns the ids [id_first, id_last) of the vocabulary: their embedding rows and their rows
 * of the output head. Like a station it holds no matrix; it asks for rows and computes with them in
 * place.
 *
 *   shard_begin_embed(ids)  --> TILE one embedding row each that it owns --> DONE: a partial, with
 *                                                                            zero rows for other ids
 *   shard_begin_logits(h)   --> TILE head rows a..b ...                  --> DONE: the logits of its slice
 *   shard_adjust, shard_top --> the best of the slice, and the sum of exponentials
 *
 * Padding rows of the file lie beyond the last id and are never read. */
#ifndef COBORD_CLUSTER_SHARD_H
#define COBORD_CLUSTER_SHARD_H

#include "base/arena.h"
#include "base/parallel.h"
#include "knot/knot.h"
#include "model/hyper.h"
#include "model/sampler.h"
#include "quant/kernels.h"

enum { SHARD_ROWS_MAX = 4096, SHARDS_MAX = 4096 };

typedef struct ShardConfig {
    const Knot *knot;
    const Hyper *hyper;
    uint32_t id_first, id_last;
    uint32_t rows_max; /* hidden rows of one logits call */
    uint32_t workers;
    uint64_t tile_bytes_max; /* 0: the whole slice at once */
    const Kernels *kernels;
} ShardConfig;

typedef enum ShardWishKind { SHARD_TILE, SHARD_DONE } ShardWishKind;

typedef struct ShardWish {
    ShardWishKind kind;
    const KnotTensor *tensor;
    uint32_t row_first, row_count;
    uint64_t offset, bytes; /* from the payload's start; whole panels where the layout has them */
} ShardWish;

typedef struct Shard Shard;

/* The ids of shard `index` of `count`: even, the remainder to the first. Errors  ERR_RANGE when
 * count is 0 or exceeds the vocabulary or SHARDS_MAX. */
MUST_CHECK Error shard_range(uint32_t vocabulary, uint32_t count, uint32_t index,
                             uint32_t *id_first, uint32_t *id_last, Why *why);

typedef struct ShardSizes {
    uint64_t floor_bytes;   /* bookkeeping */
    uint64_t logits_bytes;  /* its slice, for rows_max rows */
    uint64_t scratch_bytes; /* may be shared with other shards of one thread */
    uint64_t widest_panel_bytes;
    uint64_t weight_bytes; /* head rows of the slice */
} ShardSizes;
MUST_CHECK Error shard_sizes(const ShardConfig *config, ShardSizes *out, Why *why);
MUST_CHECK Error shard_build(const ShardConfig *config, Arena *arena, void *scratch, Shard **out,
                             Why *why);

/* Shapes  partial[count][hidden], set to zero here and to the scaled embedding where the shard owns the id.
 * Errors  ERR_RANGE for an id outside the vocabulary. Owner  borrows ids and partial until DONE. */
MUST_CHECK Error shard_begin_embed(Shard *s, const uint32_t *ids, uint32_t count, float *partial,
                                   Why *why);
/* Shapes  hidden[rows][hidden], after the output norm. Errors  ERR_CAPACITY. */
MUST_CHECK Error shard_begin_logits(Shard *s, const float *hidden, uint32_t rows, Why *why);
void shard_next(Shard *s, ShardWish *wish);
/* Errors  ERR_NOT_FINITE (names the tensor and the id). */
MUST_CHECK Error shard_give(Shard *s, const uint8_t *tile, const Parallel *parallel, Why *why);

/* Between shard_begin_embed and DONE: the embedding rows that it has still to ask for, in order, one that comes twice
 * twice. Result  how many; `rows` gets the first `room` of them. */
uint32_t shard_wanted_rows(const Shard *s, uint32_t *rows, uint32_t room);

/* The first id that it owns. */
uint32_t shard_id_first(const Shard *s);
/* The slice of row `row` of the last logits call: [id_last - id_first]. */
const float *shard_logits(const Shard *s, uint32_t row);
/* Forbids the ids without a bit, in place, before shard_adjust. Bit `bit_first` is that of id_first. */
void shard_mask(Shard *s, uint32_t row, const uint32_t *mask, uint32_t bit_first);
/* Bias and penalties, in place, once per row. */
void shard_adjust(Shard *s, uint32_t row, const SamplerParams *p, const SamplerSeen *seen,
                  uint32_t seen_count);
/* The k best of the row, descending; `sum` gets the exponentials of logit * scale. Either may be NULL. */
uint32_t shard_top(const Shard *s, uint32_t row, uint32_t k, SamplerCandidate *out, LogSum *sum,
                   float scale);

/* into[i] += partial[i]: exact, since exactly one shard has a row that is not zero. Start from zeros. */
void shard_merge(float *into, const float *partial, size_t count);

#endif
