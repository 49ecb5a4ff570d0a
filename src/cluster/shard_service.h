/* SPDX-License-Identifier: Apache-2.0 */
/* A shard's side of the wire: bytes in, wishes of the shard, bytes out. It has no state between
 * requests, so that any shard of the same range gives the same answer.
 *
 *   body --shard_service_begin--> shard has begun --host: its tiles--> shard_service_write --> answer */
#ifndef COBORD_CLUSTER_SHARD_SERVICE_H
#define COBORD_CLUSTER_SHARD_SERVICE_H

#include "base/arena.h"
#include "cluster/shard.h"
#include "wire/shard_frames.h"

typedef enum ShardServiceKind { SHARD_SERVICE_EMBED, SHARD_SERVICE_LOGITS } ShardServiceKind;

typedef struct ShardServiceConfig {
    ShardTerms terms;        /* rows_max: of an embed */
    uint32_t logit_rows_max; /* of a logits request: the shard's rows_max */
} ShardServiceConfig;

typedef struct ShardService ShardService;

uint64_t shard_service_bytes(const ShardServiceConfig *config);
/* The largest payload of a coordinator's requests for these ids, with as many tokens seen as the
 * sampler looks at and as many biases as it takes in each row: for terms.payload_bytes_max. */
uint64_t shard_service_payload_bytes_max(const ShardServiceConfig *config);
/* The largest body: a header and terms.payload_bytes_max. */
uint64_t shard_service_body_bytes_max(const ShardServiceConfig *config);
/* The largest answer of one that is asked for embeddings, for logits, or for both. */
uint64_t shard_service_answer_bytes_max(const ShardServiceConfig *config, bool embed, bool head);
/* Owner  the shard, the arena and terms.hyper outlive it. Thread  that of the shard. */
MUST_CHECK Error shard_service_build(const ShardServiceConfig *config, Shard *shard, Arena *arena,
                                     ShardService **out, Why *why);

/* Reads a whole body and begins the shard's work. What was under way is given up.
 * Owner  borrows `body`, 4-aligned, until the answer is written.
 * Errors  those of the readers of wire/shard_frames.h and of shard_begin_embed, shard_begin_logits. */
MUST_CHECK Error shard_service_begin(ShardService *s, ShardServiceKind kind, const uint8_t *body,
                                     size_t bytes, Why *why);
size_t shard_service_answer_bytes(const ShardService *s);
/* Bias, penalties, candidates, log-sum and slices are made here, once per request. Shapes  out is
 * 4-aligned. Errors  ERR_NOT_FINITE (a number too large for the element, a penalty that makes a logit
 * infinite: names the row), ERR_CAPACITY (`room`; nothing was made). */
MUST_CHECK Error shard_service_write(ShardService *s, uint8_t *out, size_t room, size_t *bytes,
                                     Why *why);

#endif
