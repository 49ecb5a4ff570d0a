/* SPDX-License-Identifier: Apache-2.0 */
/* Logits frames (docs/format/frame.md, sections 5 and 6). */
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "text/grammar_mask.h"
#include "wire/shard_fields.h"
#include "wire/shard_frames.h"

enum {
    AT_ROWS = 64,
    AT_ELEMENT = 68,
    AT_ZERO = 69,
    AT_WIDTH = 72,
    AT_ZERO_TAIL = 76,
    AT_TABLE = 96,
    ROW_BYTES = 32,
    RESULT_BYTES = 48,
    FLAG_SUM = 1,
    FLAG_SLICE = 2,
    FLAG_MASK = 4,
    FLAG_ID = 8,
    PAIR_BYTES = 8,
    ID_BYTES = 4,
    TOP_MAX = 1 << 30
};

_Static_assert(AT_TABLE + FRAME_ROWS_MAX * RESULT_BYTES <= FRAME_HEADER_BYTES_MAX,
               "the largest answer has a header");
_Static_assert(sizeof(SamplerSeen) == PAIR_BYTES && sizeof(SamplerBias) == PAIR_BYTES &&
                   sizeof(SamplerCandidate) == PAIR_BYTES,
               "pairs are used in place");

static uint32_t logits_ids(const ShardTerms *terms) { return terms->id_last - terms->id_first; }

static bool logits_has_id(const LogitsRow *row, const ShardTerms *terms)
{
    return row->wants_id && shard_fields_owns(terms, row->id);
}

static uint32_t logits_flags(const LogitsRow *row, const ShardTerms *terms)
{
    return (row->wants_sum ? FLAG_SUM : 0u) | (row->wants_slice ? FLAG_SLICE : 0u) |
           (row->mask ? FLAG_MASK : 0u) | (logits_has_id(row, terms) ? FLAG_ID : 0u);
}

static uint32_t logits_candidates(const LogitsRow *row, const ShardTerms *terms)
{
    return row->k < logits_ids(terms) ? row->k : logits_ids(terms);
}

/* ---- request --------------------------------------------------------------------------------- */

static uint32_t logits_seen(const LogitsRow *row, const ShardTerms *terms)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < row->seen_count; i++) n += shard_fields_owns(terms, row->seen[i].id);
    return n;
}

static uint32_t logits_biases(const LogitsRow *row, const ShardTerms *terms)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < row->bias_count; i++) n += shard_fields_owns(terms, row->bias[i].id);
    return n;
}

ShardFrameSize shard_frames_size_logits(const LogitsRequest *r, const ShardTerms *terms)
{
    uint64_t bytes = rows_bytes(r->element, r->rows, terms->hyper->hidden);
    for (uint32_t i = 0; i < r->rows; i++) {
        bytes += (uint64_t)PAIR_BYTES *
                 ((uint64_t)logits_seen(&r->row[i], terms) + logits_biases(&r->row[i], terms));
        if (r->row[i].mask) bytes += shard_frames_mask_bytes(terms);
        if (logits_has_id(&r->row[i], terms)) bytes += ID_BYTES;
    }
    return (ShardFrameSize){(uint32_t)frame_header_size(AT_TABLE + (uint64_t)r->rows * ROW_BYTES),
                            bytes};
}

static void logits_put_row(const LogitsRow *row, const ShardTerms *terms, uint8_t *at)
{
    bytes_store32(at, row->k);
    bytes_store_f32(at + 4, row->wants_sum ? row->sum_scale : 0.0f);
    bytes_store_f32(at + 8, row->repetition_penalty);
    bytes_store_f32(at + 12, row->presence_penalty);
    bytes_store_f32(at + 16, row->frequency_penalty);
    bytes_store32(at + 20, logits_seen(row, terms));
    bytes_store32(at + 24, logits_biases(row, terms));
    bytes_store32(at + 28, logits_flags(row, terms));
}

static uint8_t *logits_put_lists(const LogitsRow *row, const ShardTerms *terms, uint8_t *at)
{
    for (uint32_t i = 0; i < row->seen_count; i++)
        if (shard_fields_owns(terms, row->seen[i].id))
            memcpy(at, &row->seen[i], PAIR_BYTES), at += PAIR_BYTES;
    for (uint32_t i = 0; i < row->bias_count; i++)
        if (shard_fields_owns(terms, row->bias[i].id))
            memcpy(at, &row->bias[i], PAIR_BYTES), at += PAIR_BYTES;
    if (row->mask) {
        grammar_mask_cut(row->mask, terms->id_first, logits_ids(terms), (uint32_t *)at);
        at += shard_frames_mask_bytes(terms);
    }
    if (!logits_has_id(row, terms)) return at;
    bytes_store32(at, row->id);
    return at + ID_BYTES;
}

