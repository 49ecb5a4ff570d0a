/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/shard_service.h"

#include <string.h>

#include "base/max.h"
#include "base/min.h"

struct ShardService {
    ShardServiceConfig config;
    ShardTerms logits_terms; /* config.terms with logit_rows_max */
    Shard *shard;
    float *rows;           /* the embedding rows of an answer, or the hidden rows of a request */
    uint32_t *ids;         /* [terms.rows_max] */
    LogitsRow *row;        /* [logit_rows_max] */
    LogitsResult *results; /* [logit_rows_max] */

    /* The request under way. */
    bool pending;
    ShardServiceKind kind;
    EmbedRequest embed;
    LogitsRequest logits;
};

static size_t rows_floats(const ShardServiceConfig *c)
{
    return (size_t)max_u32(c->terms.rows_max, c->logit_rows_max) * c->terms.hyper->hidden;
}

uint64_t shard_service_bytes(const ShardServiceConfig *c)
{
    return arena_bytes(sizeof(ShardService)) + arena_bytes(rows_floats(c) * sizeof(float)) +
           arena_bytes(c->terms.rows_max * sizeof(uint32_t)) +
           arena_bytes(c->logit_rows_max * sizeof(LogitsRow)) +
           arena_bytes(c->logit_rows_max * sizeof(LogitsResult)) + ARENA_ALIGN;
}

uint64_t shard_service_payload_bytes_max(const ShardServiceConfig *c)
{
    uint64_t ids = c->terms.id_last - c->terms.id_first;
    uint64_t seen = min_u64(ids, SAMPLER_REPEAT_WINDOW_MAX);
    uint64_t pairs = seen * sizeof(SamplerSeen) + (uint64_t)SAMPLER_BIAS_MAX * sizeof(SamplerBias);
    uint64_t logits = c->logit_rows_max * (rows_bytes(ROWS_F32, 1, c->terms.hyper->hidden) + pairs +
                                           shard_frames_mask_bytes(&c->terms) + sizeof(uint32_t));
    uint64_t embed = (uint64_t)c->terms.rows_max * sizeof(uint32_t);
    return max_u64(logits, embed);
}

uint64_t shard_service_body_bytes_max(const ShardServiceConfig *c)
{
    LogitsRequest none = {.element = ROWS_F32, .rows = 0};
    uint64_t empty = shard_frames_size_logits(&none, &c->terms).header_bytes;
    uint64_t table = (uint64_t)c->logit_rows_max * FRAME_HEADER_UNIT; /* a row's fields are less */
    return empty + table + c->terms.payload_bytes_max;
}

/* An embed's rows, or of each row of logits: every candidate, the whole slice. */
uint64_t shard_service_answer_bytes_max(const ShardServiceConfig *c, bool embed, bool head)
{
    uint64_t ids = c->terms.id_last - c->terms.id_first,
             row = ids * (sizeof(SamplerCandidate) + sizeof(float)) + sizeof(float);
    uint64_t rows = embed ? rows_bytes(ROWS_F32, c->terms.rows_max, c->terms.hyper->hidden) : 0,
             logits = head ? c->logit_rows_max * row : 0;
    return max_u64(rows, logits) + FRAME_HEADER_BYTES_MIN +
           (uint64_t)(c->terms.rows_max + c->logit_rows_max) * FRAME_HEADER_UNIT;
}

Error shard_service_build(const ShardServiceConfig *c, Shard *shard, Arena *arena,
                          ShardService **out, Why *why)
{
    ShardService *s = ARENA_NEW(arena, ShardService, 1);
    if (!s) return error_why(why, ERR_MEMORY, "no memory for a shard's frames");
    s->config = *c;
    s->logits_terms = c->terms;
    s->logits_terms.rows_max = c->logit_rows_max;
    s->shard = shard;
    s->rows = arena_take_raw(arena, rows_floats(c) * sizeof(float));
    s->ids = ARENA_NEW(arena, uint32_t, c->terms.rows_max);
    s->row = ARENA_NEW(arena, LogitsRow, c->logit_rows_max);
    s->results = ARENA_NEW(arena, LogitsResult, c->logit_rows_max);
    if (!s->rows || !s->ids || !s->row || !s->results)
        return error_why(why, ERR_MEMORY, "no memory for a shard's frames");
    *out = s;
    return OK;
}

/* --- The request --- */

static Error begin_embed(ShardService *s, const uint8_t *body, size_t bytes, Why *why)
{
    const ShardTerms *terms = &s->config.terms;
    FrameHead head;
    TRY(shard_frames_read_embed(body, bytes, terms, &s->embed, &head, why));
    TRY(shard_frames_take_ids(&s->embed, &head, terms, body + head.header_bytes,
                              bytes - head.header_bytes, s->ids, why));
    return shard_begin_embed(s->shard, s->ids, s->embed.count, s->rows, why);
}

