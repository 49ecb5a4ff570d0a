/* SPDX-License-Identifier: Apache-2.0 */
/* What embed and logits frames share; used by shard_frames*.c only. */
#ifndef COBORD_WIRE_SHARD_FIELDS_H
#define COBORD_WIRE_SHARD_FIELDS_H

#include "wire/shard_frames.h"

static inline bool shard_fields_owns(const ShardTerms *terms, uint32_t id)
{
    return id >= terms->id_first && id < terms->id_last;
}

/* A broken promise of our own: aborts. */
void shard_fields_check_terms(const ShardTerms *terms);
void shard_fields_put_range(const ShardTerms *terms, uint8_t *header);
/* Errors  ERR_UNSUPPORTED: both ranges are in the Why. */
MUST_CHECK Error shard_fields_check_range(const uint8_t *header, const ShardTerms *terms, Why *why);
/* Errors  ERR_TOO_LARGE: rows or payload. */
MUST_CHECK Error shard_fields_check_limits(uint32_t rows, const FrameHead *head,
                                           const ShardTerms *terms, Why *why);
/* Errors  ERR_SHAPE. */
MUST_CHECK Error shard_fields_check_width(uint32_t width, const ShardTerms *terms, Why *why);

#endif