Error shard_frames_write_logits(const LogitsRequest *r, const ShardTerms *terms,
                                const float *hidden, uint8_t *header, uint8_t *payload, Why *why)
{
    ShardFrameSize size = shard_frames_size_logits(r, terms);
    uint32_t width = terms->hyper->hidden;
    shard_fields_check_terms(terms);
    ASSERT(r->rows <= terms->rows_max);
    TRY(rows_write(r->element, hidden, r->rows, width, payload, why));
    uint8_t *at = payload + rows_bytes(r->element, r->rows, width);
    for (uint32_t i = 0; i < r->rows; i++) at = logits_put_lists(&r->row[i], terms, at);
    FrameHead head = {size.header_bytes, r->request_id, size.payload_bytes,
                      hash_xxh64(payload, (size_t)size.payload_bytes)};
    frame_start(header, FRAME_LOGITS, &terms->identity, &head);
    shard_fields_put_range(terms, header);
    bytes_store32(header + AT_ROWS, r->rows);
    header[AT_ELEMENT] = (uint8_t)r->element;
    bytes_store32(header + AT_WIDTH, width);
    for (uint32_t i = 0; i < r->rows; i++)
        logits_put_row(&r->row[i], terms, header + AT_TABLE + (size_t)i * ROW_BYTES);
    frame_seal(header);
    return OK;
}

/* Of a row whose header was read: the mask itself comes with the payload. */
static const uint32_t mask_to_come[1];

/* Written so that NaN fails. */
static Error logits_number(float value, float low, float high, uint32_t row, const char *what,
                           Why *why)
{
    if (value >= low && value <= high) return OK;
    return error_why(why, ERR_RANGE, "row %u: the %s is out of range", row, what);
}

static Error logits_take_row(const uint8_t *at, uint32_t index, const ShardTerms *terms,
                             LogitsRow *row, Why *why)
{
    uint32_t flags = bytes_load32(at + 28);
    if (flags & ~(uint32_t)(FLAG_SUM | FLAG_SLICE | FLAG_MASK | FLAG_ID))
        return error_why(why, ERR_FORMAT, "row %u: flags %x; bits 0 to 3 are known", index, flags);
    *row = (LogitsRow){.k = bytes_load32(at),
                       .wants_sum = flags & FLAG_SUM,
                       .wants_slice = flags & FLAG_SLICE,
                       .mask = flags & FLAG_MASK ? mask_to_come : NULL,
                       .wants_id = flags & FLAG_ID,
                       .sum_scale = bytes_load_f32(at + 4),
                       .repetition_penalty = bytes_load_f32(at + 8),
                       .presence_penalty = bytes_load_f32(at + 12),
                       .frequency_penalty = bytes_load_f32(at + 16),
                       .seen_count = bytes_load32(at + 20),
                       .bias_count = bytes_load32(at + 24)};
    if (row->k > terms->hyper->vocabulary)
        return error_why(why, ERR_RANGE, "row %u wants %u candidates, the vocabulary has %u", index,
                         row->k, terms->hyper->vocabulary);
    if (row->seen_count > logits_ids(terms) || row->bias_count > SAMPLER_BIAS_MAX)
        return error_why(
            why, ERR_RANGE, "row %u has %u seen tokens and %u biases, at most %u and %u", index,
            row->seen_count, row->bias_count, logits_ids(terms), (unsigned)SAMPLER_BIAS_MAX);
    if (row->wants_sum ? row->sum_scale == 0 : bytes_load32(at + 4) != 0)
        return error_why(why, ERR_RANGE, "row %u: the scale does not fit the flags", index);
    TRY(logits_number(row->sum_scale, -__FLT_MAX__, __FLT_MAX__, index, "scale", why));
    TRY(logits_number(row->repetition_penalty, 0.01f, 100.0f, index, "repetition penalty", why));
    TRY(logits_number(row->presence_penalty, -100.0f, 100.0f, index, "presence penalty", why));
    return logits_number(row->frequency_penalty, -100.0f, 100.0f, index, "frequency penalty", why);
}