static Error begin_logits(ShardService *s, const uint8_t *body, size_t bytes, Why *why)
{
    const ShardTerms *terms = &s->logits_terms;
    FrameHead head;
    TRY(shard_frames_read_logits(body, bytes, terms, s->row, &s->logits, &head, why));
    TRY(shard_frames_take_logits(&s->logits, &head, terms, body + head.header_bytes,
                                 bytes - head.header_bytes, s->rows, why));
    return shard_begin_logits(s->shard, s->rows, s->logits.rows, why);
}

Error shard_service_begin(ShardService *s, ShardServiceKind kind, const uint8_t *body, size_t bytes,
                          Why *why)
{
    s->pending = false;
    s->kind = kind;
    TRY(kind == SHARD_SERVICE_EMBED ? begin_embed(s, body, bytes, why)
                                    : begin_logits(s, body, bytes, why));
    s->pending = true;
    return OK;
}

/* --- The answer --- */

static ShardFrameSize answer_size(const ShardService *s)
{
    ASSERT(s->pending);
    if (s->kind == SHARD_SERVICE_EMBED)
        return shard_frames_size_embed_answer(&s->embed, &s->config.terms, s->ids);
    return shard_frames_size_logits_answer(&s->logits, &s->logits_terms);
}

size_t shard_service_answer_bytes(const ShardService *s)
{
    ShardFrameSize size = answer_size(s);
    return size.header_bytes + (size_t)size.payload_bytes;
}

static uint32_t ids_of(const ShardService *s)
{
    return s->config.terms.id_last - s->config.terms.id_first;
}

static bool is_off(const LogitsRow *row)
{
    return row->bias_count == 0 && row->seen_count == 0 && !row->mask;
}

/* The shard's logits are finite; what mask, bias and penalties make of them may be -infinity, which forbids. */
static Error adjust(ShardService *s, uint32_t index, Why *why)
{
    const LogitsRow *row = &s->row[index];
    if (is_off(row)) return OK;
    SamplerParams p = sampler_defaults();
    p.repetition_penalty = row->repetition_penalty;
    p.presence_penalty = row->presence_penalty;
    p.frequency_penalty = row->frequency_penalty;
    p.bias = row->bias;
    p.bias_count = row->bias_count;
    if (row->mask) shard_mask(s->shard, index, row->mask, 0);
    shard_adjust(s->shard, index, &p, row->seen, row->seen_count);
    const float *logits = shard_logits(s->shard, index);
    for (uint32_t i = 0; i < ids_of(s); i++)
        if (logits[i] - logits[i] != 0 && logits[i] != -__builtin_inff())
            return error_why(why, ERR_NOT_FINITE,
                             "row %u: penalties make the logit of id %u infinite", index,
                             s->config.terms.id_first + i);
    return OK;
}

/* Candidates and slice go straight to their place in the payload. Result  the place behind them. */
static uint8_t *fill(ShardService *s, uint32_t index, uint8_t *at)
{
    const LogitsRow *row = &s->row[index];
    LogitsResult *result = &s->results[index];
    SamplerCandidate *candidates = row->k ? (SamplerCandidate *)at : NULL;
    *result = (LogitsResult){.candidates = candidates};
    logsum_start(&result->sum);
    result->candidate_count = shard_top(s->shard, index, row->k, candidates,
                                        row->wants_sum ? &result->sum : NULL, row->sum_scale);
    at += result->candidate_count * sizeof(SamplerCandidate);
    const float *logits = shard_logits(s->shard, index);
    if (row->wants_slice) {
        memcpy(at, logits, ids_of(s) * sizeof(float));
        result->slice = (const float *)at;
        at += ids_of(s) * sizeof(float);
    }
    if (!row->wants_id) return at;
    result->id_logit = logits[row->id - s->config.terms.id_first];
    return at + sizeof(float);
}

static Error write_logits(ShardService *s, uint8_t *header, uint8_t *payload, Why *why)
{
    uint8_t *at = payload;
    for (uint32_t i = 0; i < s->logits.rows; i++) {
        TRY(adjust(s, i, why));
        at = fill(s, i, at);
    }
    shard_frames_write_logits_answer(&s->logits, &s->logits_terms, s->results, header, payload);
    return OK;
}

Error shard_service_write(ShardService *s, uint8_t *out, size_t room, size_t *bytes, Why *why)
{
    ShardFrameSize size = answer_size(s);
    uint8_t *payload = out + size.header_bytes;
    if (room < size.header_bytes || room - size.header_bytes < size.payload_bytes)
        return error_why(why, ERR_CAPACITY, "an answer of %zu bytes, with room for %zu",
                         shard_service_answer_bytes(s), room);
    ASSERT((uintptr_t)out % sizeof(float) == 0);
    s->pending = false;
    TRY(s->kind == SHARD_SERVICE_EMBED
            ? shard_frames_write_embed_answer(&s->embed, &s->config.terms, s->ids, s->rows, out,
                                              payload, why)
            : write_logits(s, out, payload, why));
    *bytes = size.header_bytes + (size_t)size.payload_bytes;
    return OK;
}
