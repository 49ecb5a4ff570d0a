/* SPDX-License-Identifier: Apache-2.0 */
/* What coordinator and shard send each other (docs/format/frame.md, sections 4 to 6).
 *
 *   POST /embed    ids                                  --> the rows that the shard owns
 *   POST /logits   hidden rows, per row what is wanted  --> per row candidates, log-sum, slice
 *
 * Requests are read in two steps, header then payload; an answer is read against its request.
 * Candidates, slices, seen tokens and biases are used in place: payload buffers are 4-aligned. */
#ifndef COBORD_WIRE_SHARD_FRAMES_H
#define COBORD_WIRE_SHARD_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/hyper.h"
#include "model/sampler.h"
#include "wire/frame.h"
#include "wire/rows.h"

typedef struct ShardTerms {
    FrameIdentity identity; /* cache: FRAME_CACHE_NONE */
    const Hyper *hyper;
    uint32_t id_first, id_last;
    uint32_t rows_max; /* ids of an embed, rows of a logits request: at most FRAME_ROWS_MAX */
    uint64_t payload_bytes_max; /* what the receiver has room for */
} ShardTerms;

typedef struct ShardFrameSize {
    uint32_t header_bytes;
    uint64_t payload_bytes;
} ShardFrameSize;

/* ---- embed ----------------------------------------------------------------------------------- */

typedef enum EmbedForm { EMBED_DENSE = 1, EMBED_SPARSE } EmbedForm;

typedef struct EmbedRequest {
    uint64_t request_id;
    RowsElement element; /* of the answer */
    EmbedForm form;
    uint32_t count;
} EmbedRequest;

ShardFrameSize shard_frames_size_embed(const EmbedRequest *r);
/* Shapes  ids[count], which are also the payload. Every id is below the vocabulary. */
void shard_frames_write_embed(const EmbedRequest *r, const ShardTerms *terms, const uint32_t *ids,
                              uint8_t *header);
/* Errors  those of frame_open, ERR_UNSUPPORTED (another range), ERR_TYPE, ERR_SHAPE, ERR_TOO_LARGE,
 * ERR_FORMAT. */
MUST_CHECK Error shard_frames_read_embed(const uint8_t *header, size_t bytes,
                                         const ShardTerms *terms, EmbedRequest *out,
                                         FrameHead *head, Why *why);
/* Shapes  ids[count]. Errors  those of frame_check_payload, ERR_RANGE (an id). */
MUST_CHECK Error shard_frames_take_ids(const EmbedRequest *r, const FrameHead *head,
                                       const ShardTerms *terms, const uint8_t *payload,
                                       uint64_t bytes, uint32_t *ids, Why *why);

ShardFrameSize shard_frames_size_embed_answer(const EmbedRequest *r, const ShardTerms *terms,
                                              const uint32_t *ids);
/* Shapes  partial[count][hidden] to payload. Errors  ERR_NOT_FINITE. */
MUST_CHECK Error shard_frames_write_embed_answer(const EmbedRequest *r, const ShardTerms *terms,
                                                 const uint32_t *ids, const float *partial,
                                                 uint8_t *header, uint8_t *payload, Why *why);
/* Errors  as for requests; ERR_FORMAT for anything that does not belong to this request. */
MUST_CHECK Error shard_frames_read_embed_answer(const uint8_t *header, size_t bytes,
                                                const EmbedRequest *r, const ShardTerms *terms,
                                                const uint32_t *ids, FrameHead *head, Why *why);
/* Puts the shard's rows into into[count][hidden] and leaves the others alone. Reading all shards'
 * answers in any order, one of them even twice, gives the sum of section 4. */
MUST_CHECK Error shard_frames_take_embed(const EmbedRequest *r, const FrameHead *head,
                                         const ShardTerms *terms, const uint32_t *ids,
                                         const uint8_t *payload, uint64_t bytes, float *into,
                                         Why *why);

/* Bytes of a row's mask in a payload. */
static inline uint64_t shard_frames_mask_bytes(const ShardTerms *terms)
{
    return ((uint64_t)terms->id_last - terms->id_first + 31) / 32 * 4;
}

/* ---- logits ---------------------------------------------------------------------------------- */

typedef struct LogitsRow {
    uint32_t k;
    bool wants_sum, wants_slice;
    float sum_scale; /* with wants_sum */
    float repetition_penalty, presence_penalty, frequency_penalty;
    const SamplerSeen *seen; /* ids rising */
    uint32_t seen_count;
    const SamplerBias *bias;
    uint32_t bias_count;
    /* One bit an id, NULL: all are allowed. Written: bits of the whole vocabulary, of which those of the range are
     * sent. Read: bits of the range. */
    const uint32_t *mask;
    /* The logit of `id` is wanted besides. Written: only the shard whose range has it is asked. */
    bool wants_id;
    uint32_t id;
} LogitsRow;

typedef struct LogitsRequest {
    uint64_t request_id;
    RowsElement element;
    uint32_t rows;
    LogitsRow *row;
} LogitsRequest;

typedef struct LogitsResult {
    const SamplerCandidate *candidates; /* descending */
    uint32_t candidate_count;           /* min(k, ids of the range) */
    LogSum sum;
    const float *slice; /* [id_last - id_first] */
    float id_logit;     /* of wants_id, where the range has the id */
} LogitsResult;

/* `r` may have the seen tokens, biases and masks of the whole vocabulary: those of the range are sent. */
ShardFrameSize shard_frames_size_logits(const LogitsRequest *r, const ShardTerms *terms);
/* Shapes  hidden[rows][hidden]. Errors  ERR_NOT_FINITE. */
MUST_CHECK Error shard_frames_write_logits(const LogitsRequest *r, const ShardTerms *terms,
                                           const float *hidden, uint8_t *header, uint8_t *payload,
                                           Why *why);
/* Owner  `row` is the caller's row[terms->rows_max]; its seen, bias and mask are set by the second step. */
MUST_CHECK Error shard_frames_read_logits(const uint8_t *header, size_t bytes,
                                          const ShardTerms *terms, LogitsRow *row,
                                          LogitsRequest *out, FrameHead *head, Why *why);
/* Shapes  hidden[rows][hidden]. Owner  seen, bias and mask point into the payload. */
MUST_CHECK Error shard_frames_take_logits(LogitsRequest *r, const FrameHead *head,
                                          const ShardTerms *terms, const uint8_t *payload,
                                          uint64_t bytes, float *hidden, Why *why);

ShardFrameSize shard_frames_size_logits_answer(const LogitsRequest *r, const ShardTerms *terms);
/* Shapes  results[rows]. What a result points to may already be at its place in the payload. */
void shard_frames_write_logits_answer(const LogitsRequest *r, const ShardTerms *terms,
                                      const LogitsResult *results, uint8_t *header,
                                      uint8_t *payload);
/* Shapes  results[rows]; their candidates and slices are set by the second step. */
MUST_CHECK Error shard_frames_read_logits_answer(const uint8_t *header, size_t bytes,
                                                 const LogitsRequest *r, const ShardTerms *terms,
                                                 LogitsResult *results, FrameHead *head, Why *why);
/* Errors  those of frame_check_payload, ERR_RANGE (an id), ERR_FORMAT (order), ERR_NOT_FINITE.
 * Owner  results point into the payload. */
MUST_CHECK Error shard_frames_take_logits_answer(const FrameHead *head, const LogitsRequest *r,
                                                 const ShardTerms *terms, const uint8_t *payload,
                                                 uint64_t bytes, LogitsResult *results, Why *why);

#endif