Error shard_frames_read_logits(const uint8_t *header, size_t bytes, const ShardTerms *terms,
                               LogitsRow *row, LogitsRequest *out, FrameHead *head, Why *why)
{
    shard_fields_check_terms(terms);
    TRY(frame_open(header, bytes, FRAME_LOGITS, &terms->identity, head, why));
    TRY(shard_fields_check_range(header, terms, why));
    out->request_id = head->request_id;
    out->rows = bytes_load32(header + AT_ROWS);
    out->row = row;
    TRY(shard_fields_check_limits(out->rows, head, terms, why));
    TRY(rows_element_from_number(header[AT_ELEMENT], &out->element, why));
    TRY(shard_fields_check_width(bytes_load32(header + AT_WIDTH), terms, why));
    TRY(frame_check_zero(header, AT_ZERO, AT_WIDTH, why));
    TRY(frame_check_zero(header, AT_ZERO_TAIL, AT_TABLE, why));
    uint64_t end = AT_TABLE + (uint64_t)out->rows * ROW_BYTES;
    uint64_t payload = rows_bytes(out->element, out->rows, terms->hyper->hidden);
    if (head->header_bytes < end)
        return error_why(why, ERR_FORMAT, "%u rows do not fit a header of %u bytes", out->rows,
                         head->header_bytes);
    for (uint32_t i = 0; i < out->rows; i++) {
        TRY(logits_take_row(header + AT_TABLE + (size_t)i * ROW_BYTES, i, terms, &row[i], why));
        payload += (uint64_t)PAIR_BYTES * ((uint64_t)row[i].seen_count + row[i].bias_count);
        if (row[i].mask) payload += shard_frames_mask_bytes(terms);
        if (row[i].wants_id) payload += ID_BYTES;
    }
    return frame_check_sizes(header, head, end, payload, why);
}

static Error logits_check_pairs(const LogitsRow *row, uint32_t index, const ShardTerms *terms,
                                Why *why)
{
    for (uint32_t i = 0; i < row->seen_count; i++) {
        const SamplerSeen *s = &row->seen[i];
        if (!shard_fields_owns(terms, s->id) || (i && s->id <= s[-1].id) || s->count == 0)
            return error_why(why, ERR_RANGE,
                             "row %u: seen token %u (%u times): ids rise, within %u to %u", index,
                             s->id, s->count, terms->id_first, terms->id_last);
    }
    for (uint32_t i = 0; i < row->bias_count; i++) {
        if (!shard_fields_owns(terms, row->bias[i].id))
            return error_why(why, ERR_RANGE, "row %u: a bias for token %u, the range is %u to %u",
                             index, row->bias[i].id, terms->id_first, terms->id_last);
        TRY(logits_number(row->bias[i].bias, -1e6f, 1e6f, index, "bias", why));
    }
    return OK;
}

/* The bits behind the range's last id are 0: one mask, one form. */
static Error logits_take_mask(LogitsRow *row, uint32_t index, const ShardTerms *terms,
                              const uint8_t **at, Why *why)
{
    if (!row->mask) return OK;
    row->mask = (const uint32_t *)*at;
    *at += shard_frames_mask_bytes(terms);
    uint32_t ids = logits_ids(terms), rest = ids & 31;
    if (!rest || row->mask[ids / 32] >> rest == 0) return OK;
    return error_why(why, ERR_FORMAT, "row %u: the mask has bits behind its %u ids", index, ids);
}

static Error logits_take_id(LogitsRow *row, uint32_t index, const ShardTerms *terms,
                            const uint8_t **at, Why *why)
{
    if (!row->wants_id) return OK;
    row->id = bytes_load32(*at);
    *at += ID_BYTES;
    if (shard_fields_owns(terms, row->id)) return OK;
    return error_why(why, ERR_RANGE, "row %u wants the logit of %u, the range is %u to %u", index,
                     row->id, terms->id_first, terms->id_last);
}

Error shard_frames_take_logits(LogitsRequest *r, const FrameHead *head, const ShardTerms *terms,
                               const uint8_t *payload, uint64_t bytes, float *hidden, Why *why)
{
    ASSERT((uintptr_t)payload % 4 == 0);
    TRY(frame_check_payload(head, payload, bytes, why));
    TRY(rows_read(r->element, payload, r->rows, terms->hyper->hidden, hidden, why));
    const uint8_t *at = payload + rows_bytes(r->element, r->rows, terms->hyper->hidden);
    for (uint32_t i = 0; i < r->rows; i++) {
        LogitsRow *row = &r->row[i];
        row->seen = (const SamplerSeen *)at;
        at += (size_t)row->seen_count * PAIR_BYTES;
        row->bias = (const SamplerBias *)at;
        at += (size_t)row->bias_count * PAIR_BYTES;
        TRY(logits_check_pairs(row, i, terms, why));
        TRY(logits_take_mask(row, i, terms, &at, why));
        TRY(logits_take_id(row, i, terms, &at, why));
    }
    return OK;
}

/* ---- answer ---------------------------------------------------------------------------------- */

static uint64_t logits_result_bytes(const LogitsRow *row, const ShardTerms *terms)
{
    uint64_t slice = row->wants_slice ? (uint64_t)logits_ids(terms) * 4 : 0;
    return (uint64_t)logits_candidates(row, terms) * PAIR_BYTES + slice +
           (logits_has_id(row, terms) ? sizeof(float) : 0);
}

ShardFrameSize shard_frames_size_logits_answer(const LogitsRequest *r, const ShardTerms *terms)
{
    ShardFrameSize size = {(uint32_t)frame_header_size(AT_TABLE + (uint64_t)r->rows * RESULT_BYTES),
                           0};
    for (uint32_t i = 0; i < r->rows; i++)
        size.payload_bytes += logits_result_bytes(&r->row[i], terms);
    return size;
}

static uint8_t *logits_put_result(const LogitsRow *row, const LogitsResult *result,
                                  const ShardTerms *terms, uint8_t *record, uint8_t *at)
{
    size_t candidates = (size_t)result->candidate_count * PAIR_BYTES;
    size_t slice = (size_t)logits_ids(terms) * 4;
    ASSERT(result->candidate_count == logits_candidates(row, terms));
    bytes_store32(record, result->candidate_count);
    bytes_store32(record + 4, logits_flags(row, terms));
    if (row->wants_sum) {
        memcpy(record + 8, result->sum.limb, sizeof result->sum.limb);
        bytes_store32(record + 40, (uint32_t)result->sum.top);
        bytes_store32(record + 44, result->sum.broken);
    }
    if (candidates && at != (const uint8_t *)result->candidates)
        memcpy(at, result->candidates, candidates);
    at += candidates;
    if (row->wants_slice) {
        if (slice && at != (const uint8_t *)result->slice) memcpy(at, result->slice, slice);
        at += slice;
    }
    if (!logits_has_id(row, terms)) return at;
    bytes_store_f32(at, result->id_logit);
    return at + sizeof(float);
}

void shard_frames_write_logits_answer(const LogitsRequest *r, const ShardTerms *terms,
                                      const LogitsResult *results, uint8_t *header,
                                      uint8_t *payload)
{
    ShardFrameSize size = shard_frames_size_logits_answer(r, terms);
    FrameHead head = {size.header_bytes, r->request_id, size.payload_bytes, 0};
    uint8_t *at = payload;
    shard_fields_check_terms(terms);
    frame_start(header, FRAME_LOGITS_ANSWER, &terms->identity, &head);
    shard_fields_put_range(terms, header);
    bytes_store32(header + AT_ROWS, r->rows);
    for (uint32_t i = 0; i < r->rows; i++)
        at = logits_put_result(&r->row[i], &results[i], terms,
                               header + AT_TABLE + (size_t)i * RESULT_BYTES, at);
    frame_put_payload_hash(header, hash_xxh64(payload, (size_t)size.payload_bytes));
    frame_seal(header);
}

/* Limits that keep every merge of up to HYPER_VOCABULARY_MAX addends inside its integers. */
static Error logits_take_sum(const uint8_t *record, uint32_t index, const ShardTerms *terms,
                             LogSum *sum, Why *why)
{
    uint64_t most = (uint64_t)logits_ids(terms) * UINT32_MAX, any = 0;
    bool valid = true;
    memcpy(sum->limb, record + 8, sizeof sum->limb);
    sum->top = (int32_t)bytes_load32(record + 40);
    sum->broken = bytes_load32(record + 44);
    for (int i = 0; i < LOGSUM_LIMBS; i++) {
        valid &= sum->limb[i] <= most;
        any |= sum->limb[i];
    }
    valid &= sum->broken <= 1;
    valid &= sum->top == INT32_MIN ? any == 0 : sum->top >= -TOP_MAX && sum->top <= TOP_MAX;
    return valid ? OK
                 : error_why(why, ERR_RANGE, "row %u: no log-sum of %u ids looks like this", index,
                             logits_ids(terms));
}

static Error logits_take_result(const uint8_t *header, size_t at, uint32_t index,
                                const LogitsRow *row, const ShardTerms *terms, LogitsResult *out,
                                Why *why)
{
    *out = (LogitsResult){.candidate_count = bytes_load32(header + at)};
    TRY(frame_check_echo(out->candidate_count, logits_candidates(row, terms), "candidates", why));
    TRY(frame_check_echo(bytes_load32(header + at + 4), logits_flags(row, terms), "flags", why));
    logsum_start(&out->sum);
    if (row->wants_sum) return logits_take_sum(header + at, index, terms, &out->sum, why);
    return frame_check_zero(header, at + 8, at + RESULT_BYTES, why);
}

Error shard_frames_read_logits_answer(const uint8_t *header, size_t bytes, const LogitsRequest *r,
                                      const ShardTerms *terms, LogitsResult *results,
                                      FrameHead *head, Why *why)
{
    ShardFrameSize size = shard_frames_size_logits_answer(r, terms);
    shard_fields_check_terms(terms);
    TRY(frame_open(header, bytes, FRAME_LOGITS_ANSWER, &terms->identity, head, why));
    TRY(shard_fields_check_range(header, terms, why));
    TRY(frame_check_echo(head->request_id, r->request_id, "request id", why));
    TRY(frame_check_echo(bytes_load32(header + AT_ROWS), r->rows, "rows", why));
    TRY(frame_check_zero(header, AT_ELEMENT, AT_TABLE, why));
    TRY(frame_check_sizes(header, head, AT_TABLE + (uint64_t)r->rows * RESULT_BYTES,
                          size.payload_bytes, why));
    for (uint32_t i = 0; i < r->rows; i++)
        TRY(logits_take_result(header, AT_TABLE + (size_t)i * RESULT_BYTES, i, &r->row[i], terms,
                               &results[i], why));
    return OK;
}

enum { LOGITS_INFINITY_BITS = 0x7f800000 };

/* Finite, or forbidden: -infinity. */
static bool logits_is_number(float logit)
{
    return (bytes_load32(&logit) & LOGITS_INFINITY_BITS) != LOGITS_INFINITY_BITS ||
           logit == -__builtin_inff();
}

static Error logits_check_result(const LogitsResult *result, const ShardTerms *terms, uint32_t row,
                                 Why *why)
{
    const SamplerCandidate *c = result->candidates;
    for (uint32_t i = 0; i < result->candidate_count; i++) {
        if (!shard_fields_owns(terms, c[i].id))
            return error_why(why, ERR_RANGE, "row %u: candidate %u, the range is %u to %u", row,
                             c[i].id, terms->id_first, terms->id_last);
        if (!logits_is_number(c[i].logit))
            return error_why(why, ERR_NOT_FINITE, "row %u: the logit of %u is not finite", row,
                             c[i].id);
        if (i && (c[i].logit > c[i - 1].logit ||
                  (c[i].logit == c[i - 1].logit && c[i].id <= c[i - 1].id)))
            return error_why(why, ERR_FORMAT, "row %u: candidate %u is not in order", row, c[i].id);
    }
    for (uint32_t i = 0; result->slice && i < logits_ids(terms); i++)
        if (!logits_is_number(result->slice[i]))
            return error_why(why, ERR_NOT_FINITE, "row %u: the logit of %u is not finite", row,
                             terms->id_first + i);
    if (!logits_is_number(result->id_logit))
        return error_why(why, ERR_NOT_FINITE, "row %u: the logit that is asked for is not finite",
                         row);
    return OK;
}

Error shard_frames_take_logits_answer(const FrameHead *head, const LogitsRequest *r,
                                      const ShardTerms *terms, const uint8_t *payload,
                                      uint64_t bytes, LogitsResult *results, Why *why)
{
    ASSERT((uintptr_t)payload % 4 == 0);
    TRY(frame_check_payload(head, payload, bytes, why));
    for (uint32_t i = 0; i < r->rows; i++) {
        results[i].candidates = (const SamplerCandidate *)payload;
        payload += (size_t)results[i].candidate_count * PAIR_BYTES;
        results[i].slice = r->row[i].wants_slice ? (const float *)payload : NULL;
        if (r->row[i].wants_slice) payload += (size_t)logits_ids(terms) * 4;
        if (logits_has_id(&r->row[i], terms)) {
            results[i].id_logit = bytes_load_f32(payload);
            payload += sizeof(float);
        }
        TRY(logits_check_result(&results[i], terms, i, why));
    }
    return OK;
}
